/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A data plane that misbehaves or dies at a chosen moment, for tests of libweir. It has one process
 * and no sockets but doorbells. Local connections get segments as from the real one. Connections to
 * node 1 are "remote": an engine takes slots out of one channel and puts them into another, keeping
 * windows and receive blocks as the real one does, and fails the test when the library breaks a
 * rule.
 */
#ifndef WEIR_TEST_PLANE_FAKE_H
#define WEIR_TEST_PLANE_FAKE_H

#include "plane.h"

void fake_open(struct plane *f);
/*
 * An operator ends the session: a message on its socket says so before it hangs up, or, if `asked`,
 * the answer to its next request. Needs `watched`.
 */
void fake_evict(struct plane *f, struct weir *w, bool asked);
void fake_node_event(struct plane *f, uint16_t node, uint32_t status);
/* Connections to that node end with this errno before they open; with a reason the data plane
 * refuses them at once. */
void fake_fail(struct plane *f, uint32_t node, uint32_t code, const char *reason);
/* Every FIND finds this list from now on, and the count of plane_found_asked() restarts. */
void fake_found(struct plane *f, const struct weir_found *list, uint32_t n);

#endif

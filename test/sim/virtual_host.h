/* SPDX-License-Identifier: BSD-3-Clause */
/* Hosts of a virtual world: what is done to them, and what must hold. */
#ifndef WEIR_TEST_VIRTUAL_HOST_H
#define WEIR_TEST_VIRTUAL_HOST_H

#include "virtual.h"

/* `listed`: by a peers file, place = id; else the first places are seeds, and ids are claimed. */
void hosts_make(uint64_t seed, uint32_t hosts, bool listed);
void hosts_free(void);

void host_start(struct host *h);
/* SIGTERM; SIGKILL; the power goes, of the data plane too. */
void host_stop(struct host *h);
void host_kill(struct host *h);
void host_power_off(struct host *h);
void host_pause(struct host *h);
void host_resume(struct host *h);

/* NULL: one of them doesn't run, or has no id yet. */
struct member *host_member(struct host *h, const struct host *other);
/* The end that it uses towards another; NULL: none. */
struct sock *host_sock(struct host *h, const struct host *other);

/* Invariants of any time. `bound`: us until both ends of a pair use one connection. */
bool hosts_sound(uint64_t bound, char *why, size_t size);
/* Invariants after a time without trouble: all know all, and are linked as programs want. */
bool hosts_settled(char *why, size_t size);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of lib/remote that connections and threads call; lib/remote defines them. */
#ifndef WEIR_STREAM_REMOTE_H
#define WEIR_STREAM_REMOTE_H

#include "client/thread.h"
#include "ipc/slot.h"

/* A NOTICE has come, with this data. False: no memory, it stays. Worker locked. */
bool weir_notice_came(struct weir_channel *ch, uint32_t vqpn, const uint8_t *data);
/* Frees what has come for t and was not taken. Worker locked. */
void weir_notices_free(struct weir_thread *t);
/* The connection is freed: so is the memory of answers. Worker locked. */
void weir_results_free(struct weir_conn *c);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Nodes and their events, as a thread knows them. */
#ifndef WEIR_STREAM_NODES_H
#define WEIR_STREAM_NODES_H

#include "client/thread.h"

/* Whether there are node events for the thread. */
bool weir_nodes_any(struct weir_thread *t);
/* Fills in up to n events. How many. */
unsigned weir_nodes_take(struct weir_thread *t, struct weir_event *events, unsigned n);
void weir_node_table_free(struct weir_thread *t);
/* Moves the table of p, of an earlier session, to t. */
void weir_node_table_follow(struct weir_thread *t, struct weir_thread *p);

#endif

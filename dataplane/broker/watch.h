/* SPDX-License-Identifier: BSD-3-Clause */
/* File descriptors that main waits on, and the listening sockets of the run directory. */
#ifndef WEIR_BROKER_WATCH_H
#define WEIR_BROKER_WATCH_H

#include "broker.h"

struct broker_watch {
	int fd;
	void (*ready)(struct broker_watch *w, uint32_t events);
};

int broker_watch_add(struct broker *b, struct broker_watch *w, uint32_t events);
/* With events 0 only the end of the other side is still reported. */
void broker_watch_change(struct broker *b, struct broker_watch *w, uint32_t events);
void broker_watch_remove(struct broker *b, struct broker_watch *w);
/* A listening SOCK_SEQPACKET at run_dir/name; -errno, logged. */
int broker_listen(struct broker *b, const char *name, unsigned mode, const char *group);
/*
 * Accepts a connection, or returns -1. Out of descriptors, the listening socket isn't watched until
 * *paused_until (0: it is watched).
 */
int broker_accept(struct broker *b, struct broker_watch *w, uint64_t *paused_until);
/* Watches the listening socket again when it is time. Returns that time, UINT64_MAX: watched. */
uint64_t broker_accept_again(struct broker *b, struct broker_watch *w, uint64_t *paused_until,
			     uint64_t now);
/* Closes the listening socket and removes its file. */
void broker_unlisten(struct broker *b, const char *name, int fd);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* File descriptors that main waits on. */
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

#endif

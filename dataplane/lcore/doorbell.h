/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Doorbells of a loop, one per channel: one end rings the program thread, the other the engine. The
 * engine never reads it: the epoll set reports each ring (EPOLLET). A program that rings without
 * pause is muted for a while.
 */
#ifndef WEIR_DOORBELL_H
#define WEIR_DOORBELL_H

#include "loop.h"

struct doorbell {
	struct weir_bell bell;
	uint32_t number;
	/* engine's */
	uint32_t tokens;      /* wakes that it may cause now */
	uint64_t refilled;    /* ns: tokens were added up to then */
	uint64_t muted_until; /* ns; 0: not muted */
	struct doorbell *next_muted;
	/* main's */
	struct doorbell *next_leaving;
};

/* Engine: takes a mail about a doorbell. */
void doorbell_mail(struct loop *l, const struct mail *mail);
/* Engine: the program rang. Mutes it if it rings too often. */
void doorbell_rang(struct loop *l, struct doorbell *d, uint64_t now);
/* Engine, before a sleep: unmutes doorbells. Returns when the next one is due, ns. */
uint64_t doorbell_unmute(struct loop *l, uint64_t now);
/* Main: a mail about a removed doorbell came back. */
void doorbell_forget(struct doorbell *d);
/* Main: posts the removals for which the mailbox had no room. */
void doorbell_post_leaving(struct loop *l);
/* Main: closes all doorbells; the loop has ended. */
void doorbell_close_all(struct loop *l);

#endif

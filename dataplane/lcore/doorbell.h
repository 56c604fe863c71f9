/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Doorbells as a loop sees them, one per channel: a socket that rings the program thread, and an
 * eventfd that the program writes to. The engine never reads either: the epoll set reports each
 * write (EPOLLET). A program that rings without end is muted for a while.
 */
#ifndef WEIR_DOORBELL_H
#define WEIR_DOORBELL_H

#include "loop.h"

struct doorbell {
	struct weir_bell bell;
	uint32_t number;
	/* engine's */
	uint32_t tokens;   /* wakes that it may cause now */
	uint64_t refilled; /* ns: up to when tokens were given */
	uint64_t muted_until;
	struct doorbell *next_muted;
	/* main's */
	struct doorbell *next_leaving;
};

/* Engine: the mails about doorbells. */
void doorbell_mail(struct loop *l, const struct mail *mail);
/* Engine: the program rang. Mutes it if it rings too often. */
void doorbell_rang(struct loop *l, struct doorbell *d, uint64_t now);
/* Engine, before a sleep: lets due ones ring again. Returns when the next one is due. */
uint64_t doorbell_unmute(struct loop *l, uint64_t now);
/* Main: a mail about a removed doorbell came back. */
void doorbell_forget(struct doorbell *d);
/* Main: posts what could not be posted before. */
void doorbell_post_leaving(struct loop *l);
/* Main: closes all; the loop has ended. */
void doorbell_close_all(struct loop *l);

#endif

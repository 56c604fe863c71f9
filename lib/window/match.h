/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Notices of a window that have come and were not taken: found by source and tag, each also any,
 * oldest first, by hashes that grow with them. The object of the thread that made the window guards
 * them.
 */
#ifndef WEIR_WINDOW_MATCH_H
#define WEIR_WINDOW_MATCH_H

#include "remote/window.h"

#include <sys/queue.h>

#define MATCH_BUCKETS 64u /* at first */

/* Uses of a notice. */
enum match_kind {
	MATCH_TAG,	/* the program's */
	MATCH_POST,	/* weir_window_post(): `tag` is the number of the exposure, 0: unchecked */
	MATCH_COMPLETE, /* weir_window_complete(): the same number */
	MATCH_KINDS,
};

struct match_notice {
	struct weir_remote_notice is; /* `bytes` without the kind */
	enum match_kind kind;
	bool returned; /* its window */
	/* of a member of this host: its place + 1, 0: of another host; it went by the engine, and
	 * keeps others from the ring */
	uint32_t place;
	bool holds_ring;
	TAILQ_ENTRY(match_notice) exact, of_source, of_tag, of_all;
};
TAILQ_HEAD(match_list, match_notice);

/* By (kind, source, tag); by (kind, source); by (kind, tag). */
struct match_bucket {
	struct match_list exact, source, tag;
};

struct match {
	struct match_bucket *bucket; /* a power of 2 of them, at least `count` if memory permits */
	uint32_t buckets;
	uint32_t count;
	struct match_list all; /* MATCH_TAG */
	struct match_list spare;
	struct match_bucket first[MATCH_BUCKETS];
};

void match_init(struct match *m);
void match_fini(struct match *m);
/* Takes a notice in. NULL: no memory. */
struct match_notice *match_add(struct match *m, const struct weir_remote_notice *n);
/* The oldest one from WEIR_RANK_ANY or a source, with WEIR_TAG_ANY or a tag. NULL: none. Both any:
 * of MATCH_TAG. */
struct match_notice *match_find(const struct match *m, enum match_kind kind, uint32_t source,
				uint32_t tag);
void match_remove(struct match *m, struct match_notice *n);
/* Kind and length in the `bytes` of a notice; the kind there. */
uint64_t match_bytes(enum match_kind kind, uint64_t length);
enum match_kind match_kind_of(const struct weir_remote_notice *n);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* The store, for those that keep it: store.c, and evict.c, which moves runs to files. */
#ifndef WEIR_SHUFFLE_STORE_INNER_H
#define WEIR_SHUFFLE_STORE_INNER_H

#include "store.h"

#define NONE UINT32_MAX

/* Sums of what an attempt has sent to this process, and said about it. */
struct sums {
	uint64_t blocks, records, sum;
};

struct spilled_run {
	uint32_t partition;
	struct run run;
};

struct attempt {
	struct attempt *next; /* of the map task */
	uint64_t id;	      /* no other attempt of the process had it */
	uint32_t number, epoch;
	uint64_t producer;
	struct sums said, got;
	bool counted; /* `said` has come */
	bool dropped; /* its blocks were, and what comes late is */
	struct helds blocks;
	struct spilled_run *spilled; /* of blocks that went to a file */
	uint32_t spilled_count, spilled_room;
	uint32_t numbers[]; /* by own thread: of the next block */
};

struct map_task {
	struct attempt *attempts;
	uint32_t winner;  /* NONE: none is selected, or none any more */
	uint32_t lacking; /* partitions of this process that lack its records, though one was */
	uint32_t since;	  /* epoch of the last SAY_AGAIN: older attempts do not count */
	bool was;	  /* one was selected before */
};

enum part_state { PART_FREE, PART_READ, PART_OVER };

struct part {
	struct run *runs;
	uint32_t count, room;
	uint8_t state; /* enum part_state */
	bool pinned;   /* a reader has its list of runs, and may change it */
};

struct partition {
	struct part *parts;
	uint32_t part_count;
	bool divided;  /* a reader has said in how many parts; until then there is one */
	uint32_t next; /* number of the next run */
	uint64_t records, bytes, blocks;
	uint64_t *lacks; /* map tasks whose records went to another owner, as bits; or NULL */
	uint32_t lack_count;
	uint32_t readers;
	bool gone; /* it has another owner: its last reader frees it */
};

struct store {
	pthread_mutex_t lock;
	struct map_task *maps;
	uint32_t done; /* map tasks of which an attempt was selected */
	uint64_t ids;
	struct partition **partitions; /* NULL: another process's, or nothing has come */
	struct {
		bool is;
		uint32_t map, attempt, process;
	} bad; /* counts or bytes differ from what was pushed */
};

/* That attempt, or the end of the list. */
static inline struct attempt **
attempt_find(struct map_task *m, uint32_t number)
{
	struct attempt **a = &m->attempts;

	while (*a && (*a)->number != number)
		a = &(*a)->next;
	return a;
}

#endif

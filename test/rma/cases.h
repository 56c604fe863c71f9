/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cases of remote memory, groups and windows: functions that every rank of a group of programs
 * runs. The checks do not depend on where the ranks are: on one host with the memory mapped or
 * apart, on several hosts.
 */
#ifndef WEIR_RMA_CASES_H
#define WEIR_RMA_CASES_H

#include <weir/group.h>
#include <weir/remote.h>

#include <stdbool.h>

#define RANKS_MAX 16u
#define CASE_MS 60000 /* until a wait counts as failed */

struct ranks {
	struct weir *w;
	struct weir_group *g;
	uint32_t rank, size;
	bool maps;     /* keys let programs of one host map the memory */
	bool says_ok;  /* prints a line per case that holds, too; by rank 0 */
	uint64_t seed; /* of what cases draw; 0: one of each run */
	const char *name;
	unsigned failures; /* of this rank in this case */
	unsigned ran;	   /* cases */
};

struct rma_case {
	const char *name;
	void (*run)(struct ranks *r);
	bool on_request; /* runs only by its name: it needs more than each machine has */
};

extern const struct rma_case access_cases[], update_cases[], sync_cases[], group_cases[],
    window_cases[], epoch_cases[], lock_cases[], flush_cases[], many_cases[], atomic_cases[],
    layout_cases[], shared_cases[], notify_cases[], error_cases[], dynamic_cases[], random_cases[];

/* Memory of every rank, opened by all, the own one, too. */
struct memory {
	struct weir_region *region;
	uint8_t *base;
	struct weir_export *x;
	struct weir_key keys[RANKS_MAX]; /* of each rank */
	struct weir_remote *at[RANKS_MAX];
};

/* Collective. Zeroed memory of `bytes`, a multiple of 4 KiB. All rights but MAY_MAP are opened. */
struct memory memory_make(struct ranks *r, uint64_t bytes);
/* Collective: no rank uses the memory any more. */
void memory_free(struct ranks *r, struct memory *m);

/* Counts a failure and says where. */
void check(struct ranks *r, bool holds, const char *what, int line);
/* The same of a call that is to return `want`. */
void check_rc(struct ranks *r, int rc, int want, const char *what, int line);
#define CHECK(r, what) check((r), (what), #what, __LINE__)
#define WANT(r, call, want) check_rc((r), (call), (want), #call, __LINE__)
#define OK(r, call) WANT((r), (call), 0)

/* All ranks have come here; what each has flushed is seen by the loads of all. */
void together(struct ranks *r);
/* A rank that waits for another one without a call of the library that waits. */
void let_others_run(void);
/* Flushes, then as above. */
void flush_all(struct ranks *r, struct memory *m);
/* Collective. Fills in group and rank of r, whose session and size are set: 0 or -errno. */
int ranks_join(struct ranks *r, const char *group);
/* Runs those of the names, with 0 of them all: the number that failed at any rank. */
unsigned cases_run(struct ranks *r, char **names, int n);
/* Byte i of what `rank` writes in a round. */
static inline uint8_t
pattern(uint32_t rank, uint32_t round, uint64_t i)
{
	return (uint8_t)(1 + rank * 37 + round * 11 + i * 7 + i / 251);
}

#endif

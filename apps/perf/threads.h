/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several programs that make up one run: children that each attach by themselves (--programs), or
 * one on each node of a cluster (--alltoall). They share a page with the one that started them and
 * prints what came of it.
 */
#ifndef WEIR_PERF_TEAM_H
#define WEIR_PERF_TEAM_H

#include "result.h"

#include <stdatomic.h>

#define TEAM_MAX 256u
#define TEAM_REASON 200

/* What all members do before any of them goes on. */
enum team_phase { TEAM_ATTACHED, TEAM_READY, TEAM_DONE, TEAM_OVER, TEAM_PHASES };

/* One line a member: it writes, the one that started it reads. */
struct team_live {
	_Alignas(64) _Atomic uint64_t sent;
	_Atomic uint64_t received, bytes, errors, connected;
};

struct team_member {
	struct team_live live;
	/* what follows the member writes, and the starter reads once it has ended */
	int rc;
	char reason[TEAM_REASON];
	int node, peer;
	char path[8];
	struct perf_result result;
};

struct team {
	atomic_uint arrived[TEAM_PHASES]; /* members add; all read */
	atomic_uint attached;		  /* members, one after another: so many have tried */
	atomic_bool stop;		  /* starter: the run ends now, as if its time were over */
	atomic_bool failed;		  /* a member or the starter: give up */
	_Atomic int64_t nodes[TEAM_MAX];  /* each member its own node id; all read */
	uint32_t count;			  /* starter, before the members start */
	struct team_member member[];
};

/* The starter's own. */
struct team_run {
	struct team *team; /* NULL: none runs */
	pid_t pid[TEAM_MAX];
	uint32_t left; /* members that have not ended */
};

/* Starts a run of a test: as many members as the options say. 0 or -errno. */
int team_start(struct team_run *t, const struct perf_options *o, uint32_t test, uint32_t size);
/* Looks after the members, without waiting. Whether some are left. */
bool team_watch(struct team_run *t);
/* What they found together, once none is left; the team is then gone. An exit code, and why it is
 * not 0 in `reason`. */
int team_collect(struct team_run *t, struct perf_info *info, struct perf_result *sum, char *reason,
		 size_t reason_size);
/* What all of them have counted up to now. */
struct team_sum {
	uint64_t sent, received, errors, connected;
};
struct team_sum team_count(const struct team_run *t);

/* All tests by teams, with rates on stderr every --stats-period. The exit code. */
int team_run_all(const struct perf_options *o, const cpu_set_t *allowed);
/* Prints the rates since the last call for the same team. */
struct team_rates {
	uint64_t last_ns;
	struct team_sum last;
};
void team_print_rates(const struct team_run *t, struct team_rates *r, FILE *to);

/* Waits until all have come so far; `step` (may be NULL) is called meanwhile. 0, or -ECANCELED. */
int team_arrive(struct team *t, enum team_phase phase, int (*step)(void *arg), void *arg);

#endif

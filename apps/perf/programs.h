/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A team: the programs of one run, children that attach separately (--programs, --alltoall). They
 * share memory with the starter, which prints the result.
 */
#ifndef WEIR_PERF_PROGRAMS_H
#define WEIR_PERF_PROGRAMS_H

#include "result.h"

#include <stdatomic.h>

struct server;

#define TEAM_MAX PERF_PROGRAMS_MAX
#define TEAM_REASON 200

/* Phases that all members reach before any continues. */
enum team_phase { TEAM_ATTACHED, TEAM_READY, TEAM_DONE, TEAM_CHECKED, TEAM_OVER, TEAM_PHASES };

/* One cache line per member: the member writes, the starter reads. */
struct team_live {
	_Alignas(64) _Atomic uint64_t sent;
	_Atomic uint64_t received, bytes, errors, connected;
};

struct team_member {
	struct team_live
	    live; /* the member writes these; the starter reads them when the member has ended */
	int rc;
	char reason[TEAM_REASON];
	int node, peer;
	char path[8];
	struct perf_result result;
};

struct team {
	atomic_uint arrived[TEAM_PHASES]; /* members add; all read */
	atomic_uint attached;		  /* number of members that have tried, in turn */
	atomic_bool stop;		  /* starter writes: the run ends now, without an error */
	atomic_bool failed;		  /* a member or the starter writes: abort */
	_Atomic int64_t nodes[TEAM_MAX];  /* node ids: each member writes its own; all read */
	uint32_t count;			  /* starter, before the members start */
	uint64_t group;			  /* likewise: of the window */
	uint8_t key[PERF_KEY_BYTES];	  /* lock: member 0 writes; after TEAM_READY all read */
	struct team_member member[];
};

/* A run as its starter sees it. */
struct team_run {
	struct team *team; /* NULL: none runs */
	pid_t pid[TEAM_MAX];
	uint32_t left; /* members still running */
	bool receives; /* messages come back to the members */
};

/* Starts the members for a test. 0 or -errno. */
int team_start(struct team_run *t, const struct perf_options *o, uint32_t test, uint32_t size);
/* Reaps ended members without waiting. Whether any still runs. */
bool team_watch(struct team_run *t);
/* Sums the results when all members have ended, and frees the team. The exit code, with `reason`.
 */
int team_collect(struct team_run *t, struct perf_info *info, struct perf_result *sum, char *reason,
		 size_t reason_size);
/* The sum of all members' counters. */
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

/* Waits until all members have reached a phase; steps `server` (may be NULL). 0 or -ECANCELED. */
int team_arrive(struct team *t, enum team_phase phase, struct server *server);

#endif

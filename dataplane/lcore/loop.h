/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The loop of one engine on its lcore: commands, clock, engine turn, waiting, housekeeping. Main
 * creates it, starts it, and talks to it by its mailbox and by wakes.
 */
#ifndef WEIR_LOOP_H
#define WEIR_LOOP_H

#include "clock.h"
#include "idle.h"
#include "load.h"
#include "mailbox.h"

#include "ipc/bell.h"

#include <rte_rcu_qsbr.h>

/* Wakes main: written by engines, read by main. */
struct main_bell {
	int fd;		       /* eventfd, readable when an engine has something for main */
	_Atomic uint32_t rung; /* engines set, main clears before it looks into the mailboxes */
};

/* Rings main; any engine. */
void main_bell_ring(struct main_bell *bell);
/* Main, before it empties the mailboxes. */
void main_bell_clear(struct main_bell *bell);

struct loop_config {
	unsigned id, lcore; /* engine, EAL lcore */
	const struct clock *clock;
	struct main_bell *bell;
	struct rte_rcu_qsbr *quiet; /* the engine is quiescent once per turn; reader `id` */
	enum idle_mode idle;
	uint64_t spin_ns;      /* adaptive: ns without work before a sleep */
	uint64_t sleep_max_ns; /* longest sleep while the port can't wake the engine */
	bool cpu_shared;       /* another engine is pinned to the same CPU */
	uint32_t doorbells;    /* doorbell numbers are below this */
};

/* Engine writes, relaxed; anyone reads. Sleep counts as idle. The row of an engine has members of
 * these names. */
#define LOOP_COUNTERS(X) X(busy_cycles) X(idle_cycles) X(sleeps) X(yields)
struct loop_stats {
#define X(name) _Atomic uint64_t name;
	LOOP_COUNTERS(X)
#undef X
	_Atomic uint64_t turns;	   /* as the engine counts them */
	_Atomic uint64_t commands; /* of main, taken */
	_Atomic uint32_t last_command;
	_Atomic uint32_t cpu_shared; /* detected or told */
};

struct doorbell;

struct loop {
	/* set before the start, then constant */
	struct loop_config config;
	struct engine *engine;
	struct nic_context *nic; /* NULL: none */
	int epoll_fd, wake_fd;

	/* the engine's */
	_Alignas(64) struct idle idle;
	uint64_t turn_tsc, turns;
	struct load load;
	uint64_t timer;		    /* ns; while dozing: the engine's next timer */
	bool dozing;		    /* sleep flags are set: producers ring */
	bool ring_main;		    /* main has answers or events to read */
	int nic_fd;		    /* in the epoll set; -1: none */
	struct doorbell **doorbell; /* by number */
	struct doorbell *muted;	    /* rang too often */

	_Alignas(64) _Atomic uint32_t sleeping; /* engine sets, wakers and engine clear */
	_Atomic uint32_t stop;			/* main sets */
	_Alignas(64) struct loop_stats stats;

	/* main's */
	_Alignas(64) struct doorbell **known; /* by number */
	struct doorbell *leaving;	      /* removed; the engine isn't told yet */
	struct mailbox mailbox;
};

/* NULL and errno. Main lcore. */
struct loop *loop_create(const struct loop_config *config);
/* Closes all doorbells. The loop has ended. NULL is fine. */
void loop_destroy(struct loop *l);
/* lcore function: runs until loop_stop(). */
int loop_run(void *loop);
void loop_stop(struct loop *l);
/* Any thread: the engine looks at its mailbox and rings soon, even if it sleeps. */
void loop_wake(struct loop *l);

/* For engine_config: ring_doorbell and emit; user is the loop. */
uint64_t loop_ring_doorbell(void *loop, uint32_t doorbell, bool cpu_time);
bool loop_emit(void *loop, const struct engine_event *event);

/* ---- main's side ---- */
/* Hands a command to the engine. 0 or -EAGAIN. Call loop_wake() after the last one. */
int loop_command(struct loop *l, struct engine_command *command);
/* Next command that came back; NULL: none. Also continues the removal of doorbells. */
struct engine_command *loop_collect(struct loop *l);
/* See broker_config; the descriptors become ours on success. 0, -EAGAIN, -ENOMEM, -EINVAL. */
int loop_doorbell_add(struct loop *l, uint32_t number, struct weir_bell bell);
void loop_doorbell_remove(struct loop *l, uint32_t number);

#endif

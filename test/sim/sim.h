/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The simulator: many nodes' engines, brokers, RoCE cores and programs in one process and one
 * thread, under a virtual clock. All chance comes from the seed, so a run can be repeated.
 *
 *   scenario.c  what a seed means: sizes, impairments, who talks to whom, who dies
 *   core.c      events, trace, failure
 *   wire.c      what happens to frames between nodes
 *   node.c      one node: main lcore, doorbells, memory
 *   engine.c    its engines: turns, sleep
 *   fault.c     QPs that fail
 *   control.c   what control would do
 *   program.c   programs: small state machines on the stream API
 *   batch.c     their calls for several messages
 *   held.c      connections that they hold, and facts about connections
 *   lock.c      a lock, which many programs ask for
 *   memory.c    exports, and operations on them
 *   common.c    an export that many programs use, in turn (common_access.c, operations;
 *               common_range.c, hand-overs; common_lock.c) and
 *   racing.c    at once
 *   oracle.c    what must have arrived, and whether it did
 *   conserve.c  credits at both ends of links and connections
 *   counts.c    what a seed must have been through
 *   system.c    clock, chance and log of the code under test
 *   run.c       one seed from start to end
 *   lockstep.c  threads of programs whose calls wait, for
 *   ranks.c     test-rma and
 *   messages.c  test-messages, with message_calls.c
 *
 * In test/unit/worlds, for unit tests too: event_queue.c, clock and chance; frame_net.c, frames.
 */
#ifndef WEIR_TEST_SIM_H
#define WEIR_TEST_SIM_H

#include "counts.h"
#include "worlds/event_queue.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_NODES_MAX 256u
#define SIM_ENGINES_MAX 2u
#define SIM_PROGRAMS_MAX 256u
#define SIM_NODE_PROGRAMS 8u /* on one node */
#define SIM_CONNS_MAX 4096u
#define SIM_LINKS 16u /* of an engine, at most */
#define SIM_NEVER UINT64_MAX
#define SIM_START (3600 * SIM_S) /* an hour after boot: 0 stands for "no time" in places */
#define SIM_US UINT64_C(1000)
#define SIM_MS UINT64_C(1000000)
#define SIM_S UINT64_C(1000000000)

/* ---- chance ---- */
/* 0 ... n - 1; n >= 1 */
uint32_t rng_below(struct rng *r, uint32_t n);
/* true in `permille` of 1000 cases */
bool rng_chance(struct rng *r, uint32_t permille);
/* low ... high, all magnitudes alike */
uint64_t rng_log(struct rng *r, uint64_t low, uint64_t high);
/* A value that depends on its arguments alone. */
uint64_t sim_hash(uint64_t a, uint64_t b, uint64_t c);

/* ---- what a seed means ---- */
/* Parts that can be left out with --without. */
#define SIM_PARTS(X)                                                                               \
	X(loss, "frames are lost")                                                                 \
	X(dup, "frames arrive twice")                                                              \
	X(reorder, "frames overtake each other")                                                   \
	X(corrupt, "bits flip, frames are cut short")                                              \
	X(full, "transmit queues are full at times")                                               \
	X(outage, "a wire is dead for a while")                                                    \
	X(sleep, "engines and programs sleep and wait for their doorbells")                        \
	X(threads, "programs of two threads")                                                      \
	X(pause, "programs stop receiving for a while")                                            \
	X(bulk, "messages above 8 KiB")                                                            \
	X(local, "connections between programs of one node")                                       \
	X(loop, "connections of a node to itself, through its port")                               \
	X(kill, "a program dies")                                                                  \
	X(hasty, "a program closes before it has received everything")                             \
	X(cut, "a node is cut off for good")                                                       \
	X(control, "control messages are late and arrive twice")                                   \
	X(datagram, "datagram connections")                                                        \
	X(memory, "memory of programs that others access")                                         \
	X(lock, "a lock that many programs ask for")                                               \
	X(common, "memory that many programs access, at once and in turn")                         \
	X(refuse, "connects to services and nodes that don't exist")                               \
	X(fault, "QPs fail")                                                                       \
	X(share, "programs have weights and rates, and they change")                               \
	X(batch, "calls for several messages")                                                     \
	X(hold, "connections that their acceptor holds, and facts about connections")              \
	X(class, "connections of other classes")

enum sim_part {
#define X(name, help) SIM_##name,
	SIM_PARTS(X)
#undef X
	    SIM_PART_COUNT
};

#define SIM_IMPAIRMENTS 5u /* the first parts, in that order: SIM_loss ... SIM_full */

struct sim_wire_plan { /* permille, ns */
	uint32_t loss, dup, reorder, corrupt, full;
	uint64_t delay, jitter;
	uint32_t due[SIM_IMPAIRMENTS]; /* frame from which on each is bound to happen */
	uint64_t outage_at, outage_for;
	uint32_t outage_node;
};

struct sim_conn_plan {
	uint32_t program[2];  /* [0] connects, [1] accepts */
	uint32_t messages[2]; /* that end 0, end 1 send */
	uint32_t first[2];    /* number of the first of them among the messages of all */
	uint64_t start;	      /* when end 0 connects */
	uint32_t bulky;	      /* permille of messages above a block */
	bool loop;	      /* both on one node, but through its port */
	bool shared;	      /* its acceptor has one service for all such connections */
	bool hasty;	      /* end 1 closes before it has received everything */
	bool unknown;	      /* asks for a service that nobody has */
	bool datagram;	      /* end 0 sends, and what is lost stays so */
	bool held;	      /* opens when its acceptor has decided so */
	uint32_t priority;    /* enum weir_priority */
};

#define SIM_MEMORIES 4u		 /* exports of a seed */
#define SIM_MEMORY_REGION 12288u /* bytes of a region */
#define SIM_MEMORY_LARGE 270336u /* of one for large puts and gets */

/* One program exports memory, another one accesses it. */
struct sim_memory_plan {
	bool large;	      /* some puts and gets have many bytes */
	uint32_t owner, user; /* programs */
	uint32_t puts;
	uint64_t start;	     /* when the user opens it */
	uint32_t revoked_at; /* puts begun; UINT32_MAX: never */
};

/* One program exports a lock, which others ask for. */
struct sim_lock_plan {
	uint32_t owner, users; /* program; bits of programs, 0: there is none */
	uint32_t rounds;       /* of each user */
	uint64_t start;
};

#define SIM_COMMON_REGION 106496u /* bytes */

/* One program exports memory that several others access. */
struct sim_common_plan {
	uint32_t owner, users; /* program; bits of programs, 0: there is none */
	bool maps;	       /* those of the owner's node may map it */
	uint32_t passes;       /* hand-overs of each range */
	uint32_t rounds;       /* of each user with the lock */
	uint32_t races;	       /* operations of each user that race with those of others */
	uint64_t start;
};

struct sim_program_plan {
	uint32_t node;
	uint32_t threads;
	bool sleeps;	    /* waits for its doorbell when it has nothing to do */
	uint32_t pause;	    /* permille of steps after which it doesn't receive for a while */
	uint64_t pause_for; /* longest pause */
	uint64_t killed_at; /* SIM_NEVER: lives */
	uint32_t weight;
	uint64_t rate, burst; /* bytes/s, 0: none; bytes */
	uint64_t changed_at;  /* then it has this rate; SIM_NEVER: not */
	uint64_t rate_then;
};

struct sim_scenario {
	uint64_t seed;
	uint32_t nodes, engines[SIM_NODES_MAX], programs, conns;
	bool event_fd[SIM_NODES_MAX]; /* the port has an rx interrupt */
	bool sleeps[SIM_NODES_MAX];   /* --idle=adaptive */
	struct sim_wire_plan wire;
	uint32_t faults;      /* of QPs of each node */
	uint64_t fault_every; /* ns at most between two */
	struct sim_program_plan program[SIM_PROGRAMS_MAX];
	struct sim_conn_plan conn[SIM_CONNS_MAX];
	uint32_t answers;			/* bytes, per link */
	uint32_t regions, exports, export_keys; /* of a node, at most */
	uint64_t region_bytes;
	uint32_t memories;
	struct sim_memory_plan memory[SIM_MEMORIES];
	struct sim_lock_plan lock;
	struct sim_common_plan common;
	uint32_t ring_lines[SIM_NODES_MAX]; /* of each peer's ring on the node */
	uint32_t mtu, recv_wrs, ring_slots, window, initial_grant, session_pending;
	uint32_t largest; /* message, bytes */
	bool bulk;	  /* some are above a block */
	bool batches;	  /* some ends have calls for several messages */
	bool holds;	  /* some acceptors hold connections, and facts are compared */
	uint64_t arena_bytes, timeout_ns, silence_ns;
	uint32_t links;	      /* of each engine */
	uint32_t connections; /* of each engine, and of each program */
	uint32_t channels;    /* of each program */
	uint64_t ring_idle;   /* ns between looks at which peers need their rings; 0: never */
	uint64_t link_idle;   /* ns after which an idle one ends; 0: by need only */
	uint64_t control_delay;
	uint32_t control_dup;
	uint32_t control_loss; /* permille; both data planes say it again */
	uint32_t cut_node;
	uint64_t cut_at; /* SIM_NEVER: not */
};

/* Fills *sc from the seed; parts whose bit is set in `without` stay out. `times` as many messages.
 */
void sim_scenario_make(struct sim_scenario *sc, uint64_t seed, uint32_t without, uint32_t times);
/* Another one: this many nodes, each of which talks to more others than it may have links. */
void sim_scenario_many(struct sim_scenario *sc, uint64_t seed, uint32_t nodes);
/* Another one, without programs: for the ranks of test-rma. */
void sim_scenario_ranks(struct sim_scenario *sc, uint64_t seed, uint32_t nodes);
void sim_scenario_print(const struct sim_scenario *sc);

/* ---- clock and events ---- */
struct sim;

/* Something that takes turns: due once at most. */
struct sim_actor {
	void (*run)(struct sim *s, void *arg);
	void *arg;
	uint64_t due; /* SIM_NEVER: not scheduled */
};

/* In the queue an event is an actor, or runs once and always. Its order is random: events of one
 * instant come in any order. */

struct sim_options {
	uint32_t without;     /* bits of enum sim_part */
	uint32_t times;	      /* as many messages */
	uint32_t nodes;	      /* sim_scenario_many(); 0: what the seed says */
	uint32_t check_every; /* turns between two engine_check(), 0 = never */
	bool verbose, keep_going;
	bool exits;	/* a failed seed ends the process: programs have stacks of their own */
	uint64_t limit; /* virtual ns without progress: stuck */
};

struct sim_memory;
struct sim_node;
struct sim_program;
struct sim_oracle;

struct sim {
	struct sim_scenario sc;
	struct sim_counts counts;
	uint64_t sizes;		  /* bits: border sizes that were received */
	uint64_t frames, damaged; /* that went onto the wire; copies of them that were spoilt */
	struct sim_options options;
	union {
		struct event_queue queue;
		uint64_t now; /* the queue's */
	};
	uint64_t progress_at; /* when something last moved */
	struct rng rng;
	struct sim_node *node[SIM_NODES_MAX];
	struct sim_program *program[SIM_PROGRAMS_MAX];
	struct sim_oracle *oracle;
	struct sim_memory *memory[SIM_MEMORIES];
	struct sim_lock *lock;	   /* NULL: none */
	struct sim_common *common; /* NULL: none */
	uint64_t steps;
	uint64_t suspect_at; /* when controls have not heard of the node that is cut off for long */
	bool rang;	     /* a doorbell, since somebody last looked whose */
	/* Lets a caller with a stack of its own wait until `at`; false: it has none. NULL: nobody
	 * has, and events run inside the call that waits. */
	bool (*pass)(struct sim *s, uint64_t at);
	uint32_t asked; /* for the time */
	jmp_buf failed;
	char cause[240];
};

/* Runs `actor` at `at`, or earlier if it is due earlier. */
void sim_schedule(struct sim *s, struct sim_actor *actor, uint64_t at);
void sim_unschedule(struct sim_actor *actor);
/* Calls run(s, arg) once at `at`. */
void sim_call(struct sim *s, uint64_t at, void (*run)(struct sim *s, void *arg), void *arg);
/* Drops all calls of `run`: what each was for goes to `release`. */
void sim_cancel(struct sim *s, void (*run)(struct sim *s, void *arg),
		void (*release)(struct sim *s, void *arg));
/* Runs the next event; false when there is none. */
bool sim_step(struct sim *s);
/* Something moved: not stuck. */
void sim_progress(struct sim *s);
/* Ends the seed with a cause. */
void sim_fail(struct sim *s, const char *format, ...)
    __attribute__((noreturn, format(printf, 2, 3)));
void sim_trace_line(struct sim *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define sim_trace(s, ...)                                                                          \
	do {                                                                                       \
		if ((s)->options.verbose)                                                          \
			sim_trace_line(s, __VA_ARGS__);                                            \
	} while (0)

/* The simulation that is running, for what the code under test asks of its system. */
extern struct sim *sim_running;
/*
 * Runs one seed; true if it passed, else s->cause says why. Where that was too little to see, for a
 * death or by chance, other scenarios without deaths that follow from it are run as well.
 */
bool sim_run(struct sim *s, uint64_t seed);

/* The parts of a run. Forgets the last one; then the scenario is made. */
void sim_reset(struct sim *s, uint64_t seed);
/* Nodes and programs of the scenario. */
void sim_build(struct sim *s);
/* The programs are gone: what they leave behind must go too. */
void sim_run_until_idle(struct sim *s);
/* Looks for what went wrong unnoticed, and frees all. */
void sim_take_down(struct sim *s);

#endif

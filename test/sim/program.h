/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A simulated program: attaches, listens, connects, sends, receives, sleeps, closes, all from the
 * seed, on the stream API with calls that don't wait. It ends when all its connections have.
 */
#ifndef WEIR_TEST_SIM_PROGRAM_H
#define WEIR_TEST_SIM_PROGRAM_H

#include "sim.h"

#include "weir/stream.h"

enum sim_end_state {
	END_IDLE,	/* not connected yet (end 0), not accepted yet (end 1) */
	END_CONNECTING, /* end 0: waits for OPENED */
	END_OPEN,
	END_CLOSED,
};

/* One end of a connection. */
struct sim_end {
	uint32_t conn, side;
	uint32_t thread; /* end 0: which one connects */
	enum sim_end_state state;
	struct weir_conn *c;
	struct weir_listener *listener; /* end 1 with a service of its own */
	uint64_t start;			/* end 0: when to connect (again) */
	uint64_t paused_until;		/* doesn't receive until then */
	bool was_open;
	bool readable, blocked, peer_done;
	bool drains;		     /* waits for all completions before it closes */
	bool lingers;		     /* end 1: closes after the peer has */
	bool shuts, shut;	     /* shuts down sending after its last message; has */
	uint32_t receive_max;	     /* hasty: messages after which it closes */
	bool batches;		     /* has calls for several messages */
	struct rng rng;		     /* of these, and of what its acceptor decides */
	struct weir_conn *undecided; /* end 1: held */
	uint64_t decide_at;
	uint32_t refused; /* end 1: times that it refused; end 0: that it was told so */
	bool admitted;
};

struct sim_held { /* a message on loan */
	struct weir_loan loan;
	uint64_t until;
	uint32_t conn, flow, number;
};

#define SIM_HELD 16u
#define SIM_THREADS_MAX 2u

struct sim_thread {
	struct sim_program *p;
	struct weir_thread *object; /* NULL: attaches first */
	struct sim_actor actor;
	int fd; /* weir_fd() */
	bool asleep;
	bool drowsy;	/* has found nothing to do: sleeps next */
	uint64_t alarm; /* end of that sleep */
	uint64_t backoff;
};

struct sim_program {
	struct sim *s;
	uint32_t id, node;
	const struct sim_program_plan *plan;
	struct rng rng;
	struct sim_actor killer;
	struct sim_thread thread[SIM_THREADS_MAX];
	uint32_t threads;
	struct sim_client *client; /* how it talks to the broker */
	struct weir *w;
	bool dead, ended;
	bool inside; /* one of its threads runs, or is in a call that waits for an answer */
	struct weir_listener *listener; /* of all connections without a service of their own */
	struct weir_conn *unnamed[SIM_CONNS_MAX]; /* accepted, first message not received yet */
	uint32_t unnamed_count;
	struct sim_end end[2 * SIM_CONNS_MAX];
	uint32_t ends;
	struct sim_held held[SIM_HELD];
	uint32_t held_count;
	uint8_t *buffer; /* SIM_MESSAGE_MAX + 64 */
};

struct sim_program *sim_program_create(struct sim *s, uint32_t id);
void sim_program_destroy(struct sim_program *p);
bool sim_program_ended(const struct sim_program *p);
/* Dead, or ended: nobody connects to it any more. */
bool sim_program_gone(const struct sim *s, uint32_t id);
/* Somebody has done something that a program waits for without a doorbell. */
void sim_program_poke(struct sim *s, uint32_t id);
/* Adds what the program waits for to `text`. */
void sim_program_waits_for(const struct sim_program *p, char *text, size_t size);
/* Wakes the sleeping programs of a node whose doorbell rang. */
void sim_programs_wake(struct sim *s, uint32_t node);

#endif

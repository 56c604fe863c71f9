/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two nodes with an engine each, joined by a link over a fake NIC, and programs that speak to them
 * through channels as the library does: what engine tests stand on. Time passes in steps; after
 * each the engines' invariants are checked.
 */
#ifndef TEST_ENGINE_WORLD_H
#define TEST_ENGINE_WORLD_H

#include "engine/engine.h"
#include "engine_nic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WORLD_NODES 2
#define PROGRAMS 3	      /* of a node */
#define CHANNELS 32	      /* of a program */
#define CONNS 64	      /* of a program */
#define WORLD_DATAGRAMS 65536 /* of a connection */
#define WORLD_MTU 2032	      /* largest datagram */
#define REGIONS 3	      /* of a program */
#define EXPORTS 3	      /* of a program */

struct program;

struct pconn { /* one end of a connection, as a library knows it */
	struct program *p;
	uint32_t vqpn, desc, channel;
	uint32_t tag_out, tag_in; /* what its messages look like */
	uint64_t sent, spent, received, consumed, told;
	bool used, opened, done, freed;
	bool held;	  /* its program has not decided yet */
	bool peer_shut;	  /* END has come */
	bool no_read;	  /* its messages are not looked at */
	bool keep_blocks; /* nor given back */
	uint32_t open_status, close_status;
	uint64_t done_value;
	uint32_t placed; /* messages that came into adopted memory */
	uint32_t wants, writable;
	unsigned reasons; /* REASON slots before OPENED */
	uint32_t percent; /* its threshold; 0: the engine's */
	uint32_t peer_vqpn;
	bool datagram;
	uint16_t mtu; /* as its OPENED or ACCEPTED said */
	uint64_t seen[WORLD_DATAGRAMS / 64];
	uint64_t bytes; /* of the export that it is connected to, as OPENED said */
	uint32_t rights;
};

struct held {
	weir_place place;
	struct pconn *c;
};

struct program {
	struct world *w;
	uint32_t node, id;
	struct engine_session view;
	struct engine_share share;
	uint8_t *arena;
	void *arena_map; /* with its guard pages */
	size_t arena_bytes;
	struct weir_ring tx[CHANNELS], rx[CHANNELS], returns[CHANNELS];
	struct pconn conn[CONNS];
	struct engine_region region[REGIONS]; /* adopted memory: number i + 1 */
	_Atomic bool updating[REGIONS];	      /* engine_region.updating */
	bool disowned[REGIONS];		      /* main was told */
	unsigned empty[CHANNELS];	      /* reads that found nothing */
	uint64_t heap;			      /* next byte of the send heap */
	bool stopped;			      /* doesn't read */
	bool removed, violated;		      /* main was told */
	struct held held[65536];
	uint32_t held_count;
	uint32_t nodes_seen;
	uint64_t bells;
	uint64_t bell_ns, bell_cpu_ns; /* that a ring takes */
};

struct node {
	struct engine *engine;
	struct nic_context *nic;
	struct fake_qp qp[2];
	uint8_t *ring, *staging, *work, *recv;
	uint8_t *least;			/* of a link: struct engine_least */
	bool no_memory;			/* none for larger rings */
	uint32_t rings_told;		/* events LINK_RINGS */
	bool ring_out, staging_out;	/* withdrawn: in use they would be reported */
	bool ring_given, staging_given; /* the engine has not entered it yet */
	struct weir_credit_line *credit;
	struct weir_slot *answers;
	struct engine_link_command link;
	struct fake_qp ud;
	struct fake_srq ud_srq;
	struct fake_ah ah;
	struct engine_datagram_command datagrams;
	uint32_t datagram_errors;
	struct program *program[PROGRAMS];
	struct engine_export_key key; /* that peers get for exports; rkey 0: none */
	uint64_t fence;		      /* options.fence: they READ it behind WRITEs */
	uint32_t exports_removed;     /* later than at once */
	uint32_t listener;	      /* program that accepts */
	bool holds;		      /* the program decides about CONNECTs */
	bool refuse, full;	      /* reject CONNECTs; main's queue is full */
	uint32_t link_errors, link_error, silences, full_told;
	uint32_t links_idle, links_closed, links_stay;
	struct engine_lock lock_asked; /* the last one, of another engine */
	unsigned locks_asked;
	uint32_t local_closed;
};

struct world_options {
	uint32_t ring_lines, recv_wrs, ring_slots, recv_blocks, window, initial_grant, pending;
	uint32_t answers; /* bytes, of each end of the link */
	uint64_t delay_ns, silence_ns, ring_idle_ns;
	double threshold;
	bool no_link;
	bool fence; /* a WRITE that is acknowledged need not be visible */
};

struct world {
	struct world_options options; /* with what stands for 0 */
	struct fake_net net;
	struct node node[WORLD_NODES];
	uint64_t now, step_ns;
	uint32_t seed;
};

/* Ends the world before it, if any. */
struct world *world_create(const struct world_options *options);
#define WORLD(...) world_create(&(struct world_options){__VA_ARGS__})
/* The ring that the peer of the node uses now. */
const struct nic_mr *node_ring_mr(const struct node *n, bool least);
/* Checks what the NIC has counted. */
void world_destroy(struct world *w);
void world_step(struct world *w);
/* Time passes in which nothing runs, then this number of steps. */
void world_later(struct world *w, uint64_t ns, unsigned steps);
void world_run(struct world *w, unsigned steps);
/* When an engine that goes to sleep now would wake by itself. */
uint64_t world_sleep(struct world *w, struct engine *e);
/* A step in which only this node's engine runs. */
void world_turn(struct world *w, unsigned node);
#define STEP_WHILE(w, condition)                                                                   \
	do {                                                                                       \
		while (condition)                                                                  \
			world_step(w);                                                             \
	} while (0)
#define STEP_MOST(w, steps, condition)                                                             \
	do {                                                                                       \
		for (unsigned step_ = 0; step_ < (steps) && (condition); step_++)                  \
			world_step(w);                                                             \
	} while (0)
/* Main takes the events that engines have raised; part of a step. */
void world_events(struct world *w);
void world_link_up(struct world *w);
void world_link_fail(struct world *w, unsigned node, uint32_t status);
void world_links_fail(struct world *w, uint32_t status); /* at both nodes */
/* The queue pair for datagrams, and a new one when that has failed. */
void world_datagrams(struct world *w, unsigned node);

struct program *program_open(struct world *w, unsigned node, unsigned channels);
/* Main changes its share. */
void program_share(struct program *p, uint32_t weight, uint64_t rate, uint64_t burst_ns);
/* Submits SESSION_REMOVE; program->removed once it is done. */
void program_die(struct program *p);
/* Its connection with that vQPN, or NULL; a new one; what the world does when a region has left. */
struct pconn *program_conn(struct program *p, uint32_t vqpn);
struct pconn *program_free_conn(struct program *p);
void program_end_region(struct program *p, uint32_t region);
/* Of the memory. */
void program_free(struct program *p);
int program_command(struct program *p, struct engine_command *c);
/* Adopts `bytes` as region 1 ... REGIONS. */
void program_adopt(struct program *p, uint32_t region, uint64_t bytes, uint32_t flags);
/* Submits REGION_REMOVE; program->disowned once it is done. */
void program_disown(struct program *p, uint32_t region);

/* Connects channel 0 of both and waits until it is open. a->peer end in *b. */
void world_connect(struct program *pa, struct program *pb, struct pconn **a, struct pconn **b);
struct pconn *pconn_connect(struct program *p);
struct pconn *pconn_connect_datagram(struct program *p);
/* Main of the other node accepts it if there is this export of its `listener`, else rejects it. */
struct pconn *pconn_connect_memory(struct program *p, const struct weir_wire_export *x);
/* The same; runs until it is open. */
struct pconn *pconn_open_remote(struct program *p, const struct weir_wire_export *x);
/* Opens an export of a program on its own node, apart; runs until it is open. */
struct pconn *pconn_open_apart(struct program *p, const struct program *exporter,
			       const struct weir_wire_export *x);
/* The same with a datagram connection. */
void world_connect_datagram(struct program *pa, struct program *pb, struct pconn **a,
			    struct pconn **b);

/* Publishes a message of the connection's pattern; false: no room for it now (as the library says).
 */
bool pconn_send(struct pconn *c, uint32_t length, unsigned flags);
/* n messages, for which there is room. */
void pconn_sends(struct pconn *c, uint32_t length, unsigned flags, unsigned n);
/* The same, retrying as a program would, until all are complete and `to` has received them. */
void pconn_stream(struct pconn *from, struct pconn *to, uint32_t length, unsigned flags,
		  unsigned n);
/* As many as there is room for. */
void pconn_fill(struct pconn *c, uint32_t length);
/* Tries to send n times, with this number of steps after each. */
void pconn_tries(struct pconn *c, uint32_t length, unsigned n, unsigned steps);
/* The same through any channel, without regard to grants. */
bool pconn_push(struct pconn *c, uint32_t channel, uint32_t length, unsigned flags);
/* n messages. Returns how many there was room for. */
unsigned pconn_pushes(struct pconn *c, uint32_t channel, uint32_t length, unsigned n);
/*
 * A bulk message of the pattern out of adopted memory, which must hold it; `way`: WEIR_SLOT_READ or
 * WRITE, 0.
 */
void pconn_push_from(struct pconn *c, weir_place place, uint32_t length, unsigned way);
/* Posts adopted memory for message `number`. */
void pconn_post(struct pconn *c, weir_place place, uint64_t number, uint32_t room);
void pconn_close(struct pconn *c);
/* Sends no more, but receives. */
void pconn_shut(struct pconn *c);
/* Publishes any slot. */
void program_slot(struct program *p, uint32_t channel, const struct weir_slot *s);
/* The same in this ring. */
void ring_put(struct weir_ring *r, const struct weir_slot *s);
void pconn_op(struct pconn *c, uint8_t op, uint64_t value);
/* A cell of one slot, whose payload has this length, into channel 0. */
void pconn_cell(struct pconn *c, uint8_t op, uint32_t length, const void *cell, size_t bytes);
/* The cell that puts a word. */
void pconn_put_word(struct pconn *c, uint64_t offset, uint64_t value);
uint64_t pconn_completed(const struct pconn *c);
uint64_t pconn_granted(const struct pconn *c);
uint32_t pconn_status(const struct pconn *c);
void program_read(struct program *p);
void program_release_held(struct program *p);
const struct engine_counters *node_counters(struct world *w, unsigned node);
/* Executes a command, which is done at once. Returns its result. */
int node_command(struct node *n, struct engine_command *c);

/* After this number of steps the connection has received this number of messages. */
#define assert_receives(c, steps, messages)                                                        \
	(world_run((c)->p->w, steps), assert_int_equal((c)->received, messages))
#define assert_complete(from, to)                                                                  \
	(assert_int_equal((to)->received, (from)->sent),                                           \
	 assert_int_equal(pconn_completed(from), (from)->sent))
/* Its session has gone after this number of steps; its connection, which is closed. */
#define program_ends(p, steps) (program_die(p), world_run((p)->w, steps), assert_true((p)->removed))
#define pconn_ends(c, steps) (pconn_close(c), world_run((c)->p->w, steps), assert_true((c)->freed))
#define assert_closed(c, error) (assert_true((c)->done), assert_int_equal((c)->close_status, error))

/* A program on each of two nodes, and a connection between them. */
struct pair {
	struct world *w;
	struct program *pa, *pb, *honest;
	struct pconn *a, *b, *x, *y; /* a, x on node 0; b, y their peers */
};

/* Not connected yet. */
static inline struct pair
pair_programs(const struct world_options *o, unsigned channels)
{
	struct pair p = {.w = world_create(o)};

	p.pa = program_open(p.w, 0, channels);
	p.pb = program_open(p.w, 1, channels);
	return p;
}

static inline struct pair
pair_open(const struct world_options *o, unsigned channels)
{
	struct pair p = pair_programs(o, channels);

	world_connect(p.pa, p.pb, &p.a, &p.b);
	return p;
}
#define PAIR(channels, ...) pair_open(&(struct world_options){__VA_ARGS__}, channels)

/* Sends n messages, retrying as a program would. */
static inline void
pair_send(struct pair *p, struct pconn *c, uint32_t length, unsigned n)
{
	for (unsigned i = 0; n && i < 100000; i++) {
		while (n && pconn_send(c, length, 0))
			n--;
		world_step(p->w);
	}
	assert_int_equal(n, 0);
}

/* Both ends close and are freed within this number of steps. */
static inline void
pair_close(struct pair *p, unsigned steps)
{
	pconn_close(p->a);
	pconn_ends(p->b, steps);
	assert_true(p->a->freed);
}

/* The same with a second connection, x to y, of an honest program on node 0. */
struct pair pair_with_honest(void);
/* Messages from x to y arrive whatever else happens. */
void honest_traffic(struct pair *p);
uint32_t next_random(uint32_t *r);

struct peer_link;

/* The head of the next frame, of this number of lines, that the link's peer may write. */
struct weir_frame_head link_next_head(const struct peer_link *l, uint32_t lines);
/* Writes a frame of n lines and a head into the link's ring as its peer would. `lie`: another head;
 * imm 0: the right one. */
void link_inject(struct peer_link *l, struct fake_qp *qp, const struct weir_slot *lines, uint32_t n,
		 const struct weir_frame_head *lie, uint32_t imm);

/* Ends the test's last world. */
int world_end(void **state);
#define TEST(name) cmocka_unit_test_teardown(name, world_end)
#define ENGINE_TESTS(...)                                                                          \
	int main(void)                                                                             \
	{                                                                                          \
		const struct CMUnitTest tests[] = {__VA_ARGS__};                                   \
                                                                                                   \
		return cmocka_run_group_tests(tests, NULL, NULL);                                  \
	}

#endif

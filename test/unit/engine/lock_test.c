/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Locks of exports, between two nodes and apart on one: the queue in the order of coming, requests
 * that are taken back, ends of connections, full rings and link repair; wrong ones end the program
 * or the connection that they come from.
 */
#include "worlds/engine_world.h"

#include "engine/answer.h"
#include "engine/conn.h"
#include "engine/export.h"
#include "engine/link.h"
#include "engine/region.h"
#include "engine/session.h"
#include "engine/state.h"
#include "ipc/lock_words.h"
#include "weir/memory.h"

#include <errno.h>

#define BYTES 8192u
#define LENGTH 4096u
#define GENERATION 77
#define RIGHTS (WEIR_RIGHT_READ | WEIR_RIGHT_WRITE | WEIR_RIGHT_LOCK)
#define SHARED WEIR_LOCKS_SHARED
#define EXCLUSIVE WEIR_LOCKS_EXCLUSIVE
#define PLACE 7u /* block of the send area, for answers */
#define UNTOLD 0x77777777u
#define MEMBERS 3u
#define WORDS_AT 128u /* in region 2 */

static struct engine_export
the_export_of(const struct program *p)
{
	return (struct engine_export){.session = p->id,
				      .number = 2,
				      .generation = GENERATION,
				      .region = 1,
				      .length = LENGTH,
				      .rights = RIGHTS};
}

static int
export_command(struct program *p, enum engine_command_type type)
{
	struct engine_command k = {.type = type, .export = the_export_of(p)};

	return program_command(p, &k);
}

static struct pair
lock_programs(const struct world_options *o)
{
	struct pair p = pair_programs(o, 1);

	program_adopt(p.pb, 1, BYTES, WEIR_ADOPT_SEND);
	memset(p.pb->region[0].base, 0, BYTES);
	assert_int_equal(export_command(p.pb, ENGINE_EXPORT_ADD), 0);
	return p;
}

static struct pconn *
open_remote(struct pair *p, uint32_t rights)
{
	struct weir_wire_export x = {.index = 2, .generation = GENERATION, .rights = rights};
	struct pconn *c = pconn_connect_memory(p->pa, &x);

	STEP_MOST(p->w, 400, !c->opened);
	assert_true(c->opened && !c->open_status);
	return c;
}

static struct pconn *
open_apart(struct program *by, const struct program *exporter, uint32_t rights)
{
	return pconn_open_apart(
	    by, exporter,
	    &(struct weir_wire_export){.index = 2, .generation = GENERATION, .rights = rights});
}

/* A connection with these rights: i even: of the other node; odd: apart. */
static struct pconn *
open_one(struct pair *p, unsigned i, uint32_t rights)
{
	if (i % 2 == 0)
		return open_remote(p, rights);
	return open_apart(program_open(p->w, 1, 1), p->pb, rights);
}

static uint32_t
place_of(const struct pconn *c)
{
	uint64_t at = weir_arena_send(&c->p->view.geometry) + PLACE * WEIR_BLOCK_SIZE;

	return (uint32_t)(at / WEIR_SLOT_SIZE) + c->desc;
}

static uint8_t *
answer_of(const struct pconn *c)
{
	return c->p->arena + (uint64_t)place_of(c) * WEIR_SLOT_SIZE;
}

/* Status of the last LOCK; UNTOLD: none has come. */
static uint32_t
status_of(const struct pconn *c)
{
	uint32_t status;

	memcpy(&status, answer_of(c), sizeof(status));
	return status;
}

static void
push(struct pconn *c, uint8_t op, struct weir_cell_lock cell)
{
	struct weir_slot s = {.op = op, .order = (uint16_t)c->sent, .vqpn = c->vqpn};

	memcpy(s.data, &cell, sizeof(cell));
	program_slot(c->p, 0, &s);
	c->sent++;
}

/* As the program with this number among the words; 0: none. */
static void
lock_as(struct pconn *c, uint32_t kind, uint32_t member)
{
	uint32_t untold = UNTOLD;

	memcpy(answer_of(c), &untold, sizeof(untold));
	push(c, WEIR_OP_LOCK,
	     (struct weir_cell_lock){.handle = WEIR_HANDLE_FIRST,
				     .kind = kind,
				     .result = place_of(c),
				     .member = member});
}

static void
lock(struct pconn *c, uint32_t kind)
{
	lock_as(c, kind, 0);
}

static void
unlock(struct pconn *c)
{
	push(c, WEIR_OP_UNLOCK, (struct weir_cell_lock){.handle = WEIR_HANDLE_FIRST});
}

static void
put(struct pconn *c, uint64_t offset, uint64_t value)
{
	struct weir_cell_put cell = {.handle = WEIR_HANDLE_FIRST, .offset = offset};
	struct weir_slot s = {
	    .op = WEIR_OP_PUT, .order = (uint16_t)c->sent, .vqpn = c->vqpn, .length = 8};

	memcpy(cell.payload, &value, sizeof(value));
	memcpy(s.data, &cell, sizeof(cell));
	program_slot(c->p, 0, &s);
	c->sent++;
}

static void
get(struct pconn *c, uint64_t offset, uint32_t count)
{
	struct weir_cell_access cell = {.handle = WEIR_HANDLE_FIRST,
					.offset = offset,
					.result = place_of(c) + 64,
					.count = count};
	struct weir_slot s = {.op = WEIR_OP_GET, .order = (uint16_t)c->sent, .vqpn = c->vqpn};

	memcpy(s.data, &cell, sizeof(cell));
	program_slot(c->p, 0, &s);
	c->sent++;
}

static uint64_t
completed(const struct pconn *c)
{
	return pconn_completed(c);
}

static bool
has(struct pair *p, const struct pconn *c, uint32_t status)
{
	STEP_MOST(p->w, 300, status_of(c) == UNTOLD);
	return status_of(c) == status && completed(c) == c->sent;
}

static bool
waits(struct pair *p, const struct pconn *c)
{
	world_run(p->w, 60);
	return status_of(c) == UNTOLD && completed(c) == c->sent - 1;
}

static const struct export *
the_export(const struct pair *p)
{
	return &p->w->node[1].engine->sessions[p->pb->id].exports[1];
}

/* Counters of the owner engine, of all its locks. */
static void
assert_levels(const struct pair *p, uint64_t holders, uint64_t waiters)
{
	assert_int_equal(node_counters(p->w, 1)->lock_holders, holders);
	assert_int_equal(node_counters(p->w, 1)->lock_waiters, waiters);
}

/* ---- the queue ---- */

static void
test_queue(void **state)
{
	struct pair p = lock_programs(&(struct world_options){.delay_ns = 2000});
	struct program *by = program_open(p.w, 1, 1);
	struct pconn *c[6];

	for (unsigned i = 0; i < 6; i++)
		c[i] = i % 2 ? open_apart(by, p.pb, RIGHTS) : open_remote(&p, RIGHTS);
	for (unsigned first = 0; first < 2; first++) {
		lock(c[first], EXCLUSIVE);
		assert_true(has(&p, c[first], 0));
		lock(c[2], SHARED);
		assert_true(waits(&p, c[2]));
		lock(c[3], SHARED);
		assert_true(waits(&p, c[3]));
		lock(c[4], EXCLUSIVE);
		assert_true(waits(&p, c[4]));
		lock(c[5], SHARED);
		assert_true(waits(&p, c[5]));
		assert_int_equal(the_export(&p)->lock.waiters, 4);
		assert_levels(&p, 1, 4);
		/* adjacent readers together, not the one behind the writer */
		put(c[first], 64, first + 1);
		unlock(c[first]);
		assert_true(has(&p, c[2], 0) && has(&p, c[3], 0));
		assert_int_equal(p.pb->region[0].base[64], first + 1);
		assert_true(waits(&p, c[4]) && waits(&p, c[5]));
		assert_int_equal(the_export(&p)->lock.holders, 2);
		assert_levels(&p, 2, 2);
		unlock(c[2]);
		assert_true(waits(&p, c[4]) && waits(&p, c[5]));
		unlock(c[3]);
		assert_true(has(&p, c[4], 0));
		assert_true(waits(&p, c[5]));
		unlock(c[4]);
		assert_true(has(&p, c[5], 0));
		unlock(c[5]);
		world_run(p.w, 100);
		assert_int_equal(the_export(&p)->lock.holders, 0);
		assert_levels(&p, 0, 0);
	}
	assert_int_equal(the_export(&p)->counters.locks, 10);
	assert_int_equal(node_counters(p.w, 1)->locks_granted, 10);
	for (unsigned i = 0; i < 6; i++)
		assert_false(c[i]->p->violated);
}

/* The program sleeps until it is told. */
static void
test_sleep(void **state)
{
	for (unsigned i = 0; i < 2; i++) {
		struct pair p = lock_programs(&(struct world_options){.delay_ns = 2000});
		struct pconn *a = open_remote(&p, RIGHTS), *c = open_one(&p, i, RIGHTS);

		lock(a, EXCLUSIVE);
		assert_true(has(&p, a, 0));
		lock(c, EXCLUSIVE);
		pconn_op(c, WEIR_OP_FLUSH, 0);
		world_run(p.w, 200);
		assert_int_equal(c->done_value, 0);
		unlock(a);
		STEP_MOST(p.w, 200, c->done_value != c->sent);
		assert_int_equal(c->done_value, c->sent);
		assert_int_equal(status_of(c), 0);
		world_end(state);
	}
}

/* UNLOCK takes a request back; then other operations follow at once, and those behind it enter. */
static void
test_withdraw(void **state)
{
	for (unsigned i = 0; i < 2; i++) {
		struct pair p = lock_programs(&(struct world_options){.delay_ns = 2000});
		struct pconn *a = open_remote(&p, RIGHTS), *c = open_one(&p, i, RIGHTS);
		struct pconn *r = open_one(&p, i, RIGHTS);

		lock(a, SHARED);
		assert_true(has(&p, a, 0));
		for (unsigned k = 0; k < 3; k++) {
			lock(c, EXCLUSIVE);
			assert_true(waits(&p, c));
			lock(r, SHARED);
			assert_true(waits(&p, r));
			unlock(c);
			get(c, 64, 8);
			put(c, 64, 9);
			get(c, 64, 8);
			assert_true(has(&p, r, 0));
			STEP_MOST(p.w, 200, completed(c) != c->sent);
			assert_int_equal(status_of(c), ECANCELED);
			assert_int_equal(answer_of(c)[64 * 64], 9);
			unlock(r);
			world_run(p.w, 60);
		}
		/* it crosses with the grant: nobody holds it then */
		unlock(a);
		world_run(p.w, 60);
		lock(c, EXCLUSIVE);
		unlock(c);
		STEP_MOST(p.w, 200, completed(c) != c->sent);
		assert_int_equal(status_of(c), 0);
		assert_int_equal(the_export(&p)->lock.holders, 0);
		assert_false(c->p->violated || p.pa->violated);
		world_end(state);
	}
}

/* EOWNERDEAD that no program has seen is told to the next one. */
static void
test_unseen(void **state)
{
	for (unsigned i = 0; i < 4; i++) {
		struct pair p = lock_programs(&(struct world_options){.delay_ns = 2000});
		struct pconn *dies = open_apart(program_open(p.w, 1, 1), p.pb, RIGHTS);
		struct pconn *c = open_one(&p, i, RIGHTS), *next = open_one(&p, i + 1, RIGHTS);

		lock(dies, EXCLUSIVE);
		assert_true(has(&p, dies, 0));
		program_die(dies->p);
		world_run(p.w, 200);
		lock(c, EXCLUSIVE);
		push(c, WEIR_OP_UNLOCK,
		     (struct weir_cell_lock){.handle = WEIR_HANDLE_FIRST,
					     .kind = i < 2 ? WEIR_LOCKS_UNSEEN : 0});
		world_run(p.w, 100);
		assert_int_equal(status_of(c), EOWNERDEAD);
		lock(next, EXCLUSIVE);
		assert_true(has(&p, next, i < 2 ? EOWNERDEAD : 0));
		world_end(state);
	}
}

/* Any number of waiters leaves the credit for answers, and the ring, to others. */
static void
test_no_credit(void **state)
{
	enum { WAITERS = 40 };
	struct pair p = lock_programs(&(struct world_options){.delay_ns = 2000});
	struct pconn *h = open_remote(&p, RIGHTS), *c[WAITERS];
	struct peer_link *l = conn_find(p.w->node[0].engine, h->vqpn)->link;

	lock(h, EXCLUSIVE);
	assert_true(has(&p, h, 0));
	for (unsigned i = 0; i < WAITERS; i++) {
		c[i] = open_remote(&p, RIGHTS);
		lock(c[i], EXCLUSIVE);
		world_run(p.w, 5);
	}
	world_run(p.w, 200);
	assert_int_equal(the_export(&p)->lock.waiters, WAITERS);
	assert_int_equal(l->answer_room, l->is.peer_answers);
	for (unsigned k = 0; k < 100; k++) {
		get(h, 0, 1024);
		STEP_MOST(p.w, 200, completed(h) != h->sent);
	}
	assert_int_equal(completed(h), h->sent);
	unlock(h);
	for (unsigned i = 0; i < WAITERS; i++) {
		assert_true(has(&p, c[i], 0));
		unlock(c[i]);
	}
}

/* ---- another owner ---- */

/* Main speaks for the owner engine; kind 0: the request `turn` is over. */
static void
say(struct pair *p, const struct pconn *c, uint8_t kind, uint32_t turn, weir_lock_status status)
{
	uint32_t vqpn = conn_find(p->w->node[0].engine, c->vqpn)->peer_vqpn;
	struct engine_command k = {
	    .type = ENGINE_LOCK,
	    .lock = {.vqpn = vqpn, .turn = turn, .kind = kind, .status = status, .said = true}};

	assert_int_equal(program_command(p->pb, &k), 0);
	world_run(p->w, 60);
}

/* The engine asks the owner once at a time; what is late for a former request is ignored. */
static void
test_owner(void **state)
{
	struct pair p = lock_programs(&(struct world_options){.delay_ns = 2000});
	struct pconn *c = open_remote(&p, RIGHTS);
	struct node *n = &p.w->node[1];
	const struct engine_lock *is = &n->lock_asked;

	n->engine->config.count = 3;
	assert_true(engine_lock_owner(p.pb->id, 2, 3) != 0);
	lock(c, EXCLUSIVE);
	assert_true(waits(&p, c));
	assert_int_equal(n->locks_asked, 1);
	assert_true(is->kind == EXCLUSIVE && is->turn == 1 && is->number == 2);
	push(c, WEIR_OP_UNLOCK,
	     (struct weir_cell_lock){.handle = WEIR_HANDLE_FIRST, .kind = WEIR_LOCKS_UNSEEN});
	assert_true(has(&p, c, ECANCELED));
	assert_int_equal(n->locks_asked, 2);
	assert_true(!is->kind && is->turn == 1 && !is->held && is->unseen && !is->dead);
	/* the next one leaves when that has been answered */
	lock(c, SHARED);
	assert_true(waits(&p, c));
	say(&p, c, EXCLUSIVE, 1, 0);
	assert_true(waits(&p, c));
	assert_int_equal(n->locks_asked, 2);
	say(&p, c, 0, 1, 0);
	assert_int_equal(n->locks_asked, 3);
	assert_true(is->kind == SHARED && is->turn == 2);
	say(&p, c, EXCLUSIVE, 1, 0);
	assert_true(waits(&p, c));
	say(&p, c, SHARED, 2, EOWNERDEAD);
	assert_true(has(&p, c, EOWNERDEAD));
	unlock(c);
	world_run(p.w, 60);
	assert_int_equal(n->locks_asked, 4);
	assert_true(!is->kind && is->turn == 2 && is->held && !is->unseen && !is->dead);
	say(&p, c, 0, 2, 0);
	lock(c, EXCLUSIVE);
	world_run(p.w, 60);
	say(&p, c, EXCLUSIVE, 3, 0);
	assert_true(has(&p, c, 0));
	pconn_close(c);
	world_run(p.w, 200);
	assert_int_equal(n->locks_asked, 6);
	assert_true(!is->kind && is->turn == 3 && is->held && is->dead);
	n->engine->config.count = 1;
}

static struct engine_command
ask(const struct pair *p, uint32_t vqpn, uint32_t turn, uint8_t kind)
{
	return (struct engine_command){.type = ENGINE_LOCK,
				       .lock = {.session = p->pb->id,
						.number = 2,
						.generation = GENERATION,
						.vqpn = vqpn,
						.turn = turn,
						.kind = kind}};
}

/* The owner answers each request once: granted, given up, or its export has ended. */
static void
test_asked(void **state)
{
	struct pair p = lock_programs(NULL);
	struct engine *e = p.w->node[1].engine;
	struct engine_command a = ask(&p, 1, 1, EXCLUSIVE), b = ask(&p, 2, 7, SHARED), end;

	assert_false(engine_execute(e, &a));
	assert_ptr_equal(engine_done(e), &a);
	assert_int_equal(a.result, 0);
	assert_int_equal(a.lock.status, 0);
	assert_false(engine_execute(e, &b));
	assert_null(engine_done(e));
	/* it is not taken for another request */
	end = ask(&p, 2, 7, 0);
	assert_true(engine_execute(e, &end));
	assert_int_equal(end.result, 0);
	assert_ptr_equal(engine_done(e), &b);
	assert_int_equal(b.result, -ECANCELED);
	assert_int_equal(the_export(&p)->lock.holders, 1);
	b = ask(&p, 2, 8, SHARED);
	assert_false(engine_execute(e, &b));
	end = ask(&p, 1, 1, 0);
	end.lock.held = end.lock.dead = true;
	assert_true(engine_execute(e, &end));
	assert_ptr_equal(engine_done(e), &b);
	assert_int_equal(b.result, 0);
	assert_int_equal(b.lock.status, EOWNERDEAD);
	/* the grant that crosses with the end of its request */
	end = ask(&p, 2, 8, 0);
	assert_true(engine_execute(e, &end));
	assert_int_equal(the_export(&p)->lock.holders, 0);
	a = ask(&p, 1, 2, SHARED);
	assert_false(engine_execute(e, &a));
	assert_ptr_equal(engine_done(e), &a);
	b = ask(&p, 2, 9, EXCLUSIVE);
	assert_false(engine_execute(e, &b));
	assert_levels(&p, 1, 1);
	assert_int_equal(export_command(p.pb, ENGINE_EXPORT_STOP), 0);
	assert_ptr_equal(engine_done(e), &b);
	assert_int_equal(b.result, -ESTALE);
	assert_levels(&p, 0, 0); /* the holder hears nothing, and need not */
	assert_true(engine_execute(e, &end));
	assert_int_equal(end.result, -ESTALE);
	assert_true(engine_execute(e, &a));
	assert_int_equal(a.result, -ESTALE);
}

/* ---- ends ---- */

/* A holder or waiter ends in each way. */
static void
test_ends(void **state)
{
	for (unsigned i = 0; i < 16; i++) {
		struct pair p = lock_programs(&(struct world_options){.delay_ns = 2000});
		struct program *by = program_open(p.w, 1, 1), *other = program_open(p.w, 0, 1);
		bool apart = i & 1, holds = i & 2, dies = i & 4, shared = i & 8;
		struct pconn *c, *next = open_apart(by, p.pb, RIGHTS), *a = open_remote(&p, RIGHTS);
		uint32_t kind = shared ? SHARED : EXCLUSIVE;
		struct program *owner = p.pa;

		p.pa = apart ? p.pa : other;
		c = apart ? open_apart(program_open(p.w, 1, 1), p.pb, RIGHTS)
			  : open_remote(&p, RIGHTS);
		p.pa = owner;
		if (!holds)
			lock(a, EXCLUSIVE);
		world_run(p.w, 100);
		lock(c, kind);
		world_run(p.w, 60);
		lock(next, EXCLUSIVE);
		assert_true(waits(&p, next));
		assert_int_equal(status_of(c), holds ? 0 : UNTOLD);
		if (dies)
			program_die(c->p);
		else
			pconn_close(c);
		if (!holds) {
			world_run(p.w, 200);
			assert_int_equal(the_export(&p)->lock.waiters, 1);
			unlock(a);
		}
		assert_true(has(&p, next, holds && !shared ? EOWNERDEAD : 0));
		unlock(next);
		world_run(p.w, 400);
		/* it was told */
		lock(a, EXCLUSIVE);
		assert_true(has(&p, a, 0));
		world_end(state);
	}
}

/* The link fails, an operator ends the connection, the export ends. */
static void
test_lost(void **state)
{
	for (unsigned how = 0; how < 4; how++) {
		struct pair p = lock_programs(&(struct world_options){.delay_ns = 2000});
		struct pconn *c = open_remote(&p, RIGHTS), *w = open_remote(&p, RIGHTS);
		struct pconn *next = open_apart(program_open(p.w, 1, 1), p.pb, RIGHTS);
		struct conn *passive;
		struct engine_command k = {.type = ENGINE_CONN_EVICT,
					   .conn = {.status = ECONNABORTED}};

		put(w, 0, 1);
		put(w, 8, 1);
		lock(c, EXCLUSIVE);
		assert_true(has(&p, c, 0));
		lock(w, EXCLUSIVE);
		assert_true(waits(&p, w));
		lock(next, SHARED);
		assert_true(waits(&p, next));
		k.conn.vqpn = conn_find(p.w->node[0].engine, c->vqpn)->peer_vqpn;
		passive = conn_find(p.w->node[1].engine, k.conn.vqpn);
		assert_int_equal(passive->cold->memory.lock.state, LOCK_HELD);
		if (how == 0) {
			world_links_fail(p.w, EHOSTDOWN);
			assert_true(has(&p, next, EOWNERDEAD));
			assert_closed(c, EHOSTDOWN);
			assert_closed(w, EHOSTDOWN);
		} else if (how == 1) {
			assert_int_equal(program_command(p.pb, &k), 0);
			assert_true(has(&p, w, EOWNERDEAD));
			world_run(p.w, 100);
			assert_closed(c, ECONNRESET);
			unlock(w);
			assert_true(has(&p, next, 0));
		} else {
			if (how == 2)
				assert_int_equal(export_command(p.pb, ENGINE_EXPORT_STOP), 0);
			else
				program_die(p.pb);
			world_run(p.w, 300);
			assert_closed(c, how == 2 ? ESTALE : ECONNRESET);
			assert_closed(w, how == 2 ? ESTALE : ECONNRESET);
			assert_closed(next, how == 2 ? ESTALE : ECONNRESET);
			assert_int_equal(status_of(w), UNTOLD);
			assert_levels(&p, 0, 0);
			/* what came before the request was executed, and no more */
			assert_int_equal(completed(w), 2);
			assert_int_equal(completed(next), 0);
		}
		world_end(state);
	}
}

/* The operations before a request that waits are complete, though their credit comes too late. */
static void
test_cut(void **state)
{
	struct pair p = lock_programs(&(struct world_options){.delay_ns = 2000});
	struct pconn *h = open_apart(program_open(p.w, 1, 1), p.pb, RIGHTS);
	struct pconn *w = open_remote(&p, RIGHTS);
	uint32_t vqpn = conn_find(p.w->node[0].engine, w->vqpn)->peer_vqpn;
	const struct conn *passive = conn_find(p.w->node[1].engine, vqpn);

	lock(h, EXCLUSIVE);
	assert_true(has(&p, h, 0));
	put(w, 0, 1);
	put(w, 8, 1);
	lock(w, SHARED);
	STEP_MOST(p.w, 400, passive->cold->memory.lock.state != LOCK_WAITS);
	assert_int_equal(completed(w), 0);
	assert_int_equal(export_command(p.pb, ENGINE_EXPORT_STOP), 0);
	world_run(p.w, 300);
	assert_closed(w, ESTALE);
	assert_int_equal(completed(w), 2);
}

/* ---- words that programs of the host share ---- */

static struct pair
words_programs(void)
{
	struct pair p = pair_programs(&(struct world_options){.delay_ns = 2000}, 1);
	struct engine_command k = {.type = ENGINE_EXPORT_ADD, .export = the_export_of(p.pb)};

	for (uint32_t i = 1; i <= 2; i++) {
		program_adopt(p.pb, i, BYTES, WEIR_ADOPT_SEND);
		memset(p.pb->region[i - 1].base, 0, BYTES);
	}
	k.export.lock_region = 2;
	k.export.lock_offset = WORDS_AT;
	k.export.lock_members = MEMBERS;
	assert_int_equal(program_command(p.pb, &k), 0);
	return p;
}

static struct weir_lock_words *
words_of(const struct pair *p)
{
	return (struct weir_lock_words *)(void *)(p->pb->region[1].base + WORDS_AT);
}

static uint32_t
word_of(const struct pair *p)
{
	return words_of(p)->word;
}

/* A program of the exporter's host, which the engine knows by this number. */
static struct pconn *
open_member(struct pair *p, uint32_t number)
{
	struct pconn *c = open_apart(program_open(p->w, 1, 1), p->pb, RIGHTS);

	lock_as(c, SHARED, number);
	assert_true(has(p, c, WEIR_LOCKED_BY_WORDS));
	assert_true(!word_of(p) && words_of(p)->member[number - 1].shared == 1);
	weir_lock_leave_shared(words_of(p), number);
	return c;
}

/* While nobody waits, programs have the lock by words; from then on the queue decides. */
static void
test_words(void **state)
{
	struct pair p = words_programs();
	struct pconn *a = open_member(&p, 1), *b = open_member(&p, 2);
	struct pconn *r = open_remote(&p, RIGHTS);
	struct weir_lock_words *w = words_of(&p);

	assert_true(weir_lock_take_exclusive(w, 1, MEMBERS));
	assert_false(weir_lock_take_shared(w, 2) || weir_lock_take_exclusive(w, 2, MEMBERS));
	lock(r, SHARED);
	assert_true(waits(&p, r));
	assert_int_equal(word_of(&p), WEIR_LOCK_CLOSED | 1);
	/* no program rings for it */
	assert_true(engine_sleep_prepare(p.w->node[1].engine, p.w->now) <= p.w->now + 200000);
	engine_sleep_cancel(p.w->node[1].engine);
	weir_lock_leave_exclusive(w, 1, 0);
	assert_false(weir_lock_take_shared(w, 1));
	assert_true(has(&p, r, 0));
	assert_false(weir_lock_take_shared(w, 1) || weir_lock_take_exclusive(w, 1, MEMBERS));
	unlock(r);
	world_run(p.w, 60);
	assert_int_equal(word_of(&p), 0);

	/* a writer awaits each reader, and readers behind it await the writer */
	assert_true(weir_lock_take_shared(w, 1) && weir_lock_take_shared(w, 3));
	lock(r, EXCLUSIVE);
	assert_true(waits(&p, r));
	lock_as(b, SHARED, 2);
	assert_true(waits(&p, b));
	weir_lock_leave_shared(w, 1);
	assert_true(waits(&p, r) && waits(&p, b));
	weir_lock_leave_shared(w, 3);
	assert_true(has(&p, r, 0) && waits(&p, b));
	unlock(r);
	assert_true(has(&p, b, WEIR_LOCKED_BY_WORDS));
	weir_lock_leave_shared(w, 2);
	world_run(p.w, 60);
	assert_int_equal(word_of(&p), 0);

	/* what was granted to a member is seen by those behind it */
	lock(r, EXCLUSIVE);
	assert_true(has(&p, r, 0));
	lock_as(b, EXCLUSIVE, 2);
	assert_true(waits(&p, b));
	lock_as(a, EXCLUSIVE, 1);
	assert_true(waits(&p, a));
	unlock(r);
	assert_true(has(&p, b, WEIR_LOCKED_BY_WORDS) && waits(&p, a));
	assert_int_equal(word_of(&p), WEIR_LOCK_CLOSED | 2);
	weir_lock_leave_exclusive(w, 2, 0);
	assert_true(has(&p, a, WEIR_LOCKED_BY_WORDS));
	assert_int_equal(word_of(&p), 1);
	put(a, 64, 1); /* and other operations go on */
	weir_lock_leave_exclusive(w, 1, 0);
	assert_true(weir_lock_take_exclusive(w, 1, MEMBERS));
	weir_lock_leave_exclusive(w, 1, 0);

	/* readers do not await readers; and one that gives up closes nothing */
	assert_true(weir_lock_take_shared(w, 1));
	assert_false(weir_lock_take_exclusive(w, 2, MEMBERS));
	assert_int_equal(word_of(&p), 0);
	lock(r, SHARED);
	assert_true(has(&p, r, 0));
	unlock(r);
	world_run(p.w, 60);
	lock(r, EXCLUSIVE);
	assert_true(waits(&p, r));
	unlock(r);
	assert_true(has(&p, r, ECANCELED));
	assert_int_equal(word_of(&p), 0);
	assert_true(weir_lock_take_shared(w, 2));
	weir_lock_leave_shared(w, 1);
	weir_lock_leave_shared(w, 2);
	assert_true(weir_lock_take_exclusive(w, 2, MEMBERS));
	weir_lock_leave_exclusive(w, 2, 0);
	assert_false(a->p->violated || b->p->violated || r->p->violated);
	world_run(p.w, 60);
	assert_null(engine_check(p.w->node[1].engine));
}

static struct engine_export_record
record_of(struct pair *p)
{
	struct engine_export_record r = {
	    .session = p->pb->id, .number = 2, .generation = GENERATION};

	exports_count(p->w->node[1].engine, &r, 1);
	return r;
}

/* Operators see who holds it, and once somebody waits, since when at least. */
static void
test_words_record(void **state)
{
	struct pair p = words_programs();
	struct pconn *a = open_member(&p, 1), *b = open_member(&p, 2);
	struct pconn *c = open_remote(&p, RIGHTS);
	uint32_t at_target = conn_find(p.w->node[0].engine, c->vqpn)->peer_vqpn;
	struct weir_lock_words *w = words_of(&p);
	struct engine_export_record r;

	for (unsigned i = 0; i < 2; i++) {
		if (i == 0) {
			assert_true(weir_lock_take_exclusive(w, 2, MEMBERS));
		} else {
			assert_true(weir_lock_take_shared(w, 1) && weir_lock_take_shared(w, 2));
		}
		r = record_of(&p);
		assert_int_equal(r.lock_holders, i + 1);
		assert_int_equal(r.lock_exclusive, !i);
		assert_true(r.lock_holder == b->vqpn || (i && r.lock_holder == a->vqpn));
		/* they may leave it and take it again between two looks */
		assert_int_equal(r.lock_held_ns, UINT64_MAX);
		lock(c, EXCLUSIVE);
		assert_true(waits(&p, c));
		r = record_of(&p);
		assert_int_equal(r.lock_holders, i + 1);
		assert_int_equal(r.lock_waiters, 1);
		assert_true(r.lock_waits_ns);
		assert_int_equal(r.lock_held_ns, r.lock_waits_ns);
		/* that of one more waiter begins anew, but not that of the holder */
		lock_as(a, EXCLUSIVE, 1);
		assert_true(waits(&p, a));
		assert_int_equal(record_of(&p).lock_held_ns, record_of(&p).lock_waits_ns);
		assert_true(record_of(&p).lock_held_ns > r.lock_held_ns);
		unlock(c);
		assert_true(has(&p, c, ECANCELED) && waits(&p, a));
		r = record_of(&p);
		assert_true(r.lock_held_ns > r.lock_waits_ns);
		/* the engine knows when it grants the lock, also if words say so */
		weir_lock_leave_exclusive(w, 2, 0);
		weir_lock_leave_shared(w, 1);
		weir_lock_leave_shared(w, 2);
		lock(c, EXCLUSIVE);
		assert_true(has(&p, a, WEIR_LOCKED_BY_WORDS) && waits(&p, c));
		assert_true(record_of(&p).lock_held_ns < r.lock_held_ns);
		weir_lock_leave_exclusive(w, 1, 0);
		assert_true(has(&p, c, 0));
		r = record_of(&p);
		world_run(p.w, 60);
		assert_true(record_of(&p).lock_held_ns > r.lock_held_ns);
		assert_int_equal(record_of(&p).lock_holder, at_target);
		unlock(c);
		world_run(p.w, 60);
		assert_int_equal(word_of(&p), 0);
	}
}

/* A program that spoils its words is shown as a holder, but not since when. */
static void
test_words_record_spoilt(void **state)
{
	for (unsigned i = 0; i < 4; i++) {
		struct pair p = words_programs();
		struct pconn *a = open_member(&p, 1), *c = open_remote(&p, RIGHTS);
		struct engine_export_record r;

		if (i) { /* the engine has granted the lock, and it was left */
			lock(c, i == 1 ? SHARED : EXCLUSIVE);
			assert_true(has(&p, c, 0));
			r = record_of(&p);
			assert_true(r.lock_holders == 1 && r.lock_held_ns < p.w->now);
			if (i == 3) /* in doubt: the words stay closed */
				pconn_close(c);
			else
				unlock(c);
			world_run(p.w, 200);
		}
		words_of(&p)->word |= WEIR_LOCK_CLOSED | 1;
		r = record_of(&p);
		assert_int_equal(r.lock_holders, 1);
		assert_int_equal(r.lock_holder, a->vqpn);
		assert_int_equal(r.lock_held_ns, UINT64_MAX);
		assert_int_equal(r.lock_in_doubt, i == 3);
		world_end(state);
	}
}

/* A lock that a program held by words passes on with its end, at any engine. */
static void
test_words_dead(void **state)
{
	for (unsigned i = 0; i < 16; i++) {
		bool shared = i & 1, awaited = i & 2, dies = i & 4, elsewhere = i & 8;
		struct pair p = words_programs();
		struct pconn *a = open_member(&p, 1), *b = open_member(&p, 2);
		struct pconn *r = open_remote(&p, RIGHTS);
		struct weir_lock_words *w = words_of(&p);

		assert_true(shared ? weir_lock_take_shared(w, 1)
				   : weir_lock_take_exclusive(w, 1, MEMBERS));
		if (awaited) {
			lock(r, EXCLUSIVE);
			assert_true(waits(&p, r));
		}
		if (elsewhere)
			p.w->node[1].engine->config.count = 3;
		if (dies)
			program_die(a->p);
		else
			pconn_close(a);
		world_run(p.w, 300);
		p.w->node[1].engine->config.count = 1;
		assert_int_equal(w->member[0].shared, 0);
		if (!awaited) {
			assert_int_equal(word_of(&p),
					 shared ? 0 : WEIR_LOCK_CLOSED | WEIR_LOCK_DOUBT);
			if (!shared) { /* a reader cannot repair it */
				assert_false(weir_lock_take_shared(w, 2));
				lock_as(b, SHARED, 2);
				assert_true(has(&p, b, EOWNERDEAD));
				assert_int_equal(w->member[1].shared, 0);
				unlock(b);
				world_run(p.w, 60);
				assert_int_equal(word_of(&p), WEIR_LOCK_CLOSED);
			}
			lock(r, EXCLUSIVE);
		}
		assert_true(has(&p, r, shared ? 0 : EOWNERDEAD));
		unlock(r);
		world_run(p.w, 60);
		assert_int_equal(word_of(&p), 0);
		world_end(state);
	}
}

/* A member that gives up just when it is granted the lock does not hold it. */
static void
test_words_withdraw(void **state)
{
	struct pair p = words_programs();
	struct pconn *a = open_member(&p, 1);

	for (uint32_t kind = SHARED; kind <= EXCLUSIVE; kind++) {
		lock_as(a, kind, 1);
		push(a, WEIR_OP_UNLOCK,
		     (struct weir_cell_lock){.handle = WEIR_HANDLE_FIRST,
					     .kind = WEIR_LOCKS_UNSEEN});
		STEP_MOST(p.w, 200, completed(a) != a->sent);
		assert_int_equal(status_of(a), WEIR_LOCKED_BY_WORDS);
		assert_true(!word_of(&p) && !words_of(&p)->member[0].shared);
	}
	assert_false(a->p->violated);
	unlock(a); /* what it does not hold */
	world_run(p.w, 60);
	assert_true(a->p->violated);
}

/* The engine of the connection gives what the owner engine has granted to the words. */
static void
test_words_owner(void **state)
{
	struct pair p = words_programs();
	struct pconn *a = open_member(&p, 1);
	struct node *n = &p.w->node[1];
	struct engine_command said = {
	    .type = ENGINE_LOCK,
	    .lock = {.vqpn = a->vqpn, .turn = 1, .kind = EXCLUSIVE, .said = true}};

	n->engine->config.count = 3;
	lock_as(a, EXCLUSIVE, 1);
	assert_true(waits(&p, a));
	assert_int_equal(n->locks_asked, 1);
	words_of(&p)->word = WEIR_LOCK_CLOSED; /* by the owner */
	assert_int_equal(program_command(p.pb, &said), 0);
	assert_true(has(&p, a, WEIR_LOCKED_BY_WORDS));
	assert_int_equal(word_of(&p), WEIR_LOCK_CLOSED | 1);
	world_run(p.w, 60);
	assert_int_equal(n->locks_asked, 2);
	assert_true(!n->lock_asked.kind && n->lock_asked.held && !n->lock_asked.dead &&
		    !n->lock_asked.unseen);
	n->engine->config.count = 1;
}

/* The end of a program leaves the lock to whom it belongs. */
static void
test_words_of_others(void **state)
{
	struct pair p = words_programs();
	struct pconn *a = open_member(&p, 1), *b = open_member(&p, 2);
	struct weir_lock_words *w = words_of(&p);

	assert_true(weir_lock_take_exclusive(w, 2, MEMBERS));
	program_die(a->p);
	world_run(p.w, 300);
	assert_int_equal(word_of(&p), 2);
	weir_lock_leave_exclusive(w, 2, 0);
	assert_true(weir_lock_take_shared(w, 2));
	/* a number that has no words is nobody's */
	a = open_apart(b->p, p.pb, RIGHTS);
	lock_as(a, SHARED, MEMBERS + 1);
	assert_true(has(&p, a, 0));
	assert_int_equal(conn_find(p.w->node[1].engine, a->vqpn)->cold->memory.lock.member, 0);
	pconn_close(a);
	world_run(p.w, 300);
	assert_int_equal(w->member[1].shared, 1);
	assert_false(b->p->violated);
}

/* A program for which no engine stands any more takes nothing by words. */
static void
test_words_gone(void **state)
{
	for (unsigned dies = 0; dies < 2; dies++) {
		struct pair p = words_programs();
		struct pconn *a = open_member(&p, 1);
		struct weir_lock_words *w = words_of(&p);

		if (dies)
			program_die(a->p);
		else
			pconn_close(a);
		world_run(p.w, 300);
		assert_false(weir_lock_take_shared(w, 1) ||
			     weir_lock_take_exclusive(w, 1, MEMBERS));
		assert_true(!word_of(&p) && !w->member[0].shared);
		a = open_apart(dies ? program_open(p.w, 1, 1) : a->p, p.pb, RIGHTS);
		lock_as(a, EXCLUSIVE, 1);
		assert_true(has(&p, a, WEIR_LOCKED_BY_WORDS));
		weir_lock_leave_exclusive(w, 1, 0);
		assert_true(weir_lock_take_exclusive(w, 1, MEMBERS));
		world_end(state);
	}
}

/* Thousands of words, and many locks, are looked at little by little. */
static void
test_words_many(void **state)
{
	enum { MANY = WEIR_LOCK_MEMBERS_MAX };
	struct pair p = pair_programs(&(struct world_options){.delay_ns = 2000}, 1);
	struct engine_command k = {.type = ENGINE_EXPORT_ADD, .export = the_export_of(p.pb)};
	struct weir_lock_words *w;
	struct pconn *r;
	uint64_t turn;

	program_adopt(p.pb, 1, BYTES, WEIR_ADOPT_SEND);
	program_adopt(p.pb, 2, (weir_lock_bytes(MANY) + 4095) & ~UINT64_C(4095), WEIR_ADOPT_SEND);
	w = (struct weir_lock_words *)(void *)p.pb->region[1].base;
	memset(w, 0, weir_lock_bytes(MANY));
	k.export.lock_region = 2;
	k.export.lock_members = MANY;
	assert_int_equal(program_command(p.pb, &k), 0);
	r = open_remote(&p, RIGHTS);
	assert_true(weir_lock_take_shared(w, MANY));
	turn = p.w->node[1].engine->turn;
	lock(r, EXCLUSIVE);
	STEP_MOST(p.w, 300, !the_export(&p)->lock.scanned);
	turn = p.w->node[1].engine->turn - turn;
	assert_in_range(the_export(&p)->lock.scanned, 1, 128 * turn);
	world_run(p.w, 300);
	assert_int_equal(status_of(r), UNTOLD);
	assert_int_equal(the_export(&p)->lock.scanned, MANY - 1);
	weir_lock_leave_shared(w, MANY);
	assert_true(has(&p, r, 0));
	unlock(r);
	world_run(p.w, 60);
	/* from the start the next time, also if nobody had the lock meanwhile */
	assert_true(weir_lock_take_shared(w, 5));
	lock(r, EXCLUSIVE);
	assert_true(waits(&p, r));
	unlock(r);
	assert_true(has(&p, r, ECANCELED));
	assert_true(weir_lock_take_shared(w, 1));
	weir_lock_leave_shared(w, 5);
	lock(r, EXCLUSIVE);
	world_run(p.w, 300); /* all words are looked at */
	assert_true(waits(&p, r));
	weir_lock_leave_shared(w, 1);
	assert_true(has(&p, r, 0));
}

/* The end of the export: programs ask, and hear of it. */
static void
test_words_ended(void **state)
{
	for (unsigned awaited = 0; awaited < 2; awaited++) {
		struct pair p = words_programs();
		struct pconn *a = open_member(&p, 1), *r = open_remote(&p, RIGHTS);

		if (awaited) {
			assert_true(weir_lock_take_exclusive(words_of(&p), 1, MEMBERS));
			lock(r, EXCLUSIVE);
			assert_true(waits(&p, r));
		}
		assert_int_equal(export_command(p.pb, ENGINE_EXPORT_STOP), 0);
		world_run(p.w, 300);
		assert_closed(a, ESTALE);
		assert_closed(r, ESTALE);
		assert_true(word_of(&p) & WEIR_LOCK_CLOSED);
		assert_int_equal(export_command(p.pb, ENGINE_EXPORT_REMOVE), 0);
		assert_int_equal(p.w->node[1].engine->sessions[p.pb->id].regions[1].users, 0);
		assert_null(engine_check(p.w->node[1].engine));
		world_end(state);
	}
}

/* Words that are not within a region of the session are refused. */
static void
test_words_bad(void **state)
{
	static const struct engine_export bad[] = {
	    {.lock_region = 1, .lock_members = 0},
	    {.lock_region = 1, .lock_members = WEIR_LOCK_MEMBERS_MAX + 1},
	    {.lock_region = 1, .lock_members = BYTES / 64},
	    {.lock_region = 1, .lock_members = 1, .lock_offset = BYTES - 64},
	    {.lock_region = 1, .lock_members = 1, .lock_offset = UINT64_MAX - 63},
	    {.lock_region = 1, .lock_members = 1, .lock_offset = 32},
	    {.lock_region = 3, .lock_members = 1},
	    {.lock_region = UINT32_MAX, .lock_members = 1},
	};
	struct pair p = pair_programs(NULL, 1);
	struct engine_command k = {.type = ENGINE_EXPORT_ADD};

	program_adopt(p.pb, 1, BYTES, WEIR_ADOPT_SEND);
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		k.export = the_export_of(p.pb);
		k.export.lock_region = bad[i].lock_region;
		k.export.lock_members = bad[i].lock_members;
		k.export.lock_offset = bad[i].lock_offset;
		assert_int_equal(program_command(p.pb, &k), -EINVAL);
	}
	k.export = the_export_of(p.pb);
	k.export.lock_region = k.export.lock_members = 1;
	k.export.rights = WEIR_RIGHT_READ;
	assert_int_equal(program_command(p.pb, &k), -EINVAL);
	k.export.rights = RIGHTS;
	k.export.lock_offset = BYTES - 128;
	assert_int_equal(program_command(p.pb, &k), 0);
}

/* ---- wrong ones ---- */

/* A program that writes a wrong cell ends, and nobody else. */
static void
test_bad_programs(void **state)
{
	static const struct {
		uint8_t op;
		struct weir_cell_lock cell;
	} bad[] = {
	    {WEIR_OP_LOCK, {.handle = WEIR_HANDLE_FIRST}},
	    {WEIR_OP_LOCK, {.handle = WEIR_HANDLE_FIRST, .kind = 3}},
	    {WEIR_OP_LOCK, {.handle = 2 * WEIR_HANDLE_FIRST, .kind = SHARED}},
	    {WEIR_OP_LOCK, {.handle = WEIR_HANDLE_FIRST, .kind = SHARED, .reserved = {[7] = 1}}},
	    {WEIR_OP_LOCK,
	     {.handle = WEIR_HANDLE_FIRST, .kind = SHARED, .member = WEIR_LOCK_MEMBERS_MAX + 1}},
	    {WEIR_OP_LOCK, {.handle = WEIR_HANDLE_FIRST, .kind = SHARED, .result = 1}},
	    {WEIR_OP_LOCK, {.handle = WEIR_HANDLE_FIRST, .kind = SHARED, .result = UINT32_MAX}},
	    {WEIR_OP_UNLOCK, {.handle = WEIR_HANDLE_FIRST}},
	};
	unsigned n = sizeof(bad) / sizeof(bad[0]);

	for (unsigned i = 0; i < 2 * (n + 8); i++) {
		struct pair p = lock_programs(&(struct world_options){.delay_ns = 2000});
		struct pconn *h = open_apart(program_open(p.w, 1, 1), p.pb, RIGHTS);
		struct pconn *c = open_one(&p, i, i / 2 == n ? WEIR_RIGHT_READ : RIGHTS);

		if (i / 2 < n) {
			struct weir_cell_lock cell = bad[i / 2].cell;

			if (i / 2 < 5)
				cell.result = place_of(c);
			push(c, bad[i / 2].op, cell);
		} else if (i / 2 == n) {
			lock(c, SHARED); /* without the right */
		} else {
			if (i / 2 > n + 3) {
				lock(h, EXCLUSIVE);
				assert_true(has(&p, h, 0));
			}
			lock(c, EXCLUSIVE);
			world_run(p.w, 100);
			if (i / 2 == n + 1 || i / 2 == n + 4) {
				lock(c, SHARED); /* twice */
			} else if (i / 2 == n + 2) {
				unlock(c);
				unlock(c); /* twice */
			} else if (i / 2 == n + 3) {
				push(c, WEIR_OP_UNLOCK,
				     (struct weir_cell_lock){.handle = WEIR_HANDLE_FIRST,
							     .kind = SHARED});
			} else if (i / 2 == n + 5) {
				put(c, 0, 1); /* while it waits */
			} else if (i / 2 == n + 6) {
				get(c, 0, 8);
			} else {
				push(c, WEIR_OP_UNLOCK,
				     (struct weir_cell_lock){.handle = WEIR_HANDLE_FIRST,
							     .result = 1});
			}
		}
		world_run(p.w, 100);
		assert_true(c->p->violated);
		assert_false(p.pb->violated || h->p->violated);
		assert_int_equal(p.pb->region[0].base[0], 0);
		world_end(state);
	}
}

/* A peer that breaks the rules loses its connection, and its lock. */
static void
test_bad_peers(void **state)
{
	for (unsigned i = 0; i < 7; i++) {
		struct pair p = lock_programs(&(struct world_options){.delay_ns = 2000});
		struct pconn *next = open_apart(program_open(p.w, 1, 1), p.pb, RIGHTS);
		struct pconn *c = open_remote(&p, RIGHTS);
		struct conn *begin = conn_find(p.w->node[0].engine, c->vqpn);
		struct weir_slot locked = {.op = WEIR_WIRE_LOCKED, .vqpn = c->vqpn};
		struct conn_lock *k = &begin->cold->memory.lock;
		bool executing = i < 4;

		if (i == 1 || i == 2) {
			lock(c, EXCLUSIVE);
			assert_true(has(&p, c, 0));
		} else if (i == 3) {
			lock(next, EXCLUSIVE);
			assert_true(has(&p, next, 0));
			lock(c, EXCLUSIVE);
			assert_true(waits(&p, c));
		}
		if (i == 0) { /* not held */
			k->begun = true;
			unlock(c);
		} else if (i == 1) { /* held */
			k->begun = k->silent = false;
			lock(c, EXCLUSIVE);
		} else if (i == 2) { /* without the right; and the lock passes on */
			conn_find(p.w->node[1].engine, begin->peer_vqpn)->cold->memory.rights =
			    WEIR_RIGHT_READ;
			unlock(c);
		} else if (i == 3) { /* while it waits */
			k->silent = false;
			put(c, 0, 1);
		} else { /* answers that were not awaited, or that say nonsense */
			if (i > 4)
				lock(c, EXCLUSIVE);
			locked.status = i == 5 ? ECANCELED : i == 6 ? EIO : 0;
			while (i > 4 && !k->awaited)
				world_turn(p.w, 0);
			link_inject(begin->link, &p.w->node[0].qp[0], &locked, 1, NULL, 0);
		}
		world_run(p.w, 200);
		assert_false(p.pa->violated || p.pb->violated);
		assert_in_range(node_counters(p.w, executing)->bad_frames, 1, executing ? 1 : 2);
		if (executing)
			assert_closed(c, ECONNRESET);
		else /* the link is out of step */
			assert_int_equal(begin->state, CONN_DEAD);
		if (i < 3) {
			lock(next, SHARED);
			assert_true(has(&p, next, i ? EOWNERDEAD : 0));
		}
		assert_int_equal(p.pb->region[0].base[0], 0);
		world_end(state);
	}
}

ENGINE_TESTS(TEST(test_queue), TEST(test_sleep), TEST(test_withdraw), TEST(test_unseen),
	     TEST(test_owner), TEST(test_asked), TEST(test_no_credit), TEST(test_ends),
	     TEST(test_lost), TEST(test_cut), TEST(test_words), TEST(test_words_record),
	     TEST(test_words_record_spoilt), TEST(test_words_dead), TEST(test_words_withdraw),
	     TEST(test_words_owner), TEST(test_words_of_others), TEST(test_words_ended),
	     TEST(test_words_gone), TEST(test_words_many), TEST(test_words_bad),
	     TEST(test_bad_programs), TEST(test_bad_peers))

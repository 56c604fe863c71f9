/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Locks of exports, between two nodes and apart on one: the queue in the order of coming, requests
 * that are taken back, ends of connections, full rings and link repair; wrong ones end the program
 * or the connection that they come from.
 */
#include "locks.h"

#include "engine/answer.h"
#include "engine/conn.h"
#include "engine/link.h"
#include "ipc/lock_words.h"

#include <errno.h>

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
	     TEST(test_lost), TEST(test_cut), TEST(test_bad_programs), TEST(test_bad_peers))

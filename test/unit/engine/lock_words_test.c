/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Locks of exports whose words the programs of a host share: taken and left by words while nobody
 * waits, else by the queue; members that end, numbers and words that are nobody's.
 */
#include "locks.h"

#include "engine/conn.h"
#include "engine/region.h"
#include "ipc/lock_words.h"

#include <errno.h>

#define MEMBERS 3u
#define WORDS_AT 128u /* in region 2 */

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

ENGINE_TESTS(TEST(test_words), TEST(test_words_record), TEST(test_words_record_spoilt),
	     TEST(test_words_dead), TEST(test_words_withdraw), TEST(test_words_owner),
	     TEST(test_words_of_others), TEST(test_words_ended), TEST(test_words_gone),
	     TEST(test_words_many), TEST(test_words_bad))

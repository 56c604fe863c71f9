/* SPDX-License-Identifier: BSD-3-Clause */
/* One member by itself: what it sends, message by message. Clusters of them are in test/sim. */
#include "membership/swim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define SELF 1u
#define OTHERS 30u
#define SENT 256u

static struct swim swim;
static struct swim_msg sent[SENT];
static unsigned sent_count, changed_count, rival_count, refused_count;
static uint64_t now, info;

static void
on_send(void *user, uint16_t to, const struct swim_msg *m)
{
	assert_true(m->count <= SWIM_RECORDS);
	sent[sent_count++ % SENT] = *m;
}

static void
on_changed(void *user, const struct swim_node *node)
{
	changed_count++;
}

static void
on_forgotten(void *user, const struct swim_node *node)
{
}

static bool
same_place(void *user, const void *a, const void *b)
{
	return false;
}

static void
on_settled(void *user)
{
}

static void
on_beaten(void *user, const struct swim_record *other)
{
	fail();
}

static void
on_rival(void *user, const struct swim_record *other)
{
	rival_count++;
}

static void
on_refused(void *user, uint16_t from, const struct swim_record *r, const char *why)
{
	refused_count++;
}

static const struct swim_ops ops = {on_send,	on_changed, on_forgotten, same_place,
				    on_settled, on_beaten,  on_rival,	  on_refused};

static struct swim_record
record(uint16_t id, enum swim_status status, uint64_t version)
{
	return (struct swim_record){
	    .id = id, .status = status, .run = id, .version = SWIM_UP + version, .info = &info};
}

// All that live answer at once, and agree.
static void
pass(uint64_t ms)
{
	for (uint64_t end = now + ms; now < end; now += 50) {
		swim_tick(&swim, now);
		for (uint16_t id = SELF + 1; id <= SELF + OTHERS; id++) {
			struct swim_msg m = {.type = SWIM_ACK, .target = id, .digest = swim.digest};

			swim_input(&swim, id, &m, now);
		}
	}
}

static int
setup(void **state)
{
	const struct swim_config config = {.id = SELF,
					   .run = SELF,
					   .version = SWIM_UP + 1,
					   .seed = 1,
					   .timeout = 1000,
					   .info_size = sizeof(info),
					   .ops = &ops};

	now = 1000;
	assert_int_equal(swim_init(&swim, &config, &info, now), 0);
	for (uint16_t id = SELF + 1; id <= SELF + OTHERS; id++) {
		struct swim_record r = record(id, SWIM_ALIVE, 1);

		assert_true(swim_hello(&swim, &r, now));
	}
	pass(30000);
	assert_int_equal(swim.news_count, 0);
	sent_count = changed_count = rival_count = refused_count = 0;
	return 0;
}

static int
teardown(void **state)
{
	swim_fini(&swim);
	return 0;
}

// On how many messages the record of `id` rode since; on none twice.
static unsigned
rides(uint16_t id)
{
	unsigned n = 0;

	assert_true(sent_count <= SENT);
	for (unsigned i = 0; i < sent_count; i++) {
		unsigned times = 0;

		for (uint32_t k = 0; k < sent[i].count; k++)
			times += sent[i].record[k].id == id;
		assert_true(times <= 1);
		n += times;
	}
	return n;
}

// News ride on log2 n + 4 messages, not all at once on one that may be lost.
static void
test_news_ride_once_a_message(void **state)
{
	swim_set_info(&swim, &info);
	pass(10000);
	assert_int_equal(rides(SELF), 5 + 4);
	assert_int_equal(swim.news_count, 0);
}

static void
test_many_news(void **state)
{
	struct swim_msg m = {.type = SWIM_NEWS};

	for (uint16_t id = 2; id < 2 + 20; id++)
		m.record[m.count++] = record(id, SWIM_ALIVE, 2);
	swim_input(&swim, 2, &m, now);
	assert_int_equal(swim.news_count, 20);
	pass(20000);
	for (uint16_t id = 2; id < 2 + 20; id++)
		assert_int_equal(rides(id), 5 + 4);
}

static unsigned
sent_of(enum swim_msg_type type)
{
	unsigned n = 0;

	assert_true(sent_count <= SENT);
	for (unsigned i = 0; i < sent_count; i++)
		n += sent[i].type == type;
	return n;
}

// A member that asks for all without end gets it once per period, and no other waits for it.
static void
test_sync_flood(void **state)
{
	const struct swim_msg all = {.type = SWIM_SYNC, .want = true};

	for (int i = 0; i < 1000; i++)
		swim_input(&swim, 2, &all, now);
	assert_int_equal(sent_of(SWIM_SYNC), 1);
	swim_input(&swim, 3, &all, now);
	assert_int_equal(sent_of(SWIM_SYNC), 2);
	for (int i = 0; i < 9; i++) {
		pass(100); // a half
		swim_input(&swim, 2, &all, now);
	}
	assert_in_range(sent_of(SWIM_SYNC), 2 + 3, 2 + 5);
	// what was asked for last is answered too, and once
	pass(1000);
	assert_in_range(sent_of(SWIM_SYNC), 2 + 4, 2 + 6);
	sent_count = 0;
	pass(1000);
	assert_int_equal(sent_of(SWIM_SYNC), 0);
}

// A member that has us probe a third one without end causes few messages to it, for a limited time.
static void
test_ask_flood(void **state)
{
	const struct swim_msg ask = {.type = SWIM_ASK, .target = 3, .seq = 7};
	struct swim_msg ack = {.type = SWIM_ACK, .target = 3};

	for (int i = 0; i < 1000; i++)
		swim_input(&swim, 2, &ask, now);
	assert_int_equal(sent_of(SWIM_PING), SWIM_RELAYS);
	// an answer makes room
	ack.seq = sent[SWIM_RELAYS - 1].seq;
	sent_count = 0;
	swim_input(&swim, 3, &ack, now);
	assert_int_equal(sent_of(SWIM_ACK), 1);
	swim_input(&swim, 2, &ask, now);
	swim_input(&swim, 2, &ask, now);
	assert_int_equal(sent_of(SWIM_PING), 1);
	// and so does time
	pass(300);
	sent_count = 0;
	swim_input(&swim, 2, &ask, now);
	assert_int_equal(sent_of(SWIM_PING), 1);
}

static void
say(uint16_t from, const struct swim_record *r)
{
	struct swim_msg m = {.type = SWIM_NEWS, .count = 1, .record[0] = *r};

	swim_input(&swim, from, &m, now);
}

static const struct swim_record *
known(uint16_t id)
{
	const struct swim_node *n = swim_find(&swim, id);

	return n ? &n->is : NULL;
}

// A record that its node could not refute is nobody's, whoever it is about.
static void
test_no_last_word(void **state)
{
	struct swim_record r = record(5, SWIM_LEFT, 0);
	uint64_t own = swim.self->is.version;

	for (enum swim_status status = SWIM_ALIVE; status <= SWIM_LEFT; status++) {
		r.status = status;
		r.version = SWIM_VERSION_MAX;
		say(2, &r);
		assert_int_equal(known(5)->version, SWIM_UP + 1);
		assert_int_equal(known(5)->status, SWIM_ALIVE);
		r.id = SELF;
		say(2, &r);
		assert_int_equal(swim.self->is.version, own);
		r.id = 5;
	}
	assert_int_equal(refused_count, 8);
	// Nor that of a node which says it of itself.
	r = record(5, SWIM_ALIVE, 0);
	r.version = SWIM_VERSION_MAX;
	assert_false(swim_hello(&swim, &r, now));
	assert_int_equal(known(5)->version, SWIM_UP + 1);
	// Clocks that differ by a human life are believed.
	r.version = SWIM_UP + UINT64_C(80) * 365 * 86400 * 1000;
	say(2, &r);
	assert_int_equal(known(5)->version, r.version);
}

// Whatever anybody may have believed of a node, the node's own word is above.
static void
test_refuted_whatever_is_believed(void **state)
{
	uint64_t highest = swim.config.version + (now - swim.began) + SWIM_AHEAD;
	struct swim_record r = record(5, SWIM_LEFT, 0);

	r.version = highest + 1;
	say(2, &r);
	assert_int_equal(known(5)->status, SWIM_ALIVE);
	r.version = highest;
	say(2, &r);
	assert_int_equal(known(5)->status, SWIM_LEFT);
	r.status = SWIM_ALIVE;
	r.version++;
	say(2, &r);
	assert_int_equal(known(5)->status, SWIM_LEFT);
	say(5, &r);
	assert_int_equal(known(5)->status, SWIM_ALIVE);
	// The same of ours, also of what somebody whose clock is ahead has believed.
	for (uint16_t i = 0; i < 2; i++) {
		r = record(SELF, SWIM_LEFT, 0);
		r.version = highest + i * SWIM_AHEAD / 2;
		say(2, &r);
		assert_int_equal(swim.self->is.status, SWIM_ALIVE);
		assert_int_equal(swim.self->is.version, r.version + 1);
	}
	assert_int_equal(rides(SELF), 0);
	pass(10000);
	assert_true(rides(SELF) > 0);
}

// That our id is another node's has to be said by that node.
static void
test_no_rival_by_hearsay(void **state)
{
	struct swim_record r = record(SELF, SWIM_ALIVE, 100);

	r.run = 99;
	say(2, &r);
	assert_int_equal(rival_count, 1);
	assert_int_equal(swim.self->is.version, r.version + 1);
	assert_false(swim.out);
}

// Records that one node tells of others are hearsay until those say it themselves.
static void
test_first_hand(void **state)
{
	struct swim_record r = record(5, SWIM_LEFT, 2);

	say(2, &r);
	assert_int_equal(swim_find(&swim, 5)->by, 2);
	assert_int_equal(changed_count, 1);
	say(3, &r);
	assert_int_equal(swim_find(&swim, 5)->by, 2);
	say(5, &r);
	assert_int_equal(swim_find(&swim, 5)->by, 5);
	assert_int_equal(changed_count, 2);
	say(5, &r);
	assert_int_equal(changed_count, 2);
}

// Tells ids from `first`, as many as a message has room for.
static void
invent(uint16_t from, uint16_t first)
{
	struct swim_msg m = {.type = SWIM_SYNC};

	while (m.count < SWIM_RECORDS) {
		m.record[m.count] = record(first + m.count, SWIM_ALIVE, 1);
		m.count++;
	}
	swim_input(&swim, from, &m, now);
}

// A member invents nodes: they stay few, and others may still tell some, up to a point.
static void
test_invented_nodes(void **state)
{
	struct swim_record r;
	uint16_t id = 1000;

	for (; id < 48000; id += SWIM_RECORDS)
		invent(2, id);
	assert_int_equal(swim.unproven, SWIM_BROUGHT);
	assert_int_equal(swim.count, 1 + OTHERS + SWIM_BROUGHT);
	// Another one's are let in.
	r = record(60000, SWIM_ALIVE, 1);
	say(3, &r);
	assert_non_null(known(60000));
	// A node that speaks with us is unproven no more, and makes room for another.
	r = record(1000, SWIM_ALIVE, 1);
	assert_true(swim_hello(&swim, &r, now));
	assert_int_equal(swim_find(&swim, 2)->brought, SWIM_BROUGHT - 1);
	r = record(50000, SWIM_ALIVE, 1);
	say(2, &r);
	assert_non_null(known(50000));
	r = record(50001, SWIM_ALIVE, 1);
	say(2, &r);
	assert_null(known(50001));
	// All of them together have a limit too, which a node that says hello doesn't have.
	for (id = 10000; id < 20000; id += SWIM_RECORDS)
		invent(4 + id / SWIM_RECORDS % 20, id);
	assert_int_equal(swim.unproven, SWIM_UNPROVEN);
	r = record(60001, SWIM_ALIVE, 1);
	say(3, &r);
	assert_null(known(60001));
	assert_true(swim_hello(&swim, &r, now));
	// None lives: after their patience and memory all is as it was.
	for (int i = 0; i < 3000 && swim.unproven; i++)
		pass(1000);
	assert_int_equal(swim.unproven, 0);
	for (uint16_t other = 2; other <= SELF + OTHERS; other++)
		assert_int_equal(swim_find(&swim, other)->brought, 0);
	assert_int_equal(swim.count, 1 + OTHERS);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(test_news_ride_once_a_message),
	    TEST(test_many_news),
	    TEST(test_sync_flood),
	    TEST(test_ask_flood),
	    TEST(test_no_last_word),
	    TEST(test_refuted_whatever_is_believed),
	    TEST(test_no_rival_by_hearsay),
	    TEST(test_first_hand),
	    TEST(test_invented_nodes),
	};

	return cmocka_run_group_tests_name("control_swim", tests, NULL, NULL);
}

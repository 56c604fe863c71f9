/* SPDX-License-Identifier: BSD-3-Clause */
/* One member by itself: what it sends, message by message. Clusters of them are in test/sim. */
#include "swim.h"

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
static unsigned sent_count, changed_count;
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

static const struct swim_ops ops = {on_send,	on_changed, on_forgotten,
				    same_place, on_settled, on_beaten};

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
	sent_count = changed_count = 0;
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
	swim_tell(&swim, &info);
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

// Who asks for all without end gets it once a period, and nobody else has to wait.
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

// Who has us probe a third one without end gets that node a few messages, and not for ever.
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

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(test_news_ride_once_a_message),
	    TEST(test_many_news),
	    TEST(test_sync_flood),
	    TEST(test_ask_flood),
	};

	return cmocka_run_group_tests_name("control_swim", tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Many connections of one thread to one peer: their messages stay in the ring until they are read.
 */
#include "worlds/test.h"

#include "worlds/stream_pair.h"

#include "stream/conn.h"
#include "stream/rx_queue.h"

#define CONNS 20u

struct many {
	struct pair p;
	struct weir_conn *out[CONNS], *in[CONNS];
	uint32_t sent[CONNS], got[CONNS];
};

static void
open_many(struct many *m, const char *address)
{
	for (uint32_t i = 0; i < CONNS; i++) {
		m->out[i] = pair_connect(&m->p, address);
		m->in[i] = pair_accept(&m->p);
		weir_conn_set_user(m->in[i], (void *)(uintptr_t)(i + 1));
		m->sent[i] = m->got[i] = 0;
	}
}

struct weir_rx_message *__real_weir_rx_message_inline(struct weir_conn *c,
						      const struct weir_head *h);
struct weir_rx_message *__wrap_weir_rx_message_inline(struct weir_conn *c,
						      const struct weir_head *h);

static uint32_t parked; /* messages taken off the ring before they were read */

struct weir_rx_message *
__wrap_weir_rx_message_inline(struct weir_conn *c, const struct weir_head *h)
{
	parked++;
	return __real_weir_rx_message_inline(c, h);
}

static __attribute__((noinline)) void
take(struct many *m, uint32_t i)
{
	uint32_t buf[16];
	size_t length;

	while (!weir_recv(m->in[i], buf, sizeof(buf), &length, 0)) {
		assert_int_equal(buf[0], i);
		assert_int_equal(buf[1], m->got[i]++);
	}
}

static __attribute__((noinline)) unsigned
drain(struct many *m)
{
	struct weir_event e[32];
	int n = weir_poll(m->p.b, e, 32);

	for (int i = 0; i < n; i++)
		if (e[i].type == WEIR_EVENT_READABLE)
			take(m, (uint32_t)(uintptr_t)e[i].user - 1);
	return n > 0 ? (unsigned)n : 0;
}

static void
put(struct many *m, uint32_t i)
{
	uint32_t buf[16] = {i, m->sent[i]++};
	int rc;

	while ((rc = weir_send(m->out[i], buf, sizeof(buf), 0)) == -EAGAIN) {
		plane_settle(m->p.f);
		drain(m);
	}
	assert_int_equal(rc, 0);
}

static void
drain_all(struct many *m)
{
	for (unsigned idle = 0; idle < 50;) {
		plane_settle(m->p.f);
		idle = drain(m) ? 0 : idle + 1;
	}
	for (uint32_t i = 0; i < CONNS; i++)
		assert_int_equal(m->got[i], m->sent[i]);
}

/* `rounds` rounds of bursts; returns the messages parked per 1000 of the second half. */
static uint32_t
run(const char *address, uint32_t burst, uint32_t rounds)
{
	struct plane_options o = {.channels = 12,
				  .recv_blocks = 512,
				  .send_blocks = 512,
				  .ring_slots = 4096,
				  .window = 256u << 10,
				  .first = 64u << 10};
	struct many m = {.p = pair_open(address, &o, false)};
	uint32_t before = 0;

	open_many(&m, address);
	for (uint32_t round = 0; round < rounds; round++) {
		if (round == rounds / 2)
			before = parked;
		for (uint32_t i = 0; i < CONNS; i++)
			for (uint32_t k = 0; k < burst; k++)
				put(&m, i);
		drain_all(&m);
	}
	before = parked - before;
	for (uint32_t i = 0; i < CONNS; i++) {
		weir_close(m.out[i]);
		weir_close(m.in[i]);
	}
	pair_close(&m.p);
	return before * 1000 / (CONNS * burst * (rounds - rounds / 2));
}

/* Bursts of at least 16 slots: received where they lie, but for some at their beginnings. */
TEST(test_bursts)
{
	assert_in_range(run(PLANE_LOCAL, 32, 20), 0, 100);
	assert_in_range(run(PLANE_REMOTE, 32, 20), 0, 100);
	assert_in_range(run(PLANE_LOCAL, 8, 40), 0, 100);
	assert_in_range(run(PLANE_REMOTE, 8, 40), 0, 100);
}

/* Shorter ones move to queues, each message once. */
TEST(test_mixed)
{
	assert_in_range(run(PLANE_LOCAL, 1, 200), 0, 1000);
	assert_in_range(run(PLANE_REMOTE, 1, 200), 0, 1000);
	assert_in_range(run(PLANE_LOCAL, 3, 50), 0, 1000);
	assert_in_range(run(PLANE_REMOTE, 3, 50), 0, 1000);
}

/* A program that reads one connection alone finds its messages behind those of others. */
TEST(test_one_alone)
{
	struct many m = {.p = pair_open(PLANE_LOCAL, NULL, false)};
	uint32_t buf[16];
	size_t length;

	open_many(&m, PLANE_LOCAL);
	for (uint32_t round = 0; round < 30; round++) {
		for (uint32_t k = 0; k < 20; k++)
			put(&m, round % 3);
		put(&m, 7);
		for (uint32_t tries = 0; m.got[7] <= round; tries++) {
			assert_in_range(tries, 0, 200);
			if (weir_recv(m.in[7], buf, sizeof(buf), &length, 0))
				continue;
			assert_int_equal(buf[1], m.got[7]++);
		}
		drain_all(&m);
	}
	for (uint32_t i = 0; i < CONNS; i++) {
		weir_close(m.out[i]);
		weir_close(m.in[i]);
	}
	pair_close(&m.p);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The short ways of weir_send() and weir_recv() compare one number each. Whatever makes a message
 * unusual has to change that number, and a mix of all of it brings each message once, in order.
 */
#include "worlds/stream_pair.h"
#include "worlds/test.h"

#include "stream/conn.h"

#define LENGTHS 4096u
#define MOST 600000u /* goes in fragments */

struct world {
	struct pair p;
	struct flow {
		uint32_t sent, received, notes;
		uint64_t bytes;
		size_t length[LENGTHS];
	} flow[2];
	uint8_t *reserved[2]; /* memory of a reservation; NULL: none */
	uint32_t seed;
};

static uint32_t
below(struct world *w, uint32_t n)
{
	w->seed = w->seed * 1664525u + 1013904223u;
	return (uint32_t)((uint64_t)(w->seed >> 4) * n >> 28);
}

static void
sent(struct flow *f, size_t length)
{
	f->length[f->sent++ % LENGTHS] = length;
	f->bytes += length;
}

static void
send_any(struct world *w, int end)
{
	static const size_t sizes[] = {0, 8, 16, 47, 48, 49, 64, 108, 109, 948, 949, 5000, MOST};
	struct weir_conn *c = end ? w->p.d : w->p.c;
	struct flow *f = &w->flow[end];
	size_t length = sizes[below(w, below(w, 4) ? 9 : sizeof(sizes) / sizeof(*sizes))];
	uint8_t *m = make_message(f->sent, length);
	struct iovec v[40];
	void *buf;
	int rc = 0;

	if (f->sent - f->received > LENGTHS - 64) {
		free(m);
		return;
	}
	switch (below(w, 8)) {
	case 0:
		rc = weir_send_notify(c, m, length, WEIR_NOTIFY, f->sent, 0);
		f->notes += !rc;
		break;
	case 1:
		if (!w->reserved[end] && length && !weir_send_reserve(c, length, 0, &buf))
			w->reserved[end] = buf;
		rc = -EAGAIN;
		if (w->reserved[end]) {
			length = length > 8 ? 8 : length;
			memcpy(w->reserved[end], m, length);
			rc = weir_send_commit(c, w->reserved[end], length, 0, 0);
			if (rc == -EINVAL) /* longer than what was reserved */
				rc = -EAGAIN;
			else if (!rc)
				w->reserved[end] = NULL;
		}
		break;
	case 2:
		for (unsigned i = 0; i < 40; i++)
			v[i] = (struct iovec){make_message(f->sent + i, 60), 60};
		rc = weir_send_many(c, v, 40, 0);
		for (int i = 0; i < rc; i++)
			sent(f, 60);
		for (unsigned i = 0; i < 40; i++)
			free(v[i].iov_base);
		rc = rc > 0 ? -EAGAIN : rc;
		break;
	default:
		rc = weir_send(c, m, length, 0);
	}
	assert_true(!rc || rc == -EAGAIN);
	if (!rc)
		sent(f, length);
	free(m);
}

static void
receive_any(struct world *w, int end)
{
	static uint8_t memory[40][MOST];
	struct weir_conn *c = end ? w->p.c : w->p.d;
	struct flow *f = &w->flow[end];
	unsigned n = below(w, 3) ? 1 : 40;
	struct iovec v[40];
	int rc;

	for (unsigned i = 0; i < n; i++)
		v[i] = (struct iovec){memory[i], MOST};
	if (n == 1) {
		rc = weir_recv(c, memory[0], MOST, &v[0].iov_len, 0);
		rc = rc ? rc : 1;
	} else {
		rc = weir_recv_many(c, v, n, 0);
	}
	assert_true(rc > 0 || rc == -EAGAIN || (rc == -ESHUTDOWN && f->received == f->sent));
	for (int i = 0; i < rc; i++) {
		assert_int_equal(v[i].iov_len, f->length[f->received % LENGTHS]);
		check_message(memory[i], f->received++, v[i].iov_len);
	}
}

static void
settled(struct world *w)
{
	struct weir_event e[8];

	assert_true(weir_conn_is_settled(w->p.c));
	assert_true(weir_conn_is_settled(w->p.d));
	weir_poll(w->p.a, e, 8);
	weir_poll(w->p.b, e, 8);
	assert_true(weir_conn_is_settled(w->p.c));
	assert_true(weir_conn_is_settled(w->p.d));
}

/* Takes all that is under way. */
static void
drain(struct world *w)
{
	for (int i = 0; i < 100000; i++) {
		for (int end = 0; end < 2; end++)
			receive_any(w, end);
		plane_settle(w->p.f);
		settled(w);
		if (w->flow[0].received == w->flow[0].sent &&
		    w->flow[1].received == w->flow[1].sent)
			return;
	}
	fail_msg("messages are lost");
}

static void
mix(const char *address, uint32_t seed)
{
	struct world *w = calloc(1, sizeof(*w));
	int half;

	printf("seed %u\n", seed);
	*w = (struct world){.p = pair_open(address, NULL, false), .seed = seed};
	for (int step = 0; step < 8000; step++) {
		int end = (int)below(w, 2);

		if (below(w, 2))
			send_any(w, end);
		else
			receive_any(w, end);
		if (!below(w, 16))
			plane_settle(w->p.f);
		if (!below(w, 8))
			settled(w);
	}
	drain(w);
	/* what weir_conn_info() says */
	assert_int_equal(w->p.c->sent, w->flow[0].sent);
	assert_int_equal(w->p.c->sent_bytes, w->flow[0].bytes);
	assert_int_equal(w->p.c->received, w->flow[1].received);
	assert_int_equal(w->p.c->received_bytes, w->flow[1].bytes);
	/* one end sends no more; the other one does */
	half = (int)below(w, 2);
	assert_int_equal(weir_shutdown(half ? w->p.d : w->p.c), 0);
	for (int step = 0; step < 500; step++) {
		assert_int_equal(weir_send(half ? w->p.d : w->p.c, "", 1, 0), -EPIPE);
		send_any(w, !half);
		receive_any(w, (int)below(w, 2));
		plane_settle(w->p.f);
	}
	drain(w);
	pair_close(&w->p);
	free(w);
}

TEST(mixed_within_a_host)
{
	for (uint32_t seed = 1; seed <= 12; seed++)
		mix(PLANE_LOCAL, seed);
}

TEST(mixed_between_nodes)
{
	for (uint32_t seed = 1; seed <= 4; seed++)
		mix(PLANE_REMOTE, seed);
}

TEST(what_zeroes_the_budget)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	static uint8_t m[16 << 20];
	size_t n;

	assert_int_equal(weir_send(p.c, m, 8, 0), 0);
	assert_int_equal(p.c->quick, p.c->granted);
	assert_true(p.c->quick);
	assert_int_equal(weir_recv(p.d, m, sizeof(m), &n, 0), 0);
	weir_lock(p.d->worker);
	weir_segment_report(WEIR_SEGMENT_OF(p.d->pipe));
	weir_unlock(p.d->worker);
	/* the rest of a message waits: nothing may overtake it */
	assert_int_equal(weir_send(p.c, m, sizeof(m), 0), 0);
	assert_true(p.c->partial_queued);
	assert_int_equal(p.c->quick, 0);
	assert_int_equal(weir_send(p.c, m, 8, 0), -EAGAIN);
	for (int i = 0; i < 1000 && p.c->partial_queued; i++) {
		weir_flush(p.c, 0);
		weir_recv(p.d, m, sizeof(m), &n, 0);
	}
	assert_int_equal(p.c->quick, p.c->granted);
	/* a fence between message and look at the sleeper */
	p.c->pipe->fence = true;
	weir_conn_update_quick(p.c);
	assert_int_equal(p.c->quick, 0);
	assert_int_equal(weir_send(p.c, m, 8, 0), 0);
	p.c->pipe->fence = false;
	/* an operation that the program asked for */
	p.c->transfer = WEIR_SLOT_SEND;
	weir_conn_update_quick(p.c);
	assert_int_equal(p.c->quick, 0);
	p.c->transfer = 0;
	weir_conn_update_quick(p.c);
	/* no more sends */
	assert_int_equal(weir_shutdown(p.c), 0);
	assert_int_equal(p.c->quick, 0);
	assert_int_equal(weir_send(p.c, m, 8, 0), -EPIPE);
	/* the peer is gone */
	assert_int_equal(weir_send(p.d, m, 8, 0), 0);
	weir_close(p.c);
	p.c = NULL;
	for (int i = 0; i < 3; i++) {
		struct weir_event e;

		plane_settle(p.f);
		weir_poll(p.a, &e, 1);
		weir_poll(p.b, &e, 1);
	}
	assert_int_equal(p.d->quick, 0);
	assert_int_equal(p.d->next, UINT64_MAX);
	assert_int_equal(weir_send(p.d, m, 8, 0), -ECONNRESET);
	pair_close(&p);
}

/* Messages that moved to the queue come before those in the ring. */
TEST(queue_before_ring)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	uint64_t in = 0;
	size_t n;

	for (uint64_t i = 1; i <= 8; i++)
		assert_int_equal(weir_send(p.c, &i, sizeof(i), 0), 0);
	weir_lock(p.d->worker);
	for (int i = 0; i < 4 && !p.d->queue; i++)
		weir_progress(p.d->worker, NULL);
	weir_unlock(p.d->worker);
	assert_non_null(p.d->queue);
	assert_int_equal(p.d->next, UINT64_MAX);
	assert_int_equal(weir_send(p.c, &(uint64_t){9}, sizeof(in), 0), 0);
	for (uint64_t i = 1; i <= 9; i++) {
		assert_int_equal(weir_recv(p.d, &in, sizeof(in), &n, 0), 0);
		assert_int_equal(in, i);
	}
	assert_int_equal(p.d->next, p.d->vqpn);
	pair_close(&p);
}

/* Half the window was consumed in small messages: the sender learns it without a pause. */
TEST(report_in_time)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	uint8_t m[64];
	size_t n;

	for (uint32_t cost = 0; cost < p.d->window; cost += 2 * WEIR_SLOT_SIZE) {
		assert_int_equal(weir_send(p.c, m, 64, 0), 0);
		assert_int_equal(weir_recv(p.d, m, 64, &n, 0), 0);
		assert_true(p.d->consumed - p.d->returned < p.d->due_at);
	}
	pair_close(&p);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Several messages per call, on connections within a host and between nodes. */
#include "worlds/stream_pair.h"
#include "worlds/test.h"

#include "ipc/shm.h"

#define LENGTHS 4096u /* of messages under way, at most */
#define BATCH 80u
#define LARGE 70000u /* goes in fragments within a host, by rendezvous between nodes */

static uint32_t random_state;

static uint32_t
below(uint32_t n)
{
	random_state = random_state * 1664525u + 1013904223u;
	return (uint32_t)((uint64_t)(random_state >> 4) * n >> 28);
}

static size_t
some_length(void)
{
	switch (below(20)) {
	case 0:
		return below(20000);
	case 1:
		return below(30) ? below(1000) : LARGE;
	default:
		return below(130);
	}
}

struct flow {
	uint32_t sent, received;
	size_t length[LENGTHS];
};

/* Sends one message, or a batch, of which some may be accepted. */
static void
send_some(struct flow *f, struct weir_conn *c)
{
	unsigned n = below(3) ? 1 + below(BATCH) : 1;
	struct iovec v[BATCH];
	int rc;

	if (f->sent - f->received + n > LENGTHS)
		return;
	for (unsigned i = 0; i < n; i++) {
		size_t length = some_length();

		v[i] = (struct iovec){make_message(f->sent + i, length), length};
		f->length[(f->sent + i) % LENGTHS] = length;
	}
	rc = n == 1 ? weir_send(c, v[0].iov_base, v[0].iov_len, 0) : weir_send_many(c, v, n, 0);
	assert_true(rc >= 0 || rc == -EAGAIN);
	assert_true(rc <= (int)n);
	f->sent += n == 1 ? rc == 0 : rc > 0 ? (uint32_t)rc : 0;
	for (unsigned i = 0; i < n; i++)
		free(v[i].iov_base);
}

static void
is_next(struct flow *f, const void *data, size_t length)
{
	assert_true(f->received < f->sent);
	assert_int_equal(length, f->length[f->received % LENGTHS]);
	check_message(data, f->received++, length);
}

static void
receive_many(struct flow *f, struct weir_conn *d, bool narrow)
{
	static uint8_t memory[BATCH][LARGE];
	unsigned n = 1 + below(BATCH);
	struct iovec v[BATCH];
	int rc;

	for (unsigned i = 0; i < n; i++)
		v[i] = (struct iovec){memory[i], narrow && !below(8) ? below(200) : LARGE};
	rc = weir_recv_many(d, v, n, 0);
	if (rc == -EMSGSIZE)
		assert_int_equal(v[0].iov_len, f->length[f->received % LENGTHS]);
	else
		assert_true(rc > 0 ? rc <= (int)n : rc == -EAGAIN);
	for (int i = 0; i < rc; i++)
		is_next(f, v[i].iov_base, v[i].iov_len);
}

static void
receive_some(struct flow *f, struct pair *p)
{
	static uint8_t in[LARGE];
	struct weir_loan loans[BATCH];
	struct weir_event e[4];
	size_t n;
	int rc;

	switch (below(6)) {
	case 0:
		rc = weir_recv(p->d, in, sizeof(in), &n, 0);
		if (!rc)
			is_next(f, in, n);
		else
			assert_int_equal(rc, -EAGAIN);
		break;
	case 1:
		rc = weir_recv_loan_many(p->d, loans, 1 + below(BATCH), 0);
		assert_true(rc > 0 || rc == -EAGAIN);
		for (int i = 0; i < rc; i++) {
			is_next(f, loans[i].data, loans[i].length);
			weir_release(p->b, &loans[i]);
		}
		break;
	case 2:
		weir_poll(p->b, e, 4);
		break;
	default:
		receive_many(f, p->d, true);
	}
}

/* Single calls and batches at both ends, at random: each message comes once, whole, in order. */
static void
mix(const char *address, uint32_t seed, unsigned loss, uint32_t messages)
{
	struct pair p = pair_open(address, NULL, false);
	struct flow *f = calloc(1, sizeof(*f));
	struct weir_event e[4];

	printf("seed %u\n", seed);
	random_state = seed;
	plane_impair(p.f, loss, loss, loss);
	while (f->sent < messages) {
		for (unsigned i = below(4); i > 0; i--)
			send_some(f, p.c);
		plane_settle(p.f);
		for (unsigned i = below(6); i > 0; i--)
			receive_some(f, &p);
		weir_poll(p.a, e, 4);
	}
	for (unsigned i = 0; i < 100000 && f->received < f->sent; i++) {
		plane_settle(p.f);
		weir_poll(p.a, e, 4);
		receive_many(f, p.d, false);
	}
	assert_int_equal(f->received, f->sent);
	plane_impair(p.f, 0, 0, 0);
	free(f);
	pair_close(&p);
}

TEST(mixed_within_a_host)
{
	for (uint32_t seed = 1; seed <= 6; seed++)
		mix(PLANE_LOCAL, seed, 0, 20000);
}

TEST(mixed_between_nodes)
{
	for (uint32_t seed = 1; seed <= 3; seed++)
		mix(PLANE_REMOTE, seed, 0, 20000);
}

TEST(mixed_over_a_bad_wire)
{
	for (uint32_t seed = 4; seed <= 6; seed++)
		mix(PLANE_REMOTE, seed, 3, 8000);
}

static struct weir_slot *
slot_at(struct pair *p, uint32_t i, uint8_t **area)
{
	struct weir_segment_geometry g;
	uint8_t *base = plane_segment(p->f, &g);

	*area = base + weir_segment_area_at(&g, 0);
	return (struct weir_slot *)(void *)(base + weir_segment_ring_at(&g, 0)) + i;
}

/* Fills v with n messages of `length` bytes. */
static void
fill(struct iovec *v, unsigned n, size_t length)
{
	for (unsigned i = 0; i < n; i++)
		v[i] = (struct iovec){make_message(i, length), length};
}

static void
drop(struct iovec *v, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		free(v[i].iov_base);
}

/* Messages share cache lines as soon as the receiver takes several per call, and not before. */
TEST(bundled_for_those_who_take_many)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	struct iovec v[32], in[32];
	uint8_t *area;

	fill(v, 32, 64);
	fill(in, 32, 64);
	assert_int_equal(weir_send_many(p.c, v, 2, 0), 2);
	assert_int_equal(slot_at(&p, 0, &area)->op, WEIR_OP_INLINE);
	assert_int_equal(slot_at(&p, 2, &area)->op, WEIR_OP_INLINE);
	assert_int_equal(weir_recv_many(p.d, in, 32, 0), 2);
	assert_int_equal(weir_send_many(p.c, v, 32, 0), 32);
	assert_int_equal(slot_at(&p, 4, &area)->op, WEIR_OP_BUNDLE);
	assert_int_equal(weir_recv_many(p.d, in, 32, 0), 32);
	for (unsigned i = 0; i < 32; i++)
		check_message(in[i].iov_base, i, in[i].iov_len);
	assert_int_equal(weir_recv_many(p.d, in, 32, 0), -EAGAIN);
	drop(v, 32);
	drop(in, 32);
	pair_close(&p);
}

/* Empty messages use the window, too: each takes memory of a receiver that only polls. */
TEST(bundles_of_nothing)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	struct iovec v[WEIR_BUNDLE_MAX] = {0}, in[WEIR_BUNDLE_MAX];
	unsigned window = WEIR_SEGMENT_WINDOW / WEIR_SLOT_SIZE;
	struct weir_event e;

	assert_int_equal(weir_recv_many(p.d, in, 1, 0), -EAGAIN);
	for (int polls = 1; polls >= 0; polls--) {
		unsigned sent = 0, got = 0;
		int rc;

		while ((rc = weir_send_many(p.c, v, WEIR_BUNDLE_MAX, 0)) > 0 && sent <= window) {
			sent += (unsigned)rc;
			if (polls)
				weir_poll(p.b, &e, 1);
		}
		assert_int_equal(rc, -EAGAIN);
		if (polls)
			assert_int_equal(sent, window);
		memset(in, 0, sizeof(in));
		while ((rc = weir_recv_many(p.d, in, WEIR_BUNDLE_MAX, 0)) > 0)
			got += (unsigned)rc;
		assert_int_equal(rc, -EAGAIN);
		assert_int_equal(got, sent);
		while (weir_poll(p.b, &e, 1) > 0)
			;
	}
	pair_close(&p);
}

TEST(no_messages_and_no_buffers)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	struct weir_loan loan;

	assert_int_equal(weir_send_many(p.c, NULL, 0, -1), 0);
	assert_int_equal(weir_recv_many(p.d, NULL, 0, -1), -EINVAL);
	assert_int_equal(weir_recv_loan_many(p.d, &loan, 0, -1), -EINVAL);
	pair_close(&p);
}

/* An error of the first message is the call's; a later one waits for the next call. */
TEST(errors)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	char a[10], b[10];
	struct iovec out[] = {{a, 1}, {a, WEIR_STREAM_MESSAGE_MAX + 1ul}},
		     in[] = {{a, 10}, {b, 10}};

	assert_int_equal(weir_send_many(p.c, out, 2, 0), 1);
	assert_int_equal(weir_send_many(p.c, out + 1, 1, 0), -EMSGSIZE);
	assert_int_equal(weir_send(p.c, "0123456789", 10, 0), 0);
	weir_close(p.c);
	p.c = NULL;
	plane_settle(p.f);
	in[1].iov_len = 9;
	assert_int_equal(weir_recv_many(p.d, in, 2, 0), 1);
	assert_int_equal(weir_recv_many(p.d, in + 1, 1, 0), -EMSGSIZE);
	assert_int_equal(in[1].iov_len, 10);
	assert_int_equal(weir_recv_many(p.d, in + 1, 1, 0), 1);
	assert_int_equal(weir_recv_many(p.d, in, 2, -1), -ESHUTDOWN);
	pair_close(&p);
}

enum lie { NO_MESSAGE, TOO_MANY, FAR_AWAY, SHORT, LONG_MESSAGE, OTHER_SUM, HONEST };

/* `how`: the receiver's call that meets the bundle. */
static void
lie(enum lie what, int how)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	struct iovec v[4], in[4];
	struct weir_event e[4];
	struct weir_slot *s;
	struct weir_loan loan;
	uint16_t length = 0;
	uint8_t *area;
	size_t n;
	int rc;

	fill(v, 4, 64);
	fill(in, 4, 64);
	assert_int_equal(weir_recv_many(p.d, in, 4, 0), -EAGAIN);
	assert_int_equal(weir_send_many(p.c, v, 4, 0), 4);
	s = slot_at(&p, 0, &area);
	assert_int_equal(s->op, WEIR_OP_BUNDLE);
	switch (what) {
	case NO_MESSAGE:
		s->place[1] = 0;
		break;
	case TOO_MANY:
		s->place[1] = WEIR_BUNDLE_MAX + 1;
		break;
	case FAR_AWAY:
		s->place[0] = 1ull << 40;
		break;
	case SHORT:
		s->length = 8;
		break;
	case LONG_MESSAGE:
		length = WEIR_INLINE_MAX + 1;
		memcpy(area, &length, sizeof(length));
		break;
	case OTHER_SUM:
		length = 65;
		memcpy(area, &length, sizeof(length));
		break;
	case HONEST:
		break;
	}
	if (how == 0)
		rc = weir_recv_many(p.d, in, 4, 0);
	else if (how == 1)
		rc = weir_recv(p.d, in[0].iov_base, 64, &n, 0);
	else if (how == 2)
		rc = weir_recv_loan(p.d, &loan, 0);
	else
		rc = weir_poll(p.b, e, 4) == 1 && e[0].type == WEIR_EVENT_READABLE ? 0 : -EPROTO;
	if (what == HONEST) {
		assert_true(rc >= 0);
	} else {
		assert_int_equal(rc, -EPROTO);
		assert_int_equal(weir_recv(p.d, in[0].iov_base, 64, &n, 0), -EPROTO);
	}
	drop(v, 4);
	drop(in, 4);
	pair_close(&p);
}

/* The peer is not trusted: a bundle that contradicts itself ends the connection. */
TEST(hostile_bundles)
{
	for (enum lie what = 0; what <= HONEST; what++)
		for (int how = 0; how < 4; how++)
			lie(what, how);
}

/*
 * Receive blocks that a program holds count against the largest window, not against the small one
 * of a new connection: else a program that holds some and waits for more would wait for ever.
 */
TEST(test_loans_held)
{
	enum { BYTES = 8000, WINDOW = 64 << 10, MOST = WINDOW + WINDOW / 2, HELD = 32 };
	struct pair p = pair_open(PLANE_REMOTE, NULL, false);
	struct weir_loan loan[HELD];
	uint8_t *m = make_message(7, BYTES);
	unsigned sent = 0, held = 0;

	for (unsigned tries = 0; tries < 300; tries++) {
		sent += !weir_send(p.c, m, BYTES, 0);
		plane_settle(p.f);
		assert_true(held < HELD);
		held += !weir_recv_loan(p.d, &loan[held], 0);
	}
	assert_true(held >= WINDOW / weir_cost(BYTES));
	assert_true(held <= MOST / weir_cost(BYTES));
	for (unsigned i = 0; i < held; i++) {
		check_message(loan[i].data, 7, BYTES);
		weir_release(p.b, &loan[i]);
	}
	for (unsigned tries = 0; held < 100 && tries < 1000; tries++) {
		sent += sent < 100 && !weir_send(p.c, m, BYTES, 0);
		plane_settle(p.f);
		if (weir_recv_loan(p.d, &loan[0], 0))
			continue;
		held++;
		check_message(loan[0].data, 7, BYTES);
		weir_release(p.b, &loan[0]);
	}
	assert_int_equal(held, 100);
	free(m);
	pair_close(&p);
}

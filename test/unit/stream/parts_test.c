/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages gathered from and scattered to several pieces of memory, and looked at beforehand. */
#include "worlds/stream_pair.h"
#include "worlds/test.h"

#include "stream/conn.h"

#include "weir/memory.h"

#include <sys/mman.h>

static const char *const ways[] = {PLANE_LOCAL, PLANE_REMOTE};

/* A connection begins with a window for some messages. */
static const struct plane_options plane = {.first = 16384};

#define PARTS 24u

static const size_t sizes[] = {0,   1,	 8,    47,   48,   49,	  107,	 108,	109,	168,   947,
			       948, 949, 4096, 8192, 8193, 32767, 32769, 65537, 200000, 400000};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* Cuts `length` bytes of memory into parts of any length, some of them empty. How many. */
static unsigned
cut(struct iovec *parts, uint8_t *m, size_t length, uint32_t *seed)
{
	unsigned n = 0;
	size_t at = 0;

	while (n + 1 < PARTS) {
		size_t left = length - at, bytes;

		*seed = *seed * 1664525u + 1013904223u;
		bytes = *seed >> 30 ? (*seed >> 4) % (left + 1) : 0;
		if (bytes > 100 && *seed >> 31)
			bytes %= 100;
		parts[n++] = (struct iovec){bytes ? m + at : NULL, bytes};
		at += bytes;
	}
	parts[n++] = (struct iovec){m + at, length - at};
	return n;
}

static void
sendv(struct pair *p, struct weir_conn *c, uint32_t seed, size_t length, uint32_t *random)
{
	uint8_t *m = make_message(seed, length);
	struct iovec parts[PARTS];

	unsigned n = cut(parts, m, length, random);
	int rc = -EAGAIN;

	for (int i = 0; i < 1000 && rc == -EAGAIN; i++) {
		rc = weir_sendv(c, parts, n, 0, 0, 0);
		if (rc == -EAGAIN)
			plane_settle(p->f);
	}
	assert_int_equal(rc, 0);
	memset(m, 0, length); /* it is the library's business no more */
	free(m);
}

/* The next message, into parts of a buffer with `more` bytes. */
static int
recvv(struct pair *p, struct weir_conn *c, uint8_t *in, size_t room, size_t *n, uint32_t *random)
{
	struct iovec parts[PARTS];
	unsigned count = cut(parts, in, room, random);
	int rc = -EAGAIN;

	for (int i = 0; i < 10000 && rc == -EAGAIN; i++) {
		weir_flush(c == p->c ? p->d : p->c, 0);
		plane_settle(p->f);
		rc = weir_recvv(c, parts, count, n, 0);
	}
	return rc;
}

TEST(test_sizes)
{
	for (unsigned way = 0; way < 2; way++) {
		struct pair p = pair_open(ways[way], &plane, false);
		uint8_t *in = malloc(400000 + 100);
		uint32_t random = 7;

		for (uint32_t i = 0; i < 30 * SIZES; i++) {
			size_t length = sizes[i % SIZES], n = 12345;

			sendv(&p, p.c, i, length, &random);
			memset(in, 0xee, length + 100);
			assert_int_equal(recvv(&p, p.d, in, length + i % 3 * 50, &n, &random), 0);
			assert_int_equal(n, length);
			check_message(in, i, length);
			for (size_t k = 0; k < 100; k++)
				assert_int_equal(in[length + k], 0xee);
		}
		free(in);
		pair_close(&p);
	}
}

/* Lists among messages of one piece and loans: one order. */
TEST(test_order)
{
	for (unsigned way = 0; way < 2; way++) {
		struct pair p = pair_open(ways[way], &plane, false);
		uint8_t in[3000];
		uint32_t random = 3;

		for (uint32_t i = 0; i < 300; i += 3) {
			size_t n, length[3] = {i * 7 % 3000, 60, i * 31 % 3000};
			struct weir_loan loan;

			sendv(&p, p.c, i, length[0], &random);
			assert_int_equal(weir_sendv(p.c, NULL, 0, 0, 0, 0), 0);
			sendv(&p, p.c, i + 1, length[1], &random);
			sendv(&p, p.c, i + 2, length[2], &random);
			assert_int_equal(pair_recv(&p, p.d, in, sizeof(in), &n), 0);
			assert_int_equal(n, length[0]);
			check_message(in, i, n);
			n = 1;
			assert_int_equal(recvv(&p, p.d, in, 0, &n, &random), 0);
			assert_int_equal(n, 0);
			while (weir_recv_loan(p.d, &loan, 0) == -EAGAIN)
				plane_settle(p.f);
			assert_int_equal(loan.length, length[1]);
			check_message(loan.data, i + 1, loan.length);
			weir_release(p.b, &loan);
			assert_int_equal(recvv(&p, p.d, in, sizeof(in), &n, &random), 0);
			assert_int_equal(n, length[2]);
			check_message(in, i + 2, n);
		}
		pair_close(&p);
	}
}

TEST(test_flags)
{
	for (unsigned way = 0; way < 2; way++) {
		struct pair p = pair_open(ways[way], &plane, false);
		uint8_t *m = make_message(1, 9000);
		struct iovec parts[3] = {{m, 4000}, {m + 4000, 4000}, {m + 8000, 1000}};
		static const unsigned flags[] = {WEIR_NOTIFY, WEIR_NOTIFY | WEIR_ZERO_COPY,
						 WEIR_NOTIFY | WEIR_READ,
						 WEIR_NOTIFY | WEIR_CACHED};

		for (unsigned i = 0; i < 4; i++) {
			struct weir_event e = {0};
			uint8_t in[9000];
			size_t n;

			assert_int_equal(weir_sendv(p.c, parts, 3, flags[i], 40 + i, 0), 0);
			assert_int_equal(pair_recv(&p, p.d, in, sizeof(in), &n), 0);
			check_message(in, 1, 9000);
			while (e.type != WEIR_EVENT_SENT) {
				plane_settle(p.f);
				weir_poll(p.a, &e, 1);
			}
			assert_int_equal(e.cookie, 40 + i);
			assert_int_equal(e.status, 0);
		}
		assert_int_equal(weir_sendv(p.c, parts, 3, WEIR_READ | WEIR_WRITE, 0, 0), -EINVAL);
		assert_int_equal(weir_sendv(p.c, parts, 1, 1u << 31, 0, 0), -EINVAL);
		assert_int_equal(weir_sendv(p.c, parts, 3, WEIR_RING, 0, 0), -EMSGSIZE);
		free(m);
		pair_close(&p);
	}
}

TEST(test_bad_lists)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	static struct iovec parts[WEIR_PARTS_MAX + 1];
	char buf[8] = "";
	size_t n = 7;

	parts[1] = (struct iovec){buf, 8};
	assert_int_equal(weir_sendv(p.c, parts, WEIR_PARTS_MAX + 1, 0, 0, 0), -EINVAL);
	assert_int_equal(weir_recvv(p.d, parts, WEIR_PARTS_MAX + 1, &n, 0), -EINVAL);
	assert_int_equal(weir_sendv(p.c, NULL, 2, 0, 0, 0), -EINVAL);
	assert_int_equal(weir_recvv(p.d, NULL, 2, &n, 0), -EINVAL);
	assert_int_equal(weir_sendv(p.c, parts, WEIR_PARTS_MAX, 0, 0, 0), 0);
	assert_int_equal(weir_recvv(p.d, parts, WEIR_PARTS_MAX, &n, 0), 0);
	assert_int_equal(n, 8);
	parts[2] = (struct iovec){NULL, 1};
	assert_int_equal(weir_sendv(p.c, parts, 3, 0, 0, 0), -EINVAL);
	assert_int_equal(weir_recvv(p.d, parts, 3, &n, 0), -EINVAL);
	assert_non_null(strstr(weir_reason(), "part 2"));
	/* together too much, for a message or for a size_t */
	parts[2] = (struct iovec){buf, WEIR_STREAM_MESSAGE_MAX - 7};
	assert_int_equal(weir_sendv(p.c, parts, 3, 0, 0, 0), -EMSGSIZE);
	parts[2] = (struct iovec){buf, SIZE_MAX - 7};
	assert_int_equal(weir_sendv(p.c, parts, 3, 0, 0, 0), -EMSGSIZE);
	assert_int_equal(weir_recvv(p.d, parts, 3, &n, 0), -EINVAL);
	assert_int_equal(weir_recvv(p.d, parts, 2, &n, 0), -EAGAIN);
	pair_close(&p);
}

/* Too little room leaves the message where it is. */
TEST(test_small_lists)
{
	static const size_t lengths[] = {1, 49, 948, 949, 8193, 100000};

	for (unsigned way = 0; way < 2; way++) {
		struct pair p = pair_open(ways[way], &plane, false);

		for (size_t i = 0; i < 6; i++) {
			size_t length = lengths[i], n = 0;
			uint8_t *in = malloc(length);
			uint32_t random = 5;

			sendv(&p, p.c, 1, length, &random);
			assert_int_equal(recvv(&p, p.d, in, length - 1, &n, &random), -EMSGSIZE);
			assert_int_equal(n, length);
			assert_int_equal(weir_recvv(p.d, NULL, 0, &n, 0), -EMSGSIZE);
			assert_int_equal(recvv(&p, p.d, in, length, &n, &random), 0);
			check_message(in, 1, length);
			free(in);
		}
		pair_close(&p);
	}
}

/* The rest of a list that finds no room is kept as it was. */
TEST(test_rest)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, false);
	uint8_t *in = malloc(1 << 20);
	uint32_t random = 9;
	size_t n;

	for (uint32_t i = 0; i < 20; i++) {
		sendv(&p, p.c, i, (1 << 20) - i * 1000, &random);
		assert_int_equal(weir_flush(p.c, 0), -EAGAIN);
		assert_int_equal(recvv(&p, p.d, in, 1 << 20, &n, &random), 0);
		assert_int_equal(n, (1 << 20) - i * 1000);
		check_message(in, i, n);
	}
	free(in);
	pair_close(&p);
}

/* ---- peek ---- */

/* Looks at the next message of c, which is this one, as often as it likes. */
static void
look(struct weir_conn *c, uint32_t seed, size_t length)
{
	uint8_t first[100];
	size_t n;

	for (int i = 0; i < 3; i++) {
		size_t size = i * 40, most = size < length ? size : length;

		memset(first, 0xee, sizeof(first));
		n = 12345;
		assert_int_equal(weir_peek(c, i ? first : NULL, size, &n, 0), 0);
		assert_int_equal(n, length);
		check_message(first, seed, most);
		for (size_t k = most; k < sizeof(first); k++)
			assert_int_equal(first[k], 0xee);
	}
}

TEST(test_peek)
{
	for (unsigned way = 0; way < 2; way++) {
		struct pair p = pair_open(ways[way], &plane, false);
		uint8_t *in = malloc(400000);
		uint32_t random = 1;
		size_t n;

		for (uint32_t i = 0; i < 12 * SIZES; i++) {
			size_t length = sizes[i % SIZES];
			uint64_t consumed = p.d->consumed;
			struct weir_loan loan;
			int rc = -EAGAIN;

			assert_int_equal(weir_peek(p.d, in, 8, &n, 0), -EAGAIN);
			sendv(&p, p.c, i, length, &random);
			if (length <= 100000) /* else a rest of the first may be in its way */
				sendv(&p, p.c, i + 1, 30, &random);
			for (int k = 0; k < 10000 && rc == -EAGAIN; k++) {
				weir_flush(p.c, 0);
				plane_settle(p.f);
				rc = weir_peek(p.d, NULL, 0, &n, 0);
			}
			assert_int_equal(rc, 0);
			look(p.d, i, length);
			assert_int_equal(p.d->consumed, consumed);
			if (i % 4 == 0) {
				assert_int_equal(weir_recv_loan(p.d, &loan, 0), 0);
				assert_int_equal(loan.length, length);
				check_message(loan.data, i, length);
				weir_release(p.b, &loan);
			} else if (i % 4 == 1) {
				assert_int_equal(recvv(&p, p.d, in, length, &n, &random), 0);
				assert_int_equal(n, length);
				check_message(in, i, length);
			} else {
				if (length)
					assert_int_equal(weir_recv(p.d, in, length - 1, &n, 0),
							 -EMSGSIZE);
				assert_int_equal(weir_recv(p.d, in, length, &n, 0), 0);
				check_message(in, i, length);
			}
			if (length > 100000)
				continue;
			while (weir_peek(p.d, NULL, 0, &n, 0) == -EAGAIN)
				plane_settle(p.f);
			look(p.d, i + 1, 30);
			assert_int_equal(weir_recv(p.d, in, 30, &n, 0), 0);
		}
		free(in);
		pair_close(&p);
	}
}

/* Messages of one call, which lie together: each is looked at, and received in any way. */
TEST(test_batches)
{
	for (unsigned way = 0; way < 2; way++) {
		struct pair p = pair_open(ways[way], &plane, false);
		uint8_t in[100], out[40][100];
		struct iovec m[40];
		uint32_t random = 1;
		size_t n;

		for (uint32_t round = 0; round < 20; round++) {
			/* its sender may bundle from now on */
			m[0] = (struct iovec){in, sizeof(in)};
			assert_int_equal(weir_recv_many(p.d, m, 1, 0), -EAGAIN);
			for (uint32_t i = 0; i < 40; i++) {
				for (size_t k = 0; k < i; k++)
					out[i][k] = pattern(i, k);
				m[i] = (struct iovec){out[i], i};
			}
			for (int sent = 0; sent < 40;) {
				int rc = weir_send_many(p.c, m + sent, 40 - (unsigned)sent, 0);

				if (rc < 0)
					assert_int_equal(rc, -EAGAIN);
				sent += rc < 0 ? 0 : rc;
				plane_settle(p.f);
				weir_poll(p.a, NULL, 0);
			}
			for (uint32_t i = 0; i < 40; i++) {
				while (weir_peek(p.d, NULL, 0, &n, 0) == -EAGAIN)
					plane_settle(p.f);
				look(p.d, i, i);
				if (i % 2)
					assert_int_equal(weir_recv(p.d, in, sizeof(in), &n, 0), 0);
				else
					assert_int_equal(recvv(&p, p.d, in, i, &n, &random), 0);
				assert_int_equal(n, i);
				check_message(in, i, n);
			}
		}
		pair_close(&p);
	}
}

/* A message that was looked at keeps its part of the window. */
TEST(test_peek_keeps_window)
{
	for (unsigned way = 0; way < 2; way++) {
		struct pair p = pair_open(ways[way], &plane, false);
		uint8_t *m = make_message(1, 5000);
		uint32_t sent = 0;
		size_t n;

		for (int i = 0; i < 50; i++) {
			while (weir_send(p.c, m, 5000, 0) == 0)
				sent++;
			plane_settle(p.f);
			weir_peek(p.d, NULL, 0, &n, 0);
		}
		for (int i = 0; i < 50; i++) {
			plane_settle(p.f);
			assert_int_equal(weir_peek(p.d, NULL, 0, &n, 0), 0);
			assert_int_equal(weir_send(p.c, m, 5000, 0), -EAGAIN);
		}
		for (; sent; sent--)
			assert_int_equal(pair_recv(&p, p.d, m, 5000, &n), 0);
		assert_int_equal(weir_peek(p.d, NULL, 0, &n, 0), -EAGAIN);
		assert_int_equal(weir_send(p.c, m, 5000, 0), 0);
		free(m);
		pair_close(&p);
	}
}

/* Looking in vain makes the next message report itself. */
TEST(test_peek_events)
{
	for (unsigned way = 0; way < 2; way++) {
		struct pair p = pair_open(ways[way], &plane, false);
		struct weir_event e;
		char buf[8];
		size_t n;

		for (int i = 0; i < 3; i++) {
			assert_int_equal(weir_peek(p.d, buf, 8, &n, 0), -EAGAIN);
			assert_int_equal(weir_send(p.c, "one", 3, 0), 0);
			plane_settle(p.f);
			assert_int_equal(weir_poll(p.b, &e, 1), 1);
			assert_int_equal(e.type, WEIR_EVENT_READABLE);
			assert_int_equal(weir_peek(p.d, buf, 8, &n, 0), 0);
			assert_memory_equal(buf, "one", 3);
			assert_int_equal(weir_poll(p.b, &e, 1), 0);
			assert_int_equal(weir_recv(p.d, buf, 8, &n, 0), 0);
		}
		pair_close(&p);
	}
}

/* A message in posted memory is seen there, once it is whole. */
TEST(test_peek_posted)
{
	struct pair p = pair_open(PLANE_REMOTE, NULL, false);
	size_t bytes = 131072, n;
	uint8_t *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t *out = make_message(8, 100000);
	struct weir_placed placed;
	struct weir_region *r;
	int rc = -EAGAIN;

	assert_ptr_not_equal(m, MAP_FAILED);
	assert_int_equal(weir_adopt(p.b, m, bytes, WEIR_ADOPT_RECV, &r), 0);
	assert_int_equal(weir_recv_into(p.d, m, bytes, 77), 0);
	plane_settle(p.f);
	assert_int_equal(weir_send(p.c, out, 100000, 0), 0);
	for (int turns = 0; rc == -EAGAIN && turns < 100000; turns++) {
		plane_turn(p.f);
		weir_flush(p.c, 0);
		rc = weir_peek(p.d, NULL, 0, &n, 0);
	}
	assert_int_equal(rc, 0);
	check_message(m, 8, 100000); /* not before */
	look(p.d, 8, 100000);
	assert_int_equal(weir_recv_placed(p.d, &placed, 0), 0);
	assert_ptr_equal(placed.data, m);
	assert_int_equal(placed.length, 100000);
	assert_int_equal(placed.cookie, 77);
	check_message(m, 8, 100000);
	assert_int_equal(weir_disown(r), 0);
	munmap(m, bytes);
	free(out);
	pair_close(&p);
}

TEST(test_peek_waits)
{
	struct pair p = pair_open(PLANE_REMOTE, NULL, false);
	size_t n;

	plane_run(p.f);
	assert_int_equal(weir_peek(p.d, NULL, 0, &n, 5), -EAGAIN);
	assert_int_equal(weir_send(p.c, "x", 1, 0), 0);
	assert_int_equal(weir_peek(p.d, NULL, 0, &n, PATIENT), 0);
	assert_int_equal(n, 1);
	plane_stop(p.f);
	pair_close(&p);
}

/* A message that was looked at, and its connection, are closed: its memory is returned. */
TEST(test_close_after_peek)
{
	for (unsigned way = 0; way < 2; way++) {
		struct pair p = pair_open(ways[way], &plane, false);

		for (uint32_t i = 0; i < 40; i++) {
			struct weir_conn *c = pair_connect(&p, ways[way]), *d = pair_accept(&p);
			uint8_t *m = make_message(i, 30000);
			size_t n;

			assert_int_equal(weir_send(c, m, 30000, 0), 0);
			while (weir_peek(d, NULL, 0, &n, 0) == -EAGAIN)
				plane_settle(p.f);
			weir_close(d);
			weir_close(c);
			plane_settle(p.f);
			free(m);
		}
		pair_pass(&p, p.c, p.d, 1, 30000);
		pair_close(&p);
	}
}

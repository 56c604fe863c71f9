/* SPDX-License-Identifier: BSD-3-Clause */
/* Reservations: one per thread and connection, committed once, no longer than they are. */
#include "worlds/stream_pair.h"
#include "worlds/test.h"

#include <pthread.h>

static const char *const ways[] = {PLANE_LOCAL, PLANE_REMOTE};

/* A connection begins with a window for some messages. */
static const struct plane_options plane = {.first = 16384};

struct job {
	struct weir_conn *c;
	size_t length;
	void *buf;
	int rc;
};

static void *
reserve(void *arg)
{
	struct job *j = arg;

	j->rc = weir_send_reserve(j->c, j->length, 0, &j->buf);
	return NULL;
}

/* Another thread reserves. */
static struct job
elsewhere(struct weir_conn *c, size_t length)
{
	struct job j = {.c = c, .length = length};
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, reserve, &j), 0);
	pthread_join(t, NULL);
	return j;
}

static void
commit(struct pair *p, struct weir_conn *c, void *buf, uint32_t seed, size_t length)
{
	uint8_t *m = make_message(seed, length);
	uint8_t *in = malloc(length + 1);
	int rc = -EAGAIN;
	size_t n;

	memcpy(buf, m, length);
	for (int i = 0; i < 1000 && rc == -EAGAIN; i++) {
		rc = weir_send_commit(c, buf, length, 0, 0);
		if (rc != -EAGAIN)
			continue;
		plane_settle(p->f);
		/* the receiver reports what it has consumed when nothing comes */
		assert_int_equal(weir_recv(c == p->c ? p->d : p->c, in, 0, &n, 0), -EAGAIN);
	}
	assert_int_equal(rc, 0);
	assert_int_equal(pair_recv(p, c == p->c ? p->d : p->c, in, length, &n), 0);
	assert_int_equal(n, length);
	check_message(in, seed, length);
	free(m);
	free(in);
}

TEST(test_one_per_thread)
{
	static const size_t lengths[] = {0, 10, 948, 949, 5000, 16000, 100000};

	for (unsigned way = 0; way < 2; way++) {
		struct pair p = pair_open(ways[way], &plane, false);

		for (uint32_t i = 0; i < 7 * 3; i++) {
			size_t length = lengths[i % 7];
			struct job other;
			void *buf, *more;

			assert_int_equal(weir_send_reserve(p.c, length, 0, &buf), 0);
			assert_int_equal(weir_send_reserve(p.c, length, -1, &more), -EBUSY);
			assert_non_null(strstr(weir_reason(), "commit or abandon"));
			other = elsewhere(p.c, length);
			assert_int_equal(other.rc, 0);
			assert_ptr_not_equal(other.buf, buf);
			/* any thread commits */
			if (i % 2)
				commit(&p, p.c, other.buf, i, length);
			commit(&p, p.c, buf, i + 1, length);
			assert_int_equal(weir_send_commit(p.c, buf, length, 0, 0), -EINVAL);
			assert_int_equal(weir_send_reserve(p.c, length, 0, &buf), 0);
			weir_send_abandon(p.c, buf);
			weir_send_abandon(p.c, buf); /* again does nothing */
			if (!(i % 2)) {
				commit(&p, p.c, other.buf, i, length);
				weir_send_abandon(p.c, other.buf);
			}
		}
		pair_close(&p);
	}
}

/* To the byte. */
TEST(test_no_longer)
{
	static const size_t lengths[] = {0, 1, 63, 100, 948, 1000, 8191, 8192, 16000, 20000};

	for (unsigned way = 0; way < 2; way++) {
		struct pair p = pair_open(ways[way], &plane, false);

		for (uint32_t i = 0; i < 10; i++) {
			size_t length = lengths[i];
			void *buf;

			assert_int_equal(weir_send_reserve(p.c, length, 0, &buf), 0);
			assert_int_equal(weir_send_commit(p.c, buf, length + 1, 0, 0), -EINVAL);
			assert_int_equal(weir_send_commit(p.c, buf, SIZE_MAX, 0, 0), -EINVAL);
			assert_int_equal(weir_send_commit(p.c, buf, length + (1ull << 32), 0, 0),
					 -EINVAL);
			assert_int_equal(weir_send_commit(p.c, (char *)buf + 1, 0, 0, 0), -EINVAL);
			assert_int_equal(weir_send_commit(p.d, buf, 0, 0, 0), -EINVAL);
			/* it is the caller's still */
			commit(&p, p.c, buf, i, length);
		}
		pair_close(&p);
	}
}

/* Each connection has its own; closing one frees its memory. */
TEST(test_connections)
{
	for (unsigned way = 0; way < 2; way++) {
		struct pair p = pair_open(ways[way], &plane, false);
		struct weir_conn *c = pair_connect(&p, ways[way]), *d = pair_accept(&p);
		size_t most = p.a->geometry.send_blocks * (size_t)WEIR_BLOCK_SIZE / 3 * 2;
		struct job other;
		void *a, *b;

		assert_int_equal(weir_send_reserve(p.c, 2000, 0, &a), 0);
		assert_int_equal(weir_send_reserve(c, 2000, 0, &b), 0);
		assert_ptr_not_equal(a, b);
		assert_int_equal(weir_send_commit(c, a, 10, 0, 0), -EINVAL);
		weir_send_abandon(c, a); /* not its */
		commit(&p, p.c, a, 1, 2000);
		weir_send_abandon(c, b);
		/* more than half of the send memory, and then the same again */
		assert_int_equal(weir_send_reserve(c, most, 0, &b), 0);
		other = elsewhere(c, 10000);
		assert_int_equal(other.rc, 0);
		assert_int_equal(weir_send_reserve(p.c, most, 0, &a), -EAGAIN);
		weir_close(c);
		weir_close(d);
		plane_settle(p.f);
		assert_int_equal(weir_send_reserve(p.c, most, 0, &a), 0);
		weir_send_abandon(p.c, a);
		pair_close(&p);
	}
}

TEST(test_datagrams)
{
	for (unsigned way = 0; way < 2; way++) {
		struct weir_connect_options o = {.size = sizeof(o), .flags = WEIR_UD};
		struct pair p = pair_open(ways[way], &plane, false);
		struct weir_conn *c = pair_connect_with(&p, ways[way], &o), *d = pair_accept(&p);
		void *a, *b;
		char in[8];
		size_t n;

		assert_int_equal(weir_send_reserve(c, 100, 0, &a), 0);
		assert_int_equal(weir_send_reserve(c, 100, 0, &b), -EBUSY);
		assert_int_equal(weir_send_commit(c, a, 101, 0, 0), -EINVAL);
		memcpy(a, "datagram", 8);
		assert_int_equal(weir_send_commit(c, a, 8, 0, 0), 0);
		plane_settle(p.f);
		assert_int_equal(weir_recv(d, in, 8, &n, 0), 0);
		assert_memory_equal(in, "datagram", 8);
		weir_close(c);
		weir_close(d);
		pair_close(&p);
	}
}

/* A commit that finds no room keeps the reservation; a large one then goes out whole. */
TEST(test_full)
{
	for (unsigned way = 0; way < 2; way++) {
		struct pair p = pair_open(ways[way], &plane, false);
		uint8_t *m = make_message(3, 100000), *in = malloc(100000);
		uint32_t sent = 0;
		void *buf;
		size_t n;

		assert_int_equal(weir_send_reserve(p.c, 100000, 0, &buf), 0);
		memcpy(buf, m, 100000);
		while (weir_send(p.c, m, 40, 0) == 0)
			sent++;
		assert_int_equal(weir_send_commit(p.c, buf, 100000, 0, 0), -EAGAIN);
		while (sent--)
			assert_int_equal(pair_recv(&p, p.d, in, 100000, &n), 0);
		assert_int_equal(weir_send_commit(p.c, buf, 100000, 0, 0), 0);
		assert_int_equal(pair_recv(&p, p.d, in, 100000, &n), 0);
		check_message(in, 3, 100000);
		free(m);
		free(in);
		pair_close(&p);
	}
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* A program's own memory: adopted and given back, sent out of, received into; locally and not. */
#include "worlds/stream_pair.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (1u << 20)
#define HUGE_PAGE (2u << 20)
#define BOTH (WEIR_ADOPT_SEND | WEIR_ADOPT_RECV)

static const char *const ways[] = {PLANE_REMOTE, PLANE_LOCAL};

static uint8_t *
pages(void)
{
	uint8_t *m = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(m, MAP_FAILED);
	for (size_t i = 0; i < BYTES; i++)
		m[i] = pattern(99, i);
	return m;
}

static struct weir_region *
adopt(struct weir *w, void *m, size_t length, unsigned flags)
{
	struct weir_region *r = NULL;

	assert_int_equal(weir_adopt(w, m, length, flags, &r), 0);
	return r;
}

static void
test_contents(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, NULL, false);
	uint8_t *m = pages();
	struct weir_region *r = adopt(p.a, m + 8192, 65536, BOTH);

	assert_int_equal(plane_regions(p.f, p.a), 1);
	check_message(m, 99, BYTES);
	m[8192] ^= 1;
	m[8191] ^= 1; /* its neighbours are as they were */
	assert_int_equal(weir_disown(r), 0);
	assert_int_equal(plane_regions(p.f, p.a), 0);
	m[8192] ^= 1;
	m[8191] ^= 1;
	check_message(m, 99, BYTES);
	/* what is left is given back at detach */
	adopt(p.a, m, BYTES, BOTH);
	m[5] ^= 1;
	pair_close(&p);
	m[5] ^= 1;
	check_message(m, 99, BYTES);
	munmap(m, BYTES);
}

static void
test_refused(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, NULL, false);
	uint8_t *m = pages();
	struct weir_region *r, *more;

	assert_int_equal(weir_adopt(p.a, m, 4096, 0, &r), -EINVAL);
	assert_int_equal(weir_adopt(p.a, m, 4096, 8, &r), -EINVAL);
	assert_int_equal(weir_adopt(p.a, m, 0, BOTH, &r), -EINVAL);
	assert_int_equal(weir_adopt(p.a, m + 1, 4096, BOTH, &r), -EINVAL);
	assert_int_equal(weir_adopt(p.a, m, 4097, BOTH, &r), -EINVAL);
	assert_int_equal(weir_adopt(p.a, NULL, 4096, BOTH, &r), -EINVAL);
	assert_int_equal(weir_adopt(p.a, m, WEIR_REGION_BYTES_MAX, BOTH, &r), -EFAULT);
	assert_int_equal(munmap(m + 4096, 4096), 0);
	assert_int_equal(weir_adopt(p.a, m, 16384, BOTH, &r), -EFAULT);
	m[0] = 7; /* untouched */
	r = adopt(p.a, m + 16384, 16384, BOTH);
	assert_int_equal(weir_adopt(p.a, m + 16384, 4096, BOTH, &more), -EEXIST);
	assert_int_equal(weir_adopt(p.a, m + 12288, 8192, BOTH, &more), -EEXIST);
	assert_int_equal(weir_adopt(p.a, m + 28672, 8192, BOTH, &more), -EEXIST);
	adopt(p.a, m + 32768, 4096, BOTH);
	adopt(p.a, m + 8192, 8192, BOTH);
	assert_int_equal(weir_adopt(p.a, m + 65536, 4096, BOTH, &more), -EMFILE);
	assert_int_equal(weir_disown(r), 0);
	adopt(p.a, m + 65536, 4096, BOTH);
	pair_close(&p);
	munmap(m, BYTES);
}

/* In place if it lies there, was said to stay, and is large; as ever if not. */
static void
test_send(void **state)
{
	static const size_t lengths[] = {100, 8192, 8193, 300000};

	for (unsigned way = 0; way < 2; way++) {
		struct pair p = pair_open(ways[way], NULL, false);
		uint8_t *m = pages(), *in = malloc(BYTES);
		struct weir_region *r = adopt(p.a, m, BYTES, WEIR_ADOPT_SEND);
		uint32_t blocks = p.a->heap.blocks.free;
		struct weir_event e;
		size_t n;

		for (unsigned i = 0; i < 4; i++) {
			size_t length = lengths[i];
			bool in_place = way == 0 && length > WEIR_BLOCK_SIZE;

			assert_int_equal(weir_send_notify(p.c, m + 77, length,
							  WEIR_ZERO_COPY | WEIR_NOTIFY, 5, 0),
					 0);
			if (in_place) {
				assert_int_equal(p.a->heap.blocks.free, blocks);
				assert_int_equal(weir_disown(r), -EBUSY);
			}
			assert_int_equal(pair_recv(&p, p.d, in, BYTES, &n), 0);
			assert_int_equal(n, length);
			assert_memory_equal(in, m + 77, n);
			assert_int_equal(weir_flush(p.c, 1000), 0);
			while (weir_poll(p.a, &e, 1) == 1 && e.type != WEIR_EVENT_SENT)
				;
			assert_int_equal(e.type, WEIR_EVENT_SENT);
			assert_int_equal(e.cookie, 5);
			blocks = p.a->heap.blocks.free;
		}
		/* not adopted: copied */
		assert_int_equal(weir_send_notify(p.c, in, 20000, WEIR_ZERO_COPY, 0, 0), 0);
		assert_int_equal(pair_recv(&p, p.d, in + 20000, 20000, &n), 0);
		assert_int_equal(weir_send_notify(p.c, m, 10, 1u << 31, 0, 0), -EINVAL);
		assert_int_equal(weir_disown(r), 0);
		pair_close(&p);
		munmap(m, BYTES);
		free(in);
	}
}

/* More than the arena holds goes out of adopted memory. */
static void
test_send_beyond_the_arena(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, NULL, false);
	uint8_t *m = pages(), *in = malloc(BYTES);
	size_t n;

	assert_int_equal(weir_send_notify(p.c, m, 800000, WEIR_ZERO_COPY, 0, 0), -EMSGSIZE);
	adopt(p.a, m, BYTES, WEIR_ADOPT_SEND);
	assert_int_equal(weir_send_notify(p.c, m, 800000, WEIR_ZERO_COPY, 0, 0), 0);
	assert_int_equal(pair_recv(&p, p.d, in, BYTES, &n), 0);
	check_message(in, 99, n);
	pair_close(&p);
	munmap(m, BYTES);
	free(in);
}

/* Dies with the connection: nothing keeps the region. */
static void
test_ended(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, NULL, false);
	uint8_t *m = pages();
	struct weir_region *r = adopt(p.a, m, BYTES, BOTH);
	struct weir_placed placed;

	plane_hold(p.f, true);
	assert_int_equal(weir_send_notify(p.c, m, 100000, WEIR_ZERO_COPY, 0, 0), 0);
	assert_int_equal(weir_recv_into(p.c, m + 200000, 10000, 1), 0);
	assert_int_equal(weir_disown(r), -EBUSY);
	plane_hold(p.f, false);
	plane_die(p.f, p.b);
	plane_settle(p.f);
	assert_int_equal(weir_recv_placed(p.c, &placed, 0), -ECONNRESET);
	assert_int_equal(weir_recv_into(p.c, m, 10, 1), -ECONNRESET);
	assert_int_equal(weir_disown(r), -EBUSY); /* still posted */
	weir_close(p.c);
	p.c = NULL;
	assert_int_equal(weir_disown(r), 0);
	plane_settle(p.f);
	munmap(m, BYTES);
	weir_listener_close(p.l);
	weir_detach(p.a);
	weir_detach(p.b);
	plane_destroy(p.f);
}

static void
pass(struct pair *p, uint32_t seed, size_t length)
{
	uint8_t *m = make_message(seed, length);

	assert_int_equal(weir_send(p->c, m, length, 0), 0);
	free(m);
	for (int i = 0; i < 10; i++) {
		weir_flush(p->c, 0);
		plane_settle(p->f);
	}
}

/* Every size, in order, each in its memory with its cookie; then without, then again. */
static void
test_recv(void **state)
{
	const struct plane_options room = {.first = 65536};
	static const size_t lengths[] = {0, 48, 948, 949, 8192, 8193, 60000};

	for (unsigned way = 0; way < 2; way++) {
		struct pair p = pair_open(ways[way], &room, false);
		uint8_t *m = pages(), *in = malloc(BYTES);
		struct weir_placed placed;
		size_t n;

		adopt(p.b, m, BYTES, WEIR_ADOPT_RECV);
		for (unsigned round = 0; round < 40; round++) {
			for (unsigned i = 0; i < 7; i++)
				assert_int_equal(weir_recv_into(p.d, m + i * 65536 + round, 60000,
								round * 100 + i),
						 0);
			for (unsigned i = 0; i < 7; i++)
				pass(&p, i, lengths[i]);
			for (unsigned i = 0; i < 7; i++) {
				assert_int_equal(weir_recv_placed(p.d, &placed, 0), 0);
				assert_ptr_equal(placed.data, m + i * 65536 + round);
				assert_int_equal(placed.length, lengths[i]);
				assert_int_equal(placed.cookie, round * 100 + i);
				check_message(placed.data, i, placed.length);
			}
			assert_int_equal(weir_recv_placed(p.d, &placed, 0), -EINVAL);
			pass(&p, 50, 30000);
			assert_int_equal(weir_recv(p.d, in, BYTES, &n, 0), 0);
			check_message(in, 50, 30000);
		}
		pair_close(&p);
		munmap(m, BYTES);
		free(in);
	}
}

/* Memory that is too small, messages taken otherwise, messages taken in before. */
static void
test_recv_otherwise(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, NULL, false);
	uint8_t *m = pages(), *in = malloc(BYTES);
	struct weir_region *r = adopt(p.b, m, BYTES, WEIR_ADOPT_RECV);
	struct weir_placed placed;
	struct weir_loan loan;
	struct weir_event e;
	size_t n;

	assert_int_equal(weir_recv_into(p.d, m, 9000, 1), 0);
	assert_int_equal(weir_recv_into(p.d, m + 10000, 50000, 2), 0);
	assert_int_equal(weir_recv_into(p.d, m + 100000, 50000, 3), 0);
	assert_int_equal(weir_recv_into(p.d, m + 200000, 50000, 4), 0);
	for (unsigned i = 0; i < 4; i++)
		pass(&p, i, 20000 + i);
	while (weir_poll(p.b, &e, 1) > 0) /* takes them out of the ring */
		;
	assert_int_equal(weir_recv_placed(p.d, &placed, 0), -EMSGSIZE);
	assert_int_equal(placed.length, 20000);
	assert_null(placed.data);
	assert_int_equal(weir_recv(p.d, in, BYTES, &n, 0), 0);
	check_message(in, 0, 20000);
	assert_int_equal(weir_recv(p.d, in, BYTES, &n, 0), 0);
	check_message(in, 1, 20001);
	assert_int_equal(weir_recv_loan(p.d, &loan, 0), 0);
	assert_ptr_equal(loan.data, m + 100000);
	check_message(loan.data, 2, 20002);
	weir_release(p.b, &loan);
	assert_int_equal(weir_disown(r), -EBUSY);
	assert_int_equal(weir_recv_placed(p.d, &placed, 0), 0);
	assert_int_equal(placed.cookie, 4);
	check_message(m + 200000, 3, 20003);
	assert_int_equal(weir_disown(r), 0);
	check_message(m + 200000, 3, 20003);
	pair_close(&p);
	munmap(m, BYTES);
	free(in);
}

/* A peer that closes early: memory is posted for its messages until the last one is received. */
static void
test_posted_after_the_end(void **state)
{
	for (unsigned way = 0; way < 2; way++) {
		struct pair p = pair_open(ways[way], NULL, false);
		uint8_t *m = pages();
		struct weir_placed got;
		struct weir_event e;

		adopt(p.b, m, BYTES, BOTH);
		for (uint32_t i = 0; i < 3; i++)
			assert_int_equal(weir_send(p.c, &i, sizeof(i), 0), 0);
		weir_close(p.c);
		p.c = NULL;
		for (int i = 0; i < 50; i++) {
			weir_poll(p.a, &e, 1);
			plane_settle(p.f);
			weir_poll(p.b, &e, 1);
		}
		for (uint32_t i = 0; i < 3; i++) {
			assert_int_equal(weir_recv_into(p.d, m, 100, i), 0);
			assert_int_equal(weir_recv_placed(p.d, &got, 0), 0);
			assert_int_equal(got.length, sizeof(i));
			assert_memory_equal(got.data, &i, sizeof(i));
		}
		assert_int_equal(weir_recv_into(p.d, m, 100, 3), -ESHUTDOWN);
		pair_close(&p);
		munmap(m, BYTES);
	}
}

static void
test_posts_refused(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, NULL, false);
	uint8_t *m = pages();
	struct weir_region *r = adopt(p.b, m, 65536, WEIR_ADOPT_RECV);

	adopt(p.b, m + 65536, 65536, WEIR_ADOPT_SEND);
	assert_int_equal(weir_recv_into(p.d, m + 65535, 2, 0), -EINVAL);
	assert_int_equal(weir_recv_into(p.d, m + 70000, 2, 0), -EINVAL);
	assert_int_equal(weir_recv_into(p.d, m - 1, 2, 0), -EINVAL);
	assert_int_equal(weir_recv_into(p.d, m, SIZE_MAX, 0), -EINVAL);
	for (unsigned i = 0; i < 64; i++)
		assert_int_equal(weir_recv_into(p.d, m, 1000, i), 0);
	assert_int_equal(weir_recv_into(p.d, m, 1000, 64), -EAGAIN);
	assert_int_equal(weir_disown(r), -EBUSY);
	plane_settle(p.f);
	weir_close(p.d);
	p.d = NULL;
	assert_int_equal(weir_disown(r), 0);
	pair_close(&p);
	munmap(m, BYTES);
}

static void *
reader(void *arg)
{
	uint8_t **shared = arg;

	for (unsigned i = 0; i < 2000; i++) {
		size_t at = i * 4093 % BYTES;

		if (((_Atomic uint8_t *)*shared)[at] != pattern(99, at))
			return (void *)1;
	}
	return NULL;
}

/* Readers in other threads see the contents all the time. */
static void
test_readers(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, NULL, false);
	uint8_t *m = pages();
	void *wrong;

	for (unsigned i = 0; i < 20; i++) {
		struct weir_region *r;
		pthread_t t;

		assert_int_equal(pthread_create(&t, NULL, reader, &m), 0);
		r = adopt(p.a, m, BYTES, BOTH);
		assert_int_equal(weir_disown(r), 0);
		pthread_join(t, &wrong);
		assert_null(wrong);
	}
	pair_close(&p);
	munmap(m, BYTES);
}

/* A child has none of it, and gets -ENOTCONN. */
static void
test_fork(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, NULL, false);
	uint8_t *m = pages();
	struct weir_region *r = adopt(p.a, m, BYTES, BOTH), *other;
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(weir_disown(r) == -ENOTCONN && weir_adopt(p.a, m, 4096, BOTH, &other) &&
			      weir_recv_into(p.c, m, 1, 0) == -ENOTCONN &&
			      msync(m, BYTES, MS_ASYNC) && errno == ENOMEM
			  ? 0
			  : 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	check_message(m, 99, BYTES);
	pair_close(&p);
	munmap(m, BYTES);
}

/* `n` sends of the same buffer with WEIR_CACHED, each with other contents, which arrive. */
static void
send_cached(struct pair *p, uint8_t *m, size_t length, unsigned n)
{
	uint8_t *in = malloc(BYTES);
	size_t got;

	for (unsigned i = 0; i < n; i++) {
		for (size_t k = 0; k < length; k++)
			m[k] = pattern(i, k);
		assert_int_equal(weir_send_notify(p->c, m, length, WEIR_CACHED, 0, 0), 0);
		assert_int_equal(pair_recv(p, p->d, in, BYTES, &got), 0);
		assert_int_equal(got, length);
		check_message(in, i, length);
		assert_int_equal(weir_flush(p->c, 1000), 0);
	}
	free(in);
}

#define CACHED (256u << 10)
#define COPIES 32u /* adopting a buffer costs as much as this number of copies */

/* A buffer is adopted after COPIES sends; small buffers and parts of pages never are. */
static void
test_cache(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, NULL, false);
	uint8_t *m = pages();

	send_cached(&p, m, CACHED - 4096, COPIES + 2);
	send_cached(&p, m, CACHED + 1, COPIES + 2);
	send_cached(&p, m + 1, CACHED, COPIES + 2);
	assert_int_equal(plane_regions(p.f, p.a), 0);
	send_cached(&p, m, CACHED, COPIES - 1);
	assert_int_equal(plane_regions(p.f, p.a), 0);
	send_cached(&p, m, CACHED, 3);
	assert_int_equal(plane_regions(p.f, p.a), 1);
	assert_int_equal(weir_uncache(p.a, m + CACHED, 4096), 0); /* another range */
	assert_int_equal(plane_regions(p.f, p.a), 1);
	assert_int_equal(weir_uncache(p.a, m + CACHED - 1, 1), 0);
	assert_int_equal(plane_regions(p.f, p.a), 0);
	check_message(m, 2, CACHED);
	pair_close(&p);
	munmap(m, BYTES);
}

/* The fake has three regions: the range that was not sent for longest makes room. */
static void
test_cache_makes_room(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, NULL, false);
	uint8_t *m = pages(), *own = pages();
	struct weir_region *r = adopt(p.a, own, 4096, BOTH);

	send_cached(&p, m, CACHED, COPIES + 1);
	send_cached(&p, m + CACHED, CACHED, COPIES + 1);
	assert_int_equal(plane_regions(p.f, p.a), 3);
	send_cached(&p, m, CACHED, 1);
	send_cached(&p, m + 2 * CACHED, CACHED, COPIES + 1);
	assert_int_equal(plane_regions(p.f, p.a), 3);
	/* that one wasn't the first, nor what the program adopted itself */
	assert_int_equal(weir_uncache(p.a, m + CACHED, CACHED), 0);
	assert_int_equal(plane_regions(p.f, p.a), 3);
	assert_int_equal(weir_uncache(p.a, m, BYTES), 0);
	assert_int_equal(plane_regions(p.f, p.a), 1);
	/* more ranges than it keeps in mind */
	for (unsigned i = 0; i < 2 * COPIES; i++)
		send_cached(&p, m + i % 20 * 4096, CACHED, 1);
	assert_int_equal(plane_regions(p.f, p.a), 1);
	assert_int_equal(weir_disown(r), 0);
	pair_close(&p);
	munmap(m, BYTES);
	munmap(own, BYTES);
}

/* Unmapped and mapped anew without a word: what is sent is what lies there now. */
static void
test_cache_stale(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, NULL, false);
	uint8_t *m = pages();

	send_cached(&p, m, CACHED, COPIES + 1);
	assert_int_equal(plane_regions(p.f, p.a), 1);
	assert_ptr_equal(
	    mmap(m, CACHED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
	    m);
	send_cached(&p, m, CACHED, 1);
	assert_int_equal(plane_regions(p.f, p.a), 0);
	send_cached(&p, m, CACHED, COPIES);
	assert_int_equal(plane_regions(p.f, p.a), 1);
	munmap(m, BYTES);
	pair_close(&p);
}

/* ---- allocated regions ---- */

#define LARGE (96ull << 20)

static struct weir_region_info
info_of(const struct weir_region *r)
{
	struct weir_region_info info;

	memset(&info, 0xff, sizeof(info));
	weir_region_info(r, &info);
	return info;
}

/* Whether memory of a region is there: anything else of the process may be by now. */
static bool
is_mapped(const void *at)
{
	FILE *f = fopen("/proc/self/maps", "r");
	unsigned long from, to;
	char line[512];
	bool is = false;

	assert_non_null(f);
	while (!is && fgets(line, sizeof(line), f))
		is = sscanf(line, "%lx-%lx", &from, &to) == 2 && (uintptr_t)at >= from &&
		     (uintptr_t)at < to && strstr(line, "weir-region");
	fclose(f);
	return is;
}

/* Zeroed, of the pages that were asked for, the program's addresses again when it is freed. */
static void
test_allocate(void **state)
{
	static const struct weir_alloc_options options[] = {
	    {.numa_node = -1},
	    {.numa_node = 0, .flags = WEIR_ALLOC_ORDINARY},
	    {.numa_node = -1, .flags = WEIR_ALLOC_HUGE_1G},
	    {.numa_node = 700} /* a preference */};
	struct pair p = pair_open(PLANE_REMOTE, NULL, false);
	struct weir_region_info info;
	struct weir_region *r, *q;
	uint8_t *m;

	for (unsigned i = 0; i < 5; i++) {
		r = NULL;
		assert_int_equal(
		    weir_region_alloc(p.a, LARGE - 5000, i ? &options[i - 1] : NULL, &r), 0);
		info = info_of(r);
		m = info.base;
		assert_int_equal((uintptr_t)m % info.page, 0);
		assert_in_range(info.bytes, LARGE - 5000, LARGE);
		assert_int_equal(info.bytes % info.page, 0);
		assert_int_equal(info.flags, BOTH | WEIR_ADOPT_EXPOSE);
		assert_true(info.numa_node >= -1);
		if (i == 2)
			assert_int_equal(info.page, 4096);
		for (size_t k = 0; k < info.bytes; k += 4096)
			assert_int_equal(m[k], 0);
		memset(m + info.bytes - 4096, 7, 4096);
		assert_int_equal(weir_disown(r), -EINVAL);
		assert_non_null(strstr(weir_reason(), "weir_region_free()"));
		assert_int_equal(weir_region_alloc(p.a, 1, &options[1], &q), 0);
		assert_int_equal(info_of(q).bytes, 4096);
		assert_int_equal(plane_regions(p.f, p.a), 2);
		assert_int_equal(weir_region_free(q), 0);
		assert_int_equal(weir_region_free(r), 0);
		assert_false(is_mapped(m));
		assert_int_equal(plane_regions(p.f, p.a), 0);
	}
	/* what is left goes with the session */
	assert_int_equal(weir_region_alloc(p.a, 4096, NULL, &r), 0);
	m = info_of(r).base;
	pair_close(&p);
	assert_false(is_mapped(m));
}

/* At an address: there, or nowhere with EXACT; the program's memory is never replaced. */
static void
test_allocate_at(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, NULL, false);
	uint8_t *m = mmap(NULL, 16 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t *huge = m + HUGE_PAGE - (uintptr_t)m % HUGE_PAGE;
	struct weir_alloc_options o = {.numa_node = -1, .flags = WEIR_ALLOC_EXACT};
	struct weir_region *r;

	munmap(m, 16 << 20);
	o.address = huge;
	assert_int_equal(weir_region_alloc(p.a, 4 << 20, &o, &r), 0);
	assert_ptr_equal(info_of(r).base, huge);
	huge[(4 << 20) - 1] = 1;
	for (unsigned i = 0; i < 2; i++) {
		struct weir_region *q;

		o.address = huge + (i ? 0 : (4 << 20) - 4096);
		assert_int_equal(weir_region_alloc(p.a, 8192, &o, &q), -EEXIST);
		assert_int_equal(huge[(4 << 20) - 1], 1);
		o.flags = 0;
		assert_int_equal(weir_region_alloc(p.a, 8192, &o, &q), 0);
		assert_ptr_not_equal(info_of(q).base, o.address);
		o.flags = WEIR_ALLOC_EXACT;
		assert_int_equal(weir_region_free(q), 0);
	}
	assert_int_equal(weir_region_free(r), 0);
	assert_false(is_mapped(huge));
	/* an address that is in the middle of a larger page: of smaller ones */
	o.address = huge + 4096;
	assert_int_equal(weir_region_alloc(p.a, 4 << 20, &o, &r), 0);
	assert_ptr_equal(info_of(r).base, huge + 4096);
	assert_int_equal(info_of(r).page, 4096);
	assert_int_equal(weir_region_free(r), 0);
	assert_false(is_mapped(huge + 4096));
	pair_close(&p);
}

static void
test_allocate_refused(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, NULL, false);
	struct weir_alloc_options o = {.numa_node = -1};
	struct weir_region *r, *rest[3];

	assert_int_equal(weir_region_alloc(p.a, 0, NULL, &r), -EINVAL);
	assert_int_equal(weir_region_alloc(p.a, WEIR_REGION_BYTES_MAX + 1, NULL, &r), -EINVAL);
	assert_int_equal(weir_region_alloc(p.a, UINT64_MAX, NULL, &r), -EINVAL);
	o.flags = WEIR_ALLOC_HUGE_1G | WEIR_ALLOC_ORDINARY;
	assert_int_equal(weir_region_alloc(p.a, 4096, &o, &r), -EINVAL);
	o.flags = 0x8;
	assert_int_equal(weir_region_alloc(p.a, 4096, &o, &r), -EINVAL);
	o.flags = WEIR_ALLOC_EXACT;
	assert_int_equal(weir_region_alloc(p.a, 4096, &o, &r), -EINVAL);
	o.address = (void *)0x700000000800;
	assert_int_equal(weir_region_alloc(p.a, 4096, &o, &r), -EINVAL);
	o = (struct weir_alloc_options){.numa_node = -2};
	assert_int_equal(weir_region_alloc(p.a, 4096, &o, &r), -EINVAL);
	o.numa_node = 5000;
	assert_int_equal(weir_region_alloc(p.a, 4096, &o, &r), -EINVAL);
	/* beyond the session's memory, whatever its pages; then its regions */
	assert_int_equal(weir_region_alloc(p.a, (192 << 20) + 1, NULL, &r), -ENOSPC);
	assert_int_equal(weir_region_alloc(p.a, WEIR_REGION_BYTES_MAX - (1ull << 46), NULL, &r),
			 -ENOSPC);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(weir_region_alloc(p.a, 4096, NULL, &rest[i]), 0);
	assert_int_equal(weir_region_alloc(p.a, 4096, NULL, &r), -EMFILE);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(weir_region_free(rest[i]), 0);
	plane_die(p.f, p.a);
	plane_settle(p.f);
	pair_close(&p);
}

/* Sent from and received into, beyond 64 MiB of a region; busy meanwhile. */
static void
test_allocated_messages(void **state)
{
	const size_t at = 80 << 20, length = 200000;

	for (unsigned way = 0; way < 2; way++) {
		struct pair p = pair_open(ways[way], NULL, false);
		struct weir_region *from, *to;
		struct weir_placed placed;
		uint8_t *m, *in;

		assert_int_equal(weir_region_alloc(p.a, LARGE, NULL, &from), 0);
		assert_int_equal(weir_region_alloc(p.b, LARGE, NULL, &to), 0);
		m = (uint8_t *)info_of(from).base + at;
		in = (uint8_t *)info_of(to).base + at + 77;
		for (size_t i = 0; i < length; i++)
			m[i] = pattern(5, i);
		assert_int_equal(weir_recv_into(p.d, in, length, 3), 0);
		assert_int_equal(weir_region_free(to), -EBUSY);
		assert_int_equal(weir_send_notify(p.c, m, length, WEIR_ZERO_COPY, 0, 0), 0);
		if (way == 0)
			assert_int_equal(weir_region_free(from), -EBUSY);
		for (int i = 0; i < 20; i++) {
			weir_flush(p.c, 0);
			plane_settle(p.f);
		}
		assert_int_equal(weir_recv_placed(p.d, &placed, 0), 0);
		assert_ptr_equal(placed.data, in);
		assert_int_equal(placed.length, length);
		check_message(in, 5, length);
		assert_int_equal(weir_flush(p.c, 1000), 0);
		assert_int_equal(weir_region_free(from), 0);
		assert_int_equal(weir_region_free(to), 0);
		pair_close(&p);
	}
}

static uint8_t in_data[3 * 4096] = {1};

/* A page of a thread's stack, below the frames that are in use and among them. */
static void *
adopt_own_stack(void *arg)
{
	struct pair *p = arg;
	_Alignas(4096) uint8_t page[4096];
	struct weir_region *r;

	memset(page, 1, sizeof(page));
	if (weir_adopt(p->a, page, 4096, BOTH, &r) != -EINVAL ||
	    weir_adopt(p->a, page - 8 * 4096, 4096, BOTH, &r) != -EINVAL)
		return (void *)1;
	return strstr(weir_reason(), "weir_region_alloc()") ? NULL : (void *)2;
}

/* Only ordinary memory is adopted; the reason names what to do instead. */
static void
test_adopt_kinds(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, NULL, false);
	uint8_t on_stack[3 * 4096], *page = on_stack + 4096 - (uintptr_t)on_stack % 4096;
	uint8_t *shared =
	    mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint8_t *data = in_data + 4096 - (uintptr_t)in_data % 4096;
	struct weir_region *r;
	pthread_t t;
	void *wrong;

	memset(on_stack, 3, sizeof(on_stack));
	assert_int_equal(weir_adopt(p.a, page, 4096, BOTH, &r), -EINVAL);
	assert_non_null(strstr(weir_reason(), "weir_region_alloc()"));
	assert_int_equal(pthread_create(&t, NULL, adopt_own_stack, &p), 0);
	pthread_join(t, &wrong);
	assert_null(wrong);
	assert_int_equal(weir_adopt(p.a, shared, 8192, BOTH, &r), -EINVAL);
	assert_non_null(strstr(weir_reason(), "weir_region_alloc()"));
	assert_int_equal(weir_adopt(p.a, page + 1, 4096, BOTH, &r), -EINVAL);
	assert_non_null(strstr(weir_reason(), "weir_region_alloc()"));
	assert_int_equal(plane_regions(p.f, p.a), 0);
	data[17] = 9;
	r = adopt(p.a, data, 4096, WEIR_ADOPT_EXPOSE);
	assert_int_equal(data[17], 9);
	assert_int_equal(info_of(r).flags, WEIR_ADOPT_EXPOSE);
	assert_ptr_equal(info_of(r).base, data);
	assert_int_equal(weir_region_free(r), -EINVAL);
	assert_non_null(strstr(weir_reason(), "weir_disown()"));
	/* exposed alone, it is not sent from */
	assert_int_equal(weir_recv_into(p.c, data, 100, 0), -EINVAL);
	assert_int_equal(weir_disown(r), 0);
	assert_int_equal(data[17], 9);
	pair_close(&p);
	munmap(shared, 8192);
}

/* A child has nothing of an allocated region. */
static void
test_allocate_fork(void **state)
{
	struct pair p = pair_open(PLANE_REMOTE, NULL, false);
	struct weir_region *r, *other;
	int status;
	pid_t pid;

	assert_int_equal(weir_region_alloc(p.a, BYTES, NULL, &r), 0);
	pid = fork();
	if (pid == 0)
		_exit(weir_region_free(r) == -ENOTCONN && !is_mapped(info_of(r).base) &&
			      weir_region_alloc(p.a, 4096, NULL, &other) == -ENOTCONN
			  ? 0
			  : 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_int_equal(weir_region_free(r), 0);
	pair_close(&p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_contents),
	    cmocka_unit_test(test_refused),
	    cmocka_unit_test(test_send),
	    cmocka_unit_test(test_send_beyond_the_arena),
	    cmocka_unit_test(test_ended),
	    cmocka_unit_test(test_recv),
	    cmocka_unit_test(test_readers),
	    cmocka_unit_test(test_recv_otherwise),
	    cmocka_unit_test(test_fork),
	    cmocka_unit_test(test_posts_refused),
	    cmocka_unit_test(test_posted_after_the_end),
	    cmocka_unit_test(test_cache),
	    cmocka_unit_test(test_cache_makes_room),
	    cmocka_unit_test(test_cache_stale),
	    cmocka_unit_test(test_allocate),
	    cmocka_unit_test(test_allocate_at),
	    cmocka_unit_test(test_allocate_refused),
	    cmocka_unit_test(test_allocated_messages),
	    cmocka_unit_test(test_adopt_kinds),
	    cmocka_unit_test(test_allocate_fork),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

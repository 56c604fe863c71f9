/* SPDX-License-Identifier: BSD-3-Clause */
/* Holes in shared memory: repaired where we guard, fatal elsewhere. */
#define _GNU_SOURCE
#include "worlds/test.h"

#include "broker/memfd.h"
#include "broker/sigbus.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGES 8

/* A test on small pages and on huge ones. */
#define TEST_PAGES(name)                                                                           \
	static void name(int huge);                                                                \
	TEST(name##_small)                                                                         \
	{                                                                                          \
		name(0);                                                                           \
	}                                                                                          \
	TEST(name##_huge)                                                                          \
	{                                                                                          \
		name(1);                                                                           \
	}                                                                                          \
	static void name(int huge)

/* Shared memory that a program can spoil: without seals it may as well shrink it. */
struct victim {
	int fd, notify, guard;
	uint8_t *at;
	size_t page;
};

/* Faults that are none of ours end the process: not cmocka's handler, which is here first. */
static void
install(void)
{
	signal(SIGBUS, SIG_DFL);
	assert_int_equal(sigbus_install(), 0);
	assert_int_equal(sigbus_install(), 0);
}

static void
victim_open(struct victim *v)
{
	v->page = (size_t)sysconf(_SC_PAGESIZE);
	v->fd = memfd_create("weir-test", MFD_CLOEXEC);
	assert_int_equal(ftruncate(v->fd, (off_t)(PAGES * v->page)), 0);
	v->at = mmap(NULL, PAGES * v->page, PROT_READ | PROT_WRITE, MAP_SHARED, v->fd, 0);
	assert_ptr_not_equal(v->at, MAP_FAILED);
	memset(v->at, 0x55, PAGES * v->page);
	v->notify = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	install();
	v->guard = sigbus_guard_add(v->at, PAGES * v->page, v->page, v->notify);
	assert_true(v->guard >= 0);
}

static void
victim_close(struct victim *v)
{
	sigbus_guard_remove(v->guard);
	munmap(v->at, PAGES * v->page);
	close(v->fd);
	close(v->notify);
}

TEST(test_repair)
{
	struct victim v;
	uint64_t n;

	victim_open(&v);
	assert_false(sigbus_guard_hit(v.guard));
	assert_int_equal(ftruncate(v.fd, (off_t)(2 * v.page)), 0);
	assert_int_equal(v.at[0], 0x55);
	assert_false(sigbus_guard_hit(v.guard));
	assert_int_equal(v.at[3 * v.page + 17], 0); /* read */
	assert_true(sigbus_guard_hit(v.guard));
	v.at[5 * v.page + 4095] = 9; /* write */
	assert_int_equal(v.at[5 * v.page + 4095], 9);
	assert_int_equal(read(v.notify, &n, sizeof(n)), sizeof(n));
	assert_int_equal(n, 2); /* one a page, not one an access */
	assert_int_equal(v.at[v.page], 0x55);
	victim_close(&v);
}

/*
 * A hole in a sealed memfd: its pages come back as zeroes. Huge ones may be gone meanwhile: then
 * the whole huge page is repaired.
 */
TEST(test_hole_in_memfd)
{
	struct memfd m, thief = {.fd = -1, .base = MAP_FAILED};
	int guard;

	assert_int_equal(memfd_open("weir-test", 4 * MEMFD_HUGE_PAGE, 1, NULL, 0, &m), 0);
	assert_int_equal(m.bytes, 4 * MEMFD_HUGE_PAGE);
	assert_int_equal(fcntl(m.fd, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	assert_int_not_equal(ftruncate(m.fd, 4096), 0);
	install();
	guard = sigbus_guard_add(m.base, m.bytes, m.page, -1);
	memset(m.base, 1, m.bytes);
	assert_int_equal(fallocate(m.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				   MEMFD_HUGE_PAGE, 2 * MEMFD_HUGE_PAGE),
			 0);
	if (m.page == MEMFD_HUGE_PAGE)
		assert_int_equal(memfd_open("weir-thief", 2 * MEMFD_HUGE_PAGE, 1, NULL, 0, &thief),
				 0);
	for (size_t at = 0; at < m.bytes; at += 4096)
		((uint8_t *)m.base)[at]++;
	if (thief.page == MEMFD_HUGE_PAGE)
		print_message("huge pages: %s\n",
			      sigbus_guard_hit(guard) ? "repaired" : "refilled");
	memfd_close(&thief);
	assert_int_equal(((uint8_t *)m.base)[0], 2);
	assert_int_equal(((uint8_t *)m.base)[MEMFD_HUGE_PAGE], 1);
	sigbus_guard_remove(guard);
	memfd_close(&m);
}

/* Memory as sessions have it, watched, and the program's mapping of it. */
struct watched {
	struct memfd m;
	int guard, notify;
	size_t step; /* from one page to the next */
	_Atomic uint8_t *ours, *theirs;
};

/* On huge pages, if `huge` and there are some. */
static void
watched_open(struct watched *v, int huge)
{
	int rc = sigbus_watch();

	if (rc == -EPERM || rc == -ENOSYS || rc == -EINVAL) {
		print_message("no userfaultfd: %s\n", strerror(-rc));
		skip();
	}
	assert_int_equal(rc, 0);
	install();
	assert_int_equal(
	    memfd_open("weir-test", PAGES * (huge ? MEMFD_HUGE_PAGE : 4096), huge, NULL, 0, &v->m),
	    0);
	if (huge && v->m.page != MEMFD_HUGE_PAGE) {
		print_message("no huge pages\n");
		memfd_close(&v->m);
		assert_int_equal(
		    memfd_open("weir-test", PAGES * 4096, MEMFD_ORDINARY, NULL, 0, &v->m), 0);
	}
	v->step = v->m.bytes / PAGES;
	v->notify = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	v->guard = sigbus_guard_add(v->m.base, v->m.bytes, v->m.page, v->notify);
	assert_true(v->guard >= 0);
	v->ours = v->m.base;
	v->theirs = mmap(NULL, v->m.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, v->m.fd, 0);
	assert_ptr_not_equal(v->theirs, MAP_FAILED);
	for (size_t i = 0; i < PAGES; i++)
		v->theirs[i * v->step] = (uint8_t)(i + 1);
}

static void
watched_close(struct watched *v)
{
	munmap((void *)v->theirs, v->m.bytes);
	sigbus_guard_remove(v->guard);
	memfd_close(&v->m);
	close(v->notify);
	sigbus_unwatch();
}

static void
punch(struct watched *v, size_t page)
{
	assert_int_equal(fallocate(v->m.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				   (off_t)(page * v->step), (off_t)v->step),
			 0);
}

/* A hole that the kernel would fill again is noticed where it is touched first, and costs once. */
TEST_PAGES(test_hole_is_noticed)
{
	struct watched v;
	uint64_t n;

	watched_open(&v, huge);
	punch(&v, 3);
	assert_int_equal(v.ours[2 * v.step], 3);
	assert_false(sigbus_guard_hit(v.guard));
	assert_false(sigbus_guard_cut(v.guard));
	assert_int_equal(v.ours[3 * v.step], 0);
	assert_true(sigbus_guard_hit(v.guard));
	for (unsigned i = 0; i < 100; i++) { /* the page is ours now */
		v.theirs[3 * v.step] = 77;
		punch(&v, 3);
		v.ours[3 * v.step]++;
	}
	assert_int_equal(v.ours[3 * v.step], 100);
	assert_int_equal(read(v.notify, &n, sizeof(n)), sizeof(n));
	assert_int_equal(n, 1);
	watched_close(&v);
}

/* After the cut nothing that the program does is seen, nor costs anything. */
TEST_PAGES(test_cut)
{
	struct watched v;
	uint64_t n;

	watched_open(&v, huge);
	punch(&v, 0);
	v.ours[0] = 1;
	assert_true(sigbus_guard_cut(v.guard));
	assert_false(sigbus_guard_cut(v.guard));
	assert_false(sigbus_guard_cut(-1));
	assert_int_equal(read(v.notify, &n, sizeof(n)), sizeof(n));
	for (size_t i = 0; i < PAGES; i++) {
		v.theirs[i * v.step] = 9;
		assert_int_equal(v.ours[i * v.step], 0);
		punch(&v, i);
		v.ours[i * v.step] = 5;
		assert_int_equal(v.theirs[i * v.step], 0);
	}
	assert_false(sigbus_guard_hit(v.guard));
	assert_int_equal(read(v.notify, &n, sizeof(n)), -1);
	watched_close(&v);
}

/* Pages that the kernel unmaps under pressure come back as they were: no program did that. */
TEST_PAGES(test_unmapped_pages)
{
	struct watched v;

	watched_open(&v, huge);
	for (unsigned round = 0; round < 8; round++) {
		assert_int_equal(madvise(v.m.base, v.m.bytes, MADV_DONTNEED), 0);
		for (size_t i = 0; i < PAGES; i++)
			assert_int_equal(v.ours[i * v.step], i + 1);
	}
	assert_false(sigbus_guard_hit(v.guard));
	watched_close(&v);
}

/* The process's clock, for the guards' rate: it stands, and the test moves it. 0: the kernel's. */
static uint64_t clock_ns;

int
clock_gettime(clockid_t id, struct timespec *ts)
{
	if (!clock_ns)
		return (int)syscall(SYS_clock_gettime, id, ts);
	*ts = (struct timespec){(time_t)(clock_ns / 1000000000u), (long)(clock_ns % 1000000000u)};
	return 0;
}

/* Punches page after page and fills it again, up to `limit` times; returns how often until a hit.
 */
static unsigned
punch_and_touch(struct watched *v, unsigned limit, uint64_t pause_ns)
{
	unsigned n = 0;

	clock_ns = 1000000000u;
	while (!sigbus_guard_hit(v->guard) && n < limit) {
		punch(v, n % PAGES);
		v->theirs[n % PAGES * v->step] = (uint8_t)n;
		assert_int_equal(v->ours[n % PAGES * v->step], (uint8_t)n);
		clock_ns += pause_ns;
		n++;
	}
	clock_ns = 0;
	return n;
}

/* A hole that the program itself has filled before we look is none; at a rate it is one. */
TEST_PAGES(test_punched_and_touched)
{
	struct watched v;

	watched_open(&v, huge);
	assert_int_equal(punch_and_touch(&v, 1000, 250000), 1000);
	watched_close(&v);
	watched_open(&v, huge);
	assert_in_range(punch_and_touch(&v, 1000, 0), PAGES + 64, PAGES + 66);
	watched_close(&v);
}

static int
end_of_child(void (*act)(struct victim *v), struct victim *v)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		act(v);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? WTERMSIG(status) : -1;
}

static void
fault_elsewhere(struct victim *v)
{
	size_t bytes = PAGES * v->page;
	int fd = memfd_create("weir-other", MFD_CLOEXEC);
	uint8_t *at = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);

	_exit(at[0] & 1); /* beyond the end of the file */
}

static void
be_killed(struct victim *v)
{
	kill(getpid(), SIGBUS);
}

static void
fault_when_removed(struct victim *v)
{
	sigbus_guard_remove(v->guard);
	if (ftruncate(v->fd, 0))
		_exit(1);
	_exit(v->at[0] & 1);
}

TEST(test_default_elsewhere)
{
	struct victim v;

	victim_open(&v);
	assert_int_equal(end_of_child(fault_elsewhere, &v), SIGBUS);
	assert_int_equal(end_of_child(be_killed, &v), SIGBUS);
	assert_int_equal(end_of_child(fault_when_removed, &v), SIGBUS);
	assert_false(sigbus_guard_hit(v.guard));
	victim_close(&v);
}

static void *
touch_all(void *arg)
{
	struct victim *v = arg;

	for (size_t i = 0; i < PAGES; i++)
		v->at[i * v->page]++;
	return NULL;
}

/* Engines on several threads fall into the same hole. */
TEST(test_threads)
{
	struct victim v;
	pthread_t t[4];

	victim_open(&v);
	assert_int_equal(ftruncate(v.fd, 0), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&t[i], NULL, touch_all, &v), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	assert_true(sigbus_guard_hit(v.guard));
	victim_close(&v);
}

#define GUARDS 5000

/* Any number of guards, in any order of addresses: each fault finds its own. */
TEST(test_table)
{
	static int guard[GUARDS];
	static bool seen[GUARDS];
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *at = mmap(NULL, 2 * GUARDS * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct victim v;

	assert_ptr_not_equal(at, MAP_FAILED);
	/* in the middle of them all: a page that is in no file */
	v.fd = memfd_create("weir-test", MFD_CLOEXEC);
	v.at = at + GUARDS * page;
	assert_ptr_equal(mmap(v.at, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, v.fd, 0),
			 v.at);
	sigbus_unwatch();
	install();
	for (unsigned i = 0; i < GUARDS; i++) {
		unsigned place = i * 7 % GUARDS; /* every second page */

		guard[place] = sigbus_guard_add(at + 2 * place * page, page, page, -1);
		assert_in_range(guard[place], 0, GUARDS - 1);
		assert_false(seen[guard[place]]);
		seen[guard[place]] = true;
	}
	for (unsigned i = 0; i < GUARDS; i += 3) {
		sigbus_guard_remove(guard[i]);
		guard[i] = -1;
	}
	for (unsigned i = 0; i < GUARDS; i += 6) {
		guard[i] = sigbus_guard_add(at + 2 * i * page, page, page, -1);
		assert_in_range(guard[i], 0, GUARDS - 1);
	}
	assert_int_equal(v.at[5], 0);
	for (unsigned i = 0; i < GUARDS; i++) {
		assert_int_equal(sigbus_guard_hit(guard[i]), at + 2 * i * page == v.at);
		sigbus_guard_remove(guard[i]);
	}
	close(v.fd);
	munmap(at, 2 * GUARDS * page);
}

#define TOUCHED 64

static void *
come_and_go(void *arg)
{
	uint8_t *at = arg;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	for (unsigned i = 0; i < TOUCHED; i++)
		((_Atomic uint8_t *)at)[i * page]++;
	return NULL;
}

/* The table grows and shrinks while other threads are in the handler. */
TEST(test_table_while_it_is_searched)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *at =
	    mmap(NULL, (TOUCHED + GUARDS) * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = memfd_create("weir-test", MFD_CLOEXEC), guard, other[8];
	pthread_t t[3];

	assert_ptr_not_equal(at, MAP_FAILED);
	sigbus_unwatch();
	install();
	for (unsigned round = 0; round < 50; round++) {
		assert_ptr_equal(
		    mmap(at, TOUCHED * page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0),
		    at);
		guard = sigbus_guard_add(at, TOUCHED * page, page, -1);
		for (unsigned i = 0; i < 3; i++)
			assert_int_equal(pthread_create(&t[i], NULL, come_and_go, at), 0);
		for (unsigned k = 0; k < 20; k++) {
			for (unsigned i = 0; i < 8; i++)
				other[i] = sigbus_guard_add(
				    at + (TOUCHED + (round + i * 61) % GUARDS) * page, page, page,
				    -1);
			for (unsigned i = 0; i < 8; i++)
				sigbus_guard_remove(other[i]);
		}
		for (unsigned i = 0; i < 3; i++)
			pthread_join(t[i], NULL);
		assert_true(sigbus_guard_hit(guard));
		sigbus_guard_remove(guard);
	}
	munmap(at, (TOUCHED + GUARDS) * page);
	close(fd);
}

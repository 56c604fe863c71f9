/* SPDX-License-Identifier: BSD-3-Clause */
/* Captures: rings, the thread that empties them, the file; read back block by block. */
#define _GNU_SOURCE
#include "capture/capture.h"
#include "capture/pcapng.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define EPOCH 1700000000000000000ull

static _Atomic unsigned detached;
static char reason[256];

static int
start_thread(pthread_t *thread, void *(*run)(void *), void *arg)
{
	return pthread_create(thread, NULL, run, arg);
}

static void
detach(void *user)
{
	atomic_fetch_add(&detached, 1);
}

static struct capture_config
config_for(int fd, unsigned rings)
{
	return (struct capture_config){
	    .port = "net_test0",
	    .driver = "net_test",
	    .application = "test",
	    .mac = {2, 0, 10, 0, 0, 1},
	    .rings = rings,
	    .epoch = EPOCH,
	    .fd = fd,
	    .thread = start_thread,
	    .detach = detach,
	};
}

static int
new_file(void)
{
	int fd = memfd_create("capture", MFD_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

/* The capture closes its descriptor: we keep another. */
static struct capture *
begin(struct capture_config config)
{
	struct capture *c;

	config.fd = dup(config.fd);
	atomic_store(&detached, 0);
	assert_int_equal(capture_create(&config, &c, reason, sizeof(reason)), 0);
	return c;
}

/* A frame whose bytes follow from its number. */
static void
put(struct capture_ring *r, uint32_t number, uint32_t length, uint64_t time)
{
	uint8_t data[CAPTURE_SNAP];
	struct capture_frame frame = {.time = time,
				      .captured = length,
				      .original = length + number % 3,
				      .queue = (uint16_t)(number % 5),
				      .out = number % 2};

	for (uint32_t i = 0; i < length; i++)
		data[i] = (uint8_t)(number + i);
	if (length >= 4)
		memcpy(data, &number, 4);
	capture_put(r, &frame, data);
}

static struct capture_result
finish(struct capture *c)
{
	struct pollfd p = {.fd = capture_fd(c), .events = POLLIN};
	struct capture_result result;

	assert_int_equal(poll(&p, 1, 20000), 1);
	capture_result(c, &result);
	assert_int_equal(atomic_load(&detached), 1);
	capture_destroy(c);
	return result;
}

/* ---- a reader of pcapng that knows nothing of the writer ---- */

struct reader {
	const uint8_t *at, *end;
	uint32_t type, length; /* of the block */
	const uint8_t *body;
	uint32_t body_length;
};

static uint32_t
get32(const uint8_t *at)
{
	uint32_t v;

	memcpy(&v, at, sizeof(v));
	return v;
}

static bool
next_block(struct reader *r)
{
	if (r->at == r->end)
		return false;
	assert_true(r->end - r->at >= 12);
	r->type = get32(r->at);
	r->length = get32(r->at + 4);
	assert_int_equal(r->length % 4, 0);
	assert_true(r->length >= 12 && r->length <= (size_t)(r->end - r->at));
	assert_int_equal(get32(r->at + r->length - 4), r->length);
	r->body = r->at + 8;
	r->body_length = r->length - 12;
	r->at += r->length;
	return true;
}

/* The value of an option behind `from` bytes of the body, NULL: there is none. */
static const uint8_t *
find_option(const struct reader *r, uint32_t from, uint16_t code, uint16_t length)
{
	for (uint32_t at = from; at + 4 <= r->body_length;) {
		uint32_t head = get32(r->body + at);
		uint16_t c = (uint16_t)head, n = (uint16_t)(head >> 16);

		assert_true(at + 4 + n <= r->body_length);
		if (c == code && (!length || n == length))
			return r->body + at + 4;
		if (c == 0) {
			assert_int_equal(n, 0);
			assert_int_equal(at + 4, r->body_length);
			return NULL;
		}
		at += 4 + ((n + 3u) & ~3u);
	}
	fail_msg("options without an end");
	return NULL;
}

static uint64_t
time_at(const uint8_t *at)
{
	return (uint64_t)get32(at) << 32 | get32(at + 4);
}

static void *
map(int fd, size_t *size)
{
	struct stat st;
	void *p;

	fstat(fd, &st);
	*size = (size_t)st.st_size;
	p = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, fd, 0);
	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

static void
check_head(struct reader *r)
{
	assert_true(next_block(r));
	assert_int_equal(r->type, 0x0a0d0d0a);
	assert_int_equal(get32(r->body), 0x1a2b3c4d);
	assert_int_equal(get32(r->body + 4), 1);
	assert_int_equal(time_at(r->body + 8), UINT64_MAX);
	assert_memory_equal(find_option(r, 16, 4, 4), "test", 4);
	assert_true(next_block(r));
	assert_int_equal(r->type, 1);
	assert_int_equal(get32(r->body), 1); /* Ethernet */
	assert_int_equal(get32(r->body + 4), CAPTURE_SNAP);
	assert_memory_equal(find_option(r, 8, 2, 9), "net_test0", 9);
	assert_memory_equal(find_option(r, 8, 6, 6), "\2\0\n\0\0\1", 6);
	assert_int_equal(*find_option(r, 8, 9, 1), 9);
}

/* Frame `number` as put() made it. */
static void
check_frame(const struct reader *r, uint32_t number, uint32_t length, uint64_t time)
{
	const uint8_t *data = r->body + 20;

	assert_int_equal(r->type, 6);
	assert_int_equal(get32(r->body), 0);
	assert_int_equal(time_at(r->body + 4), EPOCH + time);
	assert_int_equal(get32(r->body + 12), length);
	assert_int_equal(get32(r->body + 16), length + number % 3);
	for (uint32_t i = 4; i < length; i++)
		assert_int_equal(data[i], (uint8_t)(number + i));
	length = 20 + ((length + 3) & ~3u);
	assert_int_equal(get32(find_option(r, length, 2, 4)), number % 2 ? 2 : 1);
	assert_int_equal(get32(find_option(r, length, 6, 4)), number % 5);
}

static void
check_end(struct reader *r, const struct capture_result *result)
{
	uint64_t received, dropped;

	assert_int_equal(r->type, 5);
	memcpy(&received, find_option(r, 12, 4, 8), 8);
	memcpy(&dropped, find_option(r, 12, 5, 8), 8);
	assert_int_equal(dropped, result->dropped);
	assert_int_equal(received, result->frames + result->dropped);
	assert_true(time_at(find_option(r, 12, 2, 8)) <= time_at(find_option(r, 12, 3, 8)));
	assert_false(next_block(r));
}

/* ---- tests ---- */

static void
test_lengths(void **state)
{
	int fd = new_file();
	struct capture *c = begin(config_for(fd, 1));
	struct capture_result result;
	struct reader r;
	uint32_t number = 0;
	size_t size;
	void *p;

	assert_int_equal(capture_start(c), 0);
	for (uint32_t length = 0; length < 200; length++, number++)
		put(capture_ring(c, 0), number, length, number);
	put(capture_ring(c, 0), number, CAPTURE_SNAP, number);
	capture_stop(c);
	result = finish(c);
	assert_int_equal(result.status, 0);
	assert_int_equal(result.frames, 201);
	assert_int_equal(result.dropped, 0);
	p = map(fd, &size);
	assert_int_equal(size, result.bytes);
	r = (struct reader){.at = p, .end = (uint8_t *)p + size};
	check_head(&r);
	for (uint32_t i = 0; i < 200; i++) {
		assert_true(next_block(&r));
		check_frame(&r, i, i, i);
	}
	assert_true(next_block(&r));
	check_frame(&r, 200, CAPTURE_SNAP, 200);
	assert_true(next_block(&r));
	check_end(&r, &result);
	munmap(p, size);
	close(fd);
}

/* Frames of several engines are in the order of their times. */
static void
test_order(void **state)
{
	int fd = new_file();
	struct capture *c = begin(config_for(fd, 3));
	struct capture_result result;
	struct reader r;
	size_t size;
	void *p;

	for (uint32_t ring = 0; ring < 3; ring++)
		for (uint32_t i = ring; i < 3000; i += 3)
			put(capture_ring(c, ring), i, 60, i);
	assert_int_equal(capture_start(c), 0);
	capture_stop(c);
	result = finish(c);
	assert_int_equal(result.frames, 3000);
	p = map(fd, &size);
	r = (struct reader){.at = p, .end = (uint8_t *)p + size};
	check_head(&r);
	for (uint32_t i = 0; i < 3000; i++) {
		assert_true(next_block(&r));
		check_frame(&r, i, 60, i);
	}
	munmap(p, size);
	close(fd);
}

static void
test_limit(void **state)
{
	int fd = new_file();
	struct capture_config config = config_for(fd, 2);
	struct capture_result result;
	struct capture *c;

	config.limit = 100;
	c = begin(config);
	for (uint32_t i = 0; i < 400; i++)
		put(capture_ring(c, i % 2), i, 100, i);
	assert_int_equal(capture_start(c), 0);
	result = finish(c); /* by itself */
	assert_int_equal(result.frames, 100);
	assert_int_equal(result.dropped, 0); /* what came later isn't missed */
	close(fd);
}

struct producer {
	struct capture_ring *ring;
	uint32_t frames;
};

static void *
produce(void *arg)
{
	struct producer *p = arg;

	for (uint32_t i = 0; i < p->frames; i++)
		put(p->ring, i, 60 + i % 1000, i);
	return NULL;
}

/* More than the writer can take: each frame is in the file, unchanged, or counted. */
static void
test_flood(void **state)
{
	int fd = new_file();
	struct capture *c = begin(config_for(fd, 2));
	struct producer producer[2] = {{capture_ring(c, 0), 60000}, {capture_ring(c, 1), 60000}};
	struct capture_result result;
	pthread_t thread[2];
	struct reader r;
	uint64_t frames = 0;
	size_t size;
	void *p;

	assert_int_equal(capture_start(c), 0);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, produce, &producer[i]), 0);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	capture_stop(c);
	result = finish(c);
	assert_int_equal(result.status, 0);
	assert_int_equal(result.frames + result.dropped, 120000);
	p = map(fd, &size);
	r = (struct reader){.at = p, .end = (uint8_t *)p + size};
	check_head(&r);
	while (next_block(&r) && r.type == 6) {
		uint32_t number = get32(r.body + 20);

		check_frame(&r, number, 60 + number % 1000, number);
		frames++;
	}
	assert_int_equal(frames, result.frames);
	check_end(&r, &result);
	munmap(p, size);
	close(fd);
}

/* A ring that is full drops, and says how many. */
static void
test_drops(void **state)
{
	int fd = new_file();
	struct capture *c = begin(config_for(fd, 1));
	struct capture_result result;

	for (uint32_t i = 0; i < 10000; i++)
		put(capture_ring(c, 0), i, 1000, i);
	assert_int_equal(capture_start(c), 0);
	capture_stop(c);
	result = finish(c);
	assert_int_equal(result.frames, CAPTURE_RING_BYTES / (1000 + sizeof(struct capture_frame)));
	assert_int_equal(result.frames + result.dropped, 10000);
	close(fd);
}

/* The file may not grow further: it ends with a whole block, and what isn't in it is counted. */
static void
test_no_room(void **state)
{
	char path[] = "/tmp/weir-capture-XXXXXX";
	int fd = mkstemp(path);
	struct rlimit limit = {300000, RLIM_INFINITY}, old;
	struct capture *c = begin(config_for(fd, 1));
	struct capture_result result;
	struct reader r;
	uint64_t frames = 0;
	size_t size;
	void *p;

	unlink(path);
	for (uint32_t i = 0; i < 3000; i++)
		put(capture_ring(c, 0), i, 1000, i);
	getrlimit(RLIMIT_FSIZE, &old);
	setrlimit(RLIMIT_FSIZE, &limit);
	assert_int_equal(capture_start(c), 0);
	result = finish(c); /* SIGXFSZ does not end the process */
	setrlimit(RLIMIT_FSIZE, &old);
	assert_int_equal(result.status, -EFBIG);
	p = map(fd, &size);
	assert_int_equal(size, result.bytes);
	r = (struct reader){.at = p, .end = (uint8_t *)p + size};
	check_head(&r);
	for (; next_block(&r); frames++)
		assert_int_equal(r.type, 6);
	assert_int_equal(frames, result.frames);
	assert_true(result.dropped > 0);
	munmap(p, size);
	close(fd);
}

/* A pipe whose reader stands still costs a second at the end; one that has none is an error. */
static void
test_pipe(void **state)
{
	int fds[2];
	struct capture_result result;
	struct capture *c;

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	c = begin(config_for(fds[1], 1));
	for (uint32_t i = 0; i < 1000; i++)
		put(capture_ring(c, 0), i, 1000, i);
	assert_int_equal(capture_start(c), 0);
	usleep(20000);
	capture_stop(c);
	result = finish(c);
	assert_int_equal(result.status, -ETIMEDOUT);
	assert_int_equal(result.dropped, 1000);
	c = begin(config_for(fds[1], 1));
	close(fds[0]);
	assert_int_equal(capture_start(c), 0);
	result = finish(c); /* SIGPIPE does not end the process */
	assert_int_equal(result.status, -EPIPE);
	close(fds[1]);
}

/* An old file's contents go; a file that is appended to keeps them. */
static void
test_old_contents(void **state)
{
	char path[] = "/tmp/weir-capture-XXXXXX", old[100000] = "old";
	int fd = mkstemp(path), append = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
	struct capture_result result;
	struct capture *c;
	struct stat st;

	assert_int_equal(pwrite(fd, old, sizeof(old), 0), sizeof(old));
	c = begin(config_for(fd, 1));
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, sizeof(old)); /* not before it begins */
	assert_int_equal(capture_start(c), 0);
	capture_stop(c);
	result = finish(c);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, result.bytes);
	c = begin(config_for(append, 1));
	assert_int_equal(capture_start(c), 0);
	capture_stop(c);
	finish(c);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, 2 * result.bytes);
	unlink(path);
	close(append);
	close(fd);
}

static void
test_refused(void **state)
{
	struct capture_config config = config_for(-1, 1);
	struct capture *c;

	assert_int_equal(capture_create(&config, &c, reason, sizeof(reason)), -EINVAL);
	config.fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	assert_int_equal(capture_create(&config, &c, reason, sizeof(reason)), -EINVAL);
	assert_non_null(strstr(reason, "; "));
	close(config.fd);
	config.fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	assert_int_equal(capture_create(&config, &c, reason, sizeof(reason)), -EINVAL);
	close(config.fd);
	/* never started: nothing to wait for */
	config.fd = new_file();
	assert_int_equal(capture_create(&config, &c, reason, sizeof(reason)), 0);
	capture_destroy(c);
	assert_int_equal(fcntl(config.fd, F_GETFD), FD_CLOEXEC);
	close(config.fd);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_lengths), cmocka_unit_test(test_order),
	    cmocka_unit_test(test_limit),   cmocka_unit_test(test_flood),
	    cmocka_unit_test(test_drops),   cmocka_unit_test(test_no_room),
	    cmocka_unit_test(test_pipe),    cmocka_unit_test(test_old_contents),
	    cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

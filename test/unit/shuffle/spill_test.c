/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Files of a shuffle: what is written is read, from all sizes and many threads; full, broken,
 * short, read-only and missing disks; file systems without holes, direct writes or unnamed files;
 * the bound; the end with writes in the queue; forked children. Calls that have to fail are the
 * test's.
 */
#define _GNU_SOURCE
#include "worlds/test.h"

#include "weir/weir.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

static ssize_t write_at(int fd, const void *from, size_t n, off_t offset);
static ssize_t read_at(int fd, void *to, size_t n, off_t offset);
static int allocate(int fd, int mode, off_t offset, off_t length);
static int open_at(const char *path, int flags, ...);
static void *allocated(size_t n);

#define pwrite write_at
#define pread read_at
#define fallocate allocate
#define open open_at
#define malloc allocated
#include "shuffle/spill.c"
#undef pwrite
#undef pread
#undef fallocate
#undef open
#undef malloc

static struct {
	_Atomic int full_fd, broken_fd; /* writes there find no space, or fail; -1: none */
	_Atomic bool all_full, no_holes, no_direct, no_unnamed, short_writes, broken_reads;
	_Atomic bool hold; /* writes wait for `go` */
	sem_t go;
	_Atomic unsigned direct, cached; /* writes */
	_Atomic unsigned direct_reads, refused;
	_Atomic bool full_until_hole; /* at the first byte of the file */
	_Atomic bool no_memory;
	_Atomic size_t largest;
} disk;

static ssize_t
write_at(int fd, const void *from, size_t n, off_t offset)
{
	bool direct = fcntl(fd, F_GETFL) & O_DIRECT;

	if (disk.hold)
		sem_wait(&disk.go);
	if (disk.all_full || disk.full_until_hole || fd == disk.full_fd || fd == disk.broken_fd) {
		errno = fd == disk.broken_fd ? EIO : ENOSPC;
		disk.refused++;
		return -1;
	}
	if (direct && disk.no_direct) {
		errno = EINVAL;
		return -1;
	}
	direct ? disk.direct++ : disk.cached++;
	if (n > disk.largest)
		disk.largest = n;
	if (disk.short_writes && n > 4096)
		n = direct ? n / 2 / 512 * 512 + 4096 : n / 2 + 1;
	return pwrite(fd, from, n, offset);
}

static ssize_t
read_at(int fd, void *to, size_t n, off_t offset)
{
	if (disk.broken_reads) {
		errno = EIO;
		return -1;
	}
	if (fcntl(fd, F_GETFL) & O_DIRECT) {
		if (disk.no_direct) {
			errno = EINVAL;
			return -1;
		}
		disk.direct_reads++;
		return pread(fd, to, disk.short_writes ? n / 2 / 512 * 512 + 512 : n, offset);
	}
	return pread(fd, to, disk.short_writes ? n / 2 + 1 : n, offset);
}

static int
allocate(int fd, int mode, off_t offset, off_t length)
{
	if (disk.no_holes) {
		errno = EOPNOTSUPP;
		return -1;
	}
	if (!offset)
		disk.full_until_hole = false;
	return fallocate(fd, mode, offset, length);
}

static void *
allocated(size_t n)
{
	return disk.no_memory ? NULL : malloc(n);
}

static int
open_at(const char *path, int flags, ...)
{
	if (disk.no_unnamed && (flags & O_TMPFILE) == O_TMPFILE) {
		errno = EOPNOTSUPP;
		return -1;
	}
	return open(path, flags, 0600);
}

static uint64_t seed;

static uint32_t
draw(void)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(seed >> 33);
}

static char first[] = "/tmp/weir-spill-1-XXXXXX", second[] = "/tmp/weir-spill-2-XXXXXX";
static const char *both[] = {first, second, NULL}, *one[] = {first, NULL};

static int
setup(void **state)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	seed = (uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec << 30;
	printf("seed %llu\n", (unsigned long long)seed);
	memset(&disk, 0, sizeof(disk));
	disk.full_fd = disk.broken_fd = -1;
	sem_init(&disk.go, 0, 0);
	memcpy(first + sizeof(first) - 7, "XXXXXX", 6);
	memcpy(second + sizeof(second) - 7, "XXXXXX", 6);
	return !mkdtemp(first) || !mkdtemp(second);
}

/* Nothing was left in the directories. */
static int
teardown(void **state)
{
	sem_destroy(&disk.go);
	return rmdir(first) || rmdir(second);
}

static struct spill *
opened(const char *const *directories, uint64_t max, size_t memory)
{
	struct spill *s = NULL;
	int rc = spill_open(directories, max, memory, &s);

	if (rc)
		fail_msg("%d: %s", rc, weir_reason());
	return s;
}

/* Data in several parts, some of which are empty. */
struct sample {
	struct spill_ticket t;
	struct iovec parts[5];
	uint8_t *data;
	size_t n;
};

static void
fill(struct sample *a, size_t n)
{
	size_t from = 0;

	memset(a, 0, sizeof(*a));
	a->data = malloc(n);
	a->n = n;
	for (size_t i = 0; i < n; i++)
		a->data[i] = (uint8_t)(i < 64 || i % 97 == 0 ? draw() : i);
	for (unsigned i = 0; i < 5; i++) {
		size_t k = i == 4 ? n - from : draw() % 4 ? draw() % (n - from + 1) : 0;

		a->parts[i] = (struct iovec){a->data + from, k};
		from += k;
	}
	a->t.iov = a->parts;
	a->t.parts = 5;
}

/* Reads all, and any part, into memory that is aligned and that is not. */
static void
assert_stored(struct spill *s, const struct sample *a)
{
	size_t aligned = draw() % (a->n / SPILL_ALIGN + 1) * SPILL_ALIGN;
	uint8_t *memory = aligned_alloc(SPILL_ALIGN, space_of(a->n) + SPILL_ALIGN);

	assert_int_equal(a->t.extent.bytes, a->n);
	for (unsigned i = 0; i < 4; i++) {
		uint8_t *back = i % 2 ? memory : memory + 1 + draw() % 100;
		size_t offset = i < 2 ? 0 : i == 2 ? draw() % a->n : aligned;
		size_t n = i < 2 ? a->n : draw() % (a->n - offset + 1);

		back[n] = 0xa5;
		assert_int_equal(spill_read(s, &a->t.extent, offset, back, n), 0);
		assert_memory_equal(back, a->data + offset, n);
		assert_int_equal(back[n], 0xa5);
	}
	free(memory);
}

static void
write_one(struct spill *s, struct sample *a, size_t n, int expected)
{
	fill(a, n);
	assert_int_equal(spill_write(s, &a->t), 0);
	assert_int_equal(spill_wait(s, &a->t, -1), expected);
}

static void
drop(struct spill *s, struct sample *a)
{
	if (s)
		spill_free_extent(s, &a->t.extent);
	free(a->data);
	a->data = NULL;
}

/* Waits until the space of all freed extents is free. */
static void
settle(struct spill *s)
{
	unsigned left;

	do {
		usleep(100);
		pthread_mutex_lock(&s->lock);
		left = s->dead_count;
		pthread_mutex_unlock(&s->lock);
	} while (left);
}

static uint64_t
blocks_on_disk(struct spill *s)
{
	uint64_t blocks = 0;
	struct stat st;

	settle(s);
	for (unsigned i = 0; i < s->files; i++) {
		assert_int_equal(fstat(s->file[i].fd, &st), 0);
		blocks += (uint64_t)st.st_blocks;
	}
	return blocks;
}

#define SAMPLES 11u

static void
all_sizes(const char *const *directories)
{
	static const size_t sizes[SAMPLES] = {1,      4095,   4096,   4097,	      65536,  70000,
					      262143, 262144, 262145, (1u << 20) + 1, 1500000};
	struct spill *s = opened(directories, 64 << 20, 512 << 10);
	struct sample a[3][SAMPLES];
	uint64_t used = 0;

	for (unsigned k = 0; k < 3; k++)
		for (unsigned i = 0; i < SAMPLES; i++) {
			fill(&a[k][i], sizes[i]);
			used += space_of(sizes[i]);
			assert_int_equal(spill_write(s, &a[k][i].t), 0);
		}
	for (unsigned k = 0; k < 3; k++)
		for (unsigned i = 0; i < SAMPLES; i++) {
			assert_int_equal(spill_wait(s, &a[k][i].t, -1), 0);
			assert_int_equal(spill_wait(s, &a[k][i].t, 0), 0);
		}
	assert_int_equal(spill_used(s), used);
	/* an extent that is freed takes nothing of its neighbours */
	for (unsigned k = 0; k < 3; k++)
		for (unsigned i = 0; i < SAMPLES; i++) {
			assert_stored(s, &a[k][i]);
			if ((i + k) % 2)
				drop(s, &a[k][i]);
		}
	for (unsigned k = 0; k < 3; k++)
		for (unsigned i = 0; i < SAMPLES; i++)
			if (a[k][i].data) {
				assert_stored(s, &a[k][i]);
				drop(s, &a[k][i]);
			}
	assert_true(blocks_on_disk(s) <= 8 * s->files);
	assert_int_equal(spill_used(s), 0);
	spill_close(s);
}

#define SPILL_TEST(name) TEST_IN(setup, teardown, name)

SPILL_TEST(sizes)
{
	all_sizes(one);
	/* writes of a queue are gathered */
	assert_true(disk.largest > 256 << 10 && disk.largest <= 512 << 10);
	all_sizes(both);
	assert_true(disk.largest <= 512 << 10);
	disk.short_writes = true;
	all_sizes(both);
}

SPILL_TEST(without_direct_writes)
{
	struct spill *s = opened(one, 1 << 20, 1 << 20);
	bool direct = s->file[0].direct >= 0;

	spill_close(s);
	disk.direct = disk.cached = disk.direct_reads = 0;
	all_sizes(both);
	assert_true(!disk.direct_reads == !direct);
	assert_true(direct ? disk.direct && !disk.cached : disk.cached && !disk.direct);
	/* one that says that it takes them, but does not */
	disk.no_direct = true;
	disk.direct = disk.direct_reads = 0;
	all_sizes(both);
	assert_true(!disk.direct && !disk.direct_reads && disk.cached);
	disk.short_writes = true;
	all_sizes(one);
}

SPILL_TEST(without_unnamed_files)
{
	disk.no_unnamed = true;
	all_sizes(both);
}

SPILL_TEST(without_holes)
{
	struct spill *s = opened(one, 1 << 20, 256 << 10);
	struct sample a, b;

	disk.no_holes = true;
	write_one(s, &a, 500000, 0);
	write_one(s, &b, 500000, 0);
	drop(s, &a);
	settle(s);
	/* the space is not free */
	assert_int_equal(spill_used(s), 2 * space_of(500000));
	fill(&a, 100000);
	assert_int_equal(spill_write(s, &a.t), -ENOSPC);
	free(a.data);
	assert_stored(s, &b);
	drop(s, &b);
	assert_int_equal(blocks_on_disk(s), 0);
	assert_int_equal(spill_used(s), 0);
	write_one(s, &a, 1000000, 0);
	assert_stored(s, &a);
	drop(s, &a);
	spill_close(s);
	all_sizes(both);
}

SPILL_TEST(bound)
{
	struct spill *s = opened(both, 100 << 10, 512 << 10);
	struct sample a, b;

	write_one(s, &a, 50 << 10, 0);
	fill(&b, (50 << 10) + 1);
	assert_int_equal(spill_write(s, &b.t), -ENOSPC);
	assert_string_equal(weir_reason(),
			    "the 102400 bytes for spilling are used up; raise spill_max");
	free(b.data);
	fill(&b, 101 << 10);
	assert_int_equal(spill_write(s, &b.t), -ENOSPC);
	free(b.data);
	write_one(s, &b, 48 << 10, 0);
	drop(s, &a);
	write_one(s, &a, 52 << 10, 0);
	drop(s, &a);
	drop(s, &b);
	spill_close(s);
}

static struct {
	sem_t called;
	struct spill *s;
	pthread_t thread;
	sigset_t blocked;
	int rc;
	bool free_extent;
} callback;

static void
on_done(struct spill_ticket *t)
{
	struct sample *a = (struct sample *)(void *)t;

	callback.thread = pthread_self();
	pthread_sigmask(SIG_BLOCK, NULL, &callback.blocked);
	callback.rc = spill_wait(callback.s, t, 0);
	if (callback.free_extent && !callback.rc)
		spill_free_extent(callback.s, &t->extent);
	free(a->data);
	free(a); /* the ticket with it */
	if (disk.hold)
		sem_post(&disk.go);
	sem_post(&callback.called);
}

static void
queue_with_callback(struct spill *s)
{
	struct sample *a = malloc(sizeof(*a));

	fill(a, 100000);
	a->t.done = on_done;
	callback.s = s;
	assert_int_equal(spill_write(s, &a->t), 0);
}

SPILL_TEST(callbacks)
{
	struct spill *s = opened(one, 1 << 20, 256 << 10);

	sem_init(&callback.called, 0, 0);
	callback.free_extent = true;
	for (unsigned i = 0; i < 20; i++) {
		queue_with_callback(s);
		sem_wait(&callback.called);
		assert_int_equal(callback.rc, 0);
		assert_int_equal(spill_used(s), 0);
	}
	assert_false(pthread_equal(callback.thread, pthread_self()));
	for (int signal = 1; signal < 32; signal++)
		assert_true(signal == SIGKILL || signal == SIGSTOP ||
			    sigismember(&callback.blocked, signal));
	spill_close(s);
	sem_destroy(&callback.called);
}

/* Waits until a writer has taken what is queued. */
static void
until_taken(struct spill *s)
{
	bool taken;

	do {
		usleep(100);
		pthread_mutex_lock(&s->lock);
		taken = !s->queue;
		pthread_mutex_unlock(&s->lock);
	} while (!taken);
}

/* Writes that wait are cancelled; the one that runs ends. */
SPILL_TEST(close_with_queue)
{
	struct spill *s = opened(one, 1 << 20, 256 << 10);
	struct sample a, b;

	sem_init(&callback.called, 0, 0);
	disk.hold = true;
	fill(&a, 100);
	assert_int_equal(spill_write(s, &a.t), 0);
	until_taken(s);
	assert_int_equal(spill_wait(s, &a.t, 1), -EAGAIN);
	fill(&b, 100);
	assert_int_equal(spill_write(s, &b.t), 0);
	queue_with_callback(s); /* lets the first one go */
	assert_int_equal(spill_wait(s, &b.t, 0), -EAGAIN);
	spill_close(s);
	assert_int_equal(callback.rc, -ECANCELED);
	assert_string_equal(weir_reason(), "the shuffle was ended");
	assert_true(a.t.finished && !a.t.rc && b.t.finished && b.t.rc == -ECANCELED);
	free(a.data);
	free(b.data);
	sem_destroy(&callback.called);
}

static int real_stderr = -1;
static FILE *caught;

static void
catch_stderr(void)
{
	fflush(stderr);
	caught = tmpfile();
	real_stderr = dup(2);
	dup2(fileno(caught), 2);
}

static void
assert_one_warning(const char *directory)
{
	char text[1024] = "", want[256];

	fflush(stderr);
	dup2(real_stderr, 2);
	close(real_stderr);
	rewind(caught);
	text[fread(text, 1, sizeof(text) - 1, caught)] = 0;
	fclose(caught);
	snprintf(want, sizeof(want),
		 "libweir-shuffle: no space left in %s; free some, or give another directory to "
		 "spill to\n",
		 directory);
	assert_string_equal(text, want);
}

static int
fd_of(const struct spill *s, unsigned file)
{
	return s->file[file].direct >= 0 ? s->file[file].direct : s->file[file].fd;
}

SPILL_TEST(full)
{
	struct spill *s = opened(both, 64 << 20, 512 << 10);
	struct sample a[8], b;

	catch_stderr();
	disk.full_fd = fd_of(s, 0);
	for (unsigned i = 0; i < 8; i++) {
		write_one(s, &a[i], 700000, 0); /* several buffers */
		assert_int_equal(a[i].t.extent.file, 1);
	}
	/* it is not tried again as long as another one has space */
	assert_int_equal(disk.refused, 1);
	assert_int_equal(spill_used(s), 8 * space_of(700000));
	assert_int_equal(s->file[0].live, 0);
	/* a directory that is full is tried when all are */
	disk.all_full = true;
	write_one(s, &b, 5000, -ENOSPC);
	assert_non_null(strstr(weir_reason(), "cannot spill to /tmp/weir-spill-"));
	assert_non_null(strstr(weir_reason(), "free space there or name another directory"));
	free(b.data);
	disk.all_full = false;
	disk.full_fd = fd_of(s, 1);
	write_one(s, &b, 5000, 0);
	assert_int_equal(b.t.extent.file, 0);
	assert_one_warning(first);
	for (unsigned i = 0; i < 8; i++) {
		assert_stored(s, &a[i]);
		drop(s, &a[i]);
	}
	drop(s, &b);
	assert_int_equal(spill_used(s), 0);
	settle(s);
	assert_false(s->file[0].full || s->file[1].full);
	spill_close(s);
}

/* A write that finds no space has that of freed extents freed first. */
SPILL_TEST(full_of_freed_extents)
{
	struct spill *s = opened(one, 64 << 20, 256 << 10);
	struct sample a, b;

	write_one(s, &a, 100000, 0);
	assert_int_equal(a.t.extent.offset, 0);
	disk.hold = true;
	fill(&b, 100000);
	assert_int_equal(spill_write(s, &b.t), 0);
	until_taken(s);
	drop(s, &a); /* the only writer cannot free it now */
	catch_stderr();
	disk.full_until_hole = true;
	disk.hold = false;
	sem_post(&disk.go);
	assert_int_equal(spill_wait(s, &b.t, -1), 0);
	assert_one_warning(first);
	assert_stored(s, &b);
	drop(s, &b);
	spill_close(s);
}

/* Without memory to tell a writer of an extent, the caller frees its space. */
SPILL_TEST(freed_by_the_caller)
{
	struct spill *s = opened(both, 64 << 20, 512 << 10);
	struct sample a, b;

	write_one(s, &a, 100000, 0);
	write_one(s, &b, 100000, 0);
	disk.no_memory = true;
	drop(s, &a);
	assert_int_equal(s->dead_count, 0);
	assert_stored(s, &b);
	drop(s, &b);
	assert_int_equal(s->file[0].live + s->file[1].live + s->used, 0);
	disk.no_memory = false;
	spill_close(s);
}

SPILL_TEST(broken)
{
	struct spill *s = opened(both, 64 << 20, 512 << 10);
	char want[256];
	struct sample a, b;
	unsigned failed = 0;
	uint8_t to;

	write_one(s, &a, 100000, 0);
	disk.broken_fd = fd_of(s, !a.t.extent.file);
	snprintf(want, sizeof(want), "cannot spill to %s: Input/output error; check its disk",
		 both[!a.t.extent.file]);
	for (unsigned i = 0; i < 4; i++) {
		fill(&b, 100000);
		assert_int_equal(spill_write(s, &b.t), 0);
		if (spill_wait(s, &b.t, -1)) {
			assert_int_equal(spill_wait(s, &b.t, 0), -EIO);
			assert_string_equal(weir_reason(), want);
			failed++;
			free(b.data);
		} else {
			drop(s, &b);
		}
	}
	assert_true(failed > 0);
	assert_stored(s, &a);
	disk.broken_reads = true;
	assert_int_equal(spill_read(s, &a.t.extent, 9, &to, 1), -EIO);
	snprintf(want, sizeof(want),
		 "cannot read what was spilled to %s: Input/output error; check its disk",
		 both[a.t.extent.file]);
	assert_string_equal(weir_reason(), want);
	disk.broken_reads = false;
	/* its end is gone */
	assert_int_equal(ftruncate(s->file[a.t.extent.file].fd, 50000), 0);
	assert_int_equal(spill_read(s, &a.t.extent, 49999, &to, 1), 0);
	assert_int_equal(spill_read(s, &a.t.extent, 50000, &to, 1), -EIO);
	snprintf(want, sizeof(want),
		 "cannot read what was spilled to %s: the file was cut; check its disk",
		 both[a.t.extent.file]);
	assert_string_equal(weir_reason(), want);
	drop(s, &a);
	assert_int_equal(spill_used(s), 0);
	spill_close(s);
}

static void
refused(const char *const *directories, size_t memory, int expected, const char *why)
{
	struct spill *s = NULL;

	assert_int_equal(spill_open(directories, 1 << 20, memory, &s), expected);
	if (!strstr(weir_reason(), why))
		fail_msg("expected '%s', got '%s'", why, weir_reason());
	assert_null(s);
}

SPILL_TEST(refusals)
{
	const char *none[] = {NULL}, *missing[] = {first, "/tmp/weir-not-there", NULL},
		   *no_directory[] = {first, "/proc/self/maps", NULL}, *many[18] = {NULL};

	refused(none, 1 << 20, -EINVAL, "expected 1 ... 16");
	for (unsigned i = 0; i < 17; i++)
		many[i] = first;
	refused(many, 1 << 20, -EINVAL, "expected 1 ... 16");
	many[16] = NULL;
	spill_close(opened(many, 1 << 20, 1 << 20));
	refused(missing, 1 << 20, -EINVAL,
		"invalid directory /tmp/weir-not-there to spill to (expected one that exists)");
	refused(no_directory, 1 << 20, -EINVAL, "invalid directory /proc/self/maps");
	refused(both, SPILL_BUFFER_LEAST - 1, -ENOMEM, "expected 262144 at least");
	disk.all_full = true;
	refused(both, 1 << 20, -ENOSPC, first);
	disk.all_full = false;
	spill_close(NULL);
}

/* The memory decides on threads and buffers. */
SPILL_TEST(memory)
{
	static const struct {
		size_t memory;
		unsigned writers;
		size_t room;
	} rows[] = {
	    {262144, 1, 262144}, {524287, 1, 520192}, {524288, 2, 262144}, {1 << 30, 2, 4 << 20}};

	for (unsigned i = 0; i < 4; i++) {
		struct spill *s = opened(both, 1 << 20, rows[i].memory);

		assert_int_equal(s->writers, rows[i].writers);
		assert_int_equal(s->room, rows[i].room);
		spill_close(s);
	}
}

SPILL_TEST(forked_child)
{
	struct spill *s = opened(both, 1 << 20, 512 << 10);
	struct sample a, b;
	uint8_t to;
	int status;
	pid_t child;

	write_one(s, &a, 1000, 0);
	fill(&b, 100);
	child = fork();
	if (!child) {
		bool ok = spill_write(s, &b.t) == -ENOTCONN &&
			  spill_wait(s, &a.t, 0) == -ENOTCONN &&
			  spill_read(s, &a.t.extent, 0, &to, 1) == -ENOTCONN && !spill_used(s);

		spill_free_extent(s, &a.t.extent);
		spill_close(s);
		_exit(!ok);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_stored(s, &a);
	drop(s, &a);
	free(b.data);
	write_one(s, &a, 1000, 0);
	drop(s, &a);
	spill_close(s);
}

static void *
work(void *spill)
{
	struct spill *s = spill;
	uint8_t *back = malloc(200000);

	for (unsigned i = 0; i < 30; i++) {
		struct sample a[4] = {{.n = 0}};

		for (unsigned k = 0; k < 4; k++) {
			a[k].n = 1 + (i * 7919 + k * 50021) % 200000;
			a[k].data = malloc(a[k].n);
			memset(a[k].data, (int)(i + k), a[k].n);
			a[k].parts[0] = (struct iovec){a[k].data, a[k].n};
			a[k].t.iov = a[k].parts;
			a[k].t.parts = 1;
			assert_int_equal(spill_write(s, &a[k].t), 0);
		}
		for (unsigned k = 0; k < 4; k++) {
			assert_int_equal(spill_wait(s, &a[k].t, -1), 0);
			assert_int_equal(spill_read(s, &a[k].t.extent, 0, back, a[k].n), 0);
			assert_memory_equal(back, a[k].data, a[k].n);
			drop(s, &a[k]);
		}
	}
	free(back);
	return NULL;
}

SPILL_TEST(threads)
{
	struct spill *s = opened(both, 64 << 20, 512 << 10);
	pthread_t threads[4];

	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, work, s), 0);
	for (unsigned i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(spill_used(s), 0);
	spill_close(s);
}

/* A file system of 1 MiB that this test alone sees. */
SPILL_TEST(small_disk)
{
	struct spill *s;
	struct sample a[4], b;

	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", first, "tmpfs", 0, "size=1m")) {
		print_message("not allowed to mount a tmpfs: %s\n", strerror(errno));
		skip();
	}
	s = opened(both, 64 << 20, 512 << 10);
	catch_stderr();
	for (unsigned i = 0; i < 4; i++)
		write_one(s, &a[i], 400000, 0);
	for (unsigned i = 0; i < 4; i++)
		assert_stored(s, &a[i]);
	/* 2 MiB fit into the other one alone */
	write_one(s, &b, 2 << 20, 0);
	assert_int_equal(b.t.extent.file, 1);
	assert_stored(s, &b);
	drop(s, &b);
	write_one(s, &b, 2 << 20, 0);
	drop(s, &b);
	for (unsigned i = 0; i < 4; i++)
		drop(s, &a[i]);
	spill_close(s);
	/* alone it says that it is full, and what is freed can be used again */
	s = opened(one, 64 << 20, 256 << 10);
	write_one(s, &a[0], 600000, 0);
	write_one(s, &b, 600000, -ENOSPC);
	free(b.data);
	assert_stored(s, &a[0]);
	drop(s, &a[0]);
	for (unsigned i = 0; i < 10; i++) {
		write_one(s, &b, 900000, 0);
		assert_stored(s, &b);
		drop(s, &b);
	}
	/* others have filled it */
	write_one(s, &a[0], 1 << 20, 0);
	refused(one, 1 << 20, -ENOSPC, "No space left on device; free space there");
	drop(s, &a[0]);
	spill_close(s);
	fflush(stderr);
	dup2(real_stderr, 2);
	close(real_stderr);
	fclose(caught);
	assert_int_equal(mount(NULL, first, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
	refused(one, 1 << 20, -EACCES, "Read-only file system; allow this user to write there");
	assert_int_equal(umount(first), 0);
}

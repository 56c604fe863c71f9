/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "spill.h"

#include "ipc/invariant.h"
#include "weir/weir.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define DEAD_MOST 4096u /* freed extents that wait for a writer, in 48 bytes each */

struct file {
	char *directory;
	int fd;			/* by way of the page cache */
	int direct;		/* around it, where all is aligned; -1: not on this file system */
	_Atomic bool no_direct; /* it refused that after all. All threads write and read */
	/* under the lock */
	bool full; /* its last write found no space, and no extent was freed since */
	unsigned writers;
	uint64_t tail; /* where the next write goes */
	uint64_t live; /* bytes of extents and current writes */
	uint64_t lost; /* bytes that were freed, but still take space */
};

/* An extent that was freed, whose space the disk still holds. */
struct dead {
	struct dead *next;
	struct file *f;
	uint64_t offset, space;
};

struct writer {
	struct spill *s;
	pthread_t thread;
	uint8_t *buffer;
};

/* Constant after spill_open(), unless noted. */
struct spill {
	pid_t pid;
	uint64_t max;
	size_t room; /* bytes of each buffer */
	unsigned files, writers;
	struct file file[SPILL_DIRECTORIES_MAX];
	struct writer writer[SPILL_WRITERS_MAX];
	_Atomic bool warned; /* writers write and read */
	pthread_mutex_t lock;
	/* under the lock */
	pthread_cond_t work, done;
	struct spill_ticket *queue, **queue_end;
	struct dead *dead;
	unsigned dead_count; /* with those that threads are punching */
	uint64_t used;
	bool closing;
};

static bool
means_full(int rc)
{
	return rc == -ENOSPC || rc == -EDQUOT || rc == -EFBIG;
}

static uint64_t
space_of(uint64_t bytes)
{
	return (bytes + SPILL_ALIGN - 1) & ~(uint64_t)(SPILL_ALIGN - 1);
}

static uint64_t
bytes_of(const struct spill_ticket *t)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < t->parts; i++)
		bytes += t->iov[i].iov_len;
	return bytes;
}

/* 0 or -ENOTCONN: a lock may be held by a thread that the child does not have. */
static int
in_parent(const struct spill *s)
{
	return s->pid == getpid() ? 0
				  : weir_fail(-ENOTCONN, "this process was forked from the one "
							 "whose files these are");
}

/* ---- one file ---- */

static bool
takes_direct(const struct file *f)
{
	return f->direct >= 0 && !atomic_load_explicit(&f->no_direct, memory_order_relaxed);
}

static int
write_through_cache(struct file *f, const uint8_t *from, size_t n, uint64_t offset)
{
	const unsigned all =
	    SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
	uint64_t begin = offset, length = n;

	while (n) {
		ssize_t k = pwrite(f->fd, from, n, (off_t)offset);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return k ? -errno : -ENOSPC;
		from += k;
		n -= (size_t)k;
		offset += (uint64_t)k;
	}
	/* the cache is not the program's memory to fill, and errors of the disk show here */
	if (sync_file_range(f->fd, (off_t)begin, (off_t)length, all) &&
	    (errno == EIO || errno == ENOSPC || errno == EDQUOT))
		return -errno;
	posix_fadvise(f->fd, (off_t)begin, (off_t)length, POSIX_FADV_DONTNEED);
	return 0;
}

/* Writes a multiple of SPILL_ALIGN from an aligned buffer. 0 or -errno. */
static int
write_aligned(struct file *f, const uint8_t *from, size_t n, uint64_t offset)
{
	while (n) {
		ssize_t k;

		if (!takes_direct(f))
			return write_through_cache(f, from, n, offset);
		k = pwrite(f->direct, from, n, (off_t)offset);
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0 && errno == EINVAL) {
			atomic_store_explicit(&f->no_direct, true, memory_order_relaxed);
			continue;
		}
		if (k < 0)
			return -errno;
		k -= k % SPILL_ALIGN; /* the next write has to be aligned */
		if (!k)
			return -ENOSPC;
		from += k;
		n -= (size_t)k;
		offset += (uint64_t)k;
	}
	return 0;
}

/* As pread(); what is not aligned, and the end of an extent, go by way of the page cache. */
static ssize_t
read_some(struct file *f, void *to, size_t n, uint64_t offset)
{
	ssize_t k;

	if (takes_direct(f) && n >= SPILL_ALIGN && !((uintptr_t)to % SPILL_ALIGN) &&
	    !(offset % SPILL_ALIGN)) {
		k = pread(f->direct, to, n - n % SPILL_ALIGN, (off_t)offset);
		if (k >= 0 || errno != EINVAL)
			return k;
		atomic_store_explicit(&f->no_direct, true, memory_order_relaxed);
	}
	return pread(f->fd, to, n, (off_t)offset);
}

/* True: the space is free; false: the file system cannot free parts of a file. */
static bool
punch(struct file *f, uint64_t offset, uint64_t space)
{
	int rc;

	do
		rc = fallocate(f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
			       (off_t)space);
	while (rc && errno == EINTR);
	return !rc;
}

static int
open_unnamed(const char *directory)
{
	char path[4096];
	int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR))
		return fd;
	if ((size_t)snprintf(path, sizeof(path), "%s/weir-spill-XXXXXX", directory) >=
	    sizeof(path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	fd = mkostemp(path, O_CLOEXEC);
	if (fd >= 0)
		unlink(path);
	return fd;
}

/* A descriptor for calls around the page cache, or -1. */
static int
open_direct(int fd)
{
	char path[32];

#ifdef STATX_DIOALIGN /* otherwise the trial tells */
	struct statx x;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &x) || !(x.stx_mask & STATX_DIOALIGN) ||
	    !x.stx_dio_offset_align || x.stx_dio_offset_align > SPILL_ALIGN ||
	    x.stx_dio_mem_align > SPILL_ALIGN)
		return -1;
#endif
	/* another open file of the same inode, for what is not aligned goes by the first one */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
}

static int
file_failed(const struct file *f, int rc, const char *what)
{
	switch (rc) {
	case -ENOENT:
	case -ENOTDIR:
	case -EINVAL:
		return weir_fail(-EINVAL,
				 "invalid directory %s to spill to (expected one that "
				 "exists)",
				 f->directory);
	case -EACCES:
	case -EPERM:
	case -EROFS:
		return weir_fail(-EACCES, "cannot spill to %s: %s; allow this user to write there",
				 f->directory, strerror(-rc));
	case -ENOSPC:
	case -EDQUOT:
	case -EFBIG:
		return weir_fail(-ENOSPC,
				 "cannot spill to %s: %s; free space there or name "
				 "another directory",
				 f->directory, strerror(-rc));
	case -ECANCELED:
		return weir_fail(rc, "the shuffle was ended");
	default:
		return weir_fail(rc, "cannot %s %s: %s; check its disk", what, f->directory,
				 strerror(-rc));
	}
}

static int
file_open(struct file *f, const char *directory, const uint8_t *buffer)
{
	int rc;

	f->fd = f->direct = -1;
	f->directory = strdup(directory);
	if (!f->directory)
		return weir_fail(-ENOMEM, "no memory for the name of a directory");
	f->fd = open_unnamed(directory);
	if (f->fd < 0)
		return file_failed(f, -errno, "create a file in");
	f->direct = open_direct(f->fd);
	rc = write_aligned(f, buffer, SPILL_ALIGN, 0);
	if (!rc && ftruncate(f->fd, 0))
		rc = -errno;
	return rc ? file_failed(f, rc, "spill to") : 0;
}

static void
file_close(struct file *f)
{
	if (f->fd >= 0)
		close(f->fd);
	if (f->direct >= 0)
		close(f->direct);
	free(f->directory);
}

/* ---- writers ---- */

/* The next bytes of a list of tickets, each of which is padded to SPILL_ALIGN. */
struct cursor {
	const struct spill_ticket *t;
	unsigned part;
	size_t at; /* of the part */
};

/* Copies at most `room` bytes, a multiple of SPILL_ALIGN. Returns their number. */
static size_t
gather(struct cursor *c, uint8_t *to, size_t room)
{
	size_t n = 0, k;

	while (c->t && n < room) {
		const struct iovec *v = &c->t->iov[c->part];

		if (c->part == c->t->parts) {
			k = (size_t)space_of(n) - n;
			memset(to + n, 0, k);
			*c = (struct cursor){.t = c->t->next};
		} else {
			k = v->iov_len - c->at < room - n ? v->iov_len - c->at : room - n;
			if (k)
				memcpy(to + n, (const uint8_t *)v->iov_base + c->at, k);
			c->at += k;
			if (c->at == v->iov_len) {
				c->part++;
				c->at = 0;
			}
		}
		n += k;
	}
	return n;
}

static int
write_tickets(struct file *f, const struct writer *w, const struct spill_ticket *tickets,
	      uint64_t offset)
{
	struct cursor c = {.t = tickets};
	size_t n;
	int rc = 0;

	while (!rc && (n = gather(&c, w->buffer, w->s->room))) {
		rc = write_aligned(f, w->buffer, n, offset);
		offset += n;
	}
	return rc;
}

/* Holds the lock. `space` bytes of a file no longer belong to an extent or a write. */
static void
release(struct spill *s, struct file *f, uint64_t space, bool punched)
{
	weir_assert(f->live >= space);
	f->live -= space;
	if (!punched) {
		f->lost += space;
		s->used += space;
	}
	if (f->live)
		return;
	if (f->lost && !ftruncate(f->fd, 0)) {
		s->used -= f->lost;
		f->lost = 0;
	}
	if (!f->lost)
		f->tail = 0;
}

/* Holds the lock, but while it waits for the disk. The extent is one of dead_count. */
static void
bury(struct spill *s, struct file *f, uint64_t offset, uint64_t space)
{
	bool punched;

	pthread_mutex_unlock(&s->lock);
	punched = punch(f, offset, space);
	pthread_mutex_lock(&s->lock);
	release(s, f, space, punched);
	f->full = false;
	s->dead_count--;
	pthread_cond_broadcast(&s->done);
}

/* As bury(), of the extent that was freed last. */
static void
bury_one(struct spill *s)
{
	struct dead *d = s->dead;

	s->dead = d->next;
	bury(s, d->f, d->offset, d->space);
	free(d);
}

/* Holds the lock. The best file that is not in the set `tried`, or NULL. */
static struct file *
choose(struct spill *s, uint32_t tried)
{
	struct file *best = NULL;

	for (unsigned i = 0; i < s->files; i++) {
		struct file *f = &s->file[i];

		if (tried >> i & 1)
			continue;
		if (!best || f->full < best->full ||
		    (f->full == best->full &&
		     (f->writers < best->writers ||
		      (f->writers == best->writers && f->live < best->live))))
			best = f;
	}
	return best;
}

/* Holds the lock, but while it writes. Writes to the first file with space; sets extents. */
static int
write_somewhere(struct spill *s, const struct writer *w, struct spill_ticket *tickets,
		uint64_t space, uint32_t *file)
{
	uint32_t tried = 0;
	int rc = -ENOSPC;
	struct file *f;

	while (means_full(rc) && (f = choose(s, tried))) {
		uint64_t offset = f->tail;
		bool punched = true;

		*file = (uint32_t)(f - s->file);
		tried |= 1u << *file;
		f->tail += space;
		f->live += space;
		f->writers++;
		pthread_mutex_unlock(&s->lock);
		rc = write_tickets(f, w, tickets, offset);
		if (rc)
			punched = punch(f, offset, space);
		if (means_full(rc) && !atomic_exchange(&s->warned, true))
			fprintf(stderr,
				"libweir-shuffle: no space left in %s; free some, or give "
				"another directory to spill to\n",
				f->directory);
		pthread_mutex_lock(&s->lock);
		f->writers--;
		f->full = means_full(rc);
		if (!rc) {
			for (struct spill_ticket *t = tickets; t; t = t->next) {
				t->extent = (struct extent){offset, bytes_of(t), *file};
				offset += space_of(t->extent.bytes);
			}
			return 0;
		}
		release(s, f, space, punched);
		for (; means_full(rc) && s->dead_count; tried = 0)
			if (s->dead)
				bury_one(s);
			else /* another thread punches */
				pthread_cond_wait(&s->done, &s->lock);
	}
	return rc;
}

/* Holds the lock, but while it runs the callbacks. */
static void
finish(struct spill *s, struct spill_ticket *tickets, int rc, uint32_t file)
{
	struct spill_ticket *called = NULL, **end = &called, *t;

	while ((t = tickets)) {
		tickets = t->next;
		t->rc = rc;
		if (rc) {
			t->extent.file = file;
			s->used -= space_of(bytes_of(t));
		}
		t->finished = true; /* from here on it may be gone, unless it has a callback */
		if (t->done) {
			*end = t;
			end = &t->next;
		}
	}
	*end = NULL;
	pthread_cond_broadcast(&s->done);
	pthread_mutex_unlock(&s->lock);
	while ((t = called)) {
		called = t->next;
		t->done(t);
	}
	pthread_mutex_lock(&s->lock);
}

/* Holds the lock. Takes tickets that fit into one buffer, at least one. */
static struct spill_ticket *
take(struct spill *s, uint64_t *space)
{
	struct spill_ticket *first = s->queue, *last = first;

	*space = space_of(bytes_of(first));
	while (last->next && *space + space_of(bytes_of(last->next)) <= s->room) {
		last = last->next;
		*space += space_of(bytes_of(last));
	}
	s->queue = last->next;
	if (!s->queue)
		s->queue_end = &s->queue;
	last->next = NULL;
	return first;
}

static void *
run(void *writer)
{
	struct writer *w = writer;
	struct spill *s = w->s;

	pthread_mutex_lock(&s->lock);
	while (!s->closing) {
		struct spill_ticket *tickets;
		uint64_t space;
		uint32_t file = 0;
		int rc;

		if (!s->queue) {
			if (s->dead)
				bury_one(s);
			else
				pthread_cond_wait(&s->work, &s->lock);
			continue;
		}
		tickets = take(s, &space);
		rc = write_somewhere(s, w, tickets, space, &file);
		finish(s, tickets, rc, file);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

/* ---- calls ---- */

static int
start(struct spill *s, struct writer *w)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	rc = -pthread_create(&w->thread, NULL, run, w);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc)
		return weir_fail(rc, "no thread to spill: %s; raise the limit of threads",
				 strerror(-rc));
	s->writers++;
	return 0;
}

static int
open_all(struct spill *s, const char *const *directories, unsigned files, unsigned writers)
{
	int rc = 0;

	for (unsigned i = 0; i < writers; i++) {
		s->writer[i].s = s;
		s->writer[i].buffer = aligned_alloc(SPILL_ALIGN, s->room);
		if (!s->writer[i].buffer)
			return weir_fail(-ENOMEM, "no memory for a buffer of %zu bytes to spill",
					 s->room);
	}
	memset(s->writer[0].buffer, 0, SPILL_ALIGN);
	while (!rc && s->files < files) {
		rc = file_open(&s->file[s->files], directories[s->files], s->writer[0].buffer);
		s->files++;
	}
	for (unsigned i = 0; i < writers && !rc; i++)
		rc = start(s, &s->writer[i]);
	return rc;
}

int
spill_open(const char *const *directories, uint64_t max, size_t memory, struct spill **spill)
{
	unsigned files = 0, writers;
	pthread_condattr_t attr;
	struct spill *s;
	int rc;

	while (directories[files] && files <= SPILL_DIRECTORIES_MAX)
		files++;
	if (!files || files > SPILL_DIRECTORIES_MAX)
		return weir_fail(-EINVAL,
				 "invalid number of directories to spill to (expected 1 "
				 "... %u)",
				 SPILL_DIRECTORIES_MAX);
	writers = files < SPILL_WRITERS_MAX ? files : SPILL_WRITERS_MAX;
	if (memory / SPILL_BUFFER_LEAST < writers)
		writers = (unsigned)(memory / SPILL_BUFFER_LEAST);
	if (!writers)
		return weir_fail(-ENOMEM,
				 "%zu bytes of memory are too few to spill (expected %u "
				 "at least)",
				 memory, SPILL_BUFFER_LEAST);
	s = calloc(1, sizeof(*s));
	if (!s)
		return weir_fail(-ENOMEM, "no memory to spill");
	s->pid = getpid();
	s->max = max;
	s->room = memory / writers / SPILL_ALIGN * SPILL_ALIGN;
	s->room = s->room < SPILL_BUFFER_MOST ? s->room : SPILL_BUFFER_MOST;
	s->queue_end = &s->queue;
	pthread_mutex_init(&s->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&s->work, &attr);
	pthread_cond_init(&s->done, &attr);
	pthread_condattr_destroy(&attr);
	rc = open_all(s, directories, files, writers);
	if (rc)
		spill_close(s);
	else
		*spill = s;
	return rc;
}

static void
stop(struct spill *s)
{
	struct spill_ticket *queue;

	pthread_mutex_lock(&s->lock);
	s->closing = true;
	queue = s->queue;
	s->queue = NULL;
	s->queue_end = &s->queue;
	pthread_cond_broadcast(&s->work);
	finish(s, queue, -ECANCELED, 0);
	pthread_mutex_unlock(&s->lock);
	for (unsigned i = 0; i < s->writers; i++)
		pthread_join(s->writer[i].thread, NULL);
	pthread_cond_destroy(&s->work);
	pthread_cond_destroy(&s->done);
	pthread_mutex_destroy(&s->lock);
}

void
spill_close(struct spill *s)
{
	struct dead *d;

	if (!s)
		return;
	if (s->pid == getpid())
		stop(s);
	for (unsigned i = 0; i < s->files; i++)
		file_close(&s->file[i]);
	for (unsigned i = 0; i < SPILL_WRITERS_MAX; i++)
		free(s->writer[i].buffer);
	while ((d = s->dead)) {
		s->dead = d->next;
		free(d);
	}
	free(s);
}

int
spill_write(struct spill *s, struct spill_ticket *t)
{
	uint64_t space = space_of(bytes_of(t));
	int rc = in_parent(s);

	weir_assert(space);
	if (rc)
		return rc;
	t->next = NULL;
	t->finished = false;
	pthread_mutex_lock(&s->lock);
	weir_assert(!s->closing);
	if (space > s->max || s->used > s->max - space) {
		rc = weir_fail(-ENOSPC, "the %llu bytes for spilling are used up; raise spill_max",
			       (unsigned long long)s->max);
	} else {
		s->used += space;
		*s->queue_end = t;
		s->queue_end = &t->next;
		pthread_cond_signal(&s->work);
	}
	pthread_mutex_unlock(&s->lock);
	return rc;
}

static struct timespec
deadline_of(int timeout_ms)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += timeout_ms / 1000;
	t.tv_nsec += timeout_ms % 1000 * 1000000L;
	if (t.tv_nsec >= 1000000000L) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000L;
	}
	return t;
}

int
spill_wait(struct spill *s, struct spill_ticket *t, int timeout_ms)
{
	struct timespec deadline = deadline_of(timeout_ms > 0 ? timeout_ms : 0);
	int late = 0, rc = in_parent(s);
	bool finished;

	if (rc)
		return rc;
	pthread_mutex_lock(&s->lock);
	while (!t->finished && timeout_ms && !late)
		late = timeout_ms < 0 ? pthread_cond_wait(&s->done, &s->lock)
				      : pthread_cond_timedwait(&s->done, &s->lock, &deadline);
	finished = t->finished;
	pthread_mutex_unlock(&s->lock);
	if (!finished)
		return weir_fail(-EAGAIN, "the write is not done yet");
	return t->rc ? file_failed(&s->file[t->extent.file], t->rc, "spill to") : 0;
}

int
spill_read(struct spill *s, const struct extent *e, uint64_t offset, void *to, size_t bytes)
{
	struct file *f = &s->file[e->file];
	uint8_t *at = to;
	int rc = in_parent(s);

	weir_assert(e->file < s->files && offset <= e->bytes && bytes <= e->bytes - offset);
	while (!rc && bytes) {
		ssize_t k = read_some(f, at, bytes, e->offset + offset);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return weir_fail(k ? -errno : -EIO,
					 "cannot read what was spilled to %s: "
					 "%s; check its disk",
					 f->directory, k ? strerror(errno) : "the file was cut");
		at += k;
		offset += (uint64_t)k;
		bytes -= (size_t)k;
	}
	return rc;
}

void
spill_free_extent(struct spill *s, const struct extent *e)
{
	struct file *f = &s->file[e->file];
	uint64_t space = space_of(e->bytes);
	struct dead *d, *last;

	weir_assert(e->file < s->files && space);
	if (s->pid != getpid())
		return;
	d = malloc(sizeof(*d));
	pthread_mutex_lock(&s->lock);
	weir_assert(s->used >= space);
	s->used -= space;
	last = s->dead;
	if (last && last->f == f && last->offset + last->space == e->offset) {
		last->space += space; /* one hole of both is cheaper than two */
	} else if (d && s->dead_count < DEAD_MOST) {
		*d = (struct dead){s->dead, f, e->offset, space};
		s->dead = d;
		s->dead_count++;
		d = NULL;
		pthread_cond_signal(&s->work);
	} else {
		s->dead_count++;
		bury(s, f, e->offset, space);
	}
	pthread_mutex_unlock(&s->lock);
	free(d);
}

uint64_t
spill_used(struct spill *s)
{
	uint64_t used;

	if (s->pid != getpid())
		return 0;
	pthread_mutex_lock(&s->lock);
	used = s->used;
	pthread_mutex_unlock(&s->lock);
	return used;
}

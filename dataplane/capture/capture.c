/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "capture.h"

#include "pcapng.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define OUT_BYTES (1u << 20)
#define TURN_FRAMES 4096u     /* taken between two looks at the reasons to end */
#define NAP_NS 500000	      /* ns to sleep without frames: a ring holds the frames of some ms */
#define PIPE_PATIENCE_MS 1000 /* ms for the reader of a pipe once the capture shall end */
#define PIPE_LOOK_MS 50

static_assert(sizeof(struct capture_frame) % 8 == 0, "records are aligned");
static_assert(CAPTURE_RING_BYTES % 8 == 0, "a record's head never wraps between its fields");

struct capture {
	struct capture_config config;
	char port[64], driver[64], application[64];
	struct capture_ring *ring; /* config.rings */
	int end[2];		   /* a pipe, which the writer hangs up when it is over */
	pthread_t thread;
	bool started;
	_Atomic bool stop; /* main sets, writer reads */
	_Atomic bool over; /* writer sets after the result, main reads */
	/* the writer's, then main's */
	bool pipe;
	uint8_t *out; /* OUT_BYTES */
	size_t out_bytes;
	uint64_t out_frames;
	uint64_t begin; /* ns since 1970 */
	off_t offset;	/* of a file: the end of its last complete block */
	struct capture_result result;
};

/* ---- the file ---- */

static uint64_t
real_time(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* A pipe takes PIPE_BUF bytes at once when it says that it is writable. */
static int
await_reader(const struct capture *c)
{
	struct pollfd p = {.fd = c->config.fd, .events = POLLOUT};

	for (int patience = PIPE_PATIENCE_MS; poll(&p, 1, PIPE_LOOK_MS) == 0;) {
		if (!atomic_load_explicit(&c->stop, memory_order_relaxed))
			continue;
		patience -= PIPE_LOOK_MS;
		if (patience <= 0)
			return -ETIMEDOUT;
	}
	return 0;
}

/* Truncates an incomplete block, so that the file ends with a complete one. */
static void
flush(struct capture *c)
{
	int rc = c->result.status;

	weir_assert(c->out_bytes <= OUT_BYTES);
	for (size_t done = 0; !rc && done < c->out_bytes;) {
		size_t n = c->out_bytes - done;
		ssize_t written;

		rc = c->pipe ? await_reader(c) : 0;
		if (rc)
			break;
		if (c->pipe && n > PIPE_BUF)
			n = PIPE_BUF;
		written = write(c->config.fd, c->out + done, n);
		if (written > 0)
			done += (size_t)written;
		else if (written == 0)
			rc = -EIO;
		else if (errno != EINTR && errno != EAGAIN)
			rc = -errno;
	}
	if (!rc) {
		c->result.frames += c->out_frames;
		c->result.bytes += c->out_bytes;
		c->offset += (off_t)c->out_bytes;
	} else {
		c->result.dropped += c->out_frames;
		if (!c->result.status && !c->pipe && ftruncate(c->config.fd, c->offset))
			rc = -errno;
		c->result.status = rc;
	}
	c->out_bytes = 0;
	c->out_frames = 0;
}

static uint8_t *
room(struct capture *c, size_t bytes)
{
	if (c->out_bytes + bytes > OUT_BYTES)
		flush(c);
	weir_assert(c->out_bytes + bytes <= OUT_BYTES);
	return c->out + c->out_bytes;
}

/* ---- the frames ---- */

/* The ring with the oldest frame, NULL: all are empty. */
static struct capture_ring *
oldest(struct capture *c)
{
	struct capture_ring *found = NULL;
	uint64_t time = 0;

	for (unsigned i = 0; i < c->config.rings; i++) {
		struct capture_ring *r = &c->ring[i];
		uint64_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed), at;

		/* pairs with the release in capture_put() */
		if (atomic_load_explicit(&r->head, memory_order_acquire) == tail)
			continue;
		memcpy(&at, r->bytes + tail % CAPTURE_RING_BYTES, sizeof(at));
		if (!found || at < time) {
			found = r;
			time = at;
		}
	}
	return found;
}

static bool
full(const struct capture *c)
{
	return c->config.limit && c->result.frames + c->out_frames == c->config.limit;
}

/* Takes at most `most` frames; returns how many. */
static unsigned
take_some(struct capture *c, unsigned most)
{
	struct capture_ring *r;
	unsigned n = 0;

	for (; n < most && !full(c) && (r = oldest(c)); n++) {
		uint64_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
		size_t offset = tail % CAPTURE_RING_BYTES, first = CAPTURE_RING_BYTES - offset;
		struct pcapng_frame block;
		struct capture_frame frame;
		uint8_t *to;

		/* the head of a record may wrap, as may the bytes of the frame */
		first = first < sizeof(frame) ? first : sizeof(frame);
		memcpy(&frame, r->bytes + offset, first);
		memcpy((uint8_t *)&frame + first, r->bytes, sizeof(frame) - first);
		weir_assert(frame.captured <= CAPTURE_SNAP);
		block = (struct pcapng_frame){
		    .time = frame.time + c->config.epoch,
		    .captured = frame.captured,
		    .original = frame.original,
		    .queue = frame.queue,
		    .out = frame.out,
		};
		offset = (tail + sizeof(frame)) % CAPTURE_RING_BYTES;
		first = CAPTURE_RING_BYTES - offset;
		first = first < frame.captured ? first : frame.captured;
		to = room(c, frame.captured + PCAPNG_FRAME_EXTRA);
		c->out_bytes += pcapng_frame(to, &block, r->bytes + offset, first, r->bytes);
		c->out_frames++;
		/* pairs with the acquire in capture_put() */
		atomic_store_explicit(&r->tail,
				      tail + sizeof(frame) + ((frame.captured + 7ull) & ~7ull),
				      memory_order_release);
	}
	return n;
}

static uint64_t
dropped_until_now(const struct capture *c)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < c->config.rings; i++)
		sum += atomic_load_explicit(&c->ring[i].dropped, memory_order_relaxed);
	return sum;
}

static void *
run(void *arg)
{
	static const struct timespec nap = {.tv_nsec = NAP_NS};
	struct capture *c = arg;
	struct pcapng_interface interface = {
	    .name = c->port, .description = c->driver, .snap = CAPTURE_SNAP};
	struct pcapng_statistics s = {0};
	uint64_t dropped;
	sigset_t all;
	bool ended;

	/* SIGXFSZ and SIGPIPE: a full file or a pipe without a reader is an error of write() */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	if (!c->pipe && ftruncate(c->config.fd, c->offset))
		c->result.status = -errno;
	memcpy(interface.mac, c->config.mac, sizeof(interface.mac));
	c->begin = real_time();
	c->out_bytes += pcapng_section(room(c, PCAPNG_BLOCK_MAX), c->application);
	c->out_bytes += pcapng_interface(room(c, PCAPNG_BLOCK_MAX), &interface);
	flush(c); /* a reader that follows the file needs these blocks first */
	while (!full(c) && !c->result.status &&
	       !atomic_load_explicit(&c->stop, memory_order_relaxed)) {
		if (take_some(c, TURN_FRAMES) == TURN_FRAMES)
			continue;
		if (c->out_bytes)
			flush(c);
		nanosleep(&nap, NULL);
	}
	ended = full(c); /* frames after the limit do not count as dropped */
	dropped = dropped_until_now(c);
	c->config.detach(c->config.user);
	while (take_some(c, TURN_FRAMES))
		; /* after an error these only count as dropped */
	if (!ended)
		dropped = dropped_until_now(c);
	s.start = c->begin;
	s.time = s.end = real_time();
	flush(c);
	c->result.dropped += dropped;
	s.dropped = c->result.dropped;
	s.received = c->result.frames + c->result.dropped;
	c->out_bytes += pcapng_statistics(room(c, PCAPNG_BLOCK_MAX), &s);
	flush(c);
	if (close(c->config.fd) && !c->result.status)
		c->result.status = -errno;
	/* pairs with the acquire in capture_result() */
	atomic_store_explicit(&c->over, true, memory_order_release);
	close(c->end[1]);
	return NULL;
}

/* ---- main's side ---- */

static int
make_rings(struct capture *c)
{
	void *rings;

	if (posix_memalign(&rings, 64, c->config.rings * sizeof(*c->ring)))
		return -ENOMEM;
	memset(rings, 0, c->config.rings * sizeof(*c->ring));
	c->ring = rings;
	c->out = malloc(OUT_BYTES);
	for (unsigned i = 0; i < c->config.rings; i++) {
		/* populated now, so that no engine faults pages in */
		void *bytes = mmap(NULL, CAPTURE_RING_BYTES, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

		if (bytes == MAP_FAILED)
			return -ENOMEM;
		c->ring[i].bytes = bytes;
	}
	if (!c->out)
		return -ENOMEM;
	return pipe2(c->end, O_CLOEXEC) ? -errno : 0;
}

int
capture_create(const struct capture_config *config, struct capture **out, char *error, size_t size)
{
	int flags = fcntl(config->fd, F_GETFL), rc;
	struct capture *c;
	struct stat st;
	bool pipe;

	weir_assert(config->rings && config->rings <= CAPTURE_RINGS_MAX);
	if (flags < 0 || fstat(config->fd, &st) ||
	    (!S_ISREG(st.st_mode) && !S_ISFIFO(st.st_mode))) {
		snprintf(error, size, "what to write to is neither file nor pipe; name a file");
		return -EINVAL;
	}
	if ((flags & O_ACCMODE) == O_RDONLY) {
		snprintf(error, size,
			 "what to write to is open for reading only; open it for writing");
		return -EINVAL;
	}
	pipe = S_ISFIFO(st.st_mode);
	c = calloc(1, sizeof(*c));
	if (c) {
		c->config = *config;
		c->end[0] = c->end[1] = -1;
		c->pipe = pipe;
		snprintf(c->port, sizeof(c->port), "%s", config->port);
		snprintf(c->driver, sizeof(c->driver), "%s", config->driver);
		snprintf(c->application, sizeof(c->application), "%s", config->application);
	}
	rc = c ? make_rings(c) : -ENOMEM;
	if (rc) {
		snprintf(error, size, "no memory for a capture of %u times %u MiB: %s; free some",
			 config->rings, CAPTURE_RING_BYTES >> 20, strerror(-rc));
		capture_destroy(c);
		return rc;
	}
	if (!pipe)
		c->offset = lseek(config->fd, 0, flags & O_APPEND ? SEEK_END : SEEK_CUR);
	*out = c;
	return 0;
}

struct capture_ring *
capture_ring(struct capture *c, unsigned ring)
{
	weir_assert(ring < c->config.rings);
	return &c->ring[ring];
}

int
capture_start(struct capture *c)
{
	int rc;

	weir_assert(!c->started);
	rc = c->config.thread(&c->thread, run, c);
	c->started = !rc;
	return rc ? -abs(rc) : 0;
}

void
capture_stop(struct capture *c)
{
	atomic_store_explicit(&c->stop, true, memory_order_relaxed);
}

int
capture_fd(const struct capture *c)
{
	return c->end[0];
}

void
capture_result(const struct capture *c, struct capture_result *result)
{
	/* pairs with the release in run(): main has seen that the fd hangs up */
	bool over = atomic_load_explicit(&c->over, memory_order_acquire);

	weir_assert(over);
	*result = c->result;
}

void
capture_destroy(struct capture *c)
{
	if (!c)
		return;
	if (c->started) {
		capture_stop(c);
		pthread_join(c->thread, NULL);
	}
	for (unsigned i = 0; c->ring && i < c->config.rings; i++)
		if (c->ring[i].bytes)
			munmap(c->ring[i].bytes, CAPTURE_RING_BYTES);
	if (c->end[0] >= 0)
		close(c->end[0]);
	if (c->end[1] >= 0 && !c->started)
		close(c->end[1]);
	free(c->ring);
	free(c->out);
	free(c);
}

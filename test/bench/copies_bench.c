/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The limit of large messages between two nodes on two CPUs: the copies alone that their bytes take
 * on the way from adopted memory to adopted memory, without sums, headers and acknowledgements. One
 * thread copies from the sender's buffers to frames and from there to a ring, as engine and memif
 * do; the other from the ring to frames and to the receiver's buffers.
 *
 * copies_bench SIZE [BUFFERS [SECONDS]]: prints GB/s of messages of SIZE bytes, of which each end
 * has BUFFERS (16).
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	FRAME = 4096,	 /* bytes of payload */
	FRAMES = 512,	 /* that an engine uses in turn: the last ones that came back */
	RING = 1024,	 /* slots, as many as memif has by default */
	SLOT_ROOM = 4224 /* bytes from slot to slot */
};

struct end {
	uint8_t *messages, *frames;
	_Alignas(64) _Atomic uint64_t pos; /* its thread writes, the other one reads */
};

static struct end ends[2];
static uint8_t *ring;
static size_t size, bytes; /* of a message; of all of an end's */
static _Atomic bool stop;

static void *
memory(size_t n)
{
	uint8_t *m = malloc(n);

	if (!m)
		exit(1);
	memset(m, 1, n);
	return m;
}

static void
pin(unsigned cpu)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	sched_setaffinity(0, sizeof(one), &one);
}

/* Frames do not cross the end of a message. */
static size_t
part_at(size_t at)
{
	size_t left = size - at % size;

	return left < FRAME ? left : FRAME;
}

static void *
run(void *arg)
{
	unsigned side = *(unsigned *)arg;
	struct end *e = &ends[side], *other = &ends[!side];
	size_t at = 0;

	pin(side);
	for (uint64_t pos = 0; !atomic_load_explicit(&stop, memory_order_relaxed);) {
		uint8_t *slot = ring + pos % RING * SLOT_ROOM,
			*frame = e->frames + pos % FRAMES * FRAME;
		/* pairs with the release of the other end */
		uint64_t seen = atomic_load_explicit(&other->pos, memory_order_acquire);
		size_t n = part_at(at);

		if (side ? seen == pos : pos - seen == RING)
			continue;
		if (side) {
			memcpy(frame, slot, n);
			memcpy(e->messages + at, frame, n);
		} else {
			memcpy(frame, e->messages + at, n);
			memcpy(slot, frame, n);
		}
		at = (at + n) % bytes;
		/* pairs with the acquire of the other end */
		atomic_store_explicit(&e->pos, ++pos, memory_order_release);
	}
	return NULL;
}

int
main(int argc, char **argv)
{
	double seconds = argc > 3 ? strtod(argv[3], NULL) : 1;
	size_t buffers = argc > 2 ? strtoull(argv[2], NULL, 10) : 16;
	static unsigned sides[2] = {0, 1};
	struct timespec begin, end, pause;
	pthread_t thread[2];
	uint64_t frames;
	double ns;

	size = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
	if (!size || size > 1u << 30 || !buffers || buffers > 1024 || !(seconds > 0))
		return 2;
	bytes = size * buffers;
	ring = memory((size_t)RING * SLOT_ROOM);
	for (unsigned i = 0; i < 2; i++) {
		ends[i].messages = memory(bytes);
		ends[i].frames = memory((size_t)FRAMES * FRAME);
	}
	for (unsigned i = 0; i < 2; i++)
		if (pthread_create(&thread[i], NULL, run, &sides[i]))
			return 1;
	pause = (struct timespec){.tv_nsec = 200000000}; /* caches and clocks settle */
	nanosleep(&pause, NULL);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	frames = atomic_load(&ends[1].pos);
	pause =
	    (struct timespec){(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
	nanosleep(&pause, NULL);
	frames = atomic_load(&ends[1].pos) - frames;
	clock_gettime(CLOCK_MONOTONIC, &end);
	atomic_store(&stop, true);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	ns = (double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec);
	/* the last frame of a message may be shorter */
	printf("%.3f\n", (double)frames * (double)size / (double)((size + FRAME - 1) / FRAME) / ns);
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transmitters over registered buffers: buffer_ring NAME SIZE THREADS COUNT. SIZE programs, on any
 * nodes, join the group NAME and form a ring. In each one THREADS transmitters write COUNT messages
 * into the memory of the next member: out of a circular buffer of their own, without a copy, into a
 * ring of slots there, followed by a signal. As many receivers wait for the signals, check every
 * byte, and signal back that slots are free.
 *
 * A transmitter makes a mark per eight messages, which frees the memory of all of them. Buffers
 * grow to MOST units; the program checks that it never sees more.
 */
#include <weir/buffer.h>
#include <weir/group.h>

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK (2u << 20)
#define SLOT 16384u /* bytes of a message and its head at most; of a unit */
#define SLOTS 16u   /* of a transmitter, at the receiver */
#define MOST 4u	    /* units of a buffer */
#define PER_MARK 8u
#define THREADS_MAX 4u
#define HEAD 4096u /* bytes of the words in front of the slots */
#define MEMORY (HEAD + THREADS_MAX * SLOTS * SLOT)
#define RIGHTS (WEIR_MAY_READ | WEIR_MAY_WRITE | WEIR_MAY_NOTIFY)
#define PATIENT 30000 /* ms */

/* Words of a member's memory: numbers of messages. */
static uint64_t
arrived_at(uint32_t thread) /* from the member before */
{
	return 128 * thread;
}

static uint64_t
freed_at(uint32_t thread) /* by the member behind */
{
	return 128 * thread + 64;
}

struct message {
	uint32_t bytes, thread; /* bytes: of the text */
	uint64_t number;
	uint8_t text[];
};

struct member {
	struct weir_group *g;
	struct weir_chunks *chunks;
	struct weir_export *x;
	uint8_t *memory;
	struct weir_remote *next, *before; /* memory of the neighbours */
	uint64_t count;
};

struct worker {
	struct member *m;
	uint32_t thread;
	uint64_t waits; /* transmitter: for a free unit */
	uint32_t units; /* that its buffer had */
	int rc;		/* 0, 1: wrong, or -errno */
};

static uint64_t
slot_at(uint32_t thread, uint64_t number)
{
	return HEAD + (thread * SLOTS + number % SLOTS) * SLOT;
}

static uint32_t
length_of(uint32_t thread, uint64_t number)
{
	uint32_t x = (uint32_t)number * 2654435761u + thread * 40503u;

	/* small ones, which share a unit, and such of any length */
	return (x >> 8) % (number % 2 ? 1000 : SLOT - sizeof(struct message));
}

static uint8_t
byte_of(const struct message *h, uint32_t i)
{
	return (uint8_t)(h->number * 7 + h->thread * 31 + i);
}

/* ---- transmitter ---- */

/* Notes which unit that is. Returns 1 if the buffer has more than it may have. */
static int
note_unit(struct worker *t, const void *at, uint64_t *seen)
{
	struct weir_region *region;
	uint64_t offset;
	uint32_t i = 0;

	if (weir_chunk_where(t->m->chunks, at, &region, &offset))
		return 1;
	offset -= offset % SLOT;
	while (i < t->units && seen[i] != offset)
		i++;
	if (i == MOST)
		return 1;
	seen[i] = offset;
	if (i == t->units)
		t->units++;
	return 0;
}

/* Memory of `bytes`; waits until a message before has left. */
static void *
get_memory(struct worker *t, struct weir_circular *q, uint32_t bytes)
{
	void *at;

	while (!(at = weir_circular_get(q, bytes)) && errno == ENOBUFS && !t->rc) {
		weir_circular_posted(q, t->m->next);
		t->rc = weir_remote_flush(t->m->next, PATIENT);
		t->waits++;
	}
	if (!at && !t->rc)
		t->rc = -errno;
	return at;
}

static int
transmit_one(struct worker *t, struct weir_circular *q, uint64_t number, uint64_t *seen)
{
	uint32_t bytes = length_of(t->thread, number);
	struct weir_transfer put = {.offset = slot_at(t->thread, number),
				    .length = sizeof(struct message) + bytes,
				    .flags = WEIR_KEEP,
				    .notify = WEIR_WITH_SIGNAL_SET,
				    .signal = arrived_at(t->thread),
				    .operand = number + 1};
	struct message *h = get_memory(t, q, (uint32_t)put.length);

	if (!h)
		return t->rc;
	if (note_unit(t, h, seen))
		return 1;
	*h = (struct message){bytes, t->thread, number};
	for (uint32_t i = 0; i < bytes; i++)
		h->text[i] = byte_of(h, i);
	put.buf = h;
	return weir_remote_put_with(t->m->next, &put);
}

static void *
transmit(void *arg)
{
	struct worker *t = arg;
	struct weir_circular_options o = WEIR_CIRCULAR_OPTIONS_INIT;
	uint64_t seen[MOST], freed = 0;
	struct weir_circular *q;

	o.unit = SLOT;
	o.first = 2;
	o.most = MOST;
	o.linear = 1; /* small messages share a unit */
	t->rc = weir_circular_create(t->m->chunks, &o, &q);
	if (t->rc)
		return NULL;
	for (uint64_t n = 0; n < t->m->count && !t->rc; n++) {
		if (n - freed == SLOTS)
			t->rc = weir_signal_wait(t->m->x, freed_at(t->thread), WEIR_GT, freed,
						 PATIENT, &freed);
		if (!t->rc)
			t->rc = transmit_one(t, q, n, seen);
		if (n % PER_MARK == PER_MARK - 1)
			weir_circular_posted(q, t->m->next);
	}
	if (!t->rc)
		t->rc = weir_remote_flush(t->m->next, PATIENT);
	weir_circular_destroy(q);
	return NULL;
}

/* ---- receiver ---- */

static bool
is_right(const struct message *h, uint32_t thread, uint64_t number)
{
	if (h->bytes != length_of(thread, number) || h->thread != thread || h->number != number)
		return false;
	for (uint32_t i = 0; i < h->bytes; i++)
		if (h->text[i] != byte_of(h, i))
			return false;
	return true;
}

/* The sender may write to the slots of all messages before that number again. */
static int
free_slots(struct worker *t, uint64_t number)
{
	struct weir_transfer put = {
	    .notify = WEIR_WITH_SIGNAL_SET, .signal = freed_at(t->thread), .operand = number};

	return weir_remote_put_with(t->m->before, &put);
}

static void *
receive(void *arg)
{
	struct worker *t = arg;
	uint64_t arrived = 0;

	for (uint64_t n = 0; n < t->m->count && !t->rc; n++) {
		if (n == arrived)
			t->rc = weir_signal_wait(t->m->x, arrived_at(t->thread), WEIR_GT, n,
						 PATIENT, &arrived);
		if (!t->rc &&
		    !is_right((void *)(t->m->memory + slot_at(t->thread, n)), t->thread, n))
			t->rc = 1;
		if (!t->rc && (n + 1) % (SLOTS / 2) == 0)
			t->rc = free_slots(t, n + 1);
	}
	if (!t->rc)
		t->rc = weir_remote_flush(t->m->before, PATIENT);
	return NULL;
}

/* ---- the member ---- */

static int
run_threads(struct member *m, uint32_t threads)
{
	struct worker worker[2 * THREADS_MAX] = {{0}};
	pthread_t id[2 * THREADS_MAX];
	uint32_t started = 0, units = 0;
	uint64_t waits = 0;
	int rc = 0;

	for (; started < 2 * threads && !rc; started += !rc) {
		worker[started].m = m;
		worker[started].thread = started / 2;
		rc = -pthread_create(&id[started], NULL, started % 2 ? receive : transmit,
				     &worker[started]);
	}
	while (started--) {
		pthread_join(id[started], NULL);
		rc = rc ? rc : worker[started].rc;
		waits += worker[started].waits;
		units += worker[started].units;
	}
	if (rc > 0)
		fprintf(stderr, "buffer_ring: wrong message, or more memory than permitted\n");
	if (!rc)
		printf("rank %u: %" PRIu64 " messages of %u threads right, %u units, %" PRIu64
		       " waits\n",
		       weir_group_rank(m->g), m->count * threads, threads, units, waits);
	return rc;
}

/* Exports a chunk, and opens those of the neighbours. */
static int
open_memory(struct weir *w, struct member *m)
{
	uint32_t rank = weir_group_rank(m->g), size = weir_group_size(m->g);
	struct weir_key *keys = calloc(size, sizeof(*keys)), mine;
	struct weir_region *region;
	uint64_t offset;
	int rc;

	m->memory = weir_chunk_get(m->chunks);
	rc = !keys ? -ENOMEM : !m->memory ? -errno : 0;
	if (!rc)
		rc = weir_chunk_where(m->chunks, m->memory, &region, &offset);
	if (!rc)
		rc = weir_export(region, offset, MEMORY, RIGHTS, &m->x, &mine);
	if (!rc)
		rc = weir_group_allgather(m->g, &mine, sizeof(mine), keys, PATIENT);
	if (!rc)
		rc = weir_remote_open(w, &keys[(rank + 1) % size], RIGHTS, 0, PATIENT, &m->next);
	if (!rc)
		rc = weir_remote_open(w, &keys[(rank + size - 1) % size], RIGHTS, 0, PATIENT,
				      &m->before);
	free(keys);
	return rc;
}

static int
run(struct weir *w, const char *name, uint32_t size, uint32_t threads, uint64_t count)
{
	struct weir_chunks_options c = WEIR_CHUNKS_OPTIONS_INIT;
	struct weir_group_options o = WEIR_GROUP_OPTIONS_INIT;
	struct member m = {.count = count};
	int rc;

	/* one region: a chunk for each buffer, and the one that is exported */
	c.chunk = CHUNK;
	c.step = c.most = (uint64_t)(threads + 1) * CHUNK;
	o.size = size;
	rc = weir_chunks_create(w, &c, &m.chunks);
	if (!rc)
		rc = weir_group_join(w, name, &o, PATIENT, &m.g);
	if (!rc)
		rc = open_memory(w, &m);
	if (!rc)
		rc = run_threads(&m, threads);
	if (!rc)
		rc = weir_group_barrier(m.g, PATIENT); /* nobody accesses this memory any more */
	if (rc < 0)
		fprintf(stderr, "buffer_ring: %s\n", weir_reason());
	weir_remote_close(m.next);
	weir_remote_close(m.before);
	weir_group_leave(m.g);
	if (m.x)
		weir_revoke(m.x);
	weir_chunks_destroy(m.chunks);
	return rc;
}

int
main(int argc, char **argv)
{
	uint32_t size, threads;
	struct weir *w;
	int rc;

	if (argc != 5) {
		fprintf(stderr, "usage: buffer_ring NAME SIZE THREADS COUNT\n");
		return 2;
	}
	size = (uint32_t)strtoul(argv[2], NULL, 10);
	threads = (uint32_t)strtoul(argv[3], NULL, 10);
	if (!size || !threads || threads > THREADS_MAX) {
		fprintf(stderr, "buffer_ring: give 1 to %u threads, and the size of the group\n",
			THREADS_MAX);
		return 2;
	}
	rc = weir_attach(NULL, &w);
	if (rc) {
		fprintf(stderr, "buffer_ring: %s\n", weir_reason());
		return 1;
	}
	rc = run(w, argv[1], size, threads, strtoull(argv[4], NULL, 10));
	weir_detach(w);
	return rc ? 1 : 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "batch.h"

#include <xxhash.h>

#define BUFFER_LEAST (64u << 10) /* bytes */
#define BUFFER_MOST (16u << 20)
#define PIECE_LEAST (8u << 10)
#define PIECE_MOST (256u << 10)
#define READ_MOST (1u << 20)
#define FAN_IN 256u /* runs that a reader merges, if there is memory */

static uint32_t
clamp(uint64_t n, uint32_t least, uint32_t most)
{
	return n < least ? least : n < most ? (uint32_t)n : most;
}

/* ---- the files ---- */

static size_t
write_memory(const struct weir_shuffle *s)
{
	return clamp(s->o.memory / 32, SPILL_BUFFER_LEAST, SPILL_WRITERS_MAX * SPILL_BUFFER_MOST);
}

int
files_make(struct weir_shuffle *s, uint64_t *bytes)
{
	struct files *f = calloc(1, sizeof(*f));
	uint64_t reader = s->o.memory / 8 / s->own_threads;
	uint32_t least = 2 * s->o.block > BUFFER_LEAST ? 2 * s->o.block : BUFFER_LEAST;

	if (!f)
		return -ENOMEM;
	pthread_mutex_init(&f->lock, NULL);
	s->files = f;
	f->room = clamp(s->o.memory / 16, least, BUFFER_MOST) & ~(SPILL_ALIGN - 1);
	f->piece = PIECE_LEAST;
	while (f->piece < PIECE_MOST && 2 * (uint64_t)f->piece * FAN_IN <= reader)
		f->piece *= 2;
	if (reader < 4 * (f->piece + SPILL_ALIGN))
		reader = 4 * (f->piece + SPILL_ALIGN);
	s->memory.reserve[MEMORY_READ] = reader;
	/* a quarter for the list of what lies there */
	*bytes = reader * s->own_threads + write_memory(s) + f->room + f->room / 4;
	return 0;
}

int
files_open(struct weir_shuffle *s)
{
	struct files *f = s->files;

	f->buffer = aligned_alloc(SPILL_ALIGN, f->room);
	if (!f->buffer)
		return weir_fail(-ENOMEM, "no memory to spill; free some");
	return spill_open(s->o.spill, s->o.spill_max, write_memory(s), &f->spill);
}

static void
batch_unref(struct files *f, struct batch *b)
{
	/* the last one sees that all others have read */
	if (atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) > 1)
		return;
	if (atomic_load_explicit(&b->state, memory_order_relaxed) == BATCH_WRITTEN)
		spill_free_extent(f->spill, &b->ticket.extent);
	if (b->held)
		held_unref(b->held);
	free(b);
}

void
files_free(struct weir_shuffle *s)
{
	struct files *f = s->files;

	if (!f)
		return;
	if (f->last) {
		if (atomic_load_explicit(&f->last->state, memory_order_relaxed) == BATCH_WRITING)
			spill_wait(f->spill, &f->last->ticket, -1);
		atomic_store_explicit(&f->last->state, BATCH_KEPT, memory_order_relaxed);
		batch_unref(f, f->last);
	}
	spill_close(f->spill);
	pthread_mutex_destroy(&f->lock);
	free(f->buffer);
	free(f);
	s->files = NULL;
}

int
files_settle(struct files *f, int timeout_ms)
{
	struct batch *b = f->last;
	bool wanted;
	int rc = 0;

	if (!b)
		return 0;
	wanted = atomic_load_explicit(&b->refs, memory_order_acquire) > 1;
	if (wanted && atomic_load_explicit(&b->state, memory_order_relaxed) == BATCH_KEPT) {
		rc = spill_write(f->spill, &b->ticket);
		if (rc)
			return rc;
		atomic_store_explicit(&b->state, BATCH_WRITING, memory_order_relaxed);
	}
	if (atomic_load_explicit(&b->state, memory_order_relaxed) == BATCH_WRITING) {
		rc = spill_wait(f->spill, &b->ticket, timeout_ms);
		if (rc == -EAGAIN)
			return rc;
		/* pairs with the acquire in batch_read() */
		atomic_store_explicit(&b->state, rc ? BATCH_KEPT : BATCH_WRITTEN,
				      memory_order_release);
		if (rc && wanted)
			return rc;
		if (!rc && b->held) {
			held_unref(b->held);
			b->held = NULL;
		}
	}
	f->last = NULL;
	batch_unref(f, b);
	return 0;
}

struct batch *
files_batch(struct files *f, struct held *held)
{
	struct batch *b = calloc(1, sizeof(*b));

	weir_assert(!f->last);
	if (!b)
		return NULL;
	atomic_init(&b->refs, 1);
	if (held)
		held_ref(held);
	b->held = held;
	b->data.iov_base = f->buffer;
	b->ticket.iov = &b->data;
	b->ticket.parts = 1;
	f->last = b;
	return b;
}

/* ---- runs ---- */

static uint32_t
piece_bytes(const struct files *f, const struct spilled *r, uint32_t at)
{
	return r->length - at < f->piece ? r->length - at : f->piece;
}

struct spilled *
spilled_make(const struct files *f, struct batch *b, const struct spilled *like)
{
	size_t pieces = (like->length + f->piece - 1) / f->piece;
	struct spilled *r = malloc(sizeof(*r) + pieces * sizeof(r->sums[0]));
	const uint8_t *bytes = (const uint8_t *)b->data.iov_base + like->offset;

	if (!r)
		return NULL;
	*r = *like;
	r->next = NULL;
	r->batch = b;
	for (uint32_t i = 0, at = 0; at < r->length; at += f->piece)
		r->sums[i++] = XXH3_64bits(bytes + at, piece_bytes(f, r, at));
	atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
	return r;
}

void
spilled_free(struct files *f, struct spilled *r)
{
	struct spilled *next;

	for (; r; r = next) {
		next = r->next;
		batch_unref(f, r->batch);
		free(r);
	}
}

static int
batch_read(struct files *f, struct batch *b, uint32_t at, void *to, size_t bytes)
{
	bool kept;

	/* pairs with the release in files_settle() */
	if (atomic_load_explicit(&b->state, memory_order_acquire) != BATCH_WRITTEN) {
		pthread_mutex_lock(&f->lock);
		if (b == f->last)
			files_settle(f, -1);
		kept = atomic_load_explicit(&b->state, memory_order_relaxed) != BATCH_WRITTEN;
		if (kept)
			memcpy(to, (const uint8_t *)b->data.iov_base + at, bytes);
		pthread_mutex_unlock(&f->lock);
		if (kept)
			return 0;
	}
	return spill_read(f->spill, &b->ticket.extent, at, to, bytes);
}

int64_t
spilled_read(struct files *f, const struct spilled *r, uint32_t at, void *to, size_t room)
{
	uint32_t bytes = r->length - at, n;
	uint8_t *piece = to;
	int rc;

	if (bytes > room)
		bytes = (uint32_t)(room - room % f->piece);
	rc = batch_read(f, r->batch, r->offset + at, to, bytes);
	if (rc)
		return rc;
	for (uint32_t i = at / f->piece, end = at + bytes; at < end; at += n, piece += n) {
		n = piece_bytes(f, r, at);
		if (XXH3_64bits(piece, n) != r->sums[i++])
			return -EBADMSG;
	}
	return bytes;
}

/* ---- reading record by record ---- */

uint64_t
loader_size(const struct files *f, uint32_t longest, uint64_t most, uint32_t *front, uint32_t *body)
{
	*front = (longest + SPILL_ALIGN - 1) & ~(SPILL_ALIGN - 1);
	*body = f->piece;
	if (*front + (uint64_t)f->piece < most)
		*body = clamp((most - *front) / f->piece * f->piece, f->piece, READ_MOST);
	return (uint64_t)*front + *body;
}

int
loader_open(struct loader *l, struct files *f, uint32_t front, uint32_t body)
{
	*l = (struct loader){.f = f, .front = front, .body = body};
	l->memory = aligned_alloc(SPILL_ALIGN, (size_t)front + body);
	return l->memory ? 0 : weir_fail(-ENOMEM, "no memory to read a file; free some");
}

void
loader_close(struct loader *l)
{
	free(l->memory);
	l->memory = NULL;
}

void
loader_begin(struct loader *l, const struct spilled *run)
{
	l->run = run;
	l->loaded = 0;
	l->left = run->records;
	l->at = l->end = l->memory + l->front;
}

/* Loads pieces behind what is left of the last one. */
static int
load(struct loader *l)
{
	size_t carry = (size_t)(l->end - l->at);
	uint8_t *body = l->memory + l->front;
	int64_t n;

	if (carry > l->front || l->loaded == l->run->length)
		return -EBADMSG;
	memmove(body - carry, l->at, carry);
	n = spilled_read(l->f, l->run, l->loaded, body, l->body);
	if (n < 0)
		return (int)n;
	l->loaded += (uint32_t)n;
	l->at = body - carry;
	l->end = body + n;
	return 0;
}

int
loader_next(struct loader *l, struct weir_record *r)
{
	size_t n;
	int rc;

	while (!l->left) {
		if (!l->run->next)
			return -ENODATA;
		loader_begin(l, l->run->next);
	}
	while (!(n = record_read(l->at, (size_t)(l->end - l->at), r))) {
		rc = load(l);
		if (rc)
			return rc;
	}
	l->at += n;
	l->left--;
	return 0;
}

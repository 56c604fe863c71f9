/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The queue of a thread (STREAM): rows of records as they came by calls, and blocks. Rows are
 * copied whole into chunks; both are read in place. Only its thread has it.
 */
#include "format/block.h"
#include "held.h"
#include "shuffle.h"

#include "base/monotonic.h"

#define CHUNK MEMORY_CHUNK

struct chunk {
	struct chunk *next;
	uint32_t length, read; /* bytes */
	_Alignas(8) uint8_t bytes[];
};
#define CHUNK_ROOM (CHUNK - (uint32_t)sizeof(struct chunk))

/* An entry of a chunk, and what follows it there. */
struct item {
	uint32_t bytes;	 /* of what follows: a row of calls, a pointer to a block, or a small one */
	uint32_t stride; /* 0: a block */
	uint32_t length; /* of one call's arguments; of a small block; 0: a pointer */
	uint32_t zero;
};
_Static_assert(CHUNK_ROOM > sizeof(struct item) + WEIR_BATCH_MAX, "one message fits");

struct queue {
	struct chunk *first, *last; /* NULL: none */
	uint64_t *received; /* by number of the producer: records of those that have not ended */
	bool *ended;	    /* likewise */
	uint32_t ends;	    /* producers that have ended */
	/* the row, or the block, that is read */
	const uint8_t *row;
	uint32_t left, stride, length; /* records, bytes */
	struct held *block;	       /* NULL: a small one, in the chunk */
	struct block_walk walk;
	bool in_block, in_fragment;
};

struct queue *
queue_make(const struct weir_shuffle *s)
{
	struct queue *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	q->received = calloc(s->thread_count, sizeof(*q->received));
	q->ended = calloc(s->thread_count, sizeof(*q->ended));
	if (q->received && q->ended)
		return q;
	free(q->received);
	free(q->ended);
	free(q);
	return NULL;
}

/* ---- what arrives ---- */

/* The last chunk, with that room. NULL: no memory. */
static struct chunk *
chunk_with_room(struct shuffle_thread *t, uint32_t bytes)
{
	struct queue *q = t->queue;
	struct chunk *c = q->last;

	if (c && CHUNK_ROOM - c->length >= bytes)
		return c;
	c = memory_buffer(t->s, CHUNK);
	if (!c)
		return NULL;
	memory_force(t, CHUNK);
	c->next = NULL;
	c->length = c->read = 0;
	if (q->last)
		q->last->next = c;
	else
		q->first = c;
	q->last = c;
	return c;
}

/* The first chunk has been read. */
static void
chunk_end(struct shuffle_thread *t)
{
	struct queue *q = t->queue;
	struct chunk *c = q->first;

	q->first = c->next;
	if (!q->first)
		q->last = NULL;
	memory_buffer_free(t->s, c, CHUNK);
	memory_give(t, MEMORY_RX, CHUNK);
}

/* An item with as much behind it. NULL: no memory. */
static void *
add_item(struct shuffle_thread *t, struct item item)
{
	struct chunk *c = chunk_with_room(t, (uint32_t)sizeof(item) + item.bytes);
	uint8_t *at;

	if (!c)
		return NULL;
	at = c->bytes + c->length;
	memcpy(at, &item, sizeof(item));
	c->length += (uint32_t)sizeof(item) + item.bytes;
	return at + sizeof(item);
}

static bool
is_own(const struct shuffle_thread *t, uint32_t partition)
{
	const struct weir_shuffle *s = t->s;

	return partition == PARTITION_OF_THREAD ||
	       (partition < s->o.partitions &&
		owner_of(s, partition) == thread_number(s, (struct weir_to){s->self, t->index}));
}

int
queue_add_records(struct shuffle_thread *t, const void *args, uint32_t length, uint32_t stride,
		  uint32_t count, uint32_t producer)
{
	uint8_t *row = add_item(t, (struct item){count * stride, stride, length, 0});
	struct record_args head;

	if (!row) {
		/* accepted, and lost: nobody may take the rest for the whole */
		shuffle_end(t->s, -ENOMEM, t->s->self);
		return -ENOMEM;
	}
	memcpy(row, args, (size_t)(count - 1) * stride + length);
	for (uint32_t i = 0; i < count; i++) {
		memcpy(&head, row + (size_t)i * stride, sizeof(head));
		if (is_own(t, head.partition) && head.key_length <= length - sizeof(head))
			continue;
		shuffle_count(&t->n.malformed, 1);
		head.key_length = UINT32_MAX; /* queue_next() leaves it out */
		memcpy(row + (size_t)i * stride, &head, sizeof(head));
	}
	t->queue->received[producer] += count;
	return 0;
}

/* Whether the block is copied into the chunk. Objects of their own would take more memory for small
 * ones than is counted. Opaque bytes may outlive the chunk. */
static bool
is_small(const struct held *b)
{
	struct fragment_head f;

	if (!b->memory || b->head.raw >= MEMORY_SMALL || b->head.raw < sizeof(f))
		return false;
	memcpy(&f, b->raw, sizeof(f));
	return !(f.flags & FRAGMENT_OPAQUE);
}

void
queue_add_block(struct shuffle_thread *t, struct held *b, uint32_t producer)
{
	bool small = is_small(b);
	uint32_t length = (uint32_t)sizeof(b->head) + b->head.raw;
	uint8_t *at = add_item(t, small ? (struct item){pad8(length), 0, length, 0}
					: (struct item){sizeof(b), 0, 0, 0});

	if (!at) {
		shuffle_end(t->s, -ENOMEM, t->s->self);
		held_unref(b);
		return;
	}
	t->queue->received[producer] += b->head.records;
	if (small) {
		memcpy(at, &b->head, sizeof(b->head));
		memcpy(at + sizeof(b->head), b->raw, b->head.raw);
		held_unref(b);
	} else {
		memcpy(at, &b, sizeof(b));
	}
}

bool
queue_add_end(struct shuffle_thread *t, uint32_t producer, uint64_t records)
{
	struct queue *q = t->queue;

	/* the queue would end before others have */
	if (t->s->once && q->ended[producer])
		return false;
	q->ended[producer] = true;

	/* a line was lost between processes that live, or the count is a lie */
	if (!t->reads_no_more && q->received[producer] != records)
		shuffle_end(t->s, -EBADMSG, thread_of_number(t->s, producer).process);
	q->received[producer] = 0;
	q->ends++;
	return true;
}

bool
queue_is_empty(const struct queue *q)
{
	const struct chunk *c = q->first;

	/* one that is read goes with the next look: others may lie behind it */
	return !q->left && !q->in_block && !(c && (c->read < c->length || c->next));
}

/* ---- reading ---- */

/* Takes the next item. False: there is none. */
static bool
take_item(struct shuffle_thread *t)
{
	struct queue *q = t->queue;
	struct item item;
	uint8_t *at;

	while (q->first && q->first->read == q->first->length)
		chunk_end(t);
	if (!q->first)
		return false;
	at = q->first->bytes + q->first->read;
	memcpy(&item, at, sizeof(item));
	at += sizeof(item);
	q->first->read += (uint32_t)sizeof(item) + item.bytes;
	if (item.stride) {
		q->row = at;
		q->stride = item.stride;
		q->length = item.length;
		q->left = item.bytes / item.stride;
		return true;
	}
	q->in_block = true;
	q->in_fragment = false;
	if (item.length) {
		block_walk_begin(&q->walk, (const struct block_head *)(const void *)at,
				 at + sizeof(struct block_head));
	} else {
		memcpy(&q->block, at, sizeof(q->block));
		block_walk_begin(&q->walk, &q->block->head, q->block->raw);
	}
	return true;
}

/* The next record of the row. False: its end. */
static bool
row_next(struct queue *q, struct weir_record *r, uint32_t *partition)
{
	struct record_args head;

	while (q->left) {
		const uint8_t *at = q->row;

		q->left--;
		q->row += q->stride;
		memcpy(&head, at, sizeof(head));
		if (head.key_length == UINT32_MAX)
			continue;
		*partition = head.partition;
		r->key = at + sizeof(head);
		r->key_length = head.key_length;
		r->value = at + sizeof(head) + head.key_length;
		r->value_length = q->length - (uint32_t)sizeof(head) - head.key_length;
		return true;
	}
	return false;
}

static void
block_end(struct shuffle_thread *t)
{
	if (t->queue->block)
		held_unref(t->queue->block);
	t->queue->block = NULL;
	t->queue->in_block = false;
}

/* Steps to the next fragment of the block, which is for this thread. 0; -ENODATA: the end;
 * -EBADMSG. */
static int
next_fragment(struct shuffle_thread *t)
{
	struct queue *q = t->queue;
	int rc;

	for (;;) {
		rc = block_walk_next(&q->walk);
		if (rc)
			return rc;
		if (is_own(t, q->walk.fragment.partition))
			return 0;
		shuffle_count(&t->n.malformed, 1);
	}
}

static int
lies(struct shuffle_thread *t)
{
	uint32_t process = (uint32_t)(t->queue->walk.head->producer >> 32);

	block_end(t);
	shuffle_count(&t->n.malformed, 1);
	shuffle_end(t->s, -EBADMSG, process);
	return shuffle_state(t->s);
}

/* The next record of the block: 0; -ENODATA: its end; -EPROTO: opaque bytes; -EBADMSG. */
static int
block_next(struct shuffle_thread *t, struct weir_record *r, uint32_t *partition)
{
	struct queue *q = t->queue;
	int rc;

	for (;;) {
		if (!q->in_fragment) {
			rc = next_fragment(t);
			if (rc)
				return rc;
			q->in_fragment = true;
		}
		if (q->walk.fragment.flags & FRAGMENT_OPAQUE)
			return -EPROTO;
		rc = block_walk_record(&q->walk, r);
		if (rc == -ENODATA) {
			q->in_fragment = false;
			continue;
		}
		*partition = q->walk.fragment.partition;
		return rc;
	}
}

/* Waits until something has come. 0; -ENODATA: nothing comes any more; -EAGAIN, or why not. */
static int
await_item(struct shuffle_thread *t, const struct wait *w)
{
	struct queue *q = t->queue;
	uint64_t begin = 0;
	int rc = 0;

	while (!take_item(t)) {
		if (q->ends >= t->s->o.maps) {
			rc = -ENODATA;
			break;
		}
		if (!begin)
			begin = monotonic_ns();
		rc = shuffle_turn(t, w);
		if (rc || (queue_is_empty(q) && q->ends < t->s->o.maps && wait_over(w)))
			break;
	}
	if (begin)
		shuffle_count(&t->n.next_wait_us, (monotonic_ns() - begin) / 1000u);
	if (rc || q->left || q->in_block)
		return rc;
	return weir_fail(-EAGAIN, "no record in time; producers have sent none");
}

int
queue_next(struct shuffle_thread *t, struct weir_record *r, uint32_t *partition,
	   const struct wait *w)
{
	struct queue *q = t->queue;
	int rc;

	for (;;) {
		if (q->left && row_next(q, r, partition))
			return 0;
		if (q->in_block) {
			rc = block_next(t, r, partition);
			if (!rc)
				return 0;
			if (rc == -EPROTO)
				return weir_fail(rc, "the next data are a block of the program; "
						     "call weir_reduce_block()");
			if (rc != -ENODATA)
				return lies(t);
			block_end(t);
		}
		rc = await_item(t, w);
		if (rc)
			return rc;
	}
}

int
queue_block(struct shuffle_thread *t, struct weir_block *b, const struct wait *w)
{
	struct queue *q = t->queue;
	const struct fragment_head *f = &q->walk.fragment;
	int rc;

	while (!q->in_block && !q->left) {
		rc = await_item(t, w);
		if (rc)
			return rc;
	}
	rc = q->left || q->in_fragment ? 0 : next_fragment(t);
	if (rc == -ENODATA) {
		block_end(t);
		return queue_block(t, b, w);
	}
	if (rc)
		return lies(t);
	q->in_fragment = !q->left;
	if (q->left || !q->block || !(f->flags & FRAGMENT_OPAQUE))
		return weir_fail(-EPROTO, "the next data are records; call weir_reduce_next()");
	*b = (struct weir_block){.data = q->walk.bytes,
				 .length = f->bytes,
				 .records = f->records,
				 .partition = f->partition,
				 .internal = {(uintptr_t)q->block}};
	q->in_fragment = false;
	held_ref(q->block);
	return 0;
}

bool
queue_is_complete(const struct shuffle_thread *t)
{
	return t->reads_no_more || t->queue->ends >= t->s->o.maps;
}

void
queue_drain(struct shuffle_thread *t)
{
	struct queue *q = t->queue;

	do {
		if (q->in_block)
			block_end(t);
		q->left = 0;
	} while (take_item(t));
}

void
queue_close(struct shuffle_thread *t)
{
	struct queue *q = t->queue;

	if (!q)
		return;
	queue_drain(t);
	free(q->received);
	free(q->ended);
	free(q);
	t->queue = NULL;
}

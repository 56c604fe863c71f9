/* SPDX-License-Identifier: BSD-3-Clause */
#include "raw.h"

#include "base/vec.h"
#include "shuffle/format/record.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <xxhash.h>

#define WAIT_MS 1000 /* between two looks whether the job has failed */

/* A record of a stage. */
struct raw_item {
	uint64_t prefix; /* first 8 bytes of its key, so that most comparisons end there */
	const uint8_t *key;
	uint32_t key_length, value_length;
	uint32_t partition;
};

static struct raw_thread *
own(struct transport_thread *th)
{
	return (struct raw_thread *)th;
}

/* ---- queues within the process ---- */

int
raw_local_send(struct raw_thread *th, uint32_t to, const struct weir_record *r)
{
	struct inbox *in = &raw_of(th)->threads[to].inbox;
	struct frame_head head = {.from = (uint16_t)th->base.index, .to = (uint16_t)to};
	uint8_t *at = NULL;
	bool full;

	pthread_mutex_lock(&in->lock);
	full = inbox_is_full(in, th->base.index);
	if (!full && (at = chunks_room(&in->list, frame_size(r)))) {
		frame_write(at, head, r);
		if (in->asleep)
			inbox_wake_locked(in);
	}
	pthread_mutex_unlock(&in->lock);
	if (at)
		return 0;
	return full ? -EAGAIN : weir_fail(-ENOMEM, "no memory for a record; free some");
}

int
raw_local_push(struct raw_thread *th, uint32_t to, struct chunk *c, bool always)
{
	struct inbox *in = &raw_of(th)->threads[to].inbox;
	bool full;

	pthread_mutex_lock(&in->lock);
	full = !always && inbox_is_full(in, th->base.index);
	if (!full) {
		chunks_push(&in->list, c);
		if (in->asleep)
			inbox_wake_locked(in);
	}
	pthread_mutex_unlock(&in->lock);
	return full ? -EAGAIN : 0;
}

/* ---- producing ---- */

/* Threads that have waited for room. */
static void
wake(struct raw *raw, uint64_t threads)
{
	for (uint32_t i = 0; threads >> i && i < 64; i++)
		if (threads >> i & 1)
			inbox_wake(&raw->threads[i].inbox);
}

static struct weir_to
consumer(struct raw *raw, uint32_t i)
{
	return (struct weir_to){i / raw->t.o.threads, i % raw->t.o.threads};
}

/* Waits after -EAGAIN. -ENOBUFS: the thread's own queue has to be read. */
static int
await_room(struct raw_thread *th)
{
	struct raw *raw = raw_of(th);
	bool any;

	/* a stage keeps what comes, so its queue never holds up others */
	if (raw->t.o.stage) {
		wake(raw, inbox_take(&th->inbox, &th->kept));
	} else {
		pthread_mutex_lock(&th->inbox.lock);
		any = th->inbox.list.head;
		pthread_mutex_unlock(&th->inbox.lock);
		if (any || th->mine.head)
			return -ENOBUFS;
	}
	return raw->ops->wait(th, WAIT_MS);
}

static int
push(struct raw_thread *th, uint32_t to, struct chunk *c, bool always)
{
	return raw_of(th)->ops->push(th, consumer(raw_of(th), to), c, always);
}

/* Sends the block of a consumer. -EAGAIN: no room, and it stays open. */
static int
send_open(struct raw_thread *th, uint32_t to)
{
	struct raw *raw = raw_of(th);
	struct envelope *e = &th->open[to], before = *e;
	struct frame_head head = {.from = (uint16_t)th->base.index,
				  .to = (uint16_t)(to % raw->t.o.threads)};
	struct chunk *c;
	int rc;

	c = envelope_close(e, raw->word, (uint64_t)raw->rank << 32 | th->base.index, head);
	if (!c)
		return 0;
	rc = push(th, to, c, false);
	if (rc)
		*e = before;
	return rc;
}

static int
put_open(struct raw_thread *th, uint32_t to, uint32_t partition, const struct weir_record *r)
{
	uint32_t block = raw_of(th)->t.o.shuffle.block;
	int rc;

	for (;;) {
		rc = envelope_add(&th->open[to], partition, r, block);
		if (rc == -ENOMEM)
			return weir_fail(rc, "no memory for a block; free some");
		if (!rc)
			return 0;
		rc = send_open(th, to);
		if (rc == -EAGAIN)
			rc = await_room(th);
		if (rc)
			return rc;
	}
}

static int
put_prompt(struct raw_thread *th, struct weir_to to, const struct weir_record *r)
{
	int rc;

	while ((rc = raw_of(th)->ops->send(th, to, r)) == -EAGAIN)
		if ((rc = await_room(th)))
			return rc;
	return rc;
}

static int
check(const struct weir_record *r)
{
	if ((uint64_t)r->key_length + r->value_length > WEIR_RECORD_MAX)
		return weir_fail(-EMSGSIZE, "a record has more than 16 MiB; cut it");
	return 0;
}

static int
put_to(struct transport_thread *t, struct weir_to to, const struct weir_record *r)
{
	struct raw_thread *th = own(t);
	struct raw *raw = raw_of(th);

	if (check(r))
		return -EMSGSIZE;
	if (raw->prompt)
		return put_prompt(th, to, r);
	return put_open(th, to.process * raw->t.o.threads + to.thread, UINT32_MAX, r);
}

static int
put(struct transport_thread *t, const struct weir_record *r)
{
	struct raw_thread *th = own(t);
	struct raw *raw = raw_of(th);
	const struct weir_shuffle_options *o = &raw->t.o.shuffle;
	uint32_t partition;

	if (check(r))
		return -EMSGSIZE;
	partition = o->partition ? o->partition(r->key, r->key_length, o->partitions, o->user)
				 : (uint32_t)(XXH3_64bits(r->key, r->key_length) % o->partitions);
	if (partition >= o->partitions)
		return weir_fail(-EINVAL, "the partition function named %u of %u partitions",
				 partition, o->partitions);
	if (raw->prompt)
		return put_prompt(th, consumer(raw, partition % raw->all), r);
	return put_open(th, partition % raw->all, partition, r);
}

static int
flush(struct transport_thread *t)
{
	struct raw_thread *th = own(t);
	struct raw *raw = raw_of(th);
	int rc = 0;

	while (th->flushed < raw->all && !(rc = send_open(th, th->flushed)))
		th->flushed++;
	if (!rc)
		rc = raw->ops->drain(th);
	if (!rc)
		th->flushed = 0;
	if (rc == -EAGAIN && raw->t.o.stage && !(rc = await_room(th)))
		rc = -EAGAIN;
	return rc == -EAGAIN ? -ENOBUFS : rc;
}

static int
begin(struct transport_thread *t, uint32_t map, uint32_t attempt)
{
	own(t)->producing = true;
	return 0;
}

/* Tells all consumers that this thread sends no more. */
static int
say_end(struct raw_thread *th)
{
	struct raw *raw = raw_of(th);

	for (; th->ended < raw->all; th->ended++) {
		struct weir_to to = consumer(raw, th->ended);
		struct frame_head head = {.from = (uint16_t)th->base.index,
					  .to = (uint16_t)to.thread};
		struct chunk *c;
		int rc;

		if (raw->senders < raw->all && to.process != raw->rank)
			continue; /* none: other processes are not there */
		c = chunk_new(sizeof(head));
		if (!c)
			return weir_fail(-ENOMEM, "no memory for the end; free some");
		memcpy(c->data, &head, sizeof(head));
		c->used = sizeof(head);
		rc = push(th, th->ended, c, true);
		if (rc) {
			free(c);
			return rc;
		}
	}
	th->producing = false;
	return 0;
}

/* A thread of a stage ends when it begins to read: it may have several map tasks. If one fails, the
 * job does. */
static int
end(struct transport_thread *t, bool ok)
{
	struct raw_thread *th = own(t);
	int rc;

	if (raw_of(th)->t.o.stage)
		return 0;
	rc = say_end(th);
	if (!rc)
		rc = raw_of(th)->ops->drain(th);
	return rc == -EAGAIN ? 0 : rc; /* the rest leaves in later calls */
}

/* ---- consuming ---- */

static int
malformed(void)
{
	return weir_fail(-EBADMSG, "a peer sent an invalid frame; see its output");
}

/* The next frame of the thread's chunks. 0, or -EAGAIN: none. */
static int
next_frame(struct raw_thread *th, struct frame_head *head, const uint8_t **content)
{
	struct chunk *c = th->mine.head;

	while (c && c->done == c->used) {
		c = chunks_pop(&th->mine);
		if (raw_of(th)->t.o.stage)
			chunks_push(&th->kept, c);
		else
			free(c);
		c = th->mine.head;
	}
	if (!c)
		return -EAGAIN;
	/* all chunks of inboxes hold whole frames */
	memcpy(head, c->data + c->done, sizeof(*head));
	*content = c->data + c->done + sizeof(*head);
	c->done += (uint32_t)sizeof(*head) + head->bytes;
	return 0;
}

/* A record of what has been taken from the inbox. 0, -EAGAIN: none; or -EBADMSG. */
static int
next_taken(struct raw_thread *th, struct weir_record *r)
{
	struct raw *raw = raw_of(th);
	struct frame_head head;
	const uint8_t *content;
	int rc;

	for (;;) {
		if (th->block.at) {
			rc = block_next(&th->block, r);
			if (rc != -ENODATA)
				return rc;
			th->block.at = NULL;
		}
		rc = next_frame(th, &head, &content);
		if (rc)
			return rc;
		if (!head.bytes) {
			th->ends++;
		} else if (raw->prompt) {
			return record_read(content, head.bytes, r) == head.bytes ? 0 : malformed();
		} else {
			rc = block_open(&th->block, content, head.bytes, raw->word);
			if (rc)
				return rc;
		}
	}
}

/* Takes what has come, or else waits for it. 0 or -errno. */
static int
refill(struct raw_thread *th, int timeout_ms)
{
	struct raw *raw = raw_of(th);
	int rc;

	wake(raw, inbox_take(&th->inbox, &th->mine));
	if (th->mine.head)
		return 0;
	rc = raw->ops->wait(th, timeout_ms);
	if (!rc)
		wake(raw, inbox_take(&th->inbox, &th->mine));
	return rc;
}

static int
next_record(struct raw_thread *th, struct weir_record *r, int timeout_ms)
{
	uint32_t senders = raw_of(th)->senders;
	int rc = next_taken(th, r);

	if (rc == -EAGAIN && th->ends < senders && !(rc = refill(th, timeout_ms)))
		rc = next_taken(th, r);
	return rc == -EAGAIN && th->ends >= senders ? -ENODATA : rc;
}

/* ---- stages ---- */

static int
compare_keys(const struct raw_item *a, const struct raw_item *b)
{
	uint32_t shorter = a->key_length < b->key_length ? a->key_length : b->key_length;
	int order;

	if (a->prefix != b->prefix)
		return a->prefix < b->prefix ? -1 : 1;
	order = memcmp(a->key, b->key, shorter);
	return order ? order : (a->key_length > b->key_length) - (a->key_length < b->key_length);
}

static int
compare_items(const void *x, const void *y)
{
	const struct raw_item *a = x, *b = y;

	if (a->partition != b->partition)
		return a->partition < b->partition ? -1 : 1;
	return compare_keys(a, b);
}

static uint64_t
prefix_of(const struct weir_record *r)
{
	uint64_t prefix = 0;

	memcpy(&prefix, r->key, r->key_length < 8 ? r->key_length : 8);
	return __builtin_bswap64(prefix);
}

/* Reads all that all producers sent to the thread, and sorts it. */
static int
gather(struct raw_thread *th)
{
	struct weir_record r;
	int rc = 0;

	if (th->producing || !th->ended)
		rc = say_end(th);
	wake(raw_of(th), inbox_take(&th->inbox, &th->kept));
	th->mine = th->kept;
	th->kept = (struct chunks){0};
	while (!rc && (rc = next_record(th, &r, WAIT_MS)) != -ENODATA) {
		if (rc == -EAGAIN) {
			rc = 0;
			continue;
		}
		if (rc)
			return rc;
		if (VEC_RESERVE(th->items, th->room, th->count + 1))
			return weir_fail(-ENOMEM, "no memory for all records; free some");
		th->items[th->count++] = (struct raw_item){.prefix = prefix_of(&r),
							   .key = r.key,
							   .key_length = r.key_length,
							   .value_length = r.value_length,
							   .partition = th->block.partition};
	}
	if (rc != -ENODATA)
		return rc;
	if (th->count)
		qsort(th->items, th->count, sizeof(*th->items), compare_items);
	th->gathered = true;
	return 0;
}

static int
start_read(struct transport_thread *t, uint32_t partition, uint32_t part, uint32_t parts)
{
	struct raw_thread *th = own(t);
	int rc = th->gathered ? 0 : gather(th);

	if (parts != 1)
		return weir_fail(-ENOTSUP,
				 "TCP and none read partitions as a whole; leave --parts out");
	if (rc)
		return rc;
	th->at = VEC_BEFORE((uint32_t)th->count, i, th->items[i].partition < partition);
	th->end = VEC_BEFORE((uint32_t)th->count, i, th->items[i].partition <= partition);
	th->key_end = th->end;
	th->by_key = false;
	return 0;
}

static int
next_key(struct transport_thread *t, const void **key, uint32_t *length)
{
	struct raw_thread *th = own(t);

	th->at = th->key_end = th->by_key ? th->key_end : th->at;
	th->by_key = true;
	if (th->at == th->end)
		return -ENODATA;
	while (th->key_end < th->end && !compare_keys(&th->items[th->at], &th->items[th->key_end]))
		th->key_end++;
	*key = th->items[th->at].key;
	*length = th->items[th->at].key_length;
	return 0;
}

static int
next(struct transport_thread *t, struct weir_record *r, int timeout_ms)
{
	struct raw_thread *th = own(t);
	struct raw_item *item;

	if (!raw_of(th)->t.o.stage)
		return next_record(th, r, timeout_ms);
	if (th->at == th->key_end)
		return -ENODATA;
	item = &th->items[th->at++];
	*r = (struct weir_record){item->key, item->key + item->key_length, item->key_length,
				  item->value_length};
	return 0;
}

static void
end_read(struct transport_thread *t, bool ok)
{
	own(t)->at = own(t)->key_end = own(t)->end = 0;
}

static bool
owns(struct transport_thread *t, uint32_t partition, uint32_t part)
{
	struct raw_thread *th = own(t);
	struct raw *raw = raw_of(th);
	struct weir_to to = consumer(raw, partition % raw->all);

	/* none: this process has the records of all others' threads */
	return to.thread == t->index && (raw->senders < raw->all || to.process == raw->rank);
}

/* ---- threads ---- */

static int
meet(struct transport_thread *t)
{
	struct raw *raw = raw_of(own(t));

	pthread_barrier_wait(&raw->barrier);
	if (!t->index)
		raw->failed = crew_barrier(raw->t.crew);
	pthread_barrier_wait(&raw->barrier);
	if (raw->failed && t->index)
		return weir_fail(raw->failed, "another process has ended; see its output");
	return raw->failed;
}

static int
enter(struct transport *t, uint32_t index, struct transport_thread **th)
{
	*th = &((struct raw *)t)->threads[index].base;
	return meet(*th);
}

static void
leave(struct transport_thread *t)
{
	struct raw_thread *th = own(t);

	while (raw_of(th)->ops->drain(th) == -EAGAIN && !raw_of(th)->ops->wait(th, 1))
		;
}

static void
totals(struct transport_thread *t, struct transport_totals *totals)
{
	*totals = (struct transport_totals){0};
}

static void
close_raw(struct transport *t)
{
	((struct raw *)t)->ops->close(t);
}

static const struct transport_ops raw_ops = {.close = close_raw,
					     .enter = enter,
					     .leave = leave,
					     .barrier = meet,
					     .totals = totals,
					     .begin = begin,
					     .put = put,
					     .put_to = put_to,
					     .flush = flush,
					     .end = end,
					     .next = next,
					     .owns = owns,
					     .read = start_read,
					     .key = next_key,
					     .read_end = end_read};

int
raw_open(struct raw *raw, struct crew *crew, const struct transport_options *o,
	 const struct raw_ops *ops, uint64_t word)
{
	int rc;

	raw->t = (struct transport){.ops = &raw_ops, .crew = crew, .o = *o};
	raw->ops = ops;
	raw->word = word;
	raw->rank = crew->rank;
	raw->processes = crew->size;
	raw->all = raw->senders = o->threads * crew->size;
	raw->prompt = o->shuffle.flags & WEIR_SHUFFLE_PROMPT;
	if (!raw->t.o.shuffle.block)
		raw->t.o.shuffle.block = 64u << 10;
	if (!raw->t.o.shuffle.partitions)
		raw->t.o.shuffle.partitions = raw->all;
	/* blocks come and go: their memory stays in the process */
	mallopt(M_MMAP_THRESHOLD, 64 << 20);
	mallopt(M_TRIM_THRESHOLD, 512 << 20);
	rc = -pthread_barrier_init(&raw->barrier, NULL, o->threads);
	if (rc)
		return weir_fail(rc, "cannot make a barrier; give less --threads");
	raw->threads = calloc(o->threads, sizeof(*raw->threads));
	for (uint32_t i = 0; raw->threads && i < o->threads; i++, raw->entered++) {
		struct raw_thread *th = &raw->threads[i];

		th->base = (struct transport_thread){&raw->t, i};
		th->open = calloc(raw->all, sizeof(*th->open));
		if (!th->open || inbox_init(&th->inbox, -1)) {
			free(th->open);
			break;
		}
	}
	if (raw->entered == o->threads)
		return 0;
	raw_close(raw);
	return weir_fail(-ENOMEM, "no memory for threads; give less --threads");
}

void
raw_close(struct raw *raw)
{
	for (uint32_t i = 0; i < raw->entered; i++) {
		struct raw_thread *th = &raw->threads[i];

		for (uint32_t k = 0; k < raw->all; k++)
			free(th->open[k].chunk);
		free(th->open);
		chunks_free(&th->mine);
		chunks_free(&th->kept);
		free(th->items);
		inbox_destroy(&th->inbox);
	}
	free(raw->threads);
	pthread_barrier_destroy(&raw->barrier);
}

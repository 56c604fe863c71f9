/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Envelopes: filled in the memory that they leave from. One leaves as the payload of a call when it
 * is full, old, or memory is short; without room on the line it waits, and those behind it.
 */
#include "format/block.h"
#include "store.h"

#include "base/monotonic.h"

#define ROOM_LEAST 4096u

static struct target *
target_of(struct weir_map *m, const struct envelope *e)
{
	return &m->targets[e->target];
}

/* ---- memory ---- */

static void
envelope_free(struct envelope *e)
{
	if (e->data)
		memory_give(e->m->t, MEMORY_TX, e->charged);
	memory_buffer_free(e->m->s, e->data, e->bytes);
	free(e);
}

static int
no_memory(void)
{
	return weir_fail(-ENOMEM, "no memory for a block; free some");
}

/*
 * Blocks that are not read yet go to files, if they take the memory. Without room there the thread
 * waits for those who read, unless it holds such blocks itself and has sent all others.
 */
static int
spill_for(const struct weir_map *m, uint64_t bytes, const struct wait *w)
{
	struct shuffle_thread *t = m->t;
	int rc;

	if (memory_is_free(t->s, bytes) || !store_fills(t->s))
		return 0;
	rc = store_spill(t, bytes, wait_left(w, 1));
	if (rc == -ENOBUFS && (m->in_flight || !TAILQ_EMPTY(&m->waiting) ||
			       !atomic_load_explicit(&t->held[MEMORY_RX], memory_order_relaxed)))
		rc = 0;
	return rc;
}

/* Waits until the thread may take as much; its envelopes leave meanwhile, the fullest first. */
static int
await_memory(struct weir_map *m, uint64_t bytes, const struct wait *w)
{
	struct shuffle_thread *t = m->t;
	struct account *a = &t->s->memory;
	struct wait none = {0};
	uint64_t begin;
	bool taken = false;
	int rc = 0;

	if (memory_take(t, MEMORY_TX, bytes))
		return 0;
	if (bytes > a->reserve[MEMORY_TX] && bytes > a->shared)
		return weir_fail(-EMSGSIZE, "a block of %llu bytes; `memory` has room for %llu",
				 (unsigned long long)bytes, (unsigned long long)a->shared);
	begin = monotonic_ns();
	atomic_store_explicit(&t->waits, true, memory_order_relaxed);
	/* pairs with the load in memory_give() */
	atomic_fetch_add_explicit(&a->waiting, 1, memory_order_seq_cst);
	do {
		/* what it holds itself is for it to read: it does not sleep then */
		bool holds = t->queue && !queue_is_empty(t->queue);

		envelope_leave_fullest(m);
		rc = spill_for(m, bytes, w);
		if (rc)
			break;
		taken = memory_take(t, MEMORY_TX, bytes);
		if (!taken)
			rc = shuffle_turn(t, holds ? &none : w);
		if (!taken && !rc)
			taken = memory_take(t, MEMORY_TX, bytes);
		if (!taken && !rc && holds)
			rc = no_buffers(t);
	} while (!taken && !rc && !wait_over(w));
	atomic_fetch_sub_explicit(&a->waiting, 1, memory_order_relaxed);
	atomic_store_explicit(&t->waits, false, memory_order_relaxed);
	shuffle_count(&t->n.put_wait_us, (monotonic_ns() - begin) / 1000u);
	if (taken)
		return 0;
	return rc ? rc
		  : weir_fail(-EAGAIN, "no memory for a block: consumers have not taken earlier "
				       "ones; try later");
}

/* An empty one with this room, whose memory is taken. */
static struct envelope *
make(struct weir_map *m, uint32_t target, uint32_t room, int *rc)
{
	struct envelope *e = calloc(1, sizeof(*e));
	uint8_t *data = e ? memory_buffer(m->s, room) : NULL;

	if (!data) {
		free(e);
		memory_give(m->t, MEMORY_TX, room);
		*rc = no_memory();
		return NULL;
	}
	*e = (struct envelope){.m = m,
			       .target = target,
			       .room = room,
			       .length = sizeof(struct block_head),
			       .since = monotonic_ns(),
			       .charged = room,
			       .bytes = room,
			       .data = data};
	return e;
}

/* ---- filling ---- */

static struct fragment_head *
fragment_of(struct envelope *e)
{
	return (struct fragment_head *)(void *)(e->data + e->fragment);
}

static void
fragment_begin(struct envelope *e, uint32_t partition, uint32_t flags)
{
	uint32_t at = pad8(e->length);

	memset(e->data + e->length, 0, at - e->length);
	e->fragment = at;
	*fragment_of(e) = (struct fragment_head){.partition = partition, .flags = flags};
	e->length = at + (uint32_t)sizeof(struct fragment_head);
	e->fragments++;
}

/* Bytes that a record of the partition takes, with padding at the end of the block. */
static uint64_t
need(struct envelope *e, uint32_t partition, uint32_t bytes)
{
	uint64_t length = e->length;

	if (!e->fragment || fragment_of(e)->partition != partition)
		length = pad8(e->length) + sizeof(struct fragment_head);
	return (length + bytes + 7u) & ~UINT64_C(7);
}

/* More room in e, if there is memory. */
static bool
grow(struct envelope *e, uint32_t least)
{
	uint32_t most = e->m->s->o.block, room = e->room;
	uint8_t *data;

	while (room < least)
		room *= 2;
	if (room > most)
		room = most;
	if (room < least || !memory_take(e->m->t, MEMORY_TX, room - e->room))
		return false;
	data = memory_buffer(e->m->s, room);
	if (!data) {
		memory_give(e->m->t, MEMORY_TX, room - e->room);
		return false;
	}
	memcpy(data, e->data, e->length);
	memory_buffer_free(e->m->s, e->data, e->bytes);
	e->data = data;
	e->bytes = room;
	e->charged += room - e->room;
	e->room = room;
	return true;
}

static void
open_envelope(struct weir_map *m, struct envelope *e)
{
	target_of(m, e)->open = e;
	m->open++;
	if (!m->oldest || e->since < m->oldest)
		m->oldest = e->since;
}

struct envelope *
envelope_room(struct weir_map *m, uint32_t target, uint32_t partition, uint32_t bytes,
	      const struct wait *w, int *rc)
{
	struct target *to = &m->targets[target];
	struct envelope *e = to->open;
	uint32_t most = m->s->o.block, room;

	if ((uint64_t)bytes + sizeof(struct block_head) + sizeof(struct fragment_head) + 7 > most)
		return envelope_alone(m, target, partition, 0, bytes, w, rc);
	if (e && is_sorted(m->s) && e->records >= sorted_records_max(m->s)) {
		envelope_leave(m, e);
		e = NULL;
	}
	if (e && need(e, partition, bytes) > e->room &&
	    !grow(e, (uint32_t)need(e, partition, bytes))) {
		envelope_leave(m, e);
		e = NULL;
	}
	if (!e) {
		/* as much as the last one took */
		room = to->last_room < ROOM_LEAST ? ROOM_LEAST : to->last_room;
		while (room < sizeof(struct block_head) + sizeof(struct fragment_head) + bytes + 7)
			room *= 2;
		room = room < most ? room : most; /* of pages, as a block is */
		*rc = await_memory(m, room, w);
		e = *rc ? NULL : make(m, target, room, rc);
		if (!e)
			return NULL;
		open_envelope(m, e);
	}
	if (!e->fragment || fragment_of(e)->partition != partition)
		fragment_begin(e, partition, 0);
	return e;
}

struct envelope *
envelope_alone(struct weir_map *m, uint32_t target, uint32_t partition, uint32_t flags,
	       uint32_t bytes, const struct wait *w, int *rc)
{
	uint32_t room =
	    (uint32_t)(sizeof(struct block_head) + sizeof(struct fragment_head)) + pad8(bytes);
	struct envelope *e;

	*rc = await_memory(m, room, w);
	if (*rc)
		return NULL;
	if (m->targets[target].open)
		envelope_leave(m, m->targets[target].open);
	e = make(m, target, room, rc);
	if (!e)
		return NULL;
	open_envelope(m, e);
	fragment_begin(e, partition, flags);
	return e;
}

void
envelope_wrote(struct envelope *e, uint32_t bytes, uint32_t records)
{
	struct fragment_head *f = fragment_of(e);

	f->bytes += bytes;
	f->records += records;
	e->length += bytes;
	e->records += records;
}

/* ---- leaving ---- */

/* Packs the fragments, if that pays and there is memory. */
static void
pack(struct envelope *e, struct block_head *h)
{
	const struct weir_shuffle_options *o = &e->m->s->o;
	uint32_t bound, n;
	uint8_t *data;

	if (o->codec == WEIR_CODEC_NONE)
		return;
	bound = memory_round(codec_bound(o->codec, h->raw) + (uint32_t)sizeof(*h));
	if (!memory_take(e->m->t, MEMORY_TX, bound))
		return;
	data = memory_buffer(e->m->s, bound);
	n = data ? codec_pack(&e->m->t->codec, &e->m->pace, o->codec, o->level,
			      e->data + sizeof(*h), h->raw, data + sizeof(*h))
		 : 0;
	if (!n) {
		memory_buffer_free(e->m->s, data, bound);
		memory_give(e->m->t, MEMORY_TX, bound);
		return;
	}
	memory_buffer_free(e->m->s, e->data, e->bytes);
	memory_give(e->m->t, MEMORY_TX, e->charged);
	e->data = data;
	e->charged = e->bytes = bound;
	h->codec = (uint8_t)o->codec;
	h->stored = n;
}

static bool
has_scratch(struct shuffle_thread *t)
{
	uint32_t block = t->s->o.block;

	if (!t->sorted)
		t->sorted = aligned_alloc(64, block);
	if (!t->scratch)
		t->scratch = malloc(sort_memory(sorted_records_max(t->s)));
	t->combined.most = block - sizeof(struct block_head);
	return t->sorted && t->scratch;
}

/* Sorts the records, and combines those of equal keys. 0 or -errno. */
static int
sort(struct envelope *e, struct block_head *h)
{
	struct weir_map *m = e->m;
	struct shuffle_thread *t = m->t;
	const struct weir_shuffle *s = m->s;
	struct combiner c = {s->o.combine, order_of(s)};
	uint8_t *raw = e->data + sizeof(*h);
	uint32_t before = h->records;
	int rc;

	if (h->records == 1) {
		h->flags = BLOCK_SORTED;
		return 0;
	}
	if (!has_scratch(t))
		return no_memory();
	rc = sort_block(h, raw, &c.order, t->scratch, t->sorted, h);
	if (rc)
		return rc;
	if (s->o.combine) {
		rc = combine_block(&c, h, t->sorted, &t->combined, h);
		if (rc && rc != -ENOMEM)
			return rc;
	}
	/* what a combiner makes larger goes as it was */
	memcpy(raw, s->o.combine && !rc ? t->combined.bytes : t->sorted, h->raw);
	shuffle_count(&t->n.combined, before - h->records);
	return 0;
}

/* The head of a block that is complete. 0, or why the program's functions spoil it. */
static int
seal(struct weir_map *m, struct envelope *e)
{
	struct target *to = target_of(m, e);
	uint32_t end = pad8(e->length), raw = end - (uint32_t)sizeof(struct block_head);
	struct block_head h = {.shuffle = m->s->word,
			       .map = m->map,
			       .attempt = m->attempt,
			       .number = to->numbers++,
			       .fragments = e->fragments,
			       .records = e->records,
			       .stored = raw,
			       .raw = raw,
			       .producer = producer_word(m->self),
			       .epoch = m->epoch};
	int rc = 0;

	memset(e->data + e->length, 0, end - e->length);
	if (is_sorted(m->s))
		rc = sort(e, &h);
	if (rc)
		return rc;
	h.stored = h.raw;
	pack(e, &h);
	h.checksum = block_checksum(&h, e->data + sizeof(h));
	memcpy(e->data, &h, sizeof(h));
	e->length = (uint32_t)sizeof(h) + h.stored;
	to->blocks++;
	to->records += h.records;
	to->sum += h.checksum;
	return 0;
}

void
envelope_leave(struct weir_map *m, struct envelope *e)
{
	struct target *to = target_of(m, e);
	int rc;

	to->open = NULL;
	m->open--;
	if (!e->records) { /* abandoned */
		envelope_free(e);
		return;
	}
	to->last_room = e->room < m->s->o.block ? e->room : m->s->o.block;
	rc = seal(m, e);
	if (rc) {
		m->status = m->status ? m->status : rc;
		envelope_free(e);
		return;
	}
	if (STAILQ_EMPTY(&to->waiting))
		TAILQ_INSERT_TAIL(&m->waiting, to, in_waiting);
	STAILQ_INSERT_TAIL(&to->waiting, e, next);
	envelopes_push(m);
}

void
envelopes_leave(struct weir_map *m)
{
	for (uint32_t i = 0; i < m->s->thread_count && m->open; i++)
		if (m->targets[i].open)
			envelope_leave(m, m->targets[i].open);
	m->oldest = 0;
}

void
envelopes_leave_late(struct weir_map *m)
{
	uint64_t now, delay = m->s->o.delay_us * UINT64_C(1000), oldest = 0;

	if (!m->open || m->s->o.kind != WEIR_SHUFFLE_STREAM || m->reserved.is)
		return;
	now = monotonic_ns();
	if (now - m->oldest < delay)
		return;
	for (uint32_t i = 0; i < m->s->thread_count && m->open; i++) {
		struct envelope *e = m->targets[i].open;

		if (e && now - e->since >= delay)
			envelope_leave(m, e);
		else if (e && (!oldest || e->since < oldest))
			oldest = e->since;
	}
	m->oldest = oldest;
}

bool
envelope_leave_fullest(struct weir_map *m)
{
	struct envelope *e, *fullest = NULL;

	for (uint32_t i = 0; i < m->s->thread_count && m->open; i++) {
		e = m->targets[i].open;
		if (e && e->records && (!fullest || e->length > fullest->length))
			fullest = e;
	}
	if (fullest)
		envelope_leave(m, fullest);
	return fullest;
}

/* ---- within the process ---- */

/* From now on the payload is known as an envelope of the process, by its place. Without a place the
 * receiver copies it. */
static void
enter_local(struct weir_shuffle *s, struct envelope *e)
{
	uint32_t i, n;

	pthread_mutex_lock(&s->local_lock);
	i = s->local_next;
	for (n = 0; n < LOCAL_MAX && s->local[i]; n++)
		i = (i + 1) % LOCAL_MAX;
	if (n < LOCAL_MAX) {
		s->local[i] = e;
		e->local = i + 1;
		s->local_next = (i + 1) % LOCAL_MAX;
	}
	pthread_mutex_unlock(&s->local_lock);
}

static void
leave_local(struct envelope *e)
{
	struct weir_shuffle *s = e->m->s;

	if (!e->local)
		return;
	pthread_mutex_lock(&s->local_lock);
	s->local[e->local - 1] = NULL;
	pthread_mutex_unlock(&s->local_lock);
	e->local = 0;
}

uint8_t *
envelope_take(struct shuffle_thread *t, uint32_t local, const void *payload, uint32_t *bytes,
	      uint64_t *charged)
{
	struct weir_shuffle *s = t->s;
	uint8_t *data = NULL;
	struct envelope *e;

	pthread_mutex_lock(&s->local_lock);
	e = local && local <= LOCAL_MAX ? s->local[local - 1] : NULL;
	if (e && e->data == payload) {
		data = e->data;
		*bytes = e->bytes;
		*charged = e->charged;
		memory_move(e->m->t, t, e->charged);
		e->data = NULL; /* has_left() sees it: the end of the call lies between */
	}
	pthread_mutex_unlock(&s->local_lock);
	return data;
}

/* ---- on the way ---- */

/* The memory may be used again; STAGE: or the block lies with its consumer. */
static void
has_left(struct weir_sync *sync, void *user)
{
	struct envelope *e = user;
	struct weir_map *m = e->m;
	uint64_t failed;

	leave_local(e);
	weir_sync_left(sync, &failed);
	if (failed && !m->status) {
		m->status = -EHOSTUNREACH;
		m->lost_to = e->target;
	}
	m->in_flight--;
	target_of(m, e)->in_flight--;
	target_of(m, e)->blocked = false;
	envelope_free(e);
}

/* Sends one. 0, -EAGAIN: there is no room now; or why it is lost, and freed. */
static int
send_one(struct weir_map *m, struct target *to, struct envelope *e)
{
	struct block_args args = {.shuffle = m->s->number};
	struct weir_call_options o = {.flags = WEIR_CALL_FULL_FAILS,
				      .sync = &e->sync,
				      .payload = e->data,
				      .payload_length = e->length};
	uint64_t bytes = e->length;
	struct wait none = {0};
	int rc = to->blocked ? -EAGAIN : target_line(m, e->target, &none);

	if (rc == -EAGAIN)
		return rc;
	if (m->s->o.kind == WEIR_SHUFFLE_STREAM)
		o.flags |= WEIR_CALL_SYNC_SENT;
	weir_sync_init(&e->sync, 1, has_left, e);
	if (thread_of_number(m->s, e->target).process == m->s->self)
		enter_local(m->s, e);
	args.local = e->local;
	m->in_flight++;
	to->in_flight++;
	STAILQ_REMOVE_HEAD(&to->waiting, next);
	if (!rc)
		rc = weir_call(m->s->v, thread_of_number(m->s, e->target), m->s->function_block,
			       &args, sizeof(args), &o);
	if (!rc) {
		shuffle_count(&m->t->n.blocks, 1);
		shuffle_count(&m->t->n.sent_bytes, bytes);
		return 0;
	}
	m->in_flight--;
	to->in_flight--;
	leave_local(e);
	if (rc == -EAGAIN) {
		/* the end of one of those tells that there is room */
		to->blocked = to->in_flight;
		STAILQ_INSERT_HEAD(&to->waiting, e, next);
		return rc;
	}
	if (!m->status) {
		m->status = rc;
		m->lost_to = e->target;
	}
	envelope_free(e);
	return rc;
}

void
envelopes_push(struct weir_map *m)
{
	struct target *to, *next;

	for (to = TAILQ_FIRST(&m->waiting); to; to = next) {
		next = TAILQ_NEXT(to, in_waiting);
		while (!STAILQ_EMPTY(&to->waiting) &&
		       send_one(m, to, STAILQ_FIRST(&to->waiting)) != -EAGAIN)
			;
		if (STAILQ_EMPTY(&to->waiting))
			TAILQ_REMOVE(&m->waiting, to, in_waiting);
	}
}

int
map_state(const struct weir_map *m)
{
	if (m->status == -EINVAL)
		return weir_fail(-EINVAL, "the combiner has emitted another key, or has failed");
	if (!m->status)
		return 0;
	return shuffle_failed(m->s, m->status, thread_of_number(m->s, m->lost_to).process);
}

int
envelopes_await(struct weir_map *m, const struct wait *w)
{
	struct wait none = {0};
	int rc = 0;

	envelopes_push(m);
	while ((m->in_flight || !TAILQ_EMPTY(&m->waiting)) && !rc) {
		/* peers may wait for what it has not read: it does not sleep then */
		bool holds = m->t->queue && !queue_is_empty(m->t->queue);

		rc = shuffle_turn(m->t, holds ? &none : w);
		if (!rc && holds && (m->in_flight || !TAILQ_EMPTY(&m->waiting)))
			rc = no_buffers(m->t);
		if (!rc && wait_over(w) && (m->in_flight || !TAILQ_EMPTY(&m->waiting)))
			rc = weir_fail(-EAGAIN, "consumers have not taken all blocks in time; "
						"call again");
	}
	return rc ? rc : map_state(m);
}

void
envelopes_drop(struct weir_map *m)
{
	struct target *to;
	struct envelope *e;

	for (uint32_t i = 0; i < m->s->thread_count; i++) {
		if (m->targets[i].open)
			envelope_free(m->targets[i].open);
		m->targets[i].open = NULL;
	}
	m->open = 0;
	while ((to = TAILQ_FIRST(&m->waiting))) {
		TAILQ_REMOVE(&m->waiting, to, in_waiting);
		while ((e = STAILQ_FIRST(&to->waiting))) {
			STAILQ_REMOVE_HEAD(&to->waiting, next);
			envelope_free(e);
		}
	}
}

int
target_line(struct weir_map *m, uint32_t target, const struct wait *w)
{
	struct target *to = &m->targets[target];
	struct weir_to thread;
	int rc;

	if (to->line)
		return 0;
	thread = thread_of_number(m->s, target);
	for (;;) {
		rc = weir_line_open(m->s->v, thread, NULL, 0, &to->line);
		if (rc)
			to->line = NULL;
		if (rc != -EAGAIN)
			return rc ? shuffle_failed(m->s, rc, thread.process) : 0;
		if (wait_over(w))
			return rc;
		rc = shuffle_turn(m->t, w);
		if (rc)
			return rc;
	}
}

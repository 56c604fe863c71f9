/* SPDX-License-Identifier: BSD-3-Clause */
/* Producing. */
#include "shuffle.h"

#include "core.h"
#include "base/monotonic.h"
#include "format/block.h"

#include <xxhash.h>

#define SLEEP_MS 10
#define LOOK 256u /* puts */

/* ---- the handle ---- */

static int
check_begin(struct shuffle_thread *t, uint32_t map, uint32_t attempt)
{
	const struct weir_shuffle *s = t->s;
	bool stream = s->o.kind == WEIR_SHUFFLE_STREAM;

	if (stream && t->maps_open)
		return weir_fail(-EBUSY, "the thread is a producer already; end that first");
	if (stream ? map || attempt : map >= s->o.maps)
		return weir_fail(-EINVAL, "map %u attempt %u; give %s", map, attempt,
				 stream ? "0 and 0 for a STREAM" : "a map below `maps`");
	if (attempt >= WEIR_SHUFFLE_ATTEMPTS_MAX)
		return weir_fail(-EINVAL, "attempt %u; give a number below %u", attempt,
				 WEIR_SHUFFLE_ATTEMPTS_MAX);
	return stream ? 0 : commit_begin(t->s, map, attempt);
}

int
weir_map_begin(struct weir_shuffle *s, uint32_t map, uint32_t attempt, struct weir_map **handle)
{
	struct shuffle_thread *t = shuffle_own(s);
	struct weir_map *m;
	int rc;

	if (!t)
		return -EPERM;
	rc = shuffle_state(s);
	if (!rc)
		rc = check_begin(t, map, attempt);
	if (rc)
		return rc;
	m = calloc(1, sizeof(*m));
	if (m)
		m->targets = calloc(s->thread_count, sizeof(*m->targets));
	if (!m || !m->targets) {
		free(m);
		return weir_fail(-ENOMEM, "no memory for a producer; free some");
	}
	m->s = s;
	m->t = t;
	m->self = (struct weir_to){s->self, t->index};
	m->map = map;
	m->attempt = attempt;
	/* pairs with the release in move.c: the owners are those of this epoch, or later */
	m->epoch = atomic_load_explicit(&s->epoch, memory_order_acquire);
	TAILQ_INIT(&m->waiting);
	for (uint32_t i = 0; i < s->thread_count; i++)
		STAILQ_INIT(&m->targets[i].waiting);
	LIST_INSERT_HEAD(&t->maps, m, in_thread);
	t->maps_open++;
	*handle = m;
	return 0;
}

struct weir_shuffle *
map_shuffle(const struct weir_map *m)
{
	return m->s;
}

/* Blocks that have left may still be read behind a wait that has failed: their lines end soon, or
 * all of the shuffle stays. */
static void
map_free(struct weir_map *m)
{
	uint64_t end = monotonic_ns() + UINT64_C(1000000000);

	envelopes_drop(m);
	LIST_REMOVE(m, in_thread);
	m->t->maps_open--;
	while (m->in_flight && monotonic_ns() < end &&
	       weir_invoker_progress(m->s->v, 1, SLEEP_MS) >= 0)
		;
	if (m->in_flight) {
		atomic_store_explicit(&m->s->stays, true, memory_order_relaxed);
		return;
	}
	free(m->reserved.prompt);
	free(m->targets);
	free(m);
}

/* ---- where records go ---- */

static uint32_t
partition_of_key(const struct weir_shuffle *s, const void *key, uint32_t length)
{
	if (s->o.partition)
		return s->o.partition(key, length, s->o.partitions, s->o.user);
	return (uint32_t)((uint64_t)(uint32_t)(XXH3_64bits(key, length) >> 32) * s->o.partitions >>
			  32);
}

static int
check_put(struct weir_map *m, uint32_t partition, uint64_t length)
{
	const struct weir_shuffle *s = m->s;

	if (length > WEIR_RECORD_MAX)
		return weir_fail(-EMSGSIZE, "a record of %llu bytes; give at most %u",
				 (unsigned long long)length, WEIR_RECORD_MAX);
	if (partition >= s->o.partitions && partition != PARTITION_OF_THREAD)
		return weir_fail(-EINVAL, "partition %u of %u; give a number below that", partition,
				 s->o.partitions);
	if (m->reserved.is)
		return weir_fail(-EINVAL, "a record is reserved; commit it first");
	/* a producer that never waits learns of an end, too */
	if (atomic_load_explicit(&s->over, memory_order_relaxed) || !(++m->puts % LOOK))
		return shuffle_state(m->s);
	return m->status ? map_state(m) : map_stale(m);
}

/* ---- one record ---- */

/* Whether calls may run while the thread waits for room. */
static bool
may_wait(const struct shuffle_thread *t)
{
	return queue_is_empty(t->queue) || memory_may_wait(t);
}

/* A record leaves as a call. Its wait for room runs calls, which end it when they leave no memory.
 */
static int
send_prompt(struct weir_map *m, uint32_t target, const void *args, size_t length,
	    const struct wait *w)
{
	struct weir_shuffle *s = m->s;
	struct target *to = &m->targets[target];
	struct weir_call_options o = {0};
	int rc = to->line ? 0 : target_line(m, target, w);

	while (!rc) {
		if (!STAILQ_EMPTY(&to->waiting)) { /* a larger record, which came before */
			rc = -EAGAIN;
		} else if (w->end == UINT64_MAX && may_wait(m->t)) {
			rc = weir_line_call(to->line, s->function_records, args, length);
		} else {
			o.timeout_ms = may_wait(m->t) ? wait_left(w, INT32_MAX) : 0;
			o.flags = o.timeout_ms ? 0 : WEIR_CALL_FULL_FAILS;
			rc = weir_call(s->v, thread_of_number(s, target), s->function_records, args,
				       length, &o);
		}
		if (!rc) {
			to->records++;
			return 0;
		}
		if (rc != -EAGAIN)
			break;
		/* room to send, or no memory to receive */
		rc = shuffle_turn(m->t, &(struct wait){0});
		if (!rc && !may_wait(m->t))
			rc = no_buffers(m->t);
		if (!rc && wait_over(w))
			return weir_fail(-EAGAIN,
					 "no room on the way to thread %u of process %u; "
					 "it has not read earlier records",
					 thread_of_number(s, target).thread,
					 thread_of_number(s, target).process);
	}
	return rc == -ENOBUFS || rc == -EAGAIN
		   ? rc
		   : shuffle_failed(s, rc, thread_of_number(s, target).process);
}

static int
put_prompt(struct weir_map *m, uint32_t target, uint32_t partition, const struct weir_record *r,
	   const struct wait *w)
{
	struct record_args head = {m->s->number, partition, r->key_length};
	uint8_t args[WEIR_ARGS_MAX];
	uint8_t *at = args + sizeof(head);

	memcpy(args, &head, sizeof(head));
	if (r->key_length)
		memcpy(at, r->key, r->key_length);
	at += r->key_length;
	if (r->value_length)
		memcpy(at, r->value, r->value_length);
	return send_prompt(m, target, args, (size_t)(at - args) + r->value_length, w);
}

static inline bool
goes_alone(const struct weir_map *m, uint64_t length)
{
	return m->s->o.flags & WEIR_SHUFFLE_PROMPT && length <= RECORD_ARGS_MAX;
}

/* A record of `bytes` bytes has been written into e. */
static void
wrote(struct weir_map *m, struct envelope *e, uint32_t bytes)
{
	const struct weir_shuffle_options *o = &m->s->o;

	envelope_wrote(e, bytes, 1);
	if (o->flags & WEIR_SHUFFLE_PROMPT || e->length + bytes / 2 > o->block)
		envelope_leave(m, e);
	else if (!(m->puts % 32))
		envelopes_leave_late(m);
}

static void
counted(struct weir_map *m, uint64_t records, uint64_t bytes)
{
	shuffle_count(&m->t->n.pushed, records);
	shuffle_count(&m->t->n.pushed_bytes, bytes);
}

static int
put(struct weir_map *m, uint32_t target, uint32_t partition, const struct weir_record *r,
    int timeout_ms)
{
	uint64_t length = (uint64_t)r->key_length + r->value_length;
	int rc = check_put(m, partition, length);
	struct wait w = wait_begin(timeout_ms);
	struct envelope *e;
	uint32_t bytes;

	if (rc)
		return rc;
	if (goes_alone(m, length)) {
		rc = put_prompt(m, target, partition, r, &w);
	} else {
		bytes = record_size(r->key_length, r->value_length);
		e = envelope_room(m, target, partition, bytes, &w, &rc);
		if (e) {
			record_write(e->data + e->length, r);
			wrote(m, e, bytes);
		}
	}
	if (!rc)
		counted(m, 1, length);
	return rc;
}

int
weir_map_put(struct weir_map *m, const struct weir_record *r, int timeout_ms)
{
	uint64_t length = (uint64_t)r->key_length + r->value_length;
	uint32_t partition = 0, target;

	/* a key that is too long is not looked at */
	if (length <= WEIR_RECORD_MAX)
		partition = partition_of_key(m->s, r->key, r->key_length);
	target = partition < m->s->o.partitions ? owner_of(m->s, partition) : 0;
	return put(m, target, partition, r, timeout_ms);
}

int
weir_map_put_to(struct weir_map *m, struct weir_to to, const struct weir_record *r, int timeout_ms)
{
	const struct weir_shuffle *s = m->s;

	if (s->o.kind != WEIR_SHUFFLE_STREAM)
		return weir_fail(-EINVAL, "a STAGE has partitions alone; use weir_map_put()");
	if (to.process >= s->processes || to.thread >= weir_invoker_threads(s->v, to.process))
		return weir_fail(-ENOENT, "no thread %u of process %u", to.thread, to.process);
	return put(m, thread_number(s, to), PARTITION_OF_THREAD, r, timeout_ms);
}

/* ---- in place ---- */

int
weir_map_reserve(struct weir_map *m, uint32_t partition, uint32_t key_length, uint32_t value_length,
		 int timeout_ms, void **key, void **value)
{
	uint64_t length = (uint64_t)key_length + value_length;
	int rc = check_put(m, partition, length);
	struct wait w = wait_begin(timeout_ms);
	uint32_t bytes;
	uint8_t *at;

	if (!rc && partition == PARTITION_OF_THREAD)
		rc = weir_fail(-EINVAL, "partition %u; give a number below %u", partition,
			       m->s->o.partitions);
	if (rc)
		return rc;
	m->reserved.target = owner_of(m->s, partition);
	m->reserved.partition = partition;
	m->reserved.key_length = key_length;
	m->reserved.value_length = value_length;
	m->reserved.e = NULL;
	if (goes_alone(m, length)) {
		if (!m->reserved.prompt)
			m->reserved.prompt = malloc(WEIR_ARGS_MAX);
		if (!m->reserved.prompt)
			return weir_fail(-ENOMEM, "no memory for a record; free some");
		at = m->reserved.prompt + sizeof(struct record_args);
	} else {
		bytes = record_size(key_length, value_length);
		m->reserved.e = envelope_room(m, m->reserved.target, partition, bytes, &w, &rc);
		if (!m->reserved.e)
			return rc;
		at = m->reserved.e->data + m->reserved.e->length;
		at += compact_size(key_length) + compact_size(value_length);
	}
	m->reserved.is = true;
	*key = at;
	*value = at + key_length;
	return 0;
}

/* The record lies behind the numbers of the lengths that were reserved. */
static void
commit_in_place(struct weir_map *m, uint32_t key_length, uint32_t value_length)
{
	struct envelope *e = m->reserved.e;
	uint8_t *at = e->data + e->length, *key = at, *value;
	uint32_t bytes = record_size(key_length, value_length);

	key += compact_size(m->reserved.key_length) + compact_size(m->reserved.value_length);
	value = key + m->reserved.key_length;
	at += compact_write(at, key_length);
	at += compact_write(at, value_length);
	memmove(at, key, key_length);
	memmove(at + key_length, value, value_length);
	wrote(m, e, bytes);
}

static int
commit_prompt(struct weir_map *m, uint32_t key_length, uint32_t value_length)
{
	struct record_args head = {m->s->number, m->reserved.partition, key_length};
	uint8_t *key = m->reserved.prompt + sizeof(head);

	memcpy(m->reserved.prompt, &head, sizeof(head));
	memmove(key + key_length, key + m->reserved.key_length, value_length);
	m->reserved.key_length = key_length; /* it may be committed again */
	m->reserved.value_length = value_length;
	return send_prompt(m, m->reserved.target, m->reserved.prompt,
			   sizeof(head) + key_length + value_length,
			   &(struct wait){.end = UINT64_MAX});
}

int
weir_map_commit_record(struct weir_map *m, uint32_t key_length, uint32_t value_length)
{
	int rc = 0;

	if (!m->reserved.is)
		return weir_fail(-EINVAL, "no record is reserved");
	if (key_length > m->reserved.key_length || value_length > m->reserved.value_length)
		return weir_fail(-EINVAL, "lengths of %u and %u; reserved are %u and %u",
				 key_length, value_length, m->reserved.key_length,
				 m->reserved.value_length);
	m->reserved.is = false;
	if (!key_length && !value_length) {
		if (m->reserved.e && !m->reserved.e->records)
			envelope_leave(m, m->reserved.e);
		return 0;
	}
	if (m->reserved.e)
		commit_in_place(m, key_length, value_length);
	else
		rc = commit_prompt(m, key_length, value_length);
	m->reserved.is = rc == -ENOBUFS || rc == -EINTR;
	if (!rc)
		counted(m, 1, (uint64_t)key_length + value_length);
	return rc;
}

/* ---- blocks of the program ---- */

int
weir_map_put_block(struct weir_map *m, uint32_t partition, const void *data, size_t length,
		   uint32_t records, int timeout_ms)
{
	const struct weir_shuffle *s = m->s;
	struct wait w = wait_begin(timeout_ms);
	struct envelope *e;
	int rc = check_put(m, partition, length);

	if (!rc &&
	    (partition == PARTITION_OF_THREAD || !records || records > length ||
	     s->o.flags & (WEIR_SHUFFLE_PROMPT | WEIR_SHUFFLE_SORTED | WEIR_SHUFFLE_GROUPED)))
		rc = weir_fail(-EINVAL,
			       "a block of %u records in %zu bytes for partition %u; give "
			       "one to `length` records, and no PROMPT, SORTED or GROUPED",
			       records, length, partition);
	if (rc)
		return rc;
	e = envelope_alone(m, owner_of(s, partition), partition, FRAGMENT_OPAQUE, (uint32_t)length,
			   &w, &rc);
	if (!e)
		return rc;
	memcpy(e->data + e->length, data, length);
	envelope_wrote(e, (uint32_t)length, records);
	envelope_leave(m, e);
	counted(m, records, length);
	return 0;
}

/* ---- the end ---- */

int
weir_map_flush(struct weir_map *m, int timeout_ms)
{
	struct wait w = wait_begin(timeout_ms);

	if (m->reserved.is)
		return weir_fail(-EINVAL, "a record is reserved; commit it first");
	envelopes_leave(m);
	weir_invoker_flush(m->s->v);
	return envelopes_await(m, &w);
}

/* STREAM: tells each thread how many records came to it. */
static int
say_end(struct weir_map *m)
{
	struct weir_shuffle *s = m->s;
	struct say_args a = {.kind = SAY_END};
	int rc;

	/* Goes on where it was interrupted. Itself last: until then its own queue has no end. */
	while (m->told < s->thread_count) {
		struct weir_call_options o = {.flags = WEIR_CALL_FULL_FAILS};
		uint32_t i = (thread_number(s, m->self) + 1 + m->told) % s->thread_count;
		struct weir_to to = thread_of_number(s, i);

		a.records = m->targets[i].records;
		rc = say(s, to, &a, &o);
		if (!rc)
			m->told++;
		else if (rc == -EAGAIN)
			rc = may_wait(m->t)
				 ? shuffle_turn(m->t,
						&(struct wait){.end = monotonic_ns() + 1000000u})
				 : no_buffers(m->t);
		else
			rc = shuffle_failed(s, rc, to.process);
		if (rc)
			return rc;
	}
	return 0;
}

int
weir_map_end(struct weir_map *m, bool ok)
{
	struct wait w = {.end = UINT64_MAX};
	int rc;

	if (m->reserved.is)
		return weir_fail(-EINVAL, "a record is reserved; commit it first");
	if (m->s->o.kind == WEIR_SHUFFLE_STREAM) {
		envelopes_leave(m);
		rc = envelopes_await(m, &w);
		if (!rc)
			rc = say_end(m);
	} else {
		rc = commit_attempt(m, ok);
	}
	if (rc == -ENOBUFS || rc == -EINTR)
		return rc;
	if (!rc)
		weir_invoker_flush(m->s->v);
	map_free(m);
	return rc;
}

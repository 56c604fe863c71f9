/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Making calls. A call leaves alone, or is packed into the line's open batch; without room it waits
 * in the line's queue, and its thread for it. The inline path writes behind the last call of the
 * open run and comes back here every LOOK bytes, to look whether the batch shall leave.
 */
#include "batch.h"
#include "line.h"

#include "client/likely.h"
#include "client/reason.h"
#include "client/session.h"
#include "client/wait.h"

#include <errno.h>
#include <stdlib.h>

#define LOOK 1024u /* bytes of calls between two looks */
static_assert(WEIR_BATCH_MAX / 8 <= UINT16_MAX, "a run has at most as many calls as its head says");

static const uint8_t zeros[8];

static_assert(WEIR_PAYLOAD_MAX < UINT32_MAX, "struct payload_args");
static_assert(PAYLOAD_PIECE <= WEIR_MESSAGE_WHOLE, "a piece is one message");

/* Whether earlier calls have left far enough that one more need not be packed. */
static bool
path_is_free(struct line *l)
{
	return l->receiver ? inbox_is_free(l->thread, l->receiver->index)
			   : message_lane_is_free(l->lane);
}

/* ---- waiting ---- */

/* Calls run meanwhile, and may make calls on the line. */

static int
no_room(const struct line *l)
{
	return weir_fail(-EAGAIN,
			 "no room on the line to thread %u of process %u; it has not run earlier "
			 "calls, try later",
			 l->to.thread, l->to.process);
}

/* Connects the line. 0, -EAGAIN, or why not. */
static int
connect_line(struct line *l, int timeout_ms)
{
	struct invoke_thread *t = l->thread;
	uint64_t end = weir_time_end(timeout_ms);
	int rc, left;

	l->status = 0;
	rc = message_lane_connect(l->lane, 0);

	while (rc == -EAGAIN && timeout_ms) {
		left = weir_time_left(end);
		if (!left || t->wait_ends)
			return no_room(l);
		t->connecting = l;
		t->connected = -EAGAIN;
		rc = thread_turn(t, 1, left);
		t->connecting = NULL;
		if (rc < 0)
			return rc;
		rc = t->connected;
	}
	if (rc && rc != -EAGAIN)
		return line_failed(l, rc);
	l->connected = !rc;
	return rc;
}

/* Calls that the line had accepted were lost while its thread waited. */
static int
was_lost(const struct line *l)
{
	if (!l->status)
		return 0;
	return weir_fail(l->status, "the line to thread %u of process %u was lost: %s; call again",
			 l->to.thread, l->to.process, strerror(-l->status));
}

/* Waits until all batches up to that place have left. 0, -EAGAIN: not in time, or why not. */
static int
await_queue(struct line *l, uint64_t place, int timeout_ms)
{
	uint64_t end = weir_time_end(timeout_ms);
	int rc = 0, left;

	l->status = 0;
	while (!rc && l->first && l->first->place <= place) {
		left = weir_time_left(end);
		if (!left || l->thread->wait_ends)
			return no_room(l);
		/* one message per turn: a function may end the wait behind it */
		rc = thread_turn(l->thread, 1, left);
		rc = rc < 0 ? rc : was_lost(l);
	}
	return rc;
}

/* ---- calls ---- */

/* One small call goes straight to the lane's ring. -EAGAIN: there is no room, or it is large. */
static inline __attribute__((always_inline)) int
put_one(struct line *l, uint32_t number, uint32_t run_flags, uint64_t id, const void *args,
	size_t length)
{
	uint64_t tag = message_tag_word(KIND_CALLS, 0, 0, l->thread->index),
		 head = run_head_word(number, run_flags, (uint32_t)length, 1);
	uint8_t both[MESSAGE_PUT_MAX];

	if (weir_unlikely(length > MESSAGE_PUT_MAX - (id ? sizeof(id) : 0)))
		return -EAGAIN;
	if (!id)
		return message_lane_put(l->lane, tag, head, args, (uint32_t)length);
	memcpy(both, &id, sizeof(id));
	if (length)
		memcpy(both + sizeof(id), args, length);
	return message_lane_put(l->lane, tag, head, both, (uint32_t)(sizeof(id) + length));
}

/* One call to a thread of the process, on its own. */
static __attribute__((noinline)) int
hand_over_alone(struct line *l, const struct call *c)
{
	struct batch *b = batch_make(l->thread, RUN_HEAD + run_stride(c->length, c->run_flags));
	uint64_t head = run_head_word(c->number, c->run_flags, c->length, 1);
	uint32_t id_bytes = c->id ? sizeof(c->id) : 0;
	int rc;

	if (!b)
		return invoke_no_memory();
	memcpy(b->data, &head, RUN_HEAD);
	memcpy(b->data + RUN_HEAD, &c->id, id_bytes);
	if (c->length)
		memcpy(b->data + RUN_HEAD + id_bytes, c->args, c->length);
	b->length = RUN_HEAD + id_bytes + c->length;
	b->calls = 1;
	rc = inbox_put(l->thread, l->receiver, b);
	if (rc)
		batch_free(b);
	return rc;
}

/* One call to another process, however long. */
static __attribute__((noinline)) int
send_parts(struct line *l, const struct call *c)
{
	uint64_t head = run_head_word(c->number, c->run_flags, c->length, 1);
	struct iovec parts[3] = {{&head, RUN_HEAD},
				 {(void *)(uintptr_t)&c->id, c->id ? sizeof(c->id) : 0},
				 {(void *)(uintptr_t)c->args, c->length}};
	struct message_tag tag = {.kind = KIND_CALLS, .value = l->thread->index};

	return message_lane_send(l->lane, &tag, parts, 3, 0);
}

/* Sends one call alone, without waiting. */
static int
send_alone(struct line *l, const struct call *c)
{
	int rc = -EAGAIN;

	/* before it leaves: it is in `sent` when it has run */
	invoke_count(&l->thread->sent, 1);
	if (l->receiver) {
		rc = hand_over_alone(l, c);
	} else if (weir_likely(l->connected)) {
		rc = put_one(l, c->number, c->run_flags, c->id, c->args, c->length);
		if (rc == -EAGAIN)
			rc = send_parts(l, c);
	}
	if (weir_unlikely(rc)) {
		invoke_count(&l->thread->sent, -UINT64_C(1));
		if (rc == -EAGAIN || (rc == -ENOMEM && l->receiver))
			return rc;
		rc = line_failed(l, rc);
		return line_lose(l, rc);
	}
	invoke_count(&l->thread->counters.made, !(c->flags & CALL_LIBRARY));
	invoke_count(&l->thread->counters.messages, 1);
	return 0;
}

/* Whether a call without a sync is not packed if there is room. */
static inline bool
leaves_alone(struct line *l, uint32_t flags)
{
	uint32_t mode = l->batching.mode;

	return !l->open && !l->first &&
	       (mode == WEIR_BATCH_EAGER || mode == WEIR_BATCH_OVERFLOW || flags & WEIR_CALL_NOW ||
		(mode == WEIR_BATCH_AUTO && path_is_free(l)));
}

/* Whether put_now() is for the line's calls without options. */
static inline __attribute__((always_inline)) bool
is_put(struct line *l)
{
	return weir_likely(l->lane && l->connected && leaves_alone(l, 0));
}

/* The common case of send_alone(). -EAGAIN: call_make() makes the call. */
static inline __attribute__((always_inline)) int
put_now(struct line *l, uint32_t number, uint32_t run_flags, uint64_t id, const void *args,
	size_t length, bool of_program)
{
	struct invoke_thread *t = l->thread;

	/* before it leaves: it is in `sent` when it has run */
	invoke_count(&t->sent, 1);
	if (weir_unlikely(put_one(l, number, run_flags, id, args, length))) {
		invoke_count(&t->sent, -UINT64_C(1));
		return -EAGAIN;
	}
	if (of_program)
		invoke_count(&t->counters.made, 1);
	invoke_count(&t->counters.messages, 1);
	return 0;
}

static bool
waits(const struct line *l, const struct call *c)
{
	return !thread_is_inside(l->thread) && !(c->flags & CALL_LIBRARY);
}

static bool
is_of_open_run(const struct line *l, const struct call *c)
{
	return l->head && l->number == c->number && l->function == c->function &&
	       l->length == c->length && l->flags == c->run_flags;
}

static int
queue_is_full(const struct weir_invoker *v)
{
	return weir_fail(-EAGAIN,
			 "calls of queue_bytes, %llu, wait for room; make fewer, or raise that",
			 (unsigned long long)v->o.queue_bytes);
}

/* Results have room where calls of functions have none any more; but a peer that expects more and
 * more, and takes none, does not use up the memory. */
static uint64_t
queue_bound(const struct weir_invoker *v, const struct call *c)
{
	return c->flags & CALL_LIBRARY ? 2 * v->o.queue_bytes : v->o.queue_bytes;
}

/* Room in the open batch, opened if necessary, for a call. */
static int
make_room(struct line *l, const struct call *c)
{
	uint32_t stride = run_stride(c->length, c->run_flags) + c->behind, need, room;
	struct weir_invoker *v = l->thread->v;
	int rc;

	for (;;) {
		need = stride + (is_of_open_run(l, c) ? 0 : RUN_HEAD);
		if (l->open && (size_t)(l->open->data + l->open->room - l->fast.at) >= need)
			return 0;
		if (l->open) {
			invoke_count(&l->thread->counters.full, 1);
			rc = line_send_open(l);
			if (rc && rc != -EAGAIN)
				return rc;
		}
		if (l->first && c->flags & WEIR_CALL_FULL_FAILS)
			return no_room(l);
		if (l->first && waits(l, c)) {
			rc = await_queue(l, UINT64_MAX, c->timeout_ms);
			if (rc)
				return rc;
			continue;
		}
		/* a payload is the last of its batch: what waits takes no more than that */
		room = l->batching.mode == WEIR_BATCH_EAGER || (l->first && c->payload_length)
			   ? RUN_HEAD + stride
			   : WEIR_BATCH_MAX;
		if (l->first && atomic_load_explicit(&v->queued, memory_order_relaxed) + room >
				    queue_bound(v, c))
			return queue_is_full(v);
		rc = line_open_batch(l, room);
		return rc;
	}
}

/* The open batch's calls end there: the inline path goes on up to the next look. */
static inline void
went_on(struct line *l, uint8_t *at)
{
	uint8_t *data = l->open->data, *end = data + l->open->room;

	if (l->batching.mode == WEIR_BATCH_FULL && end > data + l->batching.bytes)
		end = data + l->batching.bytes;
	if (end < at)
		end = at;
	l->fast.at = at;
	l->fast.check = at + LOOK < end ? at + LOOK : end;
}

/* Behind the last call of the open batch, which has room. 0 or -ENOMEM. */
static int
append(struct line *l, const struct call *c)
{
	uint32_t stride = run_stride(c->length, c->run_flags);
	uint8_t *at;

	if (c->sync && asks_add(l, l->open, c->sync))
		return -ENOMEM;
	if (!is_of_open_run(l, c)) {
		line_close_run(l);
		l->head = l->fast.at;
		l->fast.at += RUN_HEAD;
		l->function = c->function;
		l->number = c->number;
		l->length = c->length;
		l->flags = c->run_flags;
	}
	at = l->fast.at;
	memcpy(at + stride - sizeof(zeros), zeros, sizeof(zeros));
	if (c->id) {
		memcpy(at, &c->id, sizeof(c->id));
		at += sizeof(c->id);
	}
	if (c->length)
		memcpy(at, c->args, c->length);
	l->fast.run =
	    c->length && !c->run_flags ? (uint64_t)c->function << 32 | c->length : UINT64_MAX;
	went_on(l, l->fast.at + stride);
	return 0;
}

/* Whether packed calls leave now, behind a call. */
static bool
shall_leave(struct line *l, uint32_t flags)
{
	struct invoke_counters *n = &l->thread->counters;

	if (flags & WEIR_CALL_NOW)
		return true;
	switch (l->batching.mode) {
	case WEIR_BATCH_AUTO:
		return path_is_free(l);
	case WEIR_BATCH_FULL:
		if ((size_t)(l->fast.at - l->open->data) >= l->batching.bytes) {
			invoke_count(&n->full, 1);
			return true;
		}
		if (weir_clock() - l->open->since >= l->batching.delay_us * UINT64_C(1000)) {
			invoke_count(&n->late, 1);
			return true;
		}
		return false;
	default:
		return true; /* there was no room: is there now? */
	}
}

/* Packs a call, and sends what is packed if it shall leave. */
static int
pack(struct line *l, const struct call *c)
{
	int rc = make_room(l, c);

	if (!rc)
		rc = append(l, c);
	if (rc || !shall_leave(l, c->flags))
		return rc;
	rc = line_flush(l);
	/* its sync tells that it was lost: the call was accepted */
	return rc == -EAGAIN || c->sync ? 0 : rc;
}

/* One message per call: it waits in the queue, and its thread for it. */
static int
queue_alone(struct line *l, const struct call *c)
{
	int rc = make_room(l, c);
	uint64_t place;

	if (!rc)
		rc = append(l, c);
	if (rc)
		return rc;
	rc = line_send_open(l);
	place = l->queued;
	if (rc == -EAGAIN) {
		if (!waits(l, c))
			return 0;
		rc = c->flags & WEIR_CALL_FULL_FAILS ? no_room(l)
						     : await_queue(l, place, c->timeout_ms);
		if (rc && line_take_out(l, place))
			return rc;
	}
	/* it has left, or its sync tells that it was lost */
	return rc == -EAGAIN || rc == -EINTR || c->sync ? 0 : rc;
}

/* Before a call is made: the line connects, the call has an id. */
static inline __attribute__((always_inline)) int
begin(struct line *l, struct call *c)
{
	int rc;

	if (weir_unlikely(!l->connected)) {
		rc = connect_line(l, waits(l, c) ? c->timeout_ms : 0);
		/* a call that does not wait for room does not wait for the connection */
		if (rc && (rc != -EAGAIN || waits(l, c)))
			return rc;
	}
	return c->expects ? future_begin(l, c->expects, &c->id) : 0;
}

int
call_make(struct line *l, struct call *c)
{
	int rc = begin(l, c);

	if (rc)
		return rc;
	if (!c->sync && leaves_alone(l, c->flags)) {
		rc = send_alone(l, c);
		if (weir_likely(rc != -EAGAIN))
			return rc;
		if (c->flags & WEIR_CALL_FULL_FAILS)
			return no_room(l);
	}
	return l->batching.mode == WEIR_BATCH_EAGER ? queue_alone(l, c) : pack(l, c);
}

/* Where the function is there, if it takes arguments of this length. NULL: it does not. */
static inline const struct function_target *
target_of(const struct line *l, uint32_t function, size_t length)
{
	const struct function_target *target = &l->targets[function];

	return weir_likely(function < l->thread->v->o.function_count &&
			   target->number != FUNCTION_NONE && length >= target->min_length &&
			   length <= target->max_length)
		   ? target
		   : NULL;
}

static inline __attribute__((always_inline)) int
check_call(struct line *l, struct call *c)
{
	const struct weir_invoker *v = l->thread->v;
	const struct function_target *target = target_of(l, c->function, c->length);

	if (weir_unlikely(!target))
		return function_refuse(v, l->to, c->function, c->length);
	if (weir_unlikely(weir_state(v->w) != WEIR_UP))
		return weir_gone(v->w);
	thread_begins_call(l->thread);
	c->number = target->number;
	c->run_flags = c->expects ? RUN_RETURN : 0;
	return 0;
}

/* One more call of the open run, whose function and length are known: the inline path has come to
 * its next look. -EAGAIN: the general way. */
static __attribute__((noinline)) int
go_on(struct line *l, const void *args, uint32_t length)
{
	uint32_t stride = run_stride(length, 0);
	uint8_t *at = l->fast.at;
	int rc;

	if (weir_unlikely(!l->connected || weir_state(l->thread->v->w) != WEIR_UP ||
			  (size_t)(l->open->data + l->open->room - at) < stride))
		return -EAGAIN;
	memcpy(at + stride - sizeof(zeros), zeros, sizeof(zeros));
	memcpy(at, args, length);
	went_on(l, at + stride);
	if (!shall_leave(l, 0))
		return 0;
	rc = line_flush(l);
	return rc == -EAGAIN ? 0 : rc;
}

/* The common call without options, if calls leave alone now. -EAGAIN: line_call() makes it, or says
 * why not. */
static inline __attribute__((always_inline)) int
put_small(struct line *l, uint32_t function, const void *args, size_t length)
{
	const struct function_target *target = target_of(l, function, length);

	return weir_likely(target && weir_state(l->thread->v->w) == WEIR_UP) && is_put(l)
		   ? put_now(l, target->number, 0, 0, args, length, true)
		   : -EAGAIN;
}

int
line_put_return(struct line *l, uint32_t function, const void *args, size_t length,
		const struct expected_result *e)
{
	const struct function_target *target = target_of(l, function, length);
	uint64_t id;
	int rc;

	if (weir_unlikely(!target || weir_state(l->thread->v->w) != WEIR_UP) || !is_put(l) ||
	    weir_unlikely(future_begin(l, e, &id)))
		return -EAGAIN;
	rc = put_now(l, target->number, RUN_RETURN, id, args, length, true);
	if (weir_unlikely(rc))
		future_forget(l->thread, id);
	return rc;
}

int
line_call(struct line *l, struct call *c)
{
	int rc = check_call(l, c);

	return rc ? rc : call_make(l, c);
}

/* ---- with a payload ---- */

static bool
is_large(const struct call *c)
{
	return c->payload_length > payload_in_batch(c->length);
}

/* A number for a payload that later calls overtake; 0: it keeps the order. */
static uint32_t
take_number(struct line *l, const struct call *c)
{
	const struct weir_function *f = &l->thread->v->functions[c->function];
	uint32_t number;

	if (l->receiver || !is_large(c) || !(f->flags & WEIR_FUNCTION_UNORDERED) || !~l->numbers)
		return 0;
	number = (uint32_t)__builtin_ctzll(~l->numbers);
	l->numbers |= UINT64_C(1) << number;
	return number + 1;
}

/* Behind the last call of the open batch, which has room. */
static void
append_with_payload(struct line *l, const struct call *c, uint32_t number)
{
	const struct payload_args args = {(uint32_t)c->payload_length, number};
	uint32_t stride = run_stride(c->length, c->run_flags);
	uint8_t *at;

	line_close_run(l);
	l->head = l->fast.at;
	l->function = c->function;
	l->number = c->number;
	l->length = c->length;
	l->flags = c->run_flags;
	at = l->head + RUN_HEAD;
	if (c->id) {
		memcpy(at, &c->id, sizeof(c->id));
		at += sizeof(c->id);
	}
	memcpy(at, &args, sizeof(args));
	at += sizeof(args);
	memcpy(l->head + RUN_HEAD + stride - sizeof(zeros), zeros, c->length ? sizeof(zeros) : 0);
	if (c->length)
		memcpy(at, c->args, c->length);
	l->fast.at = l->head + RUN_HEAD + stride;
	line_close_run(l);
	if (!c->behind)
		return;
	memcpy(l->fast.at + c->behind - sizeof(zeros), zeros, sizeof(zeros));
	memcpy(l->fast.at, c->payload, c->payload_length);
	l->fast.at += c->behind;
	line_end_fast_path(l);
}

static struct parcel *
make_parcel(struct line *l, const struct call *c)
{
	struct parcel *p = malloc(sizeof(*p));

	if (!p) {
		invoke_no_memory();
		return NULL;
	}
	*p = (struct parcel){.data = c->payload, .length = (uint32_t)c->payload_length};
	p->ask = c->sync ? ask_make(l->thread, c->sync) : NULL;
	if (!c->sync || p->ask)
		return p;
	free(p);
	return NULL;
}

/* The open batch ends with a call that has this parcel. As line_send_open(). */
static int
send_with_parcel(struct line *l, struct parcel *p)
{
	l->open->parcel = p;
	return line_send_open(l);
}

int
payload_check(const struct call *c)
{
	if (!c->payload)
		return weir_fail(-EINVAL, "a payload of %zu bytes at NULL", c->payload_length);
	if (c->payload_length > WEIR_PAYLOAD_MAX)
		return weir_fail(-EMSGSIZE, "a payload of %zu bytes; give at most %llu",
				 c->payload_length, WEIR_PAYLOAD_MAX);
	return 0;
}

int
payload_without_sync(const struct call *c)
{
	return weir_fail(-EINVAL,
			 "a payload of %zu bytes is not copied, and stays unchanged until a sync "
			 "counts; give one",
			 c->payload_length);
}

int
payload_call(struct line *l, struct call *c)
{
	int rc = check_call(l, c);

	if (!rc)
		rc = payload_check(c);
	return rc ? rc : payload_make(l, c);
}

/* A sync of a payload that is not in the batch counts when that has left. */
int
payload_make(struct line *l, struct call *c)
{
	struct parcel *p = NULL;
	int rc;

	c->run_flags |= RUN_PAYLOAD;
	if (!is_large(c))
		c->behind = ((uint32_t)c->payload_length + 7) & ~7u;
	rc = begin(l, c);
	if (!rc)
		rc = make_room(l, c);
	if (rc)
		return rc;
	if (is_large(c)) {
		p = make_parcel(l, c);
		rc = p ? 0 : -ENOMEM;
	} else if (c->sync) {
		rc = asks_add(l, l->open, c->sync);
	}
	if (rc)
		return rc;
	if (p) {
		p->number = c->function < FUNCTION_LIBRARY ? take_number(l, c) : 0;
		p->id = c->id;
		if (c->id)
			future_lend(l->thread, c->id);
	}
	append_with_payload(l, c, p ? p->number : 0);
	if (p)
		rc = send_with_parcel(l, p);
	else if (shall_leave(l, c->flags))
		rc = line_flush(l);
	return rc == -EAGAIN || c->sync ? 0 : rc;
}

/* ---- behind a put ---- */

/* An empty batch is open, for a call alone: it waits in the queue. 0 or as make_room(). */
static int
open_own_batch(struct line *l, const struct call *c)
{
	uint32_t room = RUN_HEAD + run_stride(c->length, 0);
	struct weir_invoker *v = l->thread->v;
	int rc;

	for (;;) {
		rc = l->open ? line_send_open(l) : 0;
		if (rc && rc != -EAGAIN)
			return rc;
		if (l->first && c->flags & WEIR_CALL_FULL_FAILS)
			return no_room(l);
		if (!l->first || atomic_load_explicit(&v->queued, memory_order_relaxed) + room <=
				     queue_bound(v, c))
			return line_open_batch(l, room);
		if (!waits(l, c))
			return queue_is_full(v);
		rc = await_queue(l, l->first->place, c->timeout_ms);
		if (rc)
			return rc;
	}
}

/* Takes memory for the call's part in its batch, so that it is accepted once the put has begun. */
static int
begin_put(struct line *l, const struct call *c, struct weir_remote *r,
	  const struct weir_transfer *put)
{
	struct weir_transfer own = *put;
	int rc;

	own.op = calloc(1, sizeof(*own.op));
	if (!own.op)
		return invoke_no_memory();
	own.flags = WEIR_AT_TARGET | (waits(l, c) && c->timeout_ms ? 0 : WEIR_NOWAIT);
	l->open->put = own.op;
	rc = c->sync ? asks_add(l, l->open, c->sync) : 0;
	if (rc)
		return rc;
	rc = weir_remote_put_with(r, &own);
	if (rc)
		batch_asks_forget(l->thread, l->open);
	else
		weir_op_wait(own.op, 0); /* the end wakes a thread that sleeps */
	return rc;
}

int
put_call(struct line *l, struct call *c, struct weir_remote *r, const struct weir_transfer *put)
{
	struct call bare;
	int rc = check_call(l, c);

	if (!rc)
		rc = begin(l, c);
	if (!rc)
		rc = open_own_batch(l, c);
	if (rc)
		return rc;
	rc = begin_put(l, c, r, put);
	if (rc) {
		line_send_open(l); /* which is empty */
		return rc;
	}
	bare = *c;
	bare.sync = NULL; /* it is in the batch */
	append(l, &bare);
	rc = line_send_open(l);
	return rc == -EAGAIN || c->sync ? 0 : rc;
}

void
line_send_piece(struct line *l)
{
	struct parcel *whole = l->behind, *p;
	struct piece_args args = {.number = whole->number};
	uint32_t length = payload_piece(whole->length - whole->sent);
	struct call c = {.function = FUNCTION_PIECE,
			 .number = FUNCTION_PIECE,
			 .args = &args,
			 .length = sizeof(args),
			 .payload = whole->data + whole->sent,
			 .payload_length = length,
			 .flags = CALL_LIBRARY};

	if (!whole->connection || whole->connection != message_lane_connection(l->lane)) {
		line_lose(l, -EHOSTUNREACH);
		return;
	}
	/* without memory: in the next turn */
	if (make_room(l, &c))
		return;
	p = make_parcel(l, &c);
	if (!p || append(l, &c)) {
		free(p);
		return;
	}
	whole->sent += length;
	if (whole->sent == whole->length) {
		p->ask = whole->ask;
		p->id = whole->id;
		l->behind = whole->next;
		if (!l->behind)
			l->behind_last = &l->behind;
		/* the other end has the whole before it sees the number again */
		l->numbers &= ~(UINT64_C(1) << (whole->number - 1));
		free(whole);
	}
	send_with_parcel(l, p);
}

static void
free_future(struct weir_future *f, void *user)
{
	(void)user;
	free(f);
}

/* weir_call() with a payload. */
static int
call_with_payload(struct line *l, struct call *c)
{
	struct weir_sync *sync = c->sync;
	bool sent = c->flags & WEIR_CALL_SYNC_SENT;
	struct weir_future *f;
	int rc;

	if (is_large(c) && !sync)
		return payload_without_sync(c);
	if (!is_large(c) && sent) {
		c->sync = NULL;
		rc = payload_call(l, c);
		if (!rc && sync) /* all is copied */
			sync_count(l->thread, sync, 1, 0);
		return rc;
	}
	if (!is_large(c) || sent)
		return payload_call(l, c);
	/* it runs behind its batch: a result tells of it */
	f = calloc(1, sizeof(*f));
	if (!f)
		return invoke_no_memory();
	f->then = free_future;
	rc = future_call(l, c, f, NULL, 0, payload_call);
	if (rc)
		free(f);
	return rc;
}

int
call_await_room(struct line *l, const struct call *c)
{
	if (!l->first)
		return 0;
	if (c->flags & WEIR_CALL_FULL_FAILS)
		return no_room(l);
	if (!thread_is_inside(l->thread))
		return await_queue(l, UINT64_MAX, c->timeout_ms);
	return atomic_load_explicit(&l->thread->v->queued, memory_order_relaxed) >
		       l->thread->v->o.queue_bytes
		   ? queue_is_full(l->thread->v)
		   : 0;
}

int
line_say(struct invoke_thread *t, struct weir_to to, uint32_t function, const void *args,
	 size_t length)
{
	int rc = 0;
	struct line *l = line_get(t, to, &rc);
	struct call c;

	if (!l)
		return rc;
	rc = is_put(l) ? put_now(l, function, 0, 0, args, length, false) : -EAGAIN;
	if (weir_likely(rc != -EAGAIN))
		return rc;
	c = (struct call){.args = args, .length = (uint32_t)length, .flags = CALL_LIBRARY};
	c.function = c.number = function;
	return call_make(l, &c);
}

/* ---- of the program ---- */

int
call_prepare(struct call *c, uint32_t function, const void *args, size_t length,
	     const struct weir_call_options *o, uint32_t flags)
{
	*c = (struct call){.function = function,
			   .length = length < UINT32_MAX ? (uint32_t)length : UINT32_MAX,
			   .args = args,
			   .timeout_ms = -1};
	if (!o)
		return 0;
	if (weir_unlikely(o->flags & ~flags))
		return weir_fail(-EINVAL, "invalid flags 0x%x for the call; see WEIR_CALL_*",
				 o->flags & ~flags);
	for (unsigned i = 0; i < sizeof(o->more) / sizeof(o->more[0]); i++)
		if (weir_unlikely(o->more[i]))
			return weir_fail(-EINVAL, "weir_call_options.more is not 0; zero the "
						  "options first");
	c->flags = o->flags;
	c->timeout_ms = o->timeout_ms;
	c->sync = o->sync;
	c->payload = o->payload;
	c->payload_length = o->payload_length;
	return 0;
}

int
weir_call(struct weir_invoker *v, struct weir_to to, uint32_t function, const void *args,
	  size_t length, const struct weir_call_options *options)
{
	struct invoke_thread *t = thread_own(v);
	struct weir_sync *sent = NULL;
	struct line *l;
	struct call c;
	int rc;

	if (weir_unlikely(!t))
		return thread_foreign(v);
	rc = call_prepare(&c, function, args, length, options, CALL_FLAGS);
	if (rc)
		return rc;
	if (c.sync && !(c.flags & WEIR_CALL_SYNC_SENT) &&
	    weir_unlikely(t->index == WEIR_THREAD_ANY))
		return thread_of_pool();
	l = line_get(t, to, &rc);
	if (weir_unlikely(c.payload_length && l))
		return call_with_payload(l, &c);
	if (c.sync && c.flags & WEIR_CALL_SYNC_SENT) {
		sent = c.sync;
		c.sync = NULL;
	}
	if (l)
		rc = line_call(l, &c);
	if (!rc && sent) /* arguments are copied */
		sync_count(t, sent, 1, 0);
	return rc;
}

/* A call without options, the general way. */
static __attribute__((noinline)) int
call_plainly(struct line *l, uint32_t function, const void *args, size_t length)
{
	struct call c;

	call_prepare(&c, function, args, length, NULL, 0);
	return line_call(l, &c);
}

int
weir_line_call_slow(struct weir_line *fast, uint32_t function, const void *args, size_t length)
{
	struct line *l = (struct line *)fast;
	int rc;

	if (weir_unlikely(thread_own(l->thread->v) != l->thread))
		return weir_fail(-EPERM, "the line belongs to another thread; open one here");
	if (length && length <= WEIR_ARGS_MAX && fast->run == ((uint64_t)function << 32 | length))
		rc = go_on(l, args, (uint32_t)length);
	else
		rc = put_small(l, function, args, length);
	return weir_likely(rc != -EAGAIN) ? rc : call_plainly(l, function, args, length);
}

int
weir_line_open(struct weir_invoker *v, struct weir_to to, const struct weir_batching *batching,
	       int timeout_ms, struct weir_line **line)
{
	struct invoke_thread *t = thread_own(v);
	struct line *l;
	int rc = 0;

	if (!t)
		return thread_foreign(v);
	if (thread_is_inside(t))
		return thread_waits_inside();
	rc = batching ? batching_check(batching) : 0;
	if (rc)
		return rc;
	l = line_get(t, to, &rc);
	if (!l)
		return rc;
	if (batching) {
		rc = line_flush(l);
		if (rc && rc != -EAGAIN)
			return rc;
		l->batching = *batching;
		line_end_fast_path(l);
	}
	thread_begins_call(t);
	rc = l->receiver || l->connected ? 0 : connect_line(l, timeout_ms);
	if (!rc && l->receiver && !atomic_load(&l->receiver->entered))
		rc = line_not_entered(l);
	*line = &l->fast;
	return rc;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lines. A call leaves alone, or is packed into the open batch in the memory that the message
 * leaves from. Batches that found no room wait in a queue, in order, and the line's calls behind
 * them. The inline path writes behind the last call of the open run and comes back here every LOOK
 * bytes, to look whether the batch shall leave.
 */
#include "batch.h"
#include "invoker.h"

#include "client/likely.h"
#include "client/reason.h"
#include "client/session.h"
#include "client/wait.h"

#include <errno.h>
#include <stdlib.h>

#define LOOK 512u /* bytes of calls between two looks */
#define STALE_NS 10000000u
static_assert(WEIR_BATCH_MAX / 8 <= UINT16_MAX, "a run has at most as many calls as its head says");

static const uint8_t zeros[8];

static int make_call(struct line *l, struct call *c);

/* ---- making and freeing ---- */

/* Where t keeps its line to a thread. NULL: no memory. */
static struct line **
place_of(struct invoke_thread *t, struct weir_to to)
{
	const struct invoke_process *p = &t->v->processes[to.process];
	struct line ***of_process;

	if (!t->lines)
		t->lines = calloc(t->v->process_count, sizeof(*t->lines));
	if (!t->lines)
		return NULL;
	of_process = &t->lines[to.process];
	if (!*of_process)
		*of_process = calloc(p->threads + 1, sizeof(**of_process));
	if (!*of_process)
		return NULL;
	return &(*of_process)[to.thread == WEIR_THREAD_ANY ? p->threads : to.thread];
}

static int
no_memory(void)
{
	return weir_fail(-ENOMEM, "no memory for calls; free some");
}

static struct line *
make(struct invoke_thread *t, struct weir_to to, int *rc)
{
	struct weir_invoker *v = t->v;
	struct line *l = calloc(1, sizeof(*l));

	if (!l) {
		*rc = no_memory();
		return NULL;
	}
	l->fast.run = UINT64_MAX;
	l->thread = t;
	l->to = to;
	l->targets = v->processes[to.process].table->targets;
	l->batching = v->o.batching;
	l->last = &l->first;
	l->asks_last = &l->asks;
	if (to.process == v->self && to.thread != WEIR_THREAD_ANY) {
		l->receiver = &v->threads[to.thread];
		l->connected = true;
		return l;
	}
	*rc = message_lane_open(v->m, (uint16_t)to.process, to.thread, &l->lane);
	if (*rc) {
		free(l);
		return NULL;
	}
	message_lane_set_user(l->lane, l);
	return l;
}

struct line *
line_find(const struct invoke_thread *t, struct weir_to to)
{
	const struct invoke_process *p = &t->v->processes[to.process];
	uint32_t i = to.thread == WEIR_THREAD_ANY ? p->threads : to.thread;

	return t->lines && t->lines[to.process] && i <= p->threads ? t->lines[to.process][i] : NULL;
}

struct line *
line_get(struct invoke_thread *t, struct weir_to to, int *rc)
{
	const struct weir_invoker *v = t->v;
	const struct invoke_process *p;
	struct line **at;

	if (weir_unlikely(to.process >= v->process_count)) {
		*rc = weir_fail(-ENOENT, "process %u of %u; give a number below that", to.process,
				v->process_count);
		return NULL;
	}
	p = &v->processes[to.process];
	if (weir_unlikely(to.thread == WEIR_THREAD_ANY ? !p->pool_threads
						       : to.thread >= p->threads)) {
		*rc = to.thread == WEIR_THREAD_ANY
			  ? weir_fail(-ENOENT, "process %u has no pool; open it with pool_threads",
				      to.process)
			  : weir_fail(-ENOENT,
				      "thread %u of process %u, which has %u; give a "
				      "number below that",
				      to.thread, to.process, p->threads);
		return NULL;
	}
	at = place_of(t, to);
	if (weir_unlikely(!at)) {
		*rc = no_memory();
		return NULL;
	}
	if (weir_unlikely(!*at))
		*at = make(t, to, rc);
	return *at;
}

/* ---- batches ---- */

static void
end_fast_path(struct line *l)
{
	l->fast.run = UINT64_MAX;
	l->fast.check = l->fast.at;
}

/* The run that is open gets its head. */
static void
close_run(struct line *l)
{
	uint32_t count;

	if (!l->head)
		return;
	count = (uint32_t)(l->fast.at - l->head - RUN_HEAD) / run_stride(l->length, l->flags);
	memcpy(l->head, &(uint64_t){run_head_word(l->number, l->flags, l->length, count)},
	       RUN_HEAD);
	l->open->calls += count;
	invoke_count(&l->thread->counters.made, count);
	l->head = NULL;
	end_fast_path(l);
}

static void
set_busy(struct line *l, bool busy)
{
	if (l->busy == busy)
		return;
	l->busy = busy;
	if (busy)
		TAILQ_INSERT_TAIL(&l->thread->busy, l, in_busy);
	else
		TAILQ_REMOVE(&l->thread->busy, l, in_busy);
}

/* Opens a batch, in memory of the message if the lane has some. 0 or -ENOMEM. */
static int
open_batch(struct line *l, uint32_t room)
{
	struct batch *b = batch_make(l->thread, room);

	weir_assert(!l->open);
	if (!b)
		return no_memory();
	/* it is sent before the lane's next message is reserved */
	if (l->lane && l->connected && !l->first && room == WEIR_BATCH_MAX &&
	    !message_lane_reserve(l->lane, room, 0, &b->draft))
		b->data = b->draft.data;
	b->since = weir_clock();
	l->open = b;
	l->fast.at = l->fast.check = b->data;
	set_busy(l, true);
	return 0;
}

static void
free_batch(struct line *l, struct batch *b)
{
	if (b->draft.data && l->thread->v->m)
		weir_message_abandon(l->thread->v->m, &b->draft);
	b->draft.data = NULL;
	batch_free(b);
}

static void
add_queued(struct weir_invoker *v, uint64_t bytes)
{
	uint64_t now = atomic_fetch_add_explicit(&v->queued, bytes, memory_order_relaxed) + bytes,
		 peak = atomic_load_explicit(&v->queue_peak, memory_order_relaxed);

	while (now > peak &&
	       !atomic_compare_exchange_weak_explicit(&v->queue_peak, &peak, now,
						      memory_order_relaxed, memory_order_relaxed))
		;
}

/* The open batch waits behind the others. */
static void
close_batch(struct line *l)
{
	struct invoke_thread *t = l->thread;
	struct batch *b = l->open;

	close_run(l);
	b->length = (uint32_t)(l->fast.at - b->data);
	if (weir_clock() - b->since > STALE_NS)
		invoke_count(&t->counters.stale, 1);
	l->open = NULL;
	l->fast.at = l->fast.check = NULL;
	*l->last = b;
	l->last = &b->next;
	add_queued(t->v, b->length);
}

/* Takes the first batch out of the queue. */
static struct batch *
unqueue(struct line *l)
{
	struct batch *b = l->first;

	l->first = b->next;
	if (!l->first)
		l->last = &l->first;
	b->next = NULL;
	atomic_fetch_sub_explicit(&l->thread->v->queued, b->length, memory_order_relaxed);
	return b;
}

/* The line has failed: what was accepted on it does not run, or nobody knows whether it does. */
static int
lose(struct line *l, int rc)
{
	struct batch *b;

	if (l->open)
		close_batch(l);
	while (l->first) {
		b = unqueue(l);
		invoke_count(&l->thread->counters.dropped, b->calls);
		batch_asks_lost(l, b, rc);
		free_batch(l, b);
	}
	asks_lost(l, rc);
	futures_lost(l->thread, l, rc);
	l->status = rc;
	l->connected = l->receiver;
	set_busy(l, l->owes);
	return rc;
}

void
line_free(struct line *l)
{
	lose(l, -ECANCELED);
	set_busy(l, false);
	if (l->lane && l->thread->v->m)
		message_lane_close(l->lane);
	free(l);
}

void
lines_close_fast_path(struct invoke_thread *t)
{
	for (uint32_t p = 0; t->lines && p < t->v->process_count; p++)
		for (uint32_t i = 0; t->lines[p] && i <= t->v->processes[p].threads; i++)
			if (t->lines[p][i])
				end_fast_path(t->lines[p][i]);
}

unsigned
lines_ended(struct invoke_thread *t)
{
	const struct weir_invoker *v = t->v;
	unsigned n = 0;
	int status;

	/* pairs with the release in lane_ended() */
	if (!atomic_exchange_explicit(&t->lane_ended, false, memory_order_acquire))
		return 0;
	for (uint32_t p = 0; t->lines && p < v->process_count; p++)
		for (uint32_t i = 0; t->lines[p] && i <= v->processes[p].threads; i++) {
			struct line *l = t->lines[p][i];

			status =
			    l ? atomic_exchange_explicit(&l->ended, 0, memory_order_relaxed) : 0;
			if (!status)
				continue;
			lose(l, status);
			n++;
		}
	return n;
}

/* ---- sending ---- */

static int
not_entered(const struct line *l)
{
	return weir_fail(-ECONNREFUSED, "thread %u of process %u has not entered, or has left",
			 l->to.thread, l->to.process);
}

/* Turns an error of the message model into one of a call. */
static int
failed(const struct line *l, int rc)
{
	const struct invoke_process *p = &l->thread->v->processes[l->to.process];
	int status = atomic_load_explicit(&p->status, memory_order_relaxed);

	if (rc != -ECONNREFUSED)
		return rc;
	if (status)
		return weir_fail(-EHOSTUNREACH, "process %u was lost: %s", l->to.process,
				 strerror(-status));
	return not_entered(l);
}

/* Hands b to a thread of the process; what it asks is answered when it comes back. */
static int
hand_over(struct line *l, struct batch *b)
{
	int rc;

	if (b->asks) {
		b->ask = (uint16_t)(l->asked + 1);
		b->asks_answer = true;
	}
	rc = inbox_put(l->thread, l->receiver, b);
	return rc == -ECONNREFUSED ? not_entered(l) : rc;
}

/* Sends a batch: on success it is the library's or another thread's, else it stays the line's. */
static int
send_batch(struct line *l, struct batch *b)
{
	struct message_tag tag = {.kind = KIND_CALLS, .value = l->thread->index};
	struct iovec part = {b->data, b->length};
	struct batch asks = {.asks = b->asks, .asks_last = b->asks_last};
	int rc;

	if (asks.asks && !asks_have_room(l))
		return -EAGAIN;
	if (l->receiver) {
		rc = hand_over(l, b);
		if (rc)
			return rc;
	} else {
		if (asks.asks) {
			tag.flags = TAG_ASKS;
			tag.type = (uint16_t)(l->asked + 1);
		}
		rc = b->draft.data ? message_lane_commit(l->lane, &b->draft, b->length, &tag, 0)
				   : message_lane_send(l->lane, &tag, &part, 1, 0);
		if (rc)
			return rc == -EAGAIN ? rc : failed(l, rc);
		l->connected = true;
		b->draft.data = NULL;
		batch_free(b);
	}
	if (asks.asks)
		asks_sent(l, &asks);
	return 0;
}

/* Sends batches that wait. 0, -EAGAIN, or why they were dropped. */
static int
push(struct line *l)
{
	struct batch *b;
	int rc;

	while ((b = l->first)) {
		/* it is another thread's on success */
		l->first = b->next;
		atomic_fetch_sub_explicit(&l->thread->v->queued, b->length, memory_order_relaxed);
		rc = send_batch(l, b);
		if (!rc) {
			invoke_count(&l->thread->counters.messages, 1);
			continue;
		}
		l->first = b;
		atomic_fetch_add_explicit(&l->thread->v->queued, b->length, memory_order_relaxed);
		if (rc == -EAGAIN)
			return rc;
		return lose(l, rc);
	}
	l->last = &l->first;
	if (!l->open)
		set_busy(l, l->owes);
	return 0;
}

/* The open batch leaves, behind those that wait. */
static int
send_open(struct line *l)
{
	int rc;

	close_batch(l);
	rc = push(l);
	if (rc == -EAGAIN)
		invoke_count(&l->thread->counters.queued, 1);
	return rc;
}

int
line_flush(struct line *l)
{
	int rc = push(l);

	/* without room it stays open for more calls */
	return rc || !l->open ? rc : send_open(l);
}

/* Tells the other end which of its batches have run. */
static int
settle(struct line *l)
{
	struct done_args args = {.ask = l->owed};
	struct call c = {.args = &args, .length = sizeof(args), .flags = CALL_LIBRARY};
	int rc;

	c.function = c.number = FUNCTION_DONE;
	rc = make_call(l, &c);
	/* without memory, or beyond all bounds, it is tried again in the next turn */
	l->owes = rc == -ENOMEM || rc == -EAGAIN;
	return rc;
}

unsigned
lines_flush(struct invoke_thread *t)
{
	uint64_t before = atomic_load_explicit(&t->counters.messages, memory_order_relaxed);
	struct line *l, *next;

	for (l = TAILQ_FIRST(&t->busy); l; l = next) {
		next = TAILQ_NEXT(l, in_busy);
		if (l->owes)
			settle(l);
		if (l->open)
			invoke_count(&t->counters.waited, 1);
		line_flush(l);
	}
	return (unsigned)(atomic_load_explicit(&t->counters.messages, memory_order_relaxed) -
			  before);
}

int
line_owe(struct invoke_thread *t, struct weir_to to, uint16_t number)
{
	int rc = 0;
	struct line *l = line_get(t, to, &rc);

	if (!l)
		return rc;
	l->owed = number;
	l->owes = true;
	set_busy(l, true);
	return 0;
}

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
		if (!left)
			return no_room(l);
		t->connecting = l;
		t->connected = -EAGAIN;
		rc = thread_turn(t, 0, left);
		t->connecting = NULL;
		if (rc < 0)
			return rc;
		rc = t->connected;
	}
	if (rc && rc != -EAGAIN)
		return failed(l, rc);
	l->connected = !rc;
	return rc;
}

static bool
is_queued(const struct line *l, const struct batch *b)
{
	const struct batch *q = l->first;

	while (q && q != b)
		q = q->next;
	return q;
}

/* Waits until b, or all if NULL, has left. 0, -EAGAIN: not in time, or why it has not. */
static int
await_queue(struct line *l, const struct batch *b, int timeout_ms)
{
	uint64_t end = weir_time_end(timeout_ms);
	int rc = 0, left;

	l->status = 0;
	while (!rc && (b ? is_queued(l, b) : l->first != NULL)) {
		left = weir_time_left(end);
		if (!left)
			return no_room(l);
		rc = thread_turn(l->thread, 0, left);
		rc = rc < 0 ? rc : l->status;
	}
	return rc;
}

/* ---- calls ---- */

/* Sends one call alone, without waiting. */
static int
send_alone(struct line *l, const struct call *c)
{
	uint64_t head = run_head_word(c->number, c->run_flags, c->length, 1);
	uint32_t id_bytes = c->id ? sizeof(c->id) : 0;
	struct iovec parts[3] = {{&head, RUN_HEAD},
				 {(void *)(uintptr_t)&c->id, id_bytes},
				 {(void *)(uintptr_t)c->args, c->length}};
	struct message_tag tag = {.kind = KIND_CALLS, .value = l->thread->index};
	uint8_t both[MESSAGE_PUT_MAX];
	const void *from = c->args;
	struct batch *b;
	int rc = -EAGAIN;

	if (l->receiver) {
		b = batch_make(l->thread, RUN_HEAD + run_stride(c->length, c->run_flags));
		if (!b)
			return no_memory();
		memcpy(b->data, &head, RUN_HEAD);
		memcpy(b->data + RUN_HEAD, &c->id, id_bytes);
		if (c->length)
			memcpy(b->data + RUN_HEAD + id_bytes, c->args, c->length);
		b->length = RUN_HEAD + id_bytes + c->length;
		b->calls = 1;
		rc = inbox_put(l->thread, l->receiver, b);
		if (rc)
			batch_free(b);
	} else if (l->connected) {
		if (id_bytes + c->length <= MESSAGE_PUT_MAX) {
			if (id_bytes) {
				memcpy(both, &c->id, sizeof(c->id));
				if (c->length)
					memcpy(both + sizeof(c->id), c->args, c->length);
				from = both;
			}
			rc = message_lane_put(l->lane, &tag, head, from, id_bytes + c->length);
		}
		if (rc == -EAGAIN)
			rc = message_lane_send(l->lane, &tag, parts, 3, 0);
	}
	if (rc == -EAGAIN)
		return rc;
	if (weir_unlikely(rc)) {
		rc = failed(l, rc);
		return lose(l, rc);
	}
	invoke_count(&l->thread->counters.made, 1);
	invoke_count(&l->thread->counters.messages, 1);
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
	uint32_t stride = run_stride(c->length, c->run_flags), need, room;
	bool alone = l->batching.mode == WEIR_BATCH_EAGER;
	struct weir_invoker *v = l->thread->v;
	int rc;

	for (;;) {
		need = stride + (is_of_open_run(l, c) ? 0 : RUN_HEAD);
		if (l->open && !alone &&
		    (size_t)(l->open->data + l->open->room - l->fast.at) >= need)
			return 0;
		if (l->open) {
			invoke_count(&l->thread->counters.full, 1);
			rc = send_open(l);
			if (rc && rc != -EAGAIN)
				return rc;
		}
		if (l->first && c->flags & WEIR_CALL_FULL_FAILS)
			return no_room(l);
		if (l->first && waits(l, c)) {
			rc = await_queue(l, NULL, c->timeout_ms);
			if (rc)
				return rc;
			continue;
		}
		room = alone ? RUN_HEAD + stride : WEIR_BATCH_MAX;
		if (l->first && atomic_load_explicit(&v->queued, memory_order_relaxed) + room >
				    queue_bound(v, c))
			return weir_fail(-EAGAIN,
					 "calls of queue_bytes, %llu, wait for room; make fewer, "
					 "or raise that",
					 (unsigned long long)v->o.queue_bytes);
		rc = open_batch(l, room);
		return rc;
	}
}

/* Behind the last call of the open batch, which has room. 0 or -ENOMEM. */
static int
append(struct line *l, const struct call *c)
{
	uint32_t stride = run_stride(c->length, c->run_flags);
	uint8_t *end, *limit, *at;

	if (c->sync && asks_add(l, l->open, c->sync))
		return -ENOMEM;
	if (!is_of_open_run(l, c)) {
		close_run(l);
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
	l->fast.at += stride;
	l->fast.run =
	    c->length && !c->run_flags ? (uint64_t)c->function << 32 | c->length : UINT64_MAX;
	end = l->open->data + l->open->room;
	limit = l->fast.at + LOOK;
	if (l->batching.mode == WEIR_BATCH_FULL && end > l->open->data + l->batching.bytes)
		end = l->open->data + l->batching.bytes;
	if (end < l->fast.at)
		end = l->fast.at;
	l->fast.check = limit < end ? limit : end;
	return 0;
}

/* Whether packed calls leave now, behind a call. */
static bool
shall_leave(struct line *l, const struct call *c)
{
	struct invoke_counters *n = &l->thread->counters;

	if (c->flags & WEIR_CALL_NOW)
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
	if (rc || !shall_leave(l, c))
		return rc;
	rc = line_flush(l);
	return rc == -EAGAIN ? 0 : rc;
}

/* Takes b, which was not accepted, out of the queue; functions may have made calls behind it.
 * False: it has left. */
static bool
take_out(struct line *l, struct batch *b)
{
	struct batch **at = &l->first;

	while (*at && *at != b)
		at = &(*at)->next;
	if (!*at)
		return false;
	*at = b->next;
	if (!*at)
		l->last = at;
	atomic_fetch_sub_explicit(&l->thread->v->queued, b->length, memory_order_relaxed);
	/* counted when it was queued */
	atomic_fetch_sub_explicit(&l->thread->counters.made, 1, memory_order_relaxed);
	batch_asks_forget(l->thread, b);
	free_batch(l, b);
	return true;
}

/* One message per call: it waits in the queue, and its thread for it. */
static int
queue_alone(struct line *l, const struct call *c)
{
	struct batch *b;
	int rc = make_room(l, c);

	if (!rc)
		rc = append(l, c);
	if (rc)
		return rc;
	b = l->open;
	rc = send_open(l);
	if (rc != -EAGAIN)
		return rc;
	if (!waits(l, c))
		return 0;
	rc = c->flags & WEIR_CALL_FULL_FAILS ? no_room(l) : await_queue(l, b, c->timeout_ms);
	return (rc == -EAGAIN || rc == -EINTR) && !take_out(l, b) ? 0 : rc;
}

/* c->number and run_flags are set. */
static int
make_call(struct line *l, struct call *c)
{
	uint32_t mode = l->batching.mode;
	int rc;

	if (weir_unlikely(!l->connected)) {
		rc = connect_line(l, waits(l, c) ? c->timeout_ms : 0);
		/* who does not wait for room does not wait for the connection */
		if (rc && (rc != -EAGAIN || waits(l, c)))
			return rc;
	}
	if (!l->open && !l->first && !c->sync &&
	    (mode == WEIR_BATCH_EAGER || mode == WEIR_BATCH_OVERFLOW || c->flags & WEIR_CALL_NOW ||
	     (mode == WEIR_BATCH_AUTO && path_is_free(l)))) {
		rc = send_alone(l, c);
		if (weir_likely(rc != -EAGAIN))
			return rc;
		if (c->flags & WEIR_CALL_FULL_FAILS)
			return no_room(l);
	}
	return mode == WEIR_BATCH_EAGER ? queue_alone(l, c) : pack(l, c);
}

int
line_call(struct line *l, struct call *c)
{
	const struct weir_invoker *v = l->thread->v;
	const struct function_target *target;

	if (weir_unlikely(c->function >= v->o.function_count))
		return function_refuse(v, l->to, c->function, c->length);
	target = &l->targets[c->function];
	if (weir_unlikely(target->number == FUNCTION_NONE || c->length < target->min_length ||
			  c->length > target->max_length))
		return function_refuse(v, l->to, c->function, c->length);
	if (weir_unlikely(weir_state(v->w) != WEIR_UP))
		return weir_gone(v->w);
	c->number = target->number;
	c->run_flags = c->id ? RUN_RETURN : 0;
	return make_call(l, c);
}

int
line_say(struct invoke_thread *t, struct weir_to to, uint32_t function, const void *args,
	 size_t length)
{
	struct call c = {.args = args, .length = (uint32_t)length, .flags = CALL_LIBRARY};
	int rc = 0;
	struct line *l = line_get(t, to, &rc);

	if (!l)
		return rc;
	c.function = c.number = function;
	return make_call(l, &c);
}

/* ---- of the program ---- */

#define FLAGS (WEIR_CALL_NOW | WEIR_CALL_FULL_FAILS | WEIR_CALL_SYNC_SENT)

int
call_prepare(struct call *c, uint32_t function, const void *args, size_t length,
	     const struct weir_call_options *o)
{
	*c = (struct call){.function = function,
			   .length = length < UINT32_MAX ? (uint32_t)length : UINT32_MAX,
			   .args = args,
			   .timeout_ms = -1};
	if (!o)
		return 0;
	if (weir_unlikely(o->flags & ~FLAGS))
		return weir_fail(-EINVAL, "unknown flags 0x%x; see WEIR_CALL_*", o->flags & ~FLAGS);
	c->flags = o->flags;
	c->timeout_ms = o->timeout_ms;
	c->sync = o->sync;
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
	rc = call_prepare(&c, function, args, length, options);
	if (rc)
		return rc;
	if (c.sync && c.flags & WEIR_CALL_SYNC_SENT) {
		sent = c.sync;
		c.sync = NULL;
	} else if (weir_unlikely(c.sync && t->index == WEIR_THREAD_ANY)) {
		return thread_of_pool();
	}
	l = line_get(t, to, &rc);
	if (l)
		rc = line_call(l, &c);
	if (!rc && sent) /* arguments are copied */
		sync_count(t, sent, 1, 0);
	return rc;
}

int
weir_line_call_slow(struct weir_line *fast, uint32_t function, const void *args, size_t length)
{
	struct line *l = (struct line *)fast;
	struct call c;

	if (weir_unlikely(thread_own(l->thread->v) != l->thread))
		return weir_fail(-EPERM, "the line belongs to another thread; open one here");
	call_prepare(&c, function, args, length, NULL);
	return line_call(l, &c);
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
		end_fast_path(l);
	}
	rc = l->receiver || l->connected ? 0 : connect_line(l, timeout_ms);
	if (!rc && l->receiver && !atomic_load(&l->receiver->entered))
		rc = not_entered(l);
	*line = &l->fast;
	return rc;
}

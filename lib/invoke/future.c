/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Futures. A call that expects a result has an id: a slot of the calling thread, and the slot's
 * generation. The result is a call of the library on the line back, so results are packed as calls
 * are. The result of a future that has ended finds another generation, and is dropped.
 *
 * A result may come before the caller's payload is read: the function gives it early, or the peer
 * lies. The future ends behind that, since the program may then free the payload. One that is
 * cancelled ends at once, and its sync alone tells of the payload.
 */
#include "batch.h"
#include "invoker.h"

#include "client/likely.h"
#include "client/reason.h"
#include "client/wait.h"

#include <errno.h>
#include <stdlib.h>

#define SLOTS_MAX (1u << 24)
#define FREE UINT32_MAX /* the end of the list of free slots */

/* Content of weir_future.internal. */
struct future {
	uint64_t id; /* 0: it has ended */
	void *result;
	size_t size;
	struct weir_sync *sync;
};
static_assert(sizeof(struct future) <= sizeof(((struct weir_future *)0)->internal), "its place");

static struct future *
inside(struct weir_future *f)
{
	return (struct future *)f->internal;
}

/* ---- slots ---- */

static int
grow(struct invoke_thread *t)
{
	uint32_t room = t->slot_count ? 2 * t->slot_count : 64;
	struct future_slot *slots;

	if (t->slot_count >= SLOTS_MAX)
		return weir_fail(-ENOSPC, "%u results are outstanding; wait for some", SLOTS_MAX);
	slots = realloc(t->slots, room * sizeof(*slots));
	if (!slots)
		return weir_fail(-ENOMEM, "no memory for results; free some");
	for (uint32_t i = t->slot_count; i < room; i++)
		slots[i] =
		    (struct future_slot){.generation = 1, .next = i + 1 < room ? i + 1 : FREE};
	t->slot_free = t->slot_count;
	t->slots = slots;
	t->slot_count = room;
	return 0;
}

static void
free_slot(struct invoke_thread *t, uint32_t i)
{
	t->slots[i].next = t->slot_free;
	t->slot_free = i;
}

static void
next_generation(struct future_slot *slot)
{
	if (!++slot->generation)
		slot->generation = 1;
}

/* Ends f, of a slot of t. */
static void
end(struct invoke_thread *t, struct weir_future *f, int status, size_t length)
{
	struct future in = *inside(f);
	struct future_slot *slot = &t->slots[(uint32_t)in.id];

	slot->future = NULL;
	slot->line = NULL;
	next_generation(slot);
	if (weir_unlikely(slot->lent)) {
		slot->sync = in.sync;
		slot->status = status;
		in.sync = NULL;
	} else {
		free_slot(t, (uint32_t)in.id);
	}
	inside(f)->id = 0;
	f->status = status;
	f->length = length;
	t->told++;
	t->inside++;
	if (f->then)
		f->then(f, f->user);
	t->inside--;
	if (in.sync)
		sync_count(t, in.sync, 1, status);
}

static void
is_over(struct future_slot *slot, int status, size_t length)
{
	slot->over = true;
	slot->status = status;
	slot->length = (uint16_t)length;
}

/* The result of the slot's future. */
static void
came(struct invoke_thread *t, struct future_slot *slot, int status, const void *result,
     size_t length)
{
	const struct future *in = inside(slot->future);

	if (length && in->size)
		memcpy(in->result, result, length < in->size ? length : in->size);
	if (weir_likely(!slot->lent)) {
		end(t, slot->future, status, length);
		return;
	}
	is_over(slot, status, length);
	next_generation(slot); /* there is one */
}

bool
future_result(struct invoke_thread *t, struct weir_to from, const void *data, size_t length)
{
	struct result_args a;
	struct future_slot *slot;
	uint32_t former; /* ids of the slot since */

	memcpy(&a, data, sizeof(a));
	if (a.status > 0 || a.status < -4095 || a.zero || (uint32_t)a.id >= t->slot_count)
		return false;
	slot = &t->slots[(uint32_t)a.id];
	former = slot->generation - (uint32_t)(a.id >> 32);
	if (!former && slot->future && slot->line->to.process == from.process)
		came(t, slot, a.status, (const uint8_t *)data + sizeof(a), length - sizeof(a));
	else if (former && former <= INT32_MAX)
		invoke_count(&t->counters.ignored, 1);
	else /* no call has had that id, or it was another process's */
		return false;
	return true;
}

void
futures_lost(struct invoke_thread *t, const struct line *l, int status)
{
	for (uint32_t i = 0; i < t->slot_count; i++)
		if (t->slots[i].future && t->slots[i].line == l && !t->slots[i].over) {
			is_over(&t->slots[i], status, 0);
			t->futures_lost = true;
		}
}

void
future_lend(struct invoke_thread *t, uint64_t id)
{
	t->slots[(uint32_t)id].lent = true;
}

void
future_return(struct invoke_thread *t, uint64_t id)
{
	struct future_slot *slot = &t->slots[(uint32_t)id];

	slot->lent = false;
	if (slot->future)
		t->futures_lost |= slot->over;
	else if (slot->sync)
		t->futures_lost = true;
	else
		free_slot(t, (uint32_t)id);
}

/* The sync of a future that was cancelled counts. */
static void
count_sync(struct invoke_thread *t, uint32_t i)
{
	struct weir_sync *sync = t->slots[i].sync;

	t->slots[i].sync = NULL;
	free_slot(t, i);
	sync_count(t, sync, 1, t->slots[i].status);
}

unsigned
futures_end_lost(struct invoke_thread *t)
{
	unsigned n = 0;

	t->futures_lost = false;
	/* functions of the program may make calls that add slots, and move them */
	for (uint32_t i = 0; i < t->slot_count; i++) {
		struct future_slot *slot = &t->slots[i];

		if (slot->lent || (slot->future ? !slot->over : !slot->sync))
			continue;
		n++;
		if (slot->future)
			end(t, slot->future, slot->status, slot->length);
		else
			count_sync(t, i);
	}
	return n;
}

void
futures_end_all(struct invoke_thread *t, int status)
{
	for (uint32_t i = 0; i < t->slot_count; i++)
		if (t->slots[i].future)
			end(t, t->slots[i].future, status, 0);
}

void
futures_free(struct invoke_thread *t)
{
	free(t->slots);
}

void
futures_init(struct invoke_thread *t)
{
	t->slot_free = FREE;
}

/* ---- of the program ---- */

int
future_begin(const struct line *l, const struct expected_result *e, uint64_t *id)
{
	struct invoke_thread *t = l->thread;
	struct future_slot *slot;
	uint32_t i;
	int rc;

	if (t->slot_free == FREE) {
		rc = grow(t);
		if (rc)
			return rc;
	}
	i = t->slot_free;
	slot = &t->slots[i];
	t->slot_free = slot->next;
	slot->future = e->future;
	slot->line = l;
	slot->over = slot->lent = false;
	*id = (uint64_t)slot->generation << 32 | i;
	*inside(e->future) = (struct future){*id, e->result, e->size, e->sync};
	e->future->status = -EINPROGRESS;
	e->future->length = 0;
	return 0;
}

void
future_forget(struct invoke_thread *t, uint64_t id)
{
	struct future_slot *slot = &t->slots[(uint32_t)id];

	inside(slot->future)->id = 0;
	slot->future = NULL;
	free_slot(t, (uint32_t)id);
}

/* The call was not accepted: nobody else is told. */
static void
withdraw(struct invoke_thread *t, struct weir_future *f, int rc)
{
	void (*then)(struct weir_future *, void *) = f->then;

	f->then = NULL;
	inside(f)->sync = NULL;
	end(t, f, rc, 0);
	f->then = then;
}

int
future_call(struct line *l, struct call *c, struct weir_future *f, void *result, size_t size,
	    int (*make)(struct line *l, struct call *c))
{
	const struct expected_result e = {f, result, size, c->sync};
	struct invoke_thread *t = l->thread;
	int rc;

	c->expects = &e;
	c->sync = NULL; /* counts with the future */
	rc = make(l, c);
	if (!rc)
		return 0;
	if (!c->id) {
		f->status = rc;
		return rc;
	}
	/* it may have ended while the call waited, and tells why: it may be gone, then */
	if (t->slots[(uint32_t)c->id].future != f ||
	    t->slots[(uint32_t)c->id].generation != c->id >> 32)
		return 0;
	withdraw(t, f, rc);
	return rc;
}

int
weir_call_return(struct weir_invoker *v, struct weir_to to, uint32_t function, const void *args,
		 size_t length, struct weir_future *f, void *result, size_t size,
		 const struct weir_call_options *options)
{
	const struct expected_result e = {f, result, size, NULL};
	struct invoke_thread *t = thread_own(v);
	struct call c;
	struct line *l;
	int rc;

	if (weir_unlikely(!t))
		return thread_foreign(v);
	if (weir_unlikely(t->index == WEIR_THREAD_ANY))
		return thread_of_pool();
	l = line_get(t, to, &rc);
	if (weir_unlikely(!l))
		return rc;
	if (!options && weir_likely(!line_put_return(l, function, args, length, &e)))
		return 0;
	rc = call_prepare(&c, function, args, length, options, CALL_FLAGS);
	return rc ? rc
		  : future_call(l, &c, f, result, size,
				c.payload_length ? payload_call : line_call);
}

static bool
is_pending(const struct weir_future *f)
{
	return f->internal[0];
}

int
weir_future_any(struct weir_invoker *v, struct weir_future *const *f, unsigned n, int timeout_ms)
{
	struct invoke_thread *t = thread_own(v);
	uint64_t deadline = weir_time_end(timeout_ms);
	int rc = 0, left;

	if (weir_unlikely(!t))
		return thread_foreign(v);
	if (!n || n > INT32_MAX)
		return weir_fail(-EINVAL, "%u futures; give at least one", n);
	for (;;) {
		for (unsigned i = 0; i < n; i++)
			if (!is_pending(f[i]))
				return (int)i;
		if (weir_unlikely(thread_is_inside(t)))
			return thread_waits_inside();
		if (rc < 0)
			return rc;
		left = weir_time_left(deadline);
		if (!left && rc == INT32_MAX)
			return weir_fail(-EAGAIN, "no result in time");
		rc = thread_turn(t, 0, left);
		if (rc >= 0 && !left)
			rc = INT32_MAX; /* that was the last look */
	}
}

int
weir_future_wait(struct weir_invoker *v, struct weir_future *f, int timeout_ms)
{
	int rc = weir_future_any(v, &f, 1, timeout_ms);

	return rc ? rc : f->status;
}

void
weir_future_cancel(struct weir_invoker *v, struct weir_future *f)
{
	struct invoke_thread *t = thread_own(v);

	if (t && is_pending(f))
		end(t, f, -ECANCELED, 0);
}

/* ---- in a function ---- */

/* Content of weir_answer.internal. */
struct answer {
	uint64_t id;
	struct weir_to to;
	uint64_t serial; /* of the invoker */
};
static_assert(sizeof(struct answer) <= sizeof(struct weir_answer), "its place");

int
future_give(struct invoke_thread *t, struct weir_to to, uint64_t id, int status, const void *result,
	    size_t length)
{
	struct {
		struct result_args head;
		uint8_t bytes[WEIR_ARGS_MAX];
	} args; /* not initialised: it is large */

	if (length > WEIR_ARGS_MAX)
		return weir_fail(-EMSGSIZE, "a result of %zu bytes; give at most %u", length,
				 WEIR_ARGS_MAX);
	args.head = (struct result_args){.id = id, .status = status};
	if (length)
		memcpy(args.bytes, result, length);
	return line_say(t, to, FUNCTION_RESULT, &args, sizeof(args.head) + length);
}

static int
answer(struct weir_incoming *c, int status, const void *result, size_t length)
{
	int rc;

	if (!c->id || c->answered)
		return weir_fail(-EINVAL, c->id ? "the call has its result already"
						: "the caller expects no result");
	rc = future_give(c->thread, c->from, c->id, status, result, length);
	c->answered = !rc;
	return rc;
}

int
weir_incoming_result(struct weir_incoming *c, const void *result, size_t length)
{
	return answer(c, 0, result, length);
}

bool
incoming_complete(struct weir_incoming *c)
{
	int rc = c->answered ? 0 : answer(c, 0, NULL, 0);

	/* a caller that is gone expects nothing any more */
	return rc != -EAGAIN && rc != -ENOMEM;
}

static int
check_error(int error)
{
	return error >= 1 && error <= 4095
		   ? 0
		   : weir_fail(-EINVAL, "invalid error %d (expected 1 to 4095)", error);
}

int
weir_incoming_refuse(struct weir_incoming *c, int error)
{
	int rc = check_error(error);

	if (rc)
		return rc;
	invoke_count(&c->thread->counters.refused, 1);
	return answer(c, -error, NULL, 0);
}

int
weir_incoming_later(struct weir_incoming *c, struct weir_answer *a)
{
	struct answer in = {c->id, c->from, c->v->serial};

	if (!c->id || c->answered)
		return weir_fail(-EINVAL, c->id ? "the call has its result already"
						: "the caller expects no result");
	memset(a, 0, sizeof(*a));
	memcpy(a->internal, &in, sizeof(in));
	c->answered = true;
	return 0;
}

int
weir_answer(struct weir_invoker *v, const struct weir_answer *a, int error, const void *result,
	    size_t length)
{
	struct invoke_thread *t = thread_own(v);
	struct answer in;
	int rc = error ? check_error(error) : 0;

	if (!t)
		return thread_foreign(v);
	memcpy(&in, a->internal, sizeof(in));
	if (!rc && (in.serial != v->serial || !in.id))
		rc = weir_fail(-EINVAL, "not an answer of weir_incoming_later()");
	return rc ? rc : future_give(t, in.to, in.id, -error, result, length);
}

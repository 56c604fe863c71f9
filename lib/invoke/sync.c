/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Syncs. A batch with calls that have syncs asks: the thread that runs it says up to which batch of
 * the line all have run, one number for all of them (SE-20: Seriema writes one word per call). That
 * is a call of the library on the line back. A batch for a thread of the process comes back itself.
 */
#include "batch.h"
#include "invoker.h"

#include "client/likely.h"
#include "client/reason.h"
#include "client/session.h"
#include "client/wait.h"

#include <errno.h>
#include <stdlib.h>

#define ASKS_MAX 0x4000u /* that a line may have outstanding: numbers have 16 bits */
#define NAMES_MAX (1u << 20)

/* Content of weir_sync.internal. */
struct sync {
	_Atomic uint64_t left, failed;
	void (*done)(struct weir_sync *s, void *user);
	void *user;
	_Atomic(struct invoke_thread *) waiter; /* sleeps until it ends; NULL: nobody */
	_Atomic int32_t error;			/* the first one */
};
static_assert(sizeof(struct sync) <= sizeof(struct weir_sync), "its place");

static struct sync *
inside(struct weir_sync *s)
{
	return (struct sync *)s->internal;
}

/* ---- counting ---- */

void
weir_sync_init(struct weir_sync *s, uint64_t count, void (*done)(struct weir_sync *, void *),
	       void *user)
{
	struct sync *in = inside(s);

	memset(s, 0, sizeof(*s));
	atomic_init(&in->left, count);
	in->done = done;
	in->user = user;
}

void
weir_sync_add(struct weir_sync *s, uint64_t count)
{
	atomic_fetch_add_explicit(&inside(s)->left, count, memory_order_relaxed);
}

uint64_t
weir_sync_left(const struct weir_sync *s, uint64_t *failed)
{
	const struct sync *in = (const struct sync *)s->internal;

	if (failed)
		*failed = atomic_load_explicit(&in->failed, memory_order_relaxed);
	/* pairs with the release in sync_count() */
	return atomic_load_explicit(&in->left, memory_order_acquire);
}

void
sync_count(struct invoke_thread *t, struct weir_sync *s, uint64_t count, int status)
{
	struct sync *in = inside(s);
	void (*done)(struct weir_sync *, void *) = in->done;
	struct invoke_thread *waiter;
	void *user = in->user;
	int32_t none = 0;
	uint64_t left;

	if (weir_unlikely(status)) {
		atomic_fetch_add_explicit(&in->failed, count, memory_order_relaxed);
		atomic_compare_exchange_strong(&in->error, &none, status);
	}
	waiter = atomic_load_explicit(&in->waiter, memory_order_relaxed);
	/* pairs with the acquire in weir_sync_left(): its memory may be gone behind this */
	left = atomic_fetch_sub_explicit(&in->left, count, memory_order_acq_rel);
	weir_assert(left >= count);
	if (left != count)
		return;
	t->told++;
	t->inside++;
	if (done)
		done(s, user);
	t->inside--;
	if (waiter && waiter != t)
		thread_wake(waiter);
}

int
weir_sync_wait(struct weir_invoker *v, struct weir_sync *s, int timeout_ms)
{
	struct invoke_thread *t = thread_own(v);
	uint64_t end = weir_time_end(timeout_ms);
	struct sync *in = inside(s);
	int rc = 0, left;

	if (!t)
		return thread_foreign(v);
	if (thread_is_inside(t))
		return thread_waits_inside();
	atomic_store_explicit(&in->waiter, t, memory_order_relaxed);
	while (weir_sync_left(s, NULL) && rc >= 0) {
		left = weir_time_left(end);
		/* a thread that looked for the waiter before it was set wakes nobody */
		rc = thread_turn(t, 0, left < 0 || left > 10 ? 10 : left);
		if (!left && weir_sync_left(s, NULL))
			rc = weir_fail(-EAGAIN, "%llu calls have not run in time",
				       (unsigned long long)weir_sync_left(s, NULL));
	}
	if (weir_sync_left(s, NULL)) {
		/* it may end when the invoker closes, and the thread is no more */
		atomic_store_explicit(&in->waiter, NULL, memory_order_relaxed);
		return rc;
	}
	rc = atomic_load_explicit(&in->error, memory_order_relaxed);
	return rc ? weir_fail(rc, "%llu calls of the sync were lost",
			      (unsigned long long)atomic_load(&in->failed))
		  : 0;
}

int
sync_error(const struct weir_sync *s)
{
	const struct sync *in = (const struct sync *)s->internal;

	return atomic_load_explicit(&in->error, memory_order_relaxed);
}

/* ---- asking ---- */

struct ask *
ask_make(struct invoke_thread *t, struct weir_sync *s)
{
	struct ask *a = t->spare_ask;

	if (a)
		t->spare_ask = a->next;
	else
		a = malloc(sizeof(*a));
	if (!a) {
		weir_fail(-ENOMEM, "no memory for calls; free some");
		return NULL;
	}
	*a = (struct ask){.sync = s, .count = 1};
	return a;
}

int
asks_add(struct line *l, struct batch *b, struct weir_sync *s)
{
	struct invoke_thread *t = l->thread;
	struct ask *a = b->asks_last;

	if (a && a->sync == s) {
		a->count++;
		return 0;
	}
	a = ask_make(t, s);
	if (!a)
		return -ENOMEM;
	if (b->asks)
		b->asks_last->next = a;
	else
		b->asks = a;
	b->asks_last = a;
	return 0;
}

/* The list ends in the thread's next turn. */
static void
end(struct invoke_thread *t, struct ask *first, struct ask *last, int status)
{
	if (!first)
		return;
	for (struct ask *a = first; a; a = a == last ? NULL : a->next)
		a->status = status;
	last->next = NULL;
	*t->ended_last = first;
	t->ended_last = &last->next;
}

void
ask_end(struct invoke_thread *t, struct ask *a, int status)
{
	end(t, a, a, status);
}

void
batch_asks_lost(struct line *l, struct batch *b, int status)
{
	end(l->thread, b->asks, b->asks_last, status);
	b->asks = b->asks_last = NULL;
}

void
batch_asks_forget(struct invoke_thread *t, struct batch *b)
{
	if (!b->asks)
		return;
	b->asks_last->next = t->spare_ask;
	t->spare_ask = b->asks;
	b->asks = b->asks_last = NULL;
}

bool
asks_have_room(const struct line *l)
{
	return (uint16_t)(l->asked - l->answered) < ASKS_MAX;
}

void
asks_sent(struct line *l, struct batch *b)
{
	l->asked++;
	for (struct ask *a = b->asks; a; a = a->next)
		a->number = l->asked;
	*l->asks_last = b->asks;
	l->asks_last = &b->asks_last->next;
	b->asks = b->asks_last = NULL;
}

bool
asks_answered(struct line *l, uint32_t number, int status)
{
	uint16_t before = l->answered, ahead = (uint16_t)(number - before);
	struct ask *a = l->asks, *first = a, *last = NULL;

	if (number > UINT16_MAX)
		return false;
	if (ahead > INT16_MAX) /* of a connection that was lost */
		return true;
	if (ahead > (uint16_t)(l->asked - before))
		return false;
	for (; a && (uint16_t)(a->number - before) <= ahead; a = a->next)
		last = a;
	l->answered = (uint16_t)number;
	if (!last)
		return true;
	l->asks = a;
	if (!a)
		l->asks_last = &l->asks;
	end(l->thread, first, last, status);
	return true;
}

bool
asks_told(struct line *l, uint32_t number)
{
	uint16_t back = (uint16_t)(l->told - number);

	if ((l->is_told && back && back <= INT16_MAX) || !asks_answered(l, number, 0))
		return false;
	l->told = (uint16_t)number;
	l->is_told = true;
	return true;
}

void
asks_lost(struct line *l, int status)
{
	l->is_told = false;
	asks_answered(l, l->asked, status);
}

unsigned
asks_count(struct invoke_thread *t)
{
	unsigned n = 0;
	struct ask *a;

	while ((a = t->ended)) {
		t->ended = a->next;
		if (!t->ended)
			t->ended_last = &t->ended;
		n++;
		sync_count(t, a->sync, a->count, a->status);
		a->next = t->spare_ask;
		t->spare_ask = a;
	}
	return n;
}

void
asks_free(struct invoke_thread *t)
{
	struct ask *a;

	while ((a = t->spare_ask)) {
		t->spare_ask = a->next;
		free(a);
	}
	free(t->names);
}

/* ---- names for other processes ---- */

/* A name: generation, then number, then the index of the thread. */
#define NAME_NUMBER(name) ((uint32_t)((name) >> 8 & 0xffffffu))
#define NAME_THREAD(name) ((uint32_t)((name)&0xffu))

int
weir_sync_export(struct weir_invoker *v, struct weir_sync *s, uint64_t count, uint64_t *name)
{
	struct invoke_thread *t = thread_own(v);
	struct sync_name *names;
	uint32_t i, room;

	if (!t)
		return thread_foreign(v);
	if (t->index == WEIR_THREAD_ANY)
		return thread_of_pool();
	if (!count || count > weir_sync_left(s, NULL))
		return weir_fail(
		    -EINVAL, "%llu signals of %llu that the sync counts; give 1 to all",
		    (unsigned long long)count, (unsigned long long)weir_sync_left(s, NULL));
	for (i = 0; i < t->name_count; i++)
		if (!t->names[i].sync)
			break;
	if (i == t->name_count) {
		if (i == NAMES_MAX)
			return weir_fail(-ENOSPC, "%u names; end syncs first", NAMES_MAX);
		room = i ? 2 * i : 16;
		names = realloc(t->names, room * sizeof(*names));
		if (!names)
			return weir_fail(-ENOMEM, "no memory for a name; free some");
		memset(names + i, 0, (room - i) * sizeof(*names));
		t->names = names;
		t->name_count = room;
	}
	t->names[i].sync = s;
	t->names[i].left = count;
	t->names[i].generation++;
	*name = (uint64_t)t->names[i].generation << 32 | i << 8 | t->index;
	return 0;
}

void
sync_signalled(struct invoke_thread *t, const struct signal_args *a)
{
	uint32_t i = NAME_NUMBER(a->name);
	struct sync_name *n = i < t->name_count ? &t->names[i] : NULL;
	struct weir_sync *s = n && n->generation == a->name >> 32 ? n->sync : NULL;

	/* a peer signals: what calls count is not its own. So the sync is there while it has a
	 * name */
	if (!s || !a->count || a->count > n->left) {
		invoke_count(&t->counters.ignored, 1);
		return;
	}
	n->left -= a->count;
	if (!n->left)
		n->sync = NULL;
	sync_count(t, s, a->count, 0);
}

void
sync_names_drop(struct invoke_thread *t)
{
	for (uint32_t i = 0; i < t->name_count; i++)
		t->names[i].sync = NULL;
}

int
weir_sync_signal(struct weir_invoker *v, uint32_t process, uint64_t name, uint64_t count)
{
	struct signal_args args = {name, count};
	struct invoke_thread *t = thread_own(v);

	if (!t)
		return thread_foreign(v);
	if (weir_state(v->w) != WEIR_UP)
		return weir_gone(v->w);
	return line_say(t, (struct weir_to){process, NAME_THREAD(name)}, FUNCTION_SIGNAL, &args,
			sizeof(args));
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collective calls of all threads. The threads of a process join; when all have, one of them, the
 * leader, makes the group's call, and runs calls as its idle function. The others make turns.
 *
 * Quiet: waves of the group's sums of calls that have run, R, and that were made, S (the four
 * counters of Mattern's termination detection). A wave begins at a process when the wave before has
 * ended everywhere. If S of a wave equals R of the wave before, all calls have run:
 *   A call is counted in S before it leaves, and in R when it has run and all that it made is in S.
 *   So each call in R, and all that those have made, is in the later S, and so is all that was made
 *   before the threads joined. If there are no more in S than in R, these are the same calls: those
 *   in R have made no others, and no others were made.
 * Calls of the library count as others do, so results and syncs have arrived.
 */
#include "invoker.h"

#include "client/likely.h"
#include "client/reason.h"
#include "client/session.h"
#include "client/wait.h"
#include "group/board.h"
#include "ipc/apply.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum meeting_kind { MEETING_BARRIER, MEETING_QUIET, MEETING_REDUCE };

static_assert(sizeof(struct meeting_call) == 24, "no padding");
static_assert(sizeof(struct wave) == 3 * sizeof(uint64_t), "summed as such");

void
meeting_init(struct weir_invoker *v)
{
	pthread_mutex_init(&v->meeting.lock, NULL);
}

void
meeting_free(struct weir_invoker *v)
{
	free(v->meeting.buffer);
	pthread_mutex_destroy(&v->meeting.lock);
}

/* ---- counts of calls ---- */

void
turn_close(struct invoke_thread *t)
{
	if (weir_likely(t->ran == atomic_load_explicit(&t->closed, memory_order_relaxed)))
		return;
	/* functions of the program that are due may make calls */
	if (t->ended || t->futures_lost || !lines_close_runs(t))
		return;
	/* pairs with the acquire in sums() */
	atomic_store_explicit(&t->closed, t->ran, memory_order_release);
}

static void
add(struct wave *sum, const struct invoke_thread *t)
{
	/* pairs with the release in turn_close(): what those calls made is in `sent` */
	sum->closed += atomic_load_explicit(&t->closed, memory_order_acquire);
	sum->sent += atomic_load_explicit(&t->sent, memory_order_relaxed);
}

static struct wave
sums(const struct weir_invoker *v)
{
	struct wave sum = {.lost = atomic_load_explicit(&v->lost, memory_order_relaxed)};
	uint32_t pool = atomic_load_explicit(&v->pool_used, memory_order_acquire);

	for (uint32_t i = 0; i < v->o.threads; i++)
		add(&sum, &v->threads[i]);
	for (uint32_t i = 0; i < pool; i++)
		add(&sum, &v->pool[i]);
	return sum;
}

/* ---- who is there ---- */

/* All that wait look again. The lock is held. */
static void
tell(struct weir_invoker *v)
{
	/* pairs with the load in meeting_has_news(): one of both sees the other's */
	atomic_fetch_add_explicit(&v->meeting.news, 1, memory_order_seq_cst);
	for (uint32_t i = 0; i < v->o.threads; i++)
		if (v->threads[i].meets.joined &&
		    atomic_load_explicit(&v->threads[i].asleep, memory_order_seq_cst))
			message_wake(v->m, i);
}

/* The lock is held. */
static bool
has_joined(const struct invoke_thread *t)
{
	return t->meets.joined && t->meets.number == t->v->meeting.number;
}

/* The lock is held. */
static bool
all_have_joined(const struct weir_invoker *v)
{
	uint32_t expected = v->o.threads;

	for (uint32_t i = 0; i < v->o.threads; i++)
		expected -= v->threads[i].meets.gone;
	return v->meeting.joined == expected;
}

/* No call succeeds any more. The lock is held. */
static void
end_all(struct weir_invoker *v, int rc, const char *why)
{
	struct meeting *m = &v->meeting;

	if (m->over)
		return;
	m->over = rc;
	snprintf(m->why, sizeof(m->why), "%s", why);
	tell(v);
}

/* All that have joined have their results. The lock is held. */
static void
complete(struct weir_invoker *v, int rc, const char *why)
{
	struct meeting *m = &v->meeting;

	m->result = rc;
	snprintf(m->why, sizeof(m->why), "%s", rc ? why : "");
	m->number++;
	m->leader = NULL;
	m->joined = 0;
	m->begun = false;
	m->waves = 0;
	free(m->buffer);
	m->buffer = NULL;
	tell(v);
}

void
meeting_enter(struct invoke_thread *t)
{
	pthread_mutex_lock(&t->v->meeting.lock);
	t->meets = (struct attendance){0};
	pthread_mutex_unlock(&t->v->meeting.lock);
}

void
meeting_leave(struct invoke_thread *t)
{
	struct weir_invoker *v = t->v;
	struct meeting *m = &v->meeting;

	pthread_mutex_lock(&m->lock);
	if (has_joined(t)) { /* it may have returned before the call was complete */
		m->joined--;
		if (m->leader == t)
			m->leader = NULL;
	}
	t->meets.joined = false;
	t->meets.gone = true;
	/* the others may be all now */
	tell(v);
	pthread_mutex_unlock(&m->lock);
}

/* ---- what the leader does ---- */

/* Runs calls while the group's call waits, and what the program runs then. */
struct meanwhile {
	struct invoke_thread *thread;
	struct group_idle programs;
};

static int
run_meanwhile(void *arg)
{
	struct meanwhile *s = arg;
	struct invoke_thread *t = s->thread;
	int n = thread_turn(t, 0, 0);

	if (s->programs.f)
		n += s->programs.f(s->programs.arg);
	/* it may sleep behind this: one more look, if something came before others see that */
	thread_falls_asleep(t);
	return n > 0 || atomic_load_explicit(&t->inbox, memory_order_seq_cst);
}

/* The elements of the process's threads, in their order. 0 or -ENOMEM. */
static int
combine(struct weir_invoker *v)
{
	struct meeting *m = &v->meeting;
	size_t bytes = m->call.count * weir_type_size(m->call.type);
	bool any = false;

	m->buffer = aligned_alloc(64, (bytes + 64) & ~(size_t)63);
	if (!m->buffer)
		return weir_fail(-ENOMEM, "no memory for %zu bytes; free some", bytes);
	for (uint32_t i = 0; i < v->o.threads && bytes; i++) {
		const struct attendance *a = &v->threads[i].meets;

		if (!a->joined)
			continue;
		if (any)
			weir_apply(m->call.type, m->call.op, m->buffer, a->mine, NULL,
				   m->call.count);
		else
			memcpy(m->buffer, a->mine, bytes);
		any = true;
	}
	return 0;
}

static int
reduce(struct weir_invoker *v, int timeout_ms)
{
	struct meeting *m = &v->meeting;
	size_t bytes = m->call.count * weir_type_size(m->call.type);
	int rc = m->begun ? 0 : combine(v);

	if (rc)
		return rc;
	m->begun = true;
	rc = weir_group_allreduce(v->g, m->buffer, m->buffer, m->call.count, m->call.type,
				  m->call.op, timeout_ms);
	for (uint32_t i = 0; !rc && bytes && i < v->o.threads; i++)
		if (v->threads[i].meets.joined)
			memcpy(v->threads[i].meets.result, m->buffer, bytes);
	return rc;
}

static int
await_quiet(struct invoke_thread *t, uint64_t end)
{
	struct meeting *m = &t->v->meeting;
	int rc;

	for (;;) {
		if (!m->begun)
			m->mine = sums(t->v);
		m->begun = true;
		rc = weir_group_allreduce(t->v->g, &m->mine, &m->sum, 3, WEIR_T_UINT64,
					  WEIR_ACC_SUM, weir_time_left(end));
		if (rc)
			return rc;
		m->begun = false;
		if (m->waves++ && m->sum.sent == m->last.closed)
			return 0;
		/* nothing moves, and something was lost */
		if (m->waves > 1 && m->sum.lost && !memcmp(&m->sum, &m->last, sizeof(m->sum)))
			return weir_fail(-EHOSTUNREACH, "a line was lost; calls on it may not have "
							"run");
		m->last = m->sum;
		if (!weir_time_left(end))
			return -EAGAIN; /* led() says why */
		/* the third wave behind the last call ends it; a function may run for long */
		rc = thread_turn(t, 0, m->waves > 3 ? 1 : 0);
		if (rc < 0)
			return rc;
	}
}

/* Makes the group's call, or goes on with it. 0 or -errno. */
static int
lead(struct invoke_thread *t, uint64_t end)
{
	struct meanwhile meanwhile = {.thread = t};
	struct weir_invoker *v = t->v;
	int rc;

	meanwhile.programs = group_set_idle(v->g, (struct group_idle){run_meanwhile, &meanwhile});
	switch (v->meeting.call.kind) {
	case MEETING_BARRIER:
		rc = weir_group_barrier(v->g, weir_time_left(end));
		break;
	case MEETING_QUIET:
		rc = await_quiet(t, end);
		break;
	default:
		rc = reduce(v, weir_time_left(end));
	}
	group_set_idle(v->g, meanwhile.programs);
	thread_is_awake(t);
	return rc;
}

/* ---- a thread's call ---- */

/* Names the threads of the process that the others wait for. The lock is held. */
static int
say_missing(const struct weir_invoker *v)
{
	char text[128];
	size_t length = 0;

	for (uint32_t i = 0; i < v->o.threads && length < sizeof(text) - 64; i++) {
		const struct invoke_thread *t = &v->threads[i];
		const struct weir_function *f =
		    atomic_load_explicit(&t->running, memory_order_relaxed);

		if (has_joined(t) || t->meets.gone)
			continue;
		length += (size_t)snprintf(text + length, sizeof(text) - length, "%s%u%s%.32s%s",
					   length ? ", " : "", i, f ? " (runs " : "",
					   f ? f->name : "", f ? ")" : "");
	}
	return weir_fail(-EAGAIN,
			 "not in time: the group's process %u waits for its threads %s; let them "
			 "make the call",
			 v->self, text);
}

static int
say_awaited(const struct weir_invoker *v, uint32_t rank)
{
	if (rank == WEIR_RANK_ANY)
		return weir_fail(-EAGAIN, "not in time: calls have not run; make the call again");
	return weir_fail(-EAGAIN,
			 "not in time: process %u has not made the call, or waits for another "
			 "one; see there",
			 rank);
}

/* The thread joins, or has before. 0 or -errno. */
static int
join(struct invoke_thread *t, const struct meeting_call *call, const void *mine, void *result)
{
	struct meeting *m = &t->v->meeting;
	struct attendance *a = &t->meets;
	int rc = 0;

	pthread_mutex_lock(&m->lock);
	if (a->joined && (a->mine != mine || a->result != result ||
			  memcmp(&a->call, call, sizeof(*call)) != 0)) {
		rc = weir_fail(-EBUSY, "the thread has begun another collective call; repeat it "
				       "with the same arguments until it is complete");
	} else if (!a->joined) {
		if (m->over) {
			rc = weir_fail(m->over, "%s", m->why);
		} else if (m->leader) {
			rc = weir_fail(-EBUSY, "the others are in a collective call that has begun "
					       "before the thread entered; call again later");
		} else if (m->joined && memcmp(&m->call, call, sizeof(*call)) != 0) {
			/* not all have joined: nobody is in a call of the group */
			group_differ(t->v->g);
			end_all(t->v, -EINVAL,
				"the threads' collective calls differ in kind, "
				"length, type or operation");
			rc = weir_fail(m->over, "%s", m->why);
		} else {
			m->call = *call;
			m->joined++;
			*a = (struct attendance){.joined = true,
						 .number = m->number,
						 .call = *call,
						 .mine = mine,
						 .result = result};
			a->is_home = group_is_home(t->v->g);
			/* others may be waiting for this one, but not if it leads */
			if (all_have_joined(t->v))
				tell(t->v);
		}
	}
	pthread_mutex_unlock(&m->lock);
	return rc;
}

/* The thread that leads: the group's own, whose sleep ends with the group's news; else this one. */
static struct invoke_thread *
elect(struct invoke_thread *t)
{
	struct weir_invoker *v = t->v;

	for (uint32_t i = 0; i < v->o.threads; i++)
		if (v->threads[i].meets.joined && v->threads[i].meets.is_home)
			return &v->threads[i];
	return t;
}

/* Whether the call has ended, with *rc; else *leads. */
static bool
look(struct invoke_thread *t, int *rc, bool *leads)
{
	struct meeting *m = &t->v->meeting;
	bool ended = false;

	pthread_mutex_lock(&m->lock);
	t->meets.seen = atomic_load_explicit(&m->news, memory_order_relaxed);
	if (t->meets.number != m->number) {
		ended = true;
		*rc = m->result ? weir_fail(m->result, "%s", m->why) : 0;
	} else if (m->over) {
		ended = true;
		*rc = weir_fail(m->over, "%s", m->why);
	} else if (!m->leader && all_have_joined(t->v)) {
		m->leader = elect(t);
		if (m->leader != t)
			tell(t->v);
	}
	*leads = !ended && m->leader == t;
	if (ended)
		t->meets.joined = false;
	pthread_mutex_unlock(&m->lock);
	return ended;
}

/* The leader's call has ended with rc. Whether the thread's has, too. */
static bool
led(struct invoke_thread *t, int *rc)
{
	struct meeting *m = &t->v->meeting;
	bool goes_on = *rc == -EINTR || *rc == -ENOMEM || *rc == -EBUSY || *rc == -EAGAIN;

	if (*rc == -EAGAIN)
		say_awaited(t->v, group_awaits(t->v->g));
	if (goes_on)
		return true;
	pthread_mutex_lock(&m->lock);
	if (!*rc || *rc == -EHOSTUNREACH)
		complete(t->v, *rc, weir_reason());
	else
		end_all(t->v, *rc, weir_reason());
	pthread_mutex_unlock(&m->lock);
	return false; /* look() says how */
}

static int
not_in_time(struct invoke_thread *t)
{
	struct meeting *m = &t->v->meeting;
	int rc;

	pthread_mutex_lock(&m->lock);
	rc = m->leader
		 ? weir_fail(-EAGAIN, "not in time: see the reason of thread %u", m->leader->index)
		 : say_missing(t->v);
	pthread_mutex_unlock(&m->lock);
	return rc;
}

static int
meet(struct weir_invoker *v, const struct meeting_call *call, const void *mine, void *result,
     int timeout_ms)
{
	struct invoke_thread *t = thread_own(v);
	uint64_t end = weir_time_end(timeout_ms);
	bool leads, last = false;
	int rc, left;

	if (!t || weir_state(v->w) == WEIR_FORKED)
		return thread_foreign(v);
	if (t->index == WEIR_THREAD_ANY || thread_is_inside(t))
		return thread_waits_inside();
	if (v->seat_count != v->process_count)
		return weir_fail(-EINVAL, "some processes have no threads of the program; open "
					  "all invokers with at least one");
	/* what the thread has packed leaves, and what is due is called: its calls are counted */
	rc = thread_turn(t, 0, 0);
	if (rc < 0 && rc != -EAGAIN)
		return rc;
	lines_close_runs(t);
	rc = join(t, call, mine, result);
	t->meets.waits = true;
	while (!rc && !look(t, &rc, &leads)) {
		if (leads) {
			rc = lead(t, end);
			if (led(t, &rc))
				break;
			rc = 0;
		} else if (last) {
			rc = not_in_time(t);
		} else {
			left = weir_time_left(end);
			last = !left;
			rc = thread_turn(t, 0, left);
			rc = rc < 0 ? rc : 0;
		}
	}
	t->meets.waits = false;
	return rc;
}

/* ---- of the program ---- */

int
weir_invoker_barrier(struct weir_invoker *v, int timeout_ms)
{
	const struct meeting_call call = {.kind = MEETING_BARRIER};

	return meet(v, &call, NULL, NULL, timeout_ms);
}

int
weir_invoker_quiet(struct weir_invoker *v, int timeout_ms)
{
	const struct meeting_call call = {.kind = MEETING_QUIET};

	return meet(v, &call, NULL, NULL, timeout_ms);
}

int
weir_invoker_reduce(struct weir_invoker *v, const void *mine, void *result, size_t count,
		    enum weir_type type, enum weir_acc op, int timeout_ms)
{
	const struct meeting_call call = {
	    .kind = MEETING_REDUCE, .type = type, .op = op, .count = count};
	size_t bytes;

	if (!weir_acc_valid(type, op) ||
	    __builtin_mul_overflow(count, weir_type_size(type), &bytes) || bytes > SIZE_MAX / 4 ||
	    (count && (!mine || !result)) || (uintptr_t)result % weir_type_align(type))
		return weir_fail(-EINVAL, "an argument is invalid; see weir_invoker_reduce()");
	return meet(v, &call, mine, result, timeout_ms);
}

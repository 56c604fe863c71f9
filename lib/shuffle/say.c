/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of peers: records, blocks, and what processes say to each other. All of it is checked. */
#include "held.h"
#include "store.h"

int
say(struct weir_shuffle *s, struct weir_to to, const struct say_args *a,
    const struct weir_call_options *o)
{
	struct say_args args = *a;

	args.shuffle = s->number;
	return weir_call(s->v, to, s->function_say, &args, sizeof(args), o);
}

/* A question under way, in memory that outlives a wait which fails. */
struct question {
	struct weir_future f;
	struct say_answer answer;
	bool answered;
};

static void
answered(struct weir_future *f, void *user)
{
	struct question *q = user;

	(void)f;
	q->answered = true;
}

int
say_ask(struct shuffle_thread *t, const struct say_args *a, struct say_answer *answer)
{
	struct weir_shuffle *s = t->s;
	struct question *q = calloc(1, sizeof(*q));
	struct say_args args = *a;
	int rc;

	if (!q)
		return weir_fail(-ENOMEM, "no memory to ask process 0; free some");
	args.shuffle = s->number;
	q->f = (struct weir_future){.then = answered, .user = q};
	rc = weir_call_return(s->v, (struct weir_to){0, 0}, s->function_say, &args, sizeof(args),
			      &q->f, &q->answer, sizeof(q->answer), NULL);
	if (rc) {
		free(q);
		return shuffle_failed(s, rc, 0);
	}
	while (!q->answered && !rc)
		rc = shuffle_turn(t, &(struct wait){.end = UINT64_MAX});
	if (!q->answered)
		return rc; /* the library may still write there */
	*answer = q->answer;
	if (q->f.status)
		rc = shuffle_failed(s, q->f.status, 0);
	free(q);
	return rc;
}

void
shuffle_wake(struct weir_shuffle *s, bool everyone)
{
	struct say_args a = {.kind = SAY_WAKE};

	for (uint32_t i = 0; i < s->own_threads; i++) {
		/* pairs with the release in attach() */
		struct shuffle_thread *t =
		    atomic_load_explicit(&s->threads[i], memory_order_acquire);

		/* pairs with the store in await_run(): the lock of the store lies between */
		if (t && (everyone || atomic_load_explicit(&t->waits, memory_order_relaxed)))
			say(s, (struct weir_to){s->self, i}, &a, NULL);
	}
}

/* ---- arrivals ---- */

static void
refuse(struct shuffle_thread *t, struct weir_incoming *c)
{
	shuffle_count(&t->n.malformed, 1);
	weir_incoming_refuse(c, EBADMSG);
}

/* The thread has what it must read before it waits for room to send: that wait ends. */
static void
look_at_memory(struct shuffle_thread *t, struct weir_incoming *c)
{
	if (!memory_may_wait(t))
		weir_incoming_end_wait(c);
}

void
weir_shuffle_run_records(struct weir_incoming *c, const void *args, size_t length, size_t stride,
			 size_t count)
{
	struct weir_to from = weir_incoming_from(c);
	const uint8_t *at = args;
	struct shuffle_thread *t;
	uint32_t number, other, n;

	/* those of one shuffle together */
	for (; count; count -= n, at += n * stride) {
		memcpy(&number, at, sizeof(number));
		for (n = 1; n < count; n++) {
			memcpy(&other, at + n * stride, sizeof(other));
			if (other != number)
				break;
		}
		t = shuffle_called(c, number);
		if (!t)
			continue;
		if (t->s->o.kind != WEIR_SHUFFLE_STREAM || from.thread == WEIR_THREAD_ANY) {
			shuffle_count(&t->n.malformed, n);
			continue;
		}
		if (t->reads_no_more)
			shuffle_count(&t->n.dropped, n);
		else
			queue_add_records(t, at, (uint32_t)length, (uint32_t)stride, n,
					  thread_number(t->s, from));
		look_at_memory(t, c);
	}
}

void
weir_shuffle_run_block(struct weir_incoming *c, const void *args, size_t length)
{
	struct weir_to from = weir_incoming_from(c);
	struct shuffle_thread *t;
	struct block_args a;
	struct held *b;
	bool stream;

	(void)length;
	memcpy(&a, args, sizeof(a));
	t = shuffle_called(c, a.shuffle);
	if (!t)
		return;
	if (from.thread == WEIR_THREAD_ANY || (a.local && from.process != t->s->self)) {
		refuse(t, c);
		return;
	}
	stream = t->s->o.kind == WEIR_SHUFFLE_STREAM;
	b = held_take(t, c, a.local);
	if (!b)
		return;
	if (!stream)
		store_add(t, b, c);
	else if (t->reads_no_more)
		held_drop(t, b);
	else
		queue_add_block(t, b, thread_number(t->s, from));
	look_at_memory(t, c);
}

/* ---- words ---- */

/* Process 0's thread 0 answers with the attempt that it has selected, or moves a partition. */
static void
asked(struct shuffle_thread *t, struct weir_incoming *c, const struct say_args *a)
{
	struct weir_shuffle *s = t->s;
	struct say_answer answer = {.winner = UINT32_MAX};
	int rc = -EBADMSG;

	if (!s->self && !t->index)
		rc = a->kind == SAY_ASK ? commit_ask(t, a, &answer) : move_partition(t, a);
	answer.epoch = atomic_load_explicit(&s->epoch, memory_order_relaxed);
	if (rc)
		refuse(t, c);
	else
		weir_incoming_result(c, &answer, sizeof(answer));
}

void
weir_shuffle_run_say(struct weir_incoming *c, const void *args, size_t length)
{
	struct weir_to from = weir_incoming_from(c);
	struct shuffle_thread *t;
	struct weir_shuffle *s;
	struct say_args a;
	bool stream;

	(void)length;
	memcpy(&a, args, sizeof(a));
	t = shuffle_called(c, a.shuffle);
	if (!t)
		return;
	s = t->s;
	stream = s->o.kind == WEIR_SHUFFLE_STREAM;
	switch (a.kind) {
	case SAY_WAKE: /* the call itself has */
		return;
	case SAY_GONE:
		shuffle_gone(t, from.process);
		return;
	case SAY_END:
		if (!stream || from.thread == WEIR_THREAD_ANY ||
		    !queue_add_end(t, thread_number(s, from), a.records))
			break;
		return;
	case SAY_ASK:
		if (stream || a.map >= s->o.maps || a.producer != producer_word(from))
			break;
		asked(t, c, &a);
		return;
	case SAY_MOVE:
		if (stream || from.process)
			break;
		asked(t, c, &a);
		return;
	case SAY_MOVED:
	case SAY_AGAIN:
		/* process 0 tells itself without a call */
		if (stream || from.process || !s->self || move_heard(t, &a))
			break;
		return;
	case SAY_COUNTS:
	case SAY_DROP:
		if (stream || a.map >= s->o.maps || a.producer != producer_word(from))
			break;
		store_say(t, &a);
		return;
	case SAY_WON:
		if (stream || a.map >= s->o.maps || from.process)
			break;
		store_say(t, &a);
		return;
	default:
		break;
	}
	refuse(t, c);
}

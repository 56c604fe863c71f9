/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Payloads that arrive: with their call, in memory of a thread of the process, or behind the call
 * as messages without a head. The call is kept for these, by connection. One piece stays where it
 * has arrived; more are put together, in memory of the program or in the library's, which grows as
 * they come: an announced length costs nothing, and takes nothing from others.
 */
#include "batch.h"
#include "invoker.h"

#include "client/likely.h"
#include "client/reason.h"
#include "client/session.h"

#include <errno.h>
#include <stdlib.h>

#define ASSEMBLED_MAX (2 * WEIR_PAYLOAD_MAX) /* bytes of the process for what is under way */

/* A call whose payload is under way. */
struct arrival {
	struct weir_to from;
	const struct weir_function *function; /* NULL: FUNCTION_TREE */
	uint64_t id;			      /* of the result */
	uint32_t length;		      /* of args */
	uint32_t total, got;		      /* bytes of the payload */
	uint32_t allocated;		      /* PAYLOAD_ALLOCATED: bytes */
	uint32_t posted;		      /* PAYLOAD_PLACED: of the first bytes */
	bool refused;			      /* its bytes are dropped */
	bool placed;			      /* some came where they belong */
	enum payload_place place;
	uint8_t *data;
	_Alignas(8) uint8_t args[];
};

/* All of a connection. */
struct arrivals {
	struct arrivals *next; /* in `broken` of: */
	struct invoke_thread *thread;
	struct arrival *due;			/* its bytes come next; NULL: none */
	uint32_t due_number;			/* that it has */
	struct arrival *at[PAYLOADS_AHEAD + 1]; /* by number */
};

/* ---- memory ---- */

/* A part of ASSEMBLED_MAX. */
static bool
reserve(struct weir_invoker *v, uint32_t bytes)
{
	uint64_t before = atomic_fetch_add_explicit(&v->assembled, bytes, memory_order_relaxed);

	if (before + bytes <= ASSEMBLED_MAX)
		return true;
	atomic_fetch_sub_explicit(&v->assembled, bytes, memory_order_relaxed);
	return false;
}

/* Its bytes are dropped, and the function does not run. */
static void
refuse(struct weir_invoker *v, struct arrival *a)
{
	if (a->place == PAYLOAD_ALLOCATED) {
		free(a->data);
		atomic_fetch_sub_explicit(&v->assembled, a->allocated, memory_order_relaxed);
	}
	a->place = PAYLOAD_ELSEWHERE;
	a->data = NULL;
	a->refused = true;
}

/* Room for `bytes` bytes in memory of the library, if it has that. */
static void
grow(struct weir_invoker *v, struct arrival *a, uint32_t bytes)
{
	uint64_t room = 2 * (uint64_t)bytes < a->total ? 2 * (uint64_t)bytes : a->total;
	uint8_t *data = NULL;

	if (a->place != PAYLOAD_ALLOCATED || bytes <= a->allocated)
		return;
	if (reserve(v, (uint32_t)room - a->allocated)) {
		a->allocated = (uint32_t)room;
		data = realloc(a->data, room);
	}
	if (data)
		a->data = data;
	else
		refuse(v, a);
}

/* Adopted memory of the program receives the next bytes where they belong; `most`: for all that
 * follow each other. Later ones find no place among posts, or are copied as any. */
static void
post(const struct weir_reply *from, struct arrival *a, uint32_t most)
{
	uint32_t length;

	if (a->posted < a->got)
		a->posted = a->got;
	while (a->posted < a->got + most) {
		length = payload_piece(a->total - a->posted);
		if (message_post(from, a->data + a->posted, length))
			return;
		a->posted += length;
	}
}

/* ---- running ---- */

void
payload_free(struct weir_invoker *v, void *data, uint32_t length)
{
	atomic_fetch_sub_explicit(&v->assembled, length, memory_order_relaxed);
	free(data);
}

/* Runs a function, which may keep the payload. As run(). */
static bool
run_function(struct weir_incoming *c, const void *args, uint32_t length)
{
	bool good;

	c->answered = c->kept = false;
	run_one(c, args, length);
	good = !c->id || incoming_complete(c);
	if (c->place == PAYLOAD_ALLOCATED)
		payload_free(c->v, c->kept ? NULL : (void *)(uintptr_t)c->payload,
			     (uint32_t)c->payload_length);
	invoke_count(&c->thread->counters.run, 1);
	return good;
}

/* Runs a call that has its payload. False: its result finds no room, and the caller shall know. */
static bool
run(struct weir_incoming *c, const void *args, uint32_t length)
{
	bool good = c->function ? run_function(c, args, length) : tree_run(c, args, length);

	c->id = 0;
	c->payload = NULL;
	c->payload_length = 0;
	return good;
}

/* The function does not run. As run(). */
static bool
run_not(struct weir_incoming *c)
{
	int rc = c->id ? future_give(c->thread, c->from, c->id, -ENOMEM, NULL, 0) : 0;

	c->id = 0;
	invoke_count(&c->thread->counters.unplaced, 1);
	return rc != -EAGAIN && rc != -ENOMEM;
}

/* A payload of a thread of the process is aligned as that has it; functions rely on 8 bytes. */
static void *
aligned_copy(struct weir_invoker *v, const void *payload, uint32_t bytes)
{
	void *to;

	if (!reserve(v, bytes))
		return NULL;
	to = malloc(bytes);
	if (to)
		return memcpy(to, payload, bytes);
	atomic_fetch_sub_explicit(&v->assembled, bytes, memory_order_relaxed);
	return NULL;
}

/* Runs a call whose payload lies in memory that goes away. As run(). */
static bool
run_here(struct weir_incoming *c, const uint8_t *args, uint32_t length, const void *payload,
	 uint32_t bytes, bool large)
{
	void *to;

	c->place = PAYLOAD_ELSEWHERE;
	if (large && c->function && c->function->place) {
		to = c->function->place(c, args, length, bytes);
		if (!to)
			return run_not(c);
		memcpy(to, payload, bytes);
		payload = to;
		c->place = PAYLOAD_PLACED;
		invoke_count(&c->thread->counters.copied, 1);
	} else if ((uintptr_t)payload % 8) {
		payload = aligned_copy(c->v, payload, bytes);
		if (!payload)
			return run_not(c);
		c->place = PAYLOAD_ALLOCATED;
	}
	c->payload = payload;
	c->payload_length = bytes;
	return run(c, args, length);
}

/* ---- calls that wait for bytes ---- */

static struct arrivals *
arrivals_of(struct invoke_thread *t, const struct weir_reply *from)
{
	void **state = message_state(from);
	struct arrivals *s = *state;

	if (!s) {
		s = calloc(1, sizeof(*s));
		if (s)
			s->thread = t;
		*state = s;
	}
	return s;
}

/* The bytes of a->at[number] come next. */
static void
expect(struct arrivals *s, const struct weir_reply *from, uint32_t number)
{
	struct arrival *a = s->at[number];
	uint32_t length = payload_piece(a->total - a->got);

	s->due = a;
	s->due_number = number;
	if (a->place == PAYLOAD_PLACED)
		post(from, a, number ? length : a->total - a->got);
	message_expect(from, length);
}

/* Finds memory for a payload, if it will be needed. One of a tree is sent on from there: it does
 * not stay where it arrives, though it be one piece. */
static void
find_memory(struct weir_incoming *c, struct arrival *a)
{
	if (c->function && c->function->place) {
		a->data = c->function->place(c, a->args, a->length, a->total);
		a->place = PAYLOAD_PLACED;
		if (!a->data)
			refuse(c->v, a);
	} else if (!c->function || payload_piece(a->total) < a->total) {
		a->place = PAYLOAD_ALLOCATED;
	}
}

/* A payload is announced. */
static enum payload_came
announced(struct weir_incoming *c, const uint8_t *args, uint32_t length,
	  const struct payload_args *payload)
{
	const struct weir_reply *from = c->origin->reply;
	struct arrivals *s;
	struct arrival *a;

	if (!c->function && !tree_is_valid(c, args, length))
		return PAYLOAD_MALFORMED;
	s = from ? arrivals_of(c->thread, from) : NULL;
	if (!s || s->at[payload->number] || (!payload->number && s->due))
		return PAYLOAD_MALFORMED;
	a = malloc(sizeof(*a) + length);
	if (!a)
		return PAYLOAD_MALFORMED;
	*a = (struct arrival){.from = c->from,
			      .function = c->function,
			      .id = c->id,
			      .length = length,
			      .total = payload->length};
	memcpy(a->args, args, length);
	s->at[payload->number] = a;
	find_memory(c, a);
	if (!payload->number)
		expect(s, from, 0);
	c->id = 0;
	return PAYLOAD_WAITS;
}

bool
payload_expect(const struct origin *origin, uint32_t number)
{
	struct arrivals *s = origin->reply ? *message_state(origin->reply) : NULL;

	if (!s || s->due || !number || number > PAYLOADS_AHEAD || !s->at[number])
		return false;
	expect(s, origin->reply, number);
	return true;
}

enum payload_came
payload_take(struct weir_incoming *c, const uint8_t *data, const struct run_head *h)
{
	const struct batch *b = c->origin->batch;
	struct payload_args payload;
	const uint8_t *behind;
	bool large, good;

	if (h->flags & RUN_RETURN) {
		memcpy(&c->id, data, sizeof(c->id));
		data += sizeof(c->id);
		if (!c->id)
			return PAYLOAD_MALFORMED;
	}
	memcpy(&payload, data, sizeof(payload));
	data += sizeof(payload);
	large = payload.length > payload_in_batch(h->length);
	if (large && !b)
		return announced(c, data, h->length, &payload);
	behind = data + ((h->length + 7u) & ~7u);
	good =
	    run_here(c, data, h->length, large ? b->parcel->data : behind, payload.length, large);
	return good ? PAYLOAD_RAN : PAYLOAD_MALFORMED;
}

/* The bytes are where they belong, or get there. */
static void
take_piece(struct weir_invoker *v, struct arrival *a, const struct message_taken *taken)
{
	grow(v, a, a->got + taken->length);
	if (a->data && a->data + a->got == taken->data)
		a->placed = true;
	else if (a->data) /* which may be the next one's: posts are of messages, of any kind */
		memmove(a->data + a->got, taken->data, taken->length);
	a->got += taken->length;
}

/* All bytes have come. As run(). */
static bool
complete(struct invoke_thread *t, struct arrival *a, const struct message_taken *taken)
{
	const struct origin origin = {.from = a->from, .reply = &taken->reply};
	struct weir_incoming c = {.v = t->v,
				  .thread = t,
				  .function = a->function,
				  .from = a->from,
				  .id = a->id,
				  .place = a->place,
				  .origin = &origin,
				  .payload = a->data,
				  .payload_length = a->total};
	bool good;

	if (a->place == PAYLOAD_ELSEWHERE && !a->refused) {
		c.place = PAYLOAD_LENT;
		c.payload = taken->data;
	}
	if (a->place == PAYLOAD_PLACED)
		invoke_count(a->placed ? &t->counters.placed : &t->counters.copied, 1);
	t->inside++;
	if (c.function)
		run_begins(t, c.function);
	good = a->refused ? run_not(&c) : run(&c, a->args, a->length);
	atomic_store_explicit(&t->running, NULL, memory_order_relaxed);
	t->inside--;
	t->ran++;
	free(a);
	return good;
}

bool
payload_arrived(struct invoke_thread *t, const struct message_taken *taken, struct weir_to *from)
{
	struct arrivals *s = *message_state(&taken->reply);
	struct arrival *a = s->due;

	*from = a->from;
	s->due = NULL;
	take_piece(t->v, a, taken);
	if (a->got < a->total) {
		if (!s->due_number)
			expect(s, &taken->reply, 0);
		return true;
	}
	s->at[s->due_number] = NULL;
	return complete(t, a, taken);
}

/* ---- connections that have ended ---- */

void
payloads_broken(void *arrivals, void *user)
{
	struct arrivals *s = arrivals;
	struct invoke_thread *t = s->thread;

	(void)user;
	s->next = atomic_load_explicit(&t->broken, memory_order_relaxed);
	/* pairs with the acquire in payloads_drop() */
	while (!atomic_compare_exchange_weak_explicit(&t->broken, &s->next, s, memory_order_release,
						      memory_order_relaxed))
		;
	thread_wake(t);
}

unsigned
payloads_drop(struct invoke_thread *t)
{
	struct arrivals *s = atomic_exchange_explicit(&t->broken, NULL, memory_order_acquire),
			*next;
	unsigned n = 0;

	for (; s; s = next) {
		next = s->next;
		for (uint32_t i = 0; i <= PAYLOADS_AHEAD; i++) {
			struct arrival *a = s->at[i];

			if (!a)
				continue;
			n++;
			t->inside++;
			if (a->place == PAYLOAD_PLACED && a->function->broken)
				a->function->broken(t->v, a->data, a->function->user);
			t->inside--;
			refuse(t->v, a);
			free(a);
		}
		free(s);
	}
	return n;
}

/* ---- in a function ---- */

const void *
weir_incoming_payload(const struct weir_incoming *c, size_t *length)
{
	*length = c->payload_length;
	return c->payload;
}

/* Content of weir_kept.internal. */
struct kept {
	void *allocated;
	uint64_t loan;
};
static_assert(sizeof(struct kept) <= sizeof(((struct weir_kept *)0)->internal), "its place");

int
weir_incoming_keep(struct weir_incoming *c, struct weir_kept *kept)
{
	struct weir_loan loan;
	struct kept in = {0};

	if (!c->payload || c->kept)
		return weir_fail(-EINVAL, c->kept ? "the payload is kept already"
						  : "the call has no payload");
	*kept = (struct weir_kept){.data = c->payload, .length = c->payload_length};
	switch (c->place) {
	case PAYLOAD_ELSEWHERE:
		in.allocated = malloc(c->payload_length);
		if (!in.allocated)
			return weir_fail(-ENOMEM, "no memory for a payload; free some");
		memcpy(in.allocated, c->payload, c->payload_length);
		kept->data = in.allocated;
		break;
	case PAYLOAD_LENT:
		message_keep(c->origin->reply, &loan);
		in.loan = loan.internal[0];
		break;
	case PAYLOAD_ALLOCATED:
		in.allocated = (void *)(uintptr_t)c->payload;
		break;
	case PAYLOAD_PLACED:
		break;
	}
	memcpy(kept->internal, &in, sizeof(in));
	c->kept = true;
	return 0;
}

void
weir_kept_release(struct weir_invoker *v, struct weir_kept *kept)
{
	struct weir_loan loan = {0};
	struct kept in;

	memcpy(&in, kept->internal, sizeof(in));
	memset(kept, 0, sizeof(*kept));
	free(in.allocated);
	loan.internal[0] = in.loan;
	weir_release(v->w, &loan);
}

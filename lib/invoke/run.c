/* SPDX-License-Identifier: BSD-3-Clause */
/* Running the calls of a batch, which is a peer's: each run is checked before it runs. */
#include "batch.h"
#include "invoker.h"

#include "client/likely.h"

void
run_begins(struct invoke_thread *t, const struct weir_function *f)
{
	atomic_store_explicit(&t->running, f, memory_order_relaxed);
	if (weir_likely(t->shown == f))
		return;
	t->shown = f;
	message_show(t->v->m, f->name);
}

void
run_one(struct weir_incoming *c, const void *args, size_t length)
{
	const struct weir_function *f = c->function;

	if (f->run)
		f->run(c, args, length);
	else
		f->run_many(c, args, length, run_stride((uint32_t)length, 0), 1);
}

/* Calls whose callers expect results. False: one finds no room, and the caller shall know. */
static bool
run_returning(struct weir_incoming *c, const uint8_t *args, struct run_head h)
{
	uint32_t stride = run_stride(h.length, RUN_RETURN);

	for (uint32_t i = 0; i < h.count; i++, args += stride) {
		memcpy(&c->id, args, sizeof(c->id));
		c->answered = false;
		run_one(c, args + sizeof(c->id), h.length);
		if (!incoming_complete(c))
			return false;
	}
	c->id = 0;
	return true;
}

/* A call with a payload: t->ran counts it already. */
static bool
run_with_payload(struct weir_incoming *c, const uint8_t *data, const struct run_head *h)
{
	enum payload_came came = payload_take(c, data, h);

	/* calls are counted when they have run */
	c->thread->ran -= came == PAYLOAD_WAITS;
	return came != PAYLOAD_MALFORMED;
}

/* Calls of trees. False: malformed, or a result finds no room. */
static bool
run_trees(struct invoke_thread *t, const struct origin *origin, const uint8_t *args,
	  const struct run_head *h)
{
	struct weir_incoming c = {.v = t->v, .thread = t, .from = origin->from, .origin = origin};
	uint32_t stride = run_stride(h->length, h->flags);
	uint32_t id_bytes = h->flags & RUN_RETURN ? sizeof(c.id) : 0;

	if (h->flags & RUN_PAYLOAD)
		return run_with_payload(&c, args, h);
	for (uint32_t i = 0; i < h->count; i++, args += stride) {
		memcpy(&c.id, args, id_bytes);
		if ((id_bytes && !c.id) || !tree_run(&c, args + id_bytes, h->length))
			return false;
	}
	return true;
}

/* Calls of the library itself. False: malformed. */
static __attribute__((noinline)) bool
run_library(struct invoke_thread *t, const struct origin *origin, const uint8_t *args,
	    struct run_head h)
{
	uint32_t stride = run_stride(h.length, h.flags);
	struct weir_to from = origin->from;
	struct signal_args signal;
	struct piece_args piece;
	struct done_args done;
	struct line *l;

	if (t->index == WEIR_THREAD_ANY && h.function != FUNCTION_PIECE)
		return false;
	if (h.function == FUNCTION_TREE)
		return run_trees(t, origin, args, &h);
	if (h.flags)
		return false;
	for (uint32_t i = 0; i < h.count; i++, args += stride)
		switch (h.function) {
		case FUNCTION_DONE:
			l = line_find(t, from);
			if (!l || h.length != sizeof(done))
				return false;
			memcpy(&done, args, sizeof(done));
			if (done.zero || !asks_told(l, done.ask))
				return false;
			break;
		case FUNCTION_RESULT:
			if (h.length < sizeof(struct result_args) ||
			    !future_result(t, from, args, h.length))
				return false;
			break;
		case FUNCTION_SIGNAL:
			if (h.length != sizeof(signal))
				return false;
			memcpy(&signal, args, sizeof(signal));
			sync_signalled(t, &signal);
			break;
		case FUNCTION_PIECE:
			if (h.length != sizeof(piece))
				return false;
			memcpy(&piece, args, sizeof(piece));
			if (piece.zero || !payload_expect(origin, piece.number))
				return false;
			break;
		default:
			return false;
		}
	return true;
}

/* The own function of the run, if it takes such arguments. NULL: it does not. */
static inline const struct weir_function *
function_of(const struct weir_invoker *v, struct run_head h)
{
	const struct weir_function *f = &v->functions[h.function];

	return weir_likely(h.length >= f->min_length && h.length <= f->max_length) ? f : NULL;
}

/* Calls of an own function with results, or one with a payload; *run: those that have run. False:
 * malformed. */
static __attribute__((noinline)) bool
run_special(struct weir_incoming *c, const uint8_t *args, struct run_head h, uint64_t *run)
{
	c->function = function_of(c->v, h);
	if (!c->function)
		return false;
	run_begins(c->thread, c->function);
	if (h.flags & RUN_PAYLOAD) /* which counts it */
		return run_with_payload(c, args, &h);
	*run += h.count;
	return run_returning(c, args, h);
}

bool
run_batch(struct invoke_thread *t, const struct origin *origin, const uint8_t *data, uint32_t bytes)
{
	struct weir_incoming c = {.v = t->v, .thread = t, .from = origin->from, .origin = origin};
	const struct weir_invoker *v = t->v;
	const uint8_t *end = data + bytes, *args;
	const struct weir_function *f;
	bool good = bytes;
	uint64_t run = 0, special = 0;
	struct run_head h;
	uint32_t n, stride;

	t->inside++;
	for (; data < end && good; data += n) {
		n = run_head_read(&h, data, (uint32_t)(end - data));
		good = n;
		if (weir_unlikely(!good))
			break;
		t->ran += h.count;
		args = data + RUN_HEAD;
		if (weir_unlikely(h.function >= v->o.function_count)) {
			good = run_library(t, origin, args, h);
			continue;
		}
		if (weir_unlikely(h.flags)) {
			good = run_special(&c, args, h, &special);
			continue;
		}
		f = c.function = function_of(v, h);
		good = f;
		if (weir_unlikely(!good))
			break;
		run_begins(t, f);
		run += h.count;
		stride = run_stride(h.length, 0);
		if (f->run_many)
			f->run_many(&c, args, h.length, stride, h.count);
		else
			for (uint32_t i = h.count; i; i--, args += stride)
				f->run(&c, args, h.length);
	}
	t->inside--;
	atomic_store_explicit(&t->running, NULL, memory_order_relaxed);
	invoke_count(&t->counters.run, run + special);
	return good;
}

struct weir_invoker *
weir_incoming_invoker(const struct weir_incoming *c)
{
	return c->v;
}

struct weir_to
weir_incoming_from(const struct weir_incoming *c)
{
	return c->from;
}

void *
weir_incoming_user(const struct weir_incoming *c)
{
	return c->function->user;
}

void
weir_incoming_end_wait(struct weir_incoming *c)
{
	c->thread->wait_ends = true;
}

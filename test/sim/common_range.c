/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranges pass from one program to the next: by a notice or a signal word, behind operations that
 * may be under way; by a message, or a word of mouth, after a flush. The last one retires them.
 */
#include "common_state.h"
#include "memory.h"
#include "oracle.h"

#include "remote/notice.h"

#include <string.h>

/* Bytes around those that programs use. */
void
common_check_around(struct sim *s, const struct sim_common *k)
{
	for (uint32_t i = 0; i < REGION; i++)
		if ((i < k->start || i >= k->start + BYTES) && k->base[i] != common_byte(i, i >> 8))
			sim_fail(s,
				 "an operation changed byte %u of a region, and %u to %u are used",
				 i, k->start, k->start + BYTES - 1);
}

/* All that was done in a range is done: loads see the model. */
void
common_check_loads(struct sim *s, const struct sim_common *k, const struct range *r,
		   const char *when)
{
	const uint8_t *is = k->base + k->start + r->at, *legal = k->model + r->at;
	uint32_t i = 0;

	if (!memcmp(is, legal, r->bytes))
		return;
	while (is[i] == legal[i])
		i++;
	sim_fail(s, "range %ld after %u hand-overs, %s: byte %u is %02x, not %02x",
		 (long)(r - k->range), r->turn, when, i, is[i], legal[i]);
}

/* A message that p has still to send, on a sound connection, to the next one. */
static bool
find_message(struct sim_program *p, struct range *r)
{
	for (uint32_t i = 0; i < p->ends; i++) {
		const struct sim_end *e = &p->end[i];
		const struct sim_conn_plan *c = &p->s->sc.conn[e->conn];
		const struct sim_flow *f = sim_flow(p->s, e->conn, e->side);

		if (e->state != END_OPEN || c->program[!e->side] != r->next || c->datagram ||
		    c->unknown || sim_conn_excused(p->s, e->conn) || f->unsent ||
		    f->accepted >= f->planned)
			continue;
		r->conn = e->conn;
		r->side = e->side;
		r->message = f->accepted;
		return true;
	}
	return false;
}

/* Draws to whom p passes the range on, and how. False: nobody can take it now. */
static bool
draw_next(struct sim_program *p, struct rng *rng, struct range *r)
{
	const struct sim_common *k = p->s->common;
	uint32_t to[RACING_USERS], n = 0, way = rng_below(rng, 10);
	bool later = false;

	for (uint32_t i = 0; i < p->s->sc.programs; i++) {
		const struct user *u = &k->user[i];

		if (i == p->id || (u->done && i != k->plan->owner))
			continue;
		if (i == k->plan->owner || u->opened)
			to[n++] = i;
		else
			later = true;
	}
	if (!n && later)
		return false;
	if (!n) {
		r->left = 0;
		return true;
	}
	r->next = to[rng_below(rng, n)];
	r->edge = way < 4 ? BY_SIGNAL : way < 7 ? TOLD : BY_MESSAGE;
	if (r->next == k->plan->owner && way < 5)
		r->edge = BY_NOTICE;
	return true;
}

/* Whether it is known to whom p passes the range on: to somebody who still takes part. */
static bool
is_chosen(struct sim_program *p, struct rng *rng, struct range *r)
{
	const struct sim_common *k = p->s->common;

	if (r->chosen && r->left && r->next != k->plan->owner && k->user[r->next].done)
		r->chosen = false;
	if (!r->chosen)
		r->chosen = !r->left || draw_next(p, rng, r);
	return r->chosen;
}

static void
passed(struct sim_program *p, struct range *r, uint8_t edge)
{
	sim_trace(p->s, "program %u: passes range %ld to program %u, way %u", p->id,
		  (long)(r - p->s->common->range), r->next, edge);
	r->state = PASSED;
	r->woken = false;
	r->edge = edge;
	r->from = p->id;
	r->holder = r->next;
	r->turn++;
	r->left--;
	if (edge == BY_SIGNAL) {
		r->before = r->word;
		r->word = r->turn;
	}
	if (edge == TOLD || edge == BY_SIGNAL) /* which the next one looks for from now on */
		sim_program_poke(p->s, r->next);
	sim_progress(p->s);
}

static void
retire(struct sim_program *p, struct range *r)
{
	const struct sim_common *k = p->s->common;

	if (k->base)
		common_check_loads(p->s, k, r, "when it is given up");
	r->state = RETIRED;
	common_poke_all(p->s);
}

/* All operations of p on the range are complete: the last holder retires it, or the next one hears
 * of it. */
void
common_pass_flushed(struct sim_program *p, struct rng *rng, struct range *r)
{
	if (!is_chosen(p, rng, r) || (r->left && r->edge >= BY_NOTICE))
		return; /* whom it was for has ended meanwhile */
	if (!r->left)
		retire(p, r);
	else if (r->edge == BY_MESSAGE && find_message(p, r))
		passed(p, r, BY_MESSAGE);
	else
		passed(p, r, TOLD);
}

/* A notice or signal, alone or behind a last put, which is one operation with it. */
static int
pass_behind(struct sim_program *p, struct user *u, struct range *r)
{
	struct sim_common *k = p->s->common;
	uint32_t which = (uint32_t)(r - k->range);
	struct operation *o = common_next_operation(u);
	struct weir_transfer t = {.flags = WEIR_NOWAIT};
	struct weir_cell_notice signal = {.handle = WEIR_HANDLE_FIRST,
					  .options = WEIR_NOTICE_ADD,
					  .signal = which * sizeof(uint64_t),
					  .operand = r->turn + 1 - r->word};
	int rc;

	o->kind = PUT;
	o->number = k->number++;
	o->length = 1 + rng_below(&u->rng, 100);
	common_draw_offset(&u->rng, r, o, 1);
	r->bytes_told = 0;
	if (rng_chance(&u->rng, 500)) {
		if (r->edge == BY_NOTICE)
			return weir_remote_notify(u->r, which | (r->turn + 1) << 8, p->id,
						  WEIR_NOWAIT);
		return weir_notice_begin(u->r, &signal, WEIR_NOWAIT);
	}
	t.offset = o->offset;
	t.length = o->length;
	t.buf = (void *)(uintptr_t)common_fill(k, o);
	t.notify = r->edge == BY_NOTICE ? WEIR_WITH_NOTICE
		   : o->number % 2	? WEIR_WITH_SIGNAL_SET
					: WEIR_WITH_SIGNAL_ADD;
	t.tag = which | (r->turn + 1) << 8;
	t.source = p->id;
	t.signal = signal.signal;
	t.operand = t.notify == WEIR_WITH_SIGNAL_SET ? r->turn + 1 : signal.operand;
	rc = weir_remote_put_with(u->r, &t);
	if (rc)
		return rc;
	r->bytes_told = o->length;
	common_apply(k, o, common_fill(k, o));
	u->ops++;
	return 0;
}

/* True: something was done. */
bool
common_pass_on(struct sim_program *p, struct user *u, struct range *r)
{
	if (!is_chosen(p, &u->rng, r))
		return false;
	if (!r->left || r->edge < BY_NOTICE) {
		u->flushing = true; /* flush() goes on */
		return true;
	}
	if (!common_has_begun(p, u, pass_behind(p, u, r)))
		return false;
	passed(p, r, r->edge);
	return true;
}

/* It is p's now. */
void
common_take_over(struct sim_program *p, struct rng *rng, struct range *r)
{
	struct sim *s = p->s;

	sim_trace(s, "program %u: has range %ld", p->id, (long)(r - s->common->range));
	r->state = HELD;
	r->chosen = false;
	r->under_way = 0;
	r->feast = rng_chance(rng, 100);
	r->alike = rng_chance(rng, 150) ? WEIR_T_INT8 + rng_below(rng, 10) : 0;
	r->todo = (r->feast || r->alike ? 3 : 1) + rng_below(rng, 6);
	s->counts.passed_told += r->edge == TOLD;
	s->counts.passed_message += r->edge == BY_MESSAGE;
	s->counts.passed_notice += r->edge == BY_NOTICE;
	s->counts.passed_signal += r->edge == BY_SIGNAL;
	sim_progress(s);
}

/* ---- the exporting program ---- */

bool
sim_common_notice(struct sim_program *p, const struct weir_notice *n)
{
	struct sim_common *k = p->s->common;
	uint32_t which = n->tag & 0xff;
	struct range *r;

	if (!k || k->plan->owner != p->id || n->x != k->x)
		return false;
	r = &k->range[which < RANGES ? which : 0];
	if (which < RANGES && r->state == LOST)
		return true;
	if (which >= RANGES || r->state != PASSED || r->edge != BY_NOTICE ||
	    n->tag >> 8 != r->turn || n->source != r->from || n->bytes != r->bytes_told)
		sim_fail(p->s, "notice %x of program %u, %lu bytes, says what nobody said", n->tag,
			 n->source, n->bytes);
	common_take_over(p, &k->user[p->id].rng, r);
	return true;
}

/* Loads what others have done, stores, and passes the range on. */
static void
own(struct sim_program *p, struct range *r)
{
	struct sim_common *k = p->s->common;
	struct rng *rng = &k->user[p->id].rng;
	uint8_t *memory = k->base + k->start;
	uint64_t *word = (uint64_t *)(void *)memory + (r - k->range);

	if (r->todo) {
		common_check_loads(p->s, k, r, "when its owner loads it");
		common_check_around(p->s, k);
	}
	for (; r->todo; r->todo--) {
		uint32_t length = 1 + rng_below(rng, 300),
			 at = r->at + rng_below(rng, r->bytes - length);

		for (uint32_t i = 0; i < length; i++)
			memory[at + i] = k->model[at + i] = common_byte(k->number, i);
		k->number++;
	}
	if (!is_chosen(p, rng, r))
		return;
	if (!r->left || r->edge != BY_SIGNAL) {
		common_pass_flushed(p, rng, r);
		return;
	}
	passed(p, r, BY_SIGNAL);
	__atomic_store_n(word, r->turn, __ATOMIC_RELEASE);
}

/* Whether what the next one waits for, but for a signal, has come. */
bool
common_is_told(struct sim *s, const struct range *r)
{
	return r->edge == TOLD ||
	       (r->edge == BY_MESSAGE && sim_flow(s, r->conn, r->side)->received > r->message);
}

/* Whether the signal of a range that was passed on by one has come. */
bool
common_is_signalled(struct sim *s, const struct range *r, uint64_t word)
{
	if (word != r->word && word != r->before)
		sim_fail(s, "signal word %ld is %lu, neither %lu nor %lu",
			 (long)(r - s->common->range), word, r->before, r->word);
	return word == r->word;
}

bool
common_serve(struct sim_program *p)
{
	struct sim_common *k = p->s->common;
	bool any = sim_memory_notices(p);

	for (uint32_t i = 0; i < RANGES && k->base; i++) {
		struct range *r = &k->range[i];
		uint64_t *word = (uint64_t *)(void *)(k->base + k->start) + i;

		if (r->holder != p->id || i == BY_LOCK)
			continue;
		if (r->state == PASSED &&
		    (common_is_told(p->s, r) ||
		     (r->edge == BY_SIGNAL &&
		      common_is_signalled(p->s, r, __atomic_load_n(word, __ATOMIC_ACQUIRE)))))
			common_take_over(p, &k->user[p->id].rng, r);
		if (r->state == HELD) {
			own(p, r);
			any |= r->state != HELD;
		}
	}
	return any;
}

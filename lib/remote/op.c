/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Handles of operations, and marks. Operations of a thread and a handle complete in order, so
 * either is a number of its lane; the library keeps nothing of its own.
 */
#include "operation.h"

#include "client/reason.h"
#include "client/wait.h"

#include <limits.h>

enum { OP_NONE, OP_RUNS, OP_ENDED, OP_REPORTED };

static struct weir_remote_lane *
lane_of(const struct weir_op *op)
{
	return (struct weir_remote_lane *)(uintptr_t)op->internal[0];
}

void
weir_op_begun(struct weir_op *op, struct weir_conn *c)
{
	if (!op)
		return;
	*op = (struct weir_op){.state = c ? OP_RUNS : OP_ENDED};
	op->internal[0] = c ? (uintptr_t)c->remote : 0;
	op->internal[1] = c ? c->remote->before + c->sent : 0;
}

/* Whether it has ended. `ask`: the engine says when it is complete. */
static bool
has_ended(struct weir_op *op, bool ask)
{
	struct weir_remote_lane *l;
	int rc;

	if (op->state != OP_RUNS)
		return true;
	l = lane_of(op);
	if (weir_state(l->worker->w) == WEIR_FORKED)
		rc = weir_gone(l->worker->w);
	else
		rc = weir_operation_look(l, op->internal[1], ask);
	if (!rc)
		return false;
	op->status = rc < 0 ? rc : 0;
	op->state = OP_ENDED;
	return true;
}

static int
report(struct weir_op *op)
{
	if (op->state == OP_ENDED)
		op->state = OP_REPORTED;
	return op->status;
}

int
weir_op_test(struct weir_op *op)
{
	if (!has_ended(op, false))
		return 0;
	report(op);
	return 1;
}

/* The first of these that has ended and was not reported; -EAGAIN: none; -ENOENT: none is left. */
static int
look_any(struct weir_op *const *ops, unsigned n, bool ask)
{
	int rc = -ENOENT;

	for (unsigned i = 0; i < n; i++) {
		if (!ops[i] || ops[i]->state == OP_NONE || ops[i]->state == OP_REPORTED)
			continue;
		if (has_ended(ops[i], ask))
			return (int)i;
		rc = -EAGAIN;
	}
	return rc;
}

/* 0: all have ended; else -EAGAIN. */
static int
look_all(struct weir_op *const *ops, unsigned n, bool ask)
{
	int rc = 0;

	for (unsigned i = 0; i < n && (ask || !rc); i++)
		if (ops[i] && !has_ended(ops[i], ask))
			rc = -EAGAIN;
	return rc;
}

/* Waits until `look` returns another value than -EAGAIN, which it returns. */
static int
await(int (*look)(struct weir_op *const *ops, unsigned n, bool ask), struct weir_op *const *ops,
      unsigned n, int timeout_ms)
{
	struct weir_thread *worker = NULL;
	int rc = look(ops, n, true), end;
	struct weir_wait wait;

	if (rc != -EAGAIN || !timeout_ms)
		return rc;
	for (unsigned i = 0; i < n && !worker; i++)
		if (ops[i] && ops[i]->state == OP_RUNS)
			worker = lane_of(ops[i])->worker;
	weir_wait_init(&wait, worker, timeout_ms);
	for (unsigned i = 0; i < n; i++) /* rings of another session wake nobody here */
		if (ops[i] && ops[i]->state == OP_RUNS && lane_of(ops[i])->worker != worker)
			wait.nap_always = true;
	do {
		end = weir_wait_next(&wait);
		rc = look(ops, n, false);
	} while (rc == -EAGAIN && !end);
	weir_wait_end(&wait);
	return rc == -EAGAIN ? end : rc;
}

int
weir_op_wait(struct weir_op *op, int timeout_ms)
{
	int rc = await(look_all, &op, 1, timeout_ms);

	return rc ? rc : report(op);
}

int
weir_op_wait_any(struct weir_op *const *ops, unsigned n, int timeout_ms)
{
	int rc;

	if (n > INT_MAX)
		return weir_fail(-EINVAL, "%u handles in one call; wait for fewer", n);
	rc = await(look_any, ops, n, timeout_ms);
	if (rc >= 0)
		report(ops[rc]);
	return rc;
}

int
weir_op_wait_all(struct weir_op *const *ops, unsigned n, int timeout_ms)
{
	int rc = await(look_all, ops, n, timeout_ms), first = 0;

	if (rc)
		return rc;
	for (unsigned i = 0; i < n; i++) {
		int status = ops[i] ? report(ops[i]) : 0;

		first = first ? first : status;
	}
	return first;
}

/* ---- marks ---- */

#define MARK_RESULTS (1ull << 63) /* of the number: operations with results are before it */

void
weir_remote_mark(struct weir_remote *r, struct weir_mark *m)
{
	const struct weir_conn *c = NULL;

	*m = (struct weir_mark){{0}};
	if (weir_state(r->w) != WEIR_FORKED)
		c = weir_remote_conn(r);
	if (!c || !c->sent)
		return;
	m->internal[0] = (uintptr_t)c->remote;
	m->internal[1] = (c->remote->before + c->sent) | (weir_results_last(c) ? MARK_RESULTS : 0);
}

int
weir_mark_done(const struct weir_mark *m)
{
	struct weir_remote_lane *l = (struct weir_remote_lane *)(uintptr_t)m->internal[0];
	uint64_t number = m->internal[1] & ~MARK_RESULTS;
	bool done;

	if (!l)
		return 1;
	weir_lock(l->worker);
	/* pairs with the release in conn_completed() in dataplane/engine */
	done = number <= l->before ||
	       atomic_load_explicit(&l->conn->desc->completed, memory_order_acquire) >=
		   number - l->before;
	weir_unlock(l->worker);
	if (!done || !(m->internal[1] & MARK_RESULTS))
		return done;
	return weir_operation_look(l, number, false) > 0;
}

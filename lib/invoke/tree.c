/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls of all threads. Processes with threads form a tree around the one that calls: thread 0 of
 * each passes the call on to its branches and to the other threads of its process, and runs it.
 * Each of these calls of the library has a result, if the caller wants to know: when all of a
 * process's parts have ended, its result goes up.
 */
#include "batch.h"
#include "invoker.h"

#include "client/likely.h"
#include "client/reason.h"
#include "client/session.h"

#include <errno.h>
#include <stdlib.h>

#define TREES_MAX 4096u /* of others that a thread passes on: a peer may start more and more */

/* A call whose parts a thread has called, and waits for. */
struct tree {
	struct invoke_thread *thread;
	struct weir_sync *sync; /* of the root */
	struct weir_to up;	/* below it: where the result goes */
	uint64_t id;		/* of that */
	uint32_t left;		/* parts, and whoever makes them */
	int status;		/* of the first part that failed */
	uint32_t count;
	struct weir_future parts[];
};

/* The call, on its way from here. */
struct spread {
	struct invoke_thread *thread;
	struct tree *tree; /* NULL: nobody wants to know */
	struct {
		struct tree_args head;
		uint8_t bytes[WEIR_ARGS_MAX];
	} args;
	uint32_t length; /* of args */
	uint32_t place;	 /* of this process in the tree; 0: the root */
};

/* ---- the shape ---- */

/* Where the processes of a tree sit: its root's place is 0. */
static uint32_t
place_of(const struct weir_invoker *v, uint32_t root, uint32_t process)
{
	uint32_t seat = v->processes[process].seat, first = v->processes[root].seat;

	return seat >= first ? seat - first : seat + v->seat_count - first;
}

static uint32_t
process_at(const struct weir_invoker *v, uint32_t root, uint32_t place)
{
	uint64_t seat = (uint64_t)v->processes[root].seat + place;

	return v->seats[seat % v->seat_count];
}

static uint32_t
branches(const struct weir_invoker *v, uint32_t place, uint32_t arity, uint32_t *first)
{
	uint64_t begin = (uint64_t)place * arity + 1, end = begin + arity;

	*first = (uint32_t)begin;
	if (end > v->seat_count)
		end = v->seat_count;
	return begin < end ? (uint32_t)(end - begin) : 0;
}

/* ---- ends ---- */

static void
part_ended(struct tree *tree, int status)
{
	struct invoke_thread *t = tree->thread;

	if (!tree->status)
		tree->status = status;
	if (--tree->left)
		return;
	/* a thread that leaves has no lines any more: who waits for it learns that by the line */
	if (tree->sync)
		sync_count(t, tree->sync, 1, tree->status);
	else if (atomic_load_explicit(&t->entered, memory_order_relaxed))
		future_give(t, tree->up, tree->id, tree->status, NULL, 0);
	t->trees -= !tree->sync;
	free(tree);
}

static void
result_came(struct weir_future *f, void *user)
{
	part_ended(user, f->status);
}

static struct tree *
tree_make(struct invoke_thread *t, uint32_t parts)
{
	struct tree *tree = calloc(1, sizeof(*tree) + parts * sizeof(tree->parts[0]));

	if (!tree) {
		weir_fail(-ENOMEM, "no memory for a call of all threads; free some");
		return NULL;
	}
	tree->thread = t;
	tree->left = 1;
	return tree;
}

/* ---- passing it on ---- */

static void
pass(struct spread *s, struct weir_to to, uint32_t function, uint32_t flags)
{
	struct invoke_thread *t = s->thread;
	struct call c = {.function = FUNCTION_TREE,
			 .number = FUNCTION_TREE,
			 .args = &s->args,
			 .length = s->length,
			 .flags = CALL_LIBRARY};
	struct weir_future *part;
	int rc = function == FUNCTION_NONE ? -ENOSYS : 0;
	struct line *l = rc ? NULL : line_get(t, to, &rc);

	s->args.head.function = (uint16_t)function;
	s->args.head.flags = (uint8_t)flags;
	if (l && s->tree) {
		part = &s->tree->parts[s->tree->count++];
		part->then = result_came;
		part->user = s->tree;
		c.run_flags = RUN_RETURN;
		s->tree->left++;
		rc = future_call(l, &c, part, NULL, 0, call_make);
		if (rc)
			part_ended(s->tree, rc);
	} else if (l) {
		rc = call_make(l, &c);
	} else if (s->tree && !s->tree->status) {
		s->tree->status = rc;
	}
	if (weir_unlikely(rc)) {
		invoke_count(&t->counters.dropped, 1);
		atomic_fetch_add_explicit(&t->v->lost, 1, memory_order_relaxed);
	}
}

/* The function's number there. FUNCTION_NONE: such a call would be malformed there. */
static uint32_t
number_at(const struct spread *s, uint32_t process, uint32_t function)
{
	const struct function_target *target =
	    &s->thread->v->processes[process].table->targets[function];
	uint32_t length = s->length - sizeof(s->args.head);

	return length >= target->min_length && length <= target->max_length ? target->number
									    : FUNCTION_NONE;
}

/* To the branches of this process, and to its threads from this one on. */
static void
pass_on(struct spread *s, uint32_t function, uint32_t flags, uint32_t first_thread)
{
	struct weir_invoker *v = s->thread->v;
	uint32_t root = s->args.head.process, first,
		 n = branches(v, s->place, s->args.head.arity, &first);

	for (uint32_t i = 0; i < n; i++) {
		uint32_t process = process_at(v, root, first + i);

		pass(s, (struct weir_to){process, 0}, number_at(s, process, function), flags);
	}
	for (uint32_t i = first_thread; !(flags & TREE_PROCESS) && i < v->o.threads; i++)
		pass(s, (struct weir_to){v->self, i}, function, flags | TREE_LEAF);
}

/* ---- arriving ---- */

/* A peer's: every field is checked. The length of the arguments, too. */
static bool
is_valid(const struct invoke_thread *t, struct weir_to from, const struct tree_args *a,
	 uint32_t length)
{
	const struct weir_invoker *v = t->v;
	const struct weir_function *f;
	uint32_t place, parent;

	if (a->zero || a->flags & ~(TREE_LEAF | TREE_PROCESS) || a->arity < 2 ||
	    a->arity > WEIR_ARITY_MAX || a->process >= v->process_count ||
	    a->thread >= v->processes[a->process].threads || a->function >= v->o.function_count)
		return false;
	f = &v->functions[a->function];
	if (length < f->min_length || length > f->max_length)
		return false;
	if (a->flags & TREE_LEAF)
		return from.process == v->self;
	place = place_of(v, a->process, v->self);
	if (t->index || !place)
		return false;
	parent = (place - 1) / a->arity;
	return from.process == process_at(v, a->process, parent) &&
	       from.thread == (parent ? 0 : a->thread);
}

/* False: there is no room, and the caller shall know. */
static bool
give(struct invoke_thread *t, struct weir_to to, uint64_t id, int status)
{
	int rc = future_give(t, to, id, status, NULL, 0);

	return rc != -EAGAIN && rc != -ENOMEM;
}

static bool
tree_refuse(struct invoke_thread *t, struct weir_to to, uint64_t id, int status)
{
	invoke_count(&t->counters.dropped, 1);
	return give(t, to, id, status);
}

bool
tree_run(struct invoke_thread *t, struct weir_to from, uint64_t id, const uint8_t *data,
	 uint32_t length)
{
	struct weir_incoming c = {.v = t->v, .thread = t};
	struct spread s = {.thread = t, .length = length};
	uint32_t function, flags, first, n;

	if (length < sizeof(s.args.head) || length > sizeof(s.args))
		return false;
	memcpy(&s.args, data, length);
	length -= sizeof(s.args.head);
	if (!is_valid(t, from, &s.args.head, length))
		return false;
	function = s.args.head.function;
	flags = s.args.head.flags;
	s.place = place_of(t->v, s.args.head.process, t->v->self);
	n = branches(t->v, s.place, s.args.head.arity, &first) + t->v->o.threads;
	if (id && !(flags & TREE_LEAF)) {
		s.tree = t->trees < TREES_MAX ? tree_make(t, n) : NULL;
		if (!s.tree)
			return tree_refuse(t, from, id, t->trees < TREES_MAX ? -ENOMEM : -EAGAIN);
		t->trees++;
		s.tree->up = from;
		s.tree->id = id;
	}
	if (!(flags & TREE_LEAF))
		pass_on(&s, function, flags, 1);
	c.function = &t->v->functions[function];
	c.from = (struct weir_to){s.args.head.process, s.args.head.thread};
	run_begins(t, c.function);
	run_one(&c, s.args.bytes, length);
	invoke_count(&t->counters.run, 1);
	if (s.tree) {
		part_ended(s.tree, 0);
	} else if (id) {
		return give(t, from, id, 0);
	}
	return true;
}

/* ---- of the program ---- */

/* All processes have the function, and none is known to be lost. */
static int
check(const struct weir_invoker *v, uint32_t function, const struct call *c)
{
	if (function >= v->o.function_count)
		return function_refuse(v, (struct weir_to){v->self, 0}, function, c->length);
	for (uint32_t i = 0; i < v->seat_count; i++) {
		uint32_t process = v->seats[i];
		const struct invoke_process *p = &v->processes[process];
		const struct function_target *target = &p->table->targets[function];
		int status = atomic_load_explicit(&p->status, memory_order_relaxed);

		if (target->number == FUNCTION_NONE || c->length < target->min_length ||
		    c->length > target->max_length)
			return function_refuse(v, (struct weir_to){process, 0}, function,
					       c->length);
		if (status)
			return weir_fail(-EHOSTUNREACH, "process %u was lost: %s", process,
					 strerror(-status));
	}
	return 0;
}

/* Waits as c says for room on the lines to the branches. */
static int
await_room(struct spread *s, const struct call *c)
{
	struct weir_invoker *v = s->thread->v;
	uint32_t first, n = branches(v, 0, v->o.arity, &first);
	struct line *l;
	int rc = 0;

	for (uint32_t i = 0; i < n && !rc; i++) {
		l = line_get(s->thread,
			     (struct weir_to){process_at(v, s->args.head.process, first + i), 0},
			     &rc);
		if (l)
			rc = call_await_room(l, c);
	}
	return rc;
}

int
weir_call_all(struct weir_invoker *v, uint32_t function, const void *args, size_t length,
	      const struct weir_call_options *options)
{
	struct invoke_thread *t = thread_own(v);
	struct weir_sync *sent = NULL;
	struct spread s = {.thread = t};
	uint32_t flags, own, first;
	struct call c;
	int rc;

	if (!t)
		return thread_foreign(v);
	if (t->index == WEIR_THREAD_ANY)
		return thread_of_pool();
	rc = call_prepare(&c, function, args, length, options,
			  CALL_FLAGS | WEIR_CALL_ONCE_PER_PROCESS);
	if (!rc && c.payload_length)
		rc = weir_fail(-EINVAL, "a call of all threads has no payload; call each of them");
	if (!rc && weir_state(v->w) != WEIR_UP)
		rc = weir_gone(v->w);
	if (!rc)
		rc = check(v, function, &c);
	if (rc)
		return rc;
	s.args.head = (struct tree_args){
	    .process = v->self, .thread = t->index, .arity = (uint8_t)v->o.arity};
	s.length = sizeof(s.args.head) + c.length;
	if (c.length)
		memcpy(s.args.bytes, args, c.length);
	rc = await_room(&s, &c);
	if (rc)
		return rc;
	flags = c.flags & WEIR_CALL_ONCE_PER_PROCESS ? TREE_PROCESS : 0;
	if (c.sync && c.flags & WEIR_CALL_SYNC_SENT) {
		sent = c.sync;
		c.sync = NULL;
	}
	own = flags ? 1 : v->o.threads;
	if (c.sync) {
		s.tree = tree_make(t, branches(v, 0, v->o.arity, &first) + own);
		if (!s.tree)
			return -ENOMEM;
		s.tree->sync = c.sync;
	}
	invoke_count(&t->counters.made,
		     flags ? v->seat_count : weir_invoker_threads(v, UINT32_MAX));
	pass_on(&s, function, flags, 0);
	if (flags) /* not inside this call */
		pass(&s, (struct weir_to){v->self, t->index}, function, flags | TREE_LEAF);
	if (c.flags & WEIR_CALL_NOW)
		lines_flush(t);
	if (s.tree)
		part_ended(s.tree, 0);
	if (sent) /* arguments are copied */
		sync_count(t, sent, 1, 0);
	return 0;
}

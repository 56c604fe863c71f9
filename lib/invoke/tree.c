/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls of all threads. Processes with threads form a tree around the one that calls: thread 0 of
 * each passes the call on to its branches and to the other threads of its process, and runs it.
 * Each of these calls of the library has a result, if the caller wants to know: when all of a
 * process's parts have ended, its result goes up.
 *
 * A large payload leaves from the memory of the caller, and below it from the memory that it was
 * put together in, one copy per process, which the threads of the process read, too.
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
	uint32_t left;		/* parts, and whoever makes them; the payload of the root */
	int status;		/* of the first part that failed */
	struct lent *lent;	/* while parts are made: their payload; or NULL */
	uint32_t count;
	struct weir_future parts[];
};

/* A large payload, which calls read. Its thread alone counts them. */
struct lent {
	struct weir_sync readers; /* and whoever makes them */
	struct invoke_thread *thread;
	void *own; /* of this process, freed behind the last one; NULL: the caller's */
	uint32_t length;
	struct tree *tree; /* one of its parts ends then; NULL: none */
};

/* The call, on its way from here. */
struct spread {
	struct invoke_thread *thread;
	struct tree *tree;   /* NULL: nobody wants to know */
	struct lent *lent;   /* the payload is large; NULL: calls have copies, or it has none */
	const void *payload; /* NULL: none */
	size_t payload_length;
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

/* ---- large payloads ---- */

static void
all_have_read(struct weir_sync *readers, void *user)
{
	struct lent *lent = user;
	struct tree *tree = lent->tree;
	int status = sync_error(readers);

	if (lent->own)
		payload_free(lent->thread->v, lent->own, lent->length);
	free(lent);
	if (tree)
		part_ended(tree, status);
}

/* NULL: no memory. */
static struct lent *
lend(struct invoke_thread *t, void *own, size_t length, struct tree *tree)
{
	struct lent *lent = malloc(sizeof(*lent));

	if (!lent) {
		weir_fail(-ENOMEM, "no memory for a call of all threads; free some");
		return NULL;
	}
	lent->thread = t;
	lent->own = own;
	lent->length = (uint32_t)length;
	lent->tree = tree;
	weir_sync_init(&lent->readers, 1, all_have_read, lent);
	if (tree)
		tree->left++;
	return lent;
}

/* One of its readers, or whoever makes them, reads it no more. NULL: no payload is lent. */
static void
has_read(struct lent *lent, int status)
{
	if (lent)
		sync_count(lent->thread, &lent->readers, 1, status);
}

/* ---- passing it on ---- */

static int
make(struct line *l, struct call *c)
{
	return c->payload_length ? payload_make(l, c) : call_make(l, c);
}

/* future_call() takes the sync of a call for that of its result: that of the payload comes now. */
static int
make_part(struct line *l, struct call *c)
{
	const struct tree *tree = c->expects->future->user;

	c->sync = tree->lent ? &tree->lent->readers : NULL;
	return make(l, c);
}

static void
pass(struct spread *s, struct weir_to to, uint32_t function, uint32_t flags)
{
	struct invoke_thread *t = s->thread;
	struct call c = {.function = FUNCTION_TREE,
			 .number = FUNCTION_TREE,
			 .args = &s->args,
			 .length = s->length,
			 .flags = CALL_LIBRARY,
			 .sync = s->lent ? &s->lent->readers : NULL,
			 .payload = s->payload,
			 .payload_length = s->payload_length};
	struct weir_future *part;
	int rc = function == FUNCTION_NONE ? -ENOSYS : 0;
	struct line *l = rc ? NULL : line_get(t, to, &rc);

	if (s->lent)
		weir_sync_add(&s->lent->readers, 1);
	s->args.head.function = (uint16_t)function;
	s->args.head.flags = (uint8_t)flags;
	if (l && s->tree) {
		part = &s->tree->parts[s->tree->count++];
		part->then = result_came;
		part->user = s->tree;
		c.run_flags = RUN_RETURN;
		s->tree->left++;
		c.sync = NULL;
		rc = future_call(l, &c, part, NULL, 0, make_part);
		if (rc)
			part_ended(s->tree, rc);
	} else if (l) {
		rc = make(l, &c);
	} else if (s->tree && !s->tree->status) {
		s->tree->status = rc;
	}
	if (weir_unlikely(rc)) {
		has_read(s->lent, rc);
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
bool
tree_is_valid(const struct weir_incoming *call, const void *data, uint32_t length)
{
	const struct weir_invoker *v = call->v;
	const struct weir_function *f;
	uint32_t place, parent;
	struct tree_args a;

	if (length < sizeof(a))
		return false;
	memcpy(&a, data, sizeof(a));
	if (a.zero || a.flags & ~(TREE_LEAF | TREE_PROCESS) || a.arity < 2 ||
	    a.arity > WEIR_ARITY_MAX || a.process >= v->process_count ||
	    a.thread >= v->processes[a.process].threads || a.function >= v->o.function_count)
		return false;
	f = &v->functions[a.function];
	length -= sizeof(a);
	if (length < f->min_length || length > f->max_length)
		return false;
	if (a.flags & TREE_LEAF)
		return call->from.process == v->self;
	place = place_of(v, a.process, v->self);
	if (call->thread->index || !place)
		return false;
	parent = (place - 1) / a.arity;
	return call->from.process == process_at(v, a.process, parent) &&
	       call->from.thread == (parent ? 0 : a.thread);
}

/* The result of *call, if it has one. False: there is no room, and the caller shall know. */
static bool
give(const struct weir_incoming *call, int status)
{
	int rc = call->id ? future_give(call->thread, call->from, call->id, status, NULL, 0) : 0;

	return rc != -EAGAIN && rc != -ENOMEM;
}

static bool
tree_refuse(const struct weir_incoming *call, int status)
{
	invoke_count(&call->thread->counters.dropped, 1);
	return give(call, status);
}

/* Passes *call on, and runs the function here. As tree_run(). */
static bool
run(struct spread *s, const struct weir_incoming *call, const uint8_t *data)
{
	struct invoke_thread *t = s->thread;
	struct weir_incoming c = {
	    .v = t->v, .thread = t, .payload = s->payload, .payload_length = s->payload_length};
	uint32_t function, flags, first, n;

	if (s->length > sizeof(s->args))
		return false;
	memcpy(&s->args, data, s->length);
	if (!tree_is_valid(call, &s->args, s->length))
		return false;
	function = s->args.head.function;
	flags = s->args.head.flags;
	s->place = place_of(t->v, s->args.head.process, t->v->self);
	n = branches(t->v, s->place, s->args.head.arity, &first) + t->v->o.threads;
	if (call->id && !(flags & TREE_LEAF)) {
		s->tree = t->trees < TREES_MAX ? tree_make(t, n) : NULL;
		if (!s->tree)
			return tree_refuse(call, t->trees < TREES_MAX ? -ENOMEM : -EAGAIN);
		t->trees++;
		s->tree->up = call->from;
		s->tree->id = call->id;
		s->tree->lent = s->lent;
	}
	if (!(flags & TREE_LEAF))
		pass_on(s, function, flags, 1);
	c.function = &t->v->functions[function];
	c.from = (struct weir_to){s->args.head.process, s->args.head.thread};
	run_begins(t, c.function);
	run_one(&c, s->args.bytes, s->length - sizeof(s->args.head));
	invoke_count(&t->counters.run, 1);
	if (!s->tree)
		return give(call, 0);
	part_ended(s->tree, 0);
	return true;
}

bool
tree_run(const struct weir_incoming *call, const uint8_t *data, uint32_t length)
{
	struct spread s = {.thread = call->thread,
			   .payload = call->payload,
			   .payload_length = call->payload_length,
			   .length = length};
	void *own = (void *)(uintptr_t)call->payload;
	bool good;

	if (call->place == PAYLOAD_ALLOCATED) {
		s.lent = lend(call->thread, own, call->payload_length, NULL);
		if (!s.lent) {
			payload_free(call->v, own, (uint32_t)call->payload_length);
			return tree_refuse(call, -ENOMEM);
		}
	}
	good = run(&s, call, data);
	has_read(s.lent, 0);
	return good;
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

	thread_begins_call(s->thread);
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
	struct spread s = {.thread = t};
	struct tree *tree = NULL;
	uint32_t flags, own, first;
	bool large, sent;
	struct call c;
	int rc;

	if (!t)
		return thread_foreign(v);
	if (t->index == WEIR_THREAD_ANY)
		return thread_of_pool();
	rc = call_prepare(&c, function, args, length, options,
			  CALL_FLAGS | WEIR_CALL_ONCE_PER_PROCESS);
	if (!rc && c.payload_length)
		rc = payload_check(&c);
	if (!rc && weir_state(v->w) != WEIR_UP)
		rc = weir_gone(v->w);
	if (!rc)
		rc = check(v, function, &c);
	if (rc)
		return rc;
	s.args.head = (struct tree_args){
	    .process = v->self, .thread = t->index, .arity = (uint8_t)v->o.arity};
	s.length = sizeof(s.args.head) + c.length;
	large = c.payload_length > payload_in_batch(s.length);
	if (large && !c.sync)
		return payload_without_sync(&c);
	if (c.length)
		memcpy(s.args.bytes, args, c.length);
	s.payload = c.payload;
	s.payload_length = c.payload_length;
	rc = await_room(&s, &c);
	if (rc)
		return rc;
	flags = c.flags & WEIR_CALL_ONCE_PER_PROCESS ? TREE_PROCESS : 0;
	own = flags ? 1 : v->o.threads;
	sent = c.sync && c.flags & WEIR_CALL_SYNC_SENT;
	if (c.sync && (large || !sent)) {
		tree = tree_make(t, sent ? 0 : branches(v, 0, v->o.arity, &first) + own);
		if (!tree)
			return -ENOMEM;
		tree->sync = c.sync;
		s.lent = large ? lend(t, NULL, c.payload_length, tree) : NULL;
		if (large && !s.lent) {
			free(tree);
			return -ENOMEM;
		}
		tree->lent = s.lent;
		s.tree = sent ? NULL : tree;
	}
	invoke_count(&t->counters.made,
		     flags ? v->seat_count : weir_invoker_threads(v, UINT32_MAX));
	pass_on(&s, function, flags, 0);
	if (flags) /* not inside this call */
		pass(&s, (struct weir_to){v->self, t->index}, function, flags | TREE_LEAF);
	if (c.flags & WEIR_CALL_NOW)
		lines_flush(t);
	has_read(s.lent, 0);
	if (tree)
		part_ended(tree, 0);
	else if (sent) /* all is copied */
		sync_count(t, c.sync, 1, 0);
	return 0;
}

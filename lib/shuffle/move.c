/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Partitions that get another owner (STAGE). Process 0's thread 0 changes owners, within functions,
 * and tells one thread of each process, in one order for all. Each such word begins an epoch. An
 * attempt has the epoch in which it began: what owners it knew.
 */
#include "store.h"

int
weir_shuffle_move(struct weir_shuffle *s, uint32_t partition, struct weir_to to)
{
	struct shuffle_thread *t = shuffle_own(s);
	struct say_args a = {
	    .kind = SAY_MOVE, .partition = partition, .producer = producer_word(to)};
	struct say_answer answer;
	int rc;

	if (!t)
		return -EPERM;
	if (s->o.kind != WEIR_SHUFFLE_STAGE || partition >= s->o.partitions)
		return weir_fail(-EINVAL, "partition %u of %u of a STAGE", partition,
				 s->o.partitions);
	if (s->self)
		return weir_fail(-EPERM, "process %u; process 0 moves partitions", s->self);
	if (to.process >= s->processes || to.thread >= weir_invoker_threads(s->v, to.process))
		return weir_fail(-ENOENT, "no thread %u of process %u", to.thread, to.process);
	rc = shuffle_state(s);
	if (rc)
		return rc;
	if (atomic_load_explicit(&s->lost[to.process], memory_order_relaxed))
		return weir_fail(-EHOSTDOWN, "process %u was lost; move to another", to.process);
	return say_ask(t, &a, &answer);
}

int
move_partition(struct shuffle_thread *t, const struct say_args *a)
{
	struct weir_shuffle *s = t->s;
	struct weir_to to = {(uint32_t)(a->producer >> 32), (uint32_t)a->producer};
	struct say_args moved = *a;
	uint32_t from;

	if (a->partition >= s->o.partitions || to.process >= s->processes ||
	    to.thread >= weir_invoker_threads(s->v, to.process))
		return -EBADMSG;
	from = owner_of(s, a->partition);
	if (from == thread_number(s, to))
		return 0;
	moved.kind = SAY_MOVED;
	move_tell(t, &moved);
	commit_moved(t, thread_of_number(s, from).process != to.process);
	return 0;
}

void
move_tell(struct shuffle_thread *t, struct say_args *a)
{
	struct weir_shuffle *s = t->s;

	a->epoch = atomic_load_explicit(&s->epoch, memory_order_relaxed) + 1;
	move_heard(t, a);
	/* in a function a call waits behind others of its line; a process that does not hear of it
	 * was lost */
	for (uint32_t p = 1; p < s->processes; p++)
		if (weir_invoker_threads(s->v, p) &&
		    !atomic_load_explicit(&s->lost[p], memory_order_relaxed))
			say(s, (struct weir_to){p, 0}, a, NULL);
}

/* The partition has another owner. */
static void
moved(struct weir_shuffle *s, const struct say_args *a)
{
	struct weir_to from = thread_of_number(s, owner_of(s, a->partition)),
		       to = {(uint32_t)(a->producer >> 32), (uint32_t)a->producer};

	/* first: attempts that are too old now bring nothing for it */
	atomic_store_explicit(&s->moved, a->epoch, memory_order_relaxed);
	if (to.process != from.process) {
		atomic_fetch_sub_explicit(&s->owned[from.process], 1, memory_order_relaxed);
		atomic_fetch_add_explicit(&s->owned[to.process], 1, memory_order_relaxed);
	}
	store_moved(s, a->partition, to);
}

int
move_heard(struct shuffle_thread *t, const struct say_args *a)
{
	struct weir_shuffle *s = t->s;
	struct weir_to to = {(uint32_t)(a->producer >> 32), (uint32_t)a->producer};

	if (t->index || a->epoch != atomic_load_explicit(&s->epoch, memory_order_relaxed) + 1)
		return -EBADMSG;
	if (a->kind == SAY_AGAIN) {
		if (a->map >= s->o.maps)
			return -EBADMSG;
		store_again(s, a->map, a->epoch);
	} else {
		if (a->partition >= s->o.partitions || to.process >= s->processes ||
		    to.thread >= weir_invoker_threads(s->v, to.process))
			return -EBADMSG;
		moved(s, a);
	}
	/* pairs with the acquire in weir_map_begin() */
	atomic_store_explicit(&s->epoch, a->epoch, memory_order_release);
	shuffle_wake(s, false);
	return 0;
}

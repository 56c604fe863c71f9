/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Locks of exports: first come, first served; shared requests that lie one behind the other enter
 * together. A lock ends with UNLOCK or with its connection. A connection that ends with an
 * exclusive lock leaves the memory in doubt: holders are told so until an exclusive one was, since
 * only that one can repair it.
 *
 * Programs of the host may take a free lock by words that they share (ipc/lock_words.h). The words
 * are closed while the queue has waiters or holders, or doubt is left. The first waiter enters when
 * no program holds the lock by words either; no program tells when that is, so turns look for it.
 */
#include "lock.h"
#include "answer.h"
#include "command.h"
#include "conn.h"
#include "ctrl_line.h"
#include "export.h"
#include "region.h"
#include "session.h"
#include "state.h"

#include "ipc/lock_words.h"

#include <errno.h>

static bool
is_owner(const struct engine *e, const struct export *x)
{
	return engine_lock_owner(x->session, x->number, e->config.count) == e->config.id;
}

/* ---- the asking end ---- */

bool
lock_may_begin(const struct conn *c, uint8_t op)
{
	const struct conn_lock *k = &c->cold->memory.lock;

	if (op == WEIR_OP_LOCK)
		return (!k->begun || k->by_words) && !k->silent;
	if (op == WEIR_OP_UNLOCK)
		return k->begun;
	return !k->begun || !k->silent;
}

void
lock_begun(struct conn *c, uint8_t op)
{
	struct conn_lock *k = &c->cold->memory.lock;

	if (op == WEIR_OP_LOCK) {
		k->begun = k->silent = true;
		k->by_words = false;
	} else if (op == WEIR_OP_UNLOCK) {
		k->begun = false;
	}
}

void
lock_await(struct conn *c, struct weir_slot *to)
{
	struct conn_lock *k = &c->cold->memory.lock;
	struct weir_cell_lock cell;

	weir_assert(!k->awaited);
	memcpy(&cell, to->data, sizeof(cell));
	k->awaited = true;
	k->number = (uint32_t)c->sent;
	k->result = cell.result;
	cell.result = 0; /* the peer need not know */
	if (c->state != CONN_LOCAL)
		cell.member = 0;
	memcpy(to->data, &cell, sizeof(cell));
}

bool
lock_answered(struct engine *e, struct conn *c, weir_lock_status status)
{
	struct conn_lock *k = &c->cold->memory.lock;
	uint8_t *to;

	if (!k->awaited || (status == ECANCELED && k->begun) ||
	    (status && status != EOWNERDEAD && status != ECANCELED &&
	     (status != WEIR_LOCKED_BY_WORDS || c->state != CONN_LOCAL)))
		return false;
	/* of a program that has closed it, the memory may be in use for something else */
	to = place_memory(c->session, WEIR_PLACE(0, (uint64_t)k->result * WEIR_SLOT_SIZE));
	if (!c->user_closed)
		memcpy(to, &status, sizeof(status));
	k->awaited = k->silent = false;
	answer_came(c, k->number);
	conn_completed(e, c, 0, false);
	return true;
}

/* ---- the executing end ---- */

bool
lock_ok(const struct conn *c, const struct weir_slot *head)
{
	static const uint32_t nothing[sizeof(((struct weir_cell_lock *)0)->reserved) / 4];
	bool lock = head->op == WEIR_OP_LOCK;
	struct weir_cell_lock cell;

	memcpy(&cell, head->data, sizeof(cell));
	return cell.handle == WEIR_HANDLE_FIRST && c->cold->memory.rights & WEIR_RIGHT_LOCK &&
	       (lock ? cell.kind == WEIR_LOCKS_SHARED || cell.kind == WEIR_LOCKS_EXCLUSIVE
		     : (!cell.kind || cell.kind == WEIR_LOCKS_UNSEEN) && !cell.result) &&
	       cell.member <= (lock && !conn_is_passive(c) ? WEIR_LOCK_MEMBERS_MAX : 0) &&
	       !memcmp(cell.reserved, nothing, sizeof(nothing));
}

bool
lock_in_turn(const struct conn *c, uint8_t op)
{
	const struct conn_lock *k = &c->cold->memory.lock;

	if (op == WEIR_OP_LOCK) /* the answer to the one before has left */
		return k->state == LOCK_NONE && !(c->ctrl_lines & CTRL_LOCKED);
	if (op == WEIR_OP_UNLOCK)
		return k->state != LOCK_NONE;
	return k->state != LOCK_WAITS;
}

/* Answers the LOCK of c. */
static void
answer_lock(struct engine *e, struct conn *c, weir_lock_status status)
{
	struct conn_lock *k = &c->cold->memory.lock;
	bool known;

	if (c->state == CONN_LOCAL) {
		known = lock_answered(e, c, status);
		weir_assert(known);
		return;
	}
	k->status = status;
	ctrl_line_due(e, c, CTRL_LOCKED);
}

/* ---- words of programs of this host ---- */

enum {
	SCAN_MOST = 64, /* words of programs that one look reads, of thousands at most */
	POLL_MOST = 16, /* exports that one turn looks at */
};

/* Has programs ask the queue; whether one of them holds the lock against a request of this kind. */
static COLD bool
held_by_words(const struct engine *e, struct export *x, uint8_t kind)
{
	struct weir_lock_words *w = x->words;
	uint32_t word, end;

	if (!w)
		return false;
	word = atomic_load_explicit(&w->word, memory_order_seq_cst);
	if (!(word & WEIR_LOCK_CLOSED)) {
		word = atomic_fetch_or_explicit(&w->word, WEIR_LOCK_CLOSED, memory_order_seq_cst);
		x->lock.scanned = 0;
		x->lock.since = e->now; /* a program that holds it now leaves it once */
	}
	if (word & WEIR_LOCK_DOUBT) {
		atomic_fetch_and_explicit(&w->word, ~WEIR_LOCK_DOUBT, memory_order_seq_cst);
		x->lock.in_doubt = true;
	}
	if (word & WEIR_LOCK_OWNER)
		return true;
	if (kind != WEIR_LOCKS_EXCLUSIVE)
		return false;
	/* the words are closed, so no program that was seen not to hold the lock with others will:
	 * reads some words, and goes on where it was */
	end = x->members - x->lock.scanned < SCAN_MOST ? x->members : x->lock.scanned + SCAN_MOST;
	while (x->lock.scanned < end) {
		if (atomic_load_explicit(&w->member[x->lock.scanned].shared, memory_order_seq_cst))
			return true;
		x->lock.scanned++;
	}
	return x->lock.scanned < x->members;
}

/* Lets programs take the lock by words again, if nobody has to be told of anything. */
static COLD void
open_words(struct export *x)
{
	if (!x->words || x->lock.holders || x->lock.in_doubt || x->lock.ended)
		return;
	x->lock.since = 0;
	if (!(atomic_load_explicit(&x->words->word, memory_order_relaxed) & WEIR_LOCK_CLOSED))
		return;
	/* pairs with the acquire of who takes it: what former holders have done */
	atomic_fetch_and_explicit(&x->words->word, ~WEIR_LOCK_CLOSED, memory_order_release);
}

/* Releases what the program that c stands for holds by words; `more`: for the word, if it held the
 * lock alone. */
static COLD void
clear_words(struct conn *c, uint32_t more)
{
	const struct conn_lock *k = &c->cold->memory.lock;
	struct weir_lock_words *w = c->cold->memory.export->words;

	weir_lock_leave_shared(w, k->member);
	weir_lock_leave_exclusive(w, k->member, more);
}

/* The program that c stood for has no use for its words any more, or has ended. */
static COLD void
leave_words(struct conn *c)
{
	struct conn_lock *k = &c->cold->memory.lock;

	if (!k->member)
		return;
	atomic_store_explicit(&c->cold->memory.export->words->member[k->member - 1].gone, 1,
			      memory_order_seq_cst);
	clear_words(c, WEIR_LOCK_CLOSED | WEIR_LOCK_DOUBT);
	k->member = 0;
}

/* The program of c was granted the lock, without doubt: it holds it by its words, if it has some.
 */
static COLD bool
hold_by_words(struct conn *c, bool exclusive)
{
	struct conn_lock *k = &c->cold->memory.lock;

	if (!k->member)
		return false;
	weir_lock_give(c->cold->memory.export->words, k->member, exclusive);
	c->cold->memory.export->lock.scanned = 0;
	k->by_words = true;
	return true;
}

static COLD void
enter_words(struct conn *c, uint32_t member)
{
	struct conn_lock *k = &c->cold->memory.lock;
	const struct export *x = c->cold->memory.export;

	if (!member || member == k->member || !x->words || member > x->members)
		return;
	leave_words(c);
	atomic_store_explicit(&x->words->member[member - 1].gone, 0, memory_order_seq_cst);
	k->member = (uint16_t)member;
}

/* ---- the queue, in the owner engine ---- */

/* Holders and waiters of all exports, for operators. */
static void
count_held(struct engine *e, struct export *x, int more)
{
	x->lock.holders += (uint32_t)more;
	count(&e->counters.lock_holders, (uint64_t)more);
}

static void
count_waiting(struct engine *e, struct export *x, int more)
{
	x->lock.waiters += (uint32_t)more;
	count(&e->counters.lock_waiters, (uint64_t)more);
}

static void
let_in(struct engine *e, struct export *x, struct engine_seat *seat)
{
	weir_lock_status status = x->lock.in_doubt ? EOWNERDEAD : 0;
	bool exclusive = seat->kind == WEIR_LOCKS_EXCLUSIVE;
	struct conn_cold *cold = NULL;

	list_remove(&seat->queued);
	count_waiting(e, x, -1);
	x->counters.locks++;
	count(&e->counters.locks_granted, 1);
	if (!seat->command)
		cold = LIST_OWNER(seat, struct conn_cold, memory.lock.seat);
	if (!x->lock.holders)
		x->lock.since = e->now;
	if (cold && !status && hold_by_words(conn_of_cold(e, cold), exclusive)) {
		cold->memory.lock.state = LOCK_NONE;
		answer_lock(e, conn_of_cold(e, cold), WEIR_LOCKED_BY_WORDS);
		return;
	}
	x->lock.exclusive = exclusive;
	if (x->lock.exclusive) {
		x->lock.told = x->lock.in_doubt;
		x->lock.in_doubt = false;
	}
	count_held(e, x, 1);
	x->lock.holder = seat->vqpn;
	if (seat->command) {
		seat->command->lock.status = status;
		engine_complete(e, seat->command, 0);
		return;
	}
	cold->memory.lock.state = LOCK_HELD;
	answer_lock(e, conn_of_cold(e, cold), status);
}

/* Lets those enter that may. If the first of the others awaits a program's words, turns look again.
 */
static void
serve_queue(struct engine *e, struct export *x)
{
	while (!x->lock.ended && !list_empty(&x->lock.queue)) {
		struct engine_seat *seat =
		    LIST_OWNER(x->lock.queue.next, struct engine_seat, queued);

		if (seat->kind == WEIR_LOCKS_EXCLUSIVE ? x->lock.holders : x->lock.exclusive)
			return;
		if (held_by_words(e, x, seat->kind)) {
			list_append_once(&e->lock_polls, &x->lock.polled);
			e->rare = true;
			return;
		}
		let_in(e, x, seat);
	}
	open_words(x);
}

bool
locks_poll(struct engine *e)
{
	const struct list_node *last = e->lock_polls.prev, *node = NULL;
	bool granted = false;
	uint64_t before;

	for (unsigned i = 0; i < POLL_MOST && node != last; i++) {
		struct export *x = LIST_OWNER(e->lock_polls.next, struct export, lock.polled);

		node = &x->lock.polled;
		before = x->counters.locks;
		list_remove(
		    &x->lock.polled); /* behind the others, if it has to be looked at again */
		serve_queue(e, x);
		granted |= x->counters.locks != before;
	}
	return granted;
}

static void
sit_down(struct engine *e, struct export *x, struct engine_seat *seat, uint32_t vqpn, uint8_t kind,
	 struct engine_command *command)
{
	seat->vqpn = vqpn;
	seat->kind = kind;
	seat->since = e->now;
	seat->command = command;
	list_append(&x->lock.queue, &seat->queued);
	count_waiting(e, x, 1);
	serve_queue(e, x);
}

static void
stand_up(struct engine *e, struct export *x, struct engine_seat *seat)
{
	list_remove(&seat->queued);
	count_waiting(e, x, -1);
	serve_queue(e, x); /* readers behind a writer that has left may enter */
}

/* dead: its connection has ended; unseen: its program has not seen that it was granted. */
static void
release_lock(struct engine *e, struct export *x, uint32_t vqpn, bool dead, bool unseen)
{
	weir_assert(x->lock.holders);
	if (x->lock.exclusive) { /* nobody else had it */
		x->lock.in_doubt = dead || (unseen && x->lock.told);
		x->lock.since = 0;
	}
	x->lock.exclusive = false;
	count_held(e, x, -1);
	if (!x->lock.holders && !x->words)
		x->lock.since = 0;
	x->lock.scanned = 0; /* the engine of its connection may have given it to words */
	if (x->lock.holder == vqpn)
		x->lock.holder = 0; /* which of the others is the latest is not known */
	serve_queue(e, x);
}

/* ---- connections ---- */

static void
has_news(struct engine *e, struct conn_lock *k)
{
	if (!k->drop_due && (!k->ask_due || k->dropping))
		return; /* the owner has not answered yet */
	list_append_once(&e->lock_news, &k->news);
	e->rare = true;
}

/* The request of c is over, in whatever state. */
static void
drop_request(struct engine *e, struct conn *c, bool dead, bool unseen)
{
	struct conn_lock *k = &c->cold->memory.lock;
	struct export *x = c->cold->memory.export;
	bool held = k->state == LOCK_HELD;

	k->state = LOCK_NONE;
	if (is_owner(e, x)) {
		if (held)
			release_lock(e, x, c->vqpn, dead, unseen);
		else
			stand_up(e, x, &k->seat);
		return;
	}
	if (k->ask_due) { /* main was not told of it */
		k->ask_due = false;
		return;
	}
	k->asked.kind = 0;
	k->asked.held = held;
	k->asked.dead = dead;
	k->asked.unseen = unseen || !held;
	k->drop_due = true;
	has_news(e, k);
}

void
lock_execute(struct engine *e, struct conn *c, const struct weir_slot *head)
{
	struct conn_lock *k = &c->cold->memory.lock;
	struct export *x = c->cold->memory.export;
	struct weir_cell_lock cell;
	bool waits = k->state == LOCK_WAITS;

	memcpy(&cell, head->data, sizeof(cell));
	if (head->op == WEIR_OP_UNLOCK && k->state == LOCK_NONE) {
		/* taken back, when it had just been granted */
		weir_assert(k->by_words);
		if (k->member)
			clear_words(c, 0);
		k->by_words = false;
		return;
	}
	if (head->op == WEIR_OP_UNLOCK) {
		drop_request(e, c, false, cell.kind == WEIR_LOCKS_UNSEEN);
		if (waits)
			answer_lock(e, c, ECANCELED);
		return;
	}
	k->state = LOCK_WAITS;
	enter_words(c, cell.member);
	if (is_owner(e, x)) {
		sit_down(e, x, &k->seat, c->vqpn, (uint8_t)cell.kind, NULL);
		return;
	}
	k->wanted = (uint8_t)cell.kind;
	k->ask_due = true;
	has_news(e, k);
}

void
lock_leave(struct engine *e, struct conn *c)
{
	struct conn_lock *k = &c->cold->memory.lock;

	if (c->kind != CONN_MEMORY)
		return;
	leave_words(c);
	if (k->state == LOCK_NONE)
		return;
	k->cut = k->state == LOCK_WAITS;
	drop_request(e, c, true, false);
}

void
locks_end(struct engine *e, struct export *x)
{
	struct list_node *node, *following;

	x->lock.ended = true;
	list_remove(&x->lock.polled);
	if (x->words) /* programs ask, and hear of the end */
		atomic_fetch_or_explicit(&x->words->word, WEIR_LOCK_CLOSED, memory_order_relaxed);
	LIST_EACH (node, following, &x->lock.queue) {
		struct engine_seat *seat = LIST_OWNER(node, struct engine_seat, queued);

		if (!seat->command)
			continue; /* with its connection */
		stand_up(e, x, seat);
		engine_complete(e, seat->command, -ESTALE);
	}
}

void
lock_forget(struct engine *e, struct export *x)
{
	weir_assert(x->lock.ended && !x->lock.waiters);
	count_held(e, x, -(int)x->lock.holders);
}

/* ---- requests of other engines ---- */

/* In the owner engine. Whether the command is done. */
static bool
owner_asked(struct engine *e, struct engine_command *command)
{
	const struct engine_lock *k = &command->lock;
	struct export *x = export_known(e, k->session, k->number, k->generation);
	struct list_node *node, *following;

	command->result = x ? 0 : -ESTALE;
	if (!x)
		return true;
	if (k->kind) {
		command->seat = (struct engine_seat){0};
		sit_down(e, x, &command->seat, k->vqpn, k->kind, command);
		return false;
	}
	/* the request is given up, unless it was granted */
	if (!k->held)
		LIST_EACH (node, following, &x->lock.queue) {
			struct engine_seat *seat = LIST_OWNER(node, struct engine_seat, queued);

			if (!seat->command || seat->vqpn != k->vqpn ||
			    seat->command->lock.turn != k->turn)
				continue;
			stand_up(e, x, seat);
			engine_complete(e, seat->command, -ECANCELED);
			return true;
		}
	release_lock(e, x, k->vqpn, k->dead, k->unseen);
	return true;
}

/* In the engine of the connection: what the owner engine has said. */
static void
owner_said(struct engine *e, const struct engine_lock *said)
{
	struct conn *c = conn_find(e, said->vqpn);
	struct conn_lock *k = c && c->kind == CONN_MEMORY ? &c->cold->memory.lock : NULL;

	if (!k || said->turn != k->asked.turn)
		return;
	if (!said->kind) {
		k->dropping = false;
		has_news(e, k);
	} else if (k->state == LOCK_WAITS && !k->ask_due) {
		k->state = LOCK_HELD;
		if (said->status || !hold_by_words(c, said->kind == WEIR_LOCKS_EXCLUSIVE)) {
			answer_lock(e, c, said->status);
			return;
		}
		answer_lock(e, c, WEIR_LOCKED_BY_WORDS);
		drop_request(e, c, false, false);
	} /* else it was given up meanwhile */
}

bool
lock_command(struct engine *e, struct engine_command *k)
{
	if (!k->lock.said)
		return owner_asked(e, k);
	owner_said(e, &k->lock);
	k->result = 0;
	return true;
}

static bool
emit_lock(struct engine *e, const struct engine_lock *k)
{
	struct engine_event event = {.type = ENGINE_EVENT_LOCK, .lock = *k};

	return e->config.emit(e->config.user, &event);
}

bool
locks_emit(struct engine *e)
{
	struct list_node *node, *following;

	LIST_EACH (node, following, &e->lock_news) {
		struct conn_cold *cold = LIST_OWNER(node, struct conn_cold, memory.lock.news);
		struct conn_lock *k = &cold->memory.lock;

		if (k->drop_due) {
			if (!emit_lock(e, &k->asked))
				return false;
			k->drop_due = false;
			k->dropping = true;
		}
		if (k->ask_due && !k->dropping) {
			const struct export *x = cold->memory.export;
			struct engine_lock ask = {.session = x->session,
						  .number = x->number,
						  .generation = x->generation,
						  .engine = e->config.id,
						  .vqpn = conn_of_cold(e, cold)->vqpn,
						  .turn = k->asked.turn + 1,
						  .kind = k->wanted};

			if (!emit_lock(e, &ask))
				return false;
			k->asked = ask;
			k->ask_due = false;
		}
		list_remove(node);
	}
	return true;
}

/* ---- operators ---- */

void
lock_record(const struct engine *e, const struct export *x, struct engine_export_record *r)
{
	const struct engine_seat *first;

	/* programs of this engine's connections hold it by words */
	if (x->words) {
		uint32_t word = atomic_load_explicit(&x->words->word, memory_order_relaxed);
		const struct list_node *node;

		for (node = x->conns.next; node != &x->conns; node = node->next) {
			const struct conn_cold *cold =
			    LIST_OWNER(node, const struct conn_cold, memory.of_export);
			uint32_t member = cold->memory.lock.member;
			bool exclusive = member && (word & WEIR_LOCK_OWNER) == member;

			if (!exclusive &&
			    (!member || !atomic_load_explicit(&x->words->member[member - 1].shared,
							      memory_order_relaxed)))
				continue;
			r->lock_holders++;
			r->lock_exclusive |= exclusive;
			r->lock_holder = conn_of_cold(e, cold)->vqpn;
		}
	}
	if (!is_owner(e, x))
		return;
	r->lock_holders += x->lock.holders;
	r->lock_exclusive |= x->lock.exclusive;
	r->lock_in_doubt = x->lock.in_doubt;
	if (x->lock.holder)
		r->lock_holder = x->lock.holder;
	r->lock_waiters = x->lock.waiters;
	r->lock_held_ns = x->lock.since ? e->now - x->lock.since : UINT64_MAX;
	if (list_empty(&x->lock.queue))
		return;
	first = LIST_OWNER(x->lock.queue.next, const struct engine_seat, queued);
	r->lock_waits_ns = e->now - first->since;
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "node.h"

#include <string.h>

void
search_send_out(struct mcts_thread *t, uint32_t to, size_t bytes)
{
	if (to >= t->m->o.processes * t->m->o.threads) {
		t->counts.refused++; /* of a name that a message had */
		return;
	}
	t->counts.sent++;
	t->m->port->call(t->m->port, to, t->out, sizeof(*t->out) + bytes);
}

void
search_send(struct mcts_thread *t, uint32_t to, const struct mcts_message *m)
{
	*t->out = *m;
	search_send_out(t, to, 0);
}

uint32_t
search_owner(const struct mcts_thread *t, uint64_t hash)
{
	return (uint32_t)(dice_mix(t->m->o.seed ^ hash) % (t->m->o.processes * t->m->o.threads));
}

void
search_queue(struct mcts_thread *t, struct node *n, uint64_t count)
{
	n->pending += count;
	n->dead |= !count;
	if (n->queued)
		return;
	n->queued = true;
	n->next = t->todo;
	t->todo = n;
}

/* ---- reports, on their way to the root ---- */

/* Results of simulations at n or below. True: *r is for n's record in its parent now. Else n is
 * the root, and this was the last access to the tree on behalf of these rollouts. */
static bool
go_up(struct mcts_thread *t, const struct node *n, struct mcts_report *r)
{
	r->node = n->parent;
	r->index = n->index;
	if (r->node)
		return true;
	atomic_fetch_add(&t->m->returned, r->simulations);
	phase_check(t);
	return false;
}

/* Counts a report at its record, or sends it there. True: as go_up(). */
static bool
pass(struct mcts_thread *t, struct mcts_report *r)
{
	struct mcts_message m = {REPORT, 0, r->index, r->node, 0, r->simulations, r->wins};
	uint32_t to = name_thread(r->node);
	struct children *c;
	struct node *n;

	if (!is_here(t, to) && to != t->id) {
		search_send(t, to, &m);
		return false;
	}
	n = node_of(t->m, r->node);
	c = n ? atomic_load_explicit(&n->children, memory_order_acquire) : NULL;
	if (!c || r->index >= c->count) {
		t->counts.stale++;
		return false;
	}
	atomic_fetch_add_explicit(&c->of[r->index].wins,
				  n->turn < 0 ? r->wins : r->simulations - r->wins,
				  memory_order_relaxed);
	return go_up(t, n, r);
}

/* Adds r to what goes to the same record. The former one in its place is passed on. */
static void
combine(struct mcts_thread *t, struct mcts_report r)
{
	do {
		struct mcts_report *at = &t->combined[dice_mix(r.node + r.index) % MCTS_COMBINED];
		struct mcts_report before = *at;

		if (before.node == r.node && before.index == r.index) {
			r.simulations += before.simulations;
			r.wins += before.wins;
			before.node = 0;
		}
		*at = r;
		t->combines = true;
		r = before;
	} while (r.node && pass(t, &r));
}

/* Passes all combined reports on by one step. False: there was none. */
static bool
drain(struct mcts_thread *t)
{
	bool any = t->combines;

	t->combines = false;
	for (uint32_t i = 0; any && i < MCTS_COMBINED; i++) {
		struct mcts_report r = t->combined[i];

		t->combined[i].node = 0;
		if (r.node && pass(t, &r))
			combine(t, r);
	}
	return any;
}

/* ---- rollouts ---- */

/* Simulates t->position: that of n, or of a child that has no node. */
static void
simulate(struct mcts_thread *t, const struct node *n, struct mcts_report r, uint64_t rollouts)
{
	const struct game *g = t->m->o.game;
	int winner = g->winner(t->position);

	r.simulations = rollouts * MCTS_SIMULATIONS;
	if (winner) {
		r.wins = winner > 0 ? r.simulations : 0;
	} else {
		r.wins = g->playouts(t->position, (unsigned)r.simulations, &t->dice);
		t->counts.playouts += r.simulations;
	}
	t->counts.simulations += r.simulations;
	if (!n || go_up(t, n, &r))
		combine(t, r);
}

/* t->position becomes that of `state` and a move. 0 or -EINVAL. */
static int
load(struct mcts_thread *t, const uint8_t *state, size_t bytes, unsigned move)
{
	const struct game *g = t->m->o.game;
	int rc = g->read(g, t->position, state, bytes);

	return rc ? rc : g->play(t->position, move);
}

static void
simulate_child(struct mcts_thread *t, struct node *n, struct children *c, uint32_t index,
	       uint64_t rollouts)
{
	if (!load(t, n->state, n->state_bytes, node_moves(c)[index]))
		simulate(t, NULL, (struct mcts_report){n->name, .index = index}, rollouts);
}

/* The name of a child of n, and so of the selections that wait for it. Index and name are a
 * message's: there may be no such child, or it may have a name. */
static void
set_link(struct mcts_thread *t, struct node *n, uint32_t index, uint64_t name)
{
	struct children *c = atomic_load_explicit(&n->children, memory_order_acquire);
	uint64_t waiting = c && index < c->count ? c->of[index].link : NAME_NO_ROOM;

	while (waiting < NAME_LEAST &&
	       !atomic_compare_exchange_weak(&c->of[index].link, &waiting, name))
		;
	if (waiting >= NAME_LEAST)
		t->counts.refused++;
	else if (waiting && name == NAME_NO_ROOM)
		simulate_child(t, n, c, index, waiting);
	else if (waiting)
		search_send(t, name_thread(name),
			    &(struct mcts_message){SELECT, .node = name, .count = waiting});
}

/* A child of this thread: makes it, tells its name, and simulates it. */
static void
create(struct mcts_thread *t, uint64_t parent, uint32_t index, const uint8_t *state, size_t bytes,
       unsigned move)
{
	uint32_t to = name_thread(parent);
	struct node *n, *above = node_of(t->m, parent);
	struct mcts_message m = {ADDRESS, .node = parent, .index = index, .other = NAME_NO_ROOM};

	/* a parent that is made later could be the child itself */
	if ((is_own(t, to) && !above) || load(t, state, bytes, move)) {
		t->counts.refused++;
		return;
	}
	n = node_new(t, parent, index);
	if (n)
		m.other = n->name;
	if (is_here(t, to))
		set_link(t, above, index, m.other);
	else
		search_send(t, to, &m);
	simulate(t, n, (struct mcts_report){parent, .index = index}, 1);
}

/* Makes a child in the thread that it belongs to. */
static void
expand(struct mcts_thread *t, struct node *n, struct children *c, uint32_t index)
{
	struct mcts_message m = {CREATE, node_moves(c)[index], index, n->name};
	uint64_t hash = t->m->o.game->hash_after(n->hash, m.move, -n->turn);
	uint32_t owner = t->m->o.place_local ? t->id : search_owner(t, hash);

	if (owner == t->id && !t->m->o.remote_always) {
		create(t, n->name, index, n->state, n->state_bytes, m.move);
		return;
	}
	*t->out = m;
	memcpy(t->out->state, n->state, n->state_bytes);
	search_send_out(t, owner, n->state_bytes);
}

/* Visits a child. Returns its node, if that is here. If its name is not known yet, the thread that
 * learns it goes on. */
static struct node *
descend(struct mcts_thread *t, struct node *n, struct children *c, uint32_t index)
{
	struct mcts_message m = {SELECT, .count = 1};
	struct child *child = &c->of[index];

	/* before it waits: else all threads would choose the child that is not known yet */
	atomic_fetch_add_explicit(&child->visits, MCTS_SIMULATIONS, memory_order_relaxed);
	m.node = atomic_load_explicit(&child->link, memory_order_acquire);
	while (m.node < NAME_LEAST)
		if (atomic_compare_exchange_weak(&child->link, &m.node, m.node + 1))
			return NULL;
	if (m.node == NAME_NO_ROOM)
		simulate_child(t, n, c, index, 1);
	else if (is_here(t, name_thread(m.node)))
		return node_of(t->m, m.node);
	else
		search_send(t, name_thread(m.node), &m);
	return NULL;
}

/* One rollout from n downwards. As soon as another thread may have it, the search may end, and with
 * it the tree: nothing of n is read after that. */
static void
rollout(struct mcts_thread *t, struct node *n)
{
	const struct game *g = t->m->o.game;

	while (n) {
		struct children *c = node_children(t, n);
		int fresh = c ? node_expand(t, n, c) : -1;

		t->counts.selections++;
		atomic_fetch_add_explicit(&n->visits, MCTS_SIMULATIONS, memory_order_relaxed);
		if (!c && !g->read(g, t->position, n->state, n->state_bytes))
			simulate(t, n, (struct mcts_report){0}, 1); /* over, or no memory */
		else if (fresh >= 0)
			expand(t, n, c, (uint32_t)fresh);
		n = c && fresh < 0 ? descend(t, n, c, node_select(t, n, c)) : NULL;
	}
}

void
search_delete(struct mcts_thread *t, uint64_t link)
{
	uint32_t to = name_thread(link);
	struct node *n;

	if (link < NAME_LEAST || link == NAME_NO_ROOM)
		return;
	n = to == t->id ? node_of(t->m, link) : NULL;
	if (n)
		search_queue(t, n, 0);
	else if (to != t->id)
		search_send(t, to, &(struct mcts_message){DELETE, .node = link});
}

/* A child whose name is under way finds no parent, and is deleted then. */
static void
discard(struct mcts_thread *t, struct node *n)
{
	struct children *c = n->children;

	n->name = 0; /* no record below leads back to it */
	for (uint32_t i = 0; c && i < c->count; i++)
		search_delete(t, c->of[i].link);
	node_free(t, n);
}

/* ---- the thread ---- */

/* Whether m->other can be the name of the child. One of this process is known: else a peer could
 * join nodes to a circle. */
static bool
is_child(const struct mcts_thread *t, const struct mcts_message *m)
{
	const struct node *child = node_of(t->m, m->other);

	if (!is_own(t, name_thread(m->other)))
		return m->other >= NAME_LEAST;
	return child && child->parent == m->node && child->index == m->index;
}

/* Whether thread `from` may give this order: a deletion, which comes from above, or one of the
 * front. LAUNCH is told by the root's thread, and ADOPT by that of the root before. */
static bool
may_order(uint32_t from, const struct node *n, const struct mcts_message *m)
{
	switch (m->kind) {
	case DELETE:
		return from == 0 || (n && from == name_thread(n->parent));
	case START:
	case ADVANCE:
	case SEARCH:
	case STOP:
		return from == 0;
	case LAUNCH:
		return from == name_thread(m->node);
	case ADOPT:
		return !n || from == name_thread(n->parent);
	default:
		return true;
	}
}

void
mcts_receive(struct mcts_thread *t, uint32_t from, const struct mcts_message *m, size_t bytes)
{
	size_t state = bytes - sizeof(*m);
	struct node *n;

	t->counts.received++;
	if (bytes < sizeof(*m) || bytes > MCTS_MESSAGE_MAX) {
		t->counts.refused++;
		return;
	}
	n = name_thread(m->node) == t->id ? node_of(t->m, m->node) : NULL;
	if (!may_order(from, n, m))
		t->counts.refused++;
	else if (m->kind == CREATE && m->node)
		create(t, m->node, m->index, m->state, state, m->move);
	else if (m->kind == REPORT && m->node && m->wins <= m->count)
		combine(t, (struct mcts_report){m->node, m->count, m->wins, m->index});
	else if (m->kind == ADDRESS && n && is_child(t, m))
		set_link(t, n, m->index, m->other);
	else if (m->kind == ADDRESS && is_child(t, m))
		search_delete(t, m->other); /* the tree was given up */
	else if (m->kind == SELECT && n && m->count - 1 < MCTS_FLIGHT_MAX)
		search_queue(t, n, m->count);
	else if (m->kind == DELETE && n)
		search_queue(t, n, 0);
	else if (m->kind == SEARCH && m->count % MCTS_SIMULATIONS)
		t->counts.refused++; /* the rest would never be launched */
	else if (m->kind >= START && m->kind < ROOT)
		phase_receive(t, n, m, state);
	else if (m->kind == STATS || m->kind == ROOT)
		front_receive(t, n, m, state);
	else
		t->counts.refused++;
}

bool
mcts_step(struct mcts_thread *t)
{
	struct node *n = t->todo;
	bool selects = n && n->pending;

	if (n) {
		n->pending -= selects;
		if (!n->pending && (!selects || !n->dead)) {
			t->todo = n->next;
			n->queued = false;
		}
		if (selects)
			rollout(t, n);
		else
			discard(t, n);
		return true;
	}
	if (t->batch) {
		t->batch--;
		rollout(t, node_of(t->m, t->m->root));
		return true;
	}
	return drain(t) || (t->launching && phase_launch(t));
}

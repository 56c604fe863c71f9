/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The nodes as a thread knows them: a copy of the data plane's table, updated when that has
 * changed, and for each node the state that was reported last. An event is the difference, so a
 * thread that takes no events for a while needs no more memory than the table.
 */
#include "conn.h"
#include "nodes.h"
#include "service.h"

#include "client/channel.h"
#include "client/progress.h"
#include "client/reason.h"
#include "client/thread.h"
#include "ipc/services.h"

#include <errno.h>
#include <stdlib.h>

#define NODES 65536u
#define PAGE 256u

struct known {
	struct weir_node_info is, reported; /* state GONE: no such node */
	bool changed;			    /* on the list */
	uint32_t life;			    /* the table's when the node was last listed */
	TAILQ_ENTRY(known) in_changed;
};

struct weir_node_table {
	struct known **page[NODES / PAGE];
	TAILQ_HEAD(, known) changed; /* may differ from what was reported */
	uint64_t seen;		     /* number of the data plane's latest change known here */
	uint32_t life;		     /* counts data planes */
	bool watching;
	bool stale; /* to be updated, whatever the data plane's number */
	bool sweep; /* from an earlier data plane: some nodes may have been removed */
};

/* ---- the copy ---- */

static struct known *
find(const struct weir_node_table *k, uint16_t id)
{
	return k->page[id / PAGE] ? k->page[id / PAGE][id % PAGE] : NULL;
}

/* The first node with an id of *i or more, NULL: none; *i: the id after it. */
static struct known *
following(const struct weir_node_table *k, uint32_t *i)
{
	while (*i < NODES) {
		struct known **page = k->page[*i / PAGE];
		struct known *n = page ? page[*i % PAGE] : NULL;

		*i += page ? 1 : PAGE;
		if (n)
			return n;
	}
	return NULL;
}

static void
note(struct weir_node_table *k, struct known *n)
{
	if (!n->changed)
		TAILQ_INSERT_TAIL(&k->changed, n, in_changed);
	n->changed = true;
}

/* Enters what the data plane says of a node. */
static int
take(struct weir_node_table *k, const struct weir_node_info *info)
{
	struct known ***page = &k->page[info->id / PAGE], *n = find(k, info->id);

	if (!n && info->state >= WEIR_NODE_GONE)
		return 0;
	if (!*page)
		*page = calloc(PAGE, sizeof(**page));
	if (!n && *page) {
		n = (*page)[info->id % PAGE] = calloc(1, sizeof(*n));
		if (n)
			n->reported =
			    (struct weir_node_info){.state = WEIR_NODE_GONE, .id = info->id};
	}
	if (!n)
		return weir_fail(-ENOMEM, "no memory for the table of nodes; free some");
	n->is = *info;
	if (n->is.state > WEIR_NODE_GONE)
		n->is.state = WEIR_NODE_GONE;
	if (n->is.address_count > WEIR_NODE_ADDRESSES)
		n->is.address_count = WEIR_NODE_ADDRESSES;
	n->life = k->life;
	note(k, n);
	return 0;
}

/* Fetches the changes since the table was last updated. */
static int
ask(struct weir_thread *t, struct weir_node_table *k)
{
	struct weir_session_msg m = weir_message(WEIR_MSG_NODES), r;
	int fds[WEIR_SESSION_FDS], rc = 0;
	struct weir_channel *ch;
	struct known *n;

	m.nodes.channel = UINT32_MAX;
	if (k->watching) {
		weir_lock(t);
		rc = weir_channel_get(t, UINT32_MAX, &ch);
		m.nodes.channel = rc ? UINT32_MAX : ch->index;
		weir_unlock(t);
	}
	m.nodes.watch = 1;
	do {
		m.nodes.since = k->seen;
		rc = rc ? rc : weir_request(t->w, &m, WEIR_MSG_NODE_LIST, &r, fds);
		if (!rc && r.node_list.count > WEIR_NODES_A_MSG)
			rc = weir_fail(-EPROTO, "a list of nodes that is too long; install one "
						"release of library and data plane");
		for (uint32_t i = 0; !rc && i < r.node_list.count; i++)
			rc = take(k, &r.node_list.node[i]);
		if (rc)
			return rc;
		k->seen = r.node_list.upto;
	} while (r.node_list.more && r.node_list.count);
	k->stale = false;
	if (!k->sweep || !r.node_list.whole)
		return 0;
	k->sweep = false;
	/* nodes that this data plane has not listed are gone */
	for (uint32_t i = 0; (n = following(k, &i));) {
		if (n->life == k->life || n->is.state == WEIR_NODE_GONE)
			continue;
		n->is.state = WEIR_NODE_GONE;
		note(k, n);
	}
	return 0;
}

static bool
is_stale(struct weir_thread *t)
{
	const struct weir_arena_head *head = (const struct weir_arena_head *)t->w->arena;
	const struct weir_node_table *k = t->table;

	if (!k->watching || weir_state(t->w) != WEIR_UP)
		return false;
	return k->stale || atomic_load_explicit(&head->nodes, memory_order_relaxed) != k->seen;
}

/* ---- events ---- */

static uint32_t
difference(const struct weir_node_info *was, const struct weir_node_info *is)
{
	static const uint32_t by_state[WEIR_NODE_GONE] = {[WEIR_NODE_UP] = WEIR_CHANGE_UP,
							  [WEIR_NODE_SUSPECT] = WEIR_CHANGE_SUSPECT,
							  [WEIR_NODE_DOWN] = WEIR_CHANGE_DOWN};
	uint32_t change = 0;

	if (is->state == WEIR_NODE_GONE)
		return was->state == WEIR_NODE_GONE ? 0 : WEIR_CHANGE_REMOVED;
	if (was->state == WEIR_NODE_GONE)
		return WEIR_CHANGE_ADDED | by_state[is->state];
	if (was->incarnation && was->incarnation != is->incarnation)
		change |= WEIR_CHANGE_RESTART;
	if (was->address_count != is->address_count ||
	    memcmp(was->address, is->address, was->address_count * sizeof(was->address[0])))
		change |= WEIR_CHANGE_ADDRESS;
	if (was->state != is->state)
		change |= by_state[is->state];
	return change;
}

/* Takes the next node off the list of changed ones; its reported state is *was. NULL: none. */
static struct known *
next_changed(struct weir_node_table *k, struct weir_node_info *was)
{
	struct known *n = TAILQ_FIRST(&k->changed);

	if (!n)
		return NULL;
	weir_assert(n->changed);
	TAILQ_REMOVE(&k->changed, n, in_changed);
	n->changed = false;
	*was = n->reported;
	n->reported = n->is;
	return n;
}

unsigned
weir_nodes_take(struct weir_thread *t, struct weir_event *events, unsigned n)
{
	struct weir_node_table *k = t->table;
	struct weir_node_info was;
	struct known *node;
	unsigned got = 0;

	if (is_stale(t))
		ask(t, k); /* after a failure the next call tries again */
	while (k->watching && got < n && (node = next_changed(k, &was))) {
		uint32_t change = difference(&was, &node->is);

		if (!change)
			continue;
		events[got++] = (struct weir_event){
		    .type = WEIR_EVENT_NODE,
		    .status = node->is.state >= WEIR_NODE_DOWN ? -EHOSTDOWN : 0,
		    .cookie = node->is.id,
		    .change = change,
		    .state = node->is.state,
		};
	}
	return got;
}

bool
weir_nodes_any(struct weir_thread *t)
{
	return t->table->watching && (is_stale(t) || !TAILQ_EMPTY(&t->table->changed));
}

/* ---- calls ---- */

/* The calling thread with its table; NULL: *rc says why. */
static struct weir_thread *
own(struct weir *w, int *rc)
{
	struct weir_thread *t;

	w = weir_now(w);
	*rc = weir_state(w) == WEIR_UP ? 0 : weir_gone(w);
	t = *rc ? NULL : weir_thread_own(w, rc);
	if (!t || t->table)
		return t;
	t->table = calloc(1, sizeof(*t->table));
	if (!t->table) {
		*rc = weir_fail(-ENOMEM, "no memory for a table of nodes; free some");
		return NULL;
	}
	TAILQ_INIT(&t->table->changed);
	return t;
}

static void
set_watching(struct weir_thread *t, bool on)
{
	if (t->table->watching == on)
		return;
	t->table->watching = on;
	if (on)
		atomic_fetch_add_explicit(&t->w->watchers, 1, memory_order_relaxed);
	else
		atomic_fetch_sub_explicit(&t->w->watchers, 1, memory_order_relaxed);
}

int
weir_nodes_watch(struct weir *w, int on)
{
	struct weir_session_msg m = weir_message(WEIR_MSG_NODES), r;
	int fds[WEIR_SESSION_FDS], rc;
	struct weir_channel *ch;
	struct weir_thread *t;

	t = own(w, &rc);
	if (!t || t->table->watching == !!on)
		return rc;
	if (on) {
		weir_thread_rouse(t);
		set_watching(t, true);
		rc = ask(t, t->table);
		if (rc)
			set_watching(t, false);
		return rc;
	}
	/* the data plane stops ringing for nodes */
	weir_lock(t);
	rc = weir_channel_get(t, UINT32_MAX, &ch);
	weir_unlock(t);
	if (rc)
		return rc;
	m.nodes.since = UINT64_MAX;
	m.nodes.channel = ch->index;
	rc = weir_request(t->w, &m, WEIR_MSG_NODE_LIST, &r, fds);
	if (!rc)
		weir_node_table_free(t);
	return rc;
}

int
weir_nodes(struct weir *w, struct weir_node_info *list, unsigned n)
{
	struct weir_node_info was;
	struct weir_thread *t;
	struct known *node;
	int rc, count = 0;

	t = own(w, &rc);
	if (!t)
		return rc;
	rc = ask(t, t->table);
	if (rc)
		return rc;
	while (next_changed(t->table, &was))
		;
	for (uint32_t i = 0; (node = following(t->table, &i));) {
		if (node->is.state == WEIR_NODE_GONE)
			continue;
		if ((unsigned)count < n)
			list[count] = node->is;
		count++;
	}
	return count;
}

int
weir_node_find(struct weir *w, uint16_t id, struct weir_node_info *info)
{
	const struct known *node;
	struct weir_thread *t;
	int rc;

	t = own(w, &rc);
	if (!t)
		return rc;
	node = find(t->table, id);
	if (!node || node->is.state == WEIR_NODE_GONE)
		return weir_fail(-ENOENT,
				 "the table of this thread has no node %u; weir_nodes() brings it "
				 "up to date",
				 id);
	*info = node->is;
	return 0;
}

void
weir_node_table_free(struct weir_thread *t)
{
	struct weir_node_table *k = t->table;
	struct known *n;

	if (!k)
		return;
	set_watching(t, false);
	for (uint32_t i = 0; (n = following(k, &i));)
		free(n);
	for (uint32_t i = 0; i < NODES / PAGE; i++)
		free(k->page[i]);
	free(k);
	t->table = NULL;
}

void
weir_node_table_follow(struct weir_thread *t, struct weir_thread *p)
{
	struct weir_node_table *k = p->table;

	if (!k || t->table)
		return;
	t->table = k;
	p->table = NULL;
	k->seen = 0;
	k->life++;
	k->stale = k->sweep = true;
	if (k->watching)
		atomic_fetch_add_explicit(&t->w->watchers, 1, memory_order_relaxed);
}

/* ---- public services: the data plane knows which nodes offer them; no copy here ---- */

static int
ask_service(struct weir *w, const char *service, uint32_t from, uint32_t flags,
	    struct weir_session_msg *r)
{
	struct weir_session_msg m = weir_message(WEIR_MSG_FIND);
	int fds[WEIR_SESSION_FDS];

	if (weir_state(w) != WEIR_UP)
		return weir_gone(w);
	if (!service || !weir_service_ok(service))
		return weir_fail(-EINVAL,
				 "not a service name; give 1 to %u letters, digits, '_', '-', '.'",
				 WEIR_SERVICE_MAX - 1);
	m.find.from = from;
	m.find.flags = flags;
	memcpy(m.find.service, service, strlen(service));
	return weir_request(w, &m, WEIR_MSG_FOUND, r, fds);
}

int
weir_service_best(struct weir *w, const char *service, struct weir_found found[WEIR_FOUND_MAX])
{
	struct weir_session_msg r;
	int rc = ask_service(w, service, 0, WEIR_FIND_BEST, &r);

	if (rc)
		return rc;
	memcpy(found, r.found.node, r.found.count * sizeof(*found));
	return (int)r.found.count;
}

int
weir_service_find(struct weir *w, const char *service, struct weir_service_entry *list, unsigned n)
{
	struct weir_session_msg r = {0};
	uint32_t count = 0, from;

	static_assert(WEIR_FOUND_LOCAL == WEIR_SERVICE_LOCAL, "the same bit");
	w = weir_now(w);
	do {
		int rc;

		from = r.found.next;
		rc = ask_service(w, service, from, 0, &r);
		if (rc)
			return rc;
		for (uint32_t i = 0; i < r.found.count; i++, count++) {
			const struct weir_found *at = &r.found.node[i];

			if (count >= n)
				continue;
			list[count] =
			    (struct weir_service_entry){.node = at->node, .flags = at->flags};
			list[count].port.kind = at->kind;
			list[count].port.id = at->lid;
			memcpy(list[count].port.ip, at->ip, sizeof(at->ip));
			memcpy(list[count].port.service, service, strlen(service));
		}
	} while (r.found.next > from);
	return (int)count;
}

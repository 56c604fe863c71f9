/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The nodes as a thread knows them: a copy of the data plane's table, brought up to date when that
 * has changed, and beside each node what the thread was told last. An event is the difference, so
 * that a thread which takes none for long needs no more memory than the table.
 */
#include "conn.h"
#include "progress.h"
#include "service.h"

#include "client/channel.h"
#include "client/reason.h"
#include "client/thread.h"
#include "ipc/services.h"

#include <errno.h>
#include <stdlib.h>

#define NODES 65536u
#define PAGE 256u

struct known {
	struct weir_node_info is, told; /* GONE: there is none */
	bool news;			/* on the list */
	uint32_t life;			/* of the table when it was last heard of */
	TAILQ_ENTRY(known) in_news;
};

struct weir_table {
	struct known **page[NODES / PAGE];
	TAILQ_HEAD(, known) news; /* those that differ from what was told */
	uint64_t seen;		  /* the data plane's changes up to here */
	uint32_t life;		  /* counts data planes */
	bool watching;
	bool stale; /* to be asked for, whatever the data plane says */
	bool sweep; /* of an earlier data plane: some may be members no more */
};

/* ---- the copy ---- */

static struct known *
find(const struct weir_table *k, uint16_t id)
{
	return k->page[id / PAGE] ? k->page[id / PAGE][id % PAGE] : NULL;
}

static struct known *
get(struct weir_table *k, uint16_t id)
{
	struct known ***page = &k->page[id / PAGE], *n = find(k, id);

	if (n)
		return n;
	if (!*page)
		*page = calloc(PAGE, sizeof(**page));
	n = *page ? calloc(1, sizeof(*n)) : NULL;
	if (!n)
		return NULL;
	n->is.state = n->told.state = WEIR_NODE_GONE;
	n->is.id = id;
	(*page)[id % PAGE] = n;
	return n;
}

static void
each(struct weir_table *k, void (*f)(struct weir_table *k, struct known *n))
{
	for (uint32_t i = 0; i < NODES; i++) {
		if (!k->page[i / PAGE])
			i += PAGE - 1;
		else if (k->page[i / PAGE][i % PAGE])
			f(k, k->page[i / PAGE][i % PAGE]);
	}
}

static void
note(struct weir_table *k, struct known *n)
{
	if (!n->news)
		TAILQ_INSERT_TAIL(&k->news, n, in_news);
	n->news = true;
}

static int
take(struct weir_table *k, const struct weir_node_info *info)
{
	struct known *n = find(k, info->id);

	if (!n && info->state >= WEIR_NODE_GONE)
		return 0;
	n = get(k, info->id);
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

/* The present data plane has told all it knows, and not this one. */
static void
forget_old(struct weir_table *k, struct known *n)
{
	if (n->life == k->life || n->is.state == WEIR_NODE_GONE)
		return;
	n->is.state = WEIR_NODE_GONE;
	note(k, n);
}

/* What has changed since the table was last brought up to date. */
static int
ask(struct weir_thread *t, struct weir_table *k)
{
	struct weir_session_msg m = weir_message(WEIR_MSG_NODES), r;
	struct weir_channel *ch;
	int fds[WEIR_SESSION_FDS], rc = 0;

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
	if (k->sweep && r.node_list.whole) {
		k->sweep = false;
		each(k, forget_old);
	}
	return 0;
}

static bool
is_stale(struct weir_thread *t)
{
	const struct weir_arena_head *head = (const struct weir_arena_head *)t->w->arena;
	const struct weir_table *k = t->table;

	if (!k->watching || weir_state(t->w) != WEIR_UP)
		return false;
	return k->stale || atomic_load_explicit(&head->nodes, memory_order_relaxed) != k->seen;
}

/* ---- events ---- */

static uint32_t
state_change(uint8_t state)
{
	switch (state) {
	case WEIR_NODE_UP:
		return WEIR_CHANGE_UP;
	case WEIR_NODE_SUSPECT:
		return WEIR_CHANGE_SUSPECT;
	case WEIR_NODE_DOWN:
		return WEIR_CHANGE_DOWN;
	}
	return 0;
}

static bool
same_addresses(const struct weir_node_info *a, const struct weir_node_info *b)
{
	return a->address_count == b->address_count &&
	       !memcmp(a->address, b->address, a->address_count * sizeof(a->address[0]));
}

static uint32_t
difference(const struct weir_node_info *was, const struct weir_node_info *is)
{
	uint32_t change = 0;

	if (is->state == WEIR_NODE_GONE)
		return was->state == WEIR_NODE_GONE ? 0 : WEIR_CHANGE_REMOVED;
	if (was->state == WEIR_NODE_GONE)
		return WEIR_CHANGE_ADDED | state_change(is->state);
	if (was->incarnation && was->incarnation != is->incarnation)
		change |= WEIR_CHANGE_RESTART;
	if (!same_addresses(was, is))
		change |= WEIR_CHANGE_ADDRESS;
	if (was->state != is->state)
		change |= state_change(is->state);
	return change;
}

unsigned
weir_nodes_take(struct weir_thread *t, struct weir_event *events, unsigned n)
{
	struct weir_table *k = t->table;
	unsigned got = 0;
	struct known *node;

	if (is_stale(t))
		ask(t, k); /* what fails is tried again by the next call */
	while (k->watching && got < n && (node = TAILQ_FIRST(&k->news))) {
		uint32_t change = difference(&node->told, &node->is);

		TAILQ_REMOVE(&k->news, node, in_news);
		node->news = false;
		node->told = node->is;
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
	return t->table->watching && (is_stale(t) || !TAILQ_EMPTY(&t->table->news));
}

/* ---- calls ---- */

/* The calling thread with its table; NULL: *rc says why. */
static struct weir_thread *
own(struct weir *w, int *rc)
{
	struct weir_thread *t;

	w = weir_now(w);
	*rc = weir_state(w) == WEIR_UP ? 0 : weir_gone(w);
	if (*rc)
		return NULL;
	t = weir_thread_get(w);
	if (t && !t->table) {
		t->table = calloc(1, sizeof(*t->table));
		if (t->table)
			TAILQ_INIT(&t->table->news);
	}
	if (!t || !t->table) {
		*rc = weir_fail(t ? -ENOMEM : -errno, "no resources for a table of nodes; raise "
						      "the limits of memory and files");
		return NULL;
	}
	return t;
}

/* The data plane rings no more. */
static int
stop(struct weir_thread *t)
{
	struct weir_session_msg m = weir_message(WEIR_MSG_NODES), r;
	struct weir_channel *ch;
	int fds[WEIR_SESSION_FDS], rc;

	weir_lock(t);
	rc = weir_channel_get(t, UINT32_MAX, &ch);
	weir_unlock(t);
	if (rc)
		return rc;
	m.nodes.since = UINT64_MAX;
	m.nodes.channel = ch->index;
	return weir_request(t->w, &m, WEIR_MSG_NODE_LIST, &r, fds);
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
	struct weir_thread *t;
	int rc;

	t = own(w, &rc);
	if (!t || t->table->watching == !!on)
		return rc;
	if (!on) {
		rc = stop(t);
		if (!rc)
			weir_table_free(t);
		return rc;
	}
	weir_thread_rouse(t);
	set_watching(t, true);
	rc = ask(t, t->table);
	if (rc)
		set_watching(t, false);
	return rc;
}

int
weir_nodes(struct weir *w, struct weir_node_info *list, unsigned n)
{
	struct weir_thread *t;
	struct weir_table *k;
	struct known *node;
	int rc, count = 0;

	t = own(w, &rc);
	if (!t)
		return rc;
	k = t->table;
	rc = ask(t, k);
	if (rc)
		return rc;
	while ((node = TAILQ_FIRST(&k->news))) {
		TAILQ_REMOVE(&k->news, node, in_news);
		node->news = false;
		node->told = node->is;
	}
	for (uint32_t i = 0; i < NODES; i++) {
		node = find(k, (uint16_t)i);
		if (!k->page[i / PAGE])
			i += PAGE - 1;
		if (!node || node->is.state == WEIR_NODE_GONE)
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

static void
free_node(struct weir_table *k, struct known *n)
{
	(void)k;
	free(n);
}

void
weir_table_free(struct weir_thread *t)
{
	struct weir_table *k = t->table;

	if (!k)
		return;
	set_watching(t, false);
	each(k, free_node);
	for (uint32_t i = 0; i < NODES / PAGE; i++)
		free(k->page[i]);
	free(k);
	t->table = NULL;
}

void
weir_table_follow(struct weir_thread *t, struct weir_thread *p)
{
	struct weir_table *k = p->table;

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

/* ---- public services: the data plane knows which nodes offer one, nothing is kept here ---- */

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

static void
fill(struct weir_service_entry *e, const struct weir_found *f, const char *service)
{
	*e = (struct weir_service_entry){.node = f->node, .flags = f->flags};
	e->port.kind = f->kind;
	e->port.id = f->lid;
	memcpy(e->port.ip, f->ip, sizeof(f->ip));
	memcpy(e->port.service, service, strlen(service));
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
		for (uint32_t i = 0; i < r.found.count; i++, count++)
			if (count < n)
				fill(&list[count], &r.found.node[i], service);
	} while (r.found.next > from);
	return (int)count;
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "swim_net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS 1000u /* us */
#define TICK_MS (NET_PERIOD / 4)
#define SEED_RETRY_MS 500u
#define SEED_SELDOM 10u
#define HELLO_MS 20u // at most, until it is there

enum event_kind {
	EVENT_TICK,
	EVENT_MESSAGE,
	EVENT_PARCEL,
	EVENT_HELLO,   /* on a new connection, of its dialler */
	EVENT_WELCOME, /* the answer */
	EVENT_REFUSED, /* the id that we dialled with is somebody else's */
	EVENT_SEEK,    /* ask a seed, if we still need one */
	EVENT_AGAIN,   /* beaten: choose another id */
};

struct net_event {
	uint64_t at;
	struct net_event *next;
	enum event_kind kind;
	bool seeking;
	uint32_t to, from; /* places */
	uint64_t to_life, from_life;
	uint16_t from_id;
	struct swim_record record;	    /* hello */
	struct net_info info[SWIM_RECORDS]; /* that the records point to */
	union {
		struct net_parcel parcel;
		struct swim_msg m; /* only `count` records of it are there */
	};
};

uint64_t
net_random(struct net *net, uint64_t limit)
{
	return rng_next(&net->rng) % limit;
}

// ---- events ----

static void
push(struct net *net, struct net_event *e)
{
	queue_push(&net->queue, (struct queued){e->at, net->queue.pushed, NULL, e});
}

static struct net_event *
event(struct net *net, enum event_kind kind, uint32_t to, uint64_t delay_us)
{
	struct net_event *e = malloc(sizeof(*e));

	if (!e)
		abort();
	memset(e, 0, offsetof(struct net_event, info));
	e->kind = kind;
	e->to = to;
	e->to_life = net->node[to].life;
	e->at = net->now + delay_us;
	return e;
}

// Mostly fast; one in a hundred waits for a CPU.
static uint64_t
delay(struct net *net)
{
	return net_random(net, 100) ? 50 + net_random(net, 400)
				    : net_random(net, (HELLO_MS - 1) * MS);
}

bool
net_cut(const struct net *net, uint32_t a, uint32_t b)
{
	return net->partitioned && net->node[a].side != net->node[b].side;
}

// ---- what members do ----

static uint32_t
place_of(const void *info)
{
	return (uint32_t)(((const struct net_info *)info)->place_life >> 32);
}

static void
send_hello(struct net_node *n, uint32_t place, enum event_kind kind, bool seeking)
{
	struct net *net = n->net;
	struct net_event *e;

	if (net_cut(net, n->place, place))
		return;
	e = event(net, kind, place, delay(net));
	e->from = n->place;
	e->from_life = n->life;
	e->seeking = seeking;
	e->record = n->swim.self->is;
	e->info[0] = *(const struct net_info *)n->swim.self->is.info;
	push(net, e);
}

// NULL: it gets lost.
static struct net_event *
letter(struct net_node *n, uint16_t to, enum event_kind kind)
{
	struct net *net = n->net;
	const struct swim_node *dest = swim_find(&n->swim, to);
	uint32_t place;
	struct net_event *e;
	uint64_t behind = 0;

	if (n->answering != to && !dest)
		return NULL;
	place = n->answering == to ? n->answers_to : place_of(dest->is.info);
	if (net_cut(net, n->place, place) || !net->node[place].running)
		return NULL;
	// A connection first: what is said on it comes behind its hello.
	if (n->met[place] != net->node[place].life) {
		n->met[place] = (uint32_t)net->node[place].life;
		send_hello(n, place, EVENT_HELLO, false);
		behind = HELLO_MS * MS;
	}
	if (net_random(net, 10000) < net->loss)
		return NULL;
	e = event(net, kind, place, behind + delay(net));
	e->from = n->place;
	e->from_life = n->life;
	e->from_id = n->swim.self->is.id;
	return e;
}

static void
post(void *user, uint16_t to, const struct swim_msg *m)
{
	struct net_node *n = user;
	struct net_event *e = letter(n, to, EVENT_MESSAGE);

	n->sent++;
	n->records += m->count;
	if (!e)
		return;
	memcpy(&e->m, m, offsetof(struct swim_msg, record) + m->count * sizeof(m->record[0]));
	for (uint32_t i = 0; i < m->count; i++)
		e->info[i] = *(const struct net_info *)m->record[i].info;
	push(n->net, e);
}

void
net_carry(struct net_node *n, uint16_t to, const struct net_parcel *parcel)
{
	struct net_event *e = letter(n, to, EVENT_PARCEL);

	if (!e)
		return;
	e->parcel = *parcel;
	push(n->net, e);
}

static void
changed(void *user, const struct swim_node *node)
{
	struct net_node *n = user;
	struct net *net = n->net;
	uint32_t place = place_of(node->is.info);
	const struct net_node *other = &net->node[place];

	if (n->swim.self == node || !n->swim.self)
		return;
	if (node->is.status == SWIM_DEAD && !net->partitioned && other->running && !other->paused &&
	    other->swim.self->is.run == node->is.run)
		net->false_deaths++;
	if (node->is.status == SWIM_ALIVE)
		registry_record(&n->registry, node->is.id,
				((const struct net_info *)node->is.info)->services, net->now / MS);
	if (node->is.id != net->watched)
		return;
	if (node->is.status == SWIM_SUSPECT && !net->first_suspect)
		net->first_suspect = net->now;
	if (node->is.status != SWIM_DEAD)
		return;
	if (!net->first_dead)
		net->first_dead = net->now;
	net->last_dead = net->now;
	net->knowers++;
}

static void
forgotten(void *user, const struct swim_node *node)
{
	registry_forget(&((struct net_node *)user)->registry, node->is.id);
}

static bool
same_place(void *user, const void *info, const void *other)
{
	struct net_node *n = user;

	return n->net->given_ids || place_of(info) == place_of(other);
}

static void
settled(void *user)
{
	struct net_node *n = user;

	n->settled_at = n->net->now;
	// Others have had time to say that the id is theirs.
	n->net->hasty += n->settled_at - n->begun_at < UINT64_C(5) * NET_PERIOD * MS;
}

static void
beaten(void *user, const struct swim_record *other)
{
	struct net_node *n = user;

	push(n->net, event(n->net, EVENT_AGAIN, n->place, 1));
}

// A hello at that place decides.
static void
rival(void *user, const struct swim_record *other)
{
	send_hello(user, place_of(other->info), EVENT_HELLO, false);
}

static void
refused(void *user, uint16_t from, const struct swim_record *r, const char *why)
{
	((struct net_node *)user)->refused++;
}

static const struct swim_ops ops = {
    .send = post,
    .changed = changed,
    .forgotten = forgotten,
    .same_place = same_place,
    .settled = settled,
    .beaten = beaten,
    .rival = rival,
    .refused = refused,
};

// ---- life ----

static void
begin(struct net_node *n)
{
	struct net *net = n->net;
	struct swim_config config = {
	    .id = net->given_ids ? n->place : net_random(net, net->id_space),
	    .claims = !net->given_ids,
	    .picks = !net->given_ids,
	    .closed = net->given_ids,
	    .run = net_random(net, UINT64_MAX),
	    // Clocks are wrong by up to an hour.
	    .version = SWIM_UP + 3600000 + net->now / MS - net_random(net, 3600000),
	    .ticket = 1 + net_random(net, UINT64_C(1) << 61),
	    .seed = net_random(net, UINT64_MAX),
	    .timeout = NET_TIMEOUT,
	    .info_size = sizeof(n->info),
	    .ops = &ops,
	    .user = n,
	};

	n->info.place_life = (uint64_t)n->place << 32 | n->life;
	n->settled_at = 0;
	n->begun_at = net->now;
	memset(n->met, 0, net->nodes * sizeof(n->met[0]));
	n->life++;
	registry_init(&n->registry, config.id, &net_registry_ops, n);
	registry_own(&n->registry, &n->offered);
	n->info.services = n->registry.digest;
	if (swim_init(&n->swim, &config, &n->info, net->now / MS))
		abort();
	for (uint32_t i = 0; net->given_ids && i < net->nodes; i++) {
		struct net_info info = {.place_life = (uint64_t)i << 32};

		if (swim_add(&n->swim, (uint16_t)i, &info))
			abort();
	}
	if (!net->given_ids && n->place == 0)
		swim_alone(&n->swim);
	push(net, event(net, EVENT_TICK, n->place, net_random(net, TICK_MS * MS)));
	if (!net->given_ids)
		push(net, event(net, EVENT_SEEK, n->place, 0));
}

void
net_start(struct net *net, uint32_t place)
{
	struct net_node *n = &net->node[place];

	n->running = true;
	n->offered.count = 0;
	begin(n);
}

static void
drop_held(struct net_node *n)
{
	while (n->held) {
		struct net_event *e = n->held;

		n->held = e->next;
		free(e);
	}
	n->held_last = &n->held;
}

void
net_crash(struct net *net, uint32_t place)
{
	struct net_node *n = &net->node[place];

	n->running = n->paused = false;
	n->life++;
	drop_held(n);
	swim_fini(&n->swim);
	registry_fini(&n->registry);
}

void
net_leave(struct net *net, uint32_t place)
{
	swim_leave(&net->node[place].swim);
	net_crash(net, place);
}

void
net_pause(struct net *net, uint32_t place)
{
	net->node[place].paused = true;
}

// Connections between the sides break.
void
net_part(struct net *net, uint32_t share)
{
	net->partitioned = true;
	for (uint32_t i = 0; i < net->nodes; i++)
		net->node[i].side = i % 100 < share;
	for (uint32_t i = 0; i < net->nodes; i++)
		for (uint32_t j = 0; j < net->nodes; j++)
			if (net_cut(net, i, j))
				net->node[i].met[j] = 0;
}

void
net_resume(struct net *net, uint32_t place)
{
	struct net_node *n = &net->node[place];

	n->paused = false;
	while (n->held) {
		struct net_event *e = n->held;

		n->held = e->next;
		e->at = net->now + 1;
		push(net, e);
	}
	n->held_last = &n->held;
}

// Does a node know somebody living at this place?
static bool
knows_place(const struct net_node *n, uint32_t place)
{
	for (uint32_t i = 0; i < n->swim.count; i++) {
		const struct swim_record *r = &n->swim.node[i]->is;

		if ((r->status == SWIM_ALIVE || r->status == SWIM_SUSPECT) &&
		    place_of(r->info) == place)
			return true;
	}
	return false;
}

static void
seek(struct net_node *n)
{
	struct net *net = n->net;
	uint32_t seed = (uint32_t)net_random(net, net->seeds);
	bool needed = swim_needs_seed(&n->swim);

	// Also when all is well: after a long partition nobody remembers those of the other side.
	if (needed || net_random(net, SEED_SELDOM) == 0)
		if (net->node[seed].running && (needed || !knows_place(n, seed)))
			send_hello(n, seed, EVENT_HELLO, true);
	push(net, event(net, EVENT_SEEK, n->place, SEED_RETRY_MS * MS));
}

static void
take_hello(struct net_node *n, struct net_event *e)
{
	struct net *net = n->net;

	e->record.info = e->info;
	if (swim_hello(&n->swim, &e->record, net->now / MS)) {
		n->met[e->from] = (uint32_t)e->from_life;
		n->answering = e->record.id;
		n->answers_to = e->from;
		if (e->kind == EVENT_HELLO)
			send_hello(n, e->from, EVENT_WELCOME, e->seeking);
		else if (e->seeking)
			swim_join(&n->swim, e->record.id);
	} else if (e->kind == EVENT_HELLO && e->from_life == net->node[e->from].life) {
		struct net_event *no = event(net, EVENT_REFUSED, e->from, delay(net));

		no->from = n->place;
		push(net, no);
	}
}

static void
start_again(struct net_node *n)
{
	n->beaten++;
	swim_fini(&n->swim);
	registry_fini(&n->registry);
	begin(n);
}

static void
take_message(struct net_node *n, struct net_event *e)
{
	// Only over a connection that we know.
	n->answering = e->from_id;
	n->answers_to = e->from;
	if (n->met[e->from] != e->from_life)
		return;
	if (e->kind == EVENT_PARCEL) {
		net_take_parcel(n, e->from_id, &e->parcel);
		return;
	}
	for (uint32_t i = 0; i < e->m.count; i++)
		e->m.record[i].info = &e->info[i];
	swim_input(&n->swim, e->from_id, &e->m, n->net->now / MS);
	registry_heard(&n->registry, e->from_id, n->net->now / MS);
}

static void
handle(struct net_node *n, struct net_event *e)
{
	struct net *net = n->net;

	switch (e->kind) {
	case EVENT_TICK:
		swim_tick(&n->swim, net->now / MS);
		registry_tick(&n->registry, net->now / MS);
		push(net, event(net, EVENT_TICK, n->place, TICK_MS * MS));
		break;
	case EVENT_MESSAGE:
	case EVENT_PARCEL:
		take_message(n, e);
		break;
	case EVENT_HELLO:
	case EVENT_WELCOME:
		take_hello(n, e);
		break;
	case EVENT_REFUSED:
		n->met[e->from] = 0;
		if (!swim_is_settled(&n->swim))
			start_again(n);
		break;
	case EVENT_SEEK:
		seek(n);
		break;
	case EVENT_AGAIN:
		start_again(n);
		break;
	}
}

void
net_run(struct net *net, uint64_t until)
{
	struct queued next;

	while (queue_pop(&net->queue, until * MS, &next)) {
		struct net_event *e = next.subject;
		struct net_node *n = &net->node[e->to];

		if (n->running && n->paused && e->to_life == n->life) {
			e->next = NULL;
			*n->held_last = e;
			n->held_last = &e->next;
			continue;
		}
		if (n->running && e->to_life == n->life)
			handle(n, e);
		n->answering = -1;
		free(e);
	}
	net->now = until * MS;
}

void
net_init(struct net *net, uint64_t seed, uint32_t nodes)
{
	*net = (struct net){.rng.state = seed,
			    .seed = seed,
			    .nodes = nodes,
			    .id_space = 65535,
			    .seeds = nodes < 3 ? nodes : 3,
			    .watched = UINT16_MAX};
	net->node = calloc(nodes, sizeof(net->node[0]));
	if (!net->node)
		abort();
	for (uint32_t i = 0; i < nodes; i++) {
		net->node[i].net = net;
		net->node[i].place = i;
		net->node[i].answering = -1;
		net->node[i].held_last = &net->node[i].held;
		net->node[i].met = calloc(nodes, sizeof(net->node[i].met[0]));
		if (!net->node[i].met)
			abort();
	}
}

void
net_fini(struct net *net)
{
	for (uint32_t i = 0; i < net->nodes; i++) {
		drop_held(&net->node[i]);
		if (net->node[i].running) {
			swim_fini(&net->node[i].swim);
			registry_fini(&net->node[i].registry);
		}
		free(net->node[i].met);
	}
	for (size_t i = 0; i < net->queue.count; i++)
		free(net->queue.heap[i].subject);
	queue_free(&net->queue);
	free(net->node);
}

// ---- what must hold ----

bool
net_agree(struct net *net, char *why, size_t size)
{
	for (uint32_t i = 0; i < net->nodes; i++) {
		struct net_node *n = &net->node[i];
		uint32_t expected = 0;

		for (uint32_t j = 0; j < net->nodes && n->running; j++) {
			const struct net_node *other = &net->node[j];
			const struct swim_node *known;

			if (!other->running || net_cut(net, i, j))
				continue;
			expected++;
			known = swim_find(&n->swim, other->swim.self->is.id);
			if (known && known->is.status == SWIM_ALIVE &&
			    known->is.version == other->swim.self->is.version &&
			    !memcmp(known->is.info, &other->info, sizeof(other->info)))
				continue;
			snprintf(
			    why, size,
			    "place %u knows nothing new of place %u, node %u (status %d, place "
			    "%u, version %+lld)",
			    i, j, other->swim.self->is.id, known ? (int)known->is.status : -1,
			    known ? place_of(known->is.info) : 0,
			    known ? (long long)(known->is.version - other->swim.self->is.version)
				  : 0);
			return false;
		}
		if (n->running && n->swim.alive != expected) {
			snprintf(why, size, "place %u believes that %u live, not %u", i,
				 n->swim.alive, expected);
			return false;
		}
	}
	return true;
}

bool
net_unique(struct net *net, char *why, size_t size)
{
	uint32_t *owner = calloc(2 * 65536, sizeof(*owner));
	bool ok = true;

	if (!owner)
		abort();
	for (uint32_t i = 0; i < net->nodes && ok; i++) {
		const struct net_node *n = &net->node[i];
		uint32_t *at;

		if (!n->running || !swim_is_settled(&n->swim) || n->swim.out)
			continue;
		at = &owner[(net->partitioned ? n->side : 0) * 65536 + n->swim.self->is.id];
		ok = !*at;
		if (!ok)
			snprintf(why, size, "places %u and %u are both node %u", *at - 1, i,
				 n->swim.self->is.id);
		*at = i + 1;
	}
	free(owner);
	return ok;
}

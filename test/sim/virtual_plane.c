/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A data plane as far as its control can tell: control/cluster/dataplane_client.h in front of the
 * ends of its links, which offer as dataplane/broker/links/handshake.c does, without repair and
 * without memory of programs.
 */
#include "virtual.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TELL (MS / 10)	  // from one to the other
#define TICK (250 * MS)	  // of a data plane
#define RESEND (500 * MS) // of what is not answered
#define PATIENCE (10 * SECOND)
#define QUIET (20 * MS) // until an end that failed has let go of its memory
#define RECONNECT (200 * MS)

struct dp {
	struct host *host;
	const struct dp_handler *handler;
	void *user;
	struct dp_view view;
	struct weir_services services;
	uint32_t node;
};

struct letter {
	struct host *host;
	uint64_t incarnation;
	struct weir_ctl_msg m;
};

static void input(struct host *h, const struct weir_ctl_msg *m);

// ---- between the two ----

static void
to_control(void *arg, uint64_t tag, bool alive)
{
	struct letter *l = arg;
	struct dp *dp = l->host->dp;

	if (!alive || !dp || dp->view.state != DP_UP || dp->view.incarnation != l->incarnation) {
		;
	} else if (l->m.type == WEIR_CTL_SERVICES) {
		dp->services = l->m.services.names;
		dp->view.services = weir_services_digest(&dp->services);
		dp->handler->services(dp->user);
	} else {
		dp->handler->message(dp->user, &l->m);
	}
	free(l);
}

static void
to_plane(void *arg, uint64_t tag, bool alive)
{
	struct letter *l = arg;

	if (alive && l->host->plane.incarnation == l->incarnation)
		input(l->host, &l->m);
	free(l);
}

static void
mail(struct host *h, struct host *whose, task_fn run, const struct weir_ctl_msg *m)
{
	struct letter *l = malloc(sizeof(*l));

	if (!l)
		abort();
	l->host = h;
	l->incarnation = h->plane.incarnation;
	l->m = *m;
	world_at(world.now + TELL, whose, run, l, 0);
}

static void
tell_control(struct host *h, const struct weir_ctl_msg *m)
{
	if (h->running && h->dp && h->dp->view.state == DP_UP)
		mail(h, h, to_control, m);
}

void
dp_send(struct dp *dp, struct weir_ctl_msg *m)
{
	if (dp->view.state == DP_UP && dp->view.incarnation == dp->host->plane.incarnation)
		mail(dp->host, NULL, to_plane, m);
}

// ---- offers ----

static struct known *
find_known(const struct host *h, uint16_t id)
{
	struct known *k = h->plane.known[id % KNOWN_LISTS];

	while (k && k->is.id != id)
		k = k->next;
	return k;
}

const struct known *
plane_known(const struct host *h, uint16_t id)
{
	return find_known(h, id);
}

struct end *
plane_end(const struct host *h, uint16_t id)
{
	struct end *e = h->plane.ends;

	while (e && e->peer != id)
		e = e->next;
	return e;
}

static struct end *
make_end(struct host *h, uint16_t id)
{
	struct end *e = plane_end(h, id);

	if (e)
		return e;
	e = calloc(1, sizeof(*e));
	if (!e)
		abort();
	e->peer = id;
	e->next = h->plane.ends;
	h->plane.ends = e;
	return e;
}

static void
offer(struct host *h, const struct end *e, uint32_t answered)
{
	const struct known *k = find_known(h, e->peer);
	struct weir_ctl_msg m = {.type = WEIR_CTL_LINK};

	m.link = (struct weir_link_offer){
	    .node = (uint16_t)h->plane.id,
	    .peer_node = e->peer,
	    .layout = 0x102,
	    .incarnation = h->plane.incarnation,
	    .peer_incarnation = k ? k->is.incarnation : 0,
	    .attempt = e->attempt,
	    .answered = answered,
	    .joined = e->peer_attempt,
	    .gid = {10, 0, 0, 1},
	    .lid = 3,
	    .mtu = 1024,
	    .qpn = {16, 17},
	    .psn = {1, 5},
	    .ring_address = 0x100000000,
	    .credit_address = 0x200000000,
	    .ring_lines = 4096,
	    .recv_wrs = 64,
	    .answers = 16 << 10,
	};
	tell_control(h, &m);
}

static void
begin(struct end *e)
{
	e->attempt++;
	e->peer_attempt = 0;
	e->confirmed = false;
	e->state = END_OFFERED;
	e->deadline = world.now + PATIENCE;
	e->resend = world.now + RESEND;
}

static void
fail(struct end *e)
{
	if (e->state == END_DOWN || e->state == END_QUIET)
		return;
	e->state = END_QUIET;
	e->confirmed = false;
	e->peer_attempt = 0;
	e->quiet_until = world.now + QUIET;
}

static bool
is_joined(const struct end *e, const struct weir_link_offer *o)
{
	return o->answered == e->attempt || o->joined == e->attempt;
}

static bool
is_fresh(const struct end *e, const struct weir_link_offer *o)
{
	if (o->joined && o->joined != e->attempt)
		return false;
	return o->answered ? o->answered == e->attempt : o->attempt > e->burnt;
}

static void
take(struct host *h, struct end *e, const struct weir_link_offer *o)
{
	e->peer_attempt = e->burnt = o->attempt;
	e->state = END_UP;
	e->deadline = world.now + PATIENCE;
	e->heard_at = world.now;
	e->confirmed = is_joined(e, o);
	offer(h, e, o->attempt);
}

static void
take_offer(struct host *h, struct end *e, const struct weir_link_offer *o)
{
	bool takeable = !o->answered && !o->joined && o->attempt > e->burnt;

	switch (e->state) {
	case END_DOWN:
		begin(e);
		if (takeable)
			take(h, e, o);
		else
			offer(h, e, 0);
		break;
	case END_OFFERED:
		if (is_fresh(e, o))
			take(h, e, o);
		break;
	case END_UP:
		if (o->attempt > e->peer_attempt) {
			e->saved = *o;
			fail(e);
		} else if (o->attempt == e->peer_attempt) {
			e->confirmed |= is_joined(e, o);
			if (!o->answered)
				offer(h, e, e->peer_attempt);
		}
		break;
	case END_QUIET:
		if (o->attempt > e->saved.attempt)
			e->saved = *o;
		break;
	}
}

// A former life of the node takes its links with it.
static void
take_life(struct host *h, struct known *k, uint64_t incarnation)
{
	struct end *e = plane_end(h, (uint16_t)k->is.id);

	if (incarnation <= k->is.incarnation)
		return;
	if (k->is.incarnation && e)
		fail(e);
	k->is.incarnation = incarnation;
}

static bool
usable(const struct known *k)
{
	return k && (k->is.state == WEIR_NODE_UP || k->is.state == WEIR_NODE_SUSPECT);
}

static void
input_offer(struct host *h, const struct weir_link_offer *o)
{
	struct known *k = find_known(h, o->node);
	struct end *e;

	if (!k || o->peer_node != h->plane.id || o->incarnation < k->is.incarnation ||
	    (o->peer_incarnation && o->peer_incarnation != h->plane.incarnation))
		return;
	if (o->incarnation > k->is.incarnation && !usable(k))
		k->is.state = WEIR_NODE_UP;
	take_life(h, k, o->incarnation);
	if (!usable(k))
		return;
	e = make_end(h, o->node);
	if (e->peer_incarnation != o->incarnation) {
		e->peer_incarnation = o->incarnation;
		e->burnt = 0;
	}
	take_offer(h, e, o);
}

// A program waits for it, and it can be begun.
static void
kick(struct host *h, struct end *e)
{
	if (e->state != END_DOWN || !e->wanted || !usable(find_known(h, e->peer)))
		return;
	begin(e);
	offer(h, e, 0);
}

void
plane_want(struct host *h, uint16_t id)
{
	struct end *e = make_end(h, id);

	e->wanted = true;
	kick(h, e);
}

// ---- services ----

static void
tell_services(struct host *h)
{
	struct weir_ctl_msg m = {.type = WEIR_CTL_SERVICES, .services.names = h->plane.offers};

	tell_control(h, &m);
}

void
plane_offer(struct host *h)
{
	char name[WEIR_SERVICE_MAX];

	h->plane.offered++;
	memset(&h->plane.offers, 0, sizeof(h->plane.offers));
	for (uint32_t i = h->plane.offered % 3; i; i--) {
		snprintf(name, sizeof(name), "s%u-%u", i, h->plane.offered);
		weir_services_add(&h->plane.offers, name);
	}
	if (h->plane.incarnation)
		tell_services(h);
}

static void
input_services(struct host *h, const struct weir_ctl_msg *m)
{
	struct known *k = find_known(h, (uint16_t)m->services.node);

	// As dataplane/broker/conns/listener.c: of whom nothing is known nothing is believed.
	if (!k || k->is.self)
		return;
	k->offers = weir_services_digest(&m->services.names);
	k->offered_by = m->services.incarnation;
}

// ---- nodes ----

static void
input_node(struct host *h, const struct weir_ctl_node *is)
{
	struct known *k = find_known(h, (uint16_t)is->id);
	struct end *e = plane_end(h, (uint16_t)is->id);
	uint64_t incarnation = is->incarnation;

	if (is->self) {
		h->plane.renamed += h->plane.id != UINT32_MAX && h->plane.id != is->id;
		h->plane.id = is->id;
	}
	if (!k) {
		k = calloc(1, sizeof(*k));
		if (!k)
			abort();
		k->is.id = is->id;
		k->next = h->plane.known[is->id % KNOWN_LISTS];
		h->plane.known[is->id % KNOWN_LISTS] = k;
	}
	take_life(h, k, incarnation);
	incarnation = k->is.incarnation;
	if (is->state == WEIR_NODE_JOINING && incarnation)
		return;
	h->plane.told_suspect += is->state == WEIR_NODE_SUSPECT && !is->self;
	h->plane.told_down += is->state == WEIR_NODE_DOWN && !is->self;
	k->is = *is;
	k->is.incarnation = incarnation;
	if (e && is->state >= WEIR_NODE_DOWN)
		fail(e);
	else if (e)
		kick(h, e);
}

static void
input(struct host *h, const struct weir_ctl_msg *m)
{
	if (m->type == WEIR_CTL_NODE)
		input_node(h, &m->node);
	else if (m->type == WEIR_CTL_LINK)
		input_offer(h, &m->link);
	else if (m->type == WEIR_CTL_SERVICES)
		input_services(h, m);
}

// ---- time ----

static const struct host *
host_of(uint64_t incarnation)
{
	return &world.host[incarnation & 0xffff];
}

bool
plane_joined(const struct host *h, const struct end *e)
{
	const struct host *other = host_of(e->peer_incarnation);
	const struct end *its = plane_end(other, (uint16_t)h->plane.id);

	return e->state == END_UP && other->plane.incarnation == e->peer_incarnation && its &&
	       its->state == END_UP && its->peer_incarnation == h->plane.incarnation &&
	       its->attempt == e->peer_attempt && its->peer_attempt == e->attempt;
}

void
plane_link_down(struct host *h, uint16_t id)
{
	struct weir_ctl_msg m = {.type = WEIR_CTL_LINK_DOWN};

	m.link_down.node = (uint16_t)h->plane.id;
	m.link_down.peer_node = id;
	m.link_down.status = 112;
	tell_control(h, &m);
}

static void
tick_end(struct host *h, struct end *e)
{
	bool waits = e->state == END_OFFERED || (e->state == END_UP && !e->confirmed);

	if (e->state == END_UP && plane_joined(h, e) && !world_cut(h, host_of(e->peer_incarnation)))
		e->heard_at = world.now;
	if (waits && e->deadline <= world.now) {
		fail(e);
	} else if (waits && e->resend <= world.now) {
		e->resend = world.now + RESEND;
		offer(h, e, 0);
	} else if (e->state == END_UP && world.now - e->heard_at >= PATIENCE) {
		fail(e);
	} else if (e->state == END_UP && world.now - e->heard_at >= NODE_TIMEOUT * MS) {
		plane_link_down(h, e->peer);
	}
	if (e->state == END_QUIET && e->quiet_until <= world.now) {
		struct weir_link_offer saved = e->saved;

		e->state = END_DOWN;
		e->saved.attempt = 0;
		if (saved.attempt && usable(find_known(h, e->peer)) &&
		    saved.incarnation == e->peer_incarnation)
			take_offer(h, e, &saved);
		kick(h, e);
	}
}

static void
on_tick(void *arg, uint64_t incarnation, bool alive)
{
	struct host *h = arg;

	if (!alive || h->plane.incarnation != incarnation)
		return;
	for (struct end *e = h->plane.ends; e; e = e->next)
		tick_end(h, e);
	world_at(world.now + TICK, NULL, on_tick, h, incarnation);
}

// ---- control.sock ----

static void
say_hello(void *arg, uint64_t tag, bool alive)
{
	struct host *h = arg;
	struct dp *dp = h->dp;
	bool up = h->plane.incarnation;

	if (!alive || !dp || (!up && dp->view.state == DP_DOWN) ||
	    (up && dp->view.state == DP_UP && dp->view.incarnation == h->plane.incarnation))
		return;
	// Its death is noticed before it can be there again.
	if (dp->view.state == DP_UP) {
		dp->view.state = DP_DOWN;
		dp->handler->changed(dp->user, &dp->view);
	}
	dp->view.state = up ? DP_UP : DP_DOWN;
	if (up) {
		dp->view.incarnation = h->plane.incarnation;
		dp->view.engines = 1;
		dp->view.services = weir_services_digest(&h->plane.offers);
		dp->node = h->plane.id;
	}
	dp->handler->changed(dp->user, &dp->view);
	if (up)
		tell_services(h);
	for (struct end *e = h->plane.ends; up && e; e = e->next)
		if (e->state == END_OFFERED || e->state == END_UP)
			offer(h, e, e->confirmed ? e->peer_attempt : 0);
}

struct dp *
dp_create(struct event_base *base, const char *socket_path, const struct weir_ctl_msg *hello,
	  const struct dp_handler *handler, void *user)
{
	struct dp *dp = calloc(1, sizeof(*dp));

	if (!dp)
		abort();
	dp->host = base->host;
	dp->handler = handler;
	dp->user = user;
	dp->node = UINT32_MAX;
	// Its main thread may be busy.
	world_at(world.now + (world_random(4) ? MS : world_random(250 * MS)), dp->host, say_hello,
		 dp->host, 0);
	return dp;
}

void
dp_destroy(struct dp *dp)
{
	free(dp);
}

const struct dp_view *
dp_view(const struct dp *dp)
{
	return &dp->view;
}

uint32_t
dp_node(const struct dp *dp)
{
	return dp->node;
}

const struct weir_services *
dp_services(const struct dp *dp)
{
	return &dp->services;
}

// ---- life ----

void
plane_start(struct host *h)
{
	h->plane.incarnation = (uint64_t)++h->plane.starts << 16 | h->place;
	h->plane.id = UINT32_MAX;
	world_at(world.now + world_random(RECONNECT), h, say_hello, h, 0);
	world_at(world.now + world_random(TICK), NULL, on_tick, h, h->plane.incarnation);
}

void
plane_free(struct host *h)
{
	while (h->plane.ends) {
		struct end *e = h->plane.ends;

		h->plane.ends = e->next;
		free(e);
	}
	for (uint32_t i = 0; i < KNOWN_LISTS; i++) {
		while (h->plane.known[i]) {
			struct known *k = h->plane.known[i];

			h->plane.known[i] = k->next;
			free(k);
		}
	}
}

// Programs want what they wanted, when it is there again.
void
plane_die(struct host *h)
{
	uint16_t wanted[256];
	uint32_t n = 0;

	for (struct end *e = h->plane.ends; e && n < 256; e = e->next)
		if (e->wanted)
			wanted[n++] = e->peer;
	plane_free(h);
	h->plane.offers.count = 0; // and its programs offer nothing yet
	h->plane.incarnation = 0;
	while (n)
		make_end(h, wanted[--n])->wanted = true;
	world_at(world.now + TELL, h, say_hello, h, 0);
}

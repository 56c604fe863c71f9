/* SPDX-License-Identifier: BSD-3-Clause */
#include "virtual_host.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT 7000
#define SEEDS 3u

static struct peers listed;
static char seeds[96];

// ---- life ----

static void
on_turn(void *arg, uint64_t tag, bool alive)
{
	struct host *h = arg;

	if (!alive)
		return;
	control_tick(&h->control, monotonic_ms());
	world_at(world.now + CONTROL_TICK_MS * MS, h, on_turn, h, 0);
}

static bool
start_source(struct control *c)
{
	return c->source->start(c->source, c->base, &member_events, c) == 0 && c->failed < 0;
}

void
host_start(struct host *h)
{
	struct control *c = &h->control;
	struct weir_ctl_msg hello = {.type = WEIR_CTL_HELLO};
	struct sockaddr_storage address;
	socklen_t length;

	h->life++;
	h->running = h->powered = true;
	*c = (struct control){
	    .options = &h->options, .transport = &virtual_tcp, .base = &h->base, .failed = -1};
	c->again = evtimer_new(c->base, self_node_on_again, c);
	c->settled = evtimer_new(c->base, self_node_on_settled, c);
	c->source = listed.list ? source_file(&listed, h->options.node) : source_join(seeds);
	if (address_resolve(c, "listen", h->listen, false, &address, &length) >= 0 ||
	    admission_open(c, (struct sockaddr *)&address, length))
		abort();
	if (listed.list)
		c->self = *peers_find(&listed, h->options.node);
	memcpy(c->self.control, h->listen, strlen(h->listen) + 1);
	if (!listed.list && !start_source(c))
		abort();
	c->dp = h->dp = dp_create(c->base, NULL, &hello, &self_node_dp_handler, c);
	if (listed.list && (!self_node_begin(c, monotonic_ms()) || !start_source(c)))
		abort();
	world_at(world.now + world_random(CONTROL_TICK_MS * MS), h, on_turn, h, 0);
}

static void
end_control(struct host *h, bool orderly)
{
	struct control *c = &h->control;
	bool leave = orderly && c->has_id && dp_view(c->dp)->state != DP_UP;

	c->stopping = orderly;
	if (leave)
		swim_leave(&c->swim);
	self_node_end(c);
	c->source->stop(c->source, leave);
	admission_close(c);
	dp_destroy(c->dp);
	h->dp = NULL;
	event_free(c->again);
	event_free(c->settled);
	h->running = h->paused = false;
	world_resume(h);
}

void
host_stop(struct host *h)
{
	if (h->running)
		end_control(h, true);
}

void
host_kill(struct host *h)
{
	if (h->running)
		end_control(h, false);
}

void
host_power_off(struct host *h)
{
	h->powered = false;
	host_kill(h);
	if (h->plane.incarnation)
		plane_die(h);
}

void
host_pause(struct host *h)
{
	h->paused = h->running;
}

void
host_resume(struct host *h)
{
	h->paused = false;
	world_resume(h);
}

// ---- all of them ----

static void
make_host(struct host *h, uint32_t place, bool with_list)
{
	h->place = place;
	h->base.host = h;
	h->kept_last = &h->kept;
	h->plane.id = UINT32_MAX;
	h->ping_to = UINT32_MAX;
	h->powered = true;
	snprintf(h->listen, sizeof(h->listen), "127.%u.%u.%u:%u", (place + 1) >> 16,
		 (place + 1) >> 8 & 0xff, (place + 1) & 0xff, PORT);
	h->options = (struct control_options){.cluster = "test",
					      .node_timeout = NODE_TIMEOUT,
					      .has_node = with_list,
					      .peers = with_list ? "peers" : NULL,
					      .join = with_list ? NULL : seeds,
					      .node = (uint16_t)place};
}

void
hosts_make(uint64_t seed, uint32_t hosts, bool with_list)
{
	world = (struct world){
	    .rng.state = seed, .seed = seed, .hosts = hosts, .trace = world.trace, .now = SECOND};
	world.host = calloc(hosts, sizeof(world.host[0]));
	listed.list = with_list ? calloc(hosts, sizeof(listed.list[0])) : NULL;
	listed.count = hosts;
	if (!world.host || (with_list && !listed.list))
		abort();
	seeds[0] = 0;
	for (uint32_t i = 0; i < hosts; i++) {
		struct host *h = &world.host[i];

		make_host(h, i, with_list);
		if (with_list) {
			listed.list[i].id = (uint16_t)i;
			listed.list[i].address_count = 1;
			memcpy(listed.list[i].control, h->listen, sizeof(h->listen));
		} else if (i < SEEDS) {
			snprintf(seeds + strlen(seeds), sizeof(seeds) - strlen(seeds), "%s%s",
				 i ? "," : "", h->listen);
		}
	}
}

void
hosts_free(void)
{
	for (uint32_t i = 0; i < world.hosts; i++)
		host_kill(&world.host[i]);
	world_free();
	for (uint32_t i = 0; i < world.hosts; i++)
		plane_free(&world.host[i]);
	free(world.host);
	world.host = NULL;
	free(listed.list);
	listed.list = NULL;
}

// ---- what must hold ----

struct member *
host_member(struct host *h, const struct host *other)
{
	if (!h->running || !other->running || !h->control.has_id || !other->control.has_id)
		return NULL;
	return member_find(&h->control, other->control.self.id);
}

struct sock *
host_sock(struct host *h, const struct host *other)
{
	struct member *m = host_member(h, other);

	return m && m->conn ? (struct sock *)m->conn->stream : NULL;
}

static bool
calm(const struct host *h)
{
	return h->running && !h->paused && h->powered;
}

// Of both ends of a pair each uses the same connection, or will soon.
static bool
pair_sound(struct host *h, struct member *m, uint64_t bound, char *why, size_t size)
{
	struct sock *s = (struct sock *)m->conn->stream;
	struct host *other = s->other ? s->other->host : NULL;

	if (!m->conn->joined)
		return true;
	if (!calm(h) || !calm(other) || world_cut(h, other) || host_sock(other, h) == s->other) {
		s->apart_since = 0;
	} else if (!s->apart_since) {
		s->apart_since = world.now;
	} else if (world.now - s->apart_since > bound) {
		snprintf(
		    why, size,
		    "place %u has used a connection to place %u for %llu ms that the other end "
		    "doesn't use",
		    h->place, other->place,
		    (unsigned long long)((world.now - s->apart_since) / MS));
		return false;
	}
	return true;
}

static bool
host_sound(struct host *h, uint64_t bound, char *why, size_t size)
{
	const struct control *c = &h->control;
	uint32_t unlinked = 0, held = c->stranger_count + (c->seed_conn != NULL);
	uint64_t now = monotonic_ms();

	for (uint32_t i = 0; i < c->member_count; i++) {
		struct member *m = c->members[i];

		if (!m->conn)
			continue;
		held++;
		if (!pair_sound(h, m, bound, why, size))
			return false;
		unlinked += m->conn->joined && !m->node.linked && !m->offers.count &&
			    now - m->used_at > 2 * MEMBER_UNUSED + 2 * CONTROL_TICK_MS;
	}
	if (h->plane.renamed)
		snprintf(why, size, "place %u is node %u now, but its data plane went on", h->place,
			 h->plane.id);
	else if (held != h->held)
		snprintf(why, size, "place %u holds %u connections and knows of %u", h->place,
			 h->held, held);
	else if (!h->paused && unlinked > CONTROL_STREAMS)
		snprintf(why, size, "place %u keeps %u connections that are of no use", h->place,
			 unlinked);
	else
		return true;
	return false;
}

bool
hosts_sound(uint64_t bound, char *why, size_t size)
{
	for (uint32_t i = 0; i < world.hosts; i++)
		if (world.host[i].running && !host_sound(&world.host[i], bound, why, size))
			return false;
	return true;
}

static bool
pair_settled(struct host *h, struct host *other, char *why, size_t size)
{
	uint16_t id = other->control.self.id;
	const struct known *k = plane_known(h, id);
	const struct end *e = plane_end(h, id);

	if (!k || k->is.state != WEIR_NODE_UP || k->is.incarnation != other->plane.incarnation)
		snprintf(
		    why, size,
		    "the data plane of place %u has node %u, place %u, in state %d, incarnation "
		    "%llx",
		    h->place, id, other->place, k ? (int)k->is.state : -1,
		    k ? (unsigned long long)k->is.incarnation : 0);
	else if (k->offered_by != k->is.incarnation ||
		 k->offers != weir_services_digest(&other->plane.offers))
		snprintf(why, size, "place %u doesn't know what place %u offers", h->place,
			 other->place);
	else if (e && e->wanted && !(e->state == END_UP && e->confirmed && plane_joined(h, e)))
		snprintf(why, size,
			 "place %u has no link to place %u: state %d, attempt %u of %u, confirmed "
			 "%d",
			 h->place, other->place, e->state, e->attempt, e->peer_attempt,
			 e->confirmed);
	else
		return true;
	return false;
}

bool
hosts_settled(char *why, size_t size)
{
	for (uint32_t i = 0; i < world.hosts; i++) {
		struct host *h = &world.host[i];

		if (!h->running || !h->plane.incarnation)
			continue;
		for (uint32_t j = 0; j < world.hosts; j++) {
			struct host *other = &world.host[j];

			if (i == j || !other->running || !other->plane.incarnation)
				continue;
			if (!other->control.has_id || !pair_settled(h, other, why, size)) {
				if (!other->control.has_id)
					snprintf(why, size, "place %u has no id", j);
				return false;
			}
		}
	}
	return true;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Our own node: its id, its data plane, what is spread of it. */
#include "control.h"

#include "ipc/invariant.h"

#include <arpa/inet.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define AGAIN_MS 1000u /* an id that must be ours is somebody else's: next try */

static uint64_t
random_bits(void)
{
	uint64_t bits = 0;

	// Fails only before the kernel has any randomness at all; then time has to do.
	if (getrandom(&bits, sizeof(bits), GRND_NONBLOCK) != sizeof(bits))
		bits = monotonic_ms() * UINT64_C(0x9e3779b97f4a7c15);
	return bits ? bits : 1;
}

// ---- our data plane ----

static void
begin(struct control *c, uint64_t now)
{
	if (!c->has_id && !self_node_begin(c, now))
		log_once(&c->id_trouble, "out of memory; trying again");
}

static void
report_all(struct control *c)
{
	const struct dp_view *view = dp_view(c->dp);
	struct weir_ctl_msg self = {.type = WEIR_CTL_NODE}, synced = {.type = WEIR_CTL_SYNCED};

	if (view->state != DP_UP || !c->id_reported)
		return;
	weir_assert(c->has_id);
	self.node.id = c->self.id;
	self.node.self = 1;
	self.node.state = WEIR_NODE_UP;
	self.node.incarnation = view->incarnation;
	self.node.engines = view->engines;
	self.node.address_count = c->self.address_count;
	memcpy(self.node.address, c->self.address, sizeof(self.node.address));
	memcpy(self.node.lid, c->self.lid, sizeof(self.node.lid));
	memcpy(self.node.control, c->self.control, sizeof(self.node.control));
	dp_send(c->dp, &self);
	for (uint32_t i = 0; i < c->member_count; i++)
		member_report(c->members[i]);
	dp_send(c->dp, &synced);
}

// Spreads the state of our data plane to others. Nothing while the id is only claimed.
static void
spread(struct control *c)
{
	const struct dp_view *view = dp_view(c->dp);

	if (!c->id_reported)
		return;
	c->info.dp = *view;
	if (!c->options->peers && view->state == DP_UP) {
		c->self.address_count = view->address_count;
		memcpy(c->self.address, view->address, sizeof(c->self.address));
	}
	swim_set_info(&c->swim, &c->info);
	c->source->publish(c->source, &c->self);
	// Connected members learn of it at once, above all when the data plane is dead.
	for (uint32_t i = 0; i < c->member_count; i++)
		member_view(c->members[i], view);
}

static void
on_dp_changed(void *user, const struct dp_view *view)
{
	struct control *c = user;
	bool had_id = c->has_id;

	// The links that it is about to tell are of the id that it had.
	if (view->state == DP_UP)
		begin(c, monotonic_ms());
	if (!had_id)
		return;
	spread(c);
	report_all(c);
	if (view->state != DP_UP || !c->options->peers)
		return;
	for (uint32_t i = 0; i < view->address_count; i++) {
		char text[INET6_ADDRSTRLEN] = "?";
		bool known = false;

		for (uint32_t j = 0; j < c->self.address_count; j++)
			known |= !memcmp(view->address[i], c->self.address[j], 16);
		if (IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)view->address[i]))
			inet_ntop(AF_INET, view->address[i] + 12, text, sizeof(text));
		else
			inet_ntop(AF_INET6, view->address[i], text, sizeof(text));
		if (!known)
			log_event(
			    LOG_LEVEL_WARNING, (struct log_field[]){{"address", 0, text}}, 1,
			    "data plane has NIC address %s, which line %u of the peers file does "
			    "not list; programs elsewhere cannot name it",
			    text, c->self.line);
	}
}

static void
on_dp_message(void *user, const struct weir_ctl_msg *m)
{
	struct control *c = user;
	bool link = m->type == WEIR_CTL_LINK;
	uint16_t from = link ? m->link.node : m->link_down.node;
	uint16_t to = link ? m->link.peer_node : m->link_down.peer_node;
	struct member *member = NULL;

	if (!c->has_id)
		return;
	// A link from before our start may be with a node that we have not heard of yet.
	if (from == c->self.id && to != from)
		member = c->source->closed ? member_find(c, to) : member_get(c, to);
	if (!member)
		log_once(&c->dp_trouble, "data plane sent a link message from node %u to node %u",
			 from, to);
	else if (link)
		member_offer(member, &m->link);
	else if (m->type == WEIR_CTL_RESYNC)
		member_resync(member, m);
	else
		member_link_down(member, m);
}

const struct dp_handler self_node_dp_handler = {
    .changed = on_dp_changed,
    .services = service_own,
    .message = on_dp_message,
};

// ---- membership ----

static bool
on_same_place(void *user, const void *info, const void *other)
{
	const struct control *c = user;
	const struct node_info *a = info, *b = other;

	// Of a list the addresses are given: who has an id is where the list says.
	return c->source->closed || !strcmp(a->control, b->control);
}

static void
log_id(const struct control *c)
{
	if (!c->options->has_node)
		log_event(LOG_LEVEL_INFO, LOG_NODE(c->self.id), "node id is %u", c->self.id);
}

static void
on_settled(void *user)
{
	struct control *c = user;

	log_id(c);
	log_forget(&c->id_trouble);
	c->last_id = c->self.id;
	c->last_id_known = true;
	// Not from in here: our record is being changed.
	event_active(c->settled, EV_TIMEOUT, 0);
}

static void
on_beaten(void *user, const struct swim_record *other)
{
	const struct node_info *info = other->info;

	self_node_beaten(user, info->control);
}

static void
on_rival(void *user, const struct swim_record *other)
{
	const struct node_info *info = other->info;

	bootstrap_meet(user, info->control);
}

static void
on_refused(void *user, uint16_t from, const struct swim_record *r, const char *why)
{
	struct control *c = user;
	struct log_field about[] = {
	    {"node", r->id, NULL}, {"teller", from, NULL}, {"reason", 0, why}};
	char who[16];

	snprintf(who, sizeof(who), "node %u", from);
	log_blamed(&c->blamed, "refused records", who, monotonic_ms(), about, 3,
		   "ignored statements of node %u about others: %s", from, why);
}

static const struct swim_ops swim_ops = {
    .send = member_send_swim,
    .changed = member_changed,
    .forgotten = member_unknown,
    .same_place = on_same_place,
    .settled = on_settled,
    .beaten = on_beaten,
    .rival = on_rival,
    .refused = on_refused,
};

void
self_node_beaten(struct control *c, const char *by)
{
	log_once_about(&c->id_trouble, LOG_NODE_AT(c->self.id, by),
		       "node id %u belongs to another node, says %s; %s", c->self.id, by,
		       c->options->has_node ? "stop that one, or give this one another --node"
					    : "another one is chosen");
	event_active(c->again, EV_TIMEOUT, 0);
}

void
self_node_on_settled(evutil_socket_t fd, short what, void *user)
{
	struct control *c = user;

	if (!c->has_id || !swim_is_settled(&c->swim))
		return;
	c->id_reported = true;
	spread(c);
	report_all(c);
}

void
self_node_on_again(evutil_socket_t fd, short what, void *user)
{
	struct control *c = user;

	if (!c->has_id)
		return;
	self_node_end(c);
	c->last_id_known = false;
	c->barred = true;
	c->begin_at = monotonic_ms() + (c->options->has_node ? AGAIN_MS : 0);
}

void
self_node_end(struct control *c)
{
	bootstrap_end(c);
	member_end_all(c);
	if (c->has_id) {
		swim_fini(&c->swim);
		registry_fini(&c->registry);
	}
	c->has_id = c->id_reported = false;
}

bool
self_node_begin(struct control *c, uint64_t now)
{
	uint32_t dp_id = dp_node(c->dp);
	struct timespec wall;
	struct swim_config config = {
	    .claims = !c->source->closed && !c->source->gives_ids,
	    .picks = !c->options->has_node,
	    .closed = c->source->closed,
	    .run = random_bits(),
	    .ticket = 1 + random_bits() % (UINT64_C(1) << 61),
	    .seed = random_bits(),
	    .timeout = c->options->node_timeout,
	    .info_size = sizeof(c->info),
	    .ops = &swim_ops,
	    .user = c,
	};

	weir_assert(!c->has_id);
	if (now < c->begin_at)
		return true;
	if (c->options->has_node) {
		c->self.id = c->options->node;
	} else if (c->last_id_known) {
		c->self.id = c->last_id;
	} else if (dp_id < UINT16_MAX && !c->barred) {
		c->self.id = (uint16_t)dp_id; // ours before we were restarted
	} else if (c->source->gives_ids || (dp_view(c->dp)->state == DP_UNKNOWN && !c->barred)) {
		return true; // with another id the links of a data plane that is late would end
	} else {
		c->self.id = (uint16_t)(random_bits() % UINT16_MAX);
	}
	clock_gettime(CLOCK_REALTIME, &wall);
	config.version = SWIM_UP + (uint64_t)wall.tv_sec * 1000 + (uint64_t)wall.tv_nsec / 1000000;
	config.id = c->self.id;
	memset(&c->info, 0, sizeof(c->info));
	memcpy(c->info.control, c->self.control, sizeof(c->info.control));
	if (swim_init(&c->swim, &config, &c->info, now))
		return false;
	c->has_id = true;
	registry_init(&c->registry, c->self.id, &service_ops, c);
	registry_own(&c->registry, dp_services(c->dp));
	member_forgotten(c, c->self.id); // a list may name us too
	for (uint32_t i = 0; i < c->member_count; i++)
		if (c->members[i]->listed && member_list(c->members[i]))
			log_error("out of memory: node %u is left out", c->members[i]->id);
	c->id_reported = swim_is_settled(&c->swim);
	if (c->id_reported)
		log_id(c); // etcd's gift
	if (bootstrap_is_self(c))
		swim_alone(&c->swim);
	spread(c);
	report_all(c); // it may have waited for the id
	return true;
}

void
self_node_tick(struct control *c, uint64_t now)
{
	begin(c, now);
	if (!c->has_id)
		return;
	swim_tick(&c->swim, now);
	registry_tick(&c->registry, now);
}

void
self_node_record(const struct control *c, struct control_msg *hello)
{
	hello->hello.record = c->swim.self->is;
	hello->hello.record.info = NULL;
	hello->hello.info = *(const struct node_info *)c->swim.self->is.info;
}

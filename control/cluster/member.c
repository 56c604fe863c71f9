/* SPDX-License-Identifier: BSD-3-Clause */
/* The other nodes: their table, what our data plane is told of them, offers for them. */
#include "control.h"

#include "base/vec.h"
#include "ipc/invariant.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Where `id` is, or belongs.
static uint32_t
place_of(const struct control *c, uint32_t id)
{
	return VEC_BEFORE(c->member_count, i, c->members[i]->id < id);
}

struct member *
member_find(const struct control *c, uint32_t id)
{
	uint32_t at = place_of(c, id);

	return at < c->member_count && c->members[at]->id == id ? c->members[at] : NULL;
}

struct member *
member_get(struct control *c, uint16_t id)
{
	struct member *m = member_find(c, id);
	uint32_t at = place_of(c, id);

	weir_assert(c->member_count <= c->member_room);
	if (m)
		return m;
	if (VEC_RESERVE(c->members, c->member_room, c->member_count + 1))
		return NULL;
	m = calloc(1, sizeof(*m));
	if (!m)
		return NULL;
	m->control = c;
	m->id = m->entry.id = id;
	m->state_lines.kind = "its state";
	m->conn_lines.kind = "its connections";
	snprintf(m->state_lines.who, sizeof(m->state_lines.who), "node %u", id);
	snprintf(m->conn_lines.who, sizeof(m->conn_lines.who), "node %u", id);
	m->backoff = MEMBER_RETRY_MIN;
	m->linked_at = monotonic_ms();
	node_state_init(&m->node, c->options->node_timeout, m->linked_at);
	memmove(c->members + at + 1, c->members + at,
		(c->member_count - at) * sizeof(c->members[0]));
	c->members[at] = m;
	c->member_count++;
	weir_assert(at == 0 || c->members[at - 1]->id < id);
	weir_assert(at + 1 == c->member_count || c->members[at + 1]->id > id);
	return m;
}

static void
member_free(struct member *m)
{
	member_close(m, NULL);
	weir_assert(!m->conn && !m->pending_count);
	offers_fini(&m->offers);
	free(m);
}

void
member_end_all(struct control *c)
{
	while (c->member_count)
		member_free(c->members[--c->member_count]);
	free(c->members);
	c->members = NULL;
	c->member_room = 0;
}

void
member_forgotten(struct control *c, uint16_t id)
{
	uint32_t at = place_of(c, id);
	struct weir_ctl_msg out = {.type = WEIR_CTL_NODE, .node.state = WEIR_NODE_GONE};

	if (at == c->member_count || c->members[at]->id != id)
		return;
	weir_assert(c->members[at]->control == c);
	registry_forget(&c->registry, id);
	out.node.id = id;
	if (c->id_reported)
		dp_send(c->dp, &out);
	member_free(c->members[at]);
	c->member_count--;
	memmove(c->members + at, c->members + at + 1,
		(c->member_count - at) * sizeof(c->members[0]));
}

// ---- what our data plane is told ----

void
member_report(struct member *m)
{
	const struct peer_entry *e = &m->entry;
	struct weir_ctl_msg out = {.type = WEIR_CTL_NODE};

	if (!m->control->id_reported)
		return;
	out.node.id = m->id;
	out.node.state = m->node.state;
	out.node.incarnation = m->node.dp.incarnation;
	out.node.engines = m->node.dp.engines;
	out.node.address_count = e->address_count;
	memcpy(out.node.address, e->address, sizeof(out.node.address));
	memcpy(out.node.lid, e->lid, sizeof(out.node.lid));
	memcpy(out.node.control, e->control, sizeof(out.node.control));
	// Incarnations grow, unless a clock was set back: of such a one it must have been down.
	if (m->node.state == WEIR_NODE_UP && m->told > m->node.dp.incarnation) {
		out.node.state = WEIR_NODE_DOWN;
		dp_send(m->control->dp, &out);
		out.node.state = WEIR_NODE_UP;
	}
	m->told = m->node.dp.incarnation ? m->node.dp.incarnation : m->told;
	dp_send(m->control->dp, &out);
	service_report(m);
}

static void
announce(struct member *m, uint64_t now)
{
	const char *why = m->node.dp.state == DP_DOWN ? "its data plane does not run"
						      : "neither its control nor its links answer";
	struct log_field about[] = {
	    {"node", m->id, NULL},
	    {"peer", 0, m->entry.control},
	    {"state", 0, weir_node_state_name(m->node.state)},
	    {"incarnation", m->node.dp.incarnation, NULL},
	    {"reason", 0, why}, // of DOWN
	};

	switch (m->node.state) {
	case WEIR_NODE_UP:
		log_metered(&m->state_lines, now, LOG_LEVEL_INFO, about, 4,
			    "node %u is up (incarnation %llu, %u engine%s)", m->id,
			    (unsigned long long)m->node.dp.incarnation, m->node.dp.engines,
			    m->node.dp.engines == 1 ? "" : "s");
		break;
	case WEIR_NODE_SUSPECT:
		log_metered(&m->state_lines, now, LOG_LEVEL_WARNING, about, 4,
			    "node %u is suspect: its control has been silent for %u ms; traffic "
			    "goes on",
			    m->id, m->node.timeout);
		break;
	case WEIR_NODE_DOWN:
		log_metered(&m->state_lines, now, LOG_LEVEL_WARNING, about, 5,
			    "node %u is down: %s", m->id, why);
		break;
	default:
		break;
	}
}

void
member_send_offers(struct member *m, uint64_t now)
{
	const struct weir_link_offer *link;
	struct control_msg out; // large: only the members of an offer are set

	if (!m->offers.count || m->node.dp.state != DP_UP)
		return;
	if (!m->conn || !m->conn->joined) {
		member_need(m, now);
		return;
	}
	out.type = CONTROL_LINK_OFFER;
	while ((link = offers_next(&m->offers, now))) {
		out.link = *link;
		member_send(m, &out);
		if (m->offers.again) // is there anybody at the other end?
			swim_probe(&m->control->swim, m->id);
	}
}

// Feeds an event and does what follows from it.
static void
step_record(struct member *m, enum node_event event, const struct swim_node *node)
{
	uint64_t now = monotonic_ms();
	const struct node_info *info = node ? node->is.info : NULL;
	unsigned actions =
	    node_state_step(&m->node, event, now, node ? node->is.status : SWIM_UNKNOWN,
			    info ? &info->dp : NULL, node && node->by != m->id);

	if (actions & NODE_DO_REPORT) {
		announce(m, now);
		member_report(m);
		if (m->node.state == WEIR_NODE_DOWN)
			offers_clear(&m->offers);
	}
	if (actions & NODE_DO_OFFERS) {
		offers_restart(&m->offers, m->node.dp.incarnation, now);
		member_send_offers(m, now);
	}
	if (actions & NODE_DO_PROBE)
		swim_probe(&m->control->swim, m->id);
	if (actions & NODE_DO_ASK) {
		log_metered(&m->state_lines, now, LOG_LEVEL_WARNING,
			    (struct log_field[]){{"node", m->id, NULL}, {"teller", node->by, NULL}},
			    2, "node %u: says node %u, it %s; its links live, so it is asked first",
			    m->id, node->by,
			    node->is.status == SWIM_LEFT ? "has left" : "has lost its data plane");
		swim_doubt(&m->control->swim, m->id);
	}
	if (actions & NODE_DO_CLOSE && m->conn)
		m->stale = true;
}

static void
step(struct member *m, enum node_event event)
{
	step_record(m, event, NULL);
}

// Membership has forgotten it. A link that lives is no silence: its node is kept as long.
void
member_unknown(void *control, const struct swim_node *node)
{
	struct control *c = control;
	struct member *m = member_find(c, node->is.id);

	if (!m || !m->node.linked) {
		member_forgotten(c, node->is.id);
		return;
	}
	registry_forget(&c->registry, node->is.id);
	m->linked_at = monotonic_ms();
}

void
member_tick(struct member *m, uint64_t now)
{
	struct control *c = m->control;

	// Our data plane alone has spoken of it, long ago, and no link with it lives.
	if (!m->listed && !m->conn && !m->node.linked && !swim_find(&c->swim, m->id) &&
	    now - m->linked_at >= swim_memory(c->options->node_timeout)) {
		member_forgotten(c, m->id);
		return;
	}
	log_cause_tell(&m->state_lines, now);
	log_cause_tell(&m->conn_lines, now);
	// Not at once: it may be what the connection itself has told.
	if (m->stale || member_is_half_open(m)) {
		if (m->conn && m->conn->joined)
			log_metered(&m->conn_lines, now, LOG_LEVEL_INFO,
				    LOG_NODE_AT(m->id, m->entry.control),
				    "node %u: connection closed after long silence", m->id);
		member_close(m, NULL);
		m->stale = false;
	}
	step(m, NODE_TICK);
	if (m->node.linked && !m->conn)
		member_need(m, now);
	member_send_offers(m, now);
}

// ---- what membership says ----

void
member_changed(void *control, const struct swim_node *node)
{
	struct control *c = control;
	const struct node_info *info = node->is.info;
	struct member *m = node->is.id == c->self.id ? NULL : member_get(c, node->is.id);

	if (!m || node->is.status == SWIM_UNKNOWN)
		return;
	if (!m->listed && strcmp(m->entry.control, info->control)) {
		m->reached = false;
		memcpy(m->entry.control, info->control, sizeof(m->entry.control));
		if (!address_take(c, m->entry.control, &m->address, &m->address_length))
			m->address_length = 0;
		m->retry_at = 0;
		m->backoff = MEMBER_RETRY_MIN;
	}
	if (!m->listed && info->dp.state == DP_UP) {
		m->entry.address_count = info->dp.address_count;
		memcpy(m->entry.address, info->dp.address, sizeof(m->entry.address));
	}
	if (m->run != node->is.run) {
		m->run = node->is.run;
		if (m->conn && m->conn->joined && m->conn_run != m->run)
			m->stale = true;
		// Its control is new: it knows nothing of what was offered.
		offers_restart(&m->offers, m->node.dp.incarnation, monotonic_ms());
	}
	service_record(c, node);
	step_record(m, NODE_RECORD, node);
}

int
member_list(struct member *m)
{
	struct node_info info = {0};

	memcpy(info.control, m->entry.control, sizeof(info.control));
	return swim_add(&m->control->swim, m->id, &info);
}

// It may come before we have an id, if that is the source's to give.
static void
on_known(void *user, const struct peer_entry *node)
{
	struct control *c = user;
	bool own = c->has_id && node->id == c->self.id;
	struct member *m;
	const char *text;

	if (own || (c->options->peers && c->failed >= 0))
		return; // of a file one error is enough
	m = member_get(c, node->id);
	if (m) {
		m->entry = *node;
		m->listed = true;
	}
	if (!m || (c->has_id && member_list(m))) {
		log_error("out of memory: node %u is left out", node->id);
		return;
	}
	// Names of the file, which is ours, are looked up, and one that can't be ends the start;
	// other sources say what others wrote: no look-up of theirs may hold us up.
	text = m->entry.control;
	if (c->options->peers) {
		c->failed =
		    address_resolve(c, "peer", text, false, &m->address, &m->address_length);
	} else if (!address_take(c, text, &m->address, &m->address_length)) {
		m->address_length = 0;
		log_once_about(&m->trouble, LOG_NODE_AT(m->id, text),
			       "node %u can't be reached at '%s': no IP:PORT that is allowed here; "
			       "see its --listen, and --tls and --insecure of this node",
			       m->id, text);
	}
	member_report(m);
}

static void
on_gone(void *user, uint16_t id)
{
	struct control *c = user;

	if (c->has_id)
		swim_remove(&c->swim, id);
	else
		member_forgotten(c, id);
}

static void
on_seed(void *user, const char *address)
{
	struct control *c = user;

	if (c->failed < 0)
		c->failed = bootstrap_add(c, address);
}

static void
on_given(void *user, uint16_t id)
{
	struct control *c = user;

	if (c->has_id && c->self.id != id)
		log_event(LOG_LEVEL_ERROR, LOG_NODE(c->self.id),
			  "node id %u is another's by now, %u is ours; stop weir-dataplane and "
			  "weir-control of this node, then start both",
			  c->self.id, id);
	c->last_id = id;
	c->last_id_known = true;
}

const struct membership_events member_events = {
    .known = on_known,
    .gone = on_gone,
    .seed = on_seed,
    .given = on_given,
};

// ---- between the data planes ----

void
member_view(struct member *m, const struct dp_view *view)
{
	if (view->state != DP_UP) {
		offers_clear(&m->offers);
		step(m, NODE_UNLINKED);
	}
	if (m->conn)
		swim_send_own(&m->control->swim, m->id);
}

void
member_offer(struct member *m, const struct weir_link_offer *link)
{
	uint64_t now = monotonic_ms();

	m->linked_at = now;
	if (offers_put(&m->offers, link, now))
		log_error("out of memory: a link offer for node %u is lost", m->id);
	if (link->answered && !link->refused)
		step(m, NODE_LINKED);
	member_send_offers(m, now);
}

void
member_resync(struct member *m, const struct weir_ctl_msg *msg)
{
	struct control_msg out = {.type = CONTROL_RESYNC};

	out.resync.node = msg->link_down.node;
	out.resync.peer_node = msg->link_down.peer_node;
	out.resync.engine = msg->link_down.engine;
	out.resync.peer_engine = msg->link_down.peer_engine;
	out.resync.status = msg->link_down.status;
	member_send(m, &out);
}

void
member_link_down(struct member *m, const struct weir_ctl_msg *msg)
{
	m->linked_at = monotonic_ms();
	offers_drop(&m->offers, msg->link_down.engine, msg->link_down.peer_engine);
	if (msg->link_down.status == ESHUTDOWN) // ended in order; others of the node live
		return;
	step(m, msg->link_down.status ? NODE_LINK_DOWN : NODE_UNLINKED);
	if (m->node.doubted) // no link contradicts it now
		member_changed(m->control, swim_find(&m->control->swim, m->id));
}

const char *
member_take_offer(struct member *m, const struct weir_link_offer *link)
{
	struct control *c = m->control;
	const struct dp_view *own = dp_view(c->dp);
	struct weir_ctl_msg out = {.type = WEIR_CTL_LINK};

	if (link->node != m->id || link->peer_node != c->self.id)
		return "a link offer that is not between us";
	// Offers from or to a data plane that has died since.
	if (link->incarnation != m->node.dp.incarnation ||
	    (link->peer_incarnation && link->peer_incarnation != own->incarnation))
		return NULL;
	offers_answered(&m->offers, link);
	if (link->answered && !link->refused)
		step(m, NODE_LINKED);
	out.link = *link;
	dp_send(c->dp, &out);
	return NULL;
}

const char *
member_take_resync(struct member *m, const struct control_resync *resync)
{
	struct control *c = m->control;
	struct weir_ctl_msg out = {.type = WEIR_CTL_RESYNC};

	if (resync->node != m->id || resync->peer_node != c->self.id)
		return "a resync that is not between us";
	out.link_down.node = resync->node;
	out.link_down.peer_node = resync->peer_node;
	out.link_down.engine = resync->engine;
	out.link_down.peer_engine = resync->peer_engine;
	out.link_down.status = resync->status;
	dp_send(c->dp, &out);
	return NULL;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections to other nodes' controls: made when there is something to say, closed when unused. */
#include "control.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void
drop_pending(struct member *m)
{
	while (m->pending_count)
		free(m->pending[--m->pending_count]);
}

void
member_close(struct member *m, const char *why)
{
	static const struct control_msg bye = {.type = CONTROL_BYE};

	if (m->conn && m->conn->joined && !why && m->control->stopping)
		conn_send(m->conn, &bye);
	conn_close(m->conn, why);
	m->conn = NULL;
	drop_pending(m);
}

static void
failed(struct member *m, uint64_t now)
{
	weir_assert(m->backoff >= MEMBER_RETRY_MIN && m->backoff <= MEMBER_RETRY_MAX);
	m->conn = NULL;
	drop_pending(m);
	m->retry_at = now + m->backoff;
	m->backoff = m->backoff * 2 < MEMBER_RETRY_MAX ? m->backoff * 2 : MEMBER_RETRY_MAX;
}

void
member_need(struct member *m, uint64_t now)
{
	struct control *c = m->control;
	const char *why;

	if (m->conn || !m->address_length || now < m->retry_at)
		return;
	// Others may tell any address. One of a node that our programs want is worth a dial each
	// time.
	if (!m->listed && !m->reached && !m->node.linked && !m->offers.count) {
		if (c->dial_at < now)
			c->dial_at = now;
		if (c->dial_at - now > (CONTROL_DIALS - 1) * CONTROL_DIAL_MS)
			return;
		c->dial_at += CONTROL_DIAL_MS;
	}
	m->conn = conn_dial(c->base, c->transport, (struct sockaddr *)&m->address,
			    m->address_length, &member_handler, c);
	if (m->conn) {
		m->conn->member = m;
		return;
	}
	why = strerror(errno);
	log_once_about(&m->trouble, LOG_NODE_WHY(m->id, m->entry.control, why),
		       "cannot dial node %u at %s: %s; trying again", m->id, m->entry.control, why);
	failed(m, now);
}

void
member_send(struct member *m, const struct control_msg *msg)
{
	uint8_t data[CONTROL_ENCODED_MAX];
	uint64_t now = monotonic_ms();
	struct pending *p;
	size_t length;

	weir_assert(m->pending_count <= MEMBER_PENDING);
	member_need(m, now);
	if (!m->conn)
		return;
	m->used_at = now;
	if (m->conn->joined) {
		conn_send(m->conn, msg);
		return;
	}
	if (m->pending_count == MEMBER_PENDING)
		return;
	length = control_msg_encode(msg, data, sizeof(data));
	p = length ? malloc(sizeof(*p) + length) : NULL;
	if (!p)
		return;
	p->length = length;
	memcpy(p->data, data, length);
	m->pending[m->pending_count++] = p;
}

void
member_send_swim(void *control, uint16_t to, const struct swim_msg *msg)
{
	struct control *c = control;
	static struct control_msg out;
	struct member *m = member_find(c, to);

	if (!m)
		return;
	out.type = CONTROL_SWIM;
	out.swim.msg = *msg;
	for (uint32_t i = 0; i < msg->count; i++)
		out.swim.info[i] = *(const struct node_info *)msg->record[i].info;
	member_send(m, &out);
	if (msg->type == SWIM_PING && m->conn && m->conn->joined && !m->asked_at)
		m->asked_at = c->swim.clock;
}

bool
member_is_half_open(const struct member *m)
{
	return m->asked_at && m->conn && m->conn->joined &&
	       m->control->swim.clock - m->asked_at >= m->control->options->node_timeout;
}

void
member_make_room(struct control *c, uint64_t now)
{
	static const struct control_msg bye = {.type = CONTROL_BYE, .bye.idle = true};

	for (;;) {
		struct member *oldest = NULL; // of those whose nodes have no links
		uint32_t count = 0;

		for (uint32_t i = 0; i < c->member_count; i++) {
			struct member *m = c->members[i];

			if (!m->conn || !m->conn->joined)
				continue;
			count++;
			if (!m->node.linked && !m->offers.count &&
			    (!oldest || m->used_at < oldest->used_at))
				oldest = m;
		}
		if (count <= CONTROL_STREAMS || !oldest || now - oldest->used_at < MEMBER_UNUSED)
			return;
		conn_send(oldest->conn, &bye);
		member_close(oldest, NULL);
	}
}

// ---- handshake ----

static void
send_hello(struct conn *conn)
{
	struct control *c = conn->owner;
	struct control_msg out = {.type = CONTROL_HELLO};

	out.hello.versions = CONTROL_VERSIONS;
	snprintf(out.hello.cluster, sizeof(out.hello.cluster), "%s", c->options->cluster);
	self_node_record(c, &out);
	conn_send(conn, &out);
}

static bool
is_known(struct conn *conn, const struct control_msg *in)
{
	struct control *c = conn->owner;
	struct swim_record r = in->hello.record;

	r.info = &in->hello.info;
	if (swim_hello(&c->swim, &r, monotonic_ms()))
		return true;
	conn->taken = true;
	return false;
}

// A list gives addresses: that two say the same doesn't mean that they are one.
static bool
same_place(const struct control *c, const struct control_msg *in)
{
	const struct swim_node *n = swim_find(&c->swim, in->hello.record.id);
	const struct node_info *known = n ? n->is.info : NULL;

	return known && !c->source->closed && !strcmp(known->control, in->hello.info.control);
}

// Checks the identity that a stranger claims: NULL if it may join. Sets conn->member.
static const char *
admit(struct control *c, struct conn *conn, const struct control_msg *in)
{
	static char why[CONTROL_REASON_MAX];
	const struct swim_record *r = &in->hello.record;
	struct member *m = member_find(c, r->id);
	struct old_conn old = {0};

	if (m && m->conn) {
		old.joined = m->conn->joined;
		old.same_life = m->conn_run == r->run;
		old.same_place = same_place(c, in);
	}
	if (r->run == c->swim.self->is.run) {
		// By another way to write --listen, or through a forwarder: so we are one of
		// --join.
		swim_alone(&c->swim);
		return "it is this node itself";
	}
	if (r->id == c->self.id && !is_known(conn, in))
		snprintf(why, sizeof(why), "node id %u is this node's own; give each node its own",
			 r->id);
	else if (!m && c->source->closed)
		snprintf(why, sizeof(why), "node %u is not in the %s of node %u", r->id,
			 c->options->peers ? "peers file" : "list", c->self.id);
	else if (m && m->conn && !conn_replaces(&old, c->self.id, r->id, m->node.status)) {
		conn->taken = old.joined && !old.same_life;
		conn->surplus = !conn->taken;
		// It doesn't know of that connection: is it still one?
		if (old.joined)
			swim_probe(&c->swim, m->id);
		snprintf(why, sizeof(why), "node %u is connected already%s", r->id,
			 conn->taken ? "; give each node its own id" : "");
	} else if (!is_known(conn, in))
		snprintf(why, sizeof(why), "node id %u belongs to a node at %s; give each its own",
			 r->id, m ? m->entry.control : "another place");
	else {
		conn->member = member_find(c, r->id);
		return conn->member ? NULL : "out of memory";
	}
	return why;
}

static const char *
on_hello(struct conn *conn, const struct control_msg *in)
{
	static char why[CONTROL_REASON_MAX];
	struct control *c = conn->owner;
	struct member *m;
	const char *refused;
	uint64_t now = monotonic_ms();

	if (strcmp(in->hello.cluster, c->options->cluster)) {
		snprintf(why, sizeof(why), "cluster is '%s' here, '%s' there; check --cluster",
			 c->options->cluster, in->hello.cluster);
		return why;
	}
	if (!c->has_id)
		return "this node has no id yet; try again";
	if (swim_is_absurd(&c->swim, &in->hello.record))
		return "its clock is 139 years or more ahead of this host's; set the one that is "
		       "wrong";
	m = conn->member;
	if (!conn->dialled) {
		refused = admit(c, conn, in);
	} else if (!m) {
		refused = bootstrap_hello(conn, in);
	} else if (in->hello.record.id == m->id) {
		refused = is_known(conn, in) ? NULL : "its id belongs to another node";
	} else {
		snprintf(why, sizeof(why), "node %u answers at %s; check %s", in->hello.record.id,
			 m->entry.control,
			 m->listed ? "the peers file" : "the process that listens there");
		refused = why;
	}
	if (refused)
		return refused;
	m = conn->member;
	weir_assert(m && (!conn->dialled || m->conn == conn));
	if (!conn->dialled) {
		admission_forget(c, conn);
		conn_close(m->conn, "replaced by a newer connection");
		m->conn = conn;
		send_hello(conn);
	}
	conn->joined = true;
	m->stale = false;
	m->reached |= conn->dialled;
	m->conn_run = in->hello.record.run;
	m->backoff = MEMBER_RETRY_MIN;
	m->retry_at = 0;
	m->used_at = now;
	m->asked_at = 0;
	log_forget(&m->trouble);
	for (uint32_t i = 0; i < m->pending_count; i++)
		conn_send_encoded(conn, m->pending[i]->data, m->pending[i]->length);
	drop_pending(m);
	if (c->joins)
		swim_join(&c->swim, m->id);
	c->joins = false;
	registry_heard(&c->registry, m->id, now);
	member_make_room(c, now);
	member_send_offers(m, now);
	return NULL;
}

static const char *
on_message(struct conn *conn, const struct control_msg *in)
{
	struct member *m = conn->member;
	struct control *c = m->control;
	struct swim_msg msg;

	m->used_at = monotonic_ms();
	m->asked_at = 0;
	swim_heard(&c->swim, m->id);
	if (in->type == CONTROL_LINK_OFFER)
		return member_take_offer(m, &in->link);
	if (in->type == CONTROL_RESYNC)
		return member_take_resync(m, &in->resync);
	if (in->type == CONTROL_SERVICES)
		registry_take(&c->registry, in->services.node, &in->services.names);
	if (in->type == CONTROL_SERVICE_ASK)
		registry_asked(&c->registry, m->id, &in->service_ask);
	if (in->type != CONTROL_SWIM)
		return NULL;
	msg = in->swim.msg;
	for (uint32_t i = 0; i < msg.count; i++)
		msg.record[i].info = &in->swim.info[i];
	swim_input(&c->swim, m->id, &msg, m->used_at);
	registry_heard(&c->registry, m->id, m->used_at);
	return NULL;
}

static void
on_closed(struct conn *conn, const char *reason)
{
	struct control *c = conn->owner;
	struct member *m = conn->member;
	uint64_t now = monotonic_ms();

	// A node that claims its id learns from any member that the id is taken.
	if (conn->dialled && conn->taken && c->has_id && !swim_is_settled(&c->swim))
		self_node_beaten(c, conn->from);
	if (conn == c->seed_conn) {
		bootstrap_closed(conn, reason);
		return;
	}
	if (!m) {
		admission_forget(c, conn);
		if (!conn->surplus)
			log_blamed(
			    &c->blamed, "refused connections", conn->stranger, now,
			    (struct log_field[]){{"peer", 0, conn->from}, {"reason", 0, reason}}, 2,
			    "refused a connection from %s: %s", conn->stranger, reason);
		return;
	}
	if (conn->idle) {
		m->conn = NULL;
		drop_pending(m);
		return;
	}
	if (conn->joined)
		log_metered(&m->conn_lines, now, LOG_LEVEL_INFO,
			    LOG_NODE_WHY(m->id, m->entry.control, reason),
			    "node %u: connection to its control ended: %s", m->id, reason);
	else if (m->backoff > MEMBER_RETRY_MIN) // once may be chance: both dialled each other
		log_once_about(&m->trouble, LOG_NODE_WHY(m->id, m->entry.control, reason),
			       "node %u at %s is not connected: %s; trying again", m->id,
			       m->entry.control, reason);
	failed(m, now);
	// Its process may have ended: looked at soon.
	if (conn->joined)
		swim_probe(&c->swim, m->id);
}

const struct conn_handler member_handler = {
    .opened = send_hello,
    .hello = on_hello,
    .message = on_message,
    .closed = on_closed,
};

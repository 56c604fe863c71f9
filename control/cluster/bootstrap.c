/* SPDX-License-Identifier: BSD-3-Clause */
/* Whom to ask for the list of nodes: one after the other, until one answers, and again when needed.
 */
#include "control.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define RETRY_MS 500u
#define SELDOM_MS 5000u /* when all is well: the other side of a long partition is there */

int
bootstrap_add(struct control *c, const char *text)
{
	struct seed *s = &c->seed[c->seed_count];
	int status;

	weir_assert(c->seed_count <= CONTROL_SEEDS);
	if (c->seed_count == CONTROL_SEEDS) {
		log_error("--join has more than %u addresses; give some that are mostly up",
			  CONTROL_SEEDS);
		return EXIT_USAGE;
	}
	status = address_resolve(c, "--join", text, false, &s->address, &s->length);
	if (status >= 0)
		return status;
	address_print(&s->address, s->length, s->text, sizeof(s->text));
	c->seed_count++;
	return -1;
}

bool
bootstrap_is_self(const struct control *c)
{
	for (uint32_t i = 0; i < c->seed_count; i++)
		if (!strcmp(c->seed[i].text, c->self.control))
			return true;
	return false;
}

void
bootstrap_meet(struct control *c, const char *place)
{
	struct seed *s = &c->rival;

	if (!s->length && address_take(c, place, &s->address, &s->length))
		snprintf(s->text, sizeof(s->text), "%s", place);
}

void
bootstrap_tick(struct control *c, uint64_t now)
{
	struct seed *s = &c->rival;

	if (!c->has_id || c->seed_conn)
		return;
	if (!s->length || now < c->rival_at) {
		if (!c->seed_count || now < c->seed_at)
			return;
		s = &c->seed[c->seed_next++ % c->seed_count];
		c->seed_at =
		    now + (swim_needs_seed(&c->swim) ? RETRY_MS / c->seed_count : SELDOM_MS);
		for (uint32_t i = 0; i < c->member_count; i++) {
			const struct member *m = c->members[i];

			if (!strcmp(m->entry.control, s->text) &&
			    (m->node.status == SWIM_ALIVE || m->node.status == SWIM_SUSPECT))
				return;
		}
		if (!strcmp(s->text, c->self.control))
			return;
	}
	c->seed_conn = conn_dial(c->base, c->transport, (struct sockaddr *)&s->address, s->length,
				 &member_handler, c);
	if (!c->seed_conn)
		log_once(&c->seed_trouble, "cannot dial %s: %s; trying again", s->text,
			 strerror(errno));
	if (s == &c->rival) {
		s->length = 0;
		c->rival_at = now + RETRY_MS;
	}
}

const char *
bootstrap_hello(struct conn *conn, const struct control_msg *in)
{
	static char why[CONTROL_REASON_MAX];
	struct control *c = conn->owner;
	struct swim_record r = in->hello.record;
	struct member *m;
	bool accepted;

	weir_assert(conn == c->seed_conn);
	r.info = &in->hello.info;
	accepted = swim_hello(&c->swim, &r, monotonic_ms());
	m = accepted ? member_get(c, r.id) : NULL;
	if (!m) {
		snprintf(why, sizeof(why), "node id %u belongs to another node", r.id);
		return why;
	}
	log_forget(&c->seed_trouble);
	if (m->conn) {
		swim_join(&c->swim, r.id);
		return "connected already";
	}
	c->seed_conn = NULL;
	conn->member = m;
	m->conn = conn;
	c->joins = true;
	return NULL;
}

void
bootstrap_closed(struct conn *conn, const char *reason)
{
	struct control *c = conn->owner;

	c->seed_conn = NULL;
	if (swim_needs_seed(&c->swim))
		log_once_about(&c->seed_trouble,
			       (struct log_field[]){{"peer", 0, conn->from}, {"reason", 0, reason}},
			       2, "no answer from %s: %s; trying again", conn->from, reason);
}

void
bootstrap_end(struct control *c)
{
	conn_close(c->seed_conn, NULL);
	c->seed_conn = NULL;
	c->seed_at = 0;
	c->rival.length = 0;
}

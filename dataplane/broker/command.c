/* SPDX-License-Identifier: BSD-3-Clause */
/* Commands to engines: made here, queued in order, freed when they have come back. */
#include "command.h"
#include "conn.h"
#include "node.h"
#include "rows.h"
#include "session.h"
#include "state.h"

#include "base/vec.h"
#include "base/log_once.h"
#include "base/monotonic.h"
#include "ipc/invariant.h"

#include <errno.h>
#include <stdlib.h>

#define EARLY_MAX 65536u
#define COMMON_COMMANDS 64u /* in the reserve, for steps that nobody can refuse */

void *
broker_alloc(size_t bytes)
{
	static struct log_memory said;
	void *p = calloc(1, bytes);

	if (!p)
		log_limited(&said, monotonic_ms(), LOG_NO_FIELDS,
			    "out of memory; free some or lower the limits");
	return p;
}

static bool
makes_conn(enum engine_command_type type)
{
	return type == ENGINE_CONN_OPEN || type == ENGINE_CONN_ACCEPT ||
	       type == ENGINE_CONN_LOCAL || type == ENGINE_CONN_APART;
}

static struct broker_command *
fill(struct broker *b, struct broker_command *c, uint32_t engine, enum engine_command_type type,
     command_done_fn *done, void *context)
{
	if (!c)
		return NULL;
	c->cmd.type = type;
	c->cmd.owner = c;
	c->engine = engine;
	c->done = done;
	c->context = context;
	LIST_INSERT_HEAD(&b->commands, c, in_all);
	return c;
}

struct broker_command *
command_new(struct broker *b, uint32_t engine, enum engine_command_type type, command_done_fn *done,
	    void *context)
{
	return fill(b, broker_alloc(sizeof(struct broker_command)), engine, type, done, context);
}

struct broker_command *
command_reserved(struct broker *b, uint32_t engine, enum engine_command_type type,
		 command_done_fn *done, void *context)
{
	struct broker_command *c = STAILQ_FIRST(&b->reserve.list);

	weir_assert(c);
	STAILQ_REMOVE_HEAD(&b->reserve.list, entry);
	b->reserve.listed--;
	*c = (struct broker_command){.reserved = true};
	return fill(b, c, engine, type, done, context);
}

struct broker_command *
command_urgent(struct broker *b, uint32_t engine, enum engine_command_type type,
	       command_done_fn *done, void *context)
{
	struct broker_command *c = command_new(b, engine, type, done, context);

	if (c || !b->reserve.common)
		return c;
	b->reserve.common--;
	c = command_reserved(b, engine, type, done, context);
	c->common = true;
	return c;
}

static void
trim(struct broker_reserve *r)
{
	while (r->listed > r->needed) {
		struct broker_command *c = STAILQ_FIRST(&r->list);

		STAILQ_REMOVE_HEAD(&r->list, entry);
		r->listed--;
		free(c);
	}
}

int
command_reserve(struct broker *b, uint32_t count)
{
	struct broker_reserve *r = &b->reserve;

	while (r->listed < r->needed + count) {
		struct broker_command *c = broker_alloc(sizeof(*c));

		if (!c) {
			trim(r);
			return -ENOMEM;
		}
		STAILQ_INSERT_HEAD(&r->list, c, entry);
		r->listed++;
	}
	r->needed += count;
	return 0;
}

void
command_unreserve(struct broker *b, uint32_t count)
{
	weir_assert(b->reserve.needed >= count);
	b->reserve.needed -= count;
	trim(&b->reserve);
}

int
command_begin(struct broker *b)
{
	int rc;

	STAILQ_INIT(&b->reserve.list);
	for (uint32_t i = 0; i < b->config.engines; i++)
		STAILQ_INIT(&b->mailbox[i].waiting);
	rc = command_reserve(b, COMMON_COMMANDS);
	b->reserve.common = rc ? 0 : COMMON_COMMANDS;
	return rc;
}

void
command_drop(struct broker *b, struct broker_command *c)
{
	struct broker_reserve *r = &b->reserve;

	LIST_REMOVE(c, in_all);
	if (!c->reserved) {
		free(c);
		return;
	}
	r->common += c->common;
	STAILQ_INSERT_HEAD(&r->list, c, entry);
	r->listed++;
	trim(r);
}

void
command_free_all(struct broker *b)
{
	struct broker_command *c;

	while ((c = LIST_FIRST(&b->commands))) {
		if (c->about_conn)
			conn_command_done(b, c->context);
		if (c->cmd.type == ENGINE_SNAPSHOT)
			rows_abandon(c->context);
		command_drop(b, c);
	}
	for (uint32_t i = 0; i < b->config.engines; i++)
		free(b->mailbox[i].early);
}

bool
command_waiting(const struct broker *b)
{
	for (uint32_t i = 0; i < b->config.engines; i++)
		if (!STAILQ_EMPTY(&b->mailbox[i].waiting))
			return true;
	return false;
}

void
command_submit(struct broker *b, struct broker_command *c)
{
	struct broker_mailbox *m = &b->mailbox[c->engine];

	STAILQ_INSERT_TAIL(&m->waiting, c, entry);
	if (makes_conn(c->cmd.type))
		m->opening++;
}

void
broker_flush(struct broker *b)
{
	bool any = true;

	if (b->flushing)
		return;
	b->flushing = true;
	nodes_publish(b);
	while (any) {
		any = false;
		broker_sessions_settle(b);
		broker_conns_settle(b);
		for (uint32_t i = 0; i < b->config.engines; i++) {
			struct broker_mailbox *m = &b->mailbox[i];
			struct broker_command *c;
			bool taken = false;

			while ((c = STAILQ_FIRST(&m->waiting))) {
				/* out of the list first: the answer may come from within */
				STAILQ_REMOVE_HEAD(&m->waiting, entry);
				if (b->config.command(b->config.user, i, &c->cmd)) {
					STAILQ_INSERT_HEAD(&m->waiting, c, entry);
					break;
				}
				taken = true;
			}
			if (taken && b->config.wake)
				b->config.wake(b->config.user, i);
			any |= taken;
		}
	}
	b->flushing = false;
}

void
broker_completed(struct broker *b, uint32_t engine, struct engine_command *command)
{
	struct broker_command *c = command->owner;
	struct broker_mailbox *m = &b->mailbox[engine];

	if (c->done)
		c->done(b, c);
	if (makes_conn(c->cmd.type) && --m->opening == 0)
		m->early_count = 0;
	command_drop(b, c);
	broker_flush(b);
}

/* Answers and events may come through different queues, so either may overtake the other. */
void
command_note_early(struct broker *b, uint32_t engine, uint32_t vqpn)
{
	struct broker_mailbox *m = &b->mailbox[engine];

	if (!m->opening || m->early_count == EARLY_MAX)
		return; /* not one of those: a connection of a session that has ended */
	if (VEC_RESERVE(m->early, m->early_room, m->early_count + 1))
		return;
	m->early[m->early_count++] = vqpn;
}

bool
command_closed_early(struct broker *b, uint32_t engine, uint32_t vqpn)
{
	struct broker_mailbox *m = &b->mailbox[engine];

	for (uint32_t i = 0; i < m->early_count; i++)
		if (m->early[i] == vqpn) {
			m->early[i] = m->early[--m->early_count];
			return true;
		}
	return false;
}

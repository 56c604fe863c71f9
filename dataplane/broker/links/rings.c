/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of a link: a small ring and a small staging, which it keeps, and larger ones while there
 * is traffic. The engines of both ends agree on which ring is used (engine/conn/link_ring.c). Main
 * makes memory that an engine wants, and frees what it has left, once every engine has finished its
 * turn twice.
 */
#include "command.h"
#include "link.h"
#include "state.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <stdlib.h>

static int
reg(struct broker_link *l, void *at, size_t bytes, unsigned access, struct nic_mr *mr)
{
	return broker_ops(l->b, l->engine)
	    ->mr_reg(broker_engine(l->b, l->engine)->dev, at, bytes, access, mr);
}

static void
dereg(struct broker_link *l, struct nic_mr *mr)
{
	if (mr->length)
		broker_ops(l->b, l->engine)->mr_dereg(broker_engine(l->b, l->engine)->dev, mr);
	mr->length = 0;
}

static void *
get_memory(struct broker_link *l, size_t bytes)
{
	struct broker *b = l->b;

	return b->config.memory_get(b->config.user, bytes,
				    broker_engine(b, l->engine)->numa_socket);
}

/* ---- rings and stagings ---- */

static bool
is_ring(const struct link_memory *m)
{
	return m == &m->l->ring;
}

static void
drop(struct link_memory *m)
{
	const struct broker *b = m->l->b;

	dereg(m->l, &m->mr);
	if (m->at)
		b->config.memory_put(b->config.user, m->at, m->bytes);
	m->at = NULL;
	m->given = false;
}

static int
make(struct link_memory *m, uint32_t lines)
{
	unsigned access = is_ring(m) ? NIC_LOCAL_WRITE | NIC_REMOTE_WRITE : 0;
	size_t bytes = (size_t)lines * WEIR_SLOT_SIZE;
	int rc = -ENOMEM;

	weir_assert(!m->at && !m->quiet);
	m->lines = lines;
	m->bytes = bytes + (is_ring(m) ? 0 : engine_staging_bytes(lines));
	m->at = get_memory(m->l, m->bytes);
	if (m->at)
		rc = reg(m->l, m->at, bytes, access, &m->mr);
	if (rc)
		drop(m);
	return rc;
}

int
link_memory_make(struct broker_link *l)
{
	const size_t ring = ENGINE_RING_LEAST * WEIR_SLOT_SIZE,
		     credit = 2 * sizeof(struct weir_credit_line);
	const unsigned access = NIC_LOCAL_WRITE | NIC_REMOTE_WRITE;
	int rc;

	l->ring.l = l->staging.l = l;
	l->rings = (struct engine_rings){.life = l->rings.life + 1,
					 .ring_lines = l->b->config.peer_ring_lines};
	l->ring_lines = l->b->config.peer_ring_lines;
	l->ring_least = false;
	l->memory_bytes = 2 * ring + credit + engine_link_bytes(ENGINE_RING_LEAST);
	l->memory = get_memory(l, l->memory_bytes);
	if (!l->memory)
		return -ENOMEM;
	l->answer_bytes = l->b->answers;
	l->answers = calloc(1, l->answer_bytes);
	if (!l->answers)
		return -ENOMEM;
	l->least = (struct engine_least){
	    .ring = l->memory, .staging = l->memory + ring, .work = l->memory + 2 * ring + credit};
	l->credit = (struct weir_credit_line *)(l->memory + 2 * ring);
	rc = reg(l, l->least.ring, ring, access, &l->least.ring_mr);
	if (!rc)
		rc = reg(l, l->least.staging, ring, 0, &l->least.staging_mr);
	if (!rc)
		rc = reg(l, l->credit, credit, access, &l->credit_mr);
	if (!rc)
		rc = make(&l->ring, l->ring_lines);
	return rc;
}

int
link_staging_make(struct broker_link *l, uint32_t lines)
{
	return make(&l->staging, lines);
}

void
link_memory_free(struct broker_link *l)
{
	const struct broker *b = l->b;

	if (!l->memory)
		return;
	drop(&l->ring);
	drop(&l->staging);
	dereg(l, &l->least.ring_mr);
	dereg(l, &l->least.staging_mr);
	dereg(l, &l->credit_mr);
	b->config.memory_put(b->config.user, l->memory, l->memory_bytes);
	l->memory = NULL;
	free(l->answers);
	l->answers = NULL;
}

size_t
link_memory_bytes(const struct broker_link *l)
{
	return (l->memory ? l->memory_bytes : 0) + (l->ring.at ? l->ring.bytes : 0) +
	       (l->staging.at ? l->staging.bytes : 0);
}

const struct nic_mr *
link_ring_mr(const struct broker_link *l)
{
	return l->ring_least ? &l->least.ring_mr : &l->ring.mr;
}

int
link_change_keys(struct broker_link *l)
{
	struct nic_mr *ring = l->ring_least ? &l->least.ring_mr : &l->ring.mr;
	const unsigned access = NIC_LOCAL_WRITE | NIC_REMOTE_WRITE;
	void *at = l->ring_least ? l->least.ring : l->ring.at;
	uint32_t lines = l->ring_least ? ENGINE_RING_LEAST : l->ring.lines;
	int rc;

	dereg(l, ring);
	dereg(l, &l->credit_mr);
	rc = reg(l, at, (size_t)lines * WEIR_SLOT_SIZE, access, ring);
	if (!rc)
		rc = reg(l, l->credit, 2 * sizeof(*l->credit), access, &l->credit_mr);
	return rc;
}

/* ---- withdrawn and given again ---- */

static void settle(struct broker_link *l);

/* After two rounds through every engine none uses it any more. */
static void memory_round(struct link_memory *m);

static void
memory_quiet(struct broker *b, struct broker_command *c)
{
	struct link_memory *m = c->context;

	weir_assert(m->quiet);
	if (--m->quiet)
		return;
	if (m->round < QUIET_ROUNDS) {
		memory_round(m);
		return;
	}
	drop(m);
	settle(m->l);
	if (m->l->live)
		links_serve(b, m->l->engine);
}

static void
memory_round(struct link_memory *m)
{
	struct broker *b = m->l->b;

	m->round++;
	m->quiet = b->config.engines;
	for (uint32_t i = 0; i < b->config.engines; i++)
		command_submit(b, command_reserved(b, i, ENGINE_QUIET, memory_quiet, m));
}

static void
answered(struct broker *b, struct broker_command *c)
{
	struct link_memory *m = c->context;

	m->answering = false;
	if (c->cmd.result)
		m->given = false;
	settle(m->l);
}

/* `least`: the engine uses the memory that the link keeps. `wanted`: lines, 0 none. */
static bool
settle_one(struct link_memory *m, bool least, uint32_t wanted)
{
	struct broker_link *l = m->l;
	struct broker_command *c;

	if (m->quiet || m->answering)
		return false;
	if (!least) {
		m->given = false;
		return false;
	}
	if (m->at && !m->given) {
		dereg(l, &m->mr);
		m->round = 0;
		memory_round(m);
		return false;
	}
	if (m->at || !wanted)
		return false;
	c = command_reserved(l->b, l->engine, is_ring(m) ? ENGINE_LINK_RING : ENGINE_LINK_STAGING,
			     answered, m);
	m->given = !make(m, wanted); /* without memory the engine goes on with what it has */
	m->answering = true;
	c->cmd.link = (struct engine_link_command){.link = l->id};
	if (m->given && is_ring(m)) {
		c->cmd.link.ring = m->at;
		c->cmd.link.ring_lines = wanted;
		c->cmd.link.ring_mr = m->mr;
	} else if (m->given) {
		c->cmd.link.staging = m->at;
		c->cmd.link.staging_lines = wanted;
		c->cmd.link.staging_mr = m->mr;
		c->cmd.link.work = m->at + (size_t)wanted * WEIR_SLOT_SIZE;
	}
	command_submit(l->b, c);
	return true;
}

static void
settle(struct broker_link *l)
{
	struct engine_rings *r = &l->rings;

	if (!l->live || l->state == LINK_FAILING)
		return;
	if (settle_one(&l->ring, r->ring_least, r->ring_wanted ? l->b->config.peer_ring_lines : 0))
		r->ring_wanted = false;
	if (settle_one(&l->staging, r->staging_least, r->staging_wanted))
		r->staging_wanted = 0;
}

void
link_rings_event(struct broker *b, uint32_t engine, const struct engine_event *event)
{
	struct broker_link *l = link_by_id(b, engine, event->conn.link);

	if (!l || event->rings.life != l->rings.life)
		return;
	l->rings = event->rings;
	settle(l);
}

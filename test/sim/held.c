/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Held connections: none opens at the connecting end before it was admitted, and each refusal that
 * is told there was made here. Facts about connections, undecided ones included.
 */
#include "held.h"
#include "oracle.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define REFUSALS 2u /* of an end at most */

void
sim_held_accepted(struct sim_program *p, struct sim_end *e, struct weir_conn *c)
{
	/* who asked before has given up */
	weir_close(e->undecided);
	weir_conn_set_user(c, NULL);
	e->undecided = c;
	e->decide_at = p->s->now + rng_log(&e->rng, 1, 500 * SIM_US);
	sim_trace(p->s, "program %u: holds connection %u", p->id, e->conn);
	sim_progress(p->s);
}

/* The first of the facts that differs from the scenario, or NULL. */
static const char *
wrong_peer(const struct sim_program *p, const struct sim_end *e, const struct weir_conn_info *i)
{
	const struct sim_conn_plan *c = &p->s->sc.conn[e->conn];
	const struct sim_program *other = p->s->program[c->program[!e->side]];
	bool local = other->node == p->node && !c->loop;
	char name[WEIR_PROGRAM_MAX] = "";

	if (local)
		snprintf(name, sizeof(name), "sim.%u", other->id);
	if (i->node != other->node)
		return "node";
	if (i->local != local || (i->uid == UINT32_MAX) == local)
		return "place";
	if (i->pid != (local ? 1000 + (int32_t)other->id : 0) || strcmp(i->program, name))
		return "program";
	return i->priority != c->priority ? "priority" : NULL;
}

static void
check_undecided(struct sim_program *p, struct sim_end *e)
{
	struct weir_conn_info i = WEIR_CONN_INFO_INIT;
	int rc = weir_conn_info(e->undecided, &i);
	const char *wrong = rc ? NULL : wrong_peer(p, e, &i);

	if (rc == -ENOTCONN) /* who asked has given up */
		return;
	if (rc)
		sim_fail(p->s, "connection %u: no facts while it is held: %d: %s", e->conn, rc,
			 weir_reason());
	if (!wrong && (!i.undecided || i.recv_messages || i.sent_messages))
		wrong = "state";
	if (wrong)
		sim_fail(p->s, "connection %u: wrong %s while it is held", e->conn, wrong);
	p->s->counts.infos++;
}

bool
sim_held_decide(struct sim_program *p, struct sim_end *e, bool *open)
{
	struct sim *s = p->s;
	int rc;

	*open = false;
	if (!e->undecided || s->now < e->decide_at)
		return false;
	check_undecided(p, e);
	if (e->refused < REFUSALS && rng_chance(&e->rng, 400)) {
		e->refused++;
		rc = weir_refuse(e->undecided, "come again");
		e->undecided = NULL;
		if (rc)
			sim_fail(s, "connection %u: refuse gives %d: %s", e->conn, rc,
				 weir_reason());
		sim_trace(s, "program %u: refuses connection %u", p->id, e->conn);
		s->counts.held_refused++;
		return true;
	}
	/* the connecting end may hear of it before this call returns */
	e->admitted = true;
	rc = weir_admit(e->undecided, NULL);
	sim_trace(s, "program %u: admits connection %u: %d", p->id, e->conn, rc);
	if (!rc) {
		*open = true;
		s->counts.held_admitted++;
		return true;
	}
	if (rc != -ENOTCONN && rc != -ECONNRESET && rc != -ESHUTDOWN && rc != -EHOSTDOWN)
		sim_fail(s, "connection %u: admit gives %d: %s", e->conn, rc, weir_reason());
	weir_close(e->undecided);
	e->undecided = NULL;
	return true;
}

static struct sim_end *
acceptor(struct sim_program *p, const struct sim_end *e)
{
	struct sim_program *other = p->s->program[p->s->sc.conn[e->conn].program[1]];

	for (uint32_t i = 0; i < other->ends; i++)
		if (other->end[i].conn == e->conn && other->end[i].side == 1)
			return &other->end[i];
	return NULL;
}

void
sim_held_opened(struct sim_program *p, const struct sim_end *e)
{
	const struct sim_end *to = acceptor(p, e);

	if (p->s->sc.conn[e->conn].held && to && !to->admitted)
		sim_fail(p->s, "connection %u is open, and was not admitted", e->conn);
}

void
sim_held_refused(struct sim_program *p, struct sim_end *e)
{
	const struct sim_end *to = acceptor(p, e);
	size_t length;

	if (!p->s->sc.conn[e->conn].held || !to)
		return;
	if (weir_recv(e->c, NULL, 0, &length, 0) != -ECONNREFUSED)
		sim_fail(p->s, "connection %u was refused, and goes on", e->conn);
	if (!strstr(weir_reason(), "come again"))
		return; /* nobody listens yet */
	if (++e->refused > to->refused)
		sim_fail(p->s, "connection %u was refused %u times by its acceptor, and told %u",
			 e->conn, to->refused, e->refused);
	p->s->counts.held_told++;
}

void
sim_check_info(struct sim_program *p, const struct sim_end *e)
{
	const struct sim_flow *in = sim_flow(p->s, e->conn, !e->side);
	const struct sim_flow *out = sim_flow(p->s, e->conn, e->side);
	struct weir_conn_info i = WEIR_CONN_INFO_INIT;
	const char *wrong;
	int rc;

	if (!p->s->sc.holds || p->s->sc.conn[e->conn].datagram)
		return;
	rc = weir_conn_info(e->c, &i);
	if (rc)
		sim_fail(p->s, "connection %u end %u: no facts: %d: %s", e->conn, e->side, rc,
			 weir_reason());
	wrong = wrong_peer(p, e, &i);
	if (!wrong && i.undecided)
		wrong = "state";
	if (!wrong && (i.sent_messages != out->accepted || i.recv_messages != in->received))
		wrong = "count";
	if (wrong)
		sim_fail(p->s,
			 "connection %u end %u: wrong %s: %lu sent, %lu received, not %u and %u",
			 e->conn, e->side, wrong, i.sent_messages, i.recv_messages, out->accepted,
			 in->received);
	p->s->counts.infos++;
}

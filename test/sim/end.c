/* SPDX-License-Identifier: BSD-3-Clause */
/* One end of a connection: connects, sends, receives, closes, checking what the calls promise. */
#include "end.h"
#include "batch.h"
#include "held.h"
#include "node.h"
#include "wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define RETRY (200 * SIM_US)

static const struct sim_conn_plan *
plan_of(const struct sim_program *p, const struct sim_end *e)
{
	return &p->s->sc.conn[e->conn];
}

static bool
excused(const struct sim *s, const struct sim_end *e)
{
	return sim_conn_excused(s, e->conn);
}

static struct sim_flow *
out_flow(struct sim_program *p, struct sim_end *e)
{
	return sim_flow(p->s, e->conn, e->side);
}

static struct sim_flow *
in_flow(struct sim_program *p, struct sim_end *e)
{
	return sim_flow(p->s, e->conn, !e->side);
}

/* For a link, or (fault.c) no memory for its queue pairs. */
static bool
no_room(const struct sim *s, int status)
{
	return status == -ENOSPC || (status == -ENOMEM && s->sc.faults);
}

/* A node of the two is cut off for good: trying again has no end. */
static bool
is_cut_off(const struct sim_program *p, const struct sim_end *e)
{
	const struct sim *s = p->s;
	const struct sim_conn_plan *c = plan_of(p, e);

	return s->now >= s->sc.cut_at && (s->sc.program[c->program[0]].node == s->sc.cut_node ||
					  s->sc.program[c->program[1]].node == s->sc.cut_node);
}

static bool
offers_were_lost(const struct sim_program *p, const struct sim_end *e)
{
	const struct sim *s = p->s;
	const struct sim_conn_plan *c = plan_of(p, e);

	return sim_offers_lost(s, s->sc.program[c->program[0]].node,
			       s->sc.program[c->program[1]].node);
}

void
sim_end_failed(struct sim_program *p, struct sim_end *e, int status)
{
	struct sim *s = p->s;

	sim_trace(s, "program %u: connection %u ended with %d", p->id, e->conn, status);
	sim_progress(s);
	if (e->state == END_CONNECTING && status == -ECONNREFUSED)
		sim_held_refused(p, e);
	/* not there yet: the other program has not started to listen, its backlog is full, or there
	 * is no room, or (fault.c) no memory, for the link */
	if (e->state == END_CONNECTING && !sim_program_gone(s, plan_of(p, e)->program[1]) &&
	    !is_cut_off(p, e) &&
	    (no_room(s, status) ||
	     (!plan_of(p, e)->unknown && (status == -ECONNREFUSED || status == -EHOSTUNREACH ||
					  (status == -ETIMEDOUT && offers_were_lost(p, e)))))) {
		weir_close(e->c);
		e->c = NULL;
		e->state = END_IDLE;
		e->start = s->now + RETRY + rng_below(&p->rng, RETRY);
		return;
	}
	if (plan_of(p, e)->unknown) {
		if (status != -ECONNREFUSED && !excused(s, e))
			sim_fail(s, "connection %u to no service ended with %d", e->conn, status);
	} else if (!excused(s, e)) {
		sim_fail(s, "connection %u end %u failed: %d", e->conn, e->side, status);
	}
	out_flow(p, e)->unsent = true;
	e->peer_done = true;
	/* what was sent with WEIR_NOTIFY must still end: closed after that */
	if (e->state == END_OPEN)
		return;
	weir_close(e->c);
	e->c = NULL;
	e->state = END_CLOSED;
}

bool
sim_end_connect(struct sim_program *p, struct sim_end *e)
{
	struct sim *s = p->s;
	const struct sim_conn_plan *c = plan_of(p, e);
	struct weir_connect_options options = {.size = sizeof(options),
					       .flags = (c->loop ? WEIR_LOOP : 0) |
							(c->datagram ? WEIR_UD : 0),
					       .priority = c->priority};
	struct weir_address a = {.kind = WEIR_ADDRESS_NODE,
				 .id = s->sc.program[c->program[1]].node};
	int rc;

	if (e->state != END_IDLE || e->side != 0 || s->now < e->start)
		return false;
	if (c->unknown)
		snprintf(a.service, sizeof(a.service), "nobody");
	else if (c->shared)
		snprintf(a.service, sizeof(a.service), "program%u", c->program[1]);
	else
		snprintf(a.service, sizeof(a.service), "conn%u", e->conn);
	if (rng_chance(&p->rng, 300)) {
		uint32_t ip = sim_node_ip(a.id);

		a.kind = WEIR_ADDRESS_IPV4;
		for (uint32_t i = 0; i < 4; i++)
			a.ip[i] = (uint8_t)(ip >> (24 - 8 * i));
	}
	sim_trace(s, "program %u: connects %u to node %u %s", p->id, e->conn, a.id, a.service);
	rc = weir_connect_with(p->w, &a, &options, 0, &e->c);
	if (rc == 0) {
		sim_progress(s);
		weir_conn_set_user(e->c, e);
		e->state = END_CONNECTING;
	} else if (rc == -ECONNREFUSED && (c->unknown || sim_program_gone(s, c->program[1]))) {
		e->state = END_CLOSED;
	} else if (rc == -EHOSTUNREACH || rc == -EAGAIN || rc == -ECONNREFUSED || no_room(s, rc)) {
		/* control has not told of the node yet */
		e->start = s->now + RETRY;
	} else if (excused(s, e)) {
		e->state = END_CLOSED;
	} else {
		sim_fail(s, "program %u: connect gives %d: %s", p->id, rc, weir_reason());
	}
	return true;
}

/* Now and then the program says how a message is to go. */
static unsigned
any_operation(struct sim_program *p, uint32_t length)
{
	uint32_t kind = rng_below(&p->rng, 10);

	if (kind == 0)
		return WEIR_READ;
	if (kind == 1)
		return WEIR_RC | WEIR_WRITE;
	if (kind == 2)
		return length <= WEIR_RING_MAX ? WEIR_RING : 0;
	return kind == 3 && length <= WEIR_SEND_MAX ? WEIR_SEND : 0;
}

/* Sends in one of the ways there are. */
static int
send_one(struct sim_program *p, struct sim_end *e, uint32_t number, uint32_t length, bool *asked)
{
	uint32_t way = rng_below(&p->rng, 4);
	unsigned flags = any_operation(p, length);
	void *place;
	int rc;

	/* parts that are left out: only small messages */
	if (!p->s->sc.bulk)
		flags &= WEIR_RC | WEIR_RING | WEIR_SEND;
	if (plan_of(p, e)->datagram)
		flags = 0;
	*asked = rng_chance(&p->rng, 200) || (e->drains && number + 1 == out_flow(p, e)->planned);
	if (way == 0) {
		uint32_t more = rng_chance(&p->rng, 300) ? rng_below(&p->rng, 100) : 0;

		if (plan_of(p, e)->datagram)
			more = 0;
		rc = weir_send_reserve(e->c, length + more, 0, &place);
		if (rc)
			return rc;
		if (rng_chance(&p->rng, 100)) {
			weir_send_abandon(e->c, place);
			return -EINTR;
		}
		sim_message_fill(place, length, e->conn, e->side, number);
		rc = weir_send_commit(e->c, place, length, flags | (*asked ? WEIR_NOTIFY : 0),
				      number);
		if (rc) /* the place is ours still */
			weir_send_abandon(e->c, place);
		return rc;
	}
	sim_message_fill(p->buffer, length, e->conn, e->side, number);
	if (way == 1 && number % 4 == 0) {
		struct iovec parts[3] = {{p->buffer, length / 3},
					 {p->buffer + length / 3, length / 2 - length / 3},
					 {p->buffer + length / 2, length - length / 2}};

		rc = weir_sendv(e->c, parts, 3, flags | (*asked ? WEIR_NOTIFY : 0), number, 0);
	} else if (*asked || flags)
		rc = weir_send_notify(e->c, p->buffer, length, flags | (*asked ? WEIR_NOTIFY : 0),
				      number, 0);
	else
		rc = weir_send(e->c, p->buffer, length, 0);
	/* the buffer may be reused at once */
	if (rc == 0 && length)
		p->buffer[rng_below(&p->rng, length)] ^= 0xff;
	return rc;
}

/* A message was not accepted; true if that changes anything. */
static bool
not_sent(struct sim_program *p, struct sim_end *e, uint32_t length, int rc)
{
	if (rc == -EAGAIN) {
		e->blocked = true;
		return false;
	}
	/* what has arrived can still be received: the end comes from there */
	if ((rc != -ECONNRESET && rc != -EHOSTDOWN) || !excused(p->s, e))
		sim_fail(p->s, "connection %u end %u: send of %u bytes gives %d: %s", e->conn,
			 e->side, length, rc, weir_reason());
	out_flow(p, e)->unsent = true;
	return true;
}

bool
sim_end_send(struct sim_program *p, struct sim_end *e)
{
	struct sim *s = p->s;
	struct sim_flow *f = out_flow(p, e);
	uint32_t length;
	bool asked;
	int rc;

	if (e->state != END_OPEN || e->blocked || f->unsent || f->accepted == f->planned)
		return false;
	length = sim_message_length(s, e->conn, e->side, f->accepted);
	/* one that drains waits for the completion of the last one */
	if (f->accepted + e->drains < f->planned && sim_batch_turn(e)) {
		rc = sim_batch_send(p, e);
		if (rc > 0) {
			sim_progress(s);
			return true;
		}
		return not_sent(p, e, length, rc);
	}
	/* what a commit says last may already be on its way when it returns */
	f->accepted++;
	rc = send_one(p, e, f->accepted - 1, length, &asked);
	if (rc == 0) {
		sim_trace(s, "connection %u flow %u: sent %u (%u bytes)", e->conn, e->side,
			  f->accepted - 1, length);
		f->asked += asked;
		sim_progress(s);
		return true;
	}
	f->accepted--;
	return rc == -EINTR || not_sent(p, e, length, rc);
}

bool
sim_end_shut(struct sim_program *p, struct sim_end *e)
{
	const struct sim_flow *f = out_flow(p, e);
	int rc;

	if (e->state != END_OPEN || !e->shuts || e->shut || f->unsent || f->accepted < f->planned)
		return false;
	rc = weir_shutdown(e->c);
	sim_trace(p->s, "connection %u end %u: shuts down sending, %d", e->conn, e->side, rc);
	if (rc && rc != -ECONNRESET && rc != -EHOSTDOWN)
		sim_fail(p->s, "connection %u end %u: shutdown gives %d: %s", e->conn, e->side, rc,
			 weir_reason());
	if (!rc && weir_send(e->c, NULL, 0, 0) != -EPIPE)
		sim_fail(p->s, "connection %u end %u: sends after shutdown", e->conn, e->side);
	e->shut = true;
	p->s->counts.shut += !rc;
	return true;
}

/* Now and then a look before: the message must stay. */
static int
look(struct sim_program *p, struct sim_end *e)
{
	const struct sim_flow *f = in_flow(p, e);
	size_t length = 0;
	int rc;

	if (plan_of(p, e)->datagram || sim_hash(p->s->sc.seed, e->conn, f->received) % 16)
		return 0;
	rc = weir_peek(e->c, NULL, 0, &length, 0);
	if (rc == 0 && (f->received >= f->planned ||
			length != sim_message_length(p->s, e->conn, !e->side, f->received)))
		sim_fail(p->s, "connection %u flow %u: sees %zu bytes as message %u", e->conn,
			 !e->side, length, f->received);
	return rc;
}

/* A buffer too small first: the message must stay. */
static int
receive_small(struct sim_program *p, struct sim_end *e)
{
	size_t length = 0;
	uint32_t size = rng_below(&p->rng, 64);
	int rc = weir_recv(e->c, p->buffer, size, &length, 0);

	if (rc == -EMSGSIZE && length <= size)
		sim_fail(p->s, "connection %u: EMSGSIZE for %zu bytes in a buffer of %u", e->conn,
			 length, size);
	if (rc == 0)
		sim_received(p->s, e->conn, !e->side, p->buffer, length);
	return rc;
}

static int
receive_one(struct sim_program *p, struct sim_end *e)
{
	size_t length = 0;
	int rc = look(p, e);

	if (rc)
		return rc;
	if (sim_batch_turn(e))
		return sim_batch_receive(p, e);
	if (rng_chance(&p->rng, 50)) {
		rc = receive_small(p, e);
		if (rc != -EMSGSIZE)
			return rc;
	}
	if (p->held_count < 4 && rng_chance(&p->rng, 300)) {
		struct sim_held *h = &p->held[p->held_count];

		rc = weir_recv_loan(e->c, &h->loan, 0);
		if (rc)
			return rc;
		h->conn = e->conn;
		h->flow = !e->side;
		h->number = in_flow(p, e)->received;
		if (plan_of(p, e)->datagram)
			h->number = sim_message_number(h->loan.data, h->loan.length, 0);
		h->until = p->s->now + rng_log(&p->rng, 1, 500 * SIM_US);
		sim_received(p->s, e->conn, !e->side, h->loan.data, h->loan.length);
		p->held_count++;
		return 0;
	}
	memset(p->buffer, 0xee, 64);
	rc = weir_recv(e->c, p->buffer, SIM_MESSAGE_MAX + 64, &length, 0);
	if (rc == 0)
		sim_received(p->s, e->conn, !e->side, p->buffer, length);
	return rc;
}

/* End of stream: everything must have come before it. */
static void
peer_ended(struct sim_program *p, struct sim_end *e)
{
	struct sim_flow *f = in_flow(p, e);

	sim_trace(p->s, "connection %u end %u: end of stream", e->conn, e->side);
	if (f->received < f->accepted && !excused(p->s, e) && !plan_of(p, e)->datagram)
		sim_fail(p->s, "connection %u flow %u: end of stream after %u of %u messages",
			 e->conn, !e->side, f->received, f->accepted);
	e->peer_done = true;
	e->blocked = false; /* the next send will say so */
	sim_progress(p->s);
}

bool
sim_end_receive(struct sim_program *p, struct sim_end *e)
{
	struct sim *s = p->s;
	uint32_t budget = 1 + rng_below(&p->rng, 16);
	bool any = false;
	int rc;

	if (e->state != END_OPEN || !e->readable || e->peer_done || s->now < e->paused_until)
		return false;
	while (budget--) {
		if (rng_chance(&p->rng, p->plan->pause)) {
			e->paused_until = s->now + rng_log(&p->rng, SIM_US, p->plan->pause_for);
			return true;
		}
		/* enough, unless a send failed: then the end is to be seen */
		if (in_flow(p, e)->received >= e->receive_max && !out_flow(p, e)->unsent)
			return any;
		rc = receive_one(p, e);
		if (rc == 0) {
			any = true;
			continue;
		}
		if (rc == -EAGAIN) {
			e->readable = false;
		} else if (rc == -ESHUTDOWN) {
			peer_ended(p, e);
			any = true;
		} else {
			sim_end_failed(p, e, rc);
			any = true;
		}
		return any;
	}
	return any;
}

bool
sim_end_close(struct sim_program *p, struct sim_end *e)
{
	struct sim *s = p->s;
	struct sim_flow *out = out_flow(p, e), *in = in_flow(p, e);
	bool all_in = in->received == in->planned || e->peer_done || in->received >= e->receive_max;
	int rc;

	if (e->state != END_OPEN)
		return false;
	if ((out->accepted < out->planned && !out->unsent) || !all_in)
		return false;
	/* after a failed send the end comes from recv */
	if ((out->unsent || e->lingers) && !e->peer_done)
		return false;
	if ((e->drains || out->unsent) && out->notified < out->asked)
		return false;
	if (e->drains && !out->unsent) {
		rc = weir_flush(e->c, 0);
		if (rc == 0)
			sim_flushed(s, e->conn, e->side, out->accepted);
		else if (!excused(s, e))
			sim_fail(s, "connection %u end %u: flush gives %d", e->conn, e->side, rc);
	}
	if (out->notified < out->asked)
		out->sender_gone = true;
	if (!e->peer_done && in->received < in->planned)
		in->receiver_gone = true;
	sim_check_info(p, e);
	sim_trace(s, "connection %u end %u: closes", e->conn, e->side);
	sim_progress(s);
	weir_close(e->c);
	e->c = NULL;
	e->state = END_CLOSED;
	return true;
}

uint64_t
sim_end_timer(const struct sim_program *p, const struct sim_end *e)
{
	if (e->state == END_IDLE && e->side == 0)
		return e->start;
	if (e->state == END_IDLE && e->undecided)
		return e->decide_at;
	if (e->state == END_OPEN && e->readable && e->paused_until > p->s->now)
		return e->paused_until;
	return SIM_NEVER;
}

bool
sim_program_release(struct sim_program *p, bool all)
{
	bool any = false;

	for (uint32_t i = 0; i < p->held_count;) {
		if (!all && p->held[i].until > p->s->now) {
			i++;
			continue;
		}
		struct sim_held *h = &p->held[i];

		if (!sim_message_is(h->loan.data, (uint32_t)h->loan.length, h->conn, h->flow,
				    h->number))
			sim_fail(p->s, "connection %u flow %u message %u changed while on loan",
				 h->conn, h->flow, h->number);
		weir_release(p->w, &h->loan);
		*h = p->held[--p->held_count];
		any = true;
	}
	return any;
}

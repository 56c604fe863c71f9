/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several messages per call: what is accepted is a beginning of what was given, and what comes is
 * the next messages, each once, in order. One message in pieces of memory too.
 */
#include "batch.h"

#include "client/channel.h"
#include "client/segment.h"
#include "stream/conn.h"

#include <errno.h>
#include <string.h>

#define BATCH 48u	 /* messages of a call at most */
#define PLACE 70000u	 /* bytes of a large buffer */
#define PIECES 8u	 /* of a message at most */
#define SOME_PLACE 8192u /* bytes of most buffers */

void
sim_batch_init(struct sim_program *p, struct sim_end *e)
{
	const struct sim *s = p->s;
	uint64_t hash = sim_hash(s->sc.seed, 96, 2 * e->conn + e->side);

	e->batches = s->sc.batches && !s->sc.conn[e->conn].datagram && hash % 4;
	e->rng.state = hash;
}

bool
sim_batch_turn(struct sim_end *e)
{
	return e->batches && rng_chance(&e->rng, 600);
}

/* Why message m, the first one that was not accepted, has to wait. */
static void
count_cut(struct sim *s, const struct weir_conn *c, const struct iovec *m)
{
	uint32_t length = (uint32_t)m->iov_len, slots = weir_slots_inline(length);
	uint64_t cost = c->local ? weir_segment_cost(length) : weir_cost(length);

	if (length > WEIR_INLINE_MAX || !weir_conn_is_open(c))
		return;
	if (!c->local)
		slots += WEIR_CONTROL_RESERVE;
	s->counts.cut_by_window += c->spent + cost > c->granted;
	s->counts.cut_by_ring += weir_ring_room(&c->pipe->tx) < slots;
}

int
sim_batch_send(struct sim_program *p, struct sim_end *e)
{
	struct sim_flow *f = sim_flow(p->s, e->conn, e->side);
	uint32_t left = f->planned - f->accepted - e->drains, used = 0, n, first = f->accepted;
	uint32_t most = 1 + rng_below(&e->rng, left < BATCH ? left : BATCH);
	struct iovec m[BATCH];
	uint64_t at;
	int rc;

	for (n = 0; n < most; n++) {
		uint32_t length = sim_message_length(p->s, e->conn, e->side, first + n);

		if (length > SIM_MESSAGE_MAX - used)
			break;
		m[n] = (struct iovec){p->buffer + used, length};
		sim_message_fill(p->buffer + used, length, e->conn, e->side, first + n);
		used += length;
	}
	f->accepted += n;
	at = e->c->pipe->tx.pos;
	rc = weir_send_many(e->c, m, n, 0);
	f->accepted -= n - (rc > 0 ? (uint32_t)rc : 0);
	/* the memory may be used again at once */
	if (used)
		p->buffer[rng_below(&e->rng, used)] ^= 0xff;
	if (rc > (int)n || !rc)
		sim_fail(p->s, "connection %u end %u: %d of %u messages accepted", e->conn, e->side,
			 rc, n);
	if (rc < 0)
		return rc;
	sim_trace(p->s, "connection %u flow %u: sent %u to %u of %u", e->conn, e->side, first,
		  f->accepted - 1, first + n - 1);
	p->s->counts.batches += rc > 1;
	if (e->c->local && e->c->pipe->tx.pos - at < (uint32_t)rc)
		p->s->counts.bundles++;
	if ((uint32_t)rc < n) {
		count_cut(p->s, e->c, &m[rc]);
		e->blocked = true; /* WRITABLE follows */
	}
	return rc;
}

/* The next message of the flow; -EMSGSIZE if its length was told as that of a buffer too small. */
static void
check_size(struct sim_program *p, struct sim_end *e, size_t length, size_t size)
{
	const struct sim_flow *f = sim_flow(p->s, e->conn, !e->side);

	if (length <= size || f->received >= f->planned ||
	    length != sim_message_length(p->s, e->conn, !e->side, f->received))
		sim_fail(p->s, "connection %u: EMSGSIZE for %zu bytes in a buffer of %zu", e->conn,
			 length, size);
}

static int
receive_many(struct sim_program *p, struct sim_end *e, uint32_t most)
{
	uint32_t used = 0, n = 0;
	struct iovec m[BATCH];
	size_t size;
	int rc;

	while (n < most) {
		uint32_t kind = rng_below(&e->rng, 8);
		uint32_t bytes = kind == 0   ? PLACE
				 : kind == 1 ? rng_below(&e->rng, 200)
					     : SOME_PLACE;

		if (bytes > SIM_MESSAGE_MAX - used)
			break;
		m[n++] = (struct iovec){p->buffer + used, bytes};
		used += bytes;
	}
	size = m[0].iov_len;
	rc = weir_recv_many(e->c, m, n, 0);
	if (rc == -EMSGSIZE)
		check_size(p, e, m[0].iov_len, size);
	if (rc > (int)n)
		sim_fail(p->s, "connection %u: %d messages in %u buffers", e->conn, rc, n);
	for (int i = 0; i < rc; i++)
		sim_received(p->s, e->conn, !e->side, m[i].iov_base, m[i].iov_len);
	p->s->counts.batches_received += rc > 1;
	return rc;
}

static int
lend_many(struct sim_program *p, struct sim_end *e, uint32_t most)
{
	struct weir_loan loan[SIM_HELD];
	int rc;

	if (most > SIM_HELD - p->held_count)
		most = SIM_HELD - p->held_count;
	if (!most)
		return -EMSGSIZE;
	rc = weir_recv_loan_many(e->c, loan, most, 0);
	if (rc > (int)most)
		sim_fail(p->s, "connection %u: %d of %u loans", e->conn, rc, most);
	for (int i = 0; i < rc; i++) {
		p->held[p->held_count++] =
		    (struct sim_held){.loan = loan[i],
				      .until = p->s->now + rng_log(&e->rng, 1, 500 * SIM_US),
				      .conn = e->conn,
				      .flow = !e->side,
				      .number = sim_flow(p->s, e->conn, !e->side)->received};
		sim_received(p->s, e->conn, !e->side, loan[i].data, loan[i].length);
	}
	p->s->counts.batches_lent += rc > 1;
	return rc;
}

/* One message into pieces of memory, some of which are empty. */
static int
receive_pieces(struct sim_program *p, struct sim_end *e)
{
	bool small = rng_chance(&e->rng, 200);
	uint32_t n = small ? 1 + rng_below(&e->rng, 3) : PIECES, used = 0;
	struct iovec m[PIECES];
	size_t length = 0;
	int rc;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t bytes = rng_chance(&e->rng, 200) ? 0 : (uint32_t)rng_log(&e->rng, 1, 300);

		if (!small && i + 1 == n)
			bytes = SIM_MESSAGE_MAX + 64 - used;
		m[i] = (struct iovec){p->buffer + used, bytes};
		used += bytes;
	}
	rc = weir_recvv(e->c, m, n, &length, 0);
	if (rc == -EMSGSIZE)
		check_size(p, e, length, used);
	if (rc)
		return rc;
	sim_received(p->s, e->conn, !e->side, p->buffer, length);
	p->s->counts.pieces++;
	return 0;
}

int
sim_batch_receive(struct sim_program *p, struct sim_end *e)
{
	const struct sim_flow *f = sim_flow(p->s, e->conn, !e->side);
	uint32_t left = f->received < e->receive_max ? e->receive_max - f->received : 1;
	uint32_t most = 1 + rng_below(&e->rng, left < BATCH ? left : BATCH);
	uint32_t kind = rng_below(&e->rng, 10);
	size_t length;
	int rc = kind == 0  ? receive_pieces(p, e)
		 : kind < 3 ? lend_many(p, e, most)
			    : receive_many(p, e, most);

	if (rc == -EMSGSIZE) { /* it has stayed */
		rc = weir_recv(e->c, p->buffer, SIM_MESSAGE_MAX + 64, &length, 0);
		if (!rc)
			sim_received(p->s, e->conn, !e->side, p->buffer, length);
	}
	return rc > 0 ? 0 : rc;
}

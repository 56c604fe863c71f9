/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The operations of perftest. One end acts, the client unless they are reversed, or both do; in _bw
 * many operations at a time on each queue pair. The other end receives messages, or only waits. In
 * the ping-pongs send_lat and write_lat both act.
 */
#include "roce_peer.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#define WINDOW 16u /* of what brings something, on all queue pairs */
#define LOOK 64u   /* turns between two looks at the socket, a system call */

/* A run of operations of ours, `count` on each queue pair. */
struct stream {
	uint64_t count;
	uint32_t window; /* of each queue pair */
	/* Operation k, whose result comes to `slot`. */
	void (*make)(const struct peer *p, const struct peer_qp *q, uint64_t k,
		     struct nic_send_wr *wr, uint8_t *slot);
	int (*look)(struct peer *p, const struct peer_qp *q, uint64_t k, const uint8_t *slot);
};

static uint8_t *
slot_of(const struct peer *p, const struct stream *s, const struct peer_qp *q, uint64_t k)
{
	uint64_t i = (uint64_t)(q - p->qp) * s->window + k % s->window;

	return s->look || i < p->slots ? p->slot + i * p->slot_bytes : NULL;
}

static int
post_some(struct peer *p, const struct stream *s, struct peer_qp *q)
{
	int rc = 0;

	while (!rc && q->sent < s->count && q->sent - q->confirmed < s->window &&
	       peer_more(p, q->sent)) {
		struct nic_send_wr wr = {.sge_count = 1, .flags = NIC_SIGNALED};

		wr.remote_address = q->remote.vaddr;
		wr.rkey = q->remote.rkey;
		s->make(p, q, q->sent, &wr, slot_of(p, s, q, q->sent));
		q->sent++;
		rc = peer_post(p, q, &wr);
	}
	return rc;
}

static int
stream(struct peer *p, const struct stream *s)
{
	struct nic_wc wc[NIC_POLL_MAX];
	uint64_t sent, confirmed;
	int rc = 0;

	for (uint32_t i = 0; i < p->qps; i++)
		p->qp[i].sent = p->qp[i].confirmed = 0;
	do {
		int n;

		sent = confirmed = 0;
		for (uint32_t i = 0; i < p->qps && !rc; i++) {
			rc = post_some(p, s, &p->qp[i]);
			sent += p->qp[i].sent;
		}
		n = rc ? 0 : peer_turn(p, wc);
		rc = n < 0 ? n : rc;
		for (int i = 0; i < n && !rc; i++) {
			struct peer_qp *q = wc[i].qp_user;
			uint64_t k = q->confirmed++;

			rc = s->look ? s->look(p, q, k, slot_of(p, s, q, k)) : 0;
		}
		for (uint32_t i = 0; i < p->qps; i++)
			confirmed += p->qp[i].confirmed;
	} while (!rc && (confirmed != sent || (sent < s->count * p->qps && peer_more(p, 0))));
	return rc;
}

static int
changed(struct peer *p, uint64_t k)
{
	return peer_fail(p, -EBADMSG,
			 "%s: operation %llu brought something else than it must; the drivers "
			 "disagree, capture the port",
			 p->run.test->name, (unsigned long long)k);
}

/* READ in three pieces is what each whole one is compared with. */
static uint32_t
piece(const struct peer *p)
{
	return p->run.size / 3 + 1;
}

/* The bytes with which READs and atomics of a queue pair are compared. */
static uint8_t *
known(const struct peer *p, const struct peer_qp *q)
{
	return p->out + peer_region(p, q);
}

static uint32_t
pieces(const struct peer *p)
{
	return (p->run.size + piece(p) - 1) / piece(p);
}

static void
make_piece(const struct peer *p, const struct peer_qp *q, uint64_t k, struct nic_send_wr *wr,
	   uint8_t *slot)
{
	uint32_t at = (uint32_t)k * piece(p), rest = p->run.size - at;

	wr->opcode = NIC_READ;
	wr->sge[0] = (struct nic_sge){(uintptr_t)known(p, q) + at,
				      rest < piece(p) ? rest : piece(p), p->local.lkey};
	wr->remote_address += at;
}

static void
make_read(const struct peer *p, const struct peer_qp *q, uint64_t k, struct nic_send_wr *wr,
	  uint8_t *slot)
{
	wr->opcode = NIC_READ;
	wr->sge[0] = (struct nic_sge){(uintptr_t)slot, p->run.size, p->local.lkey};
	for (uint32_t i = 0; i < p->run.size; i++)
		slot[i] = (uint8_t)~known(p, q)[i];
}

static int
look_read(struct peer *p, const struct peer_qp *q, uint64_t k, const uint8_t *slot)
{
	p->verified += p->run.size;
	return memcmp(slot, known(p, q), p->run.size) ? changed(p, k) : 0;
}

static int
read_all(struct peer *p, uint32_t window)
{
	int rc = stream(p, &(struct stream){pieces(p), 1, make_piece, NULL});

	return rc ? rc : stream(p, &(struct stream){p->count, window, make_read, look_read});
}

static void
make_write(const struct peer *p, const struct peer_qp *q, uint64_t k, struct nic_send_wr *wr,
	   uint8_t *slot)
{
	wr->opcode = NIC_WRITE;
	wr->sge[0] = (struct nic_sge){(uintptr_t)p->out, p->run.size, p->local.lkey};
	wr->remote_address += k % peer_places(p) * peer_step(p);
}

/* The word's value before ours is the first result: an operation that doesn't change it. */
static void
make_look(const struct peer *p, const struct peer_qp *q, uint64_t k, struct nic_send_wr *wr,
	  uint8_t *slot)
{
	wr->opcode = NIC_FETCH_ADD;
	wr->sge[0] = (struct nic_sge){(uintptr_t)known(p, q), sizeof(uint64_t), p->local.lkey};
}

static uint64_t
first_value(const struct peer *p, const struct peer_qp *q)
{
	uint64_t value;

	memcpy(&value, known(p, q), sizeof(value));
	return value;
}

static void
make_atomic(const struct peer *p, const struct peer_qp *q, uint64_t k, struct nic_send_wr *wr,
	    uint8_t *slot)
{
	bool swap = p->run.test->op == PEER_CAS;

	wr->opcode = swap ? NIC_CMP_SWAP : NIC_FETCH_ADD;
	wr->sge[0] = (struct nic_sge){(uintptr_t)slot, sizeof(uint64_t), p->local.lkey};
	wr->compare_add = swap ? first_value(p, q) + k : 1;
	wr->swap = first_value(p, q) + k + 1;
}

static int
look_atomic(struct peer *p, const struct peer_qp *q, uint64_t k, const uint8_t *slot)
{
	uint64_t value;

	memcpy(&value, slot, sizeof(value));
	p->verified += sizeof(value);
	return value == first_value(p, q) + k ? 0 : changed(p, k);
}

static int
atomic_all(struct peer *p, uint32_t window)
{
	int rc = stream(p, &(struct stream){1, 1, make_look, NULL});

	return rc ? rc : stream(p, &(struct stream){p->count, window, make_atomic, look_atomic});
}

/* Their message k comes from the place of k - places: it is the same. */
static int
look_message(struct peer *p, uint64_t k, const struct nic_wc *wc)
{
	uint32_t head = p->run.test->ud ? NIC_GRH_BYTES : 0, n = p->run.size;
	const uint8_t *data = p->slot + wc->wr_id * p->slot_bytes + head;
	uint8_t *before = p->region + peer_region(p, wc->qp_user) + k % peer_places(p) * n;

	if (wc->opcode != NIC_RECV || wc->length != n + head)
		return peer_fail(p, -EBADMSG,
				 "%s: a message of %u bytes instead of %u; the same "
				 "-s there?",
				 p->run.test->name, wc->length - head, n);
	if (k < peer_places(p))
		memcpy(before, data, n);
	else if (memcmp(before, data, n))
		return changed(p, k);
	p->verified += n;
	return peer_reuse(p, wc);
}

static int
send_some(struct peer *p, struct peer_qp *q)
{
	int rc = 0;

	while (!rc && q->sent - q->confirmed < PEER_DEPTH && peer_more(p, q->sent)) {
		q->sent++;
		rc = peer_send(p, q);
	}
	return rc;
}

/* Messages of one end or of both. */
struct messages {
	uint64_t sent, confirmed, received;
	uint32_t turns;
	uint64_t end; /* timed, of the client, who speaks first: until then it receives */
};

/* In a given time who receives does so until the other one has spoken, or will not any more. */
static bool
messages_go_on(const struct peer *p, struct messages *m)
{
	if (m->confirmed != m->sent)
		return true;
	if (peer_acts(p) && peer_more(p, m->sent / p->qps))
		return true;
	if (!peer_suffers(p))
		return false;
	if (!p->run.seconds)
		return m->received < p->count * p->qps;
	if (PEER_IS_CLIENT(p))
		return peer_now() < m->end;
	return m->turns++ % LOOK || !peer_speaks(p);
}

static int
exchange_messages(struct peer *p)
{
	struct messages m = {.end = peer_now() + p->run.seconds * PEER_SECOND_NS};
	struct nic_wc wc[NIC_POLL_MAX];
	int rc = 0;

	peer_fill(p->out, p->run.size, 1);
	while (!rc && messages_go_on(p, &m)) {
		int n;

		m.sent = 0;
		for (uint32_t i = 0; i < p->qps && !rc; i++) {
			rc = peer_acts(p) ? send_some(p, &p->qp[i]) : 0;
			m.sent += p->qp[i].sent;
		}
		n = rc ? 0 : peer_turn(p, wc);
		rc = n < 0 ? n : rc;
		for (int i = 0; i < n && !rc; i++) {
			struct peer_qp *q = wc[i].qp_user;

			if (wc[i].opcode == NIC_RECV) {
				m.received++;
				rc = look_message(p, q->received++, &wc[i]);
			} else {
				m.confirmed++;
				q->confirmed++;
			}
		}
	}
	return rc;
}

/* A ping-pong: who begins, and what has been begun, completed, and come back. */
struct rally {
	bool begins;
	uint64_t sent, confirmed, received;
};

static bool
goes_on(const struct peer *p, const struct rally *r)
{
	if (p->run.seconds)
		return r->confirmed != r->sent || peer_more(p, r->sent);
	return r->received < p->count || r->confirmed < p->count;
}

/* Each sends when it has got the message before. */
static bool
is_next(const struct peer *p, const struct rally *r)
{
	return peer_more(p, r->sent) && r->confirmed == r->sent &&
	       r->received == r->sent + (r->begins ? 0 : 1);
}

/* send_lat: the client begins. */
static int
message_rally(struct peer *p)
{
	struct rally r = {.begins = PEER_IS_CLIENT(p)};
	struct nic_wc wc[NIC_POLL_MAX];
	int rc = 0;

	peer_fill(p->out, p->run.size, 1);
	while (!rc && goes_on(p, &r)) {
		int n;

		if (is_next(p, &r)) {
			r.sent++;
			rc = peer_send(p, &p->qp[0]);
		}
		n = rc ? rc : peer_turn(p, wc);
		rc = n < 0 ? n : 0;
		for (int i = 0; i < n && !rc; i++) {
			if (wc[i].opcode == NIC_RECV)
				rc = look_message(p, r.received++, &wc[i]);
			else
				r.confirmed++;
		}
	}
	p->qp[0].confirmed = r.confirmed;
	return rc;
}

/* Whether it was the last one at a smaller size of -a. */
static bool
was_last(const struct peer *p, uint32_t i)
{
	return p->run.all && i % 2 && (i & (i + 1)) == 0;
}

/*
 * Theirs is all 0 but for the last byte, which counts; so is ours. Where the last bytes of smaller
 * messages were they left their count.
 */
static int
look_written(struct peer *p, uint64_t k)
{
	uint32_t last = p->run.size - 1;

	for (uint32_t i = 0; i < last; i++)
		if (p->region[i] != (was_last(p, i) ? (uint8_t)p->count : 0))
			return changed(p, k);
	p->verified += p->run.size;
	memset(p->region, ~0, last);
	return 0;
}

static int
write_next(struct peer *p, uint64_t k)
{
	struct nic_send_wr wr = {
	    .sge = {{(uintptr_t)p->out, p->run.size, p->local.lkey}},
	    .sge_count = 1,
	    .opcode = NIC_WRITE,
	    .flags = NIC_SIGNALED,
	    .remote_address = p->qp[0].remote.vaddr,
	    .rkey = p->qp[0].remote.rkey,
	};

	p->out[p->run.size - 1] = (uint8_t)k;
	return peer_post(p, &p->qp[0], &wr);
}

/* write_lat: the server begins; who waits looks at the last byte. */
static int
write_rally(struct peer *p)
{
	_Atomic uint8_t *flag = (_Atomic uint8_t *)(p->region + p->run.size - 1);
	struct rally r = {.begins = !PEER_IS_CLIENT(p)};
	struct nic_wc wc[NIC_POLL_MAX];
	int rc = 0;

	memset(p->out, 0, p->run.size);
	while (!rc && goes_on(p, &r)) {
		int n;

		/* pairs with whoever writes it: the NIC, or the driver in this thread */
		if (r.received < p->count &&
		    atomic_load_explicit(flag, memory_order_acquire) == (uint8_t)(r.received + 1))
			rc = look_written(p, r.received++);
		if (!rc && is_next(p, &r))
			rc = write_next(p, ++r.sent);
		n = rc ? rc : peer_turn(p, wc);
		rc = n < 0 ? n : 0;
		r.confirmed += n > 0 ? (unsigned)n : 0;
	}
	p->qp[0].confirmed = r.confirmed;
	return rc;
}

static int
act(struct peer *p)
{
	uint32_t most = p->slots < WINDOW ? p->slots : WINDOW, window = most / p->qps;

	if (p->run.test->latency || window == 0)
		window = 1;
	switch (p->run.test->op) {
	case PEER_WRITE:
		peer_fill(p->out, p->run.size, 1);
		return stream(p, &(struct stream){p->count, PEER_DEPTH, make_write, NULL});
	case PEER_READ:
		return read_all(p, window);
	default:
		return atomic_all(p, window);
	}
}

/* Their server ends by its own clock, and takes nothing more then: ours is over before. */
static void
start_timer(struct peer *p)
{
	p->count = UINT64_MAX / PEER_QPS_MAX;
	p->until = peer_now() + p->run.seconds * PEER_SECOND_NS * 4 / 5;
}

static uint64_t
done(const struct peer *p)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < p->qps; i++)
		n +=
		    p->qp[i].confirmed > p->qp[i].received ? p->qp[i].confirmed : p->qp[i].received;
	return n / p->qps;
}

int
peer_move(struct peer *p)
{
	int rc = 0;

	for (uint32_t i = 0; i < p->qps; i++)
		p->qp[i].sent = p->qp[i].confirmed = p->qp[i].received = 0;
	if (p->run.seconds)
		start_timer(p);
	if (p->run.test->op == PEER_SEND)
		rc = p->run.test->latency ? message_rally(p) : exchange_messages(p);
	else if (p->run.test->op == PEER_WRITE && p->run.test->latency)
		rc = write_rally(p);
	else if (peer_acts(p))
		rc = act(p);
	if (p->run.seconds)
		p->count = done(p);
	return rc;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The operations of perftest. The client does them, in _bw many at a time; the server receives its
 * messages, else it does nothing but wait. In the ping-pongs send_lat and write_lat both act.
 */
#include "peer.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#define WINDOW 16u /* of what brings something */

/* A run of operations of ours on the queue pair. */
struct stream {
	uint64_t count;
	uint32_t window;
	/* Operation k, whose result comes to `slot`. */
	void (*make)(const struct peer *p, uint64_t k, struct nic_send_wr *wr, uint8_t *slot);
	int (*look)(struct peer *p, uint64_t k, const uint8_t *slot);
};

static int
stream(struct peer *p, const struct stream *s)
{
	struct nic_wc wc[NIC_POLL_MAX];
	uint64_t posted = 0, done = 0;
	int rc = 0;

	while (!rc && done < s->count) {
		int n;

		for (; posted < s->count && posted - done < s->window && !rc; posted++) {
			struct nic_send_wr wr = {.sge_count = 1, .flags = NIC_SIGNALED};

			wr.remote_address = p->qp[0].remote.vaddr;
			wr.rkey = p->qp[0].remote.rkey;
			s->make(p, posted, &wr, p->slot + posted % s->window * p->slot_bytes);
			rc = peer_post(p, &p->qp[0], &wr);
		}
		n = rc ? 0 : peer_turn(p, wc);
		if (n < 0)
			rc = n;
		for (int i = 0; i < n && !rc; i++, done++)
			rc = s->look ? s->look(p, done, p->slot + done % s->window * p->slot_bytes)
				     : 0;
	}
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

static void
make_piece(const struct peer *p, uint64_t k, struct nic_send_wr *wr, uint8_t *slot)
{
	uint32_t at = (uint32_t)k * piece(p), rest = p->run.size - at;

	(void)slot;
	wr->opcode = NIC_READ;
	wr->sge[0] = (struct nic_sge){(uintptr_t)p->out + at, rest < piece(p) ? rest : piece(p),
				      p->local.lkey};
	wr->remote_address += at;
}

static void
make_read(const struct peer *p, uint64_t k, struct nic_send_wr *wr, uint8_t *slot)
{
	(void)k;
	wr->opcode = NIC_READ;
	wr->sge[0] = (struct nic_sge){(uintptr_t)slot, p->run.size, p->local.lkey};
	for (uint32_t i = 0; i < p->run.size; i++)
		slot[i] = (uint8_t)~p->out[i];
}

static int
look_read(struct peer *p, uint64_t k, const uint8_t *slot)
{
	p->verified += p->run.size;
	return memcmp(slot, p->out, p->run.size) ? changed(p, k) : 0;
}

static int
read_all(struct peer *p, uint32_t window)
{
	uint32_t pieces = (p->run.size + piece(p) - 1) / piece(p);
	int rc = stream(p, &(struct stream){pieces, 1, make_piece, NULL});

	return rc ? rc : stream(p, &(struct stream){p->count, window, make_read, look_read});
}

static void
make_write(const struct peer *p, uint64_t k, struct nic_send_wr *wr, uint8_t *slot)
{
	(void)slot;
	wr->opcode = NIC_WRITE;
	wr->sge[0] = (struct nic_sge){(uintptr_t)p->out, p->run.size, p->local.lkey};
	wr->remote_address += k % peer_places(p) * peer_step(p);
}

/* The word's value before ours is the first result: an operation that doesn't change it. */
static void
make_look(const struct peer *p, uint64_t k, struct nic_send_wr *wr, uint8_t *slot)
{
	(void)k;
	(void)slot;
	wr->opcode = NIC_FETCH_ADD;
	wr->sge[0] = (struct nic_sge){(uintptr_t)p->out, sizeof(uint64_t), p->local.lkey};
}

static uint64_t
first_value(const struct peer *p)
{
	uint64_t value;

	memcpy(&value, p->out, sizeof(value));
	return value;
}

static void
make_atomic(const struct peer *p, uint64_t k, struct nic_send_wr *wr, uint8_t *slot)
{
	bool swap = p->run.test->op == PEER_CAS;

	wr->opcode = swap ? NIC_CMP_SWAP : NIC_FETCH_ADD;
	wr->sge[0] = (struct nic_sge){(uintptr_t)slot, sizeof(uint64_t), p->local.lkey};
	wr->compare_add = swap ? first_value(p) + k : 1;
	wr->swap = first_value(p) + k + 1;
}

static int
look_atomic(struct peer *p, uint64_t k, const uint8_t *slot)
{
	uint64_t value;

	memcpy(&value, slot, sizeof(value));
	p->verified += sizeof(value);
	return value == first_value(p) + k ? 0 : changed(p, k);
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
	uint8_t *known = p->out + k % peer_places(p) * n;

	if (wc->opcode != NIC_RECV || wc->length != n + head)
		return peer_fail(p, -EBADMSG,
				 "%s: a message of %u bytes instead of %u; the same "
				 "-s there?",
				 p->run.test->name, wc->length - head, n);
	if (p->run.test->latency) /* out is what we send */
		known = p->region;
	if (k < peer_places(p))
		memcpy(known, data, n);
	else if (memcmp(known, data, n))
		return changed(p, k);
	p->verified += n;
	return peer_reuse(p, wc);
}

static int
receive_all(struct peer *p)
{
	struct nic_wc wc[NIC_POLL_MAX];
	uint64_t received = 0;
	int rc = 0;

	while (!rc && received < p->count) {
		int n = peer_turn(p, wc);

		rc = n < 0 ? n : 0;
		for (int i = 0; i < n && !rc; i++)
			rc = look_message(p, received++, &wc[i]);
	}
	return rc;
}

static int
send_all(struct peer *p)
{
	struct nic_wc wc[NIC_POLL_MAX];
	uint64_t posted = 0, sent = 0;
	int rc = 0;

	peer_fill(p->out, p->run.size, 1);
	while (!rc && sent < p->count) {
		int n;

		for (; posted < p->count && posted - sent < PEER_DEPTH && !rc; posted++)
			rc = peer_send(p, &p->qp[0]);
		n = rc ? 0 : peer_turn(p, wc);
		rc = n < 0 ? n : rc;
		sent += n > 0 ? (unsigned)n : 0;
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
	return r->received < p->count || r->confirmed < p->count;
}

/* Each sends when it has got the message before. */
static bool
is_next(const struct peer *p, const struct rally *r)
{
	return r->sent < p->count && r->confirmed == r->sent &&
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
	return rc;
}

/* Theirs is all 0 but for the last byte, which counts; so is ours. */
static int
look_written(struct peer *p, uint64_t k)
{
	uint32_t last = p->run.size - 1;

	for (uint32_t i = 0; i < last; i++)
		if (p->region[i])
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
	return rc;
}

int
peer_move(struct peer *p)
{
	uint32_t window = p->run.test->latency ? 1 : WINDOW;

	if (p->run.test->latency && p->run.test->op == PEER_SEND)
		return message_rally(p);
	if (p->run.test->latency && p->run.test->op == PEER_WRITE)
		return write_rally(p);
	if (!PEER_IS_CLIENT(p))
		return p->run.test->op == PEER_SEND ? receive_all(p) : 0;
	switch (p->run.test->op) {
	case PEER_SEND:
		return send_all(p);
	case PEER_WRITE:
		peer_fill(p->out, p->run.size, 1);
		return stream(p, &(struct stream){p->count, PEER_DEPTH, make_write, NULL});
	case PEER_READ:
		return read_all(p, window);
	default:
		return atomic_all(p, window);
	}
}

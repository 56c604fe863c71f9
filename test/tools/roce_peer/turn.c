/* SPDX-License-Identifier: BSD-3-Clause */
#include "roce_peer.h"

#include "lcore/clock.h"

#include <errno.h>
#include <string.h>

#define QUIET_NS 50000000ull
#define LINGER_NS 2000000000ull
#define COUNTERS_LOOK 64u     /* turns between two looks at them */
#define PAUSE_NS 500000000ull /* between two turns: we were stopped, they are not to blame */

static struct clock time_base;

void
peer_start_clock(void)
{
	clock_start(&time_base);
}

uint64_t
peer_now(void)
{
	return clock_now(&time_base);
}

bool
peer_more(const struct peer *p, uint64_t begun)
{
	return begun < p->count && !(p->until && peer_now() >= p->until);
}

static unsigned
poll_nic(struct peer *p, struct nic_wc *wc, uint64_t now, bool *busy)
{
	nic_flush(p->nic.context, now);
	return nic_poll(p->nic.context, wc, NIC_POLL_MAX, now, busy);
}

/*
 * Drops completions of the queue pairs of an earlier run, which ended with messages under way, as
 * the ping-pongs on many queue pairs do. Returns the number of those left.
 */
static unsigned
sift(struct peer *p, struct nic_wc *wc, unsigned n)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < n; i++) {
		const struct peer_qp *q = wc[i].qp_user;

		if (q < p->qp + p->qps && wc[i].qpn == nic_qpn(q->qp))
			wc[kept++] = wc[i];
		else if (wc[i].opcode == NIC_RECV)
			peer_reuse(p, &wc[i]);
	}
	return kept;
}

static int
failed(struct peer *p, uint8_t status)
{
	bool silent = status == NIC_WC_RETRY_EXC_ERR;

	return peer_fail(p, -EIO, "%s: a work request failed: %s; %s", p->run.test->name,
			 nic_wc_status_name(status),
			 silent ? "look at the other program, and leave -c UC out there: RC is "
				  "offered"
				: "look at both ends, the options of both, and the network "
				  "between them");
}

/* How much of it went by since the run began. */
#define ROSE(p, now, name) ((now).drop_##name != (p)->before.drop_##name)

/*
 * The counters of the NIC tell whether the other end goes on where nothing completes here, and by
 * frames that our queue pairs can't take how it was started. Returns 0, or the end of the run.
 */
static int
look_at_counters(struct peer *p, uint64_t time)
{
	struct nic_counters now;

	/* a verbs device drops in the kernel, without a word */
	if (!p->nic.ethdev || p->turns++ % COUNTERS_LOOK)
		return 0;
	NIC_OPS(p->nic.context)->counters(p->nic.context, &now);
	if (now.rx_accepted != p->accepted)
		p->last = time;
	p->accepted = now.rx_accepted;
	if (ROSE(p, now, bad_bth))
		return peer_fail(p, -EPROTO,
				 "%s: frames of another transport come, as of -c UC; leave that "
				 "out there: RC is offered, and UD by ud_send",
				 p->run.test->name);
	if (ROSE(p, now, bad_request))
		return peer_fail(p, -EPROTO,
				 "%s: a request came that can't be part of it; start the same test "
				 "there, of the same size and options (-c UD: ud_send)",
				 p->run.test->name);
	return 0;
}

/* Counts what was completed, says what failed. */
static int
judge(struct peer *p, const struct nic_wc *wc, unsigned n, uint64_t now)
{
	if (now - p->turned > PAUSE_NS)
		p->last += now - p->turned;
	p->turned = now;
	if (n)
		p->last = now;
	else if (look_at_counters(p, now))
		return -EPROTO;
	else if (now - p->last > p->patience_ns + p->run.seconds * PEER_SECOND_NS)
		return peer_fail(p, -ETIMEDOUT,
				 "%s: nothing has happened for %u s; look at the other end, and "
				 "that -n is the same there",
				 p->run.test->name, p->options->patience);
	for (unsigned i = 0; i < n; i++)
		if (wc[i].status != NIC_WC_SUCCESS)
			return failed(p, wc[i].status);
	return (int)n;
}

int
peer_turn(struct peer *p, struct nic_wc *wc)
{
	uint64_t now = peer_now();
	unsigned n = p->stashed < NIC_POLL_MAX ? p->stashed : NIC_POLL_MAX;
	bool busy = false;

	if (n) {
		memcpy(wc, p->stash, n * sizeof(*wc));
		p->stashed -= n;
		memmove(p->stash, p->stash + n, p->stashed * sizeof(*wc));
	} else {
		n = sift(p, wc, poll_nic(p, wc, now, &busy));
	}
	return judge(p, wc, n, now);
}

int
peer_turn_aside(struct peer *p)
{
	uint64_t now = peer_now();
	struct nic_wc *wc = p->stash + p->stashed;
	bool busy = false;
	int n;

	if (p->stashed > PEER_STASH - NIC_POLL_MAX)
		return 0; /* enough until they are fetched */
	n = judge(p, wc, sift(p, wc, poll_nic(p, wc, now, &busy)), now);
	if (n > 0)
		p->stashed += (unsigned)n;
	return n < 0 ? n : 0;
}

int
peer_turn_before(struct peer *p, bool first)
{
	struct nic_wc wc[NIC_POLL_MAX];
	struct nic_counters now;
	bool busy = false;

	sift(p, wc, poll_nic(p, wc, peer_now(), &busy));
	if (!p->nic.ethdev || !first)
		return 0;
	NIC_OPS(p->nic.context)->counters(p->nic.context, &now);
	if (now.drop_no_qp == 0)
		return 0;
	return peer_fail(p, -EPROTO,
			 "%s: frames come for a queue pair that nobody was told of, as of -R or "
			 "-z; leave that out there: rdma_cm is not offered, addresses go over TCP",
			 p->run.test->name);
}

int
peer_reuse(struct peer *p, const struct nic_wc *wc)
{
	struct nic_recv_wr wr = {
	    .wr_id = wc->wr_id,
	    .sge = {(uintptr_t)(p->slot + wc->wr_id * p->slot_bytes), p->slot_bytes, p->local.lkey},
	};

	if (NIC_OPS(p->nic.context)->post_srq_recv(p->srq, &wr, 1) == 1)
		return 0;
	return peer_fail(p, -EIO, "a receive could not be posted; report this");
}

int
peer_post(struct peer *p, struct peer_qp *q, const struct nic_send_wr *wr)
{
	if (nic_post_send(q->qp, wr, 1) == 1)
		return 0;
	return peer_fail(p, -EIO, "%s: a work request was refused; report this", p->run.test->name);
}

int
peer_send(struct peer *p, struct peer_qp *q)
{
	struct nic_send_wr wr = {
	    .sge = {{(uintptr_t)p->out, p->run.size, p->local.lkey}},
	    .sge_count = 1,
	    .opcode = NIC_SEND,
	    .flags = NIC_SIGNALED,
	};

	if (q->ah) {
		wr.ah = q->ah;
		wr.remote_qpn = q->remote.qpn;
		wr.qkey = PEER_QKEY;
	}
	return peer_post(p, q, &wr);
}

int
peer_linger(struct peer *p)
{
	uint64_t begin = peer_now(), now = begin, heard = begin;
	struct nic_wc wc[NIC_POLL_MAX];

	while (now - heard < QUIET_NS && now - begin < LINGER_NS) {
		bool busy = false;
		unsigned n;

		now = peer_now();
		n = poll_nic(p, wc, now, &busy);
		for (unsigned i = 0; i < n; i++)
			if (wc[i].opcode == NIC_RECV)
				peer_reuse(p, &wc[i]);
		if (busy)
			heard = now;
	}
	return 0;
}

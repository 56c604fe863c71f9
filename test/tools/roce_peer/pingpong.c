/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ibv_rc_pingpong, ibv_ud_pingpong, ibv_srq_pingpong. Each says where it is in a line of text, then
 * TCP is over. The client sends first; an end that has got a message and sent its own sends the
 * next one, until the count has been sent and received on all queue pairs together.
 */
#include "roce_peer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LINE_BYTES 52u	       /* with the 0 at its end */
#define SRQ_LINES PEER_QPS_MAX /* however many queue pairs it has */

static void
print_line(const struct peer_address *a, char *line)
{
	int n = snprintf(line, LINE_BYTES, "%04x:%06x:%06x:", a->lid & 0xffff, a->qpn, a->psn);

	for (unsigned i = 0; i < sizeof(a->gid.raw); i++)
		n += snprintf(line + n, LINE_BYTES - (unsigned)n, "%02x", a->gid.raw[i]);
}

static int
read_line(struct peer *p, char *line, struct peer_address *a)
{
	char gid[33];

	line[LINE_BYTES - 1] = '\0';
	memset(a, 0, sizeof(*a));
	a->out_reads = 1;
	if (sscanf(line, "%4x:%6x:%6x:%32[0-9a-f]", &a->lid, &a->qpn, &a->psn, gid) != 4 ||
	    strlen(gid) != 32)
		return peer_fail(p, -EPROTO,
				 "%s: the other program says something else; start the "
				 "one of that name there",
				 p->run.test->name);
	for (unsigned i = 0; i < sizeof(a->gid.raw); i++) {
		unsigned byte;

		sscanf(gid + 2 * i, "%2x", &byte);
		a->gid.raw[i] = (uint8_t)byte;
	}
	return 0;
}

static int
tell_lines(struct peer *p, uint32_t lines)
{
	char line[LINE_BYTES] = "";
	struct peer_address own;
	int rc = 0;

	for (uint32_t i = 0; i < lines && !rc; i++) {
		peer_own_address(p, i, &own);
		print_line(&own, line);
		rc = peer_tell(p, line, sizeof(line));
	}
	return rc;
}

static int
hear_lines(struct peer *p, uint32_t lines)
{
	char line[LINE_BYTES];
	struct peer_address spare;
	int rc = 0;

	for (uint32_t i = 0; i < lines && !rc; i++) {
		rc = peer_hear(p, line, sizeof(line));
		if (!rc)
			rc = read_line(p, line, i < p->qps ? &p->qp[i].remote : &spare);
	}
	for (uint32_t i = 0; i < p->qps && !rc; i++)
		rc = peer_connect(p, i);
	return rc;
}

static int
exchange(struct peer *p)
{
	uint32_t lines = p->run.test->srq ? SRQ_LINES : 1;
	char done[] = "done";
	int rc;

	if (PEER_IS_CLIENT(p)) {
		rc = tell_lines(p, lines);
		if (!rc)
			rc = hear_lines(p, lines);
		return rc ? rc : peer_tell(p, done, sizeof(done));
	}
	rc = hear_lines(p, lines);
	if (!rc)
		rc = tell_lines(p, lines);
	return rc ? rc : peer_hear(p, done, sizeof(done));
}

/* On many queue pairs all messages are the same: theirs come from one buffer. */
static uint64_t
seed_of(const struct peer *p, uint64_t message)
{
	return p->run.test->srq ? 1 : message;
}

static int
send_next(struct peer *p, struct peer_qp *q)
{
	q->sent++;
	if (!p->run.test->srq)
		peer_fill(p->out, p->run.size, seed_of(p, q->sent));
	q->sending = q->awaiting = true;
	return peer_send(p, q);
}

/* Theirs is what we sent before, but for the first one that their client sends; ours is the next.
 */
static int
look_at(struct peer *p, const struct peer_qp *q, const struct nic_wc *wc)
{
	uint32_t head = q->ah ? NIC_GRH_BYTES : 0;
	const uint8_t *data = p->slot + wc->wr_id * p->slot_bytes + head;
	uint32_t n = p->run.size;

	if (wc->length != n + head)
		return peer_fail(p, -EBADMSG,
				 "%s: a message of %u bytes instead of %u; the same "
				 "-s there?",
				 p->run.test->name, wc->length - head, n);
	if (!PEER_IS_CLIENT(p) && q->received == 1)
		return 0;
	p->verified += n;
	if (peer_filled(data, n, seed_of(p, q->sent)) ||
	    (!PEER_IS_CLIENT(p) && peer_filled(data, n, seed_of(p, q->received))))
		return 0;
	return peer_fail(p, -EBADMSG,
			 "%s: message %llu came back changed; the drivers disagree, capture the "
			 "port",
			 p->run.test->name, (unsigned long long)q->received);
}

static int
play(struct peer *p)
{
	struct nic_wc wc[NIC_POLL_MAX];
	uint64_t sent = 0, received = 0;
	int rc = 0;

	peer_fill(p->out, p->run.size, 1);
	for (uint32_t i = 0; i < p->qps && !rc; i++) {
		p->qp[i].awaiting = true;
		if (PEER_IS_CLIENT(p))
			rc = send_next(p, &p->qp[i]);
	}
	while (!rc && (sent < p->count || received < p->count)) {
		int n = peer_turn(p, wc);

		rc = n < 0 ? n : 0;
		for (int i = 0; i < n && !rc; i++) {
			struct peer_qp *q = wc[i].qp_user;

			if (wc[i].opcode == NIC_RECV) {
				received++;
				q->received++;
				q->awaiting = false;
				rc = look_at(p, q, &wc[i]);
				rc = rc ? rc : peer_reuse(p, &wc[i]);
			} else {
				sent++;
				q->sending = false;
			}
			if (!rc && sent < p->count && !q->sending && !q->awaiting)
				rc = send_next(p, q);
		}
	}
	return rc ? rc : peer_linger(p);
}

int
peer_pingpong(struct peer *p)
{
	int rc;

	p->mtu = p->options->mtu < p->attr.mtu ? p->options->mtu : p->attr.mtu;
	rc = peer_prepare(p, 0);
	if (!rc)
		rc = exchange(p);
	if (!rc)
		rc = play(p);
	peer_release(p);
	return rc;
}

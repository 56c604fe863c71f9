/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The words of perftest's programs (4.5, which call themselves 6.06) over TCP: version, two sizes
 * that both must know, path MTU; then each the address of each queue pair; of all or of the first
 * again, as the other one waits for it; after the operations results, addresses and a farewell.
 * Numbers are big endian. Options that change the order of it are not said: both ends must be told.
 */
#include "roce_peer.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION_BYTES 16u
#define VERSION_OWN "6.06"
#define VERSION_LEAST 5.70 /* since then counts have 64 bits */
#define ADDRESS_BYTES 108u
#define CYCLE 4096u
#define LINE 64u
#define RESULTS 5u
#define SIZE_FIRST 2u /* of -a */

static int
strange(struct peer *p, const char *what)
{
	return peer_fail(p, -EPROTO,
			 "%s: the other program's %s can't be worked with; start ib_%s "
			 "of perftest 4.5 there",
			 p->run.test->name, what, p->run.test->name);
}

static int
agree_version(struct peer *p)
{
	char ours[VERSION_BYTES] = VERSION_OWN, theirs[VERSION_BYTES];
	int rc = peer_swap(p, ours, theirs, sizeof(ours));

	if (rc)
		return rc;
	theirs[VERSION_BYTES - 1] = '\0';
	return strtod(theirs, NULL) < VERSION_LEAST ? strange(p, "version") : 0;
}

/* The larger one of both counts. */
static int
agree_size(struct peer *p, uint32_t *size, uint32_t limit)
{
	uint32_t ours = htonl(*size), theirs = 0;
	int rc = peer_swap(p, &ours, &theirs, sizeof(ours));

	if (rc)
		return rc;
	if (ntohl(theirs) > *size)
		*size = ntohl(theirs);
	return *size > limit || *size % LINE ? strange(p, "buffer size") : 0;
}

/* A digit: 1 is 256 bytes, 5 is 4096. */
static int
agree_mtu(struct peer *p)
{
	char ours[2] = "1", theirs[2];
	int rc;

	while (256u << (ours[0] - '1') < p->attr.mtu)
		ours[0]++;
	rc = peer_swap(p, ours, theirs, sizeof(ours));
	if (rc)
		return rc;
	if (theirs[0] < '1' || theirs[0] > '5')
		return strange(p, "MTU");
	p->mtu = 256u << ((theirs[0] < ours[0] ? theirs[0] : ours[0]) - '1');
	if (p->run.test->ud && p->run.all)
		p->run.size = p->mtu;
	if (p->run.test->ud && p->run.size > p->mtu)
		return peer_fail(p, -EMSGSIZE,
				 "%s: a datagram carries %u bytes at most, not %u; give less to -t",
				 p->run.test->name, p->mtu, p->run.size);
	return 0;
}

static void
print_address(const struct peer_address *a, char *text)
{
	int n =
	    snprintf(text, ADDRESS_BYTES, "%04x:%04x:%06x:%06x:%08x:%016llx:", a->lid & 0xffff,
		     a->out_reads & 0xffff, a->qpn, a->psn, a->rkey, (unsigned long long)a->vaddr);

	for (unsigned i = 0; i < sizeof(a->gid.raw); i++)
		n += snprintf(text + n, ADDRESS_BYTES - (unsigned)n, "%02x:", a->gid.raw[i]);
	snprintf(text + n, ADDRESS_BYTES - (unsigned)n, "%08x:", 0); /* of an SRQ, for XRC */
}

static int
read_address(struct peer *p, char *text, struct peer_address *a)
{
	unsigned long long vaddr;
	unsigned srq = 0;
	int n = 0;

	text[ADDRESS_BYTES - 1] = '\0';
	if (sscanf(text, "%4x:%4x:%6x:%6x:%8x:%16llx:%n", &a->lid, &a->out_reads, &a->qpn, &a->psn,
		   &a->rkey, &vaddr, &n) != 6 ||
	    !n)
		return strange(p, "address");
	a->vaddr = vaddr;
	for (unsigned i = 0; i < sizeof(a->gid.raw); i++, n += 3) {
		unsigned byte;

		if (sscanf(text + n, "%2x:", &byte) != 1)
			return strange(p, "address");
		a->gid.raw[i] = (uint8_t)byte;
	}
	if (sscanf(text + n, "%8x:", &srq) != 1)
		return strange(p, "address");
	if (srq == 0)
		return 0;
	return peer_fail(
	    p, -EPROTO,
	    "%s: the other program names a shared receive queue, as of -c XRC or -c DC; "
	    "leave that out there: RC is offered, and UD by ud_send",
	    p->run.test->name);
}

/* Both say where a queue pair is. */
static int
greet(struct peer *p, uint32_t i, struct peer_address *theirs)
{
	char ours[ADDRESS_BYTES] = "", text[ADDRESS_BYTES];
	struct peer_address own;
	int rc;

	peer_own_address(p, i, &own);
	print_address(&own, ours);
	rc = peer_swap(p, ours, text, sizeof(ours));
	return rc ? rc : read_address(p, text, theirs);
}

/* The same once more, to wait for each other: as many queue pairs there, it is the same one. */
static int
greet_again(struct peer *p, uint32_t i)
{
	struct peer_address again;
	int rc = greet(p, i, &again);

	if (rc || again.qpn == p->qp[i].remote.qpn)
		return rc;
	return peer_fail(p, -EPROTO,
			 "%s: the other program names more than %u queue pairs; give as many by "
			 "+qN as -q says there",
			 p->run.test->name, p->run.qps);
}

static int
greet_all_again(struct peer *p)
{
	int rc = 0;

	for (uint32_t i = 0; i < p->run.qps && !rc; i++)
		rc = greet_again(p, i);
	return rc;
}

static bool
is_ip4(const struct nic_gid *gid)
{
	static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};

	return !memcmp(gid->raw, prefix, sizeof(prefix));
}

/* On InfiniBand a GID may be left out: all 0. */
static int
check_gid(struct peer *p, const struct nic_gid *gid)
{
	static const struct nic_gid none;

	if (!memcmp(gid, &none, sizeof(none)) || is_ip4(gid) == is_ip4(&p->attr.gid))
		return 0;
	return peer_fail(p, -EPROTO,
			 "%s: the other program's address is IPv%u, ours is not; give the index of "
			 "another GID by -x there, or another ip= here",
			 p->run.test->name, is_ip4(gid) ? 4 : 6);
}

static int
shake_hands(struct peer *p)
{
	int rc = 0;

	for (uint32_t i = 0; i < p->run.qps && !rc; i++) {
		rc = greet(p, i, &p->qp[i].remote);
		if (!rc)
			rc = check_gid(p, &p->qp[i].remote.gid);
		if (!rc && i && p->qp[i].remote.qpn == p->qp[0].remote.qpn)
			rc =
			    peer_fail(p, -EPROTO,
				      "%s: the other program names %u queue pairs, not %u; give as "
				      "many by +qN as -q says there",
				      p->run.test->name, i, p->run.qps);
	}
	for (uint32_t i = 0; i < p->run.qps && !rc; i++)
		rc = peer_connect(p, i);
	return rc;
}

/* The other end's rights in the region. */
static unsigned
access_of(const struct peer_test *test)
{
	switch (test->op) {
	case PEER_WRITE:
		return NIC_REMOTE_WRITE;
	case PEER_READ:
		return NIC_REMOTE_READ;
	case PEER_FADD:
	case PEER_CAS:
		return NIC_REMOTE_ATOMIC;
	default:
		return 0;
	}
}

static int
begin(struct peer *p)
{
	const struct peer_test *test = p->run.test;
	int rc;

	p->cycle = CYCLE;
	p->line = LINE;
	rc = agree_version(p);
	if (!rc)
		rc = agree_size(p, &p->cycle, PEER_CYCLE_MAX);
	if (!rc)
		rc = agree_size(p, &p->line, PEER_CYCLE_MAX);
	if (!rc)
		rc = agree_mtu(p);
	if (!rc)
		rc = peer_prepare(p, access_of(test));
	if (!rc)
		rc = shake_hands(p);
	if (!rc && (test->op == PEER_SEND || test->latency))
		rc = greet_again(p, 0);
	if (!rc)
		rc = greet_all_again(p);
	if (!rc && test->op != PEER_SEND)
		rc = greet_again(p, 0);
	return rc;
}

/* Size, count, and rates, which are ignored. An end that does nothing says anything. */
static int
swap_results(struct peer *p)
{
	uint64_t ours[RESULTS] = {p->run.size, p->count * p->run.qps}, theirs[RESULTS] = {0};
	uint64_t size, count;
	int rc = 0;

	for (unsigned i = 0; i < RESULTS && !rc; i++) {
		ours[i] = htobe64(ours[i]);
		rc = peer_swap(p, &ours[i], &theirs[i], sizeof(ours[i]));
	}
	if (rc || !peer_suffers(p))
		return rc;
	size = be64toh(theirs[0]);
	count = be64toh(theirs[1]);
	if (size == p->run.size && (p->run.seconds || count == p->count * p->run.qps))
		return 0;
	return peer_fail(p, -EBADMSG,
			 "%s: the other program did %llu operations of %llu bytes; give the same "
			 "-n, size and options at both ends",
			 p->run.test->name, (unsigned long long)count, (unsigned long long)size);
}

/* Behind the operations of one size. each: sizes follow each other, and both ends wait for that. */
static int
end_size(struct peer *p, bool each)
{
	bool send = p->run.test->op == PEER_SEND;
	int rc = 0;

	if (p->run.test->latency)
		return 0;
	if (!send)
		rc = greet_again(p, 0);
	if (!rc && (send ? p->run.both && !p->run.seconds : true))
		rc = swap_results(p);
	if (!rc && send && each)
		rc = greet_again(p, 0);
	return rc;
}

/* All sizes of -a, or the one. */
static int
move_all(struct peer *p)
{
	bool send = p->run.test->op == PEER_SEND, all = p->run.all;
	bool each = all && (send || (p->run.both && !p->run.test->latency));
	uint32_t largest = p->run.size;
	int rc = 0;

	for (uint32_t size = all ? SIZE_FIRST : largest; size <= largest && !rc; size *= 2) {
		p->run.size = size;
		if (send || each)
			rc = greet_again(p, 0);
		if (!rc)
			rc = peer_move(p);
		if (!rc && (each || size == largest))
			rc = end_size(p, each);
	}
	return rc;
}

static int
end(struct peer *p)
{
	const struct peer_test *test = p->run.test;
	char ours[] = "done", theirs[sizeof(ours)];
	int rc;

	if (test->op == PEER_WRITE && test->latency)
		return peer_await_end(p); /* they just go */
	rc = greet_again(p, 0);
	if (!rc)
		rc = peer_tell(p, ours, sizeof(ours));
	return rc ? rc : peer_hear(p, theirs, sizeof(theirs));
}

int
peer_perftest(struct peer *p)
{
	int rc = begin(p);

	if (!rc)
		rc = move_all(p);
	if (!rc)
		rc = end(p);
	if (!rc && p->remote.length)
		rc = peer_inspect(p);
	peer_release(p);
	return rc;
}

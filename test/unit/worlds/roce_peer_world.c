/* SPDX-License-Identifier: BSD-3-Clause */
#include "roce_peer_world.h"
#include "words.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct peer p;
struct peer_options o;
uint32_t connected, moved, lingered;
char reason[256];
static uint8_t memory[PEER_SIZE_MAX + 4 * PEER_CYCLE_MAX];

int
peer_fail(struct peer *q, int rc, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(q->error, sizeof(q->error), format, args);
	va_end(args);
	return rc;
}

uint64_t
peer_now(void)
{
	return 1;
}

int
peer_turn(struct peer *q, struct nic_wc *wc)
{
	fail_msg("there is nothing to wait for");
	return -EIO;
}

int
peer_turn_aside(struct peer *q)
{
	return 0;
}

int
peer_turn_before(struct peer *q, bool first)
{
	return 0;
}

int
peer_reuse(struct peer *q, const struct nic_wc *wc)
{
	return 0;
}

int
peer_send(struct peer *q, struct peer_qp *qp)
{
	return 0;
}

int
peer_linger(struct peer *q)
{
	lingered++;
	return 0;
}

int
peer_prepare(struct peer *q, unsigned access)
{
	q->qps = q->run.qps;
	q->region_bytes = q->cycle > peer_step(q) ? q->cycle : peer_step(q);
	peer_prime(q);
	return 0;
}

void
peer_release(struct peer *q)
{
}

void
peer_own_address(const struct peer *q, uint32_t i, struct peer_address *a)
{
	*a = (struct peer_address){.lid = 3,
				   .out_reads = 16,
				   .qpn = 0xabcdef + i,
				   .psn = 0xfffff8,
				   .rkey = 0xc0ffee,
				   .vaddr = 0x1122334455667788,
				   .gid = q->attr.gid};
}

int
peer_connect(struct peer *q, uint32_t i)
{
	connected++;
	return 0;
}

int
peer_move(struct peer *q)
{
	moved++;
	return 0;
}

int
parse(const char *words)
{
	char *argv[WORDS_MAX];
	int argc = words_split("weir-roce-peer", words, argv), rc;

	reason[0] = '\0';
	rc = peer_options_parse(&o, argc, argv, reason, sizeof(reason));
	assert_true(!rc || strstr(reason, "; ") || strstr(reason, " (expected "));
	return rc;
}

void
peer_world_begin(const char *role, const char *run)
{
	char words[128];

	snprintf(words, sizeof(words), NIC "%s -n 5 -q 3 -t %s", role, run);
	assert_int_equal(parse(words), 0);
	memset(&p, 0, sizeof(p));
	p.options = &o;
	p.run = o.run[0];
	p.count = 5;
	p.attr.mtu = 4096;
	p.attr.gid.raw[10] = p.attr.gid.raw[11] = 0xff;
	p.attr.gid.raw[12] = 10;
	p.attr.gid.raw[15] = 1;
	p.cycle = p.line = 64;
	p.out = memory;
	p.region = memory + PEER_CYCLE_MAX + PEER_MARGIN;
	connected = moved = lingered = 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contents. We send a pattern, which the pingpongs send back, since they send from where they
 * receive. Perftest sends random bytes, but the same ones each time; the bytes that it must not
 * touch are known.
 */
#include "roce_peer.h"

#include <errno.h>
#include <string.h>

#define PAGE 4096u
#define BACKGROUND 0xa5

/* The check of ibv_rc_pingpong -c wants a 0 at the begin of each page. */
static uint8_t
pattern(uint32_t i, uint64_t seed)
{
	return i % PAGE ? (uint8_t)(i * 7 + (i >> 8) * 13 + seed * 31) | 1u : 0;
}

void
peer_fill(uint8_t *data, uint32_t n, uint64_t seed)
{
	for (uint32_t i = 0; i < n; i++)
		data[i] = pattern(i, seed);
}

bool
peer_filled(const uint8_t *data, uint32_t n, uint64_t seed)
{
	for (uint32_t i = 0; i < n; i++)
		if (data[i] != pattern(i, seed))
			return false;
	return true;
}

uint32_t
peer_step(const struct peer *p)
{
	return (p->run.size + p->line - 1) / p->line * p->line;
}

uint32_t
peer_places(const struct peer *p)
{
	if (p->run.test->latency || p->run.size > p->cycle / 2)
		return 1;
	return p->cycle / peer_step(p);
}

uint32_t
peer_region(const struct peer *p, const struct peer_qp *q)
{
	return (uint32_t)(q - p->qp) * p->region_bytes;
}

static uint32_t
all_bytes(const struct peer *p)
{
	return p->run.qps * p->region_bytes;
}

static bool
is_atomic(const struct peer *p)
{
	return p->run.test->op >= PEER_FADD;
}

/* The initial contents of the region; READs are to bring something. */
static uint8_t
background(const struct peer *p, uint32_t i)
{
	return p->run.test->op == PEER_READ ? pattern(i, 0) : BACKGROUND;
}

void
peer_prime(struct peer *p)
{
	uint64_t one = 1;

	memset(p->region - PEER_MARGIN, BACKGROUND, all_bytes(p) + 2 * PEER_MARGIN);
	for (uint32_t i = 0; i < all_bytes(p); i++)
		p->region[i] = background(p, i);
	for (uint32_t i = 0; is_atomic(p) && i < all_bytes(p); i += sizeof(one))
		memcpy(p->region + i, &one, sizeof(one));
}

static int
spoilt(struct peer *p, int64_t at)
{
	return peer_fail(p, -EBADMSG,
			 "%s: byte %lld of the %u that the other end may touch is not what it must "
			 "be; the drivers disagree, capture the port",
			 p->run.test->name, (long long)at, all_bytes(p));
}

/* Words were 1: FETCH_ADD of 1 adds up; their CMP_SWAP expects 0 and changes nothing, ours does. */
static int
inspect_atomics(struct peer *p)
{
	uint64_t sum = 0, word, count = p->count * p->run.qps;

	for (uint32_t i = 0; i < all_bytes(p); i += sizeof(word)) {
		memcpy(&word, p->region + i, sizeof(word));
		if (word != 1 && i % p->line)
			return spoilt(p, i);
		sum += word - 1;
	}
	p->verified += peer_suffers(p) ? all_bytes(p) : 0;
	if (!peer_suffers(p))
		count = 0;
	if (sum == count || (!sum && p->run.test->op == PEER_CAS))
		return 0;
	/* nobody says how many there were in a given time */
	if (p->run.seconds && sum && count)
		return 0;
	return peer_fail(p, -EBADMSG,
			 "%s: %llu were added by %llu operations; the same -n at both ends?",
			 p->run.test->name, (unsigned long long)sum, (unsigned long long)count);
}

/* Whether the other end writes offset i of a region. */
static bool
is_target(const struct peer *p, uint32_t i)
{
	uint64_t places = peer_places(p) < p->count ? peer_places(p) : p->count;

	if (p->run.test->op != PEER_WRITE || i >= places * peer_step(p) ||
	    !(peer_suffers(p) || p->run.test->latency))
		return false;
	return i % peer_step(p) < p->run.size;
}

/* Random bytes that all equal the background are not to be believed. */
static int
inspect_bytes(struct peer *p)
{
	uint32_t targets = 0, same = 0;

	for (uint32_t i = 0; i < all_bytes(p); i++) {
		bool kept = p->region[i] == background(p, i);

		if (is_target(p, i % p->region_bytes)) {
			targets++;
			same += kept;
		} else if (!kept) {
			return spoilt(p, i);
		}
	}
	p->verified += targets;
	if (targets <= 16 || same <= targets / 4)
		return 0;
	return peer_fail(p, -EBADMSG, "%s: %u of %u bytes have not been written; capture the port",
			 p->run.test->name, same, targets);
}

int
peer_inspect(struct peer *p)
{
	for (uint32_t i = 1; i <= PEER_MARGIN; i++) {
		if (p->region[-(int64_t)i] != BACKGROUND)
			return spoilt(p, -(int64_t)i);
		if (p->region[all_bytes(p) + i - 1] != BACKGROUND)
			return spoilt(p, all_bytes(p) + i - 1);
	}
	return is_atomic(p) ? inspect_atomics(p) : inspect_bytes(p);
}

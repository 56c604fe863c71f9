/* SPDX-License-Identifier: BSD-3-Clause */
/* Expected messages, compared with those that arrived. */
#include "oracle.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct sim_oracle {
	struct sim_flow flow[SIM_CONNS_MAX][2];
};

/* Around every border: slot, continuation, inline, block. */
static const uint32_t small[] = {0,   1,   8,	47,  48,  49,	64,   107, 108,
				 109, 500, 947, 948, 949, 4096, 8191, 8192};
#define SMALL (sizeof(small) / sizeof(small[0]))
/* Larger sizes come in turn, one per LARGE_EVERY messages. Segment of a WRITE, MTU. */
#define LARGE 7u
#define LARGE_EVERY 64u
static_assert(SMALL + LARGE == SIM_SIZE_CLASSES, "counts.h demands them all");

static uint32_t
large(const struct sim *s, uint32_t i)
{
	/* the smallest multiple of the MTU that goes by WRITE */
	uint32_t packets = (8192 / s->sc.mtu + 1) * s->sc.mtu;
	const uint32_t sizes[LARGE] = {8193,	    65535,   65536,	 65537,
				       packets - 1, packets, packets + 1};

	return sizes[i];
}

/* A number among all messages of the seed that may have any size. */
static bool
has_turn(const struct sim *s, uint32_t conn, uint32_t flow, uint32_t number, uint32_t *which)
{
	const struct sim_conn_plan *c = &s->sc.conn[conn];
	uint32_t at = c->first[flow] + number - (c->shared && flow == 0);

	*which = at / LARGE_EVERY % LARGE;
	return s->sc.bulk && at % LARGE_EVERY == s->sc.seed % LARGE_EVERY;
}

/* Which border sizes have been received. */
static void
note_size(struct sim *s, uint32_t length)
{
	for (uint32_t i = 0; i < SMALL + LARGE; i++)
		if (length == (i < SMALL ? small[i] : large(s, i - SMALL)))
			s->sizes |= UINT64_C(1) << i;
	s->counts.sizes = (uint64_t)__builtin_popcountll(s->sizes);
}

uint32_t
sim_message_length(const struct sim *s, uint32_t conn, uint32_t flow, uint32_t number)
{
	const struct sim_conn_plan *c = &s->sc.conn[conn];
	struct rng r = {sim_hash(s->sc.seed, conn * 2 + flow, number)};
	uint32_t kind;

	/* a name, and no more than the path's MTU holds besides the head */
	if (c->datagram)
		return 8 + rng_below(&r, s->sc.mtu - 16 - 8 + 1);
	/* the first message on a shared service says which connection it is */
	if (c->shared && flow == 0 && number == 0)
		return 16;
	if (has_turn(s, conn, flow, number, &kind))
		return large(s, kind);
	if (rng_chance(&r, c->bulky)) {
		kind = rng_below(&r, 8);
		if (kind < 3)
			return 8193;
		if (kind < 5)
			return 65537;
		return (uint32_t)rng_log(&r, 8193, s->sc.largest);
	}
	kind = rng_below(&r, 10);
	if (kind < 6)
		return small[rng_below(&r, SMALL)];
	return kind < 9 ? rng_below(&r, 949) : 949 + rng_below(&r, 8192 - 949 + 1);
}

#define WORD(base, i) (((base) + (i)) * 0x9e3779b97f4a7c15ull)

static uint64_t
base_of(uint32_t conn, uint32_t flow, uint32_t number)
{
	return sim_hash(0x5eed, conn * 2 + flow, number);
}

static uint64_t
name_of(uint32_t conn, uint32_t flow, uint32_t number)
{
	return 0xc0ull << 56 | (uint64_t)conn << 40 | (uint64_t)flow << 32 | number;
}

void
sim_message_fill(uint8_t *buf, uint32_t length, uint32_t conn, uint32_t flow, uint32_t number)
{
	uint64_t base = base_of(conn, flow, number), w;
	uint32_t i = 0;

	for (; i + 8 <= length; i += 8) {
		w = i ? WORD(base, i) : name_of(conn, flow, number);
		memcpy(buf + i, &w, 8);
	}
	w = WORD(base, i);
	memcpy(buf + i, &w, length - i);
}

bool
sim_message_is(const uint8_t *buf, uint32_t length, uint32_t conn, uint32_t flow, uint32_t number)
{
	uint64_t base = base_of(conn, flow, number), wrong = 0, w, have;
	uint32_t i = 0;

	for (; i + 8 <= length; i += 8) {
		memcpy(&have, buf + i, 8);
		wrong |= have ^ (i ? WORD(base, i) : name_of(conn, flow, number));
	}
	w = WORD(base, i);
	return !wrong && memcmp(buf + i, &w, length - i) == 0;
}

uint32_t
sim_message_conn(const void *buf, size_t length)
{
	uint64_t name;

	if (length != 16)
		return SIM_CONNS_MAX;
	memcpy(&name, buf, 8);
	if (name >> 56 != 0xc0 || (name & 0xffffffffffull) != 0)
		return SIM_CONNS_MAX;
	name = (name >> 40) & 0xffff;
	return name < SIM_CONNS_MAX ? (uint32_t)name : SIM_CONNS_MAX;
}

struct sim_flow *
sim_flow(struct sim *s, uint32_t conn, uint32_t flow)
{
	return &s->oracle->flow[conn][flow];
}

/* Of a datagram connection: which it is stands in it; once, whole, and no other connection's. */
static void
received_datagram(struct sim *s, uint32_t conn, uint32_t flow, const void *data, size_t length)
{
	struct sim_flow *f = sim_flow(s, conn, flow);
	uint32_t number = sim_message_number(data, length, 0);

	if (number >= f->accepted || length != sim_message_length(s, conn, flow, number) ||
	    !sim_message_is(data, (uint32_t)length, conn, flow, number))
		sim_fail(s, "connection %u flow %u: no datagram of it (%zu bytes, number %u)", conn,
			 flow, length, number);
	if (f->seen[number / 8] >> number % 8 & 1)
		sim_fail(s, "connection %u flow %u: datagram %u came twice", conn, flow, number);
	f->seen[number / 8] |= (uint8_t)(1 << number % 8);
	f->received++;
	s->counts.datagrams++;
	sim_trace(s, "connection %u flow %u: received datagram %u", conn, flow, number);
	sim_progress(s);
}

uint32_t
sim_message_number(const void *buf, size_t length, uint32_t otherwise)
{
	uint64_t name;

	if (length < 8)
		return otherwise;
	memcpy(&name, buf, 8);
	return (uint32_t)name;
}

void
sim_received(struct sim *s, uint32_t conn, uint32_t flow, const void *data, size_t length)
{
	struct sim_flow *f = sim_flow(s, conn, flow);
	uint32_t number = f->received, expected;
	uint64_t name = 0;

	if (s->sc.conn[conn].datagram) {
		received_datagram(s, conn, flow, data, length);
		return;
	}
	if (length >= 8)
		memcpy(&name, data, 8);
	if (number >= f->planned)
		sim_fail(s,
			 "connection %u flow %u: a message more than were sent (%zu bytes, %016lx)",
			 conn, flow, length, name);
	expected = sim_message_length(s, conn, flow, number);
	if (length != expected)
		sim_fail(s, "connection %u flow %u message %u: %zu bytes instead of %u (%016lx)",
			 conn, flow, number, length, expected, name);
	if (!sim_message_is(data, (uint32_t)length, conn, flow, number))
		sim_fail(s, "connection %u flow %u message %u of %u bytes: wrong content (%016lx)",
			 conn, flow, number, expected, name);
	if (number >= f->accepted)
		sim_fail(s, "connection %u flow %u message %u arrived before it was accepted", conn,
			 flow, number);
	f->received++;
	s->counts.messages++;
	note_size(s, expected);
	sim_trace(s, "connection %u flow %u: received %u (%u bytes)", conn, flow, number, expected);
	sim_progress(s);
}

void
sim_completed(struct sim *s, uint32_t conn, uint32_t flow, uint32_t number, int status)
{
	struct sim_flow *f = sim_flow(s, conn, flow);

	sim_trace(s, "connection %u flow %u: message %u complete, %d", conn, flow, number, status);
	f->notified++;
	if (f->notified > f->asked)
		sim_fail(s, "connection %u flow %u message %u: completed twice", conn, flow,
			 number);
	if (status == 0 && f->failed)
		sim_fail(s,
			 "connection %u flow %u message %u: complete after an earlier one failed",
			 conn, flow, number);
	if (status == 0 && number < f->completed)
		sim_fail(s, "connection %u flow %u message %u: completed out of order", conn, flow,
			 number);
	if (status == 0)
		f->completed = number + 1;
	else
		f->failed = true;
	sim_progress(s);
}

void
sim_flushed(struct sim *s, uint32_t conn, uint32_t flow, uint32_t number)
{
	struct sim_flow *f = sim_flow(s, conn, flow);

	if (f->completed < number)
		f->completed = number;
	sim_trace(s, "connection %u flow %u: all before %u complete", conn, flow, number);
}

static void
make_flow(struct sim_flow *f, const struct sim_conn_plan *c, uint32_t flow)
{
	f->planned = c->messages[flow];
	if (!c->datagram)
		return;
	f->seen = calloc(1, f->planned / 8 + 1);
	if (!f->seen)
		abort();
}

void
sim_oracle_create(struct sim *s)
{
	s->oracle = calloc(1, sizeof(*s->oracle));
	if (!s->oracle)
		abort();
	for (uint32_t c = 0; c < s->sc.conns; c++)
		for (uint32_t i = 0; i < 2; i++)
			make_flow(&s->oracle->flow[c][i], &s->sc.conn[c], i);
}

void
sim_oracle_destroy(struct sim *s)
{
	for (uint32_t c = 0; c < s->sc.conns; c++)
		for (uint32_t i = 0; i < 2; i++)
			free(s->oracle->flow[c][i].seen);
	free(s->oracle);
	s->oracle = NULL;
}

/* The connection may have ended early: a program died or a node was cut off. */
bool
sim_conn_excused(const struct sim *s, uint32_t conn)
{
	const struct sim_conn_plan *c = &s->sc.conn[conn];

	/* the queue pair that it shares with others isn't repaired */
	if (c->hasty || (c->datagram && s->sc.faults))
		return true;
	for (uint32_t i = 0; i < 2; i++) {
		const struct sim_program_plan *p = &s->sc.program[c->program[i]];

		if (p->killed_at != SIM_NEVER ||
		    (s->sc.cut_at != SIM_NEVER && p->node == s->sc.cut_node))
			return true;
	}
	return false;
}

static void
check_flow(struct sim *s, uint32_t conn, uint32_t flow)
{
	struct sim_flow *f = sim_flow(s, conn, flow);

	/* status 0 and lost */
	if (!f->receiver_gone && !s->sc.conn[conn].datagram && f->completed > f->received)
		sim_fail(s, "connection %u flow %u: %u messages complete, %u received", conn, flow,
			 f->completed, f->received);
	if (!f->sender_gone && f->notified != f->asked)
		sim_fail(s, "connection %u flow %u: %u of %u completions reported", conn, flow,
			 f->notified, f->asked);
	if (sim_conn_excused(s, conn))
		return;
	if (f->failed)
		sim_fail(s, "connection %u flow %u: messages failed on a sound connection", conn,
			 flow);
	if (f->received != f->planned && !s->sc.conn[conn].datagram)
		sim_fail(s, "connection %u flow %u: %u of %u messages received", conn, flow,
			 f->received, f->planned);
}

void
sim_oracle_check(struct sim *s)
{
	for (uint32_t c = 0; c < s->sc.conns; c++)
		for (uint32_t i = 0; !s->sc.conn[c].unknown && i < 2; i++)
			check_flow(s, c, i);
}

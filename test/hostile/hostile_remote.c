/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of others, whose key is in the file HOSTILE_KEY: operations that are wrong in each field,
 * keys that are forged. The owner looks after the memory that the key does not name.
 */
#define _GNU_SOURCE
#include "hostile.h"

#include "ipc/key.h"
#include "ipc/pieces.h"
#include "weir/remote.h"
#include "weir/type.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT 16384u /* bytes of the memory */
#define CELLS 48u     /* operations of a connection */
#define OPEN_MS 3000

static void
read_key(struct weir_key_fields *key)
{
	const char *path = getenv("HOSTILE_KEY");
	FILE *f = path ? fopen(path, "re") : NULL;
	bool ok = f && fread(key, sizeof(*key), 1, f) == 1 && weir_key_ok(key);

	if (f)
		fclose(f);
	if (!ok) {
		fprintf(stderr, "hostile: no key in %s; give HOSTILE_KEY\n",
			path ? path : "(none)");
		exit(2);
	}
}

/* A connection to the memory, from the channel of v. */
static int
open_memory(struct victim *v, const struct weir_key_fields *key, uint32_t rights)
{
	struct weir_session_msg m = {.type = WEIR_MSG_OPEN}, r;
	int fds[FDS];

	m.open.channel = v->channel;
	m.open.rights = rights;
	memcpy(m.open.key, key, sizeof(m.open.key));
	if (request(v, &m, &r, fds, WEIR_MSG_CONNECTING) || !r.connecting.vqpn)
		return -1;
	v->vqpn = r.connecting.vqpn;
	return 0;
}

/* A number that is a border of something, or any. */
static uint64_t
lie(void)
{
	static const uint64_t borders[] = {0,
					   1,
					   7,
					   WEIR_PUT_MAX,
					   WEIR_PUT_MAX + 1,
					   WEIR_ANSWER_MAX + 1,
					   EXPORT - 7,
					   EXPORT,
					   EXPORT + 1,
					   UINT32_MAX,
					   1ull << 32,
					   1ull << 63,
					   UINT64_MAX - 7,
					   UINT64_MAX};

	return rng() % 4 ? borders[rng() % (sizeof(borders) / sizeof(borders[0]))]
			 : rng() >> (rng() % 64);
}

/* One of 64 fields is wrong: one cell of ten. */
static uint64_t
maybe(uint64_t right)
{
	return rng() % 64 ? right : lie();
}

static uint64_t
offset(uint32_t align)
{
	return maybe(rng() % (EXPORT - WEIR_ANSWER_MAX) / align * align);
}

/* Fills a cell that is right but for what maybe() does. Returns its payload's bytes. */
static uint32_t
make_cell(const struct victim *v, uint8_t op, uint8_t data[WEIR_INLINE_MAX])
{
	uint32_t place = (uint32_t)((weir_arena_send(&v->geometry) + rng() % 64 * WEIR_BLOCK_SIZE) /
				    WEIR_SLOT_SIZE);
	struct weir_cell_access a = {.handle = (uint32_t)maybe(WEIR_HANDLE_FIRST),
				     .offset = offset(8),
				     .result = (uint32_t)maybe(place),
				     .count = (uint32_t)maybe(1 + rng() % 8)};
	struct weir_cell_put put = {.handle = a.handle, .options = (uint32_t)maybe(0)};
	struct weir_cell_notice n = {.handle = a.handle,
				     .options = (uint32_t)maybe(1 + rng() % 3),
				     .signal = offset(8),
				     .operand = rng(),
				     .reserved = maybe(0)};
	struct weir_cell_lock lock = {.handle = a.handle,
				      .kind =
					  (uint32_t)maybe(op == WEIR_OP_LOCK ? 1 + rng() % 2 : 0),
				      .result = op == WEIR_OP_LOCK ? a.result : 0};
	struct weir_cell_transfer t = {.place = WEIR_PLACE(0, (uint64_t)place * WEIR_SLOT_SIZE),
				       .handle = a.handle,
				       .options = (uint32_t)maybe(rng() % 4),
				       .offset = offset(1)};

	for (uint32_t i = 0; i < WEIR_INLINE_MAX; i += 4) {
		uint32_t x = (uint32_t)rng();

		memcpy(data + i, &x, sizeof(x));
	}
	t.place = maybe(t.place);
	switch (op) {
	case WEIR_OP_PUT:
		put.offset = offset(1);
		memcpy(data, &put, WEIR_PUT_FIELDS);
		return (uint32_t)maybe(rng() % WEIR_PUT_MAX);
	case WEIR_OP_UPDATE:
		a.type = (uint8_t)maybe(WEIR_T_INT64);
		a.acc = (uint8_t)maybe(WEIR_ACC_SUM);
		a.options = (uint16_t)maybe(rng() % 2);
		memcpy(data, &a, WEIR_ACCESS_FIELDS);
		return (uint32_t)maybe(8 * a.count);
	case WEIR_OP_CAS:
		a.type = (uint8_t)maybe(WEIR_T_INT32);
		a.count = (uint32_t)maybe(1);
		memcpy(data, &a, WEIR_ACCESS_FIELDS);
		return (uint32_t)maybe(8);
	case WEIR_OP_GET:
		a.count = (uint32_t)maybe(1 + rng() % WEIR_ANSWER_MAX);
		a.options = (uint16_t)maybe(0);
		memcpy(data, &a, WEIR_ACCESS_FIELDS);
		return (uint32_t)maybe(0);
	case WEIR_OP_NOTICE:
		memcpy(data, &n, sizeof(n));
		return (uint32_t)maybe(0);
	case WEIR_OP_TRANSFER:
		memcpy(data, &t, sizeof(t));
		return (uint32_t)maybe(1 + rng() % WEIR_BLOCK_SIZE);
	default: /* locks, flushes */
		memset(data, 0, WEIR_SLOT_HEAD_BYTES);
		if (op != WEIR_OP_FLUSH)
			memcpy(data, &lock, sizeof(lock));
		return (uint32_t)maybe(0);
	}
}

/* Operations, most of them right, until the data plane ends the session, or enough were done. */
void
do_cells(struct victim *v)
{
	static const uint8_t ops[] = {WEIR_OP_PUT,    WEIR_OP_PUT,    WEIR_OP_UPDATE,
				      WEIR_OP_UPDATE, WEIR_OP_CAS,    WEIR_OP_GET,
				      WEIR_OP_GET,    WEIR_OP_NOTICE, WEIR_OP_LOCK,
				      WEIR_OP_UNLOCK, WEIR_OP_FLUSH,  WEIR_OP_TRANSFER};
	uint8_t data[WEIR_INLINE_MAX];
	struct weir_key_fields key;
	unsigned i;

	read_key(&key);
	if (open_memory(v, &key,
			rng() % 4 ? WEIR_RIGHTS_KNOWN : (uint32_t)rng() & WEIR_RIGHTS_KNOWN))
		return;
	start_tx(v);
	usleep(rng() % 8 ? 5000 : 0); /* before it is open, every operation is wrong */
	for (i = 0; i < CELLS && !ended(v); i++) {
		uint8_t op = ops[rng() % sizeof(ops)];
		uint32_t length = make_cell(v, op, data), n = 1;
		bool fits = weir_op_is_cell(op) && weir_cell_length_ok(op, length);

		if (fits)
			n = weir_cell_slots(op, length);
		for (unsigned k = 0; k < 100 && !tx_room(v); k++)
			usleep(100);
		if (weir_ring_room(&v->tx) < n)
			break;
		next_slot(&v->tx, op, (uint16_t)maybe(i), (uint32_t)maybe(v->vqpn), length);
		weir_ring_put_inline(&v->tx, data,
				     fits ? weir_cell_fields(op) + length : WEIR_SLOT_HEAD_BYTES);
		weir_ring_publish(&v->tx, n);
		ring(v);
		tally(1, "cells");
		if (rng() % 8 == 0)
			usleep(500);
	}
	usleep(2000);
	tally(ended(v), "sessions ended");
	if (i == CELLS && !ended(v) && rng() % 2)
		close_unused(v, v->vqpn);
}

/* Keys with one bit flipped, whose sum is right. */
void
do_guesses(struct victim *v)
{
	struct weir *w = join();
	struct weir_key_fields key, guess;

	if (!w)
		return;
	read_key(&key);
	for (unsigned i = 0; i < 40 && left() > 0; i++) {
		struct weir_remote *r = NULL;
		unsigned bit = (unsigned)(rng() % (8 * offsetof(struct weir_key_fields, sum)));
		struct weir_key bytes;
		int rc;

		guess = key;
		((uint8_t *)&guess)[bit / 8] ^= (uint8_t)(1u << bit % 8);
		guess.sum = weir_key_sum(&guess);
		memcpy(&bytes, &guess, sizeof(bytes));
		rc = weir_remote_open(w, &bytes, WEIR_MAY_READ, WEIR_OPEN_APART, OPEN_MS, &r);
		if (!rc)
			violated("a forged key was accepted");
		tally(1, "guesses refused (%s)", strerrorname_np(-rc));
	}
	weir_detach(w);
}

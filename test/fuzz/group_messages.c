/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The messages of other programs about groups. The first byte tells which: 0 a request to join, 1
 * an answer, 2 a hello; else those of neighbours to a member that makes a collective call. There
 * the next five bytes tell size, rank, kind of the call, elements and how often sending fails.
 * Then, each time: an action, a neighbour, two bytes of length, and a message.
 */
#include "fuzz.h"

#include "group/exchange.h"
#include "group/join.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- joining ---- */

static void
joining(unsigned what, const uint8_t *data, size_t size)
{
	const struct join_request own = {.magic = GROUP_MAGIC,
					 .version = GROUP_VERSION,
					 .size = 1 + (size ? data[0] : 0),
					 .rank = WEIR_RANK_ANY,
					 .secret = "open sesame"};
	struct join_request r = {0};
	struct join_answer a = {0};
	struct group_hello h = {0};

	/* a message that is longer never gets into the buffer */
	if (what == 0 && size <= sizeof(r)) {
		memcpy(&r, data, size);
		if (!join_request_check(&own, &r, size))
			require(size == sizeof(r) && r.size == own.size && !r.flags &&
				!strcmp(r.secret, own.secret) &&
				(r.rank < own.size || r.rank == WEIR_RANK_ANY));
	} else if (what == 1 && size <= sizeof(a)) {
		memcpy(&a, data, size);
		if (join_answer_valid(&own, &a, size) && !a.status) {
			require(a.rank < own.size && a.count <= GROUP_NEIGHBOURS &&
				size == JOIN_ANSWER_BYTES(a.count));
			for (uint32_t i = 0; i < a.count; i++)
				require(a.neighbour[i].rank < own.size &&
					(own.size == 1 || a.neighbour[i].rank != a.rank));
		}
	} else if (what == 2 && size <= sizeof(h)) {
		memcpy(&h, data, size);
		if (group_hello_valid(&h, size))
			require(size == sizeof(h));
	}
}

/* ---- neighbours ---- */

struct outlet {
	uint8_t fails; /* of 16 */
	uint32_t sent;
};

static int
send_message(void *user, uint32_t neighbour, const struct iovec *parts, unsigned n, size_t length)
{
	struct outlet *out = user;
	size_t sum = 0;

	for (unsigned i = 0; i < n; i++)
		sum += parts[i].iov_len;
	require(sum == length && length >= sizeof(struct exchange_head) &&
		length <= sizeof(struct exchange_head) + EXCHANGE_FRAGMENT);
	return out->sent++ % 16 < out->fails % 16 ? -EAGAIN : 0;
}

static void
check(const struct exchange *x)
{
	int rc = exchange_error(x);

	require(!rc || rc == -EINVAL || rc == -ECONNRESET || rc == -EHOSTDOWN || rc == -ENOMEM);
	require(x->failures <= x->size + 1);
	for (uint32_t i = 0; i < x->neighbours; i++)
		require(x->neighbour[i].early <
			EXCHANGE_EARLY + sizeof(struct exchange_head) + EXCHANGE_FRAGMENT);
}

/* Exactly as long as the message, so that a read beyond it is seen. */
static void
input(struct exchange *x, uint32_t neighbour, const uint8_t *data, size_t length)
{
	uint8_t *copy = malloc(length ? length : 1);

	if (copy && length)
		memcpy(copy, data, length);
	if (copy)
		exchange_input(x, neighbour, copy, length);
	free(copy);
}

static void
neighbours(const uint8_t *data, size_t size)
{
	uint32_t members = 1 + data[0] % 32, n = 1 + data[3];
	struct outlet out = {.fails = data[4]};
	uint8_t *mine = calloc(members, 8 * n), *all = calloc(members, 8 * n);
	struct collective_call call = {.kind = COLLECTIVE_BARRIER + data[2] % 5,
				       .mine = mine,
				       .all = all,
				       .root = data[2] % members,
				       .length = 8 * n,
				       .type = WEIR_T_UINT64,
				       .op = WEIR_ACC_SUM};
	struct exchange x;

	if (!mine || !all || exchange_init(&x, data[1] % members, members))
		abort();
	x.send = send_message;
	x.user = &out;
	data += 5;
	size -= 5;
	while (size >= 4) {
		uint32_t action = data[0], neighbour = x.neighbours ? data[1] % x.neighbours : 0;
		size_t length = data[2] | (size_t)data[3] << 8;

		data += 4;
		size -= 4;
		length = length < size ? length : size;
		if (!x.begun && !exchange_error(&x) && action & 1)
			require(!exchange_begin(&x, &call));
		if (x.neighbours && exchange_wants(&x, neighbour))
			input(&x, neighbour, data, length);
		if (action & 2)
			exchange_step(&x);
		if (action & 4)
			exchange_announce(&x);
		if (action & 8)
			exchange_tell(&x);
		if (x.neighbours && (action & 0xf0) == 0xf0)
			exchange_ended(&x, neighbour, action & 1 ? -ECONNRESET : 0);
		check(&x);
		data += length;
		size -= length;
	}
	exchange_free(&x);
	free(mine);
	free(all);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size && data[0] < 3)
		joining(data[0], data + 1, size - 1);
	else if (size >= 6)
		neighbours(data + 1, size - 1);
	return 0;
}

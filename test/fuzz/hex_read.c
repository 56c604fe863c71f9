/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bytes that another process of a tree search sends. If the first byte is even: a position of Hex,
 * behind the size of its board; what is accepted is the position of those bytes. If it is odd:
 * messages of 64 bytes to a process that searches, whose node may be one of its own; whatever they
 * are, its tree stays one in memory.
 */
#include "hex/board.h"
#include "hex/node.h"
#include "hex/search.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE 64u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
require(bool good)
{
	if (!good)
		abort();
}

static void
read_position(unsigned board_size, const uint8_t *data, size_t size)
{
	struct game g = board_game(board_size, false);
	uint8_t again[2 * BOARD_CELLS + 2];
	uint64_t hash = 0;
	struct board b;

	if (g.read(&g, &b, data, size))
		return;
	require(size <= g.state_max && g.write(&b, again) == size && !memcmp(again, data, size));
	for (unsigned i = 0; i < b.count; i++)
		hash = g.hash_after(hash, b.history[i], i % 2 ? -1 : 1);
	require(g.hash(&b) == hash);
}

/* Nowhere: the messages of this process. */
static void
call(struct mcts_port *p, uint32_t to, const struct mcts_message *m, size_t bytes)
{
	(void)p;
	(void)m;
	require(to < 2 && bytes <= MCTS_MESSAGE_MAX);
}

static uint64_t
zero(struct mcts_port *p)
{
	(void)p;
	return 0;
}

static void
receive(const uint8_t *data, size_t size)
{
	struct mcts_port port = {call, zero, zero};
	struct game g = board_game(3, false);
	struct mcts_options o = {&g, 2, 1, .nodes_max = 64, .seed = 1};
	struct mcts m;
	uint64_t root;
	struct board b;

	require(!mcts_open(&m, &o, &port));
	board_start(&b, 3);
	memcpy(m.threads->position, &b, sizeof(b));
	root = node_new(m.threads, 0, 0)->name;
	m.front.root = root;
	for (; size >= MESSAGE; data += MESSAGE, size -= MESSAGE) {
		union {
			struct mcts_message m;
			uint8_t bytes[MESSAGE];
		} u;
		uint64_t node, other;

		memcpy(u.bytes, data, MESSAGE);
		u.m.kind %= STATS + 2;
		u.m.count %= 100; /* no more work than that */
		/* nodes are named by their slot, if the name begins with 0xff */
		node = u.m.node;
		if (node >> 56 == 0xff)
			u.m.node = (root & ~UINT64_C(0xffffffff)) | (node & 63);
		other = u.m.other;
		if (other >> 56 == 0xff)
			u.m.other = (root & ~UINT64_C(0xffffffff)) | (other & 63);
		mcts_receive(m.threads, other >> 55 & 1, &u.m, MESSAGE - (node >> 48) % 32);
		for (unsigned i = 0; i < 200 && mcts_step(m.threads); i++)
			;
		require(m.threads->counts.nodes <= o.nodes_max + 64); /* roots */
	}
	mcts_close(&m);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 2)
		return 0;
	if (data[0] % 2)
		receive(data + 1, size - 1);
	else if (data[1] >= BOARD_LEAST && data[1] <= BOARD_MOST)
		read_position(data[1], data + 2, size - 2);
	return 0;
}

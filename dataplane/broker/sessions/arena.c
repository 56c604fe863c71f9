/* SPDX-License-Identifier: BSD-3-Clause */
/* Geometry and memory of arenas. */
#include "arena.h"
#include "sigbus.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <string.h>

#define BLOCKS_MIN 64u /* receive blocks per engine, and send blocks: one or two bulk messages */
#define DESC_SHARE (16 * sizeof(struct weir_conn_desc)) /* bytes of arena per connection */
#define CONNECTIONS_MIN 64u
#define RING_SLOTS_MIN 128u

/* Limits descriptors to 1/16 of an arena; in a small one, also channels to 1/4, but for rings of
 * 128 slots. */
static void
shrink(struct weir_geometry *g, uint64_t bytes, bool small)
{
	uint64_t connections = bytes / DESC_SHARE;

	if (connections < CONNECTIONS_MIN)
		connections = CONNECTIONS_MIN;
	if (g->connections > connections)
		g->connections = (uint32_t)connections;
	while (small && g->ring_slots > RING_SLOTS_MIN &&
	       g->channels * weir_channel_bytes(g) > bytes / 4)
		g->ring_slots /= 2;
}

int
arena_geometry(const struct arena_limits *limits, uint64_t wish, struct weir_geometry *g)
{
	uint64_t bytes = wish && wish < limits->bytes ? wish : limits->bytes;
	uint64_t fixed, least, recv;

	*g = (struct weir_geometry){
	    .magic = WEIR_ARENA_MAGIC,
	    .version = WEIR_LAYOUT_VERSION,
	    .connections = limits->connections,
	    .channels = limits->channels,
	    .ring_slots = limits->ring_slots,
	    .engines = limits->engines,
	};
	shrink(g, bytes, false);
	fixed = weir_arena_recv(g);
	least = fixed + (uint64_t)BLOCKS_MIN * (limits->engines + 1) * WEIR_BLOCK_SIZE;
	if (least > limits->bytes)
		return -EINVAL;
	shrink(g, bytes, bytes < limits->bytes);
	fixed = weir_arena_recv(g);
	least = fixed + (uint64_t)BLOCKS_MIN * (limits->engines + 1) * WEIR_BLOCK_SIZE;
	if (bytes < least)
		bytes = least;
	bytes = WEIR_ALIGN_UP(bytes, MEMFD_HUGE_PAGE);
	recv = bytes / 2;
	if (recv + fixed + BLOCKS_MIN * WEIR_BLOCK_SIZE > bytes)
		recv = (bytes - fixed) / 2;
	recv = recv / WEIR_BLOCK_SIZE / limits->engines * limits->engines;
	g->recv_blocks = (uint32_t)recv;
	g->send_blocks = (uint32_t)((bytes - weir_arena_send(g)) / WEIR_BLOCK_SIZE);
	g->bytes = bytes;
	return 0;
}

void
arena_recv_part(const struct weir_geometry *g, uint32_t engine, uint64_t *offset, uint64_t *bytes)
{
	uint64_t from = (uint64_t)engine * g->recv_blocks / g->engines;
	uint64_t to = (uint64_t)(engine + 1) * g->recv_blocks / g->engines;

	weir_assert(engine < g->engines);
	*offset = weir_arena_recv(g) + from * WEIR_BLOCK_SIZE;
	*bytes = (to - from) * WEIR_BLOCK_SIZE;
}

static int
begin(struct arena *a, int huge)
{
	const struct weir_geometry *g = &a->geometry;
	struct memfd_part part[WEIR_ENGINES_MAX + 1];
	uint64_t offset, bytes;
	int rc;

	part[0] = (struct memfd_part){0, g->bytes, a->numa_socket[0]};
	for (uint32_t i = 0; i < g->engines; i++) {
		arena_recv_part(g, i, &offset, &bytes);
		part[i + 1] = (struct memfd_part){offset, bytes, a->numa_socket[i]};
	}
	rc = memfd_begin("weir-arena", g->bytes, huge, part, g->engines + 1, &a->memory);
	if (rc)
		return rc;
	rc = memfd_go_on(&a->memory, MEMFD_PIECE);
	if (rc < 0) {
		huge = a->memory.page == MEMFD_HUGE_PAGE;
		memfd_close(&a->memory);
		return huge ? begin(a, 0) : rc;
	}
	arena_head(a)->geometry = *g;
	return 0;
}

int
arena_begin(const struct weir_geometry *g, const int *numa_socket, int notify_fd, struct arena *a)
{
	a->geometry = *g;
	a->guard = -1;
	a->notify_fd = notify_fd;
	memcpy(a->numa_socket, numa_socket, g->engines * sizeof(*numa_socket));
	return begin(a, 1);
}

int
arena_go_on(struct arena *a)
{
	int rc = memfd_go_on(&a->memory, MEMFD_PIECE);

	weir_assert(a->guard < 0);
	if (rc < 0 && a->memory.page == MEMFD_HUGE_PAGE) {
		memfd_close(&a->memory);
		rc = begin(a, 0);
		return rc ? rc : 1;
	}
	if (rc)
		return rc;
	a->guard = sigbus_guard_add(a->memory.base, a->memory.bytes, a->memory.page, a->notify_fd);
	return a->guard < 0 ? a->guard : 0;
}

bool
arena_cut(struct arena *a)
{
	return sigbus_guard_cut(a->guard);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Segments between local programs. */
#define _GNU_SOURCE
#include "segment.h"
#include "memfd.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static void
fill_geometry(struct weir_segment_geometry *g)
{
	*g = (struct weir_segment_geometry){
	    .magic = WEIR_SEGMENT_MAGIC,
	    .version = WEIR_LAYOUT_VERSION,
	    .ring_slots = SEGMENT_RING_SLOTS,
	    .connections = SEGMENT_CONNECTIONS,
	    .area_bytes = SEGMENT_AREA_BYTES,
	};
	g->bytes = WEIR_ALIGN_UP(weir_segment_end(g), 4096);
}

uint64_t
segment_bytes(void)
{
	struct weir_segment_geometry g;

	fill_geometry(&g);
	return g.bytes;
}

/* Ordinary pages: lines are reset by pwrite(), which can't fault and which hugetlbfs lacks. */
static int
memory_open(struct segment *g, int numa_socket)
{
	struct memfd_part part = {.numa_socket = numa_socket};
	int rc;

	fill_geometry(&g->geometry);
	part.length = g->geometry.bytes;
	rc = memfd_open("weir-segment", g->geometry.bytes, 0, &part, 1, &g->memory);
	if (rc)
		return rc;
	memcpy(g->memory.base, &g->geometry, sizeof(g->geometry));
	memfd_unmap(&g->memory); /* only the programs need to see it */
	return 0;
}

struct segment *
segment_open(int numa_socket)
{
	struct segment *g = calloc(1, sizeof(*g));
	int rc;

	if (!g)
		return NULL;
	g->doorbell[0] = g->doorbell[1] = -1;
	g->memory = (struct memfd){.fd = -1, .base = MAP_FAILED};
	rc = memory_open(g, numa_socket);
	if (!rc && socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, g->doorbell))
		rc = -errno;
	if (rc) {
		segment_close(g);
		errno = -rc;
		return NULL;
	}
	for (uint32_t i = 0; i < SEGMENT_CONNECTIONS; i++)
		g->free_index[i] = (uint16_t)(SEGMENT_CONNECTIONS - 1 - i);
	g->free_count = SEGMENT_CONNECTIONS;
	return g;
}

void
segment_close(struct segment *g)
{
	if (!g)
		return;
	for (int i = 0; i < 2; i++)
		if (g->doorbell[i] >= 0)
			close(g->doorbell[i]);
	memfd_close(&g->memory);
	free(g);
}

int
segment_take(struct segment *g, uint32_t *index)
{
	static const struct weir_segment_conn zero;
	uint32_t i;

	if (!g->free_count)
		return -ENOSPC;
	i = g->free_index[g->free_count - 1];
	for (uint32_t d = 0; d < 2; d++) {
		off_t at = (off_t)(weir_segment_conns_at(&g->geometry, d) + i * sizeof(zero));

		if (pwrite(g->memory.fd, &zero, sizeof(zero), at) != (ssize_t)sizeof(zero))
			return -ENOMEM;
	}
	g->free_count--;
	g->users[i] = 2;
	g->side[0].ends++;
	g->side[1].ends++;
	*index = i;
	return 0;
}

uint64_t
segment_messages(const struct segment *g, uint32_t index)
{
	uint64_t sum = 0;

	for (uint32_t d = 0; d < 2 && index < SEGMENT_CONNECTIONS; d++) {
		size_t at = weir_segment_conns_at(&g->geometry, d) +
			    index * sizeof(struct weir_segment_conn) +
			    offsetof(struct weir_segment_conn, received);
		uint64_t n;

		if (pread(g->memory.fd, &n, sizeof(n), (off_t)at) == (ssize_t)sizeof(n))
			sum += n;
	}
	return sum;
}

void
segment_give(struct segment *g, uint32_t index, uint32_t side)
{
	assert(g->users[index] && g->side[side].ends);
	g->side[side].ends--;
	if (--g->users[index] == 0)
		g->free_index[g->free_count++] = (uint16_t)index;
}

bool
segment_open_to_new(const struct segment *g)
{
	return g->free_count && !g->side[0].dropped && !g->side[1].dropped;
}

static bool
done(const struct segment_side *s)
{
	return !s->session || s->dropped;
}

bool
segment_unused(const struct segment *g)
{
	const struct segment_side *a = &g->side[0], *b = &g->side[1];

	return !a->ends && !b->ends &&
	       ((done(a) && (done(b) || b->fetched)) || (done(b) && a->fetched));
}

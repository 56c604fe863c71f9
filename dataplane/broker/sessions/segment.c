/* SPDX-License-Identifier: BSD-3-Clause */
/* Segments between local programs. */
#define _GNU_SOURCE
#include "segment.h"
#include "memfd.h"
#include "sigbus.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

const struct segment_shape segment_streams = {
    .connections = 1024, .ring_slots = 512, .area_bytes = 1ull << 19};

static struct weir_segment_geometry
geometry_of(const struct segment_shape *shape)
{
	struct weir_segment_geometry g = {
	    .magic = WEIR_SEGMENT_MAGIC,
	    .version = WEIR_LAYOUT_VERSION,
	    .ring_slots = shape->ring_slots,
	    .connections = shape->connections,
	    .area_bytes = shape->area_bytes,
	};

	g.bytes = WEIR_ALIGN_UP(weir_segment_end(&g), 4096);
	return g;
}

uint64_t
segment_bytes(const struct segment_shape *shape)
{
	return geometry_of(shape).bytes;
}

struct segment *
segment_open(const struct segment_shape *shape, int numa_socket)
{
	struct segment *g = calloc(1, sizeof(*g) + shape->connections * sizeof(g->entry[0]));
	struct memfd_part part = {.numa_socket = numa_socket};
	int rc;

	if (!g)
		return NULL;
	g->geometry = geometry_of(shape);
	part.length = g->geometry.bytes;
	g->guard = -1;
	g->memory = (struct memfd){.fd = -1, .base = MAP_FAILED};
	rc = weir_bell_open(g->bell);
	/* ordinary pages: the kernel refills a hole that a program punches; hugetlbfs may not */
	if (!rc)
		rc = memfd_open("weir-segment", g->geometry.bytes, 0, &part, 1, &g->memory);
	if (!rc) {
		g->guard = sigbus_guard_add(g->memory.base, g->memory.bytes, g->memory.page, -1);
		rc = g->guard < 0 ? g->guard : 0;
	}
	if (rc) {
		segment_close(g);
		errno = -rc;
		return NULL;
	}
	memcpy(g->memory.base, &g->geometry, sizeof(g->geometry));
	g->free_count = shape->connections;
	for (uint32_t i = 0; i < g->free_count; i++)
		g->entry[i].free = g->free_count - 1 - i;
	return g;
}

void
segment_close(struct segment *g)
{
	if (!g)
		return;
	for (int i = 0; i < 2; i++)
		weir_bell_close(&g->bell[i]);
	sigbus_guard_remove(g->guard);
	memfd_close(&g->memory);
	free(g);
}

struct memfd
segment_take_memory(struct segment *g)
{
	sigbus_guard_remove(g->guard);
	g->guard = -1;
	return memfd_move(&g->memory);
}

static struct weir_segment_conn *
conn_entry(const struct segment *g, uint32_t direction, uint32_t index)
{
	weir_assert(direction < 2 && index < g->geometry.connections);
	return (struct weir_segment_conn *)((uint8_t *)g->memory.base +
					    weir_segment_conns_at(&g->geometry, direction)) +
	       index;
}

int
segment_take(struct segment *g, const uint32_t window[2], uint32_t *index)
{
	uint32_t i;

	if (!g->free_count)
		return -ENOSPC;
	i = g->entry[g->free_count - 1].free;
	weir_assert(!g->entry[i].users);
	for (uint32_t d = 0; d < 2; d++) {
		memset(conn_entry(g, d, i), 0, sizeof(struct weir_segment_conn));
		atomic_store_explicit(&conn_entry(g, d, i)->window, window[d],
				      memory_order_relaxed);
	}
	if (sigbus_guard_hit(g->guard)) /* a hole, and no memory to fill it: no engine saw it */
		return -ENOMEM;
	g->free_count--;
	g->entry[i].users = 2;
	g->side[0].ends++;
	g->side[1].ends++;
	*index = i;
	return 0;
}

uint64_t
segment_messages(const struct segment *g, uint32_t index, uint64_t *bytes)
{
	uint64_t sum = 0;

	for (uint32_t d = 0; d < 2 && index < g->geometry.connections; d++) {
		const struct weir_segment_conn *c = conn_entry(g, d, index);

		sum += atomic_load_explicit(&c->received, memory_order_relaxed);
		*bytes += atomic_load_explicit(&c->bytes, memory_order_relaxed);
	}
	return sum;
}

void
segment_give(struct segment *g, uint32_t index, uint32_t side)
{
	weir_assert(index < g->geometry.connections && g->entry[index].users && g->side[side].ends);
	g->side[side].ends--;
	if (--g->entry[index].users == 0)
		g->entry[g->free_count++].free = index;
}

bool
segment_open_to_new(const struct segment *g)
{
	return g->free_count && !sigbus_guard_hit(g->guard) && !g->side[0].dropped &&
	       !g->side[1].dropped;
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

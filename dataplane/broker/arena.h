/* SPDX-License-Identifier: BSD-3-Clause */
/* The arena: a session's shared memory, laid out as lib/ipc/shm.h says. */
#ifndef WEIR_ARENA_H
#define WEIR_ARENA_H

#include "ipc/session_msg.h"
#include "ipc/shm.h"
#include "memfd.h"

struct arena_limits {
	uint32_t connections, channels, ring_slots, engines;
	uint64_t bytes; /* of the default arena, which is the largest */
};

struct arena {
	struct memfd memory;
	struct weir_geometry geometry; /* ours: never re-read from shared memory */
	int guard;		       /* sigbus_guard_add(); -1 until all pieces are made */
	int notify_fd;
	int numa_socket[WEIR_ENGINES_MAX];
};

/*
 * Computes the geometry of an arena of about `wish` bytes (0: the default), within the limits and
 * not below the smallest that works. Half of it receives, the rest sends. 0, or -EINVAL if the
 * limits allow no arena.
 */
int arena_geometry(const struct arena_limits *limits, uint64_t wish, struct weir_geometry *g);

/* Computes the place of an engine's receive blocks: offset in the arena and bytes. */
void arena_recv_part(const struct weir_geometry *g, uint32_t engine, uint64_t *offset,
		     uint64_t *bytes);

/*
 * Makes the head; the rest follows by arena_go_on(). numa_socket[i] is engine i's. notify_fd: an
 * eventfd written to when the program punched a hole (arena_cut()), or -1. 0 or -errno.
 */
int arena_begin(const struct weir_geometry *g, const int *numa_socket, int notify_fd,
		struct arena *a);
/* Makes the next piece. 1: more follow; 0: complete; or -errno. */
int arena_go_on(struct arena *a);
/* If the program punched a hole, replaces the memory, which it cannot reach then. Returns true
 * once.
 */
bool arena_cut(struct arena *a);

static inline uint8_t *
arena_base(const struct arena *a)
{
	return a->memory.base;
}

static inline struct weir_arena_head *
arena_head(const struct arena *a)
{
	return a->memory.base;
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A segment: memory between a thread of one program and a thread of another, or of the same one.
 * Side 0 connected, side 1 accepted. The data plane makes and keeps it, so that when one side dies
 * the other can still fetch queued messages. Main thread.
 */
#ifndef WEIR_SEGMENT_H
#define WEIR_SEGMENT_H

#include "ipc/bell.h"
#include "ipc/session_msg.h"
#include "ipc/shm.h"
#include "memfd.h"

#include <sys/queue.h>
#include <sys/types.h>

/* Numbers of a segment. */
struct segment_shape {
	uint32_t connections, ring_slots; /* ring_slots: a power of two, 32 at least */
	uint64_t area_bytes;		  /* a power of two, 4096 at least; 0: slots alone */
};
extern const struct segment_shape segment_streams; /* for messages of any size */

struct broker_release;
struct broker_session;
struct broker_user;

struct segment_side {
	struct segment *segment;
	LIST_ENTRY(segment_side) in_session;
	struct broker_session *session; /* NULL: ended */
	struct broker_user *charged;	/* its user, until the session ends, unless the other's */
	uint32_t channel;
	/* its program, also after the session has ended */
	pid_t pid;
	uid_t uid;
	char name[WEIR_NAME_MAX];
	bool membarrier; /* its program is registered for it */
	bool fetched;	 /* the program got its descriptors */
	bool dropped;	 /* the program has unmapped it */
	uint32_t ends;	 /* connection ends of this side */
};

struct segment {
	uint32_t id;
	struct memfd memory;	  /* no write(): the programs can hold the lock of its inode */
	int guard;		  /* of the mapping, see sigbus.h */
	struct weir_bell bell[2]; /* by side */
	struct weir_segment_geometry geometry;
	struct segment_side side[2];
	struct broker_release *release;
	uint32_t free_count;
	struct segment_entry {
		uint32_t free;	/* free_count of them: an entry that no connection has */
		uint32_t users; /* ends of this connection, 2 ... 0 */
	} entry[];		/* geometry.connections */
};

/* Bytes of shared memory of such a segment. */
uint64_t segment_bytes(const struct segment_shape *shape);
/* Memory and doorbells. NULL and errno. */
struct segment *segment_open(const struct segment_shape *shape, int numa_socket);
void segment_close(struct segment *g);
/* Takes the memory, unguarded, out of a segment that ends; the caller releases it. */
struct memfd segment_take_memory(struct segment *g);

/*
 * Takes a cleared entry for a connection with two ends and these flow-control windows, by direction
 * (bytes, 0: the default): 0 and *index, or -ENOSPC or -errno.
 */
int segment_take(struct segment *g, const uint32_t window[2], uint32_t *index);
/* The end on this side releases the entry. */
void segment_give(struct segment *g, uint32_t index, uint32_t side);
/* Messages received on a connection, both ways, by the counters that programs write; adds their
 * bytes. */
uint64_t segment_messages(const struct segment *g, uint32_t index, uint64_t *bytes);
/* Whether new connections may join. */
bool segment_open_to_new(const struct segment *g);
/* Whether each side has ended or dropped it, or is the only one left. */
bool segment_unused(const struct segment *g);

#endif

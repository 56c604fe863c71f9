/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Layout of the memory that processes share: a session's arena (data plane and one program) and a
 * segment (two local programs). Created, sealed, populated by the data plane. Every reader keeps
 * its own copy of the geometry; nothing here holds a pointer. See docs/shared-memory.md.
 */
#ifndef WEIR_COMMON_SHM_H
#define WEIR_COMMON_SHM_H

#include "slot.h"

#include <stddef.h>

#define WEIR_LAYOUT_VERSION 8u
#define WEIR_ARENA_MAGIC 0x52494557u   /* "WEIR" */
#define WEIR_SEGMENT_MAGIC 0x47455357u /* "WSEG" */
#define WEIR_ALIGN_UP(x, a) (((x) + (a)-1) / (a) * (a))

/*
 * Sizes that determine the layout of an arena. Sent in WELCOME; the copy at the arena's start is
 * for debuggers and never read by the data plane.
 */
struct weir_geometry {
	uint32_t magic;
	uint32_t version;     /* WEIR_LAYOUT_VERSION */
	uint32_t connections; /* connection descriptors */
	uint32_t channels;    /* maximum number of channels */
	uint32_t ring_slots;  /* slots in each ring of a channel, a power of two */
	uint32_t recv_blocks; /* receive blocks of WEIR_BLOCK_SIZE, all engines together */
	uint32_t engines;     /* recv blocks [i*n/engines, (i+1)*n/engines) belong to engine i */
	uint32_t send_blocks; /* blocks of the send heap, managed by the library */
	uint64_t bytes;	      /* of the whole arena */
	uint64_t reserved[3];
};
static_assert(sizeof(struct weir_geometry) == 64, "one line");

#define WEIR_LISTENERS 256u /* of one session; low 8 bits of a listener id */

#define WEIR_HANDLER_LINES 32u

/* Of a thread that handles messages; one cache line. */
struct weir_handler_line {
	_Alignas(64) _Atomic uint64_t since; /* CLOCK_MONOTONIC, ns: start of the message in hand;
						0: none. Program writes, main reads */
	_Atomic uint64_t name[7]; /* the same: of the function in hand, zeros behind it */
};
static_assert(sizeof(struct weir_handler_line) == 64, "one line");

/* First page of an arena. */
struct weir_arena_head {
	struct weir_geometry geometry; /* for debuggers */
	_Alignas(64) _Atomic uint32_t
	    node; /* data plane (main) writes, program reads: own node id + 1, 0 = not known yet */
	_Atomic uint64_t nodes; /* the same: number of the latest change of any node */
	/*
	 * Connections taken out of listener i's queue by weir_accept() or dropped since LISTEN:
	 * program writes, main reads for the backlog. Main sets it to 0 before it answers LISTEN.
	 */
	_Alignas(64) _Atomic uint32_t accepted[WEIR_LISTENERS];
	struct weir_handler_line handler[WEIR_HANDLER_LINES];
};
static_assert(sizeof(struct weir_arena_head) <= 4096, "one page");

/* Written by the engine that owns the connection (relaxed, 8 bytes at a time), read by the program.
 */
struct weir_conn_desc {
	_Atomic uint64_t granted;   /* cost the program may have spent since opening; may shrink */
	_Atomic uint64_t completed; /* messages complete since opening */
	_Atomic uint32_t vqpn;	    /* owner, 0 = free */
	_Atomic uint32_t window;    /* most that the peer grants at a time now; a message that costs
				       more goes bulk */
	_Atomic uint32_t status;    /* 0 while usable, else errno */
	_Atomic uint32_t recv_window; /* granted to the peer at a time now */
	/*
	 * CONSUMED is due when this cost is consumed since opening, and for each half of
	 * recv_window. A value not above the last CONSUMED asks for nothing: the engine has not
	 * seen that one yet, or the connection carries datagrams.
	 */
	_Atomic uint64_t recv_due;
	uint32_t reserved[6];
};
static_assert(sizeof(struct weir_conn_desc) == 64, "one cache line per connection");

/*
 * Head of a channel: one cache line per writer and purpose. Sleep flags: not 0 = ring the doorbell
 * after publishing (Dekker pair, docs/shared-memory.md).
 */
#define WEIR_SLEEPS 1u
#define WEIR_SLEEPS_SIGNALS                                                                        \
	2u /* rx_sleeping: and after a signal or update of the session's memory */

struct weir_channel_head {
	_Alignas(64) _Atomic uint64_t rx_tail; /* program writes, engine reads: consumer of rx */
	_Alignas(64) _Atomic uint32_t rx_sleeping; /* program writes, engine reads */
	_Alignas(64) _Atomic uint64_t tx_tail; /* engine writes, program reads: consumer of tx */
	_Alignas(64) _Atomic uint32_t tx_sleeping; /* engine writes, program reads */
	_Alignas(64) _Atomic uint64_t return_tail; /* engine writes, program reads: consumer of
						      returns */
	/* engine writes, program reads after the data plane is gone: WEIR_SPILL(), 0: none */
	_Alignas(64) _Atomic uint64_t spilled;
};
static_assert(sizeof(struct weir_channel_head) == 384, "six lines");

/*
 * Slots of messages that found the rx ring full wait in a chain of receive blocks. `block`, in
 * blocks from the arena's start, and `from`, a slot there, are the first; `seq` of a block's first
 * slot is the next block. The chain includes a message once it is complete, and until it lies in
 * the ring: for a moment it is in both.
 */
#define WEIR_SPILL(block, from, count)                                                             \
	((uint64_t)(block) << 40 | (uint64_t)(from) << 32 | (uint32_t)(count))
#define WEIR_SPILL_SLOTS (WEIR_BLOCK_SIZE / WEIR_SLOT_SIZE) /* of each block */

/* Slots of a channel's third ring: releases of memory and credit never wait behind messages. */
#define WEIR_RETURN_SLOTS 32u

static inline uint64_t
weir_channel_bytes(const struct weir_geometry *g)
{
	return sizeof(struct weir_channel_head) +
	       (2ull * g->ring_slots + WEIR_RETURN_SLOTS) * WEIR_SLOT_SIZE;
}

static inline uint64_t
weir_arena_descs(const struct weir_geometry *g)
{
	return 4096;
}

/*
 * Offset of channel i: its head, then the tx ring (program to engine), the rx ring, and the ring of
 * returns (program to engine).
 */
static inline uint64_t
weir_arena_channel(const struct weir_geometry *g, uint32_t i)
{
	return weir_arena_descs(g) + (uint64_t)g->connections * sizeof(struct weir_conn_desc) +
	       i * weir_channel_bytes(g);
}

static inline uint64_t
weir_arena_recv(const struct weir_geometry *g)
{
	return WEIR_ALIGN_UP(weir_arena_channel(g, g->channels), WEIR_BLOCK_SIZE);
}

static inline uint64_t
weir_arena_send(const struct weir_geometry *g)
{
	return weir_arena_recv(g) + (uint64_t)g->recv_blocks * WEIR_BLOCK_SIZE;
}

static inline uint64_t
weir_arena_end(const struct weir_geometry *g)
{
	return weir_arena_send(g) + (uint64_t)g->send_blocks * WEIR_BLOCK_SIZE;
}

/*
 * A segment: two directions between a thread of one program and a thread of another, for all
 * connections between those threads. Direction d is written by side d and read by side 1-d.
 * Messages: WEIR_OP_INLINE as in channels; WEIR_OP_PLACE with place[0] = offset in the direction's
 * byte area, place[1] = offset of this piece in the message, place[2] = bytes of this piece. Pieces
 * are contiguous in the byte area, aligned to 64, and freed in order of production. WEIR_OP_BUNDLE:
 * a bundle of `length` bytes at offset place[0].
 */
struct weir_segment_geometry {
	uint32_t magic;
	uint32_t version;
	uint32_t ring_slots;  /* of each direction, a power of two */
	uint32_t connections; /* connection lines of each direction */
	uint64_t area_bytes;  /* byte area of each direction, a power of two */
	uint64_t bytes;	      /* of the whole segment */
	uint64_t reserved[4];
};
static_assert(sizeof(struct weir_segment_geometry) == 64, "one line");

/* Of direction d. Unless noted, its consumer, side 1-d, writes and its producer, side d, reads. */
struct weir_segment_side {
	_Alignas(64) _Atomic uint64_t tail;	 /* slots consumed */
	_Alignas(64) _Atomic uint64_t area_tail; /* byte area: everything before is free */
	_Alignas(64) _Atomic uint32_t
	    sleeping; /* 1: ring the doorbell on publish; or WEIR_SEGMENT_LEFT */
	_Alignas(64) _Atomic uint32_t
	    wanted; /* producer writes, consumer reads: ring when a tail or `consumed` moves */
	_Alignas(64) _Atomic uint32_t over; /* producer writes, consumer reads: the producer has
					       lost its data plane, nothing follows */
};

/* The consumer has lost its data plane and polls no more. */
#define WEIR_SEGMENT_LEFT 2u

/*
 * Cache line of connection i in direction d: its receiver writes, its sender reads; main reads
 * `received`, for weirctl.
 */
struct weir_segment_conn {
	_Alignas(64) _Atomic uint64_t consumed; /* weir_segment_cost() consumed since opening */
	_Atomic uint64_t received; /* messages, up to date when `consumed` is written */
	_Atomic uint64_t bytes;	   /* payload of those */
	/* bytes: weir_segment_window(); main writes it before the connection opens */
	_Atomic uint32_t window;
	_Atomic uint32_t bundles; /* 1: the receiver takes several messages per call */
};
static_assert(sizeof(struct weir_segment_conn) == 64, "one line");

/*
 * A bundle: place[1] lengths (uint16_t), padded to 64 bytes, then the payloads, each padded to 8.
 * A message of 64 bytes takes little more than one line then, not two.
 */
#define WEIR_BUNDLE_MAX 64u /* messages */

static inline uint32_t
weir_bundle_head(uint32_t count)
{
	return (uint32_t)WEIR_ALIGN_UP(count * sizeof(uint16_t), WEIR_SLOT_SIZE);
}

static inline uint32_t
weir_bundle_padded(uint32_t length)
{
	return (uint32_t)WEIR_ALIGN_UP(length, 8u);
}

/* Bytes: default of the unconsumed cost that a local sender may have, or one larger message. */
#define WEIR_SEGMENT_WINDOW (2u << 20)
/* Bytes: limits of a window that is asked for. The smallest one fits a message that is not bulk. */
#define WEIR_WINDOW_LEAST (WEIR_SLOT_SIZE + WEIR_BLOCK_SIZE)
#define WEIR_WINDOW_LIMIT (1u << 30)

/* The window that weir_segment_conn.window asks for; another program may have written it. */
static inline uint32_t
weir_segment_window(uint32_t wish)
{
	if (!wish)
		return WEIR_SEGMENT_WINDOW;
	if (wish < WEIR_WINDOW_LEAST)
		return WEIR_WINDOW_LEAST;
	return wish < WEIR_WINDOW_LIMIT ? wish : WEIR_WINDOW_LIMIT;
}

/* Bytes of the window of a local connection that a message uses. */
static inline uint64_t
weir_segment_cost(uint32_t length)
{
	if (length <= WEIR_INLINE_MAX)
		return weir_slots_inline(length) * WEIR_SLOT_SIZE;
	return WEIR_SLOT_SIZE + WEIR_ALIGN_UP((uint64_t)length, WEIR_SLOT_SIZE);
}

/* The same of a bundle: at least a slot per message, since the receiver may keep each by itself. */
static inline uint64_t
weir_bundle_cost(uint32_t count, uint32_t bytes)
{
	uint64_t cost = weir_segment_cost(bytes), least = (uint64_t)count * WEIR_SLOT_SIZE;

	return cost > least ? cost : least;
}

static inline uint64_t
weir_segment_side_at(const struct weir_segment_geometry *g, uint32_t d)
{
	return 4096 + d * 4096ull;
}

static inline uint64_t
weir_segment_conns_at(const struct weir_segment_geometry *g, uint32_t d)
{
	return 3 * 4096ull + (uint64_t)d * g->connections * sizeof(struct weir_segment_conn);
}

static inline uint64_t
weir_segment_ring_at(const struct weir_segment_geometry *g, uint32_t d)
{
	return WEIR_ALIGN_UP(weir_segment_conns_at(g, 2), 4096) +
	       (uint64_t)d * g->ring_slots * WEIR_SLOT_SIZE;
}

static inline uint64_t
weir_segment_area_at(const struct weir_segment_geometry *g, uint32_t d)
{
	return weir_segment_ring_at(g, 2) + d * g->area_bytes;
}

static inline uint64_t
weir_segment_end(const struct weir_segment_geometry *g)
{
	return weir_segment_area_at(g, 2);
}

#endif

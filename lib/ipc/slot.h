/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Slots: the 64-byte unit in which programs, engines and peers pass messages.
 *
 * A slot carries its own sequence number, so a consumer polls the slot itself: one cache-line
 * transfer per message, not two. Slots are used in three places: the channel between a program
 * thread and an engine, the segment between two local program threads, and (with another sequence
 * number) the ring between two engines.
 * A message is one head slot and up to WEIR_INLINE_SLOTS - 1 continuation slots. The producer fills
 * the continuations first and publishes the head last with release; a consumer that acquired the
 * head sees the whole message. Continuations carry a sequence number too, so that payload left from
 * an earlier lap is never taken for a head.
 */
#ifndef WEIR_COMMON_SLOT_H
#define WEIR_COMMON_SLOT_H

#include "invariant.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define WEIR_SLOT_SIZE 64u
#define WEIR_SLOT_HEAD_BYTES 48u
#define WEIR_SLOT_MORE_BYTES 60u
#define WEIR_INLINE_SLOTS 16u
/* Largest payload that travels in slots: 948 bytes. */
#define WEIR_INLINE_MAX (WEIR_SLOT_HEAD_BYTES + (WEIR_INLINE_SLOTS - 1) * WEIR_SLOT_MORE_BYTES)
/* One receive block; the largest payload that uses the flow-control window. Above: bulk. */
#define WEIR_BLOCK_SIZE 8192u
/* Largest message of a stream. */
#define WEIR_MESSAGE_MAX (16u << 20)

/* Operation of a slot. One space for all rings, so that a slot in the wrong ring is never misread.
 */
enum weir_slot_op {
	WEIR_OP_NONE = 0,
	/* program -> engine, program -> local program, engine -> peer engine, engine -> program */
	WEIR_OP_INLINE = 1, /* message, payload in the slots */
	WEIR_OP_PLACE = 2,  /* message, payload at weir_slot.place[0] (region, offset) */
	WEIR_OP_BUNDLE = 3, /* segment: place[1] messages in the byte area, see ipc/shm.h */
	/* program -> engine; CONSUMED, RELEASE, POST and NOTICED in the ring of returns, the others
	   in tx */
	WEIR_OP_CLOSE = 16, /* no more sends on vqpn; queued data is still delivered */
	/* value = bytes (weir_cost) consumed on vqpn since it opened; length = cost of further
	 * messages, which the program holds on loan */
	WEIR_OP_CONSUMED = 17,
	WEIR_OP_RELEASE = 18, /* place[0..count) = released receive places; count in length */
	WEIR_OP_WANT = 19, /* answer WRITABLE when all slots before it are consumed and the window
			    * of vqpn has room for cost `length` (0: any room) */
	/* place[0] is adopted memory with room for `length` bytes: a buffer for the message of vqpn
	 * with number place[1]. In the ring of returns */
	WEIR_OP_POST = 21,
	/* place[0..count) = notices that the program took: vqpn 32 bits, number 32 bits; count in
	 * length. In the ring of returns */
	WEIR_OP_NOTICED = 22,
	/* engine -> program */
	/* our connect() or a decision (DECIDE) ended: status, then value = segment id or 0, extra =
	   the peer's node, length = largest message of a datagram connection or 0; for memory:
	   value = bytes of the export, length = rights, place[2] = 1: TRANSFER is possible. status
	   not 0: reason instead of extra */
	WEIR_OP_OPENED = 32,
	/* new connection on a listener: struct weir_slot_accept; length = its descriptor */
	WEIR_OP_ACCEPTED = 33,
	/*
	 * Last event of a connection, once. The peer's side ended: status 0 = end of stream, else
	 * errno. Or our own CLOSE is complete: status 0 = all data is delivered and the peer has
	 * the FIN, else errno.
	 */
	WEIR_OP_CLOSED = 34,
	WEIR_OP_DONE = 35,     /* value = messages of vqpn completed since it opened */
	WEIR_OP_WRITABLE = 36, /* answer to WANT */
	WEIR_OP_NODE = 38,     /* value = node id, status 0 = up, EHOSTDOWN = down */
	/*
	 * No message of vqpn follows (weir_shutdown()). Program -> engine, in tx, `order` as in
	 * CLOSE; program -> local program; engine -> program
	 */
	WEIR_OP_END = 40,
	/* data: the next WEIR_SLOT_HEAD_BYTES of a reason, whose rest OPENED has */
	WEIR_OP_REASON = 41,
	/*
	 * Operations on remote memory (ipc/remote.h). Program -> engine, engine -> peer engine;
	 * `length` is that of the payload
	 */
	WEIR_OP_PUT = 96,
	WEIR_OP_UPDATE = 97,
	WEIR_OP_CAS = 99,
	WEIR_OP_NOTICE = 101, /* engine -> program, too: struct weir_slot_notice */
	WEIR_OP_LOCK = 102,
	WEIR_OP_UNLOCK = 103,
	WEIR_OP_GET = 107,
	/* program -> engine: answer DONE when all operations of vqpn so far are executed; `order`
	   as in CLOSE */
	WEIR_OP_FLUSH = 108,
	/* program -> engine: `length` bytes between remote memory and place[0], by WRITEs or READs:
	   struct weir_cell_transfer (ipc/remote.h) */
	WEIR_OP_TRANSFER = 109,
};

#define WEIR_SLOT_NOTIFY 0x01u	/* the sender wants WEIR_OP_DONE when this message is complete */
#define WEIR_SLOT_RESTART 0x04u /* segment: the next head lies in the ring's first slot */
#define WEIR_SLOT_BULK                                                                             \
	0x02u /* does not use the window: sent by rendezvous; set on delivery too                  \
	       */
/* program -> engine: the requested transfer, at most one. READ and WRITE come with BULK. */
#define WEIR_SLOT_SEND 0x08u
#define WEIR_SLOT_READ 0x10u
#define WEIR_SLOT_WRITE 0x20u
#define WEIR_SLOT_RING 0x80u
#define WEIR_SLOT_TRANSFERS (WEIR_SLOT_SEND | WEIR_SLOT_READ | WEIR_SLOT_WRITE | WEIR_SLOT_RING)

#define WEIR_SLOT_DATAGRAM                                                                         \
	0x40u /* engine ring: this CONNECT or ACCEPT makes a datagram connection */

/* {region 16, offset 48}: the only form of an address between processes. */
typedef uint64_t weir_place;
#define WEIR_REGIONS_MAX 4096u /* 1 to this: adopted memory of a program; 0: the arena */
#define WEIR_REGION_BYTES_MAX (1ull << 47)
#define WEIR_EXPORTS_MAX 4096u /* ranges of those, of a program */
#define WEIR_PLACE(region, offset) (((uint64_t)(region) << 48) | (uint64_t)(offset))
#define WEIR_PLACE_REGION(p) ((uint16_t)((p) >> 48))
#define WEIR_PLACE_OFFSET(p) ((p) & ((1ull << 48) - 1))

/* Reason of a program that refuses a connection: bytes with its NUL; of these in the last slot. */
#define WEIR_REFUSAL_MAX 128u
#define WEIR_REFUSAL_LAST 36u

#define WEIR_ACCEPTED_HELD 0x1u /* the program decides whether the connection opens (DECIDE) */

struct weir_slot_accept {
	uint32_t listener;   /* listener id that LISTEN returned */
	uint32_t segment;    /* local segment id, 0 when the peer is remote */
	uint16_t peer_node;  /* node id of the other end */
	uint16_t mtu;	     /* datagram connection: its largest message; 0: a stream */
	uint32_t peer_vqpn;  /* for information and the connection's index in the segment */
	uint32_t conn_index; /* local: line of this connection in the segment */
	uint32_t flags;	     /* WEIR_ACCEPTED_* */
	uint32_t window;     /* flow-control window towards the accepting end, bytes */
};

/* One cache line. Written by the ring's producer, read by its consumer. */
struct weir_slot {
	union {
		struct {
			/* position + 1 of this slot; release by producer, acquire by consumer */
			_Atomic uint32_t seq;
			uint8_t op;    /* enum weir_slot_op */
			uint8_t flags; /* WEIR_SLOT_* */
			/*
			 * Low bits of the message's number on its connection, from 0; CLOSE: of the
			 * next; segment: of the position that the writer reads next in the other
			 * direction.
			 */
			uint16_t order;
		};
		_Atomic uint64_t first; /* these four, published by one store */
	};
	uint32_t vqpn;	 /* channel: the program's own; engine ring and segment: the receiver's */
	uint32_t length; /* payload bytes of the message, or a count */
	union {
		uint8_t data[WEIR_SLOT_HEAD_BYTES];
		weir_place place[WEIR_SLOT_HEAD_BYTES / 8];
		struct {
			uint64_t value;
			uint32_t status; /* errno, positive, or 0 */
			union {
				uint32_t extra;
				char reason[WEIR_REFUSAL_LAST];
			};
		};
		struct weir_slot_accept accept;
	};
};

struct weir_slot_more {
	_Atomic uint32_t seq;
	uint8_t data[WEIR_SLOT_MORE_BYTES];
};

static_assert(sizeof(struct weir_slot) == WEIR_SLOT_SIZE, "a slot is one cache line");
static_assert(sizeof(struct weir_slot_more) == WEIR_SLOT_SIZE, "a slot is one cache line");
static_assert(offsetof(struct weir_slot, data) == 16, "head of a slot is 16 bytes");

/* Slots of an inline payload of `length` bytes, 1 to WEIR_INLINE_SLOTS. */
static inline uint32_t
weir_slots_inline(uint32_t length)
{
	if (length <= WEIR_SLOT_HEAD_BYTES)
		return 1;
	return 1 +
	       (length - WEIR_SLOT_HEAD_BYTES + WEIR_SLOT_MORE_BYTES - 1) / WEIR_SLOT_MORE_BYTES;
}

/*
 * Bytes of the flow-control window that a message uses, for sender, engines and receiver. Inline:
 * its slots. Larger: its head slot and a receive block. Bulk messages use none of the window.
 */
static inline uint32_t
weir_cost(uint32_t length)
{
	if (length <= WEIR_INLINE_MAX)
		return weir_slots_inline(length) * WEIR_SLOT_SIZE;
	return WEIR_SLOT_SIZE + WEIR_BLOCK_SIZE;
}

/*
 * One end of a slot ring. Private to its process (never in shared memory): base and mask are the
 * owner's own copies, `pos` its own cursor. `size` is a power of two, 2^4 ... 2^24 slots.
 */
struct weir_ring {
	struct weir_slot *slots;
	uint32_t mask;
	uint32_t bytes; /* mask, of offsets */
	uint64_t pos;	/* producer: next position to write; consumer: next to read */
	uint64_t base;	/* position of the first slot; moves in paired rings only */
	uint64_t limit; /* producer: first position not known to be free; consumer: position at
			   which the tail is published */
	_Atomic uint64_t
	    *tail;	/* in shared memory; written by the consumer, read by the producer */
	uint64_t seen;	/* producer: newest known tail, from the tail or from answers */
	uint32_t turns; /* producer, paired: consecutive answers that found everything consumed */
	uint64_t told;	/* producer: the tail read last; consumer: published last */
};

static inline void
weir_ring_init(struct weir_ring *r, void *slots, uint32_t size, _Atomic uint64_t *tail,
	       bool producer)
{
	weir_assert(slots && size && !(size & (size - 1)));
	r->slots = slots;
	r->mask = size - 1;
	r->bytes = (size - 1) * WEIR_SLOT_SIZE;
	r->pos = r->base = 0;
	r->limit = producer ? size : size / 8;
	r->seen = r->told = 0;
	r->turns = 0;
	r->tail = tail;
}

/* Offset of a position, plus any multiple of the ring's size: see weir_ring_slot(). */
static inline uint32_t
weir_ring_offset(const struct weir_ring *r, uint64_t pos)
{
	return (uint32_t)(pos - r->base) * WEIR_SLOT_SIZE;
}

static inline void *
weir_ring_slot(const struct weir_ring *r, uint32_t offset)
{
	return (uint8_t *)r->slots + (offset & r->bytes);
}

static inline struct weir_slot *
weir_ring_at(const struct weir_ring *r, uint64_t pos)
{
	return (struct weir_slot *)weir_ring_slot(r, weir_ring_offset(r, pos));
}

/* Producer: all slots before `tail`, a checked value, are consumed. */
static inline void
weir_ring_learn(struct weir_ring *r, uint64_t tail)
{
	weir_assert(tail <= r->pos);
	r->seen = tail;
	if (tail >= r->base) /* else the slots beyond the restart are still in use */
		r->limit = tail + r->mask + 1;
}

/*
 * Producer: refreshes the limit from the consumer's tail. False: the tail is invalid (below its
 * former value, or beyond the written slots) and changes nothing.
 */
static inline bool
weir_ring_refresh(struct weir_ring *r)
{
	/* pairs with the release in weir_ring_publish_tail() */
	uint64_t tail = atomic_load_explicit(r->tail, memory_order_acquire);

	if (tail > r->pos || tail < r->told)
		return false;
	r->told = tail;
	if (tail > r->seen) /* `order` of an answer may be newer */
		weir_ring_learn(r, tail);
	return true;
}

/* Producer: free slots as far as known. */
static inline uint64_t
weir_ring_room(const struct weir_ring *r)
{
	return r->limit - r->pos;
}

/*
 * Producer: asks for the line of a slot that it will write soon. The store queue alone holds the
 * lines of two or three messages, which is too few when the consumer's cache is far.
 */
#define WEIR_RING_AHEAD 24u
static inline void
weir_ring_prefetch(const struct weir_slot *s)
{
#if defined(__x86_64__) /* a compiler that does not know of prefetchw asks for reading only */
	__asm__ __volatile__("prefetchw %0" : : "m"(*s));
#else
	__builtin_prefetch(s, 1);
#endif
}

/* Producer: marks the slot at pos + i as a continuation; its data must be written. */
static inline void
weir_ring_continue(const struct weir_ring *r, uint32_t i)
{
	struct weir_slot *s = weir_ring_at(r, r->pos + i);

	atomic_store_explicit(&s->seq, (uint32_t)(r->pos + i + 1), memory_order_relaxed);
}

/* op, flags and order of a head, as they lie in weir_slot.first. */
static inline uint64_t
weir_slot_what(uint8_t op, uint8_t flags, uint16_t order)
{
	static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "fields by their places");
	static_assert(offsetof(struct weir_slot, op) == 4 &&
			  offsetof(struct weir_slot, flags) == 5 &&
			  offsetof(struct weir_slot, order) == 6,
		      "fields by their places");
	return (uint64_t)op << 32 | (uint64_t)flags << 40 | (uint64_t)order << 48;
}

/* Producer: vqpn and length of a head, in one store. */
static inline void
weir_slot_whose(struct weir_slot *s, uint32_t vqpn, uint32_t length)
{
	uint64_t whose = vqpn | (uint64_t)length << 32;

	static_assert(offsetof(struct weir_slot, length) == offsetof(struct weir_slot, vqpn) + 4,
		      "fields by their places");
	memcpy(&s->vqpn, &whose, sizeof(whose));
}

/*
 * Producer: as weir_ring_publish(), with op, flags and order in the same store. `s` is the slot at
 * pos.
 */
static inline void
weir_ring_publish_what(struct weir_ring *r, struct weir_slot *s, uint32_t n, uint64_t what)
{
	uint64_t pos = r->pos;

	weir_assert(n && n <= r->mask + 1u && s == weir_ring_at(r, pos));
	/* pairs with the acquire in weir_ring_peek() */
	atomic_store_explicit(&s->first, (uint32_t)(pos + 1) | what, memory_order_release);
	r->pos = pos + n;
}

/* Producer: publishes the head at pos and advances over the n slots of its message. */
static inline void
weir_ring_publish(struct weir_ring *r, uint32_t n)
{
	struct weir_slot *s = weir_ring_at(r, r->pos);

	weir_assert(n && n <= r->mask + 1u);
	/* pairs with the acquire in weir_ring_peek() */
	atomic_store_explicit(&s->seq, (uint32_t)(r->pos + 1), memory_order_release);
	r->pos += n;
}

/* Consumer: the head at pos if one is there, else NULL. */
static inline __attribute__((always_inline)) struct weir_slot *
weir_ring_peek(const struct weir_ring *r)
{
	struct weir_slot *s = weir_ring_at(r, r->pos);

	/* pairs with the release in weir_ring_publish() */
	if (atomic_load_explicit(&s->seq, memory_order_acquire) != (uint32_t)(r->pos + 1))
		return NULL;
	return s;
}

/* Consumer: reports to the producer that all slots before pos are free. */
static inline void
weir_ring_publish_tail(struct weir_ring *r)
{
	/* pairs with the acquire in weir_ring_refresh() */
	atomic_store_explicit(r->tail, r->pos, memory_order_release);
	r->told = r->pos;
	r->limit = r->pos + r->mask / 8 + 1;
}

/* Consumer: advances over n slots; publishes the tail every eighth of the ring. */
static inline void
weir_ring_pop(struct weir_ring *r, uint32_t n)
{
	weir_assert(n && n <= r->mask + 1u);
	r->pos += n;
	if (r->pos >= r->limit)
		weir_ring_publish_tail(r);
}

/*
 * Paired rings: two programs that answer each other, as in a segment. Each head carries the
 * position up to which its writer has read the other direction (`order`), so that neither reads a
 * tail. A conversation restarts at the first slots whenever all slots are consumed, so that its
 * cache lines stay in the innermost caches of both cores: a round trip costs 0.85 instead of 1.45
 * times that of a bare cache line. After a restart the slots before the announcing one are free;
 * the others become free when that one is consumed, which the consumer reports at once.
 */
#define WEIR_RING_RESTART_AT 4u /* slots between restarts */
#define WEIR_RING_TURNS 16u	/* consecutive answered messages before the ring restarts */

/* Producer: as weir_ring_publish_what(). */
static inline void
weir_ring_publish_paired(struct weir_ring *r, struct weir_slot *s, uint32_t n, uint64_t what)
{
	uint64_t pos = r->pos, first = (uint32_t)(pos + 1) | what, at;

	weir_assert(n && n <= r->mask + 1u && s == weir_ring_at(r, pos));
	r->pos = pos + n;
	if (r->turns) {
		at = (uint64_t)(s - r->slots);
		if (r->seen != pos) {
			r->turns = 0;
		} else if (r->turns >= WEIR_RING_TURNS && at >= WEIR_RING_RESTART_AT &&
			   at + n <= r->mask) {
			first |= (uint64_t)WEIR_SLOT_RESTART << 40;
			r->base = r->pos;
			r->limit = r->pos + at;
		}
	}
	/* pairs with the acquire in weir_ring_peek() */
	atomic_store_explicit(&s->first, first, memory_order_release);
}

/*
 * Producer: the peer has read up to the position with these low bits; ignored if invalid. A peer
 * that only sends repeats what it said.
 */
static inline void
weir_ring_answered(struct weir_ring *r, uint16_t low)
{
	uint64_t tail;

	if (low == (uint16_t)r->seen)
		return;
	tail = r->seen + (uint16_t)(low - (uint16_t)r->seen);
	if (tail > r->pos)
		return;
	weir_ring_learn(r, tail);
	r->turns += tail == r->pos;
}

/* Consumer: as weir_ring_pop(); `flags` are those of the head. */
static inline void
weir_ring_pop_paired(struct weir_ring *r, uint8_t flags, uint32_t n)
{
	weir_ring_pop(r, n);
	if (!(flags & WEIR_SLOT_RESTART))
		return;
	r->base = r->pos;
	weir_ring_publish_tail(r);
}

/* Copies N bytes, a compile-time constant, through registers. */
#define WEIR_SLOT_MOVE(N, to, from)                                                                \
	do {                                                                                       \
		uint8_t weir_move_[N];                                                             \
		memcpy(weir_move_, (from), N);                                                     \
		memcpy((to), weir_move_, N);                                                       \
	} while (0)

/*
 * Copies up to WEIR_SLOT_MORE_BYTES bytes out of a slot, in pieces that overlap: a call to memcpy()
 * costs more than the copy, and so does a loop.
 */
static inline void
weir_slot_copy(uint8_t *to, const uint8_t *from, uint32_t n)
{
	if (n >= 16) {
		if (n > 32) {
			WEIR_SLOT_MOVE(16, to + 16, from + 16);
			WEIR_SLOT_MOVE(16, to + n - 32, from + n - 32);
		}
		WEIR_SLOT_MOVE(16, to, from);
		if (!__builtin_constant_p(n) || n > 16)
			WEIR_SLOT_MOVE(16, to + n - 16, from + n - 16);
	} else if (__builtin_constant_p(n) && n == 8) {
		WEIR_SLOT_MOVE(8, to, from);
	} else if (n >= 8) {
		WEIR_SLOT_MOVE(8, to, from);
		WEIR_SLOT_MOVE(8, to + n - 8, from + n - 8);
	} else if (n >= 4) {
		WEIR_SLOT_MOVE(4, to, from);
		WEIR_SLOT_MOVE(4, to + n - 4, from + n - 4);
	} else if (n) {
		to[0] = from[0];
		to[n / 2] = from[n / 2];
		to[n - 1] = from[n - 1];
	}
}

/* 16 bytes in two loads, which the compiler may not join, and one store. */
static inline void
weir_slot_words(uint8_t *to, const uint8_t *from)
{
#if defined(__SSE2__)
	__m128 v = _mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)(const void *)from));

	__asm__("" : "+x"(v));
	v = _mm_loadh_pi(v, (const __m64 *)(const void *)(from + 8));
	_mm_storeu_ps((float *)(void *)to, v);
#else
	uint64_t a, b;

	memcpy(&a, from, 8);
	memcpy(&b, from + 8, 8);
	__asm__("" : "+r"(a), "+r"(b));
	memcpy(to, &a, 8);
	memcpy(to + 8, &b, 8);
#endif
}

/*
 * The same into a slot. A program has written its message just before: a load wider than its stores
 * would wait until these have left the store queue, behind all stores to slots whose cache lines
 * the consumer still holds.
 */
static inline void
weir_slot_fill(uint8_t *to, const uint8_t *from, uint32_t n)
{
	if (n < 16) {
		weir_slot_copy(to, from, n);
		return;
	}
	weir_slot_words(to, from);
	if (n > 32)
		weir_slot_words(to + 16, from + 16);
	if (n > 48)
		weir_slot_words(to + n - 32, from + n - 32);
	if (n > 16)
		weir_slot_words(to + n - 16, from + n - 16);
}

/* Not inlined, so that a message of one slot needs few registers. `rest`: at least 1. */
static __attribute__((noinline, unused)) void
weir_ring_put_more(const struct weir_ring *r, const uint8_t *from, uint32_t rest)
{
	const struct weir_ring ring = *r; /* what is written below may alias *r */

	for (uint64_t pos = ring.pos + 1;; pos++) {
		struct weir_slot_more *m = (struct weir_slot_more *)weir_ring_at(&ring, pos);

		atomic_store_explicit(&m->seq, (uint32_t)(pos + 1), memory_order_relaxed);
		if (rest <= WEIR_SLOT_MORE_BYTES) {
			weir_slot_fill(m->data, from, rest);
			return;
		}
		weir_slot_fill(m->data, from, WEIR_SLOT_MORE_BYTES);
		from += WEIR_SLOT_MORE_BYTES;
		rest -= WEIR_SLOT_MORE_BYTES;
	}
}

static __attribute__((noinline, unused)) void
weir_ring_get_more(const struct weir_ring *r, uint8_t *to, uint32_t rest)
{
	const struct weir_ring ring = *r; /* what is written below may alias *r */

	for (uint64_t pos = ring.pos + 1;; pos++) {
		const struct weir_slot_more *m =
		    (const struct weir_slot_more *)weir_ring_at(&ring, pos);

		if (rest <= WEIR_SLOT_MORE_BYTES) {
			weir_slot_copy(to, m->data, rest);
			return;
		}
		memcpy(to, m->data, WEIR_SLOT_MORE_BYTES);
		to += WEIR_SLOT_MORE_BYTES;
		rest -= WEIR_SLOT_MORE_BYTES;
	}
}

/* Producer: copies an inline payload into the slots from pos on. Head fields are the caller's. */
static inline void
weir_ring_put_inline(const struct weir_ring *r, const void *buf, uint32_t length)
{
	uint8_t *head = weir_ring_at(r, r->pos)->data;

	if (length <= WEIR_SLOT_HEAD_BYTES) {
		weir_slot_fill(head, buf, length);
		return;
	}
	weir_ring_put_more(r, (const uint8_t *)buf + WEIR_SLOT_HEAD_BYTES,
			   length - WEIR_SLOT_HEAD_BYTES);
	weir_slot_fill(head, buf, WEIR_SLOT_HEAD_BYTES);
}

/* The longest payload of two slots: copied without a call. */
#define WEIR_INLINE_SMALL (WEIR_SLOT_HEAD_BYTES + WEIR_SLOT_MORE_BYTES)

/* Consumer: copies `length` (checked by the caller, <= WEIR_INLINE_MAX) bytes out of the slots. */
static inline void
weir_ring_get_inline(const struct weir_ring *r, void *buf, uint32_t length)
{
	const uint8_t *head = weir_ring_at(r, r->pos)->data;

	if (length <= WEIR_SLOT_HEAD_BYTES) {
		weir_slot_copy(buf, head, length);
		return;
	}
	weir_ring_get_more(r, (uint8_t *)buf + WEIR_SLOT_HEAD_BYTES, length - WEIR_SLOT_HEAD_BYTES);
	memcpy(buf, head, WEIR_SLOT_HEAD_BYTES);
}

#endif

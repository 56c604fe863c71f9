/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations on remote memory: cells that a program writes into its channel, which its engine
 * passes on in the ring of a link, and which the engine of the memory executes. The images are
 * equal in channel and ring. Each cell counts as a message of its connection. Operations that read
 * are answered; docs/protocol.md has the credit for answers.
 */
#ifndef WEIR_COMMON_REMOTE_H
#define WEIR_COMMON_REMOTE_H

#include "slot.h"

#include "weir/address.h"

/* Rights of an export. */
#define WEIR_RIGHT_READ 0x1u
#define WEIR_RIGHT_WRITE 0x2u
#define WEIR_RIGHT_UPDATE 0x4u
#define WEIR_RIGHT_NOTIFY 0x8u
#define WEIR_RIGHT_LOCK 0x10u
/* of an export only: nobody opens a connection with them */
#define WEIR_RIGHT_MAP 0x20u
#define WEIR_RIGHT_ALONE 0x40u /* none: engines alone update its memory, which need no atomics */
/* Rights of a connection. */
#define WEIR_RIGHTS_KNOWN                                                                          \
	(WEIR_RIGHT_READ | WEIR_RIGHT_WRITE | WEIR_RIGHT_UPDATE | WEIR_RIGHT_NOTIFY |              \
	 WEIR_RIGHT_LOCK)
/* The offset of an export with one of these is a multiple of WEIR_EXPORT_ALIGN: elements and signal
 * words are aligned then. */
#define WEIR_RIGHTS_ALIGNED (WEIR_RIGHT_UPDATE | WEIR_RIGHT_NOTIFY)
#define WEIR_EXPORT_ALIGN 16u

/*
 * A dynamic export has no memory of its own: its program attaches ranges of regions to it, and
 * detaches them. Offsets are addresses of that program. An operation outside the ranges is counted
 * like an executed one, but changes nothing, and what it reads is 0.
 */
#define WEIR_DYNAMIC_BYTES (UINT64_C(1) << 48)	     /* its length */
#define WEIR_DYNAMIC_END (WEIR_DYNAMIC_BYTES - 4096) /* no range goes beyond that */
/* A GET of 8 bytes there reads how many operations of its connection, before it, were outside. */
#define WEIR_DYNAMIC_REFUSALS (WEIR_DYNAMIC_BYTES - 8)
/* ranges of a dynamic export; of all of a session */
#define WEIR_RANGES_MAX 4096u
#define WEIR_SESSION_RANGES_MAX (4 * WEIR_RANGES_MAX)
#define WEIR_BORDERS_MAX 64u /* between adjoining ranges, that an operation may cross */

/* Which export a CONNECT is for: in its `service`, flag WEIR_CONNECTS_MEMORY. */
struct weir_wire_export {
	uint32_t index, generation; /* of the key (key.h), as is the secret */
	uint8_t secret[16];
	uint32_t rights; /* asked for, at least one */
};
static_assert(sizeof(struct weir_wire_export) <= WEIR_SERVICE_MAX, "fits a CONNECT");

/*
 * Names an export on a memory connection: index 20 bits, generation 12 bits. The first one is that
 * of the connection's CONNECT.
 */
#define WEIR_HANDLE_FIRST (1u << 20)

/* WEIR_OP_PUT, in weir_slot.data; the rest of the payload follows in continuations. */
struct weir_cell_put {
	uint32_t handle;
	uint32_t options; /* WEIR_PUT_LAYOUT */
	uint64_t offset;  /* from the start of the export */
	uint8_t payload[32];
};
static_assert(sizeof(struct weir_cell_put) == WEIR_SLOT_HEAD_BYTES, "fills a head");

#define WEIR_PUT_LAYOUT 0x1u /* the payload begins with a layout (pieces.h) */
#define WEIR_PUT_FIELDS 16u  /* bytes of a head before the payload */
/* Largest payload of a PUT: 932 bytes. */
#define WEIR_PUT_MAX (WEIR_INLINE_MAX - WEIR_PUT_FIELDS)

/*
 * WEIR_OP_UPDATE, WEIR_OP_CAS and WEIR_OP_GET, in weir_slot.data. The payload of an UPDATE is its
 * operands, packed, none with NO_OP; of a CAS what the element is compared with, and what it
 * becomes. A GET has none. With LAYOUT a layout is in front of it.
 */
struct weir_cell_access {
	uint32_t handle;
	uint8_t type, acc; /* enum weir_type; UPDATE: enum weir_acc; GET: both 0 */
	uint16_t options;  /* WEIR_ACCESS_* */
	uint64_t offset;   /* from the start of the export */
	uint32_t result;   /* place of the answer in the send area: offset in the arena / 64. On
			      the wire 0 */
	uint32_t count;	   /* elements; CAS: 1; GET: bytes */
	uint8_t payload[24];
};
static_assert(sizeof(struct weir_cell_access) == WEIR_SLOT_HEAD_BYTES, "fills a head");

#define WEIR_ACCESS_RESULT 0x1u /* UPDATE: the values before are wanted */
#define WEIR_ACCESS_LAYOUT 0x2u /* UPDATE, GET: the payload begins with a layout (pieces.h) */
#define WEIR_ACCESS_FIELDS 24u	/* bytes of a head before the payload */
/* Largest payload of an UPDATE: 924 bytes; so are its results. */
#define WEIR_ACCESS_MAX (WEIR_INLINE_MAX - WEIR_ACCESS_FIELDS)

/*
 * WEIR_OP_NOTICE, in weir_slot.data, without a payload: behind the operations before it, sets or
 * adds to a word of the export, delivers a notice to the exporting program, or both. A notice that
 * is delivered counts WEIR_NOTICE_COST against the window of its connection.
 */
struct weir_cell_notice {
	uint32_t handle;
	uint32_t options;     /* WEIR_NOTICE_*, at least one */
	uint32_t tag, source; /* DELIVER */
	uint64_t bytes;	      /* DELIVER: of the put or get before it, 0: none */
	uint64_t signal;      /* SET, ADD: offset of the word, a multiple of 8 */
	uint64_t operand;     /* SET, ADD */
	uint64_t reserved;    /* 0, as are fields that the options do not name */
};
static_assert(sizeof(struct weir_cell_notice) == WEIR_SLOT_HEAD_BYTES, "fills a head");

#define WEIR_NOTICE_DELIVER 0x1u
#define WEIR_NOTICE_SET 0x2u
#define WEIR_NOTICE_ADD 0x4u /* not with SET */
#define WEIR_NOTICE_SIGNALS (WEIR_NOTICE_SET | WEIR_NOTICE_ADD)
#define WEIR_NOTICE_COST WEIR_SLOT_SIZE

/* WEIR_OP_NOTICE, engine -> program, in weir_slot.data; vqpn: what NOTICED names. */
struct weir_slot_notice {
	uint32_t number, generation; /* of the export */
	uint32_t tag, source;
	uint64_t bytes;
};

/*
 * WEIR_OP_LOCK and WEIR_OP_UNLOCK, in weir_slot.data, without a payload. LOCK waits at the memory,
 * in the connection itself; WEIR_WIRE_LOCKED answers it, with the status that is stored at
 * `result`. Until then only UNLOCK may follow, which takes the request back: it is answered with
 * ECANCELED, unless the lock was granted before, and is released then.
 */
struct weir_cell_lock {
	uint32_t handle;
	uint32_t kind;	 /* LOCK: SHARED or EXCLUSIVE; UNLOCK: 0 or UNSEEN */
	uint32_t result; /* LOCK: as in weir_cell_access; UNLOCK: 0 */
	/* LOCK, not on the wire: the connection is that of the program with this number among the
	 * words of the lock (lock_words.h), which it may use from now on; 0: as it was */
	uint32_t member;
	uint32_t reserved[8]; /* 0 */
};
static_assert(sizeof(struct weir_cell_lock) == WEIR_SLOT_HEAD_BYTES, "fills a head");

#define WEIR_LOCKS_SHARED 1u
#define WEIR_LOCKS_EXCLUSIVE 2u
#define WEIR_LOCKS_UNSEEN 4u /* the program has given up, and does not see an answer */
/* 0; EOWNERDEAD: granted, too; ECANCELED; BY_WORDS: granted, and the words of the lock say so:
 * their program leaves it there, without UNLOCK */
typedef uint32_t weir_lock_status;
#define WEIR_LOCKED_BY_WORDS 0x10000u

static inline bool
weir_op_is_lock(uint8_t op)
{
	return op == WEIR_OP_LOCK || op == WEIR_OP_UNLOCK;
}

/*
 * WEIR_OP_TRANSFER, in weir_slot.data: a put or get that the engine does by WRITEs or READs. It
 * leaves beside the operations before it; those behind it wait until it is complete.
 */
struct weir_cell_transfer {
	weir_place place; /* put: in the send area, or adopted for sending; get: for receiving */
	uint32_t handle;
	uint32_t options; /* WEIR_TRANSFER_* */
	uint64_t offset;  /* from the start of the export */
	uint64_t reserved[3];
};
static_assert(sizeof(struct weir_cell_transfer) == WEIR_SLOT_HEAD_BYTES, "fills a head");

#define WEIR_TRANSFER_GET 0x1u	  /* else a put */
#define WEIR_TRANSFER_BEHIND 0x2u /* begins when all operations before it are complete */
#define WEIR_TRANSFER_MAX WEIR_MESSAGE_MAX

/* The key of an export's memory at the NIC, in weir_slot.place[3] of ACCEPT. All 0: there is none,
 * and every operation is a cell. */
struct weir_wire_key {
	uint64_t address; /* of the export's first byte */
	uint32_t rkey;
	/* not 0: bytes of a WRITE can be read by the peer's CPUs once a READ of the 8 bytes there,
	 * which left after it, is complete; 0: once it is acknowledged */
	uint32_t fence_rkey;
	uint64_t fence_address;
};
static_assert(24 + sizeof(struct weir_wire_key) == WEIR_SLOT_HEAD_BYTES, "ends an ACCEPT");

/* Bytes of the window that a cell uses; `data`: its data, in private memory. */
static inline uint32_t
weir_cell_cost(uint8_t op, const void *data)
{
	struct weir_cell_notice n;

	if (op != WEIR_OP_NOTICE)
		return 0;
	memcpy(&n, data, sizeof(n));
	return n.options & WEIR_NOTICE_DELIVER ? WEIR_NOTICE_COST : 0;
}

/* Bytes of a head before the payload of an operation. */
static inline uint32_t
weir_cell_fields(uint8_t op)
{
	if (op == WEIR_OP_NOTICE || weir_op_is_lock(op))
		return WEIR_SLOT_HEAD_BYTES;
	return op == WEIR_OP_PUT ? WEIR_PUT_FIELDS : WEIR_ACCESS_FIELDS;
}

/* Whether the cell is executed at the memory. */
static inline bool
weir_op_is_cell(uint8_t op)
{
	return op == WEIR_OP_PUT || op == WEIR_OP_UPDATE || op == WEIR_OP_CAS ||
	       op == WEIR_OP_GET || op == WEIR_OP_NOTICE || weir_op_is_lock(op);
}

/* Whether a cell can have this payload. */
static inline bool
weir_cell_length_ok(uint8_t op, uint32_t length)
{
	return length <= (weir_cell_fields(op) == WEIR_SLOT_HEAD_BYTES
			      ? 0
			      : WEIR_INLINE_MAX - weir_cell_fields(op));
}

/* Slots of a cell with `length` bytes of payload. */
static inline uint32_t
weir_cell_slots(uint8_t op, uint32_t length)
{
	return weir_slots_inline(weir_cell_fields(op) + length);
}

/*
 * WEIR_WIRE_ANSWER: what an UPDATE, CAS or GET has read, as a head and lines of bare payload.
 * Answers of a connection come in the order of its operations; `order` counts them.
 */
#define WEIR_ANSWER_MAX WEIR_BLOCK_SIZE
#define WEIR_ANSWERS_LEAST (16u << 10) /* bytes of answers that an end of a link can take up */

/* Lines of an answer. Its operation takes as many out of the link's credit. */
static inline uint32_t
weir_answer_lines(uint32_t length)
{
	if (length <= WEIR_SLOT_HEAD_BYTES)
		return 1;
	return 1 + (length - WEIR_SLOT_HEAD_BYTES + WEIR_SLOT_SIZE - 1) / WEIR_SLOT_SIZE;
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations on remote memory: cells that a program writes into its channel, which its engine
 * passes on in the ring of a link, and which the engine of the memory executes. The images are
 * equal in channel and ring. Each cell counts as a message of its connection.
 */
#ifndef WEIR_COMMON_REMOTE_H
#define WEIR_COMMON_REMOTE_H

#include "slot.h"

#include "weir/address.h"

/* Rights of an export. */
#define WEIR_RIGHT_READ 0x1u
#define WEIR_RIGHT_WRITE 0x2u
#define WEIR_RIGHTS_KNOWN (WEIR_RIGHT_READ | WEIR_RIGHT_WRITE)

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
	uint32_t options; /* 0 */
	uint64_t offset;  /* from the start of the export */
	uint8_t payload[32];
};
static_assert(sizeof(struct weir_cell_put) == WEIR_SLOT_HEAD_BYTES, "fills a head");

#define WEIR_PUT_FIELDS 16u /* bytes of a head before the payload */
/* Largest payload of a PUT: 932 bytes. */
#define WEIR_PUT_MAX (WEIR_INLINE_MAX - WEIR_PUT_FIELDS)

/* Slots of a PUT with `length` bytes of payload. */
static inline uint32_t
weir_put_slots(uint32_t length)
{
	return weir_slots_inline(WEIR_PUT_FIELDS + length);
}

#endif

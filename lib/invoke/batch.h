/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls as they travel: runs, each a head and the arguments of consecutive calls of one function
 * and length, padded to 8 bytes; behind the last call of a batch the padding may be missing.
 * Little-endian. A batch is one message, or is handed to a thread of the process as it is.
 */
#ifndef WEIR_INVOKE_BATCH_H
#define WEIR_INVOKE_BATCH_H

#include "public.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define RUN_HEAD 8u
#define RUN_RETURN 0x1u	 /* each call begins with 8 bytes that its result has, too */
#define RUN_PAYLOAD 0x2u /* one call: struct payload_args comes before its arguments */

/* Functions of the library, behind all of programs. */
#define FUNCTION_DONE 0xfff0u	/* struct done_args */
#define FUNCTION_RESULT 0xfff1u /* struct result_args, then the result */
#define FUNCTION_SIGNAL 0xfff2u /* struct signal_args */
#define FUNCTION_TREE 0xfff3u	/* struct tree_args, arguments; may have a result, a payload */
#define FUNCTION_PIECE 0xfff4u	/* struct piece_args */
#define FUNCTION_LIBRARY FUNCTION_DONE

/* All calls up to a batch that has asked have run. */
struct done_args {
	uint32_t ask; /* number of that batch, below 65536 */
	uint32_t zero;
};

struct result_args {
	uint64_t id;
	int32_t status; /* 0 or -1 to -4095 */
	uint32_t zero;
};

struct signal_args {
	uint64_t name, count;
};

/* A call of all threads, or of one per process. */
struct tree_args {
	uint32_t process, thread; /* that makes it: the root */
	uint16_t function;	  /* number at the process that gets this */
	uint8_t flags;		  /* TREE_* */
	uint8_t arity;
	uint32_t zero;
};
#define TREE_LEAF 0x1u	  /* runs in this thread, and is not forwarded */
#define TREE_PROCESS 0x2u /* one thread of each process runs it */
#define TREE_ARGS_MAX (sizeof(struct tree_args) + WEIR_ARGS_MAX)

/*
 * A payload that fits the batch follows the arguments. A larger one follows the message, in pieces
 * that are messages without a head: all of them, or, if it has a number, each behind a message that
 * ends with FUNCTION_PIECE. Before all pieces of a number have come, it names no other payload.
 */
struct payload_args {
	uint32_t length; /* bytes, 1 to WEIR_PAYLOAD_MAX */
	uint32_t number; /* 1 to PAYLOADS_AHEAD; 0: none, the order of calls is kept */
};
#define PAYLOADS_AHEAD 64u
#define PAYLOAD_PIECE (256u << 10)

/* One piece of the payload follows the message. */
struct piece_args {
	uint32_t number;
	uint32_t zero;
};

struct run_head {
	uint16_t function; /* number at the process that runs it */
	uint8_t flags;	   /* RUN_* */
	uint8_t zero;
	uint16_t length; /* bytes of arguments of each call */
	uint16_t count;	 /* calls, at least 1 */
};
static_assert(sizeof(struct run_head) == RUN_HEAD, "as it travels");

/* Bytes from one call of a run to the next: at least 8, so that a message of few bytes cannot stand
 * for many calls. */
static inline uint32_t
run_stride(uint32_t length, uint32_t flags)
{
	uint32_t padded = (length + 7) & ~7u;

	if (!flags)
		return padded ? padded : 8;
	return padded + (flags & RUN_RETURN ? 8 : 0) + (flags & RUN_PAYLOAD ? 8 : 0);
}

/* The longest payload in a batch with its call. */
static inline uint32_t
payload_in_batch(uint32_t length)
{
	return WEIR_BATCH_MAX - RUN_HEAD - run_stride(length, RUN_RETURN | RUN_PAYLOAD);
}

/* Bytes of the next piece: never few. */
static inline uint32_t
payload_piece(uint32_t left)
{
	if (left <= PAYLOAD_PIECE)
		return left;
	return left < 2 * PAYLOAD_PIECE ? left / 2 : PAYLOAD_PIECE;
}

static inline uint64_t
run_head_word(uint32_t function, uint32_t flags, uint32_t length, uint32_t count)
{
	return (uint64_t)function | (uint64_t)flags << 16 | (uint64_t)length << 32 |
	       (uint64_t)count << 48;
}

static inline uint32_t
payload_run_bytes(const struct run_head *h, const uint8_t *data, uint32_t bytes, uint32_t whole)
{
	uint32_t at = RUN_HEAD + (h->flags & RUN_RETURN ? 8 : 0), behind;
	struct payload_args args;

	if (h->count != 1 || h->length > TREE_ARGS_MAX || bytes < whole)
		return 0;
	memcpy(&args, data + at, sizeof(args));
	if (!args.length || args.length > WEIR_PAYLOAD_MAX || args.number > PAYLOADS_AHEAD)
		return 0;
	if (args.length > payload_in_batch(h->length))
		return whole;
	behind = (args.length + 7) & ~7u;
	return args.number || bytes - whole < behind ? 0 : whole + behind;
}

/*
 * Reads the run at the beginning of `bytes` bytes. Returns the bytes of head and calls, the last
 * one without padding if that is missing; 0: this cannot be.
 */
static inline uint32_t
run_head_read(struct run_head *h, const uint8_t *data, uint32_t bytes)
{
	uint64_t whole, least, stride;

	if (bytes < RUN_HEAD)
		return 0;
	memcpy(h, data, RUN_HEAD);
	if (h->flags & ~(RUN_RETURN | RUN_PAYLOAD) || h->zero || !h->count)
		return 0;
	stride = run_stride(h->length, h->flags);
	whole = RUN_HEAD + h->count * stride;
	if (h->flags & RUN_PAYLOAD)
		return payload_run_bytes(h, data, bytes, (uint32_t)whole);
	least = whole - stride + (h->flags & RUN_RETURN ? 8 : 0) + h->length;
	if (bytes < least)
		return 0;
	return bytes < whole ? bytes : (uint32_t)whole;
}

#endif

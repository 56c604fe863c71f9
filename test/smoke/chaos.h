/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The books of the programs that chaos.sh kills: a file each, mapped, so that what a program wrote
 * survives its SIGKILL. Written by that program alone; read by `chaos fresh` while it lives and by
 * `chaos check` when all have ended. Counters are atomic so that a book is in order at every
 * instruction: `tried` rises before a send, `taken` after it.
 */
#ifndef TEST_SMOKE_CHAOS_H
#define TEST_SMOKE_CHAOS_H

#include <stdatomic.h>
#include <stdint.h>

#define CHAOS_MAGIC 0x63686f73u
#define CHAOS_STREAMS 16384u
#define CHAOS_NODES 8u
#define CHAOS_ONE_LARGE_OF 64

enum chaos_role { CHAOS_SENDS = 1, CHAOS_RECEIVES = 2 };

/* A connection, as one end saw it. Its id names the sender's life and connection. */
struct chaos_stream {
	_Atomic uint64_t id;
	_Atomic uint64_t opened_ms, ended_ms; /* 0: not yet */
	_Atomic uint64_t tried, taken;	      /* sender: given to weir_send(); accepted */
	_Atomic uint64_t complete, lost;      /* sender: completed with 0; with an error */
	_Atomic uint64_t received;	      /* receiver: whole, in order */
	_Atomic uint32_t peer;		      /* sender: the receiver's life, 0: not heard of */
	_Atomic uint32_t node;		      /* of the other end */
	_Atomic uint32_t closed;	      /* by weir_close(), from now on */
	_Atomic int32_t status;		      /* how it ended: 0, the peer closed */
};

struct chaos_ledger {
	uint32_t magic, life, node, role;
	uint32_t to;		   /* sender: bit n: to node n */
	_Atomic uint32_t finished; /* it ended by itself */
	_Atomic uint32_t streams;
	_Atomic uint64_t fresh[CHAOS_NODES]; /* sender: when a message to that node completed */
	char failure[256];		     /* the first broken rule that it saw */
	struct chaos_stream stream[CHAOS_STREAMS];
};

/* 0, or 1 with the faults on standard output. */
int chaos_fresh(uint64_t since_ms, char **ledgers);
int chaos_unbroken(uint64_t since_ms, char **ledgers);
int chaos_check(const char *log, char **ledgers);
struct chaos_ledger *chaos_open(const char *path, int flags);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs of the benchmarks of engines: they fill their channel and empty it in the thread that
 * turns the engine. One engine and its main, which agrees to every connection.
 */
#ifndef WEIR_BENCH_PROGRAM_H
#define WEIR_BENCH_PROGRAM_H

#include "engine/engine.h"
#include "weir/type.h"

#define BENCH_SESSIONS 64u
#define BENCH_LINES 4096u /* of a peer's ring */
#define BENCH_SRQ 256u

extern struct engine *bench_engine;
extern struct engine_config bench_config; /* what all benchmarks have in common */
extern uint64_t bench_now;

/* One end of a connection. */
struct bench_end {
	uint32_t vqpn, desc;
	uint16_t order;
	uint64_t spent, consumed, told; /* cost */
};

struct bench_program {
	struct engine_session session;
	struct weir_ring tx, rx, returns;
};

/* Zeroed memory. */
void *bench_memory(size_t bytes);
/* The command succeeds at once, or the benchmark ends. */
void bench_must(struct engine_command *k);
void bench_attach(struct bench_program *p, uint32_t id, uint32_t connections);
/* A connection of the program with itself: descriptors `desc` and the next. */
void bench_connect(struct bench_program *p, uint32_t desc, struct bench_end ends[2]);
/* Sends up to n messages, as far as window and ring have room. */
void bench_send(struct bench_program *p, struct bench_end *from, unsigned n, uint32_t length);
/* Takes all messages that have come to `to`, and returns credit if it is due; their number. */
unsigned bench_receive(struct bench_program *p, struct bench_end *to);

/* ---- remote memory ---- */

/* Exports `bytes` of new memory, as number 1. */
void bench_export(struct bench_program *p, uint64_t bytes);
/* A connection of the program to that export, with this descriptor. */
void bench_open(struct bench_program *p, uint32_t desc, struct bench_end *end);
/* Puts up to n times, as far as the ring has room. */
void bench_put(struct bench_program *p, struct bench_end *from, unsigned n, uint32_t length);
/* The same with additions to integers of 8 bytes, of 1 byte, and to long doubles; with gets. */
void bench_add(struct bench_program *p, struct bench_end *from, unsigned n, uint32_t length);
void bench_add_bytes(struct bench_program *p, struct bench_end *from, unsigned n, uint32_t length);
void bench_add_wide(struct bench_program *p, struct bench_end *from, unsigned n, uint32_t length);
void bench_get(struct bench_program *p, struct bench_end *from, unsigned n, uint32_t length);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How records of an application reach the threads of all its processes: by Weir, by TCP, or, as
 * the base line of their costs, not at all: they stay in the process. Two kinds, as in
 * weir/shuffle.h: records for threads as they come (stream), or map tasks and sorted partitions
 * (stage). Errors: -errno, with weir_reason().
 *
 * A thread enters, then makes all calls of its handle itself.
 */
#ifndef SHUFFLE_TRANSPORT_H
#define SHUFFLE_TRANSPORT_H

#include "crew.h"

#include "weir/shuffle.h"

#include <stdbool.h>

enum transport_kind { TRANSPORT_WEIR, TRANSPORT_TCP, TRANSPORT_NONE };

struct transport_options {
	uint32_t kind;	  /* enum transport_kind */
	bool per_process; /* TCP: the threads of a process share one socket per other process */
	bool stage;
	uint32_t threads; /* of each process */
	/* Of the shuffle: flags, partitions, maps, block, memory, codec and so on are given as they
	 * are. TCP and none read flags, partitions and block, and ignore attempts. */
	struct weir_shuffle_options shuffle;
	/* Weir: of the application, by the numbers of this table; and weir_invoker_options.lost */
	const struct weir_function *functions;
	uint32_t function_count;
	void (*lost)(struct weir_invoker *v, uint32_t process, int status, void *user);
	void *user;
};

struct transport;
struct transport_thread;

/* For all threads of the process. Collective: all processes open it. */
int transport_open(struct crew *crew, const struct transport_options *o, struct transport **t);
void transport_close(struct transport *t);

struct transport_totals {
	uint64_t blocks, placed, sent_bytes, memory_peak, spilled; /* 0: not known */
};
/* Of the process, before its last thread leaves. */
void transport_totals(struct transport_thread *th, struct transport_totals *totals);

/* Collective: all threads of all processes. */
int transport_enter(struct transport *t, uint32_t index, struct transport_thread **th);
int transport_barrier(struct transport_thread *th);
/* Behind a barrier, so that nobody still sends to the thread. */
void transport_leave(struct transport_thread *th);

/* ---- producing ---- */

/* A stream's only one is 0, 0. */
int transport_begin(struct transport_thread *th, uint32_t map, uint32_t attempt);
/* Waits for room. -ENOBUFS, stream: records wait in the thread's own queue, which it reads first.
 */
int transport_put(struct transport_thread *th, const struct weir_record *r);
int transport_put_to(struct transport_thread *th, struct weir_to to, const struct weir_record *r);
/* Stream: sends what it can. -ENOBUFS: some is left; read, or wait for records, then again. */
int transport_flush(struct transport_thread *th);
/* Behind a flush. -EALREADY: another attempt counts. */
int transport_end(struct transport_thread *th, bool ok);

/* ---- consuming ---- */

/* Stream: the next record for the thread, valid until the next call. -EAGAIN: none in time, or
 * something else has happened; -ENODATA: the end. */
int transport_next(struct transport_thread *th, struct weir_record *r, int timeout_ms);

/* Stage: whether the thread reads this part of a partition, of those of its process. */
bool transport_owns(struct transport_thread *th, uint32_t partition, uint32_t part);
/* Waits until all map tasks have ended, then transport_key() and transport_next() read it. More
 * than one part: Weir only. */
int transport_read(struct transport_thread *th, uint32_t partition, uint32_t part, uint32_t parts);
/* SORTED or GROUPED: steps to the next key. -ENODATA: there is none. */
int transport_key(struct transport_thread *th, const void **key, uint32_t *length);
/* Ends transport_read(). */
void transport_read_end(struct transport_thread *th, bool ok);

/* ---- for the implementations ---- */

struct transport_ops {
	void (*close)(struct transport *t);
	int (*enter)(struct transport *t, uint32_t index, struct transport_thread **th);
	void (*leave)(struct transport_thread *th);
	int (*barrier)(struct transport_thread *th);
	void (*totals)(struct transport_thread *th, struct transport_totals *totals);
	int (*begin)(struct transport_thread *th, uint32_t map, uint32_t attempt);
	int (*put)(struct transport_thread *th, const struct weir_record *r);
	int (*put_to)(struct transport_thread *th, struct weir_to to, const struct weir_record *r);
	int (*flush)(struct transport_thread *th);
	int (*end)(struct transport_thread *th, bool ok);
	int (*next)(struct transport_thread *th, struct weir_record *r, int timeout_ms);
	bool (*owns)(struct transport_thread *th, uint32_t partition, uint32_t part);
	int (*read)(struct transport_thread *th, uint32_t partition, uint32_t part, uint32_t parts);
	int (*key)(struct transport_thread *th, const void **key, uint32_t *length);
	void (*read_end)(struct transport_thread *th, bool ok);
};

struct transport {
	const struct transport_ops *ops;
	struct crew *crew;
	struct transport_options o;
	struct weir_invoker *v; /* Weir; else NULL */
};

struct transport_thread {
	struct transport *t;
	uint32_t index; /* of the thread in its process */
};

int transport_weir_open(struct crew *crew, const struct transport_options *o, struct transport **t);
int transport_tcp_open(struct crew *crew, const struct transport_options *o, struct transport **t);
int transport_none_open(struct crew *crew, const struct transport_options *o, struct transport **t);

#endif

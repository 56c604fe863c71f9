/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The part that the transports TCP and none share: envelopes of producers, queues of consumers, and
 * stages without attempts, whose consumers keep all blocks in memory and sort them at the end.
 */
#ifndef SHUFFLE_RAW_H
#define SHUFFLE_RAW_H

#include "envelope.h"
#include "transport.h"

struct raw_thread;

struct raw_ops {
	/*
	 * Sends a record as a frame of its own. 0; -EAGAIN: no room, and the thread is woken when
	 * there is; or -errno.
	 */
	int (*send)(struct raw_thread *th, struct weir_to to, const struct weir_record *r);
	/* Sends a chunk of one frame, which it takes unless it fails. As send(); `always`: there is
	 * room. */
	int (*push)(struct raw_thread *th, struct weir_to to, struct chunk *c, bool always);
	/* Sleeps until something comes for the thread, it is woken, or the time is over. 0 or
	 * -errno. */
	int (*wait)(struct raw_thread *th, int timeout_ms);
	/* Sends what waits. 0; -EAGAIN: some is left; -errno. */
	int (*drain)(struct raw_thread *th);
	void (*close)(struct transport *t);
};

struct raw_thread {
	struct transport_thread base;
	struct inbox inbox;
	struct envelope *open; /* per thread of all processes */
	struct chunks mine;    /* taken from the inbox */
	struct block_reader block;
	uint32_t ends;		 /* producers that have ended */
	uint32_t flushed, ended; /* consumers, in a flush or an end that is under way */
	bool producing, gathered, by_key;
	/* stage: chunks that hold the records, and these, sorted */
	struct chunks kept;
	struct raw_item *items;
	size_t count, room;
	size_t at, key_end, end; /* items of the partition that is read */
};

struct raw {
	struct transport t;
	const struct raw_ops *ops;
	struct raw_thread *threads;
	uint64_t word; /* of the shuffle, equal in all processes */
	uint32_t rank, processes;
	uint32_t senders; /* threads that send to each thread */
	uint32_t all;	  /* threads of all processes */
	bool prompt;
	pthread_barrier_t barrier;
	_Atomic int failed; /* of a collective call of thread 0 */
	uint32_t entered;   /* initialized threads */
};

/* Fills in what ops do not say. 0 or -errno. */
int raw_open(struct raw *raw, struct crew *crew, const struct transport_options *o,
	     const struct raw_ops *ops, uint64_t word);
void raw_close(struct raw *raw);

/* Into the inbox of a thread of this process, as raw_ops.send() and push(). */
int raw_local_send(struct raw_thread *th, uint32_t to, const struct weir_record *r);
int raw_local_push(struct raw_thread *th, uint32_t to, struct chunk *c, bool always);

static inline struct raw *
raw_of(const struct raw_thread *th)
{
	return (struct raw *)th->base.t;
}

#endif

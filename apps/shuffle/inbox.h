/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames on their way to a thread, for the transports TCP and none. A frame is a head and one
 * record, or one block (lib/shuffle/format/record.h); without bytes it ends what its sender says to
 * the receiver. Chunks hold frames; an inbox is the queue of a thread of this process.
 */
#ifndef SHUFFLE_INBOX_H
#define SHUFFLE_INBOX_H

#include "weir/shuffle.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define CHUNK_BYTES 65000u /* of chunks that many frames share */
/* Longest content of a frame: the head of a block, and a record of the maximum with its heads. */
#define FRAME_MAX (WEIR_RECORD_MAX + 256u)
#define INBOX_MAX (4u << 20) /* bytes behind which an inbox takes no more */

struct frame_head {
	uint32_t bytes;	   /* behind the head; 0: the end */
	uint16_t from, to; /* threads in their processes */
};
_Static_assert(sizeof(struct frame_head) == 8, "format");

struct chunk {
	struct chunk *next;
	uint32_t used, room; /* bytes */
	uint32_t done;	     /* bytes that have been sent, or read */
	uint32_t reserved;
	uint8_t data[];
};

struct chunk *chunk_new(uint32_t room); /* NULL: no memory */

struct chunks {
	struct chunk *head, *tail;
	size_t bytes; /* used, of all */
};

void chunks_push(struct chunks *l, struct chunk *c);
struct chunk *chunks_pop(struct chunks *l); /* NULL: empty */
/* Memory for `bytes` bytes at the end, which count as used. NULL: no memory. */
uint8_t *chunks_room(struct chunks *l, uint32_t bytes);
void chunks_free(struct chunks *l);

/* Bytes of a frame with a record. */
uint32_t frame_size(const struct weir_record *r);
/* Writes that many. */
void frame_write(uint8_t *to, struct frame_head head, const struct weir_record *r);

struct inbox {
	pthread_mutex_t lock; /* of all fields below */
	pthread_cond_t ready;
	struct chunks list;
	uint64_t waiters; /* bits of the threads that wait for room here */
	bool woken, asleep;
	bool in_epoll; /* asleep, and the bell wakes it */
	int bell;      /* eventfd */
};

int inbox_init(struct inbox *in, int bell);
void inbox_destroy(struct inbox *in);

/* Whether there is no room; then `thread` is woken when there is. Caller holds the lock. */
bool inbox_is_full(struct inbox *in, uint32_t thread);
/* Wakes the owner, once; or its next sleep returns at once. */
void inbox_wake(struct inbox *in);
void inbox_wake_locked(struct inbox *in);
/* Moves all to the end of `to`. Returns the bits of those that waited for room. Owner only. */
uint64_t inbox_take(struct inbox *in, struct chunks *to);
/* Sleeps until there is something, it is woken, or the time is over. Owner only. */
void inbox_sleep(struct inbox *in, int timeout_ms);
/* Around epoll_wait(); false: there is something, do not sleep. */
bool inbox_doze(struct inbox *in);
void inbox_rise(struct inbox *in);

#endif

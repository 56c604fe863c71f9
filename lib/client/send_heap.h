/* SPDX-License-Identifier: BSD-3-Clause */
/* The send heap: blocks in the arena, shared by all threads. */
#ifndef WEIR_CLIENT_SEND_HEAP_H
#define WEIR_CLIENT_SEND_HEAP_H

#include "public.h"

#include "ipc/block.h"

#include <pthread.h>
#include <sys/queue.h>

struct weir_thread;

struct weir_heap {
	pthread_mutex_t lock;
	struct weir_blocks blocks; /* under lock */
	uint64_t *map;
	uint32_t
	    *run; /* blocks of the allocation that starts here; 0: none. Written by its owner */
	uint32_t cache_room;		  /* blocks that a thread may cache */
	_Atomic uint32_t starving;	  /* threads that wait for blocks; written under lock */
	LIST_HEAD(, weir_thread) starved; /* under lock */
};

int weir_heap_init(struct weir *w);
void weir_heap_fini(struct weir *w);
/* Memory of `length` bytes: first block, or WEIR_BLOCK_NONE: none now; the thread is woken later.
 */
uint32_t weir_heap_take(struct weir_thread *t, uint32_t length);
void weir_heap_give(struct weir_thread *t, uint32_t first);
/* Whether the program holds reserved blocks, when no message is under way. */
bool weir_heap_reserved(struct weir *w);
/* Whether the heap has `length` bytes at all. */
bool weir_heap_fits(const struct weir *w, uint32_t length);
/* Empties the thread's cache. */
void weir_heap_flush(struct weir_thread *t);

#endif

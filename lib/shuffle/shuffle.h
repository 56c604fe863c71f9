/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A shuffle in one process. Producers (map.c) fill envelopes, one per consumer thread, which leave
 * as payloads of calls (envelope.c); single records leave as calls. Both arrive in the consumer
 * thread (arrive.c): in its queue (STREAM, queue.c), or in the process's store of blocks, by
 * attempt and partition (STAGE, store.c), which process 0's choice of attempts publishes
 * (commit.c). All memory is taken from one account (memory.c).
 *
 * Fields without lock or atomic belong to the thread that has the object.
 */
#ifndef WEIR_SHUFFLE_SHUFFLE_H
#define WEIR_SHUFFLE_SHUFFLE_H

#include "format/public.h"
#include "format/codec.h"
#include "format/combine.h"
#include "format/record.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/queue.h>

struct commits;
struct files;
struct envelope;
struct queue;
struct shuffle_thread;
struct store;

#define PARTITION_OF_THREAD UINT32_MAX /* weir_map_put_to() */

/* ---- calls ---- */

/* Arguments of weir.shuffle.records: this head, the key, the value. */
struct record_args {
	uint32_t shuffle; /* number on the invoker */
	uint32_t partition;
	uint32_t key_length;
};
#define RECORD_ARGS_MAX (WEIR_ARGS_MAX - (uint32_t)sizeof(struct record_args)) /* key and value */

/* Arguments of weir.shuffle.block, the payload of which is the block. */
struct block_args {
	uint32_t shuffle;
	uint32_t local; /* within the process: place of the envelope among those, + 1; else 0 */
};

/* Arguments of weir.shuffle.say. */
struct say_args {
	uint32_t shuffle;
	uint32_t kind; /* enum say_kind */
	uint32_t map, attempt;
	uint64_t producer; /* process << 32 | thread */
	uint64_t blocks, records, sum;
	uint32_t partition;
	uint32_t epoch; /* of the attempt; MOVED, AGAIN: that begins */
};

enum say_kind {
	SAY_END = 1, /* STREAM: a producer has ended; `records` for this thread */
	SAY_GONE,    /* the process has closed the shuffle */
	SAY_WAKE,    /* within the process: look again */
	SAY_COUNTS,  /* STAGE: what an attempt has sent to this process */
	SAY_DROP,    /* STAGE: forget the attempt */
	SAY_ASK,     /* STAGE, to process 0, which returns the attempt that it has selected */
	SAY_WON,     /* STAGE, of process 0: the attempt is selected */
	SAY_MOVE,    /* STAGE, within process 0: the partition goes to the thread `producer` */
	SAY_MOVED,   /* STAGE, of process 0: it has */
	SAY_AGAIN,   /* STAGE, of process 0: the task has no selected attempt any more */
};

/* The result of SAY_ASK and SAY_MOVE. */
struct say_answer {
	uint32_t winner; /* UINT32_MAX: none; the attempt knew owners of an earlier epoch */
	uint32_t epoch;	 /* of process 0 */
};

/* ---- the shuffle ---- */

struct shuffle_counters {
#define SHUFFLE_COUNTER(name, help) _Atomic uint64_t name;
	WEIR_SHUFFLE_COUNTERS(SHUFFLE_COUNTER)
#undef SHUFFLE_COUNTER
};

/* One writer: the thread. */
static inline void
shuffle_count(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

enum memory_side { MEMORY_TX, MEMORY_RX, MEMORY_READ, MEMORY_SIDES };

struct account {
	_Atomic uint64_t used, peak;
	uint64_t shared;		/* bytes without the reserves */
	uint64_t reserve[MEMORY_SIDES]; /* bytes per thread, by enum memory_side */
	uint64_t lent_max;		/* bytes of the session's memory per thread */
	pthread_mutex_t lock;
	/* buffers, under the lock */
	uint8_t *region;
	uint64_t *taken;	  /* pages, as bits */
	uint32_t pages, next;	  /* number; the one that is looked at first */
	uint32_t outside;	  /* buffers for which the region had no pages in a row */
	_Atomic uint32_t waiting; /* threads that wait for memory */
	_Atomic bool freed;	  /* since they do */
};

#define LOCAL_MAX 512u

struct weir_shuffle {
	struct weir_invoker *v;
	uint32_t number; /* on the invoker, equal in all processes, never given twice */
	uint64_t word;	 /* random, equal in all processes */
	struct weir_shuffle_options o;
	bool once; /* STREAM: each thread is a producer once, `maps` was 0 */
	uint32_t function_records, function_block, function_say;
	uint32_t self, processes;
	uint32_t *first;       /* by process: the number of its thread 0 among all threads */
	uint32_t thread_count; /* of all processes */
	/* STAGE: number of owners' changes that this process has heard of, and of the last one that
	 * moved a partition. Thread 0 writes them; the release pairs with weir_map_begin() */
	_Atomic uint32_t epoch, moved;
	_Atomic uint32_t *owners; /* by partition: number of a thread. Thread 0 writes them */
	uint32_t own_threads;
	_Atomic(struct shuffle_thread *)
	    *threads;		      /* by index; NULL: has not opened, or has closed */
	struct shuffle_thread **gone; /* those that have opened: freed at the end */
	_Atomic uint32_t users;	      /* that have not closed */
	_Atomic bool opened;	      /* in all processes */
	_Atomic uint32_t complete;    /* STREAM: that have closed behind the end */
	struct account memory;
	struct store *store;	  /* STAGE */
	struct files *files;	  /* STAGE; NULL: never spills */
	struct commits *commits;  /* STAGE */
	_Atomic bool *lost;	  /* STAGE: by process */
	_Atomic uint32_t *owned;  /* by process: number of partitions. Thread 0 writes them */
	_Atomic int over;	  /* why nothing goes on: -errno; 0: it does */
	_Atomic uint32_t culprit; /* process, of `over` */
	_Atomic uint64_t dropped; /* blocks of attempts, under the store's lock */
	_Atomic bool stays;	  /* a payload may still be read: never freed */
	pthread_mutex_t local_lock;
	/* envelopes on their way to threads of the process, under that lock */
	struct envelope *local[LOCAL_MAX];
	uint32_t local_next;		 /* place that is looked at first */
	LIST_ENTRY(weir_shuffle) in_all; /* open.c's */
};

struct shuffle_thread {
	struct weir_shuffle *s;
	uint32_t index;
	bool reads;	    /* STREAM: it has a weir_reduce of its own queue */
	bool reads_no_more; /* STREAM: it has ended that */
	uint32_t maps_open;
	LIST_HEAD(, weir_map) maps;
	struct queue *queue; /* STREAM */
	struct codec_tools codec;
	uint8_t *sorted;	   /* SORTED, GROUPED: room for a block, */
	void *scratch;		   /* and to sort it */
	struct weir_emit combined; /* what a combiner has made of it */
	_Atomic bool waits;	   /* for memory, or for map tasks. It writes, others wake it */
	_Atomic uint64_t held[MEMORY_SIDES]; /* bytes, by enum memory_side; others give back */
	_Atomic uint64_t lent; /* bytes of the session's memory, in which blocks stay; likewise */
	uint64_t ahead;	       /* bytes that it holds for what arrives in this turn */
	struct shuffle_counters n;
};

/* Whether records of a block are sorted when it leaves. */
static inline bool
is_sorted(const struct weir_shuffle *s)
{
	return s->o.flags & (WEIR_SHUFFLE_SORTED | WEIR_SHUFFLE_GROUPED) || s->o.combine;
}

static inline struct key_order
order_of(const struct weir_shuffle *s)
{
	return (struct key_order){s->o.compare, s->o.user};
}

/* Records of a block that is sorted, at most: scratch memory depends on that. */
static inline uint32_t
sorted_records_max(const struct weir_shuffle *s)
{
	return s->o.block / 32;
}

static inline uint32_t
thread_number(const struct weir_shuffle *s, struct weir_to to)
{
	return s->first[to.process] + to.thread;
}

struct weir_to thread_of_number(const struct weir_shuffle *s, uint32_t number);

/* Number of the thread that owns a partition. */
static inline uint32_t
owner_of(const struct weir_shuffle *s, uint32_t partition)
{
	return atomic_load_explicit(&s->owners[partition], memory_order_relaxed);
}

/* Whether a process owns a partition. */
static inline bool
owns_any(const struct weir_shuffle *s, uint32_t process)
{
	return atomic_load_explicit(&s->owned[process], memory_order_relaxed);
}

static inline uint64_t
producer_word(struct weir_to to)
{
	return (uint64_t)to.process << 32 | to.thread;
}

/* ---- open.c ---- */

/* The calling thread's part. NULL: none, and why. */
struct shuffle_thread *shuffle_own(struct weir_shuffle *s);
/* The part of the thread in which the call runs of the shuffle with this number. NULL: none. */
struct shuffle_thread *shuffle_called(const struct weir_incoming *c, uint32_t number);
/* Nothing goes on, because of a process. */
void shuffle_end(struct weir_shuffle *s, int why, uint32_t process);
/* 0, or why nothing goes on; looks after processes that were lost. Sets weir_reason(). */
int shuffle_state(struct weir_shuffle *s);
/* A process has closed the shuffle. */
void shuffle_gone(struct shuffle_thread *t, uint32_t process);
/* Turns an error of the invoker into one of this library. */
int shuffle_failed(struct weir_shuffle *s, int rc, uint32_t process);

/* ---- memory.c ---- */

#define MEMORY_LENT (2u << 20)	 /* bytes of the session's memory in all: half of the default */
#define MEMORY_PAGE 4096u	 /* bytes */
#define MEMORY_SMALL 2048u	 /* bytes: smaller buffers take no page */
#define MEMORY_CHUNK (16u << 10) /* of a queue: a message of calls fits */

/* Bytes for one side of a thread: within its reserve of one block, or within what is shared. */
bool memory_take(struct shuffle_thread *t, enum memory_side side, uint64_t bytes);
/* The same for what has arrived, whatever there is. */
void memory_force(struct shuffle_thread *t, uint64_t bytes);
/* Whether as much of the shared part is free. */
bool memory_is_free(const struct weir_shuffle *s, uint64_t bytes);
/* Any thread. */
void memory_give(struct shuffle_thread *t, enum memory_side side, uint64_t bytes);
/* Bytes that one thread has sent, and another of the process has received. */
void memory_move(struct shuffle_thread *from, struct shuffle_thread *to, uint64_t bytes);
/* A thread that is to take what arrives, in one turn, has memory for that first. False: it has not.
 */
bool memory_begin_turn(struct shuffle_thread *t);
void memory_end_turn(struct shuffle_thread *t);
/* Bytes that a buffer of as many takes, and is charged with. */
static inline uint32_t
memory_round(uint32_t bytes)
{
	return bytes < MEMORY_SMALL ? bytes : (bytes + MEMORY_PAGE - 1) & ~(MEMORY_PAGE - 1);
}

/* 0 or -ENOMEM. */
int memory_open(struct weir_shuffle *s);
void memory_close(struct weir_shuffle *s);
/* A buffer aligned to 64 bytes, which is charged by the caller; NULL: none. Any thread. */
void *memory_buffer(struct weir_shuffle *s, uint32_t bytes);
void memory_buffer_free(struct weir_shuffle *s, void *buffer, uint32_t bytes);
/* Whether the thread may wait for room to send without a look at what it has received: there is
 * memory for more, and none of it lies in the session's, which its peers need to send at all. */
bool memory_may_wait(const struct shuffle_thread *t);
/* Wakes threads that wait for memory, if some was given. Not in a function's `done`. */
void memory_wake(struct weir_shuffle *s);

/* ---- turn.c ---- */

/* A wait. */
struct wait {
	uint64_t end; /* ns; 0: does not wait; UINT64_MAX: no limit */
};
struct wait wait_begin(int timeout_ms);
/* ms that are left, at most that many. */
int wait_left(const struct wait *w, int most_ms);
static inline bool
wait_over(const struct wait *w)
{
	return !wait_left(w, 1);
}
/*
 * One turn of a thread that waits: takes one message, sleeps a while for it if there is time,
 * pushes out what waits for room. Or it only makes room in memory, if there is none. 0, or
 * -ENOBUFS: the thread holds what leaves no memory to take more; or why nothing goes on.
 */
int shuffle_turn(struct shuffle_thread *t, const struct wait *w);
/* -ENOBUFS, and why. */
int no_buffers(const struct shuffle_thread *t) __attribute__((cold));

/* ---- envelope.c ---- */

/* Records of one producer for one consumer thread, on their way. */
struct envelope {
	STAILQ_ENTRY(envelope) next;
	struct weir_map *m;
	uint32_t target;       /* number of the thread */
	uint32_t room, length; /* bytes of data; used, with the head */
	uint32_t fragment;     /* offset of the open one; 0: none */
	uint32_t fragments, records;
	uint64_t since;	  /* ns */
	uint64_t charged; /* bytes */
	struct weir_sync sync;
	uint8_t *data;	/* aligned to 64: struct block_head, then fragments. NULL: handed over */
	uint32_t local; /* place in the shuffle's, + 1; 0: none */
	uint32_t bytes; /* of data, as memory_buffer() gave it */
};
STAILQ_HEAD(envelopes, envelope);

/* A consumer thread of a producer. */
struct target {
	struct envelope *open;	       /* NULL: none */
	struct envelopes waiting;      /* for room */
	struct weir_line *line;	       /* NULL: not connected yet */
	uint32_t last_room;	       /* bytes of the last envelope */
	uint32_t numbers;	       /* of blocks */
	uint64_t blocks, records, sum; /* sent; sum of checksums */
	uint32_t in_flight;	       /* envelopes */
	bool blocked;		       /* the line had no room, until one of those has left */
	TAILQ_ENTRY(target) in_waiting;
};

struct weir_map {
	LIST_ENTRY(weir_map) in_thread;
	struct weir_shuffle *s;
	struct shuffle_thread *t;
	struct weir_to self;
	uint32_t map, attempt, epoch;
	struct target *targets; /* by number of the thread */
	TAILQ_HEAD(, target) waiting;
	uint32_t open, in_flight; /* envelopes */
	uint32_t puts;
	uint64_t oldest; /* ns: no open envelope is older */
	struct codec_pace pace;
	int status;	  /* why a block was lost; 0: none was */
	uint32_t lost_to; /* number of the thread */
	uint32_t told;	  /* STREAM, at the end: threads that know */
	struct {
		bool is;
		struct envelope *e; /* NULL: in `prompt` */
		uint8_t *prompt;    /* arguments of a call */
		uint32_t target, partition, key_length, value_length;
	} reserved;
};

/* 0, or why blocks of the producer were lost. */
int map_state(const struct weir_map *m);
/* Room for `bytes` behind a fragment head of the partition. NULL: -EAGAIN or why not in *rc. */
struct envelope *envelope_room(struct weir_map *m, uint32_t target, uint32_t partition,
			       uint32_t bytes, const struct wait *w, int *rc);
/* A block of its own for one fragment. */
struct envelope *envelope_alone(struct weir_map *m, uint32_t target, uint32_t partition,
				uint32_t flags, uint32_t bytes, const struct wait *w, int *rc);
/* `records` records of `bytes` bytes in all were written at the end. */
void envelope_wrote(struct envelope *e, uint32_t bytes, uint32_t records);
/* The open envelope leaves, as soon as there is room. */
void envelope_leave(struct weir_map *m, struct envelope *e);
void envelopes_leave(struct weir_map *m);
/* Envelopes that are older than the delay. */
void envelopes_leave_late(struct weir_map *m);
/* The fullest. False: there is none. */
bool envelope_leave_fullest(struct weir_map *m);
/* Sends what waits for room. */
void envelopes_push(struct weir_map *m);
/* Waits until all have left. 0, -EAGAIN, -ENOBUFS or why not. */
int envelopes_await(struct weir_map *m, const struct wait *w);
/* Frees what has not been sent. */
void envelopes_drop(struct weir_map *m);
/*
 * Takes over the memory of an envelope of this process, in the thread that has got it as a payload,
 * and what it is charged with. NULL: it is none; a peer may say that it were.
 */
uint8_t *envelope_take(struct shuffle_thread *t, uint32_t local, const void *payload,
		       uint32_t *bytes, uint64_t *charged);
/* The line to a consumer thread. */
int target_line(struct weir_map *m, uint32_t target, const struct wait *w);

/* ---- say.c ---- */

/* Says something to a thread. 0 or -errno. */
int say(struct weir_shuffle *s, struct weir_to to, const struct say_args *a,
	const struct weir_call_options *o);

/* Asks process 0's thread 0, and waits for its answer. 0, or why not. */
int say_ask(struct shuffle_thread *t, const struct say_args *a, struct say_answer *answer);

/* Threads of the process that wait look again; or all of them. */
void shuffle_wake(struct weir_shuffle *s, bool everyone);

/* ---- queue.c ---- */

struct held;

struct queue *queue_make(const struct weir_shuffle *s);
void queue_close(struct shuffle_thread *t);
/* Forgets what has come; what comes is not added any more. */
void queue_drain(struct shuffle_thread *t);
/* Whether all producers have ended, or nobody reads. */
bool queue_is_complete(const struct shuffle_thread *t);
bool queue_is_empty(const struct queue *q);
/* Records of calls. 0 or -ENOMEM. */
int queue_add_records(struct shuffle_thread *t, const void *args, uint32_t length, uint32_t stride,
		      uint32_t count, uint32_t producer);
void queue_add_block(struct shuffle_thread *t, struct held *b, uint32_t producer);
/* A producer has ended. False: it cannot, again. */
bool queue_add_end(struct shuffle_thread *t, uint32_t producer, uint64_t records);
int queue_next(struct shuffle_thread *t, struct weir_record *r, uint32_t *partition,
	       const struct wait *w);
int queue_block(struct shuffle_thread *t, struct weir_block *b, const struct wait *w);

/* ---- commit.c ---- */

struct commits *commits_make(struct weir_shuffle *s);
void commits_free(struct weir_shuffle *s);
/* This process begins an attempt: 0 or -EEXIST. */
int commit_begin(struct weir_shuffle *s, uint32_t map, uint32_t attempt);
/* In process 0's thread 0: the attempt that has won. 0 or -EBADMSG. */
int commit_ask(struct shuffle_thread *t, const struct say_args *a, struct say_answer *answer);
/* In process 0's thread 0: a partition has moved. Attempts that do not know of it count no more.
 * `gone`: its blocks are lost, so tasks become missing. */
void commit_moved(struct shuffle_thread *t, bool gone);
/* The end of a handle. As weir_map_end(). */
int commit_attempt(struct weir_map *m, bool ok);
/* -ESTALE, and why, if a partition was moved since the attempt began; else 0. */
int map_stale(const struct weir_map *m);

/* ---- move.c ---- */

/* In process 0's thread 0, to which the function runs: SAY_MOVE. 0 or -EBADMSG. */
int move_partition(struct shuffle_thread *t, const struct say_args *a);
/* In process 0's thread 0: a new epoch begins with a word, which this process and all others hear.
 */
void move_tell(struct shuffle_thread *t, struct say_args *a);
/* SAY_MOVED or SAY_AGAIN. 0 or -EBADMSG. */
int move_heard(struct shuffle_thread *t, const struct say_args *a);

#endif

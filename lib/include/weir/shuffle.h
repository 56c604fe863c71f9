/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shuffles: producers push records to partitions, consumers pull them without a request. Part of
 * libweir-shuffle, which also links LZ4, zstd and xxHash. Guide: docs/shuffle.md.
 *
 * Two kinds. A STREAM hands records on as they come, to one blocking queue per consumer thread, in
 * each producer's order; the death of a process ends it for all. A STAGE consists of map tasks,
 * each of which may be attempted several times. Its consumers read the output of each task's first
 * successful attempt, exactly once, despite repeated attempts and deaths.
 *
 * The table of functions that the program gives to weir_invoker_open() ends with
 * WEIR_SHUFFLE_FUNCTIONS, in every process.
 *
 * Threads: producers and consumers are threads that have entered the invoker; a handle belongs to
 * the thread that made it. Calls that wait run calls of the invoker meanwhile, and fail with
 * -EDEADLK inside a function. A timeout of 0 does not wait; below 0: no limit.
 *
 * A put never waits for memory that its own thread holds: if unread records in the thread's queue
 * leave no room, it returns -ENOBUFS at once. Read until a record comes or -EAGAIN, then put again.
 *
 * Errors, unless a function says otherwise: -EHOSTDOWN a required process was lost (weir_reason()
 * names it), -EBADMSG a block differs from the one that was pushed, -ECANCELED the shuffle was
 * ended, -EPERM the thread has not entered; else as in weir/invoke.h.
 */
#ifndef WEIR_SHUFFLE_H
#define WEIR_SHUFFLE_H

#include "invoke.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_RECORD_MAX (16u << 20) /* bytes of key and value */
#define WEIR_PARTITIONS_MAX 65536u
#define WEIR_SHUFFLE_BLOCK_MIN 4096u
#define WEIR_SHUFFLE_BLOCK_MAX (1u << 20)
#define WEIR_SHUFFLE_MAPS_MAX (1u << 20)
#define WEIR_SHUFFLE_ATTEMPTS_MAX 64u /* of one map task */

struct weir_shuffle; /* valid until weir_shuffle_close() */
struct weir_map;
struct weir_reduce;

/* Entries for the program's table of functions. */
/* clang-format off */
#define WEIR_SHUFFLE_FUNCTIONS                                                                     \
	{"weir.shuffle.records", 1, 0, 12, WEIR_ARGS_MAX, NULL, weir_shuffle_run_records,          \
	 NULL, NULL, NULL},                                                                        \
	{"weir.shuffle.block", 1, 0, 8, 8, weir_shuffle_run_block, NULL, NULL, NULL, NULL},        \
	{"weir.shuffle.say", 1, 0, 56, 56, weir_shuffle_run_say, NULL, NULL, NULL, NULL}
/* clang-format on */
/* For that table alone. */
void weir_shuffle_run_records(struct weir_incoming *c, const void *args, size_t length,
			      size_t stride, size_t count);
void weir_shuffle_run_block(struct weir_incoming *c, const void *args, size_t length);
void weir_shuffle_run_say(struct weir_incoming *c, const void *args, size_t length);

struct weir_record {
	const void *key, *value;
	uint32_t key_length, value_length; /* bytes; together at most WEIR_RECORD_MAX */
};

enum weir_shuffle_kind { WEIR_SHUFFLE_STREAM, WEIR_SHUFFLE_STAGE };
enum weir_codec { WEIR_CODEC_NONE, WEIR_CODEC_LZ4, WEIR_CODEC_ZSTD };

#define WEIR_SHUFFLE_PROMPT 0x1u  /* STREAM: each record leaves when it is pushed */
#define WEIR_SHUFFLE_SORTED 0x2u  /* STAGE: a partition is read in ascending order of keys */
#define WEIR_SHUFFLE_GROUPED 0x4u /* STAGE: equal keys are adjacent, keys in any order */

/* Takes the output of a combiner for one key. Returns 0 or -ENOMEM. */
struct weir_emit;
int weir_emit(struct weir_emit *e, const struct weir_record *r);

/* Initialize with WEIR_SHUFFLE_OPTIONS_INIT, then change single fields. All threads of all
 * processes give the same kind, flags, partitions, maps and block, and functions that agree. */
struct weir_shuffle_options {
	size_t size;	     /* sizeof(struct weir_shuffle_options) */
	uint32_t kind;	     /* enum weir_shuffle_kind */
	uint32_t flags;	     /* WEIR_SHUFFLE_* */
	uint32_t partitions; /* at most WEIR_PARTITIONS_MAX; 0: one per thread of all processes */
	/* of all processes together, at most WEIR_SHUFFLE_MAPS_MAX. STAGE: map tasks. STREAM:
	 * producers, the number of calls of weir_map_begin(); 0: one per thread */
	uint32_t maps;
	uint32_t block; /* bytes of a full block, WEIR_SHUFFLE_BLOCK_MIN to _MAX; 0: 64 KiB, or
			 * less if memory is short */
	uint32_t codec; /* enum weir_codec */
	/* bytes this process may use for it, all buffers together; a record that is larger than a
	 * block may pass it while it arrives, one per thread */
	uint64_t memory;
	int32_t level;	   /* of the codec; 0: its default */
	uint32_t delay_us; /* STREAM: a block that is not full leaves after this time, looked at in
			    * calls of this header; 0: 1,000 */
	/* STAGE: directories to spill to, terminated by NULL; NULL: never */
	const char *const *spill;
	uint64_t spill_max; /* bytes in all of them */
	/* Returns the partition of a key. NULL: a hash that is the same in every process. */
	uint32_t (*partition)(const void *key, uint32_t length, uint32_t partitions, void *user);
	/* Returns the first owner of a partition. NULL: round-robin over all threads of all
	 * processes. */
	struct weir_to (*owner)(uint32_t partition, void *user);
	/* NULL: as memcmp(), shorter keys first */
	int (*compare)(const void *a, uint32_t a_length, const void *b, uint32_t b_length,
		       void *user);
	/* Replaces n records of one key by those that it emits: 0 or -errno. The library may apply
	 * it to any subset, at both ends, any number of times. NULL: none */
	int (*combine)(const struct weir_record *r, size_t n, struct weir_emit *out, void *user);
	void *user; /* passed to these four */
};
#define WEIR_SHUFFLE_OPTIONS_INIT                                                                  \
	{                                                                                          \
		sizeof(struct weir_shuffle_options), WEIR_SHUFFLE_STREAM, 0, 0, 0, 0,              \
		    WEIR_CODEC_NONE, 256ull << 20, 0, 0, NULL, 64ull << 30, NULL, NULL, NULL,      \
		    NULL, NULL                                                                     \
	}

/*
 * Opens a shuffle over all processes of an invoker. Collective as the calls of weir/invoke.h: all
 * threads of all processes make it, several shuffles in the same order; each thread gets the
 * handle. The output of one shuffle may feed the next.
 *
 * Returns 0, or
 *   -EINVAL  an option is out of range, or differs between processes: weir_reason() names it
 *   -ENOSYS  the invoker's table lacks WEIR_SHUFFLE_FUNCTIONS
 *   -ENOMEM  `memory` has no room for a block per thread: weir_reason() says how much it takes
 *   -ENOTSUP a STREAM with directories: its producers wait
 *   -EACCES  or -ENOSPC, or another error of a directory, which weir_reason() names
 *   and errors of weir_invoker_reduce(), behind which no thread opens another one.
 * Blocks until all threads have called it.
 */
int weir_shuffle_open(struct weir_invoker *v, const struct weir_shuffle_options *options,
		      struct weir_shuffle **shuffle);

/*
 * Ends the calling thread's part. The last thread of the process ends the shuffle there, deletes
 * its files and frees it: other processes get -ECANCELED if they still need this one. NULL is
 * allowed. All handles of the thread have ended.
 */
void weir_shuffle_close(struct weir_shuffle *s);

/* Partitions of the shuffle, and the present owner of one of them. Any thread; do not block. */
uint32_t weir_shuffle_partitions(const struct weir_shuffle *s);
struct weir_to weir_shuffle_owner(const struct weir_shuffle *s, uint32_t partition);

/* ---- producing ---- */

/*
 * STREAM: the calling thread becomes a producer; map and attempt are 0. STAGE: the calling thread
 * attempts map task `map`. Thread 0 of each process takes what processes tell each other about
 * attempts: while tasks run it makes calls that wait, here or in weir/invoke.h.
 *
 * Returns 0, or -EINVAL: no such map or attempt; -EEXIST: this process has used that attempt
 * before; -EBUSY: STREAM, the thread is one already; -ENOMEM.
 */
int weir_map_begin(struct weir_shuffle *s, uint32_t map, uint32_t attempt, struct weir_map **m);

/*
 * Pushes a copy of a record to the partition of its key.
 *
 * Returns 0, or -EAGAIN: no room within the timeout; -ENOBUFS: see above; -EMSGSIZE: more than
 * WEIR_RECORD_MAX, or than `memory` has room for; -EINVAL: the partition function named one that
 * does not exist. Nothing was taken then. STAGE: -ESTALE: a partition was moved since
 * weir_map_begin(); end the attempt, and begin another.
 */
int weir_map_put(struct weir_map *m, const struct weir_record *r, int timeout_ms);

/* STREAM: pushes to the queue of a thread, whatever the key; weir_record_partition() is UINT32_MAX
 * there. As weir_map_put(); -ENOENT: no such thread. */
int weir_map_put_to(struct weir_map *m, struct weir_to to, const struct weir_record *r,
		    int timeout_ms);

/*
 * Returns memory to serialise a record of a partition into, with at most these lengths; the record
 * leaves from there. One reservation at a time, and no other put meanwhile. As weir_map_put().
 */
int weir_map_reserve(struct weir_map *m, uint32_t partition, uint32_t key_length,
		     uint32_t value_length, int timeout_ms, void **key, void **value);
/*
 * Takes the final lengths, at most those reserved; 0, 0 abandons the record. Returns 0 or -EINVAL;
 * with PROMPT also as weir_map_put() without a limit of time: after -ENOBUFS and -EINTR the record
 * stays reserved, and is committed again.
 */
int weir_map_commit_record(struct weir_map *m, uint32_t key_length, uint32_t value_length);

/*
 * Pushes a block that the program has built, at most WEIR_RECORD_MAX bytes. Its content is opaque;
 * weir_reduce_block() reads it. Not with SORTED, GROUPED or PROMPT (-EINVAL). As weir_map_put().
 */
int weir_map_put_block(struct weir_map *m, uint32_t partition, const void *data, size_t length,
		       uint32_t records, int timeout_ms);

/* Sends all pushed records. 0: they have left; -EAGAIN: not in time. */
int weir_map_flush(struct weir_map *m, int timeout_ms);

/*
 * Ends the handle and frees it. STREAM: this thread stops producing. STAGE, ok: waits until every
 * block lies in its consumer's memory, then asks process 0 to select this attempt.
 *
 * Returns 0: STREAM, all records were accepted; STAGE, this attempt was selected; -EALREADY:
 * another attempt was, and this one's blocks are dropped everywhere; -ESTALE: as weir_map_put(),
 * and they are dropped, too. Not ok: the blocks of a STAGE are dropped, and it returns 0.
 */
int weir_map_end(struct weir_map *m, bool ok);

/* ---- consuming ---- */

/*
 * STREAM: reads the calling thread's own queue, records of all its partitions. -EBUSY: it does
 * already.
 */
int weir_reduce_begin_own(struct weir_shuffle *s, struct weir_reduce **r);

/*
 * STAGE: the calling thread reads part `part` of `parts` of a partition (0 of 1: all of it); each
 * block belongs to one part. Any thread of the owner's process. A part may be read again from the
 * beginning until weir_reduce_end() with ok.
 *
 * Returns 0, or -EINVAL: no such partition or part, or parts differ from those of another reader;
 * -ENOTCONN: the partition has another owner, weir_reason() names it; -EBUSY: the part is being
 * read; -ENODATA: it was finished.
 */
int weir_reduce_begin(struct weir_shuffle *s, uint32_t partition, uint32_t part, uint32_t parts,
		      struct weir_reduce **r);

/* Returns the next record, valid until the next call on the handle. 0; -EAGAIN: none in time;
 * -ENODATA: the end of the data, or of this key (weir_reduce_key()); -EINVAL: `compare` contradicts
 * itself. */
int weir_reduce_next(struct weir_reduce *r, struct weir_record *record, int timeout_ms);

/* The partition of the record that weir_reduce_next() returned last. */
uint32_t weir_record_partition(const struct weir_reduce *r);

/* SORTED or GROUPED: steps to the next key. weir_reduce_next() then returns its records, and
 * -ENODATA after the last one of this key. Returns 0, -ENODATA: there is none, or as
 * weir_reduce_next(). */
int weir_reduce_key(struct weir_reduce *r, const void **key, uint32_t *length, int timeout_ms);

/* A block of weir_map_put_block(), on loan. */
struct weir_block {
	const void *data; /* aligned to 8 */
	size_t length;	  /* bytes */
	uint32_t records, partition, map, attempt;
	uint64_t internal[3];
};
/* Returns the next block whole, where it arrived, until weir_block_release(). As
 * weir_reduce_next(); -EPROTO: the next data are records. */
int weir_reduce_block(struct weir_reduce *r, struct weir_block *block, int timeout_ms);
/* Any thread, before weir_shuffle_close(). */
void weir_block_release(struct weir_shuffle *s, struct weir_block *block);

/* Ends the handle and frees it. ok: the partition, or its part, is finished; its memory and files
 * are freed. STREAM: later records for the thread are dropped. */
void weir_reduce_end(struct weir_reduce *r, bool ok);

/* ---- recovery ---- */

/* STAGE: returns the number of map tasks that have no successful attempt, or whose blocks were lost
 * with a process, and the first n of them. Any thread; does not block. */
int weir_shuffle_missing(struct weir_shuffle *s, uint32_t *list, unsigned n);

/*
 * STAGE: gives a partition another owner, because the process of the present one was lost or is too
 * slow. The old owner drops its records; readers there get -ENOTCONN, or the rest of what they read
 * in order, and the program forgets their results. Attempts that are under way return -ESTALE. If
 * the process changes, tasks that were selected before become missing again. Their next attempts
 * push all of their records, and owners take those alone which they lack. So each attempt of a task
 * must give the same records.
 *
 * Any thread of process 0, outside of functions. Blocks until process 0's thread 0 has answered,
 * which makes calls that wait; other processes learn of it as thread 0 of each makes such calls.
 * Returns 0, or -EINVAL: a STREAM, or no such partition; -ENOENT: no such thread; -EPERM: another
 * process than 0; -EHOSTDOWN: the new owner was lost.
 */
int weir_shuffle_move(struct weir_shuffle *s, uint32_t partition, struct weir_to to);

/* ---- inspection ---- */

struct weir_partition_info {
	uint64_t records, bytes, blocks; /* of selected attempts, held by its owner */
};
/* Of a partition that the process owns: 0, -EINVAL or -ENOTCONN. Any thread. */
int weir_shuffle_partition(struct weir_shuffle *s, uint32_t partition,
			   struct weir_partition_info *info);

#define WEIR_SHUFFLE_COUNTERS(X)                                                                   \
	X(pushed, "records pushed")                                                                \
	X(pushed_bytes, "bytes of records pushed")                                                 \
	X(combined, "records saved by the combiner")                                               \
	X(blocks, "blocks sent")                                                                   \
	X(sent_bytes, "bytes of blocks as sent")                                                   \
	X(received, "blocks received")                                                             \
	X(received_bytes, "bytes of blocks received")                                              \
	X(placed, "blocks that were read where they arrived")                                      \
	X(dropped, "blocks dropped: attempt not selected, or nobody reads them")                   \
	X(corrupt, "blocks with a wrong checksum")                                                 \
	X(malformed, "calls and blocks of peers that were refused")                                \
	X(spilled_bytes, "bytes written to files")                                                 \
	X(merged_bytes, "bytes merged before they were read")                                      \
	X(read, "records read")                                                                    \
	X(memory, "bytes in use")                                                                  \
	X(memory_peak, "largest number of bytes in use")                                           \
	X(put_wait_us, "us that producers waited for memory or room")                              \
	X(next_wait_us, "us that consumers waited for records")
struct weir_shuffle_stats {
	size_t size; /* sizeof(struct weir_shuffle_stats), set by WEIR_SHUFFLE_STATS_INIT */
#define WEIR_SHUFFLE_COUNTER(name, help) uint64_t name;
	WEIR_SHUFFLE_COUNTERS(WEIR_SHUFFLE_COUNTER)
#undef WEIR_SHUFFLE_COUNTER
};
#define WEIR_SHUFFLE_COUNTER_INIT(name, help) , 0
#define WEIR_SHUFFLE_STATS_INIT                                                                    \
	{                                                                                          \
		sizeof(struct weir_shuffle_stats) WEIR_SHUFFLE_COUNTERS(WEIR_SHUFFLE_COUNTER_INIT) \
	}
/* Of this process. 0, or -EINVAL: the size is invalid. Any thread; does not block. */
int weir_shuffle_stats(const struct weir_shuffle *s, struct weir_shuffle_stats *stats);

#ifdef __cplusplus
}
#endif
#endif

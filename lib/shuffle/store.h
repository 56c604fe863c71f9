/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Blocks that lie in this process until they are read (STAGE): by attempt, and once an attempt is
 * selected by partition. One lock, held for a block or a word at a time.
 */
#ifndef WEIR_SHUFFLE_STORE_H
#define WEIR_SHUFFLE_STORE_H

#include "held.h"
#include "shuffle.h"

struct part;
struct partition;
struct spilled;

/* A fragment of a partition, or what was made of several on their way to a file. */
struct run {
	struct held *b; /* NULL: it lies in a file */
	const uint8_t *bytes;
	struct spilled *spilled;
	uint32_t length, records, flags; /* bytes; FRAGMENT_* */
};

struct store *store_make(struct weir_shuffle *s);
void store_free(struct weir_shuffle *s);
/* A block of an attempt has come; it is the store's. */
void store_add(struct shuffle_thread *t, struct held *b, struct weir_incoming *c);
/* SAY_COUNTS, SAY_DROP, SAY_WON. */
void store_say(struct shuffle_thread *t, const struct say_args *a);
/* Attempts of a process that was lost, and not selected, are dropped. Any thread. */
void store_lost(struct weir_shuffle *s, uint32_t process);
/* Map tasks that have no selected attempt: how many, and the first n. Any thread. */
int store_missing(struct weir_shuffle *s, uint32_t *list, unsigned n);
void store_info(struct weir_shuffle *s, uint32_t partition, struct weir_partition_info *info);

/* A partition has another owner from now on. */
void store_moved(struct weir_shuffle *s, uint32_t partition, struct weir_to to);
/* A map task has no selected attempt any more, and those of epochs before that do not count. */
void store_again(struct weir_shuffle *s, uint32_t map, uint32_t epoch);

/* A part of a partition is read, or is no more. 0 or as weir_reduce_begin(). */
int store_begin(struct weir_shuffle *s, uint32_t number, uint32_t part, uint32_t parts,
		struct partition **p);
void store_end(struct weir_shuffle *s, struct partition *p, uint32_t part, bool ok);
/* Run number *at of the part, with a reference of its block: 0, and *at is the next one; -EAGAIN:
 * not yet; -ENODATA: the end; -ENOTCONN: it has another owner; -EBADMSG. */
int store_run(struct weir_shuffle *s, const struct partition *p, uint32_t part, uint32_t *at,
	      struct run *run);
/* The part is its reader's alone until store_end(); the store has all of its runs. */
struct part *store_pin(struct weir_shuffle *s, struct partition *p, uint32_t part);

/* ---- evict.c ---- */

/*
 * The shared memory shall have room for `bytes`: moves runs to files, if there is none. Returns 0:
 * it may have; -ENOBUFS: there is nothing to move, or no space in files, as weir_reason() says; or
 * an error of a file. Waits for files up to timeout_ms.
 */
int store_spill(struct shuffle_thread *t, uint64_t bytes, int timeout_ms);
/* Takes memory to read with, and spills until there is some. 0 or as store_spill(). */
int store_take(struct shuffle_thread *t, uint64_t bytes);
/* Whether blocks take much of the memory, and may go to files. */
bool store_fills(const struct weir_shuffle *s);

#endif

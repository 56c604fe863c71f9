/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs in files. A batch is one extent with runs of many partitions, those of a partition behind
 * each other. It lies in a buffer of the process, or in a large block, until it has been written;
 * as long as the disk is full it is read from there.
 */
#ifndef WEIR_SHUFFLE_BATCH_H
#define WEIR_SHUFFLE_BATCH_H

#include "held.h"
#include "shuffle.h"
#include "spill.h"

#define RUN_ALIGNED 65536u /* bytes: longer runs begin at multiples of SPILL_ALIGN */

enum batch_state { BATCH_KEPT, BATCH_WRITING, BATCH_WRITTEN };

struct batch {
	_Atomic uint32_t refs;	/* of runs, and of the files until it is written */
	_Atomic uint32_t state; /* enum batch_state, written under the lock of the files */
	struct held *held;	/* the data, under that lock; NULL: they lie in the buffer */
	struct iovec data;
	struct spill_ticket ticket;
};

/* A run in a file. */
struct spilled {
	struct spilled *next; /* where it goes on, or NULL */
	struct batch *batch;
	uint32_t offset, length;   /* bytes of the batch */
	uint32_t records, longest; /* bytes of the longest record */
	uint32_t map, attempt;	   /* of an opaque block */
	uint64_t sums[];	   /* XXH3 of each piece */
};

/* The files of a process. */
struct files {
	struct spill *spill;
	uint32_t room;	/* bytes of the buffer */
	uint32_t piece; /* bytes that are read and checked together, a multiple of SPILL_ALIGN */
	/* taken before that of the store, and by readers of a batch that is not written yet */
	pthread_mutex_t lock;
	uint8_t *buffer;
	struct batch *last; /* not written yet, or NULL */
};

/* s->files, which are not open yet, and the bytes that they and their readers take. 0 or -ENOMEM.
 */
int files_make(struct weir_shuffle *s, uint64_t *bytes);
/* 0 or as spill_open(). */
int files_open(struct weir_shuffle *s);
/* Nobody reads them any more. */
void files_free(struct weir_shuffle *s);

/* These hold the lock. The last batch is written, after a failure again, within timeout_ms. 0,
 * -EAGAIN, or why it cannot be. */
int files_settle(struct files *f, int timeout_ms);
/* A batch in the buffer, or in a block. NULL: no memory. It is the last one, and not written. */
struct batch *files_batch(struct files *f, struct held *b);

/* A run of a batch, whose bytes are in memory. NULL: no memory. */
struct spilled *spilled_make(const struct files *f, struct batch *b, const struct spilled *like);
/* Frees a run, and its batch behind the last one. May block for the disk. */
void spilled_free(struct files *f, struct spilled *r);
/* Reads pieces from `at` on, a multiple of the piece, as many as `room` takes. Bytes, or -EBADMSG,
 * -EIO. */
int64_t spilled_read(struct files *f, const struct spilled *r, uint32_t at, void *to, size_t room);

/* ---- reading record by record ---- */

struct loader {
	struct files *f;
	const struct spilled *run;
	uint32_t loaded; /* bytes of the run */
	uint32_t left;	 /* records */
	uint32_t front, body;
	uint8_t *memory; /* `front` bytes for the head of a record, `body` bytes for pieces */
	const uint8_t *at, *end;
};

/* The bytes of a loader of runs with records of at most `longest` bytes, with its sizes. It uses at
 * most `most` bytes if these suffice. */
uint64_t loader_size(const struct files *f, uint32_t longest, uint64_t most, uint32_t *front,
		     uint32_t *body);
/* Has memory from then on. 0 or -ENOMEM. */
int loader_open(struct loader *l, struct files *f, uint32_t front, uint32_t body);
void loader_close(struct loader *l);
void loader_begin(struct loader *l, const struct spilled *run);
/* The next record, which stays until the next call: 0, -ENODATA, -EBADMSG or -EIO. */
int loader_next(struct loader *l, struct weir_record *r);

#endif

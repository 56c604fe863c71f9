/* SPDX-License-Identifier: BSD-3-Clause */
/* Books, and what all programs of rma_kill share. */
#ifndef TEST_SMOKE_RMA_KILL_H
#define TEST_SMOKE_RMA_KILL_H

#include "program.h"

#include "weir/group.h"
#include "weir/remote.h"

#include <stdatomic.h>
#include <stdio.h>

#define SLOTS 32u
#define LIVES 32u
#define AREA (16ull << 20) /* bytes of a put */

enum role { OWN, UPDATE, PUT, LOCK, JOIN, WINDOW, MAP };

/* `begun` rises before a call, `completed` after its flush. */
struct tally {
	_Atomic uint64_t begun, completed;
};

enum { ADDED, INCREMENTED, FILLED, OF_WINDOWS };

struct book {
	_Atomic uint32_t role, slot;
	_Atomic uint64_t errors, repaired; /* calls that ended with one; locks of dead holders */
	_Atomic int32_t last;		   /* error */
	char failure[256];		   /* the first broken rule that it saw */
	struct tally life[LIVES];	   /* by life of the owner */
	struct tally window[LIVES][OF_WINDOWS]; /* by life of the group */
};

extern _Atomic int stopping; /* SIGTERM has come */
extern struct weir *w;
extern struct book *book;

/* A broken rule: the book keeps the first, and the program goes on. */
#define wrong(...)                                                                                 \
	do {                                                                                       \
		say(__VA_ARGS__);                                                                  \
		if (!book->failure[0])                                                             \
			snprintf(book->failure, sizeof(book->failure), __VA_ARGS__);               \
	} while (0)

/* A file of DIR, mapped. NULL: there is none. */
void *map_file(const char *name, size_t bytes, int flags);
/* Counts a fault unless completed <= value <= begun. */
void in_between(unsigned *faults, const char *what, uint64_t completed, uint64_t value,
		uint64_t begun);
/* Every byte is of the last put that completed, or of one begun after it. */
void check_area(unsigned *faults, const char *name, const uint8_t seen[256], uint64_t completed,
		uint64_t begun);
/* Counts an error that a call on an opened remote may end with. */
bool may_end(int rc);
/* The errors of opening and joining. */
bool may_fail(int rc);
/* Says how a call has ended; an error that may not be is wrong. */
void ended(const char *what, int rc);

/* Groups with windows, until SIGTERM or the end of the data plane. */
void work_in_window(unsigned slot, uint32_t size);

#endif

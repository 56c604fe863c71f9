/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs that are nodes to each other over a data plane in memory (plane.h), each with a
 * messenger. No time decides these tests: what must come is awaited for long, what must not come is
 * looked for while everybody else has had a turn many times.
 */
#ifndef WEIR_TEST_MESSAGE_WORLD_H
#define WEIR_TEST_MESSAGE_WORLD_H

#include "plane.h"

#include "message/lane.h"
#include "message/messenger.h"
#include "message/peer.h"
#include "message/pool.h"
#include "message/sender.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define TYPE_NOTE WEIR_TYPE(1, 1)
#define TYPE_ECHO WEIR_TYPE(1, 2)
#define TYPE_MUTE WEIR_TYPE(1, 3)
#define TYPE_KEEP WEIR_TYPE(2, 0)
#define TYPE_BLOCK WEIR_TYPE(3, 0)
#define TYPE_NOBODY WEIR_TYPE(200, 7)
#define A PLANE_NODE(0)
#define B PLANE_NODE(1)

struct side {
	struct weir *w;
	struct weir_messenger *m;
	_Atomic uint32_t notes, wrong, created, lost, bytes;
	_Atomic int status;
	uint32_t next[16]; /* number expected of each thread */
};

struct both {
	struct plane *f;
	struct side a, b;
};

/* Requests whose handler keeps the reply. Since register_keep(). */
extern struct weir_reply kept[8];
extern _Atomic uint32_t kept_count;
/* Handlers that hold their thread until `go`. Since register_block(). */
extern _Atomic uint32_t go, blocked_now;

extern const struct plane_options message_plane;

void fatal(const char *what, int rc);
void nap(unsigned ms);

/* Also in threads that are not the test's. */
#define must(call)                                                                                 \
	do {                                                                                       \
		int must_rc = (call);                                                              \
		if (must_rc)                                                                       \
			fatal(#call, must_rc);                                                     \
	} while (0)

#define await(condition)                                                                           \
	do {                                                                                       \
		for (unsigned await_n = 0; !(condition); await_n++) {                              \
			if (await_n == PATIENT)                                                    \
				fail_msg("never: %s", #condition);                                 \
			nap(1);                                                                    \
		}                                                                                  \
	} while (0)

/* Is so, and stays so while the others have turns. */
#define stays(condition)                                                                           \
	do {                                                                                       \
		for (unsigned stays_n = 0; stays_n < 50; stays_n++) {                              \
			if (!(condition))                                                          \
				fail_msg("no longer: %s", #condition);                             \
			nap(1);                                                                    \
		}                                                                                  \
	} while (0)

/* {thread, number, bytes that follow from both} */
void fill(uint32_t *buf, uint32_t thread, uint32_t number, size_t length);
/* With handlers for the types NOTE, ECHO and MUTE. */
void open_side(struct side *s, struct weir_messenger_options *o);
/* NULL: message_plane; the defaults. */
void open_both(struct both *p, const struct plane_options *plane,
	       const struct weir_messenger_options *options);
/* Closes a messenger in a thread of its own, for the caller to join: an end without threads has to
 * handle the last messages of the other one meanwhile. */
pthread_t close_beside(struct weir_messenger *m);
/* Ends messengers am and bm at the same time, their programs and the data planes. */
void close_world(struct plane *f, struct weir *a, struct weir_messenger *am, struct weir *b,
		 struct weir_messenger *bm);
void close_both(struct both *p);
/* TYPE_KEEP. */
void register_keep(struct side *s);
/* TYPE_BLOCK. */
void register_block(struct side *s, uint32_t flags);
/* A handler that counts. */
void mute(struct weir_messenger *m, const struct weir_message *message, void *user);
struct weir_messenger_stats stats_of(const struct side *s);
/* A stream connection of w to a messenger's name on a node, which has said hello as one does. */
struct weir_conn *raw_connect(struct weir *w, uint16_t node, uint64_t incarnation,
			      uint32_t receivers);
/* HELLO of another messenger, with these versions. */
void raw_hello_of(struct weir_conn *c, struct weir_versions versions);
void raw_hello(struct weir_conn *c, uint64_t incarnation, uint32_t receivers);
/* A piece of `bytes` bytes. */
int raw_piece(struct weir_conn *c, const struct message_header *h, uint64_t total, uint64_t offset,
	      uint32_t bytes);
/* Receives until the connection ends, and closes it. How it ended. */
int raw_end(struct weir_conn *c);
/* Whether it is still open. */
bool raw_lives(struct weir_conn *c);
/* Waits until housekeeping has looked at everything that is there now. */
void await_looks(const struct side *s);

#endif

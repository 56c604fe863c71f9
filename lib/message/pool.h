/* SPDX-License-Identifier: BSD-3-Clause */
/* The threads that take messages and call handlers. */
#ifndef WEIR_MESSAGE_POOL_H
#define WEIR_MESSAGE_POOL_H

#include "header.h"
#include "messenger.h"

#include "stream/model.h"

#include <pthread.h>
#include <sys/queue.h>

struct lane;
struct sender;
struct weir_guard;

struct handler_thread {
	struct weir_messenger *m;
	pthread_t thread;
	uint32_t index;
	bool is_guest; /* a thread of the program; `index` counts guests */
	/* of a guest: the thread that has entered; 0: none. Written by it, read by all */
	_Atomic pthread_t entered;
	bool runs;     /* has a thread */
	bool inside;   /* the thread that drives the messenger is in a handler's call */
	uint32_t told; /* calls of `link` in this turn of the thread that drives */
	/* of the wait of the thread that drives: ends before the program is called; NULL: none */
	struct weir_guard *guard;
	bool started;	  /* m->lock: status is known */
	int status;	  /* of its start */
	char reason[256]; /* of a failed start */
	/* of the present session, or of the former one while lanes there have not ended. Once it is
	 * set, written under leaf */
	_Atomic(struct weir_thread *) worker;
	struct sender *sender;
	struct weir_listener *listener;
	uint64_t listen_at;		/* ns: tries to listen again; 0: it listens */
	struct weir_handler_line *line; /* shows main how long it handles; NULL: none was free */
	struct lane_spares spares;	/* m->lock */
	/* the message in hand; the handler thread's alone */
	struct lane *lane; /* NULL: none */
	uint64_t life;
	struct weir_taken taken;
	struct message_header header;
	struct weir_message message;
	uint64_t guard_until;
	uint64_t due;	/* ns: next round of housekeeping */
	uint32_t turns; /* with work, since the last round of steps */
	uint32_t rests; /* since its session is over */
	/* handler thread writes, others read */
	_Alignas(64) _Atomic uint64_t since; /* ns: began its batch of messages; 0: waits */
	_Atomic uint32_t type;		     /* being handled, + 1; 0: none */
	_Atomic uint32_t asleep;	     /* 2: until woken; 1: up to GUARD_MS */
	_Atomic uint64_t handled, unknown, malformed, oversized, taken_over;
	_Alignas(64) uint8_t buffer[WEIR_INLINE_MAX + 12];
};

/*
 * A stretch in which a messenger may call the program, in the thread whose stretch it is. Lies on
 * its stack.
 */
struct calling {
	const struct weir_messenger *m;
	struct handler_thread *handler; /* whose turn it is; NULL: of none */
	struct calling *outer;
};
void calling_begin(struct calling *c, const struct weir_messenger *m);
/* The stretch goes on with a turn of k. */
void calling_turn(struct handler_thread *k);
/* The handler thread whose turn it is in the innermost stretch of the thread; NULL: none. */
struct handler_thread *calling_handler(void);
void calling_end(struct calling *c);
/* Whether the caller was called by the messenger. */
bool is_calling(const struct weir_messenger *m);

/* The thread receives: it has a worker and a sender, and listens. 0 or -errno. */
int handler_open(struct handler_thread *k);
/* Takes a line of the arena's head, if one is free. */
void handler_line_take(struct handler_thread *k);
void handler_line_give(struct handler_thread *k);
/* Shows main the function in hand, in the line. */
void handler_show(struct handler_thread *k, const char *name);
/* Another program has taken the name while the data plane was gone: tries until the name is free.
 */
void handler_listen_again(struct handler_thread *k);
/* k goes to another worker. m->lock. */
void handler_spares_leave(struct handler_thread *k);
/*
 * k's session is over. Once the program has attached again, and the messages that had come are
 * handled, k goes on in the new session. 0: it has; -EAGAIN: not yet, or why there is no session.
 */
int handler_rejoin(struct handler_thread *k);

int pool_start(struct weir_messenger *m);
void pool_stop(struct weir_messenger *m);
/* Whether connections wait to be accepted. m->lock. */
bool pool_has_accepts(struct weir_messenger *m);
/* Wakes the first handler thread for housekeeping. */
void pool_call(struct weir_messenger *m);
/* Whether the caller drives the messenger, which has no handler threads. */
bool pool_is_driver(const struct weir_messenger *m);
/* If the caller drives the messenger: one step of what closes, without messages. */
void pool_step(struct weir_messenger *m);
/* A guest, if it has entered, leaves. Nothing locked. */
void guest_leave(struct handler_thread *k);
/* A guest whose thread has no sender of its own. -ENOSPC */
int guest_shares(void);
/* The guest that the calling thread is; NULL: none. */
struct handler_thread *guest_own(const struct weir_messenger *m);
/* The messenger closes: the caller drives it from now on. One turn, which may sleep. Nothing
 * locked. */
void pool_last_turn(struct weir_messenger *m);

#endif

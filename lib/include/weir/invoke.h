/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Remote invocation (after Seriema): threads of a group of processes run each other's functions. A
 * function has a name and a version; both ends compare them before the first call. Guide:
 * docs/invoke.md.
 *
 * Threads: a call to a thread runs in that thread, inside weir_invoker_progress() and inside calls
 * of this header that wait; never inside the call that makes it, also to the own thread. A call to
 * WEIR_THREAD_ANY runs in one of the invoker's own threads. Calls from one thread to one thread run
 * once each, in the order in which they were made. A function must not wait: calls made inside it
 * are queued, and calls that would wait return -EDEADLK.
 *
 * Packing: calls to one thread that leave together are one message, which has one head for
 * consecutive calls of one function and length. Packed calls leave when their message is full, and
 * in each weir_invoker_progress(), wait, sleep and flush of their thread. A thread that makes no
 * call of this header for long keeps what it has packed.
 *
 * Outcome: 0 means that the call was accepted. It then runs once, or the line to its thread is
 * lost: its process or thread has ended, or did not take it in time. A sync or a future reports
 * which; without one the outcome is not reported.
 *
 * Errors, unless a function says otherwise: -EHOSTUNREACH the process was lost (weir_reason() names
 * it), -ENODEV the data plane is gone, -ECONNABORTED an operator ended the session, -ENOTCONN in a
 * forked child. An invoker ends with its data plane.
 */
#ifndef WEIR_INVOKE_H
#define WEIR_INVOKE_H

#include "group.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_ARGS_MAX 4096u	      /* bytes of one call's arguments */
#define WEIR_PAYLOAD_MAX (1ull << 30) /* bytes of one call's payload */
#define WEIR_INVOKE_THREADS_MAX 64u
#define WEIR_INVOKE_POOL_MAX 32u
#define WEIR_FUNCTIONS_MAX 4096u
#define WEIR_FUNCTION_NAME_MAX 63u
#define WEIR_BATCH_MAX 8120u /* bytes of calls in one message */
#define WEIR_ARITY_MAX 32u   /* processes that a process of a tree calls */

struct weir_invoker;  /* valid until weir_invoker_close() */
struct weir_incoming; /* a call while it runs; valid until its function returns */

/* A thread of a process. */
struct weir_to {
	uint32_t process; /* rank in the group */
	uint32_t thread;  /* index given to weir_invoker_enter(), or WEIR_THREAD_ANY */
};
#define WEIR_THREAD_ANY UINT32_MAX /* one of the invoker's own threads */

/* ---- Functions ---- */

/*
 * A function that others may call. Its number is its index in the table given to
 * weir_invoker_open(). Tables may differ between processes: name and version identify a function,
 * and the library translates numbers. Addresses never travel.
 */
struct weir_function {
	const char *name; /* 1 to WEIR_FUNCTION_NAME_MAX bytes; copied */
	uint32_t version;
	uint32_t flags; /* WEIR_FUNCTION_* */
	/* bytes of arguments, at most WEIR_ARGS_MAX; both ends refuse other lengths */
	uint32_t min_length, max_length;
	/*
	 * Runs a call. `args` is aligned to 8 bytes and valid until the return. The bytes are a
	 * peer's: run() checks what it uses.
	 */
	void (*run)(struct weir_incoming *c, const void *args, size_t length);
	/*
	 * Runs `count` consecutive calls from one thread, instead of run(), if not NULL: all have
	 * arguments of `length` bytes, those of call i at args + i * stride.
	 */
	void (*run_many)(struct weir_incoming *c, const void *args, size_t length, size_t stride,
			 size_t count);
	void *user; /* weir_incoming_user() */
	/*
	 * Gives the memory for a payload of `payload` bytes that travels behind its call
	 * (weir_call_options.payload), before it arrives; then run() finds it there, and `c` is
	 * not valid until then. Memory that was adopted with WEIR_ADOPT_RECV may be written to
	 * without a copy. The memory is the library's until run() is called. NULL refuses: the
	 * function does not run, and the caller's sync or future ends with -ENOMEM. Without
	 * place() a payload stays where it arrives, or is put together in memory of the library.
	 * Payloads of weir_call_all() are not placed: the process passes them on from memory of the
	 * library.
	 */
	void *(*place)(struct weir_incoming *c, const void *args, size_t length, size_t payload);
	/* A payload did not become complete, so the function does not run: the memory is the
	 * program's again, but a piece that is under way may still come to an adopted range until
	 * that is disowned. In the thread that has called place(), in a turn or while it leaves.
	 * May be NULL. */
	void (*broken)(struct weir_invoker *v, void *memory, void *user);
};
/* A call from afar with a large payload lets the caller's later calls to the thread overtake it.
 * Not one of weir_call_all(). */
#define WEIR_FUNCTION_UNORDERED 0x1u

/* ---- Invokers ---- */

enum weir_batch_mode {
	/* A call leaves at once while the data plane keeps up; it is packed while it does not. */
	WEIR_BATCH_AUTO,
	/* One message per call, never packed ("write" in the paper). */
	WEIR_BATCH_EAGER,
	/* Packed until `bytes` or `delay_us` is reached, or the thread makes progress ("trad"). */
	WEIR_BATCH_FULL,
	/* One message per call; packed while there is no room ("ovfl"). */
	WEIR_BATCH_OVERFLOW,
};

struct weir_batching {
	uint32_t mode;	/* enum weir_batch_mode */
	uint32_t bytes; /* FULL: of calls after which they leave, 64 to WEIR_BATCH_MAX */
	/* FULL: microseconds since the first packed call after which they leave; looked at in calls
	 * of the library, and about every 512 bytes of calls */
	uint32_t delay_us;
};

/* Initialize with WEIR_INVOKER_OPTIONS_INIT, then change single fields. */
struct weir_invoker_options {
	size_t size;			       /* sizeof(struct weir_invoker_options) */
	const struct weir_function *functions; /* copied; NULL if there are none */
	uint32_t function_count;	       /* at most WEIR_FUNCTIONS_MAX */
	uint32_t threads;      /* of the program that will enter, at most WEIR_INVOKE_THREADS_MAX */
	uint32_t pool_threads; /* for WEIR_THREAD_ANY, at most WEIR_INVOKE_POOL_MAX */
	uint32_t window; /* flow-control window per line, bytes, at least 64 KiB; 0: the default */
	struct weir_batching batching;
	uint32_t layout;      /* of the inline functions below; leave it as initialized */
	uint64_t queue_bytes; /* of calls that wait for room, of the whole process; at least
			       * WEIR_BATCH_MAX */
	/*
	 * A process was lost (status -errno), or has closed all connections in order (0): it has
	 * closed its invoker, or all of its threads have left. Runs in a thread that has entered,
	 * inside its calls of this header. May be NULL.
	 */
	void (*lost)(struct weir_invoker *v, uint32_t process, int status, void *user);
	void *user;	   /* passed to lost */
	uint32_t arity;	   /* of the trees of weir_call_all(): 2 to WEIR_ARITY_MAX */
	uint32_t reserved; /* 0 */
};
#define WEIR_INVOKE_LAYOUT 1u
#define WEIR_INVOKER_OPTIONS_INIT                                                                  \
	{                                                                                          \
		sizeof(struct weir_invoker_options), NULL, 0, 1, 0, 0,                             \
		    {WEIR_BATCH_AUTO, WEIR_BATCH_MAX, 50}, WEIR_INVOKE_LAYOUT, 64ull << 20, NULL,  \
		    NULL, 4, 0                                                                     \
	}

/*
 * Opens an invoker over a group. Collective: every member opens it, several invokers in the same
 * order. The members compare their tables of functions, so that a call of a function that the other
 * process does not have fails at once.
 *
 * @w        session handle with which the caller has joined g
 * @g        group; its ranks are the numbers of processes. It may be left before the invoker
 * closes, behind the last collective call
 * @options  functions and settings
 * @invoker  receives the handle, freed by weir_invoker_close()
 *
 * Returns 0, or
 *   -EINVAL  an option is out of range, or the program was compiled for another layout
 *   -EEXIST  two functions have the same name and version, or their names have the same id:
 *            weir_reason() names both
 *   -EPROTO  another member's release differs
 *   -ENOMEM  no memory
 *   -EINTR   interrupted: given up, leave the group
 *   and errors of collective calls of groups and of weir_messenger_open().
 * Blocks until all members have called it. One thread at a time makes calls on g.
 */
int weir_invoker_open(struct weir *w, struct weir_group *g,
		      const struct weir_invoker_options *options, struct weir_invoker **invoker);

/*
 * Closes all lines when the calls that arrived are taken, and frees the handle. The calling thread
 * leaves, if it has entered; all others have left. A call that another process still makes may be
 * lost: end with weir_group_barrier().
 *
 * Returns 0, or -EBUSY: another thread has not left, weir_reason() names it; -EDEADLK: called in a
 * function. NULL is allowed. Blocks for up to 10 s. Any thread.
 */
int weir_invoker_close(struct weir_invoker *v);

/*
 * Makes the calling thread receiver `index` of this process until it leaves or ends.
 *
 * Returns 0, or -EINVAL: no such index; -EALREADY: it has entered; -EBUSY: another thread has this
 * index; -EDEADLK: called in a function; -ENOSPC: the thread has no lanes of its own, 64 threads of
 * the program have; -EMFILE: no channel left, see --channels of the data plane; -ENOMEM.
 */
int weir_invoker_enter(struct weir_invoker *v, uint32_t index);

/*
 * Sends what the thread has packed and queued, for up to 10 s, running calls meanwhile. Then closes
 * its lines; calls that others make to it from now on fail, and those that it has not taken are
 * lost.
 *
 * Returns 0, or -EPERM: the thread has not entered; -EDEADLK: called in a function; -EAGAIN: calls
 * were left after 10 s, and are dropped.
 */
int weir_invoker_leave(struct weir_invoker *v);

/* Threads that a process has announced in weir_invoker_open(), UINT32_MAX: all processes together.
 * 0 for a process that does not exist. Any thread; does not block. */
uint32_t weir_invoker_threads(const struct weir_invoker *v, uint32_t process);

/* For libraries that stand on this one. Any thread, unless said otherwise; these do not block. */

/* Processes of the group, those without threads and those that were lost included. */
uint32_t weir_invoker_processes(const struct weir_invoker *v);
/* Where calls come to the calling thread. 0, or -EPERM: it has not entered, or is of the pool. */
int weir_invoker_self(const struct weir_invoker *v, struct weir_to *self);
/* The number of a function in the own table, or -ENOENT. */
int weir_invoker_function(const struct weir_invoker *v, const char *name, uint32_t version);
/* 0: the process takes calls as far as is known, or has closed all connections in order; -errno:
 * it was lost. -ENOENT: there is no such process. */
int weir_invoker_status(const struct weir_invoker *v, uint32_t process);

/* ---- Calls ---- */

#define WEIR_CALL_NOW 0x1u /* send at once, with all calls packed before it */
#define WEIR_CALL_FULL_FAILS                                                                       \
	0x2u /* without room return -EAGAIN; never queue, also in a function                       \
	      */

#define WEIR_CALL_SYNC_SENT 0x4u	/* the sync counts when the payload may be used again */
#define WEIR_CALL_ONCE_PER_PROCESS 0x8u /* weir_call_all(): in one thread of each process */

struct weir_sync;
/* Zero, then change single fields. NULL stands for {.timeout_ms = -1}. */
struct weir_call_options {
	uint32_t flags;	    /* WEIR_CALL_* */
	int32_t timeout_ms; /* for room; below 0: no limit. Not in a function */
	/* counts once when the function has returned, or is lost; not if the call is refused. Or
	 * NULL */
	struct weir_sync *sync;
	/*
	 * Bytes that the function gets besides the arguments, as weir_incoming_payload(). Where it
	 * fits one message with the arguments (WEIR_BATCH_MAX less 24 bytes, weir_call_all(): less
	 * 40, and the arguments, rounded up to 8) it is copied. A larger one stays unchanged until
	 * the sync has counted, or the future has ended by itself: while the payload of a future
	 * that was cancelled, or whose thread has left, may still be read, its sync does not count.
	 * A call without either is refused with -EINVAL. The payload is sent as there is room, also
	 * behind the return of the call. A thread of the process reads it where it is if that is
	 * aligned to 8 bytes, else a copy; without memory for one the call ends with -ENOMEM.
	 */
	const void *payload;
	size_t payload_length; /* bytes, at most WEIR_PAYLOAD_MAX; 0: none */
	uint64_t more[3];      /* 0 */
};

/*
 * Makes `to` run a function with a copy of the arguments.
 *
 * @function  its number in the caller's table
 * @args      may be NULL if length is 0
 * @length    bytes, within min_length and max_length
 * @options   NULL: defaults
 *
 * Returns 0 (accepted), or
 *   -ENOSYS        `to` has no such function, or another version: weir_reason() names both
 *   -EMSGSIZE      the length is out of the function's bounds here, or there; or the payload is
 *                  longer than WEIR_PAYLOAD_MAX
 *   -EINVAL        no such function here, unknown flags, a large payload without sync and future
 *   -ENOENT        no such process or thread
 *   -ECONNREFUSED  the thread has not entered, or has left
 *   -EAGAIN        no room within the time, or calls of queue_bytes wait
 *   -EPERM         the calling thread has not entered
 *   or an error of every call.
 * Blocks until there is room, running calls meanwhile; a function's call does not wait.
 */
int weir_call(struct weir_invoker *v, struct weir_to to, uint32_t function, const void *args,
	      size_t length, const struct weir_call_options *options);

/*
 * Makes every thread of every process run a function, the caller included, along a tree of
 * processes with `arity` branches (SE-26): no process sends to more than that. Thread 0 of a
 * process forwards the call, so that process waits for its turn. A process without threads of the
 * program has no part in it. In the function, weir_incoming_from() is the thread that calls here.
 *
 * The order relative to other calls is not defined. The sync counts once, when all have run. It
 * fails with the error of a thread that the call did not reach, the first that the caller learns
 * of; others have run.
 *
 * A large payload is read from the caller's memory by its own process and by those that it calls;
 * below these, each process has a copy, which its threads read and its branches get. Copies count
 * among the payloads under way in a process, at most 2 GiB; a process without memory for its own
 * ends the part of the tree that it begins with -ENOMEM. With WEIR_CALL_SYNC_SENT the sync counts
 * when the caller's memory is not read any more. It fails if a thread of the process, or a process
 * that this one calls, is not reached. A payload holds up later calls to those until it has left.
 *
 * Returns as weir_call(), of any of the processes; -EHOSTUNREACH at once if one is known to be
 * lost; -EINVAL also for a large payload without sync; -ENOMEM. Blocks until there is room on the
 * lines to the processes that the own one calls.
 */
int weir_call_all(struct weir_invoker *v, uint32_t function, const void *args, size_t length,
		  const struct weir_call_options *options);

/* ---- Syncs ---- */

/*
 * A counter that calls decrement when they have run, or are lost (SE-20). It lies in the program's
 * memory, and outlives the calls that name it, which may be of several threads.
 */
struct weir_sync {
	uint64_t internal[8];
};

/*
 * @count  decrements after which the sync ends
 * @done   called at the end, by the thread that learns of it, in a turn, or inside a call with
 *         WEIR_CALL_SYNC_SENT; must not wait. May be NULL
 */
void weir_sync_init(struct weir_sync *s, uint64_t count,
		    void (*done)(struct weir_sync *s, void *user), void *user);

/*
 * Adds to the count of a sync that has not ended. Any thread. (uint64_t)-1 takes back the one of a
 * call that was then refused; `done` is not called if none is left.
 */
void weir_sync_add(struct weir_sync *s, uint64_t count);

/* Returns the outstanding count; *failed (may be NULL) receives how many decrements stand for calls
 * that were lost. Any thread. */
uint64_t weir_sync_left(const struct weir_sync *s, uint64_t *failed);

/*
 * Runs calls until s has ended. Returns 0; the first error if calls were lost; -EAGAIN: not in
 * time; or as weir_invoker_progress(). One thread at a time waits for a sync.
 */
int weir_sync_wait(struct weir_invoker *v, struct weir_sync *s, int timeout_ms);

/*
 * Gives s a name, by which other processes may decrement it, `count` times together. These are part
 * of the count of s; the rest is left to calls. A name is no secret: any member can guess it. It
 * ends with the last signal, or when the thread leaves.
 *
 * Returns 0, -EINVAL (0, or more than is outstanding), -EPERM (not a thread that has entered),
 * -ENOSPC or -ENOMEM.
 */
int weir_sync_export(struct weir_invoker *v, struct weir_sync *s, uint64_t count, uint64_t *name);

/*
 * Decrements the sync that `process` has exported under `name`. A name that has ended, or has fewer
 * signals left, ignores it. Returns 0 (accepted) or as weir_call(). Does not wait.
 */
int weir_sync_signal(struct weir_invoker *v, uint32_t process, uint64_t name, uint64_t count);

/* ---- Results ---- */

/* A result that is outstanding, in the program's memory until it has ended. Set `then` and `user`
 * before the call. */
struct weir_future {
	int status;	   /* after the end: 0 or -errno */
	uint32_t reserved; /* 0 */
	size_t length; /* after the end: bytes of the result, possibly more than its memory holds */
	/* Called at the end in the thread that made the call, in a turn; must not wait. Or NULL. */
	void (*then)(struct weir_future *f, void *user);
	void *user;
	uint64_t internal[4];
};

/*
 * weir_call() that expects a result: of at most WEIR_ARGS_MAX bytes, cut to `size`. The future ends
 * with 0, with the error of weir_incoming_refuse(), with an error of every call if the call or its
 * result was lost, or with -ECANCELED: cancelled, or its thread has left. The sync of the options
 * counts with the future.
 *
 * @f       must not be outstanding
 * @result  receives the result; NULL if size is 0
 *
 * Returns as weir_call(); also -ENOSPC: 2^24 results are outstanding. On failure f has ended, and
 * `then` is not called.
 */
int weir_call_return(struct weir_invoker *v, struct weir_to to, uint32_t function, const void *args,
		     size_t length, struct weir_future *f, void *result, size_t size,
		     const struct weir_call_options *options);

/* Runs calls until f has ended, and returns its status. -EAGAIN: not in time, f stays outstanding;
 * or as weir_invoker_progress(). The thread that made the call. */
int weir_future_wait(struct weir_invoker *v, struct weir_future *f, int timeout_ms);

/* Returns the index of the first of n futures that has ended; else as weir_future_wait(). */
int weir_future_any(struct weir_invoker *v, struct weir_future *const *f, unsigned n,
		    int timeout_ms);

/* Ends f with -ECANCELED unless it has ended; a later result is dropped. A large payload may still
 * be read until the sync of the options counts. The thread that made the call. */
void weir_future_cancel(struct weir_invoker *v, struct weir_future *f);

/* ---- Lines ---- */

/*
 * The calling thread's path to another thread; no other thread uses it. The fields belong to the
 * library. They are public so that the common call compiles to a few instructions.
 */
struct weir_line {
	uint8_t *at;	/* where the next call's arguments go */
	uint8_t *check; /* end of the fast path */
	uint64_t run;	/* function << 32 | length of the run that is open; UINT64_MAX: none */
};

/*
 * Connects to a thread, so that the first call need not wait. The line stays valid until the
 * calling thread leaves.
 *
 * @batching  of this line; NULL: the invoker's
 *
 * Returns 0 or as weir_call(); -EINVAL also for an invalid `batching`; -EDEADLK in a function.
 */
int weir_line_open(struct weir_invoker *v, struct weir_to to, const struct weir_batching *batching,
		   int timeout_ms, struct weir_line **line);

/* For weir_line_call(): any call. */
int weir_line_call_slow(struct weir_line *l, uint32_t function, const void *args, size_t length);

/* weir_call() on a line, without options: waits for room without a limit. */
#ifdef __cplusplus
inline int
#else
static inline int
#endif
weir_line_call(struct weir_line *l, uint32_t function, const void *args, size_t length)
{
	size_t stride = (length + 7) & ~(size_t)7;
	uint8_t *at = l->at;

	if (!length || l->run != ((uint64_t)function << 32 | length) ||
	    (uintptr_t)at + stride > (uintptr_t)l->check)
		return weir_line_call_slow(l, function, args, length);
	l->at = at + stride;
	if (length % 8)
		memset(at + stride - 8, 0, 8);
	memcpy(at, args, length);
	return 0;
}

/* ---- In a function ---- */

struct weir_invoker *weir_incoming_invoker(const struct weir_incoming *c);
struct weir_to
weir_incoming_from(const struct weir_incoming *c);	 /* the thread that made the call */
void *weir_incoming_user(const struct weir_incoming *c); /* weir_function.user */

/*
 * The payload of the call, aligned to 8 bytes, or where place() has put it; NULL, and 0 bytes: it
 * has none. Valid until the function returns, unless kept. It is a peer's: a function checks what
 * it uses. A program on this host may change it while it is read; copy what is checked.
 */
const void *weir_incoming_payload(const struct weir_incoming *c, size_t *length);

/*
 * Ends the wait of the thread that runs the function, if it waits for room on a line or for its
 * connection: the call that it is in, of weir_call(), weir_line_call(), another one that makes a
 * call, or weir_line_open(), returns -EAGAIN, as if its time were over, behind this function and
 * before another message is taken. So a function that has taken more than it has memory for stops
 * what its thread takes besides. Without effect on other waits, and on later ones.
 */
void weir_incoming_end_wait(struct weir_incoming *c);

/* A payload that outlives its call. */
struct weir_kept {
	const void *data;
	size_t length; /* bytes */
	uint64_t internal[2];
};

/*
 * Keeps the payload until weir_kept_release(), once per call, where it is: one that arrived in one
 * piece, of up to 1 MiB, then takes receive memory of the session, as a loan does; one of place()
 * stays the program's. Copies a payload that travelled with the call, is of a thread of the
 * process, or of weir_call_all(). Returns 0; -EINVAL: the call has no payload, or it is kept
 * already; -ENOMEM.
 */
int weir_incoming_keep(struct weir_incoming *c, struct weir_kept *kept);

/* Releases it, once. Any thread, before weir_invoker_close(); does not block. */
void weir_kept_release(struct weir_invoker *v, struct weir_kept *kept);

/*
 * Gives the result of the call, copied, once. Without it the result is empty. Returns 0; -EINVAL:
 * the caller expects none, or has it; -EMSGSIZE: more than WEIR_ARGS_MAX bytes; or as weir_call().
 * Does not wait, and has room up to twice queue_bytes; without it -EAGAIN, and the caller's line
 * is lost unless the result comes later.
 */
int weir_incoming_result(struct weir_incoming *c, const void *result, size_t length);

/* Ends the caller's future with -error, 1 to 4095. Returns as weir_incoming_result(). The call is
 * counted as refused, also if the caller expects no result. */
int weir_incoming_refuse(struct weir_incoming *c, int error);

/* Names the future of a caller whose result comes later. Copied freely. */
struct weir_answer {
	uint64_t internal[4];
};

/* The result comes later. Returns 0, or -EINVAL as weir_incoming_result(). */
int weir_incoming_later(struct weir_incoming *c, struct weir_answer *answer);

/*
 * Gives that result, or -error if that is not 0. Once: a second one is dropped by the caller.
 * Returns as weir_incoming_result(). Any thread that has entered or runs a function. Does not wait.
 */
int weir_answer(struct weir_invoker *v, const struct weir_answer *answer, int error,
		const void *result, size_t length);

/* ---- With exported memory (weir/remote.h; SE-21) ---- */

struct weir_remote;

/*
 * Puts `bytes` bytes into memory, most often an export of `to`'s process, then makes `to` run the
 * function, which finds them there. The program that exported the memory takes no part in the put.
 * Calls that are made later on the line run later, and wait for the put as they wait for room.
 *
 * @r      opened with WEIR_MAY_WRITE. It stays open until the sync has counted, or without one
 *         until weir_remote_flush() of this thread and then weir_invoker_flush() have returned 0
 * @from   the caller's again on return: WEIR_CALL_SYNC_SENT counts at once
 *
 * The call waits in its line's queue, also with WEIR_CALL_FULL_FAILS, which refuses it if others
 * wait there. If the put fails later, the call does not run: its sync counts with that error, and
 * weir_invoker_stats.dropped shows it. Options have no payload.
 *
 * Returns as weir_call() and weir_remote_put(). If the call is refused, the bytes may have been put
 * in part or whole. Blocks as both; the put runs no calls meanwhile, and its time is not limited by
 * timeout_ms. In a function, and with a timeout of 0, it does not wait: -EAGAIN also if the put
 * finds no room now or its connection is being made, -EMSGSIZE if it never does.
 */
int weir_call_put(struct weir_invoker *v, struct weir_to to, uint32_t function, const void *args,
		  size_t length, struct weir_remote *r, uint64_t offset, const void *from,
		  size_t bytes, const struct weir_call_options *options);

/*
 * In a function: gets from memory, most often an export of the caller, and gives the result after
 * that. Takes the part of weir_incoming_later(); does not wait.
 *
 * @r     opened with WEIR_MAY_READ; stays open until `then` is called
 * @to    receives the bytes until `then` is called
 * @then  called once in this thread, in a turn, with 0 or the error of the get; gives the result by
 *        weir_answer(). Must not wait. -ECANCELED: the thread leaves, and `to` may be written until
 *        r is closed
 *
 * Returns 0, or as weir_incoming_later() and weir_remote_get(); then the result is still to be
 * given, and `to` is the caller's. An error behind the first 8 KiB goes to `then`.
 */
int weir_incoming_get(struct weir_incoming *c, struct weir_remote *r, uint64_t offset, void *to,
		      size_t bytes,
		      void (*then)(struct weir_invoker *v, const struct weir_answer *a, void *to,
				   size_t bytes, int status));

/* ---- Progress ---- */

/*
 * Sends packed calls and runs calls that have arrived.
 *
 * @max         stops behind the message in which this many have run; 0: no limit
 * @timeout_ms  sleeps up to this time until a call has run, or a future or sync has ended; 0: does
 *              not wait; below 0: no limit
 *
 * Returns the number of calls run; 0: none has, but the time is over, lost() was called, or a
 * future of the thread has ended, or a sync that it has counted last; -EDEADLK: called in a
 * function; -EPERM: the thread has not entered; -EINTR as in weir/stream.h; or an error of every
 * call.
 */
int weir_invoker_progress(struct weir_invoker *v, unsigned max, int timeout_ms);

/* Sends the calls that the calling thread has packed, as far as there is room. 0 or as
 * weir_invoker_progress(). Does not block. */
int weir_invoker_flush(struct weir_invoker *v);

/* ---- Collective calls ---- */

/*
 * All threads of all processes make these calls, in the same order and with matching arguments: the
 * threads that were announced by `threads` of the options, until they leave. Threads of a process
 * join, then one of them makes the call of the group. All run calls while they wait.
 *
 * After -EAGAIN (the time is over), -EINTR and -ENOMEM the call has begun: the thread makes the
 * same call again, with the same arguments, and it continues. Its buffers stay untouched until
 * then. weir_reason() names threads of the process that have not made the call, else a process.
 *
 * Errors: -EPERM, the thread has not entered; -EDEADLK, called in a function; -EINVAL, a process
 * has no threads, or the calls of threads differ; -EBUSY, the thread has begun another one, or the
 * others have before it entered again; and those of collective calls of groups: if a process ends,
 * a call fails in all threads that wait in it, and so does each later one. Calls, syncs and futures
 * among the others go on. Open an invoker over weir_group_survivors() for more collective calls.
 *
 * No thread makes collective calls of the group, or leaves it, meanwhile. A function that was set
 * by weir_group_idle() runs, too.
 */

/* Waits until all threads have made the call. */
int weir_invoker_barrier(struct weir_invoker *v, int timeout_ms);

/*
 * A barrier that also waits until each call made in any thread or function has run, with all the
 * calls that were made in those functions, and results and syncs have arrived. A result that comes
 * later (weir_incoming_later()) is not waited for until it is given.
 *
 * Also returns -EHOSTUNREACH: a line was lost, and with it calls that do not run, or may not have.
 */
int weir_invoker_quiet(struct weir_invoker *v, int timeout_ms);

/*
 * Combines the elements of all threads: those of thread 0 of process 0, then those of its thread 1,
 * ..., then those of process 1, in brackets that depend on the numbers of processes and threads
 * alone. So all threads get the same bits, and the same ones in each run, floating point included.
 *
 * @mine    own elements, packed
 * @result  receives the combined ones, aligned for the type; may be `mine`
 * @count   elements, equal in all threads
 * @type    enum weir_type
 * @op      enum weir_acc; one that weir_acc_valid() allows for the type
 */
int weir_invoker_reduce(struct weir_invoker *v, const void *mine, void *result, size_t count,
			enum weir_type type, enum weir_acc op, int timeout_ms);

/* ---- Counters ---- */

/* Counters since the invoker was opened: X(field, description). */
#define WEIR_INVOKER_COUNTERS(X)                                                                   \
	X(made, "calls accepted")                                                                  \
	X(run, "calls run")                                                                        \
	X(messages, "messages that carried calls, and batches between threads of the process")     \
	X(full, "batches sent because they were full")                                             \
	X(late, "batches sent because delay_us had passed")                                        \
	X(waited, "batches sent because their thread waited or made progress")                     \
	X(stale, "batches that their thread left unsent for more than 10 ms")                      \
	X(queued, "batches queued for lack of room")                                               \
	X(queue_bytes, "bytes of calls that are queued now")                                       \
	X(queue_peak, "largest number of bytes queued at a time")                                  \
	X(dropped, "accepted calls that were lost with their line")                                \
	X(ignored, "results and signals for what has ended")                                       \
	X(malformed, "lines ended because of malformed input")                                     \
	X(refused, "calls that functions ended by weir_incoming_refuse()")                         \
	X(unplaced, "calls that did not run because their payload found no memory")                \
	X(placed, "payloads of which memory of place() received pieces without a copy")            \
	X(copied, "payloads copied into memory of place()")
struct weir_invoker_stats {
	size_t size; /* sizeof(struct weir_invoker_stats), set by WEIR_INVOKER_STATS_INIT */
#define WEIR_INVOKER_COUNTER(name, help) uint64_t name;
	WEIR_INVOKER_COUNTERS(WEIR_INVOKER_COUNTER)
#undef WEIR_INVOKER_COUNTER
};
#define WEIR_INVOKER_COUNTER_INIT(name, help) , 0
#define WEIR_INVOKER_STATS_INIT                                                                    \
	{                                                                                          \
		sizeof(struct weir_invoker_stats) WEIR_INVOKER_COUNTERS(WEIR_INVOKER_COUNTER_INIT) \
	}

/*
 * Reads the sums over all threads. Counters that the library does not have are 0.
 *
 * @stats  initialized with WEIR_INVOKER_STATS_INIT; receives the counters
 *
 * Returns 0, or -EINVAL if the size is invalid. Any thread; does not block.
 */
int weir_invoker_stats(const struct weir_invoker *v, struct weir_invoker_stats *stats);

#ifdef __cplusplus
}
#endif
#endif

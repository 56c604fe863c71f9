/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sessions: attaching a program to the data plane of its host. A process attaches once and uses
 * the handle from all its threads; each thread gets its own channel to an engine with its first
 * call. The library links only libc and starts one thread, which sleeps until the data plane ends.
 *
 * Calls return 0 or a count on success and a negative errno value on failure; weir_reason() then
 * returns the cause and the remedy as text.
 *
 * After fork() every call on the parent's handle returns -ENOTCONN in the child. The child may
 * attach for itself.
 *
 * Structures that begin with `size` may grow with a release. The program initializes one with
 * WEIR_X_INIT and changes single fields; all bytes 0 but `size` also select the defaults, except
 * for struct weir_messenger_options. A program and a library of different releases work together:
 * fields that the program does not have keep their defaults. Every call that takes such a
 * structure returns
 *   -EINVAL  the size is below that of the field itself or above WEIR_SIZE_MAX: it was not
 *            initialized
 *   -E2BIG   a field that this library does not know is not 0: the library is older than the
 *            program
 * Structures without a size have reserved fields, which the program leaves 0. docs/abi.md has the
 * rules.
 */
#ifndef WEIR_WEIR_H
#define WEIR_WEIR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_SIZE_MAX 4096u /* bytes: largest structure that begins with its size */

struct weir;	   /* handle of a session */
struct weir_waker; /* of a thread; valid until weir_detach() */

/* Flags of struct weir_options. */

#define WEIR_POLLING 0x1u /* waiting calls spin and yield the CPU, but never sleep */
/*
 * weir_poll(), weir_wait() and weir_arm() reattach (weir_reattach()) once a lost data plane is
 * back, however long that takes. These three then do not return -ENODEV; all other calls do.
 * -ECONNABORTED stays until the program itself calls weir_reattach(): an operator has ended the
 * session, or the data plane has because the program broke a rule (weir_reason() says which).
 */
#define WEIR_REATTACH 0x2u

struct weir_options {
	size_t size;	      /* sizeof(struct weir_options), set by WEIR_OPTIONS_INIT */
	const char *instance; /* name of the data plane; NULL: $WEIR_INSTANCE, else "default" */
	const char *name;     /* shown to operators, at most 31 bytes; NULL: name of the program */
	uint64_t arena;	      /* requested shared memory, bytes; 0: the data plane's default */
	uint32_t flags;	      /* WEIR_POLLING, WEIR_REATTACH */
	uint32_t reserved;    /* 0 */
};
#define WEIR_OPTIONS_INIT                                                                          \
	{                                                                                          \
		sizeof(struct weir_options), NULL, NULL, 0, 0, 0                                   \
	}

/*
 * Attaches the process to the data plane of an instance.
 *
 * @options  NULL: defaults
 * @handle   receives the handle, freed by weir_detach()
 *
 * Returns 0, or
 *   -ENOENT        no data plane runs; start weir-dataplane
 *   -EACCES        this user may not attach
 *   -EDQUOT        a limit of this user is reached
 *   -EPROTO        library and data plane have different protocol versions
 *   -ENOMEM        no memory
 *   -EMFILE        no session or file descriptor left
 *   -ECONNREFUSED  refused; weir_reason() has the cause
 *   -ECONNABORTED  an operator ended the session during the call
 *   -EINTR         a signal handler ran while the call waited for the data plane
 *   -EINVAL        handle is NULL, or a flag or size is invalid
 *   -E2BIG         the options have a field that this library does not know
 * Blocks while the data plane works on this request or on earlier ones, otherwise for at most 5 s.
 * Any thread.
 */
int weir_attach(const struct weir_options *options, struct weir **handle);

/*
 * Attaches again, with the options of weir_attach(), after the data plane was lost or an operator
 * ended the session. The handle, its listeners and the descriptor of weir_fd() remain valid.
 * Connections have ended (-ENODEV, -ECONNABORTED); the program closes them and connects again.
 * Memory of the previous session that the program still holds (messages on loan, reservations,
 * adopted ranges) remains mapped until it is released, abandoned or disowned, but nothing can be
 * sent from it or received into it.
 *
 * @w           session handle
 * @timeout_ms  milliseconds to wait for the data plane; below 0: no limit; 0: try once
 *
 * Returns 0 if the handle is attached, whether by this call, by another thread or because it was
 * never lost. Otherwise returns an error of weir_attach(); -EINTR also if weir_wake() ended the
 * wait. Any thread.
 */
int weir_reattach(struct weir *w, int timeout_ms);

/*
 * Closes all connections and listeners of a handle and frees it. Waits at most 5 s until accepted
 * messages are delivered. No other thread may be inside a call on the handle. NULL is allowed.
 */
void weir_detach(struct weir *w);

/*
 * Returns cause and remedy of the last failed call of this thread, in one line without newline.
 * Never NULL. The library owns the text; the thread's next call may overwrite it.
 */
const char *weir_reason(void);

/* Sets weir_reason() of this thread, cut to its size, and returns `rc`: for libraries that stand on
 * this one. */
int weir_fail(int rc, const char *format, ...)
#ifdef __GNUC__
    __attribute__((format(printf, 2, 3), cold))
#endif
    ;

/*
 * Returns the id of this node, or -EAGAIN while weir-control has not yet assigned it. Any thread;
 * does not block.
 */
int weir_node(struct weir *w);

/*
 * Returns a file descriptor for the caller's own epoll loop (EPOLLIN, level-triggered), or a
 * negative errno. After weir_arm() has returned 0, the descriptor becomes readable when weir_poll()
 * on the calling thread has something to report. The handle owns the descriptor; do not close it.
 */
int weir_fd(struct weir *w);

/*
 * Prepares the calling thread to sleep on weir_fd(). Call it before every sleep. Operations on
 * memory (weir/remote.h) are no events: a thread that awaits some looks at them once more behind
 * this call, by weir_op_wait() with a timeout of 0, since another thread may have taken in their
 * end.
 *
 * Returns 0 if the thread may sleep, or
 *   -EAGAIN        events are pending, or weir_wake() was called; call weir_poll()
 *   -ENODEV        the data plane is gone
 *   -ECONNABORTED  the session was ended
 * Does not block.
 */
int weir_arm(struct weir *w);

/*
 * Ends the waits of all threads of the program that use the handle, once each: of a thread that
 * waits now, this wait, otherwise its next one. The call that waits returns -EINTR and has no
 * effect. A call that need not wait succeeds, and leaves the wake to the next that does; several
 * wakes before it count as one. A thread whose first call comes after the wake is woken, too.
 * weir_fd() becomes readable, or weir_arm() returns -EAGAIN once. Handler threads of messengers are
 * not woken.
 *
 * Any thread, except while one is inside weir_detach(). Does not block. May be called by a signal
 * handler, whatever it has interrupted.
 */
void weir_wake(struct weir *w);

/*
 * Returns the waker of the calling thread, for weir_wake_thread() by others. It stays the same
 * after weir_reattach().
 *
 * @waker  receives the waker, which the library owns; valid until weir_detach()
 *
 * Returns 0, -EINVAL if waker is NULL, or an error of every call (weir/stream.h). Does not block.
 */
int weir_thread_waker(struct weir *w, struct weir_waker **waker);

/* weir_wake() for one thread. */
void weir_wake_thread(struct weir_waker *waker);

#ifdef __cplusplus
}
#endif
#endif

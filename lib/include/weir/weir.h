/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Attaching to Weir. A program attaches once per process; the handle may be used by all its
 * threads. Each thread gets a channel of its own to an engine on first use. The library links libc
 * alone and starts one sleeping thread, which notices the end of the data plane.
 *
 * After fork() the child gets -ENOTCONN from every call on a handle of its parent; it may attach
 * itself. Errors are negative errno values.
 */
#ifndef WEIR_WEIR_H
#define WEIR_WEIR_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct weir;

#define WEIR_POLLING 0x1u /* calls that wait spin and yield the CPU, but never sleep */
/*
 * weir_poll(), weir_wait() and weir_arm() attach again by themselves (weir_reattach()) when the
 * data plane has gone and is back, for as long as it takes; they give no -ENODEV, all other calls
 * do. A session that an operator has ended, or the data plane because the program broke a rule
 * (-ECONNABORTED, weir_reason() says why), stays so until weir_reattach() is called.
 */
#define WEIR_REATTACH 0x2u

struct weir_options {
	const char *instance; /* NULL: $WEIR_INSTANCE, else "default" */
	const char *name;     /* shown to operators, at most 31 bytes; NULL: the program's name */
	uint64_t arena;	      /* bytes of shared memory wished, 0: the data plane's default */
	uint32_t flags;	      /* WEIR_POLLING, WEIR_REATTACH */
};

/*
 * Attaches to the data plane of an instance. `options` may be NULL. Blocks while the data plane
 * is at work for it or for those before, else 5 s at most.
 * 0 and *handle (free with weir_detach), or -ENOENT (no data plane: start weir-dataplane),
 * -EACCES (this user may not), -EDQUOT (this user's limits), -EPROTO (versions don't match),
 * -ENOMEM, -EMFILE, -ECONNREFUSED (refused, see weir_reason()), -ECONNABORTED (an operator has
 * ended the session meanwhile).
 */
int weir_attach(const struct weir_options *options, struct weir **handle);

/*
 * Attaches again, as weir_attach() did, after the data plane has gone, or after an operator has
 * ended the session: waits `timeout_ms` for it (0: tries once, < 0: for ever). The handle stays, so
 * do listeners and weir_fd(). Connections have ended (-ENODEV, -ECONNABORTED) and stay so: close
 * and connect again. What the program holds of the former session's memory (messages on loan,
 * reservations, adopted ranges) stays where it is until it is released, abandoned or disowned;
 * nothing can be sent out of it or received into it. 0: the handle is attached, by this call or
 * another thread's, or was all the time; else errors as weir_attach(). Any thread.
 */
int weir_reattach(struct weir *w, int timeout_ms);

/* Closes everything and frees the handle. NULL is allowed. No other thread may be inside a call. */
void weir_detach(struct weir *w);

/* Why the last failing call of this thread failed: cause and remedy in one line. Never NULL. */
const char *weir_reason(void);

/* Own node id, or -EAGAIN while the control process has not told it. */
int weir_node(struct weir *w);

/*
 * An fd for the caller's own epoll loop (level triggered, EPOLLIN): readable when weir_poll() on
 * this thread has something to report, after weir_arm() returned 0. Belongs to the handle. Or
 * -errno.
 */
int weir_fd(struct weir *w);

/*
 * Before sleeping on weir_fd(): returns 0 when the thread may sleep, -EAGAIN when events are there
 * already, -ENODEV when the data plane is gone, -ECONNABORTED when an operator has ended the
 * session.
 */
int weir_arm(struct weir *w);

#ifdef __cplusplus
}
#endif
#endif

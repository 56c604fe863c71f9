/* SPDX-License-Identifier: BSD-3-Clause */
/* Needs of windows beside weir/remote.h: handles that all threads of a program use. */
#ifndef WEIR_REMOTE_WINDOW_H
#define WEIR_REMOTE_WINDOW_H

#include "public.h"

#include "client/session.h"

#include <stdbool.h>

struct weir_channel;

/*
 * Mapped memory, for callers that load and store there themselves while weir_direct_open() holds:
 * the owner of the handle, and copies of windows. The pointers are valid until the handle is
 * closed.
 */
struct weir_direct {
	uint8_t *at;			 /* NULL: it is not mapped */
	uint64_t bytes;			 /* of the export */
	const _Atomic uint32_t *session; /* its weir_life.state */
	/* status of the connection that stays beside the mapping: 0, or how the export has ended.
	 * The engine writes it before CLOSED, all threads read it */
	const _Atomic uint32_t *ended;
	const _Atomic bool *by_engine; /* weir_remote.by_engine */
};

/* Whether neither session nor export has ended. After a fork: no, and nothing else is read. */
static inline bool
weir_direct_open(const struct weir_direct *d)
{
	return atomic_load_explicit(d->session, memory_order_relaxed) == WEIR_UP &&
	       !atomic_load_explicit(d->ended, memory_order_relaxed);
}

/*
 * weir_remote_flush() for the operations of all threads on memory that is mapped, where all were
 * loads and stores. False: call that.
 */
static inline bool
weir_direct_flush(const struct weir_direct *d)
{
	/* stores before it are seen before those after it */
	atomic_thread_fence(memory_order_acq_rel);
	return weir_direct_open(d) && !atomic_load_explicit(d->by_engine, memory_order_relaxed);
}

struct weir_direct weir_remote_direct(const struct weir_remote *r);

/* weir_remote_update() of mapped memory that nothing else updates during the call. */
int weir_remote_update_alone(struct weir_remote *r, const struct weir_update *u);

/* weir_remote_flush() until all are complete or have ended. Interrupted, it goes on, and the next
 * wait of the thread ends instead. */
int weir_remote_flush_uninterrupted(struct weir_remote *r);
/* weir_remote_flush() for the operations of all threads but the calling one. */
int weir_remote_flush_others(struct weir_remote *r, int timeout_ms);
/*
 * weir_remote_lock() of the program that has number `member` among the words of the export's lock;
 * 0: it does not use them. 1: it was granted, and the words say so (ipc/lock_words.h). From then on
 * the program may take and leave the lock there, and the data plane releases for it what it holds
 * by them, when it ends or r is closed.
 */
int weir_remote_lock_as(struct weir_remote *r, int kind, uint32_t member, int timeout_ms);
/* Tells whether it was. Written by the thread that locks, one at a time. */
struct weir_words_known {
	const _Atomic uint32_t *session; /* as in weir_direct */
	const _Atomic int *ended;	 /* of the connection that has the number, once `granted` */
	bool granted;
	bool withdrawn; /* a request was taken back, and may still be granted and released */
};
static inline bool
weir_words_ready(const struct weir_words_known *k)
{
	return k->granted && !k->withdrawn &&
	       atomic_load_explicit(k->session, memory_order_relaxed) == WEIR_UP &&
	       !atomic_load_explicit(k->ended, memory_order_relaxed);
}
/* Valid until r is closed. */
const struct weir_words_known *weir_remote_words(const struct weir_remote *r);
/* Whether it was, and neither export nor session has ended as far as this program knows. Unlike
 * weir_words_ready() it looks whether the request that was taken back is over. */
bool weir_remote_knows_words(struct weir_remote *r);
/* Releases the locks that threads hold through r. Their operations are complete. */
void weir_remote_unlock_all(struct weir_remote *r);
/* 0, or how the export has ended, as far as the calling thread can know. */
int weir_remote_check(struct weir_remote *r);

/* weir_signal_wait(), which an error of `check` ends, too, unless the word holds then. The check is
 * made now and then, and before each sleep. */
int weir_signal_wait_with(struct weir_export *x, uint64_t offset, enum weir_compare compare,
			  uint64_t value, int timeout_ms, uint64_t *seen, int (*check)(void *arg),
			  void *arg);

/* weir_remote_notify() with any `bytes`. */
int weir_remote_notify_with(struct weir_remote *r, uint32_t tag, uint32_t source, uint64_t bytes,
			    unsigned flags);

/* Fields of an export of a window beside those of others. */
struct weir_export_more {
	const char *name; /* for operators, at most 31 bytes */
	bool by_engine;	  /* all that update its memory are operations that engines execute */
	/* with WEIR_MAY_LOCK: where the words of its lock are (ipc/lock_words.h), zeroed, and for
	 * how many programs; NULL: only the engine grants the lock */
	const struct weir_region *lock_region;
	uint64_t lock_offset;
	uint32_t lock_members;
};
/* weir_export() with more. */
int weir_export_with(struct weir_region *region, uint64_t offset, uint64_t length, unsigned rights,
		     const struct weir_export_more *more, struct weir_export **x,
		     struct weir_key *key);
/*
 * An export to which ranges of regions are attached: offsets of operations are the addresses of
 * these. Errors as of weir_export().
 */
int weir_export_dynamic(struct weir *w, unsigned rights, const struct weir_export_more *more,
			struct weir_export **x, struct weir_key *key);
/*
 * Attaches a range of a region, which the caller keeps until it is detached. 0, -EEXIST: it
 * overlaps one that is attached; -EMFILE: too many are; -ESTALE, -ECONNABORTED: the export has
 * ended; -EINVAL, -EACCES, -EFAULT as of weir_export().
 */
int weir_export_attach(struct weir_export *x, const struct weir_region *region, uint64_t offset,
		       uint64_t bytes);
/* Renames it for operators, at most 31 bytes. 0, -ENOENT: it ended with its region; or how the
 * session has ended. */
int weir_export_rename(struct weir_export *x, const char *name);
/* Detaches the range that begins at an address: no operation there is under way, and none will
 * begin. 0, -ENOENT, or as above. */
int weir_export_detach(struct weir_export *x, uint64_t address);
/* The export of r is dynamic: flushes ask it for operations outside its ranges. Before any
 * operation. */
void weir_remote_set_dynamic(struct weir_remote *r);
/* 0, or -ERANGE: operations that a flush has completed were outside, changed nothing and read
 * zeros. Each is told once. */
int weir_remote_refused(struct weir_remote *r);

/* A notice, and whom its window goes back to. */
struct weir_remote_notice {
	struct weir_channel *channel;
	uint32_t vqpn;
	uint32_t tag, source;
	uint64_t bytes;
};

/* Takes the notices of an export instead of weir_notice_next(). */
struct weir_notice_sink {
	/* A notice has come. False: it cannot be taken now. The exporting thread's object is locked
	 * (weir_export_thread()). */
	bool (*came)(struct weir_notice_sink *s, const struct weir_remote_notice *n);
};

/* Sets it before anybody has the key, and NULL when nobody sends any more. */
void weir_export_set_sink(struct weir_export *x, struct weir_notice_sink *s);
struct weir_thread *weir_export_thread(const struct weir_export *x);
/* Returns the window of a notice that was taken; `last`: no other one waits. False: not now. Its
 * thread's object is locked. */
bool weir_notice_return(const struct weir_remote_notice *n, bool last);

#endif

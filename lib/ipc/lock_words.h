/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The lock of an export as programs of its host take it while nobody else wants it: by words in
 * memory that they share with each other and with the data plane. Once somebody waits, the word is
 * closed, and the queue of the owner engine decides (dataplane/engine/bulk/lock.c).
 *
 * The exporting program gives the memory, and each program that uses it has a number there, from 1
 * on. Nobody trusts the words: one who spoils them spoils the lock of this export alone.
 *
 * Order: whoever asks writes its own word and reads those of the others behind it, all in one total
 * order (seq_cst): a program that asks for the exclusive lock, or an engine that has closed the
 * word, sees a shared holder, or that one sees it, or both. If both do, both ask the engine. In the
 * same way an engine that no longer stands for a program sees what it has taken, or that one sees
 * `gone`.
 */
#ifndef WEIR_COMMON_LOCK_WORDS_H
#define WEIR_COMMON_LOCK_WORDS_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define WEIR_LOCK_MEMBERS_MAX 4096u

#define WEIR_LOCK_OWNER 0xffffu	  /* number of the exclusive holder; 0: none */
#define WEIR_LOCK_CLOSED 0x10000u /* only engines grant the lock. Set and cleared by engines */
/* An exclusive holder has ended with the lock. Set by the engine that saw it; cleared by the owner
 * engine, which tells the next holder. */
#define WEIR_LOCK_DOUBT 0x20000u

#define WEIR_LOCK_TRIES 1000u /* to leave the lock: the word changes more often only if spoilt */

/* Of one program, which alone writes it, but where engines are named. */
struct weir_lock_member {
	/* 1: it holds the lock with others. Also written by an engine that grants the lock, or that
	 * releases what a program held */
	_Alignas(64) _Atomic uint32_t shared;
	/* by engines: 1: they release what the program held, and no longer what it takes by words
	 */
	_Atomic uint32_t gone;
	/* of windows: numbers of the last exposure to the exporting program that the writer has
	 * begun, and of the last one of that program's that it has completed (lib/window/pscw.c) */
	_Atomic uint64_t posted, completed;
};
static_assert(sizeof(struct weir_lock_member) == 64, "one cache line");

struct weir_lock_words {
	_Alignas(64) _Atomic uint32_t word; /* 0: free for programs */
	/* of windows: number of the program that updates the part; 0: none (lib/window/turn.c) */
	_Atomic uint32_t turn;
	struct weir_lock_member member[]; /* by number - 1 */
};
static_assert(sizeof(struct weir_lock_words) == 64, "one cache line");

static inline uint64_t
weir_lock_bytes(uint32_t members)
{
	return sizeof(struct weir_lock_words) + members * sizeof(struct weir_lock_member);
}

/* Whether one of `members` programs holds the lock with others. */
static inline bool
weir_lock_is_shared(const struct weir_lock_words *w, uint32_t members)
{
	for (uint32_t i = 0; i < members; i++)
		if (atomic_load_explicit(&w->member[i].shared, memory_order_seq_cst))
			return true;
	return false;
}

/* The lock is granted to program `own`: nobody else holds it, and it is closed. */
static inline void
weir_lock_give(struct weir_lock_words *w, uint32_t own, bool exclusive)
{
	if (exclusive)
		atomic_fetch_or_explicit(&w->word, own, memory_order_seq_cst);
	else
		atomic_store_explicit(&w->member[own - 1].shared, 1, memory_order_seq_cst);
}

/* Program `own` takes the lock with others. False: it asks the engine. */
static inline bool
weir_lock_take_shared(struct weir_lock_words *w, uint32_t own)
{
	_Atomic uint32_t *mine = &w->member[own - 1].shared;

	atomic_store_explicit(mine, 1, memory_order_seq_cst);
	if (!atomic_load_explicit(&w->word, memory_order_seq_cst) &&
	    !atomic_load_explicit(&w->member[own - 1].gone, memory_order_seq_cst))
		return true;
	atomic_store_explicit(mine, 0, memory_order_release);
	return false;
}

static inline void
weir_lock_leave_shared(struct weir_lock_words *w, uint32_t own)
{
	atomic_store_explicit(&w->member[own - 1].shared, 0, memory_order_release);
}

/* Program `own` is no longer alone, if it was; the word gets `more`. It may have been closed
 * meanwhile; and a program that an operator has ended holds nothing any more. */
static inline void
weir_lock_leave_exclusive(struct weir_lock_words *w, uint32_t own, uint32_t more)
{
	uint32_t word = own, tries = 0;

	while (!atomic_compare_exchange_weak_explicit(&w->word, &word,
						      (word & ~WEIR_LOCK_OWNER) | more,
						      memory_order_seq_cst, memory_order_relaxed))
		if ((word & WEIR_LOCK_OWNER) != own || ++tries == WEIR_LOCK_TRIES)
			return;
}

/* Program `own` of `members` takes the lock alone. False: it asks the engine. */
static inline bool
weir_lock_take_exclusive(struct weir_lock_words *w, uint32_t own, uint32_t members)
{
	uint32_t open = 0;

	if (!atomic_compare_exchange_strong_explicit(&w->word, &open, own, memory_order_seq_cst,
						     memory_order_relaxed))
		return false;
	if (!weir_lock_is_shared(w, members) &&
	    !atomic_load_explicit(&w->member[own - 1].gone, memory_order_seq_cst))
		return true;
	weir_lock_leave_exclusive(w, own, 0);
	return false;
}

#endif

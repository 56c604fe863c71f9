/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A member of a group with a window, which ends when one of them does; then they form another. All
 * members work on the part of rank 0: they add, increment a word under the lock, put 16 MiB at
 * once, pass numbers in a ring by post and start, and meet in fences. Rank 0 compares its part with
 * the books. While the file hold-SLOT exists, the member keeps the lock; while fill-SLOT does, it
 * puts 16 MiB and nothing else; while "fences" does, all do nothing but meet; while "notices" does,
 * all wait for a notice of anybody, which does not come.
 */
#include "rma_kill.h"

#include "weir/window.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MEMBERS 8u
/* words of rank 0's part: one per member, then these */
#define TOTAL MEMBERS
#define LOCKED (MEMBERS + 1u)
#define PASSED (MEMBERS + 2u) /* of each part: the number that the former member passes */
#define PAGE 4096u
#define AT_AREA(slot) (PAGE + (slot)*AREA)
#define FILL_EACH 16u	  /* rounds between two puts of 16 MiB */
#define COMPARE_EACH 128u /* rounds */

struct work {
	struct weir_group *g;
	struct weir_window *win;
	struct tally *tally; /* of this life */
	uint64_t life, round, seen;
	uint32_t slot, size;
	uint64_t *part;
	uint8_t *buf;
};

/* Whether a call has told that the last exclusive holder of a lock was dead. */
static bool
is_repaired(int rc)
{
	if (rc != -EOWNERDEAD)
		return false;
	book->repaired++;
	say("repaired");
	return true;
}

static int
add(struct work *k)
{
	struct tally *t = &k->tally[ADDED];
	const uint64_t one = 1;
	uint64_t was;
	int end, rc = weir_window_lock_all(k->win, 0, PATIENCE_MS);

	if (rc && !is_repaired(rc)) /* that of the own part is held */
		return rc;
	t->begun++;
	/* else the first operation acquires the lock; told of a dead holder, it has not begun */
	for (unsigned i = 0; i < 2; i++) {
		rc = weir_window_fetch_op(k->win, 0, 8 * k->slot, &one, &was, WEIR_T_UINT64,
					  WEIR_ACC_SUM, 0);
		if (!is_repaired(rc))
			break;
	}
	if (!rc)
		rc = weir_window_accumulate(k->win, 0, 8 * TOTAL, &one, 1, WEIR_T_UINT64,
					    WEIR_ACC_SUM, 0);
	end = weir_window_unlock_all(k->win, PATIENCE_MS);
	rc = rc ? rc : end;
	if (rc)
		return rc;
	t->completed++;
	if (was != k->seen)
		wrong("fetched %llu, expected %llu", (unsigned long long)was,
		      (unsigned long long)k->seen);
	k->seen++;
	return 0;
}

/* Whether the test wants this member to do something; until SIGTERM. */
static bool
is_to(const struct work *k, const char *what)
{
	char name[32];

	snprintf(name, sizeof(name), "%s-%u", what, k->slot);
	return !stopping && !access(name, F_OK);
}

/* The lock of rank 0; that its last exclusive holder was dead is told to one of any kind. */
static int
lock(struct work *k, int kind)
{
	int rc = weir_window_lock(k->win, 0, kind, 0, PATIENCE_MS);

	return is_repaired(rc) ? 0 : rc;
}

/* Behind an operation that returned rc. 0: it is complete. */
static int
unlock(struct work *k, struct tally *t, int rc)
{
	int end = weir_window_unlock(k->win, 0, PATIENCE_MS);

	rc = rc ? rc : end;
	if (!rc)
		t->completed++;
	return rc;
}

static int
increment(struct work *k)
{
	struct tally *t = &k->tally[INCREMENTED];
	uint64_t value = 0;
	int rc = lock(k, WEIR_LOCK_EXCLUSIVE);

	if (rc)
		return rc;
	if (is_to(k, "hold"))
		say("held");
	while (is_to(k, "hold"))
		usleep(1000);
	t->begun++;
	rc = weir_window_get(k->win, 0, 8 * LOCKED, &value, sizeof(value), 0);
	if (!rc)
		rc = weir_window_flush(k->win, 0, PATIENCE_MS);
	value++;
	if (!rc)
		rc = weir_window_put(k->win, 0, 8 * LOCKED, &value, sizeof(value), 0);
	return unlock(k, t, rc);
}

static int
fill(struct work *k)
{
	struct tally *t = &k->tally[FILLED];
	int rc = lock(k, WEIR_LOCK_SHARED);

	if (rc)
		return rc;
	memset(k->buf, (int)((t->begun + 1) % 256), AREA);
	t->begun++;
	rc = weir_window_put(k->win, 0, AT_AREA(k->slot), k->buf, AREA, 0);
	return unlock(k, t, rc);
}

/* A number to the next member; the one of the former is here. */
static int
pass(struct work *k)
{
	uint32_t to = (k->slot + 1) % k->size, from = (k->slot + k->size - 1) % k->size;
	uint64_t mine = k->round * MEMBERS + k->slot;
	int rc = weir_window_post(k->win, &from, 1, 0);

	if (!rc)
		rc = weir_window_start(k->win, &to, 1, 0, PATIENCE_MS);
	if (!rc)
		rc = weir_window_put(k->win, to, 8 * PASSED, &mine, sizeof(mine), 0);
	if (!rc)
		rc = weir_window_complete(k->win, PATIENCE_MS);
	if (!rc)
		rc = weir_window_wait(k->win, PATIENCE_MS);
	if (!rc && k->part[PASSED] != k->round * MEMBERS + from)
		wrong("rank %u has passed %llu in round %llu", from,
		      (unsigned long long)k->part[PASSED], (unsigned long long)k->round);
	return rc;
}

/* For a notice that nobody sends. */
static int
await_notice(const struct work *k)
{
	struct weir_watch watch;
	int rc;

	say("awaits");
	weir_watch_init(&watch, k->win, WEIR_RANK_ANY, WEIR_TAG_ANY, 1);
	rc = weir_watch_wait(&watch, PATIENCE_MS);
	if (!rc)
		wrong("a notice of rank %u, which nobody has sent", watch.last_source);
	return rc;
}

/* ---- rank 0 ---- */

/* The tallies of all members in this life; `completed` alone is read before the memory is. */
static void
read_tallies(const struct work *k, bool begun, uint64_t to[][OF_WINDOWS])
{
	for (uint32_t i = 0; i < k->size; i++) {
		char name[32];
		struct book *b;

		snprintf(name, sizeof(name), "window-%u", i);
		b = map_file(name, sizeof(*b), O_RDWR);
		for (unsigned n = 0; n < OF_WINDOWS; n++)
			to[i][n] = !b	   ? 0
				   : begun ? b->window[k->life][n].begun
					   : b->window[k->life][n].completed;
		if (b)
			munmap(b, sizeof(*b));
	}
}

static void
compare(const struct work *k)
{
	uint64_t completed[MEMBERS][OF_WINDOWS], begun[MEMBERS][OF_WINDOWS], word[PASSED];
	static uint8_t seen[MEMBERS][256];
	uint64_t all_completed[OF_WINDOWS] = {0}, all_begun[OF_WINDOWS] = {0};
	unsigned faults = 0;
	char name[32];

	read_tallies(k, false, completed);
	for (unsigned i = 0; i < PASSED; i++)
		word[i] = ((const _Atomic uint64_t *)k->part)[i];
	memset(seen, 0, sizeof(seen));
	for (uint32_t i = 0; i < k->size; i++)
		for (uint64_t n = 0; n < AREA; n++)
			seen[i][((const _Atomic uint8_t *)k->part)[AT_AREA(i) + n]] = 1;
	read_tallies(k, true, begun);
	for (uint32_t i = 0; i < k->size; i++) {
		snprintf(name, sizeof(name), "rank %u", i);
		in_between(&faults, name, completed[i][ADDED], word[i], begun[i][ADDED]);
		check_area(&faults, name, seen[i], completed[i][FILLED], begun[i][FILLED]);
		for (unsigned n = 0; n < OF_WINDOWS; n++) {
			all_completed[n] += completed[i][n];
			all_begun[n] += begun[i][n];
		}
	}
	in_between(&faults, "all that add", all_completed[ADDED], word[TOTAL], all_begun[ADDED]);
	in_between(&faults, "under the lock", all_completed[INCREMENTED], word[LOCKED],
		   all_begun[INCREMENTED]);
	if (faults)
		wrong("%u books do not agree with the part of life %llu", faults,
		      (unsigned long long)k->life);
	say("compared: %llu added, %llu under the lock", (unsigned long long)word[TOTAL],
	    (unsigned long long)word[LOCKED]);
}

/* ---- lives ---- */

/* All members agree in which life of the group they are. */
static int
agree(struct work *k)
{
	static uint64_t next;
	int rc = weir_group_allreduce(k->g, &next, &k->life, 1, WEIR_T_UINT64, WEIR_ACC_MAX,
				      PATIENCE_MS);

	for (; !rc && next < k->life; next++)
		;
	if (!rc)
		next++;
	if (!rc && k->life >= LIVES) {
		wrong("more than %u lives", LIVES);
		exit(1);
	}
	return rc;
}

enum { FENCES = 1, NOTICES };

/* The one thing that all are to do, 0: this member, or another one, is told so. */
static int
what_alone(const struct work *k, uint64_t *alone)
{
	*alone = stopping ? 0 : !access("notices", F_OK) ? NOTICES : !access("fences", F_OK);
	return weir_group_allreduce(k->g, alone, alone, 1, WEIR_T_UINT64, WEIR_ACC_MAX,
				    PATIENCE_MS);
}

static int
live(struct work *k)
{
	uint64_t alone = 0;
	void *base;
	int rc = agree(k), end;

	if (!rc)
		rc = weir_window_allocate(k->g, k->slot ? PAGE : AT_AREA(k->size), NULL,
					  PATIENCE_MS, &base, &k->win);
	if (rc)
		return rc;
	k->part = base;
	k->tally = book->window[k->life];
	k->seen = 0;
	say("life %llu", (unsigned long long)k->life);
	for (k->round = 1; !rc && !stopping; k->round++) {
		rc = what_alone(k, &alone);
		if (!rc && alone == NOTICES)
			rc = await_notice(k);
		if (!rc && !alone)
			rc = add(k);
		if (!rc && !alone)
			rc = increment(k);
		if (!rc && !alone && k->round % FILL_EACH == k->slot)
			rc = fill(k);
		while (!rc && is_to(k, "fill")) {
			say("filled");
			rc = fill(k);
		}
		if (!rc && !alone)
			rc = pass(k);
		if (!rc)
			rc = weir_window_fence(k->win, WEIR_NO_SUCCEED, PATIENCE_MS);
		if (!rc && alone)
			say("fenced");
		if (!rc && !k->slot && k->round % COMPARE_EACH == 0)
			compare(k);
	}
	if (!k->slot)
		compare(k);
	if (stopping) /* the end of the session tells the others */
		return 0;
	/* the group may hear of a death later than an operation did */
	for (unsigned n = 0; (end = weir_window_free(k->win, PATIENCE_MS)) == -EBUSY; n++) {
		if (n == PATIENCE_MS)
			break;
		usleep(1000);
	}
	if (end == -EBUSY || end == -EAGAIN)
		wrong("window after '%s': not freed: %d", strerror(-rc), end);
	return rc;
}

void
work_in_window(unsigned slot, uint32_t size)
{
	struct weir_group_options o = WEIR_GROUP_OPTIONS_INIT;
	struct work k = {.slot = slot, .size = size, .buf = malloc(AREA)};
	int rc = 0;

	if (size < 2 || size > MEMBERS || slot >= size) {
		wrong("a group of 2 to %u, and a rank of it", MEMBERS);
		exit(2);
	}
	o.size = size;
	o.rank = slot;
	while (rc != -ENODEV && !stopping) {
		uint64_t since = now_ms();

		rc = weir_group_join(w, "window_kill", &o, PATIENCE_MS, &k.g);
		if (rc) {
			/* control has not told the node id of a new data plane, or a member that
			 * has ended is not known to have */
			bool early =
			    (rc == -EAGAIN && now_ms() - since < PATIENCE_MS) || rc == -EEXIST;

			if (!early && !may_fail(rc))
				ended("join", rc);
			usleep(10000);
			continue;
		}
		rc = live(&k);
		if (stopping)
			break;
		ended("window", rc);
		weir_group_leave(k.g);
	}
	free(k.buf);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A member of the group "snare" that spoils what members of a host share for their windows: lines
 * of fences, words of locks and epochs, rings of notices. It sends notices of any kind, length and
 * source, makes calls out of turn, and ends at any moment.
 */
#define _GNU_SOURCE
#include "hostile.h"

#include "remote/window.h"
#include "weir/window.h"
#include "window/notice.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define SIZE 3u
#define PART 65536u
#define JOIN_MS 2000
#define CALL_MS 20

/* Spoils one word of [at, at + bytes): any value, a small one, or one near that which is there. */
static void
spoil(uint8_t *at, uint64_t bytes)
{
	uint8_t *word = at + rng() % (bytes / 8) * 8;
	uint64_t value;

	switch (rng() % 4) {
	case 0:
		value = rng();
		break;
	case 1:
		value = rng() % 8;
		break;
	case 2:
		value = UINT64_MAX - rng() % 4;
		break;
	default:
		value = __atomic_load_n((uint64_t *)(void *)word, __ATOMIC_RELAXED) + rng() % 5 - 2;
	}
	if (rng() % 2)
		__atomic_store_n((uint64_t *)(void *)word, value, __ATOMIC_SEQ_CST);
	else
		__atomic_store_n((uint32_t *)(void *)(word + rng() % 2 * 4), (uint32_t)value,
				 __ATOMIC_SEQ_CST);
}

/* Memory that the member with this place on the host shares with the others. */
static void
spoil_shared(struct weir_window *win, uint32_t on_host)
{
	struct board *b = win->board;
	struct weir_lock_words *words;
	struct notice_ring *rings;

	if (board_words(b, on_host, win->number, &words, &rings)) {
		tally(1, "members not mapped");
		return;
	}
	switch (rng() % 3) {
	case 0:
		spoil((uint8_t *)words - board_words_at(b, win->number),
		      b->local_count * sizeof(struct board_line));
		tally(1, "words of fences");
		break;
	case 1:
		spoil((uint8_t *)words, weir_lock_bytes(b->local_count));
		tally(1, "words of locks");
		break;
	default:
		if (!rings)
			return;
		spoil((uint8_t *)rings, b->local_count * sizeof(*rings));
		tally(1, "words of rings");
	}
}

static void
send_notices(struct weir_window *win, uint32_t rank)
{
	struct window_member *m;

	if (window_member_open(win, rank, &m)) {
		tally(1, "members not opened");
		return;
	}
	for (unsigned i = 0; i < 8; i++) {
		uint64_t bytes = rng() % 2 ? rng() : rng() % 3 << 62 | rng() % 64;

		if (!weir_remote_notify_with(m->locks, (uint32_t)(rng() % 4 ? rng() % 4 : rng()),
					     (uint32_t)(rng() % 4 ? rng() % SIZE : rng()), bytes,
					     WEIR_NOWAIT))
			tally(1, "false notices");
	}
}

/* A few of the calls that the others make, at the wrong time. */
static void
call_out_of_turn(struct weir_window *win, uint32_t rank)
{
	switch (rng() % 4) {
	case 0:
		if (!weir_window_lock(win, rank, WEIR_LOCK_EXCLUSIVE, 0, CALL_MS) && rng() % 2)
			weir_window_unlock(win, rank, CALL_MS);
		break;
	case 1:
		weir_window_post(win, &rank, 1, 0);
		break;
	case 2:
		weir_window_wait(win, 0);
		break;
	default:
		weir_window_fence(win, 0, CALL_MS);
	}
	tally(1, "calls out of turn");
}

void
do_window(struct victim *v)
{
	struct weir_group_options o = WEIR_GROUP_OPTIONS_INIT;
	struct weir *w = join();
	struct weir_group *g = NULL;
	struct weir_window *win = NULL;
	double end;
	void *base;

	(void)v;
	if (!w)
		return;
	o.size = SIZE;
	if (!weir_group_join(w, "snare", &o, JOIN_MS, &g) &&
	    !weir_window_allocate(g, PART, NULL, JOIN_MS, &base, &win)) {
		tally(1, "windows made");
		end = seconds() + 1;
		while (seconds() < end && left() > 0) {
			for (unsigned i = 0; i < 32 && win->board->lines; i++)
				spoil_shared(win, (uint32_t)(rng() % win->board->local_count));
			if (rng() % 4 == 0)
				send_notices(win, (uint32_t)(rng() % SIZE));
			if (rng() % 8 == 0)
				call_out_of_turn(win, (uint32_t)(rng() % SIZE));
			usleep(200);
		}
	}
	/* it leaves in the middle of whatever the others do, or when they free the window, too */
	if (win && rng() % 2)
		weir_window_free(win, JOIN_MS);
	weir_detach(w);
}

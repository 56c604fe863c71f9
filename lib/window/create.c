/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Making and freeing windows: collective calls of several stages, each with one collective call of
 * the group. After a timeout the same call goes on where it was.
 */
#include "notice.h"

#include "client/reason.h"
#include "client/region.h"
#include "client/session.h"
#include "client/wait.h"
#include "group/board.h"
#include "ipc/remote.h"
#include "remote/window.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define RIGHTS (WEIR_MAY_READ | WEIR_MAY_WRITE | WEIR_MAY_UPDATE | WEIR_MAY_NOTIFY)
#define WHOLE (WEIR_MAY_READ | WEIR_MAY_WRITE | WEIR_MAY_UPDATE) /* of shared memory */
#define FLAGS                                                                                      \
	(WEIR_WINDOW_SAME_ADDRESS | WEIR_WINDOW_APART | WEIR_WINDOW_PAGES | WEIR_WINDOW_THREADS |  \
	 WEIR_WINDOW_NO_LOCKS | WEIR_WINDOW_BY_ENGINE)
#define TRIES 16u     /* of common addresses */
#define NOTICES 1024u /* that wait, by default */
#define PAGE 4096u

int
window_other_failed(uint32_t rank, uint64_t number)
{
	int status = number < 4096 ? (int)number : EPROTO; /* the member wrote it */

	if (rank == WEIR_RANK_ANY)
		return weir_fail(-status, "another member: %s; it has the reason",
				 strerror(status));
	return weir_fail(-status, "member %u: %s; it has the reason", rank, strerror(status));
}

/* ---- own memory ---- */

/* Words and rings of the own part, for members of the host that may map it; nobody uses them yet. 0
 * or -ENOMEM. */
static int
use_words(struct weir_window *win, struct weir_export_more *more)
{
	struct board *b = win->board;
	struct notice_ring *rings;

	win->own = b->on_host + 1;
	if (!b->lines || win->args.flags & WEIR_WINDOW_APART)
		return 0;
	memset(board_own_words(b, win->number), 0, weir_lock_bytes(b->local_count));
	rings = board_own_rings(b, win->number);
	if (rings) {
		win->sources = calloc(b->local_count, sizeof(*win->sources));
		if (!win->sources)
			return weir_fail(-ENOMEM,
					 "no memory for the members of the host; free some");
		memset(rings, 0, b->local_count * sizeof(*rings));
	}
	if (win->args.flags & WEIR_WINDOW_NO_LOCKS)
		return 0;
	more->lock_region = b->shared_region;
	more->lock_offset = board_words_at(b, win->number);
	more->lock_members = b->local_count;
	return 0;
}

/* Exports the own part, or for an empty one, or one of shared memory, a page with a lock. */
static int
publish(struct weir_window *win, uint64_t offset)
{
	const struct window_args *a = &win->args;
	struct board_part *part = &win->board->parts[win->number];
	const struct weir_alloc_options small = {.flags = WEIR_ALLOC_ORDINARY, .numa_node = -1};
	bool alone = a->kind == WEIR_WINDOW_SHARED || !a->bytes;
	uint32_t rights = WEIR_MAY_NOTIFY; /* post and complete send notices */
	uint64_t from = alone ? 0 : a->offset, bytes = alone ? PAGE : a->bytes;
	struct weir_export_more more = {.name = win->name,
					.by_engine = a->flags & WEIR_WINDOW_BY_ENGINE};
	struct weir_region_info info;
	int rc;

	*part = (struct board_part){.offset = offset, .bytes = a->bytes};
	part->turns = a->kind == WEIR_WINDOW_SHARED && window_takes_turns(win);
	rights |= a->flags & WEIR_WINDOW_NO_LOCKS ? 0 : WEIR_MAY_LOCK;
	rc = use_words(win, &more);
	if (rc)
		return rc;
	if (a->kind == WEIR_WINDOW_DYNAMIC) {
		part->bytes = WEIR_DYNAMIC_END;
		rc = weir_export_dynamic(win->w, rights | a->rights, &more, &win->x, &part->key);
		if (!rc)
			window_notices_begin(win);
		return rc;
	}
	if (alone) {
		rc = weir_region_alloc(win->w, PAGE, &small, &win->region);
		if (rc)
			return rc;
		rights |= a->kind == WEIR_WINDOW_SHARED ? 0 : a->rights;
	} else {
		rights |= a->rights;
		weir_region_info(win->region, &info);
		/* the whole of it can be mapped */
		if (a->kind == WEIR_WINDOW_ALLOCATED)
			bytes = info.bytes;
		if (!(a->flags & WEIR_WINDOW_APART) && a->rights & WEIR_MAY_READ && !from &&
		    bytes == info.bytes) {
			rights |= WEIR_MAY_MAP;
			part->turns = window_takes_turns(win);
		}
	}
	rc = weir_export_with(win->region, from, bytes, rights, &more, &win->x, &part->key);
	if (!rc)
		window_notices_begin(win);
	return rc;
}

static int
allocate(struct weir_window *win, uint64_t bytes, void *address, struct weir_region **region)
{
	struct weir_alloc_options o = {.numa_node = win->args.numa_node, .address = address};
	int rc;

	o.flags = address ? WEIR_ALLOC_EXACT : 0;
	rc = weir_region_alloc(win->w, bytes, &o, region);
	if (rc)
		*region = NULL;
	return rc;
}

/* The memory of the part. 0 or -errno. */
static int
own_memory(struct weir_window *win)
{
	const struct window_args *a = &win->args;
	int rc = 0;

	if (!a->bytes)
		return 0;
	if (a->kind == WEIR_WINDOW_CREATED) {
		win->base = a->region->addr + a->offset;
		win->region =
		    weir_region_use(win->w, win->base, (size_t)a->bytes, WEIR_ADOPT_EXPOSE);
		if (!win->region)
			rc = weir_fail(-EACCES, "the region was not adopted with "
						"WEIR_ADOPT_EXPOSE, or is being freed");
	} else if (a->kind == WEIR_WINDOW_ALLOCATED && !win->region) {
		rc = allocate(win, a->bytes, NULL, &win->region);
		if (!rc)
			win->base = window_base_of(win->region);
	}
	return rc;
}

/* ---- shared memory ---- */

/* Where the part of `rank` begins; of the rank behind the last: bytes of all. UINT64_MAX: too many
 * bytes. */
static uint64_t
start_of(const struct weir_window *win, uint32_t rank)
{
	/* else contiguous: programs compute one address from another */
	uint64_t sum = 0, to = win->args.flags & WEIR_WINDOW_PAGES ? PAGE : 1;

	for (uint32_t i = 0; i < rank; i++) {
		if (win->making.sizes[i] > WEIR_WINDOW_PART_MAX)
			return UINT64_MAX;
		sum += (win->making.sizes[i] + to - 1) / to * to;
		if (sum > WEIR_WINDOW_PART_MAX)
			return UINT64_MAX;
	}
	return sum;
}

/* Rank 0: makes the memory of all. */
static int
make_whole(struct weir_window *win, struct weir_key *key)
{
	const struct weir_export_more more = {.name = win->name,
					      .by_engine = win->args.flags & WEIR_WINDOW_BY_ENGINE};
	uint64_t bytes = start_of(win, weir_group_size(win->g));
	struct weir_region_info info;
	int rc;

	if (bytes == UINT64_MAX)
		return weir_fail(-ENOSPC, "the parts have more than 2^47 bytes together");
	rc = allocate(win, bytes ? bytes : PAGE, NULL, &win->whole_region);
	if (rc)
		return rc;
	weir_region_info(win->whole_region, &info);
	return weir_export_with(win->whole_region, 0, info.bytes, WHOLE | WEIR_MAY_MAP, &more,
				&win->whole_x, key);
}

/* All: opens it, and maps it. */
static int
open_whole(struct weir_window *win, const struct weir_key *key)
{
	uint64_t start = start_of(win, weir_group_rank(win->g));
	struct weir_remote_info info;
	int rc = weir_remote_open(win->w, key, WHOLE, 0, -1, &win->whole);

	if (rc)
		return rc;
	win->whole_updates = win->whole;
	weir_remote_info(win->whole, &info);
	if (!info.mapped)
		return weir_fail(-EXDEV, "the shared memory cannot be mapped here; see the limits "
					 "of address space and mappings");
	/* rank 0 has it mapped already, but stores of all reach the same memory */
	win->base = (uint8_t *)info.mapped + start;
	if (win->args.flags & WEIR_WINDOW_BY_ENGINE && !window_takes_turns(win))
		rc = weir_remote_open(win->w, key, WHOLE, WEIR_OPEN_APART, -1, &win->whole_updates);
	return rc ? rc : publish(win, start);
}

/* ---- stages ---- */

/* Collective: compares. 0, or how the call waits or has failed. */
static int
compare(struct weir_window *win, uint64_t end)
{
	const struct window_args *a = &win->args;
	struct window_making *k = &win->making;
	/* equal at all, but the last one, an errno, of which the largest counts */
	const uint64_t words[WINDOW_WORDS] = {
	    a->kind | a->notices << 8 | (uint64_t)a->flags << 32,
	    a->rights | (uint64_t)a->disp_unit << 32,
	    a->flags & WEIR_WINDOW_SAME_ADDRESS ? a->bytes : 0,
	    (uint64_t)-k->rc,
	};
	int rc;

	if (!k->begun)
		for (uint32_t i = 0; i < WINDOW_WORDS; i++) {
			k->mine[2 * i] = words[i];
			k->mine[2 * i + 1] = ~words[i];
		}
	k->begun = true;
	rc = weir_group_allreduce(win->g, k->mine, k->all, 2 * WINDOW_WORDS, WEIR_T_UINT64,
				  WEIR_ACC_MIN, weir_time_left(end));
	k->begun = rc;
	return rc;
}

/* The largest errno of the members. */
static uint64_t
worst(const struct window_making *k)
{
	return ~k->all[2 * WINDOW_WORDS - 1];
}

/* Collective. 0; how the call waits; or how the members failed or differ. */
static int
agree(struct weir_window *win, uint64_t end)
{
	struct window_making *k = &win->making;
	int rc = compare(win, end);

	if (rc)
		return rc;
	k->decided = true;
	if (k->rc)
		return k->rc;
	for (uint32_t i = 0; i + 1 < WINDOW_WORDS; i++)
		if (k->all[2 * i] != ~k->all[2 * i + 1])
			return weir_fail(-EINVAL, "members give different options; give all the "
						  "same but for name and NUMA node");
	if (worst(k))
		return window_other_failed(WEIR_RANK_ANY, worst(k));
	k->decided = false;
	return 0;
}

static int
stage_options(struct weir_window *win, uint64_t end)
{
	struct window_making *k = &win->making;
	struct board *b = win->board;
	int rc;

	if (!k->begun && b->used == UINT64_MAX)
		k->rc = weir_fail(-EMFILE, "the group has %u windows; free some", WEIR_WINDOWS_MAX);
	if (!k->begun && win->args.kind == WEIR_WINDOW_SHARED) {
		k->sizes = k->sizes ? k->sizes : calloc(weir_group_size(win->g), sizeof(uint64_t));
		if (!k->sizes)
			k->rc = weir_fail(-ENOMEM, "no memory for the sizes of all parts");
	}
	rc = agree(win, end);
	if (rc)
		return rc;
	/* the lowest number that is free at one member is so at all */
	win->number = (uint32_t)__builtin_ctzll(~b->used);
	b->used |= UINT64_C(1) << win->number;
	k->stage = win->args.kind == WEIR_WINDOW_SHARED		? STAGE_SIZES
		   : win->args.flags & WEIR_WINDOW_SAME_ADDRESS ? STAGE_ADDRESS
								: STAGE_MEMORY;
	return 0;
}

static int
stage_key(struct weir_window *win, uint64_t end)
{
	struct window_making *k = &win->making;
	int rc;

	if (!k->begun && !weir_group_rank(win->g)) {
		rc = make_whole(win, &k->said.key);
		k->said.status = (uint64_t)-rc;
	}
	k->begun = true;
	rc = weir_group_broadcast(win->g, 0, &k->said, sizeof(k->said), weir_time_left(end));
	if (rc)
		return rc;
	k->begun = false;
	k->decided = k->said.status;
	if (k->said.status)
		return weir_group_rank(win->g) ? window_other_failed(0, k->said.status)
					       : -(int)k->said.status;
	k->rc = open_whole(win, &k->said.key);
	k->stage = STAGE_AGREE;
	return 0;
}

static int
stage_address(struct weir_window *win, uint64_t end)
{
	struct window_making *k = &win->making;
	int rc;

	if (!k->begun && !weir_group_rank(win->g)) {
		if (getrandom(&k->address, sizeof(k->address), GRND_NONBLOCK) != sizeof(k->address))
			k->address = (uint64_t)(uintptr_t)k * 0x9e3779b97f4a7c15u;
		/* 2^45 to 2^46, at pages of any size: far from what the system maps by itself */
		k->address = (k->address & ((UINT64_C(1) << 45) - 1) & ~((UINT64_C(1) << 30) - 1)) |
			     UINT64_C(1) << 45;
	}
	k->begun = true;
	rc = weir_group_broadcast(win->g, 0, &k->address, sizeof(k->address), weir_time_left(end));
	if (rc)
		return rc;
	k->begun = false;
	if (win->args.bytes)
		k->rc = allocate(win, win->args.bytes, (void *)(uintptr_t)k->address, &win->region);
	if (win->args.bytes && !k->rc)
		win->base = window_base_of(win->region);
	k->stage = STAGE_TRY;
	return 0;
}

static int
stage_try(struct weir_window *win, uint64_t end)
{
	struct window_making *k = &win->making;
	int rc = compare(win, end);

	if (rc)
		return rc;
	if (worst(k) != EEXIST) {
		k->stage = STAGE_MEMORY;
		k->decided = k->rc || worst(k);
		if (k->rc)
			return k->rc;
		return worst(k) ? window_other_failed(WEIR_RANK_ANY, worst(k)) : 0;
	}
	if (win->region)
		weir_region_free(win->region);
	win->region = NULL;
	win->base = NULL;
	k->rc = 0;
	if (++k->tries == TRIES)
		return weir_fail(-EADDRNOTAVAIL, "no address was free at all members in %u tries",
				 TRIES);
	k->stage = STAGE_ADDRESS;
	return 0;
}

/* Goes on. 0: the window is made; else the call of the group goes on, or the window has failed. */
static int
go_on(struct weir_window *win, uint64_t end)
{
	struct window_making *k = &win->making;
	int rc = 0;

	while (!rc && k->stage != STAGE_DONE)
		switch (k->stage) {
		case STAGE_BOARDS:
			rc = board_make(win->board, end);
			if (!rc)
				k->stage = STAGE_OPTIONS;
			break;
		case STAGE_OPTIONS:
			rc = stage_options(win, end);
			break;
		case STAGE_SIZES:
			rc = weir_group_allgather(win->g, &win->args.bytes, sizeof(win->args.bytes),
						  k->sizes, weir_time_left(end));
			if (!rc)
				k->stage = STAGE_KEY;
			break;
		case STAGE_KEY:
			rc = stage_key(win, end);
			break;
		case STAGE_ADDRESS:
			rc = stage_address(win, end);
			break;
		case STAGE_TRY:
			rc = stage_try(win, end);
			break;
		case STAGE_MEMORY:
			k->rc = own_memory(win);
			if (!k->rc)
				k->rc = publish(win, 0);
			k->stage = STAGE_AGREE;
			break;
		case STAGE_AGREE:
			rc = agree(win, end);
			if (!rc)
				k->stage = STAGE_DONE;
			break;
		case STAGE_DONE:
			break;
		}
	return rc;
}

/* ---- making ---- */

void
window_undo(struct weir_window *win)
{
	struct board *b = win->board;

	window_members_close(win);
	window_notices_end(win);
	free(win->exposed);
	free(win->sources);
	if (win->whole_updates != win->whole)
		weir_remote_close(win->whole_updates);
	weir_remote_close(win->whole);
	if (win->x)
		weir_revoke(win->x);
	if (win->whole_x)
		weir_revoke(win->whole_x);
	for (uint32_t i = 0; i < win->range_count; i++)
		weir_region_drop(win->ranges[i].region);
	free(win->ranges);
	if (win->region && win->args.kind == WEIR_WINDOW_CREATED && win->args.bytes)
		weir_region_drop(win->region);
	else if (win->region)
		weir_region_free(win->region);
	if (win->whole_region)
		weir_region_free(win->whole_region);
	if (win->making.stage > STAGE_OPTIONS)
		b->used &= ~(UINT64_C(1) << win->number);
	if (b->making == win)
		b->making = NULL;
	free(win->making.sizes);
	pthread_mutex_destroy(&win->lock);
	pthread_mutex_destroy(&win->attaching);
	free(win);
}

static int
check(const struct weir_group *g, const struct window_args *a, const struct weir_window_options *o)
{
	const char *name = o ? o->name : NULL;
	struct weir_region_info info;
	struct weir_member m;

	for (unsigned i = 0; o && i < sizeof(o->more) / sizeof(o->more[0]); i++)
		if (o->more[i] || o->reserved)
			return weir_fail(-EINVAL, "options that this library does not know; "
						  "initialize with WEIR_WINDOW_OPTIONS_INIT");
	if (a->notices > WEIR_WINDOW_NOTICES_MAX)
		return weir_fail(-EINVAL, "invalid number of notices %u (expected at most %u)",
				 a->notices, WEIR_WINDOW_NOTICES_MAX);
	if (a->bytes > WEIR_WINDOW_PART_MAX)
		return weir_fail(-EINVAL, "a part has at most 2^47 bytes");
	if (a->flags & ~FLAGS || a->rights & ~RIGHTS)
		return weir_fail(-EINVAL, "unknown flags or rights; see weir/window.h");
	if (name && strlen(name) > WEIR_WINDOW_NAME_MAX)
		return weir_fail(-EINVAL, "a name has at most %u bytes", WEIR_WINDOW_NAME_MAX);
	if ((a->flags & WEIR_WINDOW_SAME_ADDRESS && a->kind != WEIR_WINDOW_ALLOCATED) ||
	    (a->flags & WEIR_WINDOW_PAGES && a->kind != WEIR_WINDOW_SHARED) ||
	    (a->flags & WEIR_WINDOW_APART && a->kind == WEIR_WINDOW_SHARED))
		return weir_fail(-EINVAL, "flags that this kind of window does not have; see "
					  "weir/window.h");
	if (a->kind == WEIR_WINDOW_DYNAMIC && a->disp_unit != 1)
		return weir_fail(-EINVAL, "invalid disp_unit %u of a dynamic window (expected 1)",
				 a->disp_unit);
	for (uint32_t i = 0; a->kind == WEIR_WINDOW_SHARED && i < weir_group_size(g); i++)
		if (!weir_group_member(g, i, &m) && !m.local)
			return weir_fail(-EXDEV,
					 "member %u is on node %u; see "
					 "weir_group_split_host()",
					 i, m.node);
	if (a->kind != WEIR_WINDOW_CREATED || !a->bytes)
		return 0;
	if (!a->region)
		return weir_fail(-EINVAL, "no region; see weir_region_alloc() and weir_adopt()");
	weir_region_info(a->region, &info);
	if (a->offset > info.bytes || a->bytes > info.bytes - a->offset)
		return weir_fail(-EINVAL, "%llu bytes at %llu are not within the region of %llu",
				 (unsigned long long)a->bytes, (unsigned long long)a->offset,
				 (unsigned long long)info.bytes);
	if (a->offset % 16)
		return weir_fail(-EINVAL, "invalid offset %llu (expected a multiple of 16)",
				 (unsigned long long)a->offset);
	return 0;
}

static int
make(struct weir_group *g, struct window_args *a, const struct weir_window_options *o,
     int timeout_ms, struct weir_window **out)
{
	struct weir_window *win;
	struct board *b;
	int rc;

	static_assert(sizeof(*a) == 48, "no padding");
	if (!g || !out)
		return weir_fail(-EINVAL, "no group, or no place for the window");
	*out = NULL;
	if (o) {
		a->flags = o->flags;
		a->rights = o->rights;
		a->disp_unit = o->disp_unit;
		a->numa_node = o->numa_node;
		a->notices = o->notices;
	}
	a->notices = a->notices ? a->notices : NOTICES;
	a->rights = a->rights ? a->rights : RIGHTS;
	a->disp_unit = a->disp_unit ? a->disp_unit : 1;
	b = board_of(g);
	if (!b)
		return weir_fail(-ENOMEM, "no memory for windows; free some");
	win = b->making;
	if (win && memcmp(&win->args, a, sizeof(*a)))
		return weir_fail(-EBUSY, "another window is being made; repeat that call until it "
					 "is complete");
	if (!win) {
		if (group_is_calling(g))
			return weir_fail(-EBUSY,
					 "another collective call has begun; repeat it with "
					 "the same arguments until it is complete");
		win = calloc(1, sizeof(*win));
		if (!win)
			return weir_fail(-ENOMEM, "no memory for a window; free some");
		win->g = g;
		win->w = b->w;
		win->board = b;
		win->args = *a;
		pthread_mutex_init(&win->lock, NULL);
		pthread_mutex_init(&win->attaching, NULL);
		/* the other members hear it */
		win->making.rc = check(g, a, o);
		win->making.misused = win->making.rc;
		if (o && o->name && !win->making.rc)
			memcpy(win->name, o->name, strlen(o->name));
		b->making = win;
	}
	rc = go_on(win, weir_time_end(timeout_ms));
	/* the members go on with it; without memory a call of the group has not begun here alone */
	if (rc && (group_is_calling(g) || (rc == -ENOMEM && !win->making.decided)))
		return rc;
	if (rc) {
		if (win->making.misused)
			check(g, a, o); /* the reason */
		window_undo(win);
		return rc;
	}
	b->making = NULL;
	*out = win;
	return 0;
}

int
weir_window_create(struct weir_group *g, struct weir_region *region, uint64_t offset,
		   uint64_t bytes, const struct weir_window_options *options, int timeout_ms,
		   struct weir_window **win)
{
	struct window_args a = {.kind = WEIR_WINDOW_CREATED,
				.region = bytes ? region : NULL,
				.offset = bytes ? offset : 0,
				.bytes = bytes,
				.numa_node = -1};

	return make(g, &a, options, timeout_ms, win);
}

int
weir_window_create_dynamic(struct weir_group *g, const struct weir_window_options *options,
			   int timeout_ms, struct weir_window **win)
{
	struct window_args a = {.kind = WEIR_WINDOW_DYNAMIC, .numa_node = -1};

	return make(g, &a, options, timeout_ms, win);
}

static int
make_with_memory(struct weir_group *g, struct window_args *a,
		 const struct weir_window_options *options, int timeout_ms, void **base,
		 struct weir_window **win)
{
	int rc;

	if (!base)
		return weir_fail(-EINVAL, "no place for the address");
	*base = NULL;
	rc = make(g, a, options, timeout_ms, win);
	if (!rc)
		*base = a->bytes ? (*win)->base : NULL;
	return rc;
}

int
weir_window_allocate(struct weir_group *g, uint64_t bytes,
		     const struct weir_window_options *options, int timeout_ms, void **base,
		     struct weir_window **win)
{
	struct window_args a = {.kind = WEIR_WINDOW_ALLOCATED, .bytes = bytes, .numa_node = -1};

	return make_with_memory(g, &a, options, timeout_ms, base, win);
}

int
weir_window_allocate_shared(struct weir_group *g, uint64_t bytes,
			    const struct weir_window_options *options, int timeout_ms, void **base,
			    struct weir_window **win)
{
	struct window_args a = {.kind = WEIR_WINDOW_SHARED, .bytes = bytes, .numa_node = -1};

	return make_with_memory(g, &a, options, timeout_ms, base, win);
}

int
weir_window_free(struct weir_window *win, int timeout_ms)
{
	uint64_t end = weir_time_end(timeout_ms);
	uint32_t epoch;
	int rc;

	if (!win)
		return weir_fail(-EINVAL, "no window");
	if (weir_state(win->w) == WEIR_FORKED)
		return weir_gone(win->w);
	epoch = atomic_load_explicit(&win->epoch, memory_order_relaxed);
	/* when a member has failed, nobody may be left to end an exposure; locks end with their
	 * handles, and their next holders are told */
	if (((epoch != EPOCH_NONE && epoch != EPOCH_FENCED && epoch != EPOCH_FENCE) ||
	     win->is_exposed) &&
	    !group_is_over(win->g))
		return weir_fail(-EBUSY, "an epoch of locks, start or post is open; end it first");
	if (!group_is_calling(win->g)) { /* else others may have ended their parts */
		rc = window_members_flush(win, false, end);
		if (rc == -EAGAIN || rc == -EINTR)
			return rc;
		win->fence_rc = rc;
	}
	rc = weir_group_barrier(win->g, weir_time_left(end));
	if (rc && group_is_calling(win->g))
		return rc;
	rc = rc ? rc : win->fence_rc;
	rc = rc ? rc : window_refusals(win, NULL);
	window_undo(win);
	return rc;
}

/* ---- what it is ---- */

void
weir_window_info(const struct weir_window *win, struct weir_window_info *info)
{
	*info = (struct weir_window_info){.kind = win->args.kind,
					  .disp_unit = win->args.disp_unit,
					  .flags = win->args.flags,
					  .rights = win->args.rights,
					  .base = win->args.bytes ? win->base : NULL,
					  .bytes = win->args.bytes};
	memcpy(info->name, win->name, sizeof(info->name));
}

struct weir_group *
weir_window_group(const struct weir_window *win)
{
	return win->g;
}

/* Address and bytes of one part. */
static int
query(struct weir_window *win, uint32_t rank, void **base, uint64_t *bytes)
{
	struct weir_remote_info info;
	struct window_member *m;
	int rc;

	if (rank == weir_group_rank(win->g)) {
		*base = win->args.bytes ? win->base : NULL;
		*bytes = win->args.bytes;
		return 0;
	}
	rc = window_member_open(win, rank, &m);
	if (rc)
		return rc;
	weir_remote_info(m->memory, &info);
	*base = NULL;
	*bytes = m->bytes;
	if (m->bytes && !info.mapped)
		return weir_fail(-EXDEV,
				 "the part of member %u is not mapped here; access it by "
				 "operations",
				 rank);
	if (!m->bytes)
		return 0;
	rc = window_addressed(win, m);
	if (!rc || rc == -EOWNERDEAD)
		*base = (uint8_t *)info.mapped + m->offset;
	return rc;
}

int
weir_window_query(struct weir_window *win, uint32_t rank, void **base, uint64_t *bytes,
		  uint32_t *disp_unit)
{
	bool any = rank == WEIR_RANK_ANY;
	uint64_t n = 0;
	int rc;

	if (!win || !base)
		return weir_fail(-EINVAL, "no window, or no place for the address");
	if (win->args.kind == WEIR_WINDOW_DYNAMIC)
		return weir_fail(-EINVAL, "a dynamic window has no part to address; see "
					  "weir_address_of()");
	if (any)
		rank = 0;
	do
		rc = query(win, rank, base, &n);
	while (any && !rc && !n && ++rank < weir_group_size(win->g));
	if (rc && rc != -EOWNERDEAD)
		return rc;
	if (any && !n)
		return weir_fail(-ENOENT, "the parts of all members are empty");
	if (bytes)
		*bytes = n;
	if (disp_unit)
		*disp_unit = win->args.disp_unit;
	return rc;
}

void
weir_window_set_user(struct weir_window *win, void *user)
{
	win->user = user;
}

void *
weir_window_user(const struct weir_window *win)
{
	return win->user;
}

/* 0 also where there is no such export any more, which no operator sees. */
static int
rename_export(struct weir_export *x, const char *name)
{
	int rc = x ? weir_export_rename(x, name) : 0;

	return rc == -ENOENT ? 0 : rc;
}

int
weir_window_set_name(struct weir_window *win, const char *name)
{
	int rc;

	name = name ? name : "";
	if (strlen(name) > WEIR_WINDOW_NAME_MAX)
		return weir_fail(-EINVAL, "a name has at most %u bytes", WEIR_WINDOW_NAME_MAX);
	rc = rename_export(win->x, name);
	if (rc)
		return rc;
	rc = rename_export(win->whole_x, name);
	if (rc) {
		rename_export(win->x, win->name);
		return rc;
	}
	snprintf(win->name, sizeof(win->name), "%s", name);
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "board.h"
#include "handle.h"

#include "client/reason.h"
#include "client/wait.h"
#include "client/session.h"
#include "group/board.h"
#include "ipc/invariant.h"
#include "ipc/key.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Parts, and where lines and words are. */
#define SHARED_AT (WEIR_WINDOWS_MAX * sizeof(struct board_part))
#define BOARD_BYTES (SHARED_AT + sizeof(struct board_ref))
static_assert(WEIR_WINDOWS_MAX == 64, "bits of board.used");
static_assert(sizeof(struct board_part) == 128 && sizeof(struct board_ref) == 32, "no padding");

/* Members meet by messages, and lock by engines. */
static void
drop_shared(struct board *b)
{
	b->lines = NULL;
	weir_group_leave(b->leaders);
	b->leaders = NULL;
	for (uint32_t i = 0; b->shared_at && i < b->local_count; i++)
		weir_remote_close(b->shared_at[i]);
	free(b->shared_at);
	b->shared_at = NULL;
	b->shared = NULL;
	if (b->shared_x)
		weir_revoke(b->shared_x);
	b->shared_x = NULL;
	if (b->shared_region)
		weir_region_free(b->shared_region);
	b->shared_region = NULL;
}

/* The group ends, or its session. */
static void
free_board(void *arg)
{
	struct board *b = arg;

	if (b->making)
		window_undo(b->making);
	if (b->lines) /* pairs with the acquire in await_lines() */
		atomic_store_explicit(&b->lines[b->on_host].left, 1, memory_order_release);
	drop_shared(b);
	free(b->local);
	if (b->x)
		weir_revoke(b->x);
	if (b->region)
		weir_region_free(b->region);
	free(b->refs);
	pthread_mutex_destroy(&b->opening);
	free(b);
}

struct board *
board_of(struct weir_group *g)
{
	void **at = group_board(g, free_board);
	struct board *b = *at;

	if (b)
		return b;
	b = calloc(1, sizeof(*b));
	if (!b)
		return NULL;
	b->g = g;
	b->w = group_session(g);
	pthread_mutex_init(&b->opening, NULL);
	*at = b;
	return b;
}

/* Memory that others open with these rights. 0 or -errno. */
static int
make_memory(struct board *b, uint64_t bytes, uint32_t rights, struct weir_region **region,
	    struct weir_export **x, struct board_ref *ref)
{
	const struct weir_alloc_options o = {.flags = WEIR_ALLOC_ORDINARY, .numa_node = -1};
	struct weir_region_info info;
	struct weir_key_fields k;
	struct weir_key key;
	int rc;

	rc = weir_region_alloc(b->w, bytes, &o, region);
	if (rc) {
		*region = NULL;
		return rc;
	}
	weir_region_info(*region, &info);
	rc = weir_export(*region, 0, info.bytes, rights | WEIR_MAY_MAP, x, &key);
	if (rc) {
		weir_region_free(*region);
		*region = NULL;
		return rc;
	}
	memcpy(&k, key.bytes, sizeof(k));
	*ref = (struct board_ref){
	    .incarnation = k.incarnation, .index = k.index, .generation = k.generation};
	memcpy(ref->secret, k.secret, sizeof(ref->secret));
	return 0;
}

static struct weir_key
key_of(const struct board *b, uint32_t rank, const struct board_ref *ref)
{
	struct weir_key_fields k = {.version = WEIR_KEY_VERSION,
				    .incarnation = ref->incarnation,
				    .index = ref->index,
				    .generation = ref->generation};
	struct weir_member m = {0};
	struct weir_key key;

	static_assert(sizeof(k) == sizeof(key), "a key");
	weir_group_member(b->g, rank, &m);
	k.node = m.node;
	memcpy(k.secret, ref->secret, sizeof(k.secret));
	k.sum = weir_key_sum(&k);
	memcpy(key.bytes, &k, sizeof(key.bytes));
	return key;
}

/* Reads a piece of a member's board. 0 or -errno. */
static int
read_board(struct board *b, uint32_t rank, uint64_t offset, void *to, size_t bytes)
{
	struct weir_key key = key_of(b, rank, &b->refs[rank]);
	struct weir_remote *r;
	int rc;

	rc = weir_remote_open(b->w, &key, WEIR_MAY_READ, 0, -1, &r);
	if (rc)
		return rc;
	rc = weir_remote_get(r, offset, to, bytes, 0);
	if (!rc)
		rc = weir_remote_flush(r, -1);
	weir_remote_close(r);
	return rc;
}

/* ---- members of a host ---- */

/* Finds those of this host, and counts hosts. 0 or -ENOMEM. */
static int
find_local(struct board *b)
{
	uint32_t size = weir_group_size(b->g);
	struct weir_member m;

	for (uint32_t i = 0; i < size; i++) {
		weir_group_member(b->g, i, &m);
		b->hosts += !m.on_host;
		b->local_count += m.local;
	}
	b->local = calloc(b->local_count, sizeof(*b->local));
	if (!b->local)
		return weir_fail(-ENOMEM, "no memory for the members of the host; free some");
	for (uint32_t i = 0; i < size; i++) {
		weir_group_member(b->g, i, &m);
		if (m.local)
			b->local[m.on_host] = i;
	}
	weir_group_member(b->g, weir_group_rank(b->g), &m);
	b->on_host = m.on_host;
	weir_assert(b->hosts && b->local[b->on_host] == weir_group_rank(b->g));
	return 0;
}

uint64_t
board_words_at(const struct board *b, uint32_t number)
{
	weir_assert(b->local_count && number <= WEIR_WINDOWS_MAX);
	return b->local_count * sizeof(struct board_line) +
	       number * weir_lock_bytes(b->local_count);
}

static uint64_t
rings_at(const struct board *b, uint32_t number)
{
	weir_assert(number <= NOTICE_WINDOWS);
	return board_words_at(b, WEIR_WINDOWS_MAX) +
	       (uint64_t)number * b->local_count * sizeof(struct notice_ring);
}

static uint64_t
shared_bytes(const struct board *b)
{
	return rings_at(b, NOTICE_WINDOWS);
}

/* The rings of a window in what a member shares; NULL: it has none. */
static struct notice_ring *
rings_in(const struct board *b, uint8_t *shared, uint32_t number)
{
	return number < NOTICE_WINDOWS
		   ? (struct notice_ring *)(void *)(shared + rings_at(b, number))
		   : NULL;
}

/* Makes lines, words and rings, of which the board tells. 0 or -errno. */
static int
make_shared(struct board *b)
{
	struct board_ref ref;
	int rc;

	weir_assert(!b->shared_at && b->parts);
	b->shared_at = calloc(b->local_count, sizeof(*b->shared_at));
	if (!b->shared_at)
		return -ENOMEM;
	rc = make_memory(b, shared_bytes(b), WEIR_MAY_READ | WEIR_MAY_WRITE, &b->shared_region,
			 &b->shared_x, &ref);
	if (rc)
		return rc;
	b->shared = window_base_of(b->shared_region);
	memcpy((uint8_t *)b->parts + SHARED_AT, &ref, sizeof(ref));
	return 0;
}

/* Maps lines and words of another member of the host. 0 or -errno. */
static int
map_shared(struct board *b, uint32_t rank, struct weir_remote **r)
{
	struct weir_remote_info info;
	struct board_ref ref;
	struct weir_key key;
	int rc = read_board(b, rank, SHARED_AT, &ref, sizeof(ref));

	if (rc || !ref.generation)
		return rc ? rc : -ENOMEM;
	key = key_of(b, rank, &ref);
	rc = weir_remote_open(b->w, &key, WEIR_MAY_READ | WEIR_MAY_WRITE, 0, -1, r);
	if (rc) {
		*r = NULL;
		return rc;
	}
	weir_remote_info(*r, &info);
	if (info.mapped && info.length >= shared_bytes(b))
		return 0;
	weir_remote_close(*r);
	*r = NULL;
	return weir_fail(-EXDEV,
			 "memory of member %u cannot be mapped here; see the limits of "
			 "address space and mappings",
			 rank);
}

/* Lines and words of the member with this place on the host, mapped if they are not yet. 0 or
 * -errno. */
static int
shared_of(struct board *b, uint32_t on_host, uint8_t **at)
{
	struct weir_remote **r = &b->shared_at[on_host];
	struct weir_remote_info info;
	int rc = 0;

	weir_assert(on_host < b->local_count && b->shared);
	*at = b->shared;
	if (on_host == b->on_host)
		return 0;
	pthread_mutex_lock(&b->opening);
	if (!*r)
		rc = map_shared(b, b->local[on_host], r);
	if (!rc) {
		weir_remote_info(*r, &info);
		*at = info.mapped;
	}
	pthread_mutex_unlock(&b->opening);
	return rc;
}

struct weir_lock_words *
board_own_words(const struct board *b, uint32_t number)
{
	weir_assert(b->shared && number < WEIR_WINDOWS_MAX);
	return (struct weir_lock_words *)(void *)(b->shared + board_words_at(b, number));
}

struct notice_ring *
board_own_rings(const struct board *b, uint32_t number)
{
	return rings_in(b, b->shared, number);
}

int
board_words(struct board *b, uint32_t on_host, uint32_t number, struct weir_lock_words **words,
	    struct notice_ring **rings)
{
	uint8_t *at;
	int rc = shared_of(b, on_host, &at);

	if (rc)
		return rc;
	*words = (struct weir_lock_words *)(void *)(at + board_words_at(b, number));
	*rings = rings_in(b, at, number);
	return 0;
}

/* ---- making ---- */

static int
stage_refs(struct board *b, uint64_t deadline)
{
	uint32_t size = weir_group_size(b->g);
	int rc;

	if (!b->refs)
		b->refs = calloc(size, sizeof(*b->refs));
	if (!b->refs)
		return weir_fail(-ENOMEM, "no memory for %u members; free some", size);
	if (!b->local) {
		b->hosts = b->local_count = 0;
		rc = find_local(b);
		if (rc)
			return rc;
	}
	if (!b->x) {
		rc = make_memory(b, BOARD_BYTES, WEIR_MAY_READ, &b->region, &b->x, &b->mine);
		if (rc) /* the others hear it */
			b->mine = (struct board_ref){.index = (uint32_t)-rc};
		else
			b->parts = window_base_of(b->region);
		if (!rc && b->hosts < size)
			b->vote = make_shared(b);
	}
	rc = weir_group_allgather(b->g, &b->mine, sizeof(b->mine), b->refs,
				  weir_time_left(deadline));
	for (uint32_t i = 0; !rc && i < size; i++)
		if (!b->refs[i].generation)
			rc = window_other_failed(i, b->refs[i].index);
	if (rc)
		return rc;
	/* each alone on its host: they meet by messages */
	b->stage = b->hosts < size ? BOARD_LINES : BOARD_READY;
	return 0;
}

int
board_make(struct board *b, uint64_t deadline)
{
	uint8_t *at = NULL;
	int rc = 0;

	while (!rc && b->stage != BOARD_READY)
		switch (b->stage) {
		case BOARD_REFS:
			rc = stage_refs(b, deadline);
			break;
		case BOARD_LINES:
			rc = b->vote ? (int)b->vote : shared_of(b, 0, &at);
			if (rc == -EINTR)
				break;
			if (!rc)
				b->lines = (struct board_line *)(void *)at;
			b->vote = rc;
			rc = 0;
			b->stage = b->hosts > 1 ? BOARD_LEADERS : BOARD_VOTE;
			break;
		case BOARD_LEADERS:
			rc = weir_group_split(b->g, b->on_host ? -1 : 0, 0,
					      weir_time_left(deadline), &b->leaders);
			if (rc && group_is_calling(b->g))
				break;
			if (b->leaders)
				group_work_for(b->leaders, b->g);
			b->vote = rc && !b->vote ? rc : b->vote;
			rc = 0;
			b->stage = BOARD_VOTE;
			break;
		case BOARD_VOTE:
			rc = weir_group_allreduce(b->g, &b->vote, &b->votes, 1, WEIR_T_INT64,
						  WEIR_ACC_MIN, weir_time_left(deadline));
			if (rc)
				break;
			if (b->votes)
				drop_shared(b);
			b->stage = BOARD_READY;
			break;
		case BOARD_READY:
			break;
		}
	return rc;
}

/* ---- meeting ---- */

#define SPINS 64u      /* looks at a line before anything else */
#define LEADERS_MS 20u /* between looks at the members of the group */

/*
 * A Dekker pair: a waiter counts itself, reads the bell and looks; who has written a word looks
 * whether somebody is counted, and rings. So a waiter sees the word, or its bell has changed.
 */
void
board_before_look(struct board *b, struct weir_wait *wait, bool *sleeps)
{
	struct board_line *line = &b->lines[b->on_host];

	weir_assert(b->lines && b->on_host < b->local_count);
	if (wait->armed == *sleeps)
		return;
	if (!wait->armed) {
		board_awake(b, sleeps);
		return;
	}
	*sleeps = true;
	atomic_fetch_add_explicit(&line->sleeping, 1, memory_order_seq_cst);
	wait->bell = &line->bell;
	wait->bell_seen = atomic_load_explicit(&line->bell, memory_order_seq_cst);
}

void
board_awake(struct board *b, bool *sleeps)
{
	if (*sleeps)
		atomic_fetch_sub_explicit(&b->lines[b->on_host].sleeping, 1, memory_order_relaxed);
	*sleeps = false;
}

void
board_wake(struct board *b, uint32_t on_host)
{
	struct board_line *line = &b->lines[on_host];

	if (weir_unlikely(atomic_load_explicit(&line->sleeping, memory_order_seq_cst)))
		weir_bell_word_ring(&line->bell);
}

static void
wake_others(struct board *b)
{
	for (uint32_t i = 0; i < b->local_count; i++)
		if (i != b->on_host)
			board_wake(b, i);
}

/* Whether the members of the host have come, or all hosts; *missing: the line of one that has not.
 */
static bool
have_come(const struct board *b, bool all_hosts, uint32_t *missing)
{
	*missing = 0;
	if (all_hosts)
		return atomic_load_explicit(&b->lines[0].released, memory_order_seq_cst) >=
		       b->fences;
	for (; *missing < b->local_count; (*missing)++)
		if (atomic_load_explicit(&b->lines[*missing].arrived, memory_order_seq_cst) <
		    b->fences)
			return false;
	return true;
}

static int
await_lines(struct board *b, bool all_hosts, uint64_t deadline)
{
	struct weir_wait wait;
	struct weir_thread *t;
	bool sleeps = false;
	uint32_t i;
	int rc;

	for (unsigned looks = 0; looks < SPINS; looks++) {
		if (have_come(b, all_hosts, &i))
			return 0;
		weir_pause();
	}
	t = weir_thread_own(b->w, &rc);
	if (!t)
		return rc;
	weir_wait_init(&wait, t, weir_time_left(deadline));
	/* nobody rings for what the group watches */
	wait.nap_always = true;
	rc = 0;
	while (!rc) {
		board_before_look(b, &wait, &sleeps);
		if (have_come(b, all_hosts, &i))
			break;
		/* before its last fence is seen to be over, it cannot have left in order */
		bool left = atomic_load_explicit(&b->lines[i].left, memory_order_acquire) ||
			    group_has_left(b->g, b->local[i]);

		/* ended members, and those in another call; one may have come before it ended */
		rc = group_watch(b->g);
		if (have_come(b, all_hosts, &i)) {
			rc = 0;
			break;
		}
		if (left) {
			group_missing(b->g, b->local[i]);
			rc = group_watch(b->g);
		}
		if (!rc)
			rc = group_wait_next(b->g, &wait);
		for (uint32_t looks = 1; !rc && looks < wait.looks; looks++) {
			if (have_come(b, all_hosts, &i))
				break;
			weir_pause();
		}
	}
	board_awake(b, &sleeps);
	weir_wait_end(&wait);
	return rc;
}

/* The leaders of all hosts; members of any host may end meanwhile. */
static int
await_leaders(struct board *b, uint64_t deadline)
{
	uint32_t rank = 0, in_group = WEIR_RANK_ANY;
	int rc, left;

	do {
		left = weir_time_left(deadline);
		rc = weir_group_barrier(
		    b->leaders, left < 0 || left > (int)LEADERS_MS ? (int)LEADERS_MS : left);
		if (!rc || rc == -EINTR)
			return rc;
		if (rc != -EAGAIN && !group_is_calling(b->leaders) && weir_state(b->w) == WEIR_UP) {
			/* one has ended, or this one lacks what it needs: all members hear of it */
			if (weir_group_failed(b->leaders, &rank, 1) > 0)
				weir_group_translate(b->leaders, 1, &rank, b->g, &in_group);
			group_missing(b->g,
				      in_group == WEIR_RANK_ANY ? weir_group_rank(b->g) : in_group);
			return group_watch(b->g);
		}
		if (rc != -EAGAIN)
			return rc;
		rc = group_watch(b->g);
	} while (!rc && weir_time_left(deadline));
	return rc ? rc : -EAGAIN;
}

int
board_meet(struct board *b, uint64_t deadline)
{
	bool all_hosts = b->on_host && b->hosts > 1;
	int rc = group_meet(b->g);

	weir_assert(b->lines && b->stage == BOARD_READY);
	weir_assert((b->leaders != NULL) == (!b->on_host && b->hosts > 1));
	if (rc < 0)
		return rc;
	if (!rc) {
		b->fences++;
		/* pairs with the load in have_come() of the others */
		atomic_store_explicit(&b->lines[b->on_host].arrived, b->fences,
				      memory_order_seq_cst);
		wake_others(b);
	}
	rc = await_lines(b, all_hosts, deadline);
	if (!rc && b->leaders) {
		rc = await_leaders(b, deadline);
		if (!rc) {
			atomic_store_explicit(&b->lines[0].released, b->fences,
					      memory_order_seq_cst);
			wake_others(b);
		}
	}
	return group_met(b->g, rc);
}

int
board_read(struct board *b, uint32_t rank, uint32_t number, struct board_part *part)
{
	weir_assert(b->stage == BOARD_READY && number < WEIR_WINDOWS_MAX);
	if (rank == weir_group_rank(b->g)) {
		*part = b->parts[number];
		return 0;
	}
	return read_board(b, rank, number * sizeof(*part), part, sizeof(*part));
}

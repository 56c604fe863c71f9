/* SPDX-License-Identifier: BSD-3-Clause */
#include "board.h"
#include "handle.h"

#include "client/reason.h"
#include "client/wait.h"
#include "client/session.h"
#include "group/board.h"
#include "ipc/key.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Parts, and where the host's lines are. */
#define LINES_AT (WEIR_WINDOWS_MAX * sizeof(struct board_part))
#define BOARD_BYTES (LINES_AT + sizeof(struct board_ref))
static_assert(WEIR_WINDOWS_MAX == 64, "bits of board.used");
static_assert(sizeof(struct board_part) == 128 && sizeof(struct board_ref) == 32, "no padding");

/* Members meet by messages. */
static void
drop_lines(struct board *b)
{
	b->lines = NULL;
	weir_group_leave(b->leaders);
	b->leaders = NULL;
	weir_remote_close(b->lines_at);
	b->lines_at = NULL;
	if (b->lines_x)
		weir_revoke(b->lines_x);
	b->lines_x = NULL;
	if (b->lines_region)
		weir_region_free(b->lines_region);
	b->lines_region = NULL;
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
	drop_lines(b);
	free(b->local);
	if (b->x)
		weir_revoke(b->x);
	if (b->region)
		weir_region_free(b->region);
	free(b->refs);
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

static void *
base_of(const struct weir_region *region)
{
	struct weir_region_info info;

	weir_region_info(region, &info);
	return info.base;
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
	return 0;
}

/* The leader's: makes the lines of its host. Its board tells where they are, or an errno. */
static void
make_lines(struct board *b)
{
	struct board_ref ref;
	int rc = make_memory(b, b->local_count * sizeof(struct board_line),
			     WEIR_MAY_READ | WEIR_MAY_WRITE, &b->lines_region, &b->lines_x, &ref);

	if (rc)
		ref = (struct board_ref){.index = (uint32_t)-rc};
	else
		b->lines = base_of(b->lines_region);
	memcpy((uint8_t *)b->parts + LINES_AT, &ref, sizeof(ref));
}

/* Maps the lines of the host. 0 or -errno. */
static int
map_lines(struct board *b)
{
	struct weir_remote_info info;
	struct board_ref ref;
	struct weir_key key;
	int rc;

	if (!b->on_host)
		return b->lines ? 0 : -ENOMEM;
	rc = read_board(b, b->local[0], LINES_AT, &ref, sizeof(ref));
	if (rc || !ref.generation)
		return rc ? rc : -ENOMEM;
	key = key_of(b, b->local[0], &ref);
	rc = weir_remote_open(b->w, &key, WEIR_MAY_READ | WEIR_MAY_WRITE, 0, -1, &b->lines_at);
	if (rc) {
		b->lines_at = NULL;
		return rc;
	}
	weir_remote_info(b->lines_at, &info);
	if (!info.mapped || info.length < b->local_count * sizeof(struct board_line))
		return -EXDEV;
	b->lines = info.mapped;
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
			b->parts = base_of(b->region);
		if (!rc && !b->on_host && b->hosts < size)
			make_lines(b);
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

static int
stage_leaders(struct board *b, uint64_t deadline)
{
	int rc =
	    weir_group_split(b->g, b->on_host ? -1 : 0, 0, weir_time_left(deadline), &b->leaders);

	if (rc && group_is_calling(b->g))
		return rc;
	b->vote = rc && !b->vote ? rc : b->vote;
	b->stage = BOARD_VOTE;
	return 0;
}

static int
stage_vote(struct board *b, uint64_t deadline)
{
	int rc = weir_group_allreduce(b->g, &b->vote, &b->votes, 1, WEIR_T_INT64, WEIR_ACC_MIN,
				      weir_time_left(deadline));

	if (rc)
		return rc;
	if (b->votes)
		drop_lines(b);
	b->stage = BOARD_READY;
	return 0;
}

int
board_make(struct board *b, uint64_t deadline)
{
	int rc = 0;

	while (!rc && b->stage != BOARD_READY)
		switch (b->stage) {
		case BOARD_REFS:
			rc = stage_refs(b, deadline);
			break;
		case BOARD_LINES:
			rc = map_lines(b);
			if (rc == -EINTR)
				break;
			b->vote = rc;
			rc = 0;
			b->stage = b->hosts > 1 ? BOARD_LEADERS : BOARD_VOTE;
			break;
		case BOARD_LEADERS:
			rc = stage_leaders(b, deadline);
			break;
		case BOARD_VOTE:
			rc = stage_vote(b, deadline);
			break;
		case BOARD_READY:
			break;
		}
	return rc;
}

/* ---- meeting ---- */

#define SPINS 64u      /* looks at a line before anything else */
#define LEADERS_MS 20u /* between looks at the members of the group */

/* Whether the members of the host have come, or all hosts; *missing: the line of one that has not.
 */
static bool
have_come(const struct board *b, bool all_hosts, uint32_t *missing)
{
	*missing = 0;
	if (all_hosts)
		return atomic_load_explicit(&b->lines[0].released, memory_order_acquire) >=
		       b->fences;
	for (; *missing < b->local_count; (*missing)++)
		if (atomic_load_explicit(&b->lines[*missing].arrived, memory_order_acquire) <
		    b->fences)
			return false;
	return true;
}

static int
await_lines(struct board *b, bool all_hosts, uint64_t deadline)
{
	struct weir_wait wait;
	struct weir_thread *t;
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
	wait.nap_always = true; /* nobody rings for a line */
	rc = 0;
	while (!rc && !have_come(b, all_hosts, &i)) {
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
			rc = weir_wait_next(&wait);
		for (uint32_t looks = 1; !rc && looks < wait.looks; looks++) {
			if (have_come(b, all_hosts, &i))
				break;
			weir_pause();
		}
	}
	weir_wait_end(&wait);
	return rc;
}

/* A leader has ended, or this one lacks what it needs: all members hear of it. */
static int
leaders_failed(struct board *b)
{
	uint32_t rank = 0, in_group = WEIR_RANK_ANY;

	if (weir_group_failed(b->leaders, &rank, 1) > 0)
		weir_group_translate(b->leaders, 1, &rank, b->g, &in_group);
	group_missing(b->g, in_group == WEIR_RANK_ANY ? weir_group_rank(b->g) : in_group);
	return group_watch(b->g);
}

/* The leaders of all hosts; members of any host may end meanwhile. */
static int
await_leaders(struct board *b, uint64_t deadline)
{
	int rc, left;

	do {
		left = weir_time_left(deadline);
		rc = weir_group_barrier(
		    b->leaders, left < 0 || left > (int)LEADERS_MS ? (int)LEADERS_MS : left);
		if (!rc || rc == -EINTR)
			return rc;
		if (rc != -EAGAIN && !group_is_calling(b->leaders) && weir_state(b->w) == WEIR_UP)
			return leaders_failed(b);
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

	if (rc < 0)
		return rc;
	if (!rc) {
		b->fences++;
		/* pairs with the acquire in have_come() of the others */
		atomic_store_explicit(&b->lines[b->on_host].arrived, b->fences,
				      memory_order_release);
	}
	rc = await_lines(b, all_hosts, deadline);
	if (!rc && b->leaders) {
		rc = await_leaders(b, deadline);
		if (!rc)
			atomic_store_explicit(&b->lines[0].released, b->fences,
					      memory_order_release);
	}
	return group_met(b->g, rc);
}

int
board_read(struct board *b, uint32_t rank, uint32_t number, struct board_part *part)
{
	if (rank == weir_group_rank(b->g)) {
		*part = b->parts[number];
		return 0;
	}
	return read_board(b, rank, number * sizeof(*part), part, sizeof(*part));
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "board.h"
#include "handle.h"

#include "client/reason.h"
#include "client/wait.h"
#include "group/board.h"
#include "ipc/key.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BOARD_BYTES (WEIR_WINDOWS_MAX * sizeof(struct board_part))
static_assert(WEIR_WINDOWS_MAX == 64, "bits of board.used");
static_assert(sizeof(struct board_part) == 128 && sizeof(struct board_ref) == 32, "no padding");

/* The group ends, or its session. */
static void
free_board(void *arg)
{
	struct board *b = arg;

	if (b->making)
		window_undo(b->making);
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

/* Own memory. 0 or -errno. */
static int
make_mine(struct board *b)
{
	const struct weir_alloc_options o = {.flags = WEIR_ALLOC_ORDINARY, .numa_node = -1};
	struct weir_region_info info;
	struct weir_key_fields k;
	struct weir_key key;
	int rc;

	rc = weir_region_alloc(b->w, BOARD_BYTES, &o, &b->region);
	if (rc)
		return rc;
	weir_region_info(b->region, &info);
	rc = weir_export(b->region, 0, info.bytes, WEIR_MAY_READ | WEIR_MAY_MAP, &b->x, &key);
	if (rc) {
		weir_region_free(b->region);
		b->region = NULL;
		return rc;
	}
	memcpy(&k, key.bytes, sizeof(k));
	b->parts = info.base;
	b->mine = (struct board_ref){
	    .incarnation = k.incarnation, .index = k.index, .generation = k.generation};
	memcpy(b->mine.secret, k.secret, sizeof(b->mine.secret));
	return 0;
}

int
board_make(struct board *b, uint64_t deadline)
{
	uint32_t size = weir_group_size(b->g);
	struct board_ref *refs = b->refs;
	int rc;

	if (b->ready)
		return 0;
	if (!refs)
		b->refs = refs = calloc(size, sizeof(*refs));
	if (!refs)
		return weir_fail(-ENOMEM, "no memory for %u members; free some", size);
	if (!b->x) {
		rc = make_mine(b);
		if (rc) /* the others hear it */
			b->mine = (struct board_ref){.index = (uint32_t)-rc};
	}
	rc = weir_group_allgather(b->g, &b->mine, sizeof(b->mine), refs, weir_time_left(deadline));
	for (uint32_t i = 0; !rc && i < size; i++)
		if (!refs[i].generation)
			rc = window_other_failed(i, refs[i].index);
	b->ready = !rc;
	return rc;
}

int
board_read(struct board *b, uint32_t rank, uint32_t number, struct board_part *part)
{
	const struct board_ref *ref = &b->refs[rank];
	struct weir_key_fields k = {.version = WEIR_KEY_VERSION,
				    .incarnation = ref->incarnation,
				    .index = ref->index,
				    .generation = ref->generation};
	struct weir_remote *r;
	struct weir_member m;
	struct weir_key key;
	int rc;

	static_assert(sizeof(k) == sizeof(key), "a key");
	if (rank == weir_group_rank(b->g)) {
		*part = b->parts[number];
		return 0;
	}
	rc = weir_group_member(b->g, rank, &m);
	if (rc)
		return rc;
	k.node = m.node;
	memcpy(k.secret, ref->secret, sizeof(k.secret));
	k.sum = weir_key_sum(&k);
	memcpy(key.bytes, &k, sizeof(key.bytes));
	rc = weir_remote_open(b->w, &key, WEIR_MAY_READ, 0, -1, &r);
	if (rc)
		return rc;
	rc = weir_remote_get(r, number * sizeof(*part), part, sizeof(*part), 0);
	if (!rc)
		rc = weir_remote_flush(r, -1);
	weir_remote_close(r);
	return rc;
}

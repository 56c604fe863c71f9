/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A list through all members: window_list [--apart] NAME SIZE ELEMENTS. SIZE programs, on any
 * nodes, join the group NAME. Each appends ELEMENTS elements to one list, at the same time as the
 * others. Elements lie where their member has made them: memory is attached to a dynamic window
 * when it is needed, a few elements at a time.
 *
 * The end of the list is a word of rank 0, for which an appending member gives its element and gets
 * the one before (an exchange); then it puts its element's address there. At the end each member
 * follows the list, which must have every element once, those of a member in its order.
 */
#include "members.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT_ONCE 64u /* elements of a region */

/* Of any member: its rank in the upper bits, and the element's address there. 0: none. */
typedef uint64_t place;

struct element {
	place next;
	uint64_t number; /* of its member, from 0 */
};

struct list {
	struct members *m;
	struct weir_window *win;
	size_t count; /* elements per member */
	struct weir_region **region;
	size_t regions;
	place head; /* an element in front of all, of rank 0 */
	place end;  /* the word that has the last one */
};

static place
place_of(uint32_t rank, const void *at)
{
	return (uint64_t)rank << 48 | weir_address_of(at);
}

static uint32_t
rank_of(place p)
{
	return (uint32_t)(p >> 48);
}

static uint64_t
address_of(place p)
{
	return p & ((UINT64_C(1) << 48) - 1);
}

/* Memory for some elements, attached. */
static int
more(struct list *l, struct element **elements)
{
	struct weir_region_info info;
	struct weir_region **grown, *r;
	int rc;

	grown = realloc(l->region, (l->regions + 1) * sizeof(struct weir_region *));
	if (!grown)
		return -ENOMEM;
	l->region = grown;
	rc = weir_region_alloc(l->m->w, AT_ONCE * sizeof(struct element), NULL, &r);
	if (rc)
		return rc;
	l->region[l->regions++] = r;
	weir_region_info(r, &info);
	*elements = info.base;
	return weir_window_attach(l->win, r, 0, AT_ONCE * sizeof(struct element));
}

/* Hangs an element behind the last one. */
static int
append(struct list *l, place e)
{
	uint64_t before;
	int rc;

	rc = weir_window_fetch_op(l->win, rank_of(l->end), address_of(l->end), &e, &before,
				  WEIR_T_UINT64, WEIR_ACC_REPLACE, 0);
	if (!rc)
		rc = weir_window_flush(l->win, rank_of(l->end), -1);
	if (rc)
		return rc;
	return weir_window_put(l->win, rank_of(before),
			       address_of(before) + offsetof(struct element, next), &e, sizeof(e),
			       0);
}

static int
append_all(struct list *l)
{
	struct element *elements = NULL;
	int rc = 0;

	for (size_t i = 0; i < l->count && !rc; i++) {
		if (i % AT_ONCE == 0)
			rc = more(l, &elements);
		if (rc)
			break;
		elements[i % AT_ONCE].number = i;
		rc = append(l, place_of(l->m->rank, &elements[i % AT_ONCE]));
	}
	return rc;
}

/* Whether the list has each element once, those of a member in its order. */
static int
follow(struct list *l, bool *right)
{
	size_t *next = calloc(l->m->size, sizeof(*next)), all = l->m->size * l->count, n = 0;
	struct element e = {0};
	place p = l->head;
	int rc = next ? 0 : -ENOMEM;

	*right = true;
	while (!rc && *right) {
		rc = weir_window_get(l->win, rank_of(p), address_of(p), &e, sizeof(e), 0);
		if (!rc)
			rc = weir_window_flush(l->win, rank_of(p), -1);
		if (rc)
			break;
		if (n++)
			*right = e.number == next[rank_of(p)]++;
		if (!e.next)
			break;
		p = e.next;
		*right &= rank_of(p) < l->m->size && n <= all;
	}
	*right &= n == all + 1;
	free(next);
	return rc;
}

/* Rank 0 makes the element in front of all, and the word behind it that tells the last one. */
static int
begin(struct list *l)
{
	struct weir_window_options o = WEIR_WINDOW_OPTIONS_INIT;
	place ends[2] = {0};
	struct element *first;
	int rc;

	o.name = l->m->program;
	o.flags = l->m->apart ? WEIR_WINDOW_APART : 0;
	rc = weir_window_create_dynamic(l->m->g, &o, -1, &l->win);
	if (!rc && !l->m->rank) {
		rc = more(l, &first);
		if (!rc) {
			ends[0] = place_of(0, &first[0]);
			ends[1] = place_of(0, &first[1].number);
			first[1].number = ends[0];
		}
	}
	if (!rc)
		rc = weir_group_broadcast(l->m->g, 0, ends, sizeof(ends), -1);
	l->head = ends[0];
	l->end = ends[1];
	return rc;
}

static int
run(struct list *l)
{
	bool right = false;
	double since;
	int rc = begin(l);

	if (!rc)
		rc = weir_window_lock_all(l->win, WEIR_NO_CHECK, -1);
	since = seconds();
	if (!rc)
		rc = append_all(l);
	if (!rc)
		rc = weir_window_flush_all(l->win, -1);
	if (!rc)
		rc = weir_group_barrier(l->m->g, -1);
	if (!rc)
		members_report(l->m, "list by exchanges", seconds() - since, l->count);
	if (!rc)
		rc = follow(l, &right);
	if (!rc)
		rc = weir_window_unlock_all(l->win, -1);
	if (!rc)
		rc = members_agree(l->m, right);
	if (rc < 0)
		return rc;
	/* detaches what is attached; regions are free then */
	if (weir_window_free(l->win, -1) && !rc)
		return -ECONNRESET;
	for (size_t i = 0; i < l->regions; i++)
		weir_region_free(l->region[i]);
	free(l->region);
	return rc;
}

int
main(int argc, char **argv)
{
	struct members m = {.program = "window_list"};
	struct list l = {.m = &m};
	int rc;

	if (!members_arguments(&m, argc, argv, "[--apart] NAME SIZE ELEMENTS", &l.count, 1))
		return 2;
	rc = members_join(&m);
	if (!rc)
		rc = run(&l);
	return members_leave(&m, rc);
}

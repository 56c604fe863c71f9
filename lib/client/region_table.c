/* SPDX-License-Identifier: BSD-3-Clause */
#include "region_table.h"
#include "region.h"
#include "wait.h"

#include "base/vec.h"
#include "ipc/invariant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROOM_MIN 16u
/* Pause while another thread searches, which takes 100 ns unless it has no CPU. */
#define READER_NS 10000u

struct entry {
	uintptr_t at;
	struct weir_region *region;
};

struct weir_region_list {
	uint32_t count, room;
	struct entry entry[]; /* by address */
};

/* Number of regions that begin below `end`. */
static uint32_t
count_below(const struct weir_region_list *l, uintptr_t end)
{
	return VEC_BEFORE(l->count, i, l->entry[i].at < end);
}

struct weir_region *
weir_regions_below(struct weir_region_table *t, uintptr_t end)
{
	const struct weir_region_list *l = atomic_load_explicit(&t->list, memory_order_seq_cst);
	uint32_t n = l ? count_below(l, end) : 0;

	return n ? l->entry[n - 1].region : NULL;
}

static struct weir_region_list *
present(const struct weir_region_table *t)
{
	return atomic_load_explicit(&t->list, memory_order_relaxed);
}

/* Publishes the spare list; the present one becomes the spare. */
static void
swap(struct weir_region_table *t)
{
	struct weir_region_list *l =
	    atomic_exchange_explicit(&t->list, t->spare, memory_order_seq_cst);

	/* until no thread searches that began before */
	for (unsigned i = 0; i < 2; i++) {
		uint32_t phase = atomic_fetch_add_explicit(&t->phase, 1, memory_order_seq_cst) % 2;

		/* after the list was replaced: pairs with weir_regions_enter() */
		while (atomic_load_explicit(&t->readers[phase], memory_order_seq_cst))
			weir_sleep(READER_NS);
	}
	t->spare = l;
}

/* NULL: no memory. */
static struct weir_region_list *
list_new(uint32_t room)
{
	struct weir_region_list *l = malloc(sizeof(*l) + room * sizeof(l->entry[0]));

	if (l)
		*l = (struct weir_region_list){.room = room};
	return l;
}

int
weir_regions_reserve(struct weir_region_table *t)
{
	uint32_t need = present(t) ? present(t)->count + 1 : 1;
	struct weir_region_list *l;

	if (!present(t)) {
		l = list_new(ROOM_MIN);
		if (!l)
			return -ENOMEM;
		atomic_store_explicit(&t->list, l, memory_order_release);
	}
	if (t->spare && t->spare->room >= need)
		return 0;
	l = list_new(need < ROOM_MIN ? ROOM_MIN : need + need / 2);
	if (!l)
		return -ENOMEM;
	free(t->spare);
	t->spare = l;
	return 0;
}

/* Fills the spare list: the present one, with `more` new entries and `less` old ones at entry n. */
static void
copy(struct weir_region_table *t, uint32_t n, uint32_t more, uint32_t less)
{
	const struct weir_region_list *l = present(t);

	t->spare->count = l->count + more - less;
	weir_assert(t->spare->count <= t->spare->room);
	memcpy(t->spare->entry, l->entry, n * sizeof(l->entry[0]));
	memcpy(t->spare->entry + n + more, l->entry + n + less,
	       (l->count - n - less) * sizeof(l->entry[0]));
}

void
weir_regions_put(struct weir_region_table *t, struct weir_region *r)
{
	uint32_t n = count_below(present(t), (uintptr_t)r->addr);

	copy(t, n, 1, 0);
	t->spare->entry[n] = (struct entry){(uintptr_t)r->addr, r};
	swap(t);
}

void
weir_regions_take(struct weir_region_table *t, struct weir_region *r)
{
	uint32_t n = count_below(present(t), (uintptr_t)r->addr);

	weir_assert(n < present(t)->count && present(t)->entry[n].region == r);
	copy(t, n, 0, 1);
	swap(t);
}

struct weir_region *
weir_regions_at(const struct weir_region_table *t, uint32_t index)
{
	const struct weir_region_list *l = present(t);

	return l && index < l->count ? l->entry[index].region : NULL;
}

void
weir_regions_free(struct weir_region_table *t)
{
	free(present(t));
	free(t->spare);
}

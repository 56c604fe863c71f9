/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bytes that a window takes at one of its members, of groups on hosts of eight: lib/window alone,
 * whose collective calls end at once with what equal members would say. Counted are its allocations
 * and regions that stay; a part's own memory does not count, nor what the group's first window
 * leaves behind for all. A region and an export cost the same in any group.
 *
 * Prints "memory KIND MEMBERS BYTES" lines, for scripts/bench_onesided.sh.
 */
#include "worlds/test.h"

#include "client/region.h"
#include "client/session.h"
#include "group/board.h"
#include "ipc/key.h"
#include "remote/window.h"

#include "weir/window.h"

#include <malloc.h>

#define HOST 8u /* members */
#define FEW 32u
#define MANY 1024u
#define PAGE 4096u

struct weir_group {
	uint32_t size;
	void *board;
	void (*free_board)(void *board);
};
struct weir_export {
	char none;
};

static struct weir_life life = {.state = WEIR_UP};
static struct weir session = {.life = &life};
static struct weir_export some_export;
static struct weir_group leaders;
static struct weir_region own = {.bytes = PAGE}; /* the program's */
static uint64_t live, regions;			 /* bytes that are allocated */

/* ---- memory ---- */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *p, size_t bytes);
void __real_free(void *p);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *p, size_t bytes);
void __wrap_free(void *p);

static void *
counted(void *p)
{
	live += malloc_usable_size(p);
	return p;
}

void *
__wrap_malloc(size_t bytes)
{
	return counted(__real_malloc(bytes));
}

void *
__wrap_calloc(size_t n, size_t bytes)
{
	return counted(__real_calloc(n, bytes));
}

void *
__wrap_realloc(void *p, size_t bytes)
{
	live -= malloc_usable_size(p);
	return counted(__real_realloc(p, bytes));
}

void
__wrap_free(void *p)
{
	live -= malloc_usable_size(p);
	__real_free(p);
}

int __wrap_weir_region_alloc(struct weir *w, uint64_t bytes, const struct weir_alloc_options *o,
			     struct weir_region **region);
int __wrap_weir_region_free(struct weir_region *region);
void __wrap_weir_region_info(const struct weir_region *region, struct weir_region_info *info);
struct weir_region *__wrap_weir_region_use(struct weir *w, const void *addr, size_t length,
					   unsigned flags);
void __wrap_weir_region_drop(struct weir_region *region);

int
__wrap_weir_region_alloc(struct weir *w, uint64_t bytes, const struct weir_alloc_options *o,
			 struct weir_region **region)
{
	struct weir_region *r = __real_calloc(1, sizeof(*r));

	assert_non_null(r);
	r->bytes = (bytes + PAGE - 1) / PAGE * PAGE;
	r->addr = aligned_alloc(PAGE, r->bytes);
	assert_non_null(r->addr);
	memset(r->addr, 0, r->bytes);
	regions += r->bytes;
	*region = r;
	return 0;
}

int
__wrap_weir_region_free(struct weir_region *region)
{
	regions -= region->bytes;
	__real_free(region->addr);
	__real_free(region);
	return 0;
}

void
__wrap_weir_region_info(const struct weir_region *region, struct weir_region_info *info)
{
	*info =
	    (struct weir_region_info){.base = region->addr, .bytes = region->bytes, .page = PAGE};
}

struct weir_region *
__wrap_weir_region_use(struct weir *w, const void *addr, size_t length, unsigned flags)
{
	return &own;
}

void
__wrap_weir_region_drop(struct weir_region *region)
{
	assert_ptr_equal(region, &own);
}

/* ---- exports ---- */

int __wrap_weir_export(struct weir_region *region, uint64_t offset, uint64_t length,
		       unsigned rights, struct weir_export **x, struct weir_key *key);
int __wrap_weir_export_with(struct weir_region *region, uint64_t offset, uint64_t length,
			    unsigned rights, const struct weir_export_more *more,
			    struct weir_export **x, struct weir_key *key);
int __wrap_weir_export_dynamic(struct weir *w, unsigned rights, const struct weir_export_more *more,
			       struct weir_export **x, struct weir_key *key);
void __wrap_weir_export_set_sink(struct weir_export *x, struct weir_notice_sink *s);
int __wrap_weir_revoke(struct weir_export *x);

int
__wrap_weir_export(struct weir_region *region, uint64_t offset, uint64_t length, unsigned rights,
		   struct weir_export **x, struct weir_key *key)
{
	const struct weir_key_fields k = {.generation = 1};

	memcpy(key->bytes, &k, sizeof(key->bytes));
	*x = &some_export;
	return 0;
}

int
__wrap_weir_export_with(struct weir_region *region, uint64_t offset, uint64_t length,
			unsigned rights, const struct weir_export_more *more,
			struct weir_export **x, struct weir_key *key)
{
	return __wrap_weir_export(region, offset, length, rights, x, key);
}

int
__wrap_weir_export_dynamic(struct weir *w, unsigned rights, const struct weir_export_more *more,
			   struct weir_export **x, struct weir_key *key)
{
	return __wrap_weir_export(NULL, 0, 0, rights, x, key);
}

void
__wrap_weir_export_set_sink(struct weir_export *x, struct weir_notice_sink *s)
{
}

int
__wrap_weir_revoke(struct weir_export *x)
{
	assert_ptr_equal(x, &some_export);
	return 0;
}

/* ---- the group ---- */

struct weir *__wrap_group_session(const struct weir_group *g);
bool __wrap_group_is_calling(const struct weir_group *g);
void __wrap_group_work_for(struct weir_group *part, struct weir_group *g);
void **__wrap_group_board(struct weir_group *g, void (*free_board)(void *board));
uint32_t __wrap_weir_group_rank(const struct weir_group *g);
uint32_t __wrap_weir_group_size(const struct weir_group *g);
int __wrap_weir_group_member(const struct weir_group *g, uint32_t rank, struct weir_member *member);
int __wrap_weir_group_barrier(struct weir_group *g, int timeout_ms);
int __wrap_weir_group_allgather(struct weir_group *g, const void *mine, size_t length, void *all,
				int timeout_ms);
int __wrap_weir_group_allreduce(struct weir_group *g, const void *mine, void *result, size_t count,
				enum weir_type type, enum weir_acc op, int timeout_ms);
int __wrap_weir_group_split(struct weir_group *g, int color, int key, int timeout_ms,
			    struct weir_group **sub);
void __wrap_weir_group_leave(struct weir_group *g);

struct weir *
__wrap_group_session(const struct weir_group *g)
{
	return &session;
}

bool
__wrap_group_is_calling(const struct weir_group *g)
{
	return false;
}

void
__wrap_group_work_for(struct weir_group *part, struct weir_group *g)
{
	assert_ptr_equal(part, &leaders);
}

void **
__wrap_group_board(struct weir_group *g, void (*free_board)(void *board))
{
	g->free_board = free_board;
	return &g->board;
}

uint32_t
__wrap_weir_group_size(const struct weir_group *g)
{
	return g->size;
}

/* The first one of the last host, which leads it: it needs most. */
uint32_t
__wrap_weir_group_rank(const struct weir_group *g)
{
	return g->size - HOST;
}

int
__wrap_weir_group_member(const struct weir_group *g, uint32_t rank, struct weir_member *member)
{
	*member = (struct weir_member){.node = (uint16_t)(rank / HOST),
				       .local = rank / HOST == (g->size - 1) / HOST,
				       .on_host = rank % HOST};
	return 0;
}

int
__wrap_weir_group_barrier(struct weir_group *g, int timeout_ms)
{
	return 0;
}

int
__wrap_weir_group_allgather(struct weir_group *g, const void *mine, size_t length, void *all,
			    int timeout_ms)
{
	for (uint32_t i = 0; i < g->size; i++)
		memcpy((uint8_t *)all + i * length, mine, length);
	return 0;
}

int
__wrap_weir_group_allreduce(struct weir_group *g, const void *mine, void *result, size_t count,
			    enum weir_type type, enum weir_acc op, int timeout_ms)
{
	memmove(result, mine, count * weir_type_size(type));
	return 0;
}

int
__wrap_weir_group_split(struct weir_group *g, int color, int key, int timeout_ms,
			struct weir_group **sub)
{
	*sub = &leaders;
	return 0;
}

void
__wrap_weir_group_leave(struct weir_group *g)
{
	assert_true(!g || g == &leaders);
}

/* ---- windows ---- */

enum kind { CREATED, EMPTY, DYNAMIC, KINDS };
static const char *const names[KINDS] = {"created", "empty", "dynamic"};

static struct weir_window *
make(struct weir_group *g, enum kind kind)
{
	struct weir_window *win = NULL;
	void *base;
	int rc = kind == CREATED ? weir_window_create(g, &own, 0, own.bytes, NULL, 0, &win)
		 : kind == EMPTY ? weir_window_allocate(g, 0, NULL, 0, &base, &win)
				 : weir_window_create_dynamic(g, NULL, 0, &win);

	assert_int_equal(rc, 0);
	return win;
}

/* Of a window beside another one. */
static uint64_t
bytes_of(enum kind kind, uint32_t members)
{
	struct weir_group g = {.size = members};
	uint64_t before = live, at_first = regions, with_first, all;
	struct weir_window *first = make(&g, kind), *second;

	with_first = live + regions;
	second = make(&g, kind);
	all = live + regions;
	assert_int_equal(weir_window_free(second, 0), 0);
	assert_int_equal(live + regions, with_first);
	assert_int_equal(weir_window_free(first, 0), 0);
	g.free_board(g.board);
	assert_int_equal(live, before);
	assert_int_equal(regions, at_first);
	printf("memory %s %u %llu\n", names[kind], members, (unsigned long long)(all - with_first));
	return all - with_first;
}

TEST(test_memory)
{
	for (unsigned kind = 0; kind < KINDS; kind++)
		assert_true(4 * bytes_of((enum kind)kind, MANY) <=
			    5 * bytes_of((enum kind)kind, FEW));
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Regions: memory of the session, allocated for the program, or adopted: then it replaces ordinary
 * memory. The contents are copied at another address, then one system call moves the copy over the
 * range, so that other threads see either. Disowning does the same in the opposite direction.
 */
#define _GNU_SOURCE
#include "region.h"
#include "reason.h"
#include "session.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HUGE_PAGE (2ul << 20)
#define GIGANTIC_PAGE (1ul << 30)

struct weir_region *
weir_region_use(struct weir *w, const void *addr, size_t length, unsigned flags)
{
	struct weir_region_table *t = &w->regions;
	struct weir_region *r;
	uint32_t phase;
	uint64_t at;

	if (!atomic_load_explicit(&t->list, memory_order_relaxed))
		return NULL;
	phase = weir_regions_enter(t);
	r = weir_regions_below(t, (uintptr_t)addr + 1);
	if (r) {
		at = (uint64_t)((const uint8_t *)addr - r->addr);
		if (!(r->flags & flags) || at >= r->bytes || length > r->bytes - at)
			r = NULL;
	}
	if (r &&
	    atomic_fetch_add_explicit(&r->users, 1, memory_order_relaxed) & WEIR_REGION_LEAVING) {
		atomic_fetch_sub_explicit(&r->users, 1, memory_order_relaxed);
		r = NULL;
	}
	weir_regions_leave(t, phase);
	return r;
}

void
weir_region_drop(struct weir_region *r)
{
	weir_assert(atomic_load_explicit(&r->users, memory_order_relaxed));
	/* pairs with the acquire in end(): accesses to the region precede it */
	atomic_fetch_sub_explicit(&r->users, 1, memory_order_release);
}

/*
 * Maps memory of `fd` (-1: ordinary memory) over [addr, addr + length) and keeps the contents. The
 * copy is complete before the one system call that moves it.
 */
static int
replace(int fd, uint8_t *addr, size_t length)
{
	int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
	void *from = mmap(NULL, length, PROT_READ | PROT_WRITE, flags | MAP_POPULATE, fd, 0);
	int rc = 0;

	if (from == MAP_FAILED)
		return -errno;
	if (fd >= 0)
		madvise(from, length, MADV_DONTFORK);
	memcpy(from, addr, length);
	if (mremap(from, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, addr) == MAP_FAILED) {
		rc = -errno;
		munmap(from, length);
	}
	return rc;
}

static void
disown(struct weir_region *r)
{
	struct weir_session_msg m = weir_message(WEIR_MSG_DISOWN), answer;
	int fds[WEIR_SESSION_FDS];

	m.region.region = r->index;
	/* without a data plane the mapping is all there was */
	if (weir_state(r->w) == WEIR_UP)
		weir_request(r->w, &m, WEIR_MSG_OK, &answer, fds);
}

/*
 * Requests memory for a region, with more flags WEIR_ADOPT_*, and has `place` put it in its place.
 * 0 or -errno with the reason set.
 */
static int
request(struct weir_region *r, uint32_t more, int numa_node,
	int (*place)(int fd, struct weir_region *r))
{
	struct weir_session_msg m = weir_message(WEIR_MSG_ADOPT), answer;
	int fds[WEIR_SESSION_FDS], rc;

	m.adopt.bytes = r->bytes;
	m.adopt.flags = more | (r->flags == WEIR_REGION_CACHED ? WEIR_ADOPT_SEND : r->flags);
	m.adopt.numa_node = numa_node;
	rc = weir_request(r->w, &m, WEIR_MSG_REGION, &answer, fds);
	if (rc)
		return rc;
	r->index = answer.region.region;
	r->page = answer.region.page;
	if (fds[0] < 0 || !r->index || answer.region.bytes != r->bytes)
		rc = weir_fail(-EPROTO, "the data plane gave other memory than requested; "
					"install one release of both");
	if (!rc) {
		rc = place(fds[0], r);
		if (rc)
			weir_fail(rc,
				  "the memory cannot be mapped: %s; raise the limits of address "
				  "space and mappings",
				  strerror(-rc));
	}
	for (unsigned i = 0; i < WEIR_SESSION_FDS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	if (rc)
		disown(r);
	return rc;
}

static int
replace_own(int fd, struct weir_region *r)
{
	return replace(fd, r->addr, r->bytes);
}

/* Requests memory and puts it in the place of the program's. */
static int
adopt(struct weir_region *r)
{
	bool huge = (uintptr_t)r->addr % HUGE_PAGE == 0 && r->bytes % HUGE_PAGE == 0;

	return request(r, huge ? WEIR_ADOPT_HUGE : 0, -1, replace_own);
}

/* Whether a part of the range belongs to a region of this session or a former one. */
static bool
adopted(struct weir *w, const uint8_t *addr, size_t length)
{
	bool any = false;

	for (; w && !any; w = w->former) {
		uint32_t phase = weir_regions_enter(&w->regions);
		const struct weir_region *r =
		    weir_regions_below(&w->regions, (uintptr_t)addr + length);

		any = r && addr < r->addr + r->bytes;
		weir_regions_leave(&w->regions, phase);
	}
	return any;
}

/* Whether all pages of the range are mapped. */
static bool
mapped(uint8_t *addr, size_t length, size_t page)
{
	unsigned char state[1024]; /* of that many pages */
	size_t step = sizeof(state) * page;

	for (size_t at = 0; at < length; at += step)
		if (mincore(addr + at, length - at < step ? length - at : step, state))
			return false;
	return true;
}

/* Whether a part of the range belongs to the stack of this thread. */
static bool
on_stack(const uint8_t *addr, size_t length)
{
	const uint8_t *stack;
	pthread_attr_t attr;
	size_t bytes;
	void *low;
	bool on;

	if (pthread_getattr_np(pthread_self(), &attr))
		return false;
	on = !pthread_attr_getstack(&attr, &low, &bytes);
	stack = low;
	pthread_attr_destroy(&attr);
	return on && addr < stack + bytes && stack < addr + length;
}

/*
 * Whether a part of the range is memory that has a meaning for others: of a shared mapping, a
 * device, the main thread's stack. False where the kernel does not tell.
 */
static bool
shared(const uint8_t *addr, size_t length)
{
	uintptr_t from = (uintptr_t)addr, to = from + length;
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned long begin, end;
	bool found = false;
	char *line = NULL;
	size_t room = 0;
	char rights[5];

	while (maps && !found && getline(&line, &room, maps) > 0) {
		if (sscanf(line, "%lx-%lx %4s", &begin, &end, rights) != 3 || end <= from)
			continue;
		if (begin >= to)
			break;
		found = rights[3] != 'p' || strstr(line, "[stack") || strstr(line, "[v");
	}
	free(line);
	if (maps)
		fclose(maps);
	return found;
}

static int
acceptable(struct weir *w, uint8_t *addr, size_t length, unsigned flags)
{
	const unsigned known = WEIR_ADOPT_SEND | WEIR_ADOPT_RECV | WEIR_ADOPT_EXPOSE;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	if (flags != WEIR_REGION_CACHED && (!flags || flags & ~known))
		return weir_fail(-EINVAL, "memory is adopted with WEIR_ADOPT_SEND, "
					  "WEIR_ADOPT_RECV, WEIR_ADOPT_EXPOSE or several; give "
					  "these");
	if (!addr || !length || (uintptr_t)addr % page || length % page ||
	    length > WEIR_REGION_BYTES_MAX || (uintptr_t)addr + length < length)
		return weir_fail(-EINVAL, "whole pages are adopted; align the memory, or allocate "
					  "it by weir_region_alloc()");
	if (adopted(w, addr, length))
		return weir_fail(-EEXIST,
				 "a part of the memory is adopted already; disown it first");
	if (!mapped(addr, length, page))
		return weir_fail(-EFAULT, "not all of the memory is mapped; give memory that "
					  "exists, or allocate it by weir_region_alloc()");
	if (on_stack(addr, length))
		return weir_fail(-EINVAL, "a stack cannot be adopted; allocate memory by "
					  "weir_region_alloc() and copy");
	if (shared(addr, length))
		return weir_fail(-EINVAL,
				 "only ordinary memory is adopted: this is shared with other "
				 "processes or a file, or a stack; allocate memory by "
				 "weir_region_alloc() and copy");
	return 0;
}

int
weir_adopt(struct weir *w, void *addr, size_t length, unsigned flags, struct weir_region **region)
{
	struct weir_region *r;
	int rc;

	w = weir_now(w);
	if (weir_state(w) != WEIR_UP)
		return weir_gone(w);
	r = calloc(1, sizeof(*r));
	if (!r)
		return weir_fail(-ENOMEM, "no memory for a region; free some");
	*r = (struct weir_region){.w = w, .addr = addr, .bytes = length, .flags = flags};
	pthread_mutex_lock(&w->adopt_lock);
	rc = acceptable(w, addr, length, flags);
	if (!rc && weir_regions_reserve(&w->regions))
		rc = weir_fail(-ENOMEM, "no memory for a region; free some");
	if (!rc)
		rc = adopt(r);
	if (!rc)
		weir_regions_put(&w->regions, r);
	pthread_mutex_unlock(&w->adopt_lock);
	if (rc)
		free(r);
	else
		*region = r;
	return rc;
}

/* Future of the addresses of a region that ends. */
enum fate {
	KEPT,	  /* the contents stay there, in ordinary memory */
	UNMAPPED, /* nothing is there afterwards */
	ABANDONED /* the program has put something else there */
};

/* adopt_lock held. */
static int
end(struct weir_region *r, enum fate fate)
{
	uint32_t none = 0;
	int rc;

	/* no thread uses the region from now on; pairs with the release in weir_region_drop() */
	if (!atomic_compare_exchange_strong_explicit(&r->users, &none, WEIR_REGION_LEAVING,
						     memory_order_acquire, memory_order_relaxed))
		return weir_fail(-EBUSY, "messages of this memory are under way, or it is posted; "
					 "flush or receive first");
	weir_regions_take(&r->w->regions, r);
	if (fate == UNMAPPED)
		munmap(r->addr, r->bytes);
	rc = fate == KEPT ? replace(-1, r->addr, r->bytes) : 0;
	if (rc) {
		atomic_store_explicit(&r->users, 0, memory_order_relaxed);
		weir_regions_put(&r->w->regions, r);
		return weir_fail(rc, "no memory to give the contents back: %s; free some",
				 strerror(-rc));
	}
	disown(r);
	free(r);
	return 0;
}

static int
end_alone(struct weir_region *r, enum fate fate)
{
	struct weir *w = r->w;
	int rc;

	pthread_mutex_lock(&w->adopt_lock);
	rc = end(r, fate);
	pthread_mutex_unlock(&w->adopt_lock);
	return rc;
}

int
weir_disown(struct weir_region *r)
{
	if (weir_state(r->w) == WEIR_FORKED)
		return weir_gone(r->w);
	if (r->allocated)
		return weir_fail(-EINVAL, "the region was allocated, not adopted; call "
					  "weir_region_free()");
	return end_alone(r, KEPT);
}

int
weir_region_abandon(struct weir_region *r)
{
	return end_alone(r, ABANDONED);
}

int
weir_region_free(struct weir_region *r)
{
	if (weir_state(r->w) == WEIR_FORKED)
		return weir_gone(r->w);
	if (!r->allocated)
		return weir_fail(-EINVAL, "the region was adopted, not allocated; call "
					  "weir_disown()");
	return end_alone(r, UNMAPPED);
}

/* ---- allocated regions ---- */

/* Reserves the addresses, so that a region that takes long to make has its place: 0 or -errno. */
static int
reserve(struct weir_region *r, const struct weir_alloc_options *o)
{
	bool exact = o->flags & WEIR_ALLOC_EXACT;
	void *at = mmap(
	    o->address, r->bytes, PROT_NONE,
	    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (exact ? MAP_FIXED_NOREPLACE : 0), -1, 0);
	int rc = at == MAP_FAILED ? -errno : 0;

	if (exact && at != o->address) {
		if (at != MAP_FAILED) /* a kernel that takes the address for a hint */
			munmap(at, r->bytes);
		if (at != MAP_FAILED || rc == -EEXIST)
			return weir_fail(-EEXIST,
					 "%p to %p is not free; give other addresses, or none",
					 o->address, (char *)o->address + r->bytes);
	}
	if (rc)
		return weir_fail(rc == -EPERM ? -EINVAL : rc,
				 "no addresses for %llu bytes: %s; give others, or raise the "
				 "limit of address space",
				 (unsigned long long)r->bytes, strerror(-rc));
	r->addr = at;
	return 0;
}

/* Maps the memory at the reserved addresses, or where its pages may lie. */
static int
map_reserved(int fd, struct weir_region *r)
{
	bool there = (uintptr_t)r->addr % r->page == 0;
	void *at = mmap(there ? r->addr : NULL, r->bytes, PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_POPULATE | (there ? MAP_FIXED : 0), fd, 0);

	if (at == MAP_FAILED)
		return -errno;
	madvise(at, r->bytes, MADV_DONTFORK);
	if (!there)
		munmap(r->addr, r->bytes);
	r->addr = at;
	return 0;
}

/* adopt_lock held. */
static int
allocate(struct weir_region *r, const struct weir_alloc_options *o)
{
	uintptr_t at = o->flags & WEIR_ALLOC_EXACT ? (uintptr_t)o->address : 0;
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint32_t how = WEIR_ADOPT_NEW;
	unsigned node = 0;
	int rc;

	/* the largest pages that the options, the size and the address permit */
	if (o->flags & WEIR_ALLOC_HUGE_1G && r->bytes >= GIGANTIC_PAGE && at % GIGANTIC_PAGE == 0)
		page = GIGANTIC_PAGE;
	else if (!(o->flags & WEIR_ALLOC_ORDINARY) && r->bytes >= HUGE_PAGE && at % HUGE_PAGE == 0)
		page = HUGE_PAGE;
	r->bytes = WEIR_ALIGN_UP(r->bytes, page);
	if (page >= HUGE_PAGE)
		how |= WEIR_ADOPT_HUGE;
	if (page >= GIGANTIC_PAGE)
		how |= WEIR_ADOPT_GIGANTIC;
	if (weir_regions_reserve(&r->w->regions))
		return weir_fail(-ENOMEM, "no memory for a region; free some");
	rc = reserve(r, o);
	if (rc)
		return rc;
	if (o->numa_node < 0)
		getcpu(NULL, &node);
	rc = request(r, how, o->numa_node < 0 ? (int)node : o->numa_node, map_reserved);
	if (rc)
		munmap(r->addr, r->bytes);
	else
		weir_regions_put(&r->w->regions, r);
	return rc;
}

int
weir_region_alloc(struct weir *w, uint64_t bytes, const struct weir_alloc_options *options,
		  struct weir_region **region)
{
	static const struct weir_alloc_options usual = {.numa_node = -1};
	const uint32_t known = WEIR_ALLOC_HUGE_1G | WEIR_ALLOC_ORDINARY | WEIR_ALLOC_EXACT;
	const struct weir_alloc_options *o = options ? options : &usual;
	struct weir_region *r;
	int rc;

	w = weir_now(w);
	if (weir_state(w) != WEIR_UP)
		return weir_gone(w);
	if (!bytes || bytes > WEIR_REGION_BYTES_MAX)
		return weir_fail(-EINVAL,
				 "invalid size of a region, %llu bytes (expected 1 to "
				 "2^47); use several regions",
				 (unsigned long long)bytes);
	if (o->flags & ~known || (o->flags & WEIR_ALLOC_HUGE_1G && o->flags & WEIR_ALLOC_ORDINARY))
		return weir_fail(-EINVAL, "unknown flags, or both WEIR_ALLOC_HUGE_1G and "
					  "WEIR_ALLOC_ORDINARY; give one of these");
	if ((uintptr_t)o->address % (uintptr_t)sysconf(_SC_PAGESIZE) ||
	    (o->flags & WEIR_ALLOC_EXACT && !o->address))
		return weir_fail(-EINVAL, "no page begins at address %p; give the address of one",
				 o->address);
	if (o->numa_node < -1)
		return weir_fail(-EINVAL, "no NUMA node %d; give -1 for that of this thread",
				 (int)o->numa_node);
	r = calloc(1, sizeof(*r));
	if (!r)
		return weir_fail(-ENOMEM, "no memory for a region; free some");
	*r = (struct weir_region){.w = w,
				  .bytes = bytes,
				  .allocated = true,
				  .flags = WEIR_ADOPT_SEND | WEIR_ADOPT_RECV | WEIR_ADOPT_EXPOSE};
	pthread_mutex_lock(&w->adopt_lock);
	rc = allocate(r, o);
	pthread_mutex_unlock(&w->adopt_lock);
	if (rc)
		free(r);
	else
		*region = r;
	return rc;
}

void
weir_region_info(const struct weir_region *r, struct weir_region_info *info)
{
	int node;

	*info = (struct weir_region_info){.base = r->addr,
					  .bytes = r->bytes,
					  .page = r->page,
					  .flags = r->flags,
					  .numa_node = -1};
	if (!syscall(SYS_get_mempolicy, &node, NULL, 0, r->addr, MPOL_F_NODE | MPOL_F_ADDR))
		info->numa_node = node;
}

void
weir_regions_fini(struct weir *w)
{
	struct weir_region *r;

	for (uint32_t i = 0; (r = weir_regions_at(&w->regions, i)); i++) {
		if (r->allocated)
			munmap(r->addr, r->bytes);
		else /* without memory for the copy, the program keeps the session's memory */
			replace(-1, r->addr, r->bytes);
		free(r);
	}
	weir_regions_free(&w->regions);
	pthread_mutex_destroy(&w->adopt_lock);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Adopted memory: memory of the session replaces ordinary memory. The contents are copied at
 * another address, then one system call moves the copy over the range, so that other threads see
 * either. Disowning does the same in the opposite direction.
 */
#define _GNU_SOURCE
#include "region.h"
#include "reason.h"
#include "session.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE (2ul << 20)

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
	/* pairs with the acquire in stop_using(): accesses to the region precede it */
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

/* Requests memory and puts it in the place of the program's. */
static int
adopt(struct weir_region *r)
{
	struct weir_session_msg m = weir_message(WEIR_MSG_ADOPT), answer;
	bool huge = (uintptr_t)r->addr % HUGE_PAGE == 0 && r->bytes % HUGE_PAGE == 0;
	int fds[WEIR_SESSION_FDS], rc;

	m.adopt.bytes = r->bytes;
	m.adopt.flags = r->flags == WEIR_REGION_CACHED ? WEIR_ADOPT_SEND : r->flags;
	m.adopt.flags |= huge ? WEIR_ADOPT_HUGE : 0;
	rc = weir_request(r->w, &m, WEIR_MSG_REGION, &answer, fds);
	if (rc)
		return rc;
	r->index = answer.region.region;
	if (fds[0] < 0 || !r->index || answer.region.bytes != r->bytes)
		rc = weir_fail(-EPROTO, "the data plane gave other memory than requested; "
					"install one release of both");
	if (!rc)
		rc = replace(fds[0], r->addr, r->bytes);
	for (int i = 0; i < 2; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	if (!rc)
		return 0;
	m = weir_message(WEIR_MSG_DISOWN);
	m.region.region = r->index;
	weir_request(r->w, &m, WEIR_MSG_OK, &answer, fds);
	return rc == -EPROTO ? rc
			     : weir_fail(rc,
					 "the memory cannot be mapped: %s; raise the limits of "
					 "address space and mappings",
					 strerror(-rc));
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

static int
acceptable(struct weir *w, uint8_t *addr, size_t length, unsigned flags)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	if (flags != WEIR_REGION_CACHED && (!flags || flags & ~(WEIR_ADOPT_SEND | WEIR_ADOPT_RECV)))
		return weir_fail(-EINVAL, "memory is adopted with WEIR_ADOPT_SEND, "
					  "WEIR_ADOPT_RECV or both; give one of these");
	if (!addr || !length || (uintptr_t)addr % page || length % page ||
	    length > WEIR_REGION_BYTES_MAX)
		return weir_fail(-EINVAL, "whole pages are adopted; align the memory, or allocate "
					  "it by mmap()");
	if (adopted(w, addr, length))
		return weir_fail(-EEXIST,
				 "a part of the memory is adopted already; disown it first");
	return mapped(addr, length, page) ? 0
					  : weir_fail(-EFAULT, "not all of the memory is mapped; "
							       "give memory that exists");
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

/* No thread uses the region from now on: 0, or -EBUSY, and nothing has changed. adopt_lock held. */
static int
stop_using(struct weir_region *r)
{
	uint32_t none = 0;

	/* pairs with the release in weir_region_drop() */
	if (!atomic_compare_exchange_strong_explicit(&r->users, &none, WEIR_REGION_LEAVING,
						     memory_order_acquire, memory_order_relaxed))
		return -EBUSY;
	weir_regions_take(&r->w->regions, r);
	return 0;
}

/* Ends a region; `keep`: its contents stay at their address, in ordinary memory. adopt_lock held.
 */
static int
end(struct weir_region *r, bool keep)
{
	struct weir_session_msg m = weir_message(WEIR_MSG_DISOWN), answer;
	int fds[WEIR_SESSION_FDS], rc = stop_using(r);

	if (rc)
		return weir_fail(rc, "messages of this memory are under way, or it is posted; "
				     "flush or receive first");
	rc = keep ? replace(-1, r->addr, r->bytes) : 0;
	if (rc) {
		atomic_store_explicit(&r->users, 0, memory_order_relaxed);
		weir_regions_put(&r->w->regions, r);
		return weir_fail(rc, "no memory to give the contents back: %s; free some",
				 strerror(-rc));
	}
	m.region.region = r->index;
	/* without a data plane the mapping is all there was */
	if (weir_state(r->w) == WEIR_UP)
		weir_request(r->w, &m, WEIR_MSG_OK, &answer, fds);
	free(r);
	return 0;
}

int
weir_disown(struct weir_region *r)
{
	struct weir *w = r->w;
	int rc;

	if (weir_state(w) == WEIR_FORKED)
		return weir_gone(w);
	pthread_mutex_lock(&w->adopt_lock);
	rc = end(r, true);
	pthread_mutex_unlock(&w->adopt_lock);
	return rc;
}

int
weir_region_abandon(struct weir_region *r)
{
	struct weir *w = r->w;
	int rc;

	pthread_mutex_lock(&w->adopt_lock);
	rc = end(r, false);
	pthread_mutex_unlock(&w->adopt_lock);
	return rc;
}

void
weir_regions_fini(struct weir *w)
{
	struct weir_region *r;

	for (uint32_t i = 0; (r = weir_regions_at(&w->regions, i)); i++) {
		/* if there is no memory for the copy, the program keeps the session's memory */
		replace(-1, r->addr, r->bytes);
		free(r);
	}
	weir_regions_free(&w->regions);
	pthread_mutex_destroy(&w->adopt_lock);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* The SIGBUS handler: see sigbus.h. Everything that handle() calls is async-signal-safe. */
#include "sigbus.h"

#include "base/monotonic.h"
#include "ipc/invariant.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Refills beyond this rate are the program's doing: the kernel alone unmaps fewer pages. */
#define REFILL_NS 244140u /* ns per refill: 4096 per second */
#define REFILLS 64u	  /* at once, beside one per page of the range */
#define NO_GUARD (-1)

/* Written by main; read by the handler on any thread, which writes `hit` and `refills`. */
struct guard {
	_Atomic uintptr_t base; /* 0: free */
	_Atomic size_t length, page;
	_Atomic int notify_fd;
	_Atomic bool hit;
	_Atomic uint64_t refills; /* theoretical arrival time of the next one, ns */
	int next_free;		  /* main's: number of the next free guard */
};

#define CHUNK                                                                                      \
	256 /* guards allocated at a time; never moved or freed, since the handler reads them */
static struct guard **chunks;	  /* main's */
static int guards_used;		  /* main's: guards from this number on were never in use */
static int free_first = NO_GUARD; /* main's: list of free ones below */

/* Guards by address. Replaced as a whole; entries whose guard has another base by now are void. */
struct table {
	struct table *former; /* next in the list of those that are to be freed */
	uint32_t count;
	struct entry {
		uintptr_t base;
		struct guard *guard;
	} entry[];
};
static struct table *_Atomic table;
static struct table *former;	  /* main's: a handler may still search them */
static _Atomic uint32_t handling; /* threads inside the handler */

static _Atomic int watch_fd = -1;	 /* userfaultfd */
static struct sigaction previous_action; /* for all other faults */

static struct guard *
guard_at(int i)
{
	return &chunks[i / CHUNK][i % CHUNK];
}

static bool
is_void(const struct entry *e)
{
	/* pairs with the release in sigbus_guard_add() */
	return atomic_load_explicit(&e->guard->base, memory_order_acquire) != e->base;
}

static struct guard *
guard_of(uintptr_t addr)
{
	const struct table *t = atomic_load_explicit(&table, memory_order_seq_cst);
	uint32_t from = 0, to = t ? t->count : 0;
	const struct entry *e;

	while (from < to) { /* from: entries that begin at addr or below */
		uint32_t middle = from + (to - from) / 2;

		if (t->entry[middle].base <= addr)
			from = middle + 1;
		else
			to = middle;
	}
	while (from && is_void(&t->entry[from - 1]))
		from--;
	if (!from)
		return NULL;
	e = &t->entry[from - 1];
	return addr - e->base < atomic_load_explicit(&e->guard->length, memory_order_relaxed)
		   ? e->guard
		   : NULL;
}

/* Replaces the table by one without void entries and, unless it is NULL, with g, which begins at
 * base. 0 or -ENOMEM. */
static int
renew_table(struct guard *g, uintptr_t base)
{
	struct table *old = atomic_load_explicit(&table, memory_order_relaxed), *t;
	uint32_t n = old ? old->count : 0;

	t = malloc(sizeof(*t) + (n + 1) * sizeof(t->entry[0]));
	if (!t)
		return -ENOMEM;
	t->count = 0;
	for (uint32_t i = 0; i < n; i++) {
		if (is_void(&old->entry[i]))
			continue;
		if (g && old->entry[i].base > base) {
			t->entry[t->count++] = (struct entry){base, g};
			g = NULL;
		}
		t->entry[t->count++] = old->entry[i];
	}
	if (g)
		t->entry[t->count++] = (struct entry){base, g};
	atomic_store_explicit(&table, t, memory_order_seq_cst);
	if (old) {
		old->former = former;
		former = old;
	}
	/* pairs with the increment in handle(): a thread that comes later finds the new table */
	while (former && !atomic_load_explicit(&handling, memory_order_seq_cst)) {
		t = former;
		former = t->former;
		free(t);
	}
	return 0;
}

/* Maps private zeroes over [at, at + bytes). */
static bool
put_zeroes(void *at, size_t bytes)
{
	if (mmap(at, bytes, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		return false;
	madvise(at, bytes, MADV_DONTFORK);
	madvise(at, bytes, MADV_NOHUGEPAGE); /* little of it will be touched */
	return true;
}

static void
mark(struct guard *g)
{
	int fd = atomic_load_explicit(&g->notify_fd, memory_order_relaxed);
	uint64_t one = 1;

	atomic_store_explicit(&g->hit, true, memory_order_release);
	/* can only fail when the counter is full: then it is readable anyway */
	if (fd >= 0 && write(fd, &one, sizeof(one)) < 0)
		errno = 0;
}

/*
 * Makes the page (the whole huge page) that holds addr accessible: maps the one of the file, or
 * zeroes where there is a hole. False: it could not.
 */
static bool
repair(struct guard *g, uintptr_t addr)
{
	size_t page = atomic_load_explicit(&g->page, memory_order_relaxed);
	uint64_t pages = atomic_load_explicit(&g->length, memory_order_relaxed) / page;
	struct uffdio_continue c = {.range = {addr & ~(uintptr_t)(page - 1), page}};
	int fd = atomic_load_explicit(&watch_fd, memory_order_relaxed);
	uint64_t at, now;

	/* EEXIST, EAGAIN: another thread was faster, or the mapping changes */
	if (fd >= 0 && (!ioctl(fd, UFFDIO_CONTINUE, &c) || errno == EEXIST || errno == EAGAIN)) {
		/* the page was only unmapped; of two threads at once one may be counted */
		at = atomic_load_explicit(&g->refills, memory_order_relaxed);
		now = monotonic_ns();
		at = (at > now ? at : now) + REFILL_NS;
		atomic_store_explicit(&g->refills, at, memory_order_relaxed);
		if (at - now > (pages + REFILLS) * REFILL_NS)
			mark(g);
		return true;
	}
	if (!put_zeroes((void *)(uintptr_t)c.range.start, page))
		return false;
	mark(g);
	return true;
}

static void
handle(int signal_number, siginfo_t *info, void *context)
{
	int saved = errno;
	bool fault = info->si_code > 0; /* else a process sent the signal */
	uintptr_t addr = (uintptr_t)info->si_addr;
	struct guard *g;

	/* before the table is loaded: pairs with renew_table() */
	atomic_fetch_add_explicit(&handling, 1, memory_order_seq_cst);
	g = fault ? guard_of(addr) : NULL;
	atomic_fetch_sub_explicit(&handling, 1, memory_order_release);
	if (!g || !repair(g, addr)) {
		/* not ours: the access is repeated, or the signal raised, under that action */
		sigaction(signal_number, &previous_action, NULL);
		if (!fault)
			raise(signal_number);
	}
	errno = saved;
}

int
sigbus_install(void)
{
	struct sigaction sa = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO}, now;

	sigemptyset(&sa.sa_mask);
	if (sigaction(SIGBUS, NULL, &now))
		return -errno;
	if (now.sa_flags & SA_SIGINFO && now.sa_sigaction == handle)
		return 0;
	previous_action = now;
	return sigaction(SIGBUS, &sa, NULL) ? -errno : 0;
}

/* A free guard: its number, or -ENOMEM. */
static int
take_guard(void)
{
	struct guard **more;
	int i = free_first;

	if (i != NO_GUARD) {
		free_first = guard_at(i)->next_free;
		return i;
	}
	i = guards_used;
	if (i % CHUNK == 0) {
		more = realloc(chunks, ((size_t)i / CHUNK + 1) * sizeof(chunks[0]));
		if (!more)
			return -ENOMEM;
		chunks = more;
		chunks[i / CHUNK] = calloc(CHUNK, sizeof(struct guard));
		if (!chunks[i / CHUNK])
			return -ENOMEM;
	}
	guards_used++;
	return i;
}

static void
give_guard(int i)
{
	guard_at(i)->next_free = free_first;
	free_first = i;
}

int
sigbus_watch(void)
{
	struct uffdio_api api = {.api = UFFD_API,
				 .features = UFFD_FEATURE_SIGBUS | UFFD_FEATURE_MISSING_SHMEM |
					     UFFD_FEATURE_MISSING_HUGETLBFS |
					     UFFD_FEATURE_MINOR_SHMEM |
					     UFFD_FEATURE_MINOR_HUGETLBFS};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY), rc;

	if (fd < 0)
		return -errno;
	if (ioctl(fd, UFFDIO_API, &api)) {
		rc = -errno;
		close(fd);
		return rc;
	}
	sigbus_unwatch();
	atomic_store_explicit(&watch_fd, fd, memory_order_relaxed);
	return 0;
}

void
sigbus_unwatch(void)
{
	int fd = atomic_exchange_explicit(&watch_fd, -1, memory_order_relaxed);

	if (fd >= 0)
		close(fd);
}

int
sigbus_guard_add(void *base, size_t length, size_t page, int notify_fd)
{
	struct uffdio_register r = {.range = {(uintptr_t)base, length},
				    .mode =
					UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR};
	int i, fd = atomic_load_explicit(&watch_fd, memory_order_relaxed);
	struct guard *g;

	/* every fault in the range, even one that the kernel could fill, raises SIGBUS from now on
	 */
	if (fd >= 0 && ioctl(fd, UFFDIO_REGISTER, &r))
		return -errno;
	i = take_guard();
	if (i < 0)
		return i;
	g = guard_at(i);
	weir_assert(!atomic_load_explicit(&g->base, memory_order_relaxed) && length % page == 0);
	if (renew_table(g, (uintptr_t)base)) {
		give_guard(i);
		return -ENOMEM;
	}
	atomic_store_explicit(&g->length, length, memory_order_relaxed);
	atomic_store_explicit(&g->page, page, memory_order_relaxed);
	atomic_store_explicit(&g->notify_fd, notify_fd, memory_order_relaxed);
	atomic_store_explicit(&g->hit, false, memory_order_relaxed);
	atomic_store_explicit(&g->refills, 0, memory_order_relaxed);
	/* pairs with the acquire in is_void() */
	atomic_store_explicit(&g->base, (uintptr_t)base, memory_order_release);
	return i;
}

bool
sigbus_guard_hit(int guard)
{
	/* pairs with the release in mark() */
	return guard >= 0 && atomic_load_explicit(&guard_at(guard)->hit, memory_order_acquire);
}

bool
sigbus_guard_cut(int guard)
{
	struct guard *g = guard < 0 ? NULL : guard_at(guard);

	if (!g || !atomic_exchange_explicit(&g->hit, false, memory_order_acquire))
		return false;
	put_zeroes((void *)atomic_load_explicit(&g->base, memory_order_relaxed),
		   atomic_load_explicit(&g->length, memory_order_relaxed));
	return true;
}

void
sigbus_guard_remove(int guard)
{
	if (guard < 0)
		return;
	weir_assert(guard < guards_used);
	atomic_store_explicit(&guard_at(guard)->base, 0, memory_order_release);
	renew_table(NULL, 0); /* without memory, its entry is void and stays for now */
	give_guard(guard);
}

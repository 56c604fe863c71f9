/* SPDX-License-Identifier: BSD-3-Clause */
/* The SIGBUS handler: see sigbus.h. Everything that handle() calls is async-signal-safe. */
#include "sigbus.h"

#include "base/monotonic.h"

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
#include <time.h>
#include <unistd.h>

#define REFILL_NS                                                                                  \
	244140u	    /* a refill so often for ever is the kernel's business: 4096 a second,         \
		     */
#define REFILLS 64u /* and each page of the range, and so many more, at once */
#define NO_GUARD (-1)

/* Written by main; read by the handler on any thread, which writes `hit` and `refills`. */
struct guard {
	_Atomic uintptr_t base; /* 0: free */
	_Atomic size_t length, page;
	_Atomic int notify_fd;
	_Atomic bool hit;
	_Atomic uint64_t refills; /* theoretical arrival time of the next one, ns */
	int next_free;		  /* main's */
};

/* In chunks that are made when they are needed and stay where they are: the handler reads them. */
#define CHUNK 1024
static struct guard *_Atomic chunks[SIGBUS_GUARDS / CHUNK];
static _Atomic int guards_used;	  /* none was ever in use from here on */
static int free_first = NO_GUARD; /* of those below */
static _Atomic int watch_fd = -1; /* userfaultfd */
static struct sigaction others;	  /* whose business all other faults are */

static struct guard *
guard_at(int i)
{
	/* pairs with the release in take_new() */
	return &atomic_load_explicit(&chunks[i / CHUNK], memory_order_acquire)[i % CHUNK];
}

static struct guard *
guard_of(uintptr_t addr)
{
	int n = atomic_load_explicit(&guards_used, memory_order_acquire);

	for (int i = 0; i < n; i++) {
		struct guard *g = guard_at(i);
		/* pairs with the release in sigbus_guard_add() */
		uintptr_t base = atomic_load_explicit(&g->base, memory_order_acquire);

		if (base && addr - base < atomic_load_explicit(&g->length, memory_order_relaxed))
			return g;
	}
	return NULL;
}

/* Private zeroes over [at, at + bytes). */
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
tell(struct guard *g)
{
	int fd = atomic_load_explicit(&g->notify_fd, memory_order_relaxed);
	uint64_t one = 1;

	atomic_store_explicit(&g->hit, true, memory_order_release);
	/* can only fail when the counter is full: then it is readable anyway */
	if (fd >= 0 && write(fd, &one, sizeof(one)) < 0)
		errno = 0;
}

/* More than the kernel takes away by itself. Two threads at once may count one refill: no matter.
 */
static bool
too_often(struct guard *g, size_t page)
{
	uint64_t pages = atomic_load_explicit(&g->length, memory_order_relaxed) / page;
	uint64_t at = atomic_load_explicit(&g->refills, memory_order_relaxed);
	uint64_t now = monotonic_ns();

	at = (at > now ? at : now) + REFILL_NS;
	atomic_store_explicit(&g->refills, at, memory_order_relaxed);
	return at - now > (pages + REFILLS) * REFILL_NS;
}

/* The page is in the file, our page table lacked it: maps it. False: there is a hole. */
static bool
refill(uintptr_t at, size_t page)
{
	struct uffdio_continue c = {.range = {at, page}};
	int fd = atomic_load_explicit(&watch_fd, memory_order_relaxed);

	/* another thread was faster, or the mapping changes: the access is repeated */
	return fd >= 0 && (!ioctl(fd, UFFDIO_CONTINUE, &c) || errno == EEXIST || errno == EAGAIN);
}

/* The page (the whole huge page) that holds addr is there again, or zeroes in its place. */
static bool
repair(struct guard *g, uintptr_t addr)
{
	size_t page = atomic_load_explicit(&g->page, memory_order_relaxed);
	uintptr_t at = addr & ~(uintptr_t)(page - 1);

	if (refill(at, page)) {
		if (too_often(g, page))
			tell(g);
		return true;
	}
	if (!put_zeroes((void *)at, page))
		return false;
	tell(g);
	return true;
}

static void
handle(int signal_number, siginfo_t *info, void *context)
{
	int saved = errno;
	bool fault = info->si_code > 0; /* else sent by a process */
	uintptr_t addr = (uintptr_t)info->si_addr;
	struct guard *g = fault ? guard_of(addr) : NULL;

	(void)context;
	if (!g || !repair(g, addr)) {
		/* not ours: who was here before, when the access is repeated or the signal again */
		sigaction(signal_number, &others, NULL);
		if (!fault)
			raise(signal_number);
	}
	errno = saved;
}

int
sigbus_install(void)
{
	struct sigaction sa = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO};

	struct sigaction now;

	sigemptyset(&sa.sa_mask);
	if (sigaction(SIGBUS, NULL, &now))
		return -errno;
	if (now.sa_flags & SA_SIGINFO && now.sa_sigaction == handle)
		return 0;
	others = now;
	return sigaction(SIGBUS, &sa, NULL) ? -errno : 0;
}

/* One that was never used. */
static int
take_new(void)
{
	int i = atomic_load_explicit(&guards_used, memory_order_relaxed);
	struct guard *chunk;

	if (i == SIGBUS_GUARDS)
		return -ENOSPC;
	if (i % CHUNK == 0) {
		chunk = calloc(CHUNK, sizeof(*chunk));
		if (!chunk)
			return -ENOMEM;
		atomic_store_explicit(&chunks[i / CHUNK], chunk, memory_order_release);
	}
	/* pairs with the acquire in guard_of(): its base is 0 still */
	atomic_store_explicit(&guards_used, i + 1, memory_order_release);
	return i;
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

/* Faults in it become ours from now on, those that the kernel would fill itself too. */
static int
watch(void *base, size_t length)
{
	struct uffdio_register r = {.range = {(uintptr_t)base, length},
				    .mode =
					UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR};
	int fd = atomic_load_explicit(&watch_fd, memory_order_relaxed);

	return fd >= 0 && ioctl(fd, UFFDIO_REGISTER, &r) ? -errno : 0;
}

int
sigbus_guard_add(void *base, size_t length, size_t page, int notify_fd)
{
	struct guard *g;
	int i, rc = watch(base, length);

	if (rc)
		return rc;
	i = free_first == NO_GUARD ? take_new() : free_first;
	if (i < 0)
		return i;
	g = guard_at(i);
	if (i == free_first)
		free_first = g->next_free;
	atomic_store_explicit(&g->length, length, memory_order_relaxed);
	atomic_store_explicit(&g->page, page, memory_order_relaxed);
	atomic_store_explicit(&g->notify_fd, notify_fd, memory_order_relaxed);
	atomic_store_explicit(&g->hit, false, memory_order_relaxed);
	atomic_store_explicit(&g->refills, 0, memory_order_relaxed);
	/* pairs with the acquire in guard_of() */
	atomic_store_explicit(&g->base, (uintptr_t)base, memory_order_release);
	return i;
}

bool
sigbus_guard_hit(int guard)
{
	/* pairs with the release in tell() */
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
	atomic_store_explicit(&guard_at(guard)->base, 0, memory_order_release);
	guard_at(guard)->next_free = free_first;
	free_first = guard;
}

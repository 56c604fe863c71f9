/* SPDX-License-Identifier: BSD-3-Clause */
/* The SIGBUS handler: see sigbus.h. Everything below handle() is async-signal-safe. */
#include "sigbus.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define NO_GUARD (-1)

/* Written by main; read by the handler on any thread, which alone writes `hit`. */
struct guard {
	_Atomic uintptr_t base; /* 0: free */
	_Atomic size_t length, page;
	_Atomic int notify_fd;
	_Atomic bool hit;
	int next_free; /* main's */
};

/* In chunks that are made when they are needed and stay where they are: the handler reads them. */
#define CHUNK 1024
static struct guard *_Atomic chunks[SIGBUS_GUARDS / CHUNK];
static _Atomic int guards_used;	  /* none was ever in use from here on */
static int free_first = NO_GUARD; /* of those below */
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

/* Private zeroes over the page (the whole huge page) that holds addr. */
static bool
repair(struct guard *g, uintptr_t addr)
{
	size_t page = atomic_load_explicit(&g->page, memory_order_relaxed);
	void *at = (void *)(addr & ~(uintptr_t)(page - 1));
	int fd = atomic_load_explicit(&g->notify_fd, memory_order_relaxed);
	uint64_t one = 1;

	if (mmap(at, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		 0) == MAP_FAILED)
		return false;
	madvise(at, page, MADV_DONTFORK);
	atomic_store_explicit(&g->hit, true, memory_order_release);
	/* can only fail when the counter is full: then it is readable anyway */
	if (fd >= 0 && write(fd, &one, sizeof(one)) < 0)
		errno = 0;
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
sigbus_guard_add(void *base, size_t length, size_t page, int notify_fd)
{
	int i = free_first == NO_GUARD ? take_new() : free_first;
	struct guard *g;

	if (i < 0)
		return i;
	g = guard_at(i);
	if (i == free_first)
		free_first = g->next_free;
	atomic_store_explicit(&g->length, length, memory_order_relaxed);
	atomic_store_explicit(&g->page, page, memory_order_relaxed);
	atomic_store_explicit(&g->notify_fd, notify_fd, memory_order_relaxed);
	atomic_store_explicit(&g->hit, false, memory_order_relaxed);
	/* pairs with the acquire in guard_of() */
	atomic_store_explicit(&g->base, (uintptr_t)base, memory_order_release);
	return i;
}

bool
sigbus_guard_hit(int guard)
{
	/* pairs with the release in repair() */
	return guard >= 0 && atomic_load_explicit(&guard_at(guard)->hit, memory_order_acquire);
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

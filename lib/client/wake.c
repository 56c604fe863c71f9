/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Wakes. weir_wake() may run in a signal handler that has interrupted any instruction of the
 * library: it takes no lock. It sets the flag of each waker, then writes to its eventfd; a thread
 * clears the eventfd, then looks at the flag, then sleeps on the eventfd.
 */
#include "wake.h"
#include "reason.h"
#include "session.h"
#include "thread.h"
#include "wait.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define NS_PER_S 1000000000u

struct weir_waker *
weir_waker_new(struct weir *first)
{
	struct weir_waker *k = calloc(1, sizeof(*k));

	if (!k)
		return NULL;
	k->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (k->fd < 0) {
		free(k);
		return NULL;
	}
	k->first = first;
	k->next = atomic_load_explicit(&first->wakers, memory_order_relaxed);
	/* in this order: weir_wake() sets `woken`, then looks at the list */
	atomic_store(&first->wakers, k);
	if (atomic_load(&first->woken) & WEIR_WOKEN_ALL)
		atomic_store(&k->woken, 1);
	return k;
}

void
weir_waker_take_over(struct weir_waker *k)
{
	/* a wake for all may be the pending one: weir_wake() sets this before `woken` */
	if (!(atomic_load(&k->first->woken) & WEIR_WOKEN_ALL))
		atomic_store(&k->woken, 0);
}

void
weir_wakers_free(struct weir *first)
{
	struct weir_waker *k = atomic_load(&first->wakers), *next;

	for (; k; k = next) {
		next = k->next;
		close(k->fd);
		free(k);
	}
	atomic_store(&first->wakers, NULL);
}

/* The calling thread's waker, which may be made by this; NULL: there are no resources for it. */
static struct weir_waker *
own_waker(struct weir *w)
{
	struct weir_waker *k = weir_waker_find(w);
	const struct weir_thread *t = k ? NULL : weir_thread_get(weir_now(w));

	return t ? t->waker : k;
}

bool
weir_waker_take(struct weir *w)
{
	struct weir_waker *k = weir_guard_is_exempt() ? NULL : own_waker(w);
	uint64_t count;

	if (!k || !atomic_exchange(&k->woken, 0))
		return false;
	while (read(k->fd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
	return true;
}

void
weir_waker_restore(struct weir *w)
{
	struct weir_waker *k = own_waker(w);

	if (!k)
		return;
	/* a signal handler may have ended the wait before any wake */
	atomic_fetch_or(&k->first->woken, WEIR_WOKEN_ONE);
	weir_wake_thread(k);
}

int
weir_interrupted(void)
{
	return weir_fail(-EINTR, "a signal handler or weir_wake() has ended the wait; call again, "
				 "or stop the program");
}

int
weir_wake_await(struct weir_guard *g, struct weir *w, int fd, uint64_t end)
{
	const struct weir_waker *k = own_waker(w);
	struct pollfd fds[2] = {{.fd = fd, .events = POLLIN},
				{.fd = k ? k->fd : -1, .events = POLLIN}};
	uint64_t now, count;
	struct timespec ts;
	int rc;

	for (;;) {
		now = weir_clock();
		if (now >= end)
			return -ETIMEDOUT;
		if (k && read(k->fd, &count, sizeof(count)) < 0 && errno == EINTR)
			continue;
		if (weir_waker_take(w))
			return weir_interrupted();
		ts = (struct timespec){.tv_sec = (time_t)((end - now) / NS_PER_S),
				       .tv_nsec = (long)((end - now) % NS_PER_S)};
		rc = weir_guard_poll(g, fds, 2, &ts);
		if (rc == -EINTR)
			return weir_interrupted();
		if (fds[0].revents)
			return 0;
	}
}

int
weir_thread_waker(struct weir *w, struct weir_waker **waker)
{
	struct weir_thread *t;
	int rc;

	if (!waker)
		return weir_fail(-EINVAL, "no place for the waker; see weir/weir.h");
	w = weir_now(w);
	if (weir_state(w) != WEIR_UP)
		return weir_gone(w);
	t = weir_thread_own(w, &rc);
	if (!t)
		return rc;
	/* from now on each wait of the handle looks at its thread's waker */
	atomic_fetch_or(&w->first->woken, WEIR_WOKEN_ONE);
	*waker = t->waker;
	return 0;
}

void
weir_wake_thread(struct weir_waker *k)
{
	int before = errno;

	/* in a forked child the eventfd is the parent's */
	if (weir_state(k->first) == WEIR_FORKED)
		return;
	atomic_store(&k->woken, 1);
	weir_wake_fd(k->fd);
	errno = before;
}

void
weir_wake(struct weir *w)
{
	struct weir *first = w->first;

	atomic_fetch_or(&first->woken, WEIR_WOKEN_ALL);
	for (struct weir_waker *k = atomic_load(&first->wakers); k; k = k->next)
		weir_wake_thread(k);
}

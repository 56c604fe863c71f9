/* SPDX-License-Identifier: BSD-3-Clause */
/* Which signals a wait lets in, and when. */
#define _GNU_SOURCE
#include "guard.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#define HANDLERS_NS 10000000u /* ns between two looks at the program's handlers */

static __thread struct {
	uint64_t due; /* ns; time of the next look */
	bool any;     /* the program has a handler for a signal that the thread does not block */
	bool exempt;
} handlers __attribute__((tls_model("initial-exec")));

/* A fault of the thread itself. If it were blocked, the kernel would kill the program. */
static bool
is_fault(int signal)
{
	switch (signal) {
	case SIGSEGV:
	case SIGBUS:
	case SIGFPE:
	case SIGILL:
	case SIGTRAP:
	case SIGSYS:
	case SIGABRT:
		return true;
	}
	return false;
}

static bool
any_handler(void)
{
	struct sigaction a;
	sigset_t blocked;

	pthread_sigmask(SIG_BLOCK, NULL, &blocked);
	for (int s = 1; s < _NSIG; s++)
		if (!is_fault(s) && !sigismember(&blocked, s) && !sigaction(s, NULL, &a) &&
		    a.sa_handler != SIG_DFL && a.sa_handler != SIG_IGN)
			return true;
	return false;
}

void
weir_guard_begin(struct weir_guard *g, uint64_t now)
{
	if (handlers.exempt || g->blocked)
		return;
	if (now >= handlers.due) {
		handlers.any = any_handler();
		handlers.due = now + HANDLERS_NS;
	}
	if (handlers.any)
		weir_guard_block(g);
}

void
weir_guard_block(struct weir_guard *g)
{
	sigset_t set, before;

	sigfillset(&set);
	for (int s = 1; s < _NSIG; s++)
		if (is_fault(s))
			sigdelset(&set, s);
	pthread_sigmask(SIG_BLOCK, &set, &before);
	static_assert(_NSIG - 1 <= 64, "the kernel's set of signals has 64 bits");
	memcpy(&g->mask, &before, sizeof(g->mask));
	g->blocked = true;
}

static sigset_t
mask_of(const struct weir_guard *g)
{
	sigset_t set;

	sigemptyset(&set);
	memcpy(&set, &g->mask, sizeof(g->mask));
	return set;
}

void
weir_guard_unblock(struct weir_guard *g)
{
	sigset_t before = mask_of(g);

	g->blocked = false;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

int
weir_guard_poll(struct weir_guard *g, struct pollfd *fds, nfds_t n, const struct timespec *ts)
{
	sigset_t before = mask_of(g);
	int rc = ppoll(fds, n, ts, g->blocked ? &before : NULL);

	return rc < 0 ? -errno : rc;
}

void
weir_guard_exempt(void)
{
	handlers.exempt = true;
}

bool
weir_guard_is_exempt(void)
{
	return handlers.exempt;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * getaddrinfo() takes as long as name servers let it, and cannot be ended. A thread calls it and
 * ends when it returns; a caller whose time is over leaves the thread alone. Such threads are
 * counted, so that a program that tries again and again has a few of them.
 */
#include "resolve.h"
#include "reason.h"
#include "session.h"
#include "wait.h"
#include "wake.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOOKUPS_MAX 16u /* look-ups of the process at a time */

struct lookup {
	_Atomic uint32_t users; /* caller and thread; the last one frees it */
	int done;		/* eventfd: the thread has the result */
	_Atomic int rc;		/* of getaddrinfo(); the thread writes it last */
	int error;		/* errno, with EAI_SYSTEM */
	struct addrinfo *list;
	char host[]; /* as given */
};

static _Atomic uint32_t lookups;

static void
leave(struct lookup *l)
{
	/* pairs with itself: the last one sees what the other has written */
	if (atomic_fetch_sub_explicit(&l->users, 1, memory_order_acq_rel) != 1)
		return;
	if (l->list)
		freeaddrinfo(l->list);
	close(l->done);
	free(l);
	atomic_fetch_sub(&lookups, 1);
}

static void *
look_up(void *arg)
{
	/* addresses of either family, once each */
	static const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
	struct lookup *l = arg;
	int rc = getaddrinfo(l->host, NULL, &hints, &l->list);

	l->error = errno;
	/* pairs with the acquire in result() */
	atomic_store_explicit(&l->rc, rc, memory_order_release);
	weir_wake_fd(l->done);
	leave(l);
	return NULL;
}

/* Starts a look-up with its thread. NULL: the reason is set, and *rc. */
static struct lookup *
start(const char *host, int *rc)
{
	size_t length = strlen(host) + 1;
	sigset_t all, before;
	struct lookup *l;
	pthread_t thread;

	if (atomic_fetch_add(&lookups, 1) >= LOOKUPS_MAX) {
		atomic_fetch_sub(&lookups, 1);
		*rc = weir_fail(-EAGAIN,
				"%u look-ups of host names wait for the resolver already; see "
				"/etc/resolv.conf, or give addresses",
				LOOKUPS_MAX);
		return NULL;
	}
	l = calloc(1, sizeof(*l) + length);
	if (l)
		l->done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	*rc = !l ? -ENOMEM : l->done < 0 ? -errno : 0;
	if (!*rc) {
		memcpy(l->host, host, length);
		atomic_store(&l->users, 2);
		sigfillset(&all);
		pthread_sigmask(SIG_BLOCK, &all, &before);
		*rc = -pthread_create(&thread, NULL, look_up, l);
		pthread_sigmask(SIG_SETMASK, &before, NULL);
		if (!*rc) {
			pthread_detach(thread);
			return l;
		}
		close(l->done);
	}
	free(l);
	atomic_fetch_sub(&lookups, 1);
	weir_fail(*rc, "no thread to look up '%s': %s; raise the limits of threads and files", host,
		  strerror(-*rc));
	return NULL;
}

static int
result(const struct lookup *l, const char *service, struct weir_address found[WEIR_RESOLVED_MAX])
{
	int rc = atomic_load_explicit(&l->rc, memory_order_acquire), n = 0;

	if (rc)
		return weir_fail(-EHOSTUNREACH,
				 "host '%s': %s; see /etc/hosts and the name servers", l->host,
				 rc == EAI_SYSTEM ? strerror(l->error) : gai_strerror(rc));
	for (const struct addrinfo *ai = l->list; ai && n < (int)WEIR_RESOLVED_MAX;
	     ai = ai->ai_next) {
		const struct sockaddr_in *four = (const void *)ai->ai_addr;
		const struct sockaddr_in6 *six = (const void *)ai->ai_addr;
		struct weir_address *a = &found[n];

		memset(a, 0, sizeof(*a));
		memcpy(a->service, service, strlen(service));
		if (ai->ai_family == AF_INET) {
			a->kind = WEIR_ADDRESS_IPV4;
			memcpy(a->ip, &four->sin_addr, 4);
			n++;
		} else if (ai->ai_family == AF_INET6) {
			a->kind = WEIR_ADDRESS_IPV6;
			memcpy(a->ip, &six->sin6_addr, 16);
			n++;
		}
	}
	return n ? n
		 : weir_fail(-EHOSTUNREACH,
			     "host '%s' has no IP address; see /etc/hosts and the "
			     "name servers",
			     l->host);
}

int
weir_resolve(struct weir *w, const char *host, const char *service, int timeout_ms,
	     struct weir_address found[WEIR_RESOLVED_MAX])
{
	struct weir_guard g = {0};
	struct lookup *l;
	uint64_t end;
	int rc = 0;

	/* no handler may run unseen while the thread starts */
	weir_guard_block(&g);
	l = start(host, &rc);
	if (l) {
		end = timeout_ms < 0 ? UINT64_MAX : weir_clock() + (uint64_t)timeout_ms * 1000000u;
		rc = weir_wake_await(&g, w, l->done, end);
	}
	weir_guard_end(&g);
	if (!l)
		return rc;
	if (!rc)
		rc = result(l, service, found);
	else if (rc == -ETIMEDOUT)
		weir_fail(rc,
			  "the resolver has not found host '%s' within %d ms; see "
			  "/etc/resolv.conf, wait longer, or give an address",
			  host, timeout_ms);
	leave(l);
	return rc;
}

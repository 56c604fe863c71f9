/* SPDX-License-Identifier: BSD-3-Clause */
/* Connecting by the name of a host: the resolver is the test's. */
#define _GNU_SOURCE
#include "worlds/stream_pair.h"
#include "worlds/test.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>

#define LOOKUPS_MAX 16u /* as in lib/client/resolve.c */

int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
		       struct addrinfo **list);
void __wrap_freeaddrinfo(struct addrinfo *list);

struct entry {
	struct addrinfo ai;
	struct sockaddr_storage address;
};

static _Atomic uint32_t asked, listed, freed;
static _Atomic bool held; /* the resolver does not answer */

/* A host's addresses are in its name: "v4", "v6", and "x" for one that no node has. */
int
__wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
		   struct addrinfo **list)
{
	struct addrinfo **next = list;
	sigset_t blocked;

	atomic_fetch_add(&listed, strcmp(host, "nobody") != 0);
	atomic_fetch_add(&asked, 1);
	pthread_sigmask(SIG_BLOCK, NULL, &blocked);
	if (!sigismember(&blocked, SIGTERM) || hints->ai_family != AF_UNSPEC || service)
		abort();
	while (atomic_load(&held))
		weir_sleep(1000000);
	*list = NULL;
	if (!strcmp(host, "nobody"))
		return EAI_NONAME;
	for (const char *p = host; *p; p++) {
		struct entry *e;
		struct sockaddr_in *four;
		struct sockaddr_in6 *six;

		if (*p == 'n')
			continue;
		if (*p != 'x' && *p != '4' && *p != '6' && *p != 'u')
			continue;
		e = calloc(1, sizeof(*e));
		if (!e)
			abort();
		four = (struct sockaddr_in *)&e->address;
		six = (struct sockaddr_in6 *)&e->address;
		e->ai.ai_addr = (struct sockaddr *)&e->address;
		e->ai.ai_family = *p == 'u' ? AF_UNIX : *p == '6' ? AF_INET6 : AF_INET;
		if (*p == '6')
			six->sin6_addr = in6addr_loopback;
		else
			four->sin_addr.s_addr = htonl(*p == 'x' ? 0xc0000201 : INADDR_LOOPBACK);
		*next = &e->ai;
		next = &e->ai.ai_next;
	}
	return 0;
}

void
__wrap_freeaddrinfo(struct addrinfo *list)
{
	struct addrinfo *next;

	for (; list; list = next) {
		next = list->ai_next;
		free(list);
	}
	atomic_fetch_add(&freed, 1);
}

static void
await_resolver(void)
{
	for (unsigned ms = 0; atomic_load(&freed) < atomic_load(&listed); ms++) {
		assert_true(ms < PATIENT);
		weir_sleep(1000000);
	}
}

static void
connects(struct pair *p, const char *to, uint32_t asks)
{
	uint32_t before = atomic_load(&asked);
	struct weir_conn *c, *d;
	int rc = weir_connect_to(p->a, to, NULL, PATIENT, &c);

	if (rc)
		fail_msg("%s: %d: %s", to ? to : "NULL", rc, weir_reason());
	assert_int_equal(atomic_load(&asked), before + asks);
	assert_int_equal(weir_accept(p->l, PATIENT, &d), 0);
	weir_close(c);
	weir_close(d);
}

static void
fails(struct pair *p, const char *to, int timeout_ms, int error, const char *why)
{
	struct weir_conn *c;
	int rc = weir_connect_to(p->a, to, NULL, timeout_ms, &c);

	if (rc != error || !strstr(weir_reason(), why))
		fail_msg("%s: %d: %s", to ? to : "NULL", rc, weir_reason());
}

TEST(test_text)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, true);
	struct weir_connect_options o = {.size = sizeof(o), .window = 1};
	struct weir_conn *c;

	plane_run(p.f);
	connects(&p, "node:0:svc", 0);
	connects(&p, "127.0.0.1:svc", 0);
	connects(&p, "[::1]:svc", 0);
	fails(&p, "service:svc", PATIENT, -ECONNREFUSED, "no node that is up offers");
	fails(&p, "node:0:nobody", PATIENT, -ECONNREFUSED, ";");
	fails(&p, NULL, PATIENT, -EINVAL, "no text");
	fails(&p, "node:0", PATIENT, -EINVAL, "append :SERVICE");
	fails(&p, "host", PATIENT, -EINVAL, "service is missing");
	fails(&p, "10.0.0.300:svc", PATIENT, -EINVAL, "from 0 to 255");
	/* options count */
	assert_int_equal(weir_connect_to(p.a, "v4:svc", &o, PATIENT, &c), -EINVAL);
	assert_int_equal(weir_connect_to(p.a, "v4:svc", NULL, PATIENT, NULL), -EINVAL);
	await_resolver();
	plane_stop(p.f);
	pair_close(&p);
}

/* A public service of this node, or else of another. */
TEST(test_service)
{
	struct weir_listen_options public = {.size = sizeof(public), .flags = WEIR_LISTEN_PUBLIC};

	for (unsigned node = 0; node < 2; node++) {
		struct pair p = pair_open(node ? PLANE_REMOTE : PLANE_LOCAL, NULL, false);
		struct weir_listener *echo;
		struct weir_conn *c, *d;
		uint16_t its;
		int local;
		char in;
		size_t n;

		assert_int_equal(weir_listen_with(p.b, "echo", &public, &echo), 0);
		plane_settle(p.f); /* node 0 learns of it */
		plane_run(p.f);
		assert_int_equal(weir_connect_to(p.a, "service:echo", NULL, PATIENT, &c), 0);
		assert_int_equal(weir_accept(echo, PATIENT, &d), 0);
		assert_int_equal(weir_conn_peer(c, &its, &local), 0);
		assert_int_equal(its, node);
		assert_int_equal(local, !node);
		assert_int_equal(weir_send(c, "x", 1, PATIENT), 0);
		assert_int_equal(weir_recv(d, &in, 1, &n, PATIENT), 0);
		assert_int_equal(in, 'x');
		weir_close(c);
		weir_close(d);
		plane_stop(p.f);
		weir_listener_close(echo);
		pair_close(&p);
	}
}

TEST(test_hosts)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, true);
	uint32_t before = atomic_load(&freed);

	plane_run(p.f);
	connects(&p, "v4:svc", 1);
	connects(&p, "v6:svc", 1);
	/* one after the other, of either family */
	connects(&p, "x.v4:svc", 1);
	connects(&p, "x.x.x.v6:svc", 1);
	connects(&p, "u.v4:svc", 1);
	await_resolver();
	assert_int_equal(atomic_load(&freed), before + 5);
	fails(&p, "nobody:svc", PATIENT, -EHOSTUNREACH, "host 'nobody': ");
	fails(&p, "u:svc", PATIENT, -EHOSTUNREACH, "no IP address");
	fails(&p, "x:svc", PATIENT, -EHOSTUNREACH, "192.0.2.1");
	fails(&p, "x.x:svc", PATIENT, -EHOSTUNREACH,
	      "host 'x.x' (the last of 2 addresses, 192.0.2.1:svc): ");
	fails(&p, "x.v4:nothing", PATIENT, -ECONNREFUSED, "127.0.0.1:nothing");
	/* without time a host is not looked up */
	before = atomic_load(&asked);
	fails(&p, "v4:svc", 0, -EINVAL, "give a timeout, or an address");
	assert_int_equal(atomic_load(&asked), before);
	plane_stop(p.f);
	pair_close(&p);
}

/* A resolver that does not answer costs the call's time and a bounded number of threads. */
TEST(test_silent_resolver)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, true);
	uint32_t before = atomic_load(&asked);
	uint64_t start = weir_clock();

	plane_run(p.f);
	atomic_store(&held, true);
	for (uint32_t i = 0; i < LOOKUPS_MAX; i++)
		fails(&p, "v4:svc", 5, -ETIMEDOUT, "'v4' within 5 ms");
	assert_true(weir_clock() - start >= 5000000ull * LOOKUPS_MAX);
	fails(&p, "v4:svc", PATIENT, -EAGAIN, "16 look-ups");
	weir_wake(p.a);
	fails(&p, "v4:svc", PATIENT, -EAGAIN, "16 look-ups");
	while (atomic_load(&asked) < before + LOOKUPS_MAX)
		weir_sleep(1000000);
	assert_int_equal(atomic_load(&asked), before + LOOKUPS_MAX);
	atomic_store(&held, false);
	await_resolver();
	/* the wake is still there, for the next wait */
	atomic_store(&held, true);
	fails(&p, "v4:svc", -1, -EINTR, "weir_wake()");
	while (atomic_load(&asked) < before + LOOKUPS_MAX + 1)
		weir_sleep(1000000);
	atomic_store(&held, false);
	await_resolver();
	before = atomic_load(&freed);
	connects(&p, "v4:svc", 1);
	await_resolver();
	assert_int_equal(atomic_load(&freed), before + 1);
	plane_stop(p.f);
	pair_close(&p);
}

static void
on_signal(int signal)
{
}

int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *arg);

static bool signals; /* whoever makes a thread is sent a signal */

int
__wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *arg)
{
	if (signals)
		pthread_kill(pthread_self(), SIGUSR1);
	return __real_pthread_create(t, a, run, arg);
}

static uint32_t asked_before;

/* As soon as the host is looked up: the caller may not sleep yet. */
static void *
interrupt(void *arg)
{
	while (atomic_load(&asked) == asked_before)
		weir_sleep(1000000);
	pthread_kill(*(pthread_t *)arg, SIGUSR1);
	return NULL;
}

TEST(test_interrupted)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, true);
	struct sigaction a = {.sa_handler = on_signal};
	pthread_t self = pthread_self(), t;

	sigaction(SIGUSR1, &a, NULL);
	atomic_store(&held, true);
	asked_before = atomic_load(&asked);
	assert_int_equal(pthread_create(&t, NULL, interrupt, &self), 0);
	fails(&p, "v4:svc", PATIENT, -EINTR, "signal handler");
	pthread_join(t, NULL);
	asked_before = atomic_load(&asked);
	signals = true;
	fails(&p, "v4:svc", PATIENT, -EINTR, "signal handler");
	signals = false;
	while (atomic_load(&asked) == asked_before)
		weir_sleep(1000000);
	atomic_store(&held, false);
	await_resolver();
	pair_close(&p);
}

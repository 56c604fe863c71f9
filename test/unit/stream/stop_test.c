/* SPDX-License-Identifier: BSD-3-Clause */
/* Handlers of signals, and weir_wake(), end a wait early. */
#define _GNU_SOURCE
#include "worlds/stream_pair.h"
#include "worlds/test.h"

#include "client/wake.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 4u

static _Atomic uint32_t handled;

static void
on_signal(int signal)
{
	atomic_fetch_add(&handled, 1);
}

static void
handle(int signal, void (*handler)(int), int flags)
{
	struct sigaction a = {.sa_handler = handler, .sa_flags = flags};

	assert_int_equal(sigaction(signal, &a, NULL), 0);
}

static void
nap_us(unsigned us)
{
	uint64_t end = weir_clock() + us * 1000ull;

	while (weir_clock() < end)
		if (us > 1000)
			weir_sleep(1000000);
}

/* ---- a call that waits, in a thread of its own ---- */

struct job {
	struct pair *p;
	struct weir *w;
	int (*call)(struct job *j, int timeout_ms);
	const char *name;
	_Atomic int tid;
	_Atomic bool done;
	pthread_t thread;
	int rc;
};

static void *
run(void *arg)
{
	struct job *j = arg;

	atomic_store(&j->tid, (int)syscall(SYS_gettid));
	j->rc = j->call(j, -1);
	atomic_store(&j->done, true);
	return NULL;
}

static void
start(struct job *j)
{
	atomic_store(&j->tid, 0);
	atomic_store(&j->done, false);
	assert_int_equal(pthread_create(&j->thread, NULL, run, j), 0);
	while (!atomic_load(&j->tid))
		sched_yield();
}

static int
finish(struct job *j)
{
	for (unsigned ms = 0; !atomic_load(&j->done); ms++) {
		if (ms == PATIENT)
			fail_msg("%s goes on", j->name);
		weir_sleep(1000000);
	}
	pthread_join(j->thread, NULL);
	return j->rc;
}

/* Whether the thread sleeps in ppoll(). */
static bool
is_asleep(const struct job *j)
{
	char path[64], text[64] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", atomic_load(&j->tid));
	f = fopen(path, "r");
	if (f && !fgets(text, sizeof(text), f))
		text[0] = '\0';
	if (f)
		fclose(f);
	return strtoul(text, NULL, 10) == SYS_ppoll;
}

static void
await_asleep(const struct job *j)
{
	for (unsigned ms = 0; !is_asleep(j); ms++) {
		if (ms == PATIENT || atomic_load(&j->done))
			fail_msg("%s does not sleep: %d", j->name, j->rc);
		weir_sleep(1000000);
	}
}

/* Whether a handler that runs from now on ends the call: the thread polls with signals blocked. */
static bool
is_guarded(const struct job *j)
{
	char path[64], line[128];
	uint64_t blocked = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/status", atomic_load(&j->tid));
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, "SigBlk:", 7))
			blocked = strtoull(line + 7, NULL, 16);
	if (f)
		fclose(f);
	return blocked & 1ull << (SIGUSR1 - 1);
}

static void
await_guarded(const struct job *j)
{
	for (unsigned ms = 0; !is_guarded(j); ms++) {
		if (ms == PATIENT || atomic_load(&j->done))
			fail_msg("%s blocks no signals: %d", j->name, j->rc);
		weir_sleep(1000000);
	}
}

/* ---- the calls ---- */

static int
call_recv(struct job *j, int timeout_ms)
{
	uint8_t buf[16];
	size_t n;

	return weir_recv(j->p->d, buf, sizeof(buf), &n, timeout_ms);
}

static int
call_loan(struct job *j, int timeout_ms)
{
	struct weir_loan loan;

	return weir_recv_loan(j->p->d, &loan, timeout_ms);
}

static int
call_loan_many(struct job *j, int timeout_ms)
{
	struct weir_loan loans[2];

	return weir_recv_loan_many(j->p->d, loans, 2, timeout_ms);
}

static int
call_recvv(struct job *j, int timeout_ms)
{
	uint8_t buf[16];
	struct iovec parts[] = {{buf, 8}, {buf + 8, 8}};
	size_t n;

	return weir_recvv(j->p->d, parts, 2, &n, timeout_ms);
}

static int
call_recv_many(struct job *j, int timeout_ms)
{
	uint8_t buf[16];
	struct iovec messages[] = {{buf, 8}, {buf + 8, 8}};

	return weir_recv_many(j->p->d, messages, 2, timeout_ms);
}

static int
call_peek(struct job *j, int timeout_ms)
{
	uint8_t buf[16];
	size_t n;

	return weir_peek(j->p->d, buf, sizeof(buf), &n, timeout_ms);
}

static int
call_accept(struct job *j, int timeout_ms)
{
	struct weir_conn *c;

	return weir_accept(j->p->l, timeout_ms, &c);
}

static int
call_wait(struct job *j, int timeout_ms)
{
	struct weir_event e;
	int n = weir_wait(j->w, &e, 1, timeout_ms);

	return n ? n : -EAGAIN;
}

static int
call_send(struct job *j, int timeout_ms)
{
	static uint8_t buf[900];

	return weir_send(j->p->c, buf, sizeof(buf), timeout_ms);
}

static int
call_sendv(struct job *j, int timeout_ms)
{
	static uint8_t buf[900];
	const struct iovec parts[] = {{buf, 400}, {buf + 400, 500}};

	return weir_sendv(j->p->c, parts, 2, 0, 0, timeout_ms);
}

static int
call_send_many(struct job *j, int timeout_ms)
{
	static uint8_t buf[900];
	const struct iovec messages[] = {{buf, 900}, {buf, 900}};

	return weir_send_many(j->p->c, messages, 2, timeout_ms);
}

#define RESERVED 400000u /* more than half of the send memory */

static int
call_reserve(struct job *j, int timeout_ms)
{
	void *buf;

	return weir_send_reserve(j->p->c, RESERVED, timeout_ms, &buf);
}

static int
call_flush(struct job *j, int timeout_ms)
{
	return weir_flush(j->p->c, timeout_ms);
}

static int
call_connect(struct job *j, int timeout_ms)
{
	struct weir_address to;
	struct weir_conn *c;

	weir_address_parse(PLANE_REMOTE, &to);
	if (!timeout_ms)
		return -EAGAIN;
	return weir_connect(j->w, &to, timeout_ms, &c);
}

enum kind {
	RECEIVES,
	WAITS,
	SENDS,	  /* while nothing can be sent any more */
	RESERVES, /* while memory to send is reserved */
};

static const struct {
	const char *name;
	int (*call)(struct job *j, int timeout_ms);
	enum kind kind;
} calls[] = {
    {"weir_recv", call_recv, RECEIVES},
    {"weir_recv_loan", call_loan, RECEIVES},
    {"weir_recv_loan_many", call_loan_many, RECEIVES},
    {"weir_recvv", call_recvv, RECEIVES},
    {"weir_recv_many", call_recv_many, RECEIVES},
    {"weir_peek", call_peek, RECEIVES},
    {"weir_accept", call_accept, RECEIVES},
    {"weir_wait", call_wait, WAITS},
    {"weir_connect", call_connect, WAITS},
    {"weir_send", call_send, SENDS},
    {"weir_sendv", call_sendv, SENDS},
    {"weir_send_many", call_send_many, SENDS},
    {"weir_flush", call_flush, SENDS},
    {"weir_send_reserve", call_reserve, RESERVES},
};
#define CALLS (sizeof(calls) / sizeof(calls[0]))

enum way { SIGNAL, SIGNAL_RESTART, WAKE, WAKE_THREAD };

/*
 * Ends the wait of j's thread, which has been asleep or not. A call of several waits has moments
 * without a guard between them: then a later signal ends it.
 */
static int
end_wait(struct job *j, enum way way)
{
	if (way == WAKE)
		weir_wake(j->w);
	for (unsigned ms = 0; way != WAKE && ms < PATIENT && !atomic_load(&j->done); ms++) {
		if (ms % 1000 == 0)
			pthread_kill(j->thread, SIGUSR1);
		weir_sleep(1000000);
	}
	return finish(j);
}

static void
all_calls(const char *address, const struct weir_options *o, bool sleeps)
{
	for (size_t i = 0; i < CALLS; i++) {
		for (enum way way = SIGNAL; way <= WAKE; way++) {
			struct pair p = {0};
			struct job j = {.p = &p, .call = calls[i].call, .name = calls[i].name};
			uint8_t in[1000];
			enum kind kind = calls[i].kind;
			uint32_t sent = 0, got = 0;
			void *held = NULL;
			size_t n;

			/* messages to a local program are complete at once */
			if (calls[i].call == call_flush && !strcmp(address, PLANE_LOCAL))
				continue;
			p.f = plane_create(NULL);
			p.a = plane_attach_with(p.f, o);
			p.b = strcmp(address, PLANE_REMOTE) ? plane_attach_with(p.f, o)
							    : plane_attach_at(p.f, 1);
			assert_int_equal(weir_listen(p.b, "svc", 0, &p.l), 0);
			p.c = pair_connect(&p, address);
			p.d = pair_accept(&p);
			/* the thread that calls is one of the waiting end */
			j.w = kind == RECEIVES ? p.b : p.a;
			handle(SIGUSR1, on_signal, way == SIGNAL_RESTART ? SA_RESTART : 0);
			while (kind == SENDS && !call_send(&j, 0))
				sent++;
			if (kind == RESERVES)
				assert_int_equal(weir_send_reserve(p.c, RESERVED, 0, &held), 0);
			start(&j);
			if (sleeps)
				await_asleep(&j);
			else
				await_guarded(&j);
			if (end_wait(&j, way) != -EINTR)
				fail_msg("%s, way %d: %d: %s", j.name, way, j.rc, weir_reason());
			/* it had no effect, and is not interrupted again */
			if (kind == RESERVES)
				weir_send_abandon(p.c, held);
			assert_int_equal(j.call(&j, 0), kind == RESERVES ? 0 : -EAGAIN);
			while (got < sent) {
				plane_settle(p.f);
				weir_flush(p.c, 0);
				if (!weir_recv(p.d, in, sizeof(in), &n, 0)) {
					assert_int_equal(n, 900);
					got++;
				}
			}
			if (kind == SENDS)
				assert_int_equal(weir_recv(p.d, in, sizeof(in), &n, 0), -EAGAIN);
			pair_close(&p);
		}
	}
	handle(SIGUSR1, SIG_DFL, 0);
}

TEST(test_asleep)
{
	all_calls(PLANE_LOCAL, NULL, true);
	all_calls(PLANE_REMOTE, NULL, true);
}

/* With WEIR_POLLING no thread of the session sleeps. */
TEST(test_polling)
{
	static const struct weir_options o = {.size = sizeof(o), .flags = WEIR_POLLING};

	all_calls(PLANE_LOCAL, &o, false);
}

/*
 * One handler ends the call whether the thread polls, yields or sleeps: here from 30 us after the
 * start of the call to 330 us, which is about when it sleeps. In the first polls, before the guard,
 * it need not.
 */
TEST(test_from_the_first_poll)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, true);
	struct job j = {.p = &p, .w = p.a, .name = "weir_recv", .call = call_recv};
	unsigned guarded = 0;
	bool now;

	handle(SIGUSR1, on_signal, 0);
	for (unsigned i = 0; guarded < 200; i++) {
		uint32_t before = atomic_load(&handled);

		start(&j);
		nap_us(30 + i * 7 % 300);
		now = is_guarded(&j) || is_asleep(&j);
		pthread_kill(j.thread, SIGUSR1);
		while (atomic_load(&handled) == before)
			sched_yield();
		guarded += now;
		assert_int_equal(now ? finish(&j) : end_wait(&j, SIGNAL), -EINTR);
	}
	handle(SIGUSR1, SIG_DFL, 0);
	pair_close(&p);
}

/* Threads that block the signal are left alone; so is the mask of those that do not. */
TEST(test_masks)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, true);
	sigset_t set, before, after;
	uint8_t buf[16];
	size_t n;

	handle(SIGUSR1, on_signal, 0);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, &before);
	raise(SIGUSR1);
	assert_int_equal(weir_recv(p.d, buf, sizeof(buf), &n, 30), -EAGAIN);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	/* it runs now, before the call: not its business */
	assert_int_equal(weir_recv(p.d, buf, sizeof(buf), &n, 30), -EAGAIN);
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	assert_memory_equal(&before, &after, 8);
	handle(SIGUSR1, SIG_DFL, 0);
	pair_close(&p);
}

/* ---- weir_wake() ---- */

TEST(test_wake_before)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, true);
	struct weir_waker *waker, *again;
	struct weir_event e;
	uint8_t buf[16];
	size_t n;

	assert_int_equal(weir_wait(p.a, &e, 1, 10), 0);
	assert_int_equal(weir_thread_waker(p.a, &waker), 0);
	assert_int_equal(weir_thread_waker(p.a, &again), 0);
	assert_ptr_equal(waker, again);
	assert_int_equal(weir_thread_waker(p.a, NULL), -EINVAL);
	for (int one = 0; one < 2; one++) {
		for (int times = 1; times < 4; times++) {
			for (int i = 0; i < times; i++)
				one ? weir_wake_thread(waker) : weir_wake(p.a);
			/* calls that do not wait leave it */
			assert_int_equal(weir_poll(p.a, &e, 1), 0);
			assert_int_equal(weir_recv(p.d, buf, sizeof(buf), &n, 0), -EAGAIN);
			assert_int_equal(weir_send(p.c, "x", 1, -1), 0);
			assert_int_equal(weir_recv(p.d, buf, sizeof(buf), &n, -1), 0);
			assert_int_equal(weir_recv(p.d, buf, sizeof(buf), &n, -1), -EINTR);
			assert_non_null(strstr(weir_reason(), "weir_wake()"));
			/* once */
			assert_int_equal(weir_recv(p.d, buf, sizeof(buf), &n, 10), -EAGAIN);
			while (weir_poll(p.a, &e, 1))
				;
			assert_int_equal(weir_wait(p.a, &e, 1, 10), 0);
		}
	}
	pair_close(&p);
}

static void *
wait_shortly(void *arg)
{
	struct weir_event e;

	return weir_wait(arg, &e, 1, 10) ? arg : NULL;
}

/* Without any weir_wake() before. It wakes no other thread, nor one whose first call comes later.
 */
TEST(test_wake_one_alone)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, true);
	struct weir_waker *waker;
	pthread_t thread;
	struct weir_event e;
	void *failed;
	uint8_t buf[16];
	size_t n;

	while (weir_poll(p.a, &e, 1))
		;
	assert_int_equal(weir_thread_waker(p.a, &waker), 0);
	weir_wake_thread(waker);
	assert_int_equal(pthread_create(&thread, NULL, wait_shortly, p.a), 0);
	assert_int_equal(pthread_join(thread, &failed), 0);
	assert_null(failed);
	assert_int_equal(weir_recv(p.d, buf, sizeof(buf), &n, PATIENT), -EINTR);
	weir_wake_thread(waker);
	assert_int_equal(weir_wait(p.a, &e, 1, PATIENT), -EINTR);
	weir_wake_thread(waker);
	assert_int_equal(weir_arm(p.a), -EAGAIN);
	assert_int_equal(weir_wait(p.a, &e, 1, 10), 0);
	pair_close(&p);
}

/* Calls that go on with an interrupted wait leave the wake to the next one, also that of a signal
 * handler without any weir_wake() before. */
TEST(test_wake_restored)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, true);
	uint8_t buf[16];
	size_t n;

	weir_waker_restore(p.a);
	assert_int_equal(weir_recv(p.d, buf, sizeof(buf), &n, PATIENT), -EINTR);
	assert_int_equal(weir_recv(p.d, buf, sizeof(buf), &n, 10), -EAGAIN);
	pair_close(&p);
}

struct waiter {
	struct weir *w;
	struct weir_waker *waker;
	_Atomic uint32_t woken;
	_Atomic bool ready, stop;
	pthread_t thread;
};

static void *
wait_often(void *arg)
{
	struct waiter *t = arg;
	struct weir_event e;

	if (weir_thread_waker(t->w, &t->waker))
		abort();
	atomic_store(&t->ready, true);
	while (!atomic_load(&t->stop)) {
		if (weir_wait(t->w, &e, 1, -1) != -EINTR)
			abort();
		atomic_fetch_add(&t->woken, 1);
	}
	return NULL;
}

static void
await_count(struct waiter *t, uint32_t count)
{
	for (unsigned ms = 0; atomic_load(&t->woken) < count; ms++) {
		if (ms == PATIENT)
			fail_msg("woken %u times, not %u", atomic_load(&t->woken), count);
		weir_sleep(100000);
	}
	assert_int_equal(atomic_load(&t->woken), count);
}

/* Each thread once per wake, wherever in its wait it is. */
TEST(test_wake_many_threads)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, true);
	struct waiter t[THREADS] = {0};
	uint32_t rounds = 200;

	for (unsigned i = 0; i < THREADS; i++) {
		t[i].w = p.a;
		assert_int_equal(pthread_create(&t[i].thread, NULL, wait_often, &t[i]), 0);
		while (!atomic_load(&t[i].ready))
			sched_yield();
	}
	for (uint32_t n = 1; n <= rounds; n++) {
		nap_us(n * 13 % 500);
		weir_wake(p.a);
		for (unsigned i = 0; i < THREADS; i++)
			await_count(&t[i], n);
	}
	for (uint32_t n = 1; n <= rounds; n++) {
		nap_us(n * 13 % 500);
		weir_wake_thread(t[0].waker);
		await_count(&t[0], rounds + n);
	}
	nap_us(5000);
	for (unsigned i = 0; i < THREADS; i++) {
		assert_int_equal(atomic_load(&t[i].woken), i ? rounds : 2 * rounds);
		atomic_store(&t[i].stop, true);
	}
	weir_wake(p.a);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(t[i].thread, NULL);
	/* and the thread that has not waited yet, once */
	assert_int_equal(call_wait(&(struct job){.w = p.a}, -1), -EINTR);
	assert_int_equal(call_wait(&(struct job){.w = p.a}, 10), -EAGAIN);
	pair_close(&p);
}

static int
first_wait(struct job *j, int timeout_ms)
{
	int rc = call_wait(j, timeout_ms);

	return rc == -EINTR && call_wait(j, 10) == -EAGAIN ? 0 : rc;
}

static int
first_call_waits(struct job *j, int timeout_ms)
{
	int rc = call_wait(j, 10);

	return rc == -EAGAIN ? 0 : rc;
}

/* The wake came between the thread's look at a flag and its first call. */
TEST(test_wake_before_the_first_call)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, true);
	struct job j = {.p = &p, .w = p.a, .name = "weir_wait", .call = first_wait};

	weir_wake(p.a);
	start(&j);
	assert_int_equal(finish(&j), 0);
	pair_close(&p);
}

/* The object of an ended thread goes to the next one, which has other wakes. */
TEST(test_wake_of_an_ended_thread)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, true);
	struct weir_waker *of_ended = NULL;
	struct job j = {.p = &p, .w = p.a, .name = "weir_wait"};

	for (unsigned i = 0; i < 2; i++) {
		struct waiter t = {.w = p.a, .stop = true};

		assert_int_equal(pthread_create(&t.thread, NULL, wait_often, &t), 0);
		pthread_join(t.thread, NULL);
		assert_true(!i || t.waker == of_ended);
		of_ended = t.waker;
	}
	weir_wake_thread(of_ended);
	j.call = first_call_waits;
	start(&j);
	assert_int_equal(finish(&j), 0);
	pair_close(&p);
}

static struct weir *to_wake;
static struct weir_waker *waker_to_wake;

static void
wake_all(int signal)
{
	weir_wake(to_wake);
	atomic_fetch_add(&handled, 1);
}

static void
wake_one(int signal)
{
	weir_wake_thread(waker_to_wake);
	atomic_fetch_add(&handled, 1);
}

/* The handler interrupts the library at any instruction; every message arrives all the same. */
TEST(test_wake_from_a_handler)
{
	struct itimerval every = {.it_interval.tv_usec = 200, .it_value.tv_usec = 200}, never = {0};
	struct pair p = pair_open(PLANE_LOCAL, NULL, true);
	uint32_t interrupted = 0, first = atomic_load(&handled);
	struct weir_event e;
	size_t n;

	to_wake = p.a;
	assert_int_equal(weir_thread_waker(p.a, &waker_to_wake), 0);
	handle(SIGALRM, wake_all, SA_RESTART);
	handle(SIGVTALRM, wake_one, 0);
	plane_run(p.f);
	setitimer(ITIMER_REAL, &every, NULL);
	setitimer(ITIMER_VIRTUAL, &every, NULL);
	for (uint32_t i = 0; i < 20000 || atomic_load(&handled) - first < 200; i++) {
		uint32_t in = 0;
		int rc;

		while ((rc = weir_send(p.c, &i, sizeof(i), PATIENT)) == -EINTR)
			interrupted++;
		assert_int_equal(rc, 0);
		if (i % 100 == 0) {
			rc = weir_wait(p.a, &e, 1, 2);
			assert_true(rc >= 0 || rc == -EINTR);
			interrupted += rc == -EINTR;
		}
		while ((rc = weir_recv(p.d, &in, sizeof(in), &n, PATIENT)) == -EINTR)
			interrupted++;
		assert_int_equal(rc, 0);
		assert_int_equal(in, i);
	}
	setitimer(ITIMER_REAL, &never, NULL);
	setitimer(ITIMER_VIRTUAL, &never, NULL);
	assert_true(interrupted > 0);
	plane_stop(p.f);
	handle(SIGALRM, SIG_DFL, 0);
	handle(SIGVTALRM, SIG_DFL, 0);
	pair_close(&p);
}

static bool
is_readable(int fd, int timeout_ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, timeout_ms) == 1;
}

static void
sleeps_and_wakes(struct weir *w, struct weir_waker *waker)
{
	struct weir_event e;
	int fd = weir_fd(w), rc;

	while ((rc = weir_arm(w)) == -EAGAIN)
		weir_poll(w, &e, 1);
	assert_int_equal(rc, 0);
	assert_false(is_readable(fd, 0));
	waker ? weir_wake_thread(waker) : weir_wake(w);
	assert_true(is_readable(fd, PATIENT));
	assert_int_equal(weir_poll(w, &e, 1), 0);
	/* the program may have looked at its flag before the wake: once more */
	assert_int_equal(weir_arm(w), -EAGAIN);
	assert_int_equal(weir_poll(w, &e, 1), 0);
	assert_int_equal(weir_arm(w), 0);
	assert_false(is_readable(fd, 5));
	/* before weir_arm() */
	assert_int_equal(weir_poll(w, &e, 1), 0);
	waker ? weir_wake_thread(waker) : weir_wake(w);
	assert_int_equal(weir_arm(w), -EAGAIN);
	assert_int_equal(weir_arm(w), 0);
	assert_false(is_readable(fd, 5));
	assert_int_equal(weir_poll(w, &e, 1), 0);
	assert_int_equal(call_wait(&(struct job){.w = w}, 5), -EAGAIN);
}

TEST(test_wake_fd)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, true);
	struct weir_waker *waker;

	assert_int_equal(weir_thread_waker(p.a, &waker), 0);
	sleeps_and_wakes(p.a, NULL);
	sleeps_and_wakes(p.a, waker);
	pair_close(&p);
}

static int
call_reattach(struct job *j, int timeout_ms)
{
	return weir_reattach(j->w, timeout_ms);
}

/* While there is no data plane, and when it is back. */
static void
restarts(const struct weir_options *o, int (*call)(struct job *j, int timeout_ms))
{
	struct plane *f = plane_create(&(struct plane_options){.watched = true});
	struct weir *w = plane_attach_with(f, o);
	struct job j = {.w = w, .call = call, .name = "a wait for the data plane"};
	struct weir_waker *before, *after;
	struct weir_event e;

	handle(SIGUSR1, on_signal, 0);
	assert_int_equal(weir_thread_waker(w, &before), 0);
	assert_int_equal(weir_poll(w, &e, 1), 0);
	plane_kill(f);
	while (weir_state(w) == WEIR_UP)
		weir_sleep(1000000);
	for (unsigned i = 0; i < 10; i++) {
		for (enum way way = SIGNAL; way <= WAKE; way++) {
			start(&j);
			/* a wake may come before the call as well */
			if (!i || way != WAKE)
				await_asleep(&j);
			nap_us(i * 7000);
			assert_int_equal(end_wait(&j, way), -EINTR);
		}
	}
	plane_come_back(f);
	while (call_reattach(&j, PATIENT) == -EINTR)
		;
	assert_int_equal(weir_thread_waker(w, &after), 0);
	assert_ptr_equal(before, after);
	while (call_wait(&j, 5) == -EINTR)
		;
	sleeps_and_wakes(w, after);
	sleeps_and_wakes(w, NULL);
	handle(SIGUSR1, SIG_DFL, 0);
	weir_detach(w);
	plane_destroy(f);
}

TEST(test_restart)
{
	static const struct weir_options again = {.size = sizeof(again), .flags = WEIR_REATTACH};

	restarts(NULL, call_reattach);
	restarts(&again, call_wait);
}

static unsigned
wakers_of(const struct weir *w)
{
	unsigned n = 0;

	for (const struct weir_waker *k = atomic_load(&w->wakers); k; k = k->next)
		n++;
	return n;
}

/* A thread keeps its waker; another restart makes no other. */
TEST(test_restarts_make_no_wakers)
{
	struct plane *f = plane_create(&(struct plane_options){.watched = true});
	struct weir *w = plane_attach(f);
	struct weir_event e;

	assert_int_equal(weir_poll(w, &e, 1), 0);
	assert_int_equal(wakers_of(w), 1);
	for (unsigned i = 0; i < 4; i++) {
		plane_kill(f);
		while (weir_state(weir_now(w)) == WEIR_UP)
			weir_sleep(1000000);
		plane_come_back(f);
		assert_int_equal(weir_reattach(w, PATIENT), 0);
		assert_int_equal(weir_poll(w, &e, 1), 0);
		assert_int_equal(wakers_of(w), 1);
	}
	weir_detach(w);
	plane_destroy(f);
}

/* In a forked child the handle's descriptors are the parent's. */
TEST(test_fork)
{
	struct pair p = pair_open(PLANE_LOCAL, NULL, true);
	struct weir_waker *waker;
	int fd = weir_fd(p.a), status;
	pid_t child;

	assert_int_equal(weir_thread_waker(p.a, &waker), 0);
	assert_int_equal(weir_arm(p.a), 0);
	child = fork();
	if (!child) {
		struct weir_conn *c;

		weir_wake(p.a);
		weir_wake_thread(waker);
		_exit(weir_connect_to(p.a, "localhost:svc", NULL, 100, &c) == -ENOTCONN ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_false(is_readable(fd, 0));
	assert_int_equal(call_wait(&(struct job){.w = p.a}, 10), -EAGAIN);
	pair_close(&p);
}

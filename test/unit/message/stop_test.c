/* SPDX-License-Identifier: BSD-3-Clause */
/* Waits of messengers that a signal handler or weir_wake() ends, and threads that neither reaches.
 */
#include "worlds/message_world.h"
#include "worlds/test.h"

#include <sched.h>
#include <signal.h>

static _Atomic uint32_t handled;

static void
on_signal(int signal)
{
	atomic_fetch_add(&handled, 1);
}

static void
handle(void (*handler)(int))
{
	struct sigaction a = {.sa_handler = handler};

	assert_int_equal(sigaction(SIGUSR1, &a, NULL), 0);
}

struct job {
	struct both *p;
	struct weir_request *r; /* to wait for; NULL: one of its own */
	pthread_t thread;
	_Atomic bool done;
	int rc;
};

static void *
wait_for(void *arg)
{
	struct job *j = arg;
	uint64_t one = 1, in;
	size_t n;

	j->rc = j->r ? weir_request_wait(j->r, WEIR_NO_TIMEOUT)
		     : weir_message_request(j->p->a.m, B, TYPE_KEEP, &one, 8, &in, 8, &n,
					    WEIR_NO_TIMEOUT);
	atomic_store(&j->done, true);
	return NULL;
}

/* Interrupts it again and again, since it may not wait yet. */
static int
interrupt(struct job *j, bool wakes)
{
	for (unsigned ms = 0; !atomic_load(&j->done); ms++) {
		assert_true(ms < PATIENT);
		nap(1);
		if (wakes)
			weir_wake(j->p->a.w);
		else
			pthread_kill(j->thread, SIGUSR1);
	}
	pthread_join(j->thread, NULL);
	return j->rc;
}

TEST(test_request_goes_on)
{
	struct weir_request r;
	uint64_t one = 1, in = 0;
	struct both p;

	handle(on_signal);
	open_both(&p, NULL, NULL);
	register_keep(&p.b);
	must(weir_request_start(p.a.m, &r, B, TYPE_KEEP, &one, 8, &in, 8, PATIENT));
	await(kept_count == 1);
	for (int wakes = 0; wakes < 2; wakes++) {
		struct job j = {.p = &p, .r = &r};

		assert_int_equal(pthread_create(&j.thread, NULL, wait_for, &j), 0);
		assert_int_equal(interrupt(&j, wakes), -EINTR);
		assert_int_equal(weir_request_wait(&r, 0), -EAGAIN);
	}
	must(weir_message_respond(p.b.m, &kept[0], &one, 8));
	while (weir_request_wait(&r, PATIENT) == -EINTR) /* this thread was woken, too */
		;
	assert_int_equal(r.status, 0);
	assert_int_equal(in, 1);
	handle(SIG_DFL);
	close_both(&p);
}

/* The request of weir_message_request() has its memory in the call: it ends with it. */
TEST(test_request_ends)
{
	uint64_t one = 1;
	struct both p;
	int rc;

	handle(on_signal);
	open_both(&p, NULL, NULL);
	register_keep(&p.b);
	for (int wakes = 0; wakes < 2; wakes++) {
		struct job j = {.p = &p};
		uint32_t before = kept_count;

		assert_int_equal(pthread_create(&j.thread, NULL, wait_for, &j), 0);
		await(kept_count > before || atomic_load(&j.done));
		assert_int_equal(interrupt(&j, wakes), -EINTR);
		if (kept_count == before)
			continue; /* it was interrupted while it connected */
		/* dropped when it comes, if its sender is still there */
		rc = weir_message_respond(p.b.m, &kept[before], &one, 8);
		assert_true(rc == 0 || rc == -EHOSTUNREACH);
	}
	handle(SIG_DFL);
	close_both(&p);
}

/* Handler threads neither end nor pause. */
TEST(test_handler_threads)
{
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS_INIT;
	uint32_t buf[16], interrupted = 0;
	struct both p;
	int rc;

	o.handler_threads = 2;
	open_both(&p, NULL, &o);
	for (uint32_t i = 0; i < 300; i++) {
		weir_wake(p.a.w);
		weir_wake(p.b.w);
		nap(i % 3);
		fill(buf, 0, i, 64);
		while ((rc = weir_message_send(p.a.m, B, TYPE_NOTE, buf, 64, PATIENT)) == -EINTR)
			interrupted++;
		must(rc);
	}
	await(p.b.notes == 300);
	assert_int_equal(p.b.wrong, 0);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(p.a.m->pool[i].rests, 0);
		assert_int_equal(p.b.m->pool[i].rests, 0);
	}
	close_both(&p);
}

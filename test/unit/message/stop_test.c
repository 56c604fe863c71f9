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

/* A call of a's program that waits, in a thread of its own. */
struct job {
	struct both *p;
	struct weir_request *r; /* to wait for */
	int (*call)(struct job *j);
	pthread_t thread;
	_Atomic bool done;
	_Atomic uint32_t sent;
	int rc;
};

static void *
run(void *arg)
{
	struct job *j = arg;

	j->rc = j->call(j);
	atomic_store(&j->done, true);
	return NULL;
}

static void
start(struct job *j)
{
	assert_int_equal(pthread_create(&j->thread, NULL, run, j), 0);
}

static void
interrupt_once(struct job *j, bool wakes)
{
	nap(1);
	if (wakes)
		weir_wake(j->p->a.w);
	else
		pthread_kill(j->thread, SIGUSR1);
}

/* Interrupts it again and again, since it may not wait yet. */
static int
interrupt(struct job *j, bool wakes)
{
	for (unsigned ms = 0; !atomic_load(&j->done); ms++) {
		assert_true(ms < PATIENT);
		interrupt_once(j, wakes);
	}
	pthread_join(j->thread, NULL);
	return j->rc;
}

static int
call_request_wait(struct job *j)
{
	return weir_request_wait(j->r, WEIR_NO_TIMEOUT);
}

static int
call_request(struct job *j)
{
	uint64_t one = 1, in;
	size_t n;

	return weir_message_request(j->p->a.m, B, TYPE_KEEP, &one, 8, &in, 8, &n, WEIR_NO_TIMEOUT);
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
		struct job j = {.p = &p, .r = &r, .call = call_request_wait};

		start(&j);
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
		struct job j = {.p = &p, .call = call_request};
		uint32_t before = kept_count;

		start(&j);
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

/* Connects the calling thread, however often it is interrupted. */
static void
connect_here(struct job *j)
{
	int rc;

	while ((rc = weir_message_connect(j->p->a.m, B, -1)) == -EINTR)
		;
	must(rc);
}

static int
call_progress(struct job *j)
{
	return weir_messenger_progress(j->p->a.m, 0, -1);
}

/* In the thread that drives the messenger. */
static int
call_drive(struct job *j)
{
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS_INIT;
	struct weir_messenger *m;
	int rc;

	o.flags = WEIR_MESSENGER_CLIENT;
	o.handler_threads = 0;
	must(weir_messenger_open(j->p->a.w, &o, &m));
	rc = weir_messenger_progress(m, 0, -1);
	weir_messenger_close(m);
	return rc;
}

/* No message is complete while engines are held. */
static int
call_flush(struct job *j)
{
	int rc;

	connect_here(j);
	plane_hold(j->p->f, true);
	must(weir_message_send(j->p->a.m, B, TYPE_MUTE, "x", 1, 0));
	rc = weir_messenger_flush(j->p->a.m, B, -1);
	plane_hold(j->p->f, false);
	return rc;
}

static int
call_wait_any(struct job *j)
{
	struct weir_request r, *list[] = {NULL, &r};
	uint64_t in;
	int rc;

	connect_here(j);
	must(weir_request_start(j->p->a.m, &r, B, TYPE_KEEP, "x", 1, &in, 8, 0));
	rc = weir_request_wait_any(list, 2, -1);
	weir_request_cancel(&r);
	return rc;
}

/* The window is full while the other end's handler does not return. */
static int
call_send(struct job *j)
{
	static uint8_t buf[8192];
	int rc;

	do {
		rc = weir_message_send(j->p->a.m, B, TYPE_BLOCK, buf, sizeof(buf), -1);
	} while (!rc);
	return rc;
}

TEST(test_every_wait_ends)
{
	static const struct {
		const char *name;
		int (*call)(struct job *j);
	} calls[] = {
	    {"weir_messenger_progress", call_progress},
	    {"weir_messenger_progress of the driver", call_drive},
	    {"weir_messenger_flush", call_flush},
	    {"weir_request_wait_any", call_wait_any},
	    {"weir_message_send", call_send},
	};
	struct both p;

	handle(on_signal);
	open_both(&p, NULL, NULL);
	register_keep(&p.b);
	register_block(&p.b, 0);
	for (unsigned i = 0; i < 2 * sizeof(calls) / sizeof(calls[0]); i++) {
		struct job j = {.p = &p, .call = calls[i / 2].call};

		start(&j);
		if (interrupt(&j, i % 2) != -EINTR)
			fail_msg("%s: %d: %s", calls[i / 2].name, j.rc, weir_reason());
	}
	atomic_store(&go, 1);
	handle(SIG_DFL);
	close_both(&p);
}

static int
call_unregister(struct job *j)
{
	return weir_message_unregister(j->p->a.m, TYPE_BLOCK, -1);
}

static int
call_disconnect(struct job *j)
{
	return weir_message_disconnect(j->p->a.m, B);
}

static int
call_close(struct job *j)
{
	return weir_messenger_close(j->p->a.m);
}

/* Calls that release something go on to their end: a program could not repeat them. */
TEST(test_release_goes_on)
{
	static int (*const calls[])(struct job * j) = {call_unregister, call_close};

	handle(on_signal);
	for (unsigned i = 0; i < 2 * sizeof(calls) / sizeof(calls[0]); i++) {
		struct job j = {.call = calls[i / 2]};
		struct both p;

		j.p = &p;
		open_both(&p, NULL, NULL);
		register_block(&p.a, 0);
		must(weir_message_send(p.b.m, A, TYPE_BLOCK, "x", 1, PATIENT));
		await(blocked_now == 1);
		start(&j);
		for (unsigned k = 0; k < 20; k++) {
			interrupt_once(&j, i % 2);
			assert_false(atomic_load(&j.done));
		}
		atomic_store(&go, 1);
		pthread_join(j.thread, NULL);
		assert_int_equal(j.rc, 0);
		if (j.call == call_close)
			p.a.m = NULL;
		close_both(&p);
	}
	handle(SIG_DFL);
}

TEST(test_disconnect_goes_on)
{
	struct both p;

	handle(on_signal);
	open_both(&p, NULL, NULL);
	register_keep(&p.b);
	for (unsigned i = 0; i < 2; i++) {
		struct job j = {.p = &p, .call = call_disconnect};
		struct weir_request r;
		uint64_t in;
		int rc;

		while ((rc = weir_request_start(p.a.m, &r, B, TYPE_KEEP, "x", 1, &in, 8,
						PATIENT)) == -EINTR)
			;
		must(rc);
		await(kept_count == i + 1);
		start(&j);
		for (unsigned k = 0; k < 20; k++)
			interrupt_once(&j, i % 2);
		weir_message_respond(p.b.m, &kept[i], "x", 1);
		pthread_join(j.thread, NULL);
		/* on a machine that stands still the 10 s may be over before the response */
		assert_true(j.rc == 0 || j.rc == -ETIMEDOUT);
		weir_request_cancel(&r); /* if it has not ended */
	}
	handle(SIG_DFL);
	close_both(&p);
}

static int
call_disconnect_from_other(struct job *j)
{
	return weir_message_disconnect(j->p->b.m, A);
}

/* Whether the peer is in that state. The machine may stand still: it has all the time to close. */
static bool
reaches(const struct side *s, struct peer *p, enum peer_state state)
{
	bool reached;

	pthread_mutex_lock(&s->m->lock);
	reached = p->state == state;
	p->deadline += UINT64_C(1000000000);
	pthread_mutex_unlock(&s->m->lock);
	return reached;
}

/* Both ends close. The end that has a request under way waits for its response. */
TEST(test_disconnect_of_both)
{
	uint8_t buf[8];
	struct weir_request r;
	struct peer *peer;
	bool asked = false;
	struct both p;
	struct job a = {.p = &p, .call = call_disconnect},
		   b = {.p = &p, .call = call_disconnect_from_other};

	open_both(&p, NULL, NULL);
	register_keep(&p.b);
	/* so that B has a connection of its own to say good-bye with */
	must(weir_message_connect(p.b.m, A, PATIENT));
	must(weir_request_start(p.a.m, &r, B, TYPE_KEEP, "x", 1, buf, 8, PATIENT));
	await(kept_count == 1);
	peer = p.a.m->peers[B / NODE_PAGE][B % NODE_PAGE];
	start(&a);
	await(reaches(&p.a, peer, PEER_LEAVING));
	start(&b);
	while (!asked) {
		pthread_mutex_lock(&p.a.m->lock);
		asked = peer->asked;
		pthread_mutex_unlock(&p.a.m->lock);
		nap(1);
	}
	stays(reaches(&p.a, peer, PEER_LEAVING) && weir_request_wait(&r, 0) == -EAGAIN &&
	      !atomic_load(&a.done));
	must(weir_message_respond(p.b.m, &kept[0], "y", 1));
	must(weir_request_wait(&r, PATIENT));
	assert_int_equal(buf[0], 'y');
	pthread_join(a.thread, NULL);
	pthread_join(b.thread, NULL);
	assert_int_equal(a.rc, 0);
	/* the close that A asked for may have ended first */
	assert_true(b.rc == 0 || b.rc == -ETIMEDOUT || b.rc == -ENOTCONN);
	close_both(&p);
}

/* Sends until others may go on; waits for room meanwhile. */
static int
call_send_often(struct job *j)
{
	static uint8_t bytes[8000];
	int rc = 0;

	while (!rc && !atomic_load(&go)) {
		rc = weir_message_send(j->p->a.m, B, TYPE_MUTE, bytes, sizeof(bytes),
				       WEIR_NO_TIMEOUT);
		atomic_fetch_add(&j->sent, 1);
	}
	return rc;
}

/* A thread holds a connection that it has no room on: it closes when it has sent. */
TEST(test_disconnect_beside_waiter)
{
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS_INIT;
	struct both p;
	struct job sends = {.p = &p, .call = call_send_often},
		   closes = {.p = &p, .call = call_disconnect};
	struct peer *peer;

	o.handler_threads = 1; /* nobody takes what the other end blocks */
	open_both(&p, NULL, &o);
	register_block(&p.b, 0);
	/* a connection of another thread, which has room for the good-bye */
	must(weir_message_send(p.a.m, B, TYPE_BLOCK, "x", 1, PATIENT));
	await(blocked_now == 1);
	start(&sends);
	for (unsigned same = 0; same < 100; same++) { /* it waits, when it sends no more */
		uint32_t before = atomic_load(&sends.sent);

		nap(1);
		if (!before || atomic_load(&sends.sent) != before)
			same = 0;
	}
	peer = p.a.m->peers[B / NODE_PAGE][B % NODE_PAGE];
	start(&closes);
	await(reaches(&p.a, peer, PEER_LEAVING));
	stays(reaches(&p.a, peer, PEER_LEAVING) && !atomic_load(&sends.done));
	atomic_store(&go, 1);
	pthread_join(sends.thread, NULL);
	pthread_join(closes.thread, NULL);
	assert_int_equal(sends.rc, 0);
	assert_int_equal(closes.rc, 0);
	close_both(&p);
}

static void *
send_and_end(void *arg)
{
	struct both *p = arg;

	must(weir_message_send(p->a.m, B, TYPE_MUTE, "x", 1, PATIENT));
	await(atomic_load(&go));
	must(weir_message_send(p->a.m, B, TYPE_MUTE, "x", 1, PATIENT));
	return NULL;
}

/* Messages under way when a thread ends arrive, and others wait for them. */
TEST(test_thread_ends)
{
	struct both p;
	pthread_t t;

	open_both(&p, NULL, NULL);
	atomic_store(&go, 0);
	assert_int_equal(pthread_create(&t, NULL, send_and_end, &p), 0);
	await(p.b.notes == 1);
	plane_hold(p.f, true);
	atomic_store(&go, 1);
	pthread_join(t, NULL);
	assert_int_equal(weir_messenger_flush(p.a.m, B, 10), -EAGAIN);
	plane_hold(p.f, false);
	must(weir_messenger_flush(p.a.m, B, PATIENT));
	await(p.b.notes == 2); /* taken by then, and handled soon */
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

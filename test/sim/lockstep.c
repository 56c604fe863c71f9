/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "lockstep.h"
#include "node.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
#include <time.h>

struct lockstep_thread {
	struct sim *s;
	uint32_t node;
	struct sim_actor actor;
	pthread_t thread;
	sem_t go;
	sem_t *back; /* of the thread that has let it go on */
	void *(*run)(void *arg);
	void *arg;
	unsigned rounds;  /* of destructors */
	bool left, ended; /* it waits no more; has been joined */
	struct lockstep_thread *next;
};

static struct lockstep_thread *all;
static pthread_key_t leaving; /* a thread's value is itself */
static pthread_once_t leaving_made = PTHREAD_ONCE_INIT;
static __thread struct lockstep_thread *self; /* NULL: the thread that runs the events */

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
			  void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
			  void *arg);
pthread_t __real_pthread_self(void);
pthread_t __wrap_pthread_self(void);
int __real_pthread_getattr_np(pthread_t thread, pthread_attr_t *attr);
int __wrap_pthread_getattr_np(pthread_t thread, pthread_attr_t *attr);
int __real_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
				  const struct timespec *end);
int __wrap_clock_gettime(clockid_t id, struct timespec *ts);
int __real_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms);

static void
await(sem_t *sem)
{
	while (sem_wait(sem))
		continue; /* a signal */
}

/* An event: the thread goes on until it waits again, or ends. */
static void
resume(struct sim *s, void *arg)
{
	struct lockstep_thread *t = arg;
	sem_t back;

	sem_init(&back, 0, 0);
	t->back = &back;
	sem_post(&t->go);
	await(&back);
	sem_destroy(&back);
	if (t->left) {
		__real_pthread_join(t->thread, NULL);
		t->ended = true;
	}
	sim_node_listen(s->node[t->node]);
}

/* The calling thread goes on at `at`. */
static bool
pass(struct sim *s, uint64_t at)
{
	struct lockstep_thread *t = self;

	if (!t)
		return false;
	sim_schedule(s, &t->actor, at);
	sem_post(t->back);
	await(&t->go);
	return true;
}

/* Destructors of the library's keys wait, too: this one is called again until they have ended. */
static void
leave(void *arg)
{
	struct lockstep_thread *t = arg;

	if (++t->rounds < PTHREAD_DESTRUCTOR_ITERATIONS) {
		pthread_setspecific(leaving, t);
		return;
	}
	self = NULL;
	t->left = true;
	sem_post(t->back);
}

static void
make_leaving(void)
{
	if (pthread_key_create(&leaving, leave))
		abort();
}

static void *
begin(void *arg)
{
	struct lockstep_thread *t = self = arg;

	pthread_setspecific(leaving, t);
	await(&t->go);
	t->run(t->arg);
	return NULL;
}

void
lockstep_reset(struct sim *s)
{
	struct lockstep_thread *t;

	while ((t = all)) {
		all = t->next;
		sem_destroy(&t->go);
		free(t);
	}
	s->pass = pass;
	s->asked = 0;
}

struct lockstep_thread *
lockstep_start(struct sim *s, uint32_t node, void *(*run)(void *arg), void *arg)
{
	struct lockstep_thread *t = calloc(1, sizeof(*t));

	if (!t)
		abort();
	pthread_once(&leaving_made, make_leaving);
	*t = (struct lockstep_thread){.s = s, .node = node, .run = run, .arg = arg, .next = all};
	all = t;
	t->actor = (struct sim_actor){resume, t, SIM_NEVER};
	sem_init(&t->go, 0, 0);
	if (__real_pthread_create(&t->thread, NULL, begin, t))
		sim_fail(s, "no thread on node %u", node);
	sim_schedule(s, &t->actor, s->now + rng_log(&s->rng, 1, 100 * SIM_US));
	return t;
}

bool
lockstep_ended(const struct lockstep_thread *t)
{
	return t->ended;
}

/* ---- what the library asks of threads ---- */

static void
nap(uint64_t ns)
{
	const struct timespec ts = {.tv_nsec = (long)ns};

	nanosleep(&ts, NULL);
}

/* The system gives the number of a thread that has been joined to another one. */
static pthread_t
number_of(const struct lockstep_thread *t)
{
	return (pthread_t)(uintptr_t)t;
}

int
__wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
		      void *arg)
{
	*thread = number_of(lockstep_start(self->s, self->node, run, arg));
	return 0;
}

pthread_t
__wrap_pthread_self(void)
{
	return self ? number_of(self) : __real_pthread_self();
}

/* Of which the library asks about the calling thread. */
int
__wrap_pthread_getattr_np(pthread_t thread, pthread_attr_t *attr)
{
	return __real_pthread_getattr_np(self ? self->thread : thread, attr);
}

int
__wrap_pthread_join(pthread_t thread, void **result)
{
	const struct lockstep_thread *t = (const struct lockstep_thread *)(uintptr_t)thread;

	while (!t->ended)
		nap(5 * SIM_US);
	return 0;
}

int
__wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
	int rc;

	while ((rc = pthread_mutex_trylock(mutex)) == EBUSY)
		sched_yield();
	return rc;
}

/* Of which the library asks how long it was away. */
int
__wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
	*ts =
	    (struct timespec){(time_t)(sim_running->now / SIM_S), (long)(sim_running->now % SIM_S)};
	return 0;
}

/* Conditions are looked at again and again. */
int
__wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
	pthread_mutex_unlock(mutex);
	nap(20 * SIM_US);
	return pthread_mutex_lock(mutex);
}

int
__wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
			      const struct timespec *end)
{
	return pthread_cond_wait(cond, mutex);
}

int
__wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	const struct timespec ts = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};

	return timeout_ms > 0 ? ppoll(fds, n, &ts, NULL) : __real_poll(fds, n, timeout_ms);
}

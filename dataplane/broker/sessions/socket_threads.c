/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "socket_threads.h"

#include "base/monotonic.h"
#include "ipc/invariant.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define THREADS_MAX 16u
#define KICK SIGURG /* ignored by default, and not used otherwise */

struct socket_thread {
	struct socket_threads *t;
	pthread_t id;
	struct socket_job *job; /* under way */
	uint64_t since;		/* ns: when it began */
};

/* All fields but event_fd are under the lock. */
struct socket_threads {
	pthread_mutex_t lock;
	pthread_cond_t submitted;
	int event_fd;
	TAILQ_HEAD(, socket_job) queue, done;
	unsigned threads, idle, under_way;
	bool ending;
	struct socket_thread thread[THREADS_MAX];
};

/* Takes the first job of a user that has none under way. */
static struct socket_job *
next_job(struct socket_threads *t)
{
	struct socket_job *job;

	TAILQ_FOREACH(job, &t->queue, entry)
	{
		unsigned i = 0;

		while (i < t->threads && !(t->thread[i].job && t->thread[i].job->uid == job->uid))
			i++;
		if (i < t->threads)
			continue;
		TAILQ_REMOVE(&t->queue, job, entry);
		return job;
	}
	return NULL;
}

static void *
work(void *arg)
{
	struct socket_thread *s = arg;
	struct socket_threads *t = s->t;
	struct socket_job *job;

	pthread_mutex_lock(&t->lock);
	while (!t->ending) {
		s->job = job = next_job(t);
		if (!job) {
			t->idle++;
			pthread_cond_wait(&t->submitted, &t->lock);
			t->idle--;
			continue;
		}
		s->since = monotonic_ns();
		pthread_mutex_unlock(&t->lock);
		/* dropped descriptors are closed before the system call returns */
		job->result =
		    job->room ? recv(job->fd, job->room, job->size, MSG_DONTWAIT) : close(job->fd);
		if (job->result < 0)
			job->result = -errno;
		pthread_mutex_lock(&t->lock);
		job->ns = monotonic_ns() - s->since;
		TAILQ_INSERT_HEAD(&t->done, job, entry);
		s->job = NULL;
		t->under_way--;
		/* another job of this user may begin */
		pthread_cond_broadcast(&t->submitted);
		eventfd_write(t->event_fd, 1);
	}
	pthread_cond_broadcast(&t->submitted);
	pthread_mutex_unlock(&t->lock);
	return NULL;
}

/* The new thread takes no signal but the kick and those of its own faults. */
static void
add_thread(struct socket_threads *t)
{
	struct socket_thread *s = &t->thread[t->threads];
	sigset_t blocked, before;

	s->t = t;
	sigfillset(&blocked);
	sigdelset(&blocked, KICK);
	sigdelset(&blocked, SIGBUS);
	sigdelset(&blocked, SIGSEGV);
	pthread_sigmask(SIG_SETMASK, &blocked, &before);
	if (!pthread_create(&s->id, NULL, work, s))
		t->threads++;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void
on_kick(int signal)
{
}

struct socket_threads *
socket_threads_open(void)
{
	struct sigaction kick = {.sa_handler = on_kick}; /* no SA_RESTART: it interrupts */
	struct socket_threads *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	TAILQ_INIT(&t->queue);
	TAILQ_INIT(&t->done);
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->submitted, NULL);
	if (t->event_fd >= 0 && !sigaction(KICK, &kick, NULL)) {
		pthread_mutex_lock(&t->lock);
		add_thread(t);
		pthread_mutex_unlock(&t->lock);
	}
	if (t->threads)
		return t;
	if (t->event_fd >= 0)
		close(t->event_fd);
	free(t);
	errno = EAGAIN;
	return NULL;
}

void
socket_threads_close(struct socket_threads *t)
{
	pthread_mutex_lock(&t->lock);
	weir_assert(!t->under_way);
	t->ending = true;
	pthread_cond_broadcast(&t->submitted);
	pthread_mutex_unlock(&t->lock);
	for (unsigned i = 0; i < t->threads; i++)
		pthread_join(t->thread[i].id, NULL);
	close(t->event_fd);
	pthread_mutex_destroy(&t->lock);
	pthread_cond_destroy(&t->submitted);
	free(t);
}

int
socket_threads_fd(const struct socket_threads *t)
{
	return t->event_fd;
}

void
socket_threads_submit(struct socket_threads *t, struct socket_job *job)
{
	weir_assert(job->fd >= 0);
	pthread_mutex_lock(&t->lock);
	weir_assert(!t->ending);
	TAILQ_INSERT_TAIL(&t->queue, job, entry);
	t->under_way++;
	if (!t->idle && t->threads < THREADS_MAX)
		add_thread(t);
	pthread_cond_signal(&t->submitted);
	pthread_mutex_unlock(&t->lock);
}

struct socket_job *
socket_threads_take(struct socket_threads *t)
{
	struct socket_job *job;
	eventfd_t rings;

	pthread_mutex_lock(&t->lock);
	job = TAILQ_FIRST(&t->done);
	if (job)
		TAILQ_REMOVE(&t->done, job, entry);
	else
		(void)!eventfd_read(t->event_fd, &rings);
	pthread_mutex_unlock(&t->lock);
	return job;
}

bool
socket_threads_kick(struct socket_threads *t)
{
	uint64_t now = monotonic_ns();
	bool under_way;

	pthread_mutex_lock(&t->lock);
	for (unsigned i = 0; i < t->threads; i++)
		if (t->thread[i].job && now - t->thread[i].since > SOCKET_KICK_NS)
			pthread_kill(t->thread[i].id, KICK);
	under_way = t->under_way;
	pthread_mutex_unlock(&t->lock);
	return under_way;
}

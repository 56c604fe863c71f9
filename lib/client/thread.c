/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Thread objects: one per OS thread that uses a session, found through thread-local storage. An
 * object outlives its OS thread while it owns connections; after that a new thread adopts it with
 * its channels.
 */
#define _GNU_SOURCE
#include "thread.h"
#include "channel.h"
#include "progress.h"
#include "reason.h"
#include "segment.h"
#include "session.h"
#include "wait.h"
#include "wake.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

static pthread_mutex_t threads_lock = PTHREAD_MUTEX_INITIALIZER;
static __thread LIST_HEAD(, weir_thread) mine __attribute__((tls_model("initial-exec")));
static pthread_key_t exit_key;
static pthread_once_t exit_once = PTHREAD_ONCE_INIT;

void
weir_threads_lock(void)
{
	pthread_mutex_lock(&threads_lock);
}

void
weir_threads_unlock(void)
{
	pthread_mutex_unlock(&threads_lock);
}

static void
release_memory(struct weir_thread *t)
{
	pthread_mutex_destroy(&t->foreign_lock);
	weir_bias_fini(&t->lock);
	free(t);
}

/*
 * Frees the calling thread's objects of detached sessions. `ending`: the OS thread ends; its other
 * objects become orphans.
 */
static void
drop_detached(bool ending)
{
	struct weir_thread *t, *next;

	pthread_mutex_lock(&threads_lock);
	for (t = LIST_FIRST(&mine); t; t = next) {
		next = LIST_NEXT(t, in_tls);
		if (atomic_load(&t->session) && !ending)
			continue;
		LIST_REMOVE(t, in_tls);
		if (!atomic_load(&t->session)) {
			release_memory(t);
			continue;
		}
		weir_thread_ended(t);
		t->orphan = true;
		if (t->w->watched && weir_state(t->w) != WEIR_FORKED)
			weir_wake_fd(t->w->watcher_fd);
	}
	pthread_mutex_unlock(&threads_lock);
}

static void
thread_exits(void *unused)
{
	drop_detached(true);
}

static void
make_key(void)
{
	pthread_key_create(&exit_key, thread_exits);
}

static int
add_fd(int epoll, int fd, uint32_t events)
{
	struct epoll_event e = {.events = events};

	return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) ? -errno : 0;
}

static void
close_fds(struct weir_thread *t)
{
	int fds[] = {t->rings_fd, t->epoll_fd, t->timer_fd};

	for (unsigned i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	t->rings_fd = t->epoll_fd = t->timer_fd = -1;
}

static void
set_waker(struct weir_thread *t, struct weir_waker *k)
{
	t->waker = k;
	t->wake_fd = t->fd_waiter.fd = k->fd;
}

/* The calling thread's object of a former session of the handle; NULL: none. */
static struct weir_thread *
former_of(const struct weir *w)
{
	struct weir_thread *p;

	LIST_FOREACH(p, &mine, in_tls)
	{
		const struct weir *s = atomic_load_explicit(&p->session, memory_order_relaxed);

		if (s && s != w && s->first == w->first)
			return p;
	}
	return NULL;
}

/* A new thread object; NULL and errno. threads_lock held. */
static struct weir_thread *
create(struct weir *w)
{
	const struct weir_thread *former = former_of(w);
	struct weir_thread *t = aligned_alloc(64, WEIR_ALIGN_UP(sizeof(*t), 64));
	struct weir_waker *waker = NULL;
	int rc;

	if (!t)
		return NULL;
	memset(t, 0, sizeof(*t));
	t->w = w;
	t->life = w->life;
	t->number = w->turn++;
	t->engine = t->number % w->geometry.engines;
	t->timer_fd = -1;
	SLIST_INIT(&t->channels);
	LIST_INIT(&t->segments);
	TAILQ_INIT(&t->ready);
	TAILQ_INIT(&t->lanes);
	TAILQ_INIT(&t->blocked);
	TAILQ_INIT(&t->tails);
	TAILQ_INIT(&t->accepts);
	TAILQ_INIT(&t->lane_accepts);
	LIST_INIT(&t->listening);
	TAILQ_INIT(&t->remote_lanes);
	LIST_INIT(&t->loans);
	LIST_INIT(&t->waiters);
	LIST_INIT(&t->foreign);
	LIST_INIT(&t->lost_conns);
	TAILQ_INIT(&t->foreign_ready);
	pthread_mutex_init(&t->foreign_lock, NULL);
	rc = weir_bias_init(&t->lock);
	if (rc) {
		free(t);
		errno = -rc;
		return NULL;
	}
	t->rings_fd = epoll_create1(EPOLL_CLOEXEC);
	t->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (t->rings_fd >= 0 && t->epoll_fd >= 0)
		waker = former ? former->waker : weir_waker_new(w->first);
	rc = waker ? 0 : -errno;
	if (!rc) {
		set_waker(t, waker);
		rc = add_fd(t->epoll_fd, t->rings_fd, EPOLLIN);
	}
	if (!rc)
		rc = add_fd(t->epoll_fd, t->wake_fd, EPOLLIN);
	if (!rc && w->transport.fd >= 0)
		rc = add_fd(t->rings_fd, w->transport.fd, EPOLLRDHUP);
	if (rc) {
		close_fds(t);
		release_memory(t);
		errno = -rc;
		return NULL;
	}
	atomic_store(&t->session, w);
	return t;
}

struct weir_thread *
weir_thread_new(struct weir *w)
{
	struct weir_thread *t;

	pthread_once(&exit_once, make_key);
	pthread_setspecific(exit_key, &mine);
	drop_detached(false);
	pthread_mutex_lock(&threads_lock);
	LIST_FOREACH(t, &w->threads, in_session)
	{
		if (!t->orphan)
			continue;
		weir_lock(t);
		weir_progress(t, NULL); /* finish its closed connections */
		weir_unlock(t);
		if (atomic_load_explicit(&t->users, memory_order_relaxed))
			continue;
		t->orphan = false;
		weir_waker_take_over(t->waker);
		break;
	}
	if (!t) { /* no object of an ended thread can be adopted */
		t = create(w);
		if (t)
			LIST_INSERT_HEAD(&w->threads, t, in_session);
	}
	pthread_mutex_unlock(&threads_lock);
	if (t)
		LIST_INSERT_HEAD(&mine, t, in_tls);
	return t;
}

void
weir_thread_forget_socket(struct weir_thread *t)
{
	struct weir *w = t->w;

	pthread_mutex_lock(&w->request_lock);
	if (w->transport.fd >= 0)
		epoll_ctl(t->rings_fd, EPOLL_CTL_DEL, w->transport.fd, NULL);
	pthread_mutex_unlock(&w->request_lock);
}

/*
 * The thread's first call on a session. If the thread has an object of a former session, the new
 * one takes over its epoll descriptor, which the program may watch, its waker and its events.
 */
static struct weir_thread *
first_call(struct weir *w)
{
	struct weir_thread *t = weir_thread_new(w), *former = former_of(w);
	struct weir_foreign *f, *next;

	if (!t)
		return NULL;
	if (!former)
		return t;
	weir_thread_rouse(former);
	LIST_FOREACH(f, &former->foreign, next)
	epoll_ctl(former->epoll_fd, EPOLL_CTL_DEL, f->worker->rings_fd, NULL);
	epoll_ctl(former->epoll_fd, EPOLL_CTL_DEL, former->rings_fd, NULL);
	weir_thread_forget_socket(former);
	/* without kernel memory for this the new object keeps its own descriptors */
	if (!add_fd(former->epoll_fd, t->rings_fd, EPOLLIN)) {
		close(t->epoll_fd);
		t->epoll_fd = former->epoll_fd;
		former->epoll_fd = -1;
		set_waker(t, former->waker);
	}
	/* the thread's objects of earlier sessions report to t as foreign workers do */
	for (f = LIST_FIRST(&former->foreign); f; f = next) {
		next = LIST_NEXT(f, next);
		if (!f->own)
			continue;
		LIST_REMOVE(f, next);
		f->waiter.fd = t->wake_fd;
		LIST_INSERT_HEAD(&t->foreign, f, next);
		if (!atomic_load_explicit(&f->conns, memory_order_relaxed))
			continue; /* weir_thread_reap_foreign() will drop it */
		add_fd(t->epoll_fd, f->worker->rings_fd, EPOLLIN);
		t->former_workers++;
	}
	f = weir_thread_add_foreign(t, former);
	if (f) { /* without memory for it the former object's events are lost */
		f->own = true;
		t->former_workers++;
	}
	weir_thread_follow(t, former);
	for (w = w->former; w; w = w->former)
		weir_threads_release(w);
	return t;
}

struct weir_thread *
weir_thread_get(struct weir *w)
{
	struct weir_thread *t;

	LIST_FOREACH(t, &mine, in_tls)
	if (atomic_load_explicit(&t->session, memory_order_relaxed) == w)
		return t;
	return first_call(w);
}

struct weir_thread *
weir_thread_own(struct weir *w, int *rc)
{
	struct weir_thread *t = weir_thread_get(w);

	*rc = t ? 0 : -errno;
	if (!t)
		weir_fail(*rc, "no resources for another thread: %s; raise the limit of open files",
			  strerror(errno));
	return t;
}

struct weir_waker *
weir_waker_find(const struct weir *w)
{
	struct weir_thread *t;

	LIST_FOREACH(t, &mine, in_tls)
	{
		const struct weir *s = atomic_load_explicit(&t->session, memory_order_relaxed);

		if (s && s->first == w->first)
			return t->waker;
	}
	return NULL;
}

void
weir_thread_use(struct weir_thread *t)
{
	LIST_REMOVE(t, in_tls);
	LIST_INSERT_HEAD(&mine, t, in_tls);
}

void
weir_threads_each(struct weir *w, void (*f)(struct weir_thread *t))
{
	struct weir_thread *t;

	pthread_mutex_lock(&threads_lock);
	LIST_FOREACH(t, &w->threads, in_session)
	f(t);
	pthread_mutex_unlock(&threads_lock);
}

static void
free_pipes(struct weir_thread *t)
{
	struct weir_channel *ch;
	struct weir_segment *seg;

	while ((seg = LIST_FIRST(&t->segments)))
		weir_segment_free(seg);
	while ((ch = SLIST_FIRST(&t->channels))) {
		SLIST_REMOVE_HEAD(&t->channels, next);
		t->channel_to[ch->engine] = NULL;
		weir_bell_close(&ch->pipe.bell);
		free(ch->release);
		free(ch->refused);
		free(ch);
	}
}

/*
 * Frees the memory of w, which nothing uses. The head of the arena stays: a thread that has seen
 * the session up may read it only now. threads_lock held.
 */
static void
shed(struct weir *w)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t head = WEIR_ALIGN_UP(sizeof(struct weir_arena_head), page);
	struct weir_thread *t;

	weir_assert(weir_state(w) != WEIR_UP);
	LIST_FOREACH(t, &w->threads, in_session)
	{
		weir_lock(t);
		free_pipes(t);
		weir_unlock(t);
	}
	w->shed = mmap(w->arena, head, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
	if (w->shed) {
		munmap(w->arena + head, w->arena_bytes - head);
		w->arena_bytes = head;
	}
	pthread_mutex_lock(&w->request_lock); /* a request may not have seen the end yet */
	weir_transport_end(&w->transport);
	w->transport.fd = -1;
	pthread_mutex_unlock(&w->request_lock);
}

void
weir_threads_release(struct weir *w)
{
	struct weir_thread *t;
	bool unused = weir_now(w->first) != w && !atomic_load(&w->handler_lines);
	bool watched = false;

	if (!unused)
		return;
	pthread_mutex_lock(&threads_lock);
	LIST_FOREACH(t, &w->threads, in_session)
	{
		weir_bias_lock_slow(&t->lock);
		unused = unused && !atomic_load_explicit(&t->users, memory_order_relaxed) &&
			 LIST_EMPTY(&t->loans);
		weir_bias_unlock_passing(&t->lock);
	}
	if (unused && !w->shed && !weir_heap_reserved(w)) {
		shed(w);
		watched = w->watched;
		w->watched = false;
	}
	pthread_mutex_unlock(&threads_lock);
	if (watched)
		weir_watcher_end(w);
}

void
weir_threads_free(struct weir *w)
{
	struct weir_foreign *f;
	struct weir_thread *t;

	pthread_mutex_lock(&threads_lock);
	LIST_FOREACH(t, &w->threads, in_session)
	weir_thread_clear(t);
	while ((t = LIST_FIRST(&w->threads))) {
		LIST_REMOVE(t, in_session);
		while ((f = LIST_FIRST(&t->foreign))) {
			LIST_REMOVE(f, next);
			free(f);
		}
		free_pipes(t);
		close_fds(t);
		for (unsigned i = 0; i < sizeof(t->vqpn) / sizeof(t->vqpn[0]); i++)
			free(t->vqpn[i]);
		free(t->nodes);
		if (t->orphan)
			release_memory(t);
		else
			atomic_store(&t->session, NULL); /* its OS thread frees it */
	}
	pthread_mutex_unlock(&threads_lock);
	drop_detached(false);
}

struct weir_foreign *
weir_thread_add_foreign(struct weir_thread *t, struct weir_thread *worker)
{
	struct weir_foreign *f;
	int rc;

	LIST_FOREACH(f, &t->foreign, next)
	{
		if (f->worker == worker) {
			atomic_fetch_add_explicit(&f->conns, 1, memory_order_relaxed);
			return f;
		}
	}
	weir_assert(worker != t);
	f = calloc(1, sizeof(*f));
	if (!f)
		return NULL;
	rc = add_fd(t->epoll_fd, worker->rings_fd, EPOLLIN);
	if (rc) {
		free(f);
		errno = -rc;
		return NULL;
	}
	f->worker = worker;
	atomic_init(&f->conns, 1);
	f->waiter.fd = t->wake_fd;
	LIST_INSERT_HEAD(&t->foreign, f, next);
	return f;
}

void
weir_thread_reap_foreign(struct weir_thread *t)
{
	struct weir_foreign *f, *next;

	for (f = LIST_FIRST(&t->foreign); f; f = next) {
		next = LIST_NEXT(f, next);
		if (atomic_load_explicit(&f->conns, memory_order_relaxed))
			continue;
		epoll_ctl(t->epoll_fd, EPOLL_CTL_DEL, f->worker->rings_fd, NULL);
		if (f->own) /* no thread waits on its descriptors any more */
			close_fds(f->worker);
		LIST_REMOVE(f, next);
		free(f);
	}
}

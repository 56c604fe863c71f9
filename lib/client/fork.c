/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fork(): the child has none of the parent's sessions. Its copies of their sockets are closed at
 * once, or the data plane would not notice that the parent has died as long as the child lives; and
 * no lock of ours is left held by a thread that the child doesn't have, so that it may attach.
 */
#include "session.h"
#include "thread.h"

static pthread_mutex_t sessions_lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, weir) sessions;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void
nothing(void *user)
{
	(void)user;
}

static void
before(void)
{
	pthread_mutex_lock(&sessions_lock);
	weir_threads_lock();
}

static void
in_parent(void)
{
	weir_threads_unlock();
	pthread_mutex_unlock(&sessions_lock);
}

static void
in_child(void)
{
	struct weir *w;

	while ((w = LIST_FIRST(&sessions))) {
		LIST_REMOVE(w, in_sessions);
		w->transport.close(w->transport.user);
		w->transport.close = nothing; /* its number may be another file's soon */
	}
	in_parent();
}

static void
install(void)
{
	pthread_atfork(before, in_parent, in_child);
}

void
weir_fork_note(struct weir *w)
{
	pthread_once(&once, install);
	pthread_mutex_lock(&sessions_lock);
	LIST_INSERT_HEAD(&sessions, w, in_sessions);
	pthread_mutex_unlock(&sessions_lock);
}

void
weir_fork_forget(struct weir *w)
{
	pthread_mutex_lock(&sessions_lock);
	LIST_REMOVE(w, in_sessions);
	pthread_mutex_unlock(&sessions_lock);
}

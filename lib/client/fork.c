/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fork(): the child has none of the parent's sessions. It closes its copies of the session sockets
 * at once, because an open copy would hide the parent's death from the data plane. The child may
 * attach: no lock of the library stays held by a thread that the child does not have.
 */
#include "session.h"
#include "thread.h"

static pthread_mutex_t sessions_lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, weir) sessions;
static pthread_once_t once = PTHREAD_ONCE_INIT;

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
		weir_transport_end(&w->transport);
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

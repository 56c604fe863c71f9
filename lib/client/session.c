/* SPDX-License-Identifier: BSD-3-Clause */
/* Attach and detach; the watcher thread, which notices the end of the data plane. */
#define _GNU_SOURCE
#include "session.h"
#include "membarrier.h"
#include "progress.h"
#include "reason.h"
#include "region.h"
#include "sized.h"
#include "wait.h"
#include "wake.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHORES_MS 1		   /* between two passes of the watcher while work is left */
#define LAST_MESSAGES_NS 60000000u /* how long local peers may still send after the end */
#define LIFE_BYTES 4096u	   /* the page of struct weir_life */

void
weir_lost(struct weir *w)
{
	atomic_store_explicit(&w->life->state, WEIR_DEAD, memory_order_release);
}

static bool
has_chores(const struct weir_thread *t)
{
	return !TAILQ_EMPTY(&t->tails) || (t->orphan && t->closing) || (t->armed && t->starved);
}

/*
 * Chores: sends the rest of partial messages, finishes closed connections of ended threads, and
 * gives threads that sleep for lack of send blocks those of operations and messages that have
 * ended. A thread that calls often does this itself.
 */
static void
do_chores(struct weir_thread *t)
{
	struct weir *w = t->w;
	bool lends = atomic_load_explicit(&w->heap.starving, memory_order_relaxed);

	weir_bias_lock_slow(&t->lock);
	if (lends) /* calls that need none do not do this */
		weir_lanes_give_blocks(t);
	if (t->turns == t->turns_seen && (lends || has_chores(t)))
		weir_progress(t, NULL);
	t->turns_seen = t->turns;
	if (has_chores(t))
		w->chores = true;
	weir_bias_unlock_passing(&t->lock);
}

/*
 * Receives the reason of a data plane that has ended the session. A pending request may take this
 * message as its answer. Such a request ends at once, as the socket has hung up, so the wait for
 * request_lock is short.
 */
static void
receive_end_reason(struct weir *w)
{
	union {
		struct weir_session_msg m;
		uint8_t room[sizeof(struct weir_session_msg) + 1];
	} in;
	ssize_t n;

	pthread_mutex_lock(&w->request_lock);
	do
		n = recv(w->transport.fd, &in, sizeof(in), MSG_DONTWAIT);
	while (n < 0 && errno == ECONNRESET); /* reported once, if a request was not read */
	/* other refusals are late answers to a request that gave up */
	if (n > 0 && !weir_session_check(&in.m, (size_t)n) && in.m.type == WEIR_MSG_REFUSED &&
	    in.m.refused.code == ECONNABORTED)
		weir_evicted(w, &in.m);
	pthread_mutex_unlock(&w->request_lock);
}

static void *
watch(void *arg)
{
	struct weir *w = arg;

	while (!atomic_load_explicit(&w->stop, memory_order_acquire)) {
		struct pollfd fds[2] = {{.fd = w->transport.fd, .events = POLLRDHUP},
					{.fd = w->watcher_fd, .events = POLLIN}};
		uint64_t count, end;

		if (poll(fds, 2, w->chores ? CHORES_MS : -1) < 0)
			continue;
		if (fds[0].revents) {
			receive_end_reason(w);
			weir_lost(w);
			/*
			 * Connections end and programs get the events. Local peers notice the end
			 * when we do or a little later: messages sent until then are received.
			 */
			end = weir_clock() + LAST_MESSAGES_NS;
			do {
				w->chores = false;
				w->late = weir_clock() >= end;
				weir_threads_each(w, weir_thread_plane_lost);
				weir_threads_each(w, weir_thread_end_segments);
				if (w->chores)
					weir_sleep(CHORES_MS * 1000000u);
			} while (w->chores &&
				 !atomic_load_explicit(&w->stop, memory_order_acquire));
			break;
		}
		if (fds[1].revents && read(w->watcher_fd, &count, sizeof(count)) < 0)
			continue;
		w->chores = false;
		weir_threads_each(w, do_chores);
	}
	return NULL;
}

void
weir_watcher_end(struct weir *w)
{
	weir_assert(w->watcher_fd >= 0);
	atomic_store_explicit(&w->stop, 1, memory_order_release);
	weir_wake_fd(w->watcher_fd);
	pthread_join(w->watcher, NULL);
	close(w->watcher_fd);
	w->watcher_fd = -1;
}

static void
close_all(const int fds[WEIR_SESSION_FDS])
{
	for (unsigned i = 0; i < WEIR_SESSION_FDS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

/* Sends HELLO and maps the arena of the WELCOME. */
static int
say_hello(struct weir *w)
{
	struct weir_session_msg m = weir_message(WEIR_MSG_HELLO), r;
	const struct weir_geometry *g = &w->geometry;
	struct weir_versions chosen;
	char why[WEIR_VERSION_WHY];
	void *arena;
	int fds[WEIR_SESSION_FDS], rc;

	m.hello.magic = WEIR_SESSION_MAGIC;
	m.hello.versions = WEIR_SESSION_VERSIONS;
	m.hello.flags = weir_barrier_registered() ? WEIR_HELLO_MEMBARRIER : 0;
	m.hello.arena = w->arena_wish;
	memcpy(m.hello.name, w->name, sizeof(m.hello.name));
	rc = weir_request(w, &m, WEIR_MSG_WELCOME, &r, fds);
	if (rc)
		return rc;
	chosen.lowest = chosen.highest = r.welcome.version;
	if (!weir_version_choose(WEIR_SESSION_VERSIONS, chosen, "session.sock", "libweir",
				 "weir-dataplane", why)) {
		close_all(fds);
		return weir_fail(-EPROTO, "%s", why);
	}
	w->geometry = r.welcome.geometry;
	w->node = r.welcome.node;
	w->turn = r.welcome.session;
	w->fence = !weir_barrier_registered() || !(r.welcome.flags & WEIR_WELCOME_MEMBARRIER);
	rc = -EPROTO;
	if (fds[0] >= 0 && g->version == WEIR_LAYOUT_VERSION && g->ring_slots >= 32 &&
	    g->ring_slots <= 1u << 24 && !(g->ring_slots & (g->ring_slots - 1)) && g->engines &&
	    g->engines <= WEIR_ENGINES_MAX && g->channels && g->connections &&
	    g->connections <= 1u << 20 && g->channels <= 1u << 16 &&
	    weir_arena_end(g) <= g->bytes) {
		arena =
		    mmap(NULL, w->geometry.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
		rc = arena == MAP_FAILED ? -errno : 0;
		if (!rc) {
			w->arena = arena;
			w->arena_bytes = w->geometry.bytes;
			madvise(arena, w->geometry.bytes, MADV_DONTFORK);
		}
	}
	close_all(fds);
	return rc ? weir_fail(rc,
			      "the data plane's memory cannot be mapped: %s; raise the limit of "
			      "address space",
			      strerror(-rc))
		  : 0;
}

static void
free_session(struct weir *w)
{
	if (w->life)
		weir_lost(w); /* no request is sent any more */
	weir_cache_fini(w);
	weir_regions_fini(w);
	weir_buffers_fini(&w->buffers);
	if (w->watcher_fd >= 0)
		close(w->watcher_fd);
	if (w->heap.map)
		weir_heap_fini(w);
	if (w->first == w)
		weir_wakers_free(w);
	if (w->arena)
		munmap(w->arena, w->arena_bytes);
	if (w->life)
		munmap(w->life, LIFE_BYTES);
	pthread_mutex_destroy(&w->request_lock);
	pthread_mutex_destroy(&w->reattach_lock);
	free(w);
}

int
weir_attach_with(const struct weir_options *o, const struct weir_transport *transport,
		 struct weir **handle)
{
	struct weir *w = calloc(1, sizeof(*w));
	sigset_t all, before;
	void *page;
	int rc;

	if (!w)
		return weir_fail(-ENOMEM, "no memory for a session; free some");
	w->transport = *transport;
	w->first = w;
	w->watcher_fd = -1;
	snprintf(w->name, sizeof(w->name), "%s",
		 o && o->name ? o->name : program_invocation_short_name);
	snprintf(w->instance, sizeof(w->instance), "%s", o && o->instance ? o->instance : "");
	w->arena_wish = o ? o->arena : 0;
	w->polling = o && o->flags & WEIR_POLLING;
	w->reattaches = o && o->flags & WEIR_REATTACH;
	LIST_INIT(&w->threads);
	pthread_mutex_init(&w->request_lock, NULL);
	pthread_mutex_init(&w->reattach_lock, NULL);
	pthread_mutex_init(&w->adopt_lock, NULL);
	pthread_mutex_init(&w->remote_lock, NULL);
	weir_cache_init(w);
	weir_buffers_init(&w->buffers);
	weir_fork_note(w);
	weir_barrier_register();
	page = mmap(NULL, LIFE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page != MAP_FAILED)
		w->life = page;
	rc = page == MAP_FAILED || madvise(page, LIFE_BYTES, MADV_WIPEONFORK) ? -errno : 0;
	if (rc) {
		weir_fail(rc,
			  "no page that forked children don't inherit: %s; use Linux 4.14 or newer",
			  strerror(-rc));
		goto err;
	}
	atomic_store(&w->life->state, WEIR_UP);
	rc = say_hello(w);
	if (rc)
		goto err;
	rc = weir_heap_init(w);
	if (!rc) {
		w->watcher_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		rc = w->watcher_fd < 0 ? -errno : 0;
	}
	if (!rc && w->transport.fd >= 0) {
		sigfillset(&all);
		pthread_sigmask(SIG_BLOCK, &all, &before);
		rc = -pthread_create(&w->watcher, NULL, watch, w);
		pthread_sigmask(SIG_SETMASK, &before, NULL);
		w->watched = !rc;
	}
	if (rc) {
		weir_fail(rc, "no session: %s; raise the limits of memory, threads and files",
			  strerror(-rc));
		goto err;
	}
	*handle = w;
	return 0;
err:
	weir_fork_forget(w);
	free_session(w);
	return rc;
}

int
weir_attach(const struct weir_options *o, struct weir **handle)
{
	struct weir_options resolved = WEIR_OPTIONS_INIT;
	struct weir_transport transport;
	int rc;

	rc = weir_sized_read(&resolved, sizeof(resolved), o, "WEIR_OPTIONS_INIT");
	if (rc)
		return rc;
	if (!handle || resolved.flags & ~(WEIR_POLLING | WEIR_REATTACH) || resolved.reserved)
		return weir_fail(-EINVAL, "no handle to fill, or an unknown flag; see weir/weir.h");
	if (!resolved.instance)
		resolved.instance = getenv("WEIR_INSTANCE");
	if (!resolved.instance || !*resolved.instance)
		resolved.instance = "default";
	rc = weir_socket_open(resolved.instance, &transport);
	if (rc)
		return rc;
	rc = weir_attach_with(&resolved, &transport, handle);
	if (rc)
		weir_transport_end(&transport);
	return rc == -ENODEV ? -ECONNREFUSED : rc;
}

void
weir_detach(struct weir *w)
{
	struct weir_session_msg m = weir_message(WEIR_MSG_BYE), r;
	struct weir *former;
	int fds[WEIR_SESSION_FDS];

	if (!w)
		return;
	w = weir_now(w);
	if (weir_state(w) == WEIR_FORKED) { /* locks and memory are the parent's */
		weir_transport_end(&w->transport);
		return;
	}
	weir_linger(w);
	if (weir_state(w) == WEIR_UP)
		weir_request(w, &m, WEIR_MSG_OK, &r, fds);
	for (; w; w = former) {
		former = w->former;
		if (w->watched)
			weir_watcher_end(w);
		weir_fork_forget(w);
		weir_transport_end(&w->transport);
		weir_remotes_free(w);
		weir_threads_free(w);
		free_session(w);
	}
}

int
weir_node(struct weir *w)
{
	const struct weir_arena_head *head;
	uint32_t node;

	w = weir_now(w);
	if (weir_state(w) != WEIR_UP)
		return weir_gone(w);
	head = (const struct weir_arena_head *)w->arena;
	node = atomic_load_explicit(&head->node, memory_order_relaxed);
	if (node)
		return (int)(node - 1);
	return w->node != UINT32_MAX
		   ? (int)w->node
		   : weir_fail(-EAGAIN, "no control process has told the node id yet; "
					"start weir-control");
}

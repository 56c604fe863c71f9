/* SPDX-License-Identifier: BSD-3-Clause */
/* Opening keys, and the connection of each thread. */
#include "handle.h"

#include "client/progress.h"
#include "client/reason.h"
#include "client/wait.h"
#include "ipc/remote.h"
#include "stream/model.h"

#include <stdlib.h>

int
weir_remote_ended(const struct weir_conn *c, int end)
{
	int rc = end == -ESHUTDOWN ? -ECONNRESET : end;

	if (rc == -ESTALE)
		return weir_fail(rc, "the export was revoked, or its memory freed; get a new key");
	if (rc == -ECONNRESET)
		return weir_fail(rc, "the exporting program has ended; get a key of its next run");
	if (rc == -EKEYREJECTED)
		return weir_fail(rc, "there is no such export; get the key of one that exists");
	if (rc == -EACCES)
		return weir_fail(rc, "the key does not grant these rights; get one that does, or "
				     "ask for less");
	if (rc == -EMFILE)
		return weir_fail(rc, "the exporting program, or its user, has no connection left; "
				     "close some, or raise --session-connections there");
	return weir_conn_failed(c, rc);
}

/* The connection of thread t. */
static struct weir_conn *
conn_of(struct weir_remote *r, const struct weir_thread *t)
{
	/* pairs with the release below */
	struct weir_conn *c = atomic_load_explicit(&r->recent, memory_order_acquire);

	if (weir_likely(c && c->worker == t))
		return c;
	pthread_mutex_lock(&r->lock);
	LIST_FOREACH(c, &r->conns, in_remote)
	if (c->worker == t)
		break;
	pthread_mutex_unlock(&r->lock);
	if (c)
		atomic_store_explicit(&r->recent, c, memory_order_release);
	return c;
}

static struct weir_conn *
make_conn(struct weir_remote *r, struct weir_thread *t, int *rc)
{
	struct weir_conn *c;
	bool local;

	weir_lock(t);
	*rc = weir_conn_start_memory(t, r, r->key.bytes, r->rights, &local, &c);
	weir_unlock(t);
	if (*rc)
		return NULL;
	pthread_mutex_lock(&r->lock);
	if (LIST_EMPTY(&r->conns)) {
		r->local = local;
		r->first = c;
	}
	LIST_INSERT_HEAD(&r->conns, c, in_remote);
	pthread_mutex_unlock(&r->lock);
	/* pairs with the acquire in conn_of() */
	atomic_store_explicit(&r->recent, c, memory_order_release);
	return c;
}

struct weir_conn *
weir_remote_conn(struct weir_remote *r, bool make, int *rc)
{
	struct weir_thread *t = weir_thread_get(r->w);
	struct weir_conn *c = t ? conn_of(r, t) : NULL;

	*rc = 0;
	if (weir_likely(c) || !make)
		return c;
	if (weir_state(r->w) != WEIR_UP) {
		*rc = weir_gone(r->w);
		return NULL;
	}
	t = weir_thread_own(r->w, rc);
	return t ? make_conn(r, t, rc) : NULL;
}

int
weir_remote_await_open(struct weir_conn *c, int timeout_ms)
{
	struct weir_wait wait;
	int rc;

	weir_wait_init(&wait, c->worker, timeout_ms);
	while ((rc = weir_conn_opened(c)) == -EAGAIN) {
		rc = weir_wait_next(&wait);
		if (rc)
			break;
	}
	weir_wait_end(&wait);
	return rc && rc != -EAGAIN && rc != -EINTR ? weir_remote_ended(c, c->end) : rc;
}

static void
close_conns(struct weir_remote *r)
{
	struct weir_conn *c;

	while ((c = LIST_FIRST(&r->conns))) {
		struct weir_thread *t = c->worker;

		LIST_REMOVE(c, in_remote);
		weir_lock(t);
		weir_conn_close(c);
		weir_progress_leave(t);
		weir_unlock(t);
	}
	if (weir_unlikely(weir_state(r->w) != WEIR_UP))
		weir_threads_release(r->w);
}

static void
free_remote(struct weir_remote *r)
{
	weir_remote_unmap(r);
	pthread_mutex_destroy(&r->lock);
	free(r);
}

int
weir_remote_open(struct weir *w, const struct weir_key *key, unsigned rights, uint32_t flags,
		 int timeout_ms, struct weir_remote **remote)
{
	struct weir_key_fields fields;
	struct weir_remote *r;
	struct weir_conn *c;
	int rc;

	if (!w || !key || !remote)
		return weir_fail(-EINVAL, "no session, no key, or no place for the handle; see "
					  "weir/remote.h");
	if (!rights || rights & ~WEIR_RIGHTS_KNOWN)
		return weir_fail(-EINVAL, "no rights, or unknown ones; see WEIR_MAY_* in "
					  "weir/remote.h");
	if (flags & ~WEIR_OPEN_APART)
		return weir_fail(-EINVAL, "unknown flag 0x%x; see WEIR_OPEN_* in weir/remote.h",
				 flags);
	w = weir_now(w);
	if (weir_state(w) != WEIR_UP)
		return weir_gone(w);
	r = calloc(1, sizeof(*r));
	if (!r)
		return weir_fail(-ENOMEM, "no memory for a handle; free some");
	r->w = w;
	r->key = *key;
	r->rights = rights;
	memcpy(&fields, key->bytes, sizeof(fields));
	pthread_mutex_init(&r->lock, NULL);
	LIST_INIT(&r->conns);
	c = weir_remote_conn(r, true, &rc);
	if (c && r->local && !(flags & WEIR_OPEN_APART))
		weir_remote_map(r);
	if (c && timeout_ms) {
		rc = weir_remote_await_open(c, timeout_ms);
		if (rc == -EAGAIN)
			rc = weir_fail(-ETIMEDOUT,
				       "the exporting node has not answered within %d ms; see "
				       "weirctl show nodes, or wait longer",
				       timeout_ms);
	}
	if (rc) {
		close_conns(r);
		free_remote(r);
		return rc;
	}
	/* of this host, and made before its node had an id */
	r->node = fields.node == UINT32_MAX ? c->peer_node : (uint16_t)fields.node;
	pthread_mutex_lock(&w->remote_lock);
	LIST_INSERT_HEAD(&w->remotes, r, in_session);
	pthread_mutex_unlock(&w->remote_lock);
	*remote = r;
	return 0;
}

void
weir_remote_close(struct weir_remote *r)
{
	if (!r || weir_state(r->w) == WEIR_FORKED)
		return;
	pthread_mutex_lock(&r->w->remote_lock);
	LIST_REMOVE(r, in_session);
	pthread_mutex_unlock(&r->w->remote_lock);
	close_conns(r);
	free_remote(r);
}

void
weir_remotes_free(struct weir *w)
{
	struct weir_remote *r;
	struct weir_export *x;

	while ((r = LIST_FIRST(&w->remotes))) { /* the session frees their connections */
		LIST_REMOVE(r, in_session);
		free_remote(r);
	}
	for (unsigned i = 0; i < WEIR_EXPORT_LISTS; i++)
		while ((x = LIST_FIRST(&w->exports[i]))) {
			LIST_REMOVE(x, in_session);
			free(x);
		}
}

void
weir_remote_info(const struct weir_remote *r, struct weir_remote_info *info)
{
	struct weir_remote *w = (struct weir_remote *)(uintptr_t)r; /* its lock */
	const struct weir_conn *c;

	*info = (struct weir_remote_info){
	    .rights = r->rights, .node = r->node, .local = r->local, .mapped = r->mapped};
	pthread_mutex_lock(&w->lock);
	LIST_FOREACH(c, &r->conns, in_remote)
	if (!info->length)
		info->length = atomic_load_explicit(&c->remote_bytes, memory_order_relaxed);
	pthread_mutex_unlock(&w->lock);
}

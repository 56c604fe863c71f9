/* SPDX-License-Identifier: BSD-3-Clause */
/* Opening keys, and closing handles. */
#include "handle.h"
#include "window.h"

#include "client/progress.h"
#include "client/reason.h"
#include "ipc/remote.h"

#include <stdlib.h>

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
	pthread_mutex_init(&r->lock, NULL);
	LIST_INIT(&r->lanes);
	c = weir_remote_make_conn(r, timeout_ms, &rc);
	if (rc == -EAGAIN) /* the first operation makes it */
		rc = 0;
	if (c && r->local && !(flags & WEIR_OPEN_APART))
		weir_remote_map(r);
	if (c && timeout_ms) {
		rc = weir_remote_await_open(&c, timeout_ms);
		if (rc == -EAGAIN)
			rc = weir_fail(-ETIMEDOUT,
				       "the exporting node has not answered within %d ms; see "
				       "weirctl show nodes, or wait longer",
				       timeout_ms);
	}
	if (rc) {
		weir_lanes_close(r);
		free_remote(r);
		return rc;
	}
	pthread_mutex_lock(&w->remote_lock);
	LIST_INSERT_HEAD(&w->remotes, r, in_session);
	pthread_mutex_unlock(&w->remote_lock);
	*remote = r;
	return 0;
}

void
weir_remote_set_dynamic(struct weir_remote *r)
{
	r->dynamic = true;
}

void
weir_remote_close(struct weir_remote *r)
{
	if (!r || weir_state(r->w) == WEIR_FORKED)
		return;
	pthread_mutex_lock(&r->w->remote_lock);
	LIST_REMOVE(r, in_session);
	pthread_mutex_unlock(&r->w->remote_lock);
	weir_lanes_close(r);
	free_remote(r);
}

void
weir_remotes_free(struct weir *w)
{
	struct weir_remote *r;
	struct weir_export *x;

	while ((r = LIST_FIRST(&w->remotes))) { /* the session frees their connections */
		LIST_REMOVE(r, in_session);
		weir_lanes_free(r);
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
	const struct weir_remote_lane *l;
	struct weir_key_fields k;

	memcpy(&k, r->key.bytes, sizeof(k));
	*info = (struct weir_remote_info){
	    .rights = r->rights, .local = r->local, .mapped = r->direct.at};
	pthread_mutex_lock(&w->lock);
	info->length = r->length;
	info->node = r->node;
	LIST_FOREACH(l, &r->lanes, in_remote)
	if (!info->length && l->conn) {
		/* pairs with the release where OPENED is taken */
		info->length = atomic_load_explicit(&l->conn->remote_bytes, memory_order_acquire);
		info->node = info->length ? l->conn->peer_node : 0;
	}
	pthread_mutex_unlock(&w->lock);
	if (k.node != UINT32_MAX) /* else it was made before its node had an id */
		info->node = (uint16_t)k.node;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Exporting: the data plane makes keys and keeps the exports; the library knows their numbers. */
#include "handle.h"
#include "revoke.h"
#include "window.h"

#include "client/channel.h"
#include "client/reason.h"
#include "client/region.h"
#include "client/wait.h"
#include "ipc/remote.h"

#include <stdlib.h>
#include <string.h>

enum { REVOKE_MS = 10000, REVOKE_NAP_NS = 50000, REVOKE_NAP_MAX_NS = 5000000 };

/* region: NULL for a dynamic export. */
static int export(struct weir *w, const struct weir_region *region, uint64_t offset,
		  uint64_t length, unsigned rights, const struct weir_export_more *more,
		  struct weir_export **x, struct weir_key *key)
{
	struct weir_session_msg m = weir_message(WEIR_MSG_EXPORT), r;
	int fds[WEIR_SESSION_FDS], rc;
	struct weir_thread *t = NULL;
	struct weir_export *made;

	static_assert(WEIR_MAY_NOTIFY == WEIR_RIGHT_NOTIFY, "the same bit");
	static_assert(WEIR_MAY_READ == WEIR_RIGHT_READ && WEIR_MAY_WRITE == WEIR_RIGHT_WRITE &&
			  WEIR_MAY_UPDATE == WEIR_RIGHT_UPDATE &&
			  WEIR_MAY_LOCK == WEIR_RIGHT_LOCK && WEIR_MAY_MAP == WEIR_RIGHT_MAP,
		      "the same bits");
	static_assert(sizeof(key->bytes) == WEIR_KEY_BYTES, "the same bytes");
	if (weir_state(w) != WEIR_UP)
		return weir_gone(w);
	if (!rights || rights & ~(WEIR_RIGHTS_KNOWN | WEIR_RIGHT_MAP))
		return weir_fail(-EINVAL, "no rights, or unknown ones; see WEIR_MAY_* in "
					  "weir/remote.h");
	if (rights & WEIR_MAY_NOTIFY) {
		t = weir_thread_own(w, &rc);
		if (!t)
			return rc;
		weir_lock(t);
		rc = weir_channel_get_all(t, m.export.channel);
		weir_unlock(t);
		if (rc)
			return rc;
	}
	made = calloc(1, sizeof(*made));
	if (!made)
		return weir_fail(-ENOMEM, "no memory for an export; free some");
	m.export.region = region ? region->index : 0;
	m.export.offset = offset;
	m.export.length = length;
	if (more->name)
		memcpy(m.export.name, more->name, strnlen(more->name, WEIR_NAME_MAX - 1));
	if (more->lock_region) {
		m.export.lock_region = more->lock_region->index;
		m.export.lock_offset = more->lock_offset;
		m.export.lock_members = more->lock_members;
	}
	m.export.rights = rights | (rights & WEIR_MAY_MAP ? WEIR_MAY_READ : 0) |
			  (more->by_engine ? WEIR_RIGHT_ALONE : 0);
	rc = weir_request(w, &m, WEIR_MSG_EXPORTED, &r, fds);
	if (rc) {
		free(made);
		return rc;
	}
	made->w = w;
	made->number = r.exported.number;
	made->generation = r.exported.generation;
	made->base = region ? region->addr + offset : NULL;
	made->length = region ? length : WEIR_DYNAMIC_BYTES;
	made->worker = t;
	if (t) /* no other thread takes its place */
		atomic_fetch_add_explicit(&t->users, 1, memory_order_relaxed);
	memcpy(key->bytes, r.exported.key, sizeof(key->bytes));
	pthread_mutex_lock(&w->remote_lock);
	LIST_INSERT_HEAD(&w->exports[made->number % WEIR_EXPORT_LISTS], made, in_session);
	pthread_mutex_unlock(&w->remote_lock);
	*x = made;
	return 0;
}

int
weir_export_with(struct weir_region *region, uint64_t offset, uint64_t length, unsigned rights,
		 const struct weir_export_more *more, struct weir_export **x, struct weir_key *key)
{
	if (!region || !x || !key)
		return weir_fail(-EINVAL, "no region, or no place for handle and key; see "
					  "weir/remote.h");
	return export(region->w, region, offset, length, rights, more, x, key);
}

int
weir_export(struct weir_region *region, uint64_t offset, uint64_t length, unsigned rights,
	    struct weir_export **x, struct weir_key *key)
{
	const struct weir_export_more nothing = {0};

	return weir_export_with(region, offset, length, rights, &nothing, x, key);
}

int
weir_export_dynamic(struct weir *w, unsigned rights, const struct weir_export_more *more,
		    struct weir_export **x, struct weir_key *key)
{
	return export(w, NULL, 0, 0, rights, more, x, key);
}

static int
request_range(struct weir_export *x, struct weir_session_msg *m)
{
	int fds[WEIR_SESSION_FDS], rc;
	struct weir_session_msg r;

	m->range.number = x->number;
	m->range.generation = x->generation;
	do {
		if (weir_state(x->w) != WEIR_UP)
			return weir_gone(x->w);
		rc = weir_request(x->w, m, WEIR_MSG_OK, &r, fds);
		if (rc == -EAGAIN) /* the export ends: engines are being told */
			weir_sleep(REVOKE_NAP_NS);
	} while (rc == -EAGAIN);
	return rc;
}

int
weir_export_attach(struct weir_export *x, const struct weir_region *region, uint64_t offset,
		   uint64_t bytes)
{
	struct weir_session_msg m = weir_message(WEIR_MSG_ATTACH);

	m.range.region = region->index;
	m.range.offset = offset;
	m.range.length = bytes;
	m.range.address = (uintptr_t)region->addr + offset;
	return request_range(x, &m);
}

int
weir_export_detach(struct weir_export *x, uint64_t address)
{
	struct weir_session_msg m = weir_message(WEIR_MSG_DETACH);

	m.range.address = address;
	return request_range(x, &m);
}

int
weir_export_rename(struct weir_export *x, const char *name)
{
	struct weir_session_msg m = weir_message(WEIR_MSG_NAME), r;
	int fds[WEIR_SESSION_FDS];

	if (weir_state(x->w) != WEIR_UP)
		return weir_gone(x->w);
	m.name.number = x->number;
	m.name.generation = x->generation;
	memcpy(m.name.name, name, strnlen(name, sizeof(m.name.name) - 1));
	return weir_request(x->w, &m, WEIR_MSG_OK, &r, fds);
}

int
weir_export_revoke(struct weir_export *x, int timeout_ms)
{
	struct weir_session_msg m = weir_message(WEIR_MSG_REVOKE), r;
	uint64_t begin = weir_clock(), nap = REVOKE_NAP_NS;
	int fds[WEIR_SESSION_FDS], rc;
	struct weir *w;

	if (!x)
		return weir_fail(-EINVAL, "no export; see weir/remote.h");
	w = x->w;
	if (weir_state(w) == WEIR_FORKED)
		return weir_gone(w);
	m.exported.number = x->number;
	m.exported.generation = x->generation;
	do {
		rc = weir_state(w) == WEIR_UP ? weir_request(w, &m, WEIR_MSG_OK, &r, fds) : 0;
		if (rc != -EAGAIN || !timeout_ms ||
		    (timeout_ms > 0 && weir_clock() - begin >= timeout_ms * UINT64_C(1000000)))
			break;
		weir_sleep(nap); /* peers end their WRITEs and READs */
		nap = nap < REVOKE_NAP_MAX_NS ? 2 * nap : nap;
	} while (true);
	/* it ended with its region or its session */
	if (rc == -ENOENT || (rc && weir_state(w) == WEIR_DEAD))
		rc = 0;
	/* an operator ended it, not the session */
	if (rc && rc != -ECONNABORTED)
		return rc;
	pthread_mutex_lock(&w->remote_lock);
	LIST_REMOVE(x, in_session);
	pthread_mutex_unlock(&w->remote_lock);
	if (x->worker)
		atomic_fetch_sub_explicit(&x->worker->users, 1, memory_order_relaxed);
	free(x);
	if (weir_unlikely(weir_state(w) != WEIR_UP))
		weir_threads_release(w);
	return rc;
}

int
weir_revoke(struct weir_export *x)
{
	return weir_export_revoke(x, REVOKE_MS);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Members of a window, as this program accesses them. */
#include "handle.h"

#include "client/reason.h"
#include "client/wait.h"
#include "remote/window.h"

#include <errno.h>
#include <stdlib.h>

/* Of a member of this host: where it and this one write for each other. 0 or -errno. */
static int
open_words(struct weir_window *win, struct window_member *m)
{
	struct weir_remote_info info;
	struct notice_ring *rings;
	struct weir_member is;
	int rc;

	weir_group_member(win->g, m->rank, &is);
	if (!is.local)
		return 0;
	m->on_host = is.on_host;
	rc = board_words(win->board, is.on_host, win->number, &m->words, &rings);
	m->known = weir_remote_words(m->locks);
	weir_remote_info(m->memory, &info);
	/* a notice behind operations of the engine is faster there */
	if (!rc && rings && info.mapped)
		m->ring = &rings[win->board->on_host];
	m->from = &board_own_words(win->board, win->number)->member[is.on_host];
	return rc;
}

/* Lets callers access the part themselves, with the rights of the handle. */
static void
open_direct(const struct weir_window *win, struct window_member *m, uint32_t rights)
{
	struct weir_direct *d = &m->direct;

	static_assert(WEIR_WINDOW_PART_MAX <= UINT64_C(1) << 47, "no product of it overflows");
	*d = weir_remote_direct(m->memory);
	if (!d->at || m->offset > d->bytes || m->bytes > d->bytes - m->offset ||
	    win->args.disp_unit > UINT16_MAX)
		return;
	d->at += m->offset;
	d->bytes = m->bytes;
	m->may_put = rights & WEIR_MAY_WRITE ? m->bytes : 0;
	m->may_get = rights & WEIR_MAY_READ ? m->bytes : 0;
	m->may_update =
	    rights & WEIR_MAY_UPDATE && m->updates == m->memory && !m->turn ? m->bytes : 0;
	m->flush_direct = m->updates == m->memory && m->locks == m->memory &&
			  win->args.kind != WEIR_WINDOW_DYNAMIC;
}

/* Opens what the part says. 0 or -errno: what was opened is in *m. */
static int
open_part(struct weir_window *win, struct window_member *m)
{
	const struct window_args *a = &win->args;
	bool apart = a->flags & WEIR_WINDOW_APART;
	uint32_t flags = apart ? WEIR_OPEN_APART : 0;
	uint32_t own = WEIR_MAY_NOTIFY | (a->flags & WEIR_WINDOW_NO_LOCKS ? 0 : WEIR_MAY_LOCK);
	struct weir_remote_info info;
	struct board_part part;
	bool turns;
	int rc = board_read(win->board, m->rank, win->number, &part);

	if (rc)
		return rc;
	m->offset = part.offset;
	m->bytes = part.bytes;
	turns = part.turns && window_takes_turns(win);
	if (a->kind == WEIR_WINDOW_SHARED) {
		m->memory = win->whole;
		m->updates = win->whole_updates;
		rc = weir_remote_open(win->w, &part.key, own, WEIR_OPEN_APART, -1, &m->locks);
	} else {
		rc = weir_remote_open(win->w, &part.key, a->rights | own, flags, -1, &m->memory);
		m->updates = m->locks = m->memory;
		if (!rc && a->kind == WEIR_WINDOW_DYNAMIC)
			weir_remote_set_dynamic(m->memory);
		else if (!rc && a->flags & WEIR_WINDOW_BY_ENGINE && !apart && !turns)
			rc = weir_remote_open(win->w, &part.key, a->rights, WEIR_OPEN_APART, -1,
					      &m->updates);
	}
	if (!rc && win->board->lines && !apart)
		rc = open_words(win, m);
	if (rc)
		return rc;
	/* the member wrote it */
	weir_remote_info(m->memory, &info);
	if (part.offset > info.length || part.bytes > info.length - part.offset)
		return weir_fail(-EPROTO, "member %u has spoilt its part of the window", m->rank);
	/* no engine updates it in the place of this program */
	if (turns && !info.mapped)
		return weir_fail(-EXDEV,
				 "the part of member %u cannot be mapped here; see the limits of "
				 "address space and mappings",
				 m->rank);
	m->turn = turns ? &m->words->turn : NULL;
	open_direct(win, m, info.rights);
	return 0;
}

static void
close_member(const struct weir_window *win, struct window_member *m)
{
	bool shared = win->args.kind == WEIR_WINDOW_SHARED;

	if (m->locks != m->memory)
		weir_remote_close(m->locks);
	if (!shared && m->updates != m->memory)
		weir_remote_close(m->updates);
	if (!shared)
		weir_remote_close(m->memory);
	pthread_mutex_destroy(&m->acquiring);
	pthread_mutex_destroy(&m->sending);
	free(m);
}

int
window_member_open(struct weir_window *win, uint32_t rank, struct window_member **out)
{
	struct window_member *m = window_member_find(win, rank);
	int rc = 0;

	*out = m;
	if (m)
		return 0;
	if (rank >= weir_group_size(win->g))
		return weir_fail(-EINVAL, "rank %u of %u members", rank, weir_group_size(win->g));
	pthread_mutex_lock(&win->lock);
	m = window_member_find(win, rank);
	if (!m) {
		m = calloc(1, sizeof(*m));
		if (!m)
			rc = weir_fail(-ENOMEM, "no memory for a member of the window; free some");
	}
	if (!rc && !m->memory) {
		m->rank = rank;
		pthread_mutex_init(&m->acquiring, NULL);
		pthread_mutex_init(&m->sending, NULL);
		rc = open_part(win, m);
		if (rc) {
			close_member(win, m);
			window_note(win, rank, rc);
		} else {
			_Atomic(struct window_member *) *first =
			    &win->bucket[rank % WINDOW_BUCKETS];

			m->next = atomic_load_explicit(first, memory_order_relaxed);
			atomic_store_explicit(first, m, memory_order_release);
			m->next_of_all = atomic_load_explicit(&win->all, memory_order_relaxed);
			atomic_store_explicit(&win->all, m, memory_order_release);
		}
	}
	pthread_mutex_unlock(&win->lock);
	*out = rc ? NULL : m;
	return rc;
}

void
window_members_close(struct weir_window *win)
{
	struct window_member *m, *next;

	for (m = window_members(win); m; m = next) {
		next = m->next_of_all;
		close_member(win, m);
	}
}

static void
note(struct weir_window *win, uint32_t rank, int rc)
{
	atomic_store_explicit(&win->failed, (uint64_t)rank << 32 | (uint32_t)-rc,
			      memory_order_relaxed);
}

int
window_note(struct weir_window *win, uint32_t rank, int rc)
{
	if (rc == -ECONNRESET || rc == -EHOSTDOWN || rc == -ESTALE)
		note(win, rank, rc);
	return rc;
}

int
weir_window_error(const struct weir_window *win, uint32_t *rank)
{
	uint64_t failed = atomic_load_explicit(&win->failed, memory_order_relaxed);

	if (!failed)
		return -ENOENT;
	if (rank)
		*rank = (uint32_t)(failed >> 32);
	return -(int)(uint32_t)failed;
}

static int
flush(const struct weir_window *win, struct weir_remote *r, bool local, uint64_t deadline)
{
	int rc = local ? weir_remote_flush_local(r, weir_time_left(deadline))
		       : weir_remote_flush(r, weir_time_left(deadline));

	if (!rc && !(win->args.flags & WEIR_WINDOW_THREADS))
		rc = weir_remote_flush_others(r, weir_time_left(deadline));
	return rc;
}

int
window_member_flush(struct weir_window *win, struct window_member *m, bool local, uint64_t deadline)
{
	int rc;

	if (window_member_flush_direct(m))
		return 0;
	rc = flush(win, m->memory, local, deadline);
	if (!rc && m->updates != m->memory)
		rc = flush(win, m->updates, local, deadline);
	if (!rc && m->locks != m->memory)
		rc = flush(win, m->locks, local, deadline);
	return window_note(win, m->rank, rc);
}

int
window_refusals_of(struct weir_window *win, struct window_member *one)
{
	struct window_member *m;
	int first = 0, rc;

	for (m = one ? one : window_members(win); m; m = one ? NULL : m->next_of_all) {
		rc = weir_remote_refused(m->memory);
		if (rc && !first)
			note(win, m->rank, rc);
		first = first ? first : rc;
	}
	return first;
}

int
window_members_flush(struct weir_window *win, bool local, uint64_t deadline)
{
	struct window_member *m;
	int first = 0, rc;

	for (m = window_members(win); m; m = m->next_of_all) {
		rc = window_member_flush(win, m, local, deadline);
		if (rc == -EAGAIN || rc == -EINTR)
			return rc;
		first = first ? first : rc;
	}
	return first;
}

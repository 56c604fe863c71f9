/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations on memory of this host that the key lets programs map: loads and stores of the calling
 * thread. A connection stays beside the mapping: it counts as an opener, and tells how the export
 * ends.
 */
#define _GNU_SOURCE
#include "handle.h"
#include "window.h"

#include "client/channel.h"
#include "client/progress.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Maps the memory of `fd`; without a mapping cells do. */
static void
map(struct weir_remote *r, int fd, uint64_t bytes)
{
	int access = PROT_READ | (r->rights & WEIR_MAY_WRITE ? PROT_WRITE : 0);
	struct stat file;
	void *at;

	/* sealed: it never shrinks */
	if (!bytes || fstat(fd, &file) || (uint64_t)file.st_size < bytes)
		return;
	/* the whole file, since a part of a huge page cannot be unmapped */
	at = mmap(NULL, (size_t)file.st_size, access, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return;
	madvise(at, (size_t)file.st_size, MADV_DONTFORK);
	r->mapped = at;
	r->mapped_bytes = bytes;
	r->mapped_room = (uint64_t)file.st_size;
}

void
weir_remote_map(struct weir_remote *r)
{
	struct weir_session_msg m = weir_message(WEIR_MSG_MAP), answer;
	int fds[WEIR_SESSION_FDS];

	/* a descriptor lets a program write all, or nothing */
	if (r->rights & WEIR_MAY_UPDATE && !(r->rights & WEIR_MAY_WRITE))
		return;
	m.map.rights = r->rights;
	memcpy(m.map.key, r->key.bytes, sizeof(m.map.key));
	if (!weir_request(r->w, &m, WEIR_MSG_MAPPED, &answer, fds) && fds[0] >= 0)
		map(r, fds[0], answer.mapped.bytes);
	for (unsigned i = 0; i < WEIR_SESSION_FDS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

void
weir_remote_unmap(struct weir_remote *r)
{
	if (r->mapped)
		munmap(r->mapped, r->mapped_room);
	r->mapped = NULL;
}

/* 0, or how session or export ended. */
static int
ended(const struct weir_remote *r)
{
	int end = atomic_load_explicit(&r->first->remote_end, memory_order_relaxed);

	if (weir_unlikely(weir_state(r->w) != WEIR_UP))
		return weir_gone(r->w);
	return weir_likely(!end) ? 0 : weir_remote_ended(r->first, end);
}

int
weir_mapped_refused(const struct weir_remote *r, uint64_t offset, uint64_t length)
{
	int rc = ended(r);

	return rc ? rc : weir_remote_range(r->mapped_bytes, offset, length);
}

int
weir_mapped_flush(struct weir_remote *r)
{
	struct weir_bias_seat *seat = weir_bias_enter(&r->first->worker->lock);
	bool news = false;

	/* stores before it are seen before those after it */
	atomic_thread_fence(memory_order_acq_rel);
	if (weir_likely(seat)) { /* else it is the connection of another thread */
		news = weir_ring_peek(&r->first->pipe->rx);
		weir_bias_leave(seat);
	}
	if (weir_unlikely(news)) {
		weir_lock(r->first->worker);
		weir_channel_progress(r->first->channel, NULL);
		weir_unlock(r->first->worker);
	}
	return ended(r);
}

bool
weir_remote_flushed(struct weir_remote *r)
{
	return r->mapped && !atomic_load_explicit(&r->by_engine, memory_order_relaxed) &&
	       !weir_mapped_flush(r);
}

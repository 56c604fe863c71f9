/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations on memory of this host that the key lets programs map: loads and stores of the calling
 * thread. A connection stays beside the mapping: it counts as an opener, and tells how the export
 * ends.
 */
#define _GNU_SOURCE
#include "handle.h"

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
	r->direct.at = at;
	r->direct.bytes = bytes;
	r->direct.session = &r->w->life->state;
	r->direct.ended = &r->first->desc->status;
	r->direct.by_engine = &r->by_engine;
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
	if (r->direct.at)
		munmap(r->direct.at, r->mapped_room);
	r->direct.at = NULL;
}

int
weir_mapped_ended(const struct weir_remote *r)
{
	uint32_t status;

	if (weir_state(r->w) != WEIR_UP)
		return weir_gone(r->w);
	/* may come before CLOSED, which has the same */
	status = atomic_load_explicit(r->direct.ended, memory_order_relaxed);
	return status ? weir_remote_ended(r->first, -(int)status) : 0;
}

int
weir_mapped_refused(const struct weir_remote *r, uint64_t offset, uint64_t length)
{
	int rc = weir_mapped_ended(r);

	rc = rc ? rc : weir_remote_range(r->direct.bytes, offset, length);
	weir_assert(rc);
	return rc;
}

struct weir_direct
weir_remote_direct(const struct weir_remote *r)
{
	return r->direct;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Segments: our end of memory shared with a thread of a local peer. The peer's writes are not
 * trusted: cursors are private, its tails are only compared, its offsets checked.
 */
#include "segment.h"
#include "reason.h"
#include "session.h"
#include "thread.h"
#include "wait.h"

#include "base/vec.h"
#include "ipc/invariant.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define SPANS_MIN 64u /* of a new segment; a power of two */
#define UNUSED_MAX 4u /* segments without users that a thread keeps */

static bool
power_of_two(uint64_t n)
{
	return n && !(n & (n - 1));
}

static bool
geometry_ok(const struct weir_segment_geometry *g)
{
	/* without an area, messages lie in slots alone */
	bool area = !g->area_bytes || (power_of_two(g->area_bytes) && g->area_bytes >= 4096 &&
				       g->area_bytes <= 1ull << 32);

	return g->version == WEIR_LAYOUT_VERSION && power_of_two(g->ring_slots) &&
	       g->ring_slots >= 32 && g->ring_slots <= 1u << 15 && g->connections &&
	       g->connections <= 1u << 20 && area && weir_segment_end(g) <= g->bytes;
}

static int
map(struct weir_thread *t, const struct weir_session_msg *r, int memory, struct weir_bell bell,
    struct weir_segment **mapped)
{
	struct weir_segment *seg = calloc(1, sizeof(*seg));
	const struct weir_segment_geometry *g = &r->segment_map.geometry;
	uint32_t out = r->segment_map.side, in = 1 - out;
	int rc = -ENOMEM;
	uint8_t *b;
	void *base;

	if (!seg)
		return rc;
	seg->id = r->segment_map.segment;
	seg->side = r->segment_map.side;
	seg->geometry = *g;
	seg->spans = calloc(SPANS_MIN, sizeof(*seg->spans));
	seg->span_room = SPANS_MIN;
	if (!seg->spans)
		goto err_seg;
	base = mmap(NULL, g->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memory, 0);
	if (base == MAP_FAILED) {
		rc = -errno;
		goto err_spans;
	}
	madvise(base, g->bytes, MADV_DONTFORK);
	seg->base = b = base;
	seg->out = (struct weir_segment_side *)(b + weir_segment_side_at(g, out));
	seg->in = (struct weir_segment_side *)(b + weir_segment_side_at(g, in));
	seg->out_conns = (struct weir_segment_conn *)(b + weir_segment_conns_at(g, out));
	seg->in_conns = (struct weir_segment_conn *)(b + weir_segment_conns_at(g, in));
	seg->out_area = b + weir_segment_area_at(g, out);
	seg->in_area = b + weir_segment_area_at(g, in);
	seg->out_limit = g->area_bytes;
	weir_ring_init(&seg->pipe.tx, b + weir_segment_ring_at(g, out), g->ring_slots,
		       &seg->out->tail, true);
	weir_ring_init(&seg->pipe.rx, b + weir_segment_ring_at(g, in), g->ring_slots,
		       &seg->in->tail, false);
	seg->pipe.tx_sleeping = &seg->out->sleeping;
	seg->pipe.rx_sleeping = &seg->in->sleeping;
	TAILQ_INIT(&seg->conns);
	TAILQ_INIT(&seg->to_report);
	seg->pipe.local = true;
	seg->pipe.bell = bell;
	seg->pipe.fence = !(r->segment_map.flags & WEIR_WELCOME_MEMBARRIER);
	seg->pipe.worker = t;
	rc = weir_thread_add_bell(t, &seg->pipe);
	if (rc)
		goto err_map;
	LIST_INSERT_HEAD(&t->segments, seg, next);
	*mapped = seg;
	return 0;
err_map:
	munmap(base, g->bytes);
err_spans:
	free(seg->spans);
err_seg:
	free(seg);
	return rc;
}

void
weir_segment_free(struct weir_segment *seg)
{
	LIST_REMOVE(seg, next);
	weir_bell_close(&seg->pipe.bell);
	if (weir_state(seg->pipe.worker->w) != WEIR_FORKED)
		munmap(seg->base, seg->geometry.bytes);
	free(seg->spans);
	free(seg);
}

/*
 * Frees unused segments if the data plane confirms that no connection will use them. UNUSED_MAX
 * stay, since the same threads often connect again.
 */
static void
drop_unused(struct weir_thread *t)
{
	struct weir_session_msg m = weir_message(WEIR_MSG_DROP_SEGMENT), r;
	struct weir_segment *seg, *next;
	unsigned unused = 0;
	int fds[WEIR_SESSION_FDS];

	for (seg = LIST_FIRST(&t->segments); seg; seg = next) {
		next = LIST_NEXT(seg, next);
		if (seg->users || ++unused <= UNUSED_MAX)
			continue;
		m.segment.segment = seg->id;
		m.segment.side = seg->side;
		if (weir_request(t->w, &m, WEIR_MSG_OK, &r, fds))
			continue;
		weir_thread_remove_bell(t, &seg->pipe);
		weir_segment_free(seg);
	}
}

int
weir_segment_get(struct weir_thread *t, uint32_t id, uint32_t side, struct weir_segment **out)
{
	struct weir_session_msg m = weir_message(WEIR_MSG_SEGMENT), r;
	struct weir_segment *seg;
	struct weir_bell bell;
	int fds[WEIR_SESSION_FDS], rc;

	LIST_FOREACH(seg, &t->segments, next)
	{
		if (seg->id == id && seg->side == side) {
			*out = seg;
			return 0;
		}
	}
	drop_unused(t);
	m.segment.segment = id;
	m.segment.side = side;
	rc = weir_request(t->w, &m, WEIR_MSG_SEGMENT_MAP, &r, fds);
	if (rc)
		return rc;
	bell = weir_bell_of(fds[1], fds[2]);
	if (r.segment_map.segment != id || r.segment_map.side != side || fds[0] < 0 ||
	    bell.wait < 0 || bell.ring < 0 || !geometry_ok(&r.segment_map.geometry))
		rc = -EPROTO;
	else
		rc = map(t, &r, fds[0], bell, out);
	if (fds[0] >= 0)
		close(fds[0]);
	if (rc)
		weir_bell_close(&bell);
	return rc ? weir_fail(rc,
			      "no shared memory with the local peer: %s; free memory or raise the "
			      "limit of open "
			      "files",
			      strerror(-rc))
		  : 0;
}

/* ---- the byte area we write ---- */

/*
 * Bytes to skip before `need` fit in one piece beside what is reserved. Behind an eighth of the
 * area, and if the peer has taken all, to its start: a pair that keeps up uses few cache lines.
 * `need` fits before `at` then, since advance() frees the skipped bytes only later.
 */
static uint64_t
skip_for(const struct weir_segment *seg, uint64_t need, uint64_t *offset)
{
	uint64_t size = seg->geometry.area_bytes, at = seg->out_pos & (size - 1), skip = 0;
	uint64_t from = seg->reserved, to = seg->reserved + seg->reserved_bytes;

	if (at >= size / 8 && need <= at && !seg->reserver &&
	    /* pairs with the release in weir_area_free() and weir_segment_report() */
	    atomic_load_explicit(&seg->out->area_tail, memory_order_acquire) == seg->out_pos) {
		*offset = 0;
		return size - at;
	}
	/* at most to the end, around what is reserved, and to the end again */
	for (int i = 0; i < 3; i++) {
		if (need > size - at) {
			skip += size - at;
			at = 0;
		}
		if (!seg->reserver || at >= to || at + need <= from)
			break;
		skip += to - at;
		at = to;
	}
	*offset = at;
	return skip;
}

/* Whether the next `bytes` are free: 0, -EAGAIN, or -EPROTO (the peer's tail is invalid). */
static int
area_free(struct weir_segment *seg, uint64_t bytes)
{
	uint64_t tail, limit;

	weir_assert(seg->out_pos <= seg->out_limit);
	if (bytes <= seg->out_limit - seg->out_pos)
		return 0;
	/* pairs with the release in weir_segment_report() */
	tail = atomic_load_explicit(&seg->out->area_tail, memory_order_acquire);
	limit = tail + seg->geometry.area_bytes + (tail == seg->skipped_at ? seg->skipped : 0);
	if (tail > seg->out_pos || limit < seg->out_limit)
		return -EPROTO;
	seg->out_limit = limit;
	return bytes <= seg->out_limit - seg->out_pos ? 0 : -EAGAIN;
}

/* Bytes skipped when the peer has taken all are free at once, as in weir_area_arrived(). */
static inline void
advance(struct weir_segment *seg, uint64_t skip, uint64_t need)
{
	if (skip &&
	    atomic_load_explicit(&seg->out->area_tail, memory_order_relaxed) == seg->out_pos) {
		seg->skipped_at = seg->out_pos;
		seg->skipped = skip;
	}
	seg->out_pos += skip + need;
}

static inline uint64_t
area_need(uint32_t bytes)
{
	return WEIR_ALIGN_UP((uint64_t)bytes, WEIR_SLOT_SIZE);
}

bool
weir_area_room(struct weir_segment *seg, uint32_t bytes)
{
	uint64_t need = area_need(bytes), offset;

	/* an invalid tail counts as room: weir_area_take() reports it */
	return area_free(seg, skip_for(seg, need, &offset) + need) != -EAGAIN;
}

int
weir_area_take(struct weir_segment *seg, uint32_t bytes, uint64_t *offset)
{
	uint64_t need = area_need(bytes), skip = skip_for(seg, need, offset);
	int rc = area_free(seg, skip + need);

	if (!rc)
		advance(seg, skip, need);
	return rc;
}

int
weir_area_reserve(struct weir_segment *seg, struct weir_conn *c, uint32_t bytes, uint64_t *offset)
{
	uint64_t need = area_need(bytes), skip;
	int rc;

	if (seg->reserver)
		return -EBUSY;
	skip = skip_for(seg, need, offset);
	rc = area_free(seg, skip + need);
	if (rc)
		return rc;
	seg->reserver = c;
	seg->reserved = *offset;
	seg->reserved_bytes = need;
	return 0;
}

int
weir_area_take_reserved(struct weir_segment *seg, uint32_t bytes, uint64_t *offset)
{
	uint64_t need = area_need(bytes);
	uint64_t skip = (seg->reserved - seg->out_pos) & (seg->geometry.area_bytes - 1);
	int rc = area_free(seg, skip + need);

	weir_assert(seg->reserver);
	if (rc)
		return rc;
	*offset = seg->reserved;
	advance(seg, skip, need);
	seg->reserver = NULL;
	return 0;
}

/* ---- the byte area we read ---- */

int
weir_area_arrived(struct weir_segment *seg, uint64_t offset, uint64_t bytes, uint64_t *span)
{
	uint64_t size = seg->geometry.area_bytes, start, end, freed;
	uint32_t count = (uint32_t)(seg->span_tail - seg->span_head);

	if (offset % WEIR_SLOT_SIZE || offset >= size || !bytes || bytes > size - offset)
		return -EPROTO;
	start = seg->in_pos + ((offset - seg->in_pos) & (size - 1));
	end = start + WEIR_ALIGN_UP(bytes, WEIR_SLOT_SIZE);
	/* bytes skipped while nothing before them is left are free at once, as in advance() */
	freed = seg->in_free == seg->in_pos ? start : seg->in_free;
	if (end - freed > size)
		return -EPROTO;
	if (RING_RESERVE(seg->spans, seg->span_room, (uint32_t)seg->span_head, count, SPANS_MIN))
		return -ENOMEM;
	*span = seg->span_tail++;
	seg->spans[*span & (seg->span_room - 1)] = (struct weir_span){.end = end};
	seg->in_free = freed;
	seg->in_pos = end;
	return 0;
}

void
weir_area_free(struct weir_segment *seg, uint64_t span)
{
	uint32_t mask = seg->span_room - 1;

	weir_assert(span - seg->span_head < seg->span_tail - seg->span_head);
	seg->spans[span & mask].free = true;
	seg->pipe.untold = true;
	seg->pipe.empty = 0; /* reported to the peer when nothing else arrives */
	while (seg->span_head != seg->span_tail && seg->spans[seg->span_head & mask].free)
		seg->in_free = seg->spans[seg->span_head++ & mask].end;
	/*
	 * In another eighth of the area than reported: the sender must not run out of room while
	 * this thread is busy, and begins again at the start behind the first one.
	 */
	if ((seg->in_free ^ seg->in_reported) >= seg->geometry.area_bytes / 8) {
		seg->in_reported = seg->in_free;
		/* pairs with the acquire in area_free() and skip_for() */
		atomic_store_explicit(&seg->in->area_tail, seg->in_free, memory_order_release);
	}
}

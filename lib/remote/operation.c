/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations: cells written into the channel of the thread's connection (ipc/remote.h). An engine
 * reports their completion in the connection's descriptor, and puts their answers into the send
 * heap (result.c). Long ones are cut into several cells.
 */
#include "operation.h"
#include "notice.h"
#include "window.h"

#include "client/channel.h"
#include "client/progress.h"
#include "client/reason.h"
#include "client/region.h"
#include "client/send_heap.h"
#include "client/wait.h"
#include "stream/channel_progress.h"
#include "stream/ctrl_slots.h"
#include "stream/parts.h"

#include "weir/stream.h"

/* Bytes of a transfer whose memory is of the send heap. */
#define PIECE (256u << 10)

static uint32_t
cell_slots(const struct todo *d, uint32_t units)
{
	return weir_cell_slots(d->op, d->described + units * d->packed);
}

uint64_t
weir_todo_slots(const struct todo *d)
{
	uint32_t rest = (uint32_t)(d->left % d->most);

	return d->left / d->most * cell_slots(d, d->most) + (rest ? cell_slots(d, rest) : 0);
}

int
weir_remote_room(struct weir_conn *c, uint64_t n)
{
	struct weir_ring *tx = &c->pipe->tx;

	weir_assert(weir_worker_locked(c->worker));
	if (weir_unlikely(c->control & CTRL_UNLOCK)) {
		weir_ctrl_flush(c->channel);
		if (c->control & CTRL_UNLOCK)
			return -EAGAIN;
	}
	n += WEIR_CONTROL_RESERVE; /* beside the control slots */
	if (weir_likely(weir_ring_room(tx) >= n))
		return 0;
	if (!weir_ring_refresh(tx))
		return -EPROTO;
	return weir_ring_room(tx) >= n ? 0 : -EAGAIN;
}

/* Publishes the cell at the ring's position. */
static void
publish(struct weir_conn *c, struct weir_slot *s, uint8_t op, uint32_t length)
{
	struct weir_ring *tx = &c->pipe->tx;

	weir_slot_whose(s, c->vqpn, length);
	weir_ring_publish_what(tx, s, weir_cell_slots(op, length),
			       weir_slot_what(op, 0, (uint16_t)c->sent));
	c->sent++;
	c->sent_bytes += length;
	weir_pipe_published(c->pipe);
}

void
weir_cell_write(struct weir_conn *c, uint8_t op, const void *cell)
{
	struct weir_ring *tx = &c->pipe->tx;
	struct weir_slot *s = weir_ring_at(tx, tx->pos);

	memcpy(s->data, cell, sizeof(s->data));
	publish(c, s, op, 0);
}

/* Writes a cell, for which there is room. Worker locked. */
static void
put_cell(struct weir_conn *c, const struct todo *d, uint32_t units)
{
	uint32_t length = d->described + units * d->packed, fields = weir_cell_fields(d->op);
	struct weir_cell_put put = {.handle = WEIR_HANDLE_FIRST,
				    .options = d->described ? WEIR_PUT_LAYOUT : 0,
				    .offset = d->cell.offset};
	struct weir_ring *tx = &c->pipe->tx;
	struct weir_slot *s = weir_ring_at(tx, tx->pos);
	const void *head = &put;
	struct iovec parts[2];

	static_assert(sizeof(d->cell) == sizeof(put), "either fills the head");
	if (d->notice)
		head = d->notice;
	else if (d->op != WEIR_OP_PUT)
		head = &d->cell;
	if (length <= sizeof(s->data) - fields) {
		memcpy(s->data, head, fields);
		if (length)
			memcpy(s->data + fields, d->from, length);
	} else {
		parts[0] = (struct iovec){(void *)(uintptr_t)head, fields};
		parts[1] = (struct iovec){(void *)(uintptr_t)d->from, length};
		weir_parts_put(tx, parts, fields + length);
	}
	publish(c, s, d->op, length);
}

/* Bytes of the send heap that a transfer may take: others need some, too. */
static uint32_t
piece_of(const struct weir_conn *c)
{
	uint64_t most = (uint64_t)c->worker->w->geometry.send_blocks / 4 * WEIR_BLOCK_SIZE;

	if (most > PIECE)
		most = PIECE;
	return most > WEIR_BLOCK_SIZE ? (uint32_t)most : WEIR_BLOCK_SIZE;
}

/*
 * Memory of the send heap for the next transfer, of *length bytes or half of that, and so on. A put
 * is copied there, a get from there. 0, -EAGAIN, -ENOMEM.
 */
static int
heap_place(struct weir_conn *c, const struct todo *d, uint32_t *length, weir_place *place)
{
	uint32_t block, at;
	int rc = -EAGAIN;

	if (d->from && weir_notes_room(&c->blocks))
		return weir_fail(-ENOMEM, "no memory to note a put; free some");
	for (;; *length = (*length / 2 + WEIR_BLOCK_SIZE - 1) / WEIR_BLOCK_SIZE * WEIR_BLOCK_SIZE) {
		if (d->from) {
			block = weir_heap_take(c->worker, *length);
			if (block != WEIR_BLOCK_NONE)
				break;
		} else {
			rc = weir_result_reserve(c, *length, NULL, &at);
			if (rc != -EAGAIN)
				break;
		}
		if (d->flags & WEIR_NOWAIT || *length <= WEIR_BLOCK_SIZE)
			return -EAGAIN;
	}
	if (!d->from) {
		*place = WEIR_PLACE(0, (uint64_t)at * WEIR_SLOT_SIZE);
		return rc;
	}
	*place = WEIR_PLACE(0, weir_heap_offset(c->worker->w, block));
	memcpy(c->worker->w->arena + WEIR_PLACE_OFFSET(*place), d->from, *length);
	weir_notes_put(&c->blocks, c->sent, block);
	return 0;
}

/* Writes the next transfer. 0, -EAGAIN, or an error. */
static int
put_transfer(struct weir_conn *c, struct todo *d)
{
	struct weir_cell_transfer t = {.handle = WEIR_HANDLE_FIRST, .offset = d->cell.offset};
	uint64_t most = WEIR_TRANSFER_MAX;
	struct weir_ring *tx = &c->pipe->tx;
	const uint8_t *at = d->to ? d->to : d->from;
	struct weir_region *r = NULL;
	struct weir_slot *s;
	uint32_t length;
	int rc = weir_remote_room(c, 1);

	if (rc)
		return rc;
	/* memory of the program that its NICs know, if the operation may use it */
	if (d->to)
		r = weir_region_use(c->worker->w, d->to, d->left, WEIR_ADOPT_RECV);
	else if (d->flags & WEIR_KEEP)
		r = weir_region_use(c->worker->w, d->from, d->left, WEIR_ADOPT_SEND);
	if (!r)
		most = piece_of(c);
	length = (uint32_t)(d->left < most ? d->left : most);
	if (d->flags & WEIR_NOWAIT && length < d->left)
		rc = weir_fail(-EMSGSIZE,
			       "%llu bytes never find room at once; ask for %llu, or without "
			       "WEIR_NOWAIT",
			       (unsigned long long)d->left, (unsigned long long)most);
	else if (!r)
		rc = heap_place(c, d, &length, &t.place);
	else if (weir_notes_room(&c->blocks))
		rc = weir_fail(-ENOMEM, "no memory to note a transfer; free some");
	if (rc) {
		if (r)
			weir_region_drop(r);
		return rc;
	}
	if (r) {
		t.place = WEIR_PLACE(r->index, at - r->addr);
		weir_notes_put(&c->blocks, c->sent, NOTE_REGION | (uintptr_t)r);
		c->kept_upto = c->sent + 1;
	} else if (d->to) {
		weir_result_await(c, c->sent, d->to);
	}
	t.options =
	    (d->to ? WEIR_TRANSFER_GET : 0) | (d->flags & WEIR_BEHIND ? WEIR_TRANSFER_BEHIND : 0);
	s = weir_ring_at(tx, tx->pos);
	memcpy(s->data, &t, sizeof(t));
	weir_slot_whose(s, c->vqpn, length);
	weir_ring_publish_what(tx, s, 1, weir_slot_what(WEIR_OP_TRANSFER, 0, (uint16_t)c->sent));
	c->sent++;
	c->sent_bytes += length;
	weir_pipe_published(c->pipe);
	d->from += d->from ? length : 0;
	d->to += d->to ? length : 0;
	d->cell.offset += length;
	d->left -= length;
	d->flags &= ~WEIR_BEHIND; /* the rest is behind this part */
	return 0;
}

/* Writes the next cell. 0, -EAGAIN, or an error. */
static int
put_next(struct weir_conn *c, struct todo *d)
{
	uint32_t units = d->left < d->most ? (uint32_t)d->left : d->most;
	uint32_t answer = d->to ? units * d->unit : 0;
	int rc = weir_remote_room(c, cell_slots(d, units));

	if (!rc && d->notice)
		rc = weir_notice_pay(c, d->notice);
	if (rc)
		return rc;
	if (d->op != WEIR_OP_PUT)
		d->cell.count = units;
	if (answer) {
		rc = weir_result_reserve(c, answer, d->scatter, &d->cell.result);
		if (rc)
			return rc;
		weir_result_await(c, c->sent, d->to);
		d->to += answer;
	}
	put_cell(c, d, units);
	if (d->from)
		d->from += units * d->packed;
	d->cell.offset += units * d->unit;
	d->left -= units;
	return 0;
}

/* Whether WRITEs or READs do what d says next. */
static bool
by_transfer(const struct weir_conn *c, const struct todo *d)
{
	if (!c->transfers || (d->op != WEIR_OP_PUT && d->op != WEIR_OP_GET) ||
	    d->flags & WEIR_RING || d->scatter || d->described)
		return false;
	/* all parts begin at once, or none: put_now() */
	if (d->next && d->flags & WEIR_NOWAIT)
		return false;
	return d->left > WEIR_PUT_ORDERED || d->flags & (WEIR_READ | WEIR_WRITE);
}

/* Whether d has something left to write. */
static bool
has_more(const struct weir_conn *c, struct todo *d)
{
	if (d->left)
		return true;
	if (!d->next || !d->next(d))
		return false;
	d->transfer = by_transfer(c, d);
	return true;
}

/* Writes what there is room for. 0, -EAGAIN, or an error. Worker locked. */
static int
put_some(struct weir_conn *c, struct todo *d)
{
	int rc = 0;

	if (weir_ring_peek(&c->pipe->rx))
		weir_channel_progress(c->channel, NULL);
	if (c->results) {
		weir_conn_update_completed(c);
		weir_results_take(c);
	}
	while (!rc && has_more(c, d)) {
		if (weir_unlikely(c->send_error))
			return c->send_error == -EAGAIN ? -EAGAIN : weir_remote_ended(c, c->end);
		rc = d->transfer ? put_transfer(c, d) : put_next(c, d);
	}
	if (rc == -EPROTO)
		return weir_fail(rc, "the data plane spoilt the shared memory; attach again");
	return rc;
}

void
weir_remote_ask_done(struct weir_conn *c)
{
	if (c->flush_asked == c->sent)
		return;
	c->flush_asked = c->sent;
	weir_ctrl_add(c, CTRL_FLUSH);
}

/* The program comes again: the engine, which tells of room seldom, tells of all that there is. */
static void
ask_room(struct weir_conn *c)
{
	bool asked;

	weir_channel_progress(c->channel, NULL);
	if (c->send_error)
		return;
	asked = c->needs_room;
	c->blocked = true;
	weir_ctrl_need_room(c);
	if (!asked)
		weir_ctrl_wake(c->channel);
}

/* The same; where room lacks, the engine is asked for it. */
static int
put_or_ask(struct weir_conn *c, struct todo *d)
{
	int rc;

	weir_progress(c->worker, NULL);
	rc = put_some(c, d);
	if (rc != -EAGAIN || !weir_conn_is_open(c))
		return rc;
	c->blocked = true;
	if (!d->notice || !weir_notice_awaits_window(c))
		weir_ctrl_need_room(c);
	if (weir_results_last(c) || c->blocks.head != c->blocks.tail)
		weir_remote_ask_done(c);
	return rc;
}

/* Waits for room, until all is written. */
static int
put_waiting(struct weir_conn *c, struct todo *d)
{
	struct weir_thread *t = c->worker;
	struct weir_wait wait;
	int rc;

	weir_wait_init(&wait, t, -1);
	do {
		weir_lock(t);
		rc = put_or_ask(c, d);
		weir_unlock(t);
		if (rc != -EAGAIN)
			break;
		rc = weir_wait_next(&wait);
	} while (!rc);
	weir_wait_end(&wait);
	return rc;
}

/* Whether an operation can wait for nothing: it may be begun in parts. Worker locked. */
static int
put_now(struct weir_conn *c, const struct todo *d)
{
	struct weir_ring *tx = &c->pipe->tx;
	uint64_t most = tx->mask + 1u - WEIR_CONTROL_RESERVE, slots, answers;

	if (d->next) {
		slots = weir_transfer_slots(d, most, &answers);
	} else {
		slots = weir_todo_slots(d);
		answers = d->to && d->left > d->most ? 2 : 1;
	}
	if (slots > most || answers > 1)
		return weir_fail(-EMSGSIZE, "that many bytes never find room at once; ask for "
					    "less, or without WEIR_NOWAIT");
	if (d->next && weir_transfer_delivers(d) && !weir_notice_has_window(c))
		return -EAGAIN;
	return weir_remote_room(c, slots);
}

/* Puts and gets on memory that is mapped are complete when they return. */
static inline int
put_mapped(struct weir_remote *r, uint64_t offset, const void *from, uint64_t length)
{
	uint8_t *at = weir_mapped_at(r, offset, length);

	if (weir_unlikely(!at))
		return weir_mapped_refused(r, offset, length);
	if (weir_likely(length))
		weir_store_whole(at, from, length);
	return 0;
}

static inline int
get_mapped(struct weir_remote *r, uint64_t offset, void *to, uint64_t length)
{
	const uint8_t *at = weir_mapped_at(r, offset, length);

	if (weir_unlikely(!at))
		return weir_mapped_refused(r, offset, length);
	if (weir_likely(length))
		weir_load_whole(to, at, length);
	return 0;
}

/* So are all other operations there. */
static int
access_mapped(struct weir_remote *r, const struct todo *d, uint64_t length)
{
	enum weir_type type = (enum weir_type)d->cell.type;
	uint8_t *at;
	int rc;

	if (d->op == WEIR_OP_PUT)
		return put_mapped(r, d->cell.offset, d->from, length);
	if (d->op == WEIR_OP_GET)
		return get_mapped(r, d->cell.offset, d->to, length);
	at = weir_mapped_at(r, d->cell.offset, length);
	if (weir_unlikely(!at))
		return weir_mapped_refused(r, d->cell.offset, length);
	if (!length)
		return 0;
	if (d->op == WEIR_OP_CAS)
		rc = weir_apply_compare_swap(type, at, d->from, d->from + d->unit, d->to);
	else
		rc = weir_apply(type, (enum weir_acc)d->cell.acc, at, d->from, d->to, d->left);
	weir_assert(!rc); /* the region is aligned, and so is the offset */
	return rc;
}

int
weir_operation_check(const struct weir_remote *r, uint32_t rights, unsigned flags)
{
	uint32_t lacks = rights & ~r->rights;
	unsigned known = WEIR_FLAGS_KNOWN;

	if (rights & WEIR_MAY_WRITE)
		known |= WEIR_RING | WEIR_WRITE;
	else if (rights & WEIR_MAY_READ)
		known |= WEIR_RING | WEIR_READ;
	if (weir_unlikely(flags & ~known))
		return weir_fail(-EINVAL, "unknown flag 0x%x; see weir/remote.h", flags & ~known);
	if (weir_unlikely(flags & WEIR_RING && flags & (WEIR_READ | WEIR_WRITE)))
		return weir_fail(-EINVAL, "more than one method in the flags; give one, or none "
					  "and Weir chooses");
	if (weir_unlikely(lacks))
		return weir_fail(-EACCES, "opened without %s; open it with that",
				 lacks & WEIR_MAY_WRITE	   ? "WEIR_MAY_WRITE"
				 : lacks & WEIR_MAY_READ   ? "WEIR_MAY_READ"
				 : lacks & WEIR_MAY_NOTIFY ? "WEIR_MAY_NOTIFY"
							   : "WEIR_MAY_UPDATE");
	return 0;
}

int
weir_operation_conn(struct weir_remote *r, unsigned flags, struct weir_conn **c, uint64_t *bytes)
{
	int rc;

	if (r->direct.at)
		atomic_store_explicit(&r->by_engine, true, memory_order_relaxed);
	*c = weir_remote_make_conn(r, flags & WEIR_NOWAIT ? 0 : -1, &rc);
	if (weir_unlikely(!*c))
		return rc;
	if (weir_unlikely((*c)->state == CONN_OPENING)) {
		rc = weir_remote_await_open(c, flags & WEIR_NOWAIT ? 0 : -1);
		if (rc)
			return rc;
	}
	if (weir_unlikely((*c)->state == CONN_ENDED))
		return weir_remote_ended(*c, (*c)->end);
	*bytes = atomic_load_explicit(&(*c)->remote_bytes, memory_order_relaxed);
	return 0;
}

int
weir_operation_run(struct weir_conn *c, struct todo *d, unsigned flags)
{
	int rc;

	weir_lock(c->worker);
	d->flags = flags;
	d->transfer = by_transfer(c, d);
	rc = flags & WEIR_NOWAIT && !c->send_error && !d->transfer ? put_now(c, d) : 0;
	if (!rc)
		rc = put_some(c, d);
	else if (rc == -EAGAIN)
		ask_room(c);
	weir_unlock(c->worker);
	if (weir_unlikely(rc == -EAGAIN && !(flags & WEIR_NOWAIT)))
		rc = put_waiting(c, d);
	return rc;
}

/* Begins an operation that has been checked. `op`: ends with it, if `awaited`, or now. */
static int
begin(struct weir_remote *r, struct todo *d, unsigned flags, struct weir_op *op, bool awaited)
{
	uint64_t length = d->left <= UINT64_MAX / d->unit ? d->left * d->unit : UINT64_MAX;
	bool wide = weir_todo_is_wide(d);
	struct weir_conn *c = NULL;
	uint64_t whole = 0;
	int rc;

	if (r->direct.at && !d->notice && !wide) {
		rc = access_mapped(r, d, length);
	} else {
		rc = weir_operation_conn(r, flags, &c, &whole);
		if (!rc)
			rc = weir_remote_range(whole, d->cell.offset, length);
		if (!rc)
			rc = weir_operation_run(c, d, flags);
		if (!rc && r->direct.at && wide)
			rc = weir_operation_await(c, c->sent, -1);
	}
	if (weir_likely(!rc))
		weir_op_begun(op, awaited ? c : NULL);
	return rc;
}

static int
no_memory(void)
{
	return weir_fail(-EINVAL, "no memory for the bytes; see weir/remote.h");
}

static __attribute__((noinline)) int
put_any(struct weir_remote *r, uint64_t offset, const void *buf, size_t length, unsigned flags)
{
	struct todo d = {.op = WEIR_OP_PUT,
			 .cell.offset = offset,
			 .from = buf,
			 .left = length,
			 .unit = 1,
			 .packed = 1,
			 .most = WEIR_PUT_MAX};
	int rc = weir_operation_check(r, WEIR_MAY_WRITE, flags);

	if (!rc && !buf && length)
		rc = no_memory();
	return rc ? rc : begin(r, &d, flags, NULL, false);
}

/*
 * An operation that fits a slot, on the calling thread's open connection with room: most of
 * programs that make many. `fields`: those of its cell. `to`: gets the answer, of `bytes` bytes;
 * NULL: there is none. False: nothing was done.
 */
static inline __attribute__((always_inline)) bool
cell_quickly(struct weir_remote *r, uint8_t op, void *fields, uint64_t offset, uint32_t bytes,
	     const void *buf, uint32_t length, void *to)
{
	/* pairs with the release in lane_of() */
	struct weir_remote_lane *l = atomic_load_explicit(&r->recent, memory_order_acquire);
	struct weir_bias_seat *seat;
	struct weir_cell_access *access = fields;
	struct weir_slot *s;
	struct weir_conn *c;
	struct weir_ring *tx;
	uint64_t whole;

	if (!l || l->worker != weir_thread_get(r->w) || weir_state(r->w) != WEIR_UP)
		return false;
	seat = weir_bias_enter(&l->worker->lock);
	if (weir_unlikely(!seat))
		return false;
	c = l->conn;
	if (weir_unlikely(!c)) {
		weir_bias_leave(seat);
		return false;
	}
	if (to)
		c->worker->lock.held = seat;
	weir_lane_use(l);
	tx = &c->pipe->tx;
	whole = atomic_load_explicit(&c->remote_bytes, memory_order_relaxed);
	if (weir_unlikely(c->state != CONN_OPEN || c->send_error || c->control & CTRL_UNLOCK ||
			  offset > whole || bytes > whole - offset ||
			  weir_ring_room(tx) < 1 + WEIR_CONTROL_RESERVE ||
			  (to && weir_result_reserve(c, bytes, NULL, &access->result)))) {
		weir_bias_leave(seat);
		return false;
	}
	if (to)
		weir_result_await(c, c->sent, to);
	s = weir_ring_at(tx, tx->pos);
	weir_ring_prefetch(weir_ring_at(tx, tx->pos + WEIR_RING_AHEAD));
	memcpy(s->data, fields, weir_cell_fields(op));
	if (length == sizeof(uint64_t))
		memcpy(s->data + weir_cell_fields(op), buf, sizeof(uint64_t));
	else if (op != WEIR_OP_GET)
		memcpy(s->data + weir_cell_fields(op), buf, length);
	weir_slot_whose(s, c->vqpn, length);
	weir_ring_publish_what(tx, s, 1, weir_slot_what(op, 0, (uint16_t)c->sent));
	c->sent++;
	c->sent_bytes += length;
	weir_pipe_published(c->pipe);
	weir_bias_leave(seat);
	return true;
}

/* Out of line, so that calls on mapped memory save no registers for it. */
static __attribute__((noinline, nonnull(3))) int
put_cells(struct weir_remote *r, uint64_t offset, const void *buf, size_t length, unsigned flags)
{
	struct weir_cell_put put;

	put.handle = WEIR_HANDLE_FIRST;
	put.options = 0;
	put.offset = offset;
	if (length && length <= sizeof(put.payload) &&
	    cell_quickly(r, WEIR_OP_PUT, &put, offset, (uint32_t)length, buf, (uint32_t)length,
			 NULL))
		return 0;
	return put_any(r, offset, buf, length, flags);
}

int
weir_remote_put(struct weir_remote *r, uint64_t offset, const void *buf, size_t length,
		unsigned flags)
{
	if (weir_unlikely(!buf || flags & ~WEIR_NOWAIT || !(r->rights & WEIR_MAY_WRITE)))
		return put_any(r, offset, buf, length, flags);
	return r->direct.at ? put_mapped(r, offset, buf, length)
			    : put_cells(r, offset, buf, length, flags);
}

static __attribute__((noinline)) int
get_any(struct weir_remote *r, uint64_t offset, void *buf, size_t length, unsigned flags)
{
	struct todo d = {.op = WEIR_OP_GET,
			 .cell = {.handle = WEIR_HANDLE_FIRST, .offset = offset},
			 .to = buf,
			 .left = length,
			 .unit = 1,
			 .most = WEIR_ANSWER_MAX};
	int rc = weir_operation_check(r, WEIR_MAY_READ, flags);

	if (!rc && !buf && length)
		rc = no_memory();
	return rc ? rc : begin(r, &d, flags, NULL, false);
}

/* As put_cells(). */
static __attribute__((noinline, nonnull(3))) int
get_cells(struct weir_remote *r, uint64_t offset, void *buf, size_t length, unsigned flags)
{
	struct weir_cell_access cell;

	cell.handle = WEIR_HANDLE_FIRST;
	cell.type = 0;
	cell.acc = 0;
	cell.options = 0;
	cell.offset = offset;
	cell.count = (uint32_t)length;
	if (length && length <= WEIR_SLOT_SIZE &&
	    cell_quickly(r, WEIR_OP_GET, &cell, offset, (uint32_t)length, NULL, 0, buf))
		return 0;
	return get_any(r, offset, buf, length, flags);
}

int
weir_remote_get(struct weir_remote *r, uint64_t offset, void *buf, size_t length, unsigned flags)
{
	if (weir_unlikely(!buf || flags & ~WEIR_NOWAIT || !(r->rights & WEIR_MAY_READ)))
		return get_any(r, offset, buf, length, flags);
	return r->direct.at ? get_mapped(r, offset, buf, length)
			    : get_cells(r, offset, buf, length, flags);
}

int
weir_notice_begin(struct weir_remote *r, const struct weir_cell_notice *n, unsigned flags)
{
	struct todo d = {.op = WEIR_OP_NOTICE, .notice = n, .left = 1, .unit = 1, .most = 1};
	int rc = weir_operation_check(r, WEIR_MAY_NOTIFY, flags);

	if (rc)
		return rc;
	if (n->options & WEIR_NOTICE_SIGNALS) {
		d.cell.offset = n->signal;
		d.unit = sizeof(n->operand);
		if (n->signal % sizeof(n->operand))
			return weir_fail(-EINVAL,
					 "invalid signal offset %llu (expected a multiple of 8)",
					 (unsigned long long)n->signal);
	}
	return begin(r, &d, flags, NULL, false);
}

/* ---- elements ---- */

int
weir_elements_check(uint32_t type, uint64_t offset)
{
	size_t align = weir_type_align((enum weir_type)type);

	if (!align)
		return weir_fail(-EINVAL, "unknown type %u; see weir/type.h", type);
	if (offset % align)
		return weir_fail(
		    -EINVAL,
		    "invalid offset %llu (expected a multiple of %zu, the type's alignment)",
		    (unsigned long long)offset, align);
	return 0;
}

static bool
update_quickly(struct weir_remote *r, const struct weir_update *u)
{
	size_t size = weir_type_size((enum weir_type)u->type);
	struct weir_cell_access cell;

	if (u->reserved || u->there || u->handle || !u->operand || !u->count ||
	    u->flags & ~WEIR_NOWAIT || !(r->rights & WEIR_MAY_UPDATE) || u->op == WEIR_ACC_NO_OP ||
	    !weir_acc_valid((enum weir_type)u->type, (enum weir_acc)u->op) ||
	    u->count > sizeof(cell.payload) / size ||
	    u->offset % weir_type_align((enum weir_type)u->type))
		return false;
	cell.handle = WEIR_HANDLE_FIRST;
	cell.type = (uint8_t)u->type;
	cell.acc = (uint8_t)u->op;
	cell.options = u->result ? WEIR_ACCESS_RESULT : 0;
	cell.offset = u->offset;
	cell.result = 0;
	cell.count = (uint32_t)u->count;
	size *= u->count;
	return cell_quickly(r, WEIR_OP_UPDATE, &cell, u->offset, (uint32_t)size, u->operand,
			    (uint32_t)size, u->result);
}

/* An update of mapped memory by CPU instructions. 1: it is none, or invalid, and nothing was done.
 */
static int
update_mapped(struct weir_remote *r, const struct weir_update *u)
{
	enum weir_type type = (enum weir_type)u->type;
	enum weir_acc op = (enum weir_acc)u->op;
	uint64_t bytes;
	uint8_t *at;

	if (u->reserved || u->there || u->handle || u->flags & ~WEIR_NOWAIT ||
	    (!u->operand && op != WEIR_ACC_NO_OP) || !u->count || !(r->rights & WEIR_MAY_UPDATE) ||
	    weir_type_is_wide(type) ||
	    __builtin_mul_overflow(u->count, weir_type_size(type), &bytes))
		return 1;
	at = weir_mapped_at(r, u->offset, bytes);
	if (weir_unlikely(!at))
		return weir_mapped_refused(r, u->offset, bytes);
	return weir_apply(type, op, at, u->operand, u->result, u->count) ? 1 : 0;
}

static __attribute__((noinline)) int
update_any(struct weir_remote *r, const struct weir_update *u)
{
	struct todo d = {.op = WEIR_OP_UPDATE};
	int rc;

	if (!u || u->reserved)
		return weir_fail(-EINVAL, "no update, or `reserved` is not 0; see weir/remote.h");
	if (u->handle)
		*u->handle = (struct weir_op){0};
	rc = weir_operation_check(r, WEIR_MAY_UPDATE, u->flags);
	if (!rc)
		rc = weir_elements_check(u->type, u->offset);
	if (rc)
		return rc;
	if (!weir_acc_valid((enum weir_type)u->type, (enum weir_acc)u->op) ||
	    (!u->operand && u->op != WEIR_ACC_NO_OP))
		return weir_fail(-EINVAL,
				 "operation %u is not defined for type %u, or its operands "
				 "lack; see weir/type.h",
				 u->op, u->type);
	d.unit = (uint32_t)weir_type_size((enum weir_type)u->type);
	d.packed = u->op == WEIR_ACC_NO_OP ? 0 : d.unit;
	d.most = WEIR_ACCESS_MAX / d.unit;
	d.from = d.packed ? u->operand : NULL;
	d.to = u->result;
	d.left = u->count;
	d.cell = (struct weir_cell_access){.handle = WEIR_HANDLE_FIRST,
					   .type = (uint8_t)u->type,
					   .acc = (uint8_t)u->op,
					   .options = u->result ? WEIR_ACCESS_RESULT : 0,
					   .offset = u->offset};
	if (u->there)
		return weir_update_pieces(r, u, &d);
	return begin(r, &d, u->flags, u->handle,
		     u->result || u->flags & (WEIR_AT_TARGET | WEIR_KEEP));
}

int
weir_remote_update(struct weir_remote *r, const struct weir_update *u)
{
	int rc;

	if (weir_likely(u && !r->direct.at))
		return update_quickly(r, u) ? 0 : update_any(r, u);
	rc = u ? update_mapped(r, u) : 1;
	return rc <= 0 ? rc : update_any(r, u);
}

int
weir_remote_fetch_op(struct weir_remote *r, uint64_t offset, const void *operand, void *result,
		     enum weir_type type, enum weir_acc op, unsigned flags)
{
	struct weir_update u = {.offset = offset,
				.operand = operand,
				.result = result,
				.count = 1,
				.type = type,
				.op = op,
				.flags = flags};

	if (!result)
		return weir_fail(-EINVAL, "no memory for the value; see weir/remote.h");
	return weir_remote_update(r, &u);
}

int
weir_remote_compare_swap(struct weir_remote *r, uint64_t offset, const void *compare,
			 const void *operand, void *result, enum weir_type type, unsigned flags)
{
	struct todo d = {.op = WEIR_OP_CAS, .left = 1, .most = 1};
	uint8_t both[2 * sizeof(uint64_t)], *at;
	int rc;

	if (!compare || !operand || !result)
		return weir_fail(-EINVAL, "compare, operand or result lacks; see weir/remote.h");
	if (r->direct.at && r->rights & WEIR_MAY_UPDATE && !(flags & ~WEIR_NOWAIT)) {
		at = weir_mapped_at(r, offset, weir_type_size(type));
		if (weir_unlikely(!at))
			return weir_mapped_refused(r, offset, weir_type_size(type));
		if (!weir_apply_compare_swap(type, at, compare, operand, result))
			return 0;
	} /* else invalid: why, is found below */
	rc = weir_operation_check(r, WEIR_MAY_UPDATE, flags);
	if (!rc)
		rc = weir_elements_check(type, offset);
	if (rc)
		return rc;
	if (!weir_type_swaps(type))
		return weir_fail(-EINVAL, "type %u is neither an integer nor BOOL nor BYTE", type);
	d.unit = (uint32_t)weir_type_size(type);
	d.packed = 2 * d.unit;
	memcpy(both, compare, d.unit);
	memcpy(both + d.unit, operand, d.unit);
	d.from = both;
	d.to = result;
	d.cell = (struct weir_cell_access){
	    .handle = WEIR_HANDLE_FIRST, .type = (uint8_t)type, .offset = offset};
	return begin(r, &d, flags, NULL, false);
}

/* ---- completion ---- */

int
weir_operation_look(struct weir_remote_lane *l, uint64_t all, bool ask)
{
	struct weir_thread *t = l->worker;
	struct weir_conn *c;
	int rc;

	weir_lock(t);
	if (all <= l->before) {
		weir_unlock(t);
		return 1;
	}
	c = l->conn;
	all -= l->before;
	weir_progress(t, NULL);
	weir_conn_update_completed(c);
	weir_results_take(c);
	if (c->completed >= all)
		rc = 1;
	else if (c->state == CONN_ENDED)
		rc = weir_remote_ended(c, c->end);
	else
		rc = 0;
	/* DONE then comes for all that was sent before */
	if (!rc && ask)
		weir_remote_ask_done(c);
	weir_unlock(t);
	return rc;
}

/* Operations of the lane up to `all`. Out of line: flushes that wait for nothing are many. */
static __attribute__((noinline)) int
await_lane(struct weir_remote_lane *l, uint64_t all, int timeout_ms)
{
	struct weir_wait wait;
	int rc;

	weir_wait_init(&wait, l->worker, timeout_ms);
	rc = weir_operation_look(l, all, true);
	while (!rc) {
		rc = weir_wait_next(&wait);
		if (!rc)
			rc = weir_operation_look(l, all, false);
	}
	weir_wait_end(&wait);
	return rc > 0 ? 0 : rc;
}

/* Whether the last operation is a lock for which the thread waits: none goes behind it. */
static bool
awaits_lock(const struct weir_conn *c)
{
	return c->lock_upto == c->sent && c->lock_upto > c->completed &&
	       !(c->control & CTRL_UNLOCK);
}

int
weir_lane_ask_refusals(struct weir_remote_lane *l)
{
	struct todo d = {.op = WEIR_OP_GET,
			 .cell = {.handle = WEIR_HANDLE_FIRST, .offset = WEIR_DYNAMIC_REFUSALS},
			 .to = (uint8_t *)&l->refusals,
			 .left = sizeof(l->refusals),
			 .unit = 1,
			 .most = WEIR_ANSWER_MAX};
	int rc;

	weir_assert(weir_worker_locked(l->worker) && l->conn);
	weir_conn_update_completed(l->conn);
	if (l->asked == l->before + l->conn->sent || awaits_lock(l->conn))
		return 0;
	rc = put_or_ask(l->conn, &d);
	if (!rc)
		l->asked = l->before + l->conn->sent;
	return rc;
}

void
weir_lane_count_refusals(struct weir_remote_lane *l)
{
	atomic_fetch_add_explicit(&l->remote->refused, l->refusals - l->refusals_counted,
				  memory_order_relaxed);
	l->refusals_counted = l->refusals;
}

/* Completes the operations of a lane to a dynamic export, and counts those that were refused. */
static int
flush_dynamic(struct weir_remote_lane *l, int timeout_ms)
{
	uint64_t end = weir_time_end(timeout_ms), all = 0;
	struct weir_wait wait;
	int rc;

	weir_wait_init(&wait, l->worker, timeout_ms);
	do {
		weir_lock(l->worker);
		rc = l->conn ? weir_lane_ask_refusals(l) : 0;
		if (!rc)
			all = l->before + (l->conn ? l->conn->sent - awaits_lock(l->conn) : 0);
		weir_unlock(l->worker);
		if (rc != -EAGAIN)
			break;
		rc = weir_wait_next(&wait);
	} while (!rc);
	weir_wait_end(&wait);
	if (!rc)
		rc = await_lane(l, all, weir_time_left(end));
	if (rc)
		return rc;
	weir_lock(l->worker);
	weir_lane_count_refusals(l);
	weir_unlock(l->worker);
	return 0;
}

int
weir_remote_refused(struct weir_remote *r)
{
	uint64_t n =
	    r->dynamic ? atomic_exchange_explicit(&r->refused, 0, memory_order_relaxed) : 0;

	return n ? weir_fail(-ERANGE,
			     "%llu operations were not within the ranges that the member has "
			     "attached",
			     (unsigned long long)n)
		 : 0;
}

int
weir_operation_await(struct weir_conn *c, uint64_t all, int timeout_ms)
{
	return await_lane(c->remote, c->remote->before + all, timeout_ms);
}

int
weir_remote_flush_others(struct weir_remote *r, int timeout_ms)
{
	const struct weir_thread *own;
	uint64_t end, all;
	struct weir_remote_lane *l;
	int rc = 0;

	if (weir_state(r->w) == WEIR_FORKED)
		return weir_gone(r->w);
	if (r->direct.at && !atomic_load_explicit(&r->by_engine, memory_order_relaxed))
		return 0; /* stores of other threads are complete when their calls return */
	own = weir_thread_get(r->w);
	end = weir_time_end(timeout_ms);
	/* lanes stay as long as the handle; new ones come in front */
	pthread_mutex_lock(&r->lock);
	l = LIST_FIRST(&r->lanes);
	pthread_mutex_unlock(&r->lock);
	for (; l && !rc; l = LIST_NEXT(l, in_remote)) {
		if (l->worker == own)
			continue;
		if (r->dynamic) {
			rc = flush_dynamic(l, weir_time_left(end));
			continue;
		}
		weir_lock(l->worker);
		all = l->before + (l->conn ? l->conn->sent : 0);
		if (l->conn && awaits_lock(l->conn)) /* which may take long */
			all--;
		weir_unlock(l->worker);
		rc = await_lane(l, all, weir_time_left(end));
	}
	return rc;
}

int
weir_remote_flush(struct weir_remote *r, int timeout_ms)
{
	struct weir_conn *c;
	int rc;

	if (weir_state(r->w) == WEIR_FORKED)
		return weir_gone(r->w);
	if (weir_unlikely(r->direct.at)) {
		if (weir_direct_flush(&r->direct))
			return 0;
		rc = weir_mapped_ended(r);
		if (rc)
			return rc;
	}
	c = weir_remote_conn(r);
	if (!c)
		return 0;
	if (weir_unlikely(r->dynamic))
		return flush_dynamic(c->remote, timeout_ms);
	if (weir_remote_completed(c) == c->sent && !weir_results_last(c))
		return 0;
	return weir_operation_await(c, c->sent, timeout_ms);
}

int
weir_remote_flush_local(struct weir_remote *r, int timeout_ms)
{
	struct weir_conn *c;
	uint64_t last;
	int rc;

	if (weir_state(r->w) == WEIR_FORKED)
		return weir_gone(r->w);
	if (r->direct.at) {
		if (weir_direct_flush(&r->direct))
			return 0;
		rc = weir_mapped_ended(r);
		if (rc)
			return rc;
	}
	c = weir_remote_conn(r);
	last = c ? weir_results_last(c) : 0;
	if (c && c->kept_upto > weir_remote_completed(c) && c->kept_upto > last)
		last = c->kept_upto;
	return last ? weir_operation_await(c, last, timeout_ms) : 0;
}

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

/* No send block is free, and none of the connection's own will be. */
static bool
starves(const struct weir_conn *c)
{
	return atomic_load_explicit(&c->worker->starved, memory_order_relaxed) &&
	       !weir_remote_has_blocks(c);
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
		if (weir_unlikely(rc == -EAGAIN && starves(c) && weir_lanes_give_blocks(c->worker)))
			rc = 0;
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

int
weir_operation_try(struct weir_conn *c, struct todo *d)
{
	int rc;

	weir_progress(c->worker, NULL);
	rc = put_some(c, d);
	if (rc != -EAGAIN || !weir_conn_is_open(c))
		return rc;
	c->blocked = true;
	if (!d->notice || !weir_notice_awaits_window(c))
		weir_ctrl_need_room(c);
	if (weir_remote_has_blocks(c))
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
		rc = weir_operation_try(c, d);
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

/* So are all other operations there. */
static int
access_mapped(struct weir_remote *r, const struct todo *d, uint64_t length)
{
	enum weir_type type = (enum weir_type)d->cell.type;
	uint8_t *at;
	int rc;

	if (d->op == WEIR_OP_PUT)
		return weir_put_mapped(r, d->cell.offset, d->from, length);
	if (d->op == WEIR_OP_GET)
		return weir_get_mapped(r, d->cell.offset, d->to, length);
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

int
weir_operation_begin(struct weir_remote *r, struct todo *d, unsigned flags, struct weir_op *op,
		     bool awaited)
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
	return weir_operation_begin(r, &d, flags, NULL, false);
}

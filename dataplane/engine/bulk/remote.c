/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations on remote memory. Both engines check each one on a private copy of its head: a program
 * that writes a wrong one ends, and so does the connection of a peer. The payload is not copied
 * first, unless it begins with a layout: its sender decides anyway which bytes it stores.
 */
#include "remote.h"
#include "answer.h"
#include "batch.h"
#include "cell.h"
#include "credit.h"
#include "ctrl_line.h"
#include "deliver.h"
#include "events.h"
#include "execute.h"
#include "export.h"
#include "link.h"
#include "lock.h"
#include "notice.h"
#include "region.h"
#include "scheduler.h"
#include "send_queue.h"
#include "slot_head.h"
#include "state.h"

/*
 * Operations without a layout are taken in runs of one connection and one op, all answered or none,
 * except those of wide types. Fields that all of a run have in common are checked once; PUTs have
 * none.
 */
struct run_kind {
	struct weir_cell_access is; /* one that is ok */
	uint32_t length;	    /* bytes of operands */
	uint32_t bytes, align;	    /* of the memory; of an element */
	uint32_t answer;	    /* bytes; 0: none */
	bool cheap;		    /* no operation that is charged more than its lines */
};

#define NO_KIND                                                                                    \
	{                                                                                          \
		.length = UINT32_MAX /* no cell is that long: all of its fields may be 0 */        \
	}

static bool
kind_ok(const struct conn *c, uint8_t op, const struct weir_cell_access *a, uint32_t length,
	struct run_kind *kind)
{
	uint32_t right = op == WEIR_OP_GET ? WEIR_RIGHT_READ : WEIR_RIGHT_UPDATE;
	static const struct cell_laid bare;

	if (a->handle != WEIR_HANDLE_FIRST || a->options & ~WEIR_ACCESS_RESULT ||
	    !(c->cold->memory.rights & right))
		return false;
	if (op == WEIR_OP_GET ? !cell_get_ok(a, length)
			      : weir_type_is_wide((enum weir_type)a->type) ||
				    !cell_elements_ok(op, a, &bare, length))
		return false;
	if (kind->cheap && cell_charge_of(op, a))
		return false;
	*kind = (struct run_kind){
	    .is = *a,
	    .length = length,
	    .bytes = (uint32_t)cell_bytes(op, a),
	    .align = op == WEIR_OP_GET ? 1 : (uint32_t)weir_type_align((enum weir_type)a->type),
	    .cheap = kind->cheap,
	};
	if (op != WEIR_OP_UPDATE || a->options)
		kind->answer = kind->bytes;
	return true;
}

/* Whether c may do this operation of a run, and at which offset. */
static inline __attribute__((always_inline)) bool
run_ok(const struct conn *c, uint8_t op, bool answered, const uint8_t *data, uint32_t length,
       struct run_kind *kind, uint64_t *offset)
{
	uint64_t whole = c->cold->memory.direct;
	struct weir_cell_access a;
	struct put_fields put;

	if (op == WEIR_OP_PUT) {
		put = put_fields(data);
		*offset = put.offset;
		return put_ok(c, &put, length, whole);
	}
	memcpy(&a, data, WEIR_ACCESS_FIELDS);
	atomic_signal_fence(memory_order_seq_cst);
	*offset = a.offset;
	if (memcmp(&a, &kind->is, offsetof(struct weir_cell_access, offset)) != 0 ||
	    a.count != kind->is.count || length != kind->length)
		if (!kind_ok(c, op, &a, length, kind) || answered != !!kind->answer)
			return false;
	return !(a.offset & (kind->align - 1)) && a.offset <= whole &&
	       kind->bytes <= whole - a.offset;
}

/* ---- the beginning end ---- */

void
remote_sent(struct peer_link *l, const struct conn *c)
{
	if (UNLIKELY(c->done_at && c->sent == c->done_at) && !answers_last(c))
		l->prompt = true;
}

/* The program awaits DONE: credit for what has left is asked for now, or with the last one. */
static enum take
take_flush(struct engine *e, struct channel *ch, struct conn *c)
{
	weir_ring_pop(&ch->tx, 1);
	if (c->completed >= c->taken) {
		app_event(e, c, APP_DONE);
	} else if (conn_is_open(c) || c->state == CONN_LOCAL) {
		c->done_at = c->taken;
		if (c->sent == c->taken && c->link && !answers_last(c)) {
			c->link->prompt = true;
			link_busy(e, c->link);
		}
	} /* else CLOSED answers */
	return TAKEN_DEAR;
}

/* Room for an answer in the program's send area, as the cell says. NULL: it says nonsense. */
static uint8_t *
result_at(const struct session *s, const struct weir_slot *cell, uint32_t answer)
{
	struct weir_cell_access access;
	struct weir_cell_lock lock;
	const uint8_t *at;
	uint64_t place;

	if (cell->op == WEIR_OP_LOCK) {
		memcpy(&lock, cell->data, sizeof(lock));
		place = lock.result;
	} else {
		memcpy(&access, cell->data, sizeof(access));
		place = access.result;
	}
	at = session_source(s, WEIR_PLACE(0, place * WEIR_SLOT_SIZE), answer);
	return (uint8_t *)(uintptr_t)at;
}

/* Puts the operation into the open frame. False: it can't leave now. */
static bool
send_operation(struct engine *e, struct channel *ch, struct conn *c, const struct weir_slot *cell,
	       uint32_t n, uint32_t answer, enum room *room)
{
	struct peer_link *l = c->link;
	struct weir_slot *to;

	if (c->state != CONN_OPEN || c->pend_first || !l || c->session->limited ||
	    !list_empty(&l->active))
		return false;
	*room = link_room_of(e, l, c->session, n, 0);
	if (*room != ROOM)
		return false;
	if (!answer_pay(c, answer)) {
		if (UNLIKELY(l->split)) /* its lines are paid when it leaves, out of the queue */
			queue_of(c->session, l, RING)->lines += (int32_t)n;
		return false;
	}
	to = link_put_line(l);
	memcpy(to, cell, sizeof(*to));
	to->vqpn = c->peer_vqpn;
	to->order = (uint16_t)c->cold->memory.cells++;
	if (answer)
		answer_await(c, c->sent, to, answer);
	if (cell->op == WEIR_OP_LOCK)
		lock_await(c, to);
	for (uint32_t i = 1; i < n; i++)
		memcpy(link_put_line(l), weir_ring_at(&ch->tx, ch->tx.pos + i), WEIR_SLOT_SIZE);
	if (UNLIKELY(l->split))
		queue_of(c->session, l, RING)->lines -= (int32_t)cell_charge(cell);
	credit_spend(c, message_cost(cell));
	link_count(l, c, 1);
	link_sent(l, c, 1, false);
	remote_sent(l, c);
	return true;
}

/* For one `op`, whose checks are compiled into the loop. */
static inline __attribute__((always_inline)) unsigned
take_run(struct engine *e, struct channel *ch, struct conn *c, const struct weir_slot *slot,
	 uint64_t end, uint8_t op, bool answered)
{
	uint32_t cells = 0, lines = 0, most;
	struct peer_link *l = c->link;
	struct weir_ring r = ch->tx;
	uint64_t bytes = 0, room, a, to, offset;
	struct run_kind kind = NO_KIND;

	if (c->kind != CONN_MEMORY || conn_is_passive(c) || c->state != CONN_OPEN ||
	    c->user_closed || c->pend_first || !l || c->session->limited ||
	    !list_empty(&l->active) || l->tx_pos >= l->tx_limit || !lock_may_begin(c, op))
		return 0;
	room = l->tx_limit - l->tx_pos;
	if (UNLIKELY(l->split)) {
		kind.cheap = true; /* send_operation() charges the others */
		if (room > share_lines(l, c->session))
			room = share_lines(l, c->session);
	}
	most = (uint32_t)(room < end - r.pos ? room : end - r.pos);
	a = head_word(op, (uint16_t)c->taken);
	to = head_word(op, (uint16_t)c->cold->memory.cells);
	do {
		struct head_words h = head_words(slot);
		uint32_t length = (uint32_t)(h.b >> 32), n;
		struct weir_slot *line;

		if ((h.a & ~HEAD_SEQ) != a || (uint32_t)h.b != c->vqpn ||
		    !weir_cell_length_ok(op, length))
			break;
		n = weir_cell_slots(op, length);
		if (n > most - lines)
			break;
		copy_to_batch(l, l->tx_pos + lines, &r, to, head_whose(c->peer_vqpn, length), n);
		line = link_at(l, l->tx_pos + lines);
		/* remote_take() says what is wrong */
		if (!run_ok(c, op, answered, line->data, length, &kind, &offset))
			break;
		if (answered) {
			if (!result_at(c->session, line, kind.answer) ||
			    !answer_pay(c, kind.answer))
				break;
			answer_await(c, c->sent + cells, line, kind.answer);
		}
		r.pos += n;
		lines += n;
		cells++;
		bytes += length;
		a += HEAD_NEXT;
		to += HEAD_NEXT;
		slot = weir_ring_peek(&r);
	} while (slot);
	if (!cells)
		return 0;
	l->tx_pos += lines;
	c->cold->memory.cells += cells;
	if (UNLIKELY(l->split))
		queue_of(c->session, l, RING)->lines -= lines;
	link_count(l, c, cells);
	link_sent(l, c, cells, false);
	remote_sent(l, c);
	channel_taken(e, ch, c, cells, lines, bytes);
	return cells;
}

static __attribute__((noinline)) unsigned
take_puts(struct engine *e, struct channel *ch, struct conn *c, const struct weir_slot *slot,
	  uint64_t end)
{
	return take_run(e, ch, c, slot, end, WEIR_OP_PUT, false);
}

static __attribute__((noinline)) unsigned
take_updates(struct engine *e, struct channel *ch, struct conn *c, const struct weir_slot *slot,
	     uint64_t end)
{
	return take_run(e, ch, c, slot, end, WEIR_OP_UPDATE, false);
}

static __attribute__((noinline)) unsigned
take_gets(struct engine *e, struct channel *ch, struct conn *c, const struct weir_slot *slot,
	  uint64_t end)
{
	return take_run(e, ch, c, slot, end, WEIR_OP_GET, true);
}

static __attribute__((noinline)) unsigned
take_fetches(struct engine *e, struct channel *ch, struct conn *c, const struct weir_slot *slot,
	     uint64_t end, uint8_t op)
{
	return take_run(e, ch, c, slot, end, op, true);
}

/* A hint, from memory that may change: of an UPDATE. */
static bool
seems_answered(const struct weir_slot *slot)
{
	return ((const struct weir_cell_access *)(const void *)slot->data)->options;
}

unsigned
remote_take_run(struct engine *e, struct channel *ch, struct conn *c, const struct weir_slot *slot,
		uint64_t end)
{
	switch (head_load(slot).op) {
	case WEIR_OP_PUT:
		return take_puts(e, ch, c, slot, end);
	case WEIR_OP_GET:
		return take_gets(e, ch, c, slot, end);
	case WEIR_OP_CAS:
		return take_fetches(e, ch, c, slot, end, WEIR_OP_CAS);
	case WEIR_OP_UPDATE:
		if (seems_answered(slot))
			return take_fetches(e, ch, c, slot, end, WEIR_OP_UPDATE);
		return take_updates(e, ch, c, slot, end);
	}
	return 0;
}

enum take
remote_take(struct engine *e, struct channel *ch, struct conn *c, const struct weir_slot *slot)
{
	struct cell_at at = {ch->tx.slots, ch->tx.mask, ch->tx.pos - ch->tx.base};
	enum room room = ROOM;
	struct weir_slot cell;
	uint8_t *result = NULL;
	uint32_t n, answer, stored;
	struct cell_laid laid;

	line_load(&cell, slot);
	if (cell.vqpn != c->vqpn || cell.order != (uint16_t)c->taken)
		return channel_refuse(e, ch, "slot changed after it was published");
	if (c->kind != CONN_MEMORY || conn_is_passive(c) || c->state == CONN_OPENING ||
	    c->user_closed)
		return channel_refuse(e, ch, "operation on a connection without memory");
	if (cell.op == WEIR_OP_FLUSH)
		return take_flush(e, ch, c);
	if (cell.op == WEIR_OP_TRANSFER)
		return transfer_take(e, ch, c, &cell);
	if (!weir_op_is_cell(cell.op) || !weir_cell_length_ok(cell.op, cell.length) || cell.flags ||
	    !cell_ok(c, &cell, &at, &laid)) {
		if (c->cold->memory.export)
			export_count_refused(e, c->cold->memory.export);
		return channel_refuse(e, ch, "operation outside its memory or its rights");
	}
	if (!lock_may_begin(c, cell.op))
		return channel_refuse(e, ch,
				      "operation while it waits for a lock, or a lock that "
				      "it has, or has not");
	if (conn_is_open(c) || c->state == CONN_LOCAL)
		if (c->granted - c->spent < (uint64_t)c->pend_cost + message_cost(&cell))
			return channel_refuse(e, ch, "notice beyond its window");
	n = weir_cell_slots(cell.op, cell.length);
	answer = cell_answer_bytes(&cell);
	stored = cell.op == WEIR_OP_LOCK ? sizeof(weir_lock_status) : answer;
	if (stored)
		result = result_at(c->session, &cell, stored);
	if (stored && !result)
		return channel_refuse(e, ch, "answer outside the send area");
	if (c->state == CONN_LOCAL) {
		lock_begun(c, cell.op);
		if (cell.op == WEIR_OP_LOCK)
			lock_await(c, &cell);
		credit_spend(c, message_cost(&cell));
		execute_cell(e, c, &cell, &at, &laid, result);
		e->cost += cell_charge(&cell);
		if (UNLIKELY(!c->cold->memory.export->alone_from) &&
		    (cell.op == WEIR_OP_UPDATE || cell.op == WEIR_OP_CAS ||
		     cell.op == WEIR_OP_NOTICE))
			e->cost += WIDE_LINES; /* it may have waited for another engine */
		channel_taken(e, ch, c, 1, n, cell.length);
		c->bytes += answer;
		c->sent++;
		conn_completed(e, c, 1, false);
		return TAKEN;
	}
	if (c->state == CONN_PEER_GONE || c->state == CONN_DEAD) {
		lock_begun(c, cell.op);
		channel_taken(e, ch, c, 1, n, cell.length);
		return TAKEN_DEAR;
	}
	if (!send_operation(e, ch, c, &cell, n, answer, &room)) {
		if (room == ROOM_LATER)
			return STAYS;
		if (!pend_message(e, c, ch, head_load(&cell), 0, &cell)) {
			ch->blocked = true;
			return STAYS;
		}
	}
	lock_begun(c, cell.op);
	channel_taken(e, ch, c, 1, n, cell.length);
	return TAKEN;
}

/* ---- the executing end ---- */

/* Executes the UPDATE or CAS of a run; its operands are in `line` and behind `at`. */
static inline __attribute__((always_inline)) void
run_update(const struct export *x, uint8_t op, uint8_t *to, const struct weir_cell_access *a,
	   const struct weir_slot *line, uint32_t length, const struct cell_at *at, uint8_t *result)
{
	uint8_t more[WEIR_ACCESS_MAX];
	const uint8_t *operands = line->data + WEIR_ACCESS_FIELDS;

	if (length > sizeof(a->payload)) {
		cell_copy_payload(more, WEIR_OP_UPDATE, length, line->data, at);
		operands = more;
	}
	if (op == WEIR_OP_UPDATE)
		execute_apply(x, x->updating, a, to, operands, result, a->count);
	else
		execute_swap(x, x->updating, a, to, operands, length / 2, result);
}

/*
 * Executes the cells of one connection from pos on that make up a run. Returns their lines, 0 if
 * the first one is not as it should be, or needs more than a line for its answer.
 */
static inline __attribute__((always_inline)) uint32_t
receive_run(struct engine *e, struct peer_link *l, uint64_t pos, uint64_t end, uint8_t op,
	    bool answered)
{
	const struct weir_slot *ring = l->rx;
	uint32_t mask = l->rx_mask, cells = 0;
	struct head_words h = head_words(&ring[pos & mask]);
	struct conn *c = conn_find(e, (uint32_t)h.b);
	struct run_kind kind = NO_KIND;
	uint64_t first = pos, bytes = 0, back = 0, a, offset;
	uint8_t *answer = NULL;
	struct export *x;

	if (!c || c->link != l || !conn_is_open(c) || !conn_is_passive(c) ||
	    !c->cold->memory.export || !lock_in_turn(c, op))
		return 0;
	x = c->cold->memory.export;
	a = head_word(op, (uint16_t)c->rx_messages);
	while (pos < end) {
		const struct weir_slot *line = &ring[pos & mask];
		uint32_t length, n;

		h = head_words(line);
		length = (uint32_t)(h.b >> 32);
		if ((h.a & ~HEAD_SEQ) != a || (uint32_t)h.b != c->vqpn ||
		    !weir_cell_length_ok(op, length))
			break;
		n = weir_cell_slots(op, length);
		if (n > end - pos || !run_ok(c, op, answered, line->data, length, &kind, &offset))
			break;
		if (answered) {
			answer = answer_put_line(e, c, kind.answer);
			if (!answer)
				break;
			back += kind.answer;
		}
		if (op == WEIR_OP_PUT)
			execute_put_store(x->base + offset, line->data + WEIR_PUT_FIELDS, length,
					  ring, mask, pos);
		else if (op == WEIR_OP_GET)
			weir_load_whole(answer, x->base + offset, kind.bytes);
		else
			run_update(x, op, x->base + offset, &kind.is, line, length,
				   &(struct cell_at){ring, mask, pos}, answer);
		pos += n;
		cells++;
		bytes += length;
		a += HEAD_NEXT;
	}
	if (op == WEIR_OP_PUT) {
		x->counters.puts += cells;
		x->counters.bytes_put += bytes;
	} else if (op == WEIR_OP_GET) {
		x->counters.gets += cells;
		x->counters.bytes_got += back;
	} else {
		x->counters.updates += cells;
		if (cells && x->rights & WEIR_RIGHT_NOTIFY)
			notice_wake(e, x);
	}
	if (answered && cells)
		link_busy(e, l);
	execute_count(e, op, cells, op == WEIR_OP_GET ? back : bytes);
	c->bytes += bytes + back;
	c->rx_messages += cells;
	c->by_send += l->rx_send ? cells : 0;
	return (uint32_t)(pos - first);
}

static __attribute__((noinline)) uint32_t
receive_puts(struct engine *e, struct peer_link *l, uint64_t pos, uint64_t end)
{
	return receive_run(e, l, pos, end, WEIR_OP_PUT, false);
}

static __attribute__((noinline)) uint32_t
receive_updates(struct engine *e, struct peer_link *l, uint64_t pos, uint64_t end)
{
	return receive_run(e, l, pos, end, WEIR_OP_UPDATE, false);
}

static __attribute__((noinline)) uint32_t
receive_gets(struct engine *e, struct peer_link *l, uint64_t pos, uint64_t end)
{
	return receive_run(e, l, pos, end, WEIR_OP_GET, true);
}

static __attribute__((noinline)) uint32_t
receive_fetches(struct engine *e, struct peer_link *l, uint64_t pos, uint64_t end, uint8_t op)
{
	return receive_run(e, l, pos, end, op, true);
}

int
remote_receive(struct engine *e, struct peer_link *l, uint64_t pos, uint64_t end)
{
	struct cell_at at = {l->rx, l->rx_mask, pos};
	uint8_t result[WEIR_ANSWER_MAX];
	struct weir_slot cell;
	uint32_t n = 0, answer;
	struct cell_laid laid;
	struct export *x;
	struct conn *c;
	bool executes;

	switch (head_load(&l->rx[pos & l->rx_mask]).op) {
	case WEIR_OP_PUT:
		n = receive_puts(e, l, pos, end);
		break;
	case WEIR_OP_UPDATE:
		if (seems_answered(&l->rx[pos & l->rx_mask]))
			n = receive_fetches(e, l, pos, end, WEIR_OP_UPDATE);
		else
			n = receive_updates(e, l, pos, end);
		break;
	case WEIR_OP_GET:
		n = receive_gets(e, l, pos, end);
		break;
	case WEIR_OP_CAS:
		n = receive_fetches(e, l, pos, end, WEIR_OP_CAS);
		break;
	}
	if (n)
		return (int)n;
	line_load(&cell, &l->rx[pos & l->rx_mask]);
	if (!weir_op_is_cell(cell.op) || !weir_cell_length_ok(cell.op, cell.length))
		return -1;
	n = weir_cell_slots(cell.op, cell.length);
	c = conn_find(e, cell.vqpn);
	if (n > end - pos || !c || c->link != l || c->state == CONN_OPENING)
		return -1;
	/* a stream has other fields there, which its peer fills */
	executes = c->kind == CONN_MEMORY && conn_is_passive(c);
	x = executes ? c->cold->memory.export : NULL;
	if (!conn_is_open(c) || (executes && !x)) { /* it has ended at our side */
		count(&e->counters.stray, 1);
		ctrl_line_hold(c);
	} else if (!executes || cell.order != (uint16_t)c->rx_messages ||
		   !cell_ok(c, &cell, &at, &laid) || !lock_in_turn(c, cell.op) ||
		   c->rx_granted - c->rx_delivered < message_cost(&cell)) {
		if (x)
			export_count_refused(e, x);
		peer_misbehaved(e, c);
	} else {
		answer = cell_answer_bytes(&cell);
		execute_cell(e, c, &cell, &at, &laid, result);
		c->bytes += cell.length + answer;
		c->rx_messages++;
		c->by_send += l->rx_send;
		if (answer && !answer_put(e, c, result, answer))
			return -1; /* it has asked for more than it was granted */
	}
	return (int)n;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations on remote memory. Both engines check each one on a private copy of its head: a program
 * that writes a wrong one ends, and so does the connection of a peer. The payload is not copied
 * first, unless it begins with a layout: its sender decides anyway which bytes it stores.
 */
#include "remote.h"
#include "answer.h"
#include "batch.h"
#include "credit.h"
#include "ctrl_line.h"
#include "deliver.h"
#include "dynamic.h"
#include "events.h"
#include "export.h"
#include "link.h"
#include "lock.h"
#include "notice.h"
#include "region.h"
#include "scheduler.h"
#include "send_queue.h"
#include "slot_head.h"
#include "state.h"

#include "ipc/apply.h"
#include "ipc/pieces.h"

#include <sched.h>

enum {
	WIDE_LINES = 8, /* lines that cost the executing engine as much as a wide type's detour */
};

/* The fields of a PUT before its payload. */
struct put_fields {
	uint32_t handle, options;
	uint64_t offset;
};
static_assert(sizeof(struct put_fields) == WEIR_PUT_FIELDS, "the start of struct weir_cell_put");

/* Copied once, as its memory may be a program's or a peer's. */
static inline struct put_fields
put_fields(const uint8_t *data)
{
	struct put_fields put;

	memcpy(&put, data, sizeof(put));
	atomic_signal_fence(memory_order_seq_cst);
	return put;
}

/* Whether the connection may put `length` bytes there, within `whole`. */
static inline bool
put_ok(const struct conn *c, const struct put_fields *put, uint32_t length, uint64_t whole)
{
	return put->handle == WEIR_HANDLE_FIRST && !put->options &&
	       c->cold->memory.rights & WEIR_RIGHT_WRITE && put->offset <= whole &&
	       length <= whole - put->offset;
}

/* Where the slots of a cell are: at `pos` of a ring. */
struct at {
	const struct weir_slot *ring;
	uint32_t mask;
	uint64_t pos;
};

/* The memory of a cell with a layout, and its payload. */
struct laid {
	uint32_t head; /* bytes of the payload that describe it; 0: the cell has no layout */
	struct weir_pieces pieces;
	uint8_t payload[WEIR_PUT_MAX];
};

/* `data`: that of the head, which may be in private memory. */
static void
copy_payload(uint8_t *to, uint8_t op, uint32_t left, const uint8_t *data, const struct at *at)
{
	uint32_t fields = weir_cell_fields(op), part = WEIR_SLOT_HEAD_BYTES - fields;
	uint64_t pos = at->pos;

	part = left < part ? left : part;
	memcpy(to, data + fields, part);
	for (to += part, left -= part; left; to += part, left -= part) {
		const void *more = &at->ring[++pos & at->mask];

		part = left < WEIR_SLOT_MORE_BYTES ? left : WEIR_SLOT_MORE_BYTES;
		memcpy(to, ((const struct weir_slot_more *)more)->data, part);
	}
}

/* Copies the payload of a cell with a layout, and reads the layout. False: it is malformed. */
static bool
lay(struct laid *laid, const struct weir_slot *head, const struct at *at)
{
	copy_payload(laid->payload, head->op, head->length, head->data, at);
	laid->head = weir_pieces_get(&laid->pieces, laid->payload, head->length);
	return laid->head;
}

/* Whether `bytes` at an offset, or at the pieces of a layout, lie within the export. */
static bool
within(const struct conn *c, const struct laid *laid, uint64_t offset, uint64_t bytes)
{
	uint64_t whole = c->cold->memory.length;

	if (laid->head)
		return weir_pieces_fit(&laid->pieces, bytes, offset, whole);
	return offset <= whole && bytes <= whole - offset;
}

/* `length`: bytes of operands. */
static bool
elements_ok(uint8_t op, const struct weir_cell_access *a, const struct laid *laid, uint32_t length)
{
	size_t size = weir_type_size((enum weir_type)a->type);
	size_t align = weir_type_align((enum weir_type)a->type);
	bool operand = a->acc != WEIR_ACC_NO_OP;

	if (!size || a->offset % align || !a->count || a->count > WEIR_ACCESS_MAX / size)
		return false;
	if (laid->head && !weir_pieces_aligned(&laid->pieces.l, size, align))
		return false;
	if (op == WEIR_OP_CAS)
		return weir_type_swaps((enum weir_type)a->type) && !a->acc && a->count == 1 &&
		       !a->options && length == 2 * size;
	return weir_acc_valid((enum weir_type)a->type, (enum weir_acc)a->acc) &&
	       length == (operand ? a->count * size : 0);
}

/* Bytes of memory that an UPDATE, CAS or GET is about. */
static uint64_t
access_bytes(uint8_t op, const struct weir_cell_access *a)
{
	return op == WEIR_OP_GET ? a->count : a->count * weir_type_size((enum weir_type)a->type);
}

static bool
get_ok(const struct weir_cell_access *a, uint32_t length)
{
	return a->count && a->count <= WEIR_ANSWER_MAX && !a->type && !a->acc &&
	       !(a->options & WEIR_ACCESS_RESULT) && !length;
}

static bool
access_ok(const struct conn *c, const struct weir_slot *head, const struct at *at,
	  struct laid *laid)
{
	uint32_t right = head->op == WEIR_OP_GET ? WEIR_RIGHT_READ : WEIR_RIGHT_UPDATE, length;
	struct weir_cell_access a;

	memcpy(&a, head->data, sizeof(a));
	/* what no export but a dynamic one has: the number of refusals */
	if (head->op == WEIR_OP_GET && a.offset == WEIR_DYNAMIC_REFUSALS)
		right = c->cold->memory.rights;
	if (a.handle != WEIR_HANDLE_FIRST || !(c->cold->memory.rights & right) ||
	    a.options & ~(WEIR_ACCESS_RESULT | WEIR_ACCESS_LAYOUT))
		return false;
	if (a.options & WEIR_ACCESS_LAYOUT && !lay(laid, head, at))
		return false;
	length = head->length - laid->head;
	if (head->op == WEIR_OP_GET ? !get_ok(&a, length)
				    : !elements_ok(head->op, &a, laid, length))
		return false;
	return within(c, laid, a.offset, access_bytes(head->op, &a));
}

/*
 * Lines that an operation is charged beyond those that it takes. The engine that executes it spends
 * as much time on an element as on a line (docs/decisions.md 137).
 */
static uint32_t
charge_of(uint8_t op, const struct weir_cell_access *a)
{
	if (op != WEIR_OP_UPDATE)
		return 0;
	return a->count - 1 + (weir_type_is_wide((enum weir_type)a->type) ? WIDE_LINES : 0);
}

uint32_t
remote_charge(const struct weir_slot *cell)
{
	struct weir_cell_access a;

	memcpy(&a, cell->data, sizeof(a));
	return charge_of(cell->op, &a);
}

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
	static const struct laid bare;

	if (a->handle != WEIR_HANDLE_FIRST || a->options & ~WEIR_ACCESS_RESULT ||
	    !(c->cold->memory.rights & right))
		return false;
	if (op == WEIR_OP_GET
		? !get_ok(a, length)
		: weir_type_is_wide((enum weir_type)a->type) || !elements_ok(op, a, &bare, length))
		return false;
	if (kind->cheap && charge_of(op, a))
		return false;
	*kind = (struct run_kind){
	    .is = *a,
	    .length = length,
	    .bytes = (uint32_t)access_bytes(op, a),
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

/* Whether c may do what a cell says. */
static bool
cell_ok(const struct conn *c, const struct weir_slot *head, const struct at *at, struct laid *laid)
{
	struct put_fields put;

	laid->head = 0;
	if (head->op == WEIR_OP_NOTICE)
		return notice_ok(c, head);
	if (weir_op_is_lock(head->op))
		return lock_ok(c, head);
	if (head->op != WEIR_OP_PUT)
		return access_ok(c, head, at, laid);
	put = put_fields(head->data);
	if (put_ok(c, &put, head->length, c->cold->memory.length))
		return true;
	return put.handle == WEIR_HANDLE_FIRST && put.options == WEIR_PUT_LAYOUT &&
	       c->cold->memory.rights & WEIR_RIGHT_WRITE && lay(laid, head, at) &&
	       within(c, laid, put.offset, head->length - laid->head);
}

uint32_t
remote_answer_bytes(const struct weir_slot *cell)
{
	struct weir_cell_access a;

	memcpy(&a, cell->data, sizeof(a));
	if (cell->op == WEIR_OP_PUT || cell->op == WEIR_OP_NOTICE || weir_op_is_lock(cell->op) ||
	    (cell->op == WEIR_OP_UPDATE && !(a.options & WEIR_ACCESS_RESULT)))
		return 0;
	return (uint32_t)access_bytes(cell->op, &a);
}

/* Stores the payload of a PUT. `ring`: where its continuations are, behind `pos`. */
static inline void
put_store(uint8_t *to, const uint8_t *payload, uint32_t left, const struct weir_slot *ring,
	  uint32_t mask, uint64_t pos)
{
	uint32_t part = sizeof(((struct weir_cell_put *)0)->payload);

	if (left <= part) {
		weir_store_whole(to, payload, left);
	} else {
		memcpy(to, payload, part);
		for (to += part, left -= part; left; to += part, left -= part) {
			const void *more = &ring[++pos & mask];

			part = left < WEIR_SLOT_MORE_BYTES ? left : WEIR_SLOT_MORE_BYTES;
			memcpy(to, ((const struct weir_slot_more *)more)->data, part);
		}
	}
}

/* Stores a PUT that is ok. */
static void
put_execute(struct export *x, const struct weir_slot *head, const struct at *at,
	    const struct laid *laid)
{
	struct put_fields put = put_fields(head->data);
	struct weir_layout_walk walk;

	if (laid->head) {
		weir_pieces_start(&laid->pieces, &walk);
		weir_layout_store(&walk, x->base, put.offset, laid->payload + laid->head,
				  head->length - laid->head);
	} else {
		put_store(x->base + put.offset, head->data + sizeof(put), head->length, at->ring,
			  at->mask, at->pos);
	}
	x->counters.puts++;
	x->counters.bytes_put += head->length - laid->head;
}

static void
get_execute(struct export *x, const struct weir_cell_access *a, const struct laid *laid,
	    uint8_t *result)
{
	struct weir_layout_walk walk;

	if (laid->head) {
		weir_pieces_start(&laid->pieces, &walk);
		weir_layout_load(&walk, x->base, a->offset, result, a->count);
	} else {
		weir_load_whole(result, x->base + a->offset, a->count);
	}
	x->counters.gets++;
	x->counters.bytes_got += a->count;
}

void
updates_begin(_Atomic bool *updating)
{
	/* pairs with the release below */
	while (atomic_exchange_explicit(updating, true, memory_order_acquire))
		sched_yield(); /* its engine may share our CPU */
}

void
updates_end(_Atomic bool *updating)
{
	atomic_store_explicit(updating, false, memory_order_release);
}

/*
 * Some elements are updated by plain code, and a link of any engine may bring such an update. So
 * engines exclude one another, for less than WEIR_ACCESS_MAX bytes each.
 */
static COLD int
apply_alone(_Atomic bool *updating, const struct weir_cell_access *a, void *to,
	    const uint8_t *operands, uint8_t *result, uint64_t n)
{
	int rc;

	updates_begin(updating);
	rc = weir_apply_alone((enum weir_type)a->type, (enum weir_acc)a->acc, to, operands, result,
			      n);
	updates_end(updating);
	return rc;
}

/* Updates n elements of memory of x. */
static inline void
apply(const struct export *x, _Atomic bool *updating, const struct weir_cell_access *a, void *to,
      const uint8_t *operands, uint8_t *result, uint64_t n)
{
	int rc;

	if (UNLIKELY(a->type >= x->alone_from))
		rc = apply_alone(updating, a, to, operands, result, n);
	else
		rc = weir_apply((enum weir_type)a->type, (enum weir_acc)a->acc, to, operands,
				result, n);
	weir_assert(!rc); /* exports for updates are aligned */
}

void
remote_apply(const struct export *x, _Atomic bool *updating, const struct weir_cell_access *a,
	     void *to, const uint8_t *operands, uint8_t *result, uint64_t n)
{
	apply(x, updating, a, to, operands, result, n);
}

void
remote_swap(const struct export *x, _Atomic bool *updating, const struct weir_cell_access *a,
	    void *to, const uint8_t *both, uint32_t bytes, uint8_t *result)
{
	int rc;

	if (UNLIKELY(!x->alone_from))
		updates_begin(updating);
	rc = weir_apply_compare_swap((enum weir_type)a->type, to, both, both + bytes, result);
	if (UNLIKELY(!x->alone_from))
		updates_end(updating);
	weir_assert(!rc); /* exports for updates are aligned */
}

static void
update_execute(struct export *x, const struct weir_slot *head, const struct weir_cell_access *a,
	       const struct at *at, const struct laid *laid, uint8_t *result)
{
	uint8_t *before = a->options & WEIR_ACCESS_RESULT ? result : NULL;
	uint8_t operands[WEIR_ACCESS_MAX], *memory;

	x->counters.updates++;
	if (laid->head) {
		size_t size = weir_type_size((enum weir_type)a->type);
		const uint8_t *operand = laid->payload + laid->head;
		uint64_t left = a->count * size, n;
		struct weir_layout_walk walk;
		int64_t piece;

		weir_pieces_start(&laid->pieces, &walk);
		for (; left && (n = weir_layout_next(&walk, left, &piece)); left -= n) {
			apply(x, x->updating, a, x->base + (a->offset + (uint64_t)piece), operand,
			      before, n / size);
			operand += a->acc == WEIR_ACC_NO_OP ? 0 : n;
			before += before ? n : 0;
		}
		return;
	}
	memory = x->base + a->offset;
	copy_payload(operands, head->op, head->length, head->data, at);
	if (head->op == WEIR_OP_CAS)
		remote_swap(x, x->updating, a, memory, operands, head->length / 2, result);
	else
		apply(x, x->updating, a, memory, operands, before, a->count);
}

/*
 * Executes a PUT, GET, UPDATE or CAS on a dynamic export. One whose bytes are not all attached is
 * counted, and answered with zeros.
 */
static COLD void
execute_by_address(struct engine *e, struct conn *c, const struct weir_slot *head,
		   const struct at *at, const struct laid *laid, const struct weir_cell_access *a,
		   uint8_t *result)
{
	struct export *x = c->cold->memory.export;
	uint32_t answer = remote_answer_bytes(head);
	uint8_t payload[WEIR_PUT_MAX];
	struct dynamic_op o = {.op = head->op,
			       .access = head->op == WEIR_OP_PUT ? NULL : a,
			       .address = a->offset,
			       .bytes = head->op == WEIR_OP_PUT ? head->length - laid->head
								: access_bytes(head->op, a),
			       .pieces = laid->head ? &laid->pieces : NULL,
			       .payload = laid->payload + laid->head,
			       .result = answer ? result : NULL};

	static_assert(offsetof(struct put_fields, offset) ==
			  offsetof(struct weir_cell_access, offset),
		      "the same of all of them");
	static_assert(WEIR_PUT_MAX >= WEIR_ACCESS_MAX, "room for any payload");
	if (head->op == WEIR_OP_GET && !laid->head && a->offset == WEIR_DYNAMIC_REFUSALS) {
		memcpy(result, &c->cold->memory.refused, a->count); /* at most 8 */
		return;
	}
	if (!laid->head) {
		copy_payload(payload, head->op, head->length, head->data, at);
		o.payload = payload;
	}
	if (!o.bytes) /* of a PUT, which changes nothing */
		return;
	if (!dynamic_execute(x, &o)) {
		if (answer)
			memset(result, 0, answer);
		c->cold->memory.refused++;
		export_count_refused(e, x);
		return;
	}
	x->counters.puts += head->op == WEIR_OP_PUT;
	x->counters.bytes_put += head->op == WEIR_OP_PUT ? o.bytes : 0;
	x->counters.gets += head->op == WEIR_OP_GET;
	x->counters.bytes_got += head->op == WEIR_OP_GET ? o.bytes : 0;
	x->counters.updates += head->op == WEIR_OP_UPDATE || head->op == WEIR_OP_CAS;
}

/* Operations of one kind were executed. */
static inline void
count_operations(struct engine *e, uint8_t op, uint32_t n, uint64_t bytes)
{
	if (op == WEIR_OP_PUT)
		count(&e->counters.remote_puts, n);
	else if (op == WEIR_OP_GET)
		count(&e->counters.remote_gets, n);
	else if (op == WEIR_OP_UPDATE || op == WEIR_OP_CAS)
		count(&e->counters.remote_updates, n);
	else if (op == WEIR_OP_NOTICE)
		count(&e->counters.remote_notices, n);
	count(&e->counters.remote_operations, n);
	count(&e->counters.remote_bytes, bytes);
}

/*
 * Executes an operation that is ok. `result`: room for its answer, WEIR_ANSWER_MAX bytes, of any
 * alignment; may be NULL if it has none.
 */
static void
execute_cell(struct engine *e, struct conn *c, const struct weir_slot *head, const struct at *at,
	     const struct laid *laid, uint8_t *result)
{
	struct export *x = c->cold->memory.export;
	uint64_t bytes = head->length - laid->head;
	struct weir_cell_access a;

	memcpy(&a, head->data, sizeof(a));
	if (head->op == WEIR_OP_NOTICE)
		notice_execute(e, c, head);
	else if (weir_op_is_lock(head->op))
		lock_execute(e, c, head);
	else if (UNLIKELY(x->ranges))
		execute_by_address(e, c, head, at, laid, &a, result);
	else if (head->op == WEIR_OP_PUT)
		put_execute(x, head, at, laid);
	else if (head->op == WEIR_OP_GET)
		get_execute(x, &a, laid, result);
	else
		update_execute(x, head, &a, at, laid, result);
	if (head->op == WEIR_OP_GET)
		bytes = a.count;
	if ((head->op == WEIR_OP_UPDATE || head->op == WEIR_OP_CAS) &&
	    x->rights & WEIR_RIGHT_NOTIFY)
		notice_wake(e, x);
	count_operations(e, head->op, 1, bytes);
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
		queue_of(c->session, l, RING)->lines -= (int32_t)remote_charge(cell);
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
	struct at at = {ch->tx.slots, ch->tx.mask, ch->tx.pos - ch->tx.base};
	enum room room = ROOM;
	struct weir_slot cell;
	uint8_t *result = NULL;
	uint32_t n, answer, stored;
	struct laid laid;

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
	answer = remote_answer_bytes(&cell);
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
		e->cost += remote_charge(&cell);
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
	   const struct weir_slot *line, uint32_t length, const struct at *at, uint8_t *result)
{
	uint8_t more[WEIR_ACCESS_MAX];
	const uint8_t *operands = line->data + WEIR_ACCESS_FIELDS;

	if (length > sizeof(a->payload)) {
		copy_payload(more, WEIR_OP_UPDATE, length, line->data, at);
		operands = more;
	}
	if (op == WEIR_OP_UPDATE)
		apply(x, x->updating, a, to, operands, result, a->count);
	else
		remote_swap(x, x->updating, a, to, operands, length / 2, result);
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
			put_store(x->base + offset, line->data + WEIR_PUT_FIELDS, length, ring,
				  mask, pos);
		else if (op == WEIR_OP_GET)
			weir_load_whole(answer, x->base + offset, kind.bytes);
		else
			run_update(x, op, x->base + offset, &kind.is, line, length,
				   &(struct at){ring, mask, pos}, answer);
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
	count_operations(e, op, cells, op == WEIR_OP_GET ? back : bytes);
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
	struct at at = {l->rx, l->rx_mask, pos};
	uint8_t result[WEIR_ANSWER_MAX];
	struct weir_slot cell;
	uint32_t n = 0, answer;
	struct laid laid;
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
		answer = remote_answer_bytes(&cell);
		execute_cell(e, c, &cell, &at, &laid, result);
		c->bytes += cell.length + answer;
		c->rx_messages++;
		c->by_send += l->rx_send;
		if (answer && !answer_put(e, c, result, answer))
			return -1; /* it has asked for more than it was granted */
	}
	return (int)n;
}

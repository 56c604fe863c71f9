/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts, gets and updates: loads and stores of mapped memory; a cell at once, if it fits a slot and
 * the thread's connection has room; else operation.c.
 */
#include "operation.h"

#include "client/channel.h"
#include "client/reason.h"
#include "stream/ctrl_slots.h"

#include "weir/stream.h"

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
	return rc ? rc : weir_operation_begin(r, &d, flags, NULL, false);
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
	struct weir_thread *t = weir_thread_get(r->w);
	struct weir_remote_lane *l;
	struct weir_bias_seat *seat;
	struct weir_cell_access *access = fields;
	struct weir_slot *s;
	struct weir_conn *c;
	struct weir_ring *tx;
	uint64_t whole;

	if (weir_unlikely(!t))
		return false;
	/* pairs with the release in lane_of() */
	l = atomic_load_explicit(weir_lane_recent(r, t), memory_order_acquire);
	if (!l || l->worker != t || weir_state(r->w) != WEIR_UP)
		return false;
	seat = weir_bias_enter(&t->lock);
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
	return r->direct.at ? weir_put_mapped(r, offset, buf, length)
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
	return rc ? rc : weir_operation_begin(r, &d, flags, NULL, false);
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
	return r->direct.at ? weir_get_mapped(r, offset, buf, length)
			    : get_cells(r, offset, buf, length, flags);
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

typedef int apply_call(enum weir_type t, enum weir_acc op, void *at, const void *operand,
		       void *result, uint64_t count);

/* An update of mapped memory by CPU instructions. 1: it is none, or invalid, and nothing was done.
 */
static inline __attribute__((always_inline)) int
update_mapped(struct weir_remote *r, const struct weir_update *u, apply_call *apply)
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
	return apply(type, op, at, u->operand, u->result, u->count) ? 1 : 0;
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
	return weir_operation_begin(r, &d, u->flags, u->handle,
				    u->result || u->flags & (WEIR_AT_TARGET | WEIR_KEEP));
}

int
weir_remote_update(struct weir_remote *r, const struct weir_update *u)
{
	int rc;

	if (weir_likely(u && !r->direct.at))
		return update_quickly(r, u) ? 0 : update_any(r, u);
	rc = u ? update_mapped(r, u, weir_apply) : 1;
	return rc <= 0 ? rc : update_any(r, u);
}

int
weir_remote_update_alone(struct weir_remote *r, const struct weir_update *u)
{
	int rc = update_mapped(r, u, weir_apply_alone);

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
	return weir_operation_begin(r, &d, flags, NULL, false);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Cells that are executed: by stores, loads and updates of an export, or by address. */
#include "execute.h"
#include "dynamic.h"
#include "lock.h"
#include "notice.h"

#include <sched.h>

/* Stores a PUT that is ok. */
static void
put_execute(struct export *x, const struct weir_slot *head, const struct cell_at *at,
	    const struct cell_laid *laid)
{
	struct put_fields put = put_fields(head->data);
	struct weir_layout_walk walk;

	if (laid->head) {
		weir_pieces_start(&laid->pieces, &walk);
		weir_layout_store(&walk, x->base, put.offset, laid->payload + laid->head,
				  head->length - laid->head);
	} else {
		execute_put_store(x->base + put.offset, head->data + sizeof(put), head->length,
				  at->ring, at->mask, at->pos);
	}
	x->counters.puts++;
	x->counters.bytes_put += head->length - laid->head;
}

static void
get_execute(struct export *x, const struct weir_cell_access *a, const struct cell_laid *laid,
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

COLD int
execute_alone(_Atomic bool *updating, const struct weir_cell_access *a, void *to,
	      const uint8_t *operands, uint8_t *result, uint64_t n)
{
	int rc;

	updates_begin(updating);
	rc = weir_apply_alone((enum weir_type)a->type, (enum weir_acc)a->acc, to, operands, result,
			      n);
	updates_end(updating);
	return rc;
}

void
execute_swap(const struct export *x, _Atomic bool *updating, const struct weir_cell_access *a,
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
	       const struct cell_at *at, const struct cell_laid *laid, uint8_t *result)
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
			execute_apply(x, x->updating, a, x->base + (a->offset + (uint64_t)piece),
				      operand, before, n / size);
			operand += a->acc == WEIR_ACC_NO_OP ? 0 : n;
			before += before ? n : 0;
		}
		return;
	}
	memory = x->base + a->offset;
	cell_copy_payload(operands, head->op, head->length, head->data, at);
	if (head->op == WEIR_OP_CAS)
		execute_swap(x, x->updating, a, memory, operands, head->length / 2, result);
	else
		execute_apply(x, x->updating, a, memory, operands, before, a->count);
}

/*
 * Executes a PUT, GET, UPDATE or CAS on a dynamic export. One whose bytes are not all attached is
 * counted, and answered with zeros.
 */
static COLD void
execute_by_address(struct engine *e, struct conn *c, const struct weir_slot *head,
		   const struct cell_at *at, const struct cell_laid *laid,
		   const struct weir_cell_access *a, uint8_t *result)
{
	struct export *x = c->cold->memory.export;
	uint32_t answer = cell_answer_bytes(head);
	uint8_t payload[WEIR_PUT_MAX];
	struct dynamic_op o = {.op = head->op,
			       .access = head->op == WEIR_OP_PUT ? NULL : a,
			       .address = a->offset,
			       .bytes = head->op == WEIR_OP_PUT ? head->length - laid->head
								: cell_bytes(head->op, a),
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
		cell_copy_payload(payload, head->op, head->length, head->data, at);
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

void
execute_cell(struct engine *e, struct conn *c, const struct weir_slot *head,
	     const struct cell_at *at, const struct cell_laid *laid, uint8_t *result)
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
	execute_count(e, head->op, 1, bytes);
}

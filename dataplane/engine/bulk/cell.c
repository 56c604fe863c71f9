/* SPDX-License-Identifier: BSD-3-Clause */
/* Cells: whether they are sound, what they are charged, how long their answers are. */
#include "cell.h"
#include "export.h"
#include "lock.h"
#include "notice.h"

#include "ipc/apply.h"

void
cell_copy_payload(uint8_t *to, uint8_t op, uint32_t left, const uint8_t *data,
		  const struct cell_at *at)
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
lay(struct cell_laid *laid, const struct weir_slot *head, const struct cell_at *at)
{
	cell_copy_payload(laid->payload, head->op, head->length, head->data, at);
	laid->head = weir_pieces_get(&laid->pieces, laid->payload, head->length);
	return laid->head;
}

/* Whether `bytes` at an offset, or at the pieces of a layout, lie within the export. */
static bool
within(const struct conn *c, const struct cell_laid *laid, uint64_t offset, uint64_t bytes)
{
	uint64_t whole = c->cold->memory.length;

	if (laid->head)
		return weir_pieces_fit(&laid->pieces, bytes, offset, whole);
	return offset <= whole && bytes <= whole - offset;
}

bool
cell_elements_ok(uint8_t op, const struct weir_cell_access *a, const struct cell_laid *laid,
		 uint32_t length)
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

uint64_t
cell_bytes(uint8_t op, const struct weir_cell_access *a)
{
	return op == WEIR_OP_GET ? a->count : a->count * weir_type_size((enum weir_type)a->type);
}

bool
cell_get_ok(const struct weir_cell_access *a, uint32_t length)
{
	return a->count && a->count <= WEIR_ANSWER_MAX && !a->type && !a->acc &&
	       !(a->options & WEIR_ACCESS_RESULT) && !length;
}

static bool
access_ok(const struct conn *c, const struct weir_slot *head, const struct cell_at *at,
	  struct cell_laid *laid)
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
	if (head->op == WEIR_OP_GET ? !cell_get_ok(&a, length)
				    : !cell_elements_ok(head->op, &a, laid, length))
		return false;
	return within(c, laid, a.offset, cell_bytes(head->op, &a));
}

/*
 * Lines that an operation is charged beyond those that it takes. The engine that executes it spends
 * as much time on an element as on a line (docs/decisions.md 137).
 */
uint32_t
cell_charge_of(uint8_t op, const struct weir_cell_access *a)
{
	if (op != WEIR_OP_UPDATE)
		return 0;
	return a->count - 1 + (weir_type_is_wide((enum weir_type)a->type) ? WIDE_LINES : 0);
}

uint32_t
cell_charge(const struct weir_slot *cell)
{
	struct weir_cell_access a;

	memcpy(&a, cell->data, sizeof(a));
	return cell_charge_of(cell->op, &a);
}

bool
cell_ok(const struct conn *c, const struct weir_slot *head, const struct cell_at *at,
	struct cell_laid *laid)
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
cell_answer_bytes(const struct weir_slot *cell)
{
	struct weir_cell_access a;

	memcpy(&a, cell->data, sizeof(a));
	if (cell->op == WEIR_OP_PUT || cell->op == WEIR_OP_NOTICE || weir_op_is_lock(cell->op) ||
	    (cell->op == WEIR_OP_UPDATE && !(a.options & WEIR_ACCESS_RESULT)))
		return 0;
	return (uint32_t)cell_bytes(cell->op, &a);
}

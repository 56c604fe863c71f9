/* SPDX-License-Identifier: BSD-3-Clause */
/* Executes cells that have been checked, at the engine of the memory. */
#ifndef WEIR_ENGINE_EXECUTE_H
#define WEIR_ENGINE_EXECUTE_H

#include "cell.h"
#include "export.h"
#include "state.h"

#include "ipc/apply.h"

/*
 * Executes an operation that is ok. `result`: room for its answer, WEIR_ANSWER_MAX bytes, of any
 * alignment; may be NULL if it has none.
 */
void execute_cell(struct engine *e, struct conn *c, const struct weir_slot *head,
		  const struct cell_at *at, const struct cell_laid *laid, uint8_t *result);
/* A compare-and-swap of memory of x that is aligned; `updating`: of its region; `both`: of `bytes`
 * each. */
void execute_swap(const struct export *x, _Atomic bool *updating, const struct weir_cell_access *a,
		  void *to, const uint8_t *both, uint32_t bytes, uint8_t *result);
/* Exclude all others that call these for the region, and yield meanwhile. */
void updates_begin(_Atomic bool *updating);
void updates_end(_Atomic bool *updating);
/*
 * Some elements are updated by plain code, and a link of any engine may bring such an update. So
 * engines exclude one another, for less than WEIR_ACCESS_MAX bytes each.
 */
int execute_alone(_Atomic bool *updating, const struct weir_cell_access *a, void *to,
		  const uint8_t *operands, uint8_t *result, uint64_t n);

/* Updates n elements of memory of x that is aligned; `updating`: of its region. */
static inline void
execute_apply(const struct export *x, _Atomic bool *updating, const struct weir_cell_access *a,
	      void *to, const uint8_t *operands, uint8_t *result, uint64_t n)
{
	int rc;

	if (UNLIKELY(a->type >= x->alone_from))
		rc = execute_alone(updating, a, to, operands, result, n);
	else
		rc = weir_apply((enum weir_type)a->type, (enum weir_acc)a->acc, to, operands,
				result, n);
	weir_assert(!rc); /* exports for updates are aligned */
}

/* Stores the payload of a PUT. `ring`: where its continuations are, behind `pos`. */
static inline void
execute_put_store(uint8_t *to, const uint8_t *payload, uint32_t left, const struct weir_slot *ring,
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

/* Operations of one kind were executed. */
static inline void
execute_count(struct engine *e, uint8_t op, uint32_t n, uint64_t bytes)
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

#endif

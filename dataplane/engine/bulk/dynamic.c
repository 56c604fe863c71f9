/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations on dynamic exports: by address, across ranges that adjoin one another. */
#include "dynamic.h"
#include "execute.h"

#include "base/vec.h"
#include "ipc/apply.h"

/* The range that has the byte at an address. NULL: it is not attached. */
static const struct engine_range *
range_of(const struct engine_ranges *r, uint64_t address)
{
	uint32_t n = VEC_BEFORE(r->count, i, r->of[i].address <= address);

	if (!n || address - r->of[n - 1].address >= r->of[n - 1].bytes)
		return NULL;
	return &r->of[n - 1];
}

/* Bytes from an address to the end of its range. */
static uint64_t
rest_of(const struct engine_range *r, uint64_t address)
{
	return r->bytes - (address - r->address);
}

/* Whether all bytes are attached, and no unit lies in two ranges. *borders: those that may still be
 * crossed. */
static bool
attached(const struct engine_ranges *ranges, uint64_t address, uint64_t bytes, uint64_t unit,
	 uint32_t *borders)
{
	const struct engine_range *r = range_of(ranges, address), *end = ranges->of + ranges->count;
	uint64_t rest;

	for (; r && r < end && address - r->address < r->bytes; r++) {
		rest = rest_of(r, address);
		if (rest >= bytes)
			return true;
		if (rest % unit || !(*borders)--)
			return false;
		address += rest;
		bytes -= rest;
	}
	return false;
}

/* The next piece of an operation that has `left` bytes: its bytes and address; 0: there is none. */
static uint64_t
next_piece(const struct dynamic_op *o, struct weir_layout_walk *walk, uint64_t left,
	   uint64_t *address)
{
	uint64_t n = left;
	int64_t at = 0;

	if (o->pieces && left == o->bytes)
		weir_pieces_start(o->pieces, walk);
	if (o->pieces)
		n = left ? weir_layout_next(walk, left, &at) : 0;
	*address = o->address + (uint64_t)at;
	return n;
}

static size_t
unit_of(const struct dynamic_op *o)
{
	if (o->op == WEIR_OP_PUT || o->op == WEIR_OP_GET)
		return 1;
	return weir_type_size((enum weir_type)o->access->type);
}

bool
dynamic_execute(const struct export *x, const struct dynamic_op *o)
{
	const uint8_t *payload = o->payload;
	uint8_t *result = o->result;
	struct weir_layout_walk walk;
	uint64_t left, n, part, address;
	uint32_t borders = WEIR_BORDERS_MAX;
	bool takes = o->op != WEIR_OP_GET && !(o->access && o->access->acc == WEIR_ACC_NO_OP);

	for (left = o->bytes; (n = next_piece(o, &walk, left, &address)); left -= n)
		if (!attached(x->ranges, address, n, unit_of(o), &borders))
			return false;
	for (left = o->bytes; (n = next_piece(o, &walk, left, &address)); left -= n) {
		const struct engine_range *r = range_of(x->ranges, address);

		for (uint64_t rest = n; rest; rest -= part, r++) {
			uint8_t *to = r->base + (address - r->address);

			part = rest_of(r, address) < rest ? rest_of(r, address) : rest;
			switch (o->op) {
			case WEIR_OP_PUT:
				weir_store_whole(to, payload, part);
				break;
			case WEIR_OP_GET:
				weir_load_whole(result, to, part);
				break;
			case WEIR_OP_CAS:
				execute_swap(x, r->updating, o->access, to, payload, (uint32_t)part,
					     result);
				break;
			default:
				execute_apply(x, r->updating, o->access, to, payload, result,
					      part / unit_of(o));
			}
			address += part;
			payload += takes ? part : 0;
			result += result ? part : 0;
		}
	}
	return true;
}

uint64_t *
dynamic_word(const struct export *x, uint64_t address, _Atomic bool **updating)
{
	const struct engine_range *r = range_of(x->ranges, address);

	if (!r || rest_of(r, address) < sizeof(uint64_t))
		return NULL;
	*updating = r->updating;
	return (uint64_t *)(void *)(r->base + (address - r->address));
}

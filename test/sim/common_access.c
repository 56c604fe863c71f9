/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations of users on ranges: drawn, begun, done to a model of the memory, which says what each
 * one has to read.
 */
#include "common_state.h"
#include "memory.h"

#include "ipc/apply.h"
#include "ipc/remote.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

uint8_t
common_byte(uint32_t number, uint32_t at)
{
	return (uint8_t)(number * 41 + at * 13 + 5);
}

/* Where byte i of an operation lies. */
static uint32_t
place_of(const struct operation *o, uint32_t i)
{
	return o->block ? o->offset + i / o->block * o->stride + i % o->block : o->offset + i;
}

static bool
is_border(const uint32_t *borders, uint32_t n, uint32_t length, uint32_t *which)
{
	for (*which = 0; *which < n; ++*which)
		if (borders[*which] == length)
			return true;
	return false;
}

static uint32_t
draw_length(struct rng *r, bool big)
{
	uint32_t n = rng_below(r, 1000);

	if (n < 400)
		return sim_borders[rng_below(r, 10)];
	if (n < 500)
		return sim_borders[10 + rng_below(r, 2)];
	if (n < 550)
		return sim_borders[12 + rng_below(r, 2)];
	if (n < 600 && big)
		return sim_borders[14 + rng_below(r, 2)];
	return (uint32_t)rng_log(r, 1, 1500);
}

/* Somewhere in the range, at a multiple of `align`. */
void
common_draw_offset(struct rng *r, const struct range *in, struct operation *o, uint32_t align)
{
	uint32_t extent;

	o->offset = 0;
	extent = place_of(o, o->length - 1) + 1;
	o->offset = in->at + rng_below(r, (in->bytes - extent) / align + 1) * align;
}

/* By the engine, by WRITE or READ, or as it comes. Large ones stay behind those of the range. */
static void
draw_flags(struct rng *r, const struct range *in, struct operation *o)
{
	uint32_t n = rng_below(r, 10);

	if (n == 0)
		o->flags = WEIR_RING;
	else if (n == 1)
		o->flags = o->kind == PUT ? WEIR_WRITE : WEIR_READ;
	if (rng_chance(r, 300) ||
	    (in->under_way && (o->length > WEIR_PUT_ORDERED || o->flags & ~WEIR_RING)))
		o->flags |= WEIR_BEHIND;
}

static void
draw_elements(struct rng *r, const struct range *in, struct operation *o)
{
	uint32_t size, bytes = sim_update_borders[rng_below(r, SIM_UPDATE_BORDERS)];

	o->type = (enum weir_type)(WEIR_T_BYTE + rng_below(r, WEIR_T_LONG_DOUBLE_AT));
	if (o->kind == SWAP)
		while (!weir_type_swaps(o->type))
			o->type = (enum weir_type)(WEIR_T_BYTE + rng_below(r, WEIR_T_UINT64));
	do
		o->acc = (enum weir_acc)(WEIR_ACC_SUM + rng_below(r, WEIR_ACC_NO_OP));
	while (!weir_acc_valid(o->type, o->acc));
	size = (uint32_t)weir_type_size(o->type);
	o->length = size;
	if (o->kind == UPDATE && rng_chance(r, 300))
		o->length = bytes < size ? size : bytes / size * size;
	else if (o->kind == UPDATE)
		o->length = size * (1 + rng_below(r, 4));
	o->fetches = o->kind == SWAP || o->acc == WEIR_ACC_NO_OP || rng_chance(r, 500);
	if (o->fetches && o->length > WEIR_ACCESS_MAX)
		o->length = size;
	if (o->kind == UPDATE && o->length <= 4 * size && rng_chance(r, 250)) {
		o->block = size;
		o->stride = size * (1 + rng_below(r, 5));
	}
	common_draw_offset(r, in, o, (uint32_t)weir_type_align(o->type));
}

void
common_draw(struct rng *r, const struct range *in, bool reads, struct operation *o)
{
	uint32_t n = rng_below(r, 12), size;

	o->kind = reads || n < 4 ? GET : n < 8 ? PUT : n < 11 ? UPDATE : SWAP;
	if (in->feast) {
		o->kind = GET;
		o->length = WEIR_ANSWER_MAX;
		o->flags = WEIR_RING;
		common_draw_offset(r, in, o, 1);
		return;
	}
	if (in->alike && !in->feast) {
		o->kind = UPDATE;
		o->type = (enum weir_type)in->alike;
		do
			o->acc = (enum weir_acc)(WEIR_ACC_SUM + rng_below(r, WEIR_ACC_REPLACE));
		while (!weir_acc_valid(o->type, o->acc));
		o->length = size = (uint32_t)weir_type_size(o->type);
		common_draw_offset(r, in, o, size);
		return;
	}
	if (o->kind >= UPDATE) {
		draw_elements(r, in, o);
		return;
	}
	if (rng_chance(r, 150)) {
		o->block = 1 + rng_below(r, 16);
		o->stride = o->block * (1 + rng_below(r, 6));
		o->length = o->block * (1 + rng_below(r, 8));
	} else {
		o->length = draw_length(r, in->bytes == LARGE);
		draw_flags(r, in, o);
	}
	common_draw_offset(r, in, o, 1);
}

/* Bytes to put; operands; of SWAP the value that is compared, and the new one. */
const uint8_t *
common_fill(const struct sim_common *k, const struct operation *o)
{
	static uint8_t bytes[LARGE];
	uint32_t n = o->kind == SWAP ? 2 * o->length : o->length;

	for (uint32_t i = 0; i < n; i++)
		bytes[i] = common_byte(o->number, i);
	if (o->kind == SWAP && o->number % 4) /* else it is compared with something else */
		memcpy(bytes, k->model + o->offset, o->length);
	return bytes;
}

/* Does it to the model; `legal`: gets what a get or fetch must read. */
void
common_apply(struct sim_common *k, const struct operation *o, const uint8_t *bytes)
{
	uint32_t size = o->kind == UPDATE ? (uint32_t)weir_type_size(o->type) : 0;

	for (uint32_t i = 0; o->kind == PUT && i < o->length; i++)
		k->model[place_of(o, i)] = bytes[i];
	for (uint32_t i = 0; o->kind == GET && i < o->length; i++)
		o->legal[i] = k->model[place_of(o, i)];
	for (uint32_t i = 0; o->kind == UPDATE && i < o->length; i += size)
		weir_apply(o->type, o->acc, k->model + place_of(o, i), bytes + i,
			   o->legal ? o->legal + i : NULL, 1);
	if (o->kind == SWAP)
		weir_apply_compare_swap(o->type, k->model + o->offset, bytes, bytes + o->length,
					o->legal);
}

static int
begin(struct user *u, struct operation *o, const uint8_t *bytes)
{
	unsigned flags = o->flags | WEIR_NOWAIT;
	struct weir_layout there = {.block = o->block, .dims = 1};
	struct weir_transfer t = {.offset = o->offset,
				  .length = o->length,
				  .there = o->block ? &there : NULL,
				  .buf = o->kind == PUT ? (void *)(uintptr_t)bytes : o->result,
				  .flags = WEIR_NOWAIT};
	struct weir_update update = {.offset = o->offset,
				     .operand = bytes,
				     .result = o->result,
				     .there = t.there,
				     .type = o->type,
				     .op = o->acc,
				     .flags = WEIR_NOWAIT};

	if (o->block) {
		there.dim[0].count = o->length / o->block;
		there.dim[0].stride = o->stride;
	}
	switch (o->kind) {
	case PUT:
		if (o->block)
			return weir_remote_put_with(u->r, &t);
		return weir_remote_put(u->r, o->offset, bytes, o->length, flags);
	case GET:
		if (o->block)
			return weir_remote_get_with(u->r, &t);
		return weir_remote_get(u->r, o->offset, o->result, o->length, flags);
	case UPDATE:
		update.count = o->length / weir_type_size(o->type);
		return weir_remote_update(u->r, &update);
	default:
		return weir_remote_compare_swap(u->r, o->offset, bytes, bytes + o->length,
						o->result, o->type, WEIR_NOWAIT);
	}
}

/* The next place for an operation of u. */
struct operation *
common_next_operation(struct user *u)
{
	struct operation *o = &u->op[u->ops];

	if (u->ops == UNDER_WAY)
		abort();
	memset(o, 0, sizeof(*o));
	return o;
}

/* Begins what was drawn for a range. 0, or why not. */
int
common_start(struct sim_common *k, struct user *u, struct range *in, struct operation *o)
{
	bool reads = o->kind == GET || o->fetches;
	const uint8_t *bytes;
	int rc;

	o->number = k->number++;
	if (reads) {
		o->result = malloc(o->length);
		o->legal = malloc(o->length);
		if (!o->result || !o->legal)
			abort();
		memset(o->result, 0xee, o->length);
	}
	bytes = common_fill(k, o);
	rc = begin(u, o, bytes);
	if (rc == -EMSGSIZE && !o->block && o->kind < UPDATE) {
		/* there are no two NICs in between, and more cells than the channel has room for */
		o->length = 64;
		o->flags = 0;
		rc = begin(u, o, bytes);
	}
	if (rc) {
		free(o->result);
		free(o->legal);
		return rc;
	}
	common_apply(k, o, common_fill(k, o)); /* the call may have waited, and others gone on */
	u->wrote |= o->kind != GET && in == &k->range[BY_LOCK];
	in->under_way++;
	u->ops++;
	return 0;
}

void
common_count(struct sim *s, const struct operation *o)
{
	uint32_t which;

	s->counts.puts += o->kind == PUT;
	s->counts.gets += o->kind == GET;
	s->counts.fetches += o->fetches;
	s->counts.layouts += o->block != 0;
	if (o->kind >= UPDATE) {
		s->counts.types |= UINT64_C(1) << o->type;
		if (o->kind == UPDATE)
			s->counts.accs |= UINT64_C(1) << o->acc;
		if (!o->block &&
		    is_border(sim_update_borders, SIM_UPDATE_BORDERS, o->length, &which))
			s->counts.update_borders |= UINT64_C(1) << which;
	} else if (!o->block && is_border(sim_borders, SIM_BORDERS, o->length, &which)) {
		if (o->kind == PUT)
			s->counts.put_borders |= UINT64_C(1) << which;
		else
			s->counts.get_borders |= UINT64_C(1) << which;
	}
}

void
common_check_result(struct sim *s, uint32_t id, const struct operation *o)
{
	uint32_t i = 0;

	if (!o->result || !memcmp(o->result, o->legal, o->length))
		return;
	while (o->result[i] == o->legal[i])
		i++;
	sim_fail(s,
		 "operation %u of program %u (kind %u, %u bytes at %u) reads %02x at %u, not %02x",
		 o->number, id, o->kind, o->length, o->offset, o->result[i], i, o->legal[i]);
}

void
common_forget(struct user *u)
{
	for (uint32_t i = 0; i < u->ops; i++) {
		free(u->op[i].result);
		free(u->op[i].legal);
	}
	u->ops = 0;
}

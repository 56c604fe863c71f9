/* SPDX-License-Identifier: BSD-3-Clause */
/* Places, {region, offset}: the arena, memory that a program has adopted, and posted memory. */
#ifndef WEIR_ENGINE_REGION_H
#define WEIR_ENGINE_REGION_H

#include "session.h"
#include "weir/memory.h"

struct conn;

/* Memory of the program that it has adopted. */
struct region {
	uint8_t *base; /* NULL: none */
	uint64_t bytes;
	uint32_t flags; /* WEIR_ADOPT_* */
	uint32_t users; /* messages under way that use it */
	bool leaving;	/* no new message may use it */
	struct nic_mr mr;
	_Atomic bool *updating; /* of engine_region */
};

int region_add(struct engine *e, const struct engine_region *k);
/* -EAGAIN: messages under way name it still. */
int region_remove(struct engine *e, const struct engine_region *k);
/* The only check of a place in adopted memory: NULL unless it lies inside and allows this use. */
uint8_t *region_at(const struct session *s, weir_place place, uint64_t length, uint32_t use);
void region_keep(struct session *s, uint16_t region);
void region_drop(struct session *s, uint16_t region);
/*
 * Messages of c are given up after the peer was told their memory: it may read that memory until it
 * has acknowledged the end, or the link has failed.
 */
void region_lend(struct conn *c);
void region_lent_back(struct conn *c);
/* Takes a POST slot. Returns NULL, or the rule that the slot breaks. */
const char *post_take(struct engine *e, struct conn *c, const struct weir_slot *slot);
/* The memory posted for message `number` of `length` bytes, or 0. */
weir_place post_find(const struct conn *c, uint64_t number, uint32_t length);
/* Forgets memory posted for messages before `number`. */
void posts_forget(struct conn *c, uint64_t number);

/* The payload of a send, or NULL: not inside the send area or adopted memory. */
static inline const uint8_t *
session_source(const struct session *s, weir_place place, uint32_t length)
{
	uint64_t offset = WEIR_PLACE_OFFSET(place);

	if (UNLIKELY(WEIR_PLACE_REGION(place)))
		return region_at(s, place, length, WEIR_ADOPT_SEND);
	if (offset < s->send_at || offset > s->send_end || length > s->send_end - offset)
		return NULL;
	return s->base + offset;
}

/* The memory at a place that has been checked. */
static inline uint8_t *
place_memory(const struct session *s, weir_place place)
{
	uint16_t region = WEIR_PLACE_REGION(place);

	return (region ? s->regions[region - 1].base : s->base) + WEIR_PLACE_OFFSET(place);
}

/* The memory region by which our NIC, and peers, know a place that has been checked. */
static inline const struct nic_mr *
place_mr(const struct session *s, weir_place place)
{
	uint16_t region = WEIR_PLACE_REGION(place);

	if (region)
		return &s->regions[region - 1].mr;
	return WEIR_PLACE_OFFSET(place) < s->send_at ? &s->shared->recv_mr : &s->shared->send_mr;
}

/* The first of the receive blocks at a place of the arena. */
static inline uint32_t
place_block(const struct session *s, weir_place place)
{
	return (uint32_t)((WEIR_PLACE_OFFSET(place) - s->recv_at) / WEIR_BLOCK_SIZE);
}

#endif

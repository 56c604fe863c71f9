/* SPDX-License-Identifier: BSD-3-Clause */
/* Programs that ask for what others export, as cells in their channels, and the answers. */
#ifndef TEST_ENGINE_ANSWERS_H
#define TEST_ENGINE_ANSWERS_H

#define BYTES 32768u /* of region 1 of the exporting program */
#define START 1024u
#define LENGTH 16384u
#include "exports.h"

#include "weir/type.h"

#define ALL (WEIR_RIGHT_READ | WEIR_RIGHT_WRITE | WEIR_RIGHT_UPDATE)

static inline void
export_memory(struct program *p, uint32_t rights)
{
	program_adopt(p, 1, BYTES, WEIR_ADOPT_SEND);
	assert_int_equal(export_command(p, ENGINE_EXPORT_ADD, rights), 0);
	for (uint32_t i = 0; i < BYTES; i++)
		p->region[0].base[i] = (uint8_t)(i * 7 + i / 256);
}

/* A program on node 1 exports memory, others on both nodes open it. */
static inline struct pair
memory_programs(const struct world_options *o)
{
	struct pair p = pair_programs(o, 2);

	export_memory(p.pb, ALL);
	return p;
}

/* Where answer n of a program goes. */
static inline uint8_t *
result(const struct program *p, uint32_t n)
{
	return p->arena + weir_arena_send(&p->view.geometry) + n * WEIR_BLOCK_SIZE;
}

static inline uint32_t
place(const struct program *p, uint32_t n)
{
	return (uint32_t)((weir_arena_send(&p->view.geometry) + n * WEIR_BLOCK_SIZE) / 64);
}

static inline void
push(struct pconn *c, uint8_t op, const struct weir_cell_access *a, const void *payload,
     uint32_t length)
{
	bool fits = weir_cell_length_ok(op, length);
	uint32_t n = fits ? weir_cell_slots(op, length) : 1;
	struct weir_ring *r = &c->p->tx[0];
	struct weir_slot s = {
	    .op = op, .order = (uint16_t)c->sent, .vqpn = c->vqpn, .length = length};
	uint8_t bytes[WEIR_INLINE_MAX] = {0};

	memcpy(bytes, a, WEIR_ACCESS_FIELDS);
	if (payload && fits)
		memcpy(bytes + WEIR_ACCESS_FIELDS, payload, length);
	STEP_WHILE(c->p->w, (weir_ring_refresh(r), weir_ring_room(r) < n));
	memcpy((char *)weir_ring_at(r, r->pos) + 4, (char *)&s + 4, 12);
	weir_ring_put_inline(r, bytes, fits ? WEIR_ACCESS_FIELDS + length : 48);
	weir_ring_publish(r, n);
	c->sent++;
}

static inline void
get(struct pconn *c, uint64_t offset, uint32_t length, uint32_t n)
{
	struct weir_cell_access a = {.handle = WEIR_HANDLE_FIRST,
				     .offset = offset,
				     .result = place(c->p, n),
				     .count = length};

	push(c, WEIR_OP_GET, &a, NULL, 0);
}

/* Adds to a word, and fetches it to result n. */
static inline void
add(struct pconn *c, uint64_t offset, int64_t by, uint32_t n)
{
	struct weir_cell_access a = {.handle = WEIR_HANDLE_FIRST,
				     .type = WEIR_T_INT64,
				     .acc = WEIR_ACC_SUM,
				     .options = WEIR_ACCESS_RESULT,
				     .offset = offset,
				     .result = place(c->p, n),
				     .count = 1};

	push(c, WEIR_OP_UPDATE, &a, &by, sizeof(by));
}

static inline void
put(struct pconn *c, uint64_t offset, uint64_t word)
{
	struct weir_cell_put head = {.handle = WEIR_HANDLE_FIRST, .offset = offset};
	struct weir_cell_access a;

	memcpy(head.payload, &word, sizeof(word));
	memcpy(&a, &head, sizeof(a));
	push(c, WEIR_OP_PUT, &a, head.payload + 8, sizeof(word));
}

static inline void
flush(struct pconn *c, unsigned steps)
{
	pconn_op(c, WEIR_OP_FLUSH, 0);
	STEP_MOST(c->p->w, steps, pconn_completed(c) != c->sent);
	assert_int_equal(pconn_completed(c), c->sent);
}

static inline int64_t
word_at(const struct program *p, uint64_t offset)
{
	int64_t v;

	memcpy(&v, p->region[0].base + START + offset, sizeof(v));
	return v;
}

static inline void
set_word(const struct program *p, uint64_t offset, int64_t v)
{
	memcpy(p->region[0].base + START + offset, &v, sizeof(v));
}

static inline int64_t
result_word(const struct program *p, uint32_t n)
{
	int64_t v;

	memcpy(&v, result(p, n), sizeof(v));
	return v;
}

static inline struct peer_link *
link_of(struct world *w, unsigned node)
{
	return &w->node[node].engine->links[1];
}

#endif

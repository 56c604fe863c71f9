/* SPDX-License-Identifier: BSD-3-Clause */
#include "program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint8_t recv[BENCH_SRQ * ENGINE_RECV_BYTES + WEIR_SLOT_SIZE];
static struct engine_event asked;
static bool was_asked;

struct engine *bench_engine;
uint64_t bench_now = 1;

static bool
on_emit(void *user, const struct engine_event *event)
{
	asked = *event;
	was_asked = event->type == ENGINE_EVENT_CONNECT;
	return true;
}

static uint64_t
on_bell(void *user, uint32_t doorbell, bool cpu_time)
{
	return 0;
}

struct engine_config bench_config = {.count = 1,
				     .connections = 65536,
				     .sessions = BENCH_SESSIONS,
				     .links = 4,
				     .session_pending = 8192,
				     .regions = 1,
				     .exports = 1,
				     .initial_grant = 512,
				     .window = 2 << 20,
				     .threshold = 0.6,
				     .srq_depth = BENCH_SRQ,
				     .recv = recv,
				     .ring_doorbell = on_bell,
				     .emit = on_emit};

void *
bench_memory(size_t bytes)
{
	void *p = aligned_alloc(8192, WEIR_ALIGN_UP(bytes, 8192));

	memset(p, 0, WEIR_ALIGN_UP(bytes, 8192));
	return p;
}

void
bench_must(struct engine_command *k)
{
	if (!engine_execute(bench_engine, k) || k->result) {
		fprintf(stderr, "command %d: %d\n", k->type, k->result);
		exit(1);
	}
}

void
bench_attach(struct bench_program *p, uint32_t id, uint32_t connections)
{
	struct engine_command k = {.type = ENGINE_SESSION_ADD, .session = &p->session};
	struct weir_geometry *g = &p->session.geometry;
	struct weir_channel_head *head;

	p->session.id = id;
	*g = (struct weir_geometry){.connections = connections,
				    .channels = 1,
				    .ring_slots = 4096,
				    .recv_blocks = 4096,
				    .engines = 1,
				    .send_blocks = 64};
	g->bytes = weir_arena_end(g);
	p->session.base = bench_memory(g->bytes);
	p->session.work = bench_memory(engine_session_bytes(&bench_config, g));
	bench_must(&k);
	k = (struct engine_command){.type = ENGINE_CHANNEL_ADD, .channel = {.session = id}};
	bench_must(&k);
	head = (void *)(p->session.base + weir_arena_channel(g, 0));
	weir_ring_init(&p->tx, head + 1, g->ring_slots, &head->tx_tail, true);
	weir_ring_init(&p->rx, (uint8_t *)(head + 1) + g->ring_slots * 64, g->ring_slots,
		       &head->rx_tail, false);
	weir_ring_init(&p->returns, (uint8_t *)(head + 1) + g->ring_slots * 128, WEIR_RETURN_SLOTS,
		       &head->return_tail, true);
}

void
bench_connect(struct bench_program *p, uint32_t desc, struct bench_end ends[2])
{
	struct engine_command k = {.type = ENGINE_CONN_OPEN,
				   .conn = {.session = p->session.id, .desc = desc}};
	struct weir_slot *s;

	bench_must(&k);
	ends[0] = (struct bench_end){.vqpn = k.conn.vqpn, .desc = desc};
	while (!was_asked)
		engine_turn(bench_engine, bench_now += 100);
	was_asked = false;
	k.type = ENGINE_CONN_ACCEPT;
	k.conn = asked.conn;
	k.conn.session = p->session.id;
	k.conn.desc = desc + 1;
	k.conn.listener = 1;
	bench_must(&k);
	ends[1] = (struct bench_end){.vqpn = k.conn.vqpn, .desc = desc + 1};
	for (unsigned events = 0; events < 2;) {
		engine_turn(bench_engine, bench_now += 100);
		while ((s = weir_ring_peek(&p->rx))) {
			weir_ring_pop(&p->rx, 1);
			events++;
		}
	}
}

static struct weir_conn_desc *
desc_of(const struct bench_program *p, const struct bench_end *end)
{
	void *first = p->session.base + weir_arena_descs(&p->session.geometry);

	return (struct weir_conn_desc *)first + end->desc;
}

void
bench_send(struct bench_program *p, struct bench_end *from, unsigned n, uint32_t length)
{
	const struct weir_conn_desc *mine = desc_of(p, from);
	static uint8_t payload[WEIR_INLINE_MAX];

	weir_ring_refresh(&p->tx);
	while (n-- && weir_ring_room(&p->tx) >= WEIR_INLINE_SLOTS &&
	       atomic_load(&mine->granted) - from->spent >= weir_cost(length)) {
		struct weir_slot *s = weir_ring_at(&p->tx, p->tx.pos);

		s->op = WEIR_OP_INLINE;
		s->flags = 0;
		s->order = from->order++;
		s->vqpn = from->vqpn;
		s->length = length;
		weir_ring_put_inline(&p->tx, payload, length);
		weir_ring_publish(&p->tx, weir_slots_inline(length));
		from->spent += weir_cost(length);
	}
}

unsigned
bench_receive(struct bench_program *p, struct bench_end *to)
{
	struct weir_slot *s, consume = {.op = WEIR_OP_CONSUMED, .vqpn = to->vqpn};
	const struct weir_conn_desc *mine = desc_of(p, to);
	unsigned n = 0;

	while ((s = weir_ring_peek(&p->rx))) {
		to->consumed += weir_cost(s->length);
		weir_ring_pop(&p->rx, weir_slots_inline(s->length));
		n++;
	}
	if (to->consumed >= atomic_load(&mine->recv_due) && to->consumed != to->told) {
		consume.value = to->told = to->consumed;
		weir_ring_refresh(&p->returns);
		memcpy((char *)weir_ring_at(&p->returns, p->returns.pos) + 4, (char *)&consume + 4,
		       60);
		weir_ring_publish(&p->returns, 1);
	}
	return n;
}

void
bench_export(struct bench_program *p, uint64_t bytes)
{
	static _Atomic bool updating;
	struct engine_command k = {.type = ENGINE_REGION_ADD,
				   .region = {.session = p->session.id,
					      .region = 1,
					      .base = bench_memory(bytes),
					      .bytes = WEIR_ALIGN_UP(bytes, 4096),
					      .updating = &updating}};

	bench_must(&k);
	k = (struct engine_command){.type = ENGINE_EXPORT_ADD,
				    .export = {.session = p->session.id,
					       .number = 1,
					       .generation = 1,
					       .region = 1,
					       .length = bytes,
					       .rights = WEIR_RIGHTS_KNOWN}};
	bench_must(&k);
}

void
bench_open(struct bench_program *p, uint32_t desc, struct bench_end *end)
{
	struct weir_wire_export x = {.generation = 1, .rights = WEIR_RIGHTS_KNOWN};
	struct engine_command k = {
	    .type = ENGINE_CONN_OPEN,
	    .conn = {.session = p->session.id, .desc = desc, .kind = CONN_MEMORY}};
	struct weir_slot *s;

	memcpy(k.conn.service, &x, sizeof(x));
	bench_must(&k);
	*end = (struct bench_end){.vqpn = k.conn.vqpn, .desc = desc};
	while (!was_asked)
		engine_turn(bench_engine, bench_now += 100);
	was_asked = false;
	k.type = ENGINE_CONN_ACCEPT;
	k.conn = asked.conn;
	k.conn.session = p->session.id;
	k.conn.channel = ENGINE_CHANNEL_NONE;
	k.conn.desc = ENGINE_DESC_NONE;
	k.conn.listener = 0;
	k.conn.export_session = p->session.id;
	k.conn.export_number = k.conn.export_generation = 1;
	k.conn.rights = WEIR_RIGHTS_KNOWN;
	bench_must(&k);
	while (!(s = weir_ring_peek(&p->rx)))
		engine_turn(bench_engine, bench_now += 100);
	weir_ring_pop(&p->rx, 1);
}

/* Up to n operations, as far as the ring has room. `cell`: fields and payload. */
static __attribute__((noinline)) void
write_cells(struct bench_program *p, struct bench_end *from, unsigned n, uint8_t op,
	    const uint8_t *cell, uint32_t length)
{
	weir_ring_refresh(&p->tx);
	while (n-- && weir_ring_room(&p->tx) >= WEIR_INLINE_SLOTS) {
		struct weir_slot *s = weir_ring_at(&p->tx, p->tx.pos);

		s->op = op;
		s->flags = 0;
		s->order = from->order++;
		s->vqpn = from->vqpn;
		s->length = length;
		weir_ring_put_inline(&p->tx, cell, weir_cell_fields(op) + length);
		weir_ring_publish(&p->tx, weir_cell_slots(op, length));
	}
}

void
bench_put(struct bench_program *p, struct bench_end *from, unsigned n, uint32_t length)
{
	struct weir_cell_put put = {.handle = WEIR_HANDLE_FIRST};
	uint8_t cell[WEIR_INLINE_MAX] = {0};

	memcpy(cell, &put, WEIR_PUT_FIELDS);
	write_cells(p, from, n, WEIR_OP_PUT, cell, length);
}

static void
add(struct bench_program *p, struct bench_end *from, unsigned n, uint32_t length,
    enum weir_type type)
{
	uint32_t count = length / (uint32_t)weir_type_size(type);
	struct weir_cell_access add = {.handle = WEIR_HANDLE_FIRST,
				       .type = (uint8_t)type,
				       .acc = WEIR_ACC_SUM,
				       .count = count};
	uint8_t cell[WEIR_INLINE_MAX] = {0};

	memcpy(cell, &add, WEIR_ACCESS_FIELDS);
	write_cells(p, from, n, WEIR_OP_UPDATE, cell, count * (uint32_t)weir_type_size(type));
}

void
bench_add(struct bench_program *p, struct bench_end *from, unsigned n, uint32_t length)
{
	add(p, from, n, length, WEIR_T_INT64);
}

void
bench_add_bytes(struct bench_program *p, struct bench_end *from, unsigned n, uint32_t length)
{
	add(p, from, n, length, WEIR_T_INT8);
}

void
bench_add_wide(struct bench_program *p, struct bench_end *from, unsigned n, uint32_t length)
{
	add(p, from, n, length, WEIR_T_LONG_DOUBLE);
}

void
bench_get(struct bench_program *p, struct bench_end *from, unsigned n, uint32_t length)
{
	struct weir_cell_access get = {
	    .handle = WEIR_HANDLE_FIRST,
	    .result = (uint32_t)(weir_arena_send(&p->session.geometry) / WEIR_SLOT_SIZE),
	    .count = length};
	uint8_t cell[WEIR_INLINE_MAX] = {0};

	memcpy(cell, &get, WEIR_ACCESS_FIELDS);
	write_cells(p, from, n, WEIR_OP_GET, cell, 0);
}

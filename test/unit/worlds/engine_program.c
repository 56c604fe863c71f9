/* SPDX-License-Identifier: BSD-3-Clause */
/* Programs of engine_world.h: what they submit, send and read. */
#include "engine_world.h"

#include "weir/memory.h"

#include <sys/mman.h>

#define CONTROL_SLOTS 2u /* that messages leave free, as the library has it */
#define ARENA_ALIGN 8192u

struct pconn *
program_conn(struct program *p, uint32_t vqpn)
{
	for (unsigned i = 0; i < CONNS; i++)
		if (p->conn[i].used && p->conn[i].vqpn == vqpn)
			return &p->conn[i];
	return NULL;
}

struct pconn *
program_free_conn(struct program *p)
{
	for (unsigned i = 0; i < CONNS; i++)
		if (!p->conn[i].used || p->conn[i].freed) {
			p->conn[i] = (struct pconn){.p = p, .desc = i, .used = true};
			return &p->conn[i];
		}
	fail_msg("no free connection in the test program");
	return NULL;
}

/*
 * Mapped as in a data plane, with guard pages on both sides: an engine that leaves it faults. Of
 * malloc(), an address sanitizer would write and clear the shadow of 73 MiB per program.
 */
static void
map_arena(struct program *p, size_t bytes)
{
	p->arena_bytes = WEIR_ALIGN_UP(bytes, ARENA_ALIGN) + 3 * ARENA_ALIGN;
	p->arena_map = mmap(NULL, p->arena_bytes, PROT_NONE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_ptr_not_equal(p->arena_map, MAP_FAILED);
	p->arena = (uint8_t *)WEIR_ALIGN_UP((uintptr_t)p->arena_map + ARENA_ALIGN, ARENA_ALIGN);
	assert_int_equal(
	    mprotect(p->arena, WEIR_ALIGN_UP(bytes, ARENA_ALIGN), PROT_READ | PROT_WRITE), 0);
}

void
program_free(struct program *p)
{
	for (unsigned i = 0; i < REGIONS; i++)
		free(p->region[i].base);
	munmap(p->arena_map, p->arena_bytes);
	free(p->view.work);
	free(p);
}

void
program_end_region(struct program *p, uint32_t region)
{
	p->disowned[region - 1] = true;
	fake_mr_end(&p->w->net, &p->region[region - 1].mr);
}

int
program_command(struct program *p, struct engine_command *c)
{
	return node_command(&p->w->node[p->node], c);
}

static void
add_channel(struct program *p, unsigned i)
{
	const struct weir_geometry *g = &p->view.geometry;
	uint8_t *at = p->arena + weir_arena_channel(g, i);
	struct weir_channel_head *head = (void *)at;
	struct engine_command k = {.type = ENGINE_CHANNEL_ADD,
				   .channel = {p->id, i, p->id * CHANNELS + i, true}};

	weir_ring_init(&p->tx[i], at + sizeof(*head), g->ring_slots, &head->tx_tail, true);
	weir_ring_init(&p->returns[i], at + sizeof(*head) + g->ring_slots * 128, WEIR_RETURN_SLOTS,
		       &head->return_tail, true);
	weir_ring_init(&p->rx[i], at + sizeof(*head) + g->ring_slots * 64, g->ring_slots,
		       &head->rx_tail, false);
	assert_int_equal(program_command(p, &k), 0);
}

struct program *
program_open(struct world *w, unsigned node, unsigned channels)
{
	struct program *p = calloc(1, sizeof(*p));
	struct engine_config config = {.id = 0,
				       .links = 4,
				       .session_pending = w->options.pending,
				       .regions = REGIONS,
				       .exports = EXPORTS};
	struct weir_geometry *g = &p->view.geometry;
	struct engine_command k = {.type = ENGINE_SESSION_ADD, .session = &p->view};
	struct node *n = &w->node[node];

	while (n->program[p->id])
		p->id++;
	assert_true(p->id < PROGRAMS);
	n->program[p->id] = p;
	p->w = w;
	p->node = node;
	*g = (struct weir_geometry){.magic = WEIR_ARENA_MAGIC,
				    .version = WEIR_LAYOUT_VERSION,
				    .connections = CONNS,
				    .channels = CHANNELS,
				    .ring_slots = w->options.ring_slots,
				    .recv_blocks = w->options.recv_blocks,
				    .engines = 1,
				    .send_blocks = 8192};
	g->bytes = weir_arena_end(g);
	map_arena(p, g->bytes);
	p->view.id = p->id;
	p->view.base = p->arena;
	p->view.recv_mr = fake_mr(&w->net, p->arena + weir_arena_recv(g),
				  (size_t)g->recv_blocks * WEIR_BLOCK_SIZE, NIC_REMOTE_WRITE);
	p->view.send_mr =
	    fake_mr(&w->net, p->arena + weir_arena_send(g),
		    (size_t)g->send_blocks * WEIR_BLOCK_SIZE, NIC_LOCAL_WRITE | NIC_REMOTE_READ);
	atomic_store(&p->share.weight, ENGINE_WEIGHT);
	p->view.share = &p->share;
	p->view.work = aligned_alloc(64, engine_session_bytes(&config, g));
	memset(p->view.work, 0, engine_session_bytes(&config, g));
	assert_int_equal(program_command(p, &k), 0);
	for (unsigned i = 0; i < channels; i++)
		add_channel(p, i);
	return p;
}

void
program_share(struct program *p, uint32_t weight, uint64_t rate, uint64_t burst_ns)
{
	struct engine_command k = {.type = ENGINE_SESSION_SHARE, .session = &p->view};

	atomic_store(&p->share.weight, weight);
	atomic_store(&p->share.burst_ns, burst_ns);
	atomic_store(&p->share.rate, rate);
	assert_int_equal(program_command(p, &k), 0);
}

void
program_die(struct program *p)
{
	struct engine_command *k = calloc(1, sizeof(*k));

	k->type = ENGINE_SESSION_REMOVE;
	k->session = &p->view;
	k->owner = p;
	p->stopped = true;
	assert_false(engine_execute(p->w->node[p->node].engine, k));
}

void
program_adopt(struct program *p, uint32_t region, uint64_t bytes, uint32_t flags)
{
	struct engine_command k = {.type = ENGINE_REGION_ADD};
	struct engine_region *r = &p->region[region - 1];
	unsigned access = (flags & WEIR_ADOPT_RECV ? NIC_LOCAL_WRITE | NIC_REMOTE_WRITE : 0u) |
			  (flags & WEIR_ADOPT_SEND ? NIC_REMOTE_READ : 0u);

	assert_null(r->base);
	*r = (struct engine_region){.session = p->id,
				    .region = region,
				    .base = aligned_alloc(4096, bytes),
				    .bytes = bytes,
				    .flags = flags,
				    .updating = &p->updating[region - 1]};
	memset(r->base, 0xaa, bytes);
	r->mr = fake_mr(&p->w->net, r->base, bytes, access);
	k.region = *r;
	assert_int_equal(program_command(p, &k), 0);
}

void
program_disown(struct program *p, uint32_t region)
{
	struct engine_command *k = calloc(1, sizeof(*k));

	k->type = ENGINE_REGION_REMOVE;
	k->region = p->region[region - 1];
	k->owner = p;
	if (!engine_execute(p->w->node[p->node].engine, k))
		return;
	assert_int_equal(k->result, 0);
	program_end_region(p, region);
	free(k);
}

static struct weir_conn_desc *
desc_of(const struct pconn *c)
{
	return (struct weir_conn_desc *)(void *)(c->p->arena +
						 weir_arena_descs(&c->p->view.geometry)) +
	       c->desc;
}

uint64_t
pconn_completed(const struct pconn *c)
{
	return atomic_load(&desc_of(c)->completed);
}

uint64_t
pconn_granted(const struct pconn *c)
{
	return atomic_load(&desc_of(c)->granted);
}

uint32_t
pconn_status(const struct pconn *c)
{
	return atomic_load(&desc_of(c)->status);
}

static uint8_t
pattern(uint32_t tag, uint64_t message, uint32_t i)
{
	return (uint8_t)(tag * 131 + message * 29 + i * 7 + (i >> 8) * 3);
}

static void
fill(uint8_t *to, const struct pconn *c, uint32_t length)
{
	for (uint32_t i = 0; i < length; i++)
		to[i] = pattern(c->tag_out, c->sent, i);
	if (c->datagram) /* which one it is */
		memcpy(to, &c->sent, sizeof(c->sent));
}

static struct pconn *
open_conn(struct program *p, bool datagram)
{
	struct pconn *c = program_free_conn(p);
	struct engine_command k = {
	    .type = ENGINE_CONN_OPEN,
	    .conn = {.session = p->id, .desc = c->desc, .link = 1, .service = "echo"}};

	c->datagram = datagram;
	k.conn.kind = datagram ? CONN_DATAGRAM : CONN_STREAM;
	k.conn.ah = (struct nic_ah *)&p->w->node[p->node].ah;
	k.conn.mtu = datagram ? WORLD_MTU : 0;
	assert_int_equal(program_command(p, &k), 0);
	c->vqpn = k.conn.vqpn;
	return c;
}

struct pconn *
pconn_connect_memory(struct program *p, const struct weir_wire_export *x)
{
	struct pconn *c = program_free_conn(p);
	struct engine_command k = {
	    .type = ENGINE_CONN_OPEN,
	    .conn = {.session = p->id, .desc = c->desc, .link = 1, .kind = CONN_MEMORY}};

	memcpy(k.conn.service, x, sizeof(*x));
	assert_int_equal(program_command(p, &k), 0);
	c->vqpn = k.conn.vqpn;
	return c;
}

struct pconn *
pconn_open_remote(struct program *p, const struct weir_wire_export *x)
{
	struct pconn *c = pconn_connect_memory(p, x);

	STEP_MOST(p->w, 400, !c->opened);
	assert_true(c->opened);
	assert_int_equal(c->open_status, 0);
	return c;
}

struct pconn *
pconn_open_apart(struct program *p, const struct program *exporter,
		 const struct weir_wire_export *x)
{
	struct pconn *c = program_free_conn(p);
	struct engine_command k = {.type = ENGINE_CONN_APART,
				   .conn = {.session = p->id,
					    .desc = c->desc,
					    .kind = CONN_MEMORY,
					    .listener = ENGINE_LISTENER_NONE,
					    .export_session = exporter->id,
					    .export_number = x->index,
					    .export_generation = x->generation,
					    .rights = x->rights}};

	assert_int_equal(program_command(p, &k), 0);
	c->vqpn = k.conn.vqpn;
	world_run(p->w, 5);
	assert_true(c->opened && !c->open_status);
	return c;
}

struct pconn *
pconn_connect(struct program *p)
{
	return open_conn(p, false);
}

struct pconn *
pconn_connect_datagram(struct program *p)
{
	return open_conn(p, true);
}

void
program_slot(struct program *p, uint32_t channel, const struct weir_slot *s)
{
	bool back = s->op == WEIR_OP_RELEASE || s->op == WEIR_OP_CONSUMED || s->op == WEIR_OP_POST;

	ring_put(back ? &p->returns[channel] : &p->tx[channel], s);
}

void
ring_put(struct weir_ring *r, const struct weir_slot *s)
{
	if (!weir_ring_room(r))
		weir_ring_refresh(r);
	assert_true(weir_ring_room(r) > 0);
	memcpy((char *)weir_ring_at(r, r->pos) + 4, (const char *)s + 4, 60);
	weir_ring_publish(r, 1);
}

void
pconn_op(struct pconn *c, uint8_t op, uint64_t value)
{
	struct weir_slot s = {.op = op, .vqpn = c->vqpn, .order = (uint16_t)c->sent};

	s.value = value;
	program_slot(c->p, c->channel, &s);
}

void
pconn_cell(struct pconn *c, uint8_t op, uint32_t length, const void *cell, size_t bytes)
{
	struct weir_slot s = {
	    .op = op, .order = (uint16_t)c->sent, .vqpn = c->vqpn, .length = length};

	memcpy(s.data, cell, bytes);
	program_slot(c->p, 0, &s);
	c->sent++;
}

void
pconn_put_word(struct pconn *c, uint64_t offset, uint64_t value)
{
	struct weir_cell_put cell = {.handle = WEIR_HANDLE_FIRST, .offset = offset};

	memcpy(cell.payload, &value, sizeof(value));
	pconn_cell(c, WEIR_OP_PUT, sizeof(value), &cell, sizeof(cell));
}

bool
pconn_push(struct pconn *c, uint32_t channel, uint32_t length, unsigned flags)
{
	bool is_inline = length <= WEIR_INLINE_MAX && !(flags & WEIR_SLOT_BULK);
	uint32_t n = is_inline ? weir_slots_inline(length) : 1;
	struct weir_ring *r = &c->p->tx[channel];
	struct weir_slot s = {.op = is_inline ? WEIR_OP_INLINE : WEIR_OP_PLACE,
			      .flags = (uint8_t)flags,
			      .order = (uint16_t)c->sent,
			      .vqpn = c->vqpn,
			      .length = length};
	uint8_t payload[WEIR_INLINE_MAX];

	if (weir_ring_room(r) < n + CONTROL_SLOTS) {
		assert_true(weir_ring_refresh(r));
		if (weir_ring_room(r) < n + CONTROL_SLOTS)
			return false;
	}
	if (is_inline) {
		fill(payload, c, length);
		memcpy((char *)weir_ring_at(r, r->pos) + 4, (char *)&s + 4, 12);
		weir_ring_put_inline(r, payload, length);
		weir_ring_publish(r, n);
	} else {
		const struct weir_geometry *g = &c->p->view.geometry;
		uint64_t room = (uint64_t)g->send_blocks * WEIR_BLOCK_SIZE;

		/* the heap is large enough that nothing under way is written over */
		if (c->p->heap % room + length > room)
			c->p->heap += room - c->p->heap % room;
		s.place[0] = WEIR_PLACE(0, weir_arena_send(g) + c->p->heap % room);
		fill(c->p->arena + WEIR_PLACE_OFFSET(s.place[0]), c, length);
		c->p->heap += WEIR_ALIGN_UP(length, 64);
		program_slot(c->p, channel, &s);
	}
	c->sent++;
	return true;
}

/* For what is said of a message: WANT; RELEASE and CONSUMED. */
static bool
has_room(struct weir_ring *r)
{
	return weir_ring_room(r) >= 2 || (weir_ring_refresh(r) && weir_ring_room(r) >= 2);
}

void
pconn_sends(struct pconn *c, uint32_t length, unsigned flags, unsigned n)
{
	while (n--)
		assert_true(pconn_send(c, length, flags));
}

void
pconn_stream(struct pconn *from, struct pconn *to, uint32_t length, unsigned flags, unsigned n)
{
	uint64_t want = to->received + n, end = from->sent + n;

	for (unsigned i = 0;
	     i < 400000 && (n || pconn_completed(from) < end || to->received < want); i++) {
		while (n && pconn_send(from, length, flags))
			n--;
		world_step(from->p->w);
	}
	assert_int_equal(n, 0);
	assert_int_equal(to->received, want);
	assert_int_equal(pconn_completed(from), end);
}

void
pconn_fill(struct pconn *c, uint32_t length)
{
	while (pconn_send(c, length, 0))
		;
}

void
pconn_tries(struct pconn *c, uint32_t length, unsigned n, unsigned steps)
{
	while (n--) {
		pconn_send(c, length, 0);
		world_run(c->p->w, steps);
	}
}

unsigned
pconn_pushes(struct pconn *c, uint32_t channel, uint32_t length, unsigned n)
{
	unsigned pushed = 0;

	while (n--)
		pushed += pconn_push(c, channel, length, 0);
	return pushed;
}

bool
pconn_send(struct pconn *c, uint32_t length, unsigned flags)
{
	uint32_t window = atomic_load(&desc_of(c)->window);
	bool bulk = flags & WEIR_SLOT_BULK;
	uint64_t granted = pconn_granted(c);

	if (!(flags & WEIR_SLOT_TRANSFERS))
		bulk |= length > WEIR_BLOCK_SIZE || weir_cost(length) > window;
	if (!bulk && (granted < c->spent || granted - c->spent < weir_cost(length))) {
		struct weir_slot want = {
		    .op = WEIR_OP_WANT, .vqpn = c->vqpn, .length = weir_cost(length)};

		if (!has_room(&c->p->tx[c->channel]))
			return false;
		if (c->wants == c->writable) /* each is answered once */
			program_slot(c->p, c->channel, &want);
		c->wants = c->writable + 1;
		return false;
	}
	if (!pconn_push(c, c->channel, length, bulk ? flags | WEIR_SLOT_BULK : flags))
		return false;
	if (!bulk)
		c->spent += weir_cost(length);
	return true;
}

void
pconn_push_from(struct pconn *c, weir_place place, uint32_t length, unsigned way)
{
	struct weir_slot s = {.op = WEIR_OP_PLACE,
			      .flags = (uint8_t)(WEIR_SLOT_BULK | way),
			      .order = (uint16_t)c->sent,
			      .vqpn = c->vqpn,
			      .length = length};

	s.place[0] = place;
	fill(c->p->region[WEIR_PLACE_REGION(place) - 1].base + WEIR_PLACE_OFFSET(place), c, length);
	program_slot(c->p, c->channel, &s);
	c->sent++;
}

void
pconn_post(struct pconn *c, weir_place place, uint64_t number, uint32_t room)
{
	struct weir_slot s = {.op = WEIR_OP_POST, .vqpn = c->vqpn, .length = room};

	s.place[0] = place;
	s.place[1] = number;
	program_slot(c->p, c->channel, &s);
}

void
pconn_close(struct pconn *c)
{
	pconn_op(c, WEIR_OP_CLOSE, 0);
}

void
pconn_shut(struct pconn *c)
{
	pconn_op(c, WEIR_OP_END, 0);
}

/* ---- what programs read ---- */

static void
give_back(struct program *p, uint32_t channel, weir_place place)
{
	struct weir_slot s = {.op = WEIR_OP_RELEASE, .length = 1};

	s.place[0] = place;
	program_slot(p, channel, &s);
}

void
program_release_held(struct program *p)
{
	for (uint32_t i = 0; i < p->held_count; i++) {
		give_back(p, 0, p->held[i].place);
		world_step(p->w);
	}
	p->held_count = 0;
}

static void
tell_consumed(struct pconn *c)
{
	struct weir_slot s = {.op = WEIR_OP_CONSUMED, .vqpn = c->vqpn};

	s.value = c->consumed;
	s.status = c->percent;
	program_slot(c->p, c->channel, &s);
	c->told = c->consumed;
}

/* As the library: what was consumed is told when nothing has come for a while. */
static void
settle(struct program *p, uint32_t channel)
{
	for (unsigned i = 0; i < CONNS; i++) {
		struct pconn *c = &p->conn[i];

		if (c->used && c->opened && !c->freed && !c->datagram && c->channel == channel &&
		    c->consumed != c->told && has_room(&p->returns[channel]))
			tell_consumed(c);
	}
}

static void
consume(struct pconn *c, uint32_t cost)
{
	uint64_t due = atomic_load(&desc_of(c)->recv_due);
	uint32_t window = atomic_load(&desc_of(c)->recv_window);

	if (due <= c->told || due > c->told + window / 2)
		due = c->told + window / 2;
	c->consumed += cost;
	if (c->consumed >= due)
		tell_consumed(c);
}

/*
 * The next message of a stream; on a datagram connection whole, at most once, in any order.
 */
static void
verify(struct pconn *c, const uint8_t *at, uint32_t length)
{
	uint64_t n = c->received;
	uint32_t i = 0;

	if (c->datagram) {
		memcpy(&n, at, sizeof(n));
		assert_true(length >= sizeof(n) && n < WORLD_DATAGRAMS);
		if (c->seen[n / 64] >> n % 64 & 1)
			fail_msg("datagram %lu came twice", (unsigned long)n);
		c->seen[n / 64] |= 1ull << n % 64;
		i = sizeof(n);
	}
	for (; i < length; i++)
		if (at[i] != pattern(c->tag_in, n, i))
			fail_msg("message %lu of length %u: byte %u is %u", (unsigned long)n,
				 length, i, at[i]);
}

static void
take_message(struct program *p, uint32_t channel, const struct weir_slot *s)
{
	struct pconn *c = program_conn(p, s->vqpn);
	uint8_t buf[WEIR_INLINE_MAX];

	assert_non_null(c);
	assert_true(c->opened);
	assert_false(c->done || c->peer_shut);
	assert_int_equal(s->order, (uint16_t)c->received);
	if (c->no_read) {
		c->received++;
		return;
	}
	if (s->op == WEIR_OP_INLINE) {
		assert_true(s->length <= WEIR_INLINE_MAX);
		weir_ring_get_inline(&p->rx[channel], buf, s->length);
		verify(c, buf, s->length);
	} else if (WEIR_PLACE_REGION(s->place[0])) {
		assert_true(s->flags & WEIR_SLOT_BULK);
		verify(c,
		       p->region[WEIR_PLACE_REGION(s->place[0]) - 1].base +
			   WEIR_PLACE_OFFSET(s->place[0]),
		       s->length);
		c->placed++;
	} else {
		verify(c, p->arena + WEIR_PLACE_OFFSET(s->place[0]), s->length);
		if (c->keep_blocks)
			p->held[p->held_count++] = (struct held){s->place[0], c};
		else
			give_back(p, channel, s->place[0]);
	}
	c->received++;
	if (!(s->flags & WEIR_SLOT_BULK) && !c->keep_blocks)
		consume(c, weir_cost(s->length));
}

static void
take_event(struct program *p, const struct weir_slot *s)
{
	struct pconn *c = program_conn(p, s->vqpn);

	if (s->op == WEIR_OP_NODE) {
		p->nodes_seen++;
		return;
	}
	assert_non_null(c);
	switch (s->op) {
	case WEIR_OP_OPENED:
	case WEIR_OP_ACCEPTED:
		assert_true(!c->opened || c->held);
		c->opened = true;
		c->held = s->op == WEIR_OP_ACCEPTED && s->accept.flags & WEIR_ACCEPTED_HELD;
		if (s->op == WEIR_OP_OPENED) {
			c->open_status = s->status;
			c->mtu = (uint16_t)s->length;
			c->bytes = s->value;
			c->rights = s->length;
		} else {
			c->peer_vqpn = s->accept.peer_vqpn;
			c->mtu = s->accept.mtu;
		}
		break;
	case WEIR_OP_END:
		assert_false(c->done || c->peer_shut);
		c->peer_shut = true;
		break;
	case WEIR_OP_CLOSED:
		assert_false(c->done);
		c->done = true;
		c->close_status = s->status;
		break;
	case WEIR_OP_DONE:
		assert_false(c->done);
		assert_true(s->value >= c->done_value);
		c->done_value = s->value;
		break;
	case WEIR_OP_REASON:
		assert_false(c->opened);
		c->reasons++;
		break;
	case WEIR_OP_WRITABLE:
		c->writable++;
		break;
	default:
		fail_msg("op %u in the receive ring", s->op);
	}
}

void
program_read(struct program *p)
{
	for (unsigned i = 0; i < CHANNELS; i++) {
		struct weir_slot *s;

		if (!p->rx[i].slots)
			continue;
		if (weir_ring_peek(&p->rx[i]))
			p->empty[i] = 0;
		else if (++p->empty[i] == 64)
			settle(p, i);
		while ((s = weir_ring_peek(&p->rx[i])) && has_room(&p->returns[i])) {
			struct weir_slot copy = *s;

			if (copy.op == WEIR_OP_INLINE || copy.op == WEIR_OP_PLACE)
				take_message(p, i, &copy);
			else
				take_event(p, &copy);
			weir_ring_pop(&p->rx[i], copy.op == WEIR_OP_INLINE
						     ? weir_slots_inline(copy.length)
						     : 1);
		}
	}
}

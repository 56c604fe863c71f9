/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One export that several programs use. Each of its ranges belongs to one program at a time, whose
 * operations there have one legal result each. It passes the range on in one of the ways that put
 * what the next one does behind what it did: by a notice or a signal word, behind operations that
 * may be under way; by a message, or a word of mouth, after a flush; by the lock. The exporting
 * program loads and stores where others put and get. Other words are raced for (racing.c). Bytes
 * around the export stay as they are.
 */
#include "common.h"
#include "memory.h"
#include "node.h"
#include "oracle.h"
#include "racing.h"

#include "ipc/apply.h"
#include "remote/lock.h"
#include "remote/notice.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REGION SIM_COMMON_REGION
#define LEAD 2048u /* bytes of the region before the export, unless programs map it whole */
#define SMALL 8448u
#define LARGE 66048u
#define RANGES 5u
#define BY_LOCK 3u /* the range that the lock protects */
#define BIG 4u
#define RACING 64u /* offset; before it, a signal word for each range */
#define FIRST (RACING + RACING_BYTES)
#define BYTES (FIRST + BIG * SMALL + LARGE)
#define UNDER_WAY 32u /* operations of a user */
#define REPAIR 900u   /* bytes of a put that makes a range consistent */
#define RETRY (200 * SIM_US)
#define RIGHTS (WEIR_MAY_READ | WEIR_MAY_WRITE | WEIR_MAY_UPDATE | WEIR_MAY_NOTIFY | WEIR_MAY_LOCK)

enum kind { PUT, GET, UPDATE, SWAP, POLL, RACE };
enum state { HELD, PASSED, RETIRED, LOST };
enum edge { TOLD, BY_MESSAGE, BY_NOTICE, BY_SIGNAL };
enum lock_state { IDLE, ASKS, HOLDS, LEAVES };

struct range {
	uint32_t at, bytes; /* in the export */
	uint8_t state, edge;
	bool chosen;	     /* HELD: `edge` and `next` */
	uint32_t holder;     /* PASSED: the next one */
	uint32_t next, from; /* programs */
	uint32_t turn, left; /* hand-overs so far; to go */
	uint32_t todo;	     /* HELD: operations before the next one */
	uint32_t under_way;  /* of these */
	bool feast;	     /* they are gets whose answers fill the link's room for answers */
	uint32_t alike;	     /* or updates of one such type, 0: they are not, which make up runs */
	uint64_t word, before; /* its signal word, when the last signal has arrived; before that */
	uint32_t bytes_told;   /* of the put that a notice came with */
	uint32_t conn, side;   /* BY_MESSAGE */
	bool woken;	       /* the thread of the next one */
	uint32_t message;      /* number of it */
};

struct operation {
	uint8_t kind, range;
	enum weir_type type;
	enum weir_acc acc;
	unsigned flags;
	uint32_t offset, length;
	uint32_t block, stride; /* pieces; 0: one */
	bool fetches;
	uint32_t number;
	uint8_t *result, *legal; /* of a get or fetch */
	uint64_t word;		 /* POLL */
	struct race race;
};

struct user {
	struct rng rng;
	struct weir_remote *r;
	bool opened, flushing, polls, done;
	uint64_t wait_until, poll_at;
	uint32_t races, rounds; /* to go */
	uint8_t lock;		/* enum lock_state */
	int kind;		/* of the lock */
	bool asked, wrote;
	bool owes; /* the owner may not know that it has left an exclusive lock */
	uint32_t todo;
	uint64_t lock_at;
	struct operation op[UNDER_WAY];
	uint32_t ops;
};

struct sim_common {
	const struct sim_common_plan *plan;
	struct weir_region *region;
	struct weir_export *x;
	struct weir_key key;
	uint8_t *base; /* of the region; NULL: not there yet, or gone */
	uint32_t start, length;
	bool exported;
	struct range range[RANGES];
	uint32_t repaired; /* bytes of the lock's range, from its start, that are as in the model */
	bool in_doubt;	   /* an exclusive holder ended, and no exclusive one was told */
	bool maybe;	   /* a program ended that may have held the lock */
	uint32_t number;   /* of operations */
	struct racing *racing;
	struct user user[RACING_USERS];
	uint8_t model[BYTES] __attribute__((aligned(64)));
};

void
sim_common_create(struct sim *s)
{
	struct sim_common *k;

	s->common = NULL;
	if (!s->sc.common.users)
		return;
	s->common = k = aligned_alloc(64, (sizeof(*k) + 63) / 64 * 64);
	if (!k)
		abort();
	memset(k, 0, sizeof(*k));
	k->plan = &s->sc.common;
	k->racing = racing_create(RACING);
	for (uint32_t i = 0; i < RANGES; i++)
		k->range[i] = (struct range){.at = FIRST + i * SMALL,
					     .bytes = i == BIG ? LARGE : SMALL,
					     .holder = k->plan->owner,
					     .left = k->plan->passes,
					     .todo = 1};
	k->repaired = SMALL;
	for (uint32_t i = 0; i < RACING_USERS; i++) {
		struct user *u = &k->user[i];

		u->rng.state = sim_hash(s->sc.seed, 93, i);
		u->done = !(k->plan->users & 1u << i);
		u->races = k->plan->races;
		u->rounds = k->plan->rounds;
		u->wait_until = k->plan->start;
	}
}

static void
forget_operations(struct user *u)
{
	for (uint32_t i = 0; i < u->ops; i++) {
		free(u->op[i].result);
		free(u->op[i].legal);
	}
	u->ops = 0;
}

void
sim_common_destroy(struct sim *s)
{
	struct sim_common *k = s->common;

	if (!k)
		return;
	for (uint32_t i = 0; i < RACING_USERS; i++)
		forget_operations(&k->user[i]);
	free(k->racing);
	free(k);
}

static uint8_t
byte_of(uint32_t number, uint32_t at)
{
	return (uint8_t)(number * 41 + at * 13 + 5);
}

void
sim_common_attached(struct sim_program *p)
{
	struct sim_common *k = p->s->common;
	struct weir_region_info info;
	int rc;

	if (!k || k->plan->owner != p->id)
		return;
	k->start = k->plan->maps ? 0 : LEAD;
	k->length = k->plan->maps ? REGION : BYTES;
	rc = weir_region_alloc(p->w, REGION, NULL, &k->region);
	if (!rc)
		rc = weir_export(k->region, k->start, k->length,
				 RIGHTS | (k->plan->maps ? WEIR_MAY_MAP : 0), &k->x, &k->key);
	if (rc)
		sim_fail(p->s, "program %u: exports no common memory: %d: %s", p->id, rc,
			 weir_reason());
	weir_region_info(k->region, &info);
	k->base = info.base;
	for (uint32_t i = 0; i < REGION; i++)
		if (i < k->start || i >= k->start + BYTES)
			k->base[i] = byte_of(i, i >> 8);
	k->exported = true;
	for (uint32_t i = 0; i < p->s->sc.programs; i++)
		sim_program_poke(p->s, i);
}

/* Bytes around those that programs use. */
static void
check_around(struct sim *s, const struct sim_common *k)
{
	for (uint32_t i = 0; i < REGION; i++)
		if ((i < k->start || i >= k->start + BYTES) && k->base[i] != byte_of(i, i >> 8))
			sim_fail(s,
				 "an operation changed byte %u of a region, and %u to %u are used",
				 i, k->start, k->start + BYTES - 1);
}

/* All that was done in a range is done: loads see the model. */
static void
check_loads(struct sim *s, const struct sim_common *k, const struct range *r, const char *when)
{
	const uint8_t *is = k->base + k->start + r->at, *legal = k->model + r->at;
	uint32_t i = 0;

	if (!memcmp(is, legal, r->bytes))
		return;
	while (is[i] == legal[i])
		i++;
	sim_fail(s, "range %ld after %u hand-overs, %s: byte %u is %02x, not %02x",
		 (long)(r - k->range), r->turn, when, i, is[i], legal[i]);
}

/* ---- operations ---- */

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
static void
draw_offset(struct rng *r, const struct range *in, struct operation *o, uint32_t align)
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
	draw_offset(r, in, o, (uint32_t)weir_type_align(o->type));
}

static void
draw(struct rng *r, const struct range *in, bool reads, struct operation *o)
{
	uint32_t n = rng_below(r, 12), size;

	o->kind = reads || n < 4 ? GET : n < 8 ? PUT : n < 11 ? UPDATE : SWAP;
	if (in->feast) {
		o->kind = GET;
		o->length = WEIR_ANSWER_MAX;
		o->flags = WEIR_RING;
		draw_offset(r, in, o, 1);
		return;
	}
	if (in->alike && !in->feast) {
		o->kind = UPDATE;
		o->type = (enum weir_type)in->alike;
		do
			o->acc = (enum weir_acc)(WEIR_ACC_SUM + rng_below(r, WEIR_ACC_REPLACE));
		while (!weir_acc_valid(o->type, o->acc));
		o->length = size = (uint32_t)weir_type_size(o->type);
		draw_offset(r, in, o, size);
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
	draw_offset(r, in, o, 1);
}

/* Bytes to put; operands; of SWAP the value that is compared, and the new one. */
static const uint8_t *
fill(const struct sim_common *k, const struct operation *o)
{
	static uint8_t bytes[LARGE];
	uint32_t n = o->kind == SWAP ? 2 * o->length : o->length;

	for (uint32_t i = 0; i < n; i++)
		bytes[i] = byte_of(o->number, i);
	if (o->kind == SWAP && o->number % 4) /* else it is compared with something else */
		memcpy(bytes, k->model + o->offset, o->length);
	return bytes;
}

/* Does it to the model; `legal`: gets what a get or fetch must read. */
static void
apply(struct sim_common *k, const struct operation *o, const uint8_t *bytes)
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
static struct operation *
next_operation(struct user *u)
{
	struct operation *o = &u->op[u->ops];

	if (u->ops == UNDER_WAY)
		abort();
	memset(o, 0, sizeof(*o));
	return o;
}

/* Begins what was drawn for a range. 0, or why not. */
static int
start(struct sim_common *k, struct user *u, struct range *in, struct operation *o)
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
	bytes = fill(k, o);
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
	apply(k, o, fill(k, o)); /* the call may have waited, and others gone on */
	u->wrote |= o->kind != GET && in == &k->range[BY_LOCK];
	in->under_way++;
	u->ops++;
	return 0;
}

static void
count_operation(struct sim *s, const struct operation *o)
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

/* ---- the end of a user ---- */

static void
poke_all(struct sim *s)
{
	for (uint32_t i = 0; i < s->sc.programs; i++)
		sim_program_poke(s, i);
}

/*
 * The user has ended, or cannot reach the memory any more. Ranges are lost that it has, or gets, or
 * has passed on behind operations which may not have taken effect.
 */
static void
lose(struct sim *s, uint32_t id)
{
	struct sim_common *k = s->common;
	struct user *u = &k->user[id];

	for (uint32_t i = 0; i < RANGES; i++) {
		struct range *r = &k->range[i];

		if (r->state <= PASSED && i != BY_LOCK &&
		    (r->holder == id || (r->state == PASSED && r->from == id && r->edge != TOLD)))
			r->state = LOST;
	}
	if (u->kind == WEIR_LOCK_EXCLUSIVE) {
		k->in_doubt |= u->lock >= HOLDS;
		k->maybe |= u->lock < HOLDS; /* its UNLOCK may not have left */
		if (u->lock >= HOLDS && u->wrote)
			k->repaired = 0;
	}
	k->maybe |= u->owes;
	racing_lost(k->racing, id);
	forget_operations(u);
	u->lock = IDLE;
	u->done = true;
	poke_all(s);
}

static void
give_up(struct user *u)
{
	weir_remote_close(u->r);
	u->r = NULL;
	u->done = true;
}

static bool
is_cut_off(const struct sim *s, uint32_t a, uint32_t b)
{
	return s->now >= s->sc.cut_at && (s->sc.program[a].node == s->sc.cut_node) !=
					     (s->sc.program[b].node == s->sc.cut_node);
}

/* An operation, or opening, has failed. */
static void
failed(struct sim_program *p, struct user *u, int rc)
{
	struct sim *s = p->s;
	uint32_t owner = s->common->plan->owner;

	sim_trace(s, "program %u: common memory of program %u: %d", p->id, owner, rc);
	sim_progress(s);
	if (s->program[owner]->dead || is_cut_off(s, p->id, owner)) {
		give_up(u);
		lose(s, p->id);
	} else if (!u->opened &&
		   (rc == -ENOSPC || rc == -EMFILE || rc == -EHOSTUNREACH ||
		    (rc == -ENOMEM && s->sc.faults) ||
		    (rc == -ETIMEDOUT && sim_offers_lost(s, p->node, s->sc.program[owner].node)))) {
		weir_remote_close(u->r);
		u->r = NULL;
		u->wait_until = s->now + RETRY + rng_below(&u->rng, RETRY);
	} else {
		sim_fail(s, "program %u: common memory of program %u: %d: %s", p->id, owner, rc,
			 weir_reason());
	}
}

/* rc: of a call that begins an operation. True: the operation has begun. */
static bool
has_begun(struct sim_program *p, struct user *u, int rc)
{
	if (!rc && !u->opened) { /* others may pass ranges on to it */
		u->opened = true;
		poke_all(p->s);
	}
	if (!rc) {
		sim_progress(p->s);
		return true;
	}
	/* the handle waits for room for a link to a node that is cut off for good, which this
	 * control tells only data planes that have one */
	if (rc == -EAGAIN && !u->opened && is_cut_off(p->s, p->id, p->s->common->plan->owner) &&
	    p->s->now - p->s->sc.cut_at > 12 * SIM_S)
		rc = -ENOSPC;
	if (rc == -EAGAIN)
		u->wait_until = p->s->now + 20 * SIM_US;
	else
		failed(p, u, rc);
	return false;
}

/* ---- passing on ---- */

/* A message that p has still to send, on a sound connection, to the next one. */
static bool
find_message(struct sim_program *p, struct range *r)
{
	for (uint32_t i = 0; i < p->ends; i++) {
		const struct sim_end *e = &p->end[i];
		const struct sim_conn_plan *c = &p->s->sc.conn[e->conn];
		const struct sim_flow *f = sim_flow(p->s, e->conn, e->side);

		if (e->state != END_OPEN || c->program[!e->side] != r->next || c->datagram ||
		    c->unknown || sim_conn_excused(p->s, e->conn) || f->unsent ||
		    f->accepted >= f->planned)
			continue;
		r->conn = e->conn;
		r->side = e->side;
		r->message = f->accepted;
		return true;
	}
	return false;
}

/* Draws to whom p passes the range on, and how. False: nobody can take it now. */
static bool
draw_next(struct sim_program *p, struct rng *rng, struct range *r)
{
	const struct sim_common *k = p->s->common;
	uint32_t to[RACING_USERS], n = 0, way = rng_below(rng, 10);
	bool later = false;

	for (uint32_t i = 0; i < p->s->sc.programs; i++) {
		const struct user *u = &k->user[i];

		if (i == p->id || (u->done && i != k->plan->owner))
			continue;
		if (i == k->plan->owner || u->opened)
			to[n++] = i;
		else
			later = true;
	}
	if (!n && later)
		return false;
	if (!n) {
		r->left = 0;
		return true;
	}
	r->next = to[rng_below(rng, n)];
	r->edge = way < 4 ? BY_SIGNAL : way < 7 ? TOLD : BY_MESSAGE;
	if (r->next == k->plan->owner && way < 5)
		r->edge = BY_NOTICE;
	return true;
}

/* Whether it is known to whom p passes the range on: to somebody who still takes part. */
static bool
is_chosen(struct sim_program *p, struct rng *rng, struct range *r)
{
	const struct sim_common *k = p->s->common;

	if (r->chosen && r->left && r->next != k->plan->owner && k->user[r->next].done)
		r->chosen = false;
	if (!r->chosen)
		r->chosen = !r->left || draw_next(p, rng, r);
	return r->chosen;
}

static void
passed(struct sim_program *p, struct range *r, uint8_t edge)
{
	sim_trace(p->s, "program %u: passes range %ld to program %u, way %u", p->id,
		  (long)(r - p->s->common->range), r->next, edge);
	r->state = PASSED;
	r->woken = false;
	r->edge = edge;
	r->from = p->id;
	r->holder = r->next;
	r->turn++;
	r->left--;
	if (edge == BY_SIGNAL) {
		r->before = r->word;
		r->word = r->turn;
	}
	if (edge == TOLD || edge == BY_SIGNAL) /* which the next one looks for from now on */
		sim_program_poke(p->s, r->next);
	sim_progress(p->s);
}

static void
retire(struct sim_program *p, struct range *r)
{
	const struct sim_common *k = p->s->common;

	if (k->base)
		check_loads(p->s, k, r, "when it is given up");
	r->state = RETIRED;
	poke_all(p->s);
}

/* All operations of p on the range are complete: the last holder retires it, or the next one hears
 * of it. */
static void
pass_flushed(struct sim_program *p, struct rng *rng, struct range *r)
{
	if (!is_chosen(p, rng, r) || (r->left && r->edge >= BY_NOTICE))
		return; /* whom it was for has ended meanwhile */
	if (!r->left)
		retire(p, r);
	else if (r->edge == BY_MESSAGE && find_message(p, r))
		passed(p, r, BY_MESSAGE);
	else
		passed(p, r, TOLD);
}

/* A notice or signal, alone or behind a last put, which is one operation with it. */
static int
pass_behind(struct sim_program *p, struct user *u, struct range *r)
{
	struct sim_common *k = p->s->common;
	uint32_t which = (uint32_t)(r - k->range);
	struct operation *o = next_operation(u);
	struct weir_transfer t = {.flags = WEIR_NOWAIT};
	struct weir_cell_notice signal = {.handle = WEIR_HANDLE_FIRST,
					  .options = WEIR_NOTICE_ADD,
					  .signal = which * sizeof(uint64_t),
					  .operand = r->turn + 1 - r->word};
	int rc;

	o->kind = PUT;
	o->number = k->number++;
	o->length = 1 + rng_below(&u->rng, 100);
	draw_offset(&u->rng, r, o, 1);
	r->bytes_told = 0;
	if (rng_chance(&u->rng, 500)) {
		if (r->edge == BY_NOTICE)
			return weir_remote_notify(u->r, which | (r->turn + 1) << 8, p->id,
						  WEIR_NOWAIT);
		return weir_notice_begin(u->r, &signal, WEIR_NOWAIT);
	}
	t.offset = o->offset;
	t.length = o->length;
	t.buf = (void *)(uintptr_t)fill(k, o);
	t.notify = r->edge == BY_NOTICE ? WEIR_WITH_NOTICE
		   : o->number % 2	? WEIR_WITH_SIGNAL_SET
					: WEIR_WITH_SIGNAL_ADD;
	t.tag = which | (r->turn + 1) << 8;
	t.source = p->id;
	t.signal = signal.signal;
	t.operand = t.notify == WEIR_WITH_SIGNAL_SET ? r->turn + 1 : signal.operand;
	rc = weir_remote_put_with(u->r, &t);
	if (rc)
		return rc;
	r->bytes_told = o->length;
	apply(k, o, fill(k, o));
	u->ops++;
	return 0;
}

/* True: something was done. */
static bool
pass_on(struct sim_program *p, struct user *u, struct range *r)
{
	if (!is_chosen(p, &u->rng, r))
		return false;
	if (!r->left || r->edge < BY_NOTICE) {
		u->flushing = true; /* flush() goes on */
		return true;
	}
	if (!has_begun(p, u, pass_behind(p, u, r)))
		return false;
	passed(p, r, r->edge);
	return true;
}

/* It is p's now. */
static void
take_over(struct sim_program *p, struct rng *rng, struct range *r)
{
	struct sim *s = p->s;

	sim_trace(s, "program %u: has range %ld", p->id, (long)(r - s->common->range));
	r->state = HELD;
	r->chosen = false;
	r->under_way = 0;
	r->feast = rng_chance(rng, 100);
	r->alike = rng_chance(rng, 150) ? WEIR_T_INT8 + rng_below(rng, 10) : 0;
	r->todo = (r->feast || r->alike ? 3 : 1) + rng_below(rng, 6);
	s->counts.passed_told += r->edge == TOLD;
	s->counts.passed_message += r->edge == BY_MESSAGE;
	s->counts.passed_notice += r->edge == BY_NOTICE;
	s->counts.passed_signal += r->edge == BY_SIGNAL;
	sim_progress(s);
}

/* ---- the exporting program ---- */

bool
sim_common_notice(struct sim_program *p, const struct weir_notice *n)
{
	struct sim_common *k = p->s->common;
	uint32_t which = n->tag & 0xff;
	struct range *r;

	if (!k || k->plan->owner != p->id || n->x != k->x)
		return false;
	r = &k->range[which < RANGES ? which : 0];
	if (which < RANGES && r->state == LOST)
		return true;
	if (which >= RANGES || r->state != PASSED || r->edge != BY_NOTICE ||
	    n->tag >> 8 != r->turn || n->source != r->from || n->bytes != r->bytes_told)
		sim_fail(p->s, "notice %x of program %u, %lu bytes, says what nobody said", n->tag,
			 n->source, n->bytes);
	take_over(p, &k->user[p->id].rng, r);
	return true;
}

/* Loads what others have done, stores, and passes the range on. */
static void
own(struct sim_program *p, struct range *r)
{
	struct sim_common *k = p->s->common;
	struct rng *rng = &k->user[p->id].rng;
	uint8_t *memory = k->base + k->start;
	uint64_t *word = (uint64_t *)(void *)memory + (r - k->range);

	if (r->todo) {
		check_loads(p->s, k, r, "when its owner loads it");
		check_around(p->s, k);
	}
	for (; r->todo; r->todo--) {
		uint32_t length = 1 + rng_below(rng, 300),
			 at = r->at + rng_below(rng, r->bytes - length);

		for (uint32_t i = 0; i < length; i++)
			memory[at + i] = k->model[at + i] = byte_of(k->number, i);
		k->number++;
	}
	if (!is_chosen(p, rng, r))
		return;
	if (!r->left || r->edge != BY_SIGNAL) {
		pass_flushed(p, rng, r);
		return;
	}
	passed(p, r, BY_SIGNAL);
	__atomic_store_n(word, r->turn, __ATOMIC_RELEASE);
}

/* Whether what the next one waits for, but for a signal, has come. */
static bool
is_told(struct sim *s, const struct range *r)
{
	return r->edge == TOLD ||
	       (r->edge == BY_MESSAGE && sim_flow(s, r->conn, r->side)->received > r->message);
}

/* Whether the signal of a range that was passed on by one has come. */
static bool
is_signalled(struct sim *s, const struct range *r, uint64_t word)
{
	if (word != r->word && word != r->before)
		sim_fail(s, "signal word %ld is %lu, neither %lu nor %lu",
			 (long)(r - s->common->range), word, r->before, r->word);
	return word == r->word;
}

static bool
serve(struct sim_program *p)
{
	struct sim_common *k = p->s->common;
	bool any = sim_memory_notices(p);

	for (uint32_t i = 0; i < RANGES && k->base; i++) {
		struct range *r = &k->range[i];
		uint64_t *word = (uint64_t *)(void *)(k->base + k->start) + i;

		if (r->holder != p->id || i == BY_LOCK)
			continue;
		if (r->state == PASSED &&
		    (is_told(p->s, r) ||
		     (r->edge == BY_SIGNAL &&
		      is_signalled(p->s, r, __atomic_load_n(word, __ATOMIC_ACQUIRE)))))
			take_over(p, &k->user[p->id].rng, r);
		if (r->state == HELD) {
			own(p, r);
			any |= r->state != HELD;
		}
	}
	return any;
}

/* ---- users ---- */

static void
check_result(struct sim *s, uint32_t id, const struct operation *o)
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

/* A signal word was read. */
static void
polled(struct sim_program *p, struct user *u, const struct operation *o)
{
	struct range *r = &p->s->common->range[o->range % RANGES];

	u->polls = false;
	if (o->range == RANGES)
		return; /* it has opened */
	if (r->state != PASSED || r->edge != BY_SIGNAL || r->holder != p->id)
		return; /* it was lost */
	if (is_signalled(p->s, r, o->word))
		take_over(p, &u->rng, r);
	else
		u->poll_at = p->s->now + rng_log(&u->rng, SIM_US, 50 * SIM_US);
}

/* All operations of u are complete. */
static void
complete(struct sim_program *p, struct user *u)
{
	struct sim_common *k = p->s->common;

	for (uint32_t i = 0; i < RANGES; i++)
		if (k->range[i].state == HELD &&
		    (i == BY_LOCK ? u->lock >= HOLDS : k->range[i].holder == p->id))
			k->range[i].under_way = 0;
	for (uint32_t i = 0; i < u->ops; i++) {
		const struct operation *o = &u->op[i];

		if (o->kind == RACE)
			racing_complete(p->s, k->racing, p->id, &o->race);
		else if (o->kind == POLL)
			polled(p, u, o);
		else
			check_result(p->s, p->id, o);
		if (o->kind < POLL)
			count_operation(p->s, o);
	}
	forget_operations(u);
	u->flushing = false;
	for (uint32_t i = 0; i < RANGES; i++) {
		struct range *r = &k->range[i];

		if (r->state == HELD && r->holder == p->id && i != BY_LOCK && r->chosen &&
		    (!r->left || r->edge < BY_NOTICE))
			pass_flushed(p, &u->rng, r);
	}
	sim_progress(p->s);
}

static bool
flush(struct sim_program *p, struct user *u)
{
	int rc = weir_remote_flush(u->r, 0);

	if (rc == -EAGAIN) /* its doorbell rings when that has changed */
		return false;
	if (rc)
		failed(p, u, rc);
	else
		complete(p, u);
	return true;
}

static bool
operate(struct sim_program *p, struct user *u, struct range *r, bool reads)
{
	struct operation *o = next_operation(u);

	draw(&u->rng, r, reads, o);
	return has_begun(p, u, start(p->s->common, u, r, o));
}

static bool
race(struct sim_program *p, struct user *u)
{
	struct operation *o = next_operation(u);
	int rc = racing_begin(p->s->common->racing, &u->rng, p->id, u->r, &o->race);

	o->kind = RACE;
	u->ops += !rc;
	u->races -= !rc;
	return has_begun(p, u, rc);
}

/* Reads the signal word of a range: the first operation of u, or one that waits for a signal. */
static bool
poll_word(struct sim_program *p, struct user *u, uint32_t which)
{
	struct operation *o = next_operation(u);
	uint64_t at = which * sizeof(o->word);
	int rc;

	o->kind = POLL;
	o->range = u->opened ? (uint8_t)which : RANGES;
	if (rng_chance(&u->rng, 500))
		rc = weir_remote_get(u->r, at, &o->word, sizeof(o->word), WEIR_NOWAIT);
	else
		rc = weir_remote_fetch_op(u->r, at, NULL, &o->word, WEIR_T_UINT64, WEIR_ACC_NO_OP,
					  WEIR_NOWAIT);
	if (!has_begun(p, u, rc))
		return false;
	u->ops++;
	u->polls = u->flushing = true;
	return true;
}

/* ---- the lock ---- */

/* It was granted. */
static void
enter(struct sim_program *p, struct user *u, bool told)
{
	struct sim *s = p->s;
	struct sim_common *k = s->common;
	/* its connections end one after the other: a holder may not have heard of it yet */
	bool ends = s->program[k->plan->owner]->dead;

	for (uint32_t i = 0; i < s->sc.programs && !ends; i++) {
		const struct user *v = &k->user[i];

		if (v != u && v->lock >= HOLDS &&
		    (u->kind == WEIR_LOCK_EXCLUSIVE || v->kind == WEIR_LOCK_EXCLUSIVE))
			sim_fail(s, "programs %u and %u hold the lock of common memory", p->id, i);
	}
	if (told != k->in_doubt && (!told || !k->maybe) && !ends)
		sim_fail(s, "program %u: a holder has %sended, and it is told %s", p->id,
			 k->in_doubt ? "" : "not ", told ? "so" : "nothing");
	if (u->kind == WEIR_LOCK_EXCLUSIVE)
		k->in_doubt = false;
	u->lock = HOLDS;
	u->owes = false; /* requests take effect in order */
	u->wrote = false;
	u->todo = 1 + rng_below(&u->rng, 5);
	s->counts.passed_lock++;
	sim_progress(s);
}

static bool
ask(struct sim_program *p, struct user *u)
{
	bool asked = u->asked;
	int rc = weir_lock_step(u->r, u->kind, &u->asked);

	if (rc == -EAGAIN)
		return u->asked && !asked;
	if (rc && rc != -EOWNERDEAD)
		failed(p, u, rc);
	else
		enter(p, u, rc);
	return true;
}

/* Writes the next part of a range that a holder has left in doubt. */
static bool
repair(struct sim_program *p, struct user *u)
{
	struct sim_common *k = p->s->common;
	struct range *r = &k->range[BY_LOCK];
	struct operation *o = next_operation(u);

	o->kind = PUT;
	o->offset = r->at + k->repaired;
	o->length = SMALL - k->repaired < REPAIR ? SMALL - k->repaired : REPAIR;
	if (!has_begun(p, u, start(k, u, r, o)))
		return false;
	k->repaired += o->length;
	return true;
}

static bool
leave(struct sim_program *p, struct user *u)
{
	int rc = weir_remote_unlock(u->r, 0);

	if (rc == -EAGAIN)
		return false;
	if (rc) {
		failed(p, u, rc);
		return true;
	}
	complete(p, u);
	u->lock = IDLE;
	u->owes |= u->kind == WEIR_LOCK_EXCLUSIVE;
	u->rounds--;
	u->lock_at = p->s->now + rng_log(&u->rng, SIM_US, 100 * SIM_US);
	return true;
}

/* One thing that u does while it holds the lock. */
static bool
hold(struct sim_program *p, struct user *u)
{
	struct sim_common *k = p->s->common;
	bool reads = u->kind == WEIR_LOCK_SHARED;

	if (!reads && k->repaired < SMALL)
		return repair(p, u);
	if (!u->todo || k->repaired < SMALL) {
		u->lock = LEAVES;
		return true;
	}
	if (!operate(p, u, &k->range[BY_LOCK], reads))
		return false;
	u->todo--;
	return true;
}

/* ---- steps ---- */

static bool
is_over(const struct sim_common *k)
{
	for (uint32_t i = 0; i < RANGES; i++)
		if (i != BY_LOCK && k->range[i].state < RETIRED)
			return false;
	return true;
}

/* One thing that u has to do. False: nothing, or not now. */
static bool
act(struct sim_program *p, struct user *u)
{
	struct sim_common *k = p->s->common;
	uint32_t first = rng_below(&u->rng, RANGES);

	if (u->ops == UNDER_WAY || (u->ops && rng_chance(&u->rng, 30))) {
		u->flushing = true;
		return true;
	}
	if (u->lock == HOLDS && rng_chance(&u->rng, 500))
		return hold(p, u);
	if (u->races && rng_chance(&u->rng, 300))
		return race(p, u);
	for (uint32_t i = 0; i < RANGES; i++) {
		struct range *r = &k->range[(first + i) % RANGES];

		if (r->state != HELD || r->holder != p->id || r == &k->range[BY_LOCK])
			continue;
		if (!r->todo)
			return pass_on(p, u, r);
		if (!operate(p, u, r, false))
			return false;
		r->todo--;
		return true;
	}
	if (u->lock == HOLDS)
		return hold(p, u);
	return u->races && race(p, u);
}

/* Takes over what was passed on to u, or looks whether it was. */
static bool
look(struct sim_program *p, struct user *u)
{
	struct sim_common *k = p->s->common;
	bool any = false;

	for (uint32_t i = 0; i < RANGES; i++) {
		struct range *r = &k->range[i];

		if (r->state != PASSED || r->holder != p->id)
			continue;
		if (is_told(p->s, r)) {
			take_over(p, &u->rng, r);
			any = true;
		} else if (r->edge == BY_SIGNAL && !u->polls && p->s->now >= u->poll_at &&
			   u->ops < UNDER_WAY) {
			any |= poll_word(p, u, i);
		}
	}
	return any;
}

static bool
begin_some(struct sim_program *p, struct user *u)
{
	uint32_t burst = 1 + rng_below(&u->rng, 8);
	bool any = look(p, u);

	while (burst-- && !u->flushing && !u->done && u->r && p->s->now >= u->wait_until &&
	       u->lock <= HOLDS && act(p, u))
		any = true;
	return any;
}

/* Opens the memory, which the first operation waits for. */
static bool
open_memory(struct sim_program *p, struct user *u)
{
	struct sim_common *k = p->s->common;
	uint32_t flags = rng_chance(&u->rng, 300) ? WEIR_OPEN_APART : 0;
	int rc;

	if (!k->exported)
		return false;
	rc = weir_remote_open(p->w, &k->key, RIGHTS, flags, 0, &u->r);
	if (rc)
		failed(p, u, rc);
	return true;
}

/* Closes the handle, with gets under way, whose memory is the program's from then on. */
static void
end(struct sim_program *p, struct user *u)
{
	struct sim_common *k = p->s->common;
	struct weir_remote_info info;

	weir_remote_info(u->r, &info);
	p->s->counts.mapped += info.mapped != NULL;
	for (uint32_t n = rng_below(&u->rng, 4); n; n--) {
		struct operation *o = next_operation(u);

		o->kind = GET;
		o->length = sim_borders[rng_below(&u->rng, 14)];
		draw_offset(&u->rng, &k->range[BIG], o, 1);
		if (start(k, u, &k->range[BIG], o))
			break;
	}
	give_up(u);
	for (uint32_t i = 0; i < u->ops; i++)
		memcpy(u->op[i].legal, u->op[i].result, u->op[i].length);
	poke_all(p->s);
}

static bool
use(struct sim_program *p, struct user *u)
{
	struct sim *s = p->s;
	struct sim_common *k = s->common;
	bool any = false;

	if (u->done || s->now < u->wait_until)
		return false;
	if (!u->r && sim_program_gone(s, k->plan->owner)) {
		u->done = true;
		return true;
	}
	if (!u->r)
		return open_memory(p, u);
	if (!u->opened)
		return poll_word(p, u, 0);
	if (u->lock == ASKS)
		return ask(p, u);
	if (u->lock == LEAVES)
		return leave(p, u);
	if (u->flushing)
		any = flush(p, u);
	if (u->flushing || u->done)
		return any;
	if (u->lock == IDLE && u->rounds && s->now >= u->lock_at) {
		u->kind = rng_chance(&u->rng, 300) ? WEIR_LOCK_SHARED : WEIR_LOCK_EXCLUSIVE;
		u->asked = false;
		u->lock = ASKS;
		ask(p, u);
		return true;
	}
	any |= begin_some(p, u);
	if (u->r && !u->done && u->lock == IDLE && !u->rounds && !u->races && is_over(k)) {
		u->flushing = u->ops;
		if (!u->ops)
			end(p, u);
		any = true;
	}
	return any;
}

/* A message came to one thread, and the range that it passes on is for another one. */
static void
tell_thread(struct sim_program *p)
{
	struct sim_common *k = p->s->common;

	for (uint32_t i = 0; i < RANGES; i++) {
		struct range *r = &k->range[i];

		if (r->state != PASSED || r->holder != p->id || r->edge != BY_MESSAGE || r->woken ||
		    !is_told(p->s, r))
			continue;
		r->woken = true;
		sim_program_poke(p->s, p->id);
	}
}

bool
sim_common_step(struct sim_program *p, uint32_t thread)
{
	struct sim_common *k = p->s->common;
	bool owns = k && k->plan->owner == p->id;

	if (!k)
		return false;
	if (thread != (owns ? 0 : p->threads - 1)) {
		tell_thread(p);
		return false;
	}
	if (owns)
		return serve(p);
	return k->plan->users & 1u << p->id && use(p, &k->user[p->id]);
}

/* When a signal word is to be looked at that says when p may take a range over. */
static uint64_t
signal_timer(const struct sim_program *p, uint64_t at)
{
	const struct sim_common *k = p->s->common;

	for (uint32_t i = 0; i < RANGES; i++) {
		const struct range *r = &k->range[i];

		if (r->state == PASSED && r->edge == BY_SIGNAL && r->holder == p->id)
			return at > p->s->now ? at : p->s->now + SIM_US;
	}
	return SIM_NEVER;
}

uint64_t
sim_common_timer(const struct sim_program *p)
{
	const struct sim_common *k = p->s->common;
	const struct user *u = k ? &k->user[p->id] : NULL;
	uint64_t now = p->s->now, at;

	if (!k)
		return SIM_NEVER;
	if (k->plan->owner == p->id)
		return signal_timer(p, now + 20 * SIM_US);
	if (u->done || (!u->r && now >= u->wait_until))
		return SIM_NEVER;
	if (now < u->wait_until)
		return u->wait_until;
	if (is_cut_off(p->s, p->id, k->plan->owner)) /* it hears of it in a second */
		return now + SIM_MS;
	/* nothing wakes it when there is room */
	if (!u->opened || (u->lock == ASKS && !u->asked))
		return now + 20 * SIM_US;
	if (u->flushing || u->lock == ASKS || u->lock == LEAVES)
		return SIM_NEVER;
	at = signal_timer(p, u->poll_at);
	if (u->lock == IDLE && u->rounds && u->lock_at < at)
		at = u->lock_at > now ? u->lock_at : now + SIM_US;
	return at;
}

bool
sim_common_over(const struct sim_program *p)
{
	const struct sim_common *k = p->s->common;

	if (!k)
		return true;
	for (uint32_t i = 0; i < p->s->sc.programs; i++)
		if (!k->user[i].done && (i == p->id || k->plan->owner == p->id) &&
		    !sim_program_gone(p->s, i))
			return false;
	return true;
}

void
sim_common_waits_for(const struct sim *s, char *text, size_t size)
{
	const struct sim_common *k = s->common;
	size_t at = strlen(text);

	for (uint32_t i = 0; k && i < RANGES && at < size; i++)
		if (k->range[i].state < RETIRED && i != BY_LOCK)
			at += (size_t)snprintf(
			    text + at, size - at, "[range %u: p%u %s %u]", i, k->range[i].holder,
			    k->range[i].state == HELD ? "todo" : "by",
			    k->range[i].state == HELD ? k->range[i].todo : k->range[i].edge);
	for (uint32_t i = 0; k && i < s->sc.programs && at < size; i++)
		if (!k->user[i].done)
			at += (size_t)snprintf(text + at, size - at,
					       "[p%u%s%s: lock %u, %u under way, %u races]", i,
					       k->user[i].opened ? "" : " opens",
					       k->user[i].flushing ? " flushes" : "",
					       k->user[i].lock, k->user[i].ops, k->user[i].races);
}

/* Nobody uses the memory any more. */
static void
check_left(struct sim *s, const struct sim_common *k)
{
	check_around(s, k);
	racing_check(s, k->racing, k->base + k->start + RACING);
	for (uint32_t i = 0; i < RANGES; i++)
		if (i == BY_LOCK ? k->repaired == SMALL : k->range[i].state == RETIRED)
			check_loads(s, k, &k->range[i], "at the end");
}

void
sim_common_left(struct sim_program *p, bool dies)
{
	struct sim_common *k = p->s->common;
	struct user *u = k ? &k->user[p->id] : NULL;

	if (!k)
		return;
	if (k->plan->owner == p->id) {
		if (k->base && !dies)
			check_left(p->s, k);
		k->base = NULL;
		for (uint32_t i = 0; i < RANGES; i++)
			if (k->range[i].state < RETIRED)
				k->range[i].state = LOST;
	}
	if (!u->done)
		lose(p->s, p->id);
	for (uint32_t i = 0; i < u->ops; i++)
		check_result(p->s, p->id, &u->op[i]);
	forget_operations(u);
	u->r = NULL; /* detached */
}

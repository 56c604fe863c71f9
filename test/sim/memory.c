/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Exports and operations on them. Operations of one thread take effect in order, once: each get,
 * fetch, and compare and swap returns what the ones before it have made of the memory. After a
 * flush that is what the memory holds, and bytes around the export are as they were. When the owner
 * revokes, it holds the result of some first operations, at least of those known to be complete,
 * for ever. Each notice comes to the owner once, in order, when the operations before it have taken
 * effect.
 */
#include "memory.h"
#include "common.h"
#include "node.h"

#include "remote/revoke.h"
#include "remote/notice.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define START 2048u /* of the export in its region */
#define SMALL 4096u /* bytes of an export; of a large one, where small operations are */
#define LARGE (SIM_MEMORY_LARGE - 4096u)
#define PUT_MAX 2500u
#define CELL_MAX 932u /* longer puts take effect in parts */
#define WORDS 3072u   /* offset of words, which are updated and not put */
#define RETRY (200 * SIM_US)
#define RIGHTS (WEIR_MAY_READ | WEIR_MAY_WRITE | WEIR_MAY_UPDATE | WEIR_MAY_NOTIFY)

enum kind { PUT, GET, NOTIFY, SIGNAL, ADD, SWAP };

struct operation {
	uint8_t kind;
	bool own;	/* its memory is that of the user's region */
	unsigned flags; /* of a large put or get */
	uint32_t offset, length;
	uint16_t block, stride; /* pieces of `block` bytes, `stride` apart; 0: one */
	uint64_t compare;	/* SWAP */
	uint8_t *result;	/* NULL: it has none, or it was checked */
	uint8_t *legal;		/* what that must be */
};

struct sim_memory {
	const struct sim_memory_plan *plan;
	struct rng rng;
	uint32_t bytes, around; /* of the export; of its region */
	/* the owner's */
	struct weir_region *region;
	struct weir_export *x;
	uint8_t *base; /* of the region; NULL: not there yet, or gone */
	bool exported, revoking, revoked;
	uint8_t left[SIM_MEMORY_LARGE]; /* what was there when it was revoked */
	uint32_t notices;		/* taken */
	uint32_t notice_from;		/* operations up to the last one taken */
	/* the user's */
	struct weir_key key;
	struct weir_remote *r;
	struct weir_region *own; /* for large puts and gets */
	uint8_t *buffer;	 /* there */
	uint64_t wait_until;
	uint32_t begun, complete;  /* operations */
	uint32_t notices_complete; /* of those */
	bool opened, flushing, done;
	uint8_t model[LARGE]; /* after `begun` operations */
	struct operation operation[320];
};

/* Their memory is the program's again. */
static void
free_results(struct sim_memory *m)
{
	for (uint32_t i = m->complete; i <= m->begun && i < 320; i++) {
		free(m->operation[i].result);
		free(m->operation[i].legal);
		m->operation[i].result = m->operation[i].legal = NULL;
	}
}

void
sim_memories_create(struct sim *s)
{
	for (uint32_t i = 0; i < SIM_MEMORIES; i++)
		s->memory[i] = NULL;
	for (uint32_t i = 0; i < s->sc.memories; i++) {
		s->memory[i] = calloc(1, sizeof(*s->memory[i]));
		if (!s->memory[i])
			abort();
		s->memory[i]->plan = &s->sc.memory[i];
		s->memory[i]->rng.state = sim_hash(s->sc.seed, 80, i);
		s->memory[i]->bytes = s->sc.memory[i].large ? LARGE : SMALL;
		s->memory[i]->around = s->sc.memory[i].large ? SIM_MEMORY_LARGE : SIM_MEMORY_REGION;
		s->memory[i]->wait_until = s->sc.memory[i].start;
	}
}

void
sim_memories_destroy(struct sim *s)
{
	for (uint32_t i = 0; i < SIM_MEMORIES; i++) {
		if (s->memory[i])
			free_results(s->memory[i]);
		free(s->memory[i]);
	}
}

/* ---- the owner ---- */

void
sim_memory_attached(struct sim_program *p)
{
	struct weir_region_info info;
	int rc;

	for (uint32_t i = 0; i < p->s->sc.memories; i++) {
		struct sim_memory *m = p->s->memory[i];

		if (m->plan->user == p->id && m->plan->large) {
			rc = weir_region_alloc(p->w, SIM_MEMORY_LARGE, NULL, &m->own);
			if (rc)
				sim_fail(p->s, "program %u: no region: %d: %s", p->id, rc,
					 weir_reason());
			weir_region_info(m->own, &info);
			m->buffer = info.base;
		}
		if (m->plan->owner != p->id)
			continue;
		rc = weir_region_alloc(p->w, m->around, NULL, &m->region);
		if (!rc)
			rc = weir_export(m->region, START, m->bytes, RIGHTS, &m->x, &m->key);
		if (rc)
			sim_fail(p->s, "program %u: exports nothing: %d: %s", p->id, rc,
				 weir_reason());
		weir_region_info(m->region, &info);
		m->base = info.base;
		m->exported = true;
		sim_trace(p->s, "program %u: exports memory %u", p->id, i);
	}
}

static uint8_t
byte_of(uint32_t number, uint32_t at)
{
	return (uint8_t)(number * 37 + at * 11 + 1);
}

/* Where byte i of an operation lies. */
static uint32_t
place_of(const struct operation *o, uint32_t i)
{
	return o->block ? o->offset + i / o->block * o->stride + i % o->block : o->offset + i;
}

static void
apply(uint8_t *to, const struct operation *o, uint32_t number)
{
	uint64_t word;

	if (o->kind == PUT)
		for (uint32_t i = 0; i < o->length; i++)
			to[place_of(o, i)] = byte_of(number, i);
	for (uint32_t i = 0; o->kind >= SIGNAL && i < o->length; i += sizeof(word)) {
		memcpy(&word, to + place_of(o, i), sizeof(word));
		if (o->kind != SWAP)
			word += number + 1;
		else if (word == o->compare)
			word = number + 1;
		memcpy(to + place_of(o, i), &word, sizeof(word));
	}
}

static void
check_around(struct sim *s, const struct sim_memory *m)
{
	for (uint32_t i = 0; i < m->around; i++)
		if ((i < START || i >= START + m->bytes) && m->base[i])
			sim_fail(s,
				 "an operation changed byte %u of a region, %u to %u are exported",
				 i, START, START + m->bytes - 1);
}

/* Whether memory is `is`, but for the bytes of a put that WRITEs bring. */
static bool
is_partly(const struct sim_memory *m, const uint8_t *is, const struct operation *o)
{
	const uint8_t *memory = m->base + START;
	uint32_t end = o->offset + o->length;

	return !memcmp(memory, is, o->offset) && !memcmp(memory + end, is + end, m->bytes - end);
}

/*
 * The memory holds the result of the first operations: of at least this number, and maybe of more
 * that were begun, the last of them in part. The bytes of one by WRITEs are any then: packets are
 * stored while they are checked, and a damaged one comes again only until the link ends.
 */
static void
check_prefix(struct sim *s, const struct sim_memory *m, uint32_t least)
{
	static uint8_t is[LARGE];

	memset(is, 0, m->bytes);
	check_around(s, m);
	for (uint32_t i = 0; i < least; i++)
		apply(is, &m->operation[i], i);
	for (uint32_t i = least; i <= m->begun; i++) {
		const struct operation *o = &m->operation[i];

		if (!memcmp(m->base + START, is, m->bytes))
			return;
		if (i < m->begun && o->flags && o->kind == PUT && is_partly(m, is, o))
			return;
		for (uint32_t at = 0; i < m->begun && o->kind == PUT && at < o->length; at++) {
			if (at && !o->flags && at % CELL_MAX == 0 &&
			    !memcmp(m->base + START, is, m->bytes))
				return;
			is[place_of(o, at)] = byte_of(i, at);
		}
		if (i < m->begun && o->kind != PUT)
			apply(is, o, i);
	}
	sim_fail(s, "memory of program %u holds no result of the first %u to %u operations",
		 m->plan->owner, least, m->begun);
}

static void
check_notice(struct sim *s, struct sim_memory *m, const struct weir_notice *n)
{
	while (m->notice_from < m->begun && m->operation[m->notice_from].kind != NOTIFY)
		m->notice_from++;
	if (n->tag != m->notice_from || n->tag >= m->begun || n->source != m->plan->user)
		sim_fail(s, "notice %u of program %u came to program %u, and %u was the next",
			 n->tag, n->source, m->plan->owner, m->notice_from);
	check_prefix(s, m, n->tag > m->complete ? n->tag : m->complete);
	m->notice_from++;
	m->notices++;
	s->counts.notices++;
	sim_progress(s);
}

bool
sim_memory_notices(struct sim_program *p)
{
	uint32_t burst = 1 + rng_below(&p->rng, 4), i;
	struct weir_notice n;
	bool any = false;
	int rc = 0;

	for (; burst && !(rc = weir_notice_next(p->w, &n, 0)); burst--) {
		for (i = 0; i < p->s->sc.memories; i++)
			if (p->s->memory[i]->plan->owner == p->id && p->s->memory[i]->x == n.x)
				break;
		any = true;
		if (i < p->s->sc.memories)
			check_notice(p->s, p->s->memory[i], &n);
		else if (!sim_common_notice(p, &n))
			sim_fail(p->s, "program %u: a notice for no export", p->id);
	}
	if (rc && rc != -EAGAIN)
		sim_fail(p->s, "program %u: notices: %d: %s", p->id, rc, weir_reason());
	return any;
}

/* Nothing is stored any more. */
static void
check_left(struct sim *s, const struct sim_memory *m)
{
	if (m->revoked && m->base && memcmp(m->left, m->base, m->around))
		sim_fail(s, "memory of program %u changed after it was revoked", m->plan->owner);
}

static bool
revoke(struct sim_program *p, struct sim_memory *m)
{
	int rc;

	if (m->revoked || !m->exported ||
	    (!m->revoking && (m->begun < m->plan->revoked_at || m->done)))
		return false;
	p->s->counts.revoked_under += m->revoking;
	m->revoking = true;
	rc = weir_export_revoke(m->x, 0);
	if (rc == -EAGAIN) /* peers are not done */
		return false;
	if (rc)
		sim_fail(p->s, "program %u: revoke gives %d: %s", p->id, rc, weir_reason());
	m->x = NULL;
	m->revoked = true;
	check_prefix(p->s, m, m->complete);
	memcpy(m->left, m->base, m->around);
	p->s->counts.exports_revoked++;
	sim_progress(p->s);
	return true;
}

/* ---- the user ---- */

static bool
excused(const struct sim *s, const struct sim_memory *m)
{
	return s->program[m->plan->owner]->dead || s->sc.cut_at != SIM_NEVER;
}

static void
give_up(struct sim_memory *m)
{
	weir_remote_close(m->r);
	m->r = NULL;
	m->done = true;
	free_results(m);
}

/* An operation, or opening, has failed. */
static void
failed(struct sim *s, struct sim_memory *m, int rc)
{
	uint32_t from = s->sc.program[m->plan->user].node, to = s->sc.program[m->plan->owner].node;

	sim_trace(s, "program %u: memory of program %u: %d", m->plan->user, m->plan->owner, rc);
	sim_progress(s);
	if (m->revoking && (rc == -ESTALE || (rc == -EKEYREJECTED && !m->opened))) {
		check_left(s, m);
		give_up(m);
	} else if (!m->opened && !excused(s, m) &&
		   (rc == -ENOSPC || rc == -EHOSTUNREACH || (rc == -ENOMEM && s->sc.faults) ||
		    (rc == -ETIMEDOUT && sim_offers_lost(s, from, to)))) {
		weir_remote_close(m->r);
		m->r = NULL;
		m->wait_until = s->now + RETRY + rng_below(&m->rng, RETRY);
	} else if (excused(s, m)) {
		give_up(m);
	} else {
		sim_fail(s, "program %u: memory of program %u: %d: %s", m->plan->user,
			 m->plan->owner, rc, weir_reason());
	}
}

/* Pieces with gaps between them. */
static void
spread(struct sim_memory *m, struct operation *o, uint32_t block, uint32_t pieces)
{
	o->block = (uint16_t)block;
	o->length = block * pieces;
	o->stride = (uint16_t)(block * (1 + rng_below(&m->rng, 6)));
}

/*
 * A put or get of many bytes, in a part of the export that small ones leave alone. It says BEHIND,
 * unless nothing is under way.
 */
static void
choose_large(struct sim_memory *m, struct operation *o)
{
	static const uint32_t lengths[] = {1,	  8192,	 8193,	 20000,	 65535,
					   65536, 65537, 131072, 200000, LARGE - SMALL};

	o->length = lengths[rng_below(&m->rng, sizeof(lengths) / sizeof(lengths[0]))];
	o->offset = SMALL + rng_below(&m->rng, LARGE - SMALL - o->length + 1);
	o->own = rng_chance(&m->rng, 400);
	o->flags = m->complete == m->begun && rng_chance(&m->rng, 300) ? 0 : WEIR_BEHIND;
	o->flags |= o->kind == PUT ? WEIR_WRITE : WEIR_READ;
}

/* Draws operation `begun`. */
static void
choose(struct sim_memory *m, struct operation *o)
{
	uint32_t most = m->plan->revoked_at != UINT32_MAX ? CELL_MAX
			: rng_chance(&m->rng, 100)	  ? PUT_MAX
							  : 64;
	uint32_t n = rng_below(&m->rng, 13);

	o->kind = n < 5	   ? PUT
		  : n < 7  ? GET
		  : n < 9  ? ADD
		  : n < 10 ? SWAP
		  : n < 12 ? NOTIFY
			   : SIGNAL;
	o->own = false;
	o->flags = 0;
	if (m->plan->large && o->kind < NOTIFY && rng_chance(&m->rng, 150)) {
		o->block = 0;
		choose_large(m, o);
		return;
	}
	o->length = (1 + rng_below(&m->rng, most));
	o->offset = o->block = 0;
	if (o->kind < NOTIFY && o->length <= 64 && rng_chance(&m->rng, 300))
		spread(m, o, 1 + rng_below(&m->rng, 8), 1 + rng_below(&m->rng, 8));
	o->offset =
	    rng_below(&m->rng, (o->kind == GET ? SMALL : WORDS) - place_of(o, o->length - 1u));
	if (o->kind < SIGNAL)
		return;
	o->length = sizeof(uint64_t);
	if (o->kind == ADD && rng_chance(&m->rng, 300))
		spread(m, o, sizeof(uint64_t), 1 + rng_below(&m->rng, 4));
	o->offset = (WORDS + 8 * rng_below(&m->rng, 16));
	memcpy(&o->compare, m->model + o->offset, sizeof(o->compare));
	o->compare ^= rng_chance(&m->rng, 300); /* another word than is there */
}

static int
begin_large(struct sim_memory *m, struct operation *o)
{
	unsigned flags = o->flags | WEIR_NOWAIT;
	uint8_t *bytes = o->own ? m->buffer : malloc(o->length);
	int rc;

	if (!bytes)
		abort();
	if (o->kind == PUT) {
		for (uint32_t i = 0; i < o->length; i++)
			bytes[i] = byte_of(m->begun, i);
		rc = weir_remote_put(m->r, o->offset, bytes, o->length,
				     flags | (o->own ? WEIR_KEEP : 0));
	} else {
		rc = weir_remote_get(m->r, o->offset, o->own ? bytes : o->result, o->length, flags);
	}
	if (!o->own)
		free(bytes);
	if (rc != -EMSGSIZE)
		return rc;
	if (o->own) /* there are no two NICs in between: cells, which go at once or not at all */
		o->length = 64;
	o->own = !o->own; /* more than the send heap has for one operation */
	return begin_large(m, o);
}

static int
begin(struct sim_memory *m, struct operation *o)
{
	struct weir_cell_notice signal = {.handle = WEIR_HANDLE_FIRST,
					  .options = WEIR_NOTICE_ADD,
					  .signal = o->offset,
					  .operand = m->begun + 1};
	struct weir_layout there = {.block = o->block, .dims = 1};
	struct weir_transfer t = {
	    .offset = o->offset, .length = o->length, .there = &there, .flags = WEIR_NOWAIT};
	uint64_t value = m->begun + 1, values[4] = {value, value, value, value};
	struct weir_update add = {.offset = o->offset,
				  .operand = values,
				  .result = o->result,
				  .count = o->length / sizeof(value),
				  .there = &there,
				  .type = WEIR_T_UINT64,
				  .op = WEIR_ACC_SUM,
				  .flags = WEIR_NOWAIT};
	uint8_t bytes[PUT_MAX];

	if (o->flags)
		return begin_large(m, o);
	if (o->block) {
		there.dim[0].count = o->length / o->block;
		there.dim[0].stride = o->stride;
	}
	switch (o->kind) {
	case PUT:
		for (uint32_t i = 0; i < o->length; i++)
			bytes[i] = byte_of(m->begun, i);
		t.buf = bytes;
		if (o->block)
			return weir_remote_put_with(m->r, &t);
		return weir_remote_put(m->r, o->offset, bytes, o->length, WEIR_NOWAIT);
	case GET:
		t.buf = o->result;
		if (o->block)
			return weir_remote_get_with(m->r, &t);
		return weir_remote_get(m->r, o->offset, o->result, o->length, WEIR_NOWAIT);
	case NOTIFY:
		return weir_remote_notify(m->r, m->begun, m->plan->user, WEIR_NOWAIT);
	case SIGNAL:
		return weir_notice_begin(m->r, &signal, WEIR_NOWAIT);
	case ADD:
		if (o->block)
			return weir_remote_update(m->r, &add);
		return weir_remote_fetch_op(m->r, o->offset, &value, o->result, WEIR_T_UINT64,
					    WEIR_ACC_SUM, WEIR_NOWAIT);
	default:
		return weir_remote_compare_swap(m->r, o->offset, &o->compare, &value, o->result,
						WEIR_T_UINT64, WEIR_NOWAIT);
	}
}

static bool
begin_next(struct sim *s, struct sim_memory *m)
{
	struct operation *o = &m->operation[m->begun];
	struct rng before = m->rng;
	int rc;

	choose(m, o);
	if (o->kind == GET || o->kind >= ADD) {
		o->result = malloc(o->length);
		o->legal = malloc(o->length);
		if (!o->result || !o->legal)
			abort();
		memset(o->result, 0xee, o->length);
		for (uint32_t i = 0; i < o->length; i++)
			o->legal[i] = m->model[place_of(o, i)];
	}
	rc = begin(m, o);
	if (rc) {
		free(o->result);
		free(o->legal);
		o->result = o->legal = NULL;
	}
	if (rc == -EAGAIN) { /* the same one later */
		m->rng = before;
		m->wait_until = s->now + 20 * SIM_US;
		return false;
	}
	if (rc) {
		failed(s, m, rc);
		return false;
	}
	m->opened = true;
	apply(m->model, o, m->begun++);
	/* the user's region has room for one */
	m->flushing = m->begun == m->plan->puts || rng_chance(&m->rng, 50) || o->own;
	return true;
}

static void
check_results(struct sim *s, struct sim_memory *m)
{
	for (uint32_t i = m->complete; i < m->begun; i++) {
		const struct operation *o = &m->operation[i];

		if (o->result && memcmp(o->own ? m->buffer : o->result, o->legal, o->length))
			sim_fail(s,
				 "operation %u of %u on memory of program %u has read what was "
				 "not there",
				 i, m->begun, m->plan->owner);
		s->counts.puts += o->kind == PUT;
		s->counts.gets += o->kind == GET;
		s->counts.large += o->flags != 0;
		s->counts.fetches += o->kind >= ADD;
		s->counts.layouts += o->block != 0;
		s->counts.signals += o->kind == SIGNAL;
		m->notices_complete += o->kind == NOTIFY;
	}
	free_results(m);
}

static bool
flush(struct sim *s, struct sim_memory *m)
{
	int rc = weir_remote_flush(m->r, 0);

	if (rc == -EAGAIN) /* its doorbell rings when that has changed */
		return false;
	if (rc) {
		failed(s, m, rc);
		return true;
	}
	if (m->base && !m->revoking) {
		check_around(s, m);
		if (memcmp(m->base + START, m->model, m->bytes))
			sim_fail(s, "after %u operations and a flush memory of program %u differs",
				 m->begun, m->plan->owner);
	}
	check_results(s, m);
	if (s->sc.program[m->plan->owner].node == s->sc.program[m->plan->user].node)
		s->counts.puts_apart += m->begun - m->complete;
	m->complete = m->begun;
	m->flushing = false;
	sim_progress(s);
	if (m->complete == m->plan->puts)
		give_up(m);
	return true;
}

static bool
use(struct sim_program *p, struct sim_memory *m)
{
	struct sim *s = p->s;
	uint32_t burst = 1 + rng_below(&m->rng, 8);
	bool any = false;
	int rc;

	if (m->done || s->now < m->wait_until)
		return false;
	if (!m->r && sim_program_gone(s, m->plan->owner)) {
		m->done = true;
		return true;
	}
	if (!m->exported)
		return false;
	if (!m->r) {
		rc = weir_remote_open(p->w, &m->key, RIGHTS, 0, 0, &m->r);
		if (rc)
			failed(s, m, rc);
		return true;
	}
	while (!m->flushing && !m->done && m->r && burst--) {
		if (!begin_next(s, m))
			break;
		any = true;
	}
	return m->flushing ? flush(s, m) || any : any;
}

/* ---- both ---- */

bool
sim_memory_step(struct sim_program *p, uint32_t thread)
{
	bool any = false;

	for (uint32_t i = 0; i < p->s->sc.memories; i++) {
		struct sim_memory *m = p->s->memory[i];

		if (m->plan->owner == p->id && thread == 0) {
			any |= sim_memory_notices(p);
			any |= revoke(p, m);
		}
		if (m->plan->user == p->id && thread == i % p->threads)
			any |= use(p, m);
	}
	return any;
}

uint64_t
sim_memory_timer(const struct sim_program *p)
{
	uint64_t at = SIM_NEVER;

	for (uint32_t i = 0; i < p->s->sc.memories; i++) {
		const struct sim_memory *m = p->s->memory[i];
		uint64_t until = m->wait_until;
		bool revoking = m->plan->owner == p->id && m->revoking && !m->revoked;

		if (m->done && !revoking)
			continue;
		/* nothing wakes the owner when it is to revoke, nor the user when it is exported */
		if ((m->plan->owner == p->id && m->plan->revoked_at != UINT32_MAX && !m->revoked) ||
		    (m->plan->user == p->id && !m->r))
			until = until > p->s->now ? until : p->s->now + 50 * SIM_US;
		else if (m->plan->user != p->id || until <= p->s->now)
			continue;
		if (until < at)
			at = until;
	}
	return at;
}

bool
sim_memory_over(const struct sim_program *p)
{
	for (uint32_t i = 0; i < p->s->sc.memories; i++) {
		const struct sim_memory *m = p->s->memory[i];

		if (m->plan->owner == p->id && m->x && m->revoking)
			return false;
		/* of a revoked export they are lost */
		if (m->plan->owner == p->id && m->x && m->notices < m->notices_complete)
			return false;
		if (!m->done &&
		    (m->plan->user == p->id ||
		     (m->plan->owner == p->id && !sim_program_gone(p->s, m->plan->user))))
			return false;
	}
	return true;
}

void
sim_memory_left(struct sim_program *p)
{
	for (uint32_t i = 0; i < p->s->sc.memories; i++) {
		struct sim_memory *m = p->s->memory[i];

		if (m->plan->owner == p->id) {
			check_left(p->s, m);
			m->base = NULL;
			m->x = NULL;
			m->revoked |= m->revoking;
		}
		if (m->plan->user == p->id) {
			m->r = NULL; /* detached */
			m->done = true;
			free_results(m);
		}
	}
}

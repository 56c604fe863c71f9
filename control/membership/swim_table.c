/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of nodes, the changes still to be spread, and the digest of the table. */
#include "swim_internal.h"

#include "base/vec.h"
#include "ipc/invariant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PERIOD_MIN 50u	    /* ms */
#define PERIOD_MAX 200u	    /* or a start among many takes long */
#define FORGET_MIN 60000u   /* ms: shortest time for which dead nodes are remembered */
#define FORGET_TIMEOUTS 30u /* node timeouts for which dead nodes are remembered */
#define BYSTANDER 2u	    /* times the patience of those who suspect by themselves */

static uint64_t
mix(uint64_t x)
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

uint32_t
swim_below(struct swim *s, uint32_t limit)
{
	weir_assert(limit);
	s->rng += UINT64_C(0x9e3779b97f4a7c15);
	return (uint32_t)(mix(s->rng) >> 32) % limit;
}

uint32_t
swim_log2(uint32_t n)
{
	uint32_t bits = 0;

	while (UINT32_C(1) << bits < n)
		bits++;
	return bits;
}

uint32_t
swim_patience(uint32_t timeout, uint32_t nodes)
{
	return timeout / 2 + timeout * swim_log2(nodes) / 32;
}

bool
swim_lives(const struct swim_node *n)
{
	return n->is.status == SWIM_ALIVE || n->is.status == SWIM_SUSPECT;
}

static uint64_t
digest_of(const struct swim_node *n)
{
	return swim_lives(n) ? mix(mix(n->is.run + n->is.id) ^ n->is.version) : 0;
}

// ---- the table ----

// Where `id` is, or belongs.
static uint32_t
place_of(const struct swim *s, uint16_t id)
{
	return VEC_BEFORE(s->count, i, s->id[i] < id);
}

struct swim_node *
swim_find(const struct swim *s, uint16_t id)
{
	uint32_t at = place_of(s, id);

	return at < s->count && s->id[at] == id ? s->node[at] : NULL;
}

struct swim_node *
swim_insert(struct swim *s, uint16_t id)
{
	struct swim_node *n = calloc(1, sizeof(*n) + s->config.info_size);
	uint32_t at = place_of(s, id), others = s->count ? s->count - 1 : 0, to;
	uint32_t nodes = s->room, orders = s->room, ids = s->room;

	weir_assert(at == s->count || s->id[at] != id);
	if (!n || VEC_RESERVE(s->node, nodes, s->count + 1) ||
	    VEC_RESERVE(s->order, orders, s->count + 1) || VEC_RESERVE(s->id, ids, s->count + 1)) {
		free(n);
		return NULL;
	}
	s->room = nodes;
	memmove(s->node + at + 1, s->node + at, (s->count - at) * sizeof(*s->node));
	memmove(s->id + at + 1, s->id + at, (s->count - at) * sizeof(*s->id));
	s->node[at] = n;
	s->id[at] = id;
	n->is.id = id;
	n->is.info = n->info;
	n->proven = true;
	if (s->count++ == 0)
		return n; // ourselves
	// At random into what is left of the round.
	to = s->next_probe + swim_below(s, others - s->next_probe + 1);
	s->order[others] = s->order[to];
	s->order[to] = id;
	return n;
}

static void
unlink_news(struct swim *s, struct swim_node *n)
{
	if (!n->news.tqe_prev)
		return;
	TAILQ_REMOVE(&s->news, n, news);
	n->news.tqe_prev = NULL;
	s->news_count--;
}

void
swim_push_news(struct swim *s, struct swim_node *n)
{
	unlink_news(s, n);
	n->spread = swim_log2(s->alive + 1) + 4;
	TAILQ_INSERT_HEAD(&s->news, n, news);
	s->news_count++;
}

// The news that was told longest ago, marked as told once more.
struct swim_node *
swim_next_news(struct swim *s)
{
	struct swim_node *n = TAILQ_FIRST(&s->news);

	weir_assert(n && n->spread);
	unlink_news(s, n);
	if (--n->spread == 0)
		return n;
	TAILQ_INSERT_TAIL(&s->news, n, news);
	s->news_count++;
	return n;
}

void
swim_set_accused(struct swim *s, struct swim_node *n, bool accused)
{
	s->accused += accused - n->accused;
	weir_assert(s->accused <= s->count);
	n->accused = accused;
}

void
swim_set_unproven(struct swim *s, struct swim_node *n, struct swim_node *introducer)
{
	n->proven = false;
	n->introducer = introducer->is.id;
	introducer->brought++;
	s->unproven++;
}

void
swim_set_proven(struct swim *s, struct swim_node *n)
{
	struct swim_node *introducer;

	if (n->proven)
		return;
	weir_assert(s->unproven);
	n->proven = true;
	s->unproven--;
	introducer = swim_find(s, n->introducer);
	// It may have been forgotten, and be known again since.
	if (introducer && introducer->brought)
		introducer->brought--;
}

void
swim_erase(struct swim *s, struct swim_node *n)
{
	uint32_t at = place_of(s, n->is.id), i = 0, others = s->count - 1;

	weir_assert(n != s->self && s->node[at] == n);
	s->digest ^= digest_of(n);
	s->alive -= swim_lives(n);
	swim_set_accused(s, n, false);
	swim_set_proven(s, n);
	unlink_news(s, n);
	while (s->order[i] != n->is.id)
		i++;
	// Nodes before `next_probe` were probed in this round.
	if (i < s->next_probe) {
		s->order[i] = s->order[--s->next_probe];
		i = s->next_probe;
	}
	s->order[i] = s->order[others - 1];
	s->count--;
	memmove(s->node + at, s->node + at + 1, (s->count - at) * sizeof(*s->node));
	memmove(s->id + at, s->id + at + 1, (s->count - at) * sizeof(*s->id));
	s->config.ops->forgotten(s->config.user, n);
	free(n);
}

uint64_t
swim_memory(uint32_t timeout)
{
	uint64_t forget = (uint64_t)timeout * FORGET_TIMEOUTS;

	return forget > FORGET_MIN ? forget : FORGET_MIN;
}

uint64_t
swim_expiry(const struct swim *s, const struct swim_node *n)
{
	uint32_t patience = swim_patience(s->config.timeout, s->alive);

	// A refutation reaches those first who suspect it themselves; the others have to wait for
	// it.
	if (n->is.status == SWIM_SUSPECT)
		return s->clock + (n->accused ? patience : BYSTANDER * patience);
	if ((n->is.status == SWIM_DEAD || n->is.status == SWIM_LEFT) && !n->fixed)
		return s->clock + swim_memory(s->config.timeout);
	return 0;
}

void
swim_set_expiry(struct swim *s, struct swim_node *n, uint64_t when)
{
	n->expires = when;
	if (when && when < s->walk_at)
		s->walk_at = when;
}

// The one place where a record in the table changes.
void
swim_put(struct swim *s, struct swim_node *n, const struct swim_record *r, uint16_t by, bool news)
{
	const void *own = n->is.info;

	s->digest ^= digest_of(n);
	s->alive -= swim_lives(n);
	if (n->is.status != r->status)
		n->since = s->clock;
	if (r->status != SWIM_SUSPECT)
		swim_set_accused(s, n, false);
	if (r->info != own)
		memcpy(n->info, r->info, s->config.info_size);
	n->is = *r;
	n->is.info = own;
	n->by = by;
	s->digest ^= digest_of(n);
	s->alive += swim_lives(n);
	weir_assert(s->alive <= s->count);
	swim_set_expiry(s, n, swim_expiry(s, n));
	if (news)
		swim_push_news(s, n);
	s->config.ops->changed(s->config.user, n);
}

void
swim_set_status(struct swim *s, struct swim_node *n, enum swim_status status)
{
	struct swim_record r = n->is;

	r.status = status;
	swim_put(s, n, &r, s->self->is.id, true);
}

// ---- beginning and end ----

int
swim_init(struct swim *s, const struct swim_config *config, const void *info, uint64_t now)
{
	struct swim_record r = {
	    .id = config->id,
	    .status = SWIM_ALIVE,
	    .run = config->run,
	    .version = config->claims ? config->ticket : config->version,
	    .info = info,
	};

	memset(s, 0, sizeof(*s));
	TAILQ_INIT(&s->news);
	s->config = *config;
	s->now = s->began = now;
	s->clock = 1; // 0 is never
	s->rng = config->seed;
	s->period = config->timeout / 5;
	if (s->period < PERIOD_MIN)
		s->period = PERIOD_MIN;
	if (s->period > PERIOD_MAX)
		s->period = PERIOD_MAX;
	s->young = true;
	s->walk_at = UINT64_MAX;
	s->self = swim_insert(s, config->id);
	if (!s->self) {
		swim_fini(s);
		return -ENOMEM;
	}
	s->self->fixed = true;
	swim_put(s, s->self, &r, config->id, true);
	return 0;
}

void
swim_fini(struct swim *s)
{
	for (uint32_t i = 0; i < s->count; i++)
		free(s->node[i]);
	free(s->node);
	free(s->id);
	free(s->order);
	memset(s, 0, sizeof(*s));
}

int
swim_add(struct swim *s, uint16_t id, const void *info)
{
	struct swim_node *n = swim_find(s, id);

	if (n == s->self)
		return 0;
	if (!n)
		n = swim_insert(s, id);
	if (!n)
		return -ENOMEM;
	n->fixed = true;
	swim_set_proven(s, n);
	swim_set_expiry(s, n, swim_expiry(s, n));
	if (n->is.status == SWIM_UNKNOWN)
		memcpy(n->info, info, s->config.info_size);
	s->config.ops->changed(s->config.user, n);
	return 0;
}

void
swim_remove(struct swim *s, uint16_t id)
{
	struct swim_node *n = swim_find(s, id);

	if (n && n != s->self)
		swim_erase(s, n);
}

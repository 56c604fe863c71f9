/* SPDX-License-Identifier: BSD-3-Clause */
#include "registry.h"

#include "base/vec.h"
#include "ipc/invariant.h"

#include <stdlib.h>
#include <string.h>

static bool
is_known(const struct registry_node *n)
{
	return n->wanted == n->digest;
}

// Where `id` is, or belongs.
static uint32_t
place_of(const struct registry *r, uint16_t id)
{
	return VEC_BEFORE(r->count, i, r->node[i].id < id);
}

static struct registry_node *
find(const struct registry *r, uint16_t id)
{
	uint32_t at = place_of(r, id);

	return at < r->count && r->node[at].id == id ? &r->node[at] : NULL;
}

// The one place where a node's list, or the wish for it, changes.
static void
put(struct registry *r, struct registry_node *n, uint64_t wanted, struct weir_services *list)
{
	weir_assert(r->wanting >= !is_known(n));
	r->wanting -= !is_known(n);
	if (list != n->list)
		free(n->list);
	n->list = list;
	n->wanted = wanted;
	n->digest = list ? weir_services_digest(list) : 0;
	r->wanting += !is_known(n);
	if (is_known(n))
		r->ops->changed(r->user, n->id);
}

void
registry_own(struct registry *r, const struct weir_services *list)
{
	r->list = *list;
	r->digest = weir_services_digest(list);
}

void
registry_record(struct registry *r, uint16_t id, uint64_t digest, uint64_t now)
{
	uint32_t at = place_of(r, id);
	struct registry_node *n = find(r, id);

	if (n && n->wanted == digest)
		return;
	if (!n) {
		if (VEC_RESERVE(r->node, r->room, r->count + 1))
			return;
		n = r->node + at;
		memmove(n + 1, n, (r->count++ - at) * sizeof(*n));
		*n = (struct registry_node){.id = id};
	}
	put(r, n, digest, digest ? n->list : NULL);
	if (is_known(n))
		return;
	n->ask_at = now;
	r->news = true;
}

void
registry_forget(struct registry *r, uint16_t id)
{
	struct registry_node *n = find(r, id);

	if (!n)
		return;
	weir_assert(r->wanting >= !is_known(n) && r->wanting <= r->count);
	r->wanting -= !is_known(n);
	free(n->list);
	r->count--;
	memmove(n, n + 1, (size_t)(r->node + r->count - n) * sizeof(*n));
}

const struct weir_services *
registry_list(const struct registry *r, uint16_t id)
{
	static const struct weir_services none;
	const struct registry_node *n = find(r, id);

	if (!n || !is_known(n))
		return NULL;
	return n->list ? n->list : &none;
}

static void
ask(struct registry *r, uint16_t to, uint64_t now)
{
	struct registry_ask m = {0};
	uint32_t underway = 0;

	for (uint32_t i = 0; i < r->count; i++)
		underway += !is_known(&r->node[i]) && r->node[i].ask_at > now;
	for (uint32_t i = 0; i < r->count && m.count < REGISTRY_ASKS; i++) {
		struct registry_node *n = &r->node[i];

		if (is_known(n) || n->ask_at > now || underway == REGISTRY_UNDERWAY)
			continue;
		n->ask_at = now + REGISTRY_RETRY;
		m.of[m.count].node = n->id;
		m.of[m.count++].digest = n->wanted;
		underway++;
	}
	if (m.count)
		r->ops->ask(r->user, to, &m);
}

void
registry_heard(struct registry *r, uint16_t from, uint64_t now)
{
	if (!r->news)
		return;
	r->news = false;
	ask(r, from, now);
}

void
registry_tick(struct registry *r, uint64_t now)
{
	uint16_t to;

	if (r->wanting && r->ops->some(r->user, &to))
		ask(r, to, now);
}

void
registry_asked(struct registry *r, uint16_t from, const struct registry_ask *m)
{
	for (uint32_t i = 0; i < m->count; i++) {
		uint16_t id = m->of[i].node;
		const struct registry_node *n = find(r, id);

		if (id == r->own && m->of[i].digest == r->digest)
			r->ops->tell(r->user, from, id, &r->list);
		else if (n && n->list && m->of[i].digest == n->digest)
			r->ops->tell(r->user, from, id, n->list);
	}
}

void
registry_take(struct registry *r, uint16_t id, const struct weir_services *list)
{
	size_t bytes = offsetof(struct weir_services, name) + list->count * sizeof(list->name[0]);
	struct registry_node *n = find(r, id);
	struct weir_services *copy;

	if (!n || is_known(n) || weir_services_digest(list) != n->wanted)
		return;
	copy = malloc(bytes);
	if (!copy)
		return; // it is asked for again
	memcpy(copy, list, bytes);
	put(r, n, n->wanted, copy);
}

void
registry_init(struct registry *r, uint16_t own, const struct registry_ops *ops, void *user)
{
	*r = (struct registry){.own = own, .ops = ops, .user = user};
}

void
registry_fini(struct registry *r)
{
	for (uint32_t i = 0; i < r->count; i++)
		free(r->node[i].list);
	free(r->node);
	*r = (struct registry){0};
}

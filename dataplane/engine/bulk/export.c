/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Exports. Each engine has a copy of all of them, since a link of any engine may bring operations.
 * Secrets stay with main, which lets a connection be made to an export; from then on the engine of
 * the connection checks each operation against the export. An export that goes ends its
 * connections.
 */
#include "channel.h"
#include "conn.h"
#include "export.h"
#include "lock.h"
#include "notice.h"
#include "region.h"
#include "session.h"
#include "state.h"

#include "ipc/lock_words.h"

#include <errno.h>

static struct export *
find_export(struct engine *e, uint32_t session, uint32_t number, struct session **s)
{
	*s = session_find(e, session);
	return *s && number - 1 < (*s)->export_count ? &(*s)->exports[number - 1] : NULL;
}

/* Words of the lock of an export. NULL: they are not as they should be. */
static struct weir_lock_words *
words_of(const struct session *s, const struct engine_export *k)
{
	uint64_t bytes = weir_lock_bytes(k->lock_members);
	const struct region *r;

	if (k->lock_region > s->region_count || !k->lock_members ||
	    k->lock_members > WEIR_LOCK_MEMBERS_MAX || !(k->rights & WEIR_RIGHT_LOCK))
		return NULL;
	r = &s->regions[k->lock_region - 1];
	if (!r->base || r->leaving || k->lock_offset > r->bytes ||
	    bytes > r->bytes - k->lock_offset ||
	    ((uintptr_t)r->base + k->lock_offset) % _Alignof(struct weir_lock_words))
		return NULL;
	return (struct weir_lock_words *)(void *)(r->base + k->lock_offset);
}

int
export_add(struct engine *e, const struct engine_export *k)
{
	struct session *s;
	struct export *x = find_export(e, k->session, k->number, &s);
	static uint8_t nothing[1]; /* where a PUT of 0 bytes puts them */
	struct weir_lock_words *words = NULL;
	const struct region *r = NULL;

	if (!x || s->remove || s->violated || k->region > s->region_count)
		return -ENOENT;
	if (k->region) {
		r = &s->regions[k->region - 1];
		if (!r->base || r->leaving)
			return -ENOENT;
	}
	if (x->generation)
		return -EBUSY;
	if (!k->generation || !k->length || k->rights & ~(WEIR_RIGHTS_KNOWN | WEIR_RIGHT_ALONE) ||
	    (k->rights & WEIR_RIGHTS_ALIGNED && k->offset % WEIR_EXPORT_ALIGN) ||
	    (k->rights & WEIR_RIGHT_NOTIFY &&
	     (k->channel >= s->shared->geometry.channels || !s->channels[k->channel].session)))
		return -EINVAL;
	if (k->lock_region && !(words = words_of(s, k)))
		return -EINVAL;
	if (r ? k->ranges || k->offset > r->bytes || k->length > r->bytes - k->offset
	      : !k->ranges || k->offset || k->length != WEIR_DYNAMIC_BYTES)
		return -EINVAL;
	*x = (struct export){.generation = k->generation,
			     .rights = (uint16_t)k->rights,
			     .base = r ? r->base + k->offset : nothing,
			     .length = k->length,
			     .ranges = k->ranges,
			     .updating = r ? r->updating : NULL,
			     .alone_from = k->rights & WEIR_RIGHT_ALONE ? 0 : WEIR_T_LONG_DOUBLE,
			     .words = words,
			     .members = k->lock_members,
			     .region = (uint16_t)k->region,
			     .lock_region = (uint16_t)k->lock_region,
			     .session = (uint16_t)k->session,
			     .number = (uint16_t)k->number,
			     .channel = k->channel};
	list_init(&x->conns);
	list_init(&x->lock.queue);
	if (r)
		region_keep(s, x->region);
	if (words)
		region_keep(s, x->lock_region);
	return 0;
}

void
export_set_ranges(struct engine *e, const struct engine_export *k)
{
	struct session *s;
	struct export *x = find_export(e, k->session, k->number, &s);

	if (!x || x->generation != k->generation) /* its session has ended */
		return;
	weir_assert(x->ranges && k->ranges);
	x->ranges = k->ranges;
}

static void
end_conns(struct engine *e, struct export *x, uint32_t status)
{
	x->stopped = true;
	locks_end(e, x);
	while (!list_empty(&x->conns)) {
		struct conn_cold *cold =
		    LIST_OWNER(x->conns.next, struct conn_cold, memory.of_export);
		struct conn *c = conn_of_cold(e, cold);

		export_unbind(e, c);
		if (c->state == CONN_LOCAL)
			conn_local_closed(e, c, status);
		else
			conn_abort(e, c, status, true);
	}
	lock_forget(e, x);
}

static void
forget(struct session *s, struct export *x)
{
	if (x->region)
		region_drop(s, x->region);
	if (x->lock_region)
		region_drop(s, x->lock_region);
	x->generation = 0;
}

int
export_stop(struct engine *e, struct engine_export *k)
{
	struct session *s;
	struct export *x = find_export(e, k->session, k->number, &s);

	if (!x || x->generation != k->generation) /* its session has ended */
		return 0;
	end_conns(e, x, ESTALE);
	x->keyed_until = e->now + ENGINE_KEYED_NS;
	k->keyed = x->keyed;
	return 0;
}

int
export_remove(struct engine *e, const struct engine_export *k)
{
	struct session *s;
	struct export *x = find_export(e, k->session, k->number, &s);

	if (!x || x->generation != k->generation)
		return 0;
	weir_assert(x->stopped);
	if (x->keyed && e->now < x->keyed_until)
		return -EAGAIN;
	forget(s, x);
	return 0;
}

void
exports_end(struct engine *e, struct session *s)
{
	for (uint32_t i = 0; i < s->export_count; i++)
		if (s->exports[i].generation) {
			end_conns(e, &s->exports[i], ECONNRESET);
			forget(s, &s->exports[i]);
		}
}

struct export *
export_known(struct engine *e, uint32_t session, uint32_t number, uint32_t generation)
{
	struct session *s;
	struct export *x = find_export(e, session, number, &s);

	if (!x || !x->generation || x->generation != generation || x->stopped)
		return NULL;
	return x;
}

struct export *
export_named(struct engine *e, const struct engine_conn_command *k)
{
	return export_known(e, k->export_session, k->export_number, k->export_generation);
}

void
export_bind(struct engine *e, struct conn *c, struct export *x, uint32_t rights,
	    const struct engine_export_key *key)
{
	weir_assert(c->kind == CONN_MEMORY && !c->cold->memory.export);
	c->cold->memory.export = x;
	c->cold->memory.length = x->length;
	c->cold->memory.direct = x->ranges ? 0 : x->length;
	c->cold->memory.rights = x->rights & rights;
	list_append(&x->conns, &c->cold->memory.of_export);
	x->openers++;
	notices_open(e, c);
	if (!key || !key->rkey)
		return;
	c->cold->memory.key = (struct weir_wire_key){.address = key->address,
						     .rkey = key->rkey,
						     .fence_rkey = e->config.fence_mr.rkey,
						     .fence_address = e->config.fence_mr.address};
	c->cold->memory.keyed = x;
	c->cold->memory.keyed_generation = x->generation;
	x->keyed++;
}

void
export_unkey(struct conn *c)
{
	struct export *x = c->cold->memory.keyed;

	weir_assert(c->kind == CONN_MEMORY);
	if (x && x->generation == c->cold->memory.keyed_generation) {
		weir_assert(x->keyed);
		x->keyed--;
	}
	c->cold->memory.keyed = NULL;
}

void
export_unbind(struct engine *e, struct conn *c)
{
	struct export *x = c->cold->memory.export;

	weir_assert(c->kind == CONN_MEMORY);
	if (!x)
		return;
	weir_assert(x->openers);
	lock_leave(e, c);
	notices_end(e, c);
	x->openers--;
	list_remove(&c->cold->memory.of_export);
	c->cold->memory.export = NULL;
}

void
export_count_refused(struct engine *e, struct export *x)
{
	x->counters.refused++;
	count(&e->counters.remote_refused, 1);
}

void
exports_count(struct engine *e, struct engine_export_record *records, uint32_t n)
{
	for (struct engine_export_record *r = records; r < records + n; r++) {
		const struct export *x = export_known(e, r->session, r->number, r->generation);

		if (!x)
			continue;
		lock_record(e, x, r);
		r->openers += x->openers;
		weir_export_count(&r->counters, &x->counters);
	}
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranges of dynamic exports. Each change makes a new list, which engines take by a command; the
 * former list is freed when all of them have, since none of them uses it from then on.
 */
#include "command.h"
#include "export.h"
#include "region.h"
#include "session.h"
#include "state.h"

#include "base/vec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool
ranges_have(const struct broker_export *x, uint32_t region)
{
	for (uint32_t i = 0; x->ranges && i < x->ranges->count; i++)
		if (x->ranges->of[i].region == region)
			return true;
	return false;
}

uint64_t
ranges_bytes(const struct broker_export *x)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; x->ranges && i < x->ranges->count; i++)
		sum += x->ranges->of[i].bytes;
	return sum;
}

/* How many ranges begin before the address. */
static uint32_t
ranges_before(const struct engine_ranges *r, uint64_t address)
{
	return VEC_BEFORE(r->count, i, r->of[i].address < address);
}

static void
changed(struct broker *b, struct broker_command *c)
{
	struct weir_session_msg ok = session_msg(WEIR_MSG_OK);
	struct broker_session *s = c->context;
	bool last = --s->ranges_waiting == 0;

	(void)b;
	session_command_done(s);
	if (!last)
		return;
	free(s->ranges_former);
	s->ranges_former = NULL;
	if (s->state == SESSION_OPEN)
		session_reply(s, &ok, NULL, 0);
}

/* Gives engines a list with one more range at `at`, or, if `added` is NULL, without the one there.
 */
static void
change(struct broker_session *s, struct broker_export *x, uint32_t at,
       const struct engine_range *added)
{
	struct engine_ranges *former = x->ranges, *r;
	uint32_t count = added ? former->count + 1 : former->count - 1, i;
	struct broker_command *c[BROKER_ENGINES_MAX];

	weir_assert(!s->ranges_waiting); /* a session has one request at a time */
	r = malloc(sizeof(*r) + count * sizeof(r->of[0]));
	for (i = 0; r && i < s->b->config.engines; i++) {
		c[i] = command_new(s->b, i, ENGINE_EXPORT_RANGES, changed, s);
		if (!c[i])
			break;
	}
	if (i < s->b->config.engines) {
		while (i--)
			command_drop(s->b, c[i]);
		free(r);
		session_refuse_memory(s);
		return;
	}
	r->count = count;
	memcpy(r->of, former->of, at * sizeof(r->of[0]));
	if (added)
		r->of[at] = *added;
	memcpy(r->of + at + !!added, former->of + at + !added,
	       (former->count - at - !added) * sizeof(r->of[0]));
	x->ranges = r;
	s->ranges_former = former;
	s->ranges_waiting = s->b->config.engines;
	s->ranges += added ? 1 : -1;
	for (i = 0; i < s->b->config.engines; i++) {
		c[i]->cmd.export = (struct engine_export){.session = s->id,
							  .number = (uint32_t)(x - s->export) + 1,
							  .generation = x->generation,
							  .ranges = r};
		s->commands++;
		command_submit(s->b, c[i]);
	}
}

/* The dynamic export that a request names; else NULL, and the refusal. */
static struct broker_export *
dynamic_export(struct broker_session *s, const struct weir_session_msg *m)
{
	uint32_t i = m->range.number - 1;
	struct broker_export *x = i < s->b->config.exports ? &s->export[i] : NULL;

	if (x && x->generation == m->range.generation && x->state == EXPORT_OPEN && x->ranges)
		return x;
	if (x && x->generation == m->range.generation && x->state == EXPORT_STOPPING)
		session_refuse(s, EAGAIN, "operations may still be under way; call again");
	else if (x && x->generation == m->range.generation && x->evicted)
		session_refuse(s, ECONNABORTED,
			       "evicted by an operator%s%s; export again if you may",
			       x->why ? ": " : "", x->why ? x->why : "");
	else
		session_refuse(s, ESTALE, "no dynamic export %u; it ended with one of its regions",
			       m->range.number);
	return NULL;
}

void
range_attach_request(struct broker_session *s, const struct weir_session_msg *m)
{
	uint64_t address = m->range.address, bytes = m->range.length;
	struct broker_export *x = dynamic_export(s, m);
	const struct engine_ranges *r;
	struct broker_region *region;
	struct engine_range added;
	uint32_t at;

	if (!x)
		return;
	region = export_region(s, m->range.region, m->range.offset, bytes);
	if (!region)
		return;
	if (!address || address > WEIR_DYNAMIC_END || bytes > WEIR_DYNAMIC_END - address ||
	    (address ^ m->range.offset) % WEIR_EXPORT_ALIGN) {
		session_refuse(s, EINVAL,
			       "invalid address 0x%llx (expected one below 2^48, aligned as the "
			       "memory is); give that of the memory",
			       (unsigned long long)address);
		return;
	}
	r = x->ranges;
	at = ranges_before(r, address);
	if ((at && address - r->of[at - 1].address < r->of[at - 1].bytes) ||
	    (at < r->count && r->of[at].address - address < bytes)) {
		session_refuse(s, EEXIST,
			       "the range overlaps one that is attached; detach that first");
		return;
	}
	if (r->count == WEIR_RANGES_MAX || s->ranges == WEIR_SESSION_RANGES_MAX) {
		session_refuse(s, EMFILE,
			       "%u ranges are attached, and %u of the session; detach some",
			       r->count, s->ranges);
		return;
	}
	added = (struct engine_range){.address = address,
				      .bytes = bytes,
				      .base = (uint8_t *)region->memory.base + m->range.offset,
				      .region = m->range.region,
				      .updating = &region->updating};
	change(s, x, at, &added);
}

void
range_detach_request(struct broker_session *s, const struct weir_session_msg *m)
{
	struct broker_export *x = dynamic_export(s, m);
	uint32_t at;

	if (!x)
		return;
	at = ranges_before(x->ranges, m->range.address);
	if (at == x->ranges->count || x->ranges->of[at].address != m->range.address) {
		session_refuse(s, ENOENT,
			       "no range begins at 0x%llx; give the start of one that is "
			       "attached",
			       (unsigned long long)m->range.address);
		return;
	}
	change(s, x, at, NULL);
}

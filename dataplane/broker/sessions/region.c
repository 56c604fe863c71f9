/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Adopted memory: regions that a program puts in the place of its own memory. Made and given back
 * as an arena is; removed when no engine has a message under way in it.
 */
#include "command.h"
#include "memfd.h"
#include "pace.h"
#include "region.h"
#include "release.h"
#include "session.h"
#include "state.h"
#include "user.h"

#include "sigbus.h"
#include "weir/memory.h"

#include <errno.h>
#include <stdlib.h>

#define FLAGS (WEIR_ADOPT_SEND | WEIR_ADOPT_RECV)
#define PAGE 4096u

/* What peers, and we for them, may do: no more than it was adopted for. */
static unsigned
access_of(uint32_t flags)
{
	unsigned access = 0;

	if (flags & WEIR_ADOPT_SEND)
		access |= NIC_REMOTE_READ;
	if (flags & WEIR_ADOPT_RECV)
		access |= NIC_LOCAL_WRITE | NIC_REMOTE_WRITE;
	return access;
}

/* The first engine on the device of engine i. */
static uint32_t
first_on_device(const struct broker *b, uint32_t i)
{
	uint32_t k = 0;

	while (broker_engine(b, k)->dev != broker_engine(b, i)->dev)
		k++;
	return k;
}

/* Once a device. */
static int
register_views(struct broker_session *s, struct broker_region *r)
{
	struct broker *b = s->b;

	for (uint32_t i = 0; i < b->config.engines; i++) {
		struct engine_region *v = &r->view[i];
		uint32_t first = first_on_device(b, i);
		int rc;

		v->session = s->id;
		v->region = (uint32_t)(r - s->region) + 1;
		v->base = r->memory.base;
		v->bytes = r->memory.bytes;
		v->flags = r->flags;
		if (!broker_engine(b, i)->dev)
			continue;
		if (first < i) {
			v->mr = r->view[first].mr;
			continue;
		}
		rc = broker_ops(b, i)->mr_reg(broker_engine(b, i)->dev, v->base, v->bytes,
					      access_of(r->flags), &v->mr);
		if (rc) {
			v->mr.length = 0;
			return rc;
		}
	}
	return 0;
}

static void
region_enter(struct broker_region *r, enum region_state to)
{
	static const uint8_t legal[] = {
	    [REGION_FREE] = 0, /* made as BUILDING, in one go */
	    [REGION_BUILDING] = 1u << REGION_ADDING,
	    [REGION_ADDING] = 1u << REGION_OPEN | 1u << REGION_LEAVING,
	    [REGION_OPEN] = 1u << REGION_LEAVING,
	    [REGION_LEAVING] = 0,
	};

	weir_enter(legal, r->state, to);
}

/* Commands of a region: REGION_REMOVE may follow within the last answer to REGION_ADD. */
static uint32_t
reserved(const struct broker *b)
{
	return b->config.engines + 1;
}

static void
leave_building(struct broker_region *r)
{
	struct broker *b = r->session->b;
	struct broker_region **at = &b->adopting;

	while (*at != r)
		at = &(*at)->next_building;
	*at = r->next_building;
	if (!*at)
		b->last_adopting = at;
}

static void
region_free(struct broker_session *s, struct broker_region *r)
{
	struct broker *b = s->b;

	if (r->state == REGION_BUILDING)
		leave_building(r);
	for (uint32_t i = 0; i < b->config.engines; i++)
		if (r->view[i].mr.length && first_on_device(b, i) == i)
			broker_ops(b, i)->mr_dereg(broker_engine(b, i)->dev, &r->view[i].mr);
	sigbus_guard_remove(r->guard);
	free(r->view);
	s->region_bytes -= r->bytes;
	command_unreserve(b, reserved(b));
	release_memory(b, r->release, &r->memory, s->owner, r->bytes, USER_REGIONS);
	*r = (struct broker_region){.state = REGION_FREE};
}

void
regions_free(struct broker_session *s)
{
	for (uint32_t i = 0; i < s->b->config.regions; i++)
		if (s->region[i].state != REGION_FREE)
			region_free(s, &s->region[i]);
}

bool
regions_cut(struct broker_session *s)
{
	bool any = false;

	for (uint32_t i = 0; i < s->b->config.regions; i++)
		any |= s->region[i].state != REGION_FREE && sigbus_guard_cut(s->region[i].guard);
	return any;
}

/* Tells every engine; `done` is called for each. */
static void
tell_engines(struct broker_session *s, struct broker_region *r, enum engine_command_type type,
	     command_done_fn *done)
{
	r->waiting = s->b->config.engines;
	for (uint32_t i = 0; i < s->b->config.engines; i++) {
		struct broker_command *c = command_reserved(s->b, i, type, done, s);

		c->cmd.region = r->view[i];
		s->commands++;
		command_submit(s->b, c);
	}
}

static void
removed(struct broker *b, struct broker_command *c)
{
	struct broker_session *s = c->context;
	struct broker_region *r = &s->region[c->cmd.region.region - 1];

	(void)b;
	s->commands--;
	if (--r->waiting == 0)
		region_free(s, r);
	if (s->state != SESSION_OPEN)
		broker_session_release(s);
}

static void
leave(struct broker_session *s, struct broker_region *r)
{
	region_enter(r, REGION_LEAVING);
	tell_engines(s, r, ENGINE_REGION_REMOVE, removed);
}

static void
answer(struct broker_session *s, struct broker_region *r)
{
	struct weir_session_msg m = session_msg(WEIR_MSG_REGION);

	region_enter(r, REGION_OPEN);
	s->b->counters.regions++;
	m.region.region = r->view[0].region;
	m.region.page = (uint32_t)r->memory.page;
	m.region.bytes = r->bytes;
	session_reply(s, &m, &r->memory.fd, 1);
}

static void
added(struct broker *b, struct broker_command *c)
{
	struct broker_session *s = c->context;
	struct broker_region *r = &s->region[c->cmd.region.region - 1];

	(void)b;
	s->commands--;
	if (c->cmd.result && !r->result)
		r->result = c->cmd.result;
	if (--r->waiting && s->state == SESSION_OPEN)
		return;
	if (s->state != SESSION_OPEN) {
		broker_session_release(s);
		return;
	}
	if (!r->result) {
		answer(s, r);
		return;
	}
	session_refuse(s, -r->result, "an engine doesn't take the memory: %s; attach again",
		       strerror(-r->result));
	leave(s, r);
}

/* Why it can't be, or NULL. */
static const char *
unacceptable(const struct broker_session *s, const struct weir_session_msg *m, int *code)
{
	const struct broker_config *c = &s->b->config;
	uint32_t flags = m->adopt.flags & ~WEIR_ADOPT_HUGE;

	*code = EINVAL;
	if (!flags || flags & ~FLAGS)
		return "memory is adopted for sending, receiving or both; say which";
	if (!m->adopt.bytes || m->adopt.bytes % PAGE || m->adopt.bytes > WEIR_REGION_BYTES_MAX)
		return "whole pages, 64 MiB at most, are adopted; align it, or adopt parts";
	*code = ENOSPC;
	if (m->adopt.bytes > c->region_bytes - s->region_bytes)
		return "the session has adopted as much memory as it may; disown some, or raise "
		       "--adopt";
	return NULL;
}

static struct broker_region *
free_region(struct broker_session *s)
{
	for (uint32_t i = 0; i < s->b->config.regions; i++)
		if (s->region[i].state == REGION_FREE)
			return &s->region[i];
	return NULL;
}

/* Its memory lies near the engine that the program talks to first. */
static int
begin(struct broker_session *s, struct broker_region *r, bool huge)
{
	uint32_t near = s->channel_count ? s->channel[0].engine : 0;
	struct memfd_part part = {0, r->bytes, broker_engine(s->b, near)->numa_socket};

	return memfd_begin("weir-region", r->bytes, huge, &part, 1, &r->memory);
}

/* A piece of it. 1: there are more; 0: all is there, and engines are being told; or -errno. */
static int
build(struct broker_session *s, struct broker_region *r)
{
	int rc = memfd_go_on(&r->memory, MEMFD_PIECE);

	if (rc < 0 && r->memory.page == MEMFD_HUGE_PAGE) {
		memfd_close(&r->memory);
		rc = begin(s, r, false);
		return rc ? rc : 1;
	}
	if (rc)
		return rc;
	r->guard =
	    sigbus_guard_add(r->memory.base, r->memory.bytes, r->memory.page, s->b->fault_fd);
	rc = r->guard < 0 ? r->guard : register_views(s, r);
	if (rc)
		return rc;
	leave_building(r);
	region_enter(r, REGION_ADDING);
	tell_engines(s, r, ENGINE_REGION_ADD, added);
	return 0;
}

static void
refuse_memory(struct broker_session *s, int rc)
{
	session_refuse(s, -rc,
		       "no memory to adopt: %s; free some, or raise the limits of locked memory "
		       "and regions",
		       strerror(-rc));
}

uint64_t
regions_build(struct broker *b, uint64_t now)
{
	struct broker_region *r = b->adopting;
	struct broker_session *s;
	uint64_t start;
	int rc;

	if (!r)
		return UINT64_MAX;
	s = r->session;
	start = pace_clock();
	rc = s->state == SESSION_OPEN ? build(s, r) : -ECANCELED;
	s->request_ns += (pace_clock() - start) * 4 / 3; /* with its release */
	if (rc < 0) {
		region_free(s, r);
		refuse_memory(s, rc);
	}
	return b->adopting ? now : UINT64_MAX;
}

/* Charges it. 0, or it was refused. */
static int
charge(struct broker_session *s, uint64_t bytes)
{
	enum user_limit which = USER_REGIONS;
	int rc = user_take(s->owner, USER_REGIONS, 1);

	if (!rc) {
		which = USER_MEMORY;
		rc = user_take(s->owner, USER_MEMORY, bytes);
		if (rc)
			user_give(s->owner, USER_REGIONS, 1);
	}
	if (rc)
		user_refuse(s, s->owner, which, rc);
	return rc;
}

void
adopt_request(struct broker_session *s, const struct weir_session_msg *m)
{
	struct broker_region *r = free_region(s);
	struct broker *b = s->b;
	bool huge = m->adopt.flags & WEIR_ADOPT_HUGE && m->adopt.bytes % MEMFD_HUGE_PAGE == 0;
	int rc;
	const char *why = unacceptable(s, m, &rc);
	struct engine_region *view;
	struct broker_release *release;

	if (why || !r) {
		session_refuse(s, why ? rc : EMFILE, "%s",
			       why ? why
				   : "all regions of the session are in use; disown some, or raise "
				     "--regions");
		return;
	}
	if (charge(s, m->adopt.bytes))
		return;
	view = broker_alloc(b->config.engines * sizeof(*view));
	release = release_new();
	if (!view || !release || command_reserve(b, reserved(b))) {
		free(view);
		free(release);
		user_give(s->owner, USER_REGIONS, 1);
		user_give(s->owner, USER_MEMORY, m->adopt.bytes);
		session_refuse_memory(s);
		return;
	}
	*r = (struct broker_region){.state = REGION_BUILDING,
				    .session = s,
				    .memory = {.fd = -1, .base = (void *)-1},
				    .guard = -1,
				    .bytes = m->adopt.bytes,
				    .flags = m->adopt.flags & FLAGS,
				    .view = view,
				    .release = release};
	s->region_bytes += r->bytes;
	*b->last_adopting = r;
	b->last_adopting = &r->next_building;
	rc = begin(s, r, huge);
	if (rc) {
		region_free(s, r);
		refuse_memory(s, rc);
	}
}

void
disown_request(struct broker_session *s, const struct weir_session_msg *m)
{
	struct weir_session_msg ok = session_msg(WEIR_MSG_OK);
	uint32_t i = m->region.region - 1;

	if (i >= s->b->config.regions || s->region[i].state != REGION_OPEN) {
		session_refuse(s, ENOENT, "no region %u; adopt it first, disown it once",
			       m->region.region);
		return;
	}
	/* messages under way go on: what they name is no longer the program's memory */
	leave(s, &s->region[i]);
	session_reply(s, &ok, NULL, 0);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Regions: memory of a program that was allocated for it, or replaces memory of its own. They are
 * made and released in pieces, as arenas are, and removed when no engine has a message under way in
 * them.
 */
#include "command.h"
#include "export.h"
#include "memfd.h"
#include "pace.h"
#include "region.h"
#include "release.h"
#include "session.h"
#include "state.h"
#include "user.h"

#include "ipc/invariant.h"
#include "sigbus.h"
#include "weir/memory.h"

#include <errno.h>
#include <stdlib.h>

#define FLAGS (WEIR_ADOPT_SEND | WEIR_ADOPT_RECV | WEIR_ADOPT_EXPOSE)
#define HOW (WEIR_ADOPT_HUGE | WEIR_ADOPT_GIGANTIC | WEIR_ADOPT_NEW)
#define PAGE 4096u
#define NUMA_NODES 1024		 /* of Linux, at most */
#define ROOM_WAIT_NS 1000000000u /* that ADOPT waits for a region that is leaving */
/* A region that is kept for longer costs its program nothing but its release. */
#define SHORT_NS (10 * BROKER_SECOND_NS)

/* The first engine on the device of engine i. */
static uint32_t
first_on_device(const struct broker *b, uint32_t i)
{
	uint32_t k = 0;

	while (broker_engine(b, k)->dev != broker_engine(b, i)->dev)
		k++;
	return k;
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
region_free(struct broker_session *s, struct broker_region *r)
{
	struct broker *b = s->b;

	weir_assert(r->state != REGION_FREE && s->region_bytes >= r->bytes);
	build_leave(&r->build);
	for (uint32_t i = 0; i < b->config.engines; i++)
		if (r->view[i].mr.length && first_on_device(b, i) == i)
			broker_ops(b, i)->mr_dereg(broker_engine(b, i)->dev, &r->view[i].mr);
	free(r->view);
	s->region_bytes -= r->bytes;
	s->adopted_bytes -= r->adopted ? r->bytes : 0;
	command_unreserve(b, reserved(b));
	release_memory(b, r->release, &r->memory, r->guard, s->owner, r->bytes, USER_REGIONS);
	*r = (struct broker_region){.state = REGION_FREE};
}

void
regions_free(struct broker_session *s)
{
	for (uint32_t i = 0; i < s->b->config.regions; i++)
		if (s->region[i].state != REGION_FREE)
			region_free(s, &s->region[i]);
}

/* Nobody knows whether the owner or a program that mapped the region punched the hole. */
static void
damaged(struct broker_session *s, struct broker_region *r)
{
	uint32_t number = (uint32_t)(r - s->region) + 1;

	r->damaged = true;
	s->b->counters.regions_damaged++;
	broker_blame_user(s->b, s->uid, "regions damaged", LOG_LEVEL_WARNING, SESSION_FIELDS(s),
			  "region %u of session %u (pid %d, %s) has a hole, punched by it or by a "
			  "program that mapped it: its exports have ended; the program should free "
			  "it",
			  number, s->id, (int)s->pid, s->name);
	if (s->state == SESSION_OPEN && r->state == REGION_OPEN)
		exports_leave(s, number);
}

uint32_t
regions_cut(struct broker_session *s)
{
	uint32_t number = 0;

	for (uint32_t i = 0; i < s->b->config.regions; i++) {
		struct broker_region *r = &s->region[i];

		if (r->state == REGION_FREE || !sigbus_guard_cut(r->guard))
			continue;
		if (r->lent)
			damaged(s, r);
		else
			number = i + 1;
	}
	return number;
}

/* Sends a command to every engine; `done` is called for each answer. */
static void
tell_engines(struct broker_session *s, struct broker_region *r, enum engine_command_type type,
	     command_done_fn *done)
{
	weir_assert(s->state == SESSION_OPEN && !r->waiting);
	r->waiting = s->b->config.engines;
	for (uint32_t i = 0; i < s->b->config.engines; i++) {
		struct broker_command *c = command_reserved(s->b, i, type, done, s);

		c->cmd.region = r->view[i];
		s->commands++;
		command_submit(s->b, c);
	}
}

static void adopt(struct broker_session *s);

static void
removed(struct broker *b, struct broker_command *c)
{
	struct broker_session *s = c->context;
	struct broker_region *r = &s->region[c->cmd.region.region - 1];

	weir_assert(r->state == REGION_LEAVING && r->waiting);
	session_command_done(s);
	if (--r->waiting)
		return;
	region_free(s, r);
	if (s->adopt.waits)
		adopt(s);
}

static void
leave(struct broker_session *s, struct broker_region *r)
{
	region_enter(r, REGION_LEAVING);
	tell_engines(s, r, ENGINE_REGION_REMOVE, removed);
}

static void
added(struct broker *b, struct broker_command *c)
{
	struct broker_session *s = c->context;
	struct broker_region *r = &s->region[c->cmd.region.region - 1];
	struct weir_session_msg m = session_msg(WEIR_MSG_REGION);

	weir_assert(r->state == REGION_ADDING && r->waiting);
	session_command_done(s);
	if (c->cmd.result && !r->result)
		r->result = c->cmd.result;
	if (--r->waiting || s->state != SESSION_OPEN)
		return;
	if (r->result) {
		session_refuse(s, -r->result, "an engine doesn't take the memory: %s; attach again",
			       strerror(-r->result));
		leave(s, r);
		return;
	}
	region_enter(r, REGION_OPEN);
	r->since = broker_now(b);
	b->counters.regions++;
	m.region.region = r->view[0].region;
	m.region.page = (uint32_t)r->memory.page;
	m.region.bytes = r->bytes;
	session_reply(s, &m, &r->memory.fd, 1);
}

static int
begin_memory(struct broker_region *r, enum memfd_pages pages)
{
	struct memfd_part part = {0, r->bytes, r->numa_node};

	return memfd_begin("weir-region", r->bytes, pages, &part, 1, &r->memory);
}

static struct broker_region *
region_of(struct broker_build *e)
{
	return (struct broker_region *)((char *)e - offsetof(struct broker_region, build));
}

static int
make_piece(struct broker_build *e)
{
	struct broker_region *r = region_of(e);
	int rc;

	weir_assert(r->state == REGION_BUILDING);
	if (e->session->state != SESSION_OPEN)
		return -ECANCELED;
	rc = memfd_go_on(&r->memory, MEMFD_PIECE);
	if (rc < 0 && r->memory.page > PAGE) {
		enum memfd_pages pages = memfd_smaller(&r->memory);

		memfd_close(&r->memory);
		rc = begin_memory(r, pages);
		return rc ? rc : 1;
	}
	return rc;
}

/* The program pays when it leaves soon, or gives the memory back soon: see disown_request(). */
static void
charge(struct broker_build *e, uint64_t ns)
{
	struct broker_session *s = e->session;

	region_of(e)->cost_ns += ns;
	s->cost_ns += ns;
	if (s->charged)
		user_charge(s->owner, ns, false);
}

/* Guards the memory, registers it once per device, and tells engines. */
static int
add_to_engines(struct broker_build *e)
{
	struct broker_region *r = region_of(e);
	struct broker_session *s = e->session;
	uint64_t begin = pace_clock();
	struct broker *b = s->b;
	unsigned access = 0;
	int rc = 0;

	r->guard = sigbus_guard_add(r->memory.base, r->memory.bytes, r->memory.page, b->fault_fd);
	if (r->guard < 0)
		return r->guard;
	/* peers, and engines for them, may do no more than the memory was adopted for */
	if (r->flags & WEIR_ADOPT_SEND)
		access |= NIC_REMOTE_READ;
	if (r->flags & WEIR_ADOPT_RECV)
		access |= NIC_LOCAL_WRITE | NIC_REMOTE_WRITE;
	for (uint32_t i = 0; i < b->config.engines; i++) {
		struct nic_device *dev = broker_engine(b, i)->dev;
		struct engine_region *v = &r->view[i];
		uint32_t first = first_on_device(b, i);

		v->session = s->id;
		v->region = (uint32_t)(r - s->region) + 1;
		v->base = r->memory.base;
		v->bytes = r->memory.bytes;
		v->flags = r->flags;
		v->updating = &r->updating;
		if (dev && first < i)
			v->mr = r->view[first].mr;
		else if (dev)
			rc = broker_ops(b, i)->mr_reg(dev, v->base, v->bytes, access, &v->mr);
		if (rc) {
			v->mr.length = 0;
			return rc;
		}
	}
	charge(e, pace_clock() - begin);
	region_enter(r, REGION_ADDING);
	tell_engines(s, r, ENGINE_REGION_ADD, added);
	return 0;
}

static void
refuse_memory(struct broker_session *s, int rc)
{
	session_refuse(s, -rc,
		       "no memory for a region: %s; free some, or raise the limits of locked "
		       "memory and regions",
		       strerror(-rc));
}

static void
not_built(struct broker_build *e, int rc)
{
	struct broker_session *s = e->session;

	region_free(s, region_of(e));
	refuse_memory(s, rc);
}

static const struct build_kind region_kind = {make_piece, add_to_engines, not_built, charge};

/* The node near the engine of the first channel of the program, if it does not say. */
static int
numa_node(const struct broker_session *s)
{
	uint32_t near = s->channel_count ? s->channel[0].engine : 0;

	return s->adopt.numa_node >= 0 ? s->adopt.numa_node
				       : broker_engine(s->b, near)->numa_socket;
}

void
adopt_stop_waiting(struct broker_session *s)
{
	if (s->adopt.waits)
		TAILQ_REMOVE(&s->b->adopt_waiting, s, adopt.in_waiting);
	s->adopt.waits = false;
}

/*
 * True: ADOPT waits. A program that disowns one range and adopts the next finds the first one
 * leaving, mostly for as long as an engine's turn.
 */
static bool
wait_for_room(struct broker_session *s)
{
	uint32_t i = 0;

	while (i < s->b->config.regions && s->region[i].state != REGION_LEAVING)
		i++;
	if (i == s->b->config.regions || broker_now(s->b) >= s->adopt.until)
		return false;
	TAILQ_INSERT_TAIL(&s->b->adopt_waiting, s, adopt.in_waiting);
	s->adopt.waits = true;
	return true;
}

/* Whether the session may have that much memory; else it waits, or is refused. */
static bool
has_room(struct broker_session *s)
{
	const struct broker_config *c = &s->b->config;
	bool adopted = !(s->adopt.flags & WEIR_ADOPT_NEW);
	uint64_t bytes = s->adopt.bytes;

	if (bytes > c->region_bytes - s->region_bytes) {
		if (!wait_for_room(s))
			session_refuse(s, ENOSPC,
				       "regions of the session have %llu KiB, its limit is %llu, "
				       "%llu more were asked for; free some, or raise --memory",
				       (unsigned long long)s->region_bytes >> 10,
				       (unsigned long long)c->region_bytes >> 10,
				       (unsigned long long)bytes >> 10);
		return false;
	}
	if (adopted && bytes > c->adopt_bytes - s->adopted_bytes) {
		if (!wait_for_room(s))
			session_refuse(s, ENOSPC,
				       "the session has adopted as much memory as it may; disown "
				       "some, or raise --adopt");
		return false;
	}
	return true;
}

/* Makes the region that the session asks for, or waits for room, or refuses. */
static void
adopt(struct broker_session *s)
{
	bool adopted = !(s->adopt.flags & WEIR_ADOPT_NEW);
	uint64_t bytes = s->adopt.bytes;
	enum memfd_pages pages = MEMFD_ORDINARY;
	enum user_limit which = USER_REGIONS;
	struct broker *b = s->b;
	struct broker_release *release;
	struct engine_region *view;
	struct broker_region *r;
	uint32_t i = 0;
	int rc;

	adopt_stop_waiting(s);
	if (!has_room(s))
		return;
	while (i < b->config.regions && s->region[i].state != REGION_FREE)
		i++;
	if (i == b->config.regions) {
		if (!wait_for_room(s))
			session_refuse(s, EMFILE,
				       "all regions of the session are in use; disown or free "
				       "some, or raise --regions");
		return;
	}
	rc = user_take(s->owner, USER_REGIONS, 1);
	if (!rc) {
		which = USER_MEMORY;
		rc = user_take(s->owner, USER_MEMORY, bytes);
		if (rc)
			user_give(s->owner, USER_REGIONS, 1);
	}
	if (rc) {
		if (!wait_for_room(s))
			user_refuse(s, s->owner, which, which == USER_MEMORY ? bytes : 1, rc);
		return;
	}
	view = broker_alloc(b->config.engines * sizeof(*view));
	release = release_new();
	if (!view || !release || command_reserve(b, reserved(b))) {
		free(view);
		free(release);
		user_give(s->owner, USER_REGIONS, 1);
		user_give(s->owner, USER_MEMORY, bytes);
		session_refuse_memory(s);
		return;
	}
	r = &s->region[i];
	*r = (struct broker_region){.state = REGION_BUILDING,
				    .session = s,
				    .memory = {.fd = -1, .base = (void *)-1},
				    .guard = -1,
				    .bytes = bytes,
				    .flags = s->adopt.flags & FLAGS,
				    .adopted = adopted,
				    .numa_node = numa_node(s),
				    .view = view,
				    .release = release};
	s->region_bytes += r->bytes;
	s->adopted_bytes += adopted ? r->bytes : 0;
	if (s->adopt.flags & WEIR_ADOPT_GIGANTIC && bytes % MEMFD_GIGANTIC_PAGE == 0)
		pages = MEMFD_GIGANTIC;
	else if (s->adopt.flags & WEIR_ADOPT_HUGE && bytes % MEMFD_HUGE_PAGE == 0)
		pages = MEMFD_HUGE;
	rc = begin_memory(r, pages);
	if (rc) {
		region_free(s, r);
		refuse_memory(s, rc);
		return;
	}
	build_enter(&r->build, &region_kind, s, &r->memory);
}

uint64_t
adopt_timers(struct broker *b, uint64_t now)
{
	struct broker_session *s;

	while ((s = TAILQ_FIRST(&b->adopt_waiting)) && s->adopt.until <= now)
		adopt(s);
	return s ? s->adopt.until : UINT64_MAX;
}

void
adopt_request(struct broker_session *s, const struct weir_session_msg *m)
{
	uint32_t flags = m->adopt.flags & ~HOW;

	if (!flags || flags & ~FLAGS) {
		session_refuse(s, EINVAL,
			       "memory is adopted for sending, receiving or exposing; say which");
		return;
	}
	if (m->adopt.numa_node < -1 || m->adopt.numa_node >= NUMA_NODES) {
		session_refuse(s, EINVAL, "no NUMA node %d; give -1 for that of the thread",
			       m->adopt.numa_node);
		return;
	}
	if (!m->adopt.bytes || m->adopt.bytes % PAGE || m->adopt.bytes > WEIR_REGION_BYTES_MAX) {
		session_refuse(s, EINVAL,
			       "regions are of whole pages, 128 TiB at most; align the memory, or "
			       "use several");
		return;
	}
	s->adopt.bytes = m->adopt.bytes;
	s->adopt.flags = m->adopt.flags;
	s->adopt.numa_node = m->adopt.numa_node;
	s->adopt.until = broker_now(s->b) + ROOM_WAIT_NS;
	adopt(s);
}

void
disown_request(struct broker_session *s, const struct weir_session_msg *m)
{
	struct weir_session_msg ok = session_msg(WEIR_MSG_OK);
	uint32_t i = m->region.region - 1;
	struct broker_region *r;

	if (i >= s->b->config.regions || s->region[i].state != REGION_OPEN) {
		session_refuse(s, ENOENT, "no region %u; adopt it first, disown it once",
			       m->region.region);
		return;
	}
	r = &s->region[i];
	/* a program that gives memory back soon pays for making and releasing it, as one that
	 * leaves soon pays for attaching; else only for its release */
	s->request_ns += r->cost_ns / 3;
	if (broker_now(s->b) - r->since < SHORT_NS)
		s->request_ns += r->cost_ns;
	s->cost_ns -= r->cost_ns;
	exports_leave(s, i + 1);
	/* messages under way go on, in memory that is no longer the program's */
	leave(s, r);
	session_reply(s, &ok, NULL, 0);
}

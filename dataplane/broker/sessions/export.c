/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Exports. Main makes keys and checks them when a connection is asked for; engines, which have a
 * copy of every export, check each operation. A key is of one life of an export: its secret is
 * random, and no two lives have the same.
 */
#include "command.h"
#include "conn.h"
#include "export.h"
#include "region.h"
#include "session.h"
#include "state.h"
#include "user.h"

#include "base/fail.h"
#include "base/log.h"
#include "base/secret.h"
#include "ipc/invariant.h"
#include "ipc/lock_words.h"
#include "weir/memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

static void
export_enter(struct broker_export *x, enum export_state to)
{
	static const uint8_t legal[] = {
	    [EXPORT_FREE] = 0, /* made as ADDING, in one go */
	    [EXPORT_ADDING] = 1u << EXPORT_OPEN | 1u << EXPORT_STOPPING,
	    [EXPORT_OPEN] = 1u << EXPORT_STOPPING,
	    [EXPORT_STOPPING] = 1u << EXPORT_LEAVING,
	    [EXPORT_LEAVING] = 1u << EXPORT_EVICTED,
	    [EXPORT_EVICTED] = 0,
	};

	weir_enter(legal, x->state, to);
}

/* Commands of an export: those of the next type may follow within the last answer to one. */
static uint32_t
reserved(const struct broker *b)
{
	return b->config.engines + 1;
}

static void
export_free(struct broker_session *s, struct broker_export *x)
{
	struct broker *b = s->b;

	/* no engine has a connection any more whose peer uses its keys */
	for (uint32_t i = 0; x->keys && i < b->config.engines; i++)
		for (uint32_t k = 0; k < EXPORT_KEYS; k++) {
			if (!x->keys[i][k].length)
				continue;
			broker_ops(b, i)->mr_dereg(broker_engine(b, i)->dev, &x->keys[i][k]);
			b->export_keys--;
		}
	free(x->keys);
	command_unreserve(b, reserved(b));
	user_give(s->owner, USER_EXPORTS, 1);
	free(x->why);
	if (x->ranges)
		s->ranges -= x->ranges->count;
	free(x->ranges);
	*x = (struct broker_export){.state = EXPORT_FREE};
}

void
exports_free(struct broker_session *s)
{
	for (uint32_t i = 0; i < s->b->config.exports; i++)
		if (s->export[i].state != EXPORT_FREE)
			export_free(s, &s->export[i]);
	free(s->ranges_former);
}

/* channel: that of each engine for notices; NULL: there are none. */
static void
tell_engines(struct broker_session *s, struct broker_export *x, enum engine_command_type type,
	     command_done_fn *done, const uint32_t *channel)
{
	struct engine_export e = {.session = s->id,
				  .number = (uint32_t)(x - s->export) + 1,
				  .generation = x->generation,
				  .region = x->region,
				  .offset = x->offset,
				  .length = x->length,
				  .ranges = x->ranges,
				  .rights = x->rights & (WEIR_RIGHTS_KNOWN | WEIR_RIGHT_ALONE),
				  .lock_offset = x->lock_offset,
				  .lock_region = x->lock_region,
				  .lock_members = x->lock_members};

	weir_assert(s->state == SESSION_OPEN && !x->waiting);
	x->waiting = s->b->config.engines;
	for (uint32_t i = 0; i < s->b->config.engines; i++) {
		struct broker_command *c = command_reserved(s->b, i, type, done, s);

		c->cmd.export = e;
		c->cmd.export.channel = channel ? channel[i] : ENGINE_CHANNEL_NONE;
		s->commands++;
		command_submit(s->b, c);
	}
}

/* An engine has answered. NULL: the others have not, or the session ends. */
static struct broker_export *
answered(struct broker_command *c)
{
	struct broker_session *s = c->context;
	struct broker_export *x = &s->export[c->cmd.export.number - 1];

	weir_assert(x->waiting);
	x->waiting--;
	session_command_done(s);
	return x->waiting || s->state != SESSION_OPEN ? NULL : x;
}

/* The answer to REVOKE of an export that an operator ended. */
static void
evicted(const struct broker_export *x, struct weir_session_msg *reply)
{
	session_refusal(reply, ECONNABORTED, "evicted by an operator%s%s; export again if you may",
			x->why ? ": " : "", x->why ? x->why : "");
}

static void
removed(struct broker *b, struct broker_command *c)
{
	struct broker_export *x = answered(c);
	struct weir_session_msg reply = session_msg(WEIR_MSG_OK);
	struct broker_session *s = c->context;
	bool revoking;

	(void)b;
	if (!x)
		return;
	weir_assert(x->state == EXPORT_LEAVING);
	revoking = x->revoking;
	if (x->evicted)
		evicted(x, &reply);
	if (x->evicted && !revoking)
		export_enter(x, EXPORT_EVICTED);
	else
		export_free(s, x);
	if (revoking)
		session_reply(s, &reply, NULL, 0);
}

/* REVOKE is asked again, until the peers are done. */
static void
refuse_revoke(struct broker_session *s)
{
	session_refuse(s, EAGAIN, "operations of peers may still be under way; call again");
}

static void
stopped(struct broker *b, struct broker_command *c)
{
	struct broker_session *s = c->context;
	struct broker_export *x = &s->export[c->cmd.export.number - 1];

	(void)b;
	x->keyed += c->cmd.export.keyed;
	x = answered(c);
	if (!x)
		return;
	if (x->keyed && x->revoking) {
		x->revoking = false;
		refuse_revoke(s);
	}
	export_enter(x, EXPORT_LEAVING);
	tell_engines(s, x, ENGINE_EXPORT_REMOVE, removed, NULL);
}

static void
leave(struct broker_session *s, struct broker_export *x)
{
	export_enter(x, EXPORT_STOPPING);
	tell_engines(s, x, ENGINE_EXPORT_STOP, stopped, NULL);
}

void
exports_leave(struct broker_session *s, uint32_t region)
{
	for (uint32_t i = 0; i < s->b->config.exports; i++)
		if (s->export[i].state == EXPORT_OPEN &&
		    (s->export[i].region == region || s->export[i].lock_region == region ||
		     ranges_have(&s->export[i], region)))
			leave(s, &s->export[i]);
}

static void
added(struct broker *b, struct broker_command *c)
{
	struct broker_session *s = c->context;
	struct broker_export *x = &s->export[c->cmd.export.number - 1];
	struct weir_session_msg m = session_msg(WEIR_MSG_EXPORTED);
	struct weir_key_fields k;
	uint32_t i;

	if (c->cmd.result && !x->result)
		x->result = c->cmd.result;
	x = answered(c);
	if (!x)
		return;
	if ((x->region && s->region[x->region - 1].damaged) ||
	    (x->lock_region && s->region[x->lock_region - 1].damaged))
		x->result = -EFAULT;
	if (x->result) {
		session_refuse(s, -x->result, "an engine doesn't take the export: %s; attach again",
			       strerror(-x->result));
		leave(s, x);
		return;
	}
	export_enter(x, EXPORT_OPEN);
	b->counters.exports++;
	i = (uint32_t)(x - s->export);
	k = (struct weir_key_fields){.version = WEIR_KEY_VERSION,
				     .index = WEIR_KEY_INDEX(s->id, i),
				     .node = b->node,
				     .incarnation = b->config.incarnation,
				     .generation = x->generation};
	memcpy(k.secret, x->secret, sizeof(k.secret));
	k.sum = weir_key_sum(&k);
	m.exported.number = i + 1;
	m.exported.generation = x->generation;
	memcpy(m.exported.key, &k, sizeof(k));
	session_reply(s, &m, NULL, 0);
}

struct broker_region *
export_region(struct broker_session *s, uint32_t region, uint64_t offset, uint64_t length)
{
	uint32_t i = region - 1;
	struct broker_region *r = i < s->b->config.regions ? &s->region[i] : NULL;

	if (!r || r->state != REGION_OPEN) {
		session_refuse(s, ENOENT, "no region %u; allocate or adopt it first", region);
		return NULL;
	}
	if (!(r->flags & WEIR_ADOPT_EXPOSE)) {
		session_refuse(s, EACCES,
			       "the memory was not adopted for exposing; give WEIR_ADOPT_EXPOSE");
		return NULL;
	}
	if (!length || offset > r->bytes || length > r->bytes - offset) {
		session_refuse(s, EINVAL,
			       "%llu bytes at %llu are not within the region of %llu; correct the "
			       "range",
			       (unsigned long long)length, (unsigned long long)offset,
			       (unsigned long long)r->bytes);
		return NULL;
	}
	if (r->damaged) {
		session_refuse(s, EFAULT,
			       "holes were punched into the region; free it and make another");
		return NULL;
	}
	return r;
}

/* Whether the words of a lock can be used as the request says; else the refusal. */
static bool
words_ok(struct broker_session *s, const struct weir_session_msg *m)
{
	uint32_t members = m->export.lock_members;

	if (!m->export.lock_region && !members && !m->export.lock_offset)
		return true;
	if (!m->export.lock_region || !members || members > WEIR_LOCK_MEMBERS_MAX ||
	    m->export.lock_offset % sizeof(struct weir_lock_words) ||
	    !(m->export.rights & WEIR_RIGHT_LOCK)) {
		session_refuse(
		    s, EINVAL,
		    "words of a lock need a region, an offset of whole cache lines, 1 to "
		    "%u members, and WEIR_MAY_LOCK; correct the program",
		    WEIR_LOCK_MEMBERS_MAX);
		return false;
	}
	return export_region(s, m->export.lock_region, m->export.lock_offset,
			     weir_lock_bytes(members));
}

/* Whether it can be exported; else the refusal. */
static bool
export_ok(struct broker_session *s, const struct weir_session_msg *m)
{
	const struct broker_region *r = NULL;
	uint32_t channel;

	if (m->export.region) {
		r = export_region(s, m->export.region, m->export.offset, m->export.length);
		if (!r)
			return false;
	} else if (m->export.offset || m->export.length || m->export.rights & WEIR_RIGHT_MAP) {
		session_refuse(s, EINVAL,
			       "a dynamic export has neither offset nor length, and is not mapped; "
			       "correct the program");
		return false;
	}
	if (!m->export.rights ||
	    m->export.rights & ~(WEIR_RIGHTS_KNOWN | WEIR_RIGHT_MAP | WEIR_RIGHT_ALONE)) {
		session_refuse(s, EINVAL, "no rights, or unknown ones; see weir/remote.h");
		return false;
	}
	if (m->export.rights & WEIR_RIGHT_MAP && r && m->export.length != r->bytes) {
		session_refuse(s, EINVAL,
			       "only a whole region can be mapped; export all %llu bytes, or "
			       "without WEIR_MAY_MAP",
			       (unsigned long long)r->bytes);
		return false;
	}
	if (m->export.rights & WEIR_RIGHTS_ALIGNED && m->export.offset % WEIR_EXPORT_ALIGN) {
		session_refuse(s, EINVAL,
			       "invalid offset %llu (expected a multiple of %u, for updates and "
			       "signals)",
			       (unsigned long long)m->export.offset, WEIR_EXPORT_ALIGN);
		return false;
	}
	if (!words_ok(s, m))
		return false;
	for (uint32_t i = 0; m->export.rights & WEIR_RIGHT_NOTIFY && i < s->b->config.engines;
	     i++) {
		channel = m->export.channel[i];
		if (channel < s->channel_count && s->channel[channel].engine == i)
			continue;
		session_refuse(s, EINVAL,
			       "an export with notices needs a channel to each engine; add those "
			       "first");
		return false;
	}
	return true;
}

void
export_request(struct broker_session *s, const struct weir_session_msg *m)
{
	struct broker *b = s->b;
	struct broker_export *x;
	uint32_t i = 0;
	int rc;

	if (!export_ok(s, m))
		return;
	while (i < b->config.exports && s->export[i].state != EXPORT_FREE)
		i++;
	if (i == b->config.exports) {
		session_refuse(s, EMFILE,
			       "all %u exports of the session are in use; revoke some, or raise "
			       "--exports",
			       i);
		return;
	}
	rc = user_take(s->owner, USER_EXPORTS, 1);
	if (rc) {
		user_refuse(s, s->owner, USER_EXPORTS, 1, rc);
		return;
	}
	if (command_reserve(b, reserved(b))) {
		user_give(s->owner, USER_EXPORTS, 1);
		session_refuse_memory(s);
		return;
	}
	x = &s->export[i];
	if (++b->export_generation == 0)
		b->export_generation = 1;
	*x = (struct broker_export){.state = EXPORT_ADDING,
				    .generation = b->export_generation,
				    .region = m->export.region,
				    .rights = m->export.rights,
				    .offset = m->export.offset,
				    .lock_offset = m->export.lock_offset,
				    .lock_region = m->export.lock_region,
				    .lock_members = m->export.lock_members,
				    .length =
					m->export.region ? m->export.length : WEIR_DYNAMIC_BYTES};
	memcpy(x->name, m->export.name, sizeof(x->name));
	if (!x->region)
		x->ranges = broker_alloc(sizeof(*x->ranges));
	if (!x->region && !x->ranges) {
		export_free(s, x);
		session_refuse_memory(s);
		return;
	}
	/* up to 256 bytes come whole (getrandom(2)) */
	if (getrandom(x->secret, sizeof(x->secret), GRND_NONBLOCK) != sizeof(x->secret)) {
		export_free(s, x);
		session_refuse(s, EAGAIN, "the kernel has no random numbers yet; try again");
		return;
	}
	tell_engines(s, x, ENGINE_EXPORT_ADD, added,
		     x->rights & WEIR_RIGHT_NOTIFY ? m->export.channel : NULL);
}

/* The export that a request names; NULL: there is none, which is answered. */
static struct broker_export *
named(struct broker_session *s, uint32_t number, uint32_t generation)
{
	uint32_t i = number - 1;
	struct broker_export *x = i < s->b->config.exports ? &s->export[i] : NULL;

	if (x && x->generation == generation && x->state > EXPORT_ADDING)
		return x;
	session_refuse(s, ENOENT, "no export %u; it ended with its region, or before", number);
	return NULL;
}

void
name_request(struct broker_session *s, const struct weir_session_msg *m)
{
	struct broker_export *x = named(s, m->name.number, m->name.generation);
	struct weir_session_msg ok = session_msg(WEIR_MSG_OK);

	if (!x)
		return;
	memcpy(x->name, m->name.name, sizeof(x->name));
	session_reply(s, &ok, NULL, 0);
}

void
revoke_request(struct broker_session *s, const struct weir_session_msg *m)
{
	struct broker_export *x = named(s, m->exported.number, m->exported.generation);
	struct weir_session_msg reply;

	if (!x)
		return;
	if (x->state == EXPORT_EVICTED) {
		evicted(x, &reply);
		export_free(s, x);
		session_reply(s, &reply, NULL, 0);
		return;
	}
	if (x->state == EXPORT_LEAVING) {
		refuse_revoke(s);
		return;
	}
	x->revoking = true;
	if (x->state == EXPORT_OPEN)
		leave(s, x);
}

/* ---- locks ---- */

/* Commands for an export that exists. NULL: out of memory; its session ends. */
static struct broker_command *
lock_command(struct broker *b, uint32_t engine, command_done_fn *done,
	     const struct engine_lock *lock)
{
	struct broker_command *k = command_urgent(b, engine, ENGINE_LOCK, done, NULL);
	struct broker_session *s = b->session[lock->session];

	if (k)
		k->cmd.lock = *lock;
	else if (s && s->export[lock->number - 1].generation == lock->generation)
		session_end(s);
	return k;
}

/* The owner engine has granted the lock, or heard that the request is over: the other hears it. */
static void
lock_granted(struct broker *b, struct broker_command *c)
{
	struct engine_lock said = c->cmd.lock;
	struct broker_command *k;

	if (c->cmd.result)
		return; /* the connection ends, or gave it up */
	said.said = true;
	k = lock_command(b, said.engine, NULL, &said);
	if (k)
		command_submit(b, k);
}

void
export_lock(struct broker *b, const struct engine_lock *asked)
{
	uint32_t owner = engine_lock_owner(asked->session, asked->number, b->config.engines);
	struct broker_command *k = lock_command(b, owner, lock_granted, asked);

	if (k)
		command_submit(b, k);
}

/* ---- operators ---- */

uint32_t
export_id(const struct broker *b, uint32_t session, uint32_t number)
{
	return session * b->config.exports + number - 1;
}

/* Export `id`, in any state. *s: its session. NULL: there is no such session. */
static struct broker_export *
export_by_id(const struct broker *b, uint32_t id, struct broker_session **s)
{
	uint32_t per = b->config.exports;

	*s = per && id / per < b->config.sessions ? b->session[id / per] : NULL;
	return *s ? &(*s)->export[id % per] : NULL;
}

int
export_evict(struct broker *b, uint32_t id, const char *why, char *reason, size_t size)
{
	struct broker_session *s;
	struct broker_export *x = export_by_id(b, id, &s);

	if (x && s->state == SESSION_OPEN && x->state == EXPORT_ADDING)
		return fail(reason, size, -EBUSY, "it is being set up; try again");
	if (!x || s->state != SESSION_OPEN || x->state != EXPORT_OPEN)
		return fail(reason, size, -ESRCH, "there is no export %u; see weirctl show exports",
			    id);
	x->evicted = true;
	if (*why)
		x->why = strdup(why);
	b->counters.evicted++;
	log_event(LOG_LEVEL_INFO, SESSION_FIELDS(s),
		  "export %u of session %u (pid %d, %s) evicted%s%s", id, s->id, (int)s->pid,
		  s->name, *why ? ": " : "", why);
	leave(s, x);
	return 1;
}

uint32_t
exports_of(const struct broker_session *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->b->config.exports; i++)
		n += s->export[i].state != EXPORT_FREE;
	return n;
}

bool
export_row(const struct broker *b, uint32_t id, struct weir_row_export *r)
{
	static const char *const state[] = {
	    [EXPORT_FREE] = "",		  [EXPORT_ADDING] = "adding",
	    [EXPORT_OPEN] = "open",	  [EXPORT_STOPPING] = "leaving",
	    [EXPORT_LEAVING] = "leaving", [EXPORT_EVICTED] = "evicted",
	};
	struct broker_session *s;
	const struct broker_export *x = export_by_id(b, id, &s);

	if (id >= b->config.exports * b->config.sessions)
		return false;
	if (!x || x->state == EXPORT_FREE)
		return true;
	r->export = id;
	r->session = s->id;
	r->pid = (uint32_t)s->pid;
	r->region = x->region;
	r->rights = x->rights;
	r->offset = x->offset;
	r->bytes = x->region ? x->length : ranges_bytes(x);
	memcpy(r->name, x->name, sizeof(r->name));
	r->counters.refused = x->refused;
	snprintf(r->state, sizeof(r->state), "%s", state[x->state]);
	memcpy(r->program, s->name, sizeof(r->program));
	return true;
}

void
export_lock_row(const struct broker *b, const struct engine_export_record *e,
		struct weir_row_export *r)
{
	const struct broker_conn *c = conn_find(b, e->lock_holder);

	r->holders = e->lock_holders;
	r->waiters = e->lock_waiters;
	if (e->lock_holders)
		r->held_ms = e->lock_held_ns == UINT64_MAX ? UINT64_MAX : e->lock_held_ns / 1000000;
	r->waits_ms = e->lock_waits_ns / 1000000;
	snprintf(r->lock, sizeof(r->lock), "%s",
		 !e->lock_holders    ? e->lock_in_doubt ? "in-doubt" : ""
		 : e->lock_exclusive ? "exclusive"
				     : "shared");
	if (!e->lock_holder || !c || !c->session)
		return;
	if (c->desc == ENGINE_DESC_NONE)
		snprintf(r->holder, sizeof(r->holder), "node:%u", c->node);
	else
		snprintf(r->holder, sizeof(r->holder), "%.32s:%d", c->session->name,
			 (int)c->session->pid);
}

struct engine_export_record
export_record(const struct broker *b, const struct weir_row_export *r)
{
	struct broker_session *s;
	const struct broker_export *x = export_by_id(b, r->export, &s);

	return (struct engine_export_record){.session = r->session,
					     .number = r->export % b->config.exports + 1,
					     .generation = x ? x->generation : 0};
}

/* ---- opening ---- */

/* The export that a key names; counted if there is none. */
static struct broker_export *
find(struct broker *b, const struct weir_wire_export *wanted, struct broker_session **owner)
{
	uint32_t session = WEIR_KEY_SESSION(wanted->index), i = WEIR_KEY_EXPORT(wanted->index);
	struct broker_session *s = session < b->config.sessions ? b->session[session] : NULL;
	struct broker_export *x = s && i < b->config.exports ? &s->export[i] : NULL;

	if (!x || s->state != SESSION_OPEN || x->state != EXPORT_OPEN ||
	    x->generation != wanted->generation) {
		b->counters.keys_rejected++;
		return NULL;
	}
	if (!secret_equal(x->secret, wanted->secret, sizeof(x->secret))) {
		b->counters.keys_rejected++;
		x->refused++;
		return NULL;
	}
	*owner = s;
	return x;
}

int
export_find(struct broker *b, const struct weir_wire_export *wanted, struct broker_session **owner,
	    struct engine_conn_command *k)
{
	struct broker_export *x = find(b, wanted, owner);

	if (!x)
		return -EKEYREJECTED;
	if (!wanted->rights || wanted->rights & ~(x->rights & WEIR_RIGHTS_KNOWN)) {
		b->counters.rights_refused++;
		x->refused++;
		return -EACCES;
	}
	k->export_session = (*owner)->id;
	k->export_number = WEIR_KEY_EXPORT(wanted->index) + 1;
	k->export_generation = x->generation;
	k->rights = wanted->rights;
	return 0;
}

struct engine_export_key
export_key(struct broker *b, uint32_t engine, const struct engine_conn_command *k)
{
	struct broker_session *s = b->session[k->export_session];
	struct broker_export *x = &s->export[k->export_number - 1];
	uint32_t rights = k->rights & (WEIR_RIGHT_READ | WEIR_RIGHT_WRITE), i = 0;
	struct nic_device *dev = broker_engine(b, engine)->dev;
	const struct broker_region *r;
	unsigned access = 0;
	struct nic_mr *mr;

	weir_assert(x->state == EXPORT_OPEN);
	if (!dev || !rights || !x->region)
		return (struct engine_export_key){0};
	if (!x->keys)
		x->keys = broker_alloc(b->config.engines * sizeof(*x->keys));
	if (!x->keys)
		return (struct engine_export_key){0};
	while (broker_engine(b, i)->dev != dev)
		i++;
	mr = &x->keys[i][rights - 1];
	r = &s->region[x->region - 1];
	if (rights & WEIR_RIGHT_READ)
		access |= NIC_REMOTE_READ;
	if (rights & WEIR_RIGHT_WRITE)
		access |= NIC_LOCAL_WRITE | NIC_REMOTE_WRITE;
	if (!mr->length) {
		if (b->export_keys == b->config.export_keys ||
		    broker_ops(b, i)->mr_reg(dev, (uint8_t *)r->memory.base + x->offset, x->length,
					     access, mr))
			return (struct engine_export_key){0};
		b->export_keys++;
	}
	return (struct engine_export_key){mr->address, mr->rkey};
}

size_t
broker_export_bytes(void)
{
	return sizeof(struct broker_export);
}

bool
export_key_is_ours(const struct broker *b, const struct weir_key_fields *key)
{
	return key->incarnation == b->config.incarnation &&
	       (key->node == b->node || key->node == UINT32_MAX);
}

void
map_request(struct broker_session *s, const struct weir_session_msg *m)
{
	struct weir_session_msg mapped = session_msg(WEIR_MSG_MAPPED);
	bool writes = m->map.rights & WEIR_RIGHT_WRITE;
	struct broker_export *x = NULL;
	struct weir_wire_export wanted;
	struct broker_session *owner;
	struct weir_key_fields key;
	struct broker_region *r;
	int fd;

	memcpy(&key, m->map.key, sizeof(key));
	if (!m->map.rights || m->map.rights & ~WEIR_RIGHTS_KNOWN || m->map.reserved) {
		session_refuse(s, EINVAL, "no rights, or unknown ones; correct the program");
		return;
	}
	if (weir_key_ok(&key) && export_key_is_ours(s->b, &key)) {
		wanted = weir_key_wanted(&key, m->map.rights);
		x = find(s->b, &wanted, &owner);
	}
	if (!x) {
		session_refuse(s, EKEYREJECTED,
			       "there is no such export on this host; get the key "
			       "of an export that exists");
		return;
	}
	if ((m->map.rights | WEIR_RIGHT_MAP) & ~x->rights) { /* not counted: opening asks always */
		session_refuse(s, EACCES,
			       "the key does not grant mapping with these rights; open "
			       "it without");
		return;
	}
	r = &owner->region[x->region - 1];
	fd = writes ? r->memory.fd : memfd_read_only(&r->memory);
	if (fd < 0) {
		session_refuse(s, -fd, "no descriptor for the memory: %s; try again",
			       strerror(-fd));
		return;
	}
	r->lent |= writes;
	mapped.mapped.bytes = x->length;
	session_reply(s, &mapped, &fd, 1);
	if (!writes)
		close(fd);
}

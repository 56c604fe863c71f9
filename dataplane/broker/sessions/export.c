/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Exports. Main makes keys and checks them when a connection is asked for; engines, which have a
 * copy of every export, check each operation. A key is of one life of an export: its secret is
 * random, and no two lives have the same.
 */
#include "command.h"
#include "export.h"
#include "region.h"
#include "session.h"
#include "state.h"

#include "ipc/invariant.h"
#include "weir/memory.h"

#include <errno.h>
#include <sys/random.h>

static void
export_enter(struct broker_export *x, enum export_state to)
{
	static const uint8_t legal[] = {
	    [EXPORT_FREE] = 0, /* made as ADDING, in one go */
	    [EXPORT_ADDING] = 1u << EXPORT_OPEN | 1u << EXPORT_LEAVING,
	    [EXPORT_OPEN] = 1u << EXPORT_LEAVING,
	    [EXPORT_LEAVING] = 0,
	};

	weir_enter(legal, x->state, to);
}

/* Commands of an export: EXPORT_REMOVE may follow within the last answer to EXPORT_ADD. */
static uint32_t
reserved(const struct broker *b)
{
	return b->config.engines + 1;
}

static void
export_free(struct broker_session *s, struct broker_export *x)
{
	command_unreserve(s->b, reserved(s->b));
	*x = (struct broker_export){.state = EXPORT_FREE};
}

void
exports_free(struct broker_session *s)
{
	for (uint32_t i = 0; i < s->b->config.exports; i++)
		if (s->export[i].state != EXPORT_FREE)
			export_free(s, &s->export[i]);
}

static void
tell_engines(struct broker_session *s, struct broker_export *x, enum engine_command_type type,
	     command_done_fn *done)
{
	struct engine_export e = {.session = s->id,
				  .number = (uint32_t)(x - s->export) + 1,
				  .generation = x->generation,
				  .region = x->region,
				  .offset = x->offset,
				  .length = x->length,
				  .rights = x->rights};

	weir_assert(s->state == SESSION_OPEN && !x->waiting);
	x->waiting = s->b->config.engines;
	for (uint32_t i = 0; i < s->b->config.engines; i++) {
		struct broker_command *c = command_reserved(s->b, i, type, done, s);

		c->cmd.export = e;
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

	weir_assert(x->waiting && s->commands);
	s->commands--;
	x->waiting--;
	if (s->state != SESSION_OPEN) {
		broker_session_release(s);
		return NULL;
	}
	return x->waiting ? NULL : x;
}

static void
removed(struct broker *b, struct broker_command *c)
{
	struct broker_export *x = answered(c);
	struct weir_session_msg ok = session_msg(WEIR_MSG_OK);
	struct broker_session *s = c->context;
	bool revoking;

	(void)b;
	if (!x)
		return;
	weir_assert(x->state == EXPORT_LEAVING);
	revoking = x->revoking;
	export_free(s, x);
	if (revoking)
		session_reply(s, &ok, NULL, 0);
}

static void
leave(struct broker_session *s, struct broker_export *x)
{
	export_enter(x, EXPORT_LEAVING);
	tell_engines(s, x, ENGINE_EXPORT_REMOVE, removed);
}

void
exports_leave(struct broker_session *s, uint32_t region)
{
	for (uint32_t i = 0; i < s->b->config.exports; i++)
		if (s->export[i].state == EXPORT_OPEN && s->export[i].region == region)
			leave(s, &s->export[i]);
}

static void
reply_exported(struct broker_session *s, const struct broker_export *x)
{
	struct weir_session_msg m = session_msg(WEIR_MSG_EXPORTED);
	struct weir_key_fields k = {.version = WEIR_KEY_VERSION,
				    .node = s->b->node,
				    .incarnation = s->b->config.incarnation,
				    .generation = x->generation};
	uint32_t i = (uint32_t)(x - s->export);

	k.index = s->id * s->b->config.exports + i;
	memcpy(k.secret, x->secret, sizeof(k.secret));
	k.sum = weir_key_sum(&k);
	m.exported.number = i + 1;
	m.exported.generation = x->generation;
	memcpy(m.exported.key, &k, sizeof(k));
	session_reply(s, &m, NULL, 0);
}

static void
added(struct broker *b, struct broker_command *c)
{
	struct broker_session *s = c->context;
	struct broker_export *x = &s->export[c->cmd.export.number - 1];

	if (c->cmd.result && !x->result)
		x->result = c->cmd.result;
	x = answered(c);
	if (!x)
		return;
	if (x->result) {
		session_refuse(s, -x->result, "an engine doesn't take the export: %s; attach again",
			       strerror(-x->result));
		leave(s, x);
		return;
	}
	export_enter(x, EXPORT_OPEN);
	b->counters.exports++;
	reply_exported(s, x);
}

/* Whether the range can be exported; else the refusal. */
static bool
range_ok(struct broker_session *s, const struct weir_session_msg *m)
{
	const struct broker_region *r = &s->region[m->export.region - 1];

	if (m->export.region - 1 >= s->b->config.regions || r->state != REGION_OPEN) {
		session_refuse(s, ENOENT, "no region %u; allocate or adopt it first",
			       m->export.region);
		return false;
	}
	if (!(r->flags & WEIR_ADOPT_EXPOSE)) {
		session_refuse(s, EACCES,
			       "the memory was not adopted for exposing; give WEIR_ADOPT_EXPOSE");
		return false;
	}
	if (!m->export.length || m->export.offset > r->bytes ||
	    m->export.length > r->bytes - m->export.offset) {
		session_refuse(s, EINVAL,
			       "%llu bytes at %llu are not within the region of %llu; correct the "
			       "range",
			       (unsigned long long)m->export.length,
			       (unsigned long long)m->export.offset, (unsigned long long)r->bytes);
		return false;
	}
	if (!m->export.rights || m->export.rights & ~WEIR_RIGHTS_KNOWN) {
		session_refuse(s, EINVAL, "no rights, or unknown ones; see weir/remote.h");
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

	if (!range_ok(s, m))
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
	if (command_reserve(b, reserved(b))) {
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
				    .length = m->export.length};
	/* up to 256 bytes come whole (getrandom(2)) */
	if (getrandom(x->secret, sizeof(x->secret), GRND_NONBLOCK) != sizeof(x->secret)) {
		export_free(s, x);
		session_refuse(s, EAGAIN, "the kernel has no random numbers yet; try again");
		return;
	}
	tell_engines(s, x, ENGINE_EXPORT_ADD, added);
}

void
revoke_request(struct broker_session *s, const struct weir_session_msg *m)
{
	uint32_t i = m->exported.number - 1;

	if (i >= s->b->config.exports || s->export[i].state != EXPORT_OPEN ||
	    s->export[i].generation != m->exported.generation) {
		session_refuse(s, ENOENT, "no export %u; it ended with its region, or before",
			       m->exported.number);
		return;
	}
	s->export[i].revoking = true;
	leave(s, &s->export[i]);
}

/* Takes the same time whichever bytes differ. */
static bool
secrets_equal(const uint8_t *a, const uint8_t *b)
{
	uint32_t differ = 0;

	for (unsigned i = 0; i < WEIR_KEY_SECRET; i++)
		differ |= (uint32_t)(a[i] ^ b[i]);
	return !differ;
}

int
export_find(struct broker *b, const struct weir_wire_export *wanted, struct broker_session **owner,
	    struct engine_conn_command *k)
{
	uint32_t per = b->config.exports, session = per ? wanted->index / per : b->config.sessions;
	struct broker_session *s = session < b->config.sessions ? b->session[session] : NULL;
	const struct broker_export *x = s ? &s->export[wanted->index % per] : NULL;

	if (!s || s->state != SESSION_OPEN || x->state != EXPORT_OPEN ||
	    x->generation != wanted->generation || !secrets_equal(x->secret, wanted->secret)) {
		b->counters.keys_rejected++;
		return -EKEYREJECTED;
	}
	if (!wanted->rights || wanted->rights & ~x->rights)
		return -EACCES;
	*owner = s;
	k->export_session = s->id;
	k->export_number = wanted->index % per + 1;
	k->export_generation = x->generation;
	k->rights = wanted->rights;
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "swim_internal.h"

#include "ipc/invariant.h"

#include <string.h>

#define PROBES_MAX 8u /* in a period */
#define NEWS_MANY 48u /* then they take longer one by one than all at once */
/* Periods between two syncs while many, a few, no news are on their way. */
#define SYNC_MANY 5u
#define SYNC_FEW 25u
#define SYNC_NONE 2u

static const char absurd[] = "its version is far ahead of this host's clock";
static const char crowd[] = "too many nodes that have not spoken with this one";

// ---- messages out ----

static void
add_record(struct swim_msg *m, const struct swim_node *n)
{
	weir_assert(m->count < SWIM_RECORDS);
	m->record[m->count++] = n->is;
}

static void
deliver(struct swim *s, uint16_t to, struct swim_msg *m)
{
	m->digest = s->digest;
	m->rooted = s->rooted_at;
	s->config.ops->send(s->config.user, to, m);
}

// With what rides on it; first what is said of the receiver, so that it can refute it.
static void
send_riding(struct swim *s, uint16_t to, struct swim_msg *m)
{
	const struct swim_node *about = swim_find(s, to);
	uint32_t riders = s->news_count < SWIM_RIDERS ? s->news_count : SWIM_RIDERS;

	weir_assert(m->count == 0);
	if (about && about->is.status > SWIM_ALIVE)
		add_record(m, about);
	// Each once: what was told goes behind the others, and would come again on this message.
	while (riders--)
		add_record(m, swim_next_news(s));
	deliver(s, to, m);
}

static uint32_t
ping(struct swim *s, uint16_t to)
{
	struct swim_msg m = {.type = SWIM_PING, .seq = ++s->seq};

	send_riding(s, to, &m);
	return m.seq;
}

// All that we know, in parts.
static void
send_all(struct swim *s, uint16_t to, bool want)
{
	struct swim_msg m = {.type = SWIM_SYNC};

	for (uint32_t i = 0; i < s->count; i++) {
		if (s->node[i]->is.status == SWIM_UNKNOWN)
			continue;
		if (m.count == SWIM_RECORDS) {
			deliver(s, to, &m);
			m.count = 0;
		}
		add_record(&m, s->node[i]);
	}
	m.want = want;
	deliver(s, to, &m);
	if (want)
		s->synced_at = s->clock;
}

// ---- our own record ----

static void
raise_own(struct swim *s, uint64_t version)
{
	struct swim_record r = s->self->is;
	bool was_settled = swim_is_settled(s);

	if (s->out)
		return;
	weir_assert(version > r.version);
	r.version = version;
	r.status = SWIM_ALIVE;
	swim_put(s, s->self, &r, r.id, true);
	if (!was_settled && swim_is_settled(s))
		s->config.ops->settled(s->config.user);
}

static bool
newer(const struct swim_record *r, const struct swim_record *than)
{
	if (r->version != than->version)
		return r->version > than->version;
	if (r->run != than->run)
		return r->run > than->run;
	return r->status > than->status;
}

// Versions begin as the wall clock. From our start on it is ours, whoever sets it.
static bool
is_ahead(const struct swim *s, const struct swim_record *r, uint64_t bound)
{
	return r->version > s->config.version + (s->now - s->began) + bound;
}

bool
swim_is_absurd(const struct swim *s, const struct swim_record *r)
{
	return is_ahead(s, r, 2 * SWIM_AHEAD);
}

// Takes a statement of others about us, and refutes a wrong one. `met`: another node claims to be
// us.
static void
take_own(struct swim *s, uint16_t from, const struct swim_record *r, bool met)
{
	const struct swim_record *own = &s->self->is;

	if (s->out)
		return;
	if (!newer(r, own)) {
		// Refuted already, but whoever says it has not heard of that.
		if (r->status > SWIM_ALIVE)
			swim_push_news(s, s->self);
		return;
	}
	// Nobody else has believed it, and nobody would believe what is above.
	if (swim_is_absurd(s, r)) {
		s->config.ops->refused(s->config.user, from, r, absurd);
		return;
	}
	// Of the dead another id takes less arguing.
	if (r->run != own->run &&
	    (r->status < SWIM_DEAD || (s->config.picks && !swim_is_settled(s))) &&
	    !s->config.ops->same_place(s->config.user, r->info, own->info)) {
		// Nobody loses an id that is his by hearsay.
		if (met || !swim_is_settled(s)) {
			s->out = true;
			s->config.ops->beaten(s->config.user, r);
			return;
		}
		raise_own(s, r->version + 1);
		s->config.ops->rival(s->config.user, r);
		return;
	}
	raise_own(s, r->version + 1);
}

bool
swim_is_settled(const struct swim *s)
{
	return s->self->is.version >= SWIM_UP;
}

void
swim_set_info(struct swim *s, const void *info)
{
	memcpy(s->self->info, info, s->config.info_size);
	raise_own(s, s->self->is.version + 1);
}

// ---- what others say ----

static void
take_record(struct swim *s, uint16_t from, const struct swim_record *r, bool news)
{
	struct swim_node *n = swim_find(s, r->id);
	struct swim_record past;

	if (n == s->self) {
		take_own(s, from, r, false);
		return;
	}
	if (is_ahead(s, r, from == r->id ? 2 * SWIM_AHEAD : SWIM_AHEAD)) {
		s->config.ops->refused(s->config.user, from, r, absurd);
		return;
	}
	// Another id at our place: ours before we had this one. Nobody else can say that it is
	// gone.
	if (!s->config.closed && r->status < SWIM_DEAD && r->version < SWIM_VERSION_MAX &&
	    s->config.ops->same_place(s->config.user, r->info, s->self->is.info)) {
		past = *r;
		past.version++;
		past.status = SWIM_LEFT;
		news = true;
		r = &past;
		from = s->self->is.id;
	}
	if (!n && (s->config.closed || (r->status >= SWIM_DEAD && r != &past)))
		return;
	if (!n) {
		struct swim_node *introducer = swim_find(s, from);
		bool own = from == r->id || introducer == s->self;

		weir_assert(own || introducer);
		// No room for one more of its, or out of memory: it will be told again.
		if (!own && (introducer->brought >= SWIM_BROUGHT || s->unproven >= SWIM_UNPROVEN)) {
			s->crowded_at = s->clock;
			s->config.ops->refused(s->config.user, from, r, crowd);
			return;
		}
		n = swim_insert(s, r->id);
		if (!n)
			return;
		if (!own)
			swim_set_unproven(s, n, introducer);
	}
	if (n->is.status == SWIM_UNKNOWN || newer(r, &n->is)) {
		swim_put(s, n, r, from, news);
	} else if (from == r->id && n->by != from && !newer(&n->is, r)) {
		// Known by hearsay: now the node says so itself.
		n->by = from;
		s->config.ops->changed(s->config.user, n);
	}
}

// Claims count from when they are told to a cluster that has begun.
static void
take_root(struct swim *s)
{
	if (!s->rooted_at)
		s->rooted_at = s->clock;
}

static void
advance(struct swim *s, uint64_t now)
{
	uint64_t passed = now - s->now;

	weir_assert(now >= s->now);
	s->now = now;
	s->clock += passed < s->period / 2 ? passed : s->period / 2;
}

bool
swim_hello(struct swim *s, const struct swim_record *r, uint64_t now)
{
	struct swim_node *n = swim_find(s, r->id);

	advance(s, now);
	if (n == s->self || (!n && s->config.closed)) {
		if (n)
			take_own(s, r->id, r, true);
		return false;
	}
	if (swim_is_absurd(s, r))
		return false;
	if (n && n->is.run != r->run && swim_lives(n) && !newer(r, &n->is) &&
	    !s->config.ops->same_place(s->config.user, r->info, n->is.info))
		return false;
	// It has to know what we know of it, if that is newer than what it says itself.
	if (n && n->is.status != SWIM_UNKNOWN && newer(&n->is, r))
		swim_push_news(s, n);
	else
		take_record(s, r->id, r, true);
	n = swim_find(s, r->id);
	if (n)
		swim_set_proven(s, n);
	return true;
}

void
swim_heard(struct swim *s, uint16_t id)
{
	struct swim_node *n = swim_find(s, id);

	for (uint32_t i = 0; i < SWIM_PROBES; i++)
		if (s->probe[i].id == id)
			s->probe[i].used = false;
	// It has not refuted it yet, but whoever is heard is not dead.
	if (n && n->accused && n->is.status == SWIM_SUSPECT)
		swim_set_expiry(s, n, swim_expiry(s, n));
}

// All that we know, for one who asked: once a period, however often it asks.
static void
answer_all(struct swim *s, struct swim_node *n)
{
	n->sync_due = n->sync_sent_at && s->clock - n->sync_sent_at < s->period;
	if (n->sync_due) {
		s->sync_due = true;
		return;
	}
	n->sync_sent_at = s->clock;
	send_all(s, n->is.id, false);
}

static void
help(struct swim *s, uint16_t from, const struct swim_msg *m)
{
	struct swim_relay *r = s->relay;

	while (r < s->relay + SWIM_RELAYS && r->until > s->clock)
		r++;
	if (r == s->relay + SWIM_RELAYS || m->target == s->self->is.id || !swim_find(s, m->target))
		return;
	r->from = from;
	r->target = m->target;
	r->seq = m->seq;
	r->until = s->clock + s->period;
	r->own_seq = ping(s, m->target);
}

static void
take_ack(struct swim *s, uint16_t from, const struct swim_msg *m)
{
	if (m->target != from) {
		for (uint32_t i = 0; i < SWIM_PROBES; i++)
			if (s->probe[i].id == m->target && s->probe[i].seq == m->seq)
				s->probe[i].used = false;
		return;
	}
	for (uint32_t i = 0; i < SWIM_RELAYS; i++) {
		struct swim_relay *r = &s->relay[i];
		struct swim_msg out = {.type = SWIM_ACK, .seq = r->seq, .target = from};

		if (r->until <= s->clock || r->target != from || r->own_seq != m->seq)
			continue;
		r->until = 0;
		send_riding(s, r->from, &out);
	}
}

void
swim_input(struct swim *s, uint16_t from, const struct swim_msg *m, uint64_t now)
{
	bool news = m->type != SWIM_SYNC || m->want || !s->young;
	struct swim_msg out = {.type = SWIM_ACK, .seq = m->seq, .target = s->self->is.id};
	uint64_t wait;

	weir_assert(m->count <= SWIM_RECORDS);
	advance(s, now);
	if (s->out || from == s->self->is.id || !swim_find(s, from))
		return;
	if (m->rooted)
		take_root(s);
	s->failures = 0;
	swim_heard(s, from);
	for (uint32_t i = 0; i < m->count && !s->out; i++)
		take_record(s, from, &m->record[i], news);
	if (s->out)
		return;
	if (m->type == SWIM_PING)
		send_riding(s, from, &out);
	else if (m->type == SWIM_ASK)
		help(s, from, m);
	else if (m->type == SWIM_SYNC && m->want)
		answer_all(s, swim_find(s, from));
	else if (m->type == SWIM_ACK) {
		take_ack(s, from, m);
		// Tables that differ although nothing is on its way are exchanged as a whole. A
		// table that had no room for all stays different however often it is told again.
		wait = s->period * (!s->news_count		? SYNC_NONE
				    : s->news_count > NEWS_MANY ? SYNC_MANY
								: SYNC_FEW);
		if (s->crowded_at && s->clock - s->crowded_at < s->period * SYNC_FEW)
			wait = s->period * SYNC_FEW;
		if (m->digest == s->digest)
			s->young = false;
		else if (!s->synced_at || s->clock - s->synced_at >= wait)
			send_all(s, from, true);
	}
}

// ---- failure detection ----

static struct swim_node *
random_living(struct swim *s, uint16_t but)
{
	uint32_t others = s->count - 1;

	for (uint32_t i = 0; others && i < 8; i++) {
		struct swim_node *n = swim_find(s, s->order[swim_below(s, others)]);

		if (swim_lives(n) && n->is.id != but)
			return n;
	}
	return NULL;
}

bool
swim_some(struct swim *s, uint16_t *id)
{
	const struct swim_node *n = random_living(s, s->self->is.id);

	if (n)
		*id = n->is.id;
	return n;
}

void
swim_probe(struct swim *s, uint16_t id)
{
	struct swim_probe *p = NULL;
	struct swim_node *n = swim_find(s, id);

	if (!n || n == s->self || !swim_lives(n))
		return;
	for (uint32_t i = 0; i < SWIM_PROBES; i++) {
		if (s->probe[i].used && s->probe[i].id == id)
			return;
		if (!s->probe[i].used)
			p = &s->probe[i];
	}
	if (!p)
		return;
	*p = (struct swim_probe){.used = true,
				 .id = id,
				 .ask_at = s->clock + s->period / 2,
				 .until = s->clock + s->period};
	p->seq = ping(s, id);
}

void
swim_doubt(struct swim *s, uint16_t id)
{
	const struct swim_node *n = swim_find(s, id);

	if (n && n != s->self && !swim_lives(n))
		ping(s, id); // with what is said of it, which it refutes if it can
	else
		swim_probe(s, id);
}

static void
judge_probes(struct swim *s)
{
	for (uint32_t i = 0; i < SWIM_PROBES; i++) {
		struct swim_probe *p = &s->probe[i];
		struct swim_node *n;
		uint64_t until;

		if (p->used && !p->asked && s->clock >= p->ask_at) {
			p->asked = true;
			for (uint32_t k = 0; k < SWIM_HELPERS; k++) {
				struct swim_msg m = {
				    .type = SWIM_ASK, .seq = p->seq, .target = p->id};
				struct swim_node *helper = random_living(s, p->id);

				if (helper)
					send_riding(s, helper->is.id, &m);
			}
		}
		if (!p->used || s->clock < p->until)
			continue;
		p->used = false;
		s->failures++;
		n = swim_find(s, p->id);
		if (!n || !swim_lives(n) || n->accused)
			continue;
		swim_set_accused(s, n, true);
		if (n->is.status == SWIM_ALIVE) {
			swim_set_status(s, n, SWIM_SUSPECT);
			continue;
		}
		// Suspected by others before: now by us too, who will be told first if it is wrong.
		until = swim_expiry(s, n);
		if (until < n->expires)
			swim_set_expiry(s, n, until);
	}
}

// The next of this round.
static void
probe_next(struct swim *s)
{
	uint32_t others = s->count - 1;

	for (uint32_t tried = 0; tried < others; tried++) {
		struct swim_node *n;

		if (s->next_probe >= others) {
			for (uint32_t i = others; i > 1; i--) {
				uint32_t other = swim_below(s, i);
				uint16_t id = s->order[other];

				s->order[other] = s->order[i - 1];
				s->order[i - 1] = id;
			}
			s->next_probe = 0;
		}
		n = swim_find(s, s->order[s->next_probe++]);
		if (swim_lives(n)) {
			swim_probe(s, n->is.id);
			return;
		}
	}
}

static void
walk(struct swim *s, bool period)
{
	uint64_t next = UINT64_MAX;

	for (uint32_t i = s->count; i-- > 0;) {
		struct swim_node *n = s->node[i];

		if (n->accused && period)
			ping(s, n->is.id);
		if (n->expires && n->expires > s->clock && n->expires < next)
			next = n->expires;
	}
	s->walk_at = next;
	for (uint32_t i = s->count; i-- > 0;) {
		struct swim_node *n = s->node[i];

		if (!n->expires || s->clock < n->expires)
			continue;
		if (n->is.status == SWIM_SUSPECT && !n->accused) {
			// Nobody is dead by hearsay.
			swim_probe(s, n->is.id);
			swim_set_expiry(s, n, swim_expiry(s, n));
		} else if (n->is.status == SWIM_SUSPECT) {
			swim_set_status(s, n, SWIM_DEAD);
		} else {
			swim_erase(s, n);
		}
	}
}

void
swim_tick(struct swim *s, uint64_t now)
{
	uint64_t wait; // until a claim is ours
	uint32_t others, tries;
	bool period;

	advance(s, now);
	if (s->out)
		return;
	period = s->clock >= s->period_at;
	judge_probes(s);
	if (s->clock >= s->walk_at || (period && s->accused))
		walk(s, period);
	if (!period)
		return;
	s->period_at = s->clock + s->period;
	wait = s->period * (3 * swim_log2(s->alive + 1) + 4);
	if (!swim_is_settled(s) && s->rooted_at && s->clock - s->rooted_at >= wait)
		raise_own(s, s->config.version);
	if (s->sync_due) {
		s->sync_due = false;
		for (uint32_t i = 0; i < s->count; i++)
			if (s->node[i]->sync_due)
				answer_all(s, s->node[i]);
	}
	// Nobody answers: more at once, or it takes as many periods as there are nodes.
	for (uint32_t i = 0; i <= s->failures && i < PROBES_MAX; i++)
		probe_next(s);
	// Lost nodes may be back, and nodes never heard from may have started.
	others = s->count - 1;
	tries = s->alive > 1 ? swim_below(s, 4) == 0 : SWIM_CONTACTS;
	if (s->alive == s->count || !others)
		return;
	for (uint32_t i = 0; i < 4 * tries && tries; i++) {
		struct swim_node *n = swim_find(s, s->order[swim_below(s, others)]);

		if (swim_lives(n) || (n->is.status == SWIM_LEFT && !n->fixed))
			continue;
		ping(s, n->is.id);
		tries--;
	}
}

// ---- on request ----

void
swim_join(struct swim *s, uint16_t id)
{
	if (!s->out && swim_find(s, id))
		send_all(s, id, true);
}

void
swim_alone(struct swim *s)
{
	take_root(s);
}

void
swim_send_own(struct swim *s, uint16_t to)
{
	struct swim_msg m = {.type = SWIM_NEWS};

	add_record(&m, s->self);
	deliver(s, to, &m);
}

bool
swim_needs_seed(const struct swim *s)
{
	return !s->out && (!s->rooted_at || s->alive <= 1);
}

void
swim_leave(struct swim *s)
{
	struct swim_record r = s->self->is;

	if (s->out)
		return;
	r.status = SWIM_LEFT;
	swim_put(s, s->self, &r, r.id, true);
	s->out = true;
	for (uint32_t i = 0; i < SWIM_HELPERS; i++) {
		struct swim_node *n = random_living(s, s->self->is.id);

		if (n)
			swim_send_own(s, n->is.id);
	}
}

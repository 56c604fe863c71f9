/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Links: two QPs, a ring each way and credit lines between one of our engines and one of a peer's.
 * They come up by offers (handshake.c), and with new QPs again after those failed (repair.c). They
 * end in one way: QPs to ERR, the engine releases the link, QPs are destroyed, every engine
 * finishes its turn twice, memory is freed. A link record itself stays until the broker ends, so
 * any function may fail a link that its caller holds: it changes state only.
 */
#include "connect.h"
#include "link.h"
#include "node.h"
#include "state.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#define SETUP_TIMEOUT_NS (2 * BROKER_CONNECT_TIMEOUT_NS)
#define RESEND_NS (BROKER_SECOND_NS / 2)

struct broker_link *
link_find(const struct broker *b, uint32_t engine, uint32_t node, uint32_t peer_engine)
{
	const struct broker_node *n = node_find(b, node);
	struct broker_link *l = n ? n->links : NULL;

	while (l && (l->engine != engine || l->peer_engine != peer_engine))
		l = l->next_of_node;
	return l;
}

struct broker_link *
link_by_id(const struct broker *b, uint32_t engine, uint32_t id)
{
	if (engine >= b->config.engines || id >= b->config.links)
		return NULL;
	return b->link_table[engine * b->config.links + id];
}

/*
 * Commands that a link has under way at most: LINK_GO, _PAUSE twice, _CLOSE, _RING, _STAGING,
 * _FAIL, two rounds of QUIET, and one for each of its rings' memory.
 */
static uint32_t
reserved(const struct broker *b)
{
	return 7 + 4 * b->config.engines;
}

/* NULL: out of memory. `n`: the peer; NULL: a loop. */
static struct broker_link *
link_new(struct broker *b, uint32_t engine, struct broker_node *n, uint32_t peer_engine)
{
	struct broker_link *l = broker_alloc(sizeof(*l));

	if (!l || command_reserve(b, reserved(b))) {
		free(l);
		return NULL;
	}
	l->b = b;
	l->engine = engine;
	l->node = n ? n->is.id : 0;
	l->peer_engine = peer_engine;
	l->id = ENGINE_LINK_NONE;
	l->next = b->links;
	b->links = l;
	if (n) {
		l->next_of_node = n->links;
		n->links = l;
	}
	return l;
}

struct broker_link *
link_make(struct broker *b, uint32_t engine, uint32_t node, uint32_t peer_engine)
{
	struct broker_link *l = link_find(b, engine, node, peer_engine);

	return l ? l : link_new(b, engine, node_find(b, node), peer_engine);
}

/* The connecting end of an engine's link with itself; `loop_end` is the other. NULL: out of memory.
 */
static struct broker_link *
loop_link(struct broker *b, uint32_t engine, uint32_t class)
{
	struct broker_link *l = b->links;
	uint32_t end = WEIR_END(engine, class);

	while (l && !(l->loop_end && l->leads && l->engine == engine && l->peer_engine == end))
		l = l->next;
	if (l)
		return l;
	l = link_new(b, engine, NULL, end);
	if (!l)
		return NULL;
	l->loop_end = link_new(b, engine, NULL, end);
	if (!l->loop_end) {
		weir_assert(b->links == l);
		b->links = l->next;
		command_unreserve(b, reserved(b));
		free(l);
		return NULL;
	}
	l->leads = true;
	l->loop_end->loop_end = l;
	return l;
}

void
link_destroy_qps(struct broker_link *l, unsigned first)
{
	for (unsigned k = first; k < 2; k++) {
		if (l->qp[k])
			broker_ops(l->b, l->engine)->qp_destroy(l->qp[k]);
		l->qp[k] = NULL;
	}
}

static void
free_memory(struct broker_link *l)
{
	struct broker *b = l->b;

	weir_assert(!l->qp[0] && !l->qp[1]);
	if (l->ah)
		broker_ops(b, l->engine)->ah_destroy(l->ah);
	l->ah = NULL;
	link_memory_free(l);
	if (l->id != ENGINE_LINK_NONE) {
		b->link_table[l->engine * b->config.links + l->id] = NULL;
		link_gives_room(l);
	}
	l->id = ENGINE_LINK_NONE;
}

int
link_make_qps(struct broker_link *l, unsigned first)
{
	const struct broker_engine *e = broker_engine(l->b, l->engine);
	const struct nic_ops *ops = broker_ops(l->b, l->engine);
	struct nic_qp_attr attr = {.state = NIC_QP_INIT};
	int rc = 0;

	for (unsigned k = first; k < 2 && !rc; k++) {
		weir_assert(!l->qp[k]);
		struct nic_qp_init init = {
		    .type = NIC_RC,
		    .send_wrs = ENGINE_SEND_WRS,
		    .srq = e->srq,
		    .user = engine_link_user(e->engine, l->id, k),
		};

		rc = ops->qp_create(e->nic, &init, &l->qp[k]);
		if (rc)
			break;
		l->user[k] = init.user;
		if (getrandom(&l->psn[k], sizeof(l->psn[k]), 0) != (ssize_t)sizeof(l->psn[k]))
			rc = -EIO;
		l->psn[k] &= 0xffffff;
		if (!rc)
			rc = ops->qp_modify(l->qp[k], &attr);
	}
	if (rc)
		link_destroy_qps(l, first);
	return rc;
}

/* Our QPs, ring and credit lines. */
static int
build(struct broker_link *l)
{
	struct broker *b = l->b;
	struct broker_link **table = b->link_table + l->engine * b->config.links;
	uint32_t links = b->config.links, id, i = 0;
	int rc;

	/* ids go round, so that a late completion isn't taken for one of the next link */
	do
		id = (b->link_next[l->engine] + i) % links;
	while (table[id] && ++i < links);
	if (i == links)
		return -EMFILE;
	table[id] = l;
	l->id = id;
	link_takes_room(l);
	b->link_next[l->engine] = id + 1;
	rc = link_memory_make(l);
	if (!rc)
		rc = link_make_qps(l, 0);
	if (rc) {
		free_memory(l);
		return rc;
	}
	l->attempt++;
	l->peer_attempt = l->born = l->peer_born = 0;
	l->fail_status = l->resumes = l->resumes_next = 0;
	l->confirmed = l->open = l->over = false;
	if (l->no_room && !l->full_there &&
	    broker_now(b) - l->lacks_since > BROKER_CONNECT_TIMEOUT_NS / 2)
		l->room_at = broker_now(b);
	l->no_room = l->full_there; /* as before, until the peer has answered */
	l->full_there = false;
	l->retry_at = 0;
	link_enter(l, LINK_OFFERED);
	l->deadline = broker_now(l->b) + SETUP_TIMEOUT_NS;
	l->resend = broker_now(l->b) + RESEND_NS;
	return 0;
}

int
link_start(struct broker_link *l)
{
	struct weir_link_offer ours, other;
	int rc = build(l);

	if (rc) {
		LINK_BLAME(l, LOG_LEVEL_WARNING,
			   "no link from engine %u to node %u: %s; allow more links or memory",
			   strerror(-rc));
		return rc;
	}
	if (!l->loop_end)
		return 0;
	rc = build(l->loop_end);
	if (!rc) {
		link_offer_fill(l, 0, &ours);
		link_offer_fill(l->loop_end, 0, &other);
		rc = link_take(l, &other);
	}
	if (!rc)
		rc = link_take(l->loop_end, &ours);
	if (rc)
		broker_link_fail(l, (uint32_t)-rc);
	return rc;
}

/* 0: begun, or it waits for room. */
static int
begin_and_offer(struct broker_link *l)
{
	int rc = 0;

	if (link_begin(l, &rc))
		link_offer_send(l, 0);
	return rc;
}

struct broker_link *
link_want(struct broker *b, uint32_t engine, struct broker_node *n, uint32_t class, int *status)
{
	struct broker_link *l;
	int rc = 0;

	*status = 0;
	if (!broker_engine(b, engine)->dev) {
		*status = EHOSTUNREACH;
	} else if (n != b->loop && n->is.state >= WEIR_NODE_DOWN) {
		*status = EHOSTDOWN;
	} else if (n == b->loop || node_usable(n)) {
		l = n == b->loop
			? loop_link(b, engine, class)
			: link_make(b, engine, n->is.id, WEIR_END(engine % n->is.engines, class));
		if (l && l->open)
			return l;
		if (!l)
			rc = -ENOMEM;
		else if (l->state == LINK_DOWN && !l->retry_at)
			rc =
			    begin_and_offer(l); /* else link_timers(), or its next state, goes on */
		*status = -rc;
	}
	return NULL;
}

int
link_connect_qps(struct broker_link *l, const struct weir_link_offer *o, unsigned first)
{
	const struct nic_ops *ops = broker_ops(l->b, l->engine);
	uint16_t mtu = l->b->attr[l->engine].mtu;
	const struct broker_engine *e = broker_engine(l->b, l->engine);
	struct nic_qp_attr attr = {
	    .remote_lid = o->lid,
	    .mtu = o->mtu < mtu ? o->mtu : mtu,
	    .traffic_class = e->mark[link_class(l)].traffic_class,
	    .priority = e->mark[link_class(l)].priority,
	};
	int rc = 0;

	memcpy(attr.remote_gid.raw, o->gid, sizeof(o->gid));
	for (unsigned k = first; k < 2 && !rc; k++) {
		attr.remote_qpn = o->qpn[k];
		attr.remote_psn = o->psn[k];
		attr.psn = l->psn[k];
		attr.access = k ? NIC_REMOTE_WRITE | NIC_REMOTE_READ : NIC_REMOTE_WRITE;
		attr.state = NIC_QP_RTR;
		rc = ops->qp_modify(l->qp[k], &attr);
		attr.state = NIC_QP_RTS;
		if (!rc)
			rc = ops->qp_modify(l->qp[k], &attr);
	}
	return rc;
}

void
link_fill_command(const struct broker_link *l, struct engine_link_command *c)
{
	c->link = l->id;
	c->life = l->rings.life;
	c->peer_node = l->peer.node;
	c->peer_engine = (uint8_t)WEIR_END_ENGINE(l->peer_engine);
	c->class = (uint8_t)link_class(l);
	c->peer_lid = l->peer.lid;
	memcpy(c->peer_gid.raw, l->peer.gid, sizeof(c->peer_gid.raw));
	c->qp[0] = l->qp[0];
	c->qp[1] = l->qp[1];
	c->ring = l->ring.at;
	c->ring_lines = l->ring.lines;
	c->ring_mr = *link_ring_mr(l);
	c->staging = l->staging.at;
	c->staging_lines = l->staging.lines;
	c->staging_mr = l->staging.mr;
	if (l->staging.at)
		c->work = l->staging.at + (size_t)l->staging.lines * WEIR_SLOT_SIZE;
	c->least = l->least;
	c->credit_mr = l->credit_mr;
	c->credit = l->credit;
	c->peer_ring_lines = l->peer.ring_lines;
	c->peer_ring_address = l->peer.ring_address;
	c->peer_credit_address = l->peer.credit_address;
	c->peer_ring_rkey = l->peer.ring_rkey;
	c->peer_credit_rkey = l->peer.credit_rkey;
	c->peer_recv_wrs = l->peer.recv_wrs;
	c->recv_wrs = l->recv_wrs;
	c->answers = l->answers;
	c->answer_lines = l->answer_bytes / WEIR_SLOT_SIZE;
	c->peer_answers = l->peer.answers;
}

void
link_enter(struct broker_link *l, enum link_state to)
{
	static const uint8_t legal[] = {
	    [LINK_DOWN] = 1u << LINK_OFFERED,
	    [LINK_OFFERED] =
		1u << LINK_ADDING | 1u << LINK_PAUSING | 1u << LINK_FAILING | 1u << LINK_QUIET,
	    [LINK_ADDING] = 1u << LINK_UP | 1u << LINK_FAILING | 1u << LINK_QUIET,
	    [LINK_UP] = 1u << LINK_PAUSING | 1u << LINK_FAILING,
	    [LINK_PAUSING] =
		1u << LINK_PAUSING /* with both QPs */ | 1u << LINK_PAUSED | 1u << LINK_FAILING,
	    [LINK_PAUSED] = 1u << LINK_PAUSING | 1u << LINK_OFFERED | 1u << LINK_FAILING,
	    [LINK_FAILING] = 1u << LINK_QUIET,
	    [LINK_QUIET] = 1u << LINK_DOWN,
	};

	weir_enter(legal, l->state, to);
	link_used(l); /* to UP: it counts as idle once it is open */
	if (!l->is_timed && (to != LINK_DOWN || l->retry_at)) {
		l->is_timed = true;
		TAILQ_INSERT_TAIL(&l->b->timed, l, in_timed);
	}
}

/* After two rounds through every engine none uses QPs or memory of the link any more. */
static void quiet_round(struct broker_link *l, uint32_t round);

static void
quiet_done(struct broker *b, struct broker_command *c)
{
	struct broker_link *l = c->context;
	struct broker_node *n = l->loop_end ? b->loop : node_find(b, l->node);
	struct weir_link_offer saved = l->saved;

	weir_assert(l->quiet);
	if (--l->quiet)
		return;
	if (l->quiet_round < QUIET_ROUNDS) {
		quiet_round(l, l->quiet_round + 1);
		return;
	}
	free_memory(l);
	link_enter(l, LINK_DOWN);
	l->saved.attempt = 0;
	if (b->stopping || (l->loop_end && l->loop_end->state != LINK_DOWN))
		return;
	if (saved.attempt)
		link_offer_input(b, &saved);
	if (l->state == LINK_DOWN && !l->loop_end && n && n->repair_until && node_usable(n))
		begin_and_offer(l);
	links_serve(b, l->engine);
	if (n)
		connect_kick(b, n);
}

static void
quiet_round(struct broker_link *l, uint32_t round)
{
	weir_assert(l->state == LINK_QUIET);
	l->quiet_round = round;
	l->quiet = l->b->config.engines;
	for (uint32_t i = 0; i < l->b->config.engines; i++)
		command_submit(l->b, command_reserved(l->b, i, ENGINE_QUIET, quiet_done, l));
}

static void
take_apart(struct broker_link *l)
{
	weir_assert(!l->quiet);
	link_enter(l, LINK_QUIET);
	l->confirmed = l->open = l->live = false;
	link_destroy_qps(l, 0);
	quiet_round(l, 1);
}

static void
given_back(struct broker *b, struct broker_command *c)
{
	take_apart(c->context);
}

static void
take_from_engine(struct broker_link *l, uint32_t status)
{
	struct nic_qp_attr attr = {.state = NIC_QP_ERR};
	struct broker_command *c =
	    command_reserved(l->b, l->engine, ENGINE_LINK_FAIL, given_back, l);

	for (unsigned k = 0; k < 2; k++)
		if (l->qp[k])
			broker_ops(l->b, l->engine)->qp_modify(l->qp[k], &attr);
	link_enter(l, LINK_FAILING);
	l->confirmed = l->open = false;
	link_fill_command(l, &c->cmd.link);
	c->cmd.link.status = status;
	command_submit(l->b, c);
}

void
broker_link_fail(struct broker_link *l, uint32_t status)
{
	switch (l->state) {
	case LINK_OFFERED:
		if (l->live)
			take_from_engine(l, status);
		else
			take_apart(l);
		break;
	case LINK_ADDING:
		if (l->fail_status)
			return;
		l->fail_status = status;
		break;
	case LINK_UP:
	case LINK_PAUSING:
	case LINK_PAUSED:
		take_from_engine(l, status);
		break;
	default:
		return;
	}
	l->b->counters.links_failed += !l->over && status != ENOSPC;
	if (l->loop_end)
		broker_link_fail(l->loop_end, status);
}

static void
usable(struct broker_link *l)
{
	struct broker *b = l->b;
	struct broker_node *n = l->loop_end ? b->loop : node_find(b, l->node);

	weir_assert(l->state == LINK_UP && l->confirmed);
	l->open = !l->closing;
	l->no_room = false;
	if (l->resumes) {
		struct broker_command *go =
		    command_reserved(b, l->engine, ENGINE_LINK_GO, NULL, NULL);

		go->cmd.link.link = l->id;
		command_submit(b, go);
		b->counters.links_repaired++;
		LINK_BLAME(l, LOG_LEVEL_INFO, "link of engine %u with node %u is repaired");
	} else {
		b->counters.links_up++;
		link_is_new(l);
	}
	link_idle(l);
	if (!n)
		return;
	n->repair_until = 0;
	if (!l->loop_end)
		node_up(b, n);
	connect_kick(b, n);
}

void
link_confirm(struct broker_link *l)
{
	if (l->confirmed || (l->state != LINK_ADDING && l->state != LINK_UP))
		return;
	l->confirmed = true;
	if (l->state == LINK_UP)
		usable(l);
}

void
link_engine_has_it(struct broker *b, struct broker_command *c)
{
	struct broker_link *l = c->context;
	uint32_t next = l->resumes_next;

	if (c->cmd.result) {
		LINK_BLAME(l, LOG_LEVEL_WARNING, "engine %u takes no link to node %u: %s",
			   strerror(-c->cmd.result));
		if (l->loop_end)
			broker_link_fail(l->loop_end, ECONNRESET);
		if (l->live)
			take_from_engine(l, ECONNRESET);
		else
			take_apart(l);
		return;
	}
	link_enter(l, LINK_UP);
	l->live = true;
	l->resumes_next = 0;
	l->resumed_at = broker_now(b);
	if (l->fail_status) {
		take_from_engine(l, l->fail_status);
	} else if (next) {
		link_repair(l, next);
	} else if (l->loop_end) {
		if (l->loop_end->state != LINK_UP)
			return;
		link_confirm(l->loop_end);
		link_confirm(l);
	} else {
		link_offer_send(l, l->peer_attempt);
		if (l->confirmed)
			usable(l);
	}
}

int
link_take(struct broker_link *l, const struct weir_link_offer *offer)
{
	struct broker_command *c;
	int rc;

	weir_assert(l->state == LINK_OFFERED && !l->live && !l->staging.at);
	l->peer = *offer;
	l->peer_attempt = l->peer_newest = l->peer_born = offer->attempt;
	l->born = l->attempt;
	rc = link_staging_make(l, offer->ring_lines);
	if (!rc)
		rc = link_connect_qps(l, offer, 0);
	if (rc) {
		LINK_BLAME(l, LOG_LEVEL_WARNING,
			   "link of engine %u with node %u can't be set up: %s", strerror(-rc));
		broker_link_fail(l, (uint32_t)-rc);
		return rc;
	}
	link_enter(l, LINK_ADDING);
	c = command_reserved(l->b, l->engine, ENGINE_LINK_ADD, link_engine_has_it, l);
	link_fill_command(l, &c->cmd.link);
	command_submit(l->b, c);
	return 0;
}

/* Whether time changes something about the link. */
static bool
waits(const struct broker_link *l)
{
	switch (l->state) {
	case LINK_DOWN:
		return l->retry_at;
	case LINK_UP:
		return !l->confirmed;
	case LINK_OFFERED:
	case LINK_PAUSED:
		return !l->loop_end || l->live;
	default:
		return false;
	}
}

/* An offer, or another try at what did not succeed. */
static void
again(struct broker_link *l, uint64_t now)
{
	struct broker_node *n = node_find(l->b, l->node);

	if (l->state == LINK_DOWN) {
		l->retry_at = 0;
		if (n)
			connect_kick(l->b, n);
		return;
	}
	l->resend = now + RESEND_NS;
	if (l->state == LINK_PAUSED) {
		link_rebuild(l);
		return;
	}
	/* With the silence of its control this tells that the node is down; control forgets what
	 * was offered before. */
	if (l->state == LINK_OFFERED && l->resumes == WEIR_RESUME_BOTH && !l->loop_end)
		node_tell_control(l, EHOSTDOWN);
	link_offer_send(l, 0);
}

uint64_t
link_timers(struct broker *b, uint64_t now)
{
	uint64_t next = links_idle_timers(b, now);
	struct broker_link *l, *following;

	for (l = TAILQ_FIRST(&b->timed); l; l = following) {
		uint64_t due;

		following = TAILQ_NEXT(l, in_timed);
		if (waits(l) && l->state != LINK_DOWN && l->deadline <= now) {
			if (l->resumes)
				link_give_up(l);
			else
				broker_link_fail(l, ETIMEDOUT);
		} else if (waits(l) && (l->state == LINK_DOWN ? l->retry_at : l->resend) <= now) {
			again(l, now);
		}
		if (waits(l)) {
			due = l->state == LINK_DOWN ? l->retry_at : l->resend;
			next = due < next ? due : next;
		} else {
			TAILQ_REMOVE(&b->timed, l, in_timed);
			l->is_timed = false;
		}
	}
	return next;
}

bool
link_all_down(const struct broker *b)
{
	const struct broker_link *l = b->links;

	while (l && l->state == LINK_DOWN)
		l = l->next;
	return !l;
}

void
link_free_all(struct broker *b)
{
	struct broker_link *l;

	while ((l = b->links)) {
		b->links = l->next;
		link_destroy_qps(l, 0);
		free_memory(l);
		command_unreserve(b, reserved(b));
		free(l);
	}
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* An engine: its memory and its turn. */
#include "batch.h"
#include "channel.h"
#include "command.h"
#include "conn.h"
#include "ctrl_line.h"
#include "datagram.h"
#include "events.h"
#include "flight.h"
#include "link.h"
#include "lock.h"
#include "base/list.h"
#include "scheduler.h"
#include "session.h"
#include "state.h"

#include <errno.h>
#include <stdlib.h>

enum {
	AWAY_MOST_NS = 1000000, /* ns: largest delay of credit while others had the CPU */
	FEW = 4,		/* completions after which a turn looks at their links alone */
	SRQ_REFILL = 16,	/* receive WRs posted at a time, if no peer needs them earlier */
};

struct parts { /* offsets in the one piece of memory that an engine allocates */
	size_t conns, cold, free_conns, sessions, links, rejects, connects, srq_free, bytes;
};

static struct parts
lay_out(const struct engine_config *config)
{
	struct parts p;

	p.conns = WEIR_ALIGN_UP(sizeof(struct engine), 64);
	p.cold = p.conns + WEIR_ALIGN_UP(config->connections * sizeof(struct conn), 4096);
	p.links = p.cold + WEIR_ALIGN_UP(config->connections * sizeof(struct conn_cold), 4096);
	p.sessions = p.links + WEIR_ALIGN_UP(config->links * sizeof(struct peer_link), 64);
	p.connects = p.sessions + WEIR_ALIGN_UP(config->sessions * sizeof(struct session), 64);
	p.rejects = p.connects + WEIR_ALIGN_UP(CONNECTS * sizeof(struct engine_event), 64);
	p.free_conns =
	    p.rejects + WEIR_ALIGN_UP(reject_entries(config->links) * sizeof(struct reject), 64);
	p.srq_free = p.free_conns + config->connections * sizeof(uint32_t);
	p.bytes = WEIR_ALIGN_UP(p.srq_free + config->srq_depth * sizeof(uint32_t), 64);
	p.bytes += WEIR_SLOT_SIZE; /* to begin with a cache line */
	return p;
}

size_t
engine_memory(const struct engine_config *config)
{
	return lay_out(config).bytes;
}

struct engine *
engine_create(const struct engine_config *config)
{
	struct parts at = lay_out(config);
	struct engine *e;
	uint8_t *memory;

	if (!config->connections || !config->sessions || !config->ring_doorbell || !config->emit ||
	    (uint64_t)(config->id + 1) * config->connections > 1u << 20 ||
	    config->links > ENGINE_LINKS_MOST) {
		errno = EINVAL;
		return NULL;
	}
	/* untouched pages cost nothing: zeroes are not written again */
	memory = calloc(1, at.bytes);
	if (!memory)
		return NULL;
	e = (struct engine *)WEIR_ALIGN_UP((uintptr_t)memory, WEIR_SLOT_SIZE);
	e->memory = memory;
	memory = (uint8_t *)e;
	e->config = *config;
	e->conns = (struct conn *)(void *)(memory + at.conns);
	e->cold_conns = (struct conn_cold *)(void *)(memory + at.cold);
	e->links = (struct peer_link *)(void *)(memory + at.links);
	e->sessions = (struct session *)(void *)(memory + at.sessions);
	e->connects = (struct engine_event *)(void *)(memory + at.connects);
	e->rejects = (struct reject *)(void *)(memory + at.rejects);
	e->rejects_left = REJECTS;
	e->free_conns = (uint32_t *)(void *)(memory + at.free_conns);
	e->first_index = config->id * config->connections;
	list_init(&e->hot);
	list_init(&e->cold);
	list_init(&e->busy);
	list_init(&e->links_in_use);
	list_init(&e->link_news);
	list_init(&e->backlog);
	list_init(&e->doorbells);
	list_init(&e->lock_news);
	list_init(&e->lock_polls);
	list_init(&e->signalled);
	list_init(&e->closing);
	list_init(&e->settling);
	list_init(&e->violators);
	list_init(&e->removals);
	list_init(&e->limited);
	e->limited_at = UINT64_MAX;
	e->look_at = config->ring_idle_ns ? 0 : UINT64_MAX;
	e->done_last = &e->done;
	e->rare = true; /* receive WRs are missing */
	e->srq_free = (uint32_t *)(void *)(memory + at.srq_free);
	while (config->srq && e->srq_missing < config->srq_depth) {
		e->srq_free[e->srq_missing] = e->srq_missing;
		e->srq_missing++;
	}
	return e;
}

void
engine_destroy(struct engine *e)
{
	if (e)
		free(e->memory);
}

const struct engine_counters *
engine_counters(const struct engine *e)
{
	return &e->counters;
}

/* ---- the NIC ---- */

static const uint8_t *
recv_buffer(const struct engine *e, uint64_t i)
{
	return e->config.recv + i * ENGINE_RECV_BYTES;
}

static void
refill_srq(struct engine *e)
{
	struct nic_recv_wr wr[NIC_POLL_MAX];

	while (e->srq_missing) {
		unsigned n = e->srq_missing < NIC_POLL_MAX ? e->srq_missing : NIC_POLL_MAX;
		int posted;

		for (unsigned i = 0; i < n; i++) {
			uint32_t buffer = e->srq_free[e->srq_missing - 1 - i];

			wr[i] = (struct nic_recv_wr){.wr_id = buffer,
						     .sge = {(uintptr_t)recv_buffer(e, buffer),
							     ENGINE_RECV_BYTES,
							     e->config.recv_mr.lkey}};
		}
		posted = NIC_OPS(e->config.nic)->post_srq_recv(e->config.srq, wr, n);
		if (posted <= 0)
			return;
		e->srq_missing -= (uint32_t)posted;
	}
}

/*
 * Whether peers may use as many receive WRs as they were granted although some are missing: those
 * that no peer was granted stand in for them.
 */
static bool
srq_covers(const struct engine *e)
{
	return !e->srq_missing || e->srq_missing + e->wrs_granted <= e->config.srq_depth;
}

static void
take_completion(struct engine *e, const struct nic_wc *wc)
{
	const struct link_qp *qp = wc->qp_user;
	bool received = wc->opcode == NIC_RECV || wc->opcode == NIC_RECV_IMM;
	uint32_t kind = WEIR_IMM_KIND(wc->imm), lines = WEIR_IMM_VALUE(wc->imm);
	struct peer_link *l = qp->link;
	bool ok = false;

	if (UNLIKELY(qp->index == DATAGRAM)) {
		datagrams_completion(e, wc);
		return;
	}
	/* a WR that failed is used up too */
	if (received && e->srq_missing < e->config.srq_depth)
		e->srq_free[e->srq_missing++] = (uint32_t)wc->wr_id;
	if (!l || !l->up || (qp->index == RING ? l->broken : l->bulk_broken) ||
	    wc->qpn != l->qpn[qp->index])
		return; /* of an earlier life of the link */
	l->heard_at = e->now;
	if (wc->status != NIC_WC_SUCCESS) {
		if (qp->index == BULK)
			flight_failed(e, l, wc);
		link_break(e, l, qp->index, wc->status == NIC_WC_RETRY_EXC_ERR ? ETIMEDOUT : EIO,
			   wc->status);
		return;
	}
	if (!received) {
		if (wc->wr_id > l->sq_posted[qp->index])
			return;
		if (qp->index == BULK)
			flight_done(e, l, wc->wr_id);
		else if (wc->wr_id > l->sq_done[RING])
			l->sq_done[RING] = wc->wr_id;
		if (UNLIKELY(l->proof | l->last_wr) && qp->index == RING) {
			if (wc->wr_id >= l->proof)
				l->proof = 0;
			if (l->last_wr && l->end == LINK_AGREED && wc->wr_id >= l->last_wr)
				link_over(e, l);
		}
		return;
	}
	if (UNLIKELY(l->hold == WEIR_RESUME_BOTH) && qp->index == RING)
		link_heard(e, l);
	l->wrs_seen++;
	link_attend(e, l);
	if (kind == WEIR_IMM_CREDIT)
		return; /* every turn reads the credit line */
	if (qp->index == RING && wc->has_imm) {
		if (wc->opcode == NIC_RECV_IMM)
			ok = kind == WEIR_IMM_FRAME && frame_receive(e, l, lines);
		else
			ok = kind == WEIR_IMM_SEND && wc->length == lines * WEIR_SLOT_SIZE &&
			     wc->wr_id < e->config.srq_depth &&
			     frame_receive_sent(e, l, recv_buffer(e, wc->wr_id), lines);
	}
	if (UNLIKELY(!ok)) {
		count(&e->counters.bad_frames, 1);
		link_break(e, l, RING, EPROTO, 0);
	}
}

/*
 * Credit counts only after everything that arrived before it: a RESET in an earlier frame says
 * which of the messages that it covers were refused. So the credit lines are read before the poll,
 * and applied after it if it took all completions. Returns whether a line brings some.
 */
static bool
read_credit_lines(struct engine *e)
{
	struct list_node *node, *following;
	bool some = false;

	LIST_EACH (node, following, &e->busy) {
		struct peer_link *l = LIST_OWNER(node, struct peer_link, busy);
		const struct weir_credit_line *line = &l->is.credit[0];
		uint64_t consumed = atomic_load_explicit(&line->consumed, memory_order_acquire);
		uint64_t wrs = atomic_load_explicit(&line->wrs, memory_order_acquire);
		uint64_t executed = atomic_load_explicit(&line->executed, memory_order_acquire);

		/* mostly a frame has brought that credit, or more, before */
		if (LIKELY(consumed <= l->credited && wrs <= l->wrs_credited &&
			   executed <= l->executed))
			continue;
		l->snap_consumed = consumed;
		l->snap_wrs = wrs;
		l->snap_executed = executed;
		l->snapped = some = true;
	}
	return some;
}

/* Credit of ours that the peer may be told of. */
static inline void
return_credit(struct engine *e, struct peer_link *l)
{
	if (l->wrs_back == l->wrs_seen) /* each frame takes one */
		return;
	if (LIKELY(!e->wrs_lack))
		l->wrs_back = l->wrs_seen;
	link_owes(e, l);
}

/* Credit of all links: ours, and theirs unless completions may be left. */
static COLD unsigned
apply_credit(struct engine *e, bool all)
{
	struct list_node *node, *following;
	unsigned work = 0;

	LIST_EACH (node, following, &e->busy) {
		struct peer_link *l = LIST_OWNER(node, struct peer_link, busy);
		uint64_t before = l->credited + l->executed;

		return_credit(e, l);
		if (LIKELY(!l->snapped))
			continue;
		l->snapped = false;
		if (!all || !l->up || l->broken)
			continue;
		if (!link_credit(e, l, l->snap_consumed, l->snap_wrs, l->snap_executed)) {
			count(&e->counters.bad_frames, 1);
			link_break(e, l, RING, EPROTO, 0);
		}
		l->look = true;
		work += l->credited + l->executed != before;
	}
	return work;
}

static unsigned
poll_nic(struct engine *e)
{
	bool busy = false, credit = read_credit_lines(e), lacked = e->wrs_lack;
	struct nic_wc wc[NIC_POLL_MAX];
	unsigned n, work;

	n = nic_poll(e->config.nic, wc, NIC_POLL_MAX, e->now, &busy);
	for (unsigned i = 0; i < n; i++) {
		/* `user` has two entries: of the second one this is an address in the same lines */
		if (i + 1 < n)
			link_prefetch(LIST_OWNER(wc[i + 1].qp_user, struct peer_link, user));
		take_completion(e, &wc[i]);
	}
	if (UNLIKELY(e->srq_missing >= SRQ_REFILL || !srq_covers(e)))
		refill_srq(e);
	e->wrs_lack = !srq_covers(e);
	work = n + busy;
	/* few completions: of few links */
	if (UNLIKELY(credit || lacked || n > FEW))
		return work + apply_credit(e, n < NIC_POLL_MAX);
	for (unsigned i = 0; i < n; i++) {
		const struct link_qp *qp = wc[i].qp_user;

		if (qp->link && list_linked(&qp->link->busy))
			return_credit(e, qp->link);
	}
	return work;
}

/* ---- the turn ---- */

bool
engine_delivered(const struct engine *e)
{
	return e->delivered;
}

uint32_t
engine_active_channels(const struct engine *e)
{
	return e->active_channels;
}

bool
engine_served(const struct engine *e)
{
	return e->served;
}

void
engine_set_load(struct engine *e, uint32_t load)
{
	e->load = load < 1000 ? load : 1000;
}

void
engine_set_away(struct engine *e, uint64_t ns)
{
	e->away = ns < AWAY_MOST_NS ? ns : AWAY_MOST_NS;
}

/* Before slots of programs: events about a connection have been told, and hold for it. */
static COLD void
rare_before(struct engine *e)
{
	if (!list_empty(&e->violators))
		sessions_settle(e);
	if (e->datagrams.ending)
		datagrams_settle(e);
	if (!list_empty(&e->settling))
		conns_settle(e);
	if (e->datagrams.missing_count)
		datagrams_refill(e);
	if (e->config.nic && e->srq_missing >= SRQ_REFILL)
		refill_srq(e);
}

/* Returns whether the next turn has work of it. */
static COLD bool
rare_after(struct engine *e)
{
	bool granted, soon;

	if (e->waiting)
		commands_retry(e);
	if (!list_empty(&e->removals))
		sessions_remove(e);
	granted = !list_empty(&e->lock_polls) && locks_poll(e);
	engine_emit_pending(e);
	soon = granted || !list_empty(&e->settling) || !list_empty(&e->violators) ||
	       e->datagrams.ending;
	e->rare = soon || engine_tells_later(e) || e->datagrams.missing_count;
	return soon;
}

unsigned
engine_turn(struct engine *e, uint64_t now)
{
	struct list_node *node, *following;
	unsigned work;

	weir_assert(now >= e->now);
	e->now = now;
	if (e->config.nic)
		nic_set_now(e->config.nic, now);
	e->turn++;
	e->opened = NULL;
	e->delivered = false;
	if (UNLIKELY(e->rare))
		rare_before(e);
	work = channels_poll(e);
	e->served = work != 0;
	if (UNLIKELY(e->turn % HOUSEKEEPING == 0)) {
		/* before lines and doorbells: those it causes leave in this turn */
		channels_housekeeping(e);
		sessions_housekeeping(e);
		node_events_put(e);
	}
	if (e->config.nic) {
		struct peer_link *l = e->opened;

		/*
		 * A lone frame leaves before others are received: an idle engine has no reason to
		 * let it wait, and a loop brings it back in the same turn. If the link has more to
		 * send, or several links do, frames leave after receiving, with the newest credit.
		 */
		if (l && !e->opened_more && !e->classes && !l->look && now < l->credit_due) {
			link_send(e, l);
			nic_flush(e->config.nic, now);
		}
		work += poll_nic(e);
	}
	if (!list_empty(&e->backlog))
		backlogs_drain(e);
	if (e->config.nic) {
		if (UNLIKELY(now >= e->limited_at))
			shares_renew(e);
		e->ctrl_added = false;
		LIST_EACH (node, following, &e->busy) {
			struct peer_link *l = LIST_OWNER(node, struct peer_link, busy);

			if (!link_may_send(e, l))
				continue;
			link_prefetch(LIST_OWNER(following, struct peer_link, busy));
			if (UNLIKELY(e->classes))
				class_send(e, l);
			else
				link_send(e, l);
		}
		if (UNLIKELY(now >= e->keepalive_at))
			links_keepalive(e);
		nic_flush(e->config.nic, now);
	}
	if (!list_empty(&e->doorbells) || !list_empty(&e->signalled))
		doorbells_ring(e);
	if (UNLIKELY(e->rare))
		work += rare_after(e);
	/* lines may be owed on links that have sent already */
	work += e->ctrl_added;
	atomic_store_explicit(&e->counters.turns, e->turn, memory_order_relaxed);
	return work;
}

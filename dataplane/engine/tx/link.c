/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The sending half of links. A batch (frame on the wire) is built in the staging that mirrors the
 * peer's ring and leaves from there, as one WRITE_WITH_IMM per turn. Ring credit and receive WRs
 * are spent in link_send() and returned in link_credit().
 */
#include "answer.h"
#include "batch.h"
#include "conn.h"
#include "ctrl_line.h"
#include "events.h"
#include "flight.h"
#include "link.h"
#include "base/list.h"
#include "scheduler.h"
#include "send_queue.h"
#include "slot_head.h"
#include "state.h"

#include <errno.h>

enum {
	CREDIT_DELAY_NS =
	    20000, /* ns to wait for a frame that carries credit before it goes alone */
	KEEPALIVE_NS = 250000000, /* ns of silence after which a link is probed */
};

size_t
engine_link_bytes(uint32_t staging_lines)
{
	return engine_staging_bytes(staging_lines) + sizeof(struct link_pools);
}

size_t
engine_staging_bytes(uint32_t lines)
{
	return lines * sizeof(struct run);
}

/* ---- room ---- */

static uint64_t
wrs_left(const struct peer_link *l)
{
	return l->is.peer_recv_wrs + l->wrs_credited - l->wrs_used;
}

static bool
queue_has(const struct peer_link *l, uint32_t n)
{
	return l->sq_posted[RING] - l->sq_done[RING] + n <= ENGINE_SEND_WRS;
}

static bool
may_write(const struct peer_link *l)
{
	return l->up && !l->broken && l->hold != WEIR_RESUME_BOTH && !l->replaying;
}

/*
 * Whether a frame may begin. Kept free beyond it: a line for the head that says STALLED, a receive
 * WR for that frame, another for the credit that answers it, and a send WR for our credit.
 */
static bool
frame_may_open(const struct peer_link *l)
{
	return may_write(l) && l->way != WAY_LEFT && !l->frame_wrs && queue_has(l, 3);
}

static uint32_t
frame_most(const struct peer_link *l)
{
	return l->by_send ? WEIR_SEND_LINES : l->frame_max;
}

/*
 * Where the room in the peer's ring ends. Messages are noted until they have taken effect, and
 * there are as many notes as lines. Control lines, for which frame_max is larger, and answers are
 * not.
 */
static uint64_t
room_end(const struct peer_link *l)
{
	return (l->frame_max == FRAME_LINES ? l->executed : l->credited) + l->mask;
}

static void
set_limit(struct peer_link *l)
{
	uint64_t most = l->frame_at + frame_most(l), room = room_end(l);

	l->tx_limit = most < room ? most : room;
}

static inline void
open_frame(struct engine *e, struct peer_link *l, uint32_t lines)
{
	l->frame_at = l->tx_pos++;
	l->run = NULL;
	e->opened_more = e->opened != NULL;
	e->opened = l;
	l->by_send = UNLIKELY(l->send_next) && lines < WEIR_SEND_LINES;
	if (UNLIKELY(l->by_send))
		l->send_next = false;
	set_limit(l);
	link_attend(e, l);
}

enum room
link_find_room(struct engine *e, struct peer_link *l, uint32_t lines)
{
	uint64_t end = l->tx_pos + lines + (l->tx_limit ? 0 : 1);

	if ((!l->tx_limit && !frame_may_open(l)) || UNLIKELY(l->way == WAY_LEFT))
		return ROOM_FULL;
	if (end > room_end(l) || (!l->tx_limit && wrs_left(l) < 3)) {
		count(&e->counters.ring_stalls, !l->stalled);
		l->stalled = true;
		link_busy(e, l);
		return ROOM_FULL;
	}
	if (!l->tx_limit) {
		open_frame(e, l, lines);
		return ROOM;
	}
	if (end > l->frame_at + frame_most(l))
		return ROOM_LATER;
	set_limit(l); /* credit has come since the frame was opened */
	return ROOM;
}

enum room
link_room_of_way(struct engine *e, struct peer_link *l, uint32_t lines, uint8_t way)
{
	bool send = way & WEIR_SLOT_SEND;

	if (l->tx_limit && l->by_send != send) {
		l->send_next = send;
		return ROOM_LATER;
	}
	if (!l->tx_limit)
		l->send_next = send;
	return link_room(e, l, lines);
}

/* ---- lines ---- */

struct weir_slot *
link_put_line(struct peer_link *l)
{
	return link_at(l, l->tx_pos++);
}

void
link_put_inline(struct peer_link *l, struct head h, const uint8_t *from)
{
	uint32_t n = weir_slots_inline(h.length), left = h.length;
	uint32_t part = left < WEIR_SLOT_HEAD_BYTES ? left : WEIR_SLOT_HEAD_BYTES;
	struct weir_slot *to = link_put_line(l);

	h.op = WEIR_OP_INLINE;
	memset(to, 0, sizeof(*to));
	head_store(to, 0, h);
	memcpy(to->data, from, part);
	for (uint32_t i = 1; i < n; i++) {
		char *more = (char *)link_put_line(l);

		from += part;
		left -= part;
		part = left < WEIR_SLOT_MORE_BYTES ? left : WEIR_SLOT_MORE_BYTES;
		memset(more, 0, WEIR_SLOT_SIZE);
		memcpy(more + 4, from, part);
	}
}

void
link_put_place(struct peer_link *l, struct head h, const uint8_t *from)
{
	uint32_t at = (uint32_t)((l->tx_pos + 1) & l->mask),
		 first = (l->mask + 1 - at) * WEIR_SLOT_SIZE;
	struct weir_slot *to = link_at(l, l->tx_pos);

	h.op = WEIR_OP_PLACE;
	memset(to, 0, sizeof(*to));
	head_store(to, 0, h);
	if (first > h.length)
		first = h.length;
	memcpy(&l->staging[at], from, first);
	memcpy(l->staging, from + first, h.length - first);
	l->tx_pos += message_lines(h.length);
}

/* ---- posting ---- */

static void
finish_wr(struct peer_link *l, struct nic_send_wr *wr)
{
	wr->wr_id = ++l->sq_posted[RING];
	if (l->sq_posted[RING] - l->sq_signaled >= ENGINE_SEND_WRS / 4)
		wr->flags |= NIC_SIGNALED;
	if (UNLIKELY(l->proof == PROOF_DUE) && !l->replaying) {
		wr->flags |= NIC_SIGNALED;
		l->proof = wr->wr_id;
		if (l->last_wr == PROOF_DUE)
			l->last_wr = wr->wr_id;
		if (l->left_wr == PROOF_DUE)
			l->left_wr = wr->wr_id;
	}
	if (wr->flags & NIC_SIGNALED)
		l->sq_signaled = l->sq_posted[RING];
}

/* Posts WRs of a frame. False: some are left, and kept in the link. */
static inline bool
post_wrs(struct engine *e, struct peer_link *l, const struct nic_send_wr *wr, uint32_t count)
{
	int n = nic_post_send(l->is.qp[RING], wr, count);

	if (UNLIKELY(n < 0)) {
		link_break(e, l, RING, (uint32_t)-n, 0);
		return false;
	}
	if (LIKELY((uint32_t)n == count))
		return true;
	l->frame_wrs = count - (uint32_t)n;
	memmove(l->frame, wr + n, l->frame_wrs * sizeof(*wr));
	return false;
}

/* Posts the WRs that are left of a frame. False: some still are. */
static inline bool
post_rest(struct engine *e, struct peer_link *l)
{
	uint32_t count = l->frame_wrs;

	if (LIKELY(!count))
		return true;
	l->frame_wrs = 0;
	return post_wrs(e, l, l->frame, count);
}

static inline void
make_write(struct peer_link *l, struct nic_send_wr *wr, uint64_t at, uint32_t lines,
	   uint32_t frame_lines)
{
	uint64_t line = at & l->mask;

	/* the rest of it counts for other opcodes */
	wr->sge[0] = (struct nic_sge){(uintptr_t)&l->staging[line], lines * WEIR_SLOT_SIZE,
				      l->is.staging_mr.lkey};
	wr->sge_count = 1;
	wr->opcode = frame_lines ? NIC_WRITE_IMM : NIC_WRITE;
	wr->flags = 0;
	wr->imm = WEIR_IMM(WEIR_IMM_FRAME, frame_lines);
	wr->remote_address = l->is.peer_ring_address + line * WEIR_SLOT_SIZE;
	wr->rkey = l->is.peer_ring_rkey;
	finish_wr(l, wr);
}

static void
credit_told(struct peer_link *l)
{
	l->rx_told = l->rx_pos;
	l->wrs_told = l->wrs_back;
	l->credit_due = UINT64_MAX;
	l->peer_stalled = l->peer_prompts = false;
}

/*
 * Makes the WRs of a frame in the staging: a SEND, or a WRITE, or two where the ring wraps. Returns
 * their number.
 */
static inline __attribute__((always_inline)) uint32_t
make_wrs(struct engine *e, struct peer_link *l, struct nic_send_wr wr[2], uint64_t at,
	 uint32_t lines, bool send)
{
	uint32_t line = (uint32_t)(at & l->mask), first = l->mask + 1 - line, n = 0;

	weir_assert(lines && lines <= l->mask + 1 && !l->frame_wrs);
	if (send) {
		uint32_t lkey = l->is.staging_mr.lkey;

		first = first < lines ? first : lines;
		*wr = (struct nic_send_wr){
		    .sge = {{(uintptr_t)&l->staging[line], first * WEIR_SLOT_SIZE, lkey},
			    {(uintptr_t)l->staging, (lines - first) * WEIR_SLOT_SIZE, lkey}},
		    .sge_count = first < lines ? 2 : 1,
		    .opcode = NIC_SEND_IMM,
		    .imm = WEIR_IMM(WEIR_IMM_SEND, lines),
		};
		finish_wr(l, wr);
		count(&e->counters.frames_by_send, 1);
	} else {
		if (UNLIKELY(lines > first))
			make_write(l, &wr[n++], at, first, 0);
		else
			first = 0;
		make_write(l, &wr[n], at + first, lines - first, lines);
	}
	l->wrs_used++;
	l->frames_sent++;
	count(&e->counters.frames_sent, 1);
	return n + 1;
}

/* link_seal(), inlined where each frame is sent: its lines. */
static inline uint32_t
seal(struct engine *e, struct peer_link *l)
{
	/* the head is built in its line: copied whole from the stack it costs a dozen moves more */
	struct weir_frame_head *head = (void *)link_at(l, l->frame_at);
	uint32_t lines = (uint32_t)(l->tx_pos - l->frame_at);
	uint16_t flags = l->stalled ? WEIR_FRAME_STALLED : 0;

	if (UNLIKELY(l->prompt))
		flags |= WEIR_FRAME_PROMPT | (e->sleeps ? WEIR_FRAME_WAKE : 0);
	*head = (struct weir_frame_head){
	    .version = WEIR_WIRE_VERSION,
	    .flags = flags,
	    .lines = lines,
	    .position = l->frame_at,
	    .consumed = l->rx_pos,
	    .wrs = l->wrs_back,
	    .load = e->load,
	    .held = (uint32_t)(l->rx_pos - link_executed(l)),
	};
	l->stall_told = l->stalled;
	l->prompt = false;
	l->tx_posted = l->tx_pos;
	l->tx_limit = 0;
	share_frame_closed(e, l);
	return lines;
}

void
link_seal(struct engine *e, struct peer_link *l)
{
	seal(e, l);
}

/*
 * Repeats the frames that the peer had not consumed when the link broke, unchanged. The credit in
 * their heads is old: newer credit may cover messages that a RESET among them says were refused, so
 * it leaves behind them. False: frames are left.
 */
static bool
replay(struct engine *e, struct peer_link *l)
{
	if (LIKELY(!l->replaying))
		return true;
	while (l->replay != l->tx_posted) {
		const struct weir_frame_head *head = (const void *)link_at(l, l->replay);
		struct nic_send_wr wr[2];
		uint32_t n;

		if (!queue_has(l, 3) || !wrs_left(l))
			return false;
		/* its place in the ring is free */
		n = make_wrs(e, l, wr, l->replay, head->lines, false);
		l->replay += head->lines;
		count(&e->counters.frames_replayed, 1);
		if (!post_wrs(e, l, wr, n))
			return false;
	}
	l->replaying = false;
	return true;
}

/*
 * Returns credit without a frame: a WRITE of our line to the peer's. It takes no room in the ring
 * and, unless it wakes the peer, no receive WR. `flags`: NIC_SIGNALED to probe the peer.
 */
static void
write_credit(struct engine *e, struct peer_link *l, uint32_t flags)
{
	struct weir_credit_line *line = &l->is.credit[1];
	bool wake = l->peer_stalled && wrs_left(l) >= 1;
	struct nic_send_wr wr = {
	    .sge = {{(uintptr_t)line, sizeof(*line), l->is.credit_mr.lkey}},
	    .sge_count = 1,
	    .opcode = wake ? NIC_WRITE_IMM : NIC_WRITE,
	    .flags = NIC_INLINE | flags,
	    .imm = WEIR_IMM(WEIR_IMM_CREDIT, 0),
	    .remote_address = l->is.peer_credit_address,
	    .rkey = l->is.peer_credit_rkey,
	};
	uint64_t signaled = l->sq_signaled;
	int n;

	if (!may_write(l) || !queue_has(l, 1))
		return;
	atomic_store_explicit(&line->consumed, l->rx_pos, memory_order_relaxed);
	atomic_store_explicit(&line->wrs, l->wrs_back, memory_order_relaxed);
	atomic_store_explicit(&line->executed, link_executed(l), memory_order_relaxed);
	finish_wr(l, &wr);
	n = nic_post_send(l->is.qp[RING], &wr, 1);
	if (n <= 0) {
		l->sq_posted[RING]--;
		l->sq_signaled = signaled;
		if (l->proof == wr.wr_id)
			l->proof = PROOF_DUE;
		if (l->last_wr == wr.wr_id)
			l->last_wr = PROOF_DUE;
		if (l->left_wr == wr.wr_id)
			l->left_wr = PROOF_DUE;
		if (n < 0)
			link_break(e, l, RING, (uint32_t)-n, 0);
		return;
	}
	l->wrs_used += wake;
	count(&e->counters.credit_writes, 1);
	credit_told(l);
}

/*
 * The frame brings the last line of the link, or of its memory: the completion of its last WR is
 * wanted.
 */
static COLD void
prove_last(struct peer_link *l, struct nic_send_wr *wr, bool last, bool left)
{
	wr->flags |= NIC_SIGNALED;
	l->sq_signaled = wr->wr_id;
	if (last)
		l->last_wr = wr->wr_id;
	if (left)
		l->left_wr = wr->wr_id;
}

/* Closes the open frame and posts it, with credit of ours in its head. */
static void
send_frame(struct engine *e, struct peer_link *l)
{
	bool last = l->last_wr == PROOF_DUE, left = l->left_wr == PROOF_DUE;
	struct nic_send_wr wr[2];
	uint32_t lines, n;

	weir_assert(l->up && !l->broken && l->hold != WEIR_RESUME_BOTH);
	lines = seal(e, l);
	n = make_wrs(e, l, wr, l->frame_at, lines, l->by_send);
	if (UNLIKELY(last || left))
		prove_last(l, &wr[n - 1], last, left);
	credit_told(l);
	if (UNLIKELY(!post_wrs(e, l, wr, n)))
		l->look = true;
}

void
link_owes(struct engine *e, struct peer_link *l)
{
	if (l->peer_stalled || l->peer_prompts || l->rx_pos - l->rx_told > l->ring_mask / 4 ||
	    (l->wrs_back - l->wrs_told) * 4 >= l->is.recv_wrs)
		l->credit_due = e->now;
	else if (l->credit_due == UINT64_MAX)
		l->credit_due = e->now + CREDIT_DELAY_NS + e->away;
}

bool
link_has_rest(const struct peer_link *l)
{
	return l->replaying || l->peer_stalled || l->lines_due || l->way == WAY_LEFT ||
	       (l->stalled && !l->stall_told) || l->prompt || l->rejects.count ||
	       !list_empty(&l->ctrl_due) || !list_empty(&l->active) || flight_waits(l) ||
	       answers_waiting(l) || answers_payable(l);
}

void
link_send(struct engine *e, struct peer_link *l)
{
	weir_assert(l->credited <= l->tx_posted && l->tx_posted <= l->tx_pos);
	if (LIKELY(!l->look && e->now < l->credit_due)) {
		send_frame(e, l);
		return;
	}
	if (!l->up || l->broken || l->hold == WEIR_RESUME_BOTH) {
		list_remove(&l->busy);
		return;
	}
	if (post_rest(e, l) && replay(e, l)) {
		if (UNLIKELY(l->way == WAY_LEFT))
			link_way_settle(e, l);
		if (!list_empty(&l->ctrl_due) || l->rejects.count)
			ctrl_lines_send(e, l);
		if (UNLIKELY(answers_waiting(l))) {
			l->frame_max =
			    FRAME_LINES + CONTROL_LINES; /* messages may have filled it */
			answers_send(e, l);
			l->frame_max = FRAME_LINES;
		}
		if (UNLIKELY(l->lines_due))
			link_lines_send(e, l);
		if (UNLIKELY(answers_payable(l)))
			answers_pay(e, l);
		/* control lines may have more room than messages; nothing follows LINK_LEFT */
		if (UNLIKELY(l->tx_limit && l->executed != l->credited && l->way != WAY_LEFT))
			set_limit(l);
		if (!list_empty(&l->active))
			link_send_queued(e, l);
		/* no message fits: the line that is kept free tells the peer */
		if (l->stalled && !l->stall_told && !l->tx_limit && frame_may_open(l) &&
		    wrs_left(l) >= 2 && l->tx_pos < l->credited + l->mask + 1)
			open_frame(e, l, 0);
		/* what is flushed has left before */
		if (UNLIKELY(l->prompt) && !l->tx_limit && frame_may_open(l) && wrs_left(l) >= 3 &&
		    l->tx_pos < l->credited + l->mask)
			open_frame(e, l, 0);
		if (l->tx_limit)
			send_frame(e, l);
		else if (UNLIKELY(l->overfull)) /* each has less than its message needs */
			share_frame_closed(e, l);
		if (e->now >= l->credit_due && !l->frame_wrs && !l->broken)
			write_credit(e, l, 0);
	}
	if (flight_waits(l))
		flight_turn(e, l);
	l->look = l->frame_wrs || link_has_rest(l);
	/* nothing is left to send, to acknowledge or to return */
	if (!l->look && l->executed == l->tx_posted && l->rx_pos == l->rx_told &&
	    l->wrs_seen == l->wrs_told)
		list_remove(&l->busy);
}

bool
link_credit(struct engine *e, struct peer_link *l, uint64_t consumed, uint64_t wrs,
	    uint64_t executed)
{
	if (consumed > l->tx_posted || wrs > l->wrs_used || executed > l->tx_posted)
		return false;
	if (wrs > l->wrs_credited) {
		l->wrs_credited = wrs;
		l->stalled = l->stall_told = false;
	}
	if (consumed > l->credited)
		l->credited = consumed;
	else if (executed <= l->executed)
		return true;
	/* a credit line may be read in parts */
	if (executed > l->credited)
		executed = l->credited;
	if (executed > l->executed)
		l->executed = executed;
	l->heard_at = e->now;
	l->stalled = l->stall_told = false;
	while (l->run_first != l->run_end) {
		const struct run *r = &l->runs[l->run_first & l->mask];

		if ((int32_t)((uint32_t)l->executed - r->end) < 0)
			break;
		l->run_first++;
		conn_completed(e, r->conn, r->count, r->notify);
	}
	if (UNLIKELY(answers_waiting(l))) /* before messages take the room */
		answers_send(e, l);
	return true;
}

/* ---- life ---- */

void
link_break(struct engine *e, struct peer_link *l, unsigned index, uint32_t error,
	   uint32_t wc_status)
{
	bool *broken = index == RING ? &l->broken : &l->bulk_broken;

	if (l->broken || *broken)
		return;
	*broken = l->look = true;
	if (l->end >= LINK_AGREED) { /* the peer may have ended it already */
		link_over(e, l);
		return;
	}
	link_tell(e, l);
	l->error = error;
	l->error_wc = wc_status;
	l->error_qpn = l->qpn[index];
	if (index == RING)
		l->tx_limit = 0; /* the lines of the open frame stay, see link_seal() */
}

static bool
is_power(uint32_t n, uint32_t least)
{
	return n >= least && !(n & (n - 1));
}

int
link_add(struct engine *e, const struct engine_link_command *k)
{
	struct link_pools *pools;
	uint32_t frame_number;
	struct peer_link *l;

	if (k->link >= e->config.links || !is_power(k->ring_lines, 256) ||
	    !is_power(k->staging_lines, 256) || k->peer_recv_wrs < 4 || !k->work ||
	    (k->answer_lines && !is_power(k->answer_lines, 1)))
		return -EINVAL;
	l = &e->links[k->link];
	if (l->up)
		return -EBUSY;
	weir_assert(k->class < WEIR_CLASSES);
	frame_number = l->frame_number;
	memset(l, 0, sizeof(*l));
	l->frame_number = frame_number + 1; /* queues remember numbers of its earlier life */
	l->is = *k;
	e->classes |= k->class != WEIR_CLASS_NORMAL;
	l->up = true;
	e->wrs_granted += k->recv_wrs;
	l->heard_at = e->now;
	l->staging = k->staging;
	l->staging_lines = k->staging_lines;
	l->mask = k->staging_lines - 1;
	l->rx = l->ring = k->ring;
	l->rx_mask = l->ring_mask = k->ring_lines - 1;
	l->runs = k->work;
	pools = (struct link_pools *)(void *)&l->runs[k->staging_lines];
	if (k->least.work) /* that stays */
		pools =
		    (struct link_pools *)(void *)((struct run *)k->least.work + ENGINE_RING_LEAST);
	l->flights = &pools->flights;
	l->awaited = pools->awaited;
	l->awaited_left = LINK_AWAITED;
	l->credit_due = UINT64_MAX;
	l->frame_max = FRAME_LINES;
	list_init(&l->active);
	list_init(&l->ctrl_due);
	list_init(&l->writing);
	list_init(&l->reading);
	list_init(&l->to_read);
	list_init(&l->lack_answers);
	l->answer_room = k->peer_answers;
	list_init(&l->conns);
	for (unsigned i = 0; i < 2; i++) {
		l->user[i] = (struct link_qp){l, i};
		l->qpn[i] = nic_qpn(k->qp[i]);
	}
	return 0;
}

int
link_fail(struct engine *e, const struct engine_link_command *k)
{
	struct peer_link *l = k->link < e->config.links ? &e->links[k->link] : NULL;
	struct list_node *node, *following;

	if (!l || (!l->up && !l->failing))
		return -ENOENT;
	if (l->up) {
		l->up = false;
		weir_assert(e->wrs_granted >= l->is.recv_wrs);
		e->wrs_granted -= l->is.recv_wrs;
		l->broken = l->bulk_broken = true;
		l->heard = l->silent = false;
		l->error = l->news = 0;
		list_remove(&l->busy);
		list_remove(&l->telling);
		LIST_EACH (node, following, &l->conns)
			conn_link_failed(e, LIST_OWNER(node, struct conn, of_link),
					 k->status ? k->status : EHOSTDOWN);
		for (uint32_t i = e->connect_first; i != e->connect_end; i++) {
			struct engine_event *event = &e->connects[i % CONNECTS];

			if (event->conn.link == l->is.link)
				event->conn.link = ENGINE_LINK_NONE; /* main isn't told any more */
		}
		while (l->rejects.count)
			reject_take(e, l);
		l->news = 0;
		list_remove(&l->telling);
		list_remove(&l->in_use);
		weir_assert(list_empty(&l->conns) && list_empty(&l->ctrl_due));
	}
	l->failing = e->datagrams.done < l->last_datagram;
	return l->failing ? -EAGAIN : 0;
}

void *
engine_link_user(struct engine *e, uint32_t link, unsigned index)
{
	struct peer_link *l = &e->links[link];

	l->user[index] = (struct link_qp){l, index};
	return &l->user[index];
}

void
link_tell(struct engine *e, struct peer_link *l)
{
	list_append_once(&e->link_news, &l->telling);
	e->main_events_due = e->rare = true;
}

void
link_watch(struct engine *e, struct peer_link *l)
{
	if (!list_empty(&l->conns) || l->end == LINK_ASKED)
		list_append_once(&e->links_in_use, &l->in_use);
	else
		list_remove(&l->in_use);
}

void
link_join(struct engine *e, struct peer_link *l, struct list_node *of_link)
{
	list_append(&l->conns, of_link);
	link_watch(e, l);
}

void
link_leave(struct engine *e, struct peer_link *l, struct list_node *of_link)
{
	list_remove(of_link);
	if (!list_empty(&l->conns))
		return;
	link_watch(e, l);
	l->news |= LINK_NEWS_IDLE;
	link_tell(e, l);
}

/*
 * Probes idle peers by a WRITE that changes nothing, so that a dead one is noticed. Main hears of a
 * long silence before the QP gives up. Silence counts only if this engine itself was running: it
 * has probed at least half as often as it could have in that time.
 */
static void
probe(struct engine *e)
{
	uint64_t enough = e->config.silence_ns / KEEPALIVE_NS / 2;
	struct list_node *node, *following;

	e->probe_at = e->now + KEEPALIVE_NS;
	LIST_EACH (node, following, &e->links_in_use) {
		struct peer_link *l = LIST_OWNER(node, struct peer_link, in_use);

		weir_assert(l->up);
		if (l->broken || l->hold == WEIR_RESUME_BOTH || e->now - l->heard_at < KEEPALIVE_NS)
			continue;
		if (l->heard_at >= l->asked_at)
			l->asked = 0;
		l->asked_at = e->now;
		if (!l->frame_wrs)
			write_credit(e, l, NIC_SIGNALED);
		l->silent = e->config.silence_ns && l->asked >= enough &&
			    e->now - l->heard_at >= e->config.silence_ns;
		l->asked++;
		if (l->silent)
			link_tell(e, l);
	}
}

void
links_keepalive(struct engine *e)
{
	if (e->now >= e->probe_at)
		probe(e);
	if (e->now >= e->look_at)
		links_look(e);
	e->keepalive_at = e->probe_at < e->look_at ? e->probe_at : e->look_at;
}

bool
link_is_pressing(const struct peer_link *l)
{
	if (!l->up || l->broken || l->hold == WEIR_RESUME_BOTH)
		return false;
	if (l->frame_wrs || l->replaying || l->peer_stalled || l->rx_pos != l->rx_told ||
	    l->wrs_back != l->wrs_told)
		return true;
	/* frames bring credit too: the line may be older */
	if (atomic_load_explicit(&l->is.credit[0].consumed, memory_order_relaxed) > l->credited ||
	    atomic_load_explicit(&l->is.credit[0].executed, memory_order_relaxed) > l->executed)
		return true;
	if (flight_may_post(l))
		return true;
	if (UNLIKELY(l->way == WAY_LEFT)) /* nothing leaves before that is consumed */
		return l->credited == l->left_at;
	return !l->stalled && (!list_empty(&l->ctrl_due) || !list_empty(&l->active) ||
			       l->lines_due || answers_waiting(l));
}

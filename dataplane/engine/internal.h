/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inside an engine. Everything here is private to the engine's thread; what is shared with programs
 * (slots, tails, sleep flags, descriptors) and with peers (ring, credit line) is reached through
 * pointers and never believed. docs/decisions.md 2-6 say how it plays together.
 *
 * Who calls whom: channel.c takes slots from programs, send_queue.c keeps those that can't leave
 * yet, scheduler.c says whose turn it is, link.c builds and posts frames, frame.c takes frames
 * apart, deliver.c puts messages into sessions, control.c writes and reads control lines, credit.c
 * grants, rndv_write.c and fetch.c move what is large, conn.c knows the states.
 */
#ifndef WEIR_ENGINE_INTERNAL_H
#define WEIR_ENGINE_INTERNAL_H

#include "conn.h"
#include "datagram.h"
#include "link.h"
#include "session.h"
#include "weir/memory.h"

#include <assert.h>
#include <errno.h>

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

enum {
	CHANNEL_BUDGET = 128, /* slots of messages taken of one channel in a pass ... */
	DEAR = 16, /* ... of which any other slot, and a look at a channel, counts as so many */
	FORGIVEN = 1024,     /* rounds in which every debt is paid */
	COLD_CHANNELS = 8,   /* idle channels looked at in a pass */
	COLD_AFTER = 1024,   /* empty passes after which a channel is idle */
	HOUSEKEEPING = 256,  /* turns, a power of two */
	FRAME_LINES = 512,   /* of one frame at most ... */
	CONTROL_LINES = 128, /* ... and so many more for control lines */
	MESSAGE_LINES = 1 + WEIR_BLOCK_SIZE / WEIR_SLOT_SIZE, /* of one message at most */
	QUANTUM =
	    MESSAGE_LINES,    /* lines a connection in a round of its program: any message fits */
	WEIGHT_LINES = 13,    /* lines a program in a round of a link, times its weight */
	WEIGHT_BYTES = 6554,  /* of bulk the same: a segment at the usual weight */
	RATE_CHUNK = 16384,   /* bytes of its rate that an engine takes at a time, at most */
	BULK_SEGMENT = 65536, /* bytes of one WRITE or READ */
	LOAD_READ = 300,      /* 1/1000: so much busier is a sender that is relieved ... */
	LOAD_WRITE = 100,     /* ... until it is no more than this */
	REJECTS = 4096,	      /* answers to CONNECT that wait for room */
	CONNECTS = 4096,      /* CONNECTs that wait for main */
	NODE_EVENTS = 64,     /* kept for sessions whose ring is full */
	CREDIT_DELAY_NS = 20000, /* a reply may carry the credit; later it goes alone */
	AWAY_MOST_NS = 1000000,	 /* so much later at most, where others had the CPU */
	RETRY_NS = 200000,	 /* what needs a program's or main's room while the engine sleeps */
	ACK_WAIT_NS = 1000000,	 /* credit comes without waking: look after this long */
	KEEPALIVE_NS = 250000000, /* a link on which nothing was heard for so long is tried */
	BELL_NS = 20000,	  /* between two doorbells of a channel ... */
	BELL_SHARE = 20,	  /* part of the time that slow ones may take */
	BELL_BURST = 4,		  /* ... after so many at once */
	FULL_NS = 100000000,	  /* full receive memory is worth a line in the log ... */
	RIVALS_NS = 1000000,	  /* programs that had something within so long compete */
	REMOVE_NS = 500000000,	  /* what a dead program left behind has so long to leave */
};

#define FULL_OVER_NS 10000000000u /* ... and again when it has been free for so long */

struct reject {
	struct link *link;
	uint32_t peer_vqpn, status;
};

struct node_event {
	uint16_t node;
	uint32_t status;
};

struct engine {
	struct engine_config config;
	uint64_t now, turn;
	uint64_t keepalive_at;
	uint32_t load; /* 1/1000 */
	uint64_t away; /* ns, see engine_set_away() */
	struct conn *conns;
	struct conn_cold *cold_conns; /* the same number */
	uint32_t first_index;	      /* vqpn index of conns[0] */
	uint32_t *free_conns;	      /* stack */
	uint32_t free_count, conns_fresh;
	struct session *sessions; /* by id */
	struct link *links;
	struct list hot, cold; /* channels that had work lately; the others */
	struct list busy, backlog, bells, closing, removals;
	struct list limited;	/* struct queue: programs that have used up their rate */
	uint64_t limited_at;	/* when the first may go on */
	uint64_t crowded;	/* last turn in which a link's frame is shared out */
	struct session *latest; /* had something last */
	uint64_t rivals_until;	/* then only one had */
	uint64_t round;		/* of programs that compete */
	int64_t cost;		/* slots, of what was taken of a channel */
	bool held;		/* a channel waits for its program's next part */
	uint32_t gave;		/* channels that had something in this turn */
	bool served;		/* in this turn: programs got or gave something */
	bool delivered;		/* ... small messages, which are soon answered */
	bool news;	      /* a link's error or a session's violation that main isn't told of */
	uint32_t *srq_free;   /* receive buffers that are not posted, a stack ... */
	uint32_t srq_missing; /* ... of so many */
	struct datagrams datagrams;
	struct link_qp datagram_user;
	uint16_t node;
	uint64_t tx_messages, tx_bytes, rx_messages, rx_bytes; /* of this turn */
	struct reject *rejects;				       /* rings */
	uint32_t reject_first, reject_end;
	struct engine_event *connects;
	uint32_t connect_first, connect_end;
	struct node_event node_events[NODE_EVENTS];
	uint32_t node_event_end;
	struct engine_command *waiting; /* for room: CHANNEL_ADD, PAIR, CONN_REJECT */
	struct engine_command *done, **done_last;
	struct engine_counters counters;
};

/* Head of a slot, copied once. */
struct head {
	uint8_t op, flags;
	uint16_t order;
	uint32_t vqpn, length;
};

static inline struct head
head_load(const struct weir_slot *s)
{
	const _Atomic uint64_t *from = (const void *)s;
	uint64_t a = atomic_load_explicit(&from[0], memory_order_relaxed);
	uint64_t b = atomic_load_explicit(&from[1], memory_order_relaxed);

	return (struct head){(uint8_t)(a >> 32), (uint8_t)(a >> 40), (uint16_t)(a >> 48),
			     (uint32_t)b, (uint32_t)(b >> 32)};
}

/* Writes a head with its sequence field, which is not yet published. */
static inline void
head_store(struct weir_slot *s, uint32_t seq, struct head h)
{
	uint64_t a = (uint64_t)h.order << 48 | (uint64_t)h.flags << 40 | (uint64_t)h.op << 32 | seq;
	uint64_t b = (uint64_t)h.length << 32 | h.vqpn;

	memcpy(s, &a, 8);
	memcpy((char *)s + 8, &b, 8);
}

/* A whole line out of memory that others may write at any time: copied once. */
static inline void
line_load(struct weir_slot *to, const struct weir_slot *from)
{
	memcpy(to, from, sizeof(*to));
	atomic_signal_fence(memory_order_seq_cst); /* the compiler may not read `from` again */
}

static inline void
count(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

/* Lines of a message in a peer's ring. */
static inline uint32_t
message_lines(uint32_t length)
{
	if (length <= WEIR_INLINE_MAX)
		return weir_slots_inline(length);
	return 1 + (length + WEIR_SLOT_SIZE - 1) / WEIR_SLOT_SIZE;
}

static inline struct conn *
conn_find(struct engine *e, uint32_t vqpn)
{
	uint32_t i = WEIR_VQPN_INDEX(vqpn) - e->first_index;

	if (UNLIKELY(i >= e->conns_fresh || e->conns[i].vqpn != vqpn || !vqpn))
		return NULL;
	return &e->conns[i];
}

static inline uint32_t
conn_desc_index(const struct conn *c)
{
	const struct engine_session *s = c->session->shared;
	const uint8_t *first = s->base + weir_arena_descs(&s->geometry);

	return (uint32_t)(c->desc - (const struct weir_conn_desc *)(const void *)first);
}

/* The connection that this entry of cold things is of. */
static inline struct conn *
conn_of_cold(const struct engine *e, const struct conn_cold *cold)
{
	return &e->conns[cold - e->cold_conns];
}

/* command.c */
void engine_complete(struct engine *e, struct engine_command *c, int result);
void commands_retry(struct engine *e);
void commands_abandon(struct engine *e, const struct session *s);

/* main_events.c */
void engine_emit_pending(struct engine *e);

/* snapshot.c */
void engine_snapshot_fill(const struct engine *e, struct engine_snapshot *snapshot);

/* channel.c */
void channel_init(struct engine *e, struct session *s, uint32_t index, uint32_t doorbell,
		  bool fence);
void channel_fini(struct channel *ch);
unsigned channels_poll(struct engine *e);
void channels_housekeeping(struct engine *e);
bool channel_out_of_order(struct engine *e, const struct channel *ch);
bool channel_has_work(const struct channel *ch);

/* bell.c */
void bells_ring(struct engine *e);
uint64_t bells_next(const struct engine *e);

/* It gives or gets something: if another one did lately, they compete. */
static inline void
session_active(struct engine *e, struct session *s)
{
	if (LIKELY(e->latest == s))
		return;
	e->latest = s;
	e->rivals_until = e->now + RIVALS_NS;
}

static inline void
channel_published(struct engine *e, struct channel *ch)
{
	e->served = true;
	if (!ch->bell_due) {
		session_active(e, ch->session);
		ch->bell_due = true;
		list_append_once(&e->bells, &ch->bell);
	}
}

/* session.c */
#define RUN_CHAIN                                                                                  \
	0x80000000u /* in session.runs: not out with the program but a spill block, and the next   \
		       one */
struct session *session_find(struct engine *e, uint32_t id);
void session_violate(struct engine *e, struct session *s, const char *reason);
int session_add(struct engine *e, struct engine_session *shared);
void session_remove(struct engine *e, struct engine_command *c);
void sessions_housekeeping(struct engine *e);
void sessions_remove(struct engine *e);
bool session_release(struct engine *e, struct session *s, weir_place place);

/* conn.c */
void conn_refresh(struct conn *c);
struct conn *conn_new(struct engine *e, struct session *s, const struct engine_conn_command *k);
void conn_attach(struct engine *e, struct conn *c, struct link *l);
/* Moves a connection; asserts that the pair of states is legal. */
void conn_enter(struct conn *c, enum engine_conn_state to);
void conn_opened(struct engine *e, struct conn *c, uint32_t peer_vqpn, uint64_t granted,
		 uint32_t window);
void conn_refused(struct engine *e, struct conn *c, uint32_t status);
void conn_user_close(struct engine *e, struct conn *c, bool abort);
void conn_try_finish(struct engine *e, struct conn *c);
/* Ends it from our side: the peer gets RESET, the program CLOSED with status. */
void conn_abort(struct engine *e, struct conn *c, uint32_t status, bool refuse);
void conn_peer_ended(struct engine *e, struct conn *c, uint32_t status, bool seal);
void conn_peer_acknowledged(struct engine *e, struct conn *c);
void conn_link_failed(struct engine *e, struct conn *c, uint32_t status);
void conn_local_closed(struct engine *e, struct conn *c, uint32_t status);
/* After anything it may have waited for: tells the program, frees the entry. */
void conn_settle(struct engine *e, struct conn *c);
void conn_completed(struct engine *e, struct conn *c, uint32_t n, bool notify);

/* events.c */
void tell(struct engine *e, struct conn *c, unsigned what);
void tell_nobody(struct conn *c);
void channel_tell(struct engine *e, struct channel *ch);
bool channel_put_event(struct engine *e, struct channel *ch, const struct weir_slot *event);
void nodes_tell(struct engine *e);

/* deliver.c */
int deliver_place(struct engine *e, struct conn *c, struct head h, const struct link *l,
		  uint64_t pos);
void deliver_bulk(struct engine *e, struct conn *c, const struct rts *r);
bool channel_find_room(struct engine *e, struct channel *ch, uint32_t n);
bool peer_misbehaved(struct engine *e, struct conn *c);

/* Room for n slots in the program's ring. */
static inline bool
channel_room(struct engine *e, struct channel *ch, uint32_t n)
{
	return weir_ring_room(&ch->rx) >= n || channel_find_room(e, ch, n);
}

/* Takes messages that may be delivered off the grant. */
static inline void
admitted(struct engine *e, struct conn *c, uint64_t messages, uint64_t bytes, uint32_t cost)
{
	c->rx_delivered += cost;
	c->rx_messages += messages;
	c->session->promised -= cost;
	if (UNLIKELY(c->link->rx_send))
		c->by_send += (uint32_t)messages;
	e->rx_messages += messages;
	e->rx_bytes += bytes;
}

/* Whether a message of this cost may be delivered; takes it off the grant. */
static inline bool
admit(struct engine *e, struct conn *c, struct head h, uint32_t cost)
{
	if (UNLIKELY(!c->accepts)) {
		count(&e->counters.stray, 1);
		return false;
	}
	if (UNLIKELY((uint16_t)c->rx_messages != h.order || c->rx_granted - c->rx_delivered < cost))
		return peer_misbehaved(e, c);
	admitted(e, c, 1, h.length, cost);
	return true;
}

/* spill.c */
void spill_slots(struct engine *e, struct channel *ch, struct conn *c, const struct weir_slot *head,
		 const struct weir_slot *ring, uint32_t mask, uint64_t pos, uint32_t n);
void backlogs_drain(struct engine *e);
void channel_clog(struct engine *e, struct channel *ch);
uint64_t spill_slack(const struct channel *ch);

/* credit.c */
static inline void
credit_spend(struct conn *c, uint32_t cost)
{
	assert(c->granted - c->spent >= cost);
	c->spent += cost;
}

void credit_unspent(struct conn *c, uint32_t cost);
void credit_return(struct engine *e, struct conn *c, uint64_t granted, uint64_t consumed,
		   uint32_t window);
bool credit_consumed(struct engine *e, struct conn *c, uint64_t consumed, uint32_t percent);
void credit_wanted(struct engine *e, struct conn *c, uint32_t cost);
uint32_t credit_first(struct engine *e, struct conn *c);
void credit_reclaimed(struct engine *e, struct conn *c, uint64_t granted);
void credit_reclaim_some(struct engine *e, struct session *s);
void credit_withdraw(struct engine *e, struct conn *c);
void credit_answer_want(struct engine *e, struct conn *c);
void credit_hand_back(struct engine *e, struct conn *c);
uint32_t credit_missing(const struct conn *c);
void credit_stalled(struct engine *e, struct conn *c);
/* After receive memory has become free: serves those that wait for it. */
void session_feed(struct engine *e, struct session *s);
void session_hunger(struct engine *e, struct session *s, struct list *l, struct list *node);
/* Whether n blocks can be taken besides what is promised, `more` bytes and the reserve. */
bool session_affords(const struct session *s, uint64_t more, uint32_t n);
uint64_t session_spare(const struct session *s);

/* scheduler.c */
enum turn {
	TURN_FULL,    /* no room: it goes on from here */
	TURN_SPENT,   /* its quantum is used up */
	TURN_LIMITED, /* its rate is */
	TURN_IDLE,    /* nothing could leave any more */
};
void queues_init(struct session *s, uint32_t links);
void queue_join(struct engine *e, struct queue *q, struct list *node);
void queue_leave(struct queue *q, struct list *node);
void queue_turn(struct queue *q, uint32_t quantum);
void queue_turned(struct engine *e, struct queue *q, enum turn t);
bool share_pays(struct engine *e, struct session *s);
void share_apply(struct engine *e, struct session *s);
/* Whether it, or one above, has a rate. */
bool share_limits(const struct engine_share *share);
void shares_renew(struct engine *e);
/* Lines that this program may put into the open frame straight from its channels. */
uint32_t share_lines(struct link *l, struct session *s);
void share_pressed(struct link *l, struct session *s);
void share_frame_closed(struct engine *e, struct link *l);
/* A round of programs that compete: this one gets its part of it. */
void share_round(struct engine *e, struct session *s);

static inline struct queue *
queue_of(const struct session *s, const struct link *l, unsigned index)
{
	return &s->queues[2 * l->id + index];
}

/* The program has something in the open frame, or would have. */
static inline void
share_seen(struct link *l, struct queue *q)
{
	if (q->frame == l->frame_number)
		return;
	q->frame = l->frame_number;
	l->frame_programs++;
	l->frame_weight += atomic_load_explicit(&q->session->share->weight, memory_order_relaxed);
}

/* send_queue.c */
struct pend *pend_take(struct session *s);
void pend_give(struct session *s, struct pend *p);
bool pend_message(struct engine *e, struct conn *c, struct channel *ch, struct head h,
		  weir_place place);
bool conn_ready(const struct conn *c);
void conn_activate(struct engine *e, struct conn *c);
void conn_advance(struct engine *e, struct conn *c);
void pending_send(struct engine *e, struct link *l);
/* The payload of an inline message that waits. */
void pend_get_inline(const struct pend *p, uint8_t *to, uint32_t length);
void pend_drop(struct engine *e, struct conn *c);
void pend_delivered(struct engine *e, struct conn *c);

/* rndv_write.c */
static inline uint32_t
bulk_blocks(uint32_t length)
{
	return length ? (length + WEIR_BLOCK_SIZE - 1) / WEIR_BLOCK_SIZE : 1;
}

/* Whether blocks are set aside for it. */
static inline bool
bulk_has_place(const struct rts *r)
{
	return r->state != RTS_WAITING && r->state != RTS_REFUSED && !r->delivered;
}

void bulk_post(struct engine *e, struct link *l);
void bulk_done(struct engine *e, struct link *l);
bool bulk_may_post(const struct link *l);
void bulk_failed(struct link *l, const struct nic_wc *wc);
void bulk_resume(struct engine *e, struct link *l);
void bulk_cancel(struct conn *c);
bool bulk_put(struct engine *e, struct link *l, struct nic_send_wr *wr, struct flight f);
uint32_t bulk_rewound(uint32_t posted, uint32_t in_flight);
uint32_t bulk_ways(const struct pend *p);
void bulk_ask(struct conn *c, struct pend *p);
void bulk_rejoin(struct conn *c);
bool bulk_asked(struct engine *e, struct conn *c, const struct weir_wire_rts *rts, uint32_t length);
bool bulk_fetched(struct engine *e, struct conn *c, uint64_t number, bool delivered);
void bulk_remove(struct conn *c, uint32_t i);
bool bulk_answered(struct engine *e, struct conn *c, const struct weir_wire_cts *cts);
bool bulk_arrived(struct engine *e, struct conn *c, uint64_t number);
void bulk_place(struct engine *e, struct session *s);
void bulk_forget(struct engine *e, struct conn *c);

/* fetch.c */
bool fetch_is_better(const struct engine *e, struct link *l, const struct rts *r);
void fetch_begin(struct engine *e, struct conn *c, struct rts *r);
void fetch_next(struct engine *e, struct link *l);
bool fetch_post(struct engine *e, struct link *l);
void fetch_done(struct engine *e, struct conn *c, uint64_t number);
bool fetch_rewind(struct engine *e, struct link *l, struct conn *c, uint64_t number);

/* control.c */
void owe(struct engine *e, struct conn *c, unsigned what);
void control_send(struct engine *e, struct link *l);
int control_receive(struct engine *e, struct link *l, const struct weir_slot *s);
bool reject_later(struct engine *e, struct link *l, uint32_t peer_vqpn, uint32_t status);

/* link.c */
enum room { ROOM, ROOM_LATER, ROOM_FULL };
enum room link_find_room(struct engine *e, struct link *l, uint32_t lines);
enum room link_room_of_way(struct engine *e, struct link *l, uint32_t lines, uint8_t way);
void link_send(struct engine *e, struct link *l);
/* A QP of it failed, or (RING) the peer broke the rules. */
void link_break(struct engine *e, struct link *l, unsigned index, uint32_t error,
		uint32_t wc_status);
/* The open frame gets its head; it leaves with the next replay. */
void link_seal(struct engine *e, struct link *l);
bool link_credit(struct engine *e, struct link *l, uint64_t consumed, uint64_t wrs);
int link_add(struct engine *e, const struct engine_link_command *k);
int link_fail(struct engine *e, const struct engine_link_command *k);
bool link_is_pressing(const struct link *l);
void links_keepalive(struct engine *e);
bool links_need_keepalive(const struct engine *e);
void link_put_inline(struct link *l, struct head h, const uint8_t *from);
void link_put_place(struct link *l, struct head h, const uint8_t *from);
struct weir_slot *link_put_line(struct link *l);

static inline struct weir_slot *
link_at(const struct link *l, uint64_t pos)
{
	return &l->staging[pos & l->mask];
}

/* Room for a message of so many lines in the frame of this pass, which is opened if need be. */
static inline enum room
link_room(struct engine *e, struct link *l, uint32_t lines)
{
	if (LIKELY(l->tx_pos + lines <= l->tx_limit))
		return ROOM;
	return link_find_room(e, l, lines);
}

/* The same for a message with these flags: it may have to go into a frame of its kind. */
static inline enum room
link_room_for(struct engine *e, struct link *l, uint32_t lines, uint8_t flags)
{
	if (UNLIKELY(flags & (WEIR_SLOT_SEND | WEIR_SLOT_RING)))
		return link_room_of_way(e, l, lines, flags);
	return link_room(e, l, lines);
}

/* Messages of c are put into the open frame. */
static inline void
link_count(const struct link *l, struct conn *c, uint32_t messages)
{
	if (UNLIKELY(l->by_send))
		c->by_send += messages;
}

/* Messages of c have been put: they complete when the peer has consumed up to here. */
static inline void
link_sent(struct link *l, struct conn *c, uint32_t messages, bool notify)
{
	struct run *r = l->run;

	c->sent += messages;
	if (LIKELY(r && r->conn == c)) {
		r->end = (uint32_t)l->tx_pos;
		r->count += messages;
		r->notify |= notify;
		return;
	}
	share_seen(l, queue_of(c->session, l, RING));
	l->run = r = &l->runs[l->run_end++ & l->mask];
	*r = (struct run){
	    .end = (uint32_t)l->tx_pos, .count = messages, .notify = notify, .conn = c};
}

static inline void
link_busy(struct engine *e, struct link *l)
{
	list_append_once(&e->busy, &l->busy);
}

/* repair.c */
int link_pause(struct engine *e, struct engine_link_command *k);
int link_resume(struct engine *e, const struct engine_link_command *k);
int link_go(struct engine *e, const struct engine_link_command *k);
void link_heard(struct engine *e, struct link *l);

/* frame.c */
bool frame_receive(struct engine *e, struct link *l, uint32_t lines);
bool frame_receive_sent(struct engine *e, struct link *l, const uint8_t *frame, uint32_t lines);

#include "region.h"

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inside an engine. Everything here is private to the engine's thread; what is shared with programs
 * (slots, tails, sleep flags, descriptors) and with peers (ring, credit line) is reached through
 * pointers and never believed. docs/decisions.md 2-6 say how it plays together.
 *
 * Who calls whom: channel.c takes slots from programs, pending.c keeps those that can't leave yet,
 * link.c builds and posts frames, frame.c takes frames apart, deliver.c puts messages into
 * sessions, control.c writes and reads control lines, credit.c grants, bulk.c and fetch.c move what
 * is large, conn.c knows the states.
 */
#ifndef WEIR_ENGINE_INTERNAL_H
#define WEIR_ENGINE_INTERNAL_H

#include "common/block.h"
#include "datagram.h"
#include "engine.h"
#include "weir/memory.h"
#include "list.h"

#include <assert.h>
#include <errno.h>

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

enum {
	CHANNEL_BUDGET = 128, /* slots taken of one channel in a pass */
	COLD_CHANNELS = 32,   /* idle channels looked at in a pass */
	COLD_AFTER = 4096,    /* empty passes after which a channel is idle */
	HOUSEKEEPING = 256,   /* turns, a power of two */
	FRAME_LINES = 512,    /* of one frame at most ... */
	CONTROL_LINES = 128,  /* ... and so many more for control lines */
	MESSAGE_LINES = 1 + WEIR_BLOCK_SIZE / WEIR_SLOT_SIZE, /* of one message at most */
	QUANTUM = MESSAGE_LINES, /* lines a round of the deficit round robin: any message fits */
	RTS_MAX = 8,		 /* bulk messages of a connection under way */
	BULK_SEGMENT = 65536,	 /* bytes of one WRITE or READ */
	BULK_FLIGHT = 8,	 /* of a link */
	LOAD_READ = 300,	 /* 1/1000: so much busier is a sender that is relieved ... */
	LOAD_WRITE = 100,	 /* ... until it is no more than this */
	REJECTS = 4096,		 /* answers to CONNECT that wait for room */
	CONNECTS = 4096,	 /* CONNECTs that wait for main */
	NODE_EVENTS = 64,	 /* kept for sessions whose ring is full */
	CREDIT_DELAY_NS = 20000, /* a reply may carry the credit; later it goes alone */
	RETRY_NS = 200000,	 /* what needs a program's or main's room while the engine sleeps */
	ACK_WAIT_NS = 1000000,	 /* credit comes without waking: look after this long */
	KEEPALIVE_NS = 250000000, /* a link on which nothing was heard for so long is tried */
	BELL_NS = 20000,	  /* between two doorbells of a channel ... */
	BELL_BURST = 4,		  /* ... after so many at once */
	REMOVE_NS = 500000000,	  /* what a dead program left behind has so long to leave */
};

/* Control lines that a connection owes its peer, in the order in which they are written. */
enum owed {
	OWE_CONNECT = 0x1,
	OWE_ACCEPT = 0x2,
	OWE_GRANT = 0x4,
	OWE_RECLAIM = 0x8, /* no GRANT between this and its answer */
	OWE_RECLAIMED = 0x10,
	OWE_STALLED = 0x20,
	OWE_RTS = 0x40,
	OWE_CTS = 0x80,
	OWE_FIN = 0x100,
	OWE_RESET = 0x200,
	OWE_FIN_ACK = 0x400,
};

/* Events that a program will get about a connection. */
enum tell {
	TELL_OPENED = 0x1,
	TELL_ACCEPTED = 0x2,
	TELL_WRITABLE = 0x4,
	TELL_DONE = 0x8,
	TELL_CLOSED = 0x10,
};

enum pend_state {
	PEND_MESSAGE, /* goes into the ring when the window lets it */
	PEND_BULK,    /* by rendezvous: no RTS yet */
	PEND_ASKED,   /* RTS has left */
	PEND_WRITING, /* CTS has come */
	PEND_WRITTEN, /* all of it acknowledged: BULK may leave */
};

/* A slot that waits; the continuations of an inline message follow their head. */
struct pend {
	struct weir_slot slot;
	struct pend *next;
	struct conn *conn;
	/* bulk */
	struct list writing; /* in link.writing */
	uint64_t number, remote;
	uint32_t rkey, written;
	uint32_t in_flight; /* WRITEs */
	uint8_t state;	    /* enum pend_state */
	bool fetched;	    /* the peer has read it */
	uint16_t region;    /* of its payload, which it keeps; 0: the arena */
};

enum rts_state {
	RTS_WAITING,
	RTS_PLACED, /* CTS is due */
	RTS_ANSWERED,
	RTS_REFUSED,
	RTS_READING, /* READs leave, or are under way */
	RTS_READ,    /* all there: FETCHED is due */
	RTS_FETCHED,
};

/* A bulk message that the peer announced. */
struct rts {
	uint64_t number, address; /* address: at the peer */
	weir_place place;	  /* a run of receive blocks, or posted memory; when placed */
	uint32_t length;
	uint32_t rkey;
	uint32_t posted;   /* bytes that READs have been posted for */
	uint8_t in_flight; /* of those READs */
	uint8_t state;	   /* enum rts_state */
	uint8_t ways;	   /* WEIR_RTS_* */
	bool waited;	   /* there was no memory for it at first */
	bool delivered;	   /* the peer isn't told yet */
};

struct conn {
	/* sending */
	uint32_t vqpn; /* 0: entry unused */
	uint16_t generation;
	uint8_t state;	  /* enum engine_conn_state */
	bool fast;	  /* a message may go straight into the frame */
	bool accepts;	  /* what the peer sends is delivered */
	bool user_closed; /* the program closed it, or died */
	bool abort;	  /* ends with RESET, not FIN */
	bool refuses;	  /* the peer broke the rules: nothing of it is delivered any more */
	bool reset_sent;
	bool sealed;	  /* `completed` is final */
	bool closed_told; /* CLOSED is in the program's ring, or nobody is there to read it */
	bool stall_told;  /* STALLED has left, no GRANT since */
	bool wants;	  /* WANT has no answer yet */
	bool in_turn;	  /* has its quantum of this round */
	uint32_t peer_vqpn;
	struct link *link; /* NULL: none yet, local, or the link has failed */
	struct session *session;
	uint64_t taken;		 /* messages taken from the program */
	uint64_t granted, spent; /* cost; the peer's grant, what left against it */
	uint64_t sent;		 /* messages that left */
	uint64_t landed;	 /* of those: out of the peer's ring */
	uint64_t completed;
	uint64_t done_at; /* DONE is due until so many are complete, 0: it isn't */
	struct weir_conn_desc *desc;
	uint64_t returned; /* cost that the peer consumed, as it said with its last GRANT */
	uint32_t peer_window;
	uint32_t wanted;		     /* cost of WANT */
	struct pend *pend_first, *pend_last; /* slots that wait, in order */
	uint32_t pend_cost;		     /* of those that are not bulk */
	struct pend *rts_next;		     /* first bulk message whose RTS has not left */
	struct pend *asked[RTS_MAX];	     /* those whose RTS has left, oldest first */
	uint32_t asked_count;
	uint32_t bulk_flight; /* WRITEs and READs in flight, or of unknown outcome until the link is
				 repaired */
	bool bulk_refused;    /* the peer's NIC refused one: it isn't repeated */
	bool forget;	      /* bulk_forget() waits for READs in flight */
	uint32_t deficit;     /* lines */
	uint32_t by_write, by_read; /* bulk messages sent and received */
	uint32_t by_send;	    /* messages of frames that went, and came, by SEND */
	uint32_t owed;		    /* enum owed */

	/* receiving */
	struct channel *channel; /* where its events go */
	uint64_t rx_granted, rx_delivered,
	    rx_consumed; /* cost: granted to the peer, put into the session, taken by the program */
	uint64_t rx_told;     /* rx_consumed when credit was last returned */
	uint64_t rx_grown;    /* rx_consumed when the window last changed with traffic */
	uint64_t rx_messages; /* delivered */
	uint64_t rx_seen;     /* rx_delivered when reclaim looked last */
	uint32_t rx_window, rx_window_max;
	uint32_t rx_wanted; /* cost that the peer waits for */
	uint32_t spilled;   /* messages of it in receive blocks for want of ring */
	bool reclaiming;    /* RECLAIM without an answer: no GRANT leaves */
	uint8_t tell;	    /* enum tell */
	uint8_t rts_first, rts_count;
	bool lent; /* the peer may still READ adopted memory of messages that were given up */
	struct pend *post_first, *post_last; /* memory that the program posted, by number */
	uint64_t post_next;		     /* the next one has at least this number */
	bool datagram; /* by the queue pair for datagrams: no window, no order, no repetition */
	uint16_t mtu;  /* its largest message */
	union {
		struct rts rts[RTS_MAX];
		struct {		  /* datagram */
			uint64_t newest;  /* number that came last of all, 0 none */
			uint64_t came;	  /* bit i: newest - i has come */
			uint64_t dropped; /* no room */
			uint32_t qpn;	  /* of ours that the peer was told */
		};
	};

	/* set at opening */
	uint32_t desc_index, segment, conn_index, listener;
	uint32_t status; /* errno of OPENED or CLOSED */
	uint16_t peer_node;
	bool local;	 /* both ends on this host */
	bool local_told; /* main knows that our local end closed, or that the other did */
	bool refused;	 /* never opened: OPENED says why */
	bool gone;	 /* nothing refers to it: main is told, then the entry is free */
	uint32_t was;	 /* its vqpn then */
	char service[WEIR_SERVICE_MAX];

	struct list of_session, of_link;
	struct list active;   /* in link.active: the first that waits may leave */
	struct list owing;    /* in link.owing */
	struct list fetching; /* in link.fetching */
	struct list telling;  /* in channel.telling */
	struct list starving; /* in session.starving: wants grant that isn't there */
	struct list placing;  /* in session.placing: wants a place for a bulk message */
	struct list closing;  /* in engine.closing: main isn't told yet */
};

/* Messages of one connection, in a row, that complete when the peer has consumed up to `end`. */
struct run {
	uint32_t end; /* low bits of the ring position */
	uint32_t count : 31;
	uint32_t notify : 1;
	struct conn *conn;
};

enum { RING, BULK, DATAGRAM }; /* index of a link's QP; the engine's one for datagrams */

#define PROOF_DUE UINT64_MAX

struct flight { /* a WRITE or READ */
	struct conn *conn;
	struct pend *pend; /* NULL: a READ of message `number` */
	uint64_t number;
};

struct link_qp { /* nic_qp_init.user */
	struct link *link;
	unsigned index;
};

struct link {
	/* sending; positions are in lines since the link is up */
	struct weir_slot *staging;
	uint32_t mask;
	bool up, broken;    /* broken: nothing uses the ring's QP */
	bool bulk_broken;   /* the same of the second */
	uint8_t hold;	    /* enum weir_resume: QPs on which nothing may leave yet */
	bool replaying;	    /* frames from `replay` on leave again, before all else */
	bool bulk_unproven; /* no bulk WRITE has succeeded since some were repeated */
	uint64_t replay;
	uint64_t proof;	   /* WR after all repeated frames: 0 succeeded, PROOF_DUE not posted yet */
	bool stalled;	   /* something didn't fit; until credit comes */
	bool stall_told;   /* the peer knows */
	uint64_t tx_pos;   /* next line to write */
	uint64_t tx_limit; /* of this frame; 0: no frame is open */
	uint64_t tx_posted;		 /* end of the last frame that was closed */
	uint64_t frame_at;		 /* head of the open frame */
	uint32_t frame_max;		 /* lines */
	bool by_send;			 /* it leaves by SEND */
	bool send_next;			 /* somebody waits for such a one */
	uint64_t credited;		 /* what the peer has consumed */
	uint64_t wrs_used, wrs_credited; /* receive WRs of the peer: used; given back */
	struct run *runs;		 /* ring of mask + 1, FIFO */
	struct run *run;		 /* the last one of the open frame */
	uint32_t run_first, run_end;
	struct list active; /* connections in deficit round robin */
	struct list owing;
	struct list busy; /* in engine.busy */
	uint64_t sq_posted[2], sq_done[2], sq_signaled[2];
	struct nic_send_wr frame[2]; /* of the frame being posted */
	uint32_t frame_wrs, frame_posted;
	struct list writing;  /* bulk: struct pend that have segments to post */
	struct list fetching; /* connections that have segments to read */
	struct flight in_flight[BULK_FLIGHT];
	uint32_t flight_first, flight_end;

	/* receiving */
	struct weir_slot *ring;
	uint32_t ring_mask;
	/* what the frame at hand is taken out of: the ring, or what was sent */
	const struct weir_slot *rx;
	uint32_t rx_mask;
	bool rx_send;
	bool peer_stalled; /* return credit with a wake-up */
	uint64_t rx_pos;   /* consumed so far */
	uint64_t rx_told;  /* consumed, as the peer knows */
	uint64_t wrs_seen, wrs_back,
	    wrs_told;	     /* of ours: used by the peer; posted again; as the peer knows */
	uint64_t credit_due; /* when credit leaves alone; UINT64_MAX: nothing to return */
	uint64_t snap_consumed, snap_wrs;
	bool snapped;
	uint64_t heard_at;  /* a completion or credit came */
	bool silent;	    /* for too long: main isn't told yet */
	uint32_t peer_load; /* of its engine, 1/1000, as the last frame said */
	bool fetches;	    /* what is large is read, not written, where either may be */

	/* datagrams */
	struct nic_ah *ah;
	struct weir_wire_datagram datagrams_to; /* where the peer takes them */
	uint64_t last_datagram;			/* WR of the engine's QP, 0 none */
	bool failing;				/* LINK_FAIL waits for it */

	uint32_t id;
	struct engine_link_command is; /* private copy of the command */
	struct list conns;
	struct link_qp user[2];
	uint32_t qpn[2];
	uint32_t error, error_wc, error_qpn; /* error not 0: main isn't told yet */
	bool heard;			     /* the same of LINK_HEARD */
	uint64_t frames_sent, frames_received;
};

struct channel {
	struct session *session; /* NULL: doesn't exist */
	struct weir_ring tx, rx, returns;
	struct weir_channel_head *head;
	uint32_t empty; /* passes without work */
	bool clogged;	/* what arrives for it is spilled: order */
	bool blocked;	/* its head waits for an earlier message or for room in the engine */
	bool bell_due;	/* published since the bell was last looked at */
	bool fence;
	uint32_t doorbell;
	uint64_t bell_at; /* theoretical arrival time of the next doorbell */
	uint32_t opening; /* connections whose OPENED or ACCEPTED waits for room */
	/* spilled slots: a chain of receive blocks */
	uint32_t spill_first, spill_last; /* blocks */
	uint32_t spill_from, spill_to;	  /* slots in those */
	uint32_t spill_count;
	struct list telling; /* connections with events */
	struct list polled;  /* in engine.hot or engine.cold */
	struct list backlog; /* in engine.backlog */
	struct list bell;    /* in engine.bells */
};

/* A program's own memory, adopted. */
struct region {
	uint8_t *base; /* NULL: none */
	uint64_t bytes;
	uint32_t flags; /* WEIR_ADOPT_* */
	uint32_t users; /* messages under way that lie, or will lie, in it */
	bool leaving;	/* no more of them */
	struct nic_mr mr;
};

struct session {
	struct engine_session *shared; /* NULL: entry unused */
	uint8_t *base;
	struct channel *channels;
	struct weir_blocks blocks;
	uint32_t *runs; /* length of the run that is out with the program, at its first block; chain
			   of spill blocks */
	uint64_t recv_at, send_at, send_end; /* offsets in the arena */
	uint64_t promised;		     /* bytes of receive memory that may arrive unasked */
	uint32_t reserve;		     /* blocks kept for starting spills, one a channel */
	struct pend *pool, *pool_free;
	uint32_t pool_size, pool_fresh, pool_used;
	uint32_t posted;	/* of those: posted memory */
	struct region *regions; /* adopted memory: region i is regions[i - 1] */
	uint32_t region_count;
	uint32_t lent; /* connections that are so */
	struct list conns, starving, placing;
	struct list *reclaim_next;
	bool deaf; /* its channels aren't polled */
	bool violated, tell_violation;
	bool hungry;   /* somebody waits for receive memory */
	bool adding;   /* of these: a new channel */
	bool draining; /* being removed: its channels are emptied first */
	uint64_t deadline;
	uint32_t node_seen;  /* of engine.node_events */
	struct list removal; /* in engine.removals */
	struct engine_command *remove;
	const char *reason;
};

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
	struct conn *conns;
	uint32_t first_index; /* vqpn index of conns[0] */
	uint32_t *free_conns; /* stack */
	uint32_t free_count, conns_fresh;
	struct session *sessions; /* by id */
	struct link *links;
	struct list hot, cold; /* channels that had work lately; the others */
	struct list busy, backlog, bells, closing, removals;
	bool served;	      /* in this turn: programs got or gave something */
	bool delivered;	      /* ... small messages, which are soon answered */
	bool news;	      /* a link's error or a session's violation that main isn't told of */
	uint32_t *srq_free;   /* receive buffers that aren't posted, a stack ... */
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

/* command.c */
void engine_complete(struct engine *e, struct engine_command *c, int result);
void commands_retry(struct engine *e);
void commands_abandon(struct engine *e, const struct session *s);

/* emit.c */
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

static inline void
channel_published(struct engine *e, struct channel *ch)
{
	e->served = true;
	if (!ch->bell_due) {
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

/* tell.c */
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

void credit_return(struct engine *e, struct conn *c, uint64_t granted, uint64_t consumed,
		   uint32_t window);
bool credit_consumed(struct engine *e, struct conn *c, uint64_t consumed);
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
void session_hunger(struct session *s, struct list *l, struct list *node);
/* Whether n blocks can be taken besides what is promised, `more` bytes and the reserve. */
bool session_affords(const struct session *s, uint64_t more, uint32_t n);
uint64_t session_spare(const struct session *s);

/* pending.c */
struct pend *pend_take(struct session *s);
void pend_give(struct session *s, struct pend *p);
bool pend_message(struct engine *e, struct conn *c, struct channel *ch, struct head h,
		  weir_place place);
bool conn_ready(const struct conn *c);
void conn_activate(struct engine *e, struct conn *c);
void conn_advance(struct engine *e, struct conn *c);
void pending_send(struct engine *e, struct link *l);
void pend_drop(struct engine *e, struct conn *c);
void pend_delivered(struct engine *e, struct conn *c);

/* bulk.c */
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

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A link, this engine's half of it: two queue pairs to an engine of a peer, the ring and the
 * staging of each direction, and the turns of programs that send over it.
 */
#ifndef WEIR_ENGINE_LINK_H
#define WEIR_ENGINE_LINK_H

#include "engine.h"
#include "base/list.h"
#include "flight.h"
#include "state.h"

struct conn;
struct queue;

enum { RING, BULK, DATAGRAM }; /* index of a link's QP; of the engine's QP for datagrams */

#define PROOF_DUE UINT64_MAX

/* The end of a link that no connection uses: docs/protocol.md 2. */
enum link_end {
	LINK_GOES_ON,
	LINK_ASKED,  /* LINK_CLOSE is due or has left: the peer answers */
	LINK_AGREED, /* neither end has a connection: our last line is due, or not acknowledged */
	LINK_OVER,   /* and it was: nothing is sent or taken any more */
};

/* The memory of our ring: docs/protocol.md 2, rings of idle peers. */
enum link_ring {
	RING_SETTLED, /* the peer writes into it */
	RING_WANTED,  /* main is asked for a larger one */
	RING_OFFERED, /* LINK_RING is due or has left: the peer may still write into the old one */
};

/* The memory of the peer's ring, and the staging that mirrors it. */
enum link_way {
	WAY_SETTLED,
	WAY_ASKED,   /* the peer offers other memory, main is asked for a staging */
	WAY_LEAVING, /* LINK_LEFT is due */
	WAY_LEFT,    /* it has left: nothing follows before the peer has consumed it */
};

/* Lines of a link itself that are due. */
enum {
	LINK_LINE_CLOSE = 0x1,
	LINK_LINE_CLOSED = 0x2,
	LINK_LINE_STAYS = 0x4,
	LINK_LINE_RING = 0x8,
	LINK_LINE_LEFT = 0x10,
};

/* News of a link that main isn't told yet, besides peer_link.error, .heard and .silent. */
enum {
	LINK_NEWS_IDLE = 0x1,
	LINK_NEWS_CLOSED = 0x2,
	LINK_NEWS_STAYS = 0x4,
	LINK_NEWS_RINGS = 0x8,
};

/* Consecutive messages of one connection that complete when the peer has consumed up to `end`. */
struct run {
	uint32_t end; /* low bits of the ring position */
	uint32_t count : 31;
	uint32_t notify : 1;
	struct conn *conn;
};

/* An operation of ours that has left. */
struct awaited {
	uint32_t number; /* low bits of its count on the connection, from 0 */
	uint32_t result; /* place of the answer: offset in the arena / 64 */
	uint16_t length; /* of the answer */
	uint16_t next;	 /* 1 + index of the next one of the connection, or that is free; 0: none */
};

enum {
	LINK_AWAITED = 2048, /* as many answers as the default of --answers has room for */
};

/* Memory of a link that stays while its rings change; pages of it are touched on use. */
struct link_pools {
	struct flight_queue flights;
	struct awaited awaited[LINK_AWAITED];
};

/*
 * The engine's thread alone reads and writes it, but for `user`, which main fills in before the
 * link is up (engine_link_user()). Shared are the memory of rings, stagings and credit lines, which
 * lie elsewhere. So fields are grouped by what uses them, a cache line per group: a frame that is
 * sent and one that is received take the first six, and the line of `is` that frames read. Fields
 * of larger messages, answers and rare lines are behind them. Positions are in lines since the link
 * is up.
 */
struct peer_link {
	/* read in each turn while the link is busy, for new credit and for what may leave; written
	 * by frames of both directions */
	_Alignas(WEIR_SLOT_SIZE) struct list_node busy; /* in engine.busy: sends, or awaits credit
							   or owes some */
	uint64_t tx_limit;     /* end of the open frame; 0: no frame is open */
	uint64_t credit_due;   /* ns: credit leaves without a frame then; UINT64_MAX: none to return
				*/
	uint64_t credited;     /* lines that the peer has consumed: room */
	uint64_t executed;     /* of these, lines whose messages have taken effect, or never will */
	uint64_t wrs_credited; /* receive WRs of the peer: given back */
	bool up, broken;       /* broken: nothing uses the ring's QP */
	uint8_t hold;	       /* enum weir_resume: QPs on which nothing may leave yet */
	bool look;	       /* more than the open frame may be there to send */
	bool snapped;	       /* the credit line has brought what `snap_*` say */
	bool stalled;	       /* a message found no room in the ring; until credit comes */
	bool stall_told;       /* the peer knows */
	bool prompt;	       /* the next frame asks for credit at once: a program flushes */

	/* read and written per frame sent: where it is built */
	_Alignas(WEIR_SLOT_SIZE) struct weir_slot *staging;
	uint32_t mask;
	uint32_t frame_max; /* lines */
	uint64_t tx_pos;    /* next line to write */
	uint64_t tx_posted; /* end of the last frame that was closed */
	uint64_t frame_at;  /* head of the open frame */
	uint64_t wrs_used;  /* receive WRs of the peer */
	struct run *runs;   /* ring of mask + 1, FIFO */
	struct run *run;    /* the last one of the open frame */

	/* read and written per frame sent: programs that have room in it. The bytes at the end:
	 * per frame of either direction */
	_Alignas(WEIR_SLOT_SIZE) uint32_t run_first;
	uint32_t run_end;
	struct list_node active; /* struct queue: programs in deficit round robin */
	uint32_t frame_number;
	uint32_t frame_programs, frame_weight; /* programs that have, or wanted, room in it */
	uint32_t last_weight;		       /* frame_weight of the last frame */
	uint64_t left_wr;   /* as last_wr, of LINK_LEFT, until the way is settled */
	uint32_t frame_wrs; /* WRs of a closed frame in `frame`, not posted yet */
	bool by_send;	    /* the open frame leaves by SEND */
	bool send_next;	    /* the next frame must leave by SEND: a message waits for it */
	bool overfull;	    /* a program found no room left */
	bool split;	    /* the last frame was too small for all: each program has its part */
	bool replaying;	    /* frames from `replay` on leave again, before all else */
	uint8_t way;	    /* enum link_way */
	uint8_t lines_due;  /* LINK_LINE_* */
	bool rx_send;	    /* the frame at hand is in the buffer of a SEND */
	bool ring_least;    /* the ring is is.least.ring: it grows when messages come */
	bool peer_stalled;  /* return credit with a wake-up */
	bool peer_prompts;  /* return credit in this turn */
	bool bulk_broken;   /* nothing uses the second QP */

	/* written by posts and completions; read, as are answers that wait, with each credit */
	_Alignas(WEIR_SLOT_SIZE) uint64_t sq_posted[2];
	uint64_t sq_done[2];
	uint64_t sq_signaled; /* of RING */
	uint64_t proof;	  /* WR after all repeated frames: 0 succeeded, PROOF_DUE not posted yet */
	uint64_t last_wr; /* WR that brings LINK_CLOSE or LINK_CLOSED: 0 none, or PROOF_DUE */
	uint32_t answers_first, answers_end; /* lines in is.answers; both 0: none wait */

	/* read and written per frame received */
	_Alignas(WEIR_SLOT_SIZE) const struct weir_slot *rx; /* source of the frame at hand: the
								ring, or a SEND's buffer */
	uint64_t rx_pos;				     /* consumed so far */
	uint64_t rx_told;				     /* consumed, as the peer was told */
	uint64_t wrs_seen, wrs_back,
	    wrs_told; /* of ours: used by the peer; posted again; as the peer knows */
	uint32_t rx_mask, ring_mask;
	uint32_t qpn[2];

	/* read and written per completion, whose qp_user is an entry of `user` */
	_Alignas(WEIR_SLOT_SIZE) struct link_qp user[2];
	uint64_t heard_at; /* ns: the last completion or credit came */
	uint64_t frames_sent, frames_received;
	uint32_t peer_load; /* of its engine, 1/1000, as the last frame said */
	/* Lines from held_at on, if there are `holds`, are consumed without effect: connections
	 * whose RESET, which says so, has not left. */
	uint32_t holds;

	/* private copy of the command: its second line is read per frame, written by commands and
	 * where rings change; the rest is read by commands and rare lines */
	_Alignas(WEIR_SLOT_SIZE) struct engine_link_command is;

	/* what link_send() looks for beside the open frame */
	_Alignas(WEIR_SLOT_SIZE) struct list_node ctrl_due;
	struct list_node writing; /* struct queue: programs with bulk segments to write */
	struct list_node reading; /* connections that have segments to read */
	struct list_node to_read; /* connections that get receive memory next, in placing order */

	/* large messages, and answers to operations on remote memory: answer.h */
	_Alignas(WEIR_SLOT_SIZE) struct flight_queue *flights;
	uint32_t flight_bytes;	     /* of WRITEs and READs in flight, with the burst */
	uint32_t burst, burst_bytes; /* the newest WRs of them, not posted yet */
	struct {
		uint16_t first, last, count; /* indices in engine.rejects */
	} rejects;
	bool unanswered;    /* a rejection found no place: the link is not repaired any more */
	bool bulk_unproven; /* no bulk WRITE has succeeded since some were repeated */
	bool prefers_read;  /* large messages are read, not written, where either is allowed */
	uint16_t awaited_free, awaited_fresh; /* 1 + index, 0: none; from here on never used */
	struct awaited *awaited;	      /* LINK_AWAITED entries */
	uint32_t awaited_left;	       /* that no operation has, also none that is paid and waits */
	uint64_t answer_room;	       /* bytes that the peer may still be asked for */
	struct list_node lack_answers; /* connections whose first operation lacks some of that */

	/* credit that only the credit line has brought */
	uint64_t snap_consumed, snap_wrs, snap_executed;
	/* faults and repair */
	struct nic_send_wr frame[2]; /* WRs that the QP did not take at once: frame_wrs */
	uint64_t replay;
	uint64_t held_at;
	uint32_t error, error_wc, error_qpn; /* error not 0: main isn't told yet */
	bool heard;			     /* main isn't told LINK_HEARD yet */
	bool silent;			     /* no answer for too long: main isn't told yet */
	bool failing;			     /* LINK_FAIL waits for last_datagram */
	uint8_t end;			     /* enum link_end */
	uint8_t news;			     /* LINK_NEWS_* */
	struct list_node telling;	     /* in engine.link_news */
	/* connections; probes of a silent peer */
	struct list_node conns;
	struct list_node in_use; /* in engine.links_in_use */
	uint64_t asked_at;	 /* ns: the last keepalive left */
	uint32_t asked;		 /* keepalives in a row without an answer */

	/* datagrams */
	struct nic_ah *ah;
	struct weir_wire_datagram datagrams_to; /* where the peer takes them */
	uint64_t last_datagram;			/* WR of the engine's QP, 0 none */

	/* memory of rings that changes */
	struct weir_slot *ring;
	uint8_t ring_state;  /* enum link_ring */
	bool ring_denied;    /* main had no memory since the last look: it is not asked again */
	uint64_t ring_since; /* rx_pos at the last look, or when the ring changed */
	struct {
		struct weir_slot *at;
		uint32_t lines;
		struct nic_mr mr;
	} next_ring; /* OFFERED */
	struct {
		struct weir_slot *staging;
		struct run *runs;
		struct nic_mr mr;
		uint64_t address;
		uint32_t rkey, lines;
	} next_way;		    /* not SETTLED; ASKED: without staging */
	struct weir_wire_ring then; /* LEFT: the peer has offered the next one; lines 0: no */
	uint64_t left_at;	    /* LEFT: position behind LINK_LEFT */
	uint32_t
	    staging_lines; /* room in the staging: mask + 1, or more than the peer's ring has */
};

#define LINE_OF(field) (offsetof(struct peer_link, field) / WEIR_SLOT_SIZE)
static_assert(LINE_OF(prompt) == 0 && LINE_OF(run) == 1 && LINE_OF(bulk_broken) == 2 &&
		  LINE_OF(answers_end) == 3 && LINE_OF(qpn[1]) == 4 && LINE_OF(holds) == 5,
	      "a group of fields is a cache line");
static_assert(LINE_OF(is) == 6 &&
		  offsetof(struct peer_link, is.staging_mr.lkey) == 7 * WEIR_SLOT_SIZE &&
		  LINE_OF(is.link) == 7,
	      "what a frame needs of the command is a cache line");
#undef LINE_OF

int link_add(struct engine *e, const struct engine_link_command *k);
/* -EAGAIN: datagrams that name the address handle have not left yet. */
int link_fail(struct engine *e, const struct engine_link_command *k);
/* A QP of the link failed, or (RING) the peer broke the rules. */
void link_break(struct engine *e, struct peer_link *l, unsigned index, uint32_t error,
		uint32_t wc_status);
/* The sending half of a turn: posts at most one frame. */
void link_send(struct engine *e, struct peer_link *l);
/* Frames have come: credit is owed to the peer. */
void link_owes(struct engine *e, struct peer_link *l);
/* Whether something but an open frame waits for the next turn of link_send(). */
bool link_has_rest(const struct peer_link *l);
/* The peer returns credit, by frame or by credit line. False: it may not return that. */
bool link_credit(struct engine *e, struct peer_link *l, uint64_t consumed, uint64_t wrs,
		 uint64_t executed);
/* Of our rx_pos, what the peer may take for executed. */
static inline uint64_t
link_executed(const struct peer_link *l)
{
	return UNLIKELY(l->holds) && l->held_at < l->rx_pos ? l->held_at : l->rx_pos;
}
/* Whether work could be done now that sleeping would leave undone. */
bool link_is_pressing(const struct peer_link *l);
void links_keepalive(struct engine *e);
/* A connection of the link is there, or has left it. */
void link_join(struct engine *e, struct peer_link *l, struct list_node *of_link);
void link_leave(struct engine *e, struct peer_link *l, struct list_node *of_link);
/* Probes the peer from now on if the link has connections, or waits for an answer to LINK_CLOSE. */
void link_watch(struct engine *e, struct peer_link *l);
/* Main must hear of the link. */
void link_tell(struct engine *e, struct peer_link *l);

/* ---- its end in order ---- */

int link_close(struct engine *e, const struct engine_link_command *k);
/* A line of the link itself came. False: no peer of ours sends this now. */
bool link_line_receive(struct engine *e, struct peer_link *l, const struct weir_slot *s);
/* Writes lines of the link itself, as far as the frame has room. */
void link_lines_send(struct engine *e, struct peer_link *l);
/* Both ends have agreed, and our last line has arrived, or may not arrive any more. */
void link_over(struct engine *e, struct peer_link *l);

/* ---- its rings ---- */

/* LINK_RING and LINK_STAGING. */
int link_ring(struct engine *e, const struct engine_link_command *k);
int link_staging(struct engine *e, const struct engine_link_command *k);
/* Withdraws the rings into which peers have written little since the last look. */
void links_look(struct engine *e);
/* The peer has written into the least ring: it gets a larger one again, if that was much. */
void link_look(struct engine *e, struct peer_link *l);
/* LINK_RING or LINK_LEFT came. False: no peer of ours sends this now. */
bool link_ring_receive(struct engine *e, struct peer_link *l, const struct weir_slot *s);
/* Writes LINK_RING or LINK_LEFT (enum link line) where the frame has room. */
void link_ring_put(struct engine *e, struct peer_link *l, uint8_t line);
/* LEFT: goes on in the other memory if nothing needs the old any more. */
void link_way_settle(struct engine *e, struct peer_link *l);
void link_rings_fill(const struct peer_link *l, struct engine_rings *r);

/* ---- repair ---- */

/* Main has moved these QPs to ERR and will destroy them: their completions no longer count. */
int link_pause(struct engine *e, struct engine_link_command *k);
int link_resume(struct engine *e, const struct engine_link_command *k);
int link_go(struct engine *e, const struct engine_link_command *k);
/* The peer writes into the ring: it has resumed. */
void link_heard(struct engine *e, struct peer_link *l);

/*
 * Asks for the cache lines that a frame of this link will take, while another link is worked on: in
 * loops whose body is too long for the CPU to look ahead. An address that is no link's does no
 * harm.
 */
static inline void
link_prefetch(const void *link)
{
	const char *first = link;

	for (size_t at = 0; at < offsetof(struct peer_link, is); at += WEIR_SLOT_SIZE)
		__builtin_prefetch(first + at);
	__builtin_prefetch(first + offsetof(struct peer_link, is.staging_mr.lkey));
}

static inline struct weir_slot *
link_at(const struct peer_link *l, uint64_t pos)
{
	return &l->staging[pos & l->mask];
}

/* The link, or NULL. One under repair takes connections too: their lines wait. */
static inline struct peer_link *
link_find(struct engine *e, uint32_t id)
{
	return id < e->config.links && e->links[id].up ? &e->links[id] : NULL;
}

/* Whether connections may still be made over it. */
static inline bool
link_lasts(const struct peer_link *l)
{
	return l->end < LINK_AGREED;
}

/* Each turn reads the link's credit line, and sends the open frame. */
static inline void
link_attend(struct engine *e, struct peer_link *l)
{
	list_append_once(&e->busy, &l->busy);
}

/* Whether there may be something for link_send(). */
static inline bool
link_may_send(const struct engine *e, const struct peer_link *l)
{
	return l->look || l->tx_limit || e->now >= l->credit_due;
}

/* The same as link_attend(), and more than the open frame may be there to send. */
static inline void
link_busy(struct engine *e, struct peer_link *l)
{
	l->look = true;
	link_attend(e, l);
}

#endif

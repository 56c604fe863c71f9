/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A link, this engine's half of it: two queue pairs to an engine of a peer, the ring and the
 * staging of each direction; what programs have for it, by turns.
 */
#ifndef WEIR_ENGINE_LINK_H
#define WEIR_ENGINE_LINK_H

#include "engine.h"
#include "list.h"

struct conn;
struct pend;
struct session;

/* Messages of one connection, in a row, that complete when the peer has consumed up to `end`. */
struct run {
	uint32_t end; /* low bits of the ring position */
	uint32_t count : 31;
	uint32_t notify : 1;
	struct conn *conn;
};

enum { RING, BULK, DATAGRAM }; /* index of a link's QP; the engine's one for datagrams */

/*
 * What one program has for one of a link's QPs. It takes part in the link's round while any of it
 * could leave but for room, and is in engine.limited while the program has used up its rate.
 */
struct queue {
	struct list turn;    /* in link.active (RING), link.writing (BULK) or engine.limited */
	struct list members; /* struct conn, by active or writing: take turns among each other */
	uint32_t deficit;    /* lines, or bytes of bulk */
	uint32_t lines;	     /* that may still go from its channels into the open frame ... */
	uint32_t frame;	     /* ... if this is link.frame_number */
	bool in_turn;	     /* has its quantum of this round */
	uint8_t index;	     /* RING or BULK */
	struct session *session;
	struct link *link;
};

#define PROOF_DUE UINT64_MAX

enum { BULK_FLIGHT = 8 }; /* of a link */

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
	struct list active; /* struct queue: programs in deficit round robin */
	struct list owing;
	/* the open frame */
	uint32_t frame_number;
	uint32_t frame_programs, frame_weight; /* that have, or wanted, room in it */
	bool pressed;			       /* somebody found none left */
	bool crowded;	      /* the last one was too small for several: each has its part ... */
	uint32_t last_weight; /* ... of so much */
	struct list busy;     /* in engine.busy */
	uint64_t sq_posted[2], sq_done[2], sq_signaled[2];
	struct nic_send_wr frame[2]; /* of the frame being posted */
	uint32_t frame_wrs, frame_posted;
	struct list writing;  /* struct queue: bulk that has segments to post, by program */
	struct list fetching; /* connections that have segments to read ... */
	struct list to_fetch; /* ... that get a place, in placing order, when these are posted */
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
	uint64_t asked_at;  /* the last keepalive left */
	uint32_t asked;	    /* as many in a row have no answer */
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

#endif

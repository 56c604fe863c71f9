/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inside of the protocol core. Who owns what: "main" fields belong to the main thread, "engine"
 * fields to the engine of the context; what both touch is _Atomic and says who writes.
 */
#ifndef WEIR_ROCE_CORE_H
#define WEIR_ROCE_CORE_H

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>

#include "list.h"
#include "mr.h"
#include "neighbour.h"
#include "packet.h"
#include "roce.h"
#include "psn_window.h"

#define CACHE_LINE 64
#define ROCE_CONTEXTS_MAX 32u
#define ROCE_QUANTUM 32u       /* frames of one QP before it is the next one's turn, at most */
#define ROCE_TURN_BYTES 65536u /* of all QPs, before the engine looks at what else there is */
#define ROCE_MTU_MAX 4096u
#define ROCE_SPARE (2 * ROCE_QUANTUM) /* frames taken from the wire for those to come */
#define ROCE_MESSAGE_MAX (1u << 31)   /* IBTA volume 1, 9.4.3 */
#define ROCE_TICK_NS 50000u	      /* timers are looked at no more often, ... */
#define ROCE_TICK_QP_NS 2000u	      /* ... and for each QP that waits, so much less often */
#define ROCE_PUT_OFF 64u	      /* ... at the latest after so many turns with frames */
#define ROCE_NEIGHBOUR_NS 4000000u    /* datagrams: between looks whether the MAC is known */
#define ROCE_MIN_FRAMES                                                                            \
	4u /* the window never falls below so many frames; AckReq is set as often                  \
	    */
#define ROCE_READ_BYTES 65536u /* that one READ request asks for at most */
#define ROCE_RD_MAX 128u
#define ROCE_ACK_WAIT_NS 1000u /* that ACKs let frames go first which keep coming and going */
#define ROCE_CNP_GAP_NS 50000u /* between congestion notifications of one QP */
/* Headers up to the BTH: offset 0 is on a line of its own, what comes before lies before it. */
#define ROCE_TEMPLATE (2 * CACHE_LINE)
#define ROCE_TEMPLATE_AT CACHE_LINE

struct roce_qp;

/* How a WR looks on the wire: opcodes of its packets; a MIDDLE follows the FIRST. */
struct wire_form {
	uint8_t first, last, only;
	bool has_imm;
};

/* A work request in the send queue. Counters of PSNs run over 32 bits; the wire has the low 24. */
struct sq_entry {
	uint64_t wr_id;
	union {
		uint64_t remote_address;
		const struct roce_ah *ah; /* UD */
	};
	uint32_t rkey; /* UD: the peer's QPN */
	uint32_t imm;
	uint32_t length;
	union {
		uint32_t last_psn; /* valid once built */
		uint32_t qkey;	   /* UD */
	};
	uint16_t flags;
	uint8_t opcode;
	uint8_t sge_count;
	struct wire_form wire;
	union {
		struct {
			struct nic_sge sge[NIC_SGE_MAX];
			uint64_t compare_add, swap;
		};
		uint8_t data[ROCE_MAX_INLINE]; /* NIC_INLINE */
	};
};

/* A completion before it is polled, with what polling it gives back. */
struct cq_entry {
	struct nic_wc wc;
	struct roce_qp *qp;   /* send: its rq.freed becomes sq_freed; NULL: gone */
	struct roce_srq *srq; /* receive: one of its WRs is free again; NULL: a send */
	uint32_t sq_freed;
};

/* A READ or atomic, or a part of a READ, that is not answered yet. */
struct fetch {
	uint32_t psn, end; /* answers have the PSNs [psn, end) */
	uint32_t wr;	   /* a count as requester.posted */
	uint32_t offset;   /* of the WR's bytes */
};

/* A READ or atomic of the peer: to be answered, and kept to be answered again. */
struct served {
	uint64_t address; /* READ */
	uint64_t value;	  /* atomic: what was there before */
	uint32_t rkey, length, msn;
	uint32_t psn, count; /* PSNs of the answers, 24 bits */
	uint32_t begin, end; /* answers to send: [0, count), or a part when asked again */
	uint32_t sent;	     /* answers that have left; end: none waits */
	uint32_t stop;	     /* READ: end of the bytes to send, from `address` */
	bool atomic;
	bool again; /* all have left once */
};

enum response { RESPOND_NONE, RESPOND_ACK, RESPOND_RNR, RESPOND_SEQUENCE, RESPOND_FATAL };

struct requester { /* engine, but for the initial values */
	struct sq_entry *sq;
	uint32_t sq_mask, sq_depth;
	uint32_t posted, built, retired, freed; /* counts of WRs, each <= the one before */
	uint32_t parked;			/* SQD: WRs behind `posted`, for RTS */
	uint32_t offset;			/* of WR `built`: bytes already in frames */
	/* PSNs: [una, next) are in frames that we hold, [una, send) of them count as in flight */
	uint32_t una, send, next;
	uint32_t in_flight; /* bytes of frames in [una, send) */
	uint32_t frame_mask;
	void **frames;	   /* by PSN */
	uint16_t *lengths; /* by PSN */
	struct window window;
	uint64_t deadline; /* of the timer, valid while `timer` is in the list */
	uint64_t progress; /* when something was last acknowledged, or the wait began */
	uint64_t timeout_ns;
	uint64_t went_back;	/* when the loss of `una` was last noticed; 0: not yet */
	uint32_t answer;	/* last PSN of an answer that came out of order */
	bool starved;		/* a request was to be sent again, and there was no frame */
	bool draining, drained; /* SQD; that nothing is under way has been told */
	bool rnr_wait;		/* the peer asked to wait until deadline */
	uint8_t retry, retries; /* limit, so far */
	uint8_t rnr_retry, rnr_left;
	/* READs and atomics */
	uint32_t special; /* WRs posted and not built that are one, or have a fence */
	uint32_t bare;	  /* PSNs of [una, next) that stand for answers: no frame is held */
	uint32_t fetches_first, fetches_next, fetches_mask, fetches_limit;
	struct fetch *fetches;
};

struct responder {	   /* engine, but for the initial values */
	uint32_t expected; /* PSN, 24 bits */
	uint32_t msn;
	uint8_t response; /* enum response that waits in the context's responders list */
	uint8_t nak;	  /* enum nak_code of RESPOND_FATAL */
	uint8_t kind;	  /* PACKET_SEND or PACKET_WRITE: message under way; PACKET_NONE: none */
	bool gap;	  /* a PSN ahead was seen and NAKed; silent until the expected one comes, or
			   * the peer has gone back and lost it again */
	uint32_t seen;	  /* gap: the last PSN */
	uint64_t address; /* WRITE: where the next byte goes; SEND: in our own memory */
	uint32_t rkey, left; /* WRITE: announced and not yet arrived; SEND: room left */
	uint32_t received;
	struct nic_recv_wr wr; /* SEND */
	uint64_t cnp_next;     /* no congestion notification before */
	/* READs and atomics: counts; before `serving` all is answered */
	uint32_t serving, served_next, served_mask, served_limit;
	struct served *served;
	uint32_t nak_psn; /* of RESPOND_FATAL */
};

#define ORDER_ERROR 0x1u
#define ORDER_DESTROY 0x2u
#define ORDER_RESET 0x4u
#define ORDER_DRAIN 0x8u /* roce_qp.drain was changed */

struct roce_qp {
	struct nic_qp_head head;
	struct roce_context *ctx;
	void *user;
	bool ud;
	_Atomic uint8_t state; /* enum nic_qp_state, SQD is RTS here; main writes INIT to RTS,
				  engine RESET and ERR */
	uint8_t access;
	uint16_t mtu;
	uint32_t peer_qpn;
	struct address peer; /* UD: what no frame has */
	uint32_t qkey;	     /* UD */
	struct neighbour *neighbour;
	struct roce_srq *srq;
	struct link sender;	/* in ctx->senders: may have something to send */
	struct link answer;	/* in ctx->answers: a response waits */
	struct link timer;	/* in ctx->timers */
	struct headers headers; /* the device's */
	uint32_t ip_sum;	/* IPv4: of the template, without length and checksum */
	/* engine, but for the initial values: the template fits frames that end there, to that MAC
	 */
	uint32_t fits_end;
	uint64_t fits_mac;
	_Alignas(CACHE_LINE) uint8_t template[ROCE_TEMPLATE];
	struct requester rq;
	struct responder rs;
	/* main to engine and back */
	_Atomic uint32_t orders;   /* ORDER_*: main sets, engine takes */
	_Atomic bool drain;	   /* SQD is wanted: main sets, engine reads */
	struct roce_qp *mail_next; /* while in ctx->mailbox or ctx->dead */
	/* main */
	struct link all;
	size_t bytes;
	uint32_t index, send_wrs;
	bool resetting; /* ordered, and not yet seen in `state` */
};

struct roce_srq {
	struct roce_context *ctx;
	struct nic_recv_wr *ring; /* engine, all up to here */
	uint32_t mask, depth;
	uint32_t posted, taken, freed; /* freed: completions polled */
	/* main */
	struct link all;
	uint32_t users;
	bool dying;
	size_t bytes;
};

/* Whom a datagram goes to. Main makes and frees it, engines read. */
struct roce_ah {
	struct roce_device *dev;
	struct link all;
	uint32_t ip_sum;
	struct neighbour *neighbour;
	_Alignas(CACHE_LINE) uint8_t template[ROCE_TEMPLATE];
};

#define ROCE_EVENTS 256u

struct roce_context {
	struct nic_context_head head;
	struct roce_device *dev;
	struct roce_wire wire;
	void *wire_user;
	size_t frame_at; /* offset 0 of a frame, from its buffer */
	uint32_t front;	 /* the device's headers.front */
	unsigned id;
	/* engine */
	struct link senders, answers, timers;
	uint64_t next_tick; /* <= every deadline, or the earliest look at them allowed */
	uint32_t put_off;   /* turns since a look was due: frames came in each of them */
	uint32_t held;	    /* frames kept for retransmission */
	bool received;	    /* frames came in this turn */
	bool more;	    /* the turn was over, but not what is to be sent */
	bool urgent;	    /* not only ACKs wait in `answers` */
	uint64_t owed;	    /* since then they have been waiting; 0: not yet */
	uint32_t spare_count;
	void *spare[ROCE_SPARE];
	uint8_t gathered[ROCE_MTU_MAX]; /* payload that lay in two pieces */
	struct cq_entry *cq;
	uint32_t cq_mask, cq_head, cq_tail;
	struct nic_counters counters; /* engine writes with roce_count(), anyone reads relaxed */
	/* main writes with release, engine reads with acquire (find_qp) */
	_Atomic(struct roce_qp *) *qps;
	/* stacks linked by mail_next: main pushes and engine takes all; the other way round */
	_Alignas(CACHE_LINE) _Atomic(struct roce_qp *) mailbox;
	_Atomic(struct roce_qp *) dead;
	/* event 8 | QPN 24: engine writes at events_head (release), main reads at events_tail
	 * (release) */
	_Atomic uint32_t events_head, events_tail;
	uint32_t events[ROCE_EVENTS];
	/* main */
	_Alignas(CACHE_LINE) struct link all_qps;
	struct link all_srqs;
	uint32_t cq_reserved;
	uint8_t *generations; /* by QP index */
	uint32_t next_index;
	size_t cq_bytes, qps_bytes;
};

struct roce_device {
	struct nic_device_head head;
	struct roce_config config; /* defaults filled in; constant */
	struct headers headers;	   /* constant, as the address */
	struct address address;
	uint32_t engine_bits, index_bits;
	struct mr_table mrs;
	struct neighbours neighbours;
	struct roce_context *contexts[ROCE_CONTEXTS_MAX];
	struct link all_ahs; /* main */
};

/* roce.c: zeroed memory of the device's user, aligned to 64; main thread */
/* context: whose engine uses it, or ROCE_ALL. */
void *roce_memory_get(struct roce_device *dev, unsigned context, size_t bytes);
void roce_memory_put(struct roce_device *dev, void *memory, size_t bytes);

/* address.c: what a GID stands for */
enum address_kind { ADDRESS_NONE, ADDRESS_IP4, ADDRESS_IP6 };
enum address_kind roce_address(const struct nic_gid *gid, struct address *address);
bool roce_on_link(const struct roce_device *dev, struct address ip);

/* qp.c: control verbs, main thread */
int roce_qp_create(struct nic_context *ctx, const struct nic_qp_init *init, struct nic_qp **qp);
int roce_qp_modify(struct nic_qp *qp, const struct nic_qp_attr *attr);
void roce_qp_destroy(struct nic_qp *qp);
/* The neighbour that a GID names, with one user more: 0 or -errno. */
int roce_peer_find(struct roce_device *dev, const struct nic_gid *gid, struct address *ip,
		   struct neighbour **neighbour);
/* Frees what the engine has let go. */
void roce_qp_reap(struct roce_context *ctx);
void roce_qp_free(struct roce_qp *qp);

/* qp_poll.c: the engine's side of a QP's life */
void roce_qp_take_orders(struct roce_context *ctx);
/*
 * Ends a QP: WR number `wr` (a count as requester.posted) completes with `status`, all others that
 * are outstanding with WR_FLUSH_ERR. wr = posted: none has a status of its own.
 */
void roce_qp_fail(struct roce_qp *qp, uint32_t wr, enum nic_wc_status status);
/* For a QP in SQD: tells main once nothing is under way. */
void roce_qp_drained(struct roce_qp *qp);
/* Gives back the n oldest frames that the QP holds. */
void roce_qp_drop_frames(struct roce_qp *qp, uint32_t n);
/* The oldest WR ends: a work completion if it is wanted, or if it failed. */
void roce_qp_complete(struct roce_qp *qp, enum nic_wc_status status);
/* The receive WR of a message ends; that of the message under way ends without it. */
struct cq_entry *roce_qp_received(struct roce_qp *qp, const struct nic_recv_wr *wr,
				  enum nic_opcode opcode, const struct packet *p);
void roce_qp_not_received(struct roce_qp *qp, enum nic_wc_status status);

/* srq.c */
int roce_srq_create(struct nic_context *ctx, uint32_t depth, struct nic_srq **srq);
void roce_srq_destroy(struct nic_srq *srq);
void roce_srq_release(struct roce_srq *srq); /* main: one QP less uses it */
void roce_srq_free(struct roce_srq *srq);
int roce_post_srq_recv(struct nic_srq *srq, const struct nic_recv_wr *wr, unsigned n);

/* requester.c, engine */
int roce_post_send(struct nic_qp *qp, const struct nic_send_wr *wr, unsigned n);
void roce_requester_flush(struct roce_context *ctx, uint64_t now);
enum drop roce_requester_ack(struct roce_qp *qp, const struct packet *p, uint64_t now);
/* Sends again from the oldest unacknowledged frame on. */
void roce_requester_go_back(struct roce_qp *qp);
void roce_requester_wake(struct roce_qp *qp);
/* Everything before `to` has arrived, and if it was asked for, the answer too. */
void roce_requester_advance(struct roce_qp *qp, uint32_t to, uint64_t now);
/* The oldest frame, or its answer, was lost; the peer may say so often. */
void roce_requester_lost(struct roce_qp *qp, uint64_t now);

/* fetch.c, engine: the requester's READs and atomics */
enum fetch_result { FETCH_SENT, FETCH_ORDINARY, FETCH_WAITS };
/* Checks such a WR, whose other fields are in *e already. */
int roce_fetch_take(struct sq_entry *e, const struct nic_send_wr *wr);
/* The next WR, of whatever kind: sends a request of it, or says that it isn't one, or must wait. */
enum fetch_result roce_fetch_next(struct roce_qp *qp, struct sq_entry *wr, uint64_t now);
bool roce_fetch_waits(const struct roce_qp *qp, const struct sq_entry *wr);
/* Sends again what asks for the answers from requester.send on. False: no frame. */
bool roce_fetch_again(struct roce_qp *qp);
/* The next answer's PSN; requester.next if none is missing. No ACK goes beyond it. */
uint32_t roce_fetch_bound(const struct requester *rq);
enum drop roce_fetch_response(struct roce_qp *qp, const struct packet *p, uint64_t now);
/* Something after the next answer came before it. */
enum drop roce_fetch_lost(struct roce_qp *qp, uint64_t now);

static inline bool
fetch_special(const struct sq_entry *wr)
{
	return wr->wire.first >= RC_READ_REQUEST || (wr->flags & NIC_FENCE);
}

/* timer.c, engine */
void roce_timer_start(struct roce_qp *qp, uint64_t deadline);
void roce_timer_run(struct roce_context *ctx, uint64_t now);

/*
 * build.c, engine: makes the next frame, of the WR under way. more: another one follows at once, so
 * this one needs no answer. Returns its length.
 */
uint32_t roce_build_frame(struct roce_qp *qp, struct sq_entry *wr, uint8_t *frame, bool more);
/*
 * A packet to the QP's peer: opcode and flags of the BTH (BTH()), PSN and the flags beside it and
 * beside the QPN, up to 20 bytes
 * that extend it, as they stand in memory, and n bytes of payload, copied. Returns its length.
 */
uint32_t roce_build_packet(struct roce_qp *qp, uint8_t *frame, uint32_t bth, uint64_t psn,
			   uint64_t e0, uint64_t e1, uint64_t e2, uint32_t extended,
			   const void *payload, uint32_t n);
/*
 * Headers of all frames to `ip`, up to the BTH, but for lengths, checksum, MAC, source port, QPN:
 * returns the sum of the IPv4 header as it stands.
 */
uint32_t roce_template_make(const struct roce_device *dev, struct address ip, uint8_t traffic_class,
			    uint8_t *template);
/* They, with MAC and lengths, into a frame that will end at `end`. */
void roce_template_use(const struct headers *h, const uint8_t *template, uint32_t ip_sum,
		       uint64_t mac, uint8_t *frame, uint32_t end);
/* Tells flows apart for whoever spreads them over paths or queues. */
uint16_t roce_source_port(uint32_t qpn, uint32_t peer_qpn);
/* n bytes of a WR from `offset` on, in one piece: copied together if need be, until the next call.
 */
const void *roce_build_payload(const struct roce_qp *qp, const struct sq_entry *wr, uint32_t offset,
			       uint32_t n);
/* Completes a frame by n bytes of payload, which begins at `at`, and its ICRC. Returns its length.
 */
uint32_t roce_build_copy(const struct roce_qp *qp, uint8_t *frame, uint32_t at, const void *payload,
			 uint32_t n);

/* ud.c: address handles on main, the rest on the engine */
int roce_ah_create(struct nic_device *dev, const struct nic_ah_attr *attr, struct nic_ah **ah);
void roce_ah_destroy(struct nic_ah *ah);
int roce_ud_take(const struct roce_qp *qp, struct sq_entry *e, const struct nic_send_wr *wr);
bool roce_ud_transmit(struct roce_qp *qp, unsigned limit, unsigned *sent, uint64_t now);
void roce_ud_expired(struct roce_qp *qp, uint64_t now);
enum drop roce_ud_input(struct roce_qp *qp, const uint8_t *frame, struct packet *p);

/* responder.c, engine */
enum drop roce_responder_input(struct roce_qp *qp, const struct packet *p);
/* The request can't be answered but by a NAK that ends the QP. */
enum drop roce_responder_refuse(struct roce_qp *qp, enum nak_code code, uint32_t psn);
/* read_responder.c, engine: READs and atomics of the peer, new ones and such as were there already
 */
enum drop roce_serve(struct roce_qp *qp, const struct packet *p);
enum drop roce_serve_again(struct roce_qp *qp, const struct packet *p);
/* Sends answers as far as *room goes, which is lowered. False: some are left. */
bool roce_serve_answers(struct roce_qp *qp, unsigned *room);
void roce_serve_stop(struct roce_qp *qp);
/* ack.c, engine */
void roce_answer_later(struct roce_qp *qp, enum response response);
/* Whether what waits there should leave. */
bool roce_answer_due(struct roce_context *ctx, uint64_t now);
void roce_answer_all(struct roce_context *ctx);
void roce_answer_congestion(struct roce_qp *qp, uint64_t now);

/* arp.c and nd.c, engine: which MAC an address has. What was learnt lets waiting QPs go on. */
void roce_arp_ask(struct roce_context *ctx, struct neighbour *n, uint64_t now);
void roce_arp_learn(struct roce_context *ctx, struct neighbour *n, struct address ip,
		    const uint8_t *mac);
enum drop roce_arp_input(struct roce_context *ctx, const uint8_t *frame);
void roce_nd_ask(struct roce_context *ctx, struct address ip);
enum drop roce_nd_input(struct roce_context *ctx, const uint8_t *frame, const struct packet *p);

/*
 * frame.c, engine: frames from the wire, false: it has none. Gives one to the wire. Lengths in the
 * core are where frames end: they don't count what lies before offset 0.
 */
bool roce_frame_refill(struct roce_context *ctx);
void roce_frame_send(struct roce_context *ctx, void *frame, uint32_t length, bool keep);

static inline bool
roce_frame_ready(struct roce_context *ctx)
{
	return ctx->spare_count != 0 || roce_frame_refill(ctx);
}

/* Ethernet header of a frame to a MAC, up to the type. */
void roce_frame_ethernet(const struct roce_device *dev, uint8_t *frame, const uint8_t *mac);

/* A frame for sending, NULL if the wire has none. */
static inline void *
roce_frame_take(struct roce_context *ctx)
{
	return roce_frame_ready(ctx) ? ctx->spare[--ctx->spare_count] : NULL;
}

static inline uint8_t *
roce_frame_data(const struct roce_context *ctx, void *frame)
{
	return (uint8_t *)frame + ctx->frame_at;
}

static inline __attribute__((always_inline)) struct roce_qp *
find_qp(struct roce_context *ctx, uint32_t qpn)
{
	struct roce_device *dev = ctx->dev;
	uint32_t index = (qpn >> dev->engine_bits) & ((1u << dev->index_bits) - 1);
	/* partner: the release stores of roce_qp_create() and roce_qp_destroy() */
	struct roce_qp *qp = atomic_load_explicit(&ctx->qps[index], memory_order_acquire);

	return qp && qp->head.qpn == qpn ? qp : NULL;
}

/* Partner of the release stores in roce_qp_modify(). */
static inline enum nic_qp_state
qp_state(const struct roce_qp *qp)
{
	return (enum nic_qp_state)atomic_load_explicit(&qp->state, memory_order_acquire);
}

/* The memory that a WR names must be registered, all of it, before the first byte is read. */
static inline bool
memory_ok(const struct roce_qp *qp, const struct sq_entry *wr, uint32_t access)
{
	if (wr->flags & NIC_INLINE)
		return true;
	for (unsigned i = 0; i < wr->sge_count; i++) {
		const struct nic_sge *s = &wr->sge[i];

		if (s->length != 0 &&
		    !mr_check(&qp->ctx->dev->mrs, s->lkey, s->address, s->length, access))
			return false;
	}
	return true;
}

/* Can't overflow: cq_depth covers every send queue and SRQ. */
static inline struct cq_entry *
cq_push(struct roce_context *ctx, struct roce_qp *qp)
{
	struct cq_entry *e = &ctx->cq[ctx->cq_head++ & ctx->cq_mask];

	e->wc.qp_user = qp->user;
	e->wc.qpn = qp->head.qpn;
	e->wc.source_qpn = 0;
	return e;
}

#endif

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
#include "window.h"

#define CACHE_LINE 64
#define ROCE_CONTEXTS_MAX 32u
#define ROCE_QUANTUM 32u	      /* frames of one QP before it is the next one's turn */
#define ROCE_SPARE (2 * ROCE_QUANTUM) /* frames taken from the wire for those to come */
#define ROCE_MESSAGE_MAX (1u << 31)   /* IBTA volume 1, 9.4.3 */
#define ROCE_TICK_NS 100000u	      /* timers are looked at no more often */
#define ROCE_RTO_MIN_NS 4000000u
#define ROCE_MIN_FRAMES                                                                            \
	4u /* the window never falls below so many frames; AckReq is set as often                  \
	    */
#define ROCE_CNP_GAP_NS 50000u /* between congestion notifications of one QP */

struct roce_qp;

/* A work request in the send queue. Counters of PSNs run over 32 bits; the wire has the low 24. */
struct sq_entry {
	uint64_t wr_id;
	uint64_t remote_address;
	uint32_t rkey;
	uint32_t imm;
	uint32_t length;
	uint32_t last_psn; /* valid once built */
	uint16_t flags;
	uint8_t opcode;
	uint8_t sge_count;
	uint8_t wire_first; /* opcode of a first packet; MIDDLE, LAST, LAST_IMM, ONLY, ONLY_IMM
			       follow */
	bool has_imm;
	union {
		struct nic_sge sge[NIC_SGE_MAX];
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

enum response { RESPOND_NONE, RESPOND_ACK, RESPOND_RNR, RESPOND_SEQUENCE, RESPOND_FATAL };

struct requester { /* engine, but for the initial values */
	struct sq_entry *sq;
	uint32_t sq_mask, sq_depth;
	uint32_t posted, built, retired, freed; /* counts of WRs, each <= the one before */
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
	uint32_t nak_psn;	/* last PSN of a sequence NAK that was acted on */
	bool nak_seen;		/* nak_psn is valid, nothing was acknowledged since */
	bool rnr_wait;		/* the peer asked to wait until deadline */
	uint8_t retry, retries; /* limit, so far */
	uint8_t rnr_retry, rnr_left;
};

struct responder {	   /* engine, but for the initial values */
	uint32_t expected; /* PSN, 24 bits */
	uint32_t msn;
	uint8_t response; /* enum response that waits in the context's responders list */
	uint8_t nak;	  /* enum nak_code of RESPOND_FATAL */
	uint8_t kind;	  /* PACKET_SEND or PACKET_WRITE: message under way; PACKET_NONE: none */
	bool gap;	  /* a PSN ahead was seen and NAKed; silent until the expected one comes */
	uint64_t address; /* WRITE: where the next byte goes; SEND: in our own memory */
	uint32_t rkey, left; /* WRITE: announced and not yet arrived; SEND: room left */
	uint32_t received;
	struct nic_recv_wr wr; /* SEND */
	uint64_t cnp_next;     /* no congestion notification before */
};

#define ORDER_ERROR 0x1u
#define ORDER_DESTROY 0x2u

struct roce_qp {
	struct nic_qp_head head;
	struct roce_context *ctx;
	void *user;
	_Atomic uint8_t state; /* enum nic_qp_state; main writes up to RTS, engine writes ERR */
	uint8_t access;
	uint16_t mtu;
	uint32_t peer_ip, peer_qpn;
	struct neighbour *neighbour;
	struct roce_srq *srq;
	struct link sender; /* in ctx->senders: may have something to send */
	struct link answer; /* in ctx->answers: a response waits */
	struct link timer;  /* in ctx->timers */
	uint32_t ip_sum;    /* of the template, without length and checksum */
	/* engine, but for the initial values: the template fits frames that end there, to that MAC
	 */
	uint32_t fits_end;
	uint64_t fits_mac;
	_Alignas(CACHE_LINE) uint8_t template[CACHE_LINE]; /* headers up to the BTH */
	struct requester rq;
	struct responder rs;
	/* main to engine and back */
	_Atomic uint32_t orders;   /* ORDER_*: main sets, engine takes */
	struct roce_qp *mail_next; /* while in ctx->mailbox or ctx->dead */
	/* main */
	struct link all;
	size_t bytes;
	uint32_t index, send_wrs;
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

#define ROCE_EVENTS 256u

struct roce_context {
	struct nic_context_head head;
	struct roce_device *dev;
	struct roce_wire wire;
	void *wire_user;
	unsigned id;
	/* engine */
	struct link senders, answers, timers;
	uint64_t next_tick; /* <= every deadline, or the earliest look at them allowed */
	uint32_t held;	    /* frames kept for retransmission */
	uint32_t spare_count;
	void *spare[ROCE_SPARE];
	struct cq_entry *cq;
	uint32_t cq_mask, cq_head, cq_tail;
	struct nic_counters counters; /* engine writes with roce_count(), anyone reads relaxed */
	/* main writes with release, engine reads with acquire (find_qp) */
	_Atomic(struct roce_qp *) *qps;
	/* stacks linked by mail_next: main pushes and engine takes all; the other way round */
	_Alignas(CACHE_LINE) _Atomic(struct roce_qp *) mailbox;
	_Atomic(struct roce_qp *) dead;
	/* QPs that failed: engine writes at events_head (release), main reads at events_tail
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
	uint32_t engine_bits, index_bits;
	struct mr_table mrs;
	struct neighbours neighbours;
	struct roce_context *contexts[ROCE_CONTEXTS_MAX];
};

/* roce.c: zeroed memory of the device's user, aligned to 64; main thread */
void *roce_memory_get(struct roce_device *dev, size_t bytes);
void roce_memory_put(struct roce_device *dev, void *memory, size_t bytes);

/* qp.c: control verbs, main thread */
int roce_qp_create(struct nic_context *ctx, const struct nic_qp_init *init, struct nic_qp **qp);
int roce_qp_modify(struct nic_qp *qp, const struct nic_qp_attr *attr);
void roce_qp_destroy(struct nic_qp *qp);
/* Frees what the engine has let go. */
void roce_qp_reap(struct roce_context *ctx);
void roce_qp_free(struct roce_qp *qp);

/* qp_engine.c: the engine's side of a QP's life */
void roce_qp_take_orders(struct roce_context *ctx);
/*
 * Ends a QP: WR number `wr` (a count as requester.posted) completes with `status`, all others that
 * are outstanding with WR_FLUSH_ERR. wr = posted: none has a status of its own.
 */
void roce_qp_fail(struct roce_qp *qp, uint32_t wr, enum nic_wc_status status);
/* Gives back the n oldest frames that the QP holds. */
void roce_qp_drop_frames(struct roce_qp *qp, uint32_t n);
/* The oldest WR ends: a work completion if it is wanted, or if it failed. */
void roce_qp_complete(struct roce_qp *qp, enum nic_wc_status status);
/* The receive WR of a message ends. */
void roce_qp_received(struct roce_qp *qp, const struct nic_recv_wr *wr, enum nic_wc_status status,
		      enum nic_opcode opcode, const struct packet *p);

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
/* timer.c, engine */
void roce_timer_start(struct roce_qp *qp, uint64_t deadline);
void roce_timer_run(struct roce_context *ctx, uint64_t now);

/*
 * build.c, engine: makes the next frame, of the WR under way. more: another one follows at once, so
 * this one needs no answer. Returns its length.
 */
uint32_t roce_build_frame(struct roce_qp *qp, struct sq_entry *wr, uint8_t *frame, bool more);
/* The headers of a frame that will end at `end`, up to the BTH; opcode and PSN are still to come.
 */
void roce_build_begin(struct roce_qp *qp, uint8_t *frame, uint32_t end);
/* Completes a frame by its ICRC. Returns its length. */
uint32_t roce_build_finish(uint8_t *frame, uint32_t end);

/* responder.c, engine */
enum drop roce_responder_input(struct roce_qp *qp, const struct packet *p);
/* answer.c, engine */
void roce_answer_later(struct roce_qp *qp, enum response response);
void roce_answer_all(struct roce_context *ctx);
void roce_answer_congestion(struct roce_qp *qp, uint64_t now);

/* arp.c, engine */
enum drop roce_arp_input(struct roce_context *ctx, const uint8_t *frame, uint64_t now);
void roce_arp_ask(struct roce_context *ctx, struct neighbour *n, uint64_t now);

/* frame.c, engine: frames from the wire, false: it has none. Gives one to the wire. */
bool roce_frame_refill(struct roce_context *ctx);
void roce_frame_send(struct roce_context *ctx, void *frame, uint32_t length, bool keep);

static inline bool
roce_frame_ready(struct roce_context *ctx)
{
	return ctx->spare_count != 0 || roce_frame_refill(ctx);
}

/* A frame for sending, NULL if the wire has none. */
static inline void *
roce_frame_take(struct roce_context *ctx)
{
	return roce_frame_ready(ctx) ? ctx->spare[--ctx->spare_count] : NULL;
}

static inline uint8_t *
roce_frame_data(const struct roce_context *ctx, void *frame)
{
	return (uint8_t *)frame + ctx->wire.data_offset;
}

static inline struct roce_qp *
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

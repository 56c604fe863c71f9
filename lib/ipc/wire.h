/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The format of rings between data planes. Everything is little-endian (both ends are x86-64 or
 * arm64; the offer carries a layout version, which refuses another byte order).
 * The ring between two engines is an array of 64-byte lines in the receiver's memory. In one pass
 * the sender appends a frame: one weir_frame_head line, then messages and control lines. A frame
 * leaves as one WRITE_WITH_IMM (two WRITEs at the wrap, the last with the immediate). Nothing is
 * padded at the ring's end: positions are taken modulo the ring, line by line.
 *
 * Lines of a message: struct weir_slot (seq unused) with op WEIR_OP_INLINE followed by its
 * continuation slots, or WEIR_OP_PLACE followed by ceil(length / 64) lines of bare payload; vqpn is
 * the receiver's. Operations on remote memory, and their answers: ipc/remote.h. Control lines are
 * struct weir_slot with op 64 to 85, one line each.
 */
#ifndef WEIR_COMMON_WIRE_H
#define WEIR_COMMON_WIRE_H

#include "class.h"
#include "slot.h"
#include "version.h"

#include "weir/address.h"

#define WEIR_WIRE_VERSION 9u
/* what is spoken besides: until 1.0 nothing */
#define WEIR_WIRE_VERSIONS ((struct weir_versions){WEIR_WIRE_VERSION, WEIR_WIRE_VERSION})
#define WEIR_LITTLE_ENDIAN 0x100u

/* Immediate: kind in the high 8 bits, value in the low 24. */
enum weir_imm_kind {
	WEIR_IMM_FRAME = 1,    /* value: lines of the frame, its head included */
	WEIR_IMM_CREDIT = 2,   /* the credit line was written; wakes a sleeping engine */
	WEIR_IMM_NOTIFY = 3,   /* one-sided operations, not used yet */
	WEIR_IMM_SEND = 4,     /* as FRAME; the SEND carries the frame */
	WEIR_IMM_DATAGRAM = 5, /* on the queue pair for datagrams: struct weir_datagram_head */
};
/* Lines of the largest frame sent by SEND; the memory of a receive WR. */
#define WEIR_SEND_LINES 32u
#define WEIR_IMM(kind, value) (((uint32_t)(kind) << 24) | ((value)&0xffffffu))
#define WEIR_IMM_KIND(imm) ((imm) >> 24)
#define WEIR_IMM_VALUE(imm) ((imm)&0xffffffu)

#define WEIR_FRAME_STALLED                                                                         \
	0x1u /* the sender has data and no room: return credit by WRITE_WITH_IMM */
#define WEIR_FRAME_PROMPT 0x2u /* return credit in this turn */
#define WEIR_FRAME_WAKE 0x4u   /* with an immediate: the sender may be asleep */

/* First line of a frame. Ring credit rides here. */
struct weir_frame_head {
	uint16_t version;  /* WEIR_WIRE_VERSION */
	uint16_t flags;	   /* WEIR_FRAME_* */
	uint32_t lines;	   /* of the frame, this one included; same as the immediate */
	uint64_t position; /* ring position of this line: lines written before it, ever */
	uint64_t consumed; /* lines of the reverse ring consumed by the sender of this frame */
	uint64_t wrs;	   /* receive WRs of the reverse direction released, ever */
	uint32_t load;	   /* of the sending engine and its host, 1/1000 */
	/* of `consumed`, the last lines: they give room, but a RESET that comes later may say that
	 * messages among them were refused */
	uint32_t held;
	uint32_t reserved[6];
};
static_assert(sizeof(struct weir_frame_head) == 64, "one line");

/* The credit line: lies in the sender's registered memory, WRITTEN whole by the receiver. */
struct weir_credit_line {
	_Atomic uint64_t consumed; /* as in weir_frame_head */
	_Atomic uint64_t wrs;
	_Atomic uint64_t executed; /* consumed, without those that are held */
	uint64_t reserved[5];
};
static_assert(sizeof(struct weir_credit_line) == 64, "one line");

/* Control lines: op of struct weir_slot in an engine ring. vqpn is the receiver's unless noted. */
enum weir_wire_op {
	WEIR_WIRE_CONNECT = 64, /* struct weir_wire_connect; vqpn 0 */
	WEIR_WIRE_ACCEPT = 65,	/* value: granted cost; extra: acceptor's vqpn; length: window. Flag
				   DATAGRAM: value: struct weir_wire_datagram. To a CONNECT for
				   memory: value: bytes of the export; length: rights; place[2]:
				   granted cost; place[3]: struct weir_wire_key */
	WEIR_WIRE_REJECT = 66,	/* status: errno; reason: the refusing program's, or empty */
	WEIR_WIRE_FIN = 67,	/* end of stream, after the last message; value: messages sent */
	WEIR_WIRE_RESET = 68, /* value: messages delivered; status: errno; later ones are refused */
	WEIR_WIRE_FIN_ACK =
	    69, /* answers FIN and RESET, the last line of an end: the vqpn may be reused */
	WEIR_WIRE_GRANT =
	    70, /* value: cost granted since opening; length: window; place[2]: cost consumed */
	WEIR_WIRE_STALLED = 71,	  /* the connection has data and no window; value: cost wanted */
	WEIR_WIRE_RECLAIM = 72,	  /* receiver asks for unused grant back */
	WEIR_WIRE_RECLAIMED = 73, /* value: granted is this now (lowered) */
	WEIR_WIRE_RTS = 74,	  /* bulk: length of the next bulk message; struct weir_wire_rts */
	WEIR_WIRE_CTS = 75,	  /* bulk: struct weir_wire_cts; status ENOMEM/EMSGSIZE if never */
	WEIR_WIRE_BULK = 76, /* bulk message `value` is complete in its buffer: deliver it at this
				point of the order */
	WEIR_WIRE_FETCHED =
	    77, /* bulk: message `value` is read; extra 1: and delivered, else BULK follows */
	WEIR_WIRE_END = 78, /* the end sends no more messages, but takes them; value: messages sent
			     */
	/* data: the next WEIR_SLOT_HEAD_BYTES of a reason, whose rest REJECT has */
	WEIR_WIRE_REASON = 79,
	/* of the link, vqpn 0; docs/protocol.md 2, end of a link */
	WEIR_WIRE_LINK_CLOSE = 80, /* the sender has no connection and opens none; it is answered */
	WEIR_WIRE_LINK_CLOSED = 81, /* nor has the other end: the sender's last line */
	WEIR_WIRE_LINK_STAYS = 82,  /* the other end has connections: the link goes on */
	/* of the link, vqpn 0; docs/protocol.md 2, rings of idle peers */
	WEIR_WIRE_LINK_RING = 83, /* write into other memory from now on: struct weir_wire_ring */
	WEIR_WIRE_LINK_LEFT = 84, /* the last line in the memory before; length: lines of the other
				     that the sender uses */
	WEIR_WIRE_LOCKED = 85, /* answers WEIR_OP_LOCK; status: weir_lock_status (ipc/remote.h) */
	/* what an operation has read; length: bytes, in `data` and lines of bare payload
	   (ipc/remote.h); order: counts those of the connection */
	WEIR_WIRE_ANSWER = 112,
};

/* Memory of a ring: frames go on at their positions, modulo its lines. */
struct weir_wire_ring { /* in weir_slot.data */
	uint64_t address;
	uint32_t rkey, lines;
};

/* The queue pair at which an end receives datagrams. */
struct weir_wire_datagram {
	uint32_t qpn, qkey;
};

struct weir_wire_connect { /* in weir_slot.data */
	uint32_t vqpn;	   /* of the initiator */
	union {
		struct {
			uint32_t window;  /* wished by the initiator */
			uint32_t granted; /* cost the initiator grants to the acceptor */
		};
		struct weir_wire_datagram datagram; /* slot flag DATAGRAM */
	};
	uint16_t node;
	uint16_t flags;			/* WEIR_CONNECTS_* */
	char service[WEIR_SERVICE_MAX]; /* MEMORY: struct weir_wire_export */
};
#define WEIR_CONNECTS_MEMORY 0x1u /* to an export, for operations on it */
static_assert(sizeof(struct weir_wire_connect) <= WEIR_SLOT_HEAD_BYTES, "fits a head");

/* Transfers of an announced message: the receiver answers CTS (WRITE), or READs it. */
#define WEIR_RTS_WRITE 0x1u
#define WEIR_RTS_READ 0x2u

struct weir_wire_rts { /* in weir_slot.data */
	uint64_t number;
	uint64_t address; /* of the message at the sender, and the key to it; 0 without READ */
	uint32_t rkey;
	uint32_t ways; /* WEIR_RTS_*, at least one */
};

struct weir_wire_cts { /* in weir_slot.data */
	uint64_t number;
	uint64_t address;
	uint32_t rkey;
	uint32_t status;
};

/* Before the payload of a datagram, which is one message. */
struct weir_datagram_head {
	uint32_t vqpn;	 /* of the receiver */
	uint32_t from;	 /* vqpn of the sender */
	uint64_t number; /* of the message on its connection, from 1: duplicates are recognized */
};

/* vQPN: index of the entry, 20 bits; generation, 12 bits (changes with each reuse; never 0). */
#define WEIR_VQPN_INDEX(v) ((v)&0xfffffu)
#define WEIR_VQPN_GENERATION(v) ((v) >> 20)
#define WEIR_VQPN(index, generation) (((uint32_t)(generation) << 20) | (index))

/* An end of a link in offers: its engine, and in bits 5 and 6 the class of the link. */
#define WEIR_END(engine, class) ((engine) | (uint32_t)(class) << 5)
#define WEIR_END_ENGINE(end) ((end)&0x1fu)
#define WEIR_END_CLASS(end) ((uint32_t)(end) >> 5)

/*
 * The offer that an end of a link sends to the other through the control processes: it suffices to
 * bring both QPs to RTS and to write into each other's ring. Offers of (A,i) to (B,j) and of (B,j)
 * to (A,i) that cross are for the same link.
 */
enum weir_resume {
	WEIR_RESUME_NOT,  /* a new link */
	WEIR_RESUME_BULK, /* continues; the second QP is new */
	WEIR_RESUME_BOTH, /* continues after the consumed lines; both QPs are new */
};

struct weir_link_offer {
	uint16_t node, peer_node;    /* from, to */
	uint8_t engine, peer_engine; /* from, to: WEIR_END(), of one class */
	uint16_t layout;	     /* lowest wire version | WEIR_LITTLE_ENDIAN */
	uint64_t incarnation;	     /* of the sending data plane */
	uint64_t peer_incarnation;   /* of the receiving data plane; 0 = unknown */
	uint32_t attempt;	     /* counts the sender's QPs for this link; newer wins */
	uint32_t answered; /* attempt of the peer's offer that this end has accepted, 0 = none */
	uint8_t gid[16];
	uint16_t lid;
	uint16_t mtu;	 /* path MTU in bytes, 256 to 4096; the link uses the smaller one */
	uint32_t qpn[2]; /* [0] ring and SEND, [1] bulk and one-sided */
	uint32_t psn[2];
	uint64_t ring_address;
	uint64_t credit_address;
	uint32_t ring_rkey, credit_rkey;
	uint32_t ring_lines;
	uint32_t recv_wrs; /* receive WRs granted at setup */
	/* repair; docs/protocol.md 2 */
	uint32_t joined;	  /* attempt of the peer that these QPs are connected to, 0 none */
	uint32_t resumes;	  /* enum weir_resume */
	uint32_t born, peer_born; /* first attempts of the continued link: sender's, receiver's */
	uint64_t consumed;	  /* lines of the sender's ring, ever */
	uint64_t received;	  /* receive WRs of the sender used, ever */
	uint32_t highest;	  /* wire version */
	uint32_t answers;	  /* bytes: answers that the receiver may ask the sender for */
	/* errno: nothing is offered, and attempt `answered` of the receiver's is refused. ENOSPC:
	 * no room for the link now; ECONNRESET: that link is gone. 0: an offer */
	uint32_t refused;
	uint32_t reserved;
};

#endif

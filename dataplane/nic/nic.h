/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The NIC layer, verbs-shaped: all protocols of the data plane use it. A driver (roce, verbs, the
 * simulated wire) fills struct nic_ops; drivers are called in no other way.
 *
 * A device is one NIC port with one GID. Each engine has one context on it: its completion queue,
 * its queue pairs and SRQ. Control verbs (marked C) run on the main lcore; data verbs (D) on the
 * owning engine only, once per burst. Removal: unpublish, one quiet turn of every engine, free.
 * Errors: 0 or -errno; counts for bursts.
 */
#ifndef WEIR_NIC_H
#define WEIR_NIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NIC_SGE_MAX 2u
#define NIC_POLL_MAX 32u
#define NIC_GRH_BYTES 40u /* before the payload in the receive buffer of a datagram */

enum nic_access {
	NIC_LOCAL_WRITE = 0x1,
	NIC_REMOTE_WRITE = 0x2,
	NIC_REMOTE_READ = 0x4,
	NIC_REMOTE_ATOMIC = 0x8,
	NIC_REMOTE_INVALIDATE = 0x10, /* by SEND_INV; a driver may refuse it (-ENOTSUP) */
};

enum nic_opcode {
	NIC_SEND,
	NIC_SEND_IMM,
	NIC_WRITE,
	NIC_WRITE_IMM,
	NIC_READ,
	NIC_CMP_SWAP,
	NIC_FETCH_ADD,
	NIC_SEND_INV, /* SEND, and the peer's key nic_send_wr.rkey is no longer valid */
	NIC_RECV,     /* work completions only: a SEND arrived */
	NIC_RECV_IMM, /* work completions only: a WRITE_IMM arrived */
};

enum nic_qp_type { NIC_RC, NIC_UD };

/* IBTA volume 1, 10.3.1. */
enum nic_qp_state { NIC_QP_RESET, NIC_QP_INIT, NIC_QP_RTR, NIC_QP_RTS, NIC_QP_SQD, NIC_QP_ERR };

enum nic_wc_status { /* IBTA volume 1, 11.6.2, the names that verbs use */
		     NIC_WC_SUCCESS,
		     NIC_WC_LOC_LEN_ERR,
		     NIC_WC_LOC_PROT_ERR,
		     NIC_WC_WR_FLUSH_ERR,
		     NIC_WC_REM_INV_REQ_ERR,
		     NIC_WC_REM_ACCESS_ERR,
		     NIC_WC_REM_OP_ERR,
		     NIC_WC_RETRY_EXC_ERR,
		     NIC_WC_RNR_RETRY_EXC_ERR,
		     NIC_WC_BAD_RESP_ERR,
		     NIC_WC_FATAL_ERR,
};

#define NIC_SIGNALED 0x1u /* a work completion is wanted */
#define NIC_FENCE 0x2u	  /* waits for earlier READs and atomics of the QP */
#define NIC_INLINE 0x4u	  /* memory may change as soon as post_send returns */
#define NIC_SOLICITED 0x8u

struct nic_device; /* a driver's; begins with struct nic_device_head */
struct nic_context;
struct nic_qp; /* begins with struct nic_qp_head */
struct nic_srq;
struct nic_ah; /* address handle: where a datagram goes */

struct nic_mr {
	uint64_t address; /* as the peer names it: the virtual address */
	uint64_t length;
	uint32_t lkey, rkey;
	void *driver;
};

struct nic_sge {
	uint64_t address; /* virtual address in this process */
	uint32_t length;
	uint32_t lkey;
};

struct nic_send_wr {
	uint64_t wr_id;
	struct nic_sge sge[NIC_SGE_MAX];
	uint8_t sge_count;
	uint8_t opcode; /* enum nic_opcode */
	uint16_t flags; /* NIC_SIGNALED ... */
	uint32_t imm;	/* host order */
	uint64_t remote_address;
	uint32_t rkey;
	union {
		struct { /* atomics: 8 bytes, the old value comes into sge[0] */
			uint64_t compare_add, swap;
		};
		struct { /* UD */
			struct nic_ah *ah;
			uint32_t remote_qpn, qkey;
		};
	};
};

struct nic_recv_wr {
	uint64_t wr_id;
	struct nic_sge sge; /* length 0: a receive for WRITE_IMM or empty SENDs */
};

struct nic_wc {
	uint64_t wr_id;
	void *qp_user;	/* nic_qp_init.user of the QP */
	uint8_t status; /* enum nic_wc_status */
	uint8_t opcode; /* enum nic_opcode */
	bool has_imm;
	bool invalidated; /* imm is a key of ours that the peer has made invalid */
	uint32_t imm;
	uint32_t length;
	uint32_t qpn;
	uint32_t source_qpn; /* UD; length counts the NIC_GRH_BYTES in front */
};

struct nic_gid {
	uint8_t raw[16]; /* IPv4 as ::ffff:a.b.c.d */
};

/* Whether two GIDs have the same first bits. */
static inline bool
nic_gid_same(const uint8_t a[16], const uint8_t b[16], unsigned bits)
{
	unsigned whole = bits / 8, rest = bits % 8;

	for (unsigned i = 0; i < whole; i++)
		if (a[i] != b[i])
			return false;
	return !rest || (a[whole] ^ b[whole]) >> (8 - rest) == 0;
}

/* The GID of an IPv4 address in host order. */
static inline struct nic_gid
nic_gid_ipv4(uint32_t ip)
{
	return (struct nic_gid){{[10] = 0xff,
				 0xff,
				 (uint8_t)(ip >> 24),
				 (uint8_t)(ip >> 16),
				 (uint8_t)(ip >> 8),
				 (uint8_t)ip}};
}

/* Peers in `network` are reached through `gateway`, which is in the port's own network. */
#define NIC_ROUTES 8u
struct nic_route {
	struct nic_gid network, gateway;
	uint8_t bits; /* of the GID that name the network: IPv4 has 96 and more; 0 is not used */
};

struct nic_attr {
	char name[64];
	struct nic_gid gid;
	uint8_t prefix; /* bits of it that name the network of its peers; 0: any GID may be one */
	const struct nic_route *routes; /* to other networks; the device's */
	uint8_t route_count;
	uint16_t lid;
	uint16_t mtu; /* largest path MTU in bytes: 256, 512, 1024, 2048, 4096 */
	uint32_t max_qp, max_sge, max_inline, max_wr, max_srq_wr, max_rd_atomic;
	int numa_socket; /* -1 unknown */
	bool link_up;
	bool ack_visible; /* a WRITE that is acknowledged can be read by the peer's CPUs */
};

struct nic_qp_init {
	enum nic_qp_type type;
	uint32_t send_wrs; /* depth of the send queue */
	struct nic_srq *srq;
	void *user; /* comes back in nic_wc.qp_user */
};

/* Attributes of qp_modify. RTR needs the remote ones, RTS psn and the retry ones. 0 = driver's
 * default. */
struct nic_qp_attr {
	enum nic_qp_state state;
	struct nic_gid remote_gid;
	uint16_t remote_lid;
	uint16_t mtu;
	uint32_t remote_qpn;
	uint32_t remote_psn; /* first PSN expected */
	uint32_t psn;	     /* first PSN sent */
	uint64_t timeout_ns; /* of one transmission; 0 = default */
	uint8_t retry;	     /* 1 ... 7; 0 = driver's default */
	uint8_t rnr_retry;   /* 7 = without limit */
	uint8_t rd_atomic; /* READs and atomics under way in each direction; 0 = driver's default */
	uint8_t access;	   /* rights of the peer: NIC_REMOTE_*; 0 = NIC_REMOTE_WRITE */
	uint8_t traffic_class; /* IP type of service: DSCP in the upper six bits */
	uint8_t priority;      /* 1 + PCP of the VLAN tag or SL, 0 ... 7; 0 = driver's default */
	uint32_t qkey;	       /* UD: of the QP itself, given at RTR */
};

struct nic_ah_attr {
	struct nic_gid gid;
	uint16_t lid;
	uint8_t traffic_class;
	uint8_t priority; /* as in nic_qp_attr */
};

#define NIC_DROP_REASONS(X)                                                                        \
	X(too_short, "frame shorter than its headers")                                             \
	X(not_ours, "not IPv4/UDP/4791 to our address, not ARP")                                   \
	X(bad_ip, "IP header, length or checksum wrong")                                           \
	X(bad_icrc, "invariant CRC wrong")                                                         \
	X(bad_bth, "transport header: version, opcode, pad or P_Key wrong")                        \
	X(no_qp, "no such QP, or not in a state to receive")                                       \
	X(wrong_peer, "source address is not the QP's peer")                                       \
	X(duplicate, "PSN already received")                                                       \
	X(out_of_order, "PSN ahead of the expected one")                                           \
	X(bad_request, "opcode out of sequence, length or address wrong")                          \
	X(bad_qkey, "Q_Key of a datagram wrong")                                                   \
	X(no_buffer, "no receive WR (RNR)")                                                        \
	X(handover_full, "ring to the owning engine full")                                         \
	X(impaired, "dropped on purpose (loss=)")                                                  \
	X(tx_full, "port did not take the frame")                                                  \
	X(no_neighbour, "no ARP answer yet")

#define NIC_TRAFFIC(X)                                                                             \
	X(rx_frames, "frames received")                                                            \
	X(tx_frames, "frames sent")                                                                \
	X(rx_bytes, "bytes of those received")                                                     \
	X(tx_bytes, "bytes of those sent")

#define NIC_COUNTERS(X)                                                                            \
	NIC_TRAFFIC(X)                                                                             \
	X(rx_accepted, "frames that did their work")                                               \
	X(acks_sent, "acknowledgements sent")                                                      \
	X(acks_received, "acknowledgements received")                                              \
	X(naks_sent, "refusals sent")                                                              \
	X(naks_received, "refusals received")                                                      \
	X(rnr_sent, "receiver-not-ready sent")                                                     \
	X(rnr_received, "receiver-not-ready received")                                             \
	X(retransmits, "frames sent again")                                                        \
	X(timeouts, "waits for an acknowledgement that ended")                                     \
	X(handed_over, "frames handed to another engine")                                          \
	X(impaired_dup, "frames doubled on purpose (dup=)")                                        \
	X(impaired_reorder, "frames delayed on purpose (reorder=)")                                \
	X(impaired_corrupt, "frames with a wrong bit on purpose (corrupt=)")                       \
	X(impaired_delay, "frames delayed on purpose (delay=)")                                    \
	X(impaired_jitter, "frames delayed on purpose (jitter=)")                                  \
	X(impaired_rate, "frames that waited on purpose (rate=)")                                  \
	X(doorbells, "bursts given to the hardware")                                               \
	X(read_bytes, "bytes brought by READs of ours")

/*
 * Per device and context; single writer: the owning engine. Summed over the contexts of a device,
 * rx_frames = rx_accepted + drops up to handover_full; the last three drops are on transmit.
 */
struct nic_counters {
#define X(name, help) uint64_t name;
	NIC_COUNTERS(X)
#undef X
#define X(name, help) uint64_t drop_##name;
	NIC_DROP_REASONS(X)
#undef X
};

struct nic_async_event {
	enum {
		NIC_EVENT_LINK_UP,
		NIC_EVENT_LINK_DOWN,
		NIC_EVENT_QP_FATAL,
		NIC_EVENT_DEVICE_FATAL,
		NIC_EVENT_SQ_DRAINED /* of a QP in SQD: WRs that had begun to leave have completed
				      */
	} type;
	void *qp_user;
};

struct nic_ops {
	const char *driver;

	/* C: attributes as of now. */
	int (*query)(struct nic_device *dev, struct nic_attr *attr);
	/* C: registers memory for all contexts of the device. Keys are not guessable. */
	int (*mr_reg)(struct nic_device *dev, void *addr, size_t length, unsigned access,
		      struct nic_mr *mr);
	void (*mr_dereg)(struct nic_device *dev, struct nic_mr *mr);
	/* C: state RESET. The QP number's low bits name the context's engine. */
	int (*qp_create)(struct nic_context *ctx, const struct nic_qp_init *init,
			 struct nic_qp **qp);
	/*
	 * C: -EINVAL: a change that qp_orders.h forbids, or attributes out of their limits. The
	 * engine carries out RESET and ERR with its next turn; while a RESET is under way any
	 * change is -EAGAIN. After ERR every WR completes, flushed if nothing worse; RESET forgets
	 * those that are left. In SQD posts are taken and wait for RTS.
	 */
	int (*qp_modify)(struct nic_qp *qp, const struct nic_qp_attr *attr);
	void (*qp_destroy)(struct nic_qp *qp);
	int (*srq_create)(struct nic_context *ctx, uint32_t depth, struct nic_srq **srq);
	void (*srq_destroy)(struct nic_srq *srq);
	/*
	 * C: for datagrams to `attr`, from UD QPs of any context of the device. Destroyed when no
	 * WR that names it is outstanding.
	 */
	int (*ah_create)(struct nic_device *dev, const struct nic_ah_attr *attr,
			 struct nic_ah **ah);
	void (*ah_destroy)(struct nic_ah *ah);
	/* C: next asynchronous event, 0 or -EAGAIN. A link counts as up when the device is opened.
	 */
	int (*async_event)(struct nic_device *dev, struct nic_async_event *event);

	/*
	 * D: posts up to n work requests in order; returns how many were taken (0 = queue full), or
	 * -EINVAL / -ENOTCONN with none taken. Memory named by sge belongs to the driver until the
	 * completion (own, or of a later signaled WR of this QP). Nothing leaves before flush().
	 */
	int (*post_send)(struct nic_qp *qp, const struct nic_send_wr *wr, unsigned n);
	int (*post_srq_recv)(struct nic_srq *srq, const struct nic_recv_wr *wr, unsigned n);
	/*
	 * D: receives, runs timers and fills up to n completions; `now` is monotonic time in ns.
	 * *busy is set true if anything was done, else not changed.
	 */
	unsigned (*poll)(struct nic_context *ctx, struct nic_wc *wc, unsigned n, uint64_t now,
			 bool *busy);
	/* D: rings doorbells / sends queued frames; before poll(), after it, or both. */
	void (*flush)(struct nic_context *ctx, uint64_t now);
	/*
	 * D: prepares for sleep. Returns the time (ns, absolute) at which poll() must be called at
	 * the latest (UINT64_MAX: none), and in *fd an event fd that becomes readable on arrival,
	 * -1 if the port has none (then sleep only briefly).
	 */
	uint64_t (*arm)(struct nic_context *ctx, uint64_t now, int *fd);
	/* Any thread: the context's counters, each read relaxed. */
	void (*counters)(const struct nic_context *ctx, struct nic_counters *out);
	/* C */
	void (*close)(struct nic_device *dev);
};

struct nic_device_head {
	const struct nic_ops *ops;
};
struct nic_context_head {
	const struct nic_ops *ops;
	struct nic_device *dev;
	uint64_t now; /* ns; of the turn: nic_set_now() or poll(). 0: none yet */
};
struct nic_qp_head {
	const struct nic_ops *ops;
	uint32_t qpn;
};

#define NIC_OPS(p) (*(const struct nic_ops *const *)(p))

static inline uint32_t
nic_qpn(const struct nic_qp *qp)
{
	return ((const struct nic_qp_head *)qp)->qpn;
}

static inline int
nic_post_send(struct nic_qp *qp, const struct nic_send_wr *wr, unsigned n)
{
	return NIC_OPS(qp)->post_send(qp, wr, n);
}

/* D: a turn begins; for posts of before its poll(). */
static inline void
nic_set_now(struct nic_context *ctx, uint64_t now)
{
	((struct nic_context_head *)(void *)ctx)->now = now;
}

static inline unsigned
nic_poll(struct nic_context *ctx, struct nic_wc *wc, unsigned n, uint64_t now, bool *busy)
{
	return NIC_OPS(ctx)->poll(ctx, wc, n, now, busy);
}

static inline void
nic_flush(struct nic_context *ctx, uint64_t now)
{
	NIC_OPS(ctx)->flush(ctx, now);
}

const char *nic_wc_status_name(enum nic_wc_status status);

#endif

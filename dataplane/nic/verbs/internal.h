/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The verbs driver inside. Main runs the control verbs, an engine the data verbs of its context;
 * fields that both use name their writer. libibverbs' own objects may be used by several threads.
 *
 * The end of a QP: main takes it to ERR and orders its end (mailbox); the engine waits for the
 * NIC's last completions (the last receive of an SRQ may still come), hands them out, forgets the
 * QP and returns it (dead); main destroys it with its next control verb. RESET takes the same way,
 * but for the last step: the engine's fields are those of a new QP, and main brings it up again.
 */
#ifndef WEIR_VERBS_INTERNAL_H
#define WEIR_VERBS_INTERNAL_H

#include "verbs.h"

#include "ipc/invariant.h"
#include "nic/qp_orders.h"

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <sys/queue.h>

#define VNIC_BATCH 256u		 /* WRs of a context between two flushes */
#define VNIC_SEND_CQ 8192u	 /* entries of a send CQ, if the NIC has as many */
#define VNIC_SEND_CQS 64u	 /* of a context */
#define VNIC_SRQS 4u		 /* of a context */
#define VNIC_LINGER_NS 20000000u /* for which a NIC may flush WRs that it had begun */
#define VNIC_QPN_BITS 12u	 /* of a page of the QP table */
#define VNIC_QPN_PAGE (1u << VNIC_QPN_BITS)
#define VNIC_EVENTS 64u /* of a channel, acknowledged together */
#define VNIC_COUNTER_FILES 16u

/* in ibv wr_id: a receive; SRQ in bits 32 ..., place in the low ones */
#define VNIC_RECV (UINT64_C(1) << 63)

#define VNIC_ORDER_RESET 0x1u
#define VNIC_ORDER_DESTROY 0x2u

struct vnic_sent { /* a WR under way */
	uint64_t wr_id;
	uint8_t opcode;
	bool wanted; /* its completion */
};

struct vnic_batch { /* a WR between post_send() and flush() */
	struct ibv_send_wr wr;
	struct ibv_sge sge[NIC_SGE_MAX];
	uint8_t data[QP_INLINE_MAX];
};

struct vnic_cq {
	struct ibv_cq *cq;
	uint32_t entries, reserved; /* main */
	uint32_t outstanding;	    /* engine: WRs that may complete here */
	unsigned events;	    /* engine: of the channel, not yet acknowledged */
};

struct vnic_srq {
	struct vnic_context *ctx;
	struct ibv_srq *srq;
	uint32_t depth, index;
	uint32_t users;	      /* main: QPs */
	bool destroy_called;  /* main: goes with its last QP */
	uint32_t free_count;  /* engine, with the following */
	uint32_t *free_place; /* places that are free */
	uint64_t *wr_id;      /* of each place */
	struct ibv_sge *sge;  /* memory of each place */
	size_t bytes;
};

struct vnic_qp {
	struct nic_qp_head head;
	struct vnic_context *ctx;
	struct ibv_qp *qp;
	void *user;
	uint8_t type;		    /* enum nic_qp_type */
	_Atomic uint8_t state;	    /* enum nic_qp_state; main writes, the engine reads */
	_Atomic bool flushed;	    /* main: the last receive has completed; the engine reads */
	bool destroy_called;	    /* main: nic qp_destroy() was called */
	_Atomic uint32_t orders;    /* VNIC_ORDER_*: main sets, the engine takes */
	_Atomic bool resetting;	    /* main sets, the engine clears when its fields are as new */
	struct vnic_srq *srq;	    /* main */
	struct vnic_cq *cq;	    /* of its sends */
	LIST_ENTRY(vnic_qp) in_all; /* main */
	struct vnic_qp *mail_next;  /* in the mailbox, or in dead */
	size_t bytes;

	/* the engine's */
	uint64_t posted, freed;	 /* WRs: taken, completed (or before one that has) */
	uint64_t refused;	 /* first that the NIC did not take; UINT64_MAX none */
	uint64_t refused_polled; /* end of those that poll() has completed */
	uint32_t depth, mask, unsignaled, signal_every;
	bool broken, dirty;
	bool ending, destroyed; /* in the context's list; because of qp_destroy() */
	bool ready;		/* may be forgotten when the CQs are empty */
	uint64_t deadline;
	struct vnic_qp *next_dirty, *next_refused, *next_ending;
	struct vnic_batch *first, *last; /* since the last flush */
	struct vnic_sent *sent;
	uint8_t *bounce; /* inline data, if the NIC takes none: a place per WR */
	struct ibv_mr *bounce_mr;
};

struct vnic_context {
	struct nic_context_head head;
	struct vnic_device *dev;
	unsigned id;
	struct ibv_comp_channel *channel;
	struct vnic_cq recv_cq;
	/* main fills a place, then raises the count (release); the engine reads both (acquire) */
	struct vnic_cq *send_cq[VNIC_SEND_CQS];
	_Atomic uint32_t send_cqs;
	/* pages of the QP table: main makes them; entries: main sets, the engine clears */
	_Atomic(_Atomic(struct vnic_qp *) *) qps[VNIC_QPN_PAGE];
	_Atomic(struct vnic_qp *) mailbox; /* main to engine: orders */
	_Atomic(struct vnic_qp *) dead;	   /* engine to main: ended */

	/* main's */
	LIST_HEAD(, vnic_qp) all;
	struct vnic_srq *srq[VNIC_SRQS]; /* the engine reads those that it posts to */
	uint32_t recv_reserved;

	/* the engine's */
	struct vnic_qp *dirty, *refused, *ending;
	uint32_t batched;
	bool armed;	    /* all CQs will raise an event */
	uint32_t armed_cqs; /* send CQs among them */
	struct nic_counters counters;
	struct vnic_batch batch[VNIC_BATCH];
};

struct vnic_counter_file {
	int fd;
	uint16_t offset; /* in struct nic_counters */
	uint8_t factor;
};

struct vnic_device {
	struct nic_device_head head;
	struct vnic_config config;
	char name[64];
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_device_attr attr;
	uint8_t port;
	bool ethernet;
	uint16_t mtu;
	int gid_index;
	struct nic_gid gid;
	char chosen[192]; /* port and GID, for people */
	int numa_socket;
	bool memlock_logged; /* main */
	size_t table_bytes;
	struct vnic_counter_file counter[VNIC_COUNTER_FILES];
	unsigned counter_files;
	struct vnic_context *context[VNIC_CONTEXTS_MAX];
};

extern const struct nic_ops vnic_ops;

void *vnic_get(struct vnic_device *dev, size_t bytes, int numa_socket);
void vnic_put(struct vnic_device *dev, void *memory, size_t bytes);
unsigned vnic_mtu_bytes(enum ibv_mtu mtu);

/* gid.c: chooses dev->gid_index, and describes it in dev->chosen. */
int vnic_choose_gid(struct vnic_device *dev, const struct ibv_port_attr *attr, char *error,
		    size_t size);

/* context.c */
int vnic_context_create(struct vnic_device *dev, unsigned id);
void vnic_context_destroy(struct vnic_context *ctx);
struct vnic_cq *vnic_send_cq(struct vnic_context *ctx, uint32_t entries);
uint64_t vnic_arm(struct nic_context *ctx, uint64_t now, int *fd);
int vnic_srq_create(struct nic_context *ctx, uint32_t depth, struct nic_srq **srq);
void vnic_srq_destroy(struct nic_srq *srq);
void vnic_srq_free(struct vnic_srq *srq);

/* qp.c */
int vnic_qp_create(struct nic_context *ctx, const struct nic_qp_init *init, struct nic_qp **qp);
int vnic_qp_modify(struct nic_qp *qp, const struct nic_qp_attr *attr);
void vnic_qp_destroy(struct nic_qp *qp);
void vnic_qp_reap(struct vnic_context *ctx);
void vnic_qp_free(struct vnic_qp *qp);
int vnic_ah_create(struct nic_device *dev, const struct nic_ah_attr *attr, struct nic_ah **ah);
void vnic_ah_destroy(struct nic_ah *ah);

/* post.c */
int vnic_post_send(struct nic_qp *qp, const struct nic_send_wr *wr, unsigned n);
int vnic_post_srq_recv(struct nic_srq *srq, const struct nic_recv_wr *wr, unsigned n);
/* Posts the receive of this place again. */
void vnic_receive_again(struct vnic_srq *srq, uint32_t place);
void vnic_flush(struct nic_context *ctx, uint64_t now);

/* poll.c */
unsigned vnic_poll(struct nic_context *ctx, struct nic_wc *wc, unsigned n, uint64_t now,
		   bool *busy);

/* counters.c */
void vnic_counters_open(struct vnic_device *dev);
void vnic_counters_close(struct vnic_device *dev);
void vnic_counters(const struct nic_context *ctx, struct nic_counters *out);

static inline uint8_t
vnic_qp_state(const struct vnic_qp *qp)
{
	/* partner: the release store in vnic_qp_modify() */
	return atomic_load_explicit(&qp->state, memory_order_acquire);
}

/* The engine is the only writer; any thread reads. */
static inline void
vnic_count(uint64_t *counter, uint64_t n)
{
	__atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

#endif

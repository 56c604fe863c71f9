/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The RoCEv2 protocol core: frames and time in, frames out. It knows neither DPDK nor any port;
 * the owner of a wire (the ethdev shell, the simulator, a test) gives it buffers, sends its frames
 * and passes it those that arrive. It implements struct nic_ops, so its users see a NIC like any
 * other.
 *
 * Set-up (main thread): roce_device_create(), then roce_context_create() for each engine 0 ... n-1.
 * From then on the data verbs of a context run on its engine only, the control verbs on the main
 * thread; both may run at the same time.
 * A turn: nic poll = wire.receive() -> roce_input() per frame, then timers, completions; nic flush
 * = sends ACKs, builds and sends what was posted, then wire.flush().
 */
#ifndef WEIR_ROCE_H
#define WEIR_ROCE_H

#include "nic/nic.h"

#include <limits.h>

/* Bytes of headers and ICRC around a payload, at most: Ethernet 14, IPv4 20, UDP 8, BTH 12, RETH
 * 16, ImmDt 4, ICRC 4; VLAN tag 4, IPv6 20 more. */
#define ROCE_OVERHEAD 78u
#define ROCE_FRONT_MAX 24u
/* Longest frame (without FCS) on any device of path MTU `mtu`. Buffers must have room for it. */
#define ROCE_FRAME_MAX(mtu) ((mtu) + ROCE_OVERHEAD + ROCE_FRONT_MAX)

struct roce_device;
struct roce_context; /* begins with struct nic_context_head */

/*
 * A context's wire. Called on the engine only, except that roce_device_destroy() calls drop(). A
 * frame is a contiguous buffer named by an opaque pointer; its bytes start at (uint8_t *)frame +
 * data_offset. It has a reference count: the core keeps sent frames until they are acknowledged and
 * may send the same frame again. So a frame never changes after it was sent; a receiver on the same
 * host may be reading the same memory.
 */
struct roce_wire {
	size_t data_offset;
	/* Up to n frames of ROCE_FRAME_MAX(mtu) bytes each, one reference each; returns how many.
	 */
	unsigned (*alloc)(void *user, void **frames, unsigned n);
	/* Drops one reference of each. */
	void (*drop)(void *user, void *const *frames, unsigned n);
	/*
	 * Queues a frame of `length` bytes. keep: the wire takes a reference of its own and the
	 * core keeps its; else the core's reference passes to the wire. Never fails: a frame that
	 * can't be sent is counted as drop_tx_full and its reference dropped. A resent frame keeps
	 * its length.
	 */
	void (*send)(void *user, void *frame, uint32_t length, bool keep);
	/* Frames that send() would take now without dropping; asked once per flush. */
	unsigned (*room)(void *user);
	/* Calls roce_input() for a burst of arrived frames; returns their number. */
	unsigned (*receive)(void *user, struct roce_context *ctx, uint64_t now);
	/* Passes queued frames to the port. */
	void (*flush)(void *user, uint64_t now);
	/*
	 * Prepares for sleep: time at which the wire itself wants to run again (UINT64_MAX: never)
	 * and an fd that becomes readable on arrival, -1 if there is none. NULL: never, -1.
	 */
	uint64_t (*arm)(void *user, uint64_t now, int *fd);
};

#define ROCE_ALL UINT_MAX

/* 0 in a field: the default in brackets. */
struct roce_config {
	char name[64];
	struct nic_gid gid; /* own address, IPv4 or IPv6: peers have one of the same kind */
	uint8_t prefix;	    /* its network; 0 = everything is on link */
	/* Ways to peers outside of that network; those to which none leads are refused. */
	struct nic_route routes[NIC_ROUTES];
	uint8_t route_count;
	uint16_t vlan; /* ID that all frames have, 1 ... 4094; 0: no tag */
	uint8_t pcp;   /* priority in that tag, 0 ... 7 */
	uint8_t mac[6];
	uint16_t mtu;	    /* largest path MTU: 256, 512, 1024, 2048, 4096 [1024] */
	unsigned contexts;  /* engines [1], at most 32 */
	int numa_socket;    /* for query(); -1 unknown */
	uint32_t max_qp;    /* per context [256] */
	uint32_t max_mr;    /* per device [4096] */
	uint32_t cq_depth;  /* per context; bounds the sum of all send_wrs and SRQ depths [65536] */
	uint32_t max_wr;    /* largest send_wrs of a QP [8192] */
	uint32_t tx_frames; /* sent and not yet acknowledged frames, per context: keep below the
			       pool [4096] */
	uint32_t window_bytes;	/* in flight per QP at most [1 MiB] */
	uint32_t window_frames; /* the same in frames, power of two [512] */
	uint32_t neighbours;	/* MAC addresses of peers [1024] */
	uint8_t rd_atomic;	/* READs and atomics of a QP under way each way, at most 128 [16] */
	uint64_t timeout_ns;	/* longest wait for an ACK before sending again [250 ms] */
	uint8_t retry;		/* timeout * (retry + 1) without progress ends a QP [7: 2 s] */
	uint8_t rnr_retry;	/* 7 = without limit [7] */
	uint8_t rnr_timer;	/* RNR wait for peers, code 1 ... 31 of IBTA table 45 [6: 80 us] */
	/*
	 * Memory of QPs, rings, tables; NULL: libc. get() returns zeroed memory aligned to 64, for
	 * the engine of `context`; ROCE_ALL: for all of them.
	 */
	void *(*memory_get)(void *user, unsigned context, size_t bytes);
	void (*memory_put)(void *user, void *memory, size_t bytes);
	/* Any may be NULL. link_up: state of the port now. close: called by nic close instead of
	 * roce_device_destroy(). */
	bool (*link_up)(void *user);
	int (*async_event)(void *user, struct nic_async_event *event);
	void (*close)(void *user);
	void *user;
};

extern const struct nic_ops roce_ops;

/*
 * Chooses how ICRCs are computed: "avx512", "vpclmul", "pclmul" or "isal"; without a call the first
 * of these that the CPU supports. -EINVAL: no such name, -ENOTSUP: the CPU lacks the instructions.
 * Main thread, before contexts exist.
 */
int roce_icrc_choose(const char *name);
/* The name of the one that is used. */
const char *roce_icrc_name(void);

/* NULL and errno. Main thread. */
struct roce_device *roce_device_create(const struct roce_config *config);
/* Frees contexts, QPs, SRQs and all; the engines have stopped. NULL is fine. */
void roce_device_destroy(struct roce_device *dev);
/* Context of engine `id` < config.contexts; the wire struct is copied. NULL and errno. Main thread.
 */
struct roce_context *roce_context_create(struct roce_device *dev, unsigned id,
					 const struct roce_wire *wire, void *wire_user);

/* Bytes by which the headers of such a device are longer than those of IPv4 without a tag. */
unsigned roce_front(const struct roce_config *config);

static inline struct nic_device *
roce_nic_device(struct roce_device *dev)
{
	return (struct nic_device *)dev;
}

static inline struct nic_context *
roce_nic_context(struct roce_context *ctx)
{
	return (struct nic_context *)ctx;
}

#define ROCE_DONE -1 /* taken, or dropped and counted: the caller frees its buffer in any case */

/*
 * Takes one received frame (Ethernet header first, no FCS). The bytes are never changed, and not
 * read after the return. Returns ROCE_DONE, or the number of the engine that owns its QP: then
 * nothing has been done but counting rx_frames, and the caller hands the frame to that engine,
 * which calls roce_input_handed(); if it can't, it counts drop_handover_full of this context.
 */
int roce_input(struct roce_context *ctx, const void *data, size_t length, uint64_t now);
/* The same for a frame whose IPv4 header's checksum the port has verified. */
int roce_input_checked(struct roce_context *ctx, const void *data, size_t length, uint64_t now);
/* The same for a frame that came from another engine. */
int roce_input_handed(struct roce_context *ctx, const void *data, size_t length, uint64_t now);

/* Asks for the cache lines of the QP that a frame is for: roce_input() takes it after another one.
 */
void roce_prefetch(const struct roce_context *ctx, const void *data, size_t length);

/* The context's counters, for the wire to count drops, impairments and doorbells in. Engine only.
 */
struct nic_counters *roce_counters(struct roce_context *ctx);

/* Adds to a counter that other threads may read meanwhile (relaxed). Owning engine only. */
static inline void
roce_count(uint64_t *counter, uint64_t n)
{
	__atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

#endif

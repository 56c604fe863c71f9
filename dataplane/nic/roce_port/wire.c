/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The data path of the ethdev shell: frames of the core are mbufs. A received mbuf is only read:
 * over net_ring its sender may still hold it. Each function runs on the context's engine.
 */
#include <stdatomic.h>

#include "internal.h"

#include "ipc/invariant.h"

#include <rte_epoll.h>

#define STUCK_NS 20000000u /* after this long without room the port's frames are dropped */
#define RETRY_NS 100000u   /* until the next flush while frames wait for room */
#define PREFETCH_AHEAD 2u  /* frames */

static const void *
frame_bytes(const struct rte_mbuf *m)
{
	return rte_pktmbuf_mtod(m, const void *);
}

/*
 * Frames that were used last are in the CPU's caches. The pool's own cache gives way to a ring,
 * first in first out, which would take all memory of the pool through the caches in turn.
 */
static unsigned
wire_alloc(void *user, void **frames, unsigned n)
{
	struct ethdev_context *c = user;
	struct rte_mbuf **mbufs = (struct rte_mbuf **)frames;
	unsigned warm = RTE_MIN(n, c->warm_count), i;

	for (i = 0; i < n; i++) {
		mbufs[i] = i < warm ? c->warm[--c->warm_count] : rte_pktmbuf_alloc(c->pool);
		if (!mbufs[i])
			break;
		mbufs[i]->data_off = c->frame_at;
		mbufs[i]->ol_flags = 0;
	}
	return i;
}

/* Of a frame that is not kept for later. */
static __attribute__((noinline)) void
free_frame(struct rte_mbuf *m)
{
	rte_pktmbuf_free(m);
}

static void
wire_drop(void *user, void *const *frames, unsigned n)
{
	struct ethdev_context *c = user;

	for (unsigned i = 0; i < n; i++) {
		struct rte_mbuf *m = frames[i];

		if (unlikely(m->next || c->warm_count == ETHDEV_WARM || m->pool != c->pool)) {
			free_frame(m);
		} else if (rte_mbuf_refcnt_update(m, -1) == 0) { /* nobody else holds it */
			rte_mbuf_refcnt_set(m, 1);
			c->warm[c->warm_count++] = m;
		}
	}
	/* a thread that dropped its reference has read the frame before */
	atomic_thread_fence(memory_order_acquire);
}

/* Takes the caller's reference. */
static void
queue_frame(struct ethdev_context *c, struct rte_mbuf *m)
{
	if (c->tx_count == ETHDEV_TX) {
		roce_count(&c->counters->drop_tx_full, 1);
		rte_pktmbuf_free(m);
		return;
	}
	c->tx[c->tx_count++] = m;
}

static void
delay_frame(struct ethdev_context *c, struct rte_mbuf *m, unsigned fate, uint64_t now)
{
	uint64_t due = impair_due(&c->impair, &fate, m->pkt_len, now);

	if (fate & IMPAIR_DELAYED)
		roce_count(&c->counters->impaired_delay, 1);
	if (fate & IMPAIR_JITTERED)
		roce_count(&c->counters->impaired_jitter, 1);
	if (fate & IMPAIR_LIMITED)
		roce_count(&c->counters->impaired_rate, 1);
	if (due == now && !(fate & IMPAIR_FULL)) {
		queue_frame(c, m);
	} else if (fate & IMPAIR_FULL || !impair_hold(&c->impair, m, m->pkt_len, due)) {
		roce_count(&c->counters->drop_tx_full, 1);
		rte_pktmbuf_free(m);
	}
}

/*
 * A copy with one wrong bit behind the Ethernet header; takes the caller's reference. The original
 * may be sent again. NULL: no frame is free. ARP has no checksum, so its frames pass unharmed.
 */
static struct rte_mbuf *
corrupt_frame(struct ethdev_context *c, struct rte_mbuf *m)
{
	uint32_t first = ethdev_ethernet(c->port), at;
	const uint8_t *type = (const uint8_t *)frame_bytes(m) + first - 2;
	struct rte_mbuf *copy;

	weir_assert(rte_pktmbuf_data_len(m) > first);
	if ((type[0] << 8 | type[1]) == RTE_ETHER_TYPE_ARP)
		return m;
	copy = rte_pktmbuf_copy(m, c->pool, 0, UINT32_MAX);
	rte_pktmbuf_free(m);
	if (!copy)
		return NULL;
	at = first + impair_below(&c->impair, rte_pktmbuf_data_len(copy) - first);
	*rte_pktmbuf_mtod_offset(copy, uint8_t *, at) ^=
	    (uint8_t)(1u << impair_below(&c->impair, 8));
	roce_count(&c->counters->impaired_corrupt, 1);
	return copy;
}

static __attribute__((noinline)) void
send_impaired(struct ethdev_context *c, struct rte_mbuf *m)
{
	unsigned fate = impair_fate(&c->impair);

	if (fate & IMPAIR_LOSE) {
		roce_count(&c->counters->drop_impaired, 1);
		rte_pktmbuf_free(m);
		return;
	}
	if (fate & IMPAIR_CORRUPT) {
		m = corrupt_frame(c, m);
		if (!m) {
			roce_count(&c->counters->drop_tx_full, 1);
			return;
		}
	}
	if (fate & IMPAIR_TWICE) {
		roce_count(&c->counters->impaired_dup, 1);
		rte_mbuf_refcnt_update(m, 1);
		delay_frame(c, m, 0, c->now);
	}
	if (fate & IMPAIR_LATE)
		roce_count(&c->counters->impaired_reorder, 1);
	delay_frame(c, m, fate, c->now);
}

/* Partner: the store in ethdev_impair(). */
static inline bool
impaired(const struct ethdev_context *c)
{
	return atomic_load_explicit(&c->impaired, memory_order_acquire);
}

static void
wire_send(void *user, void *frame, uint32_t length, bool keep)
{
	struct ethdev_context *c = user;
	struct rte_mbuf *m = frame;

	/* the receiver may hold a frame that is sent again: write only what is new */
	if (m->pkt_len != length) {
		m->pkt_len = length;
		m->data_len = (uint16_t)length;
	}
	if (keep)
		rte_mbuf_refcnt_update(m, 1);
	if (impaired(c))
		send_impaired(c, m);
	else
		queue_frame(c, m);
}

static unsigned
wire_room(void *user)
{
	struct ethdev_context *c = user;

	return ETHDEV_TX - c->tx_count;
}

/* Partner: the store in ethdev_park(), after which main waits for a quiet turn. */
static inline bool
parked(const struct ethdev_context *c)
{
	return atomic_load_explicit(&c->port->parked, memory_order_relaxed);
}

/* Frames that were delayed on purpose, and those of contexts without a queue. */
static __attribute__((noinline)) void
collect_frames(struct ethdev_context *c, uint64_t now)
{
	struct rte_mbuf *m;
	uint32_t length;

	if (impaired(c))
		while (c->tx_count < ETHDEV_TX && (m = impair_release(&c->impair, now, &length)))
			c->tx[c->tx_count++] = m;
	if (c->tx_queue != ETHDEV_NO_QUEUE)
		for (unsigned i = c->port->tx_queues; i < c->port->config.contexts; i++)
			while (c->tx_in[i] && c->tx_count < ETHDEV_TX &&
			       spsc_pop(&c->tx_in[i]->ring, &m, sizeof(m)))
				c->tx[c->tx_count++] = m;
}

/* To the engine that has a queue: the number that it took. */
static __attribute__((noinline)) uint32_t
hand_frames(struct ethdev_context *c)
{
	const struct ethdev_port *port = c->port;
	uint32_t done = 0;

	while (done < c->tx_count && spsc_push(&c->tx_to->ring, &c->tx[done], sizeof(c->tx[0])))
		done++;
	if (done)
		port->config.wake(port->config.user, c->id % port->tx_queues);
	return done;
}

/* Frames stay that the port did not take: they are first in the next turn, for some time. */
static __attribute__((noinline)) void
keep_frames(struct ethdev_context *c, uint32_t done, uint64_t now)
{
	if (done) {
		c->tx_stuck = 0;
		memmove(c->tx, c->tx + done, c->tx_count * sizeof(c->tx[0]));
	}
	if (!c->tx_stuck) {
		c->tx_stuck = now;
	} else if (now - c->tx_stuck > STUCK_NS) {
		roce_count(&c->counters->drop_tx_full, c->tx_count);
		rte_pktmbuf_free_bulk(c->tx, c->tx_count);
		c->tx_count = 0;
		c->tx_offered = 0;
		c->tx_stuck = 0;
	}
}

/* To our queue: the number that it took. */
static inline uint32_t
send_frames(struct ethdev_context *c)
{
	uint32_t done = 0;
	uint16_t n, sent;

	if (unlikely(parked(c)))
		return 0;
	do {
		n = (uint16_t)RTE_MIN(c->tx_count - done, ETHDEV_BURST);
		sent = rte_eth_tx_burst(c->port->id, c->tx_queue, c->tx + done, n);
		c->tx_offered = n - sent;
		roce_count(&c->counters->doorbells, 1);
		done += sent;
	} while (sent == n && done < c->tx_count);
	return done;
}

/* Gives frames to our queue, or to the engine that has one. */
static __attribute__((noinline)) void
flush_frames(struct ethdev_context *c, uint64_t now)
{
	uint32_t done;

	if (c->shares || impaired(c))
		collect_frames(c, now);
	if (c->tx_count == 0)
		return;
	weir_assert(c->tx_count <= ETHDEV_TX);
	done = c->tx_queue == ETHDEV_NO_QUEUE ? hand_frames(c) : send_frames(c);
	c->tx_count -= done;
	if (c->tx_count == 0)
		c->tx_stuck = 0;
	else
		keep_frames(c, done, now);
}

static void
wire_flush(void *user, uint64_t now)
{
	struct ethdev_context *c = user;

	if (c->tx_count != 0 || c->shares || impaired(c))
		flush_frames(c, now);
}

/* Passes frames to the core; those of other engines are handed over. The array is used up. */
static inline __attribute__((always_inline)) void
take_frames(struct ethdev_context *c, struct rte_mbuf **mbufs, unsigned n, uint64_t now)
{
	uint32_t wake = 0;
	unsigned free = 0;

	for (unsigned i = 0; i < n; i++) {
		struct rte_mbuf *m = mbufs[i];
		bool checked;
		int to;

		if (i + PREFETCH_AHEAD < n) {
			/* a small frame whole, of a large one the headers */
			const char *next = frame_bytes(mbufs[i + PREFETCH_AHEAD]);

			for (unsigned line = 0; line < 3; line++)
				rte_prefetch0(next + line * RTE_CACHE_LINE_SIZE);
		}
		if (i + 1 < n)
			roce_prefetch(c->roce, frame_bytes(mbufs[i + 1]),
				      rte_pktmbuf_data_len(mbufs[i + 1]));
		/* a frame that can't be made contiguous is cut, and refused for its length */
		if (m->nb_segs > 1)
			rte_pktmbuf_linearize(m);
		checked = c->checked && (m->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK) ==
					    RTE_MBUF_F_RX_IP_CKSUM_GOOD;
		to = checked
			 ? roce_input_checked(c->roce, frame_bytes(m), rte_pktmbuf_data_len(m), now)
			 : roce_input(c->roce, frame_bytes(m), rte_pktmbuf_data_len(m), now);
		if (to >= 0) {
			struct ethdev_context *other = c->port->context[to];

			if (spsc_push(&other->rx_in[c->id]->ring, &m, sizeof(m))) {
				wake |= 1u << to;
				continue;
			}
			roce_count(&c->counters->drop_handover_full, 1);
		}
		mbufs[free++] = m;
	}
	wire_drop(c, (void *const *)mbufs, free);
	for (; wake; wake &= wake - 1)
		c->port->config.wake(c->port->config.user, (unsigned)__builtin_ctz(wake));
}

/* The first turn after a sleep: frames that came while it was prepared. */
static __attribute__((noinline)) unsigned
receive_early(struct ethdev_context *c, uint64_t now)
{
	unsigned n = c->early_count;

	c->armed = false;
	c->early_count = 0;
	rte_eth_dev_rx_intr_disable(c->port->id, c->rx_queue);
	take_frames(c, c->early, n, now);
	return n;
}

/* From other engines of the port. */
static __attribute__((noinline)) unsigned
receive_handed(struct ethdev_context *c, uint64_t now)
{
	struct rte_mbuf *mbufs[ETHDEV_BURST], *m;
	unsigned n = 0;

	for (unsigned i = 0; i < c->port->rx_queues; i++) {
		unsigned handed = 0;

		while (c->rx_in[i] && handed < ETHDEV_BURST &&
		       spsc_pop(&c->rx_in[i]->ring, &m, sizeof(m))) {
			roce_input_handed(c->roce, frame_bytes(m), rte_pktmbuf_data_len(m), now);
			mbufs[handed++] = m;
		}
		if (handed)
			rte_pktmbuf_free_bulk(mbufs, handed);
		n += handed;
	}
	return n;
}

static unsigned
wire_receive(void *user, struct roce_context *ctx, uint64_t now)
{
	struct ethdev_context *c = user;
	struct rte_mbuf *mbufs[ETHDEV_BURST];
	unsigned n = 0;

	c->now = now;
	weir_assert(c->early_count <= ETHDEV_BURST && c->warm_count <= ETHDEV_WARM);
	if (c->armed)
		n = receive_early(c, now);
	if (n == 0 && c->rx_queue != ETHDEV_NO_QUEUE && !parked(c)) {
		n = rte_eth_rx_burst(c->port->id, c->rx_queue, mbufs, ETHDEV_BURST);
		if (n)
			take_frames(c, mbufs, n, now);
	}
	if (c->shares)
		n += receive_handed(c, now);
	return n;
}

static uint64_t
wire_arm(void *user, uint64_t now, int *fd)
{
	struct ethdev_context *c = user;
	struct rte_epoll_event stale[1];
	uint64_t next = UINT64_MAX;

	/* without a queue of ours frames come by wake() */
	*fd = c->rx_fd;
	for (unsigned i = 0; i < c->port->config.contexts; i++)
		if ((c->rx_in[i] && !spsc_empty(&c->rx_in[i]->ring)) ||
		    (c->tx_in[i] && !spsc_empty(&c->tx_in[i]->ring)))
			return now;
	if (c->early_count)
		return now;
	if (impaired(c))
		next = impair_next(&c->impair);
	if (c->tx_count)
		next = RTE_MIN(next, now + RETRY_NS);
	if (c->rx_queue == ETHDEV_NO_QUEUE || c->rx_fd < 0)
		return next;
	while (rte_epoll_wait(c->rx_fd, stale, 1, 0) > 0)
		;
	if (parked(c))
		return next;
	rte_eth_dev_rx_intr_enable(c->port->id, c->rx_queue);
	c->armed = true;
	/* frames of before raise no interrupt */
	c->early_count = rte_eth_rx_burst(c->port->id, c->rx_queue, c->early, ETHDEV_BURST);
	return c->early_count ? now : next;
}

void
ethdev_wire_drain(struct ethdev_context *c)
{
	struct rte_mbuf *m;
	uint32_t length;

	rte_pktmbuf_free_bulk(c->tx, c->tx_count);
	rte_pktmbuf_free_bulk(c->early, c->early_count);
	c->tx_count = 0;
	c->early_count = 0;
	if (impaired(c))
		while ((m = impair_release(&c->impair, UINT64_MAX, &length)))
			rte_pktmbuf_free(m);
	rte_pktmbuf_free_bulk(c->warm, c->warm_count);
	c->warm_count = 0;
	for (unsigned i = 0; i < ETHDEV_CONTEXTS_MAX; i++) {
		while (c->rx_in[i] && spsc_pop(&c->rx_in[i]->ring, &m, sizeof(m)))
			rte_pktmbuf_free(m);
		while (c->tx_in[i] && spsc_pop(&c->tx_in[i]->ring, &m, sizeof(m)))
			rte_pktmbuf_free(m);
	}
}

const struct roce_wire ethdev_wire = {
    .data_offset = sizeof(struct rte_mbuf) + ETHDEV_FRAME_AT,
    .alloc = wire_alloc,
    .drop = wire_drop,
    .send = wire_send,
    .room = wire_room,
    .receive = wire_receive,
    .flush = wire_flush,
    .arm = wire_arm,
};

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The data path of the ethdev shell: frames of the core are mbufs. A received mbuf is only read:
 * over net_ring its sender may still hold it. Each function runs on the context's engine.
 */
#include <stdatomic.h>

#include "internal.h"

#include <rte_epoll.h>

/* A port that takes nothing for so long is like a NIC whose link is down: frames are dropped. */
#define STUCK_NS 20000000u
/* Frames wait although the port had no room: look again. */
#define RETRY_NS 100000u
#define PREFETCH_AHEAD 2u /* frames */

static const void *
frame_bytes(const struct rte_mbuf *m)
{
	return rte_pktmbuf_mtod(m, const void *);
}

/*
 * Frames that were used last are in the caches. The pool's own cache gives way to a ring, first in
 * first out, so that all the memory of the pool would go through the caches in turn.
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

static void
wire_drop(void *user, void *const *frames, unsigned n)
{
	struct ethdev_context *c = user;

	for (unsigned i = 0; i < n; i++) {
		struct rte_mbuf *m = frames[i];

		if (c->warm_count < ETHDEV_WARM && rte_mbuf_refcnt_read(m) == 1 && !m->next &&
		    m->pool == c->pool)
			c->warm[c->warm_count++] = m;
		else
			rte_pktmbuf_free(m);
	}
	/* who gave up its reference on another thread has read the frame before */
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
	uint64_t due = impair_due(&c->impair, fate, now);

	if (due == now) {
		queue_frame(c, m);
	} else if (!impair_hold(&c->impair, m, m->pkt_len, due)) {
		roce_count(&c->counters->drop_tx_full, 1);
		rte_pktmbuf_free(m);
	}
}

static void
send_impaired(struct ethdev_context *c, struct rte_mbuf *m)
{
	unsigned fate = impair_fate(&c->impair);

	if (fate & IMPAIR_LOSE) {
		roce_count(&c->counters->drop_impaired, 1);
		rte_pktmbuf_free(m);
		return;
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

static void
wire_send(void *user, void *frame, uint32_t length, bool keep)
{
	struct ethdev_context *c = user;
	struct rte_mbuf *m = frame;

	/* a frame that is sent again may be in its receiver's hands: write only what is new */
	if (m->pkt_len != length) {
		m->pkt_len = length;
		m->data_len = (uint16_t)length;
	}
	if (keep)
		rte_mbuf_refcnt_update(m, 1);
	if (c->impaired)
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

static void
forget_stuck(struct ethdev_context *c, uint64_t now)
{
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

/* Partner: the store in ethdev_park(), after which main waits for a quiet turn. */
static inline bool
parked(const struct ethdev_context *c)
{
	return atomic_load_explicit(&c->port->parked, memory_order_relaxed);
}

/* Gives frames to our queue; what it does not take stays in front. */
static void
burst_out(struct ethdev_context *c, uint64_t now)
{
	uint32_t done = 0;

	while (done < c->tx_count) {
		uint16_t n = (uint16_t)RTE_MIN(c->tx_count - done, ETHDEV_BURST);
		uint16_t sent = 0;

		if (!parked(c)) {
			sent = rte_eth_tx_burst(c->port->id, c->tx_queue, c->tx + done, n);
			c->tx_offered = n - sent;
		}
		roce_count(&c->counters->doorbells, 1);
		done += sent;
		if (sent < n)
			break;
	}
	c->tx_count -= done;
	if (c->tx_count == 0) {
		c->tx_stuck = 0;
		return;
	}
	if (done) {
		memmove(c->tx, c->tx + done, c->tx_count * sizeof(c->tx[0]));
		c->tx_stuck = 0;
	}
	forget_stuck(c, now);
}

/* Takes what contexts without a queue want to send. */
static void
collect_others(struct ethdev_context *c)
{
	for (unsigned i = c->port->tx_queues; i < c->port->config.contexts; i++) {
		struct rte_mbuf *m;

		if (!c->tx_in[i])
			continue;
		while (c->tx_count < ETHDEV_TX && spsc_pop(&c->tx_in[i]->ring, &m, sizeof(m)))
			c->tx[c->tx_count++] = m;
	}
}

static void
hand_to_owner(struct ethdev_context *c, uint64_t now)
{
	uint32_t done = 0;

	while (done < c->tx_count && spsc_push(&c->tx_to->ring, &c->tx[done], sizeof(c->tx[0])))
		done++;
	c->tx_count -= done;
	if (done) {
		memmove(c->tx, c->tx + done, c->tx_count * sizeof(c->tx[0]));
		c->tx_stuck = 0;
		c->port->config.wake(c->port->config.user, c->id % c->port->tx_queues);
	}
	if (c->tx_count)
		forget_stuck(c, now);
}

static void
wire_flush(void *user, uint64_t now)
{
	struct ethdev_context *c = user;

	if (c->impaired) {
		uint32_t length;
		void *m;

		while (c->tx_count < ETHDEV_TX && (m = impair_release(&c->impair, now, &length)))
			c->tx[c->tx_count++] = m;
	}
	if (c->tx_queue == ETHDEV_NO_QUEUE) {
		if (c->tx_count)
			hand_to_owner(c, now);
		return;
	}
	collect_others(c);
	if (c->tx_count)
		burst_out(c, now);
}

/* A small frame whole, of a large one what is looked at first. */
static inline void
prefetch_frame(const struct rte_mbuf *m)
{
	const char *frame = frame_bytes(m);

	for (unsigned line = 0; line < 3; line++)
		rte_prefetch0(frame + line * RTE_CACHE_LINE_SIZE);
}

static inline bool
sum_is_good(const struct rte_mbuf *m)
{
	return (m->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK) == RTE_MBUF_F_RX_IP_CKSUM_GOOD;
}

/* Frames that `n` mbufs hold go into the core; those of other engines are handed over. */
static void
take_frames(struct ethdev_context *c, struct rte_mbuf **mbufs, unsigned n, uint64_t now)
{
	struct rte_mbuf *done[ETHDEV_BURST];
	uint32_t wake = 0;
	unsigned free = 0;

	for (unsigned i = 0; i < n; i++) {
		struct rte_mbuf *m = mbufs[i];
		int to;

		if (i + PREFETCH_AHEAD < n)
			prefetch_frame(mbufs[i + PREFETCH_AHEAD]);
		/* one that can't be made contiguous is cut, and refused for its length */
		if (m->nb_segs > 1)
			rte_pktmbuf_linearize(m);
		to = c->checked && sum_is_good(m)
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
		done[free++] = m;
	}
	if (free)
		wire_drop(c, (void *const *)done, free);
	for (; wake; wake &= wake - 1)
		c->port->config.wake(c->port->config.user, (unsigned)__builtin_ctz(wake));
}

static unsigned
take_handed(struct ethdev_context *c, struct ethdev_ring *from, uint64_t now)
{
	struct rte_mbuf *m, *done[ETHDEV_BURST];
	unsigned n = 0;

	while (n < ETHDEV_BURST && spsc_pop(&from->ring, &m, sizeof(m))) {
		roce_input_handed(c->roce, frame_bytes(m), rte_pktmbuf_data_len(m), now);
		done[n++] = m;
	}
	if (n)
		rte_pktmbuf_free_bulk(done, n);
	return n;
}

static unsigned
wire_receive(void *user, struct roce_context *ctx, uint64_t now)
{
	struct ethdev_context *c = user;
	struct rte_mbuf *mbufs[ETHDEV_BURST];
	unsigned n = 0;

	(void)ctx;
	c->now = now;
	if (c->armed) {
		c->armed = false;
		rte_eth_dev_rx_intr_disable(c->port->id, c->rx_queue);
	}
	if (c->early_count) {
		n = c->early_count;
		c->early_count = 0;
		take_frames(c, c->early, n, now);
	} else if (c->rx_queue != ETHDEV_NO_QUEUE && !parked(c)) {
		n = rte_eth_rx_burst(c->port->id, c->rx_queue, mbufs, ETHDEV_BURST);
		if (n)
			take_frames(c, mbufs, n, now);
	}
	for (unsigned i = 0; i < c->port->rx_queues; i++)
		if (c->rx_in[i])
			n += take_handed(c, c->rx_in[i], now);
	return n;
}

static bool
others_have_something(struct ethdev_context *c)
{
	for (unsigned i = 0; i < c->port->config.contexts; i++)
		if ((c->rx_in[i] && !spsc_empty(&c->rx_in[i]->ring)) ||
		    (c->tx_in[i] && !spsc_empty(&c->tx_in[i]->ring)))
			return true;
	return false;
}

/* Turns the interrupt on, then looks once more: what came before it was on raises none. */
static bool
arm_interrupt(struct ethdev_context *c)
{
	struct rte_epoll_event stale[1];

	while (rte_epoll_wait(c->rx_fd, stale, 1, 0) > 0)
		;
	if (parked(c))
		return true;
	rte_eth_dev_rx_intr_enable(c->port->id, c->rx_queue);
	c->armed = true;
	c->early_count = rte_eth_rx_burst(c->port->id, c->rx_queue, c->early, ETHDEV_BURST);
	return c->early_count == 0;
}

static uint64_t
wire_arm(void *user, uint64_t now, int *fd)
{
	struct ethdev_context *c = user;
	uint64_t next = UINT64_MAX;

	/* frames for us come by wake() where we have no queue */
	*fd = c->rx_fd;
	if (others_have_something(c) || c->early_count)
		return now;
	if (c->impaired)
		next = impair_next(&c->impair);
	if (c->tx_count)
		next = RTE_MIN(next, now + RETRY_NS);
	if (c->rx_queue != ETHDEV_NO_QUEUE && c->rx_fd >= 0 && !arm_interrupt(c))
		return now;
	return next;
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
	if (c->impaired)
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

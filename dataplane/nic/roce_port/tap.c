/* SPDX-License-Identifier: BSD-3-Clause */
/* Captures of a port: callbacks of its queues, called on the engines; without a capture none. */
#include "internal.h"
#include "base/fail.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_rcu_qsbr.h>

/* A context's end of the capture. */
struct tap {
	struct ethdev_context *context;
	const struct clock *clock;
	struct capture_ring *ring;
	const struct rte_eth_rxtx_callback *receive, *send; /* main's; the writer's in detach() */
};

struct ethdev_capture {
	struct ethdev_port *port;
	struct rte_rcu_qsbr *quiet;
	struct tap tap[ETHDEV_CONTEXTS_MAX];
};

static void
put(const struct tap *tap, const struct rte_mbuf *m, uint64_t now, uint16_t queue, bool out)
{
	uint8_t copy[CAPTURE_SNAP];
	struct capture_frame frame = {
	    .time = now,
	    .captured = RTE_MIN(rte_pktmbuf_pkt_len(m), CAPTURE_SNAP),
	    .original = rte_pktmbuf_pkt_len(m),
	    .queue = queue,
	    .out = out,
	};

	/* copied only where a frame is in pieces */
	capture_put(tap->ring, &frame, rte_pktmbuf_read(m, 0, frame.captured, copy));
}

static uint16_t
on_receive(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n, uint16_t max,
	   void *user)
{
	const struct tap *tap = user;
	uint64_t now = n ? clock_now(tap->clock) : 0;

	for (uint16_t i = 0; i < n; i++)
		put(tap, mbufs[i], now, queue, false);
	return n;
}

/* Called before the port takes the frames; those that it leaves are offered again, but captured
 * once. */
static uint16_t
on_send(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n, void *user)
{
	const struct tap *tap = user;
	uint64_t now = clock_now(tap->clock);

	for (uint16_t i = (uint16_t)RTE_MIN(tap->context->tx_offered, n); i < n; i++)
		put(tap, mbufs[i], now, queue, true);
	return n;
}

/* On the writer's thread. An engine may be within a callback until its turn ends. */
static void
detach(void *user)
{
	struct ethdev_capture *c = user;
	struct ethdev_port *port = c->port;
	uint64_t token;

	for (unsigned i = 0; i < port->config.contexts; i++) {
		struct tap *tap = &c->tap[i];

		if (tap->receive)
			rte_eth_remove_rx_callback(port->id, tap->context->rx_queue, tap->receive);
		if (tap->send)
			rte_eth_remove_tx_callback(port->id, tap->context->tx_queue, tap->send);
	}
	token = rte_rcu_qsbr_start(c->quiet);
	while (rte_rcu_qsbr_check(c->quiet, token, false) == 0)
		usleep(50);
	for (unsigned i = 0; i < port->config.contexts; i++) {
		rte_free((void *)(uintptr_t)c->tap[i].receive);
		rte_free((void *)(uintptr_t)c->tap[i].send);
	}
	free(c);
	/* pairs with the acquire in ethdev_capture() */
	atomic_store_explicit(&port->captured, false, memory_order_release);
}

static int
start_thread(pthread_t *thread, void *(*run)(void *), void *arg)
{
	return rte_ctrl_thread_create(thread, "weir-capture", NULL, run, arg);
}

/* ns since 1970 at time 0 of the clock. */
static uint64_t
epoch(const struct clock *clock)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec - clock_now(clock);
}

int
ethdev_capture(struct ethdev_port *port, const struct clock *clock, struct rte_rcu_qsbr *quiet,
	       int fd, uint64_t limit, struct capture **out, char *error, size_t size)
{
	struct capture_config config = {
	    .port = port->name,
	    .driver = port->info.driver_name,
	    .application = "weir-dataplane " WEIR_VERSION,
	    .rings = port->config.contexts,
	    .epoch = epoch(clock),
	    .limit = limit,
	    .fd = fd,
	    .thread = start_thread,
	    .detach = detach,
	};
	struct ethdev_capture *c;
	struct capture *capture;
	int rc;

	/* pairs with the release in detach() */
	if (atomic_load_explicit(&port->captured, memory_order_acquire))
		return fail(error, size, -EBUSY,
			    "port %s is being captured; wait until that has ended", port->name);
	c = calloc(1, sizeof(*c));
	if (!c)
		return fail(error, size, -ENOMEM, "no memory for a capture; free some");
	c->port = port;
	c->quiet = quiet;
	config.user = c;
	memcpy(config.mac, port->mac, sizeof(config.mac));
	rc = capture_create(&config, &capture, error, size);
	if (rc) {
		free(c);
		return rc;
	}
	atomic_store_explicit(&port->captured, true, memory_order_relaxed);
	for (unsigned i = 0; i < port->config.contexts && !rc; i++) {
		struct ethdev_context *context = port->context[i];
		struct tap *tap = &c->tap[i];

		*tap = (struct tap){context, clock, capture_ring(capture, i), NULL, NULL};
		if (context->rx_queue != ETHDEV_NO_QUEUE) {
			tap->receive =
			    rte_eth_add_rx_callback(port->id, context->rx_queue, on_receive, tap);
			rc = tap->receive ? 0 : -rte_errno;
		}
		if (!rc && context->tx_queue != ETHDEV_NO_QUEUE) {
			tap->send =
			    rte_eth_add_tx_callback(port->id, context->tx_queue, on_send, tap);
			rc = tap->send ? 0 : -rte_errno;
		}
	}
	if (!rc)
		rc = capture_start(capture);
	if (rc) {
		detach(c);
		capture_destroy(capture);
		return fail(error, size, rc, "port %s can't be captured: %s; try again", port->name,
			    rte_strerror(-rc));
	}
	*out = capture;
	return 0;
}

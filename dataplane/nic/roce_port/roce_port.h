/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ethdev shell: gives the RoCEv2 core (roce.h) a DPDK port as its wire. One port has one
 * context for each engine that uses it and as many queues as the port offers, at most one per
 * context. A context without a receive queue gets its frames from the others; one without a
 * transmit queue hands its frames to the queue's owner. Open and close run on the main lcore.
 */
#ifndef WEIR_ROCE_ETHDEV_H
#define WEIR_ROCE_ETHDEV_H

#include "capture/capture.h"
#include "lcore/clock.h"
#include "nic/inject/impair.h"
#include "nic/roce/roce.h"

#define ETHDEV_CONTEXTS_MAX 32u

struct ethdev_config {
	const char *port; /* DPDK name or number */
	struct nic_gid gid;
	uint8_t prefix;
	struct nic_route routes[NIC_ROUTES];
	uint8_t route_count;
	uint16_t vlan; /* 0 = no tag */
	uint8_t pcp;
	uint16_t mtu;	 /* path MTU; 0 = largest that the port carries */
	uint16_t queues; /* 0 = chosen by the port's driver */
	unsigned contexts;
	int numa_socket[ETHDEV_CONTEXTS_MAX]; /* of each context's engine */
	bool interrupts; /* engines sleep: use receive interrupts where the port has them */
	struct impair_config impair;
	uint64_t timeout_ns; /* 0 = the core's default, as in roce_config */
	uint8_t retry, rnr_retry, rd_atomic;
	uint32_t max_qp, max_mr, cq_depth, tx_frames;
	/* Memory for tables of the core, zeroed, aligned to 64. */
	void *(*memory_get)(void *user, size_t bytes, int numa_socket);
	void (*memory_put)(void *user, void *memory, size_t bytes);
	/* A context has frames for another one, which may sleep. Called on an engine. */
	void (*wake)(void *user, unsigned context);
	void *user;
};

struct ethdev_port;

/* For the table printed at start. */
struct ethdev_info {
	char name[64], driver[32];
	uint8_t mac[6];
	uint16_t mtu, rx_queues, tx_queues;
	int numa_socket; /* -1 unknown */
	char help[64];	 /* work that the port does for us, and how ICRCs are computed */
	uint32_t frames; /* in the pool */
	size_t pool_bytes, table_bytes;
	/* as of now */
	uint16_t rx_depth, tx_depth; /* descriptors of a queue */
	uint32_t frames_free;	     /* of `frames` */
	uint32_t speed;		     /* Mbit/s, 0 unknown */
	struct impair_config impair;
};

/*
 * Opens a port, makes the device and its contexts. Returns 0, or -errno and a line "cause; remedy"
 * in error. `config` is copied.
 */
int ethdev_open(const struct ethdev_config *config, struct ethdev_port **port, char *error,
		size_t size);
/* Stops the port and frees everything; the engines have stopped. NULL is fine. */
void ethdev_close(struct ethdev_port *port);

/*
 * A memif client asks its server only once: without a server, or after its end, the port must be
 * restarted. True: that is due; then call ethdev_park(), wait for a quiet turn of all engines, call
 * ethdev_restart(). Main lcore.
 */
bool ethdev_wants_restart(const struct ethdev_port *port);
void ethdev_park(struct ethdev_port *port);
void ethdev_restart(struct ethdev_port *port);

/*
 * Changes the impairments of a running port, all but their seed. 0, or -ENOMEM: they hold for some
 * contexts only. Main lcore.
 */
int ethdev_impair(struct ethdev_port *port, const struct impair_config *impair);
/* Statistic `index` of the port's driver: its name and value. False: there are fewer. Main lcore.
 */
bool ethdev_xstat(const struct ethdev_port *port, unsigned index, char *name, size_t size,
		  uint64_t *value);

struct rte_rcu_qsbr;

/*
 * tap.c: begins to write the port's frames to fd, `limit` of them (0: until it is
 * stopped). The capture owns fd after 0; see capture.h for how it ends. One at a time, else -EBUSY.
 * -errno and a line "cause; remedy" in error. Main lcore.
 */
int ethdev_capture(struct ethdev_port *port, const struct clock *clock, struct rte_rcu_qsbr *quiet,
		   int fd, uint64_t limit, struct capture **capture, char *error, size_t size);

struct nic_device *ethdev_device(const struct ethdev_port *port);
struct nic_context *ethdev_context(const struct ethdev_port *port, unsigned context);
void ethdev_describe(const struct ethdev_port *port, struct ethdev_info *info);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The whole of a data plane: engines on their lcores, the ports they use, the broker on the main
 * lcore. Built from the options, run by main.c, taken down in reverse.
 */
#ifndef WEIR_PLANE_H
#define WEIR_PLANE_H

#include "broker/broker.h"
#include "lcore/loop.h"
#include "nic/roce_port/roce_port.h"
#include "nic/verbs/verbs.h"
#include "options.h"

#define PLANE_ENGINES_MAX BROKER_ENGINES_MAX
#define PLANE_EXPORT_KEYS 16384u /* exports that peers WRITE and READ, per rights and device */

/* Counters of an engine, per second. Main writes once per second, telemetry reads; relaxed. */
struct plane_rates {
#define X(name) _Atomic uint64_t name;
	LOOP_COUNTERS(X) X(turns) ENGINE_TRAFFIC(X)
#undef X
};

struct plane_engine {
	struct loop *loop;
	struct engine_config config;
	struct engine *engine;
	struct nic_srq *srq;
	uint8_t *recv;	/* buffers of its receive WRs, and a line: engine_recv_bytes() */
	uint64_t fence; /* peers READ it behind WRITEs; nobody writes it */
	struct nic_mr recv_mr, fence_mr;
	unsigned lcore, cpu;
	int numa_socket;
	int port; /* index in plane.port, -1 none */
	unsigned context;
	bool launched;
	struct plane_rates rates, totals; /* per second; at the last look */
	uint64_t cycles;		  /* at the last plane_turning() */
};

/* A NIC port, by one of the two drivers. */
struct plane_port {
	struct plane *plane;
	unsigned index;
	struct ethdev_port *ethdev;
	struct vnic_device *verbs;
	struct nic_fault *fault; /* NULL: no faults on purpose */
};

struct plane {
	const struct options *options;
	struct nic_spec nic[OPTIONS_NICS]; /* as of now: impairments may have been changed */
	const char *run_dir;
	struct clock clock;
	struct main_bell bell;
	struct rte_rcu_qsbr *quiet;
	unsigned engines, ports;
	struct plane_engine engine[PLANE_ENGINES_MAX];
	struct plane_port port[OPTIONS_NICS];
	struct broker *broker;
	uint64_t rated;	     /* ns, last look at the counters */
	uint64_t ports_seen; /* ns, last look at the ports */
};

/*
 * Builds everything and starts the engines. 0, or -errno and a line "cause; remedy" in error.
 * plane_close() is due in both cases.
 */
int plane_open(struct plane *p, const struct options *options, const char *run_dir, char *error,
	       size_t size);
/* Stops the engines and frees everything. */
void plane_close(struct plane *p);
/* Passes answers and events of the engines to the broker. */
void plane_collect(struct plane *p);
/* Geometry of an arena by the options. 0, or -EINVAL: it is too small for a session. */
int plane_arena(const struct plane *p, struct weir_geometry *g);
/* Restarts ports whose drivers do not; returns ns until the next call. */
uint64_t plane_restart_ports(struct plane *p);
/* Whether every engine's thread has finished a turn since the last call. */
bool plane_turning(struct plane *p);
/* Once a second: computes the rates. */
void plane_rate(struct plane *p);

/* Receive work requests of an engine: the sum that it grants to the peers of its links. */
uint32_t plane_srq_depth(const struct plane *p);

/* port.c */
struct plane_port_info {
	char name[64], text[512];
	int numa_socket;	      /* -1 unknown */
	uint32_t frames, frames_free; /* in the pool; 0: there is none */
	size_t pool_bytes, table_bytes;
};
/* Opens port `index` and gives its engines their contexts. 0, or -errno and a line in error. */
int plane_port_open(struct plane *p, unsigned index, char *error, size_t size);
void plane_port_close(struct plane_port *port);
struct nic_device *plane_port_device(const struct plane_port *port);
struct nic_context *plane_port_context(const struct plane_port *port, unsigned context);
void plane_port_describe(const struct plane_port *port, struct plane_port_info *info);

/* capture_ports.c: broker_config.capture; user is the plane. */
int plane_capture(void *user, const char *name, int fd, uint64_t limit, struct capture **capture,
		  char *error, size_t size);

/* show.c: what weirctl shows and sets; user is the plane. See broker_config. */
void plane_port_row(void *user, uint32_t engine, struct weir_row_port *row);
bool plane_row(void *user, uint32_t rows, uint32_t index, void *record);
int plane_port_set(void *user, const char *port, const char *key, const char *value, char *error,
		   size_t size);
bool plane_port_setting(void *user, uint32_t index, struct weir_row_setting *row);

/* crash_report.c: lines about the engines of the plane that is watched, for crash_install(). */
void plane_crash_state(void);
void plane_crash_watch(const struct plane *p);

/* budget.c: prints engines, ports and their memory: on stdout, or into a log of another format. */
void budget_print(const struct plane *p);
/* Row `index` of the memory that the data plane has, or may have. False: there are fewer. */
bool budget_row(const struct plane *p, uint32_t index, struct weir_row_memory *r);

/* telemetry.c: endpoints /weir/... on DPDK's telemetry socket, until telemetry_stop(). */
void telemetry_start(const struct plane *p);
void telemetry_stop(void);

#endif

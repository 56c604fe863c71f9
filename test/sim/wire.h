/* SPDX-License-Identifier: BSD-3-Clause */
/* Ports and the wire between them. A port belongs to one engine of one node. */
#ifndef WEIR_TEST_SIM_WIRE_H
#define WEIR_TEST_SIM_WIRE_H

#include "sim.h"

#include "worlds/frame_net.h"

#define SIM_RX_QUEUE 256u
#define SIM_TX_QUEUE 64u

struct sim_port {
	struct frame_port frames; /* first: the wire's user */
	struct sim *s;
	bool event_fd;
	struct roce_context *ctx;
	struct frame *tx[SIM_TX_QUEUE];
	uint32_t tx_count;
	uint64_t busy_until; /* the line is sending until then */
	uint64_t full_until; /* the queue pretends to be full until then */
};

extern const struct roce_wire sim_wire;

void sim_port_init(struct sim_port *p, struct sim *s, uint32_t node, uint32_t engine,
		   bool event_fd);
/* Frames wait to be received. */
bool sim_port_readable(const struct sim_port *p);
/* Drops what waits in the port. */
void sim_port_fini(struct sim_port *p);
uint32_t sim_node_ip(uint32_t node);
/* Frames that somebody still holds; all of them at home when a seed has ended well. */
uint64_t sim_frames_out(void);
/* After a failed seed: what was out is lost. */
void sim_frames_forget(void);
/* Whether node `node` hears or says anything now. */
bool sim_node_dark(const struct sim *s, uint32_t node);
/* Forgets frames in flight, at the end of a seed. */
void sim_wire_reset(struct sim *s);

#endif

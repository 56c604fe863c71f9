/* SPDX-License-Identifier: BSD-3-Clause */
/* Ports and the wire between them. A port belongs to one engine of one node. */
#ifndef WEIR_TEST_SIM_WIRE_H
#define WEIR_TEST_SIM_WIRE_H

#include "sim.h"

#include "nic/roce/roce.h"

#define SIM_FRAME_ROOM 4352u /* ROCE_FRAME_MAX(4096) and some to spare */
#define SIM_RX_QUEUE 256u
#define SIM_TX_QUEUE 64u

struct sim_frame { /* followed by SIM_FRAME_ROOM bytes */
	uint32_t refs;
	uint32_t sent_length; /* 0: not sent yet */
	struct sim_frame *next;
};

struct sim_queue {
	struct {
		struct sim_frame *frame;
		uint32_t length;
	} slot[SIM_RX_QUEUE];
	uint32_t head, tail; /* free running: put at head, taken at tail */
};

struct sim_port {
	struct sim *s;
	uint32_t node, engine;
	bool event_fd;
	struct roce_context *ctx;
	struct sim_queue rx, handed;
	struct {
		struct sim_frame *frame;
		uint32_t length;
	} tx[SIM_TX_QUEUE];
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

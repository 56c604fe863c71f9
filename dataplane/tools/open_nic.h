/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The device of --nic, of either driver, for a tool: one context, polled by the thread that opens
 * it. Closed by its nic_ops.
 */
#ifndef WEIR_OPEN_NIC_H
#define WEIR_OPEN_NIC_H

#include "nic/nic.h"
#include "daemon/options.h"

struct ethdev_port;

struct open_nic_need {
	uint32_t queue_pairs;
	uint32_t sends;	   /* work requests per queue pair */
	uint32_t receives; /* of the SRQ */
};

struct open_nic {
	struct nic_device *dev;
	struct nic_context *context;
	struct ethdev_port *ethdev; /* NULL: verbs */
};

/* 0, or -errno and a line "cause; remedy" in error. */
int open_nic(const struct nic_spec *spec, const struct open_nic_need *need, struct open_nic *out,
	     char *error, size_t size);
/*
 * Waits until the link is up, and fills *attr; from then on the driver gets no events
 * (munmap_guard.h). 0, or -errno and a line in error.
 */
int open_nic_await_link(const struct open_nic *nic, struct nic_attr *attr, char *error,
			size_t size);

#endif

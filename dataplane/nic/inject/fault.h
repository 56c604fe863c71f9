/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Faults on purpose, for tests (fault= of --nic): at intervals a queue pair of a device moves to
 * ERR, with or without an event, or the key of a region that peers write to is revoked. Lies
 * between a driver and its user; the data path is the driver's own.
 */
#ifndef WEIR_NIC_FAULT_H
#define WEIR_NIC_FAULT_H

#include "nic/nic.h"

struct nic_fault;

struct nic_fault_config {
	uint64_t every_ns; /* between two faults; checked when events are polled */
	size_t region;	   /* length of the regions that may be revoked; 0: none is */
	uint64_t (*now)(void);
};

/* Main, before engines run. NULL: no memory. Freed after the device is closed. */
struct nic_fault *nic_fault_attach(struct nic_device *dev, struct nic_context *const *contexts,
				   unsigned count, const struct nic_fault_config *config);
void nic_fault_free(struct nic_fault *f);

#endif

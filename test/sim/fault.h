/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WEIR_TEST_SIM_FAULT_H
#define WEIR_TEST_SIM_FAULT_H

#include "nic/nic.h"

struct sim_fault;
struct sim_node;

/* Puts itself between the device, with its contexts, and who uses them. Freed with free(). */
struct sim_fault *sim_fault_create(struct sim_node *n, struct nic_device *dev,
				   struct nic_context *const *ctx);

#endif

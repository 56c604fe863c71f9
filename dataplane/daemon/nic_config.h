/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Configurations of drivers by the argument of --nic, with memory of memory.h. The caller adds
 * contexts, depths and the function that wakes an engine.
 */
#ifndef WEIR_NIC_CONFIG_H
#define WEIR_NIC_CONFIG_H

#include "nic/roce_port/roce_port.h"
#include "nic/verbs/verbs.h"
#include "options.h"

struct ethdev_config nic_config_ethdev(const struct nic_spec *spec);
struct vnic_config nic_config_verbs(const struct nic_spec *spec);

#endif

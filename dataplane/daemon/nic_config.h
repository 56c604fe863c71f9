/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What --nic says, as the driver that it names is told it; memory is that of memory.h. Contexts,
 * depths, who is woken: the caller's.
 */
#ifndef WEIR_NIC_CONFIG_H
#define WEIR_NIC_CONFIG_H

#include "nic/roce_port/roce_port.h"
#include "nic/verbs/verbs.h"
#include "options.h"

struct ethdev_config nic_config_ethdev(const struct nic_spec *spec);
struct vnic_config nic_config_verbs(const struct nic_spec *spec);

#endif

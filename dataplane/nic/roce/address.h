/* SPDX-License-Identifier: BSD-3-Clause */
/* The IP address of a GID. */
#ifndef WEIR_ROCE_ADDRESS_H
#define WEIR_ROCE_ADDRESS_H

#include "packet.h"

#include <stdbool.h>

struct roce_device;

enum address_kind { ADDRESS_NONE, ADDRESS_IP4, ADDRESS_IP6 };
enum address_kind roce_address(const struct nic_gid *gid, struct address *address);
bool roce_on_link(const struct roce_device *dev, struct address ip);
/* The address whose MAC frames to `gid` get: its own, or that of the gateway of the longest route
 * to it. False: there is none. */
bool roce_next_hop(const struct roce_device *dev, const struct nic_gid *gid, struct address *hop);

#endif

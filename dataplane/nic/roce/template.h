/* SPDX-License-Identifier: BSD-3-Clause */
/* Headers of all frames to one address, made once and copied to each. */
#ifndef WEIR_ROCE_TEMPLATE_H
#define WEIR_ROCE_TEMPLATE_H

#include "packet.h"

struct roce_device;

#define CACHE_LINE 64
/* Headers up to the BTH: offset 0 begins a cache line, longer headers lie before it. */
#define ROCE_TEMPLATE (2 * CACHE_LINE)
#define ROCE_TEMPLATE_AT CACHE_LINE

/*
 * Headers of all frames to `ip`, with traffic class and priority of struct nic_qp_attr, up to the
 * BTH, but for lengths, checksum, MAC, source port, QPN:
 * returns the sum of the IPv4 header as it stands.
 */
uint32_t roce_template_make(const struct roce_device *dev, struct address ip, uint8_t traffic_class,
			    uint8_t priority, uint8_t *template);
/* Copies the template, with MAC and lengths, into a frame that will end at `end`. */
void roce_template_use(const struct headers *h, const uint8_t *template, uint32_t ip_sum,
		       uint64_t mac, uint8_t *frame, uint32_t end);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Datagrams: address handles on main, the rest on the engine. */
#ifndef WEIR_ROCE_UD_H
#define WEIR_ROCE_UD_H

#include "base/list.h"
#include "packet.h"
#include "template.h"
#include "wr.h"

struct neighbour;
struct roce_device;

#define ROCE_NEIGHBOUR_NS 4000000u /* datagrams: between checks whether the MAC is known */

/* Destination of a datagram. Main makes and frees it, engines read. */
struct roce_ah {
	struct roce_device *dev;
	struct list_node all;
	uint32_t ip_sum;
	struct neighbour *neighbour;
	_Alignas(CACHE_LINE) uint8_t template[ROCE_TEMPLATE];
};

int roce_ah_create(struct nic_device *dev, const struct nic_ah_attr *attr, struct nic_ah **ah);
void roce_ah_destroy(struct nic_ah *ah);
int roce_ud_take(const struct roce_qp *qp, struct sq_entry *e, const struct nic_send_wr *wr);
bool roce_ud_transmit(struct roce_qp *qp, unsigned limit, unsigned *sent, uint64_t now);
void roce_ud_expired(struct roce_qp *qp, uint64_t now);
enum drop roce_ud_input(struct roce_qp *qp, const uint8_t *frame, struct packet *p);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Datagrams: the queue pair and buffers of each engine, and address handles of links. */
#ifndef WEIR_BROKER_DATAGRAM_H
#define WEIR_BROKER_DATAGRAM_H

#include "broker.h"

struct broker_link;

/* Makes the objects that datagrams over this link still lack; fills in the command. 0 or -errno. */
int datagrams_fill(struct broker *b, struct broker_link *l, struct engine_conn_command *k);
/* Largest datagram between programs of this host. */
uint16_t datagrams_local_mtu(const struct broker *b, uint32_t engine);
/* The driver reports that a QP has failed, by its nic_qp_init.user. False: not one of these. */
bool datagrams_qp_fatal(struct broker *b, const void *qp_user);
/* The engine reports that this QP has failed and that no WR of it is outstanding. */
void datagrams_error(struct broker *b, uint32_t engine, uint32_t qpn);
void datagrams_free_all(struct broker *b);

#endif

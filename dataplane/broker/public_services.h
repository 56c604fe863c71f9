/* SPDX-License-Identifier: BSD-3-Clause */
/* Public services: names that the whole cluster knows, offered here or by other nodes. */
#ifndef WEIR_BROKER_PUBLIC_SERVICES_H
#define WEIR_BROKER_PUBLIC_SERVICES_H

#include "broker.h"

struct broker_session;
struct weir_services;

/* Names that this node offers now. */
const struct weir_services *services_own(const struct broker *b);
/* Sends control the names that this node offers. */
void services_tell(struct broker *b);
/* Our names have changed: control is told, at a limited rate. */
void services_changed(struct broker *b);
/* Returns the next deadline. */
uint64_t services_timers(struct broker *b, uint64_t now);
/* A report of control: the names that a node offers. */
void services_input(struct broker *b, const struct weir_ctl_msg *m);
void find_request(struct broker_session *s, const struct weir_session_msg *m);
/* Row `index`, to be skipped if it has no name. False: no such row. */
bool service_row(const struct broker *b, uint32_t index, struct weir_row_service *r);

#endif

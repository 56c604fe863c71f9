/* SPDX-License-Identifier: BSD-3-Clause */
/* Ports: whether they have a link, and errors that they report. */
#ifndef WEIR_BROKER_PORT_H
#define WEIR_BROKER_PORT_H

#include "broker.h"

#define PORT_FIELDS(name) (struct log_field[]){{"port", 0, name}}, 1

/* Asks the ports, when it is time, and logs changes. */
void port_look(struct broker *b, uint64_t now);

#endif

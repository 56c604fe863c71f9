/* SPDX-License-Identifier: BSD-3-Clause */
/* Ports that nobody else is given, however many tests run at once. */
#ifndef WEIR_TEST_CONTROL_PORT_H
#define WEIR_TEST_CONTROL_PORT_H

#include <stdint.h>

/*
 * A free TCP port of all addresses. It is held, bound but not listened at, so that the kernel gives
 * it to no other socket that asks for any; who asks for this one with SO_REUSEADDR may listen
 * there.
 */
uint16_t port_take(void);
/* Gives all back. */
void port_drop_all(void);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* control.sock: weir-control and weirctl. */
#ifndef WEIR_BROKER_CONTROL_SOCKET_H
#define WEIR_BROKER_CONTROL_SOCKET_H

#include "broker.h"

int control_socket_open(struct broker *b);
void control_socket_close(struct broker *b);
/* Returns the next deadline. */
uint64_t control_socket_timers(struct broker *b, uint64_t now);
/* Sends a message to weir-control, if it is connected. */
void broker_control_send(struct broker *b, const struct weir_ctl_msg *m);
/* Whether a weir-control is connected. */
bool control_connected(const struct broker *b);
/* A report of control was lost: disconnects it, since it tells everything when it connects again.
 */
void control_restart(struct broker *b);
/* weir-control has connected: sends it the whole state. */
void control_welcome(struct broker *b);

#endif

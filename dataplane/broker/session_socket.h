/* SPDX-License-Identifier: BSD-3-Clause */
/* session.sock: programs attach here, and ask by requests. */
#ifndef WEIR_BROKER_SESSION_SOCKET_H
#define WEIR_BROKER_SESSION_SOCKET_H

#include "broker.h"

int session_socket_open(struct broker *b);
void session_socket_close(struct broker *b);
/* Returns the next deadline. */
uint64_t session_socket_timers(struct broker *b, uint64_t now);

#endif

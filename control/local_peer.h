/* SPDX-License-Identifier: BSD-3-Clause */
/* Whose process is at the other end of a TCP connection over loopback, without certificates. */
#ifndef WEIR_CONTROL_LOCAL_PEER_H
#define WEIR_CONTROL_LOCAL_PEER_H

/*
 * NULL if the socket's other end is not on loopback, or belongs to our user or root; else why it is
 * refused (static, valid until the next call). To be called when the other end has said something:
 * before, it may not have been accepted yet.
 */
const char *local_peer_doubt(int fd);

#endif

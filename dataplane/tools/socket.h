/* SPDX-License-Identifier: BSD-3-Clause */
/* How a tool and the process at the other end find each other over TCP. No DPDK. */
#ifndef WEIR_TOOL_SOCKET_H
#define WEIR_TOOL_SOCKET_H

#include <stddef.h>
#include <stdint.h>

/* A socket that listens; or -errno, and a line "cause; remedy" in error. */
int tool_listen(uint16_t port, char *error, size_t size);
/* Who calls there, waiting; or -errno. */
int tool_accept(int listener);
/*
 * A connected one. Who refuses may be starting: it is asked for 10 s. `who` is what should be
 * there.
 */
int tool_dial(const char *host, uint16_t port, const char *who, char *error, size_t size);

#endif

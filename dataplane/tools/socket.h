/* SPDX-License-Identifier: BSD-3-Clause */
/* Connects a tool with the process at the other end over TCP. No DPDK. */
#ifndef WEIR_TOOL_SOCKET_H
#define WEIR_TOOL_SOCKET_H

#include <stddef.h>
#include <stdint.h>

/* A socket that listens; or -errno, and a line "cause; remedy" in error. */
int tool_listen(uint16_t port, char *error, size_t size);
/* Waits for a connection: its socket; or -errno. */
int tool_accept(int listener);
/*
 * A connected socket; or -errno and a line in error. A host that refuses may be starting: it is
 * tried for 10 s. `who`: the program expected there.
 */
int tool_dial(const char *host, uint16_t port, const char *who, char *error, size_t size);

#endif

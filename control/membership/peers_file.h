/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The peers file: a line a node, `ID HOST:PORT NIC-ADDR[,NIC-ADDR...]`; '#' starts a comment. A
 * NIC-ADDR is an IPv4 or IPv6 address, a GID (written as IPv6) or lid:LID. Pure: text in, table or
 * an error with line and column out.
 */
#ifndef WEIR_CONTROL_PEERS_H
#define WEIR_CONTROL_PEERS_H

#include "ipc/dpctl.h"

#include <stdbool.h>

struct peer_entry {
	uint16_t id;
	uint32_t line;
	uint32_t address_count, lid_count;
	uint8_t address[WEIR_CTL_ADDRESSES][16]; /* IPv4 as ::ffff:a.b.c.d */
	uint16_t lid[WEIR_CTL_ADDRESSES];	 /* 0 none */
	char control[WEIR_CTL_PEER_TEXT];	 /* HOST:PORT as written */
};

struct peers {
	struct peer_entry *list;
	uint32_t count;
};

/* Text beyond this is not a peers file. */
#define PEERS_TEXT_MAX (1u << 20)

/*
 * Parses `text`. 0 and *peers (free with peers_free), or -EINVAL / -ENOMEM and `error`:
 * "LINE:COLUMN: cause; remedy".
 */
int peers_parse(const char *text, struct peers *peers, char *error, size_t size);
void peers_free(struct peers *peers);
const struct peer_entry *peers_find(const struct peers *peers, uint32_t id);

/*
 * Splits HOST:PORT or [HOST]:PORT. 0 or -EINVAL. `host` has `size` bytes; the brackets are taken
 * off. Port 0 is refused unless `any_port`.
 */
int host_port_split(const char *text, bool any_port, char *host, size_t size, uint16_t *port);

#endif

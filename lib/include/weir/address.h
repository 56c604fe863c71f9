/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Addresses: one type for every way to name a peer (RDMAvisor's Addr: IPv4, IPv6, GID, LID), each
 * followed by a service.
 */
#ifndef WEIR_ADDRESS_H
#define WEIR_ADDRESS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_SERVICE_MAX 32	 /* bytes of a service name, its NUL included */
#define WEIR_ADDRESS_TEXT_MAX 96 /* bytes of the longest text form, its NUL included */

enum weir_address_kind {
	WEIR_ADDRESS_NONE = 0,
	WEIR_ADDRESS_NODE = 1, /* id: node id, 0 ... 65534 */
	WEIR_ADDRESS_IPV4 = 2, /* ip[0..4) in network order */
	WEIR_ADDRESS_IPV6 = 3, /* ip[0..16) */
	WEIR_ADDRESS_GID = 4,  /* ip[0..16) */
	WEIR_ADDRESS_LID = 5,  /* id: LID */
	/* whichever node offers the service to the whole cluster (WEIR_LISTEN_PUBLIC) */
	WEIR_ADDRESS_SERVICE = 6,
};

struct weir_address {
	uint32_t kind; /* enum weir_address_kind */
	uint32_t id;   /* node id or LID */
	uint8_t ip[16];
	char service[WEIR_SERVICE_MAX]; /* letters, digits, '_', '-', '.'; may be empty when
					   listening on none */
};

/*
 * Parses `text`: node:7:SERVICE, 10.0.0.2:SERVICE, [fe80::1]:SERVICE, gid:[fe80::1]:SERVICE,
 * lid:12:SERVICE, service:SERVICE. Returns 0 and fills *address, or -EINVAL and leaves it alone.
 * Doesn't block; any thread.
 */
int weir_address_parse(const char *text, struct weir_address *address);

/* Writes the text form of `address` into buf (`size` bytes). Returns 0, or -ENOSPC, or -EINVAL. */
int weir_address_format(const struct weir_address *address, char *buf, size_t size);

#ifdef __cplusplus
}
#endif
#endif

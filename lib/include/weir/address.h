/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Addresses of services. One type covers every way to name an endpoint (RDMAvisor's Addr: IPv4,
 * IPv6, GID, LID); each address is a node or a port of a node, followed by a service name.
 */
#ifndef WEIR_ADDRESS_H
#define WEIR_ADDRESS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_SERVICE_MAX 32	 /* bytes: longest service name, NUL included */
#define WEIR_ADDRESS_TEXT_MAX 96 /* bytes: longest text form of an address, NUL included */

/* How an address names the node; the comment says which field holds the name. */
enum weir_address_kind {
	WEIR_ADDRESS_NONE = 0, /* no address */
	WEIR_ADDRESS_NODE = 1, /* id: node id, 0 to 65534 */
	WEIR_ADDRESS_IPV4 = 2, /* ip[0] to ip[3], network byte order */
	WEIR_ADDRESS_IPV6 = 3, /* ip[0] to ip[15], network byte order */
	WEIR_ADDRESS_GID = 4,  /* ip[0] to ip[15], network byte order */
	WEIR_ADDRESS_LID = 5,  /* id: local identifier of an InfiniBand port */
	/* Any node that offers the service to the whole cluster (WEIR_LISTEN_PUBLIC). */
	WEIR_ADDRESS_SERVICE = 6,
};

struct weir_address {
	uint32_t kind;	/* enum weir_address_kind */
	uint32_t id;	/* node id or LID, by kind */
	uint8_t ip[16]; /* IPv4, IPv6 or GID, by kind */
	/* 1 to 31 letters, digits, '_', '-', '.', then NUL; may be empty if nothing listens */
	char service[WEIR_SERVICE_MAX];
};

/*
 * Parses the text form of an address: node:7:SERVICE, 10.0.0.2:SERVICE, [fe80::1]:SERVICE,
 * gid:[fe80::1]:SERVICE, lid:12:SERVICE or service:SERVICE.
 *
 * @text     NUL-terminated text
 * @address  filled on success, unchanged on failure
 *
 * Returns 0, or -EINVAL if the text is not an address; weir_reason() has the mistake and the
 * remedy. Names of hosts are not addresses, see weir_connect_to().
 * Any thread; does not block; needs no handle.
 */
int weir_address_parse(const char *text, struct weir_address *address);

/*
 * Writes the text form of an address, NUL-terminated. WEIR_ADDRESS_TEXT_MAX bytes are always
 * enough.
 *
 * @address  address to format
 * @buf      receives the text
 * @size     size of buf in bytes
 *
 * Returns 0, -ENOSPC if buf is too small, or -EINVAL if the kind or the
 * service name is invalid.
 * Any thread; does not block; needs no handle.
 */
int weir_address_format(const struct weir_address *address, char *buf, size_t size);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds the owner of the other end of a TCP connection over loopback, without certificates. */
#ifndef WEIR_CONTROL_LOCAL_PEER_H
#define WEIR_CONTROL_LOCAL_PEER_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

static inline bool
address_is_loopback(const struct sockaddr_storage *address)
{
	const struct sockaddr_in *v4 = (const void *)address;
	const struct sockaddr_in6 *v6 = (const void *)address;

	if (address->ss_family == AF_INET)
		return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
	if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
		return v6->sin6_addr.s6_addr[12] == 127;
	return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

/*
 * NULL if the socket's other end is not on loopback, or belongs to our user or root; else why it is
 * refused (static, valid until the next call). To be called when the other end has said something:
 * before, it may not have been accepted yet.
 */
const char *local_peer_doubt(int fd);

#endif

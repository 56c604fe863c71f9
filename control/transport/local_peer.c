/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernel knows who made the socket at the other end: it is asked through sock_diag for the one
 * socket with our two addresses swapped. A socket whose process has closed it belongs to nobody any
 * more; the kernel then says user 0 and inode 0.
 */
#include "local_peer.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct question {
	struct nlmsghdr head;
	struct inet_diag_req_v2 ask;
};

struct answer {
	struct nlmsghdr head;
	union {
		struct inet_diag_msg is;
		struct nlmsgerr error;
		char room[1024]; /* attributes follow */
	};
};

// Sockets of both families meet where IPv4 is written as IPv6: there the kernel knows IPv4.
static void
put_address(const struct sockaddr_storage *from, uint8_t *family, __be32 address[4], __be16 *port)
{
	const struct sockaddr_in6 *v6 = (const void *)from;
	const struct sockaddr_in *v4 = (const void *)from;

	*family = AF_INET;
	*port = v4->sin_port;
	if (from->ss_family == AF_INET) {
		address[0] = v4->sin_addr.s_addr;
	} else if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
		memcpy(address, v6->sin6_addr.s6_addr + 12, 4);
	} else {
		*family = AF_INET6;
		memcpy(address, &v6->sin6_addr, 16);
	}
}

// The socket's owner. 0, or -errno; -ENOENT: there is no such socket.
static int
find_owner(const struct sockaddr_storage *own, const struct sockaddr_storage *peer, uid_t *uid)
{
	struct question q = {
	    .head = {.nlmsg_len = sizeof(q),
		     .nlmsg_type = SOCK_DIAG_BY_FAMILY,
		     .nlmsg_flags = NLM_F_REQUEST},
	    .ask = {.sdiag_protocol = IPPROTO_TCP,
		    .idiag_states = ~0u,
		    .id = {.idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}},
	};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG), status;
	struct answer a;
	ssize_t n = -1;

	if (fd < 0)
		return -errno;
	put_address(own, &q.ask.sdiag_family, q.ask.id.idiag_dst, &q.ask.id.idiag_dport);
	put_address(peer, &q.ask.sdiag_family, q.ask.id.idiag_src, &q.ask.id.idiag_sport);
	// It is answered before send() returns.
	if (send(fd, &q, sizeof(q), 0) == sizeof(q))
		n = recv(fd, &a, sizeof(a), MSG_DONTWAIT);
	status = n < 0 ? -errno : 0;
	close(fd);
	if (status)
		return status;
	if (a.head.nlmsg_type == NLMSG_ERROR && n >= (ssize_t)NLMSG_LENGTH(sizeof(a.error)))
		return a.error.error ? a.error.error : -EPROTO;
	if (a.head.nlmsg_type != SOCK_DIAG_BY_FAMILY || n < (ssize_t)NLMSG_LENGTH(sizeof(a.is)))
		return -EPROTO;
	if (!a.is.idiag_inode)
		return -ENOENT;
	*uid = a.is.idiag_uid;
	return 0;
}

const char *
local_peer_doubt(int fd)
{
	static char why[160];
	struct sockaddr_storage own, peer;
	socklen_t length = sizeof(own), peer_length = sizeof(peer);
	uid_t uid = 0;
	int status;

	if (getsockname(fd, (struct sockaddr *)&own, &length) ||
	    getpeername(fd, (struct sockaddr *)&peer, &peer_length))
		return "connection closed";
	if (!address_is_loopback(&peer))
		return NULL;
	status = find_owner(&own, &peer, &uid);
	if (status == -ENOENT)
		return "its process has closed the connection already";
	if (status)
		snprintf(why, sizeof(why),
			 "cannot find out whose it is: %s; load the kernel's module tcp_diag, or "
			 "give --tls to all nodes",
			 strerror(-status));
	else if (uid && uid != geteuid())
		snprintf(why, sizeof(why),
			 "it runs as user %u, this control as user %u; run both as one user, or "
			 "give --tls to all nodes",
			 (unsigned)uid, (unsigned)geteuid());
	else
		return NULL;
	return why;
}

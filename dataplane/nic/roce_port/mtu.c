/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Path MTU and frame size of a port, and its kernel's interface. Ports often report wrong values:
 * memif, ring and null carry more, af_packet drops or cuts frames above its frame size and is
 * always up. So the kernel's interface is asked where there is one, and the port's own arguments.
 */
#include "internal.h"

#include "base/fail.h"

#include <errno.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define JUMBO 9000u
/* af_packet keeps a header of its own before each frame in its ring. */
#define AF_PACKET_HEADER 66u
#define AF_PACKET_FRAME 2048u
/* memif's buffers. A frame that needs two of them leaves a "more follows" mark behind in the ring,
 * which the next short frame there inherits: its receiver then runs through garbage. So one buffer.
 */
#define MEMIF_BUFFER 2048u

static bool
driver_is(const struct ethdev_port *port, const char *name)
{
	return strcmp(port->info.driver_name, name) == 0;
}

/* Value of a number in the arguments that the port was made with, or `otherwise`. */
static unsigned
port_argument(const struct ethdev_port *port, const char *key, unsigned otherwise)
{
	const struct rte_devargs *devargs = rte_dev_devargs(port->info.device);
	size_t length = strlen(key);

	if (!devargs || !devargs->args)
		return otherwise;
	for (const char *at = devargs->args; at; at = strchr(at, ',')) {
		at += *at == ',';
		if (strncmp(at, key, length) == 0 && at[length] == '=')
			return (unsigned)strtoul(at + length + 1, NULL, 0);
	}
	return otherwise;
}

/* Asks the kernel about its interface: 0 or -errno; the name is in ifr_name where there is one. */
static int
ask_interface(unsigned index, unsigned long what, struct ifreq *request)
{
	int fd, rc;

	memset(request, 0, sizeof(*request));
	if (!if_indextoname(index, request->ifr_name))
		return -errno;
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	rc = ioctl(fd, what, request) ? -errno : 0;
	close(fd);
	return rc;
}

bool
ethdev_interface_up(unsigned index)
{
	struct ifreq request;
	int rc = ask_interface(index, SIOCGIFFLAGS, &request);

	if (rc) /* it is gone, or we can't ask */
		return rc != -ENXIO && rc != -ENODEV;
	return request.ifr_flags & IFF_RUNNING;
}

/* Largest IP packet that the port carries. */
static uint32_t
port_mtu(const struct ethdev_port *port, char interface[IF_NAMESIZE])
{
	struct ifreq request;
	uint16_t own;
	int rc;

	interface[0] = '\0';
	if (port->info.if_index) {
		rc = ask_interface(port->info.if_index, SIOCGIFMTU, &request);
		memcpy(interface, request.ifr_name, IF_NAMESIZE);
		if (!rc && request.ifr_mtu)
			return (uint32_t)request.ifr_mtu;
	}
	if (driver_is(port, "net_memif"))
		return RTE_MIN(JUMBO,
			       port_argument(port, "bsize", MEMIF_BUFFER) - ethdev_ethernet(port));
	if (driver_is(port, "net_ring") || driver_is(port, "net_null"))
		return JUMBO;
	if (rte_eth_dev_get_mtu(port->id, &own))
		own = RTE_ETHER_MTU;
	/* a NIC: ethdev_open() raises its MTU for the wished path MTU */
	if (port->config.mtu)
		return RTE_MIN(port->info.max_mtu,
			       RTE_MAX(own, ethdev_ip_max(port, port->config.mtu)));
	return own;
}

static uint16_t
largest_path_mtu(const struct ethdev_port *port, uint32_t mtu)
{
	for (uint16_t path = 4096; path >= 256; path /= 2)
		if (ethdev_ip_max(port, path) <= mtu)
			return path;
	return 0;
}

int
ethdev_choose_mtu(struct ethdev_port *port, uint32_t *room, char *error, size_t size)
{
	char interface[IF_NAMESIZE];
	uint32_t mtu = port_mtu(port, interface);
	uint16_t path = largest_path_mtu(port, mtu), wished = port->config.mtu;

	if (!path)
		return fail(error, size, -EMSGSIZE,
			    "port %s has an MTU of %u, RoCE needs %u; raise it", port->name, mtu,
			    ethdev_ip_max(port, 256));
	if (wished > path) {
		if (driver_is(port, "net_memif"))
			return fail(
			    error, size, -EMSGSIZE,
			    "path MTU %u needs memif buffers of %u bytes; add bsize=%u to the "
			    "--vdev of both ends, or mtu=%u to --nic",
			    wished, ethdev_frame_max(port, wished),
			    RTE_ALIGN(ethdev_frame_max(port, wished), 64u), path);
		return fail(
		    error, size, -EMSGSIZE,
		    "path MTU %u needs an MTU of %u, %s has %u; ip link set %s mtu %u, or "
		    "mtu=%u in --nic",
		    wished, ethdev_ip_max(port, wished), *interface ? interface : port->name, mtu,
		    *interface ? interface : "INTERFACE", ethdev_ip_max(port, wished), path);
	}
	port->mtu = wished ? wished : path;
	*room = ethdev_frame_max(port, port->mtu) + ETHDEV_SHIFT;
	/* less than memif's own buffers: with equal ones it allocates 32 for each burst, however
	 * short */
	if (driver_is(port, "net_memif"))
		return 0;
	*room = RTE_MAX(*room, 2048u);
	if (driver_is(port, "net_af_packet")) {
		unsigned frame = port_argument(port, "framesz", AF_PACKET_FRAME);
		unsigned most = ethdev_frame_max(port, port->mtu), enough = AF_PACKET_FRAME;

		while (enough < most + AF_PACKET_HEADER)
			enough *= 2;
		if (most + AF_PACKET_HEADER > frame)
			return fail(error, size, -EMSGSIZE,
				    "port %s carries frames of %u bytes, path MTU %u needs %u; "
				    "add framesz=%u and blocksz=%u to its --vdev, or mtu=%u to "
				    "--nic",
				    port->name, frame - AF_PACKET_HEADER, port->mtu, most, enough,
				    enough,
				    largest_path_mtu(port, frame - AF_PACKET_HEADER -
							       ethdev_ethernet(port)));
		*room = RTE_MAX(*room, frame);
	} else if (!driver_is(port, "net_ring") && !driver_is(port, "net_null")) {
		*room = RTE_MAX(*room, RTE_MAX(mtu + 32, port->info.min_rx_bufsize));
	}
	return 0;
}

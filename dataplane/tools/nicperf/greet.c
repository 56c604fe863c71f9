/* SPDX-License-Identifier: BSD-3-Clause */
#include "greet.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

int
nicperf_greet(int socket, char why[WEIR_VERSION_WHY])
{
	struct nicperf_hello hello = {NICPERF_MAGIC, NICPERF_VERSIONS};
	const ssize_t n = sizeof(hello);

	if (send(socket, &hello, sizeof(hello), MSG_NOSIGNAL) != n ||
	    recv(socket, &hello, sizeof(hello), MSG_WAITALL) != n) {
		snprintf(why, WEIR_VERSION_WHY, "the other process is gone; look at its output");
		return -EPIPE;
	}
	if (hello.magic != NICPERF_MAGIC) {
		snprintf(why, WEIR_VERSION_WHY,
			 "the other process is not a weir-nicperf; start one there");
		return -EPROTO;
	}
	return weir_version_choose(NICPERF_VERSIONS, hello.versions, "weir-nicperf's protocol",
				   "weir-nicperf here", "weir-nicperf there", why)
		   ? 0
		   : -EPROTO;
}

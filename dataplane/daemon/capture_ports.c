/* SPDX-License-Identifier: BSD-3-Clause */
#include "plane.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int
plane_capture(void *user, const char *name, int fd, uint64_t limit, struct capture **capture,
	      char *error, size_t size)
{
	struct plane *p = user;
	char names[256] = "";

	for (unsigned i = 0; i < p->ports; i++) {
		struct plane_port_info info;
		size_t used = strlen(names);

		plane_port_describe(&p->port[i], &info);
		if (!strcmp(info.name, name)) {
			if (p->port[i].ethdev)
				return ethdev_capture(p->port[i].ethdev, &p->clock, p->quiet, fd,
						      limit, capture, error, size);
			snprintf(
			    error, size,
			    "%s shows its frames to nobody but itself; capture on the network, "
			    "or see what its driver offers",
			    name);
			return -EOPNOTSUPP;
		}
		snprintf(names + used, sizeof(names) - used, "%s%s", i ? ", " : "", info.name);
	}
	snprintf(error, size, "no port '%s'; there %s %s", name, p->ports == 1 ? "is" : "are",
		 p->ports ? names : "none: add one with --nic");
	return -ENODEV;
}

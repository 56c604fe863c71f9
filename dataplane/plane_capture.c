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
		struct ethdev_info info;
		size_t used = strlen(names);

		ethdev_describe(p->port[i].port, &info);
		if (!strcmp(info.name, name))
			return ethdev_capture(p->port[i].port, &p->clock, p->quiet, fd, limit,
					      capture, error, size);
		snprintf(names + used, sizeof(names) - used, "%s%s", i ? ", " : "", info.name);
	}
	snprintf(error, size, "no port '%s'; there %s %s", name, p->ports == 1 ? "is" : "are",
		 p->ports ? names : "none: add one with --nic");
	return -ENODEV;
}

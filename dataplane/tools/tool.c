/* SPDX-License-Identifier: BSD-3-Clause */
#include "tool.h"

#include <errno.h>
#include <string.h>

int
tool_exit_code(int rc)
{
	switch (rc) {
	case 0:
		return TOOL_OK;
	case -EINVAL:
		return TOOL_USAGE;
	case -ENOMEM:
	case -EACCES:
	case -EPERM:
	case -ENODEV:
	case -EBUSY:
	case -EMSGSIZE:
		return TOOL_RESOURCE;
	default:
		return TOOL_FAILED;
	}
}

int
tool_split(int argc, char **argv)
{
	int dashes = 1;

	while (dashes < argc && strcmp(argv[dashes], "--"))
		dashes++;
	return dashes < argc ? dashes : 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "handle.h"

#include "ipc/launch.h"

#include <stdlib.h>
#include <string.h>

/* The variable's decimal number. 0, or -EINVAL with the reason. */
static int
number(const char *variable, uint32_t min, uint32_t max, uint32_t *value)
{
	const char *text = getenv(variable);
	size_t digits = text ? strspn(text, "0123456789") : 0;
	uint64_t n =
	    digits && digits <= 10 && !text[digits] ? strtoull(text, NULL, 10) : UINT64_MAX;

	if (n < min || n > max)
		return weir_fail(-EINVAL,
				 "invalid value '%s' for $%s (expected a number from %u to %u)",
				 text ? text : "", variable, min, max);
	*value = (uint32_t)n;
	return 0;
}

int
group_launched(const char **name, struct weir_group_options *o)
{
	static const struct weir_group_options init = WEIR_GROUP_OPTIONS_INIT;
	int rc;

	*o = init;
	*name = getenv(LAUNCH_GROUP);
	if (!*name)
		return weir_fail(-ENOENT, "the environment names no group: $" LAUNCH_GROUP
					  " is not set; start the program by weir-run, or give "
					  "name and options");
	o->secret = getenv(LAUNCH_SECRET);
	rc = number(LAUNCH_SIZE, 1, WEIR_GROUP_MAX, &o->size);
	if (!rc && getenv(LAUNCH_RANK))
		rc = number(LAUNCH_RANK, 0, o->size - 1, &o->rank);
	return rc;
}

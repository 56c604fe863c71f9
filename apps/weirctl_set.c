/* SPDX-License-Identifier: BSD-3-Clause */
/* weirctl set: changes a setting of a data plane, which knows what there is to set. */
#include "weirctl.h"

#include <stdio.h>
#include <string.h>

int
set(const char *instance, const char *key, const char *value)
{
	struct weir_ctl_msg m = {.type = WEIR_CTL_SET};
	static struct query q;
	int status;

	if (strlen(key) >= sizeof(m.set.key))
		return weirctl_fail(WEIRCTL_USAGE, "no setting is called '%s'; see --help", key);
	if (strlen(value) >= sizeof(m.set.value))
		return weirctl_fail(WEIRCTL_USAGE, "'%s' is no value; see --help", value);
	status = query_open(&q, instance, WEIRCTL_ANSWER_SECONDS);
	if (status)
		return weirctl_fail(status, "%s", q.reason);
	snprintf(m.set.key, sizeof(m.set.key), "%s", key);
	snprintf(m.set.value, sizeof(m.set.value), "%s", value);
	status = query_send(&q, &m, -1);
	if (!status)
		status = query_receive(&q, WEIR_CTL_DONE);
	query_close(&q);
	if (status)
		return weirctl_fail(status, "%s", q.reason);
	if (!q.in.m.done.count)
		printf("no program of that name is attached; it holds for those to come\n");
	return WEIRCTL_OK;
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "driver.h"

#include <errno.h>
#include <unistd.h>

#define NAP_US 200u

int
team_arrive(struct team *t, enum team_phase phase, int (*step)(void *arg), void *arg)
{
	int rc;

	atomic_fetch_add(&t->arrived[phase], 1);
	while (atomic_load(&t->arrived[phase]) < t->count) {
		if (atomic_load(&t->failed) || atomic_load(&perf_stop))
			return -ECANCELED;
		rc = step ? step(arg) : 0;
		if (rc < 0)
			return rc;
		if (!rc)
			usleep(NAP_US);
	}
	return 0;
}

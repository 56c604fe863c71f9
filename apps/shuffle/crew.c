/* SPDX-License-Identifier: BSD-3-Clause */
#include "crew.h"

#include <stdlib.h>
#include <string.h>

#define JOIN_MS 60000 /* until all processes have started */

int
crew_open(struct crew *c, const char *instance, const char *name, bool attach)
{
	struct weir_options o = WEIR_OPTIONS_INIT;
	bool launched = getenv("WEIR_GROUP");
	int rc;

	*c = (struct crew){.size = 1};
	if (!launched && !attach)
		return 0;
	o.instance = instance;
	o.name = name;
	rc = weir_attach(&o, &c->w);
	if (rc)
		return rc;
	rc = launched ? weir_group_join(c->w, NULL, NULL, JOIN_MS, &c->g)
		      : weir_group_self(c->w, &c->g);
	if (rc) {
		weir_detach(c->w);
		return rc;
	}
	c->rank = weir_group_rank(c->g);
	c->size = weir_group_size(c->g);
	return 0;
}

void
crew_close(struct crew *c)
{
	weir_group_leave(c->g);
	weir_detach(c->w);
}

int
crew_barrier(struct crew *c)
{
	return c->g ? weir_group_barrier(c->g, -1) : 0;
}

int
crew_gather(struct crew *c, const void *mine, size_t length, void *all)
{
	if (c->g)
		return weir_group_allgather(c->g, mine, length, all, -1);
	memcpy(all, mine, length);
	return 0;
}

static int
combine(struct crew *c, uint64_t *numbers, size_t count, enum weir_acc op)
{
	return c->g ? weir_group_allreduce(c->g, numbers, numbers, count, WEIR_T_UINT64, op, -1)
		    : 0;
}

int
crew_sum(struct crew *c, uint64_t *numbers, size_t count)
{
	return combine(c, numbers, count, WEIR_ACC_SUM);
}

int
crew_most(struct crew *c, uint64_t *numbers, size_t count)
{
	return combine(c, numbers, count, WEIR_ACC_MAX);
}

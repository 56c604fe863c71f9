/* SPDX-License-Identifier: BSD-3-Clause */
#include "crew.h"

#include "base/fail.h"

#include <stdlib.h>

#define JOIN_MS 60000 /* until all processes have started */

int
crew_open(struct crew *c, const char *instance, char *error, size_t size)
{
	struct weir_options o = WEIR_OPTIONS_INIT;
	int rc;

	o.instance = instance;
	o.name = "weir-hex";
	rc = weir_attach(&o, &c->w);
	if (rc)
		return fail(error, size, rc, "%s", weir_reason());
	rc = getenv("WEIR_GROUP") ? weir_group_join(c->w, NULL, NULL, JOIN_MS, &c->g)
				  : weir_group_self(c->w, &c->g);
	if (rc) {
		fail(error, size, rc, "%s", weir_reason());
		weir_detach(c->w);
	}
	return rc;
}

void
crew_close(struct crew *c)
{
	weir_group_leave(c->g);
	weir_detach(c->w);
}

int
crew_share(struct crew *c, void *bytes, size_t length, char *error, size_t size)
{
	int rc = weir_group_broadcast(c->g, 0, bytes, length, -1);

	return rc ? fail(error, size, rc, "%s", weir_reason()) : 0;
}

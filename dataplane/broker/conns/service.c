/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of service names and their listeners. */
#include "service.h"

#include <errno.h>

static uint32_t
bucket_of(const char *name)
{
	uint32_t h = 2166136261u; /* FNV-1a */

	while (*name)
		h = (h ^ (uint8_t)*name++) * 16777619u;
	return h % SERVICE_BUCKETS;
}

struct service_listener *
service_find(const struct service_table *t, const char *name)
{
	struct service_listener *l;

	if (!weir_service_ok(name))
		return NULL;
	l = LIST_FIRST(&t->bucket[bucket_of(name)]);
	while (l && strcmp(l->service, name))
		l = LIST_NEXT(l, entry);
	return l;
}

int
service_add(struct service_table *t, struct service_listener *l)
{
	if (service_find(t, l->service))
		return -EADDRINUSE;
	LIST_INSERT_HEAD(&t->bucket[bucket_of(l->service)], l, entry);
	return 0;
}

void
service_remove(struct service_listener *l)
{
	LIST_REMOVE(l, entry);
}

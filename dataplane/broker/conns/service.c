/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of service names and their listeners. */
#include "service.h"

#include "ipc/invariant.h"

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
	l = t->bucket[bucket_of(name)];
	while (l && strcmp(l->service, name))
		l = l->next;
	return l;
}

int
service_add(struct service_table *t, struct service_listener *l)
{
	struct service_listener **at = &t->bucket[bucket_of(l->service)];

	if (service_find(t, l->service))
		return -EADDRINUSE;
	l->next = *at;
	*at = l;
	return 0;
}

void
service_remove(struct service_table *t, struct service_listener *l)
{
	struct service_listener **at = &t->bucket[bucket_of(l->service)];

	while (*at && *at != l)
		at = &(*at)->next;
	weir_assert(*at);
	if (*at)
		*at = l->next;
}

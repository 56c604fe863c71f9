/* SPDX-License-Identifier: BSD-3-Clause */
/* Names of services. */
#include "services.h"
#include "text.h"

#include "invariant.h"

#include <errno.h>
#include <string.h>

bool
weir_service_ok(const char *name)
{
	size_t n = strnlen(name, WEIR_SERVICE_MAX);

	if (n == 0 || n == WEIR_SERVICE_MAX)
		return false;
	return strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") ==
	       n;
}

bool
weir_services_ok(const struct weir_services *s)
{
	if (s->count > WEIR_SERVICES_MAX)
		return false;
	for (uint32_t i = 0; i < s->count; i++)
		if (!weir_service_ok(s->name[i]) || (i && strcmp(s->name[i - 1], s->name[i]) >= 0))
			return false;
	return true;
}

uint64_t
weir_services_digest(const struct weir_services *s)
{
	uint64_t h = WEIR_HASH;

	for (uint32_t i = 0; i < s->count; i++)
		h = weir_hash(h, s->name[i], strlen(s->name[i]) + 1);
	if (!s->count)
		return 0;
	return h ? h : 1;
}

/* The index at which the name is or belongs. */
static uint32_t
place_of(const struct weir_services *s, const char *name)
{
	uint32_t low = 0, high = s->count;

	weir_assert(high <= WEIR_SERVICES_MAX);
	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (strcmp(s->name[middle], name) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

bool
weir_services_has(const struct weir_services *s, const char *name)
{
	uint32_t at = place_of(s, name);

	return at < s->count && !strcmp(s->name[at], name);
}

int
weir_services_add(struct weir_services *s, const char *name)
{
	uint32_t at;

	if (!weir_service_ok(name))
		return -EINVAL;
	if (weir_services_has(s, name))
		return 0;
	if (s->count == WEIR_SERVICES_MAX)
		return -ENOSPC;
	at = place_of(s, name);
	memmove(s->name + at + 1, s->name + at, (s->count - at) * sizeof(s->name[0]));
	memset(s->name[at], 0, sizeof(s->name[at]));
	memcpy(s->name[at], name, strlen(name));
	s->count++;
	return 0;
}

void
weir_services_remove(struct weir_services *s, const char *name)
{
	uint32_t at = place_of(s, name);

	if (!weir_services_has(s, name))
		return;
	s->count--;
	memmove(s->name + at, s->name + at + 1, (s->count - at) * sizeof(s->name[0]));
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Public services: which nodes offer one. The data plane knows; nothing is kept here. */
#include "stream/service.h"

#include "stream/conn.h"

#include <errno.h>

static int
ask(struct weir *w, const char *service, uint32_t from, uint32_t flags, struct weir_session_msg *r)
{
	struct weir_session_msg m = weir_message(WEIR_MSG_FIND);
	int fds[WEIR_SESSION_FDS];

	if (weir_state(w) != WEIR_UP)
		return weir_gone(w);
	if (!service || !weir_service_ok(service))
		return weir_fail(-EINVAL,
				 "not a service name; give 1 to %u letters, digits, '_', '-', '.'",
				 WEIR_SERVICE_MAX - 1);
	m.find.from = from;
	m.find.flags = flags;
	memcpy(m.find.service, service, strlen(service));
	return weir_request(w, &m, WEIR_MSG_FOUND, r, fds);
}

int
weir_service_best(struct weir *w, const char *service, struct weir_found found[WEIR_FOUND_MAX])
{
	struct weir_session_msg r;
	int rc = ask(w, service, 0, WEIR_FIND_BEST, &r);

	if (rc)
		return rc;
	memcpy(found, r.found.node, r.found.count * sizeof(*found));
	return (int)r.found.count;
}

static void
fill(struct weir_service_entry *e, const struct weir_found *f, const char *service)
{
	*e = (struct weir_service_entry){.node = f->node, .flags = f->flags};
	e->port.kind = f->kind;
	e->port.id = f->lid;
	memcpy(e->port.ip, f->ip, sizeof(f->ip));
	memcpy(e->port.service, service, strlen(service));
}

int
weir_service_find(struct weir *w, const char *service, struct weir_service_entry *list, unsigned n)
{
	struct weir_session_msg r = {0};
	uint32_t count = 0, from;

	static_assert(WEIR_FOUND_LOCAL == WEIR_SERVICE_LOCAL, "the same bit");
	w = weir_now(w);
	do {
		int rc;

		from = r.found.next;
		rc = ask(w, service, from, 0, &r);
		if (rc)
			return rc;
		for (uint32_t i = 0; i < r.found.count; i++, count++)
			if (count < n)
				fill(&list[count], &r.found.node[i], service);
	} while (r.found.next > from);
	return (int)count;
}

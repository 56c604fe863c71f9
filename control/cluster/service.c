/* SPDX-License-Identifier: BSD-3-Clause */
/* The registry of public services (registry.h) between our data plane and the other controls. */
#include "control.h"

#include <string.h>

void
service_report(struct member *m)
{
	struct control *c = m->control;
	const struct weir_services *list = registry_list(&c->registry, m->id);
	struct weir_ctl_msg out = {.type = WEIR_CTL_SERVICES};

	if (!list || !c->id_reported || m->node.state == WEIR_NODE_JOINING ||
	    m->node.state >= WEIR_NODE_DOWN)
		return;
	out.services.node = m->id;
	out.services.incarnation = m->node.dp.incarnation;
	out.services.names.count = list->count;
	memcpy(out.services.names.name, list->name, list->count * sizeof(list->name[0]));
	dp_send(c->dp, &out);
}

void
service_own(void *control)
{
	struct control *c = control;
	const struct dp_view *view = dp_view(c->dp);

	if (!c->has_id)
		return;
	registry_own(&c->registry, dp_services(c->dp));
	if (!c->id_reported || c->info.dp.services == view->services)
		return;
	c->info.dp = *view;
	swim_set_info(&c->swim, &c->info);
	for (uint32_t i = 0; i < c->member_count; i++)
		if (c->members[i]->conn)
			swim_send_own(&c->swim, c->members[i]->id);
}

void
service_record(struct control *c, const struct swim_node *node)
{
	const struct node_info *info = node->is.info;

	// An unknown state of the data plane proves nothing.
	if (node->is.status != SWIM_ALIVE || info->dp.state == DP_UNKNOWN)
		return;
	registry_record(&c->registry, node->is.id, info->dp.state == DP_UP ? info->dp.services : 0,
			monotonic_ms());
}

static void
on_ask(void *user, uint16_t to, const struct registry_ask *ask)
{
	struct member *m = member_find(user, to);
	struct control_msg out = {.type = CONTROL_SERVICE_ASK, .service_ask = *ask};

	if (m)
		member_send(m, &out);
}

static void
on_tell(void *user, uint16_t to, uint16_t node, const struct weir_services *list)
{
	struct member *m = member_find(user, to);
	struct control_msg out = {.type = CONTROL_SERVICES, .services.node = node};

	if (!m)
		return;
	out.services.names.count = list->count;
	memcpy(out.services.names.name, list->name, list->count * sizeof(list->name[0]));
	member_send(m, &out);
}

static void
on_changed(void *user, uint16_t node)
{
	struct member *m = member_find(user, node);

	if (m)
		service_report(m);
}

static bool
on_some(void *user, uint16_t *node)
{
	struct control *c = user;

	return swim_some(&c->swim, node);
}

const struct registry_ops service_ops = {
    .ask = on_ask,
    .tell = on_tell,
    .changed = on_changed,
    .some = on_some,
};

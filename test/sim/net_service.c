/* SPDX-License-Identifier: BSD-3-Clause */
/* Which member offers which services (control/membership/registry.h), on the network of swim_net.c.
 */
#include "swim_net.h"

#include <stdio.h>
#include <string.h>

static void
on_ask(void *user, uint16_t to, const struct registry_ask *ask)
{
	struct net_parcel p = {.ask = *ask};

	net_carry(user, to, &p);
}

static void
on_tell(void *user, uint16_t to, uint16_t node, const struct weir_services *list)
{
	struct net_node *n = user;
	struct net_parcel p = {.is_list = true, .list.node = node};

	n->lists++;
	p.list.names.count = list->count;
	memcpy(p.list.names.name, list->name, list->count * sizeof(list->name[0]));
	// It may have been forgotten since it asked.
	if (swim_find(&n->swim, to))
		net_carry(n, to, &p);
}

static void
on_changed(void *user, uint16_t node)
{
}

static bool
on_some(void *user, uint16_t *node)
{
	struct net_node *n = user;

	return swim_some(&n->swim, node);
}

const struct registry_ops net_registry_ops = {
    .ask = on_ask,
    .tell = on_tell,
    .changed = on_changed,
    .some = on_some,
};

void
net_take_parcel(struct net_node *n, uint16_t from, const struct net_parcel *p)
{
	if (p->is_list)
		registry_take(&n->registry, p->list.node, &p->list.names);
	else
		registry_asked(&n->registry, from, &p->ask);
}

void
net_offer(struct net *net, uint32_t place)
{
	struct net_node *n = &net->node[place];
	struct weir_services *list = &n->offered;
	uint32_t count = (uint32_t)net_random(net, 4); // none, too
	char name[WEIR_SERVICE_MAX];

	memset(list, 0, sizeof(*list));
	for (uint32_t i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "s%u", (unsigned)net_random(net, 100));
		weir_services_add(list, name);
	}
	registry_own(&n->registry, list);
	n->info.services = n->registry.digest;
	swim_set_info(&n->swim, &n->info);
}

static bool
knows(const struct net_node *n, const struct net_node *other)
{
	const struct weir_services *list = registry_list(&n->registry, other->swim.self->is.id);

	return list && weir_services_digest(list) == other->info.services;
}

bool
net_service_known(const struct net *net, uint32_t place)
{
	for (uint32_t i = 0; i < net->nodes; i++)
		if (i != place && net->node[i].running && !knows(&net->node[i], &net->node[place]))
			return false;
	return true;
}

bool
net_services_agree(struct net *net, char *why, size_t size)
{
	for (uint32_t i = 0; i < net->nodes; i++) {
		const struct net_node *n = &net->node[i];

		if (n->running && n->registry.count >= n->swim.count) {
			snprintf(why, size, "place %u lists services of nodes that are none", i);
			return false;
		}
		for (uint32_t j = 0; j < net->nodes && n->running; j++) {
			const struct net_node *other = &net->node[j];

			if (i == j || !other->running || net_cut(net, i, j) || knows(n, other))
				continue;
			snprintf(why, size, "place %u doesn't know what place %u offers", i, j);
			return false;
		}
	}
	return true;
}

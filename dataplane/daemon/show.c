/* SPDX-License-Identifier: BSD-3-Clause */
/* Rows of ports, configuration and memory for weirctl; impairments that it sets. Main lcore. */
#include "plane.h"

#include "base/fail.h"
#include "base/log.h"
#include "ipc/invariant.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_version.h>

void
plane_port_row(void *user, uint32_t engine, struct weir_row_port *row)
{
	const struct plane *p = user;
	const struct plane_port *port;
	struct ethdev_info is;

	weir_assert(engine < p->engines);
	if (p->engine[engine].port < 0)
		return;
	port = &p->port[p->engine[engine].port];
	if (!port->ethdev)
		return; /* a verbs device has neither queues nor frames of ours */
	ethdev_describe(port->ethdev, &is);
	snprintf(row->mac, sizeof(row->mac), "%02x:%02x:%02x:%02x:%02x:%02x", is.mac[0], is.mac[1],
		 is.mac[2], is.mac[3], is.mac[4], is.mac[5]);
	impair_text(&is.impair, row->impaired, sizeof(row->impaired));
	row->speed = is.speed;
	row->rx_queues = is.rx_queues;
	row->tx_queues = is.tx_queues;
	row->rx_depth = is.rx_depth;
	row->tx_depth = is.tx_depth;
	row->frames = is.frames;
	row->frames_free = is.frames_free;
}

static bool
xstat_row(const struct plane *p, uint32_t index, struct weir_row_xstat *r)
{
	uint64_t ignored;

	for (unsigned i = 0; i < p->ports; i++) {
		struct ethdev_port *port = p->port[i].ethdev;
		struct plane_port_info info;
		unsigned count = 0;
		char name[sizeof(r->name)];

		if (!port)
			continue;
		if (ethdev_xstat(port, index, r->name, sizeof(r->name), &r->value)) {
			plane_port_describe(&p->port[i], &info);
			snprintf(r->port, sizeof(r->port), "%s", info.name);
			return true;
		}
		while (count < index && ethdev_xstat(port, count, name, sizeof(name), &ignored))
			count++;
		index -= count;
	}
	return false;
}

bool
plane_row(void *user, uint32_t rows, uint32_t index, void *record)
{
	const struct plane *p = user;
	struct weir_row_fact *r = record;

	switch (rows) {
	case WEIR_ROWS_XSTATS:
		return xstat_row(p, index, record);
	case WEIR_ROWS_VERSION:
		if (index > 1)
			return false;
		snprintf(r->name, sizeof(r->name), "%s", index ? "dpdk" : "weir-dataplane");
		snprintf(r->value, sizeof(r->value), "%s", index ? rte_version() : WEIR_VERSION);
		snprintf(r->from, sizeof(r->from), "weir-dataplane");
		return true;
	case WEIR_ROWS_CONFIG:
		return options_row(p->options, index, record);
	case WEIR_ROWS_MEMORY:
		return budget_row(p, index, record);
	}
	return false;
}

int
plane_port_set(void *user, const char *port, const char *key, const char *value, char *error,
	       size_t size)
{
	struct plane *p = user;
	struct plane_port_info info;
	struct nic_spec spec;
	char from[128], text[96];
	unsigned i = 0;
	int rc;

	for (; i < p->ports; i++) {
		plane_port_describe(&p->port[i], &info);
		if (!strcmp(info.name, port))
			break;
	}
	if (i == p->ports)
		return fail(error, size, -ENODEV, "no port '%s'; see weirctl show ports", port);
	if (!p->port[i].ethdev)
		return fail(error, size, -EOPNOTSUPP,
			    "port %s is not impaired by Weir; use its switch, or tc on its "
			    "interface",
			    port);
	spec = p->nic[i];
	snprintf(from, sizeof(from), "port.%s.%s", port, key);
	if (options_set_impairment(&spec, from, key, value, error, size))
		return -EINVAL;
	rc = ethdev_impair(p->port[i].ethdev, &spec.impair);
	if (rc)
		return fail(error, size, rc, "no memory for frames that wait; give more (-m MB)");
	p->nic[i] = spec;
	impair_text(&spec.impair, text, sizeof(text));
	if (*text)
		log_warning("port %s is impaired on purpose: %s; weirctl set %s 0 ends it", port,
			    text, from);
	else
		log_info("port %s is not impaired any more", port);
	return 1;
}

bool
plane_port_setting(void *user, uint32_t index, struct weir_row_setting *row)
{
	const struct plane *p = user;
	struct plane_port_info info;
	const char *key, *help;

	for (unsigned i = 0; i < p->ports; i++) {
		unsigned count = 0;

		if (!p->port[i].ethdev)
			continue;
		while (count <= index && options_impairment(&p->nic[i], count, &key, &help,
							    row->value, sizeof(row->value)))
			count++;
		if (count <= index) {
			index -= count;
			continue;
		}
		plane_port_describe(&p->port[i], &info);
		snprintf(row->key, sizeof(row->key), "port.%s.%s", info.name, key);
		snprintf(row->help, sizeof(row->help), "%s", help);
		return true;
	}
	return false;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Ports: what their drivers report is asked for now and then. */
#include "broker_internal.h"

#define LOOK_NS (BROKER_SECOND_NS / 10)
#define EVENTS_A_LOOK 1024u /* a driver that reports without end */

static void
link_changed(struct broker *b, uint32_t engine, bool up)
{
	const struct nic_device *dev = broker_engine(b, engine)->dev;
	const char *name = b->attr[engine].name;

	for (uint32_t i = engine; i < b->config.engines; i++)
		if (broker_engine(b, i)->dev == dev)
			b->link_changes[i]++;
	if (up)
		broker_log(b, "port %s: link is up", name);
	else
		broker_log(b,
			   "port %s: link is down, frames are lost; look at the cable, the switch "
			   "or the other end",
			   name);
}

static void
take_events(struct broker *b, uint32_t engine)
{
	struct nic_device *dev = broker_engine(b, engine)->dev;
	struct nic_async_event event;

	for (uint32_t n = 0; n < EVENTS_A_LOOK; n++) {
		if (broker_ops(b, engine)->async_event(dev, &event))
			return;
		switch (event.type) {
		case NIC_EVENT_LINK_UP:
		case NIC_EVENT_LINK_DOWN:
			link_changed(b, engine, event.type == NIC_EVENT_LINK_UP);
			break;
		case NIC_EVENT_QP_FATAL:
			if (!datagrams_qp_fatal(b, event.qp_user))
				link_qp_fatal(b, event.qp_user);
			break;
		case NIC_EVENT_SQ_DRAINED:
			break; /* links are never drained */
		case NIC_EVENT_DEVICE_FATAL:
			broker_log(b, "port %s has failed; restart the data plane",
				   b->attr[engine].name);
			break;
		}
	}
}

/* Whether no engine before this one uses the same device. */
static bool
is_first(const struct broker *b, uint32_t engine)
{
	for (uint32_t i = 0; i < engine; i++)
		if (broker_engine(b, i)->dev == broker_engine(b, engine)->dev)
			return false;
	return true;
}

void
port_look(struct broker *b, uint64_t now)
{
	if (now < b->port_look)
		return;
	b->port_look = now + LOOK_NS;
	for (uint32_t i = 0; i < b->config.engines; i++)
		if (broker_engine(b, i)->dev && is_first(b, i))
			take_events(b, i);
}

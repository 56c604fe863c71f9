/* SPDX-License-Identifier: BSD-3-Clause */
/* Ports: polls the events and counters of their drivers. */
#include "datagram.h"
#include "link.h"
#include "port.h"
#include "state.h"

#define LOOK_NS (BROKER_SECOND_NS / 10)		/* ns between two polls */
#define LINK_PATIENCE_NS (5 * BROKER_SECOND_NS) /* ns that a port may take to come up at first */
#define RECEIVES_QUIET_NS (10 * BROKER_SECOND_NS)
#define EVENTS_A_LOOK 1024u /* events per poll, of a driver that reports without end */

static void
tell_down(struct broker *b, uint32_t engine)
{
	b->link_down_at[engine] = 0;
	log_event(LOG_LEVEL_WARNING, PORT_FIELDS(b->attr[engine].name),
		  "port %s: link is down, frames are lost; look at the cable, the switch or the "
		  "other end",
		  b->attr[engine].name);
}

/* The other end of a port that was never up may not be there yet: logged after a while. */
static void
link_changed(struct broker *b, uint32_t engine, bool up, uint64_t now)
{
	const struct nic_device *dev = broker_engine(b, engine)->dev;

	for (uint32_t i = engine; i < b->config.engines; i++)
		if (broker_engine(b, i)->dev == dev)
			b->link_changes[i]++;
	if (up) {
		b->attr[engine].link_up = true;
		b->link_down_at[engine] = 0;
		log_event(LOG_LEVEL_INFO, PORT_FIELDS(b->attr[engine].name), "port %s: link is up",
			  b->attr[engine].name);
	} else if (b->attr[engine].link_up) {
		tell_down(b, engine);
	} else {
		b->link_down_at[engine] = now;
	}
}

static void
take_events(struct broker *b, uint32_t engine, uint64_t now)
{
	struct nic_device *dev = broker_engine(b, engine)->dev;
	struct nic_async_event event;

	for (uint32_t n = 0; n < EVENTS_A_LOOK; n++) {
		if (broker_ops(b, engine)->async_event(dev, &event))
			return;
		switch (event.type) {
		case NIC_EVENT_LINK_UP:
		case NIC_EVENT_LINK_DOWN:
			link_changed(b, engine, event.type == NIC_EVENT_LINK_UP, now);
			break;
		case NIC_EVENT_QP_FATAL:
			if (!datagrams_qp_fatal(b, event.qp_user))
				link_qp_fatal(b, event.qp_user);
			break;
		case NIC_EVENT_SQ_DRAINED:
			break; /* links are never drained */
		case NIC_EVENT_DEVICE_FATAL:
			log_event(LOG_LEVEL_ERROR, PORT_FIELDS(b->attr[engine].name),
				  "port %s has failed; restart the data plane",
				  b->attr[engine].name);
			break;
		}
	}
}

void
port_look(struct broker *b, uint64_t now)
{
	if (now < b->port_look)
		return;
	b->port_look = now + LOOK_NS;
	for (uint32_t i = 0; i < b->config.engines; i++) {
		struct nic_counters c = {0};
		uint32_t first = 0; /* engine with this device */
		bool told;

		if (!broker_engine(b, i)->dev)
			continue;
		while (broker_engine(b, first)->dev != broker_engine(b, i)->dev)
			first++;
		if (first == i) {
			take_events(b, i, now);
			if (b->link_down_at[i] && now - b->link_down_at[i] >= LINK_PATIENCE_NS)
				tell_down(b, i);
		}
		/* A peer that keeps to its grant always finds a receive work request. Another one
		 * finds none and sends again: nothing is lost. One line, until that has stopped for
		 * RECEIVES_QUIET_NS. */
		broker_ops(b, i)->counters(broker_engine(b, i)->nic, &c);
		if (c.rnr_sent == b->rnr_seen[i])
			continue;
		told = b->rnr_seen[i] && now - b->rnr_at[i] < RECEIVES_QUIET_NS;
		b->rnr_seen[i] = c.rnr_sent;
		b->rnr_at[i] = now;
		if (!told)
			log_info("engine %u: a peer found no receive work request and sends again; "
				 "all nodes should be of one release, or --recv-wrs is larger than "
				 "the NIC's queue",
				 i);
	}
}

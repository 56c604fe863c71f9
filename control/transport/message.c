/* SPDX-License-Identifier: BSD-3-Clause */
/* Control messages to and from protobuf. */
#include "message.h"

#include "weir_control.pb-c.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define ENGINES_MAX 256u

int
control_frame_next(const uint8_t *data, size_t have, size_t limit, size_t *length)
{
	uint32_t n;

	if (have < CONTROL_PREFIX)
		return 0;
	n = (uint32_t)data[0] << 24 | (uint32_t)data[1] << 16 | (uint32_t)data[2] << 8 | data[3];
	if (n == 0 || n > limit)
		return -EMSGSIZE;
	if (have - CONTROL_PREFIX < n)
		return 0;
	*length = n;
	return 1;
}

// Text of a peer goes into our log: printable, one line, cut to size.
static void
copy_printable(char *to, size_t size, const char *from)
{
	size_t i;

	for (i = 0; i + 1 < size && from[i]; i++)
		to[i] = from[i] >= ' ' && from[i] <= '~' ? from[i] : '?';
	to[i] = 0;
}

static bool
decode_record(const Weir__Control__Record *pb, struct swim_record *r, struct node_info *info)
{
	const Weir__Control__DataPlane *dp = pb ? pb->data_plane : NULL;

	if (!dp || pb->id >= UINT16_MAX || pb->status < WEIR__CONTROL__RECORD__STATUS__ALIVE ||
	    pb->status > WEIR__CONTROL__RECORD__STATUS__LEFT || pb->run == 0 || pb->version == 0 ||
	    pb->version > SWIM_VERSION_MAX || strlen(pb->control) >= sizeof(info->control))
		return false;
	if (dp->state < WEIR__CONTROL__DATA_PLANE__STATE__UNKNOWN ||
	    dp->state > WEIR__CONTROL__DATA_PLANE__STATE__DOWN || dp->engines > ENGINES_MAX ||
	    dp->n_address > WEIR_CTL_ADDRESSES)
		return false;
	if (dp->state == WEIR__CONTROL__DATA_PLANE__STATE__UP && dp->incarnation == 0)
		return false;
	r->id = pb->id;
	r->status = (enum swim_status)pb->status;
	r->run = pb->run;
	r->version = pb->version;
	copy_printable(info->control, sizeof(info->control), pb->control);
	info->dp.state = (enum dp_state)dp->state;
	info->dp.incarnation = dp->incarnation;
	info->dp.engines = dp->engines;
	info->dp.services = dp->services;
	info->dp.address_count = dp->n_address;
	for (size_t i = 0; i < dp->n_address; i++) {
		if (dp->address[i].len != 16)
			return false;
		memcpy(info->dp.address[i], dp->address[i].data, 16);
	}
	return true;
}

static bool
link_ids_ok(uint32_t node, uint32_t peer_node, uint32_t engine, uint32_t peer_engine)
{
	return node < UINT16_MAX && peer_node < UINT16_MAX && node != peer_node &&
	       engine < ENGINES_MAX && peer_engine < ENGINES_MAX;
}

static bool
decode_link(const Weir__Control__LinkOffer *pb, struct weir_link_offer *o)
{
	if (!link_ids_ok(pb->node, pb->peer_node, pb->engine, pb->peer_engine) ||
	    pb->layout > UINT16_MAX || pb->gid.len != sizeof(o->gid) || pb->lid > UINT16_MAX ||
	    pb->mtu < 256 || pb->mtu > 4096 || pb->n_qpn != 2 || pb->n_psn != 2 ||
	    pb->attempt == 0 || pb->incarnation == 0 || pb->ring_lines == 0)
		return false;
	o->node = pb->node;
	o->peer_node = pb->peer_node;
	o->engine = pb->engine;
	o->peer_engine = pb->peer_engine;
	o->layout = pb->layout;
	o->incarnation = pb->incarnation;
	o->peer_incarnation = pb->peer_incarnation;
	o->attempt = pb->attempt;
	o->answered = pb->answered;
	memcpy(o->gid, pb->gid.data, sizeof(o->gid));
	o->lid = pb->lid;
	o->mtu = pb->mtu;
	for (int i = 0; i < 2; i++) {
		if (pb->qpn[i] > 0xffffff || pb->psn[i] > 0xffffff)
			return false;
		o->qpn[i] = pb->qpn[i];
		o->psn[i] = pb->psn[i];
	}
	o->ring_address = pb->ring_address;
	o->credit_address = pb->credit_address;
	o->ring_rkey = pb->ring_rkey;
	o->credit_rkey = pb->credit_rkey;
	o->ring_lines = pb->ring_lines;
	o->recv_wrs = pb->recv_wrs;
	o->joined = pb->joined;
	o->resumes = pb->resumes;
	o->born = pb->born;
	o->peer_born = pb->peer_born;
	o->consumed = pb->consumed;
	o->received = pb->received;
	return true;
}

// Fills *m, which is zeroed, from the envelope. False: a field is out of bounds.
static bool
decode_body(const Weir__Control__Envelope *pb, struct control_msg *m)
{
	switch (pb->body_case) {
	case WEIR__CONTROL__ENVELOPE__BODY_HELLO: {
		const Weir__Control__Hello *hello = pb->hello;

		m->type = CONTROL_HELLO;
		m->hello.version = hello->version;
		// The fields after the version may have another meaning in another version.
		if (hello->version != CONTROL_VERSION)
			return true;
		if (strlen(hello->cluster) >= CONTROL_CLUSTER_MAX)
			return false;
		copy_printable(m->hello.cluster, sizeof(m->hello.cluster), hello->cluster);
		return decode_record(hello->record, &m->hello.record, &m->hello.info) &&
		       m->hello.record.status == SWIM_ALIVE;
	}
	case WEIR__CONTROL__ENVELOPE__BODY_LINK_OFFER:
		m->type = CONTROL_LINK_OFFER;
		return decode_link(pb->link_offer, &m->link);
	case WEIR__CONTROL__ENVELOPE__BODY_RESYNC: {
		const Weir__Control__Resync *resync = pb->resync;

		m->type = CONTROL_RESYNC;
		if (!link_ids_ok(resync->node, resync->peer_node, resync->engine,
				 resync->peer_engine))
			return false;
		m->resync.node = resync->node;
		m->resync.peer_node = resync->peer_node;
		m->resync.engine = resync->engine;
		m->resync.peer_engine = resync->peer_engine;
		m->resync.status = resync->status;
		return true;
	}
	case WEIR__CONTROL__ENVELOPE__BODY_SWIM: {
		const Weir__Control__Swim *swim = pb->swim;
		struct swim_msg *out = &m->swim.msg;

		m->type = CONTROL_SWIM;
		if (swim->type < WEIR__CONTROL__SWIM__TYPE__PING ||
		    swim->type > WEIR__CONTROL__SWIM__TYPE__NEWS || swim->target >= UINT16_MAX ||
		    swim->n_record > SWIM_RECORDS)
			return false;
		out->type = (enum swim_msg_type)swim->type;
		out->want = swim->want;
		out->rooted = swim->rooted;
		out->target = swim->target;
		out->seq = swim->seq;
		out->digest = swim->digest;
		out->count = swim->n_record;
		for (size_t i = 0; i < swim->n_record; i++)
			if (!decode_record(swim->record[i], &out->record[i], &m->swim.info[i]))
				return false;
		return true;
	}
	case WEIR__CONTROL__ENVELOPE__BODY_SERVICES: {
		const Weir__Control__Services *services = pb->services;
		struct weir_services *names = &m->services.names;

		m->type = CONTROL_SERVICES;
		if (services->node >= UINT16_MAX || services->n_name > WEIR_SERVICES_MAX)
			return false;
		m->services.node = services->node;
		names->count = services->n_name;
		for (size_t i = 0; i < services->n_name; i++) {
			size_t n = strlen(services->name[i]);

			if (n >= WEIR_SERVICE_MAX)
				return false;
			memcpy(names->name[i], services->name[i], n);
		}
		return weir_services_ok(names);
	}
	case WEIR__CONTROL__ENVELOPE__BODY_SERVICE_ASK: {
		const Weir__Control__ServiceAsk *ask = pb->service_ask;

		m->type = CONTROL_SERVICE_ASK;
		if (ask->n_node > REGISTRY_ASKS || ask->n_node != ask->n_digest)
			return false;
		m->service_ask.count = ask->n_node;
		for (size_t i = 0; i < ask->n_node; i++) {
			if (ask->node[i] >= UINT16_MAX)
				return false;
			m->service_ask.of[i].node = ask->node[i];
			m->service_ask.of[i].digest = ask->digest[i];
		}
		return true;
	}
	case WEIR__CONTROL__ENVELOPE__BODY_BYE:
		m->type = CONTROL_BYE;
		m->bye.idle = pb->bye->idle;
		return true;
	case WEIR__CONTROL__ENVELOPE__BODY_ERROR:
		m->type = CONTROL_ERROR;
		copy_printable(m->error.reason, sizeof(m->error.reason), pb->error->reason);
		m->error.taken = pb->error->taken;
		return true;
	default:
		return false;
	}
}

int
control_msg_decode(const uint8_t *data, size_t length, struct control_msg *m)
{
	Weir__Control__Envelope *pb;
	bool ok;

	if (length == 0 || length > CONTROL_FRAME_MAX)
		return -EBADMSG;
	pb = weir__control__envelope__unpack(NULL, length, data);
	if (!pb)
		return -EBADMSG;
	memset(m, 0, sizeof(*m));
	ok = decode_body(pb, m);
	weir__control__envelope__free_unpacked(pb, NULL);
	return ok ? 0 : -EBADMSG;
}

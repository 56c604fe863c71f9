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
decode_dp(const Weir__Control__DataPlane *pb, struct dp_view *dp)
{
	if (!pb || pb->state < WEIR__CONTROL__DATA_PLANE__STATE__UNKNOWN ||
	    pb->state > WEIR__CONTROL__DATA_PLANE__STATE__DOWN || pb->engines > ENGINES_MAX ||
	    pb->n_address > WEIR_CTL_ADDRESSES)
		return false;
	if (pb->state == WEIR__CONTROL__DATA_PLANE__STATE__UP && pb->incarnation == 0)
		return false;
	dp->state = (enum dp_state)pb->state;
	dp->incarnation = pb->incarnation;
	dp->engines = pb->engines;
	dp->services = pb->services;
	dp->address_count = pb->n_address;
	for (size_t i = 0; i < pb->n_address; i++) {
		if (pb->address[i].len != 16)
			return false;
		memcpy(dp->address[i], pb->address[i].data, 16);
	}
	return true;
}

static bool
decode_record(const Weir__Control__Record *pb, struct swim_record *r, struct node_info *info)
{
	if (!pb || pb->id >= UINT16_MAX || pb->status < WEIR__CONTROL__RECORD__STATUS__ALIVE ||
	    pb->status > WEIR__CONTROL__RECORD__STATUS__LEFT || pb->run == 0 || pb->version == 0 ||
	    pb->version > SWIM_VERSION_MAX || strlen(pb->control) >= sizeof(info->control))
		return false;
	r->id = pb->id;
	r->status = (enum swim_status)pb->status;
	r->run = pb->run;
	r->version = pb->version;
	copy_printable(info->control, sizeof(info->control), pb->control);
	return decode_dp(pb->data_plane, &info->dp);
}

static bool
decode_swim(const Weir__Control__Swim *pb, struct control_msg *m)
{
	struct swim_msg *out = &m->swim.msg;

	if (pb->type < WEIR__CONTROL__SWIM__TYPE__PING ||
	    pb->type > WEIR__CONTROL__SWIM__TYPE__NEWS || pb->target >= UINT16_MAX ||
	    pb->n_record > SWIM_RECORDS)
		return false;
	out->type = (enum swim_msg_type)pb->type;
	out->want = pb->want;
	out->rooted = pb->rooted;
	out->target = pb->target;
	out->seq = pb->seq;
	out->digest = pb->digest;
	out->count = pb->n_record;
	for (size_t i = 0; i < pb->n_record; i++)
		if (!decode_record(pb->record[i], &out->record[i], &m->swim.info[i]))
			return false;
	return true;
}

static bool
decode_hello(const Weir__Control__Hello *pb, struct control_msg *m)
{
	m->hello.version = pb->version;
	// The fields after the version may have another meaning in another version.
	if (pb->version != CONTROL_VERSION)
		return true;
	if (strlen(pb->cluster) >= CONTROL_CLUSTER_MAX)
		return false;
	copy_printable(m->hello.cluster, sizeof(m->hello.cluster), pb->cluster);
	return decode_record(pb->record, &m->hello.record, &m->hello.info) &&
	       m->hello.record.status == SWIM_ALIVE;
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

static bool
decode_resync(const Weir__Control__Resync *pb, struct control_resync *r)
{
	if (!link_ids_ok(pb->node, pb->peer_node, pb->engine, pb->peer_engine))
		return false;
	r->node = pb->node;
	r->peer_node = pb->peer_node;
	r->engine = pb->engine;
	r->peer_engine = pb->peer_engine;
	r->status = pb->status;
	return true;
}

static bool
decode_services(const Weir__Control__Services *pb, struct control_msg *m)
{
	struct weir_services *s = &m->services.names;

	if (pb->node >= UINT16_MAX || pb->n_name > WEIR_SERVICES_MAX)
		return false;
	m->services.node = pb->node;
	s->count = pb->n_name;
	for (size_t i = 0; i < pb->n_name; i++) {
		size_t n = strlen(pb->name[i]);

		if (n >= WEIR_SERVICE_MAX)
			return false;
		memcpy(s->name[i], pb->name[i], n);
	}
	return weir_services_ok(s);
}

static bool
decode_service_ask(const Weir__Control__ServiceAsk *pb, struct registry_ask *ask)
{
	if (pb->n_node > REGISTRY_ASKS || pb->n_node != pb->n_digest)
		return false;
	ask->count = pb->n_node;
	for (size_t i = 0; i < pb->n_node; i++) {
		if (pb->node[i] >= UINT16_MAX)
			return false;
		ask->of[i].node = pb->node[i];
		ask->of[i].digest = pb->digest[i];
	}
	return true;
}

static bool
decode_body(const Weir__Control__Envelope *pb, struct control_msg *m)
{
	switch (pb->body_case) {
	case WEIR__CONTROL__ENVELOPE__BODY_HELLO:
		m->type = CONTROL_HELLO;
		return decode_hello(pb->hello, m);
	case WEIR__CONTROL__ENVELOPE__BODY_LINK_OFFER:
		m->type = CONTROL_LINK_OFFER;
		return decode_link(pb->link_offer, &m->link);
	case WEIR__CONTROL__ENVELOPE__BODY_RESYNC:
		m->type = CONTROL_RESYNC;
		return decode_resync(pb->resync, &m->resync);
	case WEIR__CONTROL__ENVELOPE__BODY_SWIM:
		m->type = CONTROL_SWIM;
		return decode_swim(pb->swim, m);
	case WEIR__CONTROL__ENVELOPE__BODY_SERVICES:
		m->type = CONTROL_SERVICES;
		return decode_services(pb->services, m);
	case WEIR__CONTROL__ENVELOPE__BODY_SERVICE_ASK:
		m->type = CONTROL_SERVICE_ASK;
		return decode_service_ask(pb->service_ask, &m->service_ask);
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

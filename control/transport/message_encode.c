/* SPDX-License-Identifier: BSD-3-Clause */
/* Control messages into protobuf. Nothing is allocated: submessages lie on the stack. */
#include "message.h"

#include "ipc/invariant.h"
#include "weir_control.pb-c.h"

#include <string.h>

struct parts {
	Weir__Control__Envelope envelope;
	Weir__Control__Hello hello;
	Weir__Control__LinkOffer link;
	Weir__Control__Resync resync;
	Weir__Control__Swim swim;
	Weir__Control__Bye bye;
	Weir__Control__Error error;
	Weir__Control__Services services;
	Weir__Control__ServiceAsk service_ask;
	uint32_t qpn[2], psn[2];
	struct {
		Weir__Control__Record record;
		Weir__Control__DataPlane dp;
		ProtobufCBinaryData address[WEIR_CTL_ADDRESSES];
	} node[SWIM_RECORDS];
	Weir__Control__Record *record[SWIM_RECORDS];
	char *name[WEIR_SERVICES_MAX];
	uint32_t ask_node[REGISTRY_ASKS];
	uint64_t ask_digest[REGISTRY_ASKS];
};

static Weir__Control__Record *
encode_record(struct parts *p, uint32_t at, const struct swim_record *r,
	      const struct node_info *info)
{
	Weir__Control__Record *pb = &p->node[at].record;
	Weir__Control__DataPlane *dp = &p->node[at].dp;

	weir__control__record__init(pb);
	pb->id = r->id;
	pb->status = (Weir__Control__Record__Status)r->status;
	pb->run = r->run;
	pb->version = r->version;
	pb->control = (char *)info->control;
	pb->data_plane = dp;
	weir__control__data_plane__init(dp);
	dp->state = (Weir__Control__DataPlane__State)info->dp.state;
	dp->incarnation = info->dp.incarnation;
	dp->engines = info->dp.engines;
	dp->services = info->dp.services;
	dp->n_address = info->dp.address_count;
	dp->address = p->node[at].address;
	for (uint32_t i = 0; i < info->dp.address_count; i++) {
		dp->address[i].len = 16;
		dp->address[i].data = (uint8_t *)info->dp.address[i];
	}
	return pb;
}

static void
encode_link(struct parts *p, const struct weir_link_offer *o)
{
	Weir__Control__LinkOffer *pb = &p->link;

	weir__control__link_offer__init(pb);
	pb->node = o->node;
	pb->peer_node = o->peer_node;
	pb->engine = o->engine;
	pb->peer_engine = o->peer_engine;
	pb->layout = o->layout;
	pb->incarnation = o->incarnation;
	pb->peer_incarnation = o->peer_incarnation;
	pb->attempt = o->attempt;
	pb->answered = o->answered;
	pb->gid.len = sizeof(o->gid);
	pb->gid.data = (uint8_t *)o->gid;
	pb->lid = o->lid;
	pb->mtu = o->mtu;
	memcpy(p->qpn, o->qpn, sizeof(p->qpn));
	memcpy(p->psn, o->psn, sizeof(p->psn));
	pb->n_qpn = pb->n_psn = 2;
	pb->qpn = p->qpn;
	pb->psn = p->psn;
	pb->ring_address = o->ring_address;
	pb->credit_address = o->credit_address;
	pb->ring_rkey = o->ring_rkey;
	pb->credit_rkey = o->credit_rkey;
	pb->ring_lines = o->ring_lines;
	pb->recv_wrs = o->recv_wrs;
	pb->joined = o->joined;
	pb->resumes = o->resumes;
	pb->born = o->born;
	pb->peer_born = o->peer_born;
	pb->consumed = o->consumed;
	pb->received = o->received;
}

size_t
control_msg_encode(const struct control_msg *m, uint8_t *buf, size_t room)
{
	const struct swim_msg *swim = &m->swim.msg;
	struct parts p;
	size_t n;

	weir__control__envelope__init(&p.envelope);
	switch (m->type) {
	case CONTROL_HELLO:
		weir__control__hello__init(&p.hello);
		p.hello.version = m->hello.version;
		p.hello.cluster = (char *)m->hello.cluster;
		p.hello.record = encode_record(&p, 0, &m->hello.record, &m->hello.info);
		p.envelope.body_case = WEIR__CONTROL__ENVELOPE__BODY_HELLO;
		p.envelope.hello = &p.hello;
		break;
	case CONTROL_LINK_OFFER:
		encode_link(&p, &m->link);
		p.envelope.body_case = WEIR__CONTROL__ENVELOPE__BODY_LINK_OFFER;
		p.envelope.link_offer = &p.link;
		break;
	case CONTROL_RESYNC:
		weir__control__resync__init(&p.resync);
		p.resync.node = m->resync.node;
		p.resync.peer_node = m->resync.peer_node;
		p.resync.engine = m->resync.engine;
		p.resync.peer_engine = m->resync.peer_engine;
		p.resync.status = m->resync.status;
		p.envelope.body_case = WEIR__CONTROL__ENVELOPE__BODY_RESYNC;
		p.envelope.resync = &p.resync;
		break;
	case CONTROL_SWIM:
		weir_assert(swim->count <= SWIM_RECORDS);
		weir__control__swim__init(&p.swim);
		p.swim.type = (Weir__Control__Swim__Type)swim->type;
		p.swim.want = swim->want;
		p.swim.rooted = swim->rooted;
		p.swim.target = swim->target;
		p.swim.seq = swim->seq;
		p.swim.digest = swim->digest;
		p.swim.n_record = swim->count;
		p.swim.record = p.record;
		for (uint32_t i = 0; i < swim->count; i++)
			p.record[i] = encode_record(&p, i, &swim->record[i], &m->swim.info[i]);
		p.envelope.body_case = WEIR__CONTROL__ENVELOPE__BODY_SWIM;
		p.envelope.swim = &p.swim;
		break;
	case CONTROL_SERVICES:
		weir_assert(m->services.names.count <= WEIR_SERVICES_MAX);
		weir__control__services__init(&p.services);
		p.services.node = m->services.node;
		p.services.n_name = m->services.names.count;
		p.services.name = p.name;
		for (uint32_t i = 0; i < m->services.names.count; i++)
			p.name[i] = (char *)m->services.names.name[i];
		p.envelope.body_case = WEIR__CONTROL__ENVELOPE__BODY_SERVICES;
		p.envelope.services = &p.services;
		break;
	case CONTROL_SERVICE_ASK:
		weir_assert(m->service_ask.count <= REGISTRY_ASKS);
		weir__control__service_ask__init(&p.service_ask);
		p.service_ask.n_node = p.service_ask.n_digest = m->service_ask.count;
		p.service_ask.node = p.ask_node;
		p.service_ask.digest = p.ask_digest;
		for (uint32_t i = 0; i < m->service_ask.count; i++) {
			p.ask_node[i] = m->service_ask.of[i].node;
			p.ask_digest[i] = m->service_ask.of[i].digest;
		}
		p.envelope.body_case = WEIR__CONTROL__ENVELOPE__BODY_SERVICE_ASK;
		p.envelope.service_ask = &p.service_ask;
		break;
	case CONTROL_BYE:
		weir__control__bye__init(&p.bye);
		p.bye.idle = m->bye.idle;
		p.envelope.body_case = WEIR__CONTROL__ENVELOPE__BODY_BYE;
		p.envelope.bye = &p.bye;
		break;
	case CONTROL_ERROR:
		weir__control__error__init(&p.error);
		p.error.reason = (char *)m->error.reason;
		p.error.taken = m->error.taken;
		p.envelope.body_case = WEIR__CONTROL__ENVELOPE__BODY_ERROR;
		p.envelope.error = &p.error;
		break;
	}
	n = weir__control__envelope__get_packed_size(&p.envelope);
	if (n == 0 || n > CONTROL_FRAME_MAX || n + CONTROL_PREFIX > room)
		return 0;
	buf[0] = n >> 24;
	buf[1] = n >> 16;
	buf[2] = n >> 8;
	buf[3] = n;
	return CONTROL_PREFIX + weir__control__envelope__pack(&p.envelope, buf + CONTROL_PREFIX);
}

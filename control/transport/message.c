/* SPDX-License-Identifier: BSD-3-Clause */
/* Control messages to and from protobuf. */
#include "message.h"

#include "ipc/invariant.h"
#include "weir_control.pb-c.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define ENGINES_MAX 256u

/* Fields that a message and its protobuf have alike, in either direction. */
#define COPY_PAIR(to, from)                                                                        \
	((to)->node = (from)->node, (to)->peer_node = (from)->peer_node,                           \
	 (to)->engine = (from)->engine, (to)->peer_engine = (from)->peer_engine)
#define COPY_RESYNC(to, from) (COPY_PAIR(to, from), (to)->status = (from)->status)
#define COPY_LINK(to, from)                                                                        \
	(COPY_PAIR(to, from), (to)->layout = (from)->layout,                                       \
	 (to)->incarnation = (from)->incarnation,                                                  \
	 (to)->peer_incarnation = (from)->peer_incarnation, (to)->attempt = (from)->attempt,       \
	 (to)->answered = (from)->answered, (to)->lid = (from)->lid, (to)->mtu = (from)->mtu,      \
	 (to)->ring_address = (from)->ring_address, (to)->credit_address = (from)->credit_address, \
	 (to)->ring_rkey = (from)->ring_rkey, (to)->credit_rkey = (from)->credit_rkey,             \
	 (to)->ring_lines = (from)->ring_lines, (to)->recv_wrs = (from)->recv_wrs,                 \
	 (to)->joined = (from)->joined, (to)->resumes = (from)->resumes,                           \
	 (to)->born = (from)->born, (to)->peer_born = (from)->peer_born,                           \
	 (to)->consumed = (from)->consumed, (to)->received = (from)->received,                     \
	 (to)->highest = (from)->highest, (to)->refused = (from)->refused,                         \
	 (to)->answers = (from)->answers)

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

// Fills *m, which is zeroed, from the envelope. False: a field is out of bounds.
static bool
decode_body(const Weir__Control__Envelope *pb, struct control_msg *m)
{
	switch (pb->body_case) {
	case WEIR__CONTROL__ENVELOPE__BODY_HELLO: {
		const Weir__Control__Hello *hello = pb->hello;

		m->type = CONTROL_HELLO;
		m->hello.versions = (struct weir_versions){hello->version, hello->version_highest};
		// The other fields may have another meaning in another version.
		if (!weir_version_choose(CONTROL_VERSIONS, m->hello.versions, "", "", "", NULL))
			return true;
		if (strlen(hello->cluster) >= CONTROL_CLUSTER_MAX)
			return false;
		copy_printable(m->hello.cluster, sizeof(m->hello.cluster), hello->cluster);
		return decode_record(hello->record, &m->hello.record, &m->hello.info) &&
		       m->hello.record.status == SWIM_ALIVE;
	}
	case WEIR__CONTROL__ENVELOPE__BODY_LINK_OFFER: {
		const Weir__Control__LinkOffer *offer = pb->link_offer;

		m->type = CONTROL_LINK_OFFER;
		if (!link_ids_ok(offer->node, offer->peer_node, offer->engine,
				 offer->peer_engine) ||
		    offer->layout > UINT16_MAX || offer->gid.len != sizeof(m->link.gid) ||
		    offer->lid > UINT16_MAX || offer->mtu < 256 || offer->mtu > 4096 ||
		    offer->n_qpn != 2 || offer->n_psn != 2 || offer->attempt == 0 ||
		    offer->incarnation == 0 || offer->ring_lines == 0)
			return false;
		COPY_LINK(&m->link, offer);
		memcpy(m->link.gid, offer->gid.data, sizeof(m->link.gid));
		for (int i = 0; i < 2; i++) {
			if (offer->qpn[i] > 0xffffff || offer->psn[i] > 0xffffff)
				return false;
			m->link.qpn[i] = offer->qpn[i];
			m->link.psn[i] = offer->psn[i];
		}
		return true;
	}
	case WEIR__CONTROL__ENVELOPE__BODY_RESYNC: {
		const Weir__Control__Resync *resync = pb->resync;

		m->type = CONTROL_RESYNC;
		if (!link_ids_ok(resync->node, resync->peer_node, resync->engine,
				 resync->peer_engine))
			return false;
		COPY_RESYNC(&m->resync, resync);
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

/* ---- encoding: allocates nothing, submessages lie on the stack ---- */

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
		p.hello.version = m->hello.versions.lowest;
		p.hello.version_highest = m->hello.versions.highest;
		p.hello.cluster = (char *)m->hello.cluster;
		p.hello.record = encode_record(&p, 0, &m->hello.record, &m->hello.info);
		p.envelope.body_case = WEIR__CONTROL__ENVELOPE__BODY_HELLO;
		p.envelope.hello = &p.hello;
		break;
	case CONTROL_LINK_OFFER:
		weir__control__link_offer__init(&p.link);
		COPY_LINK(&p.link, &m->link);
		p.link.gid.len = sizeof(m->link.gid);
		p.link.gid.data = (uint8_t *)m->link.gid;
		memcpy(p.qpn, m->link.qpn, sizeof(p.qpn));
		memcpy(p.psn, m->link.psn, sizeof(p.psn));
		p.link.n_qpn = p.link.n_psn = 2;
		p.link.qpn = p.qpn;
		p.link.psn = p.psn;
		p.envelope.body_case = WEIR__CONTROL__ENVELOPE__BODY_LINK_OFFER;
		p.envelope.link_offer = &p.link;
		break;
	case CONTROL_RESYNC:
		weir__control__resync__init(&p.resync);
		COPY_RESYNC(&p.resync, &m->resync);
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

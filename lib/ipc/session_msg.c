/* SPDX-License-Identifier: BSD-3-Clause */
/* The one decoder of session messages. */
#include "session_msg.h"

#include <errno.h>

#define HEADER offsetof(struct weir_session_msg, hello)
#define BODY(field) (uint32_t)(HEADER + sizeof(((struct weir_session_msg *)0)->field))

struct type_info {
	uint32_t length;
	const char *name;
};

#define TYPE_COUNT (WEIR_MSG_NODE_LIST + 1)

static const struct type_info types[TYPE_COUNT] = {
    [WEIR_MSG_HELLO] = {BODY(hello), "hello"},
    [WEIR_MSG_ADD_CHANNEL] = {BODY(add_channel), "add-channel"},
    [WEIR_MSG_LISTEN] = {BODY(listen), "listen"},
    [WEIR_MSG_UNLISTEN] = {BODY(listening), "unlisten"},
    [WEIR_MSG_CONNECT] = {BODY(connect), "connect"},
    [WEIR_MSG_SEGMENT] = {BODY(segment), "segment"},
    [WEIR_MSG_BYE] = {HEADER, "bye"},
    [WEIR_MSG_DROP_SEGMENT] = {BODY(segment), "drop-segment"},
    [WEIR_MSG_ADOPT] = {BODY(adopt), "adopt"},
    [WEIR_MSG_DISOWN] = {BODY(region), "disown"},
    [WEIR_MSG_FIND] = {BODY(find), "find"},
    [WEIR_MSG_NODES] = {BODY(nodes), "nodes"},
    [WEIR_MSG_DECIDE] = {BODY(decide), "decide"},
    [WEIR_MSG_WHO] = {BODY(who), "who"},
    [WEIR_MSG_EXPORT] = {BODY(export), "export"},
    [WEIR_MSG_REVOKE] = {BODY(exported), "revoke"},
    [WEIR_MSG_NAME] = {BODY(name), "name"},
    [WEIR_MSG_OPEN] = {BODY(open), "open"},
    [WEIR_MSG_MAP] = {BODY(map), "map"},
    [WEIR_MSG_ATTACH] = {BODY(range), "attach"},
    [WEIR_MSG_DETACH] = {BODY(range), "detach"},
    [WEIR_MSG_OK] = {HEADER, "ok"},
    [WEIR_MSG_REFUSED] = {BODY(refused), "refused"},
    [WEIR_MSG_WELCOME] = {BODY(welcome), "welcome"},
    [WEIR_MSG_CHANNEL] = {BODY(channel), "channel"},
    [WEIR_MSG_LISTENING] = {BODY(listening), "listening"},
    [WEIR_MSG_CONNECTING] = {BODY(connecting), "connecting"},
    [WEIR_MSG_SEGMENT_MAP] = {BODY(segment_map), "segment-map"},
    [WEIR_MSG_REGION] = {BODY(region), "region"},
    [WEIR_MSG_FOUND] = {BODY(found), "found"},
    [WEIR_MSG_PEER] = {BODY(peer), "peer"},
    [WEIR_MSG_EXPORTED] = {BODY(exported), "exported"},
    [WEIR_MSG_MAPPED] = {BODY(mapped), "mapped"},
    [WEIR_MSG_WAIT] = {HEADER, "wait"},
    [WEIR_MSG_NODE_LIST] = {BODY(node_list), "node-list"},
};

uint32_t
weir_session_length(uint32_t type)
{
	return type < TYPE_COUNT ? types[type].length : 0;
}

const char *
weir_session_type_name(uint32_t type)
{
	return type < TYPE_COUNT && types[type].name ? types[type].name : "unknown";
}

static bool
ended(const char *s, size_t room)
{
	return memchr(s, '\0', room) != NULL;
}

int
weir_session_check(const struct weir_session_msg *m, size_t length)
{
	uint32_t want;
	bool ok = true;

	if (length < HEADER)
		return -EBADMSG;
	want = weir_session_length(m->type);
	if (!want || length != want || m->length != want)
		return -EBADMSG;
	switch (m->type) {
	case WEIR_MSG_HELLO:
		ok = ended(m->hello.name, sizeof(m->hello.name));
		break;
	case WEIR_MSG_LISTEN:
		ok = ended(m->listen.service, sizeof(m->listen.service));
		break;
	case WEIR_MSG_CONNECT:
		ok = ended(m->connect.address.service, sizeof(m->connect.address.service));
		break;
	case WEIR_MSG_EXPORT:
		ok = ended(m->export.name, sizeof(m->export.name));
		break;
	case WEIR_MSG_NAME:
		ok = ended(m->name.name, sizeof(m->name.name));
		break;
	case WEIR_MSG_FIND:
		ok = ended(m->find.service, sizeof(m->find.service));
		break;
	case WEIR_MSG_FOUND:
		ok = m->found.count <= WEIR_FOUND_MAX;
		break;
	case WEIR_MSG_DECIDE:
		ok = ended(m->decide.reason, sizeof(m->decide.reason));
		break;
	case WEIR_MSG_PEER:
		ok = ended(m->peer.program, sizeof(m->peer.program)) &&
		     ended(m->peer.here.service, sizeof(m->peer.here.service)) &&
		     ended(m->peer.there.service, sizeof(m->peer.there.service));
		break;
	case WEIR_MSG_REFUSED:
		ok = ended(m->refused.reason, sizeof(m->refused.reason));
		break;
	}
	return ok ? 0 : -EBADMSG;
}

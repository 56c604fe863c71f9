/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages between control processes as plain structs, and their one decoder: bytes of a peer in, a
 * checked struct out. Pure: no sockets, no state.
 */
#ifndef WEIR_CONTROL_MESSAGE_H
#define WEIR_CONTROL_MESSAGE_H

#include "membership/registry.h"
#include "membership/swim.h"

#include "ipc/dpctl.h"

#define CONTROL_VERSION 4u
/* what is spoken besides: until 1.0 nothing */
#define CONTROL_VERSIONS ((struct weir_versions){CONTROL_VERSION, CONTROL_VERSION})
#define CONTROL_PREFIX 4u	 /* bytes of length before each message */
#define CONTROL_FRAME_MAX 65536u /* of a message, without its prefix */
#define CONTROL_HELLO_MAX 1024u	 /* of the first message */
#define CONTROL_CLUSTER_MAX 32u	 /* bytes of a cluster name, its NUL included */
#define CONTROL_REASON_MAX 160u

enum control_msg_type {
	CONTROL_HELLO = 1,
	CONTROL_LINK_OFFER,
	CONTROL_RESYNC,
	CONTROL_BYE,
	CONTROL_ERROR,
	CONTROL_SWIM,
	CONTROL_SERVICES,
	CONTROL_SERVICE_ASK,
};

enum dp_state { DP_UNKNOWN, DP_UP, DP_DOWN };

/* A data plane as its control tells it. */
struct dp_view {
	enum dp_state state;
	uint64_t incarnation;
	uint32_t engines;
	uint32_t address_count;
	uint8_t address[WEIR_CTL_ADDRESSES][16];
	uint64_t services; /* digest of its public services */
};

/* Information about a node that is spread with its id. Zeroed before it is filled. */
struct node_info {
	struct dp_view dp;
	char control[WEIR_CTL_PEER_TEXT]; /* IP:PORT, printable */
};

struct control_resync {
	uint16_t node, peer_node;
	uint8_t engine, peer_engine;
	uint32_t status;
};

struct control_msg {
	enum control_msg_type type;
	union {
		struct {
			struct weir_versions versions;
			char cluster[CONTROL_CLUSTER_MAX];
			struct swim_record record;
			struct node_info info; /* of the record, whose pointer is NULL here */
		} hello;
		struct {
			struct swim_msg msg;
			struct node_info info[SWIM_RECORDS]; /* as above */
		} swim;
		struct weir_link_offer link;
		struct control_resync resync;
		struct {
			char reason[CONTROL_REASON_MAX]; /* printable */
			bool taken;
		} error;
		struct {
			uint16_t node;
			struct weir_services names;
		} services;
		struct registry_ask service_ask;
		struct {
			bool idle;
		} bye;
	};
};

/*
 * Looks for a whole message at the start of `have` bytes. 1 and its length without prefix, 0 when
 * more bytes are needed, -EMSGSIZE when it is longer than `limit` (or empty).
 */
int control_frame_next(const uint8_t *data, size_t have, size_t limit, size_t *length);

/* Decodes and checks a message without its prefix. 0, -EBADMSG, or -ENOMEM. */
int control_msg_decode(const uint8_t *data, size_t length, struct control_msg *m);

/* Encodes with its prefix into buf. Bytes written, or 0 if `room` is too small. */
size_t control_msg_encode(const struct control_msg *m, uint8_t *buf, size_t room);

/* Room that always suffices for control_msg_encode(). */
#define CONTROL_ENCODED_MAX 16384u

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the parts of plane_fake.h: its engine (plane_fake_engine.c), its requests
 * (plane_fake_request.c), and the calls of tests (plane_fake.c). */
#ifndef TEST_PLANE_FAKE_INTERNAL_H
#define TEST_PLANE_FAKE_INTERNAL_H

#include "plane_fake.h"

#define SESSIONS 16u
#define CHANNELS 16u
#define ENDS 256u
#define SEGMENTS 8u
#define LISTENERS 64u
#define NODES 64u

struct packet { /* something for a program's ring that has not got in yet */
	struct packet *next;
	uint32_t slots;
	struct weir_slot slot[WEIR_INLINE_SLOTS];
};

struct channel {
	bool used;
	uint32_t engine;
	int bell;     /* rings the program */
	bool watches; /* nodes */
	struct weir_ring tx, rx, returns;
	struct weir_channel_head *head;
	struct packet *first, **last;
};

struct session {
	struct plane *f;
	bool used, dead;
	int memory;
	uint8_t *base;
	struct weir_geometry g;
	struct channel channel[CHANNELS];
	uint32_t channels;
	struct weir_blocks blocks;
	uint64_t map[64];
	uint8_t *out; /* blocks that the program holds: how many from here */
	struct weir *w;
	int socket[2]; /* nothing is ever sent on it, but by fake_evict() */
	bool evict;    /* the next request is answered by that */
};

struct end {
	bool used, open, user_closed, told_closed, local;
	uint32_t vqpn, desc_index, session, channel, segment, conn_index, listener;
	struct end *peer;
	struct weir_conn_desc *desc;
	uint64_t taken, completed, spent;      /* what its program sent */
	uint64_t delivered, consumed, granted; /* what came for its program; granted to its peer */
	uint32_t window;
	bool want;
	uint32_t want_cost;
	bool notify;
};

struct segment {
	uint32_t id;
	int memory;
	struct weir_bell bell[2];
	uint8_t *base;
	struct weir_segment_geometry g;
	uint32_t session[2], channel[2], lines;
	bool dropped[2];
};

struct listener {
	bool used;
	uint32_t id, session, channel;
	char service[WEIR_SERVICE_MAX];
};

struct plane {
	struct plane_options o;
	pthread_mutex_t lock;
	struct session session[SESSIONS];
	struct end end[ENDS];
	uint16_t generation[ENDS];
	struct segment segment[SEGMENTS];
	struct listener listener[LISTENERS];
	uint32_t listeners;
	pthread_t thread;
	_Atomic bool stop;
	bool running;
	_Atomic bool held;
	struct {
		struct weir_node_info is;
		uint64_t changed;
	} node[NODES]; /* in the order of `changed` */
	uint32_t nodes;
	uint64_t node_changes;
	bool synced;
	uint32_t fail_node, fail_code; /* fake_fail(); code 0: none */
	const char *fail_reason;
	const struct weir_found *found;
	uint32_t found_count, found_asked, found_flags, listen_flags;
	_Atomic uint32_t listens;
	_Atomic bool down;
};

void plane_broken(const char *what);
void plane_require(bool ok, const char *what);
struct packet *plane_packet(struct plane *f, const struct end *e, uint8_t op);
void plane_grant(struct end *e);
struct end *plane_new_end(struct plane *f, uint32_t session, uint32_t channel);
void plane_end_peer(struct plane *f, struct end *e, uint32_t status);
void plane_push_all(struct plane *f);
void plane_tell_opened(struct plane *f, struct end *x);
int plane_request(void *user, const struct weir_session_msg *m, struct weir_session_msg *r,
		  int fds[WEIR_SESSION_FDS]);
void plane_close_session(void *user);
/* The answer of the data plane for a session that an operator ends. */
void plane_evicted(struct weir_session_msg *m);

#endif

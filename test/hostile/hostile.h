/* SPDX-License-Identifier: BSD-3-Clause */
/* What the modes of the hostile program share. */
#ifndef TEST_HOSTILE_H
#define TEST_HOSTILE_H

#include "common/session_msg.h"

#include <sys/types.h>

struct victim {
	int sock, arena_fd, segment_fd;
	int doorbell, ring; /* of the channel: to wait on, to ring */
	int segment_doorbell, segment_ring;
	uint8_t *arena, *segment;
	struct weir_geometry geometry;
	struct weir_segment_geometry segment_geometry;
	uint32_t channel, engine, vqpn, peer_vqpn, side;
	struct weir_ring tx, returns;
};

uint64_t rng(void);
/* Of the clock. */
double seconds(void);
/* One packet out, one in (5 s at most), with up to WEIR_SESSION_FDS descriptors. Returns its length
 * or -1. */
ssize_t ask(int sock, const void *request, size_t length, struct weir_session_msg *reply,
	    int fds[WEIR_SESSION_FDS]);
struct weir_channel_head *channel(struct victim *v);
/* To ADDRESS; with the segment, where the peer is local. */
int open_conn(struct victim *v);
void start_tx(struct victim *v);

/* Shared memory: hostile_ring.c. */
void do_garbage(struct victim *v);
void do_cursors(struct victim *v);
void do_scribble(struct victim *v);
void do_payload(struct victim *v);
void do_punch(struct victim *v);
void do_holes(struct victim *v);
void do_junk(struct victim *v);
void do_doorbell(struct victim *v);
void do_flags(struct victim *v);
void do_descriptors(struct victim *v);
void do_rewrite(struct victim *v);

/* Session messages, segments, adopted memory: hostile_session.c. */
void do_requests(struct victim *v);
void do_messages(struct victim *v);
void do_segment(struct victim *v);
void do_adopt(struct victim *v);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the modes of the hostile program. */
#ifndef TEST_HOSTILE_H
#define TEST_HOSTILE_H

#include "ipc/session_msg.h"

#include <stdbool.h>
#include <sys/types.h>

#define FDS WEIR_SESSION_FDS
#define NO_VICTIM ((struct victim){-1, -1, -1, -1, -1, -1, -1})

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
/* CLOCK_MONOTONIC. */
double seconds(void);
/* Seconds until the program ends. */
double left(void);
/* Sleeps until the program ends. */
void hold(void);
/* Counts for the last line; all processes together. */
void tally(uint64_t n, const char *what, ...) __attribute__((format(printf, 2, 3)));
const char *instance_name(void);
bool target_address(struct weir_address *address);

/* A connection to session.sock, or -1. */
int dial(void);
/* HELLO and one channel: 0, or -1 with the refusal counted. A wish of 0: the usual arena. */
int attach(struct victim *v, uint64_t arena);
/* Closes and unmaps all. */
void drop(struct victim *v);
/*
 * One packet out, one in within patience_ms, with its descriptors. Returns its length or -1.
 * drop() closes the descriptors; handed() lists them until then.
 */
#define PATIENCE_MS 5000
extern int patience_ms;
ssize_t ask(int sock, const void *request, size_t length, struct weir_session_msg *reply,
	    int fds[FDS]);
unsigned handed(const int **fds);
/* As ask(); the length is that of the type. 0: answered with `want`. */
int request(struct victim *v, struct weir_session_msg *m, struct weir_session_msg *reply,
	    int fds[FDS], uint32_t want);
/* One more: its index, or -1. */
int add_channel(struct victim *v, uint32_t engine);
/* The data plane has closed the session. */
bool ended(const struct victim *v);
/* The engine's doorbell. */
void ring(struct victim *v);
struct weir_channel_head *channel(struct victim *v);
/* To ADDRESS; with the segment, where the peer is local. */
int open_conn(struct victim *v);
/* The same from another channel, without its segment. */
int connect_from(struct victim *v, uint32_t channel, struct weir_session_msg *reply);
void start_tx(struct victim *v);
/* Whether tx takes a slot. */
bool tx_room(struct victim *v);
/* The next slot of a ring with these fields and no flags, to complete and publish. */
struct weir_slot *next_slot(struct weir_ring *r, uint8_t op, uint16_t order, uint32_t vqpn,
			    uint32_t length);
/* Makes a hole in shared memory; as fallocate(). */
int punch(int fd, uint64_t at, uint64_t bytes);
/* Ends the program: the data plane has done what it must not. */
void violated(const char *what) __attribute__((noreturn));
/* Keeps the session until the program ends or the data plane closes it, and counts the latter. */
void hold_session(struct victim *v);
/* Of a connection on which nothing was sent. */
void close_unused(struct victim *v, uint32_t vqpn);

/* Shared memory: hostile_ring.c. */
void do_garbage(struct victim *v);
void do_cursors(struct victim *v);
void do_scribble(struct victim *v);
void do_payload(struct victim *v);
void do_punch(struct victim *v);
void do_refault(struct victim *v);
void do_waiters(struct victim *v);
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
/* Memory for a region: its descriptor, or -1. */
int adopt(struct victim *v, uint64_t bytes, uint32_t flags, struct weir_session_msg *r);
void disown(struct victim *v, uint32_t region);

/* Descriptors of a session, misused; descriptors that take long to close: hostile_descriptor.c. */
void do_linger(struct victim *v);
void do_linger_session(struct victim *v);
void do_linger_memory(struct victim *v);
void do_bells(struct victim *v);
void do_inode(struct victim *v);
/* Called before the change of user: it needs privileges. */
void inode_prepare(void);

/* Floods: hostile_flood.c. */
void do_compute(struct victim *v);
void do_attach(struct victim *v);
void do_knock(struct victim *v);
void do_holes(struct victim *v);
void do_keys(struct victim *v);
void do_regions(struct victim *v);
void do_segments(struct victim *v);
void do_memory(struct victim *v);
void do_stale(struct victim *v);
void do_log(struct victim *v);

/* A session of the library, or NULL: counted. */
struct weir *join(void);
/* By streams of the library to a messenger's service: hostile_message.c. */
void do_pieces(struct victim *v);
void do_impostor(struct victim *v);
void do_begun(struct victim *v);

/* Memory whose key is in the file HOSTILE_KEY: hostile_remote.c. */
void do_cells(struct victim *v);
void do_guesses(struct victim *v);
/* Memory that may be mapped: HOSTILE_KEY.read, HOSTILE_KEY.write. */
void do_map(struct victim *v);
void do_locks(struct victim *v);
void do_opens(struct victim *v);
void do_fetches(struct victim *v);

/* Groups: hostile_group.c. */
void do_group(struct victim *v);
/* Windows of others: hostile_window.c. */
void do_window(struct victim *v);

#endif

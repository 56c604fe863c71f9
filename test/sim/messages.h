/* SPDX-License-Identifier: BSD-3-Clause */
/* Programs that exchange messages: what test-messages knows of them. */
#ifndef WEIR_TEST_SIM_MESSAGES_H
#define WEIR_TEST_SIM_MESSAGES_H

#include "lockstep.h"
#include "sim.h"

#include "message/message.h"

#include <pthread.h>

#define NODES 4u
#define PROGRAMS (NODES + 1)
#define SENDERS 3u /* threads of a program that send */
#define REQUESTS 6u
#define LATER 64u
#define LARGEST (WEIR_MESSAGE_WHOLE + 70000)

#define COUNTS(X)                                                                                  \
	X(messages, "messages", 1000)                                                              \
	X(responses, "responses", 300)                                                             \
	X(fragmented, "messages or responses in fragments", 5)                                     \
	X(refused, "requests refused", 10)                                                         \
	X(later, "requests answered later", 10)                                                    \
	X(notified, "messages reported as sent", 50)                                               \
	X(cancelled, "requests cancelled", 5)                                                      \
	X(late, "requests without an answer in time", 1)                                           \
	X(full, "calls that found no room", 10)                                                    \
	X(flushed, "flushes", 10)                                                                  \
	X(disconnected, "connections closed by a program", 5)                                      \
	X(evicted, "connections that made room", 5)                                                \
	X(repaired, "links repaired", 1)                                                           \
	X(died, "programs that died", 1)                                                           \
	X(lane_messages, "messages on lanes of models", 300)                                       \
	X(unreached, "messages and requests for one that had", 1)

struct counts {
#define X(name, help, least) uint64_t name;
	COUNTS(X)
#undef X
};

/* Messages and requests of one thread to one node. */
struct flow {
	uint32_t accepted, handled, replied;
	bool open; /* a call may have accepted one more, and has not returned */
};

struct outstanding {
	struct weir_request r;
	bool used, reports, ended, cancelled;
	uint32_t node, number, flags;
	size_t size;
	uint8_t *buffer;
};

struct sender {
	struct program *p;
	uint32_t id; /* 0: the thread that opened the messenger */
	struct lockstep_thread *thread;
	struct rng rng;
	struct flow flow[NODES];
	struct outstanding request[REQUESTS];
	uint32_t asked[NODES], reported[NODES]; /* ends of messages */
	uint8_t buffer[LARGEST];
	const char *does;
	/* of models: by program, and receiver; the last one is its handler threads */
	struct message_lane *lane[PROGRAMS][SENDERS + 1];
	struct flow lane_flow[PROGRAMS][SENDERS + 1];
	pthread_t self;
};

/* A response that is not given by the handler. */
struct later {
	struct weir_reply reply;
	uint64_t at;
	uint32_t key, length;
};

struct program {
	struct world *world;
	uint32_t id, node;
	struct weir_messenger_options options;
	uint32_t senders, operations; /* of each */
	uint64_t dies_at;	      /* SIM_NEVER: lives */
	bool dead;
	struct sim_client *client;
	struct weir *w;
	struct weir_messenger *m, *lanes;
	struct sender sender[SENDERS];
	struct later later[LATER];
	uint32_t later_count;
	bool linked[NODES]; /* as `link` was told */
};

struct world {
	struct sim *s;
	uint32_t nodes, programs;
	bool has_lanes;		/* of models */
	uint32_t entered;	/* threads that receive on them */
	uint32_t threads;	/* of all programs that send */
	uint32_t open, sending; /* programs that have a messenger; threads that still send */
	struct program program[PROGRAMS];
	struct counts counts;
};

/* ---- message_calls.c: what threads call, and what they are told ---- */
void nap(uint64_t ns);
/* Whether it has died, or does so now. */
bool is_dying(const struct program *p);
/* Handler of all types; `link` and `sent` of the messenger. user: the program. */
void handle(struct weir_messenger *m, const struct weir_message *message, void *user);
void told_link(uint16_t node, enum weir_link_event event, int status, void *user);
void told_sent(struct weir_messenger *m, uint16_t node, uint64_t cookie, int status, void *user);
/* One operation, by chance. */
void operate(struct sender *t);
/* Requests have not ended, or messages have not been reported as sent. */
bool is_waiting(const struct sender *t);
/* Collects a request that has ended. False: none has. */
bool collect(struct sender *t);
/* Lets others run, and takes part: at most a millisecond. */
void rest(struct sender *t);
/* The messenger is closed: frees what requests of a dead program left. */
void drop_requests(struct sender *t);

/* ---- message_lanes.c: lanes of models ---- */
void lanes_open(struct program *p);
void lanes_enter(struct sender *t);
void lanes_send(struct sender *t);
/* Takes what comes until nobody sends any more. */
void lanes_leave(struct sender *t);
void lanes_check(struct sim *s, struct world *w);

#endif

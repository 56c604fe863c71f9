/* SPDX-License-Identifier: BSD-3-Clause */
/* Messengers between processes: names, HELLO, messages of a model. */
#ifndef WEIR_MESSAGE_MODEL_H
#define WEIR_MESSAGE_MODEL_H

#include "header.h"
#include "message.h"
#include "messenger.h"

#include <pthread.h>
#include <sys/uio.h>

struct handler_thread;
struct lane;
struct sender;
struct weir_taken;

/* A thread of a model sends on it: one connection after another. */
struct message_lane {
	struct weir_messenger *m;
	LIST_ENTRY(message_lane) in_messenger; /* m->lock */
	uint16_t process;
	uint32_t receiver;
	void *user;
	pthread_t thread;      /* that opened it, and alone sends on it */
	struct sender *sender; /* of its thread. Written under m->lock by the thread */
	struct lane *now;      /* the present connection; NULL: none. Worker of sender */
	bool renewed;	       /* the former one ends before another one is made. m->lock */
};

/* Copies what the model gives. 0 or -ENOMEM. */
int model_adopt(struct weir_messenger *m, const struct message_model *model);
void model_free(struct weir_messenger *m);

/* The node of a peer. */
uint16_t messenger_node(const struct weir_messenger *m, uint16_t peer);
/* The name that a receiver of a peer listens on: handler thread k, or a guest. */
void messenger_name(const struct weir_messenger *m, uint16_t peer, uint32_t receiver, uint32_t k,
		    char name[WEIR_SERVICE_MAX]);

/* The peer that a connection from the node belongs to until its HELLO comes. NULL: the node has no
 * process of the model. */
struct peer *model_stranger(const struct weir_messenger *m, uint16_t node);
/* The model's part of the lane's HELLO. How long it is: 0 without a model. */
size_t model_hello(const struct lane *lane, struct message_hello_process *own,
		   struct iovec parts[2]);
/*
 * Whether that part of a HELLO is as it has to be; without a model there is none. The lane of a
 * stranger is its process's then. Incoming: m->lock; outgoing: worker locked.
 */
bool model_greets(struct lane *lane, const uint8_t *data, uint32_t length);
/* Hands the message that k has in hand to the model. False: it is malformed. Nothing locked. */
bool model_take(struct handler_thread *k);
bool model_take_bare(struct handler_thread *k);
/* The same for a message on a lane of ours. Worker locked. */
bool model_reply(struct lane *lane, const struct weir_taken *taken);
/* Reserves on the lane, which is pinned, for a message with a head of 8 bytes: unpinned on failure.
 * weir_message_abandon() gives it up. */
int draft_reserve(struct lane *lane, size_t room, int timeout_ms, struct weir_draft *draft);
/* Sends it with this head. On success the lane is unpinned. */
int draft_commit(struct weir_messenger *m, struct weir_draft *draft, size_t length,
		 const struct message_tag *tag, int timeout_ms);
/* The calling thread ends: so do lanes that it has opened. m->lock. */
void model_thread_ends(struct weir_messenger *m);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages for other models: a messenger that connects the processes of a group, of which a node
 * may have several. Calls of weir/message.h on such a messenger take the number of a process where
 * they take a node. It has no handlers of the program: each message has a kind of the model, which
 * takes all of them.
 *
 * A message goes to one receiver of a process: to the handler threads, or to a guest, a thread of
 * the program that has entered. weir_messenger_progress() in that thread, and no other thread,
 * takes its messages; weir_messenger_fd() and weir_messenger_arm() serve it likewise. A connection
 * closes when the guests that it leads to have taken all, so weir_message_disconnect() in the
 * thread of one fails with -EDEADLK. weir_messenger_close() makes guests leave first: messages that
 * they have not taken are lost.
 */
#ifndef WEIR_MESSAGE_MESSAGE_H
#define WEIR_MESSAGE_MESSAGE_H

#include "public.h"

#include "weir/stream.h"

#include <stdbool.h>
#include <stdint.h>

#define MESSAGE_GUESTS_MAX 64u
#define MESSAGE_HANDLERS UINT32_MAX /* as a receiver: the handler threads */
#define MESSAGE_KIND_FIRST 16u	    /* of the kinds of models; the last one is 255 */

/* Where a process listens. All processes of a node have names of their own. */
struct message_process {
	uint16_t node;
	char service[WEIR_SERVICE_MAX]; /* at most 27 bytes */
};

/* The head of a model's message. All but the kind is the model's. */
struct message_tag {
	uint8_t kind, flags;
	uint16_t type;
	uint32_t value;
};

/* The same as the word that it travels as. */
static inline uint64_t
message_tag_word(uint8_t kind, uint8_t flags, uint16_t type, uint32_t value)
{
	return kind | (uint64_t)flags << 8 | (uint64_t)type << 16 | (uint64_t)value << 32;
}

/* A message that a model takes. Valid until the call returns. */
struct message_taken {
	struct message_tag tag;
	const void *data; /* aligned to 8 bytes */
	uint32_t length;
	uint32_t receiver; /* here; of a reply: the one that sent it */
	uint16_t process;  /* that sent it */
	struct weir_reply reply;
};

struct message_lane;

/*
 * In turn(): the model calls the program from now on, until turn() returns. Signal handlers run
 * again, and operators see how long that takes, as they do for messages.
 */
void message_begin(struct weir_messenger *m);
/* In take() and turn(): names the function of the program that is called next, for operators. The
 * first 55 bytes are copied. */
void message_show(struct weir_messenger *m, const char *name);

struct message_model {
	const struct message_process *processes; /* copied; equal at all processes */
	uint32_t process_count;			 /* 1 to 65536 */
	uint16_t self;				 /* number of this process */
	uint32_t guests;			 /* receivers that are guests, 0 to the maximum */
	/*
	 * Follows each HELLO; copied. A program that connects learns it once greeted() has accepted
	 * its own. One that listens on the name of a process learns it at once: it does not keep
	 * out programs that can take a name.
	 */
	const void *hello;
	uint32_t hello_length;
	/*
	 * Whether the process, which says this hello, may exchange messages with the receiver (of
	 * the end that was connected to). False: the connection ends as malformed. Any thread, with
	 * locks held: must not call the library.
	 */
	bool (*greeted)(uint16_t process, uint32_t receiver, const void *hello, size_t length,
			void *user);
	/* In the receiver's thread, nothing locked. False: the connection ends as malformed. */
	bool (*take)(struct weir_messenger *m, const struct message_taken *taken, void *user);
	/*
	 * A reply on a lane. False: the connection ends as malformed. Any thread, with locks held:
	 * must not call the library.
	 */
	bool (*replied)(struct message_lane *lane, const struct message_taken *taken, void *user);
	/*
	 * A connection of the lane has ended; the next message makes another one. Status 0: it was
	 * closed in order, as to make room, and all its messages were taken; else -errno, and
	 * messages may be lost. Replies that have not come are lost either way. As replied();
	 * -ENODEV: the data plane is gone.
	 */
	void (*ended)(struct message_lane *lane, int status, void *user);
	/*
	 * Work of the model in the calling thread, a guest or a handler thread, which has taken at
	 * most what it may; `most` is left. Returns how much was done: above 0 the thread does not
	 * sleep, and weir_messenger_progress() returns. Nothing locked. May be NULL.
	 */
	unsigned (*turn)(struct weir_messenger *m, unsigned most, void *user);
	/*
	 * A connection that has a state (message_state()) has ended: the state is the model's. As
	 * replied(). NULL: no connection has one.
	 */
	void (*dropped)(void *state, void *user);
	void *user;
};

/*
 * As weir_messenger_open(); the name is that of the process. Also -EINVAL: a process, `guests` or
 * the hello is outside its range.
 */
int message_open(struct weir *w, const struct weir_messenger_options *options,
		 const struct message_model *model, struct weir_messenger **messenger);

/*
 * The calling thread receives as this guest until it leaves or ends. 0; -EINVAL: no such guest;
 * -EALREADY: the thread is one already; -EBUSY: another thread is this guest; -EDEADLK: the
 * messenger is calling the program in this thread; -ENOSPC: the thread has no lanes of its own; the
 * errors of weir_listen(), as -EMFILE without a channel.
 */
int message_enter(struct weir_messenger *m, uint32_t guest);
/*
 * Ends connections to the calling thread; messages that it has not taken are lost. 0; -ENOENT: it
 * is no guest; -EDEADLK: the messenger is calling the program in this thread.
 */
int message_leave(struct weir_messenger *m);

/* A turn of this guest, if it has entered, begins soon: its sleep ends. Any thread. */
void message_wake(struct weir_messenger *m, uint32_t guest);

/*
 * A lane of the calling thread to one receiver of a process: messages arrive in the order of the
 * calls. Its first message connects. 0; -EINVAL: no such process or receiver; -ENOMEM.
 */
int message_lane_open(struct weir_messenger *m, uint16_t process, uint32_t receiver,
		      struct message_lane **lane);
/* For the model: its own data of the lane. */
void message_lane_set_user(struct message_lane *lane, void *user);
void *message_lane_user(const struct message_lane *lane);
/* Messages that were accepted still arrive; nothing is reported about the lane any more. */
void message_lane_close(struct message_lane *lane);
/* The present connection ends in order. When all that was sent on it is taken, the next message
 * makes another one; -EAGAIN until then. Only the thread that opened the lane. */
void message_lane_renew(struct message_lane *lane);
/*
 * Connects the lane unless it is connected. Only the thread that opened it. 0; -EAGAIN: not yet; as
 * message_lane_send().
 */
int message_lane_connect(struct message_lane *lane, int timeout_ms);
/*
 * Whether the data plane, or a local peer, keeps up with what the calling thread sends on the way
 * of this lane. It reports in steps of an eighth of the ring, so up to two of them may wait. Only
 * the thread that opened the lane.
 */
bool message_lane_is_free(struct message_lane *lane);
/*
 * The common case of message_lane_send(), without waiting: a message of 8 bytes, `first`, and
 * `length` more, at most MESSAGE_PUT_MAX; tag: message_tag_word(). -EAGAIN: use
 * message_lane_send().
 */
#define MESSAGE_PUT_MAX 92u
int message_lane_put(struct message_lane *lane, uint64_t tag, uint64_t first, const void *buf,
		     uint32_t length);
/*
 * Sends a message of at most WEIR_MESSAGE_WHOLE bytes. Only the thread that opened the lane. 0, or
 * as weir_message_sendv(); -ECONNREFUSED: the process has no such receiver now, or is not open.
 */
int message_lane_send(struct message_lane *lane, const struct message_tag *tag,
		      const struct iovec *iov, unsigned n, int timeout_ms);
/* The same in place, as weir_message_reserve() and weir_message_commit(). */
int message_lane_reserve(struct message_lane *lane, size_t room, int timeout_ms,
			 struct weir_draft *draft);
int message_lane_commit(struct message_lane *lane, struct weir_draft *draft, size_t length,
			const struct message_tag *tag, int timeout_ms);

/* ---- data behind a message ---- */

/*
 * A bare message is bytes alone, without a tag: it lies aligned where it arrives, and memory that
 * is posted for it receives nothing else. The receiver has to expect it, which it does as messages
 * before it say; any other message may come before it, too.
 */
#define MESSAGE_BARE 0u /* its kind in take() */
#define MESSAGE_BARE_MIN 1024u

/* The number of the lane's present connection; 0: it has none. Only the thread that opened it. */
uint64_t message_lane_connection(struct message_lane *lane);
/*
 * Sends a bare message of MESSAGE_BARE_MIN to WEIR_MESSAGE_WHOLE bytes on this connection, without
 * waiting. Only the thread that opened the lane. 0; -EAGAIN; -EHOSTUNREACH: it is not the present
 * one any more; or as message_lane_send().
 */
int message_lane_send_bare(struct message_lane *lane, uint64_t connection, const void *data,
			   uint32_t length);

/* The rest is for take(), with `from` of the message that it takes, which came on a lane. */

/* The model's data of the connection, NULL at first. */
void **message_state(const struct weir_reply *from);
/* A bare message of this length comes next on the connection, or later. */
void message_expect(const struct weir_reply *from, uint32_t length);
/*
 * If the next message on the connection is longer than a receive block, and `data` lies in memory
 * that was adopted for receiving, it may be received there. One more call is about the message
 * behind it. 0, or as weir_recv_into().
 */
int message_post(const struct weir_reply *from, void *data, uint32_t length);
/* The message, which is bare, stays where it is until weir_release(). */
void message_keep(const struct weir_reply *from, struct weir_loan *loan);

/* Sends a message of the model back to the sender of `reply`, without waiting: without room it is
 * copied. Any thread. -EHOSTUNREACH: the connection is gone; -EINVAL: `reply` is empty, as that of
 * a reply is. */
int message_reply(struct weir_messenger *m, const struct weir_reply *reply,
		  const struct message_tag *tag, const struct iovec *iov, unsigned n);

#endif

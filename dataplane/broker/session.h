/* SPDX-License-Identifier: BSD-3-Clause */
/* Sessions: attached programs, from HELLO until their memory is released. */
#ifndef WEIR_BROKER_SESSION_H
#define WEIR_BROKER_SESSION_H

#include "arena.h"
#include "broker.h"
#include "build.h"
#include "quota.h"
#include "segment.h"
#include "service.h"

#include <sys/queue.h>

struct broker_conn;
struct broker_export;
struct broker_region;
struct broker_release;
struct broker_user;

enum session_state {
	SESSION_BUILDING, /* the arena is being made; HELLO has no answer yet */
	SESSION_ADDING,	  /* engines are being told; HELLO has no answer yet */
	SESSION_OPEN,	  /* requests are answered */
	SESSION_ENDING,	  /* marked: nothing begins for it; broker_sessions_settle() closes it */
	SESSION_CLOSING,  /* no engine knows it, or all have been told to remove it */
};

struct broker_channel {
	uint32_t engine;
	struct weir_bell bell; /* the engine's end, until doorbell_remove() */
	bool watches;	       /* rung when a node changes */
};

struct broker_session {
	struct broker *b;
	uint32_t id;
	enum session_state state;
	pid_t pid;
	uid_t uid;
	bool membarrier;
	uint32_t version; /* of session.sock, chosen */
	char name[WEIR_NAME_MAX];
	broker_reply_fn *reply;	   /* NULL once the program has had its last reply */
	broker_reply_fn *farewell; /* session_leave(): called when no engine knows it any more */
	void *user;
	struct broker_build build; /* in state BUILDING */
	uint64_t cost_ns;	   /* CPU time spent on making its arena and regions */
	bool charged;		   /* cost_ns is charged at once, not when it leaves soon */
	bool serial;		   /* queued programs wait until it is open */
	uint64_t request_ns;	   /* CPU time for requests that the socket has not charged yet */
	uint8_t slow_bells;	   /* consecutive slow doorbells rung by main */
	bool pending;		   /* a request waits for its reply */
	TAILQ_ENTRY(broker_session) in_marked; /* marked to be closed or freed */
	uint32_t waiting;		       /* engines that have not answered ADD or REMOVE */
	uint32_t commands;		       /* all other commands under way that point here */
	int result;			       /* first error of ADD */
	struct arena arena;
	struct broker_release *release; /* takes the arena's memory at the end */
	uint32_t reserved;		/* number of commands reserved for ADD and REMOVE */
	uint64_t charged_bytes;		/* charged to its owner for the arena and tables */
	struct engine_session *view;	/* one per engine */
	bool *view_owned;		/* view i has registered its send_mr itself */
	struct broker_region *region;	/* config.regions of them; index i is region i + 1 */
	struct broker_export *export;	/* config.exports of them; index i is export i + 1 */
	uint32_t ranges;		/* of all its dynamic exports */
	uint32_t ranges_waiting;	/* engines that have not taken the latest list of them */
	struct engine_ranges *ranges_former; /* the list before that */
	uint64_t region_bytes;		     /* bytes of all regions that are not free */
	uint64_t adopted_bytes;		     /* of those of them that were adopted */
	struct {
		bool waits; /* for a region that is leaving, in broker.adopt_waiting */
		uint32_t flags;
		int32_t numa_node;
		uint64_t bytes, until;
		TAILQ_ENTRY(broker_session) in_waiting;
	} adopt;		   /* the last ADOPT */
	struct broker_user *owner; /* charged for memory and connections */
	struct quota quota;
	struct engine_share share; /* weight and rate, as engines read them */
	struct broker_channel *channel;
	uint32_t channel_count;
	int program_doorbell; /* program's end of the doorbell of the channel being added */
	uint32_t *free_desc;
	uint32_t free_desc_count;
	struct service_listener *listener[WEIR_LISTENERS];
	uint32_t listener_generation[WEIR_LISTENERS];
	uint32_t listener_count, segment_count, conn_count;
	LIST_HEAD(, segment_side) segments;
	LIST_HEAD(, broker_conn) conns;
};

#define SESSION_NO_MEMORY "the data plane is out of memory; free some, or lower its limits"

#define SESSION_FIELDS(s)                                                                          \
	(struct log_field[]){{"session", (s)->id, NULL},                                           \
			     {"client_pid", (uint64_t)(s)->pid, NULL},                             \
			     {"client", 0, (s)->name}},                                            \
	    3

/* ---- replies ---- */

struct weir_session_msg session_msg(uint32_t type);
void session_reply(struct broker_session *s, struct weir_session_msg *reply, const int *fds,
		   unsigned fd_count);
void session_refuse(struct broker_session *s, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Refuses a request for lack of memory. */
void session_refuse_memory(struct broker_session *s);
/* Writes the refusal that session_refuse() sends. */
void session_refusal(struct weir_session_msg *reply, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- making ---- */

/* Sets whether queued programs wait for the session, until it is open or gone. */
void session_set_serial(struct broker_session *s, bool serial);

/* ---- end ---- */

/*
 * The four that follow mark the session: callers may name it until their turn ends. Marking again
 * does nothing.
 */

/* Ends the session, and its socket gets a NULL reply, when the turn ends. */
void session_end(struct broker_session *s);
/*
 * Ends the session of a living program when the broker stops. The socket is told last, when no
 * engine writes into the arena any more: the program finds there every message that was
 * acknowledged to peers.
 */
void session_leave(struct broker_session *s);
/* Ends the session of a program that broke the rules, and tells it why. */
void session_spoil(struct broker_session *s, const char *reason);
/* Ends the session for an operator, and tells the program why. */
void session_evict(struct broker_session *s, const char *reason);

static inline bool
session_ends(const struct broker_session *s)
{
	return s->state >= SESSION_ENDING;
}

/* Each `done` of a command that session.commands counts calls this. */
void session_command_done(struct broker_session *s);
/*
 * Closes marked sessions, and frees those that no command names any more. Only broker_flush() calls
 * it, when no function holds a session.
 */
void broker_sessions_settle(struct broker *b);
/* The engines have stopped: ends and frees all sessions. */
void sessions_free_all(struct broker *b);

/* Logs that peers have waited long for the session's receive memory. */
void session_full(struct broker *b, uint32_t id);
void session_unlisten(struct broker_session *s, uint32_t index);
/* Writes this node's id into all arenas. */
void session_publish_node(struct broker *b);

#endif

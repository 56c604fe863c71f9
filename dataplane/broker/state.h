/* SPDX-License-Identifier: BSD-3-Clause */
/* State of the broker. It belongs to the main thread; engines never see it. */
#ifndef WEIR_BROKER_STATE_H
#define WEIR_BROKER_STATE_H

#include "base/log.h"
#include "ipc/invariant.h"
#include "broker.h"
#include "command.h"
#include "pace.h"
#include "link.h"
#include "service.h"
#include "watch.h"

#include <sys/queue.h>

struct broker_conn;
struct broker_link;
struct broker_node;
struct broker_region;
struct broker_release;
struct broker_session;
struct broker_user;
struct capture_job;
struct control_socket;
struct segment;
struct session_socket;
struct quota_setting;

#define BROKER_STRANGER_PLACES 64u /* buckets of users without a session, by a hash of the uid */
#define BROKER_SECOND_NS 1000000000ull
#define BROKER_FACTS 16u /* lines of the status that control tells */

#define BROKER_COUNTERS(X)                                                                         \
	X(sessions_opened, "programs attached")                                                    \
	X(sessions_closed, "programs that left or died")                                           \
	X(sessions_refused, "programs refused at attach")                                          \
	X(sessions_spoilt, "sessions closed because they broke the rules")                         \
	X(evicted, "sessions, connections and exports that an operator ended")                     \
	X(drained, "programs and connections refused because of draining")                         \
	X(regions_damaged, "regions that programs mapped, and holes were punched into")            \
	X(holes, "sessions that punched holes into their memory")                                  \
	X(regions, "ranges of programs' own memory adopted")                                       \
	X(exports, "ranges of memory exported")                                                    \
	X(keys_rejected, "keys refused because their export is gone, or never was")                \
	X(rights_refused, "keys refused because they lack the rights that were asked for")         \
	X(requests, "requests of programs answered")                                               \
	X(requests_refused, "requests of programs refused")                                        \
	X(requests_bad, "malformed requests")                                                      \
	X(connects_local, "connections set up between local programs")                             \
	X(connects_out, "connections asked for at peers")                                          \
	X(connects_in, "connections asked for by peers")                                           \
	X(connects_refused, "connections of peers refused")                                        \
	X(connects_timed_out, "connections whose link did not come up in time")                    \
	X(links_up, "links brought up")                                                            \
	X(links_failed, "links ended by an error, or by the loss of a node")                       \
	X(links_closed, "links ended in order because no connection used them")                    \
	X(links_evicted, "times that a link was asked to end to make room for another")            \
	X(links_full, "times that a link found no room and waited, or was refused")                \
	X(links_broken, "times that queue pairs of a link failed")                                 \
	X(links_repaired, "times that a link went on with new queue pairs")                        \
	X(offers_sent, "link offers sent")                                                         \
	X(offers_bad, "link offers of peers refused as wrong")                                     \
	X(offers_stale, "link offers of peers that were out of date")                              \
	X(nodes_down, "times that a node was lost")                                                \
	X(control_bad, "malformed messages on control.sock")                                       \
	X(control_slow, "clients of control.sock closed because they did not read")                \
	X(captured_frames, "frames in the files of captures that have ended")                      \
	X(captured_dropped, "frames that those missed")

struct broker_counters {
#define X(name, help) uint64_t name;
	BROKER_COUNTERS(X)
#undef X
};

struct broker {
	struct broker_config config;
	int epoll_fd, fault_fd;
	struct broker_watch fault_watch;
	bool membarrier; /* registered: producers need no fence */
	bool flushing;
	bool stopping;
	bool level_set;			    /* weirctl has set the log level */
	bool draining;			    /* new sessions and connections are refused */
	uint32_t session_limit, conn_limit; /* at most the limits of config */
	uint32_t answers;		    /* the same; bytes, of links from now on */
	uint64_t stop_deadline;
	uint64_t started; /* ns */
	struct weir_row_fact fact[BROKER_FACTS];
	uint32_t fact_count;
	struct log_budget blamed; /* lines that programs and peers cause */
	uint64_t blamed_at;	  /* when to log how many lines were suppressed; 0: none were */
	uint32_t node;		  /* id of this node */
	bool synced;
	/* as queried at the start; link_up: it was up since then */
	struct nic_attr attr[BROKER_ENGINES_MAX];
	uint64_t
	    link_down_at[BROKER_ENGINES_MAX]; /* ns: when the link went down; 0: up, or logged */
	uint64_t link_changes[BROKER_ENGINES_MAX]; /* of the engine's port */
	uint64_t port_look;			   /* ns: when the ports are queried next */
	uint64_t rnr_seen[BROKER_ENGINES_MAX];	   /* nic_counters.rnr_sent at the last look */
	uint64_t rnr_at[BROKER_ENGINES_MAX];	   /* when rnr_seen last grew */
	struct broker_mailbox mailbox[BROKER_ENGINES_MAX];
	LIST_HEAD(, broker_command) commands; /* all commands */
	struct broker_reserve reserve;	      /* of commands */
	struct broker_session **session;
	uint32_t session_count, session_next;
	TAILQ_HEAD(broker_building, broker_build) building; /* in the order of requests */
	uint64_t built_ns;     /* built_ns of the user who was served last; a user begins with it */
	uint64_t told_to_wait; /* when their programs were last told to wait */
	TAILQ_HEAD(, broker_session) adopt_waiting; /* for room, in the order of adopt.until */
	struct quota_setting *quota_settings;
	LIST_HEAD(, broker_user) users;
	/*
	 * CPU time of main: of all users without a session (strangers), of strangers that have cost
	 * little lately (frugal), of strangers by uid, and of all requests.
	 */
	struct pace strangers, frugal, stranger[BROKER_STRANGER_PLACES], requests;
	uint32_t serial_sessions; /* sessions with `serial` set */
	LIST_HEAD(, broker_release) releases;
	uint64_t release_due;		/* when releases are looked at next */
	uint64_t used[USER_LIMITS];	/* by all users */
	uint64_t most[USER_LIMITS];	/* limits of `used`; 0: no limit */
	struct user_limits user_others; /* per user without settings */
	uint32_t export_generation;	/* of the last export made */
	uint32_t export_keys;		/* registered */
	struct broker_conn **conn;	/* by vqpn index */
	uint32_t conn_count;
	LIST_HEAD(, broker_conn) conns_gone; /* no command names them: for broker_conns_settle() */
	TAILQ_HEAD(, broker_session) sessions_marked; /* for broker_sessions_settle() */
	struct service_table services;
	struct weir_services services_public; /* names that the cluster knows */
	uint64_t services_told;		      /* when control was last told */
	uint64_t services_due;	  /* when control is told next; UINT64_MAX: no change to tell */
	uint32_t service_turn;	  /* index in node_list that is tried first */
	struct segment **segment; /* by low bits of its id */
	uint32_t segment_top;	  /* all used indexes lie below */
	uint32_t segment_generation;
	struct broker_node **node_by_id; /* BROKER_NODES */
	struct broker_node **node_list;
	uint32_t node_count, node_room;
	struct broker_node *loop;
	TAILQ_HEAD(broker_news, broker_node) node_news; /* in the order of `changed` */
	uint64_t node_changes, node_changes_told;
	struct broker_link *links;
	struct broker_link **link_table; /* engine * config.links + id */
	struct broker_links timed;	 /* links whose state has a deadline, and some others */
	struct broker_room room[BROKER_ENGINES_MAX];
	uint32_t link_next[BROKER_ENGINES_MAX];
	struct engine_datagram_command datagrams[BROKER_ENGINES_MAX]; /* memory NULL: not made */
	struct session_socket *session_socket;
	struct control_socket *control_socket;
	LIST_HEAD(broker_captures, capture_job) captures;
	void (*control_output)(void *user, const struct weir_ctl_msg *m);
	void *control_output_user;
	struct broker_counters counters;
};

/* Zeroed. NULL: out of memory, logged: what was asked for fails with ENOMEM. */
void *broker_alloc(size_t bytes);

static inline uint64_t
broker_now(const struct broker *b)
{
	return b->config.now(b->config.user);
}

static inline const struct broker_engine *
broker_engine(const struct broker *b, uint32_t engine)
{
	weir_assert(engine < b->config.engines);
	return &b->config.engine[engine];
}

static inline const struct nic_ops *
broker_ops(const struct broker *b, uint32_t engine)
{
	return NIC_OPS(b->config.engine[engine].dev);
}

/*
 * Logs a line that programs of a user, or the data plane of a node, can cause. Each kind has a
 * budget per user or node. Lines about nodes, ports and operators go to the log directly.
 */
void broker_blame_user(struct broker *b, uid_t uid, const char *kind, enum log_level level,
		       const struct log_field *fields, size_t count, const char *format, ...)
    __attribute__((format(printf, 7, 8)));
void broker_blame_node(struct broker *b, uint32_t node, const char *kind, enum log_level level,
		       const struct log_field *fields, size_t count, const char *format, ...)
    __attribute__((format(printf, 7, 8)));

#define NODE_FIELDS(id) (struct log_field[]){{"node", id, NULL}}, 1

#endif

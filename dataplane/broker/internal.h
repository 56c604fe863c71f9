/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of the broker share. All of it belongs to the main thread; engines see only
 * engine_session and the commands that are theirs until they come back.
 */
#ifndef WEIR_BROKER_INTERNAL_H
#define WEIR_BROKER_INTERNAL_H

#include "broker.h"

#include "arena.h"
#include "base/log.h"
#include "pace.h"
#include "segment.h"
#include "service.h"

#include <sys/queue.h>

#define BROKER_CONN_TABLE (1u << 20) /* vqpn index: 20 bits */
#define BROKER_SEGMENTS_MAX 65536u   /* low 16 bits of a segment id, 0 is none */
#define BROKER_SESSION_SEGMENTS 512u /* that one session may be part of */
#define BROKER_STRANGERS_SHARE 120u  /* of main's CPU: sessions of users that have none */
#define BROKER_FRUGAL_SHARE 60u	     /* the same, kept for those that have cost little lately */
#define BROKER_STRANGER_PLACES 64u   /* users that share one by chance share what they cost */
#define BROKER_DOOR_SHARE 40u	     /* the same: accepting, refusing, closing */
#define BROKER_REQUESTS_SHARE 5u     /* of main's CPU: all requests of all programs */
#define BROKER_CONNECT_TIMEOUT_NS 5000000000ull
#define BROKER_NODE_UNKNOWN UINT32_MAX
#define BROKER_NODES UINT16_MAX /* ids 0 ... 65534 */
#define BROKER_SECOND_NS 1000000000ull

#define BROKER_COUNTERS(X)                                                                         \
	X(sessions_opened, "programs attached")                                                    \
	X(sessions_closed, "programs that left or died")                                           \
	X(sessions_refused, "programs refused at attach")                                          \
	X(sessions_spoilt, "sessions closed because they broke the rules")                         \
	X(evicted, "sessions and connections that an operator ended")                              \
	X(drained, "programs and connections refused because of draining")                         \
	X(holes, "sessions that punched holes into their memory")                                  \
	X(regions, "ranges of programs' own memory adopted")                                       \
	X(requests, "requests of programs answered")                                               \
	X(requests_refused, "requests of programs refused")                                        \
	X(requests_bad, "malformed requests")                                                      \
	X(connects_local, "connections set up between local programs")                             \
	X(connects_out, "connections asked for at peers")                                          \
	X(connects_in, "connections asked for by peers")                                           \
	X(connects_refused, "connections of peers refused")                                        \
	X(connects_timed_out, "connections whose link did not come up in time")                    \
	X(links_up, "links brought up")                                                            \
	X(links_failed, "links ended")                                                             \
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

/* ---- commands to engines (command.c) ---- */

struct broker_command;
typedef void command_done_fn(struct broker *b, struct broker_command *c);

struct broker_command {
	struct engine_command cmd;
	uint32_t engine;
	command_done_fn *done; /* NULL: nobody cares */
	void *context;
	bool about_conn; /* context is a broker_conn that counts this command */
	struct broker_command *next;
	struct broker_command *next_all, **previous_all; /* of all that exist */
};

/* Commands of one engine that wait for room in its mailbox, in order. */
struct broker_mailbox {
	struct broker_command *first, **last;
	uint32_t opening; /* commands under way that make a connection */
	uint32_t *early;  /* vqpns whose CONN_CLOSED overtook the answer to that command */
	uint32_t early_count, early_room;
};

/* Out of memory for a few hundred bytes ends the process: nothing would work any more. */
void *broker_alloc(size_t bytes);
struct broker_command *command_new(struct broker *b, uint32_t engine, enum engine_command_type type,
				   command_done_fn *done, void *context);
/* Queues it; it leaves at the next broker_flush(). */
void command_submit(struct broker *b, struct broker_command *c);
/* Gives waiting commands to the engines. At the end of every entry point. */
void broker_flush(struct broker *b);
/* Whether this connection was closed before the answer that made it; forgets it. */
bool command_closed_early(struct broker *b, uint32_t engine, uint32_t vqpn);
void command_note_early(struct broker *b, uint32_t engine, uint32_t vqpn);
/* The engines have stopped: forgets all commands. */
void command_free_all(struct broker *b);
/* Whether an engine's mailbox was full. */
bool command_waiting(const struct broker *b);

/* ---- sessions (session.c, request.c) ---- */

struct broker_user;

enum session_state {
	SESSION_BUILDING, /* its memory is being made; HELLO has no answer yet */
	SESSION_ADDING,	  /* engines are being told; HELLO has no answer yet */
	SESSION_OPEN,	  /* requests are answered */
	SESSION_CLOSING,  /* no more replies; engines have been told to forget it */
};

struct broker_channel {
	uint32_t engine;
	struct weir_bell bell; /* the engine's end, until doorbell_remove() */
	bool watches;	       /* it is rung when a node changes */
};

enum region_state {
	REGION_FREE,
	REGION_BUILDING, /* its memory is being made; ADOPT has no answer yet */
	REGION_ADDING,	 /* engines are being told; ADOPT has no answer yet */
	REGION_OPEN,
	REGION_LEAVING, /* engines have messages under way in it, perhaps */
};

/* A program's own memory, adopted (region.c). */
struct broker_region {
	enum region_state state;
	struct broker_session *session;
	struct broker_region *next_building;
	struct memfd memory;
	int guard; /* of sigbus.h */
	uint64_t bytes;
	uint32_t flags;		    /* WEIR_ADOPT_* */
	uint32_t waiting;	    /* engines that have not answered */
	int result;		    /* first error of ADD */
	struct engine_region *view; /* one an engine */
};

struct broker_session {
	struct broker *b;
	uint32_t id;
	enum session_state state;
	pid_t pid;
	uid_t uid;
	bool membarrier;
	char name[WEIR_NAME_MAX];
	broker_reply_fn *reply;	   /* NULL once nobody listens */
	broker_reply_fn *farewell; /* to be told when it is gone; NULL: nobody */
	void *user;
	struct broker_session *next_building;
	uint64_t cost_ns;    /* CPU time that making its memory, and adopted memory, took */
	bool charged;	     /* as it is made, not when it leaves soon */
	bool in_line;	     /* others wait until it is made */
	uint64_t request_ns; /* CPU time for its requests that the socket has not seen yet */
	uint8_t slow_bells;  /* rings of main in a row that took long */
	bool pending;	     /* a request waits for its reply */
	uint32_t waiting;    /* engines that have not answered ADD or REMOVE */
	uint32_t commands;   /* other commands under way that point here */
	int result;	     /* first error of ADD */
	struct arena arena;
	uint64_t charged_bytes;	     /* to its user, for the arena and tables */
	struct engine_session *view; /* one an engine */
	bool *view_owned; /* send_mr of view i is registered by it, not shared with another */
	struct broker_region *region; /* config.regions of them; number i + 1 */
	uint64_t region_bytes;	      /* of all that aren't free */
	struct broker_user *owner;    /* that the memory and connections count for */
	uint32_t weight;
	uint32_t conn_limit;
	struct rate rate;
	struct engine_share share; /* what engines read of weight and rate */
	struct broker_channel *channel;
	uint32_t channel_count;
	int program_doorbell; /* of the channel being added: the socket that the program waits on */
	uint32_t *free_desc;
	uint32_t free_desc_count;
	struct service_listener *listener[WEIR_LISTENERS];
	uint32_t listener_generation[WEIR_LISTENERS];
	uint32_t listener_count, segment_count, conn_count;
	LIST_HEAD(, segment_side) segments;
	struct broker_conn *conns;
};

void session_reply(struct broker_session *s, struct weir_session_msg *reply, const int *fds,
		   unsigned fd_count);
void session_refuse(struct broker_session *s, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void session_refusal(struct weir_session_msg *reply, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
struct weir_session_msg session_msg(uint32_t type);
/* Tells its owner by a NULL reply and closes it. */
void session_end(struct broker_session *s);
/* The same the other way round, for programs that live: when they hear of it nothing more comes
 * into their memory, so that what they find there then is all that was said to have arrived. */
void session_leave(struct broker_session *s);
/* The same because it broke the rules. */
void session_spoil(struct broker_session *s, const char *reason);
/* The same because an operator wishes it: the program is told why. */
void session_evict(struct broker_session *s, const char *reason);
/* Peers have waited for its receive memory for long: a line in the log. */
void session_full(struct broker *b, uint32_t id);
/* Until it is open, or gone. */
void session_in_line(struct broker_session *s, bool in);
void session_unlisten(struct broker_session *s, uint32_t index);
/* Makes a piece of the memory of those that attach. When it is to be called again. */
uint64_t sessions_build(struct broker *b, uint64_t now);
/* Frees it if nothing refers to it any more. */
void broker_session_release(struct broker_session *s);
void session_free(struct broker_session *s);
/* Adopted memory (region.c). */
void adopt_request(struct broker_session *s, const struct weir_session_msg *m);
void disown_request(struct broker_session *s, const struct weir_session_msg *m);
/* Makes a piece of those that are asked for. When it is to be called again. */
uint64_t regions_build(struct broker *b, uint64_t now);
/* As arena_cut(), of any. */
bool regions_cut(struct broker_session *s);
/* No engine knows the session any more. */
void regions_free(struct broker_session *s);
/* Tells all arenas who we are. */
void session_publish_node(struct broker *b);

/* ---- memory that programs have had (release.c) ---- */

/*
 * `bytes` of memory, and one of `also` if that is something else, stay charged until it is free;
 * at once, if there is none. *memory is empty then.
 */
void release_memory(struct broker *b, struct memfd *memory, struct broker_user *owner,
		    uint64_t bytes, enum user_limit also);
uint64_t release_timers(struct broker *b, uint64_t now);
/* At once, whoever has it. */
void release_all(struct broker *b);

/* ---- shares of the NICs (quota.c) ---- */
/* Decimal, the whole text, `max` at most; else false. */
bool broker_parse_number(const char *text, uint32_t max, uint32_t *value);

void share_init(struct broker_session *s);
/* A setting by weirctl: how many sessions it changed, or -errno and a line in reason. */
int share_set(struct broker *b, const char *key, const char *value, char *reason, size_t size);
void share_row(const struct broker_session *s, struct weir_row_session *r);
void share_free_all(struct broker *b);
/* Every engine hears of s->share, or of the one above. */
void share_tell(struct broker_session *s);

/* ---- users (user.c) ---- */

int user_begin(struct broker *b, uint32_t uid, struct broker_user **user,
	       struct weir_session_msg *no);
/* Takes n of it for the user: 0, -EDQUOT (its limit) or -ENOSPC (that of all users). */
int user_take(struct broker_user *u, enum user_limit which, uint64_t n);
void user_give(struct broker_user *u, enum user_limit which, uint64_t n);
/* A segment of so many bytes that is another user's already: it counts for u, not again for all. 0
 * or -EDQUOT. */
int user_share_in(struct broker_user *u, uint64_t bytes);
void user_share_out(struct broker_user *u, uint64_t bytes);
/* How many segments of so many bytes other users may add to what u has. */
uint64_t user_left(const struct broker_user *u, uint64_t bytes);
/* Why user_take() said rc; as the answer to a request of s. */
void user_refusal(const struct broker_user *u, enum user_limit which, int rc,
		  struct weir_session_msg *no);
void user_refuse(struct broker_session *s, const struct broker_user *u, enum user_limit which,
		 int rc);
/* An end of a connection; false: it has as many as it may. */
bool user_take_conn(struct broker_session *s);
void user_refuse_conn(struct broker_session *s, const struct broker_session *t);
/* A session of it is open; is so no longer. */
void user_attached(struct broker_user *u);
void user_left_one(struct broker_user *u);
/* NULL: a stranger, as are all users without an open session. */
struct broker_user *user_find_attached(struct broker *b, uint32_t uid);
/* Main's CPU time for its programs' coming and going, and for their requests. */
struct pace *user_pace(struct broker_user *u);
struct pace *user_requests(struct broker_user *u);
/* Of user_pace(). */
uint64_t user_burst(const struct broker *b);
/* Whether it is asked for the first time in look number `look`. */
bool user_first(struct broker_user *u, uint64_t look);
/* Main has worked for it so long. */
void user_charge(struct broker_user *u, uint64_t ns, bool request);
/* Of a user without a session: when it may attach, 0 now; what it has cost lately, ns. */
uint64_t stranger_due(struct broker *b, uid_t uid, uint64_t now);
uint64_t stranger_cost(struct broker *b, uid_t uid, uint64_t now);
struct engine_share *user_share(struct broker_user *u);
/* KEY as in user.UID.KEY. How many sessions it has, or -errno. */
#define USER_OTHERS UINT32_MAX /* each user without settings of its own */
int user_set(struct broker *b, uint32_t uid, const char *key, const char *value);
/* Settings of users, in order. False: there are no more. */
bool user_setting_row(const struct broker *b, uint32_t index, struct weir_row_setting *r);
void users_begin(struct broker *b);
void user_free_all(struct broker *b);

/* Settings of programs by name, in order: NULL behind the last one. */
struct share_setting {
	struct share_setting *next;
	char name[WEIR_NAME_MAX];
	uint32_t weight;     /* 0: as the options say */
	uint32_t conn_limit; /* 0: the same */
	bool rated;
	struct rate rate;
};

/* ---- what operators do (set.c) ---- */

/* weirctl set: how many things it changed, or -errno and a line in reason. */
int setting_set(struct broker *b, const char *key, const char *value, char *reason, size_t size);
/* Row `index` of the settings; false: there are no more. */
bool setting_row(const struct broker *b, uint32_t index, struct weir_row_setting *r);
/* weirctl evict: 1, or -errno and a line in reason. */
int evict(struct broker *b, uint32_t what, uint32_t id, const char *why, char *reason, size_t size);
/* A control is there: it takes the log level that weirctl has set. */
void operate_tell_control(struct broker *b);
/* Whether connections to or from a node (NULL: of this host) are refused for now. */
struct broker_node;
bool draining(struct broker *b, const struct broker_node *n);

/* ---- connections (conn.c, connect.c, local.c) ---- */

/* There are tens of thousands of these. */
struct broker_conn {
	struct broker_session *session; /* NULL once it has ended */
	uint32_t desc;
	uint32_t vqpn;	   /* 0 until the engine has it */
	uint32_t listener; /* accepting end: its listener, else ENGINE_LISTENER_NONE */
	uint32_t window;
	uint16_t commands; /* under way that point here */
	uint16_t channel;
	uint8_t engine;
	bool gone;	     /* the engine's entry is free */
	bool loop;	     /* remote */
	bool datagram;	     /* local ones too */
	bool opened;	     /* local: its program has been told how opening ended */
	bool replied;	     /* local, connecting end: CONNECTING has been sent */
	uint32_t node, link; /* remote */
	uint32_t conn_index; /* local */
	/* remote */
	struct broker_node *waiting_for; /* in that node's list until a link to it is up */
	uint64_t deadline;
	/* local */
	struct broker_conn *peer; /* other end, NULL once either has gone */
	struct segment *segment;
	struct broker_conn *next, *previous; /* of the session */
	struct broker_conn *next_waiting;
};

static_assert(sizeof(struct broker_conn) <= 104, "idle connections are many");

/* Takes a descriptor of the session. NULL: none free. */
struct broker_conn *broker_conn_new(struct broker_session *s, uint32_t channel);
/* The engine made it: true if it lives, false if it is gone already. */
bool conn_made(struct broker *b, struct broker_conn *c, uint32_t vqpn);
struct broker_conn *conn_find(const struct broker *b, uint32_t vqpn);
/* The engine's entry is free (or was never made). */
void conn_gone(struct broker *b, struct broker_conn *c);
/* A command about it. */
struct broker_command *conn_command(struct broker *b, struct broker_conn *c,
				    enum engine_command_type type, command_done_fn *done);
/* In `done` of a conn_command, last: c may be freed. */
void conn_command_done(struct broker *b, struct broker_conn *c);
/* The other end of a local connection ended. */
void conn_tell_peer(struct broker *b, struct broker_conn *c, uint32_t status);
void conn_reply_connecting(struct broker_conn *c);

void connect_request(struct broker_session *s, const struct weir_session_msg *m);
/* A peer asks. */
void connect_event(struct broker *b, uint32_t engine, const struct engine_event *event);
/* What waits for this node goes on, or ends if the node is down. */
void connect_kick(struct broker *b, struct broker_node *n);
/* One that waits for a link ends with status. */
void connect_give_up(struct broker *b, struct broker_conn *c, uint32_t status);
/* Takes it out of its node's list. */
void connect_forget(struct broker_conn *c);
/* Ends what waits too long; returns the next deadline. */
uint64_t connect_timers(struct broker *b, uint64_t now);
/* The listener that takes one more connection, or NULL. */
struct service_listener *connect_listener(struct broker *b, const char *service);
/* The engine refused an accepting end: it doesn't count against the backlog. */
void connect_not_accepted(struct broker_conn *c);

void local_connect(struct broker_session *s, const struct weir_session_msg *m);
/* Messages of a local connection, as its programs say. */
uint64_t local_messages(const struct broker *b, uint32_t segment, uint32_t index);
void local_segment_request(struct broker_session *s, const struct weir_session_msg *m);
void local_drop_request(struct broker_session *s, const struct weir_session_msg *m);
/* This end of a local connection is done with its line. */
void local_line_give(struct broker *b, struct broker_conn *c);
/* Tells the program of c that the other end ended with status. */
void local_peer_ended(struct broker *b, struct broker_conn *c, bool told, uint32_t status);
/* The session ended: its sides of segments too. */
void local_session_end(struct broker *b, struct broker_session *s);
/* All segments: every session has ended. */
void local_free_all(struct broker *b);

/* ---- nodes (node.c) ---- */

struct broker_node {
	struct weir_ctl_node is; /* as control says; incarnation also from offers */
	struct broker_conn *waiting, **waiting_last;
	uint64_t repair_until;	/* 0: all well; else when it counts as lost */
	uint64_t unheard_until; /* the same, of a control that is new and has not heard of it */
	bool told;		/* this control has spoken of it */
	bool told_up;		/* programs have been told */
	bool draining;		/* no new connections */
	uint64_t changed;	/* number of its latest change that programs may see; 0: none */
	TAILQ_ENTRY(broker_node) in_news;
	struct broker_offers *offers; /* its public services; NULL: none */
};

struct broker_node *node_find(const struct broker *b, uint32_t id);
/* The loop-back pseudo node. */
struct broker_node *node_loop(struct broker *b);
bool node_usable(const struct broker_node *n);
/* Which node has this address: 0 and *node (NULL: ourselves), or -EHOSTUNREACH and the like. */
int node_resolve(struct broker *b, const struct weir_address *address, struct broker_node **node);
/* The address of its port by which it is reached (NULL: ours); kind NONE: it has none. */
void node_port(const struct broker *b, const struct broker_node *n, struct weir_address *port);
/* The engine whose port reaches it: `wish`, if that does, or if none does. */
uint32_t node_engine(const struct broker *b, const struct broker_node *n, uint32_t wish);
void node_input(struct broker *b, const struct weir_ctl_node *is);
/* Another control: what it says of nodes counts from now on. */
void nodes_unheard(struct broker *b);
/* Programs are told, if they were not. */
void node_up(struct broker *b, struct broker_node *n);
void node_set_own(struct broker *b, uint32_t id);
/* Own id and incarnation. */
void node_tell_engines(struct broker *b);
/* Its data plane is dead or another: all that waits on it ends. */
void node_lost(struct broker *b, struct broker_node *n);
/* An engine has something to say of a link. */
void node_link_silent(struct broker *b, uint32_t engine, const struct engine_event *event);
void node_link_error(struct broker *b, uint32_t engine, const struct engine_event *event);
void node_link_heard(struct broker *b, uint32_t engine, const struct engine_event *event);
/* Tells control that nobody answers on it. */
struct broker_link;
void node_tell_control(struct broker_link *l, uint32_t status);
uint64_t node_timers(struct broker *b, uint64_t now);
void node_free_all(struct broker *b);

/* ---- what programs are told of nodes (events.c) ---- */

/* Something that they may see has changed. */
void node_news(struct broker *b, struct broker_node *n);
/* Wakes those who want to know. */
void nodes_publish(struct broker *b);
void nodes_request(struct broker_session *s, const struct weir_session_msg *m);

/* ---- public services (listener.c) ---- */

/* Those that this node offers now. */
const struct weir_services *services_own(const struct broker *b);
/* Tells control. */
void services_tell(struct broker *b);
/* They are others: control is told, not too often. */
void services_changed(struct broker *b);
uint64_t services_timers(struct broker *b, uint64_t now);
/* Control says what a node offers. */
void services_input(struct broker *b, const struct weir_ctl_msg *m);
void find_request(struct broker_session *s, const struct weir_session_msg *m);
/* false: there are no more; rows without a name are none. */
bool service_row(const struct broker *b, uint32_t index, struct weir_row_service *r);

/* ---- datagrams (datagram.c) ---- */

struct broker_link;
/* Makes what is missing for datagrams over this link and fills in the command. 0 or -errno. */
int datagrams_fill(struct broker *b, struct broker_link *l, struct engine_conn_command *k);
/* Largest message of one between programs of this host. */
uint16_t datagrams_local_mtu(const struct broker *b, uint32_t engine);
/* The driver says that the QP with this nic_qp_init.user has failed. False: it is none of these. */
bool datagrams_qp_fatal(struct broker *b, const void *qp_user);
/* The engine says that this QP has, and that nothing of it is outstanding. */
void datagrams_error(struct broker *b, uint32_t engine, uint32_t qpn);
void datagrams_free_all(struct broker *b);

/* ---- links (link.c, repair.c, handshake.c) ---- */

enum link_state {
	LINK_DOWN,    /* nothing of it exists */
	LINK_OFFERED, /* our QPs exist; the peer's are not known */
	LINK_ADDING,  /* QPs in RTS; the engine is being told */
	LINK_UP,      /* the engine has it; usable once confirmed */
	LINK_PAUSING, /* QPs failed; the engine lets go of them */
	LINK_PAUSED,  /* they are gone; new ones are made, soon: OFFERED */
	LINK_FAILING, /* QPs in ERR; the engine gives it back */
	LINK_QUIET,   /* every engine finishes a turn before its QPs and memory go */
};

struct broker_link;
/* Moves a link; asserts that the pair of states is legal. */
void link_enter(struct broker_link *l, enum link_state to);

struct broker_link {
	struct broker_link *next;
	struct broker *b;
	uint32_t engine;
	uint32_t node; /* peer */
	uint32_t peer_engine;
	struct broker_link *twin; /* loop: the other end */
	bool leads;		  /* loop: the end that connects */
	enum link_state state;
	bool confirmed;	  /* the peer has taken up our offer: we may send */
	bool open;	  /* connections may be made over it */
	bool live;	  /* the engine has it; between PAUSING and UP: it is being repaired */
	bool renew;	  /* PAUSING: the deadline may be set anew */
	bool hasty;	  /* PAUSING: new QPs are made at once */
	uint32_t resumes; /* enum weir_resume: QPs of this attempt that are new */
	uint32_t wider;	  /* PAUSING, ADDING: the same, to be repaired next */
	uint32_t born, peer_born;    /* attempts with which it first came up */
	uint64_t consumed, received; /* of our ring, as the engine said when it paused */
	uint64_t resumed_at;
	void *user[2];	       /* nic_qp_init.user of its QPs */
	uint32_t id;	       /* in the engine's table */
	uint32_t attempt;      /* of our QPs */
	uint32_t peer_attempt; /* taken up with ours, 0 = none */
	uint32_t peer_burnt;   /* newest attempt of the peer that was ever taken up */
	uint64_t peer_incarnation;
	uint32_t fail_status;	     /* ADDING: fail with it once the engine has it; 0 = no */
	uint32_t quiet, quiet_round; /* engines that have not finished their turn */
	uint64_t deadline, resend;
	struct nic_qp *qp[2];
	struct nic_ah *ah; /* for datagrams, once there are any */
	uint32_t psn[2];
	uint8_t *memory, *staging; /* memory: ring, then credit lines */
	size_t memory_bytes, staging_bytes;
	void *work; /* the engine's while it has the link */
	size_t work_bytes;
	struct nic_mr ring_mr, credit_mr, staging_mr;
	struct weir_link_offer peer;  /* taken */
	struct weir_link_offer saved; /* came while we were going down; attempt 0: none */
};

/* A usable link, or NULL: one is being set up (*status 0) or can't be (*status: positive errno). */
struct broker_link *link_want(struct broker *b, uint32_t engine, struct broker_node *n,
			      int *status);
struct broker_link *link_find(const struct broker *b, uint32_t engine, uint32_t node,
			      uint32_t peer_engine);
struct broker_link *link_by_id(const struct broker *b, uint32_t engine, uint32_t id);
struct broker_link *link_make(struct broker *b, uint32_t engine, uint32_t node,
			      uint32_t peer_engine);
/* Makes QPs and memory. 0 or -errno, logged. Then link_offer_send() or link_take(). */
int link_start(struct broker_link *l);
/* Connects our QPs to those of the offer and gives the link to the engine. */
int link_take(struct broker_link *l, const struct weir_link_offer *offer);
void broker_link_fail(struct broker_link *l, uint32_t status);
void link_confirm(struct broker_link *l);
/* Of both QPs, or of the second only: `first` is 0 or 1. */
int link_make_qps(struct broker_link *l, unsigned first);
void link_destroy_qps(struct broker_link *l, unsigned first);
int link_connect_qps(struct broker_link *l, const struct weir_link_offer *o, unsigned first);
/* Memory regions: new keys for the same memory. */
void link_deregister(struct broker_link *l);
int link_register(struct broker_link *l);
void link_fill_command(const struct broker_link *l, struct engine_link_command *c);
void link_engine_has_it(struct broker *b, struct broker_command *c);
uint64_t link_timers(struct broker *b, uint64_t now);
bool link_all_down(const struct broker *b);
void link_free_all(struct broker *b);

/* repair.c: a link whose QPs failed goes on with new ones. `resumes`: which. */
void link_repair(struct broker_link *l, uint32_t resumes);
/* The driver says that the QP with this nic_qp_init.user has failed. */
void link_qp_fatal(struct broker *b, const void *qp_user);
/* Connects the new QPs to those of the offer and lets the engine go on. */
int link_take_again(struct broker_link *l, const struct weir_link_offer *offer);
/* PAUSED, and it is time: makes them. */
void link_rebuild(struct broker_link *l);
/* It took too long. */
void link_give_up(struct broker_link *l);

void link_offer_fill(const struct broker_link *l, uint32_t answered, struct weir_link_offer *o);
void link_offer_send(struct broker_link *l, uint32_t answered);
void link_offer_input(struct broker *b, const struct weir_link_offer *o);
void link_resync(struct broker *b);

/* ---- sockets and rows ---- */

struct broker_watch {
	int fd;
	void (*ready)(struct broker_watch *w, uint32_t events);
};

int broker_watch_add(struct broker *b, struct broker_watch *w, uint32_t events);
/* Events 0: its end is reported still. */
void broker_watch_change(struct broker *b, struct broker_watch *w, uint32_t events);
void broker_watch_remove(struct broker *b, struct broker_watch *w);
/* A listening SOCK_SEQPACKET at run_dir/name; -errno, logged. */
int broker_listen(struct broker *b, const char *name, unsigned mode, const char *group);
/* A connection to it, or -1. Out of descriptors it isn't watched until *paused_until (0: it is). */
int broker_accept(struct broker *b, struct broker_watch *w, uint64_t *paused_until);
/* Watches it again when it is time. When that is, UINT64_MAX: it is watched. */
uint64_t broker_accept_again(struct broker *b, struct broker_watch *w, uint64_t *paused_until,
			     uint64_t now);
/* Closes and removes it. */
void broker_unlisten(struct broker *b, const char *name, int fd);

/* session.sock: programs. */
struct session_socket;
int session_socket_open(struct broker *b);
void session_socket_close(struct broker *b);
uint64_t session_socket_timers(struct broker *b, uint64_t now);

/* port.c: what ports report. */
void port_look(struct broker *b, uint64_t now);

/* control.sock: weir-control and weirctl. */
struct control_socket;
int control_socket_open(struct broker *b);
void control_socket_close(struct broker *b);
uint64_t control_socket_timers(struct broker *b, uint64_t now);
void broker_control_send(struct broker *b, const struct weir_ctl_msg *m);
/* A control is there: tells it everything. */
void control_welcome(struct broker *b);

/* Captures of ports (capture.c). `told` hears of the beginning, and once of the end. */
struct capture_job;
typedef void capture_told_fn(void *user, const struct weir_ctl_msg *m);
/* A checked CAPTURE. fd is the capture's after 0. -errno and a reason: told hears nothing. */
int capture_open(struct broker *b, const struct weir_ctl_msg *m, int fd, capture_told_fn *told,
		 void *user, struct capture_job **job, char *reason, size_t size);
/* Ends it: told() says when the file is whole, and j is gone then. */
void capture_end(struct capture_job *j);
/* The same, but told() isn't called any more. */
void capture_orphan(struct capture_job *j);
/* Waits until all files are whole. */
void capture_close_all(struct broker *b);

/* An answer to a QUERY, made page by page. */
struct rows_query {
	struct broker *b;
	uint32_t rows;	 /* enum weir_ctl_rows */
	uint32_t engine; /* that is asked next, or was asked */
	uint32_t from;	 /* next record; connections: next index in the engine's table */
	bool busy;	 /* an engine fills the snapshot */
	bool filled;	 /* it has, and the records are not on a page yet */
	bool orphaned;	 /* closed while busy: freed when the engine has answered */
	struct engine_snapshot snapshot;
	struct engine_link_record *links; /* of all engines, config.links each */
	uint32_t link_count[BROKER_ENGINES_MAX];
	struct weir_ctl_msg *page;	     /* WEIR_CTL_MAX bytes */
	void (*ready)(struct rows_query *q); /* after rows_next() said false */
	void *user;
};
struct rows_query *rows_open(struct broker *b, uint32_t rows, void (*ready)(struct rows_query *q),
			     void *user);
/* Makes the next page: true: q->page is complete. False: ready() will be called, then ask again. */
bool rows_next(struct rows_query *q);
void rows_close(struct rows_query *q);
/* No engine will answer any more. */
void rows_abandon(struct rows_query *q);

/* ---- the broker itself ---- */

struct broker {
	struct broker_config config;
	int epoll_fd, fault_fd;
	struct broker_watch fault_watch;
	bool membarrier; /* registered: producers need no fence */
	bool flushing;
	bool stopping;
	bool level_set;			    /* of the log, by weirctl */
	bool draining;			    /* no new sessions or connections */
	uint32_t session_limit, conn_limit; /* at most those of config */
	uint64_t stop_deadline;
	struct log_budget blamed; /* lines that programs and peers cause */
	uint64_t blamed_at;	  /* when to say what was left out of them; 0: nothing was */
	uint32_t node;		  /* own id */
	bool synced;
	struct nic_attr attr[BROKER_ENGINES_MAX]; /* as of the start; link_up: it was, since then */
	uint64_t
	    link_down_at[BROKER_ENGINES_MAX]; /* since when nobody was told; 0: it is up, or told */
	uint64_t link_changes[BROKER_ENGINES_MAX]; /* of the engine's port */
	uint64_t port_look;			   /* when the ports are asked again */
	uint64_t rnr_seen[BROKER_ENGINES_MAX];	   /* nic_counters.rnr_sent at the last look */
	uint64_t rnr_at[BROKER_ENGINES_MAX];	   /* when it last grew */
	struct broker_mailbox mailbox[BROKER_ENGINES_MAX];
	struct broker_command *commands; /* all that exist */
	struct broker_session **session;
	uint32_t session_count, session_next;
	struct broker_session *building, **last_building; /* in the order in which they came */
	uint64_t building_look;				  /* number of the last one at that list */
	uint64_t told_to_wait;				  /* when those were last */
	struct broker_region *adopting, **last_adopting;  /* the same */
	struct share_setting *share_settings;
	struct broker_user *users;
	/* main's CPU time: for users without a session; of them for those that have cost little
	 * lately; of each of them, by uid; for all requests */
	struct pace strangers, frugal, stranger[BROKER_STRANGER_PLACES], requests;
	uint32_t line; /* sessions in the line */
	struct broker_release *releases;
	uint64_t release_due;	    /* not looked at before */
	uint64_t used[USER_LIMITS]; /* by all users; most[]: 0 is no limit */
	uint64_t most[USER_LIMITS];
	struct user_limits user_others; /* of each without settings of its own */
	struct broker_conn **conn;	/* by vqpn index */
	uint32_t conn_count;
	struct service_table services;
	struct weir_services services_public; /* of those, the names that the cluster knows */
	uint64_t services_told, services_due; /* to control: last, next; UINT64_MAX: no need */
	uint32_t service_turn;		      /* in node_list: tried first */
	struct segment **segment;	      /* by low bits of its id */
	uint32_t segment_top;		      /* all lie below */
	uint32_t segment_generation;
	struct broker_node **node_by_id; /* BROKER_NODES */
	struct broker_node **node_list;
	uint32_t node_count, node_room;
	struct broker_node *loop;
	TAILQ_HEAD(broker_news, broker_node) node_news; /* by `changed` */
	uint64_t node_changes, node_changes_told;
	struct broker_link *links;
	struct broker_link **link_table; /* engine * config.links + id */
	uint32_t link_next[BROKER_ENGINES_MAX];
	struct engine_datagram_command datagrams[BROKER_ENGINES_MAX]; /* memory NULL: not made */
	struct session_socket *session_socket;
	struct control_socket *control_socket;
	struct capture_job *captures;
	void (*control_output)(void *user, const struct weir_ctl_msg *m);
	void *control_output_user;
	struct broker_counters counters;
};

static inline uint64_t
broker_now(const struct broker *b)
{
	return b->config.now(b->config.user);
}

static inline const struct broker_engine *
broker_engine(const struct broker *b, uint32_t engine)
{
	return &b->config.engine[engine];
}

static inline const struct nic_ops *
broker_ops(const struct broker *b, uint32_t engine)
{
	return NIC_OPS(b->config.engine[engine].dev);
}

/*
 * A line that programs of a user, or a node's data plane, can cause: a budget for each kind of each
 * of them. Lines about nodes, ports and what operators do go to the log directly.
 */
void broker_blame_user(struct broker *b, uid_t uid, const char *kind, enum log_level level,
		       const struct log_field *fields, size_t count, const char *format, ...)
    __attribute__((format(printf, 7, 8)));
void broker_blame_node(struct broker *b, uint32_t node, const char *kind, enum log_level level,
		       const struct log_field *fields, size_t count, const char *format, ...)
    __attribute__((format(printf, 7, 8)));
#define LINK_FIELDS(link_engine, link_node)                                                        \
	(struct log_field[]){{"engine", link_engine, NULL}, {"node", link_node, NULL}}, 2
#define NODE_FIELDS(id) (struct log_field[]){{"node", id, NULL}}, 1
#define PORT_FIELDS(name) (struct log_field[]){{"port", 0, name}}, 1
#define SESSION_FIELDS(s)                                                                          \
	(struct log_field[]){{"session", (s)->id, NULL},                                           \
			     {"client_pid", (uint64_t)(s)->pid, NULL},                             \
			     {"client", 0, (s)->name}},                                            \
	    3

#endif

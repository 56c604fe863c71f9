/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The running process: one event loop, one thread. control.c starts it; tick.c is the work that is
 * due from time to time; self_node.c is our own node: data plane, id, record; member.c is the table
 * of the others and what our data plane is told of them; service.c is which services they offer;
 * member_conn.c speaks with their controls; admission.c lets them in; bootstrap.c looks for a
 * cluster to join; source.c lists the nodes of a peers file and the seeds of --join.
 */
#ifndef WEIR_CONTROL_CONTROL_H
#define WEIR_CONTROL_CONTROL_H

#include "base/monotonic.h"
#include "base/notify.h"
#include "transport/conn.h"
#include "dataplane_client.h"
#include "transport/listener.h"
#include "base/log_once.h"
#include "membership/source.h"
#include "metrics/metrics.h"
#include "offers.h"
#include "options.h"
#include "node_state.h"
#include "membership/registry.h"
#include "transport/stream_tls.h"

#include <event2/util.h>
#include <sys/socket.h>

#define CONTROL_TICK_MS 50u   /* at most; less if the node timeout is short */
#define CONTROL_SIGNALS 3     /* that stop, and SIGHUP */
#define CONTROL_STRANGERS 32u /* accepted connections whose handshake isn't done */
#define CONTROL_STREAMS 64u   /* then those without links are closed, the longest unused first */
#define CONTROL_SEEDS 16u
/* Dials to addresses where nobody has answered, and that only others have told: at once; ms each.
 */
#define CONTROL_DIALS 64u
#define CONTROL_DIAL_MS 50u
#define MEMBER_PENDING 8u     /* messages that wait for a connection */
#define MEMBER_RETRY_MIN 100u /* ms between dials, doubling */
#define MEMBER_RETRY_MAX 2000u
#define MEMBER_UNUSED 1000u /* ms before a connection may be closed to make room */

/* A message as it is sent: some hundred bytes, of 8 KiB. */
struct pending {
	size_t length;
	uint8_t data[];
};

/* Another node. */
struct member {
	struct control *control;
	uint16_t id;
	uint64_t run;		 /* of its control; 0: not known */
	struct peer_entry entry; /* its addresses: a source's, else what its control says */
	bool listed;		 /* they are a source's */
	bool reached;		 /* it has answered at its address */
	bool stale;		 /* its connection is to be closed */
	struct node_state node;
	struct offers offers; /* of our data plane to it */
	struct conn *conn;    /* NULL: none; dialled, or joined */
	uint64_t conn_run;    /* of its control when the connection was made */
	uint64_t told;	      /* incarnation that our data plane was told last; 0: none */
	struct pending *pending[MEMBER_PENDING];
	uint32_t pending_count;
	uint32_t backoff;
	uint64_t retry_at, used_at; /* ms: next dial; last message either way */
	uint64_t linked_at;	    /* ms: last link message of our data plane about it */
	uint64_t asked_at; /* swim's clock: the connection's first probe since it was heard on; 0:
			      none */
	struct sockaddr_storage address;
	socklen_t address_length; /* 0: not known */
	struct log_memory trouble;
	struct log_cause state_lines, conn_lines;
};

struct seed {
	char text[WEIR_CTL_PEER_TEXT];
	struct sockaddr_storage address;
	socklen_t length;
};

struct control {
	const struct control_options *options;
	const struct control_transport *transport;
	struct stream_tls *tls; /* NULL: plain TCP */
	struct membership_source *source;
	struct event_base *base;
	struct dp *dp;
	struct log_memory dp_trouble;
	struct metrics *metrics; /* NULL: not asked for */
	struct event *tick;
	bool stopping;
	int failed; /* exit code of what a source's event ran into; -1: none */
	struct watchdog watchdog;
	uint64_t expiry_look,
	    expiry_warn;  /* ms: when certificates are looked at, warned of, next */
	char status[128]; /* as the service manager was told last */
	struct event *signal[CONTROL_SIGNALS];
	/* ourselves */
	struct peer_entry self;
	struct node_info info;	  /* that is spread */
	bool has_id, id_reported; /* chosen; the data plane knows it for good */
	uint16_t last_id;	  /* auto: what to try first */
	bool last_id_known;
	bool barred;		  /* the id that our data plane knows is somebody else's */
	uint64_t begin_at;	  /* ms: not before */
	struct swim swim;	  /* from has_id on */
	struct registry registry; /* the same */
	struct event *again;	  /* our id is somebody else's */
	struct event *settled;	  /* it is ours */
	struct log_memory id_trouble;
	/* the others */
	struct member **members; /* by id */
	uint32_t member_count, member_room;
	uint64_t room_at; /* ms: unused connections are looked for again */
	uint64_t dial_at; /* ms: when all of CONTROL_DIALS may be dialled again */
	/* whom to ask */
	struct seed seed[CONTROL_SEEDS];
	uint32_t seed_count, seed_next;
	struct conn *seed_conn;
	bool joins;	   /* the seed whose handshake is just done is to be asked for all */
	uint64_t seed_at;  /* ms: next try */
	struct seed rival; /* is said to have our id: to be met; length 0: nobody */
	uint64_t rival_at; /* ms: not before */
	struct log_memory seed_trouble;
	/* admission */
	struct listener *listener;
	TAILQ_HEAD(, conn) strangers; /* oldest first */
	uint32_t stranger_count;
	/* lines that strangers and members cause */
	struct log_budget blamed;
};

/*
 * Runs until SIGTERM or SIGINT; SIGHUP has certificates read again. Returns the exit code; what
 * went wrong has been logged. `socket_path`: the data plane's control.sock. `peers`: NULL to join.
 */
int control_run(const struct control_options *options, const struct peers *peers,
		const char *socket_path);
/* To be called before there is anything that has to be removed in the end. */
void control_hold_signals(void);

/* ---- tick.c ---- */
/* Does the work that is due; called every CONTROL_TICK_MS, or sooner. */
void control_tick(struct control *c, uint64_t now);

/* ---- address.c ---- */
/* Looks up HOST:PORT. -1, or an exit code after having said why not. */
int address_resolve(const struct control *c, const char *what, const char *text, bool any_port,
		    struct sockaddr_storage *address, socklen_t *length);
/* The same of IP:PORT that another node says: nothing is looked up, nothing said. */
bool address_take(const struct control *c, const char *text, struct sockaddr_storage *address,
		  socklen_t *length);
/* IP:PORT. */
void address_print(const struct sockaddr_storage *address, socklen_t length, char *text,
		   size_t size);

/* ---- self_node.c ---- */
extern const struct dp_handler self_node_dp_handler;
/* Takes an id if there is one to take; claims begin. False: out of memory. */
bool self_node_begin(struct control *c, uint64_t now);
void self_node_tick(struct control *c, uint64_t now);
/* Somebody else has our id, says the node at `by`: everything begins anew, from the event loop. */
void self_node_beaten(struct control *c, const char *by);
void self_node_end(struct control *c);
void self_node_on_settled(evutil_socket_t fd, short what, void *user);
void self_node_on_again(evutil_socket_t fd, short what, void *user);
/* Our record for a Hello. */
void self_node_record(const struct control *c, struct control_msg *hello);

/* ---- admission.c ---- */
/* 0 or -errno. */
int admission_open(struct control *c, const struct sockaddr *address, socklen_t length);
void admission_close(struct control *c);
/* A stranger has become a member, or is about to be freed. */
void admission_forget(struct control *c, struct conn *conn);

/* ---- member.c ---- */
extern const struct membership_events member_events;
struct member *member_find(const struct control *c, uint32_t id);
/* Finds or makes it. NULL: out of memory. */
struct member *member_get(struct control *c, uint16_t id);
/* Closes and frees all. */
void member_end_all(struct control *c);
/* May forget it. */
void member_tick(struct member *m, uint64_t now);
/* A source has told it: it is to be probed. 0 or -ENOMEM. */
int member_list(struct member *m);
/* Its record is another. */
void member_changed(void *control, const struct swim_node *node);
/* Membership knows it no longer; nobody does. */
void member_unknown(void *control, const struct swim_node *node);
void member_forgotten(struct control *c, uint16_t id);
/* Tells our data plane what the node's state is. */
void member_report(struct member *m);
/* Our data plane's view changed: tells this node's control at once. */
void member_view(struct member *m, const struct dp_view *view);
/* Messages of our data plane for this node; an offer that came from it. */
void member_offer(struct member *m, const struct weir_link_offer *link);
void member_resync(struct member *m, const struct weir_ctl_msg *msg);
void member_link_down(struct member *m, const struct weir_ctl_msg *msg);
const char *member_take_offer(struct member *m, const struct weir_link_offer *link);
const char *member_take_resync(struct member *m, const struct control_resync *resync);
void member_send_offers(struct member *m, uint64_t now);

/* ---- service.c ---- */
extern const struct registry_ops service_ops;
/* Tells our data plane what this node offers, if that is known. */
void service_report(struct member *m);
/* The services offered by our data plane have changed. */
void service_own(void *control);
/* A node's record is another. */
void service_record(struct control *c, const struct swim_node *node);

/* ---- member_conn.c ---- */
extern const struct conn_handler member_handler;
/* Sends it, when there is a connection, which is made if need be. It may be lost. */
void member_send(struct member *m, const struct control_msg *msg);
void member_send_swim(void *control, uint16_t to, const struct swim_msg *msg);
/* Makes a connection if there is none, not too often. */
void member_need(struct member *m, uint64_t now);
void member_close(struct member *m, const char *why);
/* Closes unused connections beyond CONTROL_STREAMS. */
void member_make_room(struct control *c, uint64_t now);
/* Probes on its connection have had no answer, and nothing else has come there: only we know it. */
bool member_is_half_open(const struct member *m);

/* ---- bootstrap.c ---- */
/* -1, or an exit code. */
int bootstrap_add(struct control *c, const char *text);
void bootstrap_tick(struct control *c, uint64_t now);
/* A seed that we have dialled says who it is. NULL, or why its connection has to end. */
const char *bootstrap_hello(struct conn *conn, const struct control_msg *in);
void bootstrap_closed(struct conn *conn, const char *reason);
/* Another node at this place is said to have our id: a Hello there tells whose it is. */
void bootstrap_meet(struct control *c, const char *place);
void bootstrap_end(struct control *c);
/* Is our own address among them? Then a cluster may begin here. */
bool bootstrap_is_self(const struct control *c);

/* ---- source.c, etcd/source.c ---- */
struct membership_source *source_file(const struct peers *peers, uint16_t own);
struct membership_source *source_join(const char *seeds);
/* -1 and *source, or an exit code; why has been said. `control` is filled in before its start(). */
int source_etcd(const struct control_options *o, const char *control,
		struct membership_source **source);

#endif

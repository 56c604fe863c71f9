/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages on control.sock: between the data plane (which listens), weir-control and weirctl.
 * SOCK_SEQPACKET, one message per packet of at most WEIR_CTL_MAX bytes, host byte order.
 * weir_ctl_check() is the only decoder. The data plane keeps all that control must know after a
 * restart and sends it after HELLO, so that a crash of control loses no state.
 */
#ifndef WEIR_COMMON_DPCTL_H
#define WEIR_COMMON_DPCTL_H

#include "export_counters.h"
#include "services.h"
#include "version.h"
#include "wire.h"

#include "weir/address.h"
#include "weir/node.h"

#define WEIR_CTL_VERSION 12u
/* what is spoken besides: until 1.0 nothing */
#define WEIR_CTL_VERSIONS ((struct weir_versions){WEIR_CTL_VERSION, WEIR_CTL_VERSION})
#define WEIR_CTL_MAX 32768u
#define WEIR_CTL_ADDRESSES WEIR_NODE_ADDRESSES
#define WEIR_CTL_PEER_TEXT 64

enum weir_ctl_type {
	/* both directions */
	/* first packet of each direction: the client's, then the data plane's answer (or ERROR) */
	WEIR_CTL_HELLO = 1,
	/* weir_link_offer: from our engine (to control), from a peer (to the data plane) */
	WEIR_CTL_LINK = 2,
	/* public names, complete: of our programs (to control), of a node (to the data plane) */
	WEIR_CTL_SERVICES = 3,
	/* control -> data plane */
	WEIR_CTL_NODE = 16,   /* a member, or a change of it */
	WEIR_CTL_SYNCED = 17, /* all members have been sent since HELLO */
	WEIR_CTL_FACT = 18,   /* a line for `weirctl show status`; the same name replaces it */
	/* data plane -> control */
	/* A link ended with an error: status; the peer stopped answering. Or it ended in order:
	 * ESHUTDOWN, or 0 if no link to the node is left. */
	WEIR_CTL_LINK_DOWN = 32,
	/* The peer's data plane should offer this link again: control passes the message to the
	 * peer's control, and that to its data plane. `node` asks, `peer_node` should offer. No
	 * control stores it: ask again. */
	WEIR_CTL_RESYNC = 33,
	/* weirctl -> data plane and the answers */
	WEIR_CTL_QUERY = 48,
	WEIR_CTL_ROWS = 49, /* count records of one kind; more follow if `more` */
	WEIR_CTL_ERROR = 50,
	/* weirctl -> data plane, with the descriptor of a file open for writing: the data plane
	 * writes a port's frames there as pcapng. CAPTURED answers twice: when the capture begins,
	 * and when the file is whole. */
	WEIR_CTL_CAPTURE = 51,
	WEIR_CTL_CAPTURE_STOP = 52, /* ends it; so does closing the connection */
	WEIR_CTL_CAPTURED = 53,
	/* weirctl -> data plane: a setting; DONE or ERROR answers. */
	WEIR_CTL_SET = 54,
	WEIR_CTL_DONE = 55,
	WEIR_CTL_EVICT = 126, /* ends what enum weir_ctl_evict says; DONE or ERROR answers */
};

enum weir_ctl_role { WEIR_ROLE_DATAPLANE = 1, WEIR_ROLE_CONTROL = 2, WEIR_ROLE_QUERY = 3 };

/*
 * Control sends the state of a node as an enum weir_node_state. JOINING: this control has not heard
 * from the node yet; the data plane keeps the state it knows (control was restarted).
 */

enum weir_ctl_rows {
	WEIR_ROWS_NODES = 1,
	WEIR_ROWS_ENGINES,
	WEIR_ROWS_SESSIONS,
	WEIR_ROWS_CONNECTIONS,
	WEIR_ROWS_QPS,
	WEIR_ROWS_PORTS,
	WEIR_ROWS_COUNTERS,
	WEIR_ROWS_SETTINGS,
	WEIR_ROWS_SERVICES,
	WEIR_ROWS_XSTATS,
	WEIR_ROWS_STATUS,
	WEIR_ROWS_VERSION,
	WEIR_ROWS_CONFIG,
	WEIR_ROWS_MEMORY,
	WEIR_ROWS_LINKS,
	WEIR_ROWS_USERS,
	WEIR_ROWS_EXPORTS,
	WEIR_ROWS_LAST = WEIR_ROWS_EXPORTS,
};

enum weir_ctl_evict { WEIR_EVICT_CONNECTION = 1, WEIR_EVICT_SESSION, WEIR_EVICT_EXPORT };

struct weir_ctl_node {
	uint32_t id;
	uint32_t state;	      /* enum weir_node_state */
	uint64_t incarnation; /* of its data plane, 0 unknown */
	uint32_t engines;     /* of its data plane, 0 unknown */
	uint32_t self;	      /* 1: this is our own node */
	uint32_t address_count;
	uint8_t address[WEIR_CTL_ADDRESSES][16]; /* of its NICs; IPv4 as ::ffff:a.b.c.d */
	uint16_t lid[WEIR_CTL_ADDRESSES];	 /* of its ports on InfiniBand, 0 none */
	char control[WEIR_CTL_PEER_TEXT];	 /* HOST:PORT of its control */
};

/* A member, as weirctl shows it. */
struct weir_row_node {
	struct weir_ctl_node is; /* first */
	char link[16];	       /* "up", "repair", "setup", "none", "no way"; "" for our own node */
	char link_address[48]; /* of the peer's port that links use, or will use; "" none */
	char link_reason[168]; /* why there is no link; "" if there may be one */
};
struct weir_row_engine {
	uint32_t engine, lcore, cpu, sessions;
	uint64_t busy_cycles, idle_cycles, tsc_hz;
	uint64_t turns, sleeps, yields;
	uint64_t tx_messages, rx_messages, tx_bytes, rx_bytes;
	uint64_t lock_holders, lock_waiters; /* of locks of exports: by the engine; that wait */
	uint64_t tx_messages_per_s, rx_messages_per_s;
	uint64_t busy_cycles_per_s, idle_cycles_per_s; /* of the last second */
};
struct weir_row_session {
	uint32_t session, pid, uid, channels, connections, listeners;
	uint32_t handling_ms; /* its slowest message handler at work, ms; 0: less than a second */
	uint32_t weight;
	uint32_t exports, reserved;
	uint64_t arena_bytes;
	uint64_t rate, burst;		/* payload bytes/s to peers, 0: no limit; bytes */
	uint64_t tx_messages, tx_bytes; /* taken from it for peers */
	uint64_t limited;		/* waits for its rate */
	char name[32];
	char function[56]; /* of that handler; "": unknown, or handling_ms is 0 */
};
struct weir_row_connection {
	uint32_t vqpn, peer_vqpn, session, engine, window;
	uint32_t local;
	uint32_t peer_node;
	uint32_t state; /* enum engine_conn_state, text in state_name */
	char state_name[16];
	uint32_t datagram; /* 1: a datagram connection, not local */
	uint32_t class;	   /* enum weir_class */
	uint32_t kind;	   /* 0 stream, 1 datagrams, 2 memory: operations on an export */
	uint32_t export;   /* of this host that it operates on; UINT32_MAX: none */
	uint64_t dropped;  /* datagrams that arrived and found no room */
	uint64_t outstanding, returned;
	uint64_t bytes; /* payload of all messages, both ways */
	uint64_t by_ring, by_send, by_read, by_write, by_local;
};
struct weir_row_qp {
	uint32_t qpn, peer_qpn, peer_node, engine, peer_engine;
	char purpose[8]; /* ring, bulk */
	char state[8];
	uint64_t frames_sent, frames_received, ring_used, ring_lines;
};
#define WEIR_ROW_DROPS 24
struct weir_row_port {
	char name[64];
	char driver[16];
	char address[48];
	uint32_t engine, link_up, mtu, drop_count;
	uint64_t link_changes; /* changes of link_up */
	uint64_t rx_frames, tx_frames, rx_bytes, tx_bytes;
	struct {
		char name[20];
		uint64_t count;
	} drops[WEIR_ROW_DROPS];
	char mac[24];
	char impaired[96]; /* impairments that are set, as "loss=1 delay=50" */
	uint32_t speed;	   /* Mbit/s, 0 unknown */
	uint32_t rx_queues, tx_queues;
	uint32_t rx_depth, tx_depth;  /* descriptors of a queue */
	uint32_t frames, frames_free; /* of the port's pools */
	uint32_t reserved;
	uint64_t impaired_dup, impaired_reorder, impaired_corrupt; /* frames; lost ones: drops */
	uint64_t impaired_delay, impaired_jitter, impaired_rate;
};
/* A statistic of a port's driver. */
struct weir_row_xstat {
	char port[64];
	char name[64];
	uint64_t value;
};
/* A line of the status, the versions or the configuration. */
struct weir_row_fact {
	char name[48];
	char value[440];
	char from[24]; /* who says so, or where the value comes from */
};
/* Memory of the data plane. */
struct weir_row_memory {
	char pool[64];
	uint64_t count, each, bytes; /* bytes = count * each */
	uint64_t used;		     /* bytes, UINT64_MAX: not known */
	uint32_t now;		     /* 1: allocated, 0: the most that it may become */
	uint32_t reserved;
};
struct weir_row_link {
	uint32_t node, engine, peer_engine;
	uint32_t open; /* 1: connections may be made over it */
	char state[16];
	char address[48], peer_address[48]; /* of the ports; "" not known */
	uint64_t memory;		    /* bytes */
	uint32_t attempt;		    /* number of its present queue pairs */
	uint32_t ring_lines;
};
struct weir_row_user {
	uint32_t uid;
	uint32_t named; /* 1: has limits of its own */
	uint64_t sessions, connections, services, memory, regions, exports, segments;
	uint64_t sessions_max, connections_max, services_max, memory_max, regions_max, exports_max,
	    segments_max;
	uint64_t rate; /* payload bytes/s to peers; 0 here and above: no limit */
};
struct weir_row_export {
	uint32_t export; /* number on this host, as in the key */
	uint32_t session, pid;
	uint32_t region;  /* of the session */
	uint32_t rights;  /* WEIR_RIGHT_* */
	uint32_t openers; /* connections to it */
	uint64_t offset, bytes;
	struct weir_export_counters counters;
	uint64_t held_ms;  /* ms for which its lock is held at least; UINT64_MAX: not known */
	uint64_t waits_ms; /* ms for which its first waiter waits */
	uint32_t holders, waiters; /* connections that hold it, that wait */
	char state[16];		   /* adding, open, leaving, evicted */
	char program[32];	   /* name of the session */
	char name[32];		   /* of the export; may be empty */
	char lock[16];		   /* shared, exclusive; free: "", "in-doubt" */
	char holder[48];	   /* the latest: PROGRAM:PID or node:ID; "": not known */
};
struct weir_row_counter {
	char name[48];
	char help[96];
	uint64_t value;
};
/* A public name, one row per node that offers it. */
struct weir_row_service {
	char name[WEIR_SERVICE_MAX];
	uint32_t node;	  /* UINT32_MAX: our own, not known yet */
	uint32_t self;	  /* 1: offered by a program of this host */
	uint32_t session; /* self: the session that offers it */
	uint32_t reserved;
	uint64_t age_ms;  /* since this data plane knows it */
	char port[48];	  /* address by which the node is reached; "" none */
	char program[32]; /* self: name of the session */
};
/* A setting, which WEIR_CTL_SET changes. */
struct weir_row_setting {
	char key[96];
	char value[64];
	char help[96];
};

struct weir_ctl_msg {
	uint32_t type;	 /* enum weir_ctl_type */
	uint32_t length; /* of this message, header included */
	union {
		struct {
			struct weir_versions versions; /* that the sender speaks */
			uint32_t role;		       /* enum weir_ctl_role */
			uint32_t node;	  /* id; UINT32_MAX: not known yet (data plane) */
			uint32_t engines; /* data plane */
			uint32_t pid;
			uint64_t incarnation;	/* data plane: of this run, grows with each start */
			uint32_t address_count; /* data plane: of its NICs */
			uint32_t reserved;
			uint8_t address[WEIR_CTL_ADDRESSES][16];
			char cluster[32];
			uint64_t services; /* data plane: digest of its public names */
		} hello;
		struct weir_ctl_node node;
		struct weir_row_fact fact;
		struct weir_link_offer link;
		struct {
			uint32_t node; /* that offers them; UINT32_MAX: own node, id not known */
			uint64_t incarnation;	    /* of its data plane */
			struct weir_services names; /* only `count` of them are there */
		} services;
		struct {
			uint16_t node, peer_node;
			uint8_t engine, peer_engine; /* WEIR_END() */
			uint16_t reserved;
			uint32_t status; /* errno */
		} link_down;
		struct {
			uint32_t rows; /* enum weir_ctl_rows */
		} query;
		struct {
			uint32_t rows;
			uint32_t record_bytes;
			uint32_t count;
			uint32_t more;
			uint64_t records[]; /* count * record_bytes bytes */
		} rows;
		struct {
			int32_t code; /* positive errno */
			char reason[160];
		} error;
		struct {
			char port[64];	 /* as in weir_row_port.name */
			uint64_t frames; /* to write; 0: until it is stopped */
		} capture;
		struct {
			uint32_t over;		/* 0: begun, 1: the file is whole */
			int32_t code;		/* 0, or positive errno that ended the capture */
			uint64_t frames, bytes; /* in the file */
			uint64_t dropped;
		} captured;
		struct {
			char key[96], value[64];
		} set;
		struct {
			uint32_t count; /* objects changed */
		} done;
		struct {
			uint32_t what; /* enum weir_ctl_evict */
			uint32_t id;   /* vqpn, session or export */
			char reason[96];
		} evict;
	};
};

/*
 * Checks a received packet: type known, length right for the type, counts within it, strings ended.
 * 0, -EBADMSG, or -EPROTO (a HELLO without a common version). LINK_DOWN and RESYNC both carry
 * link_down.
 */
int weir_ctl_check(const struct weir_ctl_msg *m, size_t length);
/* Exact length of a message of a fixed-size type, or of an empty ROWS or SERVICES; 0 if there is no
 * such type. */
uint32_t weir_ctl_length(uint32_t type);
/* The same of this message, with its names. */
uint32_t weir_ctl_size(const struct weir_ctl_msg *m);
/* Bytes of a record of this kind, 0 if there is none. */
uint32_t weir_ctl_record_bytes(uint32_t rows);
const char *weir_node_state_name(uint32_t state);

#endif

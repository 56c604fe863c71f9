/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An engine: the messaging work of one lcore. It owns its connections, links, channels, receive
 * blocks and queue pairs; no other thread touches them. The main lcore sends it commands and gets
 * events back; the simulator runs both in one thread. No DPDK here: memory, time and wires are
 * parameters.
 *
 * Nothing in engine_turn() allocates, locks, logs or makes a system call, except doorbells in its
 * flush step (through engine_config.ring_doorbell), and updates by plain code: one engine at a time
 * executes those of a region, others yield meanwhile (engine_region.updating).
 */
#ifndef WEIR_ENGINE_H
#define WEIR_ENGINE_H

#include "base/list.h"
#include "ipc/export_counters.h"
#include "ipc/remote.h"
#include "ipc/shm.h"
#include "ipc/wire.h"
#include "nic/nic.h"

#define ENGINE_WEIGHT 10u /* default weight of a program */
#define ENGINE_WEIGHT_MAX 100u

/*
 * A program's share of the NICs, for all engines. weight, rate and burst_ns: main writes, engines
 * read; paid: engines, compare and exchange. Each is a number by itself: relaxed.
 */
struct engine_share {
	_Atomic uint32_t weight;   /* 1 ... ENGINE_WEIGHT_MAX: on links with several programs */
	_Atomic uint64_t rate;	   /* payload bytes/s to peers, 0: no limit */
	_Atomic uint64_t burst_ns; /* ns of unused rate that may be used later */
	_Atomic uint64_t paid;	   /* ns: the bytes that have left are paid for up to then */
	/* The share of the user, which all its programs pay for too. NULL: none. Main sets it
	 * before engines know the session. */
	struct engine_share *above;
};

/* Of one session, at the beginning of engine_session.work. Engine writes, main reads, relaxed. */
struct engine_session_counters {
	_Atomic uint64_t tx_messages, tx_bytes; /* taken from the program for peers; payload */
	_Atomic uint64_t limited;		/* times that messages waited for the rate */
};

/* One session as one engine sees it. Made by main, owned by main, read by the engine. */
struct engine_session {
	uint32_t id;		       /* index < engine_config.sessions */
	uint8_t *base;		       /* data plane's mapping of the arena */
	struct weir_geometry geometry; /* private copy: never re-read from shared memory */
	/* On this engine's device; length 0 without a NIC. An arena is never remotely accessible as
	 * a whole. recv_mr: this engine's receive blocks, local and remote write; its rkey goes
	 * into CTS. send_mr: the send heap, local write (gets) and remote read; its rkey goes only
	 * to peers that may read messages of this session. */
	struct nic_mr recv_mr, send_mr;
	_Atomic uint32_t violation; /* engine writes errno once: main closes the session */
	struct engine_share *share; /* NULL: ENGINE_WEIGHT and no limit */
	void *work; /* engine_session_bytes() of zeroed memory, aligned to 64; the engine's until
		       SESSION_REMOVE is done */
};

/* A program's own memory, adopted, as one engine sees it. The engine keeps a copy. */
struct engine_region {
	uint32_t session, region; /* region: 1 ... engine_config.regions */
	uint8_t *base;		  /* data plane's mapping */
	uint64_t bytes;
	uint32_t flags;	  /* WEIR_ADOPT_*: what it may be used for */
	struct nic_mr mr; /* on this engine's device; length 0 without a NIC */
	/* Held by the engine that updates elements by plain code: one of all that know the region
	 */
	_Atomic bool *updating;
};

/* Memory of a dynamic export: `address` is that of the program. */
struct engine_range {
	uint64_t address, bytes;
	uint8_t *base;	 /* data plane's mapping */
	uint32_t region; /* of the session; engines do not keep it, main removes the range first */
	_Atomic bool *updating; /* of engine_region */
};

/* Its ranges by address, none of which overlap. Main's; never changed, but replaced. */
struct engine_ranges {
	uint32_t count;
	struct engine_range of[];
};

/*
 * A range of adopted memory that connections may be made to, as every engine knows it. Main chooses
 * its number and generation, which differs in each life of the number and is not 0.
 */
struct engine_export {
	uint32_t session, number; /* number: 1 ... engine_config.exports */
	uint32_t generation;
	uint32_t region;	 /* 0: a dynamic export */
	uint64_t offset, length; /* within the region */
	/* dynamic: used until EXPORT_RANGES with others, or EXPORT_STOP, is done; else NULL */
	const struct engine_ranges *ranges;
	uint32_t rights;  /* WEIR_RIGHT_* */
	uint32_t channel; /* with WEIR_RIGHT_NOTIFY: index in the arena */
	/* with WEIR_RIGHT_LOCK: words of its lock (ipc/lock_words.h); lock_region 0: none */
	uint64_t lock_offset;
	uint32_t lock_region, lock_members;
	uint32_t keyed; /* out of EXPORT_STOP: connections whose peers have its key */
};

/* ns that peers have for acknowledging the end of an export; then their WRITEs and READs fail */
#define ENGINE_KEYED_NS UINT64_C(10000000000)

/* The key with which a peer's engine WRITEs or READs an export. rkey 0: there is none. */
struct engine_export_key {
	uint64_t address;
	uint32_t rkey;
};

/* The engine in which the lock of an export is. */
static inline uint32_t
engine_lock_owner(uint32_t session, uint32_t number, uint32_t engines)
{
	return (session + number) % engines;
}

/* A request for a lock by a connection of another engine, which main carries, or its end. */
struct engine_lock {
	uint32_t session, number, generation; /* of the export */
	uint32_t engine, vqpn;		      /* of the connection */
	uint32_t turn;			      /* number of the request on it */
	weir_lock_status status;	      /* said: with which the lock was granted */
	uint8_t kind; /* WEIR_LOCKS_*; 0: the request is given up, or the lock released */
	bool held;    /* kind 0: the connection has heard that it was granted */
	bool dead;    /* kind 0: the connection has ended */
	bool unseen;  /* kind 0: the program has not seen that it was granted */
	bool said;    /* to the engine of the connection: it was granted, or given up */
};

/* A request that waits for a lock, in the connection or in the command that brought it. */
struct engine_seat {
	struct list_node queued;
	struct engine_command *command; /* NULL: of a connection of this engine */
	uint64_t since;			/* ns */
	uint32_t vqpn;
	uint8_t kind; /* WEIR_LOCKS_* */
};

/* Commands from main to an engine, which has the struct until it is done. */
enum engine_command_type {
	ENGINE_SET_NODE,       /* node: own node id and incarnation */
	ENGINE_SESSION_ADD,    /* session */
	ENGINE_SESSION_REMOVE, /* session: its connections end with RESET; done when nothing
				  refers to it */
	ENGINE_REGION_ADD,     /* region: messages may name it from now on */
	ENGINE_REGION_REMOVE,  /* region: done when no message under way names it */
	ENGINE_EXPORT_ADD,     /* export: connections to it may be made */
	ENGINE_EXPORT_STOP,    /* export: its connections end with ESTALE; from now on no operation
				  on it begins. Out: keyed */
	ENGINE_EXPORT_REMOVE,  /* export, after EXPORT_STOP: done when no peer of this engine
				  WRITEs or READs it any more, or after ENGINE_KEYED_NS */
	ENGINE_EXPORT_RANGES,  /* export: it has these ranges from now on */
	ENGINE_LOCK,	       /* lock: to the owner engine: a request, which is done when it is
				  granted, or with an error never will be; or its end. `said`: to
				  that of the connection */
	ENGINE_SESSION_SHARE,  /* session: main has changed its share */
	ENGINE_CHANNEL_ADD,    /* channel */
	ENGINE_CONN_OPEN,      /* conn: start connecting over a link; out: vqpn. Result as
				  WEIR_OP_OPENED. link = ENGINE_LINK_NONE: only take the entry,
				  ENGINE_CONN_START follows; also out: that link is closing */
	ENGINE_CONN_START,  /* conn: vqpn of a CONN_OPEN without link: status 0: connect over link
			       now; else WEIR_OP_OPENED with status, the entry ends (CONN_CLOSED).
			       -ENOENT: program closed it meanwhile. -ENOLINK: the link is
			       closing; CONN_START follows again */
	ENGINE_CONN_ACCEPT, /* conn: answer to ENGINE_EVENT_CONNECT; out: vqpn. -ESTALE: the export
			       that it names has gone */
	ENGINE_CONN_REJECT, /* conn: answer to ENGINE_EVENT_CONNECT with status. A peer that lets
			       too many wait loses its link: LINK_ERROR, or LINK_RESUME fails */
	ENGINE_CONN_LOCAL,  /* conn: one end of a local connection on this engine; out: vqpn.
			       listener = ENGINE_LISTENER_NONE: the connecting end */
	ENGINE_CONN_LOCAL_OPENED, /* conn: vqpn, peer_vqpn: the other end exists: tell the program
				     (OPENED or ACCEPTED). status not 0 (connecting end only):
				     OPENED with status, the entry ends (CONN_CLOSED) */
	ENGINE_CONN_APART, /* conn: a connection to an export of this host, whose operations this
			      engine executes; out: vqpn. -ESTALE: there is no such export */
	ENGINE_CONN_PEER_CLOSED, /* conn: vqpn: the other end of a local connection closed with
				    status. -ENOENT: gone already */
	ENGINE_CONN_DECIDE,  /* conn: vqpn, window (0: as it is). A held connection opens, or with
				status is refused: its program forgets it, and the peer gets status
				and reason. -ENOENT: gone already */
	ENGINE_CONN_EVICT,   /* conn: vqpn: a connection to a peer is aborted with status. -ENOENT:
				it ends already */
	ENGINE_LINK_ADD,     /* link: QPs are in RTS; traffic may flow */
	ENGINE_LINK_PAUSE,   /* link: main has moved the QPs of link.resumes to ERR: the engine
				releases them; out: consumed, received, proven */
	ENGINE_LINK_RESUME,  /* link: new QPs in RTS: frames are taken; none leaves before LINK_GO,
				or a frame of the peer. Then frames that the peer lacks leave
				again. -EPROTO: impossible positions */
	ENGINE_LINK_GO,	     /* link: the peer has resumed as well: frames may leave */
	ENGINE_LINK_CLOSE,   /* link: asks the peer to end the link, which has no connection; then
				LINK_CLOSED or LINK_STAYS follows. -EBUSY: it has some, or is
				being repaired */
	ENGINE_LINK_RING,    /* link: ring, ring_lines, ring_mr: memory for our ring, as the engine
				wanted. ring NULL: there is none. -EBUSY: it is not wanted */
	ENGINE_LINK_STAGING, /* link: staging, staging_lines, staging_mr, work: likewise for the
				ring of the peer. -EBUSY: it is not wanted */
	ENGINE_LINK_FAIL, /* link: main has moved its QPs to ERR: its connections end with status;
			     done when its QPs and memory are the main lcore's again */
	ENGINE_DATAGRAM_ADD,  /* datagram: the queue pair for datagrams; after DATAGRAM_ERROR a new
				 one for the same memory */
	ENGINE_DATAGRAM_FAIL, /* the driver says that it has failed */
	ENGINE_NODE_EVENT, /* conn.peer_node, conn.status: put WEIR_OP_NODE into one channel of each
			      session */
	ENGINE_SNAPSHOT,   /* snapshot: fill records for weirctl and telemetry */
	ENGINE_QUIET,	   /* nothing: that it came back means that a turn has passed */
};

#define ENGINE_RECV_BYTES                                                                          \
	(WEIR_SEND_LINES * WEIR_SLOT_SIZE) /* memory behind each receive WR                        \
					    */
/* Bytes of engine_config.recv. */
static inline size_t
engine_recv_bytes(uint32_t srq_depth)
{
	return (size_t)srq_depth * ENGINE_RECV_BYTES + WEIR_SLOT_SIZE;
}
#define ENGINE_SEND_WRS 256u /* depth of the send queue of each QP of a link */
#define ENGINE_LINK_NONE UINT32_MAX
#define ENGINE_LINKS_MOST 4096u
#define ENGINE_LISTENER_NONE UINT32_MAX

/* How the two ends of a connection exchange data. */
enum engine_conn_kind {
	CONN_STREAM,   /* messages in order, with a flow-control window */
	CONN_DATAGRAM, /* by the queue pair for datagrams: no window, no order, no repetition */
	CONN_MEMORY,   /* operations on memory of the accepting end, without a window */
};

/*
 * The accepting end of a memory connection is passive: the program takes no part, so the end has
 * neither a descriptor in the arena nor a channel, and raises no event there.
 */
#define ENGINE_DESC_NONE UINT32_MAX
#define ENGINE_CHANNEL_NONE UINT32_MAX

struct engine_conn_command {
	/* whose, and where its events go; passive end: ENGINE_CHANNEL_NONE */
	uint32_t session, channel;
	uint32_t vqpn; /* in or out, by type */
	uint32_t desc; /* descriptor in the arena, chosen by main; passive end: ENGINE_DESC_NONE */
	uint32_t link; /* link id */
	uint16_t peer_node;
	uint16_t mtu; /* datagram: largest message */
	uint8_t kind; /* enum engine_conn_kind; local datagram connections differ in mtu only */
	bool held;    /* accepting end: it opens by CONN_DECIDE */
	uint32_t peer_vqpn;
	uint32_t window;	      /* wished, bytes; 0 = default */
	uint32_t granted;	      /* CONN_ACCEPT: cost that the initiator granted */
	uint32_t listener;	      /* ENGINE_LISTENER_NONE: our end initiated */
	uint32_t segment, conn_index; /* local */
	uint32_t status;	      /* errno */
	/* memory: CONN_ACCEPT, CONN_APART: the export, of that session, and rights to it */
	uint32_t export_session, export_number, export_generation, rights;
	struct nic_ah *ah; /* datagram: to the link's peer */
	struct weir_wire_datagram
	    to; /* datagram: CONNECT, CONN_ACCEPT: where the peer takes them */
	char service[WEIR_SERVICE_MAX]; /* memory: struct weir_wire_export */
};

/* Lines of the ring that a link keeps while its peer is idle. */
#define ENGINE_RING_LEAST 256u
#define ENGINE_RING_MOST 65536u

/* Memory that a link keeps: of a ring and of a staging of ENGINE_RING_LEAST lines. ring NULL: the
 * rings of the link are never withdrawn. */
struct engine_least {
	void *ring, *staging;
	void *work; /* engine_link_bytes(ENGINE_RING_LEAST) */
	struct nic_mr ring_mr, staging_mr;
};

/* Which memory a link uses: other memory is main's. */
struct engine_rings {
	uint32_t life;		 /* engine_link_command.life */
	uint32_t ring_lines;	 /* of our ring, as the peer uses it */
	bool ring_least;	 /* it is that of engine_least */
	bool staging_least;	 /* so is the staging */
	bool ring_wanted;	 /* LINK_RING is awaited */
	uint32_t staging_wanted; /* lines of the staging that LINK_STAGING brings, 0: none */
};

/*
 * One end of a link, made by main. The engine keeps a copy; `work`, `answers` and the memory of
 * rings are its own until LINK_FAIL is done. From staging_mr.lkey to `link` are 64 bytes: what each
 * frame needs (static_assert in link.h).
 */
struct engine_link_command {
	uint32_t life; /* of the id: events of a link that ended may come late */
	uint16_t peer_node;
	uint8_t peer_engine;
	uint8_t class; /* enum weir_class of its connections */
	struct nic_gid peer_gid;
	uint16_t peer_lid; /* with peer_gid: who may send datagrams */
	uint32_t ring_lines;
	/* our ring, into which the peer writes, and the staging that mirrors the peer's ring */
	void *ring, *staging;
	struct nic_mr staging_mr;
	struct nic_qp
	    *qp[2]; /* nic_qp_init.user = what engine_link_user() returned for this id and index */
	struct weir_credit_line
	    *credit; /* [0] written by the peer, [1] source of our WRITE to the peer's */
	uint64_t peer_ring_address;
	uint32_t peer_ring_rkey;
	uint32_t peer_recv_wrs; /* receive WRs that the peer granted, at least 4 */
	uint32_t recv_wrs;	/* receive WRs that we granted to the peer */
	uint32_t link; /* id: index in the engine's table, chosen by main, < engine_config.links */
	uint32_t staging_lines;
	struct nic_mr ring_mr,
	    credit_mr; /* credit_mr: our credit line + 64 bytes of source for the peer's */
	uint64_t peer_credit_address;
	uint32_t peer_credit_rkey;
	void *work; /* engine_link_bytes() of zeroed memory, aligned to 64 */
	/* lines, a power of two, that answers to the peer's operations wait in. answer_lines 0: no
	 * operation of the peer is answered */
	struct weir_slot *answers;
	uint32_t answer_lines;
	uint32_t peer_answers; /* bytes of answers that the peer may be asked for at once */
	struct engine_least least;
	struct engine_rings rings; /* out of LINK_PAUSE */
	uint32_t peer_ring_lines;  /* LINK_RESUME: of the ring at peer_ring_address */
	uint32_t status;	   /* LINK_FAIL: errno for its connections */
	uint32_t resumes;	   /* LINK_PAUSE, LINK_RESUME: enum weir_resume */
	bool proven;		   /* out of LINK_PAUSE: frames repeated after the last resume were
				      acknowledged */
	uint64_t consumed, received; /* out of LINK_PAUSE: ours; LINK_RESUME: the peer's */
};

/*
 * The queue pair for datagrams of an engine, in RTS, made by main when it is first needed.
 * nic_qp_init.user = engine_datagram_user(); its SRQ is its own.
 */
#define ENGINE_DATAGRAMS 256u	    /* buffers to send from, as many to receive into, and WRs */
#define ENGINE_DATAGRAM_BYTES 4160u /* of a buffer: room for a GRH and the largest path MTU */
struct engine_datagram_command {
	struct nic_qp *qp;
	struct nic_srq *srq;
	uint8_t *memory; /* first the buffers to receive into */
	struct nic_mr mr;
	uint32_t qkey;
};

struct engine_snapshot;

struct engine_command {
	enum engine_command_type type;
	int result;		     /* 0 or -errno, set by the engine */
	void *owner;		     /* main's */
	struct engine_command *next; /* engine's while it has the command */
	union {
		struct {
			uint16_t id;
			uint64_t incarnation;
		} node;
		struct engine_session *session;
		struct engine_region region;
		struct engine_export export;
		struct {
			struct engine_lock lock;
			struct engine_seat seat; /* the engine's */
		};
		struct {
			uint32_t session, channel; /* channel: index in the arena */
			uint32_t doorbell;	   /* handed to ring_doorbell() */
			bool fence;		   /* the program isn't registered for membarrier */
		} channel;
		struct {
			struct engine_conn_command conn;
			union {
				/* CONN_DECIDE, CONN_LOCAL_OPENED, with conn.status */
				char refusal[WEIR_REFUSAL_MAX];
				struct engine_export_key key; /* CONN_ACCEPT, memory */
			};
		};
		struct engine_link_command link;
		struct engine_datagram_command datagram;
		struct engine_snapshot *snapshot;
	};
};

/* Events: news from an engine that answer no command. */
enum engine_event_type {
	ENGINE_EVENT_CONNECT,	  /* a peer asks for a connection: main answers with CONN_ACCEPT or
				     CONN_REJECT */
	ENGINE_EVENT_CONN_CLOSED, /* conn.vqpn and desc are free again */
	ENGINE_EVENT_LOCAL_CLOSE, /* program closed its end of a local connection: tell the other
				     end */
	ENGINE_EVENT_LINK_ERROR,  /* link: a QP of it is in ERR, or the peer broke the rules
				     (EPROTO); status = errno, wc_status, qpn */
	ENGINE_EVENT_LINK_HEARD,  /* link: resumed, and held back: the peer has written, qpn */
	ENGINE_EVENT_LINK_IDLE,	  /* link: its last connection has ended */
	ENGINE_EVENT_LINK_CLOSED, /* link: both ends have agreed to its end; it carries nothing any
				     more. qpn */
	ENGINE_EVENT_LINK_STAYS,  /* link: the peer has connections: LINK_CLOSE is undone. qpn */
	ENGINE_EVENT_LINK_RINGS,  /* link: rings: memory is wanted, or not used any more. qpn */
	ENGINE_EVENT_LINK_SILENT, /* link: no answer for config.silence_ns; again and
				     again while it lasts */
	ENGINE_EVENT_DATAGRAM_ERROR, /* the queue pair for datagrams has failed and none of its WRs
					is outstanding; its connections have ended */
	ENGINE_EVENT_VIOLATION,	     /* conn.session broke the rules: close it (reason) */
	ENGINE_EVENT_LOCK,	     /* lock: for the owner engine */
	ENGINE_EVENT_FULL,	     /* conn.session: peers have waited for its receive memory for
					long */
};

struct engine_event {
	enum engine_event_type type;
	uint32_t wc_status;
	uint32_t qpn; /* events of a link: of the QP for the ring; LINK_ERROR: that failed, as it
			 was then */
	struct engine_rings rings; /* LINK_RINGS */
	union {
		struct engine_conn_command
		    conn; /* CONNECT: link, peer_node, peer_vqpn, window, granted, service */
		struct engine_lock lock; /* LOCK */
	};
	const char *reason; /* VIOLATION: a constant */
};
static_assert(sizeof(struct engine_event) <= 160, "each engine has MAILBOX_EVENTS of them");

struct engine_config {
	uint32_t id, count;	  /* this engine and how many there are in this data plane */
	uint32_t connections;	  /* entries of this engine's connection table (vqpn index = id *
				     connections + i) */
	uint32_t sessions;	  /* largest number of sessions */
	uint32_t links;		  /* largest number of links, at most ENGINE_LINKS_MOST */
	uint32_t session_pending; /* slots that one session may have waiting inside the engine */
	uint32_t regions;	  /* of adopted memory that one session may have */
	uint32_t exports;	  /* of that memory that one session may have */
	uint32_t initial_grant;	  /* cost granted to a new connection, bytes (default 8 * 64) */
	uint32_t window;	  /* default flow-control window (2 MiB) */
	uint64_t silence_ns;	  /* ns without an answer of a peer until LINK_SILENT; 0: never */
	uint64_t
	    ring_idle_ns; /* time between two looks at which peers need their rings; 0: never */
	double threshold; /* share of the window at which credit is returned (0.6) */
	struct nic_context *nic;
	struct nic_srq *srq;
	uint32_t srq_depth;
	/* srq_depth buffers of SENDs, a line behind them that fences of peers are read into, and
	 * their region: engine_recv_bytes(); main's memory */
	uint8_t *recv;
	struct nic_mr recv_mr;
	/* 8 bytes that peers may READ behind their WRITEs; length 0: an acknowledged WRITE is
	 * visible */
	struct nic_mr fence_mr;
	/* Rings the doorbell of a channel, without blocking; called in the flush step only. Returns
	 * the ns that it took, of CPU time if `cpu_time`. */
	uint64_t (*ring_doorbell)(void *user, uint32_t doorbell, bool cpu_time);
	/* Puts an event into main's queue; false = full, the engine tries again next turn. */
	bool (*emit)(void *user, const struct engine_event *event);
	void *user;
};

struct engine;

/* Allocates everything the engine will ever need. NULL and errno on failure. Main lcore. */
struct engine *engine_create(const struct engine_config *config);
/* All sessions and links must be gone. Main lcore, the engine stopped. */
void engine_destroy(struct engine *e);
/* Bytes that an engine of this configuration allocates, for the budget. */
size_t engine_memory(const struct engine_config *config);
/* Bytes of engine_session.work for an arena of this geometry. Main lcore. */
size_t engine_session_bytes(const struct engine_config *config, const struct weir_geometry *g);
/* The part of these that an export takes. */
size_t engine_export_bytes(void);
/* Bytes of engine_link_command.work for a peer ring of this size: a power of two, at least 256. */
size_t engine_link_bytes(uint32_t staging_lines);
/* The same for the staging of a link that has `least`, and for LINK_STAGING. */
size_t engine_staging_bytes(uint32_t lines);

/*
 * One turn: channels, NIC, flush, and at times housekeeping. `now`: monotonic ns. Returns the
 * amount of work done, 0: idle. The loop counts cycles, not the engine.
 */
unsigned engine_turn(struct engine *e, uint64_t now);
/* Whether the last turn delivered small messages: answers follow soon. */
bool engine_delivered(const struct engine *e);
/* Whether the last turn took slots from programs or gave them some. */
bool engine_served(const struct engine *e);
/* Channels that had slots in the last turn. */
uint32_t engine_active_channels(const struct engine *e);
/* Load of the engine and its host, 1/1000, which peers are told. The engine's thread. */
void engine_set_load(struct engine *e, uint32_t load);
/* ns for which other threads had the CPU last: credit waits that much longer for a frame that
 * carries it, which programs may fill meanwhile. The engine's thread. */
void engine_set_away(struct engine *e, uint64_t ns);

/*
 * Executes a command at once, on the engine's thread. Returns true when it is done and
 * command->result is set; false when it ends later: then engine_done() hands it back.
 */
bool engine_execute(struct engine *e, struct engine_command *command);
/* Next command that ended later, or NULL. */
struct engine_command *engine_done(struct engine *e);

/* nic_qp_init.user for QP `index` (0 ring, 1 bulk) of link `link`. */
void *engine_link_user(struct engine *e, uint32_t link, unsigned index);

/* nic_qp_init.user for the queue pair for datagrams. */
void *engine_datagram_user(struct engine *e);

/*
 * Before a sleep: engine_sleep_prepare() sets tx_sleeping of all channels and returns the time of
 * the next timer, ns (UINT64_MAX: none); then the caller fences; then engine_sleep_check() returns
 * whether there is work after all. engine_sleep_cancel() clears the flags.
 */
uint64_t engine_sleep_prepare(struct engine *e, uint64_t now);
bool engine_sleep_check(struct engine *e);
void engine_sleep_cancel(struct engine *e);

/* For tests: NULL, or the invariant that does not hold. Looks at everything. */
const char *engine_check(const struct engine *e);

#define ENGINE_COUNTERS(X)                                                                         \
	X(turns, "turns of the loop")                                                              \
	X(tx_messages, "messages accepted from programs for peers")                                \
	X(tx_bytes, "payload bytes of those")                                                      \
	X(rx_messages, "messages delivered into sessions")                                         \
	X(rx_bytes, "payload bytes of those")                                                      \
	X(frames_sent, "frames written into peers' rings")                                         \
	X(frames_received, "frames taken out of our rings")                                        \
	X(frames_replayed, "frames written again after a link was repaired")                       \
	X(bulk_replayed, "bulk writes of unknown outcome that were made again")                    \
	X(frames_by_send, "frames that left by SEND, not into the ring")                           \
	X(credit_writes, "ring credits returned by a WRITE of their own")                          \
	X(ring_stalls, "times that a peer's ring had no room")                                     \
	X(rings_withdrawn, "rings that idle peers have left")                                      \
	X(rings_regained, "rings that peers got again")                                            \
	X(window_stalls, "messages that waited for their connection's window")                     \
	X(receive_full, "times that a program's receive memory was all promised or in use")        \
	X(rate_limited, "times that a program waited for its rate")                                \
	X(bulk_messages, "messages sent by rendezvous")                                            \
	X(fetched, "messages fetched from peers by READ")                                          \
	X(fetched_bytes, "bytes that those READs brought")                                         \
	X(tx_adopted, "messages sent out of memory that programs adopted")                         \
	X(rx_placed, "messages received right into memory that programs posted")                   \
	X(spilled, "slots that waited in receive blocks because the program's ring was full")      \
	X(doorbells, "programs woken")                                                             \
	X(violations, "sessions that broke the rules")                                             \
	X(bad_frames, "frames of peers refused")                                                   \
	X(remote_operations, "operations executed on exported memory")                             \
	X(remote_bytes, "payload bytes of those")                                                  \
	X(remote_puts, "puts among them")                                                          \
	X(remote_gets, "gets among them")                                                          \
	X(remote_updates, "updates and swaps among them")                                          \
	X(remote_notices, "notices and signals among them")                                        \
	X(remote_refused, "operations refused: outside range or rights of their export")           \
	X(locks_granted, "locks of exports granted")                                               \
	X(lock_holders, "locks of exports held now, but those that programs hold by words")        \
	X(lock_waiters, "requests for locks of exports that wait now")                             \
	X(answers, "answers to operations on memory of peers")                                     \
	X(answer_stalls, "operations that waited because their peer owed too many answers")        \
	X(stray, "messages for connections that are gone")                                         \
	X(datagrams_sent, "datagrams sent")                                                        \
	X(datagrams_received, "datagrams delivered into sessions")                                 \
	X(datagrams_dropped, "datagrams whose program had no room, or was gone")                   \
	X(datagrams_doubled, "datagrams that had come before, or came far too late")               \
	X(datagrams_refused, "datagrams that no peer of a connection has sent")

/* Counters that the row of an engine also has. */
#define ENGINE_TRAFFIC(X) X(tx_messages) X(rx_messages) X(tx_bytes) X(rx_bytes)
/* So do these, which rise and fall. */
#define ENGINE_LEVELS(X) X(lock_holders) X(lock_waiters)

struct engine_counters {
#define X(name, help) _Atomic uint64_t name;
	ENGINE_COUNTERS(X)
#undef X
};
/* Any thread; fields are written by the engine, relaxed. */
const struct engine_counters *engine_counters(const struct engine *e);

/* Connection states; the table of transitions is in docs/protocol.md. */
enum engine_conn_state {
	CONN_FREE,	/* entry unused */
	CONN_OPENING,	/* CONNECT sent, no answer yet */
	CONN_OPEN,	/* each end sends unless it has shut down */
	CONN_FINISHING, /* our program closed, or both have shut down; queued data leaves, then FIN
			 */
	CONN_FINISHED,	/* FIN sent, the peer may still send or has not acknowledged */
	CONN_PEER_GONE, /* peer's end is gone; program hasn't closed yet */
	CONN_LOCAL,	/* both ends on this host: bytes go by segment */
	CONN_DEAD,	/* RESET is due or has left: messages are refused until the peer
			   acknowledges */
};

struct engine_conn_record {
	uint32_t vqpn, peer_vqpn, session, state, window;
	uint16_t peer_node;
	uint16_t local;
	uint32_t kind;			/* enum engine_conn_kind */
	uint64_t dropped;		/* datagrams that came and found no room */
	uint64_t outstanding, returned; /* cost: spent and not yet back; given back by the peer */
	uint64_t by_ring, by_send, by_read, by_write; /* messages by primitive */
	uint64_t bytes;				      /* payload, both ways */
	uint32_t segment, conn_index; /* local: whose messages the engine never sees */
	/* executing end of a memory connection; number 0: none */
	uint16_t export_session, export_number;
};

/* Main names an export that it knows; engines add what they have of it. */
struct engine_export_record {
	uint32_t session, number, generation; /* as in struct engine_export */
	uint32_t openers;		      /* connections to it */
	/* its lock, from the owner engine */
	bool lock_exclusive, lock_in_doubt;
	uint32_t lock_holders, lock_waiters;
	uint32_t lock_holder; /* vqpn of the latest, 0: not known */
	/* for how long at least, if there are holders; UINT64_MAX: not known */
	uint64_t lock_held_ns;
	uint64_t lock_waits_ns; /* of the first one that waits */
	struct weir_export_counters counters;
};

struct engine_link_record {
	uint32_t link, peer_node, peer_engine, qpn[2], state;
	uint64_t ring_used, ring_lines, frames_sent, frames_received;
};

struct engine_snapshot {
	struct engine_conn_record *conns; /* main's memory */
	uint32_t conn_room, conn_count,
	    conn_from;	    /* fills from table index conn_from on; next in conn_next */
	uint32_t conn_next; /* UINT32_MAX: no more */
	struct engine_link_record *links;
	uint32_t link_room, link_count;
	struct engine_export_record *exports;
	uint32_t export_count;
};

#endif

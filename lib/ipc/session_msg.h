/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages between a program and the data plane on session.sock (SOCK_SEQPACKET, one message per
 * packet, host byte order: same machine). The program sends requests, the data plane answers in
 * order; events use the channels. weir_session_check() is the only decoder.
 */
#ifndef WEIR_COMMON_SESSION_MSG_H
#define WEIR_COMMON_SESSION_MSG_H

#include "key.h"
#include "shm.h"
#include "version.h"
#include "wire.h"

#include "weir/address.h"
#include "weir/node.h"

#define WEIR_SESSION_MAGIC 0x31565357u
#define WEIR_SESSION_VERSION 15u
/* what is spoken besides: until 1.0 nothing */
#define WEIR_SESSION_VERSIONS ((struct weir_versions){WEIR_SESSION_VERSION, WEIR_SESSION_VERSION})
#define WEIR_SESSION_FDS 3u /* descriptors that an answer carries at most */
#define WEIR_REASON_MAX 160
#define WEIR_NAME_MAX 32
#define WEIR_ENGINES_MAX 32u /* as WEIR_END() can name */

enum weir_session_type {
	/* requests */
	WEIR_MSG_HELLO = 1,	  /* first; answer WELCOME + fd of the arena */
	WEIR_MSG_ADD_CHANNEL = 2, /* answer CHANNEL + doorbell: fds to wait on, to ring */
	WEIR_MSG_LISTEN = 3,	  /* answer LISTENING */
	WEIR_MSG_UNLISTEN = 4,	  /* answer OK */
	WEIR_MSG_CONNECT = 5,	  /* answer CONNECTING; later WEIR_OP_OPENED on the channel */
	WEIR_MSG_SEGMENT = 6, /* answer SEGMENT_MAP + memory, doorbell: fds to wait on, to ring */
	WEIR_MSG_BYE = 8,
	/* answer OK, then both close */ /*
					  * The program wants to unmap its side of a segment. Answer
					  * OK: no connection of this side uses it or will ever join
					  * it; or REFUSED with EBUSY: one does, or its end is not
					  * complete: ask again later. So private cursors are never
					  * lost while the segment may be used again.
					  */
	WEIR_MSG_DROP_SEGMENT = 9,	 /* body: segment */
	WEIR_MSG_ADOPT = 10,  /* memory for a region; answer REGION + fd of zeroed memory */
	WEIR_MSG_DISOWN = 11, /* body: region; answer OK: no message names it any more */
	WEIR_MSG_FIND = 12,   /* nodes that offer a public service; answer FOUND */
	WEIR_MSG_DECIDE = 13, /* accept or refuse a connection; answer OK */
	WEIR_MSG_WHO = 14,    /* the other end of a connection; answer PEER */
	WEIR_MSG_EXPORT = 15, /* a range of a region; answer EXPORTED */
	WEIR_MSG_REVOKE = 16, /* answer OK: no operation on it is under way, none will begin */
	WEIR_MSG_OPEN = 17,   /* connects to an export; answer and events as of CONNECT */
	/* memory of a whole export of this host; answer MAPPED + fd */
	WEIR_MSG_MAP = 18,
	WEIR_MSG_ATTACH = 19, /* a range to a dynamic export; answer OK: peers may operate on it */
	WEIR_MSG_DETACH = 20, /* answer OK: no operation on it is under way, none will begin */
	WEIR_MSG_NODES = 22,  /* nodes that have changed; answer NODE_LIST */
	WEIR_MSG_NAME = 23,   /* renames an export, for operators; answer OK */
	/* replies */
	WEIR_MSG_OK = 64,
	WEIR_MSG_REFUSED = 65, /* code and reason; after HELLO the socket is closed too */
	WEIR_MSG_WELCOME = 66,
	WEIR_MSG_CHANNEL = 67,
	WEIR_MSG_LISTENING = 68,
	WEIR_MSG_CONNECTING = 69,
	WEIR_MSG_SEGMENT_MAP = 70,
	WEIR_MSG_REGION = 71,
	WEIR_MSG_FOUND = 72,
	WEIR_MSG_PEER = 73,
	WEIR_MSG_EXPORTED = 74,
	WEIR_MSG_MAPPED = 75,
	WEIR_MSG_WAIT = 82, /* sent every second until a slow answer is ready */
	WEIR_MSG_NODE_LIST = 83,
};

#define WEIR_HELLO_MEMBARRIER 0x1u /* registered for MEMBARRIER_CMD_GLOBAL_EXPEDITED */
#define WEIR_WELCOME_MEMBARRIER                                                                    \
	0x1u			    /* the data plane is registered too: producers need no fence   \
				     */
#define WEIR_CONNECT_LOOP 0x1u	    /* to this node, but through its own port (weir-perf --loop) */
#define WEIR_CONNECT_DATAGRAM 0x20u /* as WEIR_UD */
/* bytes; fits any message that is not bulk */
#define WEIR_CONNECT_WINDOW_MIN WEIR_WINDOW_LEAST
#define WEIR_CONNECT_KNOWN (WEIR_CONNECT_LOOP | WEIR_CONNECT_DATAGRAM)

/* As in weir/stream.h. */
#define WEIR_LISTENS_PUBLIC 0x1u
#define WEIR_LISTENS_HOLDING 0x2u
#define WEIR_LISTEN_KNOWN (WEIR_LISTENS_PUBLIC | WEIR_LISTENS_HOLDING)

#define WEIR_DECIDE_REFUSE 0x1u

/* FIND: nodes to connect to, best first: this node, then the others in round-robin order. */
#define WEIR_FIND_BEST 0x1u
#define WEIR_FOUND_MAX 16u
#define WEIR_FOUND_LOCAL 0x1u /* WEIR_SERVICE_LOCAL of weir/stream.h */

/* A node that offers the service. */
struct weir_found {
	uint32_t node;	/* UINT32_MAX: this node, whose id is not known yet */
	uint32_t flags; /* WEIR_FOUND_* */
	uint32_t kind;	/* enum weir_address_kind of the port by which it is reached: IPV4, IPV6,
			   LID, NONE */
	uint32_t lid;
	uint8_t ip[16];
};

#define WEIR_ADOPT_HUGE 0x100u	   /* pages of 2 MiB are welcome: the range is of whole ones */
#define WEIR_ADOPT_GIGANTIC 0x200u /* pages of 1 GiB are, too */
#define WEIR_ADOPT_NEW 0x400u	   /* memory of its own, not in the place of the program's */

#define WEIR_NODES_A_MSG 8u /* of a NODE_LIST */

struct weir_session_msg {
	uint32_t type;	 /* enum weir_session_type */
	uint32_t length; /* of this message, header included */
	union {
		struct {
			uint32_t magic;
			struct weir_versions versions; /* that the library speaks */
			uint32_t flags;		       /* WEIR_HELLO_* */
			uint64_t arena; /* requested bytes, 0 = the data plane's default */
			char name[WEIR_NAME_MAX]; /* of the program, for display */
		} hello;
		struct {
			uint32_t version; /* chosen of those in HELLO */
			uint32_t flags;	  /* WEIR_WELCOME_* */
			uint32_t session;
			uint32_t node; /* own node id, UINT32_MAX: not known yet */
			struct weir_geometry geometry;
		} welcome;
		struct {
			uint32_t engine; /* requested engine, UINT32_MAX = the data plane chooses */
		} add_channel;
		struct {
			uint32_t channel; /* index in the arena */
			uint32_t engine;
		} channel;
		struct {
			/*
			 * channel[i], i < geometry.engines: the listening thread's channel to
			 * engine i, which the library adds first (ADD_CHANNEL with that engine). A
			 * connection of a peer belongs to the engine where the peer's link ends,
			 * and is accepted on that channel.
			 */
			uint32_t channel[WEIR_ENGINES_MAX];
			uint32_t
			    backlog;	/* connections not accepted yet (weir_arena_head.accepted);
					   more are refused; 0 = 128 */
			uint32_t flags; /* WEIR_LISTEN_* */
			char service[WEIR_SERVICE_MAX];
		} listen;
		struct {
			uint32_t listener; /* low 8 bits: its index in weir_arena_head.accepted */
		} listening;		   /* also UNLISTEN */
		struct {
			uint32_t channel;
			uint32_t flags;	 /* WEIR_CONNECT_* */
			uint32_t window; /* requested flow-control window, bytes; 0 = default */
			struct weir_address address;
			uint32_t class; /* enum weir_class */
		} connect;
		struct {
			uint32_t from;	/* 0, then `next` of the last FOUND */
			uint32_t flags; /* WEIR_FIND_* */
			char service[WEIR_SERVICE_MAX];
		} find;
		struct {
			uint32_t count;
			uint32_t next; /* `from` of the next FIND; 0: the list is complete */
			struct weir_found node[WEIR_FOUND_MAX];
		} found;
		struct {
			uint32_t vqpn;	  /* of our end; 0: not created, repeat the request with a
					     channel to `engine`, whose port reaches the peer */
			uint32_t desc;	  /* its descriptor in the arena */
			uint32_t engine;  /* that owns it */
			uint32_t segment; /* not 0: local; map it by SEGMENT */
			uint32_t conn_index; /* local: the connection's line in the segment */
			uint32_t peer_vqpn;  /* local: the value for weir_slot.vqpn */
			uint32_t local;	     /* OPEN: 1: the export is of this host */
		} connecting;
		struct {
			uint32_t segment;
			uint32_t side; /* 0: our connect (CONNECTING), 1: the peer's (ACCEPTED) */
		} segment;
		struct {
			uint32_t segment;
			uint32_t side;	/* as requested: 0 the connecting end, 1 the other */
			uint32_t flags; /* WEIR_WELCOME_MEMBARRIER: both programs are registered */
			uint32_t reserved;
			struct weir_segment_geometry geometry;
		} segment_map;
		struct {
			uint32_t vqpn;	 /* of our end, which accepted it or holds it */
			uint32_t flags;	 /* WEIR_DECIDE_* */
			uint32_t window; /* flow-control window towards us, bytes; 0: as it is */
			char reason[WEIR_REFUSAL_MAX]; /* REFUSE: for the connecting program */
		} decide;
		struct {
			uint32_t vqpn; /* of our end */
		} who;
		struct {
			uint32_t node;	/* of the peer; UINT32_MAX: ours, not known yet */
			uint32_t local; /* 1: a program of this host: the next three */
			uint32_t pid, uid;
			char program[WEIR_NAME_MAX]; /* as it calls itself */
			uint64_t age_ms;	     /* since it was requested or has arrived */
			uint32_t class;		     /* enum weir_class */
			uint32_t reserved;
			/* ports of both ends, without a service */
			struct weir_address here, there;
		} peer;
		struct {
			uint64_t bytes;	   /* whole pages, at most WEIR_REGION_BYTES_MAX */
			uint32_t flags;	   /* WEIR_ADOPT_* of weir/memory.h, and those above */
			int32_t numa_node; /* preferred; -1: near the engine of the first channel */
		} adopt;
		struct {
			uint32_t region; /* 1 ... WEIR_REGIONS_MAX */
			uint32_t page;	 /* bytes of its pages */
			uint64_t bytes;
		} region; /* also DISOWN, by number */
		struct {
			uint64_t offset, length; /* bytes, within the region */
			uint32_t region;	 /* 0: a dynamic export; offset and length are 0 */
			uint32_t rights;	 /* WEIR_RIGHT_* */
			/* with WEIR_RIGHT_NOTIFY: the exporting thread's channels, as in LISTEN */
			uint32_t channel[WEIR_ENGINES_MAX];
			char name[WEIR_NAME_MAX]; /* for operators; may be empty */
			/* with WEIR_RIGHT_LOCK: words of the lock (lock_words.h) for programs of
			 * this host, in a region of this session; lock_region 0: none, and then all
			 * three are 0 */
			uint64_t lock_offset;
			uint32_t lock_region, lock_members;
		} export;
		struct {
			uint32_t number, generation;
			uint8_t key[WEIR_KEY_BYTES]; /* struct weir_key_fields */
		} exported;			     /* also REVOKE, by number */
		struct {
			uint32_t number, generation; /* of the export */
			char name[WEIR_NAME_MAX];    /* as of EXPORT */
		} name;
		struct {
			uint32_t number, generation; /* of the export */
			uint64_t address;	     /* in the program, of the first byte */
			uint64_t offset, length;     /* ATTACH: bytes, within the region */
			uint32_t region;	     /* ATTACH */
			uint32_t reserved;	     /* 0 */
		} range;
		struct {
			uint32_t channel;
			uint32_t rights; /* WEIR_RIGHT_*, at least one */
			uint32_t class;	 /* enum weir_class */
			uint32_t reserved;
			uint8_t key[WEIR_KEY_BYTES];
		} open;
		struct {
			uint32_t rights; /* as of OPEN; without WRITE the fd is read-only */
			uint32_t reserved;
			uint8_t key[WEIR_KEY_BYTES];
		} map;
		struct {
			uint64_t bytes; /* of the export: all of the memory, or its beginning */
		} mapped;
		struct {
			uint64_t since;	  /* nodes changed later than this; 0: all */
			uint32_t channel; /* UINT32_MAX: none */
			uint32_t watch;	  /* 1: its doorbell rings at each change from now on */
		} nodes;
		struct {
			uint64_t upto; /* number of the last change included */
			uint32_t count;
			uint32_t more;	/* 1: later changes follow, ask again */
			uint32_t whole; /* 1: with these the list of nodes is complete */
			uint32_t reserved;
			struct weir_node_info node[WEIR_NODES_A_MSG];
		} node_list;
		struct {
			int32_t code; /* positive errno */
			char reason[WEIR_REASON_MAX];
		} refused;
	};
};

/*
 * Checks a received packet of `length` bytes: type known, length exact for the type, strings ended.
 * Returns 0, or -EBADMSG. The one decoder for both sides.
 */
int weir_session_check(const struct weir_session_msg *m, size_t length);

/* Exact length of a message of `type`, 0 if there is no such type. */
uint32_t weir_session_length(uint32_t type);

/* Name of a type for logs, never NULL. */
const char *weir_session_type_name(uint32_t type);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A broker with engines and a NIC that only keep books: commands are answered at once (or held),
 * QPs and memory regions are counted. Time stands still unless a test moves it.
 */
#ifndef WEIR_BROKER_FAKE_H
#define WEIR_BROKER_FAKE_H

#include "test.h"

#include "broker/session.h"
#include "broker/state.h"
#include "broker/user.h"

#define FAKE_COMMANDS 4096u
#define FAKE_EVENTS 1024u
#define FAKE_OUTPUT 1024u
#define FAKE_MRS 64u
/* what each engine has of each export */
#define FAKE_OPENERS 3u
#define FAKE_PUTS 1000u
/* what each engine counts */
#define FAKE_LOCK_WAITERS 3u

struct fake_qp;

struct fake_config {
	uint32_t engines;
	bool no_nic;
	bool sockets;
	uint32_t node; /* own id, told as control would; UINT32_MAX: not told */
	uint32_t sessions;
	uint32_t channels; /* of a session [8] */
	uint64_t incarnation;
	uint64_t burst_ns;
	uint16_t lid;	/* of its NIC's port */
	bool link_down; /* of that, at first */
	bool socket_threads;
	const struct users *users;
	const char *limits; /* of users, as --user-limit takes them; instead of `users` */
};

/* The usual one. */
#define two_engines ((const struct fake_config){.engines = 2, .node = 7})

struct fake {
	struct broker *b;
	struct broker_config config;
	struct users users; /* those of fake_config.limits */
	char dir[64];	    /* run_dir */
	uint32_t node;
	uint16_t lid;
	uint64_t now;
	/* engines */
	bool hold;		/* commands stay in held[] until fake_release() */
	int hold_type;		/* only those of this type; 0: none */
	uint32_t keyed;		/* what engines answer to EXPORT_STOP */
	bool full;		/* mailboxes take nothing */
	int fail_type, fail_rc; /* commands of this type end with fail_rc; -1: none */
	struct {
		uint32_t engine;
		struct engine_command *c;
	} held[FAKE_COMMANDS];
	uint32_t held_count;
	struct {
		uint32_t engine;
		struct engine_event e;
	} event[FAKE_EVENTS];
	uint32_t event_count;
	uint32_t count[40];		/* commands seen, by type */
	struct engine_command last[40]; /* the last one of each type, as it was given */
	uint32_t last_engine[40];
	uint32_t next_conn, snapshot_conns;
	uint32_t links; /* held by engines */
	bool unproven;	/* what they say when a link is paused ... */
	uint64_t consumed, received;
	struct engine_rings rings;
	bool no_memory;	  /* for rings */
	bool in_turn;	  /* an engine's turn doesn't end */
	uint64_t moments; /* from which quiet turns were waited for */
	/* NIC */
	struct fake_qp *qps;
	uint32_t live_qps, live_mrs, next_qpn, next_key;
	struct {
		struct nic_mr is; /* key i + 1 */
		unsigned access;
	} mr[FAKE_MRS]; /* all there ever were, the first ones */
	int qp_fail;	/* qp_create fails with it */
	int ah_fail;	/* the same of ah_create */
	uint32_t live_srqs, live_ahs;
	struct nic_ah_attr last_ah;
	bool link_down;
	struct nic_async_event async[8]; /* what the device reports next */
	uint32_t async_first, async_end;
	size_t live_memory;
	uint32_t live_doorbells;
	struct weir_bell doorbell[4096]; /* by number; -1: none */
	/* to control */
	struct weir_ctl_msg output[FAKE_OUTPUT];
	uint32_t output_count;
};

struct fake_qp {
	struct nic_qp_head head;
	struct fake *f;
	enum nic_qp_state state;
	uint32_t remote_qpn, remote_psn, psn;
	uint8_t traffic_class, priority;
	bool ud;
	uint32_t qkey;
	void *user;
	struct fake_qp *next;
};

/* Asserts on failure. */
struct fake *fake_open(const struct fake_config *config);
/* Destroys the broker and asserts that it has given back everything. */
void fake_close(struct fake *f);
/* Answers what is held, in order, then what that leads to, until nothing is left; events too. */
void fake_release(struct fake *f);
/* Delivers pending events and runs the broker until nothing moves. */
void fake_run(struct fake *f);
/* The engines go on: releases what is held, and holds nothing more. */
void fake_let_go(struct fake *f);
/* The engine says so, when the broker runs next. */
void fake_emit(struct fake *f, uint32_t engine, const struct engine_event *e);
/* The engine says so, and the broker runs. */
void fake_event(struct fake *f, uint32_t engine, const struct engine_event *e);
/* Control says so. */
void fake_told(struct fake *f, const struct weir_ctl_msg *m);
void fake_node(struct fake *f, uint32_t id, uint32_t state, uint64_t incarnation, uint32_t engines);
/* An offer from engine 0 of that node to engine 0 of node 1, with nothing wrong but that all PSNs
 * and QPNs are 0; both nodes in the lives 200 and 100. */
struct weir_ctl_msg fake_peer_offer(uint32_t node, uint32_t attempt, uint32_t answered);
/* Both engines were told, and hold it, to stop an export before its region goes. */
void fake_stops_exports_first(const struct fake *f);
struct fake_qp *fake_qp_find(struct fake *f, uint32_t qpn);

/* A session without a socket. */
struct fake_session {
	struct broker_session *s;
	struct weir_session_msg reply;
	uint32_t replies;
	bool ended;
	int fds[WEIR_SESSION_FDS];
	unsigned fd_count;
};
void fake_attach(struct fake *f, struct fake_session *s);
void fake_attach_as(struct fake *f, struct fake_session *s, const char *name);
/* As a user: refused, or welcome. Returns the type of the reply; the reply is in s. */
uint32_t fake_attach_by(struct fake *f, struct fake_session *s, uint32_t uid, const char *name);
/* Sends a request of this type (length is filled in) and runs. */
int fake_request(struct fake *f, struct fake_session *s, struct weir_session_msg *m);
/* The same of a request that keeps the rules. Returns the type of the reply. */
uint32_t fake_ask(struct fake *f, struct fake_session *s, struct weir_session_msg *m);
/* One channel to each engine: channel i to engine i. */
void fake_channels(struct fake *f, struct fake_session *s);
uint32_t fake_listen(struct fake *f, struct fake_session *s, const char *service, uint32_t backlog);
/* Listens with the first channel per engine. Returns the listener, or -code of the refusal. */
int fake_listen_as(struct fake *f, struct fake_session *s, const char *service, uint32_t flags);
/* Adopts memory. Returns 0, or -code of the refusal. */
int fake_adopt(struct fake *f, struct fake_session *s, uint64_t bytes, uint32_t flags);
/* A session with its channels. */
void fake_program(struct fake *f, struct fake_session *s);
/* The program ends. */
void fake_leave(struct fake *f, struct fake_session *s);
/* Connects channel 0 to a node. Returns the type of the reply; the reply is in s. */
uint32_t fake_connect(struct fake *f, struct fake_session *s, uint32_t node, const char *service,
		      uint32_t flags);

unsigned fake_open_fds(void);
unsigned fake_mappings(const char *name);

/* A test with a broker of this config, f. */
#define TEST_FAKE(name, config) TEST_FAKE_FROM(name, fake_open(&config))

/* A test with the broker that the expression `open` makes, f. */
#define TEST_FAKE_FROM(name, open)                                                                 \
	static void name(struct fake *f);                                                          \
	TEST(run_##name)                                                                           \
	{                                                                                          \
		struct fake *f = open;                                                             \
                                                                                                   \
		name(f);                                                                           \
		fake_close(f);                                                                     \
	}                                                                                          \
	static void name(struct fake *f)

/* A test with a struct end of its own, n, which its end_open() fills. */
#define TEST_END(name)                                                                             \
	static void name(struct end *n);                                                           \
	TEST(run_##name)                                                                           \
	{                                                                                          \
		struct end n;                                                                      \
                                                                                                   \
		end_open(&n);                                                                      \
		name(&n);                                                                          \
		fake_close(n.f);                                                                   \
	}                                                                                          \
	static void name(struct end *n)

#endif

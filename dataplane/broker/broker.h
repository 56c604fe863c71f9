/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The broker: all that the data plane does off the data path, on the main lcore. Sessions (attach,
 * channels, listeners, death), connections between them, local segments, links to peers,
 * control.sock. It knows no DPDK: memory, devices and engines come in through broker_config; the
 * sim and the unit tests give it others. One thread; nothing here is called by an engine.
 */
#ifndef WEIR_BROKER_H
#define WEIR_BROKER_H

#include "ipc/bell.h"
#include "ipc/dpctl.h"
#include "ipc/session_msg.h"
#include "engine/engine.h"
#include "rate.h"
#include "users.h"

#include <sys/types.h>

#define BROKER_ENGINES_MAX WEIR_ENGINES_MAX

struct capture;

struct broker_engine {
	struct nic_device *dev; /* NULL: no NIC, local connections only */
	struct nic_context *nic;
	struct nic_srq *srq;
	struct engine *engine;
	const struct engine_config
	    *engine_config; /* what it was created with: sizes of its work memory follow */
	uint32_t lcore, cpu;
	int numa_socket;
};

struct broker_config {
	const char *run_dir; /* session.sock and control.sock are made here; NULL: none (sim) */
	uint32_t engines;
	struct broker_engine engine[BROKER_ENGINES_MAX];
	uint64_t incarnation;
	uint32_t sessions, connections,
	    channels;		      /* limits: all sessions; all engines; of one session */
	uint32_t session_connections; /* descriptors in an arena */
	uint32_t ring_slots;	      /* of a channel's rings */
	uint64_t arena_bytes;	      /* default and largest arena */
	uint32_t regions;	      /* of adopted memory, of one session */
	uint64_t region_bytes;	      /* in all of those */
	uint32_t peer_ring_lines;
	uint32_t recv_wrs; /* granted to a peer per link */
	uint32_t links;
	uint32_t program_weight;    /* of programs without a setting; 0: ENGINE_WEIGHT */
	struct rate program_rate;   /* the same */
	const struct users *users;  /* who may attach, and use how much; NULL: no limits */
	uint64_t most[USER_LIMITS]; /* of memory, regions, segments, all users; 0: no limit */
	uint64_t repair_timeout_ns; /* 10 s: a link unrepaired for so long takes its node down */
	bool socket_threads;	    /* tests: as where sockets can't refuse descriptors */
	uint64_t burst_ns; /* CPU time of main that users may cost by coming, leaving and asking
			      (pace.h): decisions, 13. 0: no limit */

	/* Puts a command into an engine's mailbox; comes back through broker_completed(). -EAGAIN:
	 * full. */
	int (*command)(void *user, uint32_t engine, struct engine_command *command);
	/*
	 * A doorbell: the engine rings by sending to `ring`, a socket that receives nothing
	 * (engine_config.ring_doorbell gives its id), and is woken by each write to `wait`, an
	 * eventfd that nobody here reads. After 0 both are the callee's, who closes them once
	 * doorbell_remove was called and the engine has let go of them.
	 */
	int (*doorbell_add)(void *user, uint32_t engine, uint32_t doorbell, struct weir_bell bell);
	void (*doorbell_remove)(void *user, uint32_t engine, uint32_t doorbell);
	/*
	 * Memory for rings and for the engines' work on a NUMA socket: zeroed, aligned to 64.
	 * Registered memory comes from here.
	 */
	void *(*memory_get)(void *user, size_t bytes, int numa_socket);
	void (*memory_put)(void *user, void *memory, size_t bytes);
	/* Wakes an engine that may sleep (after commands). */
	void (*wake)(void *user, uint32_t engine);
	/* Counters of the loop that runs an engine: fills lcore, cycles, turns, sleeps of the row.
	 */
	void (*engine_row)(void *user, uint32_t engine, struct weir_row_engine *row);
	uint64_t (*now)(void *user); /* monotonic ns */
	/*
	 * Begins to write the frames of a port to fd, the capture's after 0; see capture.h. -errno
	 * and a line "cause; remedy" in error. NULL: no port can be captured.
	 */
	int (*capture)(void *user, const char *port, int fd, uint64_t limit,
		       struct capture **capture, char *error, size_t size);
	void *user;
};

struct broker;

/* Makes both sockets. NULL and errno; a message has been logged. */
struct broker *broker_create(const struct broker_config *config);
/* Closes sessions, takes links down, waits for nothing: engines have stopped. Removes the sockets.
 */
void broker_destroy(struct broker *b);
/* An epoll fd that is readable when broker_run() has something to do. */
int broker_fd(const struct broker *b);
/* Handles what is ready and what is due; never blocks. Returns ns until it wants to run again. */
uint64_t broker_run(struct broker *b);
/* A command came back from an engine. May be called from within config.command(). */
void broker_completed(struct broker *b, uint32_t engine, struct engine_command *command);
/* An event came from an engine. */
void broker_event(struct broker *b, uint32_t engine, const struct engine_event *event);
/* Tells programs and peers that we go; true once everything is drained and may be destroyed. */
bool broker_stop(struct broker *b);

/* ---- also used without sockets (sim): the same handlers that the sockets feed ---- */
struct broker_session;
/*
 * Where a session's replies go: exactly one for HELLO and for each request, some at once, some
 * after an engine has answered. The descriptors in fds stay the broker's: dup() to keep. reply
 * NULL: the broker ended the session (rules broken, or it stops), s is invalid.
 */
typedef void broker_reply_fn(void *user, const struct weir_session_msg *reply, const int *fds,
			     unsigned fd_count);
/* Opens a session. The reply is WELCOME with the arena's fd, or REFUSED: then s is closed already
 * (or NULL). */
struct broker_session *broker_session_open(struct broker *b, const struct weir_session_msg *hello,
					   size_t length, pid_t pid, uid_t uid,
					   broker_reply_fn *reply, void *user);
/* A request, checked here. -EBADMSG (malformed), -EBUSY (one is under way): close the session. */
int broker_session_request(struct broker_session *s, const struct weir_session_msg *request,
			   size_t length);
/* Ends it as if the program had died: no reply comes any more, s is invalid. */
void broker_session_close(struct broker_session *s);
/* A message from control (NODE, LINK ...), checked. */
void broker_control_input(struct broker *b, const struct weir_ctl_msg *m);
/* Where messages to control go when there is no socket. */
void broker_set_control_output(struct broker *b,
			       void (*output)(void *user, const struct weir_ctl_msg *m),
			       void *user);

#endif

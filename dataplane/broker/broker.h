/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The broker: the data plane's work off the data path, on the main lcore. Sessions (attaching,
 * channels, listeners, ends), connections between them, local segments, links to peers,
 * control.sock. It knows no DPDK: memory, devices and engines come in through broker_config, and
 * the simulator and unit tests supply others. One thread; no engine calls anything here.
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
	/* the engine was created with it; sizes of its work memory depend on it */
	const struct engine_config *engine_config;
	uint32_t lcore, cpu;
	int numa_socket;
	/* marks of packets, by enum weir_class; as in struct nic_qp_attr */
	struct {
		uint8_t traffic_class, priority;
	} mark[WEIR_CLASSES];
};

struct broker_config {
	const char *run_dir; /* session.sock and control.sock are made here; NULL: none (sim) */
	uint32_t engines;
	struct broker_engine engine[BROKER_ENGINES_MAX];
	uint64_t incarnation;
	uint32_t sessions, connections; /* limits of all programs */
	uint32_t channels;		/* limit per session */
	uint32_t session_connections;	/* connection descriptors per arena */
	uint32_t ring_slots;		/* per ring of a channel */
	uint64_t arena_bytes;		/* default and largest arena */
	uint32_t regions;		/* of adopted memory, per session */
	uint64_t region_bytes;		/* of all regions of a session */
	uint32_t exports;		/* of ranges of those, per session */
	uint32_t export_keys; /* of those at the NICs: WRITEs and READs of peers need one */
	uint64_t adopt_bytes; /* of those of them that replace memory of the program */
	uint32_t peer_ring_lines;
	uint32_t answers;	    /* bytes, a power of two: to operations of a peer, per link */
	uint32_t recv_wrs;	    /* granted to a peer per link, at most */
	uint32_t recv_depth;	    /* of an engine's SRQ: all grants together; 0: no limit */
	uint32_t links;		    /* per engine; a loop-back link counts twice */
	uint64_t link_idle_ns;	    /* a link without connections ends after that; 0: not by time */
	uint32_t program_weight;    /* of programs without a setting; 0: ENGINE_WEIGHT */
	struct rate program_rate;   /* of programs without a setting */
	const struct users *users;  /* users that may attach, and their limits; NULL: no limits */
	uint64_t most[USER_LIMITS]; /* limits of all users together; 0: no limit */
	uint64_t repair_timeout_ns; /* 10 s: then a link that is not repaired takes its node down */
	bool socket_threads; /* tests: as on kernels whose sockets cannot refuse descriptors */
	/*
	 * CPU time of main that users may cost at once by attaching, leaving and requests (pace.h;
	 * decisions, 13). 0: no limit
	 */
	uint64_t burst_ns;

	/*
	 * Puts a command into an engine's mailbox; it returns through broker_completed(). -EAGAIN:
	 * the mailbox is full.
	 */
	int (*command)(void *user, uint32_t engine, struct engine_command *command);
	/*
	 * Adds a doorbell: the engine rings by sending to `ring`, a socket that receives nothing
	 * (engine_config.ring_doorbell gives its id), and each write to `wait`, an eventfd that is
	 * never read, wakes it. After 0 the callee owns both and closes them once doorbell_remove()
	 * was called and the engine has released them.
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
	/* Fills the counters of the loop that runs an engine: lcore, cycles, turns, sleeps. */
	void (*engine_row)(void *user, uint32_t engine, struct weir_row_engine *row);
	/* Adds what the port of an engine and its driver know: MAC, speed, queues, pools. May be
	 * NULL. */
	void (*port_row)(void *user, uint32_t engine, struct weir_row_port *row);
	/*
	 * Fills row `index` of XSTATS, VERSION, CONFIG or MEMORY; false: there are fewer. The
	 * record is zeroed. NULL: there are none.
	 */
	bool (*plane_row)(void *user, uint32_t rows, uint32_t index, void *record);
	/*
	 * Sets KEY of a port (port.NAME.KEY): 1, or -errno and a line "cause; remedy". NULL: ports
	 * have no settings.
	 */
	int (*port_set)(void *user, const char *port, const char *key, const char *value,
			char *error, size_t size);
	/* Row `index` of the settings of ports; false: there are fewer. May be NULL. */
	bool (*port_setting)(void *user, uint32_t index, struct weir_row_setting *row);
	/*
	 * An engine may be copying a peer's payload into memory whose key main has withdrawn since.
	 * quiet_begin() names this moment; quiet_passed() tells whether every engine has begun
	 * another turn since then. NULL: the broker runs between turns only.
	 */
	uint64_t (*quiet_begin)(void *user);
	bool (*quiet_passed)(void *user, uint64_t moment);
	const char *instance;	     /* for weirctl; NULL: none */
	uint64_t (*now)(void *user); /* monotonic ns */
	/*
	 * Begins to write the frames of a port to fd (capture.h). 0: the capture owns fd; or -errno
	 * and a line "cause; remedy" in error. NULL: no port can be captured.
	 */
	int (*capture)(void *user, const char *port, int fd, uint64_t limit,
		       struct capture **capture, char *error, size_t size);
	void *user;
};

struct broker;

#define BROKER_RECV_LEAST 8u  /* receive work requests that every link is sure of */
#define BROKER_LINKS_FULL 64u /* links that together may get all that `recv_wrs` says */

/* Receive work requests of an engine from which links get their grants (links/room.c). */
static inline uint32_t
broker_recv_depth(uint32_t links, uint32_t recv_wrs)
{
	uint32_t least = recv_wrs < BROKER_RECV_LEAST ? recv_wrs : BROKER_RECV_LEAST;

	return links * least +
	       (links < BROKER_LINKS_FULL ? links : BROKER_LINKS_FULL) * (recv_wrs - least);
}

/* Makes both sockets. NULL and errno; the cause has been logged. */
struct broker *broker_create(const struct broker_config *config);
/* Closes sessions, links and sockets without waiting: the engines have stopped. */
void broker_destroy(struct broker *b);
/* Bytes that main has of an export, for the budget. */
size_t broker_export_bytes(void);
/* An epoll fd that is readable when broker_run() has something to do. */
int broker_fd(const struct broker *b);
/* Handles ready descriptors and timers; never blocks. Returns ns until the next timer. */
uint64_t broker_run(struct broker *b);
/* An engine has answered a command. May be called from within config.command(). */
void broker_completed(struct broker *b, uint32_t engine, struct engine_command *command);
/* Handles an event of an engine. */
void broker_event(struct broker *b, uint32_t engine, const struct engine_event *event);
/* Tells programs and peers of the end. True: everything is drained, the broker may be destroyed. */
bool broker_stop(struct broker *b);

/* ---- functions that the sockets call; the simulator calls them without sockets ---- */

struct broker_session;
/*
 * Receives the replies of a session: exactly one for HELLO and for each request, some at once, some
 * after an engine has answered. The broker owns the descriptors in fds: dup() to keep one. reply
 * NULL: the broker has ended the session (rules broken, or the broker stops), s is invalid.
 */
typedef void broker_reply_fn(void *user, const struct weir_session_msg *reply, const int *fds,
			     unsigned fd_count);
/* Opens a session. The reply is WELCOME with the arena's fd, or REFUSED: then s is closed or NULL.
 */
struct broker_session *broker_session_open(struct broker *b, const struct weir_session_msg *hello,
					   size_t length, pid_t pid, uid_t uid,
					   broker_reply_fn *reply, void *user);
/* Checks and handles a request. -EBADMSG (malformed), -EBUSY (one is under way): close the session.
 */
int broker_session_request(struct broker_session *s, const struct weir_session_msg *request,
			   size_t length);
/* Ends a session as if the program had died: no reply follows, s is invalid. */
void broker_session_close(struct broker_session *s);
/* Handles a checked message of weir-control (NODE, LINK ...). */
void broker_control_input(struct broker *b, const struct weir_ctl_msg *m);
/* Sets the function that takes messages to weir-control when there is no socket. */
void broker_set_control_output(struct broker *b,
			       void (*output)(void *user, const struct weir_ctl_msg *m),
			       void *user);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Data planes that are none: they listen on control.sock, say HELLO, and remember what they are
 * told. And weir-control processes beside them, in a run directory of their own. Tests of control
 * have no other data planes; test/sim's are those of virtual time.
 */
#ifndef WEIR_TEST_CONTROL_FAKE_H
#define WEIR_TEST_CONTROL_FAKE_H

#include "ipc/dpctl.h"
#include "now.h"

#include <stdbool.h>
#include <sys/types.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define FAKE_MAX 100 /* nodes of a test, whose ids begin with 1 */
#define FAKE_NODES 4 /* node ids 0 ... 3 */
#define FAKE_FAR 64

enum { A, B }; /* nodes 1 and 2, instances a and b */

struct fake_dp {
	char path[128];
	int listener, conn;	       /* -1: none */
	uint64_t incarnation;	       /* 0: not running */
	struct weir_versions versions; /* of control.sock that it says it speaks */
	/* what control has told */
	unsigned hellos, synced, nodes, links, resyncs;
	uint32_t hello_node;
	struct weir_ctl_node node[FAKE_NODES];
	unsigned told[FAKE_NODES][WEIR_NODE_GONE + 1]; /* how often each state */
	unsigned nodes_before_synced;
	uint32_t self;			    /* our node's id */
	bool keeps_id;			    /* says it at the next HELLO */
	struct weir_ctl_node far[FAKE_FAR]; /* told of ids from FAKE_NODES on */
	unsigned far_count;
	struct weir_link_offer link;
	struct weir_link_offer tell[4]; /* links told after HELLO */
	unsigned tell_count;
	uint16_t resync_node;
	uint32_t resync_status;			 /* of the last one */
	struct weir_services own;		 /* told after HELLO and by fake_dp_offer() */
	struct weir_services offers[FAKE_NODES]; /* of each node, as control says; */
	uint64_t offered_by[FAKE_NODES];	 /* and of this incarnation */
	unsigned offers_told;
	/* what weirctl is answered */
	const void *records;
	uint32_t record_count, page;
};

struct fake_control {
	pid_t pid;	   /* 0: not running */
	unsigned listened; /* times that its log said so before this start */
	char host[16];
	uint16_t port;
	const char *timeout;	 /* --node-timeout; NULL: 500ms */
	const char *tls;	 /* --tls; NULL: none */
	const char *join, *etcd; /* --join or --etcd in the place of --peers; NULL: the file */
	const char *node;	 /* --node with these */
	uint16_t metrics;	 /* --metrics, on loopback; 0: none */
};

extern char fake_dir[64];   /* the run directory */
extern char fake_peers[96]; /* a peers file of all nodes */
extern int fake_count;	    /* of nodes: 2, or more if set before fake_setup() */
extern struct fake_dp fake_dp[FAKE_MAX];
extern struct fake_control fake_control[FAKE_MAX];
extern const char *fake_binary; /* the program under test */
/* Called, if set, with each message that control sends data plane i, before anything else. */
extern void (*fake_told)(int i, const struct weir_ctl_msg *m);

/* For cmocka. A new run directory and ports that nobody else has. */
int fake_setup(void **state);
/* Kills what still runs and removes the directory; fails if a process left a file there. */
int fake_teardown(void **state);
/* Rest of main() of a test program, whose first argument is the program under test. */
int fake_main(int argc, char **argv, const char *name, const struct CMUnitTest *tests,
	      size_t count);
#define FAKE_MAIN(name, tests)                                                                     \
	fake_main(argc, argv, name, tests, sizeof(tests) / sizeof((tests)[0]))

void fake_dp_start(int i, uint64_t incarnation);
/* As if the process died: the socket's file stays. */
void fake_dp_die(int i);
/* It closes control's connection and goes on. */
void fake_dp_hang_up(int i);
void fake_dp_send(int i, struct weir_ctl_msg *m);
/* Its programs offer `own`: control is told. */
void fake_dp_services(int i);
struct weir_ctl_msg fake_offer(int from, int to, uint32_t attempt, uint32_t answered);
/* Data plane i was last told that node `id`, below FAKE_NODES, is in this state. */
bool fake_sees(int i, unsigned id, enum weir_node_state what);

/* Both data planes, with incarnations 100 and 101, and both controls: until each sees the other. */
void fake_start_both(void);
void fake_control_start(int i);
/* Runs it to its end with these arguments: exit code, and stderr in `text`. */
int fake_run(char *const argv[], char *text, size_t size);
void fake_control_kill(int i, int signal);
/* Stops it with SIGTERM, when it has started, and returns its exit code. */
int fake_control_stop(int i);
/* Serves until the process ends; its exit code, or 128 and the signal. */
int fake_await_exit(pid_t pid);
/* Its stderr so far; static. */
const char *fake_log(int i);
const char *fake_both_logs(void);
/* Only while it doesn't run. */
void fake_log_clear(int i);
/* How often `text` is in its stderr. */
unsigned fake_log_count(int i, const char *text);

/* ms of CPU that a process has used. */
uint64_t fake_cpu_ms(pid_t pid);

/* Control A restarts, whose data plane tells of a link to B; B's falls silent for a while, and is a
 * suspect until it is back. */
void fake_links_outlive_controls(void);
/* Serves all data planes for a while. */
void fake_pump(int ms);
/* ms within which what must happen has happened, where a process may go without a CPU for long. */
#define LONG fake_patience
extern int fake_patience; /* 40 s, until one of these was not enough */

/*
 * Serves until `condition` holds; fails after `ms`. For a state that passes by count how often it
 * was reached.
 */
#define AWAIT(condition, ms)                                                                       \
	do {                                                                                       \
		int within_ = (ms);                                                                \
		uint64_t end_ = now_ms() + within_;                                                \
		while (!(condition)) {                                                             \
			if (now_ms() > end_) {                                                     \
				fake_patience = 4000;                                              \
				fail_msg("not within %d ms: %s\n%s", within_, #condition,          \
					 fake_both_logs());                                        \
			}                                                                          \
			fake_pump(10);                                                             \
		}                                                                                  \
	} while (0)

#endif

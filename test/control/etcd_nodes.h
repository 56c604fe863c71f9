/* SPDX-License-Identifier: BSD-3-Clause */
/* Debian's etcd, and nodes that are sources of members in this process. */
#ifndef WEIR_TEST_CONTROL_ETCD_NODES_H
#define WEIR_TEST_CONTROL_ETCD_NODES_H

#include "etcd/etcd.h"
#include "now.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <jansson.h>
#include <sys/types.h>

#define NODES 10
#define LEASE 2
#define PATIENCE 60 /* s */

struct node {
	struct membership_source *source;
	struct etcd_options options;
	char control[32];
	uint32_t given; /* 0: no id yet */
	unsigned known[64], gone[64];
	struct peer_entry last[64];
};

extern struct event_base *base;
extern struct node nodes[NODES];
extern char directory[64], url[64]; /* of etcd: where all of it lies, and where it listens */
extern uint16_t port;
extern pid_t etcd;	  /* 0: none runs */
extern json_t *last_said; /* the last answer to post() */

/* More options of it, NULL-terminated: OPTION=VALUE. */
void etcd_run_with(char **more);
void etcd_run(char *option);
void etcd_end(int signal);

void run_for(unsigned ms);
#define until(condition)                                                                           \
	do {                                                                                       \
		uint64_t end = now_ms() + PATIENCE * 1000;                                         \
		bool met;                                                                          \
		while (!(met = (condition)) && now_ms() < end)                                     \
			run_for(20);                                                               \
		if (!met)                                                                          \
			fail_msg("not within %d s: %s", PATIENCE, #condition);                     \
	} while (0)

/* Node n at port `at`; what `o` says goes for it. */
void start_at(struct node *n, uint32_t id, uint16_t at, struct etcd_options o);
void start(int i, uint32_t id);
void stop(int i, bool leave);
void publish(struct node *n, uint8_t host);

/* "done" or "failed"; body is taken over. */
const char *post(const char *path, json_t *body);
const char *put_foo(const char *value);

int setup(void **state);
int teardown(void **state);
void empty_directory(void);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Two brokers whose controls are the test. */
#ifndef TEST_BROKER_NET_H
#define TEST_BROKER_NET_H

#include "broker_fake.h"

/* Nodes 1 and 2. */
struct net {
	struct fake *f[2];
	struct fake_session s[2];
};

struct fake *open_node(uint32_t node, uint32_t engines, uint64_t incarnation);
void know_each_other(struct net *n);
void open_session(struct net *n, unsigned i);
void net_open(struct net *n, uint32_t engines, uint32_t peer_engines);
void net_close(struct net *n);
/* Takes output i of a node out of its queue. */
struct weir_ctl_msg take_output(struct fake *f, uint32_t i);
void hand_over(struct net *n, unsigned from, const struct weir_ctl_msg *m);
/* Control works as it should. Returns how many messages it took. */
unsigned exchange(struct net *n);
void pass_time(struct net *n, uint64_t ns);
struct broker_link *the_link(struct net *n, unsigned i);
/* One link, up at both ends, and each end's QPs know the other's. */
void assert_joined(struct net *n);
void exchange_and_join(struct net *n);
void bring_up(struct net *n);
/* net_open() of one engine each. */
void open_net_of_two(struct net *n);

/* A test with the nodes as open(n) leaves them. */
#define TEST_NET(name, open) TEST_NET_EACH(name, open, only, 0, 1)

/* The same, anew for each of the numbers k from begin to end - 1. */
#define TEST_NET_EACH(name, open, k, begin, end)                                                   \
	static void name(struct net *n, unsigned k);                                               \
	TEST(run_##name)                                                                           \
	{                                                                                          \
		for (unsigned i = begin; i < end; i++) {                                           \
			struct net n;                                                              \
                                                                                                   \
			open(&n);                                                                  \
			name(&n, i);                                                               \
			net_close(&n);                                                             \
		}                                                                                  \
	}                                                                                          \
	static void name(struct net *n, unsigned k)

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Options of weir-roce-peer, and the programs that it can face. No DPDK. */
#ifndef WEIR_PEER_OPTIONS_H
#define WEIR_PEER_OPTIONS_H

#include "daemon/options.h"

#define PEER_RUNS_MAX 256u
#define PEER_QPS_MAX 256u	 /* as ibv_srq_pingpong */
#define PEER_SIZE_MAX (8u << 20) /* of perftest's -a */
#define PEER_SECONDS_MAX 3600u

enum peer_op { PEER_PINGPONG, PEER_SEND, PEER_WRITE, PEER_READ, PEER_FADD, PEER_CAS };

struct peer_test {
	const char *name;
	uint8_t op;	/* enum peer_op */
	bool ud;	/* datagrams */
	bool srq;	/* many queue pairs */
	bool latency;	/* one operation at a time */
	uint32_t size;	/* their default */
	uint32_t count; /* their default */
};

/* A test, and perftest's options to it that both ends must know. */
struct peer_run {
	const struct peer_test *test;
	uint32_t size;
	uint32_t qps;	  /* -q, of srq_pingpong too */
	uint32_t seconds; /* -D; 0: `count` operations */
	bool all;	  /* -a: sizes from 2 to `size`, each twice the one before */
	bool both;	  /* -b */
	bool reversed;	  /* --reversed: the server acts */
};

struct peer_options {
	bool help, version, listen;
	struct nic_spec nic;
	const char *connect; /* HOST of their program; with neither it nor listen: an error */
	uint16_t port;
	struct peer_run run[PEER_RUNS_MAX];
	uint32_t runs;
	uint64_t count;	   /* 0: their default */
	uint32_t qps;	   /* of srq_pingpong */
	uint32_t mtu;	   /* of the pingpongs, which don't agree on it */
	uint32_t patience; /* seconds without any progress */
	const char *why;   /* a RUN is refused */
};

/* 0, or -EINVAL and a line "cause; remedy" in error. Strings point into argv. */
int peer_options_parse(struct peer_options *o, int argc, char **argv, char *error, size_t size);
extern const struct option_table peer_option_table;

#endif

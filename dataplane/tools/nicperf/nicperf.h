/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weir-nicperf: measures the NIC layer through nic.h, without programs and rings. One process with
 * both ends on a loopback port, or two that agree over TCP. One thread does all the work, unless
 * threads share a QP under a lock.
 */
#ifndef WEIR_NICPERF_H
#define WEIR_NICPERF_H

#include "calibrate.h"
#include "lcore/clock.h"
#include "histogram.h"
#include "nic/nic.h"
#include "options.h"
#include "tools/open_nic.h"

#include <stdio.h>

/* The request of the asking process, after HELLO. All messages are in host byte order. */
struct nicperf_request {
	uint32_t qps, depth;
	uint64_t stride;
};

/* Exchanged by both ends. */
struct nicperf_offer {
	uint32_t rkey;
	uint64_t address; /* of the area for incoming data */
	struct nic_gid gid;
	uint16_t lid, mtu;
	uint32_t qpn[NICPERF_QPS_MAX];
};

struct nicperf_flow { /* a QP that posts */
	struct nic_qp *qp;
	uint64_t posted, done;
	uint64_t local, remote;
	uint32_t rkey;
};

/* One end of all connections: the initiator's, the responder's. */
struct nicperf_end {
	struct nic_qp *qp[NICPERF_QPS_MAX];
	struct nicperf_flow flow[NICPERF_QPS_MAX];
	uint8_t *in, *out; /* incoming and outgoing data: `bytes` each */
	uint64_t bytes;
	struct nic_mr mr;
	struct nicperf_offer peer;
};

struct nicperf {
	const struct nicperf_options *options;
	struct clock clock;
	struct nic_device *dev;
	struct nic_context *nic;
	struct nic_srq *srq;
	struct nic_attr attr;
	struct open_nic open;	    /* dev and nic are of it */
	uint32_t qps;		    /* of an end, chosen by the asking process */
	uint32_t depth;		    /* of each */
	uint64_t stride;	    /* memory of each, a power of two */
	struct nicperf_end *end[2]; /* [0] ours; [1]: the other one, in the same process */
	struct nic_wc received;	    /* the last one */
	uint64_t receives;
	int socket;	 /* to the other process, -1: none */
	char error[256]; /* "cause; remedy" of the last failure */
};

struct nicperf_result {
	uint32_t test, size;
	uint64_t count;
	uint64_t repeated, not_offered; /* of a verification: datagrams, steps */
	double seconds;
	double peak;		  /* operations per second in the best 5 ms */
	struct histogram latency; /* ns, half of the round trip */
	struct calibration before, after;
};

/* All below: 0, or -errno and a line in np->error. */
int nicperf_fail(struct nicperf *np, int rc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* device.c: device, queue pairs, memory, after nicperf_agree(). */
int nicperf_open(struct nicperf *np);
void nicperf_close(struct nicperf *np);
void nicperf_offer(const struct nicperf *np, const struct nicperf_end *end,
		   struct nicperf_offer *offer);
int nicperf_connect(struct nicperf *np, struct nicperf_end *end);
/* One turn: polls completions, posts receives again, flushes. -EIO: a completion failed. */
int nicperf_turn(struct nicperf *np);

/* wire.c: the other process. Finds it and agrees on qps, depth, stride. */
int nicperf_agree(struct nicperf *np);
/* Gives each end the offer of the other one. */
int nicperf_exchange(struct nicperf *np);
int nicperf_send(struct nicperf *np, const void *data, size_t n);
int nicperf_receive(struct nicperf *np, void *data, size_t n);
int nicperf_send_run(struct nicperf *np, uint32_t test, uint32_t size);
/* Waits for the next run. test NICPERF_TESTS: the end of one. */
int nicperf_await_run(struct nicperf *np, uint32_t *test, uint32_t *size);
/* Whether the other process has sent something, or is gone. */
bool nicperf_readable(struct nicperf *np);

/* The asking end of a run; the responding one until the asking one is done. */
int nicperf_stream(struct nicperf *np, struct nicperf_result *r);
int nicperf_latency(struct nicperf *np, struct nicperf_result *r);
int nicperf_respond_latency(struct nicperf *np, uint32_t size);
int nicperf_bare(struct nicperf *np, struct nicperf_result *r);
int nicperf_respond_bare(struct nicperf *np);

/* verify.c: both ends of a verification, in either process. */
int nicperf_verify(struct nicperf *np, uint32_t rounds, struct nicperf_result *r);

/* report.c */
void nicperf_report_begin(const struct nicperf *np, FILE *to);
void nicperf_report(const struct nicperf *np, const struct nicperf_result *r, FILE *to);
void nicperf_report_end(const struct nicperf *np, FILE *to);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weir-roce-peer: the other end of programs that Weir did not write, on Weir's NIC layer: those of
 * rdma-core's examples that play ping-pong, and perftest. One thread does everything, and polls the
 * NIC while it waits for what the other one says over TCP.
 */
#ifndef WEIR_PEER_H
#define WEIR_PEER_H

#include "nic/nic.h"
#include "tools/open_nic.h"
#include "options.h"

#define PEER_DEPTH 128u	      /* WRs of a queue pair under way */
#define PEER_QKEY 0x11111111u /* of all these programs */
#define PEER_CYCLE_MAX 65536u
#define PEER_SECOND_NS 1000000000ull
#define PEER_STASH (4 * NIC_POLL_MAX)
#define PEER_MARGIN 4096u /* around the region: nobody's to write */

/* Where an end of a connection is: what both kinds of programs tell each other. */
struct peer_address {
	uint32_t lid, out_reads, qpn, psn, rkey;
	uint64_t vaddr;
	struct nic_gid gid;
};

struct peer_qp {
	struct nic_qp *qp;
	struct nic_ah *ah; /* datagrams */
	struct peer_address remote;
	uint64_t sent, confirmed, received; /* begun, completed, of the other end's */
	bool sending, awaiting;
};

struct peer {
	const struct peer_options *options;
	struct open_nic nic;
	struct nic_attr attr;
	struct nic_srq *srq;
	uint64_t patience_ns, last;	     /* when something last happened */
	uint64_t turned;		     /* when we last looked */
	uint64_t turns, accepted;	     /* frames, by the NIC's counter */
	struct nic_counters before;	     /* of the run */
	int listener[PEER_RUNS_MAX], socket; /* -1: none */

	/* Memory, for the largest run. */
	uint8_t
	    *slot; /* `slots` of slot_bytes: receives of the SRQ, results of READs and atomics */
	uint32_t slots, slot_bytes;
	uint8_t *out;	 /* what goes, and what came for comparison: out_bytes */
	uint8_t *region; /* between two margins: what the other one may read or write */
	uint64_t out_bytes;
	struct nic_mr local, remote; /* slots and out; the region, in a run */

	/* Of this run. */
	struct peer_run run;
	uint64_t count;		   /* of each queue pair; with run.seconds at first without limit */
	uint64_t until;		   /* run.seconds: no new operation from then on; 0: not timed */
	uint32_t mtu, cycle, line; /* perftest walks `cycle` bytes in steps of whole `line`s */
	uint32_t qps, region_bytes; /* region: of each queue pair, one behind the other */
	struct peer_qp qp[PEER_QPS_MAX];
	uint64_t verified; /* bytes */

	struct nic_wc stash[PEER_STASH]; /* completed while TCP was waited for */
	uint32_t stashed;
	char error[256]; /* "cause; remedy" of what failed last */
};

#define PEER_IS_CLIENT(p) ((p)->options->connect != NULL)

/* Of perftest: whether our end does operations, and whether theirs does. */
static inline bool
peer_acts(const struct peer *p)
{
	return p->run.both || PEER_IS_CLIENT(p) != p->run.reversed;
}

static inline bool
peer_suffers(const struct peer *p)
{
	return p->run.both || PEER_IS_CLIENT(p) == p->run.reversed;
}

/* All below: 0, or -errno and a line in p->error. */
int peer_fail(struct peer *p, int rc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* device.c */
int peer_open(struct peer *p);
void peer_close(struct peer *p);
/* Queue pairs and region of p->run; undone by peer_release(), always. */
int peer_prepare(struct peer *p, unsigned access);
void peer_release(struct peer *p);
void peer_own_address(const struct peer *p, uint32_t i, struct peer_address *a);
/* To p->qp[i].remote. */
int peer_connect(struct peer *p, uint32_t i);

/* turn.c: time, monotonic in ns. */
void peer_start_clock(void);
uint64_t peer_now(void);
/* Sends what is queued, fills wc[0 ... NIC_POLL_MAX). How many; all succeeded. */
int peer_turn(struct peer *p, struct nic_wc *wc);
/* A turn whose completions wait for the next peer_turn(). */
int peer_turn_aside(struct peer *p);
/* A turn while nobody has called yet. first: the first run is waited for. */
int peer_turn_before(struct peer *p, bool first);
/* Posts the slot of a received message again. */
int peer_reuse(struct peer *p, const struct nic_wc *wc);
int peer_post(struct peer *p, struct peer_qp *q, const struct nic_send_wr *wr);
/* Whether another operation, beside `begun` ones of a queue pair, is to be done. */
bool peer_more(const struct peer *p, uint64_t begun);
/* Sends the bytes at p->out as a message. */
int peer_send(struct peer *p, struct peer_qp *q);
/* Keeps answering until the other end has been quiet for a while. */
int peer_linger(struct peer *p);

/* wire.c */
/* From now on their clients may call. */
int peer_listen(struct peer *p);
void peer_deafen(struct peer *p);
int peer_meet(struct peer *p, uint32_t run);
void peer_part(struct peer *p);
int peer_tell(struct peer *p, const void *data, size_t n);
int peer_hear(struct peer *p, void *data, size_t n);
/* Whether something is there to be heard, or the end. */
bool peer_speaks(const struct peer *p);
/* The client speaks first. */
int peer_swap(struct peer *p, const void *ours, void *theirs, size_t n);
/* Until the other one has closed. */
int peer_await_end(struct peer *p);

/* pingpong.c, perftest.c: one run. */
int peer_pingpong(struct peer *p);
int peer_perftest(struct peer *p);
/* move.c: the operations of a run of perftest, as the one that acts, or both do. */
int peer_move(struct peer *p);

/* check.c: what can be known of memory. */
void peer_fill(uint8_t *data, uint32_t n, uint64_t seed);
bool peer_filled(const uint8_t *data, uint32_t n, uint64_t seed);
/* perftest: how many places an operation of this size is done at in turn, and how far apart. */
uint32_t peer_places(const struct peer *p);
uint32_t peer_step(const struct peer *p);
/* Where the region of a queue pair begins. */
uint32_t peer_region(const struct peer *p, const struct peer_qp *q);
/* Before the other one may use the region; after it did. */
void peer_prime(struct peer *p);
int peer_inspect(struct peer *p);

#endif

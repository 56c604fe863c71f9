/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control messages of the two weir-perf programs, on the connection that they measure: the driver
 * sends REQUEST, the server READY; messages of the schedule follow; the driver sends END, the
 * server RESULT. During a run a control message is recognized by its length, which never equals
 * that of the message expected at its position.
 *
 * With PERF_UD the server listens on a service for this run, perf_datagram_service(); the driver
 * makes a datagram connection to it after READY, and messages of the schedule go there.
 */
#ifndef WEIR_PERF_MESSAGE_H
#define WEIR_PERF_MESSAGE_H

#include "schedule.h"

#include "ipc/version.h"

#include "weir/address.h"

#define PERF_MAGIC 0x46524550u /* "PERF" */
#define PERF_VERSION 10u
/* what is spoken besides: until 1.0 nothing */
#define PERF_VERSIONS ((struct weir_versions){PERF_VERSION, PERF_VERSION})
#define PERF_SMALL_MAX 948u /* bytes; messages up to this size travel in slots and are copied */
#define PERF_BATCH_MAX 64u  /* messages per call */
#define PERF_KEY_BYTES 64u  /* of a key of remote memory */
#define PERF_EXTENT_MAX (1u << 30) /* bytes in which the pieces of an operation lie */
#define PERF_PROGRAMS_MAX 256u	   /* drivers of a run */
#define PERF_CALL_THREADS_MAX 64u  /* -t call: of a program */

enum perf_kind { PERF_REQUEST = 1, PERF_READY, PERF_END, PERF_RESULT };

#define PERF_BOTH 0x1u	 /* the server sends too */
#define PERF_VERIFY 0x2u /* every byte is checked */
#define PERF_SLEEP 0x4u	 /* the server sleeps when it waits */
#define PERF_HERE 0x10u	 /* both ends are one thread: no call may wait */
#define PERF_COPY 0x8u	 /* no loans, no reservations */
#define PERF_TRANSFERS                                                                             \
	0xf00u		    /* WEIR_RING ... WEIR_WRITE: how messages of the run go, both ways     \
			     */
#define PERF_ADOPT 0x80u    /* the driver sends out of adopted buffers */
#define PERF_MANY 0x20u	    /* one of several connections: no call may wait for it alone */
#define PERF_NO_PORTS 0x40u /* the server's ports are read for another connection */
#define PERF_UD 0x1000u	    /* messages of the run go as datagrams on a connection of their own */
#define PERF_STOP 0x2000u   /* the program whose memory is exported is stopped */
#define PERF_ROWS 0x4000u   /* call: consecutive calls run together */
#define PERF_UD_MIN 8u	    /* bytes of the shortest datagram: its number */

struct perf_ports {
	uint64_t tx_frames, rx_frames, tx_bytes, rx_bytes;
};

struct perf_message {
	uint32_t magic;
	struct weir_versions versions; /* of the sender; before there were ranges: one, and kind */
	uint32_t kind;		       /* enum perf_kind */
	uint32_t flags;		       /* REQUEST: PERF_* */
	uint32_t test;		       /* REQUEST: enum perf_test */
	uint32_t size;		       /* REQUEST */
	uint32_t window;	       /* REQUEST: messages under way at most, 0: no limit */
	uint32_t status;	       /* READY, RESULT: errno */
	uint64_t count;		       /* REQUEST: messages, 0: until END */
	uint64_t large;		       /* REQUEST */
	uint64_t warmup;	       /* REQUEST: messages that are not measured */
	uint64_t seed;		       /* REQUEST */
	uint64_t sent;		       /* messages sent by this end */
	uint64_t received, bytes,
	    errors;		    /* RESULT: arrived, warm-up included, and wrong ones of them */
	uint64_t measured;	    /* RESULT: messages after the warm-up */
	uint64_t start_ns, last_ns; /* RESULT: arrival of the first and last of them */
	uint64_t region;	    /* REQUEST: bytes of the memory to read */
	uint32_t threads;	    /* REQUEST: sending threads; READY: client number */
	uint32_t pid;		    /* READY: of the server's data plane, 0: unknown */
	uint32_t ports_known;	    /* RESULT: 1 when `ports` is filled */
	uint32_t batch;		    /* REQUEST: messages per call, at least 1 */
	uint64_t datagrams;	    /* READY, PERF_UD: number in the name of the service for them */
	uint32_t type, op;	    /* REQUEST, acc, fop: enum weir_type, weir_acc; 0: int64, sum */
	uint32_t block, stride;	    /* REQUEST, put, get, acc: pieces of the memory; 0: one */
	/* REQUEST: number in the name of the group; 0: remote memory, or calls in one program */
	uint64_t group;
	uint32_t members;	     /* REQUEST: of the group */
	uint32_t rank;		     /* REQUEST: of the target; with PERF_HERE of the driver */
	uint64_t options;	     /* REQUEST: WEIR_WINDOW_* */
	uint32_t partners;	     /* REQUEST, pscw: members that each one starts to */
	uint32_t mode;		     /* REQUEST, call: enum weir_batch_mode */
	struct perf_ports ports;     /* RESULT: counted by the server's ports during the run */
	uint8_t key[PERF_KEY_BYTES]; /* READY: of the memory that is exported */
};

/* Length of a control message at the position of a message of `expected` bytes. */
static inline uint32_t
perf_message_length(uint32_t expected)
{
	return sizeof(struct perf_message) + (expected == sizeof(struct perf_message) ? 8 : 0);
}

#define PERF_MESSAGE_MAX (sizeof(struct perf_message) + 8)

/* The service to which the driver of run `number` connects for its datagrams. */
void perf_datagram_service(uint64_t number, char name[WEIR_SERVICE_MAX]);

/*
 * Checks and copies a received message. 0; -EPROTONOSUPPORT: to->versions has none of ours; or
 * -EBADMSG (truncated, invalid).
 */
int perf_message_read(struct perf_message *to, const void *buf, size_t length, enum perf_kind kind);

#endif

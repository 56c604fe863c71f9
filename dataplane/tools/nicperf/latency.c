/* SPDX-License-Identifier: BSD-3-Clause */
/* Ping-pong of WRITEs: each end polls the last byte in its memory and answers by a WRITE. */
#include "nicperf.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#define WARM 1000u
#define SOCKET_TURNS 1024u
#define TIMEOUT_NS 5000000000ull

/* One of this many WRITEs is signaled. */
static uint64_t
signal_every(const struct nicperf *np)
{
	return np->depth / 2;
}

static int
send_byte(struct nicperf *np, struct nicperf_end *end, uint32_t size, uint8_t byte)
{
	struct nicperf_flow *f = &end->flow[0];
	struct nic_send_wr wr = {
	    .wr_id = ++f->posted,
	    .sge = {{f->local, size, end->mr.lkey}},
	    .sge_count = 1,
	    .opcode = NIC_WRITE,
	    .flags = f->posted % signal_every(np) ? 0 : NIC_SIGNALED,
	    .remote_address = f->remote,
	    .rkey = f->rkey,
	};

	end->out[size - 1] = byte;
	if (nic_post_send(f->qp, &wr, 1) != 1)
		return nicperf_fail(np, -EIO, "a WRITE could not be posted; give a larger --depth");
	nic_flush(np->nic, clock_now(&np->clock));
	return 0;
}

/* Keeps two large WRITEs of the second queue pair under way. */
static int
keep_streaming(struct nicperf *np)
{
	struct nicperf_flow *f = &np->end[0]->flow[1];

	while (f->posted - f->done < 2) {
		struct nic_send_wr wr = {
		    .wr_id = f->posted + 1,
		    .sge = {{f->local, np->options->beside, np->end[0]->mr.lkey}},
		    .sge_count = 1,
		    .opcode = NIC_WRITE,
		    .flags = NIC_SIGNALED,
		    .remote_address = f->remote,
		    .rkey = f->rkey,
		};

		if (nic_post_send(f->qp, &wr, 1) != 1)
			return nicperf_fail(np, -EIO,
					    "a WRITE of the stream could not be posted; "
					    "look at both ends");
		f->posted++;
	}
	return 0;
}

/* Waits until the byte lies in memory. -EPIPE: the other process has sent something. */
static int
await_byte(struct nicperf *np, const struct nicperf_end *end, uint32_t size, uint8_t byte,
	   bool listening)
{
	_Atomic uint8_t *last = (_Atomic uint8_t *)(uintptr_t)(end->in + size - 1);
	uint64_t begin = 0;
	int rc;

	/* acquire: pairs with the writer, the NIC or the driver in this thread */
	for (uint32_t i = 1; atomic_load_explicit(last, memory_order_acquire) != byte; i++) {
		rc = nicperf_turn(np);
		if (!rc && np->options->beside)
			rc = keep_streaming(np);
		if (rc)
			return rc;
		if (i % SOCKET_TURNS)
			continue;
		if (listening && nicperf_readable(np))
			return -EPIPE;
		begin = begin ? begin : clock_now(&np->clock);
		if (!listening && clock_now(&np->clock) - begin > TIMEOUT_NS)
			return nicperf_fail(np, -ETIMEDOUT,
					    "no answer for 5 s; look at the other end");
	}
	return 0;
}

static void
clear(struct nicperf *np)
{
	for (unsigned i = 0; i < 2 && np->end[i]; i++)
		memset(np->end[i]->in, 0, np->stride);
}

/* Waits for all posted WRITEs of a flow; `what` is the cause in the error. */
static int
complete(struct nicperf *np, struct nicperf_flow *f, const char *what)
{
	uint64_t begin = clock_now(&np->clock);
	int rc = 0;

	while (!rc && f->done < f->posted) {
		rc = nicperf_turn(np);
		if (!rc && clock_now(&np->clock) - begin > TIMEOUT_NS)
			rc = nicperf_fail(np, -ETIMEDOUT, "%s; look at the other end", what);
	}
	f->posted = f->done = 0;
	return rc;
}

/* Ends a run: further WRITEs up to a signaled one complete the unsignaled ones. */
static int
finish(struct nicperf *np, struct nicperf_end *end, uint32_t size)
{
	struct nicperf_flow *f = &end->flow[0];
	int rc = 0;

	while (!rc && f->posted % signal_every(np))
		rc = send_byte(np, end, size, 0);
	if (!rc)
		return complete(np, f, "no completion for 5 s");
	f->posted = f->done = 0;
	return rc;
}

int
nicperf_latency(struct nicperf *np, struct nicperf_result *r)
{
	const struct nicperf_options *o = np->options;
	struct nicperf_end *ours = np->end[0], *other = np->end[1];
	uint64_t begin = 0, end = UINT64_MAX, n = 0;
	uint32_t test, size;
	uint8_t byte = 0;
	int rc = 0;

	clear(np);
	if (np->socket >= 0) /* until the other end has cleared its memory: our WRITEs stay */
		rc = nicperf_await_run(np, &test, &size);
	for (uint64_t i = 0; !rc && (o->count ? n < o->count : n == 0 || begin < end); i++) {
		uint64_t start = clock_now(&np->clock);

		if (i == WARM && !o->count)
			end = start + (uint64_t)(o->duration * 1e9);
		byte = (uint8_t)(byte % 255 + 1); /* never 0 */
		rc = send_byte(np, ours, r->size, byte);
		if (!rc && other)
			rc = await_byte(np, other, r->size, byte, false);
		if (!rc && other)
			rc = send_byte(np, other, r->size, byte);
		if (!rc)
			rc = await_byte(np, ours, r->size, byte, false);
		begin = clock_now(&np->clock);
		if (i < WARM)
			continue;
		histogram_record(&r->latency, (begin - start) / 2);
		r->seconds += (double)(begin - start) / 1e9;
		n++;
	}
	r->count = n;
	if (!rc && o->beside)
		rc = complete(np, &ours->flow[1], "the stream does not end");
	for (unsigned i = 0; i < 2 && !rc && np->end[i]; i++)
		rc = finish(np, np->end[i], r->size);
	return rc;
}

int
nicperf_respond_latency(struct nicperf *np, uint32_t size)
{
	int rc;

	clear(np);
	rc = nicperf_send_run(np, NICPERF_TESTS, 0);
	for (uint8_t byte = 1; !rc; byte = (uint8_t)(byte % 255 + 1)) {
		rc = await_byte(np, np->end[0], size, byte, true);
		if (!rc)
			rc = send_byte(np, np->end[0], size, byte);
	}
	return rc == -EPIPE ? finish(np, np->end[0], size) : rc;
}

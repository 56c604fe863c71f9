/* SPDX-License-Identifier: BSD-3-Clause */
/* Ping-pong of WRITEs: each end looks at the last byte in its memory and answers by a WRITE. */
#include "nicperf.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#define WARM 1000u
#define LOOK 1024u
#define PATIENCE_NS 5000000000ull

static uint8_t
arrived(const struct nicperf_end *end, uint32_t size)
{
	/* pairs with whoever writes it: the NIC, or the driver in this thread */
	return atomic_load_explicit((_Atomic uint8_t *)(uintptr_t)(end->in + size - 1),
				    memory_order_acquire);
}

/* Every so many WRITEs one is signaled. */
static uint64_t
mark(const struct nicperf *np)
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
	    .flags = f->posted % mark(np) ? 0 : NIC_SIGNALED,
	    .remote_address = f->remote,
	    .rkey = f->rkey,
	};

	end->out[size - 1] = byte;
	if (nic_post_send(f->qp, &wr, 1) != 1)
		return nicperf_fail(np, -EIO, "a WRITE could not be posted; give a larger --depth");
	nic_flush(np->nic, clock_now(&np->clock));
	return 0;
}

/* The other queue pair always has two large WRITEs under way. */
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

/* Until the byte lies in memory. -EPIPE: the other process has said something. */
static int
await_byte(struct nicperf *np, const struct nicperf_end *end, uint32_t size, uint8_t byte,
	   bool listening)
{
	uint64_t begin = 0;
	int rc;

	for (uint32_t i = 1; arrived(end, size) != byte; i++) {
		rc = nicperf_turn(np);
		if (!rc && np->options->beside)
			rc = keep_streaming(np);
		if (rc)
			return rc;
		if (i % LOOK)
			continue;
		if (listening && nicperf_heard(np))
			return -EPIPE;
		begin = begin ? begin : clock_now(&np->clock);
		if (!listening && clock_now(&np->clock) - begin > PATIENCE_NS)
			return nicperf_fail(np, -ETIMEDOUT,
					    "no answer for 5 s; look at the other end");
	}
	return 0;
}

static int
round_trip(struct nicperf *np, uint32_t size, uint8_t byte)
{
	struct nicperf_end *near = np->end[0], *far = np->end[1];
	int rc = send_byte(np, near, size, byte);

	if (!rc && far) {
		rc = await_byte(np, far, size, byte, false);
		if (!rc)
			rc = send_byte(np, far, size, byte);
	}
	return rc ? rc : await_byte(np, near, size, byte, false);
}

static void
clear(struct nicperf *np)
{
	for (unsigned i = 0; i < 2 && np->end[i]; i++)
		memset(np->end[i]->in, 0, np->stride);
}

/* The other one's memory is clear: what we write there stays. */
static int
await_clear(struct nicperf *np)
{
	uint32_t test, size;

	return np->socket < 0 ? 0 : nicperf_hear(np, &test, &size);
}

static int
end_stream(struct nicperf *np)
{
	struct nicperf_flow *f = &np->end[0]->flow[1];
	uint64_t begin = clock_now(&np->clock);
	int rc = 0;

	while (!rc && f->done < f->posted) {
		rc = nicperf_turn(np);
		if (!rc && clock_now(&np->clock) - begin > PATIENCE_NS)
			rc = nicperf_fail(np, -ETIMEDOUT,
					  "the stream does not end; look at the other end");
	}
	f->posted = f->done = 0;
	return rc;
}

/* Unsignaled WRITEs of this run are taken back by the next signal: one more completes all. */
static int
settle(struct nicperf *np, struct nicperf_end *end, uint32_t size)
{
	struct nicperf_flow *f = &end->flow[0];
	uint64_t begin = clock_now(&np->clock);
	int rc = 0;

	while (!rc && f->posted % mark(np))
		rc = send_byte(np, end, size, 0);
	while (!rc && f->done < f->posted) {
		rc = nicperf_turn(np);
		if (!rc && clock_now(&np->clock) - begin > PATIENCE_NS)
			rc = nicperf_fail(np, -ETIMEDOUT,
					  "no completion for 5 s; look at the other end");
	}
	f->posted = f->done = 0;
	return rc;
}

int
nicperf_latency(struct nicperf *np, struct nicperf_result *r)
{
	const struct nicperf_options *o = np->options;
	uint64_t begin = 0, end = UINT64_MAX, n = 0;
	uint8_t byte = 0;
	int rc = 0;

	clear(np);
	rc = await_clear(np);
	for (uint64_t i = 0; !rc && (o->count ? n < o->count : n == 0 || begin < end); i++) {
		uint64_t start = clock_now(&np->clock);

		if (i == WARM && !o->count)
			end = start + (uint64_t)(o->duration * 1e9);
		byte = (uint8_t)(byte % 255 + 1); /* never 0 */
		rc = round_trip(np, r->size, byte);
		begin = clock_now(&np->clock);
		if (i < WARM)
			continue;
		histogram_record(&r->latency, (begin - start) / 2);
		r->seconds += (double)(begin - start) / 1e9;
		n++;
	}
	r->count = n;
	if (!rc && o->beside)
		rc = end_stream(np);
	for (unsigned i = 0; i < 2 && !rc && np->end[i]; i++)
		rc = settle(np, np->end[i], r->size);
	return rc;
}

int
nicperf_answer_latency(struct nicperf *np, uint32_t size)
{
	int rc;

	clear(np);
	rc = nicperf_tell(np, NICPERF_TESTS, 0);
	for (uint8_t byte = 1; !rc; byte = (uint8_t)(byte % 255 + 1)) {
		rc = await_byte(np, np->end[0], size, byte, true);
		if (!rc)
			rc = send_byte(np, np->end[0], size, byte);
	}
	return rc == -EPIPE ? settle(np, np->end[0], size) : rc;
}

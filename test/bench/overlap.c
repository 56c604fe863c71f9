/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How much of a put computation hides.
 *
 *   overlap INSTANCE export KEYFILE             exports memory and says "ready"
 *   overlap INSTANCE put KEYFILE SIZE SECONDS   one line of JSON
 *
 * Blocks of three kinds alternate: put and flush; work that takes as long alone; put, the same
 * work, flush. Work is additions in registers, so it takes longer if an engine has the CPU. The
 * hidden part is what the sum of the first two saves in the third, of the shorter one.
 */
#include "../smoke/program.h"

#include "weir/remote.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST (16u << 20) /* bytes of a put */
#define BLOCK_S 0.01

enum { PUT, WORK, BOTH, KINDS };

struct overlap {
	struct weir_remote *r;
	uint8_t *from;
	size_t size;
	uint64_t steps; /* of the work */
};

static int export(struct weir *w, const char *path)
{
	struct weir_region *region;
	struct weir_export *x;
	struct weir_notice n;
	struct weir_key key;
	int rc = weir_region_alloc(w, MOST, NULL, &region);

	if (!rc)
		rc = weir_export(region, 0, MOST, WEIR_MAY_WRITE, &x, &key);
	if (rc || write_key(path, &key))
		return failed("export", rc);
	say("ready");
	while ((rc = weir_notice_next(w, &n, -1)) == -EAGAIN)
		;
	return failed("export", rc);
}

static void
work(uint64_t steps)
{
	uint64_t sum = 0;

	for (uint64_t i = 0; i < steps; i++) {
		sum += i;
		__asm__ __volatile__("" : "+r"(sum));
	}
}

static int
once(struct overlap *o, int kind)
{
	int rc = 0;

	if (kind != WORK)
		rc = weir_remote_put(o->r, 0, o->from, o->size, WEIR_KEEP);
	if (kind != PUT)
		work(o->steps);
	return rc || kind == WORK ? rc : weir_remote_flush(o->r, PATIENCE_MS);
}

/* Seconds of one, of a block. */
static int
timed(struct overlap *o, int kind, double *each)
{
	double begin = now_s(), now;
	unsigned n = 0;
	int rc = 0;

	do {
		for (unsigned i = 0; i < 8 && !rc; i++)
			rc = once(o, kind);
		n += 8;
		now = now_s();
	} while (!rc && now - begin < BLOCK_S);
	*each = (now - begin) / n;
	return rc;
}

/* As much work as a put takes. */
static int
calibrate(struct overlap *o)
{
	double put, one;
	int rc = timed(o, PUT, &put);

	o->steps = 1000;
	if (!rc)
		rc = timed(o, WORK, &one);
	if (!rc)
		o->steps = (uint64_t)(put / one * 1000);
	return rc;
}

static int
measure(struct overlap *o, double seconds)
{
	double sum[KINDS] = {0}, each, end = now_s() + seconds, shorter;
	unsigned blocks = 0;
	int rc = calibrate(o);

	for (; !rc && now_s() < end; blocks++)
		for (int kind = 0; kind < KINDS && !rc; kind++) {
			rc = timed(o, kind, &each);
			sum[kind] += each;
		}
	if (rc || !blocks)
		return failed("put", rc);
	shorter = sum[PUT] < sum[WORK] ? sum[PUT] : sum[WORK];
	printf("{\"size\":%zu,\"put_us\":%.3f,\"work_us\":%.3f,\"both_us\":%.3f,\"hidden\":%.3f}\n",
	       o->size, sum[PUT] / blocks * 1e6, sum[WORK] / blocks * 1e6, sum[BOTH] / blocks * 1e6,
	       (sum[PUT] + sum[WORK] - sum[BOTH]) / shorter);
	return 0;
}

static int
put(struct weir *w, const char *path, size_t size, double seconds)
{
	struct overlap o = {.size = size};
	struct weir_region_info info;
	struct weir_region *own;
	struct weir_key key;
	int rc;

	if (size < 1 || size > MOST || read_key(path, &key))
		return 2;
	rc = weir_region_alloc(w, MOST, NULL, &own);
	if (!rc)
		rc = weir_remote_open(w, &key, WEIR_MAY_WRITE, 0, PATIENCE_MS, &o.r);
	if (rc)
		return failed("open", rc);
	weir_region_info(own, &info);
	o.from = info.base;
	return measure(&o, seconds);
}

int
main(int argc, char **argv)
{
	struct weir *w;

	if (argc < 4)
		return 2;
	if (attach_to(argv[1], "overlap", 0, &w))
		return 1;
	if (!strcmp(argv[2], "export"))
		return export(w, argv[3]);
	if (argc != 6 || strcmp(argv[2], "put"))
		return 2;
	return put(w, argv[3], number_at(argc, argv, 4), strtod(argv[5], NULL));
}

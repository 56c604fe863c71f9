/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A small program on adopted memory for smoke tests and measurements. It prints on standard output
 * the events that it sees.
 *
 *   adopter INSTANCE send ADDRESS COUNT SEED  sends COUNT checked messages out of adopted memory
 *   adopter INSTANCE sink SERVICE             receives those into memory posted before, checks them
 *   adopter INSTANCE bulk ADDRESS SIZE MSEC FLAGS  sends with FLAGS of weir_send_notify(): how fast
 *   adopter INSTANCE into SERVICE SIZE        receives these into memory posted before
 *   adopter INSTANCE copy SERVICE SIZE        receives these by weir_recv()
 *   adopter INSTANCE cost                     what adopting, disowning and copying cost, by size
 *   adopter INSTANCE from ADDRESS COUNT SEED  as send, out of an allocated region of 160 MiB
 *   adopter INSTANCE to SERVICE               as sink, into such a region
 *   adopter INSTANCE limits MIB REGIONS       allocates what a session may have, and no more
 *   adopter INSTANCE churn MSEC               allocates and frees regions
 */
#include "program.h"

#include "weir/memory.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SLICES 16u		       /* of a region, each for one message */
#define REGION (160u << 20)	       /* bytes of an allocated one; the slices spread over it */
#define SLICE (LARGEST + (128u << 10)) /* all of them: whole huge pages */
#define HUGE_PAGE (2u << 20)
#define TRIES 15u

#define ONE_LARGE_OF 3

static struct weir *w;

static int
answer(const char *service, struct weir_conn **c)
{
	struct weir_listener *l;
	int r = serve_at(w, service, 8, &l);

	return r ? r : weir_accept(l, -1, c);
}

/* Populated pages from the border of a huge page on, adopted if there are flags; or NULL. */
static uint8_t *
pages(size_t bytes, unsigned flags)
{
	struct weir_region *region;
	uint8_t *m = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	int r = m == MAP_FAILED ? -errno : 0;

	if (!r)
		m += HUGE_PAGE - (uintptr_t)m % HUGE_PAGE;
	if (!r && flags)
		r = weir_adopt(w, m, bytes, flags, &region);
	if (!r)
		return m;
	failed("adopt", r);
	return NULL;
}

static size_t step = SLICE; /* from one slice to the next */

/* An allocated region; slices lie at its begin, at its end, and in steps between. */
static uint8_t *
region(void)
{
	struct weir_region_info info;
	struct weir_region *r;
	int rc = weir_region_alloc(w, REGION, NULL, &r);

	if (rc) {
		failed("allocate", rc);
		return NULL;
	}
	weir_region_info(r, &info);
	for (uint64_t i = 0; i < info.bytes; i += 4096)
		if (((const uint8_t *)info.base)[i])
			failed("zeroes", -EIO);
	step = (info.bytes - SLICE) / (SLICES - 1) / 64 * 64;
	say("region of %llu bytes, pages of %llu", (unsigned long long)info.bytes,
	    (unsigned long long)info.page);
	return info.base;
}

/* Fills a slice again when the message that was sent out of it is complete. */
static int
send_all(uint8_t *m, const char *address, uint64_t count, uint64_t seed)
{
	struct weir_conn *c;
	uint64_t i;
	int r = m ? dial(w, address, &c) : -ENOMEM;

	if (r)
		return failed("connect", r);
	r = weir_send(c, &seed, sizeof(seed), -1);
	for (i = 0; !r && i < count; i++) {
		uint64_t *at = (uint64_t *)(void *)(m + i % SLICES * step);

		if (i % SLICES == 0)
			r = weir_flush(c, PATIENCE_MS);
		if (!r)
			r = weir_send_notify(c, at, contents(i, seed, ONE_LARGE_OF, at),
					     WEIR_ZERO_COPY, 0, -1);
	}
	if (!r)
		r = weir_flush(c, PATIENCE_MS);
	return end(c, r, i);
}

static int
sink(uint8_t *m, const char *service)
{
	struct weir_placed got;
	struct weir_conn *c;
	uint64_t count = 0, seed = 0;
	size_t length;
	int r = m ? answer(service, &c) : -ENOMEM;

	if (r)
		return failed("accept", r);
	r = weir_recv(c, &seed, sizeof(seed), &length, -1);
	for (unsigned i = 0; !r && i < SLICES; i++)
		r = weir_recv_into(c, m + i * step, SLICE, i);
	while (!r && !(r = weir_recv_placed(c, &got, -1))) {
		if (got.cookie != count % SLICES || got.data != m + got.cookie * step) {
			say("wrong place of message %llu", (unsigned long long)count);
			return 1;
		}
		if (!expected(&count, seed, ONE_LARGE_OF, got.data, got.length, 1000))
			return 1;
		r = weir_recv_into(c, got.data, SLICE, got.cookie);
	}
	end(c, r, count);
	return 0;
}

/* Four messages under way; each leaves its memory alone until all are complete. */
static int
bulk(const char *address, size_t size, unsigned long ms, unsigned flags)
{
	uint8_t *m = pages(4 * size, flags & WEIR_ZERO_COPY ? WEIR_ADOPT_SEND : 0);
	struct weir_conn *c;
	uint64_t count = 0;
	double start;
	int r = m ? dial(w, address, &c) : -ENOMEM;

	if (r)
		return failed("connect", r);
	for (start = now_s(); !r && now_s() < start + (double)ms * 1e-3; count += 4) {
		for (unsigned i = 0; !r && i < 4; i++)
			r = weir_send_notify(c, m + i * size, size, flags, 0, -1);
		if (!r)
			r = weir_flush(c, PATIENCE_MS);
	}
	if (r)
		return failed("bulk", r);
	say("%zu bytes, flags %u: %.2f GB/s", size, flags,
	    (double)count * (double)size / (now_s() - start) / 1e9);
	weir_close(c);
	return 0;
}

static int
receive(const char *service, size_t size, bool posted)
{
	unsigned n = size > 4u << 20 ? 3 : 8;
	uint8_t *m = pages(n * size, posted ? WEIR_ADOPT_RECV : 0);
	struct weir_placed got;
	struct weir_conn *c;
	size_t length;
	int r = m ? answer(service, &c) : -ENOMEM;

	for (unsigned i = 0; posted && !r && i < n; i++)
		r = weir_recv_into(c, m + i * size, size, i);
	while (posted && !r && !(r = weir_recv_placed(c, &got, -1)))
		r = weir_recv_into(c, got.data, size, 0);
	while (!posted && !r)
		r = weir_recv(c, m, size, &length, -1);
	say("end %d", r);
	return 0;
}

static int
allocate(uint64_t bytes, struct weir_region **r)
{
	const struct weir_alloc_options ordinary = {.flags = WEIR_ALLOC_ORDINARY, .numa_node = -1};

	return weir_region_alloc(w, bytes, &ordinary, r);
}

/* --memory is `mib`, --regions is `regions`. */
static int
limits(uint64_t mib, unsigned long regions)
{
	struct weir_region *all, *r[4096];
	unsigned long n = 0;
	int rc;

	rc = allocate((mib << 20) + 1, &all);
	say("more than all: %d %s", rc, weir_reason());
	rc = allocate(mib << 20, &all);
	if (rc)
		return failed("all", rc);
	rc = allocate(1, &r[0]);
	say("one more byte: %d", rc);
	if (weir_region_free(all))
		return failed("free", -EBUSY);
	while (n < 4096 && n <= regions && !(rc = allocate(1, &r[n])))
		n++;
	say("%lu regions, then %d %s", n, rc, weir_reason());
	while (n)
		if (weir_region_free(r[--n]))
			return failed("free", -EBUSY);
	return 0;
}

static int
churn(unsigned long ms)
{
	double end = now_s() + (double)ms * 1e-3;
	struct weir_region *r;
	unsigned n = 0;
	int rc = 0;

	for (; !rc && now_s() < end; n++) {
		rc = weir_region_alloc(w, (32u << 20) << n % 3, NULL, &r);
		if (!rc)
			rc = weir_region_free(r);
	}
	say("%u regions came and went: %d", n, rc);
	return rc ? 1 : 0;
}

static int
by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static int
cost(void)
{
	for (size_t bytes = 16384; bytes <= 16u << 20; bytes *= 4) {
		uint8_t *m = pages(bytes, 0), *to = pages(bytes, 0);
		double us[3][TRIES];

		for (unsigned i = 0; m && to && i < TRIES; i++) {
			struct weir_region *region;
			double t[4] = {now_s()};
			int r = weir_adopt(w, m, bytes, WEIR_ADOPT_SEND, &region);

			t[1] = now_s();
			if (r || (r = weir_disown(region)))
				return failed("adopt", r);
			t[2] = now_s();
			memcpy(to, m, bytes);
			t[3] = now_s();
			for (unsigned k = 0; k < 3; k++)
				us[k][i] = 1e6 * (t[k + 1] - t[k]);
			usleep(20000); /* requests are paced */
		}
		for (unsigned k = 0; k < 3; k++)
			qsort(us[k], TRIES, sizeof(double), by_value);
		say("%zu bytes: adopt %.0f us, disown %.0f us, copy %.1f us", bytes,
		    us[0][TRIES / 2], us[1][TRIES / 2], us[2][TRIES / 2]);
	}
	return 0;
}

int
main(int argc, char **argv)
{
	const char *mode = argc > 2 ? argv[2] : "", *arg = argc > 3 ? argv[3] : "";
	unsigned long a = number_at(argc, argv, 4), b = number_at(argc, argv, 5);
	unsigned long d = number_at(argc, argv, 6);
	int code = 2;

	if (attach_to(argc > 1 ? argv[1] : NULL, "adopter", 0, &w))
		return 1;
	if (!strcmp(mode, "send"))
		code = send_all(pages(SLICES * SLICE, WEIR_ADOPT_SEND), arg, a, b);
	else if (!strcmp(mode, "sink"))
		code = sink(pages(SLICES * SLICE, WEIR_ADOPT_RECV), arg);
	else if (!strcmp(mode, "from"))
		code = send_all(region(), arg, a, b);
	else if (!strcmp(mode, "to"))
		code = sink(region(), arg);
	else if (!strcmp(mode, "limits"))
		code = limits(number_at(argc, argv, 3), a);
	else if (!strcmp(mode, "churn"))
		code = churn(number_at(argc, argv, 3));
	else if (!strcmp(mode, "bulk"))
		code = bulk(arg, a, b, (unsigned)d);
	else if (!strcmp(mode, "into") || !strcmp(mode, "copy"))
		code = receive(arg, a, !strcmp(mode, "into"));
	else if (!strcmp(mode, "cost"))
		code = cost();
	else
		fprintf(stderr, "adopter: no mode '%s'; see the head of adopter.c\n", mode);
	weir_detach(w);
	return code;
}

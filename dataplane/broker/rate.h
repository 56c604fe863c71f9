/* SPDX-License-Identifier: BSD-3-Clause */
/* Rates at which programs may send to peers, in text: RATE[,BURST] or none. No DPDK. */
#ifndef WEIR_RATE_H
#define WEIR_RATE_H

#include <stddef.h>
#include <stdint.h>

#define RATE_MIN 1000u			/* bytes/s */
#define RATE_MAX 1000000000000ull	/* bytes/s */
#define RATE_BURST_MIN 1000u		/* bytes */
#define RATE_BURST_MAX 1000000000000ull /* bytes */

struct rate {
	uint64_t bytes; /* per second; 0: no limit */
	uint64_t burst; /* bytes that may exceed the rate at once */
};

/* Parses a rate: 0 or -EINVAL. K, M and G are powers of ten. The default burst is 20 ms of it. */
int rate_parse(const char *text, struct rate *r);
/* Writes the rate as rate_parse() takes it. */
void rate_text(const struct rate *r, char *text, size_t size);
/* Time that the burst takes at the rate, ns. */
uint64_t rate_burst_ns(const struct rate *r);

/* Describes the text that rate_parse() takes. */
#define RATE_WORDS                                                                                 \
	"bytes/s from 1000 to 1000G (K, M, G: 10^3, 10^6, 10^9), ,BURST in bytes may follow, or "  \
	"none"

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* HELLO, the first message of two weir-nicperf each way. */
#ifndef WEIR_NICPERF_GREET_H
#define WEIR_NICPERF_GREET_H

#include "ipc/version.h"

#define NICPERF_MAGIC 0x77656e70u
#define NICPERF_VERSION 3u
/* what is spoken besides: until 1.0 nothing */
#define NICPERF_VERSIONS ((struct weir_versions){NICPERF_VERSION, NICPERF_VERSION})

struct nicperf_hello {
	uint32_t magic;
	struct weir_versions versions;
};

/* Says HELLO and awaits the other one's. 0; or -EPIPE, -EPROTO and `why`. */
int nicperf_greet(int socket, char why[WEIR_VERSION_WHY]);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Options of weir-nicperf. No DPDK. */
#ifndef WEIR_NICPERF_OPTIONS_H
#define WEIR_NICPERF_OPTIONS_H

#include "daemon/options.h"

#define NICPERF_QPS_MAX 1024u
#define NICPERF_DEPTH_MIN 4u
#define NICPERF_DEPTH_MAX 4096u
#define NICPERF_THREADS_MAX 64u
#define NICPERF_SIZES_MAX 32u
#define NICPERF_SIZE_MAX (16u << 20)
#define NICPERF_VERIFY_STRIDE (2u << 20) /* memory of a queue pair */
#define NICPERF_VERIFY_ROUNDS 2u

enum nicperf_test {
	NICPERF_WRITE,
	NICPERF_READ,
	NICPERF_SEND,
	NICPERF_FADD,
	NICPERF_CAS,
	NICPERF_LAT,
	NICPERF_BARE,	/* frames of the length that `lat` has, past the NIC layer */
	NICPERF_VERIFY, /* all operations, every byte looked at */
	NICPERF_TESTS
};

struct nicperf_options {
	bool help, version, json, shared, no_calibrate, listen;
	struct nic_spec nic;
	const char *connect; /* HOST of the other process; with neither it nor listen: both ends */
	uint16_t port;
	uint32_t tests[NICPERF_TESTS], test_count;
	uint32_t sizes[NICPERF_SIZES_MAX], size_count;
	uint64_t count;	 /* operations of each QP; 0: by time */
	double duration; /* seconds */
	uint32_t qps;	 /* with shared: threads */
	uint32_t depth;	 /* WRs of a QP under way */
	uint32_t list;	 /* WRs posted at once */
	uint32_t beside; /* lat: bytes of each WRITE of a second QP meanwhile; 0: there is none */
};

/* 0, or -EINVAL and a line "cause; remedy" in error. Strings point into argv. */
int nicperf_options_parse(struct nicperf_options *o, int argc, char **argv, char *error,
			  size_t size);
extern const struct option_table nicperf_option_table;
const char *nicperf_test_name(uint32_t test);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Options of weir-switch. No DPDK. */
#ifndef WEIR_SWITCH_OPTIONS_H
#define WEIR_SWITCH_OPTIONS_H

#include "base/options.h"

struct switch_options {
	bool help, version, json, poll;
	uint32_t age;	 /* s until an address is forgotten */
	uint32_t queue;	 /* frames that may wait for a port */
	uint32_t period; /* s between reports; 0: at the end only */
};

/* 0, or -EINVAL and a line "cause; remedy" in error. argv[0] is skipped. */
int switch_options_parse(struct switch_options *o, int argc, char **argv, char *error, size_t size);
extern const struct option_table switch_option_table;

#endif

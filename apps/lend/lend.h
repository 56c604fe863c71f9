/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LEND_H
#define LEND_H

#include "base/options.h"

struct lend_options {
	const char *instance;
	uint64_t bytes; /* that are lent at most, to all */
	bool help, version;
};

extern const struct option_table lend_option_table;

#endif

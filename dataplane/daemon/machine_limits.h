/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Limits that follow from the machine: what all programs together, and each user, may have of
 * memory, adopted ranges and segments, unless options say it. No DPDK.
 */
#ifndef WEIR_MACHINE_LIMITS_H
#define WEIR_MACHINE_LIMITS_H

#include "options.h"

/* Bytes of the roce driver for a link, about: two queue pairs, and their completions. */
#define LINK_QP_BYTES (104u << 10)

/* Bytes of memory that this process can have: the machine's, or less if a control group (version 2)
 * says so. 0: unknown. `root` is where /proc and /sys are, "" for this machine. */
uint64_t machine_memory(const char *root);

/*
 * Fills in o->links, unless an option says it, o->most, and the limits of users for whom the
 * options say none: half of that, so that no user keeps others out. `machine`: bytes of memory,
 * `files`: how many this process may open.
 */
void limits_derive(struct options *o, uint64_t machine, uint64_t files);

/* Whether all limits fit, with `fixed` bytes besides programs' memory; else "cause; remedy". */
bool limits_fit(const struct options *o, uint64_t fixed, uint64_t machine, uint64_t files,
		char *text, size_t size);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Start of DPDK: defaults that suit an instance, and one line of error instead of a page. */
#ifndef WEIR_EAL_SETUP_H
#define WEIR_EAL_SETUP_H

#include <stddef.h>

/*
 * Initializes EAL with the user's options argv[1 ... argc) behind our defaults. Returns 0, or
 * -EINVAL (options), -EACCES, -ENOMEM ... with a line "cause; remedy" in error.
 */
int eal_setup(const char *instance, int argc, char **argv, char *error, size_t size);

/* A port is missing: an error of its driver at start becomes the cause in `error`. */
void eal_explain(char *error, size_t size);

/* Ends EAL and removes the files that it leaves in its run directory. */
void eal_teardown(const char *instance);

#endif

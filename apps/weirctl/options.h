/* SPDX-License-Identifier: BSD-3-Clause */
/* Options of weirctl, and those of `weirctl pki`. */
#ifndef WEIR_APPS_WEIRCTL_OPTIONS_H
#define WEIR_APPS_WEIRCTL_OPTIONS_H

#include "base/options.h"

/* Options that may stand before or behind the words of a command. */
struct weirctl_options {
	const char *instance;
	bool json;
	bool help, version;
	bool timed;		 /* --timeout was given */
	double timeout;		 /* of wait and drain */
	double seconds;		 /* of capture; 0: until a signal */
	double interval;	 /* of top */
	uint64_t packets, count; /* of capture, of top; 0: no limit */
	const char *reason;	 /* of evict; NULL: none given */
};

struct pki_options {
	const char *cluster, *addresses;
	uint32_t days; /* 0: as usual */
	bool force, help;
};

extern const struct option_table weirctl_option_table, pki_option_table;

/*
 * Takes options out of argv[1 ...] (argv[0] is not looked at) into *o. -1: *words and *count are
 * what is left; else an exit code, and all has been said.
 */
int weirctl_parse(struct weirctl_options *o, int argc, char **argv, char ***words, int *count);
/* The same of `pki ...`; *p is cleared first. */
int pki_parse(struct pki_options *p, int argc, char **argv, char ***words, int *count);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* The command line of weir-control. */
#ifndef WEIR_CONTROL_OPTIONS_H
#define WEIR_CONTROL_OPTIONS_H

#include "base/log.h"
#include "base/options.h"

#include <stdbool.h>
#include <stdint.h>

enum exit_code { EXIT_OK = 0, EXIT_RUNTIME = 1, EXIT_USAGE = 2, EXIT_RESOURCE = 3 };

struct control_options {
	const char *instance;
	const char *listen; /* HOST:PORT */
	const char *peers;  /* file */
	const char *cluster;
	const char *join; /* HOST:PORT[,HOST:PORT...]; NULL with a file */
	const char *etcd; /* URL[,URL...], or NULL */
	const char *etcd_user, *etcd_password, *etcd_tls; /* name, file, directory, or NULL */
	bool help, version;
	bool node_given;     /* --node, also as auto */
	bool has_node;	     /* else one is chosen */
	const char *tls;     /* directory; NULL: plain TCP */
	const char *metrics; /* HOST:PORT, NULL: none are served */
	uint16_t node;
	uint32_t node_timeout; /* ms */
	bool insecure;
	enum log_level log_level;
	enum log_format log_format;
};

/* -1: go on with *o (strings are argv's); else the exit code, all has been said. */
int control_options_parse(int argc, char **argv, struct control_options *o);

extern const struct option_table control_option_table;

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
#include "options.h"

#include <errno.h>

#define AT(field) OPTION_FIELD(struct switch_options, field)

static const struct option_spec specs[] = {
    {"age", 0, OPTION_SIZE, AT(age), "SECONDS", "300",
     "time of silence after which an address is forgotten", .min = 1, .max = 1000000},
    {"help", 'h', OPTION_STOP, AT(help), NULL, NULL, "print this text"},
    {"idle", 0, OPTION_WORD, AT(poll), "poll|adaptive", "adaptive",
     "behaviour without frames: keep polling, or spin, yield and sleep", .words = "adaptive|poll"},
    {"json", 0, OPTION_FLAG, AT(json), NULL, NULL, "print reports as JSON, one object per line"},
    {"queue", 0, OPTION_SIZE, AT(queue), "FRAMES", "512",
     "frames that may wait for a port; further ones are dropped", .min = 1, .max = 65536},
    {"stats-period", 0, OPTION_SIZE, AT(period), "SECONDS", NULL,
     "interval between reports; reports at the end and on SIGUSR1 are always printed", .min = 1,
     .max = 86400},
    {"version", 0, OPTION_STOP, AT(version), NULL, NULL, "print the version"},
};

const struct option_table switch_option_table = {
    OPTION_SPECS(specs, struct switch_options),
    .head =
	"Usage: weir-switch [EAL options] -- [options]\n"
	"An Ethernet switch for nodes on one machine. All EAL ports (--vdev) are its ports.\n\n",
};

int
switch_options_parse(struct switch_options *o, int argc, char **argv, char *error, size_t size)
{
	argc--;
	if (option_defaults(&switch_option_table, o, error, size) ||
	    option_parse(&switch_option_table, o, &argc, argv + 1, error, size))
		return -EINVAL;
	return 0;
}

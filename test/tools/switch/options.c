/* SPDX-License-Identifier: BSD-3-Clause */
#include "options.h"

#include "tools/tool.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

void
switch_usage(void)
{
	fputs("Usage: weir-switch [EAL options] -- [options]\n"
	      "An Ethernet switch for nodes on one machine: all ports of EAL (--vdev) are its "
	      "ports.\n"
	      "\n"
	      "  --age SECONDS           an address not seen for so long is forgotten [300]\n"
	      "  --help, --version\n"
	      "  --idle poll|adaptive    without frames: poll on, or spin, yield and sleep "
	      "[adaptive]\n"
	      "  --json                  reports are JSON, one line each\n"
	      "  --queue FRAMES          that may wait for a port, the next are dropped [512]\n"
	      "  --stats-period SECONDS  a report so often; one at the end and on SIGUSR1 anyway\n",
	      stdout);
}

static int
take_option(void *options, int id, const char *value, char *error, size_t size)
{
	struct switch_options *o = options;

	switch (id) {
	case 'j':
		o->json = true;
		break;
	case 'a':
		return tool_parse_small(value, 1, 1000000, &o->age)
			   ? tool_bad(error, size, "--age", value, "give seconds, 1 to 1000000")
			   : 0;
	case 'q':
		return tool_parse_small(value, 1, 65536, &o->queue)
			   ? tool_bad(error, size, "--queue", value, "give 1 to 65536 frames")
			   : 0;
	case 'p':
		return tool_parse_small(value, 1, 86400, &o->period)
			   ? tool_bad(error, size, "--stats-period", value,
				      "give seconds, 1 to 86400")
			   : 0;
	case 'i':
		o->poll = strcmp(value, "poll") == 0;
		return o->poll || strcmp(value, "adaptive") == 0
			   ? 0
			   : tool_bad(error, size, "--idle", value, "give poll or adaptive");
	}
	return 0;
}

int
switch_options_parse(struct switch_options *o, int argc, char **argv, char *error, size_t size)
{
	static const struct option longs[] = {
	    {"age", required_argument, NULL, 'a'},   {"help", no_argument, NULL, 'h'},
	    {"idle", required_argument, NULL, 'i'},  {"json", no_argument, NULL, 'j'},
	    {"queue", required_argument, NULL, 'q'}, {"stats-period", required_argument, NULL, 'p'},
	    {"version", no_argument, NULL, 'v'},     {NULL, 0, NULL, 0}};
	int rc;

	*o = (struct switch_options){.age = 300, .queue = 512};
	rc = tool_options(argc, argv, "h", longs, take_option, o, error, size);
	o->help = rc == 'h';
	o->version = rc == 'v';
	return rc < 0 ? rc : 0;
}

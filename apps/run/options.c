/* SPDX-License-Identifier: BSD-3-Clause */
#include "run.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#define AT(field) OPTION_FIELD(struct run_options, field)

static int
take_instance(void *into, const char *word)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789_-.";
	struct run_options *o = into;
	size_t length = strlen(word);

	if (o->instances == RUN_INSTANCES_MAX || length >= RUN_INSTANCE_BYTES || word[0] == '.' ||
	    word[0] == '-' || strspn(word, allowed) != length)
		return -EINVAL;
	memcpy(o->instance[o->instances++], word, length);
	return 0;
}

static int
take_instances(void *into, const char *text, char *error, size_t size)
{
	struct run_options *o = into;

	o->instances = 0;
	memset(o->instance, 0, sizeof(o->instance));
	return option_list(text, take_instance, o);
}

static const struct option_spec specs[] = {
    {"help", 'h', OPTION_STOP, AT(help), NULL, NULL, "print this text"},
    {"instances", 0, OPTION_CALL, 0, 0, "NAME[,NAME...]", "default",
     "data planes of this machine to attach to; each serves an equal part of the processes, by "
     "rank",
     .env = "WEIR_INSTANCE", .take = take_instances,
     .expected = "up to 64 names of 1 to 31 letters, digits, '_', '-', '.'"},
    {"processes", 'n', OPTION_UNSIGNED, AT(processes), "PROCESSES", NULL,
     "number of processes to start; required", .min = 1, .max = RUN_PROCESSES_MAX},
    {"threads", 't', OPTION_UNSIGNED, AT(threads), "THREADS", NULL,
     "threads of each process, and CPUs that it has for itself if there are enough (an equal part "
     "of all CPUs)",
     .env = "WEIR_THREADS", .min = 1, .max = 1024},
    {"version", 0, OPTION_STOP, AT(version), NULL, NULL, "print the version"},
};

const struct option_table run_option_table = {
    .specs = specs,
    .count = sizeof(specs) / sizeof(specs[0]),
    .size = sizeof(struct run_options),
    .operands = UINT_MAX,
    .command = true,
    .head =
	"Usage: weir-run -n PROCESSES [-t THREADS] [--instances NAME[,NAME...]] [--] PROGRAM "
	"[ARGUMENT...]\n"
	"Starts PROGRAM several times on this machine, as a group: weir_group_join() without a "
	"name joins\n"
	"it. Each line of output gets the rank of its process; process 0 has the standard input.\n"
	"\n",
    .tail =
	"\n"
	"Exit codes: 0 all processes return 0; else that of the first process that fails, 128 + N "
	"if signal\n"
	"N ends it; 1 failure of weir-run, 2 usage, 126 and 127 PROGRAM cannot be started.\n",
};

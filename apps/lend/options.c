/* SPDX-License-Identifier: BSD-3-Clause */
#include "lend.h"

#define AT(field) OPTION_FIELD(struct lend_options, field)

static const struct option_spec specs[] = {
    {"bytes", 0, OPTION_SIZE, AT(bytes), "N[K|M|G]", NULL,
     "memory to lend to all programs together; required", .min = 4096, .max = UINT64_C(1) << 50},
    {"help", 'h', OPTION_STOP, AT(help), NULL, NULL, "print this text"},
    {"instance", 0, OPTION_TEXT, AT(instance), "NAME", "default",
     "name of the data plane that holds the memory", .env = "WEIR_INSTANCE"},
    {"version", 0, OPTION_STOP, AT(version), NULL, NULL, "print the version"},
};

const struct option_table lend_option_table = {
    OPTION_SPECS(specs, struct lend_options),
    .head =
	"Usage: weir-lend --bytes N [options]\n"
	"Lends memory of this node to programs of any node (weir_remote_alloc()), until SIGTERM "
	"or\n"
	"SIGINT. The data plane's --memory limits it like any program.\n"
	"\n",
    .tail = "\n"
	    "Exit codes: 0 stopped, 1 failure, 2 usage.\n",
};

/* SPDX-License-Identifier: BSD-3-Clause */
#include "weirctl.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) OPTION_FIELD(struct weirctl_options, field)

static const struct option_spec specs[] = {
    {"count", 0, OPTION_UNSIGNED, AT(count), "N", NULL, "top ends after this number of views",
     .min = 1, .max = UINT64_MAX, .expected = "a number of views from 1 on"},
    {"help", 'h', OPTION_FLAG, AT(help), NULL, NULL, "print this text; with a command, its help"},
    {"instance", 0, OPTION_TEXT, AT(instance), "NAME", "default", "name of the data plane to query",
     .env = "WEIR_INSTANCE"},
    {"interval", 0, OPTION_REAL, AT(interval), "S", "2", "time between two views of top",
     .least = 0.1, .most = 1e6, .expected = "seconds, 0.1 or more"},
    {"json", 0, OPTION_FLAG, AT(json), NULL, NULL, "JSON instead of a table"},
    {"packets", 0, OPTION_UNSIGNED, AT(packets), "N", NULL,
     "capture ends after this number of frames", .min = 1, .max = UINT64_MAX,
     .expected = "a number of frames from 1 on"},
    {"reason", 0, OPTION_TEXT, AT(reason), "TEXT", NULL, "text that evict passes to the program"},
    {"seconds", 0, OPTION_REAL, AT(seconds), "S", NULL,
     "capture ends after this time; fractions are allowed", .least = 1e-6, .most = 1e6,
     .expected = "seconds, more than 0"},
    {"timeout", 0, OPTION_REAL, AT(timeout), "S", "30",
     "limit of wait and drain (drain: no limit by default); fractions are allowed", .most = 1e6,
     .expected = "seconds, 0 or more", .given = offsetof(struct weirctl_options, timed)},
    {"version", 0, OPTION_STOP, AT(version), NULL, NULL, "print the version"},
};

const struct option_table weirctl_option_table = {
    OPTION_SPECS(specs, struct weirctl_options),
    .operands = UINT_MAX,
    .tail =
	"Options of pki: --address, --cluster, --days, --force; see weirctl pki --help\n"
	"\n"
	"Without a command, weirctl reads commands from standard input, one per line. A terminal "
	"gets\n"
	"a prompt with completion (tab) and history.\n"
	"Exit codes: 0 ok, 1 failure, 2 usage, 3 resource or permission, 4 timeout.\n",
};

#undef AT
#define AT(field) OPTION_FIELD(struct pki_options, field)

static const struct option_spec pki_specs[] = {
    {"address", 0, OPTION_TEXT, AT(addresses), "A[,A...]", NULL,
     "IP addresses and host names in the certificate, for clients other than Weir"},
    {"cluster", 0, OPTION_TEXT, AT(cluster), "NAME", NULL,
     "the same as weir-control's [default]; a node has the cluster of its CA"},
    {"days", 0, OPTION_UNSIGNED, AT(days), "N", NULL,
     "validity of the certificate [3650, nodes 365]", .min = 1, .max = 36500,
     .expected = "a number of days from 1 to 36500"},
    {"force", 0, OPTION_FLAG, AT(force), NULL, NULL, "overwrite existing files"},
    {"help", 0, OPTION_STOP, AT(help), NULL, NULL, "print this text"},
};

const struct option_table pki_option_table = {
    OPTION_SPECS(pki_specs, struct pki_options),
    .operands = UINT_MAX,
    .remedy = "see weirctl pki --help",
    .head =
	"Usage: weirctl pki DIR ca [--cluster NAME] [--days N] [--force]\n"
	"       weirctl pki DIR node ID|any [--address A[,A...]] [--days N] [--force]\n"
	"Creates a CA and certificates for weir-control --tls.\n"
	"\n"
	"  ca             creates DIR/ca.pem and DIR/ca.key; anybody with ca.key can add members\n"
	"  node ID        creates DIR/node-ID with ca.pem, node.pem and node.key for that node\n"
	"  node any       creates a certificate for any node of the cluster\n"
	"\n",
};

int
weirctl_parse(struct weirctl_options *o, int argc, char **argv, char ***words, int *count)
{
	const char *env = getenv("WEIR_INSTANCE");
	char error[512];

	*words = argv + 1;
	*count = argc - 1;
	if (option_parse(&weirctl_option_table, o, count, *words, error, sizeof(error)))
		return weirctl_fail(WEIRCTL_USAGE, "%s", error);
	if (!*o->instance || strchr(o->instance, '/') || o->instance[0] == '.') {
		option_invalid(o->instance == env ? "$WEIR_INSTANCE" : "--instance", o->instance,
			       "a name without '/' and a dot at its beginning", error,
			       sizeof(error));
		return weirctl_fail(WEIRCTL_USAGE, "%s", error);
	}
	if (o->version) {
		puts("weirctl " WEIR_VERSION);
		return WEIRCTL_OK;
	}
	return -1;
}

int
pki_parse(struct pki_options *p, int argc, char **argv, char ***words, int *count)
{
	char error[512];

	*words = argv + 1;
	*count = argc - 1;
	if (option_defaults(&pki_option_table, p, error, sizeof(error)) ||
	    option_parse(&pki_option_table, p, count, *words, error, sizeof(error)))
		return weirctl_fail(WEIRCTL_USAGE, "%s", error);
	if (p->help) {
		option_print_help(&pki_option_table, stdout);
		return WEIRCTL_OK;
	}
	return -1;
}

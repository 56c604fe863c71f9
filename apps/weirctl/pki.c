/* SPDX-License-Identifier: BSD-3-Clause */
/* weirctl pki DIR ca|node ID|any: certificates for weir-control's --tls. Asks no data plane. */
#include "weirctl.h"

#include "pki/pki.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DAY 86400
#define CLOCKS_DIFFER 300 /* s by which other hosts' clocks may be behind this one's */
#define CLUSTER_MAX 31
#define NODE_MAX 65534
#define DAYS_MAX 36500

static const char help[] =
    "Usage: weirctl pki DIR ca [--cluster NAME] [--days N] [--force]\n"
    "       weirctl pki DIR node ID|any [--address A[,A...]] [--days N] [--force]\n"
    "A CA and certificates for weir-control --tls, to begin with.\n"
    "\n"
    "  ca             makes DIR/ca.pem and DIR/ca.key; the owner of ca.key can add members\n"
    "  node ID        makes DIR/node-ID with ca.pem, node.pem and node.key, for that node\n"
    "  node any       for any node of the cluster\n"
    "\n"
    "  --address A    IP addresses and host names in the certificate, for programs other than "
    "Weir\n"
    "  --cluster NAME as for weir-control (default \"default\"); nodes belong to their CA's\n"
    "                 cluster\n"
    "  --days N       days of validity (default 3650, nodes 365)\n"
    "  --force        overwrite existing files\n";

struct pki_options {
	const char *cluster, *addresses;
	unsigned long days; /* 0: as usual */
	bool force;
};

static bool
cluster_ok(const char *name)
{
	size_t n = strlen(name);

	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)name[i]) && !strchr("_-.", name[i]))
			return false;
	return n > 0 && n <= CLUSTER_MAX && name[0] != '.';
}

static bool
node_ok(const char *text, uint32_t *node)
{
	unsigned long n;
	char *end;

	if (!strcmp(text, "any")) {
		*node = PKI_ANY_NODE;
		return true;
	}
	errno = 0;
	n = strtoul(text, &end, 10);
	*node = (uint32_t)n;
	return isdigit((unsigned char)*text) && !*end && !errno && n <= NODE_MAX;
}

static int
report(int status, const char *error)
{
	if (!status)
		return WEIRCTL_OK;
	return weirctl_fail(
	    status == -EINVAL || status == -EEXIST ? WEIRCTL_USAGE : WEIRCTL_RESOURCE, "%s", error);
}

static int
make_ca(const struct pki_options *p, const char *dir, struct pki_order *order)
{
	char error[640];
	int status;

	order->cluster = p->cluster ? p->cluster : "default";
	if (!cluster_ok(order->cluster))
		return weirctl_fail(WEIRCTL_USAGE,
				    "invalid value '%s' for --cluster (expected up to 31 letters, "
				    "digits, '_', '-', '.')",
				    order->cluster);
	status = pki_make_ca(dir, order, error, sizeof(error));
	if (!status)
		printf("%s: CA of cluster '%s'; keep ca.key to yourself\n", dir, order->cluster);
	return report(status, error);
}

static int
issue(const struct pki_options *p, const char *dir, const char *node, struct pki_order *order)
{
	char error[640], into[480];
	int status;

	if (p->cluster)
		return weirctl_fail(WEIRCTL_USAGE,
				    "--cluster is the CA's; leave it out, or make another CA");
	if (!node_ok(node, &order->node))
		return weirctl_fail(WEIRCTL_USAGE, "invalid node '%s' (expected 0 to %d, or any)",
				    node, NODE_MAX);
	if (snprintf(into, sizeof(into), "%s/node-%s", dir, node) >= (int)sizeof(into))
		return weirctl_fail(WEIRCTL_USAGE, "the path is too long; give a shorter one");
	status = pki_issue(dir, into, order, error, sizeof(error));
	if (!status)
		printf("%s: copy it to that node, give it to weir-control with --tls\n", into);
	return report(status, error);
}

static int
run(const struct pki_options *p, int argc, char **argv)
{
	bool ca = argc == 2 && !strcmp(argv[1], "ca");
	struct pki_order order = {.addresses = p->addresses, .force = p->force};

	if (!ca && (argc != 3 || strcmp(argv[1], "node")))
		return weirctl_fail(WEIRCTL_USAGE,
				    "give 'pki DIR ca' or 'pki DIR node ID|any'; see weirctl pki "
				    "--help");
	if (ca && p->addresses)
		return weirctl_fail(WEIRCTL_USAGE, "--address is for 'pki DIR node'; leave it out");
	order.from = time(NULL) - CLOCKS_DIFFER;
	order.until = time(NULL) + (time_t)(p->days ? p->days : ca ? 3650u : 365u) * DAY;
	return ca ? make_ca(p, argv[0], &order) : issue(p, argv[0], argv[2], &order);
}

static bool
days_ok(const char *text, unsigned long *days)
{
	char *end;

	errno = 0;
	*days = strtoul(text, &end, 10);
	return isdigit((unsigned char)*text) && !*end && !errno && *days && *days <= DAYS_MAX;
}

// -1: go on.
static int
parse(int argc, char **argv, struct pki_options *p)
{
	static const struct option long_options[] = {
	    {"address", required_argument, NULL, 'a'}, {"cluster", required_argument, NULL, 'c'},
	    {"days", required_argument, NULL, 'd'},    {"force", no_argument, NULL, 'f'},
	    {"help", no_argument, NULL, 'h'},	       {0},
	};
	int id;

	opterr = 0;
	optind = 0; // a prompt may come here again
	while ((id = getopt_long(argc, argv, ":", long_options, NULL)) != -1) {
		if (id == 'a') {
			p->addresses = optarg;
		} else if (id == 'c') {
			p->cluster = optarg;
		} else if (id == 'f') {
			p->force = true;
		} else if (id == 'h') {
			fputs(help, stdout);
			return WEIRCTL_OK;
		} else if (id == 'd') {
			if (!days_ok(optarg, &p->days))
				return weirctl_fail(
				    WEIRCTL_USAGE,
				    "invalid value '%s' for --days (expected 1 to %d)", optarg,
				    DAYS_MAX);
		} else {
			return weirctl_fail(WEIRCTL_USAGE,
					    id == ':' ? "%s needs a value; see weirctl pki --help"
						      : "unknown option '%s'; see weirctl pki "
							"--help",
					    argv[optind - 1]);
		}
	}
	return -1;
}

int
pki(int argc, char **argv)
{
	struct pki_options p = {0};
	int status = parse(argc, argv, &p);

	return status < 0 ? run(&p, argc - optind, argv + optind) : status;
}

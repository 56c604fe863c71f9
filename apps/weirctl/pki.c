/* SPDX-License-Identifier: BSD-3-Clause */
/* weirctl pki DIR ca|node ID|any: certificates for weir-control's --tls. Asks no data plane. */
#include "weirctl.h"

#include "pki/pki.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DAY 86400
#define CLOCKS_DIFFER 300 /* s by which other hosts' clocks may be behind this one's */
#define CLUSTER_MAX 31
#define NODE_MAX 65534

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
	if (!cluster_ok(order->cluster)) {
		option_invalid("--cluster", order->cluster,
			       "up to 31 letters, digits, '_', '-', '.'", error, sizeof(error));
		return report(-EINVAL, error);
	}
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

int
pki(int argc, char **argv)
{
	struct pki_options p;
	char **words;
	int count, status = pki_parse(&p, argc, argv, &words, &count);

	return status < 0 ? run(&p, count, words) : status;
}

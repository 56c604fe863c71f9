/* SPDX-License-Identifier: BSD-3-Clause */
/* weirctl pki DIR ca|node ID|any: certificates for weir-control's --tls. Asks no data plane. */
#include "weirctl.h"

#include "pki/pki.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define DAY 86400
#define CLOCKS_DIFFER 300 /* s by which other hosts' clocks may be behind this one's */
#define CLUSTER_MAX 31
#define NODE_MAX 65534

int
pki(int argc, char **argv)
{
	struct pki_options p;
	struct pki_order order;
	char **words, error[640], into[480];
	const char *dir, *name, *node;
	uint64_t number = PKI_ANY_NODE;
	int count, status = pki_parse(&p, argc, argv, &words, &count);
	bool ca = count == 2 && !strcmp(words[1], "ca");

	if (status >= 0)
		return status;
	if (!ca && (count != 3 || strcmp(words[1], "node")))
		return weirctl_fail(WEIRCTL_USAGE,
				    "give 'pki DIR ca' or 'pki DIR node ID|any'; see weirctl pki "
				    "--help");
	if (ca && p.addresses)
		return weirctl_fail(WEIRCTL_USAGE, "--address is for 'pki DIR node'; leave it out");
	order = (struct pki_order){.addresses = p.addresses, .force = p.force};
	order.from = time(NULL) - CLOCKS_DIFFER;
	order.until = time(NULL) + (time_t)(p.days ? p.days : ca ? 3650u : 365u) * DAY;
	dir = words[0];
	if (ca) {
		order.cluster = name = p.cluster ? p.cluster : "default";
		if (!*name || *name == '.' || strlen(name) > CLUSTER_MAX ||
		    strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				 "_-.") != strlen(name)) {
			option_invalid("--cluster", name, "up to 31 letters, digits, '_', '-', '.'",
				       error, sizeof(error));
			return weirctl_fail(WEIRCTL_USAGE, "%s", error);
		}
		status = pki_make_ca(dir, &order, error, sizeof(error));
		if (!status)
			printf("%s: CA of cluster '%s'; keep ca.key secret\n", dir, name);
	} else {
		node = words[2];
		if (p.cluster)
			return weirctl_fail(
			    WEIRCTL_USAGE,
			    "--cluster is the CA's; leave it out, or make another CA");
		if (strcmp(node, "any") && option_number(node, false, 0, NODE_MAX, &number))
			return weirctl_fail(WEIRCTL_USAGE,
					    "invalid node '%s' (expected 0 to %d, or any)", node,
					    NODE_MAX);
		order.node = (uint32_t)number;
		if (snprintf(into, sizeof(into), "%s/node-%s", dir, node) >= (int)sizeof(into))
			return weirctl_fail(WEIRCTL_USAGE,
					    "the path is too long; give a shorter one");
		status = pki_issue(dir, into, &order, error, sizeof(error));
		if (!status)
			printf("%s: copy it to that node and pass it to weir-control --tls\n",
			       into);
	}
	return status ? weirctl_fail(status == -EINVAL || status == -EEXIST ? WEIRCTL_USAGE
									    : WEIRCTL_RESOURCE,
				     "%s", error)
		      : WEIRCTL_OK;
}

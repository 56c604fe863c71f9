/* SPDX-License-Identifier: BSD-3-Clause */
/* The argument of --nic. */
#include "options.h"

#include "base/fail.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROCE = 1, VERBS = 2, BOTH = 3 };

struct nic_key {
	unsigned drivers; /* that know the key */
	struct option_spec spec;
};

#define AT(field) OPTION_FIELD(struct nic_spec, field)
#define PERCENT "percent from 0 to 100"

static const struct nic_key keys[] = {
    {ROCE, {"delay", 0, OPTION_UNSIGNED, AT(delay_us), "N", NULL, NULL, .max = 1000000}},
    {ROCE,
     {"dup", 0, OPTION_REAL, AT(dup), "PERCENT", NULL, NULL, .most = 100, .expected = PERCENT}},
    {BOTH, {"fault", 0, OPTION_UNSIGNED, AT(fault_ms), "N", NULL, NULL, .min = 10, .max = 3600000}},
    {VERBS, {"gid", 0, OPTION_UNSIGNED, AT(gid_index), "N", NULL, NULL, .max = 65535}},
    {ROCE,
     {"loss", 0, OPTION_REAL, AT(loss), "PERCENT", NULL, NULL, .most = 100, .expected = PERCENT}},
    {BOTH, {"mtu", 0, OPTION_UNSIGNED, AT(mtu), "N", NULL, NULL, .min = 256, .max = 4096}},
    {ROCE, {"pcp", 0, OPTION_UNSIGNED, AT(pcp), "N", NULL, NULL, .max = 7}},
    {VERBS, {"port", 0, OPTION_UNSIGNED, AT(port_number), "N", NULL, NULL, .min = 1, .max = 254}},
    {ROCE, {"queues", 0, OPTION_UNSIGNED, AT(queues), "N", NULL, NULL, .min = 1, .max = 32}},
    {BOTH, {"rd_atomic", 0, OPTION_UNSIGNED, AT(rd_atomic), "N", NULL, NULL, .min = 1, .max = 128}},
    {ROCE,
     {"reorder", 0, OPTION_REAL, AT(reorder), "PERCENT", NULL, NULL, .most = 100,
      .expected = PERCENT}},
    {BOTH, {"retry", 0, OPTION_UNSIGNED, AT(retry), "N", NULL, NULL, .min = 1, .max = 7}},
    {BOTH, {"rnr", 0, OPTION_UNSIGNED, AT(rnr), "N", NULL, NULL, .min = 1, .max = 7}},
    {ROCE, {"seed", 0, OPTION_UNSIGNED, AT(seed), "N", NULL, NULL, .max = UINT64_MAX}},
    {BOTH,
     {"timeout", 0, OPTION_UNSIGNED, AT(timeout_ns), "N", NULL, NULL, .min = 100, .max = 60000000}},
    {ROCE, {"vlan", 0, OPTION_UNSIGNED, AT(vlan), "N", NULL, NULL, .min = 1, .max = 4094}},
};
#define KEYS (sizeof(keys) / sizeof(keys[0]))

static int
parse_address(struct nic_spec *spec, const char *value)
{
	char address[INET6_ADDRSTRLEN];
	const char *slash = strchr(value, '/');
	size_t length = slash ? (size_t)(slash - value) : 0;
	bool six = strchr(value, ':') != NULL;
	uint8_t *raw = spec->gid.raw;
	char *end;
	unsigned long prefix;

	if (length == 0 || length >= sizeof(address) || slash[1] < '0' || slash[1] > '9')
		return -EINVAL;
	memcpy(address, value, length);
	address[length] = '\0';
	prefix = strtoul(slash + 1, &end, 10);
	if (*end || prefix < 1 || prefix > (six ? 128 : 32))
		return -EINVAL;
	spec->prefix = (uint8_t)prefix;
	if (six) { /* multicast and ::/64 (IPv4, loopback) are refused */
		static const uint8_t zero[8];

		return inet_pton(AF_INET6, address, raw) == 1 && raw[0] != 0xff &&
			       memcmp(raw, zero, sizeof(zero))
			   ? 0
			   : -EINVAL;
	}
	memset(raw, 0, 10);
	memset(raw + 10, 0xff, 2);
	/* neither 0.x, loopback, multicast nor broadcast is the address of a NIC */
	if (inet_pton(AF_INET, address, raw + 12) != 1 || raw[12] == 0 || raw[12] == 127 ||
	    raw[12] >= 224)
		return -EINVAL;
	return 0;
}

static int
parse_key(struct nic_spec *spec, const char *name, const char *value, char *error, size_t size)
{
	if (strcmp(name, "ip") == 0) {
		if (parse_address(spec, value))
			return option_invalid("ip= of --nic", value,
					      "a unicast address with its prefix length, such as "
					      "10.0.0.1/24 or fd00::1/64",
					      error, size);
		return 0;
	}
	if (spec->verbs && strcmp(name, "transport") == 0) {
		if (strcmp(value, "rc") == 0)
			return 0;
		return fail(error, size, -EINVAL,
			    "--nic: transport=%s is not offered (%s); give transport=rc or leave "
			    "it out",
			    value, strcmp(value, "uc") == 0 ? "UC has no SRQ" : "links are RC");
	}
	for (size_t i = 0; i < KEYS; i++) {
		char from[32];

		if (strcmp(keys[i].spec.name, name) ||
		    !(keys[i].drivers & (spec->verbs ? VERBS : ROCE)))
			continue;
		snprintf(from, sizeof(from), "%s= of --nic", name);
		return option_store(&keys[i].spec, spec, from, value, error, size);
	}
	return fail(error, size, -EINVAL, "--nic: unknown key '%s'; see --help", name);
}

int
options_parse_nic(struct nic_spec *spec, const char *text, char *error, size_t size)
{
	char copy[512], *rest = copy, *word;

	memset(spec, 0, sizeof(*spec));
	spec->seed = 1;
	spec->gid_index = -1;
	spec->verbs = strncmp(text, "verbs:", 6) == 0;
	if ((!spec->verbs && strncmp(text, "roce:", 5) != 0) || strlen(text) >= sizeof(copy))
		return fail(error, size, -EINVAL,
			    "invalid value '%.64s' for --nic (expected roce:PORT,ip=ADDR/LEN[,...] "
			    "or verbs:DEVICE[,...])",
			    text);
	snprintf(copy, sizeof(copy), "%s", strchr(text, ':') + 1);
	word = strsep(&rest, ",");
	if (!*word || strchr(word, '=') || strlen(word) >= sizeof(spec->port))
		return fail(error, size, -EINVAL, "--nic %s names no %s; give %s", text,
			    spec->verbs ? "device" : "port",
			    spec->verbs ? "verbs:DEVICE, see rdma link" : "roce:PORT,ip=ADDR/LEN");
	snprintf(spec->port, sizeof(spec->port), "%s", word);
	while ((word = strsep(&rest, ","))) {
		char *equals = strchr(word, '=');

		if (!equals)
			return fail(error, size, -EINVAL, "--nic: '%s' has no value; give %s=VALUE",
				    word, word);
		*equals = '\0';
		if (parse_key(spec, word, equals + 1, error, size))
			return -EINVAL;
	}
	spec->timeout_ns *= 1000; /* the key is in us */
	if (!spec->verbs && !spec->prefix)
		return fail(error, size, -EINVAL, "--nic roce:%s has no address; add ip=ADDR/LEN",
			    spec->port);
	if (spec->pcp && !spec->vlan)
		return fail(error, size, -EINVAL,
			    "--nic: pcp=%u is the priority in a VLAN tag; add vlan=ID", spec->pcp);
	if (spec->mtu & (spec->mtu - 1))
		return fail(error, size, -EINVAL,
			    "invalid value '%u' for mtu= of --nic (expected 256, 512, 1024, 2048 "
			    "or 4096)",
			    spec->mtu);
	return 0;
}

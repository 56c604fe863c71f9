/* SPDX-License-Identifier: BSD-3-Clause */
/* The argument of --nic. */
#include "options.h"

#include "base/fail.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum nic_kind {
	NIC_KIND_U8,
	NIC_KIND_U16,
	NIC_KIND_U32,
	NIC_KIND_U64,
	NIC_KIND_USEC,
	NIC_KIND_PERCENT
};

enum { ROCE = 1, VERBS = 2, BOTH = 3 };

struct nic_key {
	const char *name;
	unsigned drivers; /* which know it */
	enum nic_kind kind;
	size_t offset;
	uint64_t min, max;
};

#define AT(field) offsetof(struct nic_spec, field)

static const struct nic_key keys[] = {
    {"delay", ROCE, NIC_KIND_U32, AT(delay_us), 0, 1000000},
    {"dup", ROCE, NIC_KIND_PERCENT, AT(dup), 0, 100},
    {"fault", BOTH, NIC_KIND_U32, AT(fault_ms), 10, 3600000},
    {"gid", VERBS, NIC_KIND_U32, AT(gid_index), 0, 65535},
    {"loss", ROCE, NIC_KIND_PERCENT, AT(loss), 0, 100},
    {"mtu", BOTH, NIC_KIND_U16, AT(mtu), 256, 4096},
    {"pcp", ROCE, NIC_KIND_U8, AT(pcp), 0, 7},
    {"port", VERBS, NIC_KIND_U8, AT(port_number), 1, 254},
    {"queues", ROCE, NIC_KIND_U16, AT(queues), 1, 32},
    {"rd_atomic", BOTH, NIC_KIND_U8, AT(rd_atomic), 1, 128},
    {"reorder", ROCE, NIC_KIND_PERCENT, AT(reorder), 0, 100},
    {"retry", BOTH, NIC_KIND_U8, AT(retry), 1, 7},
    {"rnr", BOTH, NIC_KIND_U8, AT(rnr), 1, 7},
    {"seed", ROCE, NIC_KIND_U64, AT(seed), 0, UINT64_MAX},
    {"timeout", BOTH, NIC_KIND_USEC, AT(timeout_ns), 100, 60000000},
    {"vlan", ROCE, NIC_KIND_U16, AT(vlan), 1, 4094},
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
	if (six) { /* neither multicast nor in ::/64, where IPv4 and loopback are */
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
store_number(struct nic_spec *spec, const struct nic_key *key, const char *value)
{
	void *field = (char *)spec + key->offset;
	unsigned long long n;
	char *end;

	if (*value < '0' || *value > '9')
		return -EINVAL;
	errno = 0;
	n = strtoull(value, &end, 10);
	if (errno || *end || n < key->min || n > key->max)
		return -EINVAL;
	switch (key->kind) {
	case NIC_KIND_U8:
		*(uint8_t *)field = (uint8_t)n;
		break;
	case NIC_KIND_U16:
		*(uint16_t *)field = (uint16_t)n;
		break;
	case NIC_KIND_U32:
		*(uint32_t *)field = (uint32_t)n;
		break;
	case NIC_KIND_USEC:
		*(uint64_t *)field = n * 1000;
		break;
	default:
		*(uint64_t *)field = n;
	}
	return 0;
}

static int
store_percent(struct nic_spec *spec, const struct nic_key *key, const char *value)
{
	char *end;
	double v;

	if ((*value < '0' || *value > '9') && *value != '.')
		return -EINVAL;
	v = strtod(value, &end);
	if (*end || !(v >= 0 && v <= 100))
		return -EINVAL;
	*(double *)((char *)spec + key->offset) = v;
	return 0;
}

static int
parse_key(struct nic_spec *spec, const char *name, const char *value, char *error, size_t size)
{
	if (strcmp(name, "ip") == 0) {
		if (parse_address(spec, value))
			return fail(
			    error, size, -EINVAL,
			    "--nic: ip=%s is no unicast address with its prefix length; give "
			    "ip=10.0.0.1/24 or ip=fd00::1/64",
			    value);
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
		if (strcmp(keys[i].name, name) || !(keys[i].drivers & (spec->verbs ? VERBS : ROCE)))
			continue;
		if (keys[i].kind == NIC_KIND_PERCENT ? store_percent(spec, &keys[i], value)
						     : store_number(spec, &keys[i], value))
			return fail(
			    error, size, -EINVAL,
			    "--nic: %s=%s is not good; give %s from %llu to %llu", name, value,
			    keys[i].kind == NIC_KIND_PERCENT ? "percent" : "a number",
			    (unsigned long long)keys[i].min, (unsigned long long)keys[i].max);
		return 0;
	}
	return fail(error, size, -EINVAL, "--nic: unknown key '%s'; see --help", name);
}

static int
check_spec(const struct nic_spec *spec, char *error, size_t size)
{
	if (!spec->verbs && !spec->prefix)
		return fail(error, size, -EINVAL, "--nic roce:%s has no address; add ip=ADDR/LEN",
			    spec->port);
	if (spec->pcp && !spec->vlan)
		return fail(error, size, -EINVAL,
			    "--nic: pcp=%u is the priority in a VLAN tag; add vlan=ID", spec->pcp);
	if (spec->mtu & (spec->mtu - 1))
		return fail(error, size, -EINVAL,
			    "--nic: mtu=%u is no path MTU; give 256, 512, 1024, 2048 or 4096",
			    spec->mtu);
	return 0;
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
			    "--nic %.64s is no SPEC; give roce:PORT,ip=ADDR/LEN or verbs:DEVICE",
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
	return check_spec(spec, error, size);
}

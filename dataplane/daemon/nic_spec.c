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

#define DSCP_LOW 8u   /* CS1: less than best effort */
#define DSCP_HIGH 26u /* AF31: as RoCE traffic is marked most often */
#define LEVEL_UNSET 255

struct nic_key {
	unsigned drivers; /* that know the key */
	struct option_spec spec;
	const char *live; /* meaning of a key that may change while the port runs, else NULL */
};

#define AT(field) OPTION_FIELD(struct nic_spec, field)
#define PERCENT "percent from 0 to 100"

static const struct nic_key keys[] = {
    {ROCE,
     {"corrupt", 0, OPTION_REAL, AT(impair.corrupt), "PERCENT", NULL, NULL, .most = 100,
      .expected = PERCENT},
     "percent of sent frames that get a wrong bit"},
    {ROCE,
     {"delay", 0, OPTION_UNSIGNED, AT(impair.delay_us), "N", NULL, NULL, .max = 1000000},
     "us by which each sent frame is delayed"},
    {BOTH, {"dscp", 0, OPTION_UNSIGNED, AT(dscp[WEIR_CLASS_NORMAL]), "N", NULL, NULL, .max = 63}},
    {BOTH,
     {"dscp_high", 0, OPTION_UNSIGNED, AT(dscp[WEIR_CLASS_HIGH]), "N", NULL, NULL, .max = 63}},
    {BOTH, {"dscp_low", 0, OPTION_UNSIGNED, AT(dscp[WEIR_CLASS_LOW]), "N", NULL, NULL, .max = 63}},
    {ROCE,
     {"dup", 0, OPTION_REAL, AT(impair.dup), "PERCENT", NULL, NULL, .most = 100,
      .expected = PERCENT},
     "percent of frames that are sent twice"},
    {BOTH, {"fault", 0, OPTION_UNSIGNED, AT(fault_ms), "N", NULL, NULL, .min = 10, .max = 3600000}},
    {VERBS, {"gid", 0, OPTION_UNSIGNED, AT(gid_index), "N", NULL, NULL, .max = 65535}},
    {ROCE,
     {"jitter", 0, OPTION_UNSIGNED, AT(impair.jitter_us), "N", NULL, NULL, .max = 1000000},
     "us of further delay, at random from 0 to this"},
    {ROCE,
     {"loss", 0, OPTION_REAL, AT(impair.loss), "PERCENT", NULL, NULL, .most = 100,
      .expected = PERCENT},
     "percent of sent frames that are lost"},
    {BOTH, {"mtu", 0, OPTION_UNSIGNED, AT(mtu), "N", NULL, NULL, .min = 256, .max = 4096}},
    {ROCE, {"pcp", 0, OPTION_UNSIGNED, AT(pcp), "N", NULL, NULL, .max = 7}},
    {ROCE, {"pcp_high", 0, OPTION_UNSIGNED, AT(level[WEIR_CLASS_HIGH]), "N", NULL, NULL, .max = 7}},
    {ROCE, {"pcp_low", 0, OPTION_UNSIGNED, AT(level[WEIR_CLASS_LOW]), "N", NULL, NULL, .max = 7}},
    {VERBS, {"port", 0, OPTION_UNSIGNED, AT(port_number), "N", NULL, NULL, .min = 1, .max = 254}},
    {ROCE, {"queues", 0, OPTION_UNSIGNED, AT(queues), "N", NULL, NULL, .min = 1, .max = 32}},
    {ROCE,
     {"rate", 0, OPTION_REAL, AT(impair.rate), "MBITS", NULL, NULL, .most = 1e6,
      .expected = "Mbit/s up to 1000000, 0: no limit"},
     "Mbit/s that each engine sends at most, 0: no limit"},
    {BOTH, {"rd_atomic", 0, OPTION_UNSIGNED, AT(rd_atomic), "N", NULL, NULL, .min = 1, .max = 128}},
    {ROCE,
     {"reorder", 0, OPTION_REAL, AT(impair.reorder), "PERCENT", NULL, NULL, .most = 100,
      .expected = PERCENT},
     "percent of sent frames that later ones overtake"},
    {BOTH, {"retry", 0, OPTION_UNSIGNED, AT(retry), "N", NULL, NULL, .min = 1, .max = 7}},
    {BOTH, {"rnr", 0, OPTION_UNSIGNED, AT(rnr), "N", NULL, NULL, .min = 1, .max = 7}},
    {ROCE, {"seed", 0, OPTION_UNSIGNED, AT(impair.seed), "N", NULL, NULL, .max = UINT64_MAX}},
    {VERBS, {"sl", 0, OPTION_UNSIGNED, AT(level[WEIR_CLASS_NORMAL]), "N", NULL, NULL, .max = 15}},
    {VERBS,
     {"sl_high", 0, OPTION_UNSIGNED, AT(level[WEIR_CLASS_HIGH]), "N", NULL, NULL, .max = 15}},
    {VERBS, {"sl_low", 0, OPTION_UNSIGNED, AT(level[WEIR_CLASS_LOW]), "N", NULL, NULL, .max = 15}},
    {BOTH,
     {"timeout", 0, OPTION_UNSIGNED, AT(timeout_ns), "N", NULL, NULL, .min = 100, .max = 60000000}},
    {ROCE, {"vlan", 0, OPTION_UNSIGNED, AT(vlan), "N", NULL, NULL, .min = 1, .max = 4094}},
};
#define KEYS (sizeof(keys) / sizeof(keys[0]))

/* A unicast address: 4 or 6, its kind; or -EINVAL. */
static int
parse_gid(const char *text, struct nic_gid *gid)
{
	static const uint8_t zero[8];
	uint8_t *raw = gid->raw;

	if (strchr(text, ':')) /* multicast and ::/64 (IPv4, loopback) are refused */
		return inet_pton(AF_INET6, text, raw) == 1 && raw[0] != 0xff &&
			       memcmp(raw, zero, sizeof(zero))
			   ? 6
			   : -EINVAL;
	memset(raw, 0, 10);
	memset(raw + 10, 0xff, 2);
	/* neither 0.x, loopback, multicast nor broadcast is the address of a NIC */
	return inet_pton(AF_INET, text, raw + 12) == 1 && raw[12] && raw[12] != 127 && raw[12] < 224
		   ? 4
		   : -EINVAL;
}

/* "ADDR/LEN" up to `end`: the text in front of the slash, and LEN. 0 or -EINVAL. */
static int
split_prefix(const char *value, char address[INET6_ADDRSTRLEN], unsigned long least,
	     unsigned long *prefix)
{
	const char *slash = strchr(value, '/');
	size_t length = slash ? (size_t)(slash - value) : 0;
	char *end;

	if (length == 0 || length >= INET6_ADDRSTRLEN || slash[1] < '0' || slash[1] > '9')
		return -EINVAL;
	memcpy(address, value, length);
	address[length] = '\0';
	*prefix = strtoul(slash + 1, &end, 10);
	return *end || *prefix < least || *prefix > (strchr(address, ':') ? 128 : 32) ? -EINVAL : 0;
}

/* NET/LEN@GATEWAY, or a gateway alone to everywhere. 0 or -EINVAL. */
static int
parse_route(struct nic_spec *spec, const char *value, bool everywhere)
{
	const char *at = everywhere ? value - 1 : strchr(value, '@');
	struct nic_route *r = &spec->routes[spec->route_count];
	char network[INET6_ADDRSTRLEN + 8], address[INET6_ADDRSTRLEN];
	unsigned long prefix = 0;
	int kind;

	if (spec->route_count == NIC_ROUTES || !at)
		return -EINVAL;
	*r = (struct nic_route){{{0}}, {{0}}, 0};
	kind = parse_gid(at + 1, &r->gateway);
	if (kind < 0)
		return -EINVAL;
	if (everywhere) {
		memcpy(r->network.raw, r->gateway.raw, kind == 4 ? 12 : 0);
	} else {
		if ((size_t)(at - value) >= sizeof(network))
			return -EINVAL;
		snprintf(network, sizeof(network), "%.*s", (int)(at - value), value);
		/* a network may end in zeros, as no address does */
		if (split_prefix(network, address, 0, &prefix) ||
		    (strchr(address, ':') != NULL) != (kind == 6))
			return -EINVAL;
		memcpy(r->network.raw, r->gateway.raw, kind == 4 ? 12 : 0);
		if (inet_pton(kind == 4 ? AF_INET : AF_INET6, address,
			      r->network.raw + (kind == 4 ? 12 : 0)) != 1)
			return -EINVAL;
	}
	r->bits = (uint8_t)(prefix + (kind == 4 ? 96 : 0));
	spec->route_count++;
	return 0;
}

static int
parse_key(struct nic_spec *spec, const char *name, const char *value, char *error, size_t size)
{
	char address[INET6_ADDRSTRLEN];
	unsigned long prefix;

	if (strcmp(name, "ip") == 0) {
		if (split_prefix(value, address, 1, &prefix) || parse_gid(address, &spec->gid) < 0)
			return option_invalid("ip= of --nic", value,
					      "a unicast address with its prefix length, such as "
					      "10.0.0.1/24 or fd00::1/64",
					      error, size);
		spec->prefix = (uint8_t)prefix;
		return 0;
	}
	if (!spec->verbs && (!strcmp(name, "gw") || !strcmp(name, "route"))) {
		bool everywhere = name[0] == 'g';

		if (parse_route(spec, value, everywhere))
			return option_invalid(everywhere ? "gw= of --nic" : "route= of --nic",
					      value,
					      everywhere ? "the address of a gateway"
							 : "NET/LEN@GATEWAY, at most 8 of them",
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
options_set_impairment(struct nic_spec *spec, const char *from, const char *key, const char *value,
		       char *error, size_t size)
{
	for (size_t i = 0; i < KEYS; i++)
		if (keys[i].live && !strcmp(keys[i].spec.name, key))
			return option_store(&keys[i].spec, spec, from, value, error, size);
	return fail(error, size, -EINVAL,
		    "%s can't be set while the port runs; see weirctl show settings, or the keys "
		    "of --nic",
		    from);
}

bool
options_impairment(const struct nic_spec *spec, unsigned index, const char **key, const char **help,
		   char *value, size_t size)
{
	for (size_t i = 0; i < KEYS; i++) {
		if (!keys[i].live || index-- != 0)
			continue;
		*key = keys[i].spec.name;
		*help = keys[i].live;
		option_text(&keys[i].spec, spec, value, size);
		return true;
	}
	return false;
}

int
options_parse_nic(struct nic_spec *spec, const char *text, char *error, size_t size)
{
	char copy[512], address[INET6_ADDRSTRLEN] = "", *rest = copy, *word;
	bool four, is_ip4;

	memset(spec, 0, sizeof(*spec));
	spec->impair.seed = 1;
	spec->gid_index = -1;
	spec->dscp[WEIR_CLASS_LOW] = DSCP_LOW;
	spec->dscp[WEIR_CLASS_HIGH] = DSCP_HIGH;
	memset(spec->level, LEVEL_UNSET, sizeof(spec->level));
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
	if (!spec->vlan && !spec->verbs)
		for (unsigned i = 0; i < WEIR_CLASSES; i++)
			if (spec->level[i] != LEVEL_UNSET)
				return fail(
				    error, size, -EINVAL,
				    "--nic: pcp_low= and pcp_high= are priorities in a VLAN "
				    "tag; add vlan=ID");
	if (!spec->verbs)
		spec->level[WEIR_CLASS_NORMAL] = spec->pcp;
	else if (spec->level[WEIR_CLASS_NORMAL] == LEVEL_UNSET)
		spec->level[WEIR_CLASS_NORMAL] = 0;
	for (unsigned i = 0; i < WEIR_CLASSES; i++)
		if (spec->level[i] == LEVEL_UNSET)
			spec->level[i] = spec->level[WEIR_CLASS_NORMAL];
	/* gateways are of the port's kind, and in its network */
	four = nic_gid_same(spec->gid.raw, nic_gid_ipv4(0).raw, 96);
	for (unsigned i = 0; i < spec->route_count; i++) {
		const uint8_t *gateway = spec->routes[i].gateway.raw;

		if (nic_gid_same(gateway, spec->gid.raw, spec->prefix + (four ? 96 : 0)))
			continue;
		is_ip4 = nic_gid_same(gateway, nic_gid_ipv4(0).raw, 96);
		inet_ntop(is_ip4 ? AF_INET : AF_INET6, gateway + (is_ip4 ? 12 : 0), address,
			  sizeof(address));
		return fail(error, size, -EINVAL,
			    "--nic: gateway %s is not in the network of ip=; give one that is",
			    address);
	}
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

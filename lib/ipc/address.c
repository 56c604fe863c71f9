/* SPDX-License-Identifier: BSD-3-Clause */
/* Text form of addresses, both ways. */
#include "weir/address.h"

#include "services.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define NODE_MAX 65534u
#define LID_MAX 0xbfffu /* largest unicast LID, IBTA volume 1, 4.1.1 */

/* Reads decimal digits with a value from min to max. */
static bool
parse_number(const char **text, uint32_t min, uint32_t max, uint32_t *value)
{
	const char *p = *text;
	uint32_t v = 0;

	for (; *p >= '0' && *p <= '9'; p++) {
		v = v * 10 + (uint32_t)(*p - '0');
		if (v > max)
			return false;
	}
	if (p == *text || v < min)
		return false;
	*text = p;
	*value = v;
	return true;
}

/* Reads an IP address up to and including the character `end`. */
static bool
parse_ip(const char **text, int family, char end, uint8_t ip[16])
{
	char buf[INET6_ADDRSTRLEN];
	const char *stop = strchr(*text, end);
	size_t length = stop ? (size_t)(stop - *text) : 0;

	if (!stop || length >= sizeof(buf))
		return false;
	memcpy(buf, *text, length);
	buf[length] = '\0';
	if (inet_pton(family, buf, ip) != 1)
		return false;
	*text = stop + 1;
	return true;
}

static bool
starts(const char **text, const char *prefix)
{
	size_t n = strlen(prefix);

	if (strncmp(*text, prefix, n))
		return false;
	*text += n;
	return true;
}

/* Reads the part before ":SERVICE"; *text is then at that colon. */
static bool
parse_peer(const char **text, struct weir_address *a)
{
	if (starts(text, "node:")) {
		a->kind = WEIR_ADDRESS_NODE;
		return parse_number(text, 0, NODE_MAX, &a->id);
	}
	if (starts(text, "lid:")) {
		a->kind = WEIR_ADDRESS_LID;
		return parse_number(text, 1, LID_MAX, &a->id);
	}
	if (starts(text, "service:")) {
		a->kind = WEIR_ADDRESS_SERVICE;
		(*text)--;
		return true;
	}
	if (starts(text, "gid:[")) {
		a->kind = WEIR_ADDRESS_GID;
		return parse_ip(text, AF_INET6, ']', a->ip);
	}
	if (starts(text, "[")) {
		a->kind = WEIR_ADDRESS_IPV6;
		return parse_ip(text, AF_INET6, ']', a->ip);
	}
	a->kind = WEIR_ADDRESS_IPV4;
	if (!parse_ip(text, AF_INET, ':', a->ip))
		return false;
	(*text)--;
	return true;
}

int
weir_address_parse(const char *text, struct weir_address *address)
{
	struct weir_address a;

	memset(&a, 0, sizeof(a));
	if (!text || !address || !parse_peer(&text, &a) || *text++ != ':')
		return -EINVAL;
	if (!weir_service_ok(text))
		return -EINVAL;
	memcpy(a.service, text, strlen(text));
	*address = a;
	return 0;
}

int
weir_address_format(const struct weir_address *address, char *buf, size_t size)
{
	char ip[INET6_ADDRSTRLEN];
	int n;

	if (!address || !weir_service_ok(address->service))
		return -EINVAL;
	inet_ntop(address->kind == WEIR_ADDRESS_IPV4 ? AF_INET : AF_INET6, address->ip, ip,
		  sizeof(ip));
	switch (address->kind) {
	case WEIR_ADDRESS_NODE:
		n = snprintf(buf, size, "node:%u:%s", address->id, address->service);
		break;
	case WEIR_ADDRESS_IPV4:
		n = snprintf(buf, size, "%s:%s", ip, address->service);
		break;
	case WEIR_ADDRESS_IPV6:
		n = snprintf(buf, size, "[%s]:%s", ip, address->service);
		break;
	case WEIR_ADDRESS_GID:
		n = snprintf(buf, size, "gid:[%s]:%s", ip, address->service);
		break;
	case WEIR_ADDRESS_LID:
		n = snprintf(buf, size, "lid:%u:%s", address->id, address->service);
		break;
	case WEIR_ADDRESS_SERVICE:
		n = snprintf(buf, size, "service:%s", address->service);
		break;
	default:
		return -EINVAL;
	}
	return n < 0 || (size_t)n >= size ? -ENOSPC : 0;
}

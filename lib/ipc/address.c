/* SPDX-License-Identifier: BSD-3-Clause */
/* Text form of addresses, both ways. */
#include "address.h"

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

static bool
is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool
is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Bytes of the host name that the text begins with; 0: none. */
static size_t
host_length(const char *text)
{
	size_t n = 0, label = 0;
	bool letters = false;

	for (; is_letter(text[n]) || is_digit(text[n]) || text[n] == '-' || text[n] == '_' ||
	       text[n] == '.';
	     n++) {
		if (text[n] == '.' && !label)
			return 0;
		label = text[n] == '.' ? 0 : label + 1;
		/* digits and dots alone are an IPv4 address with a mistake */
		letters |= !is_digit(text[n]) && text[n] != '.';
		if (label > 63)
			return 0;
	}
	return letters && n < WEIR_HOST_MAX && text[0] != '-' ? n : 0;
}

/* Reads the part before ":SERVICE"; *text is then at that colon. NULL, or the mistake. */
static const char *
parse_peer(const char **text, struct weir_address *a)
{
	const char *whole = *text, *colon;
	size_t n;

	if (starts(text, "node:")) {
		a->kind = WEIR_ADDRESS_NODE;
		return parse_number(text, 0, NODE_MAX, &a->id)
			   ? NULL
			   : "the node id is a number from 0 to 65534; give node:ID:SERVICE";
	}
	if (starts(text, "lid:")) {
		a->kind = WEIR_ADDRESS_LID;
		return parse_number(text, 1, LID_MAX, &a->id)
			   ? NULL
			   : "the LID is a number from 1 to 49151; give lid:LID:SERVICE";
	}
	if (starts(text, "service:")) {
		a->kind = WEIR_ADDRESS_SERVICE;
		(*text)--;
		return NULL;
	}
	if (starts(text, "gid:")) {
		a->kind = WEIR_ADDRESS_GID;
		return starts(text, "[") && parse_ip(text, AF_INET6, ']', a->ip)
			   ? NULL
			   : "the GID has the form of an IPv6 address; give gid:[GID]:SERVICE";
	}
	if (starts(text, "[")) {
		a->kind = WEIR_ADDRESS_IPV6;
		return parse_ip(text, AF_INET6, ']', a->ip)
			   ? NULL
			   : "the brackets hold no IPv6 address; give it as in [fd00::2]:SERVICE";
	}
	a->kind = WEIR_ADDRESS_IPV4;
	if (parse_ip(text, AF_INET, ':', a->ip)) {
		(*text)--;
		return NULL;
	}
	colon = strchr(whole, ':');
	n = host_length(whole);
	if (!*whole)
		return "it is empty; give node:ID:SERVICE, ADDRESS:SERVICE or service:SERVICE";
	if (!colon)
		return "the service is missing; give ADDRESS:SERVICE, as in node:2:echo";
	if (strchr(colon + 1, ':'))
		return "it begins with no known word, and an IPv6 address needs brackets; give "
		       "node:ID:SERVICE, lid:LID:SERVICE, gid:[GID]:SERVICE or [IPV6]:SERVICE";
	if (n && whole + n == colon)
		return "it has the name of a host; give an address, or call weir_connect_to()";
	return "an IPv4 address has four numbers from 0 to 255; give it as in 10.0.0.2:SERVICE";
}

int
weir_address_read(const char *text, struct weir_address *address, const char **why)
{
	const char *mistake;
	struct weir_address a;

	memset(&a, 0, sizeof(a));
	mistake = text && address ? parse_peer(&text, &a)
				  : "there is no text, or no place for the address; see "
				    "weir/address.h";
	if (!mistake && *text++ != ':')
		mistake = "the service is missing; append :SERVICE";
	if (!mistake && !weir_service_ok(text))
		mistake = "a service name has 1 to 31 letters, digits, '_', '-', '.'; append one";
	if (why)
		*why = mistake;
	if (mistake)
		return -EINVAL;
	memcpy(a.service, text, strlen(text));
	*address = a;
	return 0;
}

bool
weir_address_host(const char *text, char host[WEIR_HOST_MAX], char service[WEIR_SERVICE_MAX])
{
	static const char *const words[] = {"node:", "lid:", "gid:", "service:"};
	size_t n = host_length(text);

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (!strncmp(text, words[i], strlen(words[i])))
			return false;
	if (!n || text[n] != ':' || !weir_service_ok(text + n + 1))
		return false;
	memcpy(host, text, n);
	host[n] = '\0';
	memset(service, 0, WEIR_SERVICE_MAX);
	memcpy(service, text + n + 1, strlen(text + n + 1));
	return true;
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

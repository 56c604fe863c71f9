/* SPDX-License-Identifier: BSD-3-Clause */
#include "peers_file.h"

#include "base/vec.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LID_MAX 0xbfffu // largest unicast LID

struct parser {
	struct peers *peers;
	uint32_t room;
	const char *line_start;
	uint32_t line;
	char *error;
	size_t error_size;
};

__attribute__((format(printf, 3, 4))) static int
fail(struct parser *p, const char *at, const char *format, ...)
{
	va_list list;
	int n = snprintf(p->error, p->error_size, "%u:%u: ", p->line,
			 (unsigned)(at - p->line_start) + 1);

	if (n < 0 || (size_t)n >= p->error_size)
		return -EINVAL;
	va_start(list, format);
	vsnprintf(p->error + n, p->error_size - n, format, list);
	va_end(list);
	return -EINVAL;
}

int
host_port_split(const char *text, bool any_port, char *host, size_t size, uint16_t *port)
{
	const char *colon = strrchr(text, ':'), *end;
	size_t length;
	unsigned long value = 0;

	if (!colon)
		return -EINVAL;
	end = colon;
	if (*text == '[') {
		if (end == text || end[-1] != ']')
			return -EINVAL;
		text++;
		end--;
	} else if (memchr(text, ':', colon - text)) {
		return -EINVAL; // an IPv6 address without brackets
	}
	length = end - text;
	if (length == 0 || length >= size || strcspn(text, "[] \t") < length)
		return -EINVAL;
	for (const char *c = colon + 1; *c; c++) {
		if (*c < '0' || *c > '9' || value > UINT16_MAX)
			return -EINVAL;
		value = value * 10 + (*c - '0');
	}
	if (!colon[1] || value > UINT16_MAX || (value == 0 && !any_port))
		return -EINVAL;
	memcpy(host, text, length);
	host[length] = 0;
	*port = value;
	return 0;
}

static size_t
token_length(const char *at)
{
	return strcspn(at, " \t\r\n#");
}

static const char *
skip_blank(const char *at)
{
	return at + strspn(at, " \t\r");
}

static bool
address_taken(const struct peer_entry *entry, const uint8_t ip[16])
{
	for (uint32_t i = 0; i < entry->address_count; i++)
		if (!memcmp(entry->address[i], ip, 16))
			return true;
	return false;
}

static bool
lid_taken(const struct peer_entry *entry, uint16_t lid)
{
	for (uint32_t i = 0; i < entry->lid_count; i++)
		if (entry->lid[i] == lid)
			return true;
	return false;
}

static int
parse_address(struct parser *p, const char *at, size_t length, struct peer_entry *entry)
{
	static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
	char text[INET6_ADDRSTRLEN], *digit = text + 4;
	uint32_t lid = 0;
	uint8_t ip[16];

	if (entry->address_count + entry->lid_count == WEIR_CTL_ADDRESSES)
		return fail(p, at, "more than %d NIC addresses; give the first %d",
			    WEIR_CTL_ADDRESSES, WEIR_CTL_ADDRESSES);
	if (length == 0 || length >= sizeof(text))
		return fail(p, at, "a NIC address is missing or too long; write IPv4 or IPv6");
	memcpy(text, at, length);
	text[length] = 0;
	if (!strncmp(text, "lid:", 4)) {
		for (; *digit >= '0' && *digit <= '9' && lid <= LID_MAX; digit++)
			lid = lid * 10 + (uint32_t)(*digit - '0');
		if (*digit || lid == 0 || lid > LID_MAX)
			return fail(p, at, "not a unicast LID; write lid:1 to lid:%u", LID_MAX);
		if (lid_taken(entry, (uint16_t)lid))
			return fail(p, at, "lid:%u is on this line already; give it once", lid);
		for (uint32_t i = 0; i < p->peers->count; i++)
			if (lid_taken(&p->peers->list[i], (uint16_t)lid))
				return fail(
				    p, at,
				    "lid:%u is on line %u already; each port belongs to one node",
				    lid, p->peers->list[i].line);
		entry->lid[entry->lid_count++] = (uint16_t)lid;
		return 0;
	}
	memcpy(ip, mapped, sizeof(mapped));
	if (inet_pton(AF_INET, text, ip + 12) != 1 && inet_pton(AF_INET6, text, ip) != 1)
		return fail(p, at, "'%s' is not an IPv4 or IPv6 address; write 10.0.0.1", text);
	if (address_taken(entry, ip))
		return fail(p, at, "'%s' is on this line already; give it once", text);
	for (uint32_t i = 0; i < p->peers->count; i++)
		if (address_taken(&p->peers->list[i], ip))
			return fail(p, at,
				    "'%s' is on line %u already; each NIC belongs to one node",
				    text, p->peers->list[i].line);
	memcpy(entry->address[entry->address_count++], ip, sizeof(ip));
	return 0;
}

// Parses the line at p->line_start.
static int
parse_line(struct parser *p)
{
	const char *at = skip_blank(p->line_start);
	struct peer_entry entry = {.line = p->line};
	size_t length = token_length(at);
	const struct peer_entry *other;
	char host[WEIR_CTL_PEER_TEXT];
	unsigned long id = 0;
	const char *end;
	uint16_t port;
	int status;

	if (*at == 0 || *at == '\n' || *at == '#')
		return 0;
	for (size_t i = 0; i < length; i++) {
		if (at[i] < '0' || at[i] > '9')
			return fail(p, at + i, "node id is not a number; write 0 to 65534");
		id = id * 10 + (at[i] - '0');
		if (id > 65534)
			return fail(p, at, "node id is above 65534; write 0 to 65534");
	}
	other = peers_find(p->peers, id);
	if (other)
		return fail(p, at, "node %lu is on line %u already; give each node one line", id,
			    other->line);
	entry.id = id;
	at = skip_blank(at + length);
	length = token_length(at);
	if (length == 0)
		return fail(p, at,
			    "HOST:PORT of the control is missing; write ID HOST:PORT NIC-ADDR");
	if (length >= sizeof(entry.control))
		return fail(p, at, "HOST:PORT is longer than %zu characters; use an IP address",
			    sizeof(entry.control) - 1);
	memcpy(entry.control, at, length);
	if (host_port_split(entry.control, false, host, sizeof(host), &port))
		return fail(p, at,
			    "'%s' is not HOST:PORT; write 10.0.0.1:7471, [fe80::1]:7471 or "
			    "name:7471",
			    entry.control);
	for (uint32_t i = 0; i < p->peers->count; i++)
		if (!strcmp(p->peers->list[i].control, entry.control))
			return fail(p, at,
				    "'%s' is on line %u already; each node has a control of "
				    "its own",
				    entry.control, p->peers->list[i].line);
	at = skip_blank(at + length);
	length = token_length(at);
	if (length == 0)
		return fail(p, at, "NIC address is missing; write ID HOST:PORT NIC-ADDR");
	for (end = at + length; at <= end; at += length + 1) {
		length = strcspn(at, ", \t\r\n#");
		status = parse_address(p, at, length, &entry);
		if (status)
			return status;
	}
	at = skip_blank(end);
	if (*at && *at != '\n' && *at != '#')
		return fail(p, at,
			    "more than three fields; separate NIC addresses by commas alone");
	if (VEC_RESERVE(p->peers->list, p->room, p->peers->count + 1)) {
		snprintf(p->error, p->error_size, "%u:1: out of memory; shorten the file", p->line);
		return -ENOMEM;
	}
	p->peers->list[p->peers->count++] = entry;
	return 0;
}

int
peers_parse(const char *text, struct peers *peers, char *error, size_t size)
{
	struct parser p = {
	    .peers = peers, .line_start = text, .line = 1, .error = error, .error_size = size};
	int status = 0;

	*peers = (struct peers){0};
	while (*p.line_start && !status) {
		size_t length = strcspn(p.line_start, "\n");

		status = parse_line(&p);
		p.line_start += length + (p.line_start[length] == '\n');
		p.line++;
	}
	if (status)
		peers_free(peers);
	return status;
}

void
peers_free(struct peers *peers)
{
	free(peers->list);
	*peers = (struct peers){0};
}

const struct peer_entry *
peers_find(const struct peers *peers, uint32_t id)
{
	for (uint32_t i = 0; i < peers->count; i++)
		if (peers->list[i].id == id)
			return &peers->list[i];
	return NULL;
}

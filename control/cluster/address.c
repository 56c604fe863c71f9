/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses of controls: looked up, taken from others, printed. */
#include "control.h"

#include "transport/local_peer.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>

static int
look_up(const char *text, bool any_port, int flags, struct sockaddr_storage *address,
	socklen_t *length, int *error)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags},
			*found;
	char host[256], service[8];
	uint16_t port;

	*error = 0;
	if (host_port_split(text, any_port, host, sizeof(host), &port))
		return -1;
	snprintf(service, sizeof(service), "%u", port);
	*error = getaddrinfo(host, service, &hints, &found);
	if (*error)
		return -1;
	memcpy(address, found->ai_addr, found->ai_addrlen);
	*length = found->ai_addrlen;
	freeaddrinfo(found);
	return 0;
}

// Names are looked up here, at start, and never again. Returns -1 or an exit code.
int
address_resolve(const struct control *c, const char *what, const char *text, bool any_port,
		struct sockaddr_storage *address, socklen_t *length)
{
	int error;

	if (look_up(text, any_port, 0, address, length, &error)) {
		if (!error) {
			log_error("%s '%s' is not HOST:PORT; give for example 127.0.0.1:7471", what,
				  text);
			return EXIT_USAGE;
		}
		log_error("%s '%s' cannot be resolved: %s; use an IP address", what, text,
			  gai_strerror(error));
		return EXIT_RUNTIME;
	}
	if (!address_is_loopback(address) && !c->tls && !c->options->insecure) {
		log_error("%s '%s' is not a loopback address; give certificates with --tls DIR, or "
			  "--insecure if all who can reach it are trusted",
			  what, text);
		return EXIT_USAGE;
	}
	return -1;
}

bool
address_take(const struct control *c, const char *text, struct sockaddr_storage *address,
	     socklen_t *length)
{
	int error;

	return !look_up(text, false, AI_NUMERICHOST, address, length, &error) &&
	       (c->tls || c->options->insecure || address_is_loopback(address));
}

void
address_print(const struct sockaddr_storage *address, socklen_t length, char *text, size_t size)
{
	char host[56] = "?", port[8] = "?";

	getnameinfo((const struct sockaddr *)address, length, host, sizeof(host), port,
		    sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
	snprintf(text, size, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
}

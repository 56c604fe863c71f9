/* SPDX-License-Identifier: BSD-3-Clause */
#include "listener.h"

#include "base/log_once.h"
#include "base/monotonic.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <stdlib.h>
#include <string.h>

#define BACKLOG 256 /* about a second's worth: diallers give up after two */

struct listener {
	struct listener_config config;
	struct evconnlistener *socket;
	struct event *again; /* accepts go on */
	unsigned accepted;   /* since `since` */
	uint64_t since;	     /* ms */
	struct log_memory trouble;
};

static void
pause_for(struct listener *l, unsigned ms)
{
	const struct timeval wait = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	evconnlistener_disable(l->socket);
	if (evtimer_add(l->again, &wait))
		evconnlistener_enable(l->socket);
}

static void
on_again(evutil_socket_t fd, short what, void *user)
{
	struct listener *l = user;

	l->accepted = 0;
	evconnlistener_enable(l->socket);
}

static void
on_accept(struct evconnlistener *socket, evutil_socket_t fd, struct sockaddr *address, int length,
	  void *user)
{
	struct listener *l = user;
	uint64_t now = monotonic_ms();

	if (now - l->since >= LISTENER_TICK_MS) {
		l->since = now;
		l->accepted = 0;
	}
	if (++l->accepted == l->config.burst)
		pause_for(l, LISTENER_TICK_MS);
	l->config.accepted(l->config.user, fd, address, length);
}

static void
on_error(struct evconnlistener *socket, void *user)
{
	const char *why = strerror(EVUTIL_SOCKET_ERROR());
	struct listener *l = user;

	log_limited(&l->trouble, monotonic_ms(), (struct log_field[]){{"reason", 0, why}}, 1,
		    "cannot accept connections at %s: %s; raise that limit of weir-control "
		    "(LimitNOFILE=) or free memory; trying again each second",
		    l->config.option, why);
	pause_for(l, LISTENER_PAUSE_MS);
}

int
listener_open(struct event_base *base, const struct sockaddr *address, socklen_t length,
	      const struct listener_config *config, struct listener **listener)
{
	struct listener *l = calloc(1, sizeof(*l));
	int status;

	if (!l)
		return -ENOMEM;
	l->config = *config;
	l->again = evtimer_new(base, on_again, l);
	errno = 0;
	if (l->again)
		l->socket = evconnlistener_new_bind(base, on_accept, l,
						    LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC |
							LEV_OPT_REUSEABLE,
						    BACKLOG, address, (int)length);
	if (!l->socket) {
		status = errno ? -errno : -ENOMEM;
		listener_close(l);
		return status;
	}
	evconnlistener_set_error_cb(l->socket, on_error);
	*listener = l;
	return 0;
}

void
listener_close(struct listener *l)
{
	if (!l)
		return;
	if (l->socket)
		evconnlistener_free(l->socket);
	if (l->again)
		event_free(l->again);
	free(l);
}

int
listener_fd(const struct listener *l)
{
	return evconnlistener_get_fd(l->socket);
}

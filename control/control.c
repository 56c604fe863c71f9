/* SPDX-License-Identifier: BSD-3-Clause */
#include "control.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

uint64_t
control_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

struct member *
control_member(struct control *c, uint32_t id)
{
	for (uint32_t i = 0; i < c->member_count; i++)
		if (c->members[i].entry->id == id)
			return &c->members[i];
	return NULL;
}

// ---- addresses ----

static bool
is_loopback(const struct sockaddr_storage *address)
{
	const struct sockaddr_in *v4 = (const void *)address;
	const struct sockaddr_in6 *v6 = (const void *)address;

	if (address->ss_family == AF_INET)
		return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
	if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
		return v6->sin6_addr.s6_addr[12] == 127;
	return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

// Names are looked up here, at start, and never again. Returns -1 or an exit code.
static int
resolve(const struct control *c, const char *what, const char *text, bool any_port,
	struct sockaddr_storage *address, socklen_t *length)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *found;
	char host[256], service[8];
	uint16_t port;
	int status;

	if (host_port_split(text, any_port, host, sizeof(host), &port)) {
		log_line("%s '%s' is not HOST:PORT; give for example 127.0.0.1:7471", what, text);
		return EXIT_USAGE;
	}
	snprintf(service, sizeof(service), "%u", port);
	status = getaddrinfo(host, service, &hints, &found);
	if (status) {
		log_line("%s '%s' cannot be resolved: %s; use an IP address", what, text,
			 gai_strerror(status));
		return EXIT_RUNTIME;
	}
	memcpy(address, found->ai_addr, found->ai_addrlen);
	*length = found->ai_addrlen;
	freeaddrinfo(found);
	if (!is_loopback(address) && !c->tls && !c->options->insecure) {
		log_line("%s '%s' is not a loopback address; give certificates with --tls DIR, or "
			 "--insecure if all who can reach it are trusted",
			 what, text);
		return EXIT_USAGE;
	}
	return -1;
}

// ---- our data plane ----

static void
tell_self(struct control *c, const struct dp_view *view)
{
	struct weir_ctl_msg out = {.type = WEIR_CTL_NODE};

	out.node.id = c->self->id;
	out.node.self = 1;
	out.node.state = WEIR_NODE_UP;
	out.node.incarnation = view->incarnation;
	out.node.engines = view->engines;
	out.node.address_count = c->self->address_count;
	memcpy(out.node.address, c->self->address, sizeof(out.node.address));
	memcpy(out.node.lid, c->self->lid, sizeof(out.node.lid));
	memcpy(out.node.control, c->self->control, sizeof(out.node.control));
	dp_send(c->dp, &out);
}

static void
check_addresses(const struct control *c, const struct dp_view *view)
{
	for (uint32_t i = 0; i < view->address_count; i++) {
		char text[INET6_ADDRSTRLEN] = "?";
		bool known = false;

		for (uint32_t j = 0; j < c->self->address_count; j++)
			known |= !memcmp(view->address[i], c->self->address[j], 16);
		if (IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)view->address[i]))
			inet_ntop(AF_INET, view->address[i] + 12, text, sizeof(text));
		else
			inet_ntop(AF_INET6, view->address[i], text, sizeof(text));
		if (!known)
			log_line(
			    "data plane has NIC address %s, which line %u of the peers file does "
			    "not list; programs elsewhere cannot name it",
			    text, c->self->line);
	}
}

static void
on_dp_changed(void *user, const struct dp_view *view)
{
	struct control *c = user;
	struct weir_ctl_msg synced = {.type = WEIR_CTL_SYNCED};

	// Peers first: when it is dead, they must know at once.
	for (uint32_t i = 0; i < c->member_count; i++)
		member_view(&c->members[i], view);
	if (view->state != DP_UP)
		return;
	tell_self(c, view);
	for (uint32_t i = 0; i < c->member_count; i++)
		member_tell(&c->members[i]);
	dp_send(c->dp, &synced);
	check_addresses(c, view);
}

static void
on_dp_message(void *user, const struct weir_ctl_msg *m)
{
	struct control *c = user;
	bool link = m->type == WEIR_CTL_LINK;
	uint16_t from = link ? m->link.node : m->link_down.node;
	uint16_t to = link ? m->link.peer_node : m->link_down.peer_node;
	struct member *member = from == c->self->id ? control_member(c, to) : NULL;

	if (!member)
		log_once(&c->dp_trouble, "data plane sent a link message from node %u to node %u",
			 from, to);
	else if (link)
		member_offer(member, &m->link);
	else if (m->type == WEIR_CTL_RESYNC)
		member_resync(member, m);
	else
		member_link_down(member, m);
}

static const struct dp_handler dp_handler = {
    .changed = on_dp_changed,
    .message = on_dp_message,
};

// ---- start, run, stop ----

static void
on_tick(evutil_socket_t fd, short what, void *user)
{
	struct control *c = user;
	uint64_t now = control_now();

	for (uint32_t i = 0; i < c->member_count; i++)
		member_tick(&c->members[i], now);
	door_tick(c, now);
}

static void
reload(struct control *c)
{
	char text[LOG_LINE_MAX];

	if (!c->tls) {
		log_line("SIGHUP: without --tls there is nothing to read again");
	} else if (stream_tls_reload(c->tls, text, sizeof(text))) {
		log_line("certificates stay as they were: %s", text);
	} else {
		stream_tls_describe(c->tls, text, sizeof(text));
		log_line("read again: %s", text);
	}
}

static void
on_signal(evutil_socket_t number, short what, void *user)
{
	struct control *c = user;

	if (number == SIGHUP) {
		reload(c);
		return;
	}
	log_line("stopping on signal %d; the data plane goes on", (int)number);
	event_base_loopbreak(c->base);
}

static int
make_members(struct control *c)
{
	uint64_t now = control_now();

	c->members = calloc(c->peers->count, sizeof(*c->members));
	if (!c->members)
		return EXIT_RESOURCE;
	for (uint32_t i = 0; i < c->peers->count; i++) {
		const struct peer_entry *entry = &c->peers->list[i];
		struct member *m = &c->members[c->member_count];
		int status;

		if (entry == c->self)
			continue;
		member_init(m, c, entry, now);
		c->member_count++;
		status = resolve(c, "peer", entry->control, false, &m->address, &m->address_length);
		if (status >= 0)
			return status;
	}
	return -1;
}

static int
make_events(struct control *c)
{
	static const struct timeval every = {.tv_usec = CONTROL_TICK_MS * 1000};
	static const int signals[CONTROL_SIGNALS] = {SIGTERM, SIGINT, SIGHUP};

	c->base = event_base_new();
	if (!c->base)
		return EXIT_RESOURCE;
	c->tick = event_new(c->base, -1, EV_PERSIST, on_tick, c);
	if (!c->tick || event_add(c->tick, &every))
		return EXIT_RESOURCE;
	for (int i = 0; i < CONTROL_SIGNALS; i++) {
		c->signal[i] = evsignal_new(c->base, signals[i], on_signal, c);
		if (!c->signal[i] || event_add(c->signal[i], NULL))
			return EXIT_RESOURCE;
	}
	return -1;
}

static int
listen_at(struct control *c, const struct sockaddr_storage *address, socklen_t length)
{
	const char *text = c->options->listen;
	int status = door_open(c, (const struct sockaddr *)address, length);

	if (!status)
		return -1;
	log_line("cannot listen on %s: %s; %s", text, strerror(-status),
		 status == -EADDRINUSE ? "stop what listens there or choose another --listen"
				       : "choose another --listen");
	return EXIT_RESOURCE;
}

// Returns -1 or an exit code.
static int
open_transport(struct control *c)
{
	const struct control_options *o = c->options;
	char text[LOG_LINE_MAX];
	int status;

	c->transport = &control_tcp;
	if (!o->tls)
		return -1;
	status = stream_tls_open(o->tls, o->cluster, o->node, &c->tls, text, sizeof(text));
	if (status) {
		log_line("--tls: %s", text);
		return status == -EACCES || status == -ENOMEM ? EXIT_RESOURCE : EXIT_USAGE;
	}
	c->transport = stream_tls_transport(c->tls);
	stream_tls_describe(c->tls, text, sizeof(text));
	log_line("TLS: %s", text);
	return -1;
}

static int
start(struct control *c, const char *socket_path)
{
	struct weir_ctl_msg hello = {.type = WEIR_CTL_HELLO};
	struct sockaddr_storage address;
	socklen_t length;
	int status;

	status = open_transport(c);
	if (status < 0)
		status = resolve(c, "--listen", c->options->listen, true, &address, &length);
	if (status < 0)
		status = make_members(c);
	if (status < 0)
		status = make_events(c);
	if (status < 0)
		status = listen_at(c, &address, length);
	if (status >= 0)
		return status;
	hello.hello.version = WEIR_CTL_VERSION;
	hello.hello.role = WEIR_ROLE_CONTROL;
	hello.hello.node = c->self->id;
	hello.hello.pid = getpid();
	memcpy(hello.hello.cluster, c->options->cluster, strlen(c->options->cluster) + 1);
	c->dp = dp_create(c->base, socket_path, &hello, &dp_handler, c);
	return c->dp ? -1 : EXIT_RESOURCE;
}

static void
stop(struct control *c)
{
	for (uint32_t i = 0; i < c->member_count; i++)
		member_fini(&c->members[i]);
	free(c->members);
	if (c->base)
		door_close(c);
	dp_destroy(c->dp);
	if (c->tick)
		event_free(c->tick);
	for (int i = 0; i < CONTROL_SIGNALS; i++)
		if (c->signal[i])
			event_free(c->signal[i]);
	if (c->base)
		event_base_free(c->base);
	stream_tls_close(c->tls);
}

int
control_run(const struct control_options *options, const struct peers *peers,
	    const char *socket_path)
{
	struct control c = {.options = options, .peers = peers};
	int status;

	c.self = peers_find(peers, options->node);
	if (!c.self) {
		log_line("node %u is not in %s; add its line or check --node", options->node,
			 options->peers);
		return EXIT_USAGE;
	}
	status = start(&c, socket_path);
	if (status < 0) {
		log_line("node %u of cluster '%s' listens on %s; %u peers", options->node,
			 options->cluster, options->listen, c.member_count);
		status = event_base_dispatch(c.base) < 0 ? EXIT_RUNTIME : EXIT_OK;
	} else if (status == EXIT_RESOURCE && !c.dp && c.listener) {
		log_line("out of memory");
	}
	stop(&c);
	return status;
}

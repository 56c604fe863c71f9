/* SPDX-License-Identifier: BSD-3-Clause */
#include "cluster/control.h"
#include "transport/local_peer.h"

#include "base/log.h"
#include "ipc/invariant.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPIRY_LOOK_MS 3600000u	 // between two looks at the certificates
#define EXPIRY_WARN_MS 86400000u // between two warnings
#define EXPIRY_WARN_DAYS 30	 // before the end of a certificate

// ---- certificates ----

static void
warn_of_expiry(const struct control *c, const char *what, const char *name, double days,
	       const char *until)
{
	char when[96];

	if (days >= EXPIRY_WARN_DAYS)
		return;
	snprintf(when, sizeof(when), days < 0 ? "has expired on %s" : "expires on %s, in %.0f days",
		 until, days);
	log_event(LOG_LEVEL_WARNING,
		  (struct log_field[]){{"certificate", 0, name},
				       {"days", days < 0 ? 0 : (uint64_t)days, NULL}},
		  2, "%s %s %s; put a new one into %s and send SIGHUP (systemctl reload)", what,
		  name, when, c->options->tls);
}

// Tells the data plane, for weirctl, how long the certificates are valid, and warns in time.
static void
look_at_certificates(struct control *c, uint64_t now)
{
	struct tls_expiry e;
	char text[400];

	if (!c->tls || !c->dp || now < c->expiry_look)
		return;
	c->expiry_look = now + EXPIRY_LOOK_MS;
	stream_tls_expiry(c->tls, &e);
	snprintf(text, sizeof(text), "%s, valid until %s, %.0f days left", e.name, e.node_until,
		 e.node_days);
	dp_fact(c->dp, "certificate", text);
	snprintf(text, sizeof(text), "%s, valid until %s, %.0f days left", e.ca, e.ca_until,
		 e.ca_days);
	dp_fact(c->dp, "certificate of its CA", text);
	if (now < c->expiry_warn)
		return;
	c->expiry_warn = now + EXPIRY_WARN_MS;
	warn_of_expiry(c, "certificate of", e.name, e.node_days, e.node_until);
	warn_of_expiry(c, "CA", e.ca, e.ca_days, e.ca_until);
}

static uint32_t
certificates(void *user, struct metrics_certificate *out)
{
	const struct control *c = user;
	struct tls_expiry e;

	if (!c->tls)
		return 0;
	stream_tls_expiry(c->tls, &e);
	out[0] = (struct metrics_certificate){"node", e.node_days};
	out[1] = (struct metrics_certificate){"ca", e.ca_days};
	return 2;
}

// ---- start, run, stop ----

static void
on_tick(evutil_socket_t fd, short what, void *user)
{
	struct control *c = user;
	uint64_t now = monotonic_ms();
	char status[sizeof(c->status)];
	uint32_t up = 0;

	control_tick(c, now);
	look_at_certificates(c, now);
	watchdog_feed(&c->watchdog, now * 1000000, true);
	// The text that `systemctl status` shows.
	for (uint32_t i = 0; i < c->member_count; i++)
		up += c->members[i]->node.state == WEIR_NODE_UP;
	if (c->id_reported)
		snprintf(status, sizeof(status),
			 "STATUS=node %u of cluster '%s', %u of %u others are up%s", c->self.id,
			 c->options->cluster, up, c->member_count,
			 dp_view(c->dp)->state == DP_UP ? "" : "; no data plane");
	else
		snprintf(status, sizeof(status), "STATUS=no node id yet: %s",
			 c->options->etcd ? "asks etcd"
			 : c->has_id	  ? "looks for the cluster"
					  : "waits for its data plane");
	if (!strcmp(status, c->status))
		return;
	memcpy(c->status, status, sizeof(status));
	notify(status);
}

static void
on_signal(evutil_socket_t number, short what, void *user)
{
	struct control *c = user;
	char text[LOG_LINE_MAX];

	if (number == SIGHUP && !c->tls) {
		log_warning("SIGHUP: without --tls there is nothing to read again");
	} else if (number == SIGHUP && stream_tls_reload(c->tls, text, sizeof(text))) {
		log_error("certificates stay as they were: %s", text);
	} else if (number == SIGHUP) {
		stream_tls_describe(c->tls, text, sizeof(text));
		log_info("read again: %s", text);
		c->expiry_look = c->expiry_warn = 0;
	}
	if (number == SIGHUP)
		return;
	log_info("stopping on signal %d; the data plane goes on", (int)number);
	notify("STOPPING=1");
	event_base_loopbreak(c->base);
}

static const int signals[CONTROL_SIGNALS] = {SIGTERM, SIGINT, SIGHUP};

static void
set_signals(int how)
{
	sigset_t set;

	sigemptyset(&set);
	for (int i = 0; i < CONTROL_SIGNALS; i++)
		sigaddset(&set, signals[i]);
	sigprocmask(how, &set, NULL);
}

void
control_hold_signals(void)
{
	set_signals(SIG_BLOCK);
}

static int
out_of_memory(void)
{
	log_error("out of memory; free some");
	return EXIT_RESOURCE;
}

static int
make_events(struct control *c)
{
	uint32_t tick = c->options->node_timeout / 20; // a quarter of a period
	struct timeval every = {.tv_usec =
				    (tick < CONTROL_TICK_MS ? tick : CONTROL_TICK_MS) * 1000};

	c->base = event_base_new();
	if (!c->base)
		return out_of_memory();
	c->tick = event_new(c->base, -1, EV_PERSIST, on_tick, c);
	if (!c->tick || event_add(c->tick, &every))
		return out_of_memory();
	c->again = evtimer_new(c->base, self_node_on_again, c);
	c->settled = evtimer_new(c->base, self_node_on_settled, c);
	if (!c->again || !c->settled)
		return out_of_memory();
	for (int i = 0; i < CONTROL_SIGNALS; i++) {
		c->signal[i] = evsignal_new(c->base, signals[i], on_signal, c);
		if (!c->signal[i] || event_add(c->signal[i], NULL))
			return out_of_memory();
	}
	set_signals(SIG_UNBLOCK);
	return -1;
}

static bool
listens_at(const struct control *c, char text[WEIR_CTL_PEER_TEXT])
{
	struct sockaddr_storage address;
	socklen_t length = sizeof(address);

	if (getsockname(listener_fd(c->listener), (struct sockaddr *)&address, &length))
		return false;
	address_print(&address, length, text, WEIR_CTL_PEER_TEXT);
	return true;
}

static bool
is_anywhere(const char *place)
{
	return !strncmp(place, "0.0.0.0:", 8) || !strncmp(place, "[::]:", 5);
}

// The address that others are told: where we listen, or what the peers file says.
static int
name_self(struct control *c, const struct peer_entry *own)
{
	char here[WEIR_CTL_PEER_TEXT], there[WEIR_CTL_PEER_TEXT] = "";
	struct sockaddr_storage address;
	socklen_t length;

	if (own) {
		c->self = *own;
		// Others look for us where the file says; a name in it may be any address of ours.
		if (!listens_at(c, here))
			return -1;
		if (address_take(c, own->control, &address, &length))
			address_print(&address, length, there, sizeof(there));
		if (strcmp(strrchr(here, ':'), strrchr(own->control, ':')) ||
		    (*there && !is_anywhere(here) && strcmp(here, there)))
			log_warning("listens on %s, but others look for node %u at %s, as %s says; "
				    "make --listen and the file agree",
				    here, own->id, own->control, c->options->peers);
		return -1;
	}
	if (!listens_at(c, c->self.control))
		return EXIT_RUNTIME;
	if (is_anywhere(c->self.control)) {
		log_error(
		    "invalid value '%s' for --listen (with --join or --etcd expected an address of "
		    "this host that other nodes can reach)",
		    c->options->listen);
		return EXIT_USAGE;
	}
	return -1;
}

// Starts the source of members. A configured id is ours at once.
static int
start_source(struct control *c)
{
	if (c->source->closed && !self_node_begin(c, monotonic_ms()))
		return out_of_memory();
	return c->source->start(c->source, c->base, &member_events, c) ? EXIT_RESOURCE : c->failed;
}

static int
serve_metrics(struct control *c, const char *socket_path)
{
	const struct metrics_config config = {.socket_path = socket_path,
					      .cluster = c->options->cluster,
					      .certificates = certificates,
					      .user = c};
	const char *text = c->options->metrics;
	struct sockaddr_storage address;
	socklen_t length;
	int status;

	if (!text)
		return -1;
	status = address_resolve(c, "--metrics", text, false, &address, &length);
	if (status >= 0)
		return status;
	/* certificates of controls don't cover it */
	if (!address_is_loopback(&address) && !c->options->insecure) {
		log_error("--metrics '%s' is not a loopback address; add --insecure if all who can "
			  "reach it may read it",
			  text);
		return EXIT_USAGE;
	}
	status = metrics_open(c->base, (const struct sockaddr *)&address, (int)length, &config,
			      &c->metrics);
	if (!status)
		return -1;
	log_error("cannot serve metrics on %s: %s; choose another --metrics", text,
		  strerror(-status));
	return EXIT_RESOURCE;
}

static int
start(struct control *c, const struct peers *peers, const char *socket_path)
{
	const struct control_options *o = c->options;
	const struct peer_entry *own = peers ? peers_find(peers, o->node) : NULL;
	struct weir_ctl_msg hello = {.type = WEIR_CTL_HELLO};
	struct sockaddr_storage address;
	char text[LOG_LINE_MAX];
	socklen_t length;
	int status, error;

	status = make_events(c);
	if (status < 0 && o->etcd) {
		status = source_etcd(o, c->self.control, &c->source);
	} else if (status < 0) {
		c->source = peers ? source_file(peers, o->node) : source_join(o->join);
		status = c->source ? -1 : out_of_memory();
	}
	if (status >= 0)
		return status;
	if (peers && !own) {
		log_error("node %u is not in %s; add its line or check --node", o->node, o->peers);
		return EXIT_USAGE;
	}
	c->transport = &control_tcp;
	if (o->tls) {
		status =
		    stream_tls_open(o->tls, o->cluster, o->has_node ? o->node : TLS_NODE_UNKNOWN,
				    &c->tls, text, sizeof(text));
		if (status) {
			log_error("--tls: %s", text);
			return status == -EACCES || status == -ENOMEM ? EXIT_RESOURCE : EXIT_USAGE;
		}
		c->transport = stream_tls_transport(c->tls);
		stream_tls_describe(c->tls, text, sizeof(text));
		log_info("TLS: %s", text);
	}
	status = address_resolve(c, "--listen", o->listen, true, &address, &length);
	hello.hello.versions = WEIR_CTL_VERSIONS;
	hello.hello.role = WEIR_ROLE_CONTROL;
	hello.hello.node = peers ? o->node : UINT32_MAX;
	hello.hello.pid = getpid();
	memcpy(hello.hello.cluster, o->cluster, strlen(o->cluster) + 1);
	error = status < 0 ? admission_open(c, (struct sockaddr *)&address, length) : 0;
	if (error) {
		log_error("cannot listen on %s: %s; %s", o->listen, strerror(-error),
			  error == -EADDRINUSE ? "stop what listens there or choose another "
						 "--listen"
					       : "choose another --listen");
		status = EXIT_RESOURCE;
	}
	if (status < 0)
		status = serve_metrics(c, socket_path);
	if (status < 0)
		status = name_self(c, own);
	// Addresses to ask at are looked at before anybody hears of us.
	if (status < 0 && o->join)
		status = start_source(c);
	if (status >= 0)
		return status;
	c->dp = dp_create(c->base, socket_path, &hello, &self_node_dp_handler, c);
	if (!c->dp)
		return out_of_memory();
	// Our lines of `weirctl show status`.
	dp_fact(c->dp, "weir-control", WEIR_VERSION);
	dp_fact(c->dp, "cluster", o->cluster);
	snprintf(text, sizeof(text), "%s, pid %d", c->self.control, (int)getpid());
	dp_fact(c->dp, "control listens", text);
	dp_fact(c->dp, "members from", o->etcd ? "etcd" : o->peers ? "the peers file" : "--join");
	dp_fact(c->dp, "between controls",
		o->tls	      ? "TLS"
		: o->insecure ? "no TLS: --insecure"
			      : "no TLS: loopback alone");
	return o->join ? -1 : start_source(c);
}

static void
stop(struct control *c)
{
	bool leave = c->has_id && dp_view(c->dp)->state != DP_UP;

	control_hold_signals(); // who asks twice waits as long: what is left undone would stay
	c->stopping = true;
	if (leave)
		swim_leave(&c->swim);
	self_node_end(c);
	weir_assert(!c->member_count && !c->seed_conn);
	if (c->source)
		c->source->stop(c->source, leave);
	if (c->base)
		admission_close(c);
	dp_destroy(c->dp);
	metrics_close(c->metrics);
	if (c->tick)
		event_free(c->tick);
	if (c->again)
		event_free(c->again);
	if (c->settled)
		event_free(c->settled);
	for (int i = 0; i < CONTROL_SIGNALS; i++)
		if (c->signal[i])
			event_free(c->signal[i]);
	if (c->base) {
		// A bufferevent with a callback due is freed when that would have run.
		event_base_loop(c->base, EVLOOP_NONBLOCK);
		event_base_free(c->base);
	}
	stream_tls_close(c->tls);
}

static void
on_libevent(int severity, const char *message)
{
	log_event(severity >= EVENT_LOG_WARN ? LOG_LEVEL_WARNING : LOG_LEVEL_DEBUG, NULL, 0,
		  "libevent: %s", message);
}

int
control_run(const struct control_options *options, const struct peers *peers,
	    const char *socket_path)
{
	struct control c = {.options = options, .failed = -1};
	int status;

	event_set_log_callback(on_libevent);
	status = start(&c, peers, socket_path);

	if (status < 0) {
		log_timed();
		if (peers)
			log_info("node %u of cluster '%s' listens on %s; %u peer%s", options->node,
				 options->cluster, options->listen, c.member_count,
				 c.member_count == 1 ? "" : "s");
		else
			log_info("cluster '%s': listens on %s; %s", options->cluster,
				 c.self.control, options->etcd ? "the list is in etcd" : "joins");
		watchdog_open(&c.watchdog, monotonic_ms() * 1000000);
		notify("READY=1");
		status = event_base_dispatch(c.base) < 0 ? EXIT_RUNTIME : EXIT_OK;
	}
	stop(&c);
	return status;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* The broker: creating and destroying it, its turn, events of engines and messages of control. */
#define _GNU_SOURCE
#include "arena.h"
#include "capture_job.h"
#include "command.h"
#include "conn.h"
#include "connect.h"
#include "control_socket.h"
#include "datagram.h"
#include "export.h"
#include "link.h"
#include "local.h"
#include "node.h"
#include "port.h"
#include "public_services.h"
#include "quota.h"
#include "region.h"
#include "release.h"
#include "session.h"
#include "session_socket.h"
#include "state.h"
#include "user.h"
#include "watch.h"

#include "base/log.h"
#include "ipc/invariant.h"
#include "sigbus.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Parts of main's CPU time: 1/n. */
#define STRANGERS_SHARE 120u /* for sessions of users that have none yet */
#define FRUGAL_SHARE 60u     /* for such users that have cost little lately */
#define REQUESTS_SHARE 5u    /* for all requests of all programs */

#define EVENTS_PER_RUN 64
#define NS_PER_MS 1000000u
#define STOP_PATIENCE_NS BROKER_SECOND_NS /* for programs to read their last messages */

static void
blame(struct broker *b, const char *kind_of_id, uint32_t id, const char *kind, enum log_level level,
      const struct log_field *fields, size_t count, const char *format, va_list args)
{
	uint64_t now = broker_now(b);
	char whose[32];

	if (level > log_level())
		return;
	snprintf(whose, sizeof(whose), "%s %u", kind_of_id, id);
	if (log_budget_take(&b->blamed, kind, whose, NULL, now / NS_PER_MS))
		log_event_list(level, fields, count, format, args);
	else if (!b->blamed_at)
		b->blamed_at = now + BROKER_SECOND_NS;
}

void
broker_blame_user(struct broker *b, uid_t uid, const char *kind, enum log_level level,
		  const struct log_field *fields, size_t count, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	blame(b, "user", uid, kind, level, fields, count, format, args);
	va_end(args);
}

void
broker_blame_node(struct broker *b, uint32_t node, const char *kind, enum log_level level,
		  const struct log_field *fields, size_t count, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	blame(b, "node", node, kind, level, fields, count, format, args);
	va_end(args);
}

/* Logs how many lines were suppressed. Returns the next deadline. */
static uint64_t
blamed_timers(struct broker *b, uint64_t now)
{
	if (b->blamed_at && now >= b->blamed_at)
		b->blamed_at =
		    log_budget_tell(&b->blamed, now / NS_PER_MS) ? now + BROKER_SECOND_NS : 0;
	return b->blamed_at ? b->blamed_at : UINT64_MAX;
}

int
broker_watch_add(struct broker *b, struct broker_watch *w, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.ptr = w};

	return epoll_ctl(b->epoll_fd, EPOLL_CTL_ADD, w->fd, &e) ? -errno : 0;
}

void
broker_watch_change(struct broker *b, struct broker_watch *w, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.ptr = w};

	epoll_ctl(b->epoll_fd, EPOLL_CTL_MOD, w->fd, &e); /* cannot fail for one that was added */
}

void
broker_watch_remove(struct broker *b, struct broker_watch *w)
{
	epoll_ctl(b->epoll_fd, EPOLL_CTL_DEL, w->fd, NULL);
}

/* A program punched a hole into its memory, and an engine or main touched it. */
static void
fault_ready(struct broker_watch *w, uint32_t events)
{
	struct broker *b = (struct broker *)((char *)w - offsetof(struct broker, fault_watch));
	uint64_t n;

	if (read(w->fd, &n, sizeof(n)) < 0)
		return;
	for (uint32_t i = 0; i < b->config.sessions; i++) {
		struct broker_session *s = b->session[i];
		char reason[64] = "it punched holes into its memory";
		uint32_t region = s ? regions_cut(s) : 0;
		bool arena = s && arena_cut(&s->arena);

		if (!region && !arena)
			continue;
		if (region)
			snprintf(reason, sizeof(reason),
				 "it punched holes into its memory (region %u)", region);
		b->counters.holes++;
		session_spoil(s, reason);
	}
}

/* Asks the devices for their attributes, and opens descriptors and sockets. 0 or -errno. */
static int
start(struct broker *b)
{
	int rc = 0;

	for (uint32_t i = 0; i < b->config.engines && !rc; i++)
		if (broker_engine(b, i)->dev)
			rc = broker_ops(b, i)->query(broker_engine(b, i)->dev, &b->attr[i]);
	if (rc)
		return rc;
	b->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	b->fault_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (b->epoll_fd < 0 || b->fault_fd < 0)
		return -errno;
	signal(SIGIO, SIG_IGN); /* a process waits for a lease to end: memfd_release() */
	b->fault_watch = (struct broker_watch){.fd = b->fault_fd, .ready = fault_ready};
	rc = broker_watch_add(b, &b->fault_watch, EPOLLIN);
	if (!rc)
		rc = sigbus_install();
	if (rc || !b->config.run_dir)
		return rc;
	rc = sigbus_watch();
	if (rc)
		log_warning("userfaultfd: %s; programs that punch holes into their memory cost "
			    "engines time unnoticed: allow it (Linux 5.14, no seccomp filter)",
			    strerror(-rc));
	rc = session_socket_open(b);
	return rc ? rc : control_socket_open(b);
}

struct broker *
broker_create(const struct broker_config *config)
{
	struct broker *b = broker_alloc(sizeof(*b));
	int rc;

	if (!b) {
		errno = ENOMEM;
		return NULL;
	}
	b->config = *config;
	b->started = broker_now(b);
	b->epoll_fd = b->fault_fd = -1;
	b->node = BROKER_NODE_UNKNOWN;
	b->services_due = UINT64_MAX;
	b->strangers.share = STRANGERS_SHARE;
	b->frugal.share = FRUGAL_SHARE;
	for (unsigned i = 0; i < BROKER_STRANGER_PLACES; i++)
		b->stranger[i].share = STRANGERS_SHARE;
	b->requests.share = REQUESTS_SHARE;
	b->session_limit = config->sessions;
	b->conn_limit = config->connections;
	b->answers = config->answers;
	b->session = broker_alloc(config->sessions * sizeof(*b->session));
	TAILQ_INIT(&b->building);
	TAILQ_INIT(&b->adopt_waiting);
	TAILQ_INIT(&b->sessions_marked);
	memcpy(b->most, config->most, sizeof(b->most));
	rc = users_begin(b);
	b->conn = broker_alloc(BROKER_CONN_TABLE * sizeof(*b->conn));
	TAILQ_INIT(&b->node_news);
	links_init(b);
	b->node_by_id = broker_alloc(BROKER_NODES * sizeof(*b->node_by_id));
	b->segment = broker_alloc(BROKER_SEGMENTS_MAX * sizeof(*b->segment));
	b->link_table =
	    broker_alloc((size_t)config->engines * config->links * sizeof(*b->link_table) + 1);
	b->membarrier = !syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0);
	if (!b->session || !b->conn || !b->node_by_id || !b->segment || !b->link_table)
		rc = -ENOMEM;
	if (!rc)
		rc = command_begin(b);
	if (!rc)
		rc = nodes_begin(b);
	if (!rc)
		rc = start(b);
	if (rc) {
		broker_destroy(b);
		errno = -rc;
		return NULL;
	}
	return b;
}

void
broker_destroy(struct broker *b)
{
	if (!b)
		return;
	b->stopping = true;
	b->flushing = true; /* no command leaves any more: the engines have stopped */
	session_socket_close(b);
	control_socket_close(b);
	capture_close_all(b);
	sessions_free_all(b);
	command_free_all(b);
	broker_conns_settle(b);
	local_free_all(b);
	release_all(b);
	link_free_all(b);
	datagrams_free_all(b);
	node_free_all(b);
	quota_free_all(b);
	user_free_all(b);
	sigbus_unwatch();
	if (b->fault_fd >= 0)
		close(b->fault_fd);
	if (b->epoll_fd >= 0)
		close(b->epoll_fd);
	command_unreserve(b, b->reserve.needed);
	free(b->link_table);
	free(b->segment);
	free(b->conn);
	free(b->session);
	free(b);
}

int
broker_fd(const struct broker *b)
{
	return b->epoll_fd;
}

uint64_t
broker_run(struct broker *b)
{
	static uint64_t (*const timers[])(struct broker * b, uint64_t now) = {
	    connect_timers, node_timers,	  link_timers,	   adopt_timers,
	    build_timers,   release_timers,	  services_timers, session_socket_timers,
	    blamed_timers,  control_socket_timers};
	struct epoll_event e;
	uint64_t now, next, due;

	/* one event at a time: handling it may free what the next one points to */
	for (int i = 0; i < EVENTS_PER_RUN && epoll_wait(b->epoll_fd, &e, 1, 0) == 1; i++) {
		struct broker_watch *w = e.data.ptr;

		w->ready(w, e.events);
	}
	now = broker_now(b);
	port_look(b, now);
	next = b->port_look;
	for (size_t i = 0; i < sizeof(timers) / sizeof(timers[0]); i++) {
		due = timers[i](b, now);
		if (due < next)
			next = due;
	}
	broker_flush(b);
	if (command_waiting(b)) /* an engine's mailbox is full */
		return BROKER_SECOND_NS / 1000;
	return next > now ? next - now : 0;
}

void
broker_event(struct broker *b, uint32_t engine, const struct engine_event *event)
{
	struct broker_session *s;
	struct broker_conn *c;

	weir_assert(engine < b->config.engines);
	switch (event->type) {
	case ENGINE_EVENT_CONNECT:
		connect_event(b, engine, event);
		break;
	case ENGINE_EVENT_CONN_CLOSED:
		c = conn_find(b, event->conn.vqpn);
		if (c)
			conn_gone(b, c);
		else
			command_note_early(b, engine, event->conn.vqpn);
		break;
	case ENGINE_EVENT_LOCAL_CLOSE:
		c = conn_find(b, event->conn.vqpn);
		if (c)
			conn_tell_peer(b, c, event->conn.status);
		break;
	case ENGINE_EVENT_LINK_IDLE:
	case ENGINE_EVENT_LINK_CLOSED:
	case ENGINE_EVENT_LINK_STAYS:
		link_end_event(b, engine, event);
		break;
	case ENGINE_EVENT_LINK_RINGS:
		link_rings_event(b, engine, event);
		break;
	case ENGINE_EVENT_LINK_SILENT:
		node_link_silent(b, engine, event);
		break;
	case ENGINE_EVENT_LINK_ERROR:
		node_link_error(b, engine, event);
		break;
	case ENGINE_EVENT_DATAGRAM_ERROR:
		datagrams_error(b, engine, event->qpn);
		break;
	case ENGINE_EVENT_LINK_HEARD:
		node_link_heard(b, engine, event);
		break;
	case ENGINE_EVENT_VIOLATION:
		s = event->conn.session < b->config.sessions ? b->session[event->conn.session]
							     : NULL;
		if (s)
			session_spoil(s, event->reason);
		break;
	case ENGINE_EVENT_LOCK:
		export_lock(b, &event->lock);
		break;
	case ENGINE_EVENT_FULL:
		session_full(b, event->conn.session);
		break;
	}
	broker_flush(b);
}

void
broker_control_input(struct broker *b, const struct weir_ctl_msg *m)
{
	struct broker_link *l;

	switch (m->type) {
	case WEIR_CTL_HELLO:
		if (m->hello.node < UINT16_MAX)
			node_set_own(b, m->hello.node);
		nodes_unheard(b);
		control_welcome(b);
		break;
	case WEIR_CTL_NODE:
		node_input(b, &m->node);
		break;
	case WEIR_CTL_SYNCED:
		if (!b->synced)
			b->node_changes++; /* the table is complete: programs are told */
		b->synced = true;
		break;
	case WEIR_CTL_SERVICES:
		services_input(b, m);
		break;
	case WEIR_CTL_LINK:
		link_offer_input(b, &m->link);
		break;
	case WEIR_CTL_RESYNC:
		l = link_find(b, WEIR_END_ENGINE(m->link_down.peer_engine), m->link_down.node,
			      m->link_down.engine);
		if (l && (l->state == LINK_OFFERED || l->state == LINK_UP))
			link_offer_send(l, l->confirmed ? l->peer_attempt : 0);
		break;
	default:
		b->counters.control_bad++;
	}
	broker_flush(b);
}

void
broker_set_control_output(struct broker *b,
			  void (*output)(void *user, const struct weir_ctl_msg *m), void *user)
{
	b->control_output = output;
	b->control_output_user = user;
}

bool
broker_stop(struct broker *b)
{
	uint64_t now = broker_now(b);

	if (!b->stopping) {
		b->stopping = true;
		b->stop_deadline = now + STOP_PATIENCE_NS;
		for (uint32_t i = 0; i < b->config.sessions; i++)
			if (b->session[i])
				session_leave(b->session[i]);
		broker_flush(b);
	}
	broker_run(b);
	if (b->session_count && now < b->stop_deadline)
		return false;
	session_socket_close(b);
	/* control, and so the peers, notice; engines release what still waits on links */
	control_socket_close(b);
	for (struct broker_link *l = b->links; l; l = l->next)
		broker_link_fail(l, EHOSTDOWN);
	broker_flush(b);
	return (!b->session_count && link_all_down(b) && !command_waiting(b)) ||
	       now >= b->stop_deadline + 2 * STOP_PATIENCE_NS;
}

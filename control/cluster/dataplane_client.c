/* SPDX-License-Identifier: BSD-3-Clause */
#include "dataplane_client.h"

#include "ipc/ctl_client.h"
#include "ipc/invariant.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define QUICK_RETRIES 20 /* after its connection ended, then at DP_RETRY_MS */
#define BURST 64	 /* messages taken before other sockets have their turn */
#define QUEUE_LINKS 4096 /* then link messages are dropped: the peer sends them again */
#define QUEUE_MAX 16384	 /* then the data plane is left and told everything anew */
#define FACTS 8		 /* lines of the status */
#define DP_FIELDS(incarnation) (struct log_field[]){{"incarnation", incarnation, NULL}}, 1

struct queued {
	STAILQ_ENTRY(queued) entry;
	struct weir_ctl_msg m; /* last: only m.length bytes of it are there */
};

struct dp {
	struct event_base *base;
	const struct dp_handler *handler;
	void *user;
	char path[128]; /* of control.sock */
	struct weir_ctl_msg hello;
	struct weir_ctl_client c;
	bool complained; /* it said why it won't have us: the end of the connection is no death */
	unsigned quick;	 /* connections that ended before HELLO, one after the other */
	struct dp_view view;
	struct weir_services services;
	uint32_t node; /* as it knows it; UINT32_MAX: not yet */
	struct weir_row_fact fact[FACTS];
	struct event *retry, *readable, *writable;
	STAILQ_HEAD(, queued) queue;
	uint32_t queued; /* messages in it */
	struct log_memory trouble;
};

static void try_connect(struct dp *dp);

static void
retry_later(struct dp *dp)
{
	static const struct timeval wait = {.tv_usec = DP_RETRY_MS * 1000};

	evtimer_add(dp->retry, &wait);
}

static void
disconnect(struct dp *dp)
{
	struct queued *q;

	while ((q = STAILQ_FIRST(&dp->queue))) {
		STAILQ_REMOVE_HEAD(&dp->queue, entry);
		free(q);
	}
	dp->queued = 0;
	if (dp->readable)
		event_free(dp->readable);
	if (dp->writable)
		event_free(dp->writable);
	dp->readable = dp->writable = NULL;
	weir_ctl_close(&dp->c);
}

// Left without its being dead: what we know of it stays as it is.
static void
leave(struct dp *dp)
{
	disconnect(dp);
	retry_later(dp);
}

/*
 * The connection ended. Is the data plane dead, or did it only hang up on us? It is dead when
 * nobody listens any more; a dying one may still have its listening socket for a moment.
 */
static void
gone(struct dp *dp)
{
	if (dp->complained || dp->view.state != DP_UP || dp->quick == QUICK_RETRIES) {
		leave(dp);
		return;
	}
	dp->quick++;
	disconnect(dp);
	try_connect(dp);
}

static void
tell_fact(struct dp *dp, const struct weir_row_fact *fact)
{
	struct weir_ctl_msg m = {.type = WEIR_CTL_FACT, .fact = *fact};

	if (*fact->name)
		dp_send(dp, &m);
}

static void
take(struct dp *dp, const struct weir_ctl_msg *m, int status)
{
	enum log_level level, before;
	char why[WEIR_VERSION_WHY];

	if (status == -EPROTO) {
		weir_version_choose(WEIR_CTL_VERSIONS, m->hello.versions, "control.sock",
				    "weir-control", "weir-dataplane", why);
		log_once(&dp->trouble, "%s", why);
		dp->complained = true;
		leave(dp);
		return;
	}
	if (status) {
		log_once(&dp->trouble,
			 "data plane sent a malformed message of %zu bytes; "
			 "install both from one release",
			 dp->c.length);
		leave(dp);
		return;
	}
	switch (m->type) {
	case WEIR_CTL_HELLO:
		if (m->hello.role != WEIR_ROLE_DATAPLANE || !m->hello.incarnation) {
			log_once(&dp->trouble,
				 "the process that listens on %s is not a data plane; "
				 "start weir-dataplane for this instance",
				 dp->path);
			leave(dp);
			break;
		}
		if (m->hello.node != UINT32_MAX && dp->hello.hello.node != UINT32_MAX &&
		    m->hello.node != dp->hello.hello.node) {
			log_once(&dp->trouble,
				 "data plane runs as node %u, not %u; restart it, or use --node %u",
				 m->hello.node, dp->hello.hello.node, m->hello.node);
			leave(dp);
			break;
		}
		log_forget(&dp->trouble);
		dp->quick = 0;
		// The same one again, or another: both are news to the peers if it was not up.
		dp->node = m->hello.node;
		dp->view.incarnation = m->hello.incarnation;
		dp->view.engines = m->hello.engines;
		dp->view.address_count = m->hello.address_count;
		dp->view.services = m->hello.services; // they follow
		memcpy(dp->view.address, m->hello.address, sizeof(dp->view.address));
		log_event(LOG_LEVEL_INFO, DP_FIELDS(m->hello.incarnation),
			  "data plane is up: pid %u, %u engine%s, incarnation %llu", m->hello.pid,
			  m->hello.engines, m->hello.engines == 1 ? "" : "s",
			  (unsigned long long)m->hello.incarnation);
		dp->view.state = DP_UP;
		for (int i = 0; i < FACTS; i++)
			tell_fact(dp, &dp->fact[i]);
		dp->handler->changed(dp->user, &dp->view);
		break;
	case WEIR_CTL_ERROR:
		log_once_about(&dp->trouble, (struct log_field[]){{"reason", 0, m->error.reason}},
			       1, "data plane refuses us: %s", m->error.reason);
		dp->complained = true;
		break;
	case WEIR_CTL_LINK:
	case WEIR_CTL_LINK_DOWN:
	case WEIR_CTL_RESYNC:
		if (dp->view.state == DP_UP)
			dp->handler->message(dp->user, m);
		break;
	case WEIR_CTL_SERVICES:
		if (dp->view.state == DP_UP) {
			struct weir_services *s = &dp->services;

			memset(s, 0, sizeof(*s));
			s->count = m->services.names.count;
			memcpy(s->name, m->services.names.name, s->count * sizeof(s->name[0]));
			dp->view.services = weir_services_digest(s);
			dp->handler->services(dp->user);
		}
		break;
	case WEIR_CTL_SET:
		// An operator has changed it with weirctl. Logged at the old or the new level,
		// whichever shows the line.
		before = log_level();
		if (!strcmp(m->set.key, "log.level") && log_level_parse(m->set.value, &level) &&
		    level != before) {
			log_set_level(level > before ? level : before);
			log_info("log level is %s from now on, by weirctl", m->set.value);
			log_set_level(level);
		}
		break;
	default:
		log_once(&dp->trouble, "data plane sent an unexpected message of type %u", m->type);
	}
}

static void
on_readable(evutil_socket_t fd, short what, void *user)
{
	struct dp *dp = user;

	for (int i = 0; i < BURST && dp->c.fd == fd; i++) {
		int rc = weir_ctl_receive(&dp->c);

		if (rc == -EAGAIN)
			return;
		if (rc && rc != -EPROTO && rc != -EBADMSG) {
			gone(dp);
			return;
		}
		take(dp, &dp->c.in.m, rc);
	}
}

static void
on_writable(evutil_socket_t fd, short what, void *user)
{
	struct dp *dp = user;
	struct queued *q;
	int rc;

	while ((q = STAILQ_FIRST(&dp->queue))) {
		rc = weir_ctl_send(&dp->c, &q->m, -1);
		// Errors other than a full socket show on the reading side as its end.
		if (rc == -EAGAIN || rc == -ENOBUFS) {
			event_add(dp->writable, NULL);
			return;
		}
		STAILQ_REMOVE_HEAD(&dp->queue, entry);
		dp->queued--;
		free(q);
	}
}

static void
enqueue(struct dp *dp, struct weir_ctl_msg *m)
{
	struct queued *q;

	m->length = weir_ctl_size(m);
	if (dp->queued >= QUEUE_LINKS && (m->type == WEIR_CTL_LINK || m->type == WEIR_CTL_RESYNC))
		return;
	q = dp->queued < QUEUE_MAX ? malloc(offsetof(struct queued, m) + m->length) : NULL;
	if (!q) {
		log_warning("data plane takes no messages; everything is sent again when it does");
		leave(dp);
		return;
	}
	memcpy(&q->m, m, m->length);
	STAILQ_INSERT_TAIL(&dp->queue, q, entry);
	if (dp->queued++ == 0)
		on_writable(dp->c.fd, EV_WRITE, dp);
}

void
dp_send(struct dp *dp, struct weir_ctl_msg *m)
{
	if (dp->c.fd >= 0 && dp->view.state == DP_UP)
		enqueue(dp, m);
}

void
dp_fact(struct dp *dp, const char *name, const char *value)
{
	struct weir_row_fact *f = dp->fact;

	while (f < dp->fact + FACTS - 1 && *f->name && strcmp(f->name, name))
		f++;
	weir_assert(!*f->name || !strcmp(f->name, name));
	if (!strcmp(f->name, name) && !strcmp(f->value, value))
		return;
	snprintf(f->name, sizeof(f->name), "%s", name);
	snprintf(f->value, sizeof(f->value), "%s", value);
	snprintf(f->from, sizeof(f->from), "weir-control");
	tell_fact(dp, f);
}

static void
try_connect(struct dp *dp)
{
	int rc = weir_ctl_connect(&dp->c, dp->path, 0);

	dp->complained = false;
	if (rc) {
		disconnect(dp);
		retry_later(dp);
		// Nobody listens, so nobody lives. Anything else says nothing about it.
		if (rc == -ECONNREFUSED || rc == -ENOENT) {
			if (dp->view.state == DP_UNKNOWN)
				log_warning("no data plane behind %s yet; start weir-dataplane",
					    dp->path);
			if (dp->view.state == DP_UP)
				log_event(LOG_LEVEL_WARNING, DP_FIELDS(dp->view.incarnation),
					  "data plane is gone (incarnation %llu); start "
					  "weir-dataplane again",
					  (unsigned long long)dp->view.incarnation);
			if (dp->view.state != DP_DOWN) {
				dp->view.state = DP_DOWN;
				dp->handler->changed(dp->user, &dp->view);
			}
		} else if (rc != -EAGAIN) {
			log_once(&dp->trouble, "cannot connect to %s: %s; %s", dp->path,
				 strerror(-rc),
				 rc == -EACCES || rc == -EPERM
				     ? "run as the data plane's user"
				     : "trying again; raise the limits of weir-control");
		}
		return;
	}
	dp->readable = event_new(dp->base, dp->c.fd, EV_READ | EV_PERSIST, on_readable, dp);
	dp->writable = event_new(dp->base, dp->c.fd, EV_WRITE, on_writable, dp);
	if (!dp->readable || !dp->writable || event_add(dp->readable, NULL)) {
		log_once(&dp->trouble, "out of memory");
		leave(dp);
		return;
	}
	enqueue(dp, &dp->hello);
}

static void
on_retry(evutil_socket_t fd, short what, void *user)
{
	try_connect(user);
}

struct dp *
dp_create(struct event_base *base, const char *socket_path, const struct weir_ctl_msg *hello,
	  const struct dp_handler *handler, void *user)
{
	struct dp *dp = calloc(1, sizeof(*dp));

	if (!dp)
		return NULL;
	dp->base = base;
	dp->handler = handler;
	dp->user = user;
	dp->hello = *hello;
	dp->c.fd = -1;
	dp->node = UINT32_MAX;
	STAILQ_INIT(&dp->queue);
	snprintf(dp->path, sizeof(dp->path), "%s", socket_path);
	dp->retry = evtimer_new(base, on_retry, dp);
	if (!dp->retry) {
		free(dp);
		errno = ENOMEM;
		return NULL;
	}
	try_connect(dp);
	return dp;
}

void
dp_destroy(struct dp *dp)
{
	if (!dp)
		return;
	disconnect(dp);
	event_free(dp->retry);
	free(dp);
}

const struct dp_view *
dp_view(const struct dp *dp)
{
	return &dp->view;
}

const struct weir_services *
dp_services(const struct dp *dp)
{
	return &dp->services;
}

uint32_t
dp_node(const struct dp *dp)
{
	return dp->node;
}

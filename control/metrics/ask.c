/* SPDX-License-Identifier: BSD-3-Clause */
/* Asks our data plane for its records, kind by kind, as weirctl does. */
#include "metrics.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PATIENCE_S 4
#define RECORDS_MAX (16u << 20) /* bytes of one kind; more is no data plane of ours */

struct metrics_ask {
	int fd;
	struct event *readable, *over;
	void (*done)(void *user, const struct metrics_rows *rows);
	void *user;
	bool greeted;
	uint32_t at; /* in metrics_kind */
	struct metrics_rows rows[METRICS_KINDS];
	union {
		struct weir_ctl_msg m;
		uint8_t bytes[WEIR_CTL_MAX];
	} in;
};

void
metrics_ask_stop(struct metrics_ask *a)
{
	if (!a)
		return;
	if (a->readable)
		event_free(a->readable);
	if (a->over)
		event_free(a->over);
	if (a->fd >= 0)
		close(a->fd);
	for (uint32_t i = 0; i < METRICS_KINDS; i++)
		free(a->rows[i].records);
	free(a);
}

static void
finish(struct metrics_ask *a, bool well)
{
	a->done(a->user, well ? a->rows : NULL);
	metrics_ask_stop(a);
}

static bool
say(struct metrics_ask *a, struct weir_ctl_msg *m)
{
	m->length = weir_ctl_length(m->type);
	return send(a->fd, m, m->length, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)m->length;
}

static bool
ask_next(struct metrics_ask *a)
{
	struct weir_ctl_msg m = {.type = WEIR_CTL_QUERY};

	m.query.rows = metrics_kind[a->at];
	return say(a, &m);
}

static bool
append(struct metrics_rows *to, const struct weir_ctl_msg *m)
{
	size_t bytes = m->rows.record_bytes, have = to->count * bytes;
	size_t more = m->rows.count * bytes;
	uint8_t *grown = have + more <= RECORDS_MAX ? realloc(to->records, have + more + 1) : NULL;

	if (!grown)
		return false;
	memcpy(grown + have, m->rows.records, more);
	to->records = grown;
	to->count += m->rows.count;
	return true;
}

/* False: the data plane says what it shouldn't. */
static bool
take(struct metrics_ask *a, const struct weir_ctl_msg *m)
{
	if (!a->greeted) {
		a->greeted = true;
		return m->type == WEIR_CTL_HELLO && ask_next(a);
	}
	if (m->type != WEIR_CTL_ROWS || m->rows.rows != metrics_kind[a->at] ||
	    !append(&a->rows[a->at], m))
		return false;
	if (m->rows.more)
		return true;
	a->at++;
	return a->at == METRICS_KINDS || ask_next(a);
}

static void
on_readable(evutil_socket_t fd, short what, void *user)
{
	struct metrics_ask *a = user;
	ssize_t n = recv(fd, a->in.bytes, sizeof(a->in), MSG_DONTWAIT | MSG_TRUNC);

	(void)what;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0 || weir_ctl_check(&a->in.m, (size_t)n) || !take(a, &a->in.m))
		finish(a, false);
	else if (a->at == METRICS_KINDS)
		finish(a, true);
}

static void
on_time(evutil_socket_t fd, short what, void *user)
{
	(void)fd;
	(void)what;
	finish(user, false);
}

static bool
open_socket(struct metrics_ask *a, const char *path)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	struct weir_ctl_msg hello = {.type = WEIR_CTL_HELLO};

	snprintf(to.sun_path, sizeof(to.sun_path), "%s", path);
	a->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (a->fd < 0 || connect(a->fd, (struct sockaddr *)&to, sizeof(to)))
		return false;
	hello.hello.version = WEIR_CTL_VERSION;
	hello.hello.role = WEIR_ROLE_QUERY;
	hello.hello.node = UINT32_MAX;
	hello.hello.pid = (uint32_t)getpid();
	return say(a, &hello);
}

struct metrics_ask *
metrics_ask(struct event_base *base, const char *socket_path,
	    void (*done)(void *user, const struct metrics_rows *rows), void *user)
{
	static const struct timeval patience = {.tv_sec = PATIENCE_S};
	struct metrics_ask *a = calloc(1, sizeof(*a));

	if (!a) {
		done(user, NULL);
		return NULL;
	}
	a->done = done;
	a->user = user;
	a->fd = -1;
	if (open_socket(a, socket_path)) {
		a->readable = event_new(base, a->fd, EV_READ | EV_PERSIST, on_readable, a);
		a->over = evtimer_new(base, on_time, a);
	}
	if (!a->readable || !a->over || event_add(a->readable, NULL) ||
	    evtimer_add(a->over, &patience)) {
		finish(a, false);
		return NULL;
	}
	return a;
}

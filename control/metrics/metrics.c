/* SPDX-License-Identifier: BSD-3-Clause */
/* HTTP as far as a scraper speaks it: one request a connection. */
#include "metrics.h"

#include "ipc/invariant.h"
#include "transport/listener.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define CLIENTS 16u
#define REQUEST_MAX 4096u
#define PATIENCE_S 10 /* from accept() to the last byte of the answer */

struct client {
	struct metrics *m;
	struct bufferevent *stream;
	struct event *over; /* its time */
	bool waits;	    /* for the data plane's answer */
	bool answered;
	bool head; /* without the body */
	LIST_ENTRY(client) entry;
};

struct metrics {
	struct event_base *base;
	struct listener *listener;
	struct metrics_ask *ask; /* under way */
	struct metrics_config config;
	LIST_HEAD(, client) clients; /* newest first */
	uint32_t count;
};

static void
client_free(struct client *c)
{
	weir_assert(c->m->count);
	LIST_REMOVE(c, entry);
	c->m->count--;
	if (c->over)
		event_free(c->over);
	if (c->stream)
		bufferevent_free(c->stream);
	free(c);
}

static void
answer(struct client *c, const char *status, const char *body)
{
	c->answered = true;
	c->waits = false;
	evbuffer_add_printf(bufferevent_get_output(c->stream),
			    "HTTP/1.1 %s\r\n"
			    "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
			    "Content-Length: %zu\r\n"
			    "Connection: close\r\n\r\n%s",
			    status, strlen(body), c->head ? "" : body);
}

static void
on_answer(void *user, const struct metrics_rows *rows)
{
	struct metrics *m = user;
	struct metrics_certificate certificates[METRICS_CERTIFICATES];
	uint32_t count = m->config.certificates(m->config.user, certificates);
	char *text = metrics_text(rows, m->config.cluster, certificates, count);

	m->ask = NULL;
	for (struct client *c = LIST_FIRST(&m->clients); c; c = LIST_NEXT(c, entry))
		if (c->waits)
			answer(c, text ? "200 OK" : "500 Out Of Memory", text ? text : "");
	free(text);
}

static void
on_readable(struct bufferevent *stream, void *user)
{
	struct client *c = user;
	struct evbuffer *in = bufferevent_get_input(stream);
	char line[REQUEST_MAX + 1];
	const char *path;
	struct evbuffer_ptr end;
	size_t n;

	if (c->waits || c->answered) {
		evbuffer_drain(in, evbuffer_get_length(in)); /* nothing more is asked for */
		return;
	}
	end = evbuffer_search(in, "\r\n\r\n", 4, NULL);
	if (end.pos < 0 && evbuffer_get_length(in) < REQUEST_MAX)
		return;
	n = evbuffer_copyout(in, line, REQUEST_MAX) > 0 ? evbuffer_get_length(in) : 0;
	line[n < REQUEST_MAX ? n : REQUEST_MAX] = 0;
	evbuffer_drain(in, evbuffer_get_length(in));
	if (end.pos < 0) {
		answer(c, "431 Request Header Fields Too Large", "");
		return;
	}
	c->head = !strncmp(line, "HEAD ", 5);
	if (!c->head && strncmp(line, "GET ", 4)) {
		answer(c, "405 Method Not Allowed", "GET /metrics is all there is\n");
		return;
	}
	path = strchr(line, ' ') + 1;
	if (strncmp(path, "/metrics", 8) || !strchr(" ?", path[8]) || !path[8]) {
		answer(c, "404 Not Found", "GET /metrics is all there is\n");
		return;
	}
	c->waits = true;
	if (!c->m->ask)
		c->m->ask = metrics_ask(c->m->base, c->m->config.socket_path, on_answer, c->m);
}

static void
on_written(struct bufferevent *stream, void *user)
{
	struct client *c = user;

	if (c->answered)
		client_free(c);
}

static void
on_end(struct bufferevent *stream, short what, void *user)
{
	client_free(user);
}

static void
on_time(evutil_socket_t fd, short what, void *user)
{
	client_free(user);
}

static void
on_accept(void *user, int fd, struct sockaddr *address, int length)
{
	static const struct timeval patience = {.tv_sec = PATIENCE_S};
	struct metrics *m = user;
	struct client *c = NULL;

	/* room is made by closing the client that has been silent for the longest time */
	if (m->count >= CLIENTS) {
		struct client *oldest = NULL;

		for (c = LIST_FIRST(&m->clients); c; c = LIST_NEXT(c, entry))
			if (!c->waits && !c->answered)
				oldest = c;
		if (oldest)
			client_free(oldest);
	}
	if (m->count < CLIENTS)
		c = calloc(1, sizeof(*c));
	if (!c) {
		evutil_closesocket(fd);
		return;
	}
	c->m = m;
	LIST_INSERT_HEAD(&m->clients, c, entry);
	m->count++;
	c->stream = bufferevent_socket_new(m->base, fd, BEV_OPT_CLOSE_ON_FREE);
	if (!c->stream)
		evutil_closesocket(fd);
	c->over = evtimer_new(m->base, on_time, c);
	if (!c->stream || !c->over || evtimer_add(c->over, &patience)) {
		client_free(c);
		return;
	}
	bufferevent_setwatermark(c->stream, EV_READ, 0, REQUEST_MAX);
	bufferevent_setcb(c->stream, on_readable, on_written, on_end, c);
	bufferevent_enable(c->stream, EV_READ | EV_WRITE);
}

int
metrics_open(struct event_base *base, const struct sockaddr *address, int length,
	     const struct metrics_config *config, struct metrics **metrics)
{
	struct metrics *m = calloc(1, sizeof(*m));
	const struct listener_config listener = {
	    .option = "--metrics", .burst = CLIENTS, .accepted = on_accept, .user = m};
	int rc;

	if (!m)
		return -ENOMEM;
	m->base = base;
	m->config = *config;
	rc = listener_open(base, address, (socklen_t)length, &listener, &m->listener);
	if (rc) {
		free(m);
		return rc;
	}
	*metrics = m;
	return 0;
}

void
metrics_close(struct metrics *m)
{
	if (!m)
		return;
	metrics_ask_stop(m->ask);
	while (!LIST_EMPTY(&m->clients))
		client_free(LIST_FIRST(&m->clients));
	listener_close(m->listener);
	free(m);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* TCP between virtual hosts, as a transport of control/transport/stream.h and a listener of
 * libevent. */
#include "virtual.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/listener.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#define SYN_TRIES 3u
#define BACKLOG 256u
#define RETRY_MIN (200 * MS) // of what was not acknowledged, doubling
#define RETRY_MAX (4 * SECOND)
#define TRIES 12u
#define OUTPUT_MAX (UINT64_C(1) << 20)

struct segment {
	struct segment *next;
	uint64_t at;
	const char *end; // not NULL: the connection's, and why
	size_t length;
	uint8_t bytes[];
};

struct evconnlistener {
	struct host *host;
	evconnlistener_cb callback;
	void *user;
	struct sock *first, **last;
	uint32_t count;
	bool enabled;
};

static struct sock *accepted; // by the listener's callback, on its way to adopt()

static void
drop_segments(struct sock *s)
{
	while (s->first) {
		struct segment *g = s->first;

		s->first = g->next;
		free(g);
	}
	s->last = &s->first;
	s->queued = 0;
}

static void
free_sock(struct sock *s)
{
	drop_segments(s);
	free(s->in);
	free(s);
}

// Held by its process or a backlog, and by tasks; both ends are freed together.
static void
unref(struct sock *s)
{
	struct sock *other = s->other;

	if (--s->refs || (other && other->refs))
		return;
	if (other)
		free_sock(other);
	free_sock(s);
}

static struct sock *
make(struct host *host)
{
	struct sock *s = calloc(1, sizeof(*s));

	if (!s)
		abort();
	s->host = host;
	s->life = host->life;
	s->refs = 1;
	s->last = &s->first;
	return s;
}

// ---- what its process sees ----

static void
on_ready(void *arg, uint64_t tag, bool alive)
{
	struct sock *s = arg;
	size_t taken = 0;

	s->ready = false;
	if (alive && s->held && s->opened && !s->told_opened) {
		s->told_opened = true;
		s->stream.handler->opened(s->stream.user);
	}
	if (alive && s->held && s->in_length &&
	    s->stream.handler->input(s->stream.user, s->in, s->in_length, &taken)) {
		memmove(s->in, s->in + taken, s->in_length - taken);
		s->in_length -= taken;
	}
	if (alive && s->held && s->ended && !s->told_ended) {
		s->told_ended = true;
		s->stream.handler->closed(s->stream.user, s->why);
	}
	unref(s);
}

static void
wake(struct sock *s)
{
	if (!s->held || s->ready)
		return;
	s->ready = true;
	s->refs++;
	world_at(world.now, s->host, on_ready, s, 0);
}

static void
end(struct sock *s, const char *why)
{
	drop_segments(s);
	if (s->ended)
		return;
	s->ended = true;
	s->why = why;
	wake(s);
}

// ---- under way ----

static void
append(struct sock *s, const uint8_t *data, size_t length)
{
	if (s->in_length + length > s->in_room) {
		s->in_room = 2 * (s->in_length + length);
		s->in = realloc(s->in, s->in_room);
		if (!s->in)
			abort();
	}
	memcpy(s->in + s->in_length, data, length);
	s->in_length += length;
	wake(s);
}

static void deliver(void *arg, uint64_t tag, bool alive);

static void
deliver_at(struct sock *s, uint64_t at)
{
	if (s->scheduled)
		return;
	s->scheduled = true;
	s->refs++;
	world_at(at, NULL, deliver, s, 0);
}

static void
wait_for_ack(struct sock *s)
{
	uint64_t wait = RETRY_MIN << (s->tries < 5 ? s->tries : 5);

	if (++s->tries == TRIES)
		end(s, "Connection timed out");
	else
		deliver_at(s, world.now + (wait < RETRY_MAX ? wait : RETRY_MAX));
}

static void
deliver(void *arg, uint64_t tag, bool alive)
{
	struct sock *s = arg, *other = s->other;

	s->scheduled = false;
	while (s->first && s->first->at <= world.now && alive) {
		struct segment *g = s->first;

		if (s->dark) {
			drop_segments(s);
			break;
		}
		if (world_cut(s->host, other->host) || !other->host->powered) {
			wait_for_ack(s);
			break;
		}
		s->tries = 0;
		if (other->gone || (!g->end && !other->held && !other->waiting)) {
			end(s, "Connection reset by peer");
			break;
		}
		s->first = g->next;
		if (!s->first)
			s->last = &s->first;
		s->queued -= g->length;
		if (g->end)
			end(other, g->end);
		else
			append(other, g->bytes, g->length);
		free(g);
	}
	if (s->first && alive)
		deliver_at(s, s->first->at > world.now ? s->first->at : world.now + 1);
	unref(s);
}

static void
enqueue(struct sock *s, const void *data, size_t length, const char *why)
{
	struct segment *g = malloc(sizeof(*g) + length);
	uint64_t at = world.now + world_delay();

	if (!g)
		abort();
	s->last_at = at > s->last_at ? at : s->last_at + 1;
	*g = (struct segment){.at = s->last_at, .end = why, .length = length};
	if (length)
		memcpy(g->bytes, data, length);
	*s->last = g;
	s->last = &g->next;
	s->queued += length;
	deliver_at(s, g->at);
}

// ---- the transport ----

static struct host *
host_at(const struct sockaddr_in *address)
{
	uint32_t place = (ntohl(address->sin_addr.s_addr) & 0xffffff) - 1;

	return place < world.hosts ? &world.host[place] : NULL;
}

static void on_connection(void *arg, uint64_t tag, bool alive);

static void
on_syn(void *arg, uint64_t to, bool alive)
{
	struct sock *s = arg, *other;
	struct host *h = to < world.hosts ? &world.host[to] : NULL;
	struct evconnlistener *l = h ? h->listener : NULL;

	if (!alive || !s->held || s->ended) {
		unref(s);
		return;
	}
	if (!h || !h->powered || world_cut(s->host, h) || (l && l->count == BACKLOG)) {
		if (++s->tries == SYN_TRIES) {
			end(s, "Connection timed out");
			unref(s);
		} else {
			world_at(world.now + SECOND, NULL, on_syn, s, to);
		}
		return;
	}
	s->tries = 0;
	if (!l) {
		end(s, "Connection refused");
		unref(s);
		return;
	}
	other = make(h);
	other->waiting = true;
	other->told_opened = true;
	other->opened = s->opened = true;
	other->other = s;
	s->other = other;
	*l->last = other;
	l->last = &other->next;
	l->count++;
	wake(s);
	world_at(world.now, h, on_connection, h, 0);
	unref(s);
}

static int
tcp_dial(const struct control_transport *self, struct event_base *base,
	 const struct sockaddr *address, socklen_t length,
	 const struct control_stream_handler *handler, void *user, struct control_stream **stream)
{
	struct host *to = host_at((const struct sockaddr_in *)address);
	struct sock *s = make(base->host);

	s->stream = (struct control_stream){self, handler, user};
	s->held = true;
	s->host->held++;
	s->host->dials++;
	s->refs++;
	world_at(world.now + world_delay(), NULL, on_syn, s, to ? to->place : world.hosts);
	*stream = &s->stream;
	return 0;
}

static int
tcp_adopt(const struct control_transport *self, struct event_base *base, int fd,
	  const struct control_stream_handler *handler, void *user, struct control_stream **stream)
{
	struct sock *s = accepted;

	accepted = NULL;
	s->stream = (struct control_stream){self, handler, user};
	s->held = true;
	s->host->held++;
	wake(s); // what came meanwhile
	*stream = &s->stream;
	return 0;
}

static void
count_ping(struct sock *s, const uint8_t *data, size_t length)
{
	struct control_msg m;

	if (s->other->host->place == s->host->ping_to &&
	    !control_msg_decode(data + CONTROL_PREFIX, length - CONTROL_PREFIX, &m) &&
	    m.type == CONTROL_SWIM && m.swim.msg.type == SWIM_PING)
		s->host->pings++;
}

static int
tcp_write(struct control_stream *stream, const void *data, size_t length)
{
	struct sock *s = (struct sock *)stream;
	// Only what may be lost: no connection comes to be without a Hello.
	bool first = !s->written++;

	if (!s->other || s->ended || !s->host->powered)
		return 0;
	if (s->queued + length > OUTPUT_MAX)
		return -ENOBUFS;
	s->host->messages++;
	s->host->bytes += length;
	if (s->host->ping_to != UINT32_MAX)
		count_ping(s, data, length);
	if (!first && world_random(1000) < world.loss)
		return 0;
	enqueue(s, data, length, NULL);
	if (!first && world_random(1000) < world.twice)
		enqueue(s, data, length, NULL);
	return 0;
}

static void
leave(struct sock *s)
{
	if (!s->host->powered) {
		drop_segments(s);
		s->gone = true;
	} else if (s->other && !s->ended) {
		enqueue(s, NULL, 0, "connection closed");
	}
	unref(s);
}

static void
tcp_close(struct control_stream *stream)
{
	struct sock *s = (struct sock *)stream;

	if (!s)
		return;
	s->held = false;
	s->host->held--;
	leave(s);
}

const struct control_transport virtual_tcp = {
    .dial = tcp_dial,
    .adopt = tcp_adopt,
    .write = tcp_write,
    .close = tcp_close,
};

void
tcp_darken(struct sock *s, bool reset)
{
	if (!s->other)
		return;
	s->dark = s->other->dark = true;
	if (reset)
		end(s, "Connection reset by peer");
}

// ---- the listener ----

static void
take_in(struct evconnlistener *l)
{
	struct sockaddr_in from = {.sin_family = AF_INET};

	while (l->enabled && l->first) {
		struct sock *s = l->first;

		l->first = s->next;
		if (!l->first)
			l->last = &l->first;
		l->count--;
		s->waiting = false;
		from.sin_addr.s_addr = htonl(0x7f000001 + s->other->host->place);
		accepted = s;
		l->callback(l, 1, (struct sockaddr *)&from, sizeof(from), l->user);
	}
}

static void
on_connection(void *arg, uint64_t tag, bool alive)
{
	struct host *h = arg;

	if (alive && h->listener)
		take_in(h->listener);
}

struct evconnlistener *
evconnlistener_new_bind(struct event_base *base, evconnlistener_cb callback, void *user,
			unsigned flags, int backlog, const struct sockaddr *address, int length)
{
	struct evconnlistener *l = calloc(1, sizeof(*l));

	if (!l)
		abort();
	l->host = base->host;
	l->callback = callback;
	l->user = user;
	l->last = &l->first;
	l->enabled = true;
	base->host->listener = l;
	return l;
}

void
evconnlistener_set_error_cb(struct evconnlistener *l, evconnlistener_errorcb callback)
{
}

int
evconnlistener_disable(struct evconnlistener *l)
{
	l->enabled = false;
	return 0;
}

int
evconnlistener_enable(struct evconnlistener *l)
{
	l->enabled = true;
	world_at(world.now, l->host, on_connection, l->host, 0);
	return 0;
}

evutil_socket_t
evconnlistener_get_fd(struct evconnlistener *l)
{
	return -1;
}

void
evconnlistener_free(struct evconnlistener *l)
{
	while (l->first) {
		struct sock *s = l->first;

		l->first = s->next;
		s->waiting = false;
		leave(s);
	}
	l->host->listener = NULL;
	free(l);
}

int
evutil_closesocket(evutil_socket_t fd)
{
	abort(); // conn_accept() has memory here
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that outlives its data plane, and accounts for every message; for smoke tests.
 *
 *   survivor INSTANCE sink SERVICE           receives on every connection until killed
 *   survivor INSTANCE send ADDRESS WHO       sends as fast as it can until SIGTERM, on a connection
 *                                            that the library makes again
 *
 * At the end of each connection either end prints sender, life and the fate of the messages.
 */
#include "program.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OUTSTANDING 256u
#define LARGE 20000u
#define FLOWS 100u

struct message {
	uint64_t who, life, number;
	uint8_t rest[LARGE];
};

static struct weir *w;
static struct message message;
static _Atomic bool stopped;

static size_t
length_of(uint64_t number)
{
	return 24 + (number % 32 ? number % 700 : LARGE);
}

/* ---- receiving ---- */

struct source {
	uint64_t who, life, received, wrong;
};

static void
take(struct weir_conn *c)
{
	struct source *s = weir_conn_user(c);
	size_t length;

	while (!weir_recv(c, &message, sizeof(message), &length, 0)) {
		if (!s->received) {
			s->who = message.who;
			s->life = message.life;
		}
		s->wrong += length != length_of(s->received) || message.who != s->who ||
			    message.life != s->life || message.number != s->received;
		s->received++;
	}
}

static void
over(struct weir_conn *c, int status)
{
	struct source *s = weir_conn_user(c);

	if (s->received)
		say("who %llu life %llu received %llu wrong %llu status %d",
		    (unsigned long long)s->who, (unsigned long long)s->life,
		    (unsigned long long)s->received, (unsigned long long)s->wrong, status);
	free(s);
	weir_close(c);
}

static int
sink(const char *service)
{
	struct weir_listener *l;
	struct weir_event e[32];
	struct weir_conn *c;
	int n, rc = serve_at(w, service, 0, &l);

	if (rc)
		return 1;
	while ((n = weir_wait(w, e, 32, -1)) >= 0) {
		for (int i = 0; i < n; i++) {
			if (e[i].type == WEIR_EVENT_ACCEPT)
				while (!(rc = weir_accept(l, 0, &c)))
					weir_conn_set_user(c, calloc(1, sizeof(struct source)));
			if (e[i].type == WEIR_EVENT_ACCEPT && rc != -EAGAIN)
				return failed("accept", rc);
			if (e[i].type == WEIR_EVENT_READABLE)
				take(e[i].conn);
			if (e[i].type == WEIR_EVENT_CLOSED)
				over(e[i].conn, e[i].status);
		}
	}
	return failed("wait", n);
}

/* ---- sending ---- */

static struct {
	struct weir_conn *c; /* NULL: there is none now */
	uint64_t who, life, accepted, complete, failed;
	bool full;
} line;

static void
account(int status)
{
	say("who %llu life %llu accepted %llu complete %llu failed %llu status %d",
	    (unsigned long long)line.who, (unsigned long long)line.life,
	    (unsigned long long)line.accepted, (unsigned long long)line.complete,
	    (unsigned long long)line.failed, status);
}

static void
on_event(const struct weir_event *e)
{
	switch (e->type) {
	case WEIR_EVENT_OPENED:
		line.c = e->conn;
		line.life++;
		line.accepted = line.complete = line.failed = 0;
		line.full = false;
		say("opened life %llu", (unsigned long long)line.life);
		break;
	case WEIR_EVENT_WRITABLE:
		line.full = false;
		break;
	case WEIR_EVENT_SENT:
		if (e->status)
			line.failed++;
		else if (++line.complete == FLOWS)
			say("flowing life %llu", (unsigned long long)line.life);
		break;
	case WEIR_EVENT_LOST:
	case WEIR_EVENT_CLOSED:
		account(e->status);
		weir_close(e->conn);
		line.c = NULL;
		if (e->type == WEIR_EVENT_CLOSED)
			stopped = true; /* that was not to be */
		break;
	}
}

static void
fill(void)
{
	while (line.c && !stopped && !line.full &&
	       line.accepted - line.complete - line.failed < OUTSTANDING) {
		message.who = line.who;
		message.life = line.life;
		message.number = line.accepted;
		if (weir_send_notify(line.c, &message, length_of(line.accepted), WEIR_NOTIFY,
				     line.accepted, 0))
			line.full = true; /* until WRITABLE, or the end */
		else
			line.accepted++;
	}
}

static int
send_all(const char *text, uint64_t who)
{
	struct weir_connect_options o = {
	    .size = sizeof(o), .reconnect = {WEIR_AGAIN_RESTART | WEIR_AGAIN_LOSS, 10, 200, 0}};
	struct weir_address to;
	struct weir_event e[64];
	int n = 0, rc = weir_address_parse(text, &to);

	line.who = who;
	if (!rc)
		rc = weir_connect_with(w, &to, &o, 0, &line.c);
	if (rc)
		return failed("connect", rc);
	line.c = NULL; /* until it is open */
	while (n >= 0 && !(stopped && (!line.c || line.accepted == line.complete + line.failed))) {
		n = weir_wait(w, e, 64, 100);
		n = n == -EINTR ? 0 : n; /* SIGTERM */
		for (int i = 0; i < n; i++)
			on_event(&e[i]);
		fill();
	}
	if (n < 0)
		return failed("wait", n);
	if (line.c)
		account(0);
	weir_close(line.c);
	weir_detach(w);
	return 0;
}

static void
on_term(int signal)
{
	stopped = true;
}

int
main(int argc, char **argv)
{
	if (argc < 4)
		return 2;
	if (attach_to(argv[1], NULL, WEIR_REATTACH, &w))
		return 1;
	if (!strcmp(argv[2], "sink"))
		return sink(argv[3]);
	if (argc < 5)
		return 2;
	signal(SIGTERM, on_term);
	return send_all(argv[3], strtoull(argv[4], NULL, 0));
}

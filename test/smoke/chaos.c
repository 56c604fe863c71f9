/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs that tests kill, and that keep books of every message (chaos.h).
 *
 *   chaos receive INSTANCE NODE LIFE LEDGER     listens on "chaos"; sends its life to each peer
 *   chaos send INSTANCE NODE LIFE LEDGER TO...  sends to the nodes TO; closes connections now and
 *                                               then, and connects again when one ends
 *   chaos fresh MS LEDGER...     whether every sender got a message to each of its nodes since MS
 *   chaos unbroken MS LEDGER...  whether no connection has failed since MS
 *   chaos check LOG LEDGER...    whether all books agree
 *
 * SIGTERM ends receivers and senders in order. Both attach again when their data plane is back.
 */
#include "chaos.h"
#include "program.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LANES 2u      /* connections to each node */
#define PACE_MS 5     /* between bursts */
#define AGAIN_MS 50   /* before a connection is tried again */
#define LAST_MS 5000  /* for the ends of connections whose data plane is gone */
#define TURN_MS 1000u /* a longer turn, of a program that stood still, counts as this */

/* One end of a connection. */
struct end {
	struct weir_conn *conn; /* NULL: none */
	struct chaos_stream *s;
	bool open, heard; /* sender: connected; the receiver has said its life */
	uint16_t to;
	uint64_t again_ms, close_ms;
	struct end *next;
};

static struct weir *w;
static struct chaos_ledger *book;
static _Atomic int stopping;
static uint64_t turn_ms, waited_ms, longest_ms, turns, dice; /* since SIGTERM */
static uint64_t message[LARGEST / 8 + 8], want[LARGEST / 8 + 8];

static uint64_t
chance(uint64_t of)
{
	dice ^= dice << 13, dice ^= dice >> 7, dice ^= dice << 17;
	return dice % of;
}

/* A broken rule: the book keeps the first, and the program goes on. */
#define wrong(...)                                                                                 \
	do {                                                                                       \
		printf(__VA_ARGS__), putchar('\n'), fflush(stdout);                                \
		if (!book->failure[0])                                                             \
			snprintf(book->failure, sizeof(book->failure), __VA_ARGS__);               \
	} while (0)

struct chaos_ledger *
chaos_open(const char *path, int flags)
{
	int fd = open(path, flags, 0600);
	struct chaos_ledger *l = MAP_FAILED;
	struct stat is;

	if (fd >= 0 && flags & O_CREAT && ftruncate(fd, sizeof(*l)))
		perror(path);
	if (fd >= 0 && !fstat(fd, &is) && (uint64_t)is.st_size == sizeof(*l))
		l = mmap(NULL, sizeof(*l), flags & O_CREAT ? PROT_READ | PROT_WRITE : PROT_READ,
			 MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	if (l == MAP_FAILED) {
		printf("invalid ledger '%s' (expected a file that chaos wrote)\n", path);
		exit(2);
	}
	return l;
}

static void
on_term(int signal)
{
	stopping = 1;
}

/* SIGTERM came. Connections that do not end after it are at fault. */
static bool
over(void)
{
	return stopping;
}

/* Called once per turn after SIGTERM: whether time is left for the ends. */
static bool
patient(void)
{
	uint64_t now = now_ms(), since = now - (turns ? turn_ms : now);

	turn_ms = now;
	turns++;
	longest_ms = since > longest_ms ? since : longest_ms;
	waited_ms += since < TURN_MS ? since : TURN_MS;
	return waited_ms < PATIENCE_MS; /* the program ran for that time */
}

static struct chaos_stream *
stream_new(uint64_t id, uint32_t node)
{
	uint32_t n = book->streams;
	struct chaos_stream *s = &book->stream[n];

	if (n == CHAOS_STREAMS) {
		wrong("more than %u connections", CHAOS_STREAMS);
		exit(1);
	}
	s->node = node;
	s->opened_ms = now_ms();
	s->id = id;
	book->streams = n + 1;
	return s;
}

static void
stream_end(struct end *e, int status)
{
	if (e->s && !e->s->ended_ms) {
		e->s->status = status;
		e->s->ended_ms = now_ms();
	}
	weir_close(e->conn);
	e->conn = NULL;
	e->s = NULL;
}

/* Repeats until the data plane is there. False: SIGTERM came first. */
static bool
attach(const char *instance)
{
	struct weir_options options = {
	    .size = sizeof(options), .instance = instance, .name = "chaos"};
	int r;

	while (!over()) {
		r = weir_attach(&options, &w);
		if (!r)
			return true;
		if (r != -ENOENT && r != -ECONNREFUSED && r != -ENODEV && r != -ETIMEDOUT)
			wrong("attach: %s (%s)", strerror(-r), weir_reason());
		usleep(20000);
	}
	w = NULL;
	return false;
}

/* ---- receiving ---- */

static struct weir_listener *
listener_new(void)
{
	struct weir_listener *l = NULL;
	int r;

	/* the name may still be that of a former life */
	while ((r = weir_listen(w, "chaos", 0, &l)) == -EADDRINUSE && !over())
		usleep(20000);
	if (r && r != -ENODEV && r != -EADDRINUSE)
		wrong("listen: %s (%s)", strerror(-r), weir_reason());
	return r ? NULL : l;
}

static void
check_message(struct chaos_stream *s, size_t length)
{
	uint64_t n = s->received, i;

	if (length == contents(n, s->id, CHAOS_ONE_LARGE_OF, want) &&
	    !memcmp(want, message, length)) {
		s->received = n + 1;
		return;
	}
	for (i = n > 64 ? n - 64 : 0; i < n + 64; i++)
		if (length == contents(i, s->id, CHAOS_ONE_LARGE_OF, want) && length >= 8 &&
		    !memcmp(want, message, length))
			break;
	wrong("stream %#llx: instead of message %llu came %s %llu, %zu bytes",
	      (unsigned long long)s->id, (unsigned long long)n,
	      i < n + 64 ? "number" : "none of those before", (unsigned long long)i, length);
	s->received = n + 1;
}

/* Takes all messages that are there. Returns why there are no more. */
static int
take(struct end *e)
{
	size_t length;
	int r;

	while ((r = weir_recv(e->conn, message, sizeof(message), &length, 0)) == 0) {
		if (e->s)
			check_message(e->s, length);
		else if (length == 8)
			e->s = stream_new(message[0], e->to);
		else
			wrong("a stream begins with %zu bytes", length);
	}
	return r;
}

static void
accept_ends(struct weir_listener *l, struct end **ends)
{
	struct weir_conn *c;
	struct end *e;
	uint64_t life = book->life;
	int r;

	while (weir_accept(l, 0, &c) == 0) {
		e = calloc(1, sizeof(*e));
		e->conn = c;
		e->next = *ends;
		*ends = e;
		weir_conn_set_user(c, e);
		weir_conn_peer(c, &e->to, &r);
		do /* SIGTERM interrupts it once */
			r = weir_send(c, &life, sizeof(life), 5000);
		while (r == -EINTR);
		if (r == -EAGAIN)
			wrong("a new connection takes no message");
	}
}

static void
forget_ended(struct end **at)
{
	struct end *e;

	while ((e = *at)) {
		if (e->conn) {
			at = &e->next;
			continue;
		}
		*at = e->next;
		free(e);
	}
}

static void
on_received(const struct weir_event *ev, struct weir_listener *l, struct end **ends)
{
	struct end *e = ev->user;

	if (ev->type == WEIR_EVENT_ACCEPT)
		accept_ends(l, ends);
	else if (ev->type == WEIR_EVENT_READABLE)
		take(e);
	else if (ev->type == WEIR_EVENT_CLOSED)
		stream_end(e, ev->status);
}

/* Serves until the data plane is gone, or until SIGTERM. */
static void
receive_life(void)
{
	struct weir_listener *l = listener_new();
	struct weir_event ev[32];
	struct end *ends = NULL;
	int n = 0;

	while (l && n >= 0 && (!over() || (ends && patient()))) {
		n = weir_wait(w, ev, 32, 50);
		n = n == -EINTR ? 0 : n; /* SIGTERM */
		for (int i = 0; i < n; i++)
			on_received(&ev[i], l, &ends);
		forget_ended(&ends);
		if (chance(1000) == 0)
			usleep(20000 + (useconds_t)chance(60000)); /* rings fill */
	}
	if (n < 0 && n != -ENODEV)
		wrong("wait: %s (%s)", strerror(-n), weir_reason());
	for (uint64_t last = now_ms() + LAST_MS; n == -ENODEV && ends && now_ms() < last;) {
		for (int i = 0, got = weir_wait(w, ev, 32, 5); i < got; i++)
			on_received(&ev[i], l, &ends);
		forget_ended(&ends);
		usleep(1000);
	}
	for (struct end *e = ends; e; e = e->next) {
		int r = take(e);

		if (l && n >= 0 && !stopping)
			wrong("left without a reason");
		if (l)
			wrong("stream %#llx of node %u has not ended: %llu received, recv says %d; "
			      "%llu turns, the longest of %llu ms",
			      (unsigned long long)(e->s ? e->s->id : 0), e->to,
			      (unsigned long long)(e->s ? e->s->received : 0), r,
			      (unsigned long long)turns, (unsigned long long)longest_ms);
		stream_end(e, r == -ESHUTDOWN ? 0 : r);
	}
	forget_ended(&ends);
	weir_listener_close(l);
}

/* ---- sending ---- */

static void
stream_open(struct end *e, uint16_t to)
{
	const struct weir_address address = {
	    .kind = WEIR_ADDRESS_NODE, .id = to, .service = "chaos"};
	int r;

	e->to = to;
	e->open = e->heard = false;
	e->again_ms = now_ms() + AGAIN_MS;
	e->close_ms = e->again_ms + chance(4) * 1000 + chance(1000);
	r = weir_connect(w, &address, 0, &e->conn);
	if (r) {
		e->conn = NULL;
		if (r != -EHOSTUNREACH && r != -EHOSTDOWN && r != -ENODEV && r != -ECONNREFUSED &&
		    r != -ETIMEDOUT)
			wrong("connect: %s (%s)", strerror(-r), weir_reason());
		return;
	}
	weir_conn_set_user(e->conn, e);
	e->s = stream_new((uint64_t)book->life << 32 | (book->streams + 1), to);
}

/* Message k of the stream; 0: it was accepted. */
static int
send_next(struct end *e)
{
	static const unsigned ways[] = {0, WEIR_READ, WEIR_WRITE};
	struct chaos_stream *s = e->s;
	uint64_t k = s->taken;
	unsigned flags = WEIR_NOTIFY;
	size_t length;
	int r;

	if (k == 0) {
		message[0] = s->id;
		length = 8;
	} else {
		length = contents(k - 1, s->id, CHAOS_ONE_LARGE_OF, message);
		if (length > 8192)
			flags |= ways[chance(3)];
	}
	s->tried = k + 1;
	r = weir_send_notify(e->conn, message, length, flags, k, 0);
	if (!r)
		s->taken = k + 1;
	return r;
}

static void
send_burst(struct end *e)
{
	unsigned n = 1 + (unsigned)chance(8);

	while (n-- && !send_next(e))
		;
}

static void
on_sent(struct end *e, const struct weir_event *ev)
{
	struct chaos_stream *s = e->s;

	if (ev->cookie != s->complete + s->lost)
		wrong("stream %#llx: message %llu completed instead of %llu",
		      (unsigned long long)s->id, (unsigned long long)ev->cookie,
		      (unsigned long long)(s->complete + s->lost));
	if (ev->status) {
		s->lost++;
		return;
	}
	if (s->lost)
		wrong("stream %#llx: completed after a message that did not",
		      (unsigned long long)s->id);
	s->complete++;
	if (s->node < CHAOS_NODES)
		book->fresh[s->node] = now_ms();
}

static void
on_hello(struct end *e)
{
	uint64_t life;
	size_t length;

	while (weir_recv(e->conn, &life, sizeof(life), &length, 0) == 0) {
		if (e->heard || length != 8)
			wrong("%zu bytes from a receiver", length);
		e->s->peer = (uint32_t)life;
		e->heard = true;
	}
}

static void
on_closed(struct end *e, int status)
{
	struct chaos_stream *s = e->s;

	if (s->taken != s->complete + s->lost)
		wrong("stream %#llx ended with %d, and %llu messages did not complete",
		      (unsigned long long)s->id, status,
		      (unsigned long long)(s->taken - s->complete - s->lost));
	stream_end(e, status);
}

static void
on_event(const struct weir_event *ev)
{
	struct end *e = ev->user;

	if (!ev->conn)
		return;
	if (ev->type == WEIR_EVENT_OPENED)
		e->open = true;
	else if (ev->type == WEIR_EVENT_READABLE)
		on_hello(e);
	else if (ev->type == WEIR_EVENT_SENT)
		on_sent(e, ev);
	else if (ev->type == WEIR_EVENT_CLOSED)
		on_closed(e, ev->status);
}

static void
close_in_order(struct end *e)
{
	e->s->closed = 1;
	stream_end(e, 0);
}

/* The next step of one end. False: it has ended after SIGTERM. */
static bool
go_on(struct end *e, uint16_t to)
{
	if (!e->conn) {
		if (!over() && now_ms() >= e->again_ms)
			stream_open(e, to);
		return !over();
	}
	if (over()) {
		if (e->s->taken == e->s->complete + e->s->lost)
			close_in_order(e);
		return true;
	}
	if (e->heard && e->close_ms < now_ms())
		close_in_order(e);
	else if (e->heard)
		send_burst(e);
	return true;
}

static bool
any_open(const struct end ends[CHAOS_NODES * LANES])
{
	for (unsigned i = 0; i < CHAOS_NODES * LANES; i++)
		if (ends[i].conn)
			return true;
	return false;
}

static void
send_life(const uint16_t *to, unsigned n)
{
	struct end ends[CHAOS_NODES * LANES] = {0};
	struct weir_event ev[64];
	uint64_t due = 0;
	bool more = true;
	int r = 0;

	while (r >= 0 && more && (!over() || patient())) {
		r = weir_wait(w, ev, 64, PACE_MS);
		r = r == -EINTR ? 0 : r; /* SIGTERM */
		for (int i = 0; i < r; i++)
			on_event(&ev[i]);
		if (r < 0 || now_ms() < due)
			continue;
		due = now_ms() + PACE_MS;
		more = false;
		for (unsigned i = 0; i < n * LANES; i++)
			more |= go_on(&ends[i], to[i % n]);
	}
	if (r < 0 && r != -ENODEV)
		wrong("wait: %s (%s)", strerror(-r), weir_reason());
	for (uint64_t last = now_ms() + LAST_MS;
	     r == -ENODEV && any_open(ends) && now_ms() < last;) {
		for (int i = 0, got = weir_wait(w, ev, 64, 5); i < got; i++)
			on_event(&ev[i]);
		usleep(1000);
	}
	for (unsigned i = 0; i < n * LANES; i++) {
		struct chaos_stream *s = ends[i].s;

		if (ends[i].conn)
			wrong("stream %#llx to node %u has not ended: open %d, heard %d, %llu "
			      "accepted, %llu completed, %llu with an error; flush says %d; "
			      "%llu turns, the longest of %llu ms",
			      (unsigned long long)s->id, s->node, ends[i].open, ends[i].heard,
			      (unsigned long long)s->taken, (unsigned long long)s->complete,
			      (unsigned long long)s->lost, weir_flush(ends[i].conn, 0),
			      (unsigned long long)turns, (unsigned long long)longest_ms);
		if (ends[i].conn)
			stream_end(&ends[i], -ENODEV);
	}
}

static uint32_t
number(const char *text)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (*end || end == text || n > UINT16_MAX) {
		fprintf(stderr, "chaos: invalid value '%s' (expected a number up to 65535)\n",
			text);
		exit(2);
	}
	return (uint32_t)n;
}

static int
live(int argc, char **argv, enum chaos_role role)
{
	struct sigaction action = {.sa_handler = on_term};
	uint16_t to[CHAOS_NODES];
	unsigned n = 0;

	if (argc < 6 || argc - 6 > (int)CHAOS_NODES)
		return 2;
	sigaction(SIGTERM, &action, NULL);
	book = chaos_open(argv[5], O_RDWR | O_CREAT | O_EXCL);
	book->node = number(argv[3]);
	book->life = number(argv[4]);
	book->role = role;
	dice = 0x9e3779b97f4a7c15ull * (book->life + 1);
	for (int i = 6; i < argc; i++) {
		to[n] = (uint16_t)number(argv[i]);
		if (to[n] >= CHAOS_NODES)
			return 2;
		book->to |= 1u << to[n++];
	}
	book->magic = CHAOS_MAGIC;
	while (attach(argv[2])) {
		if (role == CHAOS_RECEIVES)
			receive_life();
		else
			send_life(to, n);
		weir_detach(w);
		w = NULL;
	}
	book->finished = 1;
	return book->failure[0] ? 1 : 0;
}

int
main(int argc, char **argv)
{
	const char *mode = argc > 2 ? argv[1] : "";

	if (!strcmp(mode, "receive"))
		return live(argc, argv, CHAOS_RECEIVES);
	if (!strcmp(mode, "send"))
		return live(argc, argv, CHAOS_SENDS);
	if (!strcmp(mode, "fresh"))
		return chaos_fresh(strtoull(argv[2], NULL, 0), argv + 3);
	if (!strcmp(mode, "unbroken"))
		return chaos_unbroken(strtoull(argv[2], NULL, 0), argv + 3);
	if (!strcmp(mode, "check"))
		return chaos_check(argv[2], argv + 3);
	fprintf(stderr, "chaos: no mode '%s'; see the head of chaos.c\n", mode);
	return 2;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A small program on the stream interface for smoke tests. It prints one line per event on standard
 * output, with CLOCK_BOOTTIME milliseconds in front.
 *
 *   probe INSTANCE echo SERVICE           echoes on every connection until killed
 *   probe INSTANCE sink SERVICE           receives one connection to its end, checks the contents,
 *                                         and sends back how many messages came
 *   probe INSTANCE send ADDRESS COUNT SEED [PACE_US]  sends COUNT checked messages, shuts down
 *                                         sending, checks the answer and closes
 *   probe INSTANCE block ADDRESS          connects and blocks in recv until it ends
 *   probe INSTANCE spin ADDRESS           the same, spinning
 *   probe INSTANCE many ADDRESS N ROUNDS  N connections, ROUNDS echoes on each, by weir_wait
 *   probe INSTANCE hold ADDRESS N [FIRST] N idle connections until killed; with FIRST, the others
 *                                         only at SIGUSR1
 *   probe INSTANCE first ADDRESS          connects, sends and receives one message: microseconds
 *   probe INSTANCE setups ADDRESS S N     N at once for S seconds: connections per second
 *   probe INSTANCE threads ADDRESS N COUNT  N threads send on one connection, in turn
 *   probe INSTANCE attach [N [PACE_US]]   attaches and detaches, N times: microseconds of each
 *   probe INSTANCE drain SERVICE          receives on every connection until killed
 *   probe INSTANCE rewrite ADDRESS SECONDS  sends messages of all sizes, and goes on writing their
 *                                         memory, also when it serves other messages
 *
 *   probe INSTANCE watch                  the nodes' changes, each with the node's first address,
 *                                         until killed
 *   probe INSTANCE peer ADDRESS           connects to a sink and closes; both say who the peer is
 *
 * $PROBE_ARENA: bytes of its arena. $PROBE_NAME: its name.
 */
#include "program.h"

#include "weir/node.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ONE_LARGE_OF 64

static struct weir *w;

/* Receives on all connections; `back`: returns each message. */
static int
serve(const char *service, bool back)
{
	static char buf[LARGEST + 64];
	struct weir_event ev[32];
	struct weir_listener *l;
	struct weir_conn *c;
	size_t length;
	int r = serve_at(w, service, 1024, &l);

	if (r)
		return 1;
	for (;;) {
		r = weir_wait(w, ev, 32, -1);
		if (r < 0)
			return failed("wait", r);
		for (int i = 0, n = r; i < n; i++) {
			if (ev[i].type == WEIR_EVENT_ACCEPT)
				while (weir_accept(l, 0, &c) == 0)
					;
			if (ev[i].type == WEIR_EVENT_READABLE)
				while (weir_recv(ev[i].conn, buf, sizeof(buf), &length, 0) == 0)
					if (back &&
					    (r = weir_send(ev[i].conn, buf, length, PATIENCE_MS)))
						failed("echo", r);
			if (ev[i].type == WEIR_EVENT_CLOSED) {
				say("closed %d", ev[i].status);
				weir_close(ev[i].conn);
			}
			if (ev[i].type == WEIR_EVENT_NODE)
				say("node %llu %d", (unsigned long long)ev[i].cookie, ev[i].status);
		}
	}
}

/* Says what weir_conn_peer() tells. */
static int
say_peer(const struct weir_conn *c)
{
	uint16_t node = 0;
	int local = -1, r = weir_conn_peer(c, &node, &local);

	say("peer: %d, node %u, local %d", r, node, local);
	return r;
}

static int
peer(const char *address)
{
	struct weir_conn *c;
	int r = dial(w, address, &c);

	if (r || (r = say_peer(c)))
		return failed("peer", r);
	weir_close(c);
	return 0;
}

static int
watch(void)
{
	struct weir_event ev;
	int r = weir_nodes_watch(w, 1);

	while (r >= 0) {
		struct weir_node_info is = {0};
		char address[INET6_ADDRSTRLEN] = "-";

		r = weir_wait(w, &ev, 1, -1);
		if (r <= 0 || ev.type != WEIR_EVENT_NODE)
			continue;
		if (!weir_node_find(w, (uint16_t)ev.cookie, &is) && is.address_count)
			inet_ntop(AF_INET6, is.address[0], address, sizeof(address));
		say("node %u:%s%s%s%s%s%s%s; state %u, status %d, at %s", (unsigned)ev.cookie,
		    ev.change & WEIR_CHANGE_ADDED ? " added" : "",
		    ev.change & WEIR_CHANGE_UP ? " up" : "",
		    ev.change & WEIR_CHANGE_SUSPECT ? " suspect" : "",
		    ev.change & WEIR_CHANGE_DOWN ? " down" : "",
		    ev.change & WEIR_CHANGE_REMOVED ? " removed" : "",
		    ev.change & WEIR_CHANGE_RESTART ? " restart" : "",
		    ev.change & WEIR_CHANGE_ADDRESS ? " address" : "", ev.state, ev.status,
		    address);
	}
	return failed("watch", r);
}

static int
sink(const char *service)
{
	static uint64_t got[LARGEST / 8 + 8];
	struct weir_listener *l;
	struct weir_conn *c;
	uint64_t count = 0, seed = 0;
	size_t length;
	int r = serve_at(w, service, 8, &l);

	if (r)
		return 1;
	if ((r = weir_accept(l, -1, &c)))
		return failed("accept", r);
	say_peer(c);
	r = weir_recv(c, &seed, sizeof(seed), &length, -1);
	while (!r && !(r = weir_recv(c, got, sizeof(got), &length, -1)))
		if (!expected(&count, seed, ONE_LARGE_OF, got, length, 10000))
			return 1;
	if (r == -ESHUTDOWN) /* if it has not closed, it takes the count */
		weir_send(c, &count, sizeof(count), PATIENCE_MS);
	end(c, r, count);
	return 0;
}

/* Half of a close: the sink says how many messages it has received, then closes. */
static int
confirm(struct weir_conn *c, uint64_t count)
{
	uint64_t got = 0;
	size_t length = 0;
	int r = weir_shutdown(c);

	if (!r && weir_send(c, "", 1, 0) != -EPIPE)
		r = -EBADE;
	if (!r)
		r = weir_recv(c, &got, sizeof(got), &length, PATIENCE_MS);
	if (!r && (length != sizeof(got) || got != count))
		r = -EBADMSG;
	if (!r)
		r = weir_recv(c, &got, sizeof(got), &length, PATIENCE_MS);
	return r == -ESHUTDOWN ? 0 : r ? r : -EBADMSG;
}

static int
send_all(const char *address, uint64_t count, uint64_t seed, useconds_t pace)
{
	static uint64_t buf[LARGEST / 8 + 8];
	struct weir_conn *c;
	uint64_t i;
	int r = dial(w, address, &c);

	if (r)
		return failed("connect", r);
	say("connected");
	r = weir_send(c, &seed, sizeof(seed), -1);
	for (i = 0; !r && i < count; i++) {
		r = weir_send(c, buf, contents(i, seed, ONE_LARGE_OF, buf), -1);
		if (pace)
			usleep(pace);
	}
	if (!r)
		r = weir_flush(c, PATIENCE_MS);
	if (!r)
		r = confirm(c, i);
	return end(c, r, i);
}

/* Milliseconds for which this thread, the only one, has wanted a CPU that others had. */
static unsigned long long
starved_ms(void)
{
	unsigned long long ns = 0;
	FILE *f = fopen("/proc/self/schedstat", "r");

	if (f && fscanf(f, "%*u %llu", &ns) != 1)
		ns = 0;
	if (f)
		fclose(f);
	return ns / 1000000;
}

static int
block(const char *address, int timeout)
{
	struct weir_conn *c;
	char buf[64];
	size_t length;
	int r = dial(w, address, &c);

	if (r)
		return failed("connect", r);
	say("connected");
	do {
		r = weir_recv(c, buf, sizeof(buf), &length, timeout);
	} while (r == 0 || r == -EAGAIN);
	say("end %d", r);
	say("starved %llu", starved_ms());
	r = weir_send(c, buf, 8, 0);
	say("send %d", r);
	weir_close(c);
	return 0;
}

static int
many(const char *address, unsigned n, unsigned rounds)
{
	struct weir_conn **c = calloc(n, sizeof(*c));
	uint64_t *next = calloc(n, sizeof(*next)), left = (uint64_t)n * rounds, got;
	struct weir_event ev[64];
	size_t length;
	int r;

	for (uint64_t i = 0; i < n; i++) {
		if ((r = dial(w, address, &c[i])))
			return failed("connect", r);
		weir_conn_set_user(c[i], &next[i]);
		if ((r = weir_send(c[i], &next[i], 8, PATIENCE_MS)))
			return failed("send", r);
	}
	say("connected %u", n);
	while (left) {
		r = weir_wait(w, ev, 64, PATIENCE_MS);
		if (r <= 0)
			return failed("wait", r ? r : -ETIMEDOUT);
		for (int i = 0, k = r; i < k; i++) {
			uint64_t *number = ev[i].user;

			if (ev[i].type == WEIR_EVENT_CLOSED)
				return failed("closed", ev[i].status);
			while (ev[i].type == WEIR_EVENT_READABLE &&
			       weir_recv(ev[i].conn, &got, sizeof(got), &length, 0) == 0) {
				if (length != 8 || got != *number)
					return failed("wrong echo", -EBADMSG);
				left--;
				if (++*number < rounds &&
				    (r = weir_send(ev[i].conn, number, 8, PATIENCE_MS)))
					return failed("send", r);
			}
		}
	}
	say("end 0 after %llu", (unsigned long long)n * rounds);
	for (unsigned i = 0; i < n; i++)
		weir_close(c[i]);
	free(c);
	free(next);
	return 0;
}

static int
hold(const char *address, unsigned n, unsigned first)
{
	struct weir_conn *c;
	struct weir_event ev;
	sigset_t go;
	int r;

	sigemptyset(&go);
	sigaddset(&go, SIGUSR1);
	sigprocmask(SIG_BLOCK, &go, NULL);
	for (unsigned i = 0; i < n; i++) {
		if (first && i == first) {
			say("holding %u", first);
			sigwait(&go, &r);
		}
		if ((r = dial(w, address, &c)))
			return failed("connect", r);
	}
	say("holding %u", n);
	while ((r = weir_wait(w, &ev, 1, -1)) >= 0)
		if (r && ev.type == WEIR_EVENT_CLOSED)
			say("closed %d", ev.status);
	return failed("wait", r);
}

/* The time of a first connection and its first round trip. */
static int
first(const char *address)
{
	struct weir_conn *c;
	char buf[64] = "first";
	size_t length;
	double start = now_s();
	int r;

	if ((r = dial(w, address, &c)) || (r = weir_send(c, buf, sizeof(buf), PATIENCE_MS)) ||
	    (r = weir_recv(c, buf, sizeof(buf), &length, PATIENCE_MS)))
		return failed("first", r);
	say("first %.1f us", 1e6 * (now_s() - start));
	weir_close(c);
	return 0;
}

static int
setups(const char *address, unsigned seconds, unsigned at_once)
{
	uint64_t start = now_ms(), until = start + seconds * 1000ull, made = 0;
	struct weir_address a;
	struct weir_event ev[64];
	struct weir_conn *c;
	unsigned open = 0;
	int r = weir_address_parse(address, &a);

	while (!r && (open || now_ms() < until)) {
		for (; open < at_once && now_ms() < until && !r; open++)
			r = weir_connect(w, &a, 0, &c);
		if (r || (r = weir_wait(w, ev, 64, PATIENCE_MS)) <= 0)
			return failed("setups", r ? r : -ETIMEDOUT);
		for (int i = 0, n = r; i < n; i++) {
			if (ev[i].type != WEIR_EVENT_OPENED && ev[i].type != WEIR_EVENT_CLOSED)
				continue;
			if (ev[i].status)
				return failed("setup", ev[i].status);
			weir_close(ev[i].conn);
			open--;
			made++;
		}
		r = 0;
	}
	say("setups %.0f", 1000.0 * (double)made / (double)(now_ms() - start));
	return 0;
}

struct turn {
	pthread_mutex_t lock;
	struct weir_conn *c;
	uint64_t next, count;
};

/* The thread that has the lock sends the next number; the order must survive. */
static void *
take_turns(void *arg)
{
	struct turn *t = arg;
	uint64_t buf[LARGEST / 8 + 8];
	int r = 0;

	while (!r) {
		pthread_mutex_lock(&t->lock);
		if (t->next < t->count) {
			r = weir_send(t->c, buf, contents(t->next, 7, ONE_LARGE_OF, buf),
				      PATIENCE_MS);
			t->next++;
		} else {
			r = 1;
		}
		pthread_mutex_unlock(&t->lock);
	}
	return (void *)(intptr_t)(r < 0 ? r : 0);
}

static int
threads(const char *address, unsigned n, uint64_t count)
{
	struct turn t = {.lock = PTHREAD_MUTEX_INITIALIZER, .count = count};
	pthread_t id[64];
	uint64_t seed = 7;
	int r = dial(w, address, &t.c);

	if (r || (r = weir_send(t.c, &seed, sizeof(seed), PATIENCE_MS)))
		return failed("connect", r);
	for (unsigned i = 0; i < n && i < 64; i++)
		if (pthread_create(&id[i], NULL, take_turns, &t))
			return failed("thread", -errno);
	for (unsigned i = 0; i < n && i < 64; i++) {
		void *result;

		pthread_join(id[i], &result);
		r = r ? r : (int)(intptr_t)result;
	}
	if (!r)
		r = weir_flush(t.c, PATIENCE_MS);
	return end(t.c, r, t.next);
}

#define REWRITTEN 64u

static struct {
	_Atomic(uint64_t *) at[REWRITTEN]; /* rewrite() writes, scribble() reads */
	_Atomic size_t words[REWRITTEN];
	_Atomic bool stop;
} sent;

/* Overwrites the memory of the last messages; pauses leave the CPU to other threads. */
static void *
scribble(void *arg)
{
	uint64_t x = 88172645463325252ull;

	for (unsigned n = 1; !atomic_load(&sent.stop); n++) {
		uint64_t *at;

		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		at = atomic_load(&sent.at[x % REWRITTEN]);
		if (at)
			__atomic_store_n(at + (x >> 8) % atomic_load(&sent.words[x % REWRITTEN]), x,
					 __ATOMIC_RELAXED);
		if (n % 65536 == 0)
			usleep(200);
	}
	return arg;
}

static int
rewrite(const char *address, unsigned long seconds)
{
	static const size_t sizes[] = {1000, 64, 8000, 948, 60000, 3000, 250000, 8192};
	uint64_t until = now_ms() + seconds * 1000;
	struct weir_conn *c;
	uint64_t count = 0;
	pthread_t thread;
	void *buf;
	int r = dial(w, address, &c);

	if (r || (r = -pthread_create(&thread, NULL, scribble, NULL)))
		return failed("connect", r);
	while (!r && now_ms() < until) {
		size_t length = sizes[count % 8];

		r = weir_send_reserve(c, length, PATIENCE_MS, &buf);
		if (!r) {
			atomic_store(&sent.at[count % REWRITTEN], NULL);
			atomic_store(&sent.words[count % REWRITTEN], length / 8);
			atomic_store(&sent.at[count % REWRITTEN], buf);
			while ((r = weir_send_commit(c, buf, length, 0, 0)) == -EAGAIN)
				usleep(50);
			count++;
		}
	}
	if (!r)
		r = weir_flush(c, PATIENCE_MS);
	atomic_store(&sent.stop, true);
	pthread_join(thread, NULL);
	return end(c, r, count);
}

/* The first attach of the program is not counted. */
static int
attach_times(const struct weir_options *options, uint64_t n, useconds_t pace)
{
	int r = 0;

	for (uint64_t i = 0; i < n && !r; i++) {
		double start;

		weir_detach(w);
		w = NULL;
		usleep(pace);
		start = now_s();
		r = weir_attach(options, &w);
		start = now_s() - start;
		if (r)
			return failed("attach", r);
		say("attached %.0f us", 1e6 * start);
	}
	return 0;
}

int
main(int argc, char **argv)
{
	struct weir_options options = {
	    .size = sizeof(options), .instance = argc > 1 ? argv[1] : NULL, .name = "probe"};
	const char *mode = argc > 2 ? argv[2] : "", *arg = argc > 3 ? argv[3] : "";
	unsigned long a = number_at(argc, argv, 4), b = number_at(argc, argv, 5);
	unsigned long d = number_at(argc, argv, 6);
	int r, code = 2;

	if (getenv("PROBE_ARENA"))
		options.arena = strtoull(getenv("PROBE_ARENA"), NULL, 0);
	if (getenv("PROBE_NAME"))
		options.name = getenv("PROBE_NAME");
	say_when = true;
	r = weir_attach(&options, &w);
	if (r)
		return failed("attach", r);
	if (!strcmp(mode, "echo"))
		code = serve(arg, true);
	else if (!strcmp(mode, "drain"))
		code = serve(arg, false);
	else if (!strcmp(mode, "rewrite"))
		code = rewrite(arg, a);
	else if (!strcmp(mode, "sink"))
		code = sink(arg);
	else if (!strcmp(mode, "send"))
		code = send_all(arg, a, b, (useconds_t)d);
	else if (!strcmp(mode, "block") || !strcmp(mode, "spin"))
		code = block(arg, !strcmp(mode, "block") ? -1 : 0);
	else if (!strcmp(mode, "many"))
		code = many(arg, (unsigned)a, (unsigned)b);
	else if (!strcmp(mode, "hold"))
		code = hold(arg, (unsigned)a, (unsigned)b);
	else if (!strcmp(mode, "first"))
		code = first(arg);
	else if (!strcmp(mode, "setups"))
		code = setups(arg, (unsigned)a, (unsigned)b);
	else if (!strcmp(mode, "threads"))
		code = threads(arg, (unsigned)a, b);
	else if (!strcmp(mode, "watch"))
		code = watch();
	else if (!strcmp(mode, "peer"))
		code = peer(arg);
	else if (!strcmp(mode, "attach"))
		code = attach_times(&options, strtoull(arg, NULL, 0), (useconds_t)a);
	else
		fprintf(stderr, "probe: no mode '%s'; see the head of probe.c\n", mode);
	weir_detach(w);
	return code;
}

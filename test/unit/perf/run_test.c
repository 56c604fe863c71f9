/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whole runs of weir-perf's driver and responder over a made-up library: two queues in this
 * process, which can lose, change and double messages, and refuse them now and then.
 */
#include "driver.h"
#include "ports.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DEPTH 16

struct message {
	void *data;
	size_t length;
};

struct weir_conn {
	struct weir_conn *peer;
	struct message queue[DEPTH]; /* what has arrived here */
	unsigned head, tail;
	void *user;
	uint64_t notify;
	bool readable, refused; /* events are due */
};

#define PAIRS_MAX 40

static struct weir_conn ends[2 * PAIRS_MAX]; /* driver's and server's, in turn */
static unsigned pairs = 1;
static unsigned calls;
static const int *lives; /* how each life of the server begins, as an errno; then 0 */
static unsigned listens, reattaches;
static uint64_t data_seen;
static enum { HONEST, LOSES, CHANGES, DOUBLES, ENDS } wire;

static bool
is_control(size_t length)
{
	return length == sizeof(struct perf_message) || length == PERF_MESSAGE_MAX;
}

static void
enqueue(struct weir_conn *to, const void *buf, size_t length)
{
	struct message *m = &to->queue[to->head++ % DEPTH];

	to->readable = true;
	m->data = malloc(length ? length : 1);
	m->length = length;
	memcpy(m->data, buf, length);
}

int
weir_send(struct weir_conn *c, const void *buf, size_t length, int timeout_ms)
{
	struct weir_conn *to = c->peer;
	bool hit;

	if (++calls % 5 == 0 || to->head - to->tail >= DEPTH - 1) {
		c->refused = true;
		return -EAGAIN;
	}
	hit = wire != HONEST && !is_control(length) && ++data_seen == 20;
	if (hit && wire == ENDS)
		return -ECONNRESET;
	if (hit && wire == LOSES)
		return 0;
	enqueue(to, buf, length);
	if (hit && wire == CHANGES)
		((uint8_t *)to->queue[(to->head - 1) % DEPTH].data)[length / 2] ^= 1;
	if (hit && wire == DOUBLES)
		enqueue(to, buf, length);
	return 0;
}

int
weir_send_notify(struct weir_conn *c, const void *buf, size_t length, unsigned flags,
		 uint64_t cookie, int timeout_ms)
{
	int rc = weir_send(c, buf, length, timeout_ms);

	if (rc == 0)
		c->notify = cookie;
	return rc;
}

int
weir_send_reserve(struct weir_conn *c, size_t length, int timeout_ms, void **buf)
{
	if (++calls % 5 == 0 || c->peer->head - c->peer->tail >= DEPTH - 2) {
		c->refused = true;
		return -EAGAIN;
	}
	*buf = malloc(length);
	return 0;
}

int
weir_send_commit(struct weir_conn *c, void *buf, size_t length, unsigned flags, uint64_t cookie)
{
	int rc;

	while ((rc = weir_send_notify(c, buf, length, flags, cookie, 0)) == -EAGAIN)
		;
	free(buf);
	return rc;
}

void
weir_send_abandon(struct weir_conn *c, void *buf)
{
}

int
weir_recv(struct weir_conn *c, void *buf, size_t size, size_t *length, int timeout_ms)
{
	struct message *m = &c->queue[c->tail % DEPTH];

	if (c->head == c->tail || ++calls % 7 == 0) {
		c->readable = c->head != c->tail;
		return -EAGAIN;
	}
	*length = m->length;
	if (m->length > size)
		return -EMSGSIZE;
	memcpy(buf, m->data, m->length);
	free(m->data);
	c->tail++;
	return 0;
}

int
weir_send_many(struct weir_conn *c, const struct iovec *messages, unsigned n, int timeout_ms)
{
	unsigned i;
	int rc = 0;

	for (i = 0; i < n && !rc; i += !rc)
		rc = weir_send(c, messages[i].iov_base, messages[i].iov_len, timeout_ms);
	return i ? (int)i : rc;
}

int
weir_recv_many(struct weir_conn *c, struct iovec *messages, unsigned n, int timeout_ms)
{
	unsigned i;
	int rc = 0;

	for (i = 0; i < n && !rc; i += !rc)
		rc = weir_recv(c, messages[i].iov_base, messages[i].iov_len, &messages[i].iov_len,
			       timeout_ms);
	return i ? (int)i : rc;
}

int
weir_recv_loan(struct weir_conn *c, struct weir_loan *loan, int timeout_ms)
{
	struct message *m = &c->queue[c->tail % DEPTH];

	if (c->head == c->tail || ++calls % 7 == 0) {
		c->readable = c->head != c->tail;
		return -EAGAIN;
	}
	loan->data = m->data;
	loan->length = m->length;
	c->tail++;
	return 0;
}

void
weir_release(struct weir *w, struct weir_loan *loan)
{
	free((void *)(uintptr_t)loan->data);
}

int
weir_poll(struct weir *w, struct weir_event *events, unsigned n)
{
	unsigned found = 0;

	for (struct weir_conn *c = ends; c < ends + 2 * pairs && found + 3 <= n; c++) {
		struct weir_event e = {.conn = c, .user = c->user, .cookie = c->notify};

		e.type = WEIR_EVENT_SENT;
		if (c->notify)
			events[found++] = e;
		e.type = WEIR_EVENT_READABLE;
		if (c->readable)
			events[found++] = e;
		e.type = WEIR_EVENT_WRITABLE;
		if (c->refused && c->peer->head - c->peer->tail < DEPTH - 2)
			events[found++] = e;
		if (c->peer->head - c->peer->tail < DEPTH - 2)
			c->refused = false;
		c->notify = 0;
		c->readable = false;
	}
	return (int)found;
}

int
weir_wait(struct weir *w, struct weir_event *events, unsigned n, int timeout_ms)
{
	return weir_poll(w, events, n);
}

int
weir_listen_with(struct weir *w, const char *service, const struct weir_listen_options *options,
		 struct weir_listener **listener)
{
	listens++;
	return *lives ? -*lives++ : -ENOTSUP;
}

int
weir_reattach(struct weir *w, int timeout_ms)
{
	assert_int_equal(timeout_ms, -1);
	reattaches++;
	return *lives ? 0 : -ENOENT;
}

/* The last pair is for datagrams: its server's end waits once the driver has connected. */
static bool listening, offered;

int
weir_listen(struct weir *w, const char *service, unsigned backlog, struct weir_listener **listener)
{
	assert_memory_equal(service, "perf-ud-", 8);
	listening = true;
	offered = false;
	*listener = (struct weir_listener *)&offered;
	return 0;
}

int
driver_connect_datagrams(struct driver *d, struct perf_flow *f, uint64_t number)
{
	assert_true(listening && number);
	memset(&ends[2 * PAIRS_MAX - 2], 0, 2 * sizeof(ends[0]));
	ends[2 * PAIRS_MAX - 2].peer = &ends[2 * PAIRS_MAX - 1];
	ends[2 * PAIRS_MAX - 1].peer = &ends[2 * PAIRS_MAX - 2];
	offered = true;
	perf_flow_data(f, &ends[2 * PAIRS_MAX - 2]);
	return 0;
}

int
weir_accept(struct weir_listener *l, int timeout_ms, struct weir_conn **conn)
{
	if (!offered || ++calls % 3)
		return -EAGAIN;
	offered = listening = false;
	*conn = &ends[2 * PAIRS_MAX - 1];
	return 0;
}

void
weir_listener_close(struct weir_listener *l)
{
}

int
weir_node(struct weir *w)
{
	return 1;
}

const char *
weir_reason(void)
{
	return "";
}

void
weir_close(struct weir_conn *c)
{
	while (c->tail != c->head)
		free(c->queue[c->tail++ % DEPTH].data);
}

void
weir_conn_set_user(struct weir_conn *c, void *user)
{
	c->user = user;
}

/* Adopted memory is any; the message model is not played here. */
static unsigned adopted;

int
weir_adopt(struct weir *w, void *addr, size_t length, unsigned flags, struct weir_region **region)
{
	if (adopted == 2)
		return -ENOSPC;
	adopted++;
	*region = addr;
	return 0;
}

int
weir_disown(struct weir_region *region)
{
	adopted--;
	return 0;
}

int
weir_flush(struct weir_conn *c, int timeout_ms)
{
	return 0;
}

int
rx_open(struct perf_rx *h, struct weir *weir, const char *service,
	const struct perf_message *request, uint32_t *number)
{
	return -ENOTSUP;
}

uint64_t
rx_count(const struct perf_rx *h, uint32_t number)
{
	return 0;
}

void
rx_close(struct perf_rx *h, uint32_t number, struct perf_message *result)
{
}

void
rx_fini(struct perf_rx *h)
{
}

int
driver_tx(struct driver *d, struct perf_result *r)
{
	return -ENOTSUP;
}

int
driver_call(struct driver *d, struct perf_result *r)
{
	return -ENOTSUP;
}

int
call_own_open(struct driver *d, uint32_t test, uint32_t size)
{
	return -ENOTSUP;
}

void
call_group_close(struct call_group *p)
{
}

int
call_rx_start(struct call_rx **rx, struct weir *w, struct call_group *own,
	      const struct perf_message *request, int timeout_ms)
{
	return -ENOTSUP;
}

int
call_rx_ready(struct call_rx *rx)
{
	return -ENOTSUP;
}

uint64_t
call_rx_count(const struct call_rx *rx, const struct perf_message *request)
{
	return 0;
}

bool
call_rx_end(struct call_rx *rx, const struct perf_message *request)
{
	return true;
}

void
call_rx_close(struct call_rx *rx, const struct perf_message *request, struct perf_message *result)
{
}

int
driver_remote(struct driver *d, struct perf_result *r)
{
	return -ENOTSUP;
}

int
part_open(struct remote_part *p, struct weir *weir, const struct perf_message *request,
	  uint32_t drivers)
{
	return -ENOTSUP;
}

void
part_close(struct remote_part *p)
{
}

int
remote_window_close(struct remote_window *w, int timeout_ms)
{
	return -ENOTSUP;
}

int
target_start(struct perf_target *t, const char *instance, const struct perf_message *request)
{
	return -ENOTSUP;
}

int
target_ready(struct perf_target *t, uint8_t key[PERF_KEY_BYTES])
{
	return -ENOTSUP;
}

void
target_ask(struct perf_target *t)
{
}

int
target_result(struct perf_target *t, struct perf_message *result)
{
	return -ENOTSUP;
}

void
target_end(struct perf_target *t)
{
}

/* A port through which nothing goes. */
int
perf_ports_read(const char *instance, struct perf_ports *ports, pid_t *pid)
{
	*ports = (struct perf_ports){.tx_frames = 1, .rx_frames = 2, .tx_bytes = 3, .rx_bytes = 4};
	*pid = 4711;
	return 0;
}

struct perf_ports
perf_ports_since(const struct perf_ports *before, const struct perf_ports *after)
{
	return (struct perf_ports){.tx_frames = after->tx_frames - before->tx_frames};
}

static int
run_one(const struct perf_options *o, uint32_t test, uint32_t size, struct perf_result *result)
{
	static struct driver d;
	static struct perf_flow flows[PAIRS_MAX];
	static struct server s;
	static struct weir *weir = (struct weir *)&d; /* any but NULL, which means sockets */
	const char *what = "";
	int rc;

	memset(ends, 0, sizeof(ends));
	pairs = o->connections;
	data_seen = 0;
	d = (struct driver){.options = o,
			    .weir = weir,
			    .flows = flows,
			    .flow = flows,
			    .flow_count = pairs,
			    .own_server = &s,
			    .random = o->random};
	assert_int_equal(perf_queue_reserve(&d.ready, pairs), 0);
	perf_idle_init(&d.idle, weir, false);
	server_init(&s, o, weir, &d.idle);
	for (unsigned i = 0; i < pairs; i++) {
		ends[2 * i].peer = &ends[2 * i + 1];
		ends[2 * i + 1].peer = &ends[2 * i];
		perf_flow_init(&flows[i], &d.buffers);
		perf_flow_conn(&flows[i], weir, &ends[2 * i]);
		flows[i].queue = pairs > 1 ? &d.ready : NULL;
		assert_int_equal(server_add(&s, &ends[2 * i + 1], -1), 0);
	}
	rc = driver_run(&d, test, size, result, &what);
	for (unsigned i = 0; i < pairs; i++)
		perf_flow_close(&flows[i]);
	server_close(&s);
	perf_queue_free(&d.ready);
	perf_buffers_free(&d.buffers);
	return rc;
}

static struct perf_options
options(uint64_t count)
{
	return (struct perf_options){.count = count,
				     .seed = 5,
				     .cpu = -1,
				     .patience_s = 60,
				     .connections = 1,
				     .region = 1 << 20,
				     .verify = true,
				     .duration_s = 0.05};
}

static void
test_every_test_and_size(void **state)
{
	static const uint32_t sizes[] = {
	    0, 1, 7, 8, 48, 64, 948, 949, 5000, sizeof(struct perf_message), PERF_MESSAGE_MAX};
	static struct perf_result r;

	wire = HONEST;
	for (unsigned variant = 0; variant < 32; variant++) {
		struct perf_options o = options(500);

		o.both = variant & 1;
		o.copy = variant & 2;
		o.window = variant & 4 ? 8 : 0;
		o.verify = variant & 8;
		o.batch = 1 + variant * 2;
		if (variant & 16)
			o.count = 0;
		for (uint32_t test = 0; test < PERF_MIX; test++) {
			uint32_t size =
			    sizes[(variant + test) % (sizeof(sizes) / sizeof(sizes[0]))];

			assert_int_equal(run_one(&o, test, size, &r), 0);
			assert_int_equal(r.errors, 0);
			if (o.count)
				assert_int_equal(r.count, 500);
			assert_true(r.msgs_per_s > 0);
			assert_int_equal(r.payload, r.count * size);
			assert_true((test == PERF_LAT) == (r.latency.count > 0));
			assert_int_equal(r.peer_pid, 4711);
			assert_true((o.both && test != PERF_LAT) == (r.back_msgs_per_s > 0));
		}
	}
}

/* The same on several connections, in turn and in any order: the sum is that of one. */
static void
test_several_connections(void **state)
{
	static const unsigned numbers[] = {2, 7, PAIRS_MAX};
	static struct perf_result r;

	wire = HONEST;
	for (unsigned variant = 0; variant < 96; variant++) {
		struct perf_options o = options(variant & 1 ? 0 : 999);
		uint32_t test = variant % 2 ? PERF_RATE : variant % PERF_MESSAGES;

		o.connections = numbers[variant % 3];
		o.both = variant & 2;
		o.window = variant & 4 ? 8 : 0;
		o.random = variant & 8;
		o.batch = 1 + variant % PERF_BATCH_MAX;
		o.verify = variant & 16;
		o.rate = variant & 32 ? 1e5 : 0;
		o.duration_s = 0.01;
		if (test == PERF_MIX && !o.count)
			continue;
		assert_int_equal(run_one(&o, test, variant & 64 ? 2000 : 64, &r), 0);
		assert_int_equal(r.errors, 0);
		if (o.count)
			assert_int_equal(r.count, 999);
		assert_true(r.msgs_per_s > 0);
		if (o.rate && test == PERF_RATE)
			assert_true(r.count <= 1e5 * 0.02 + 32 * PAIRS_MAX || o.count);
	}
}

/* READs return the memory that was asked for; a server that sends other memory is detected. */
static void
test_read(void **state)
{
	static struct perf_result r;
	struct perf_options o = options(200);

	for (unsigned variant = 0; variant < 4; variant++) {
		wire = HONEST;
		o.connections = variant & 1 ? 5 : 1;
		o.verify = variant & 2;
		assert_int_equal(run_one(&o, PERF_READ, 65533, &r), 0);
		assert_int_equal(r.errors, 0);
		assert_int_equal(r.count, 200);
		assert_int_equal(r.payload, 200 * 65533);
		assert_int_equal(r.latency.count, 200);
		/* a doubled request gets two answers, of which one is not that to the next */
		wire = DOUBLES;
		assert_int_equal(run_one(&o, PERF_READ, 4096, &r), 0);
		assert_true(r.errors > 0);
	}
	wire = CHANGES;
	o.connections = 1;
	assert_int_equal(run_one(&o, PERF_READ, 4096, &r), 0);
	assert_int_equal(r.errors, 1);
}

/* Out of adopted buffers, each written when its message is complete; without room for them, why
 * not. */
static void
test_adopted(void **state)
{
	static struct perf_result r;
	struct perf_options o = options(300);

	wire = HONEST;
	o.adopt = true;
	for (unsigned variant = 0; variant < 8; variant++) {
		o.verify = variant & 1;
		o.window = variant & 2 ? 3 : 0;
		o.both = variant & 4;
		assert_int_equal(run_one(&o, PERF_BW, 20000, &r), 0);
		assert_int_equal(r.errors, 0);
		assert_int_equal(r.count, 300);
		assert_int_equal(adopted, 0);
	}
	o.connections = 3;
	assert_int_equal(run_one(&o, PERF_BW, 20000, &r), -ENOSPC);
	assert_int_equal(adopted, 0);
}

static void
test_mix(void **state)
{
	static struct perf_result r;
	struct perf_options o = options(2000);

	wire = HONEST;
	o.large = 2;
	assert_int_equal(run_one(&o, PERF_MIX, 0, &r), 0);
	assert_int_equal(r.errors, 0);
	assert_int_equal(r.count, 2000);
}

/* Faults of the wire are found, with whole contents and with stamps alone. */
static void
test_faults(void **state)
{
	static struct perf_result r;
	struct perf_options o = options(300);

	for (unsigned verify = 0; verify < 2; verify++) {
		o.verify = verify;
		wire = LOSES;
		assert_int_equal(run_one(&o, PERF_RATE, 64, &r), 0);
		assert_true(r.errors > 0);
		wire = DOUBLES;
		assert_int_equal(run_one(&o, PERF_RATE, 64, &r), 0);
		assert_true(r.errors > 0);
		wire = LOSES;
		o.patience_s = 1;
		assert_int_equal(run_one(&o, PERF_LAT, 64, &r), -ETIMEDOUT);
		o.patience_s = 60;
		wire = ENDS;
		assert_int_equal(run_one(&o, PERF_BW, 2000, &r), -ECONNRESET);
	}
	wire = CHANGES;
	assert_int_equal(run_one(&o, PERF_BW, 2000, &r), 0);
	assert_int_equal(r.errors, 1);
	assert_int_equal(run_one(&o, PERF_LAT, 64, &r), 0);
	assert_int_equal(r.errors, 1);
}

/* Datagrams that are lost are counted, and are no errors; those that are wrong are. */
/*
 * Runs a test that loses `lost` datagrams. A round trip that takes 0.1 s counts as lost, which may
 * be the machine's fault: then again, at most four times.
 */
static void
run_datagrams(struct perf_options *o, int how, uint32_t test, uint32_t size, uint64_t lost,
	      struct perf_result *r)
{
	for (unsigned tries = 0; tries < 5; tries++) {
		wire = how;
		assert_int_equal(run_one(o, test, size, r), 0);
		assert_int_equal(r->errors, 0);
		if (r->lost == lost || test != PERF_LAT)
			break;
	}
	assert_int_equal(r->lost, lost);
}

static void
test_datagrams(void **state)
{
	static const uint32_t tests[] = {PERF_LAT, PERF_BW, PERF_RATE};
	static struct perf_result r;
	struct perf_options o = options(300);

	o.flags = WEIR_UD;
	o.verify = false;
	for (unsigned i = 0; i < 3; i++) {
		run_datagrams(&o, HONEST, tests[i], 64, 0, &r);
		assert_int_equal(r.payload, r.count * 64);
		assert_int_equal(r.count, 300);
		run_datagrams(&o, LOSES, tests[i], 1500, 1, &r);
		/* a lost round trip is made again */
		assert_int_equal(r.count, 300 + (tests[i] == PERF_LAT));
		wire = CHANGES;
		assert_int_equal(run_one(&o, tests[i], 16, &r), 0);
		assert_int_equal(r.errors, 1);
	}
	wire = DOUBLES;
	assert_int_equal(run_one(&o, PERF_RATE, 64, &r), 0);
	assert_true(r.errors > 0);
	wire = HONEST;
	o.both = true;
	o.count = 0;
	o.duration_s = 0.02;
	assert_int_equal(run_one(&o, PERF_RATE, 64, &r), 0);
	assert_int_equal(r.errors, 0);
	assert_true(r.back_msgs_per_s > 0);
}

static void
test_stops(void **state)
{
	static struct perf_result r;
	struct perf_options o = options(0);

	wire = HONEST;
	o.duration_s = 3600;
	atomic_store(&perf_stop, true);
	assert_int_equal(run_one(&o, PERF_RATE, 8, &r), -EINTR);
	assert_int_equal(run_one(&o, PERF_LAT, 8, &r), -EINTR);
	atomic_store(&perf_stop, false);
}

/* A server survives its data plane as often as it is lost, and no other error. */
static void
test_server_lives(void **state)
{
	static const int lost_twice[] = {ENODEV, ENODEV, EADDRINUSE, 0}, other[] = {EACCES, 0},
			 for_good[] = {ENODEV, 0};
	static struct perf_options o = {.instance = "A", .service = "perf", .region = 4096};
	struct weir *weir = (struct weir *)&o;

	lives = lost_twice;
	listens = reattaches = 0;
	assert_int_equal(perf_serve(weir, &o), -EADDRINUSE);
	assert_int_equal(listens, 3);
	assert_int_equal(reattaches, 2);
	lives = other;
	assert_int_equal(perf_serve(weir, &o), -EACCES);
	assert_int_equal(listens, 4);
	lives = for_good; /* no data plane returns that may be attached to */
	assert_int_equal(perf_serve(weir, &o), -ENOENT);
	assert_int_equal(reattaches, 3);
}

static char *
printed(const struct perf_info *info, const struct perf_result *r, unsigned n)
{
	char *text = NULL;
	size_t size;
	FILE *to = open_memstream(&text, &size);

	perf_report_begin(info, to);
	for (unsigned i = 0; i < n; i++)
		perf_report(info, &r[i], to);
	perf_report_end(info, to);
	fclose(to);
	return text;
}

/* The last line compares frames with the payload that they carried, and names its direction. */
static void
test_report_ports(void **state)
{
	static struct perf_options o = {.instance = "A", .address = "node:2"};
	static struct perf_result r[2];
	struct perf_info info = {.options = &o, .path = "remote", .node = 1, .peer = 2};
	char *text;

	r[0] = r[1] = (struct perf_result){.test = PERF_BW,
					   .size = 1000,
					   .payload = 5000,
					   .bytes_per_s = 2.5e9,
					   .ports_known = true,
					   .pid = 7,
					   .ports = {.tx_frames = 5, .tx_bytes = 5300}};
	r[1].ports_known = false; /* what it sent is in no frame that was counted */
	text = printed(&info, r, 2);
	assert_non_null(strstr(text, "\n5000 bytes of payload left in 5 frames of 5300 bytes, "));
	assert_non_null(strstr(text, " Gb/s "));
	assert_non_null(strstr(text, "   2500.0    20.00 "));
	free(text);
	r[0].test = PERF_READ;
	r[0].ports =
	    (struct perf_ports){.tx_frames = 2, .tx_bytes = 100, .rx_frames = 6, .rx_bytes = 5400};
	text = printed(&info, r, 1);
	assert_non_null(strstr(text, "\n5000 bytes of payload came in 6 frames of 5400 bytes, "));
	assert_null(strstr(text, "left in"));
	free(text);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_every_test_and_size),
	    cmocka_unit_test(test_several_connections),
	    cmocka_unit_test(test_read),
	    cmocka_unit_test(test_adopted),
	    cmocka_unit_test(test_mix),
	    cmocka_unit_test(test_faults),
	    cmocka_unit_test(test_datagrams),
	    cmocka_unit_test(test_stops),
	    cmocka_unit_test(test_server_lives),
	    cmocka_unit_test(test_report_ports),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* control.sock as weir-control, weirctl and vandals see it; what a stop does to both sockets. */
#define _GNU_SOURCE
#include "worlds/broker_sockets.h"
#include "capture/capture.h"

#include "broker/control_socket.h"
#include "broker/link.h"
#include "broker/node.h"

#include "base/monotonic.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

TEST_FAKE(test_control,
	  ((const struct fake_config){.engines = 2, .sockets = true, .node = UINT32_MAX}))
{
	union ctl in;
	struct weir_ctl_msg m = {0};
	int fd, second;

	fd = ctl_open(f, WEIR_ROLE_CONTROL, &in);
	assert_int_equal(in.m.type, WEIR_CTL_HELLO);
	assert_int_equal(in.m.hello.role, WEIR_ROLE_DATAPLANE);
	assert_int_equal(in.m.hello.node, 7);
	assert_int_equal(in.m.hello.engines, 2);
	assert_int_equal(in.m.hello.pid, getpid());
	assert_int_equal(f->b->node, 7);
	assert_int_equal(f->last[ENGINE_SET_NODE].node.id, 7);
	/* one at a time, with the reason */
	second = ctl_open(f, WEIR_ROLE_CONTROL, &in);
	assert_int_equal(in.m.type, WEIR_CTL_ERROR);
	assert_int_equal(in.m.error.code, EBUSY);
	assert_int_equal(get(f, second, &in, sizeof(in), NULL), 0);
	close(second);
	/* the newer one comes when the older has gone, even if it is faster than the news of that
	 */
	close(fd);
	fd = ctl_open(f, WEIR_ROLE_CONTROL, &in);
	assert_int_equal(in.m.type, WEIR_CTL_HELLO);
	second = dial(f, "control.sock");
	m.hello.versions = WEIR_CTL_VERSIONS;
	m.hello.role = WEIR_ROLE_CONTROL;
	m.hello.node = 7;
	ctl_send(second, &m, WEIR_CTL_HELLO);
	close(fd); /* told after it */
	fd = second;
	assert_true(get(f, fd, &in, sizeof(in), NULL) > 0);
	assert_int_equal(in.m.type, WEIR_CTL_HELLO);
	m = (struct weir_ctl_msg){0};
	m.node.id = 9;
	m.node.state = WEIR_NODE_UP;
	m.node.engines = 1;
	m.node.incarnation = 5;
	ctl_send(fd, &m, WEIR_CTL_NODE);
	ctl_send(fd, &m, WEIR_CTL_SYNCED);
	fake_run(f);
	assert_non_null(node_find(f->b, 9));
	assert_true(f->b->synced);
	/* not from weirctl */
	second = ctl_open(f, WEIR_ROLE_QUERY, &in);
	assert_int_equal(in.m.type, WEIR_CTL_HELLO);
	ctl_send(second, &m, WEIR_CTL_NODE);
	assert_true(get(f, second, &in, sizeof(in), NULL) > 0);
	assert_int_equal(in.m.type, WEIR_CTL_ERROR);
	assert_int_equal(get(f, second, &in, sizeof(in), NULL), 0);
	close(second);
	close(fd);
}

TEST_FAKE(test_versions, with_sockets)
{
	const uint32_t v = WEIR_CTL_VERSION;
	const struct {
		struct weir_versions theirs;
		const char *upgrade; /* NULL: answered */
	} cases[] = {
	    {{v - 1, v - 1}, "upgrade its client"},
	    {{v + 1, v + 2}, "upgrade weir-dataplane"},
	    {{v - 1, v + 1}, NULL},
	    {{v, 0}, NULL}, /* names one only */
	};
	struct weir_ctl_msg m = {.hello.role = WEIR_ROLE_QUERY};
	union ctl in;

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int fd = dial(f, "control.sock");

		m.hello.versions = cases[i].theirs;
		ctl_send(fd, &m, WEIR_CTL_HELLO);
		assert_true(get(f, fd, &in, sizeof(in), NULL) > 0);
		if (cases[i].upgrade) {
			assert_int_equal(in.m.type, WEIR_CTL_ERROR);
			assert_int_equal(in.m.error.code, EPROTO);
			assert_non_null(strstr(in.m.error.reason, cases[i].upgrade));
			assert_int_equal(get(f, fd, &in, sizeof(in), NULL), 0);
		} else {
			assert_int_equal(in.m.type, WEIR_CTL_HELLO);
			assert_int_equal(in.m.hello.versions.highest, v);
		}
		close(fd);
		fake_run(f);
	}
	assert_int_equal(f->b->counters.control_bad, 2);
}

TEST_FAKE(test_bad_control, with_sockets)
{
	union ctl in;
	uint8_t bytes[sizeof(in)] = {0};
	int fd;

	seed = 99;
	for (unsigned i = 0; i < 3000; i++) {
		size_t length = 1 + below(299);

		fd = ctl_open(f, below(2) ? WEIR_ROLE_QUERY : WEIR_ROLE_CONTROL, &in);
		for (size_t k = 0; k < length; k++)
			bytes[k] = (uint8_t)below(256);
		if (below(2)) {
			((uint32_t *)bytes)[0] = below(60);
			((uint32_t *)bytes)[1] = (uint32_t)(length = weir_ctl_length(bytes[0]));
		}
		send(fd, bytes, length, MSG_NOSIGNAL);
		fake_run(f);
		close(fd);
		fake_run(f);
	}
	assert_true(f->b->counters.control_bad > 1000);
}

/* Without a descriptor for who comes, main doesn't spin; with one again it goes on. */
TEST_FAKE(test_no_descriptors, with_sockets)
{
	static const char *const names[] = {"control.sock", "session.sock"};
	struct rlimit none, before;
	struct epoll_event e;
	int fd[2];

	getrlimit(RLIMIT_NOFILE, &before);
	for (int i = 0; i < 2; i++)
		fd[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	none = before;
	none.rlim_cur = 0;
	setrlimit(RLIMIT_NOFILE, &none);
	for (int i = 0; i < 2; i++) {
		struct sockaddr_un a = {.sun_family = AF_UNIX};

		snprintf(a.sun_path, sizeof(a.sun_path), "%s/%s", f->dir, names[i]);
		assert_int_equal(connect(fd[i], (struct sockaddr *)&a, sizeof(a)), 0);
	}
	fake_run(f);
	assert_int_equal(epoll_wait(f->b->epoll_fd, &e, 1, 0), 0);
	setrlimit(RLIMIT_NOFILE, &before);
	f->now += BROKER_SECOND_NS / 10;
	fake_run(f);
	for (int i = 0; i < 2; i++) {
		assert_true(send(fd[i], "?", 1, MSG_NOSIGNAL) > 0);
		fake_run(f);
		assert_true(recv(fd[i], &e, sizeof(e), MSG_DONTWAIT) > 0);
		close(fd[i]);
	}
}

/* All rows of a kind; returns how many. */
static uint32_t
query(struct fake *f, int fd, uint32_t rows, void *first, size_t room)
{
	union ctl in;
	uint32_t count = 0;
	struct weir_ctl_msg m = {.query.rows = rows};

	ctl_send(fd, &m, WEIR_CTL_QUERY);
	do {
		ssize_t n = get(f, fd, &in, sizeof(in), NULL);

		assert_true(n > 0);
		assert_int_equal(weir_ctl_check(&in.m, (size_t)n), 0);
		assert_int_equal(in.m.type, WEIR_CTL_ROWS);
		assert_int_equal(in.m.rows.rows, rows);
		if (!count && first && in.m.rows.count)
			memcpy(first, in.m.rows.records, room);
		count += in.m.rows.count;
	} while (in.m.rows.more);
	return count;
}

/* The program says that a message handler of it has been at work for `ms` on the function. */
static void
show_handler(struct fake *f, uint32_t i, uint32_t ms, const char *function)
{
	struct weir_handler_line *line = &arena_head(&f->b->session[0]->arena)->handler[i];

	memcpy((void *)line->name, function, strnlen(function, sizeof(line->name)));
	line->since = monotonic_ns() - ms * 1000000ull;
}

TEST_FAKE(test_rows, with_sockets)
{
	union ctl in;
	int fd = ctl_open(f, WEIR_ROLE_QUERY, &in), program = attach(f);
	struct weir_row_session session;
	struct weir_row_engine engine;
	struct weir_row_port port;
	struct weir_row_counter counter;
	struct weir_row_qp qp;
	struct weir_row_connection conn;

	fake_node(f, 9, WEIR_NODE_UP, 5, 1);
	assert_int_equal(query(f, fd, WEIR_ROWS_NODES, NULL, 0), 1);
	assert_int_equal(query(f, fd, WEIR_ROWS_ENGINES, &engine, sizeof(engine)), 2);
	assert_int_equal(engine.lock_waiters, FAKE_LOCK_WAITERS);
	assert_int_equal(engine.lock_holders, 0);
	assert_int_equal(query(f, fd, WEIR_ROWS_SESSIONS, &session, sizeof(session)), 1);
	assert_int_equal(session.pid, getpid());
	assert_string_equal(session.name, "prog");
	assert_int_equal(session.arena_bytes, 4 << 20);
	assert_int_equal(session.handling_ms, 0);
	assert_string_equal(session.function, "");
	show_handler(f, 3, 900, "too fast");
	assert_int_equal(query(f, fd, WEIR_ROWS_SESSIONS, &session, sizeof(session)), 1);
	assert_int_equal(session.handling_ms, 0);
	assert_string_equal(session.function, "");
	show_handler(f, 7, 5000, "a\33[2Jb\200c");
	show_handler(f, 31, 3000, "faster");
	assert_int_equal(query(f, fd, WEIR_ROWS_SESSIONS, &session, sizeof(session)), 1);
	assert_true(session.handling_ms >= 5000);
	assert_string_equal(session.function, "a?[2Jb?c");
	show_handler(f, 8, 7000, "0123456789012345678901234567890123456789012345678901234x");
	assert_int_equal(query(f, fd, WEIR_ROWS_SESSIONS, &session, sizeof(session)), 1);
	assert_string_equal(session.function,
			    "0123456789012345678901234567890123456789012345678901234");
	assert_int_equal(query(f, fd, WEIR_ROWS_PORTS, &port, sizeof(port)), 2);
	assert_string_equal(port.address, "10.0.0.7");
	assert_string_equal(port.driver, "fake");
	assert_int_equal(port.tx_frames, 9);
	assert_int_equal(port.drop_count, 16);
	assert_int_equal(query(f, fd, WEIR_ROWS_COUNTERS, &counter, sizeof(counter)) > 50, 1);
	assert_string_equal(counter.name, "engine.turns");
	assert_int_equal(query(f, fd, WEIR_ROWS_QPS, NULL, 0), 0);
	link_start(link_make(f->b, 0, 9, 0));
	assert_int_equal(query(f, fd, WEIR_ROWS_QPS, &qp, sizeof(qp)), 2);
	assert_string_equal(qp.purpose, "ring");
	assert_string_equal(qp.state, "INIT");
	assert_int_equal(qp.peer_node, 9);
	/* pages: none, just one, exactly full, many */
	static const uint32_t counts[] = {0, 1, 292, 293, 10000};
	for (unsigned i = 0; i < 5; i++) {
		f->snapshot_conns = counts[i];
		assert_int_equal(query(f, fd, WEIR_ROWS_CONNECTIONS, &conn, sizeof(conn)),
				 2 * counts[i]);
	}
	assert_string_equal(conn.state_name, "open");
	close(program);
	close(fd);
}

/* weirctl set: done, or why not. */
TEST_FAKE(test_set, with_sockets)
{
	struct weir_ctl_msg m = {.set = {"program.prog.rate", "1M"}};
	struct weir_row_session session;
	union ctl in;
	int fd = ctl_open(f, WEIR_ROLE_QUERY, &in), program = attach(f), control;

	ctl_send(fd, &m, WEIR_CTL_SET);
	assert_true(get(f, fd, &in, sizeof(in), NULL) > 0);
	assert_int_equal(in.m.type, WEIR_CTL_DONE);
	assert_int_equal(in.m.done.count, 1);
	assert_int_equal(query(f, fd, WEIR_ROWS_SESSIONS, &session, sizeof(session)), 1);
	assert_int_equal(session.weight, ENGINE_WEIGHT);
	assert_int_equal(session.rate, 1000000);
	assert_int_equal(session.burst, 65536);
	snprintf(m.set.value, sizeof(m.set.value), "fast");
	ctl_send(fd, &m, WEIR_CTL_SET);
	assert_true(get(f, fd, &in, sizeof(in), NULL) > 0);
	assert_int_equal(in.m.type, WEIR_CTL_ERROR);
	assert_int_equal(in.m.error.code, EINVAL);
	/* not for weir-control */
	control = ctl_open(f, WEIR_ROLE_CONTROL, &in);
	ctl_send(control, &m, WEIR_CTL_SET);
	while (get(f, control, &in, sizeof(in), NULL) > 0 && in.m.type != WEIR_CTL_ERROR)
		;
	assert_int_equal(in.m.error.code, EPROTO);
	close(control);
	close(program);
	close(fd);
}

static void
report(struct fake *f, int type)
{
	f->async[f->async_end++].type = type;
	f->link_down = type == NIC_EVENT_LINK_DOWN;
}

/* Two engines share the port: its changes are counted once for each of its rows. */
TEST_FAKE(test_port_events, with_sockets)
{
	union ctl in;
	int fd = ctl_open(f, WEIR_ROLE_QUERY, &in);
	struct weir_row_port port[2];

	f->now += BROKER_SECOND_NS;
	fake_run(f);
	report(f, NIC_EVENT_QP_FATAL);
	report(f, NIC_EVENT_LINK_UP);
	report(f, NIC_EVENT_DEVICE_FATAL);
	report(f, NIC_EVENT_LINK_DOWN);
	fake_run(f);
	assert_int_equal(f->async_first, 0); /* not in every turn */
	f->now += BROKER_SECOND_NS;
	fake_run(f);
	assert_int_equal(f->async_first, 4);
	assert_int_equal(query(f, fd, WEIR_ROWS_PORTS, port, sizeof(port)), 2);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(port[i].link_changes, 2);
		assert_false(port[i].link_up);
	}
	close(fd);
}

/* A descriptor from which later lines of the log are read, without waiting. */
static int
catch_log(int *before)
{
	int ends[2];

	assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
	*before = dup(STDERR_FILENO);
	assert_int_equal(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
	close(ends[1]);
	return ends[0];
}

/* Runs a second later. Whether the log says so then. */
static bool
logged(struct fake *f, int log, const char *what)
{
	char text[4096];
	ssize_t n;

	f->now += BROKER_SECOND_NS;
	fake_run(f);
	n = read(log, text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = '\0';
	return strstr(text, what) != NULL;
}

static unsigned
lines_with(const char *text, const char *what)
{
	unsigned n = 0;

	while ((text = strstr(text, what))) {
		n++;
		text++;
	}
	return n;
}

/* A program's lines don't push out those of others, or those about ports; how many is told. */
TEST_FAKE(test_log_under_load, ((const struct fake_config){.engines = 2, .node = 1}))
{
	struct engine_event e = {.type = ENGINE_EVENT_FULL};
	struct fake_session a, b;
	int before, log;
	char text[16384];
	bool later;
	ssize_t n;

	fake_attach_by(f, &a, 1000, "a");
	fake_attach_by(f, &b, 1001, "b");
	log = catch_log(&before);
	e.conn.session = 0;
	for (int i = 0; i < 1000; i++)
		fake_emit(f, 0, &e);
	e.conn.session = 1;
	fake_emit(f, 0, &e);
	report(f, NIC_EVENT_LINK_DOWN);
	f->now += BROKER_SECOND_NS - 1;
	fake_run(f);
	n = read(log, text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = '\0';
	f->now += (LOG_BURST * LOG_PACE_MS + LOG_QUIET_MS) * UINT64_C(1000000);
	later = logged(f, log, "980 lines left out (full receive memory, user 1000)");
	dup2(before, STDERR_FILENO);
	close(before);
	close(log);
	assert_int_equal(lines_with(text, "session 0 "), LOG_BURST);
	assert_int_equal(lines_with(text, "session 1 "), 1);
	assert_int_equal(lines_with(text, "link is down, frames are lost"), 1);
	assert_true(later);
}

/* Nobody is sent to look at a cable because a port's other end starts a little later. */
TEST_FAKE(test_link_down_at_start,
	  ((const struct fake_config){.engines = 2, .node = 1, .link_down = true}))
{
	int before, log = catch_log(&before);
	bool told[5], later, up, down;

	report(f, NIC_EVENT_LINK_DOWN);
	for (int i = 0; i < 5; i++)
		told[i] = logged(f, log, "link is down");
	later = logged(f, log, "fake: link is down, frames are lost; look at the cable");
	told[0] |= logged(f, log, "link is down");
	report(f, NIC_EVENT_LINK_UP);
	up = logged(f, log, "fake: link is up");
	report(f, NIC_EVENT_LINK_DOWN);
	down = logged(f, log, "link is down");
	dup2(before, STDERR_FILENO);
	close(before);
	close(log);
	for (int i = 0; i < 5; i++)
		assert_false(told[i]);
	assert_true(later);
	assert_true(up);
	assert_true(down); /* it was up: at once */
}

TEST(test_slow_reader)
{
	struct fake *f = fake_open(&with_sockets);
	union ctl in;
	struct weir_ctl_msg m = {.query.rows = WEIR_ROWS_CONNECTIONS};
	int fd = ctl_open(f, WEIR_ROLE_QUERY, &in), other = ctl_open(f, WEIR_ROLE_QUERY, &in);

	f->snapshot_conns = 60000; /* more than any socket holds */
	ctl_send(fd, &m, WEIR_CTL_QUERY);
	fake_run(f);
	f->snapshot_conns = 10;
	assert_int_equal(query(f, other, WEIR_ROWS_CONNECTIONS, NULL, 0), 20);
	f->now += 6 * BROKER_SECOND_NS;
	fake_run(f);
	assert_int_equal(f->b->counters.control_slow, 1);
	close(fd);
	/* gone while an engine fills its page */
	f->hold = true;
	ctl_send(other, &m, WEIR_CTL_QUERY);
	fake_run(f);
	close(other);
	fake_run(f);
	fake_let_go(f);
	other = ctl_open(f, WEIR_ROLE_QUERY, &in);
	f->hold = true;
	ctl_send(other, &m, WEIR_CTL_QUERY);
	fake_run(f); /* and the broker ends before the engine answers */
	fake_close(f);
	close(other);
}

/* ---- captures ---- */

static struct capture *captured; /* the last one begun */

static int
capture_thread(pthread_t *thread, void *(*run)(void *), void *arg)
{
	return pthread_create(thread, NULL, run, arg);
}

static void
capture_detach(void *user)
{
}

static int
capture_hook(void *user, const char *port, int fd, uint64_t limit, struct capture **out,
	     char *error, size_t size)
{
	struct capture_config config = {
	    .port = port,
	    .driver = "fake",
	    .application = "test",
	    .rings = 1,
	    .limit = limit,
	    .fd = fd,
	    .thread = capture_thread,
	    .detach = capture_detach,
	};
	int rc;

	if (strcmp(port, "net0")) {
		snprintf(error, size, "no port '%s'; there is net0", port);
		return -ENODEV;
	}
	rc = capture_create(&config, out, error, size);
	if (!rc)
		rc = capture_start(*out);
	captured = *out;
	return rc;
}

/* CAPTURE with a descriptor, -1: without. */
static void
ask_capture(int fd, const char *port, uint64_t frames, int file)
{
	struct weir_ctl_msg m = {.type = WEIR_CTL_CAPTURE,
				 .length = weir_ctl_length(WEIR_CTL_CAPTURE)};

	snprintf(m.capture.port, sizeof(m.capture.port), "%s", port);
	m.capture.frames = frames;
	if (file >= 0)
		assert_int_equal(send_descriptor(fd, &m, m.length, file), 0);
	else
		assert_int_equal(send(fd, &m, m.length, MSG_NOSIGNAL), m.length);
}

/* The next message, waiting for the capture's thread; closed: type 0. */
static const struct weir_ctl_msg *
captured_message(struct fake *f, int fd, union ctl *in)
{
	ssize_t n;

	for (int i = 0; (n = get(f, fd, in, sizeof(*in), NULL)) == -EAGAIN; i++) {
		assert_true(i < 10000);
		usleep(1000);
	}
	if (n <= 0)
		in->m.type = 0;
	return &in->m;
}

/* Runs until all captures are over. */
static void
await_captures(struct fake *f)
{
	for (int i = 0; LIST_FIRST(&f->b->captures) && i < 10000; i++) {
		fake_run(f);
		usleep(1000);
	}
	assert_null(LIST_FIRST(&f->b->captures));
}

TEST_FAKE(test_capture, with_sockets)
{
	int fd, file = memfd_create("capture", MFD_CLOEXEC);
	const struct weir_ctl_msg *m;
	struct capture_frame frame = {.captured = 60, .original = 60};
	uint8_t data[60] = {0};
	unsigned fds;
	union ctl in;

	f->b->config.capture = capture_hook;
	fds = fake_open_fds();
	fd = ctl_open(f, WEIR_ROLE_QUERY, &in);
	ask_capture(fd, "net0", 0, file);
	m = captured_message(f, fd, &in);
	assert_int_equal(m->type, WEIR_CTL_CAPTURED);
	assert_int_equal(m->captured.over, 0);
	for (unsigned i = 0; i < 5; i++)
		capture_put(capture_ring(captured, 0), &frame, data);
	ctl_send(fd, &in.m, WEIR_CTL_CAPTURE_STOP);
	m = captured_message(f, fd, &in);
	assert_int_equal(m->type, WEIR_CTL_CAPTURED);
	assert_int_equal(m->captured.over, 1);
	assert_int_equal(m->captured.code, 0);
	assert_int_equal(m->captured.frames, 5);
	assert_int_equal(m->captured.bytes, lseek(file, 0, SEEK_END));
	assert_int_equal(f->b->counters.captured_frames, 5);
	/* a stop that comes late does no harm; rows can be asked for; it ends at its limit */
	ctl_send(fd, &in.m, WEIR_CTL_CAPTURE_STOP);
	ask_capture(fd, "net0", 2, file);
	assert_int_equal(captured_message(f, fd, &in)->captured.over, 0);
	for (unsigned i = 0; i < 5; i++)
		capture_put(capture_ring(captured, 0), &frame, data);
	m = captured_message(f, fd, &in);
	assert_int_equal(m->captured.over, 1);
	assert_int_equal(m->captured.frames, 2);
	/* who asked goes: so does the capture */
	ask_capture(fd, "net0", 0, file);
	assert_int_equal(captured_message(f, fd, &in)->captured.over, 0);
	assert_non_null(LIST_FIRST(&f->b->captures));
	close(fd);
	await_captures(f);
	assert_int_equal(fake_open_fds(), fds);
	close(file);
}

static void
expect_capture_error(struct fake *f, const char *port, int file, int code)
{
	union ctl in;
	int fd = ctl_open(f, WEIR_ROLE_QUERY, &in);

	ask_capture(fd, port, 0, file);
	assert_int_equal(captured_message(f, fd, &in)->type, WEIR_CTL_ERROR);
	assert_int_equal(in.m.error.code, code);
	assert_non_null(strstr(in.m.error.reason, "; "));
	assert_int_equal(captured_message(f, fd, &in)->type, 0);
	close(fd);
}

TEST(test_capture_refused)
{
	struct fake *f = fake_open(&with_sockets);
	int fd, file = memfd_create("capture", MFD_CLOEXEC), null = open("/dev/null", O_WRONLY);
	unsigned fds = fake_open_fds();
	union ctl in;

	expect_capture_error(f, "net0", file, EOPNOTSUPP);
	f->b->config.capture = capture_hook;
	expect_capture_error(f, "net0", -1, EBADF);
	expect_capture_error(f, "net1", file, ENODEV);
	expect_capture_error(f, "net0", null, EINVAL);
	/* not from weir-control; and a descriptor that nobody asked for is closed */
	fd = ctl_open(f, WEIR_ROLE_CONTROL, &in);
	ask_capture(fd, "net0", 0, file);
	do
		captured_message(f, fd, &in);
	while (in.m.type && in.m.type != WEIR_CTL_ERROR);
	assert_int_equal(in.m.type, WEIR_CTL_ERROR);
	close(fd);
	/* one at a time */
	fd = ctl_open(f, WEIR_ROLE_QUERY, &in);
	ask_capture(fd, "net0", 0, file);
	captured_message(f, fd, &in);
	ask_capture(fd, "net0", 0, file);
	assert_int_equal(captured_message(f, fd, &in)->type, WEIR_CTL_ERROR);
	assert_int_equal(in.m.error.code, EBUSY);
	close(fd);
	await_captures(f);
	assert_int_equal(fake_open_fds(), fds);
	/* one that is under way at the end is ended */
	fd = ctl_open(f, WEIR_ROLE_QUERY, &in);
	ask_capture(fd, "net0", 0, file);
	captured_message(f, fd, &in);
	fake_close(f);
	close(fd);
	close(file);
	close(null);
}

/* A control that reads late still gets every message, in order. */
TEST_FAKE(test_backlog_to_control, with_sockets)
{
	union ctl in;
	int fd = ctl_open(f, WEIR_ROLE_CONTROL, &in);
	struct weir_ctl_msg m = {.type = WEIR_CTL_LINK, .length = weir_ctl_length(WEIR_CTL_LINK)};

	assert_true(get(f, fd, &in, sizeof(in), NULL) > 0); /* behind HELLO */
	assert_int_equal(in.m.type, WEIR_CTL_SERVICES);
	for (uint32_t i = 0; i < 20000; i++) {
		m.link.attempt = i;
		broker_control_send(f->b, &m);
	}
	for (uint32_t i = 0; i < 20000; i++) {
		assert_true(get(f, fd, &in, sizeof(in), NULL) > 0);
		assert_int_equal(in.m.link.attempt, i);
	}
	assert_int_equal(get(f, fd, &in, sizeof(in), NULL), -EAGAIN);
	for (uint32_t i = 0; i < 20000; i++)
		broker_control_send(f->b, &m);
	f->now += 6 * BROKER_SECOND_NS;
	fake_run(f);
	assert_int_equal(f->b->counters.control_slow, 1);
	close(fd);
}

TEST_FAKE(test_stop_closes_sockets, with_sockets)
{
	union ctl in;
	int program = attach(f), control = ctl_open(f, WEIR_ROLE_CONTROL, &in);
	struct weir_session_msg r;

	assert_true(get(f, control, &in, sizeof(in), NULL) > 0); /* behind HELLO */
	while (!broker_stop(f->b))
		fake_run(f);
	assert_int_equal(get(f, program, &r, sizeof(r), NULL), 0);
	assert_int_equal(get(f, control, &in, sizeof(in), NULL), 0);
	close(program);
	close(control);
}

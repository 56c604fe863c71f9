/* SPDX-License-Identifier: BSD-3-Clause */
/* session.sock and control.sock as a program, a weirctl, a weir-control and a vandal see them. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "broker_fake.h"
#include "capture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static const struct fake_config with_sockets = {.engines = 2, .sockets = true, .node = 7};

static int
dial(struct fake *f, const char *name)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s/%s", f->dir, name);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	fake_run(f);
	return fd;
}

/* What comes next: bytes, 0 = closed, -EAGAIN = nothing. Descriptors go to fds. */
static ssize_t
get(struct fake *f, int fd, void *m, size_t room, int fds[2])
{
	union {
		char room[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {.iov_base = m, .iov_len = room};
	struct msghdr h = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = control.room,
			   .msg_controllen = sizeof(control.room)};
	struct cmsghdr *c;
	ssize_t n;

	fake_run(f);
	n = recvmsg(fd, &h, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	if (n < 0)
		return errno == ECONNRESET ? 0 : -errno;
	c = CMSG_FIRSTHDR(&h);
	if (fds && c)
		memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
	return n;
}

static struct weir_session_msg
hello(void)
{
	struct weir_session_msg m = session_msg(WEIR_MSG_HELLO);

	m.hello.magic = WEIR_SESSION_MAGIC;
	m.hello.version_min = m.hello.version_max = 1;
	m.hello.arena = 4 << 20;
	snprintf(m.hello.name, sizeof(m.hello.name), "prog");
	return m;
}

static struct weir_session_msg
call(struct fake *f, int fd, struct weir_session_msg m, int fds[2])
{
	struct weir_session_msg r = {0};

	m.length = weir_session_length(m.type);
	assert_int_equal(send(fd, &m, m.length, MSG_NOSIGNAL), m.length);
	assert_true(get(f, fd, &r, sizeof(r), fds) > 0);
	assert_int_equal(weir_session_check(&r, r.length), 0);
	return r;
}

static int
attach(struct fake *f)
{
	int fd = dial(f, "session.sock"), fds[2] = {-1, -1};

	assert_int_equal(call(f, fd, hello(), fds).type, WEIR_MSG_WELCOME);
	close(fds[0]);
	return fd;
}

static void
test_attach(void **state)
{
	struct fake *f = fake_open(&with_sockets);
	int fd = dial(f, "session.sock"), fds[2] = {-1, -1};
	struct weir_session_msg r = call(f, fd, hello(), fds), bye = {.type = WEIR_MSG_BYE};
	struct weir_arena_head *head;
	struct stat st;

	(void)state;
	assert_int_equal(r.type, WEIR_MSG_WELCOME);
	assert_int_equal(r.welcome.node, 7);
	assert_int_equal(r.welcome.geometry.engines, 2);
	head = mmap(NULL, r.welcome.geometry.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	assert_ptr_not_equal(head, MAP_FAILED);
	assert_memory_equal(&head->geometry, &r.welcome.geometry, sizeof(head->geometry));
	assert_int_equal(head->node, 8);
	assert_int_not_equal(ftruncate(fds[0], 4096), 0);
	fstat(fds[0], &st);
	assert_true((uint64_t)st.st_blocks * 512 >= r.welcome.geometry.bytes); /* populated */
	assert_int_equal(f->count[ENGINE_SESSION_ADD], 2);
	assert_int_equal(f->live_mrs, 3); /* two receive areas, one send heap */
	munmap(head, r.welcome.geometry.bytes);
	close(fds[0]);
	assert_int_equal(call(f, fd, bye, NULL).type, WEIR_MSG_OK);
	assert_int_equal(get(f, fd, &r, sizeof(r), NULL), 0);
	assert_int_equal(f->b->session_count, 0);
	assert_int_equal(f->live_mrs, 0);
	assert_int_equal(fake_mappings("weir-arena"), 0);
	close(fd);
	fake_close(f);
}

/* A program's name goes to logs and terminals. */
static void
test_name(void **state)
{
	struct fake *f = fake_open(&with_sockets);
	int fd = dial(f, "session.sock"), fds[2] = {-1, -1};
	struct weir_session_msg m = hello();

	(void)state;
	snprintf(m.hello.name, sizeof(m.hello.name), "a\x1b[31m\nb: \xff\x9b");
	assert_int_equal(call(f, fd, m, fds).type, WEIR_MSG_WELCOME);
	assert_string_equal(f->b->session[0]->name, "a?[31m?b: ??");
	close(fds[0]);
	close(fd);
	fake_close(f);
}

static void
test_permissions(void **state)
{
	struct fake *f = fake_open(&with_sockets);
	char path[128];
	struct stat st;

	(void)state;
	snprintf(path, sizeof(path), "%s/session.sock", f->dir);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0660);
	snprintf(path, sizeof(path), "%s/control.sock", f->dir);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	/* nobody takes the place of a living one; what a dead one left is replaced */
	assert_null(broker_create(&f->config));
	assert_int_equal(errno, EADDRINUSE);
	fake_close(f);
}

static void
test_version(void **state)
{
	struct fake *f = fake_open(&with_sockets);
	int fd = dial(f, "session.sock");
	struct weir_session_msg m = hello(), r;

	(void)state;
	m.hello.version_min = 7;
	m.hello.version_max = 9;
	r = call(f, fd, m, NULL);
	assert_int_equal(r.type, WEIR_MSG_REFUSED);
	assert_int_equal(r.refused.code, EPROTO);
	assert_non_null(strstr(r.refused.reason, "7 to 9"));
	assert_non_null(strstr(r.refused.reason, "1 to 2"));
	assert_non_null(strstr(r.refused.reason, "install"));
	assert_int_equal(get(f, fd, &r, sizeof(r), NULL), 0);
	close(fd);
	/* a later library's greeting may well be longer */
	fd = dial(f, "session.sock");
	assert_int_equal(send(fd, &m, sizeof(m), MSG_NOSIGNAL), sizeof(m));
	assert_true(get(f, fd, &r, sizeof(r), NULL) > 0);
	assert_non_null(strstr(r.refused.reason, "7 to 9"));
	close(fd);
	fd = dial(f, "session.sock");
	m.hello.magic = 1;
	assert_int_equal(call(f, fd, m, NULL).type, WEIR_MSG_REFUSED);
	close(fd);
	assert_int_equal(f->b->counters.sessions_refused, 3);
	fake_close(f);
}

static void
test_too_many(void **state)
{
	struct fake_config c = with_sockets;
	struct fake *f;
	int fd[3];
	struct weir_session_msg r;

	(void)state;
	c.sessions = 2;
	f = fake_open(&c);
	fd[0] = attach(f);
	fd[1] = attach(f);
	fd[2] = dial(f, "session.sock");
	r = call(f, fd[2], hello(), NULL);
	assert_int_equal(r.refused.code, EMFILE);
	close(fd[0]);
	close(fd[2]);
	fake_run(f);
	fd[0] = attach(f);
	close(fd[0]);
	close(fd[1]);
	fake_close(f);
}

static void
test_silent(void **state)
{
	struct fake *f = fake_open(&with_sockets);
	int fd = dial(f, "session.sock"), program = attach(f), control = dial(f, "control.sock");
	struct weir_session_msg r;

	(void)state;
	f->now += 4 * BROKER_SECOND_NS;
	assert_int_equal(get(f, fd, &r, sizeof(r), NULL), -EAGAIN);
	f->now += 2 * BROKER_SECOND_NS;
	assert_int_equal(get(f, fd, &r, sizeof(r), NULL), 0);
	assert_int_equal(get(f, control, &r, sizeof(r), NULL), 0);
	assert_int_equal(get(f, program, &r, sizeof(r), NULL), -EAGAIN); /* may be silent */
	close(fd);
	close(program);
	close(control);
	fake_close(f);
}

static void
test_doorbell(void **state)
{
	struct fake *f = fake_open(&with_sockets);
	int fd = attach(f), fds[2] = {-1, -1};
	struct weir_session_msg m = {.type = WEIR_MSG_ADD_CHANNEL}, r;
	char byte;

	(void)state;
	m.add_channel.engine = 1;
	r = call(f, fd, m, fds);
	assert_int_equal(r.type, WEIR_MSG_CHANNEL);
	assert_int_equal(send(fds[0], "x", 1, 0), 1);
	assert_int_equal(recv(f->doorbell[0], &byte, 1, MSG_DONTWAIT), 1);
	/* a program that never reads and clears O_NONBLOCK on its side can't block us */
	fcntl(fds[0], F_SETFL, 0);
	for (int i = 0; i < 100000; i++)
		if (send(f->doorbell[0], "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
			break;
	assert_int_equal(errno, EAGAIN);
	assert_true(fcntl(f->doorbell[0], F_GETFL) & O_NONBLOCK);
	close(fds[0]);
	assert_int_equal(recv(f->doorbell[0], &byte, 1, MSG_DONTWAIT), -1);
	close(fd);
	fake_close(f);
}

/* Two programs connect, one is killed: the other is told, and all of the dead one's is given back.
 */
static void
test_death(void **state)
{
	unsigned fds_before = fake_open_fds();
	struct fake *f = fake_open(&with_sockets);
	struct weir_session_msg m = {.type = WEIR_MSG_ADD_CHANNEL}, r;
	int l = attach(f), c = attach(f), fds[2] = {-1, -1};

	(void)state;
	for (uint32_t i = 0; i < 4; i++) {
		m.add_channel.engine = i % 2;
		call(f, i < 2 ? l : c, m, fds);
		close(fds[0]);
	}
	m = (struct weir_session_msg){.type = WEIR_MSG_LISTEN, .listen.channel = {0, 1}};
	snprintf(m.listen.service, sizeof(m.listen.service), "s");
	assert_int_equal(call(f, l, m, NULL).type, WEIR_MSG_LISTENING);
	m = (struct weir_session_msg){.type = WEIR_MSG_CONNECT};
	m.connect.address.kind = WEIR_ADDRESS_NODE;
	m.connect.address.id = 7;
	snprintf(m.connect.address.service, sizeof(m.connect.address.service), "s");
	r = call(f, c, m, NULL);
	assert_int_equal(r.type, WEIR_MSG_CONNECTING);
	m = (struct weir_session_msg){.type = WEIR_MSG_SEGMENT};
	m.segment.segment = r.connecting.segment;
	r = call(f, c, m, fds);
	assert_int_equal(r.type, WEIR_MSG_SEGMENT_MAP);
	assert_true(fds[0] >= 0 && fds[1] >= 0);
	close(fds[0]);
	close(fds[1]);
	close(c);
	fake_run(f);
	assert_int_equal(f->b->session_count, 1);
	assert_int_equal(f->last[ENGINE_CONN_PEER_CLOSED].conn.status, ECONNRESET);
	assert_int_equal(fake_mappings("weir-arena"), 1);
	m.segment.side = 1;
	assert_int_equal(call(f, l, m, fds).type, WEIR_MSG_SEGMENT_MAP);
	close(fds[0]);
	close(fds[1]);
	close(l);
	fake_run(f);
	fake_close(f);
	assert_int_equal(fake_open_fds(), fds_before);
	assert_int_equal(fake_mappings("weir-"), 0);
}

static void
test_violation(void **state)
{
	struct fake *f = fake_open(&with_sockets);
	int fd = attach(f), other = attach(f);
	struct engine_event e = {.type = ENGINE_EVENT_VIOLATION, .reason = "tail that lies"};
	struct weir_session_msg r;

	(void)state;
	fake_emit(f, 1, &e);
	e.conn.session = 4000000;
	fake_emit(f, 1, &e);
	assert_int_equal(get(f, fd, &r, sizeof(r), NULL), 0);
	assert_int_equal(get(f, other, &r, sizeof(r), NULL), -EAGAIN);
	assert_int_equal(f->b->session_count, 1);
	assert_int_equal(f->b->counters.sessions_spoilt, 1);
	close(fd);
	close(other);
	fake_close(f);
}

/* A hole into which we fall closes that session, and no other. */
static void
test_hole(void **state)
{
	struct fake *f = fake_open(&with_sockets);
	int fd = attach(f), other = attach(f);
	struct broker_session *s = f->b->session[0];
	size_t page = s->arena.memory.page;
	struct weir_session_msg r;

	(void)state;
	/* as if the file ended there: a hole that can't be filled */
	munmap(arena_base(&s->arena) + page, page);
	int empty = memfd_create("empty", MFD_CLOEXEC);
	assert_ptr_not_equal(mmap(arena_base(&s->arena) + page, page, PROT_READ | PROT_WRITE,
				  MAP_SHARED | MAP_FIXED, empty, 0),
			     MAP_FAILED);
	arena_base(&s->arena)[page + 5] = 1;
	assert_int_equal(get(f, fd, &r, sizeof(r), NULL), 0);
	assert_int_equal(get(f, other, &r, sizeof(r), NULL), -EAGAIN);
	assert_int_equal(f->b->counters.holes, 1);
	close(empty);
	close(fd);
	close(other);
	fake_close(f);
}

/* ---- vandals ---- */

static uint64_t seed;

static uint32_t
below(uint32_t n)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(seed >> 33) % n;
}

static size_t
vandal_message(uint8_t *bytes, size_t room)
{
	struct weir_session_msg m = hello();
	size_t length;

	memset(bytes, 0, room);
	if (below(20)) {
		m.type = below(20) ? 2 + below(6) : 1 + below(10);
		m.length = weir_session_length(m.type);
		for (unsigned i = below(12); i; i--)
			((uint8_t *)&m)[8 + below(sizeof(m) - 8)] = (uint8_t)below(256);
		if (m.type == WEIR_MSG_CONNECT) {
			m.connect.address.kind = below(3) ? WEIR_ADDRESS_NODE : below(6);
			m.connect.address.id = below(3) ? 7 : below(9);
			m.connect.flags = below(5) == 0;
			m.connect.window = below(8) ? 0 : below(20000);
			m.connect.channel = below(2);
			snprintf(m.connect.address.service, 32, "s");
		} else if (m.type == WEIR_MSG_ADD_CHANNEL) {
			m.add_channel.engine = below(3);
		} else if (m.type == WEIR_MSG_LISTEN) {
			m.listen.channel[0] = below(3);
			m.listen.channel[1] = below(3);
			snprintf(m.listen.service, 32, "s%.0u", below(2));
		} else if (m.type == WEIR_MSG_SEGMENT || m.type == WEIR_MSG_DROP_SEGMENT) {
			m.segment.segment = below(4);
			m.segment.side = below(3);
		}
		memcpy(bytes, &m, sizeof(m));
		return below(50) ? m.length : below(sizeof(m));
	}
	length = below((uint32_t)room);
	for (size_t i = 0; i < length; i++)
		bytes[i] = (uint8_t)below(below(2) ? 256 : 12);
	return length;
}

/* Random requests on many connections: they harm nobody, and everything comes back. */
static void
test_vandals(void **state)
{
	unsigned fds_before = fake_open_fds();
	struct fake *f = fake_open(&with_sockets);
	int good = attach(f), fd[6] = {-1, -1, -1, -1, -1, -1}, fds[2] = {-1, -1};
	struct weir_session_msg m = {.type = WEIR_MSG_ADD_CHANNEL}, in;
	uint8_t bytes[600];

	(void)state;
	for (m.add_channel.engine = 0; m.add_channel.engine < 2; m.add_channel.engine++) {
		call(f, good, m, fds);
		close(fds[0]);
	}
	m = (struct weir_session_msg){.type = WEIR_MSG_LISTEN, .listen.channel = {0, 1}};
	m.listen.backlog = 1000;
	snprintf(m.listen.service, sizeof(m.listen.service), "s");
	assert_int_equal(call(f, good, m, NULL).type, WEIR_MSG_LISTENING);
	seed = 4711;
	for (unsigned i = 0; i < 6000; i++) {
		int *at = &fd[below(6)];
		size_t length;

		fds[0] = fds[1] = -1;
		if (*at < 0) {
			*at = dial(f, below(8) ? "session.sock" : "control.sock");
			if (below(10)) {
				in = hello();
				send(*at, &in, in.length, MSG_NOSIGNAL);
			}
			continue;
		}
		length = vandal_message(bytes, sizeof(bytes));
		if (send(*at, bytes, length, MSG_NOSIGNAL) < 0 || !below(40) ||
		    get(f, *at, &in, sizeof(in), fds) == 0) {
			close(*at);
			*at = -1;
		}
		for (int k = 0; k < 2; k++)
			if (fds[k] >= 0)
				close(fds[k]);
	}
	assert_true(f->b->counters.requests > 1000);
	assert_true(f->b->counters.requests_bad > 100);
	assert_true(f->b->counters.connects_local > 10);
	m.type = WEIR_MSG_ADD_CHANNEL;
	m.add_channel.engine = 0;
	assert_int_equal(call(f, good, m, fds).type, WEIR_MSG_CHANNEL);
	close(fds[0]);
	for (int i = 0; i < 6; i++)
		if (fd[i] >= 0)
			close(fd[i]);
	fake_run(f);
	assert_int_equal(f->b->session_count, 1);
	assert_int_equal(f->b->conn_count,
			 f->b->session[0]->conn_count); /* accepted, not closed yet */
	close(good);
	fake_close(f);
	assert_int_equal(fake_open_fds(), fds_before);
}

/* Asks without reading the answers: closed, not waited for. */
static void
test_asks_without_waiting(void **state)
{
	struct fake *f = fake_open(&with_sockets);
	int fd = attach(f);
	struct weir_session_msg m = session_msg(WEIR_MSG_ADD_CHANNEL), r;

	(void)state;
	f->hold = true;
	m.add_channel.engine = 0;
	send(fd, &m, m.length, MSG_NOSIGNAL);
	send(fd, &m, m.length, MSG_NOSIGNAL);
	fake_run(f);
	assert_int_equal(get(f, fd, &r, sizeof(r), NULL), 0);
	f->hold = false;
	fake_release(f);
	assert_int_equal(f->b->session_count, 0);
	close(fd);
	fake_close(f);
}

/* Asks for ever and reads nothing: closed as soon as an answer finds no room. */
static void
test_never_reads(void **state)
{
	struct fake *f = fake_open(&with_sockets);
	int fd = attach(f);
	struct weir_session_msg m = session_msg(WEIR_MSG_UNLISTEN);

	(void)state;
	for (unsigned i = 0; i < 100000 && f->b->session_count; i++) {
		send(fd, &m, m.length, MSG_NOSIGNAL);
		fake_run(f);
	}
	assert_int_equal(f->b->session_count, 0);
	close(fd);
	fake_close(f);
}

/* Who costs too much waits: others don't, and nobody for ever. */
static void
test_paced_requests(void **state)
{
	struct fake_config config = with_sockets;
	struct weir_session_msg m = session_msg(WEIR_MSG_UNLISTEN), r;
	struct fake *f;
	int fd, other;

	(void)state;
	config.burst_ns = 2; /* whatever is asked is more than that */
	f = fake_open(&config);
	fd = attach(f);
	other = attach(f);
	assert_int_equal(call(f, fd, m, NULL).type, WEIR_MSG_REFUSED);
	assert_int_equal(send(fd, &m, m.length, MSG_NOSIGNAL), m.length);
	assert_int_equal(get(f, fd, &r, sizeof(r), NULL), -EAGAIN);
	assert_int_equal(call(f, other, m, NULL).type, WEIR_MSG_REFUSED);
	f->now += 4 * BROKER_SECOND_NS;
	assert_true(get(f, fd, &r, sizeof(r), NULL) > 0);
	/* its end is seen all the same */
	assert_int_equal(send(fd, &m, m.length, MSG_NOSIGNAL), m.length);
	assert_int_equal(get(f, fd, &r, sizeof(r), NULL), -EAGAIN);
	close(fd);
	fake_run(f);
	assert_int_equal(f->b->session_count, 1);
	close(other);
	fake_close(f);
}

static void
test_paced_attach(void **state)
{
	struct fake_config config = with_sockets;
	struct weir_session_msg m = hello(), r;
	int fd, fds[2] = {-1, -1};
	struct fake *f;

	(void)state;
	config.burst_ns = 2;
	f = fake_open(&config);
	/* who stays costs nothing, who leaves soon does */
	for (unsigned i = 0; i < 3; i++) {
		fd = attach(f);
		f->now += 20 * BROKER_SECOND_NS;
		close(fd);
		fake_run(f);
	}
	close(attach(f));
	fd = dial(f, "session.sock");
	assert_int_equal(send(fd, &m, m.length, MSG_NOSIGNAL), m.length);
	assert_int_equal(get(f, fd, &r, sizeof(r), fds), -EAGAIN);
	f->now += 4 * BROKER_SECOND_NS;
	assert_true(get(f, fd, &r, sizeof(r), fds) > 0);
	assert_int_equal(r.type, WEIR_MSG_WELCOME);
	close(fds[0]);
	close(fd);
	/* one that has left before its turn costs nothing */
	fd = dial(f, "session.sock");
	assert_int_equal(send(fd, &m, m.length, MSG_NOSIGNAL), m.length);
	fake_run(f);
	close(fd);
	f->now += 4 * BROKER_SECOND_NS;
	fake_run(f);
	assert_int_equal(f->b->counters.sessions_opened, 5);
	fake_close(f);
}

/* ---- control.sock ---- */

union ctl {
	struct weir_ctl_msg m;
	uint64_t room[WEIR_CTL_MAX / 8];
};

static void
ctl_send(int fd, struct weir_ctl_msg *m, uint32_t type)
{
	m->type = type;
	m->length = weir_ctl_length(type);
	assert_int_equal(send(fd, m, m->length, MSG_NOSIGNAL), m->length);
}

static int
ctl_open(struct fake *f, uint32_t role, union ctl *answer)
{
	int fd = dial(f, "control.sock");
	struct weir_ctl_msg m = {0};

	m.hello.version = WEIR_CTL_VERSION;
	m.hello.role = role;
	m.hello.node = 7;
	ctl_send(fd, &m, WEIR_CTL_HELLO);
	assert_true(get(f, fd, answer, sizeof(*answer), NULL) > 0);
	assert_int_equal(weir_ctl_check(&answer->m, answer->m.length), 0);
	return fd;
}

static void
test_control(void **state)
{
	struct fake_config c = with_sockets;
	struct fake *f;
	union ctl in;
	struct weir_ctl_msg m = {0};
	int fd, second;

	(void)state;
	c.node = UINT32_MAX;
	f = fake_open(&c);
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
	m.hello.version = WEIR_CTL_VERSION;
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
	fake_close(f);
}

static void
test_bad_control(void **state)
{
	struct fake *f = fake_open(&with_sockets);
	struct weir_ctl_msg m = {.type = WEIR_CTL_HELLO};
	union ctl in;
	uint8_t bytes[300];
	int fd = dial(f, "control.sock");

	(void)state;
	m.length = weir_ctl_length(WEIR_CTL_HELLO);
	m.hello.version = 99;
	m.hello.role = WEIR_ROLE_CONTROL;
	send(fd, &m, m.length, MSG_NOSIGNAL);
	assert_true(get(f, fd, &in, sizeof(in), NULL) > 0);
	assert_int_equal(in.m.error.code, EPROTO);
	assert_non_null(strstr(in.m.error.reason, "99"));
	close(fd);
	seed = 99;
	for (unsigned i = 0; i < 3000; i++) {
		size_t length = 1 + below(sizeof(bytes) - 1);

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
	fake_close(f);
}

/* All rows of a kind; returns how many. */
static uint32_t
query(struct fake *f, int fd, uint32_t rows, void *first, size_t room)
{
	struct weir_ctl_msg m = {0};
	union ctl in;
	uint32_t count = 0;

	m.query.rows = rows;
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

static void
test_rows(void **state)
{
	struct fake *f = fake_open(&with_sockets);
	union ctl in;
	int fd = ctl_open(f, WEIR_ROLE_QUERY, &in), program = attach(f);
	struct weir_row_session session;
	struct weir_row_port port;
	struct weir_row_counter counter;
	struct weir_row_qp qp;
	struct weir_row_connection conn;

	(void)state;
	fake_node(f, 9, WEIR_NODE_UP, 5, 1);
	assert_int_equal(query(f, fd, WEIR_ROWS_NODES, NULL, 0), 1);
	assert_int_equal(query(f, fd, WEIR_ROWS_ENGINES, NULL, 0), 2);
	assert_int_equal(query(f, fd, WEIR_ROWS_SESSIONS, &session, sizeof(session)), 1);
	assert_int_equal(session.pid, getpid());
	assert_string_equal(session.name, "prog");
	assert_int_equal(session.arena_bytes, 4 << 20);
	assert_int_equal(session.handling_ms, 0);
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
	fake_close(f);
}

/* weirctl set: done, or why not. */
static void
test_set(void **state)
{
	struct fake *f = fake_open(&with_sockets);
	struct weir_ctl_msg m = {.set = {"program.prog.rate", "1M"}};
	struct weir_row_session session;
	union ctl in;
	int fd = ctl_open(f, WEIR_ROLE_QUERY, &in), program = attach(f), control;

	(void)state;
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
	fake_close(f);
}

static void
report(struct fake *f, int type)
{
	f->async[f->async_end++].type = type;
	f->link_down = type == NIC_EVENT_LINK_DOWN;
}

/* Two engines share the port: its changes are counted once for each of its rows. */
static void
test_port_events(void **state)
{
	struct fake *f = fake_open(&with_sockets);
	union ctl in;
	int fd = ctl_open(f, WEIR_ROLE_QUERY, &in);
	struct weir_row_port port[2];

	(void)state;
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
	fake_close(f);
}

/* What the broker logs from now on is read there, without waiting. */
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

/* Nobody is sent to look at a cable because a port's other end starts a little later. */
static void
test_link_down_at_start(void **state)
{
	static const struct fake_config config = {.engines = 2, .node = 1, .link_down = true};
	struct fake *f = fake_open(&config);
	int before, log = catch_log(&before);
	bool told[5], later, up, down;

	(void)state;
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
	fake_close(f);
}

static void
test_slow_reader(void **state)
{
	struct fake *f = fake_open(&with_sockets);
	union ctl in;
	struct weir_ctl_msg m = {.query.rows = WEIR_ROWS_CONNECTIONS};
	int fd = ctl_open(f, WEIR_ROLE_QUERY, &in), other = ctl_open(f, WEIR_ROLE_QUERY, &in);

	(void)state;
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
	f->hold = false;
	fake_release(f);
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
	(void)user;
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

	(void)user;
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
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct weir_ctl_msg m = {.type = WEIR_CTL_CAPTURE,
				 .length = weir_ctl_length(WEIR_CTL_CAPTURE)};
	struct iovec iov = {.iov_base = &m, .iov_len = m.length};
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};

	snprintf(m.capture.port, sizeof(m.capture.port), "%s", port);
	m.capture.frames = frames;
	if (file >= 0) {
		control.align = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(file)),
						 .cmsg_level = SOL_SOCKET,
						 .cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(&control.align), &file, sizeof(file));
		h.msg_control = control.room;
		h.msg_controllen = sizeof(control.room);
	}
	assert_int_equal(sendmsg(fd, &h, MSG_NOSIGNAL), m.length);
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

static unsigned
open_fds(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void
test_capture(void **state)
{
	struct fake *f = fake_open(&with_sockets);
	int fd, file = memfd_create("capture", MFD_CLOEXEC);
	const struct weir_ctl_msg *m;
	struct capture_frame frame = {.captured = 60, .original = 60};
	uint8_t data[60] = {0};
	unsigned fds;
	union ctl in;

	(void)state;
	f->b->config.capture = capture_hook;
	fds = open_fds();
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
	assert_non_null(f->b->captures);
	close(fd);
	for (int i = 0; f->b->captures && i < 10000; i++) {
		fake_run(f);
		usleep(1000);
	}
	assert_null(f->b->captures);
	assert_int_equal(open_fds(), fds);
	close(file);
	fake_close(f);
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

static void
test_capture_refused(void **state)
{
	struct fake *f = fake_open(&with_sockets);
	int fd, file = memfd_create("capture", MFD_CLOEXEC), null = open("/dev/null", O_WRONLY);
	unsigned fds = open_fds();
	union ctl in;

	(void)state;
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
	for (int i = 0; f->b->captures && i < 10000; i++) {
		fake_run(f);
		usleep(1000);
	}
	assert_int_equal(open_fds(), fds);
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
static void
test_backlog_to_control(void **state)
{
	struct fake *f = fake_open(&with_sockets);
	union ctl in;
	int fd = ctl_open(f, WEIR_ROLE_CONTROL, &in);
	struct weir_ctl_msg m = {.type = WEIR_CTL_LINK, .length = weir_ctl_length(WEIR_CTL_LINK)};

	(void)state;
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
	fake_close(f);
}

static void
test_stop_closes_sockets(void **state)
{
	struct fake *f = fake_open(&with_sockets);
	union ctl in;
	int program = attach(f), control = ctl_open(f, WEIR_ROLE_CONTROL, &in);
	struct weir_session_msg r;

	(void)state;
	while (!broker_stop(f->b))
		fake_run(f);
	assert_int_equal(get(f, program, &r, sizeof(r), NULL), 0);
	assert_int_equal(get(f, control, &in, sizeof(in), NULL), 0);
	close(program);
	close(control);
	fake_close(f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_attach),
	    cmocka_unit_test(test_name),
	    cmocka_unit_test(test_permissions),
	    cmocka_unit_test(test_version),
	    cmocka_unit_test(test_too_many),
	    cmocka_unit_test(test_silent),
	    cmocka_unit_test(test_doorbell),
	    cmocka_unit_test(test_death),
	    cmocka_unit_test(test_violation),
	    cmocka_unit_test(test_hole),
	    cmocka_unit_test(test_vandals),
	    cmocka_unit_test(test_asks_without_waiting),
	    cmocka_unit_test(test_never_reads),
	    cmocka_unit_test(test_paced_requests),
	    cmocka_unit_test(test_paced_attach),
	    cmocka_unit_test(test_control),
	    cmocka_unit_test(test_bad_control),
	    cmocka_unit_test(test_rows),
	    cmocka_unit_test(test_set),
	    cmocka_unit_test(test_port_events),
	    cmocka_unit_test(test_link_down_at_start),
	    cmocka_unit_test(test_slow_reader),
	    cmocka_unit_test(test_backlog_to_control),
	    cmocka_unit_test(test_capture),
	    cmocka_unit_test(test_capture_refused),
	    cmocka_unit_test(test_stop_closes_sockets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

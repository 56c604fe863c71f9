/* SPDX-License-Identifier: BSD-3-Clause */
/* session.sock as programs and vandals see it. */
#define _GNU_SOURCE
#include "worlds/broker_sockets.h"

#include "broker/sigbus.h"
#include "broker/unix_socket.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>

static void
test_attach(void **state)
{
	struct fake *f = fake_open(&with_sockets);
	int fd = dial(f, "session.sock"), fds[WEIR_SESSION_FDS] = {-1, -1, -1};
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
	int fd = dial(f, "session.sock"), fds[WEIR_SESSION_FDS] = {-1, -1, -1};
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
not_accepted(struct broker_watch *w, uint32_t events)
{
	(void)w;
	(void)events;
}

/* A socket has its name when programs may connect, never before. */
static void
test_named_when_ready(void **state)
{
	struct fake *f = fake_open(&with_sockets);
	_Alignas(struct inotify_event) char room[4096];
	int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	struct unix_listener other = {.watch.ready = not_accepted, .b = f->b, .name = "other.sock"};
	struct stat st;
	bool named = false;
	ssize_t n;

	(void)state;
	assert_true(watch >= 0);
	assert_true(inotify_add_watch(watch, f->dir, IN_CREATE | IN_ATTRIB | IN_MOVED_TO) >= 0);
	assert_int_equal(unix_listen(&other, 0660, NULL), 0);
	n = read(watch, room, sizeof(room));
	for (ssize_t at = 0; at < n;) {
		struct inotify_event e;

		memcpy(&e, room + at, sizeof(e));
		if (!strcmp(room + at + sizeof(e), "other.sock")) {
			assert_int_equal(e.mask, IN_MOVED_TO);
			named = true;
		}
		at += (ssize_t)(sizeof(e) + e.len);
	}
	assert_true(named);
	close(dial(f, "other.sock"));
	snprintf(room, sizeof(room), "%s/other.sock", f->dir);
	unix_listener_close(&other);
	assert_int_equal(stat(room, &st), -1);
	close(watch);
	fake_close(f);
}

static void
test_version(void **state)
{
	struct fake *f = fake_open(&with_sockets);
	int fd = dial(f, "session.sock");
	struct weir_session_msg m = hello(), r;
	char ours[24];

	(void)state;
	snprintf(ours, sizeof(ours), "%u to %u", WEIR_SESSION_VERSION_MIN,
		 WEIR_SESSION_VERSION_MAX);
	m.hello.version_min = 7;
	m.hello.version_max = 9;
	r = call(f, fd, m, NULL);
	assert_int_equal(r.type, WEIR_MSG_REFUSED);
	assert_int_equal(r.refused.code, EPROTO);
	assert_non_null(strstr(r.refused.reason, "7 to 9"));
	assert_non_null(strstr(r.refused.reason, ours));
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

/* They keep nobody out: whoever has been silent for longest goes. */
static void
test_silent_crowd(void **state)
{
	struct fake_config c = with_sockets;
	struct weir_session_msg r;
	struct fake *f;
	int fd[70], program, other;

	(void)state;
	c.sessions = 2;
	f = fake_open(&c);
	program = attach(f);
	for (unsigned i = 0; i < 70; i++) {
		fd[i] = dial(f, "session.sock");
		f->now += 1000;
	}
	assert_int_equal(get(f, fd[0], &r, sizeof(r), NULL), 0);
	assert_int_equal(get(f, fd[69], &r, sizeof(r), NULL), -EAGAIN);
	assert_int_equal(get(f, program, &r, sizeof(r), NULL), -EAGAIN);
	other = attach(f);
	for (unsigned i = 0; i < 70; i++)
		close(fd[i]);
	close(program);
	close(other);
	fake_close(f);
}

static void
close_fds(int fds[WEIR_SESSION_FDS])
{
	for (unsigned i = 0; i < WEIR_SESSION_FDS; i++)
		assert_int_equal(close(fds[i]), 0);
}

static void
test_doorbell(void **state)
{
	struct fake *f = fake_open(&with_sockets);
	int fd = attach(f), fds[WEIR_SESSION_FDS] = {-1, -1, -1};
	struct weir_session_msg m = {.type = WEIR_MSG_ADD_CHANNEL}, r;
	struct sock_fprog filter = {1, (struct sock_filter[]){{BPF_RET | BPF_K, 0, 0, 0}}};
	int off = 0;

	(void)state;
	m.add_channel.engine = 1;
	r = call(f, fd, m, fds);
	assert_int_equal(r.type, WEIR_MSG_CHANNEL);
	assert_int_equal(eventfd_write(fds[1], 1), 0);
	assert_int_equal(poll(&(struct pollfd){f->doorbell[0].wait, POLLIN, 0}, 1, 0), 1);
	/* nothing is left with the engine to be closed by it, nor with main */
	assert_int_equal(send(fds[0], "x", 1, MSG_NOSIGNAL), -1);
	assert_int_equal(errno, EPIPE);
	assert_int_equal(send_descriptor(fds[0], "x", 1, 0), -EPIPE);
	/* nor does the engine run what the program attaches to its socket */
	assert_int_equal(setsockopt(fds[0], SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)),
			 -1);
	setsockopt(fds[0], SOL_SOCKET, SO_LOCK_FILTER, &off, sizeof(off));
	assert_int_equal(setsockopt(fds[0], SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)),
			 -1);
	/* a program that never reads and clears O_NONBLOCK on its side can't block us */
	fcntl(fds[0], F_SETFL, 0);
	for (int i = 0; i < 100000; i++)
		if (send(f->doorbell[0].ring, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
			break;
	assert_int_equal(errno, EAGAIN);
	assert_true(fcntl(f->doorbell[0].ring, F_GETFL) & O_NONBLOCK);
	close(fds[0]);
	close(fds[1]);
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
	int l = attach(f), c = attach(f), fds[WEIR_SESSION_FDS] = {-1, -1, -1};

	(void)state;
	for (uint32_t i = 0; i < 4; i++) {
		m.add_channel.engine = i % 2;
		call(f, i < 2 ? l : c, m, fds);
		close(fds[0]);
		close(fds[1]);
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
	close_fds(fds);
	close(c);
	fake_run(f);
	assert_int_equal(f->b->session_count, 1);
	assert_int_equal(f->last[ENGINE_CONN_PEER_CLOSED].conn.status, ECONNRESET);
	assert_int_equal(fake_mappings("weir-arena"), 1);
	m.segment.side = 1;
	assert_int_equal(call(f, l, m, fds).type, WEIR_MSG_SEGMENT_MAP);
	close_fds(fds);
	close(l);
	fake_run(f);
	fake_close(f);
	assert_int_equal(fake_open_fds(), fds_before);
	assert_int_equal(fake_mappings("weir-"), 0);
}

/* The last word of a session that broke the rules, and the end. */
static void
assert_ended(struct fake *f, int fd, const char *why)
{
	struct weir_session_msg r;

	assert_int_equal(get(f, fd, &r, sizeof(r), NULL), weir_session_length(WEIR_MSG_REFUSED));
	assert_int_equal(r.type, WEIR_MSG_REFUSED);
	assert_int_equal(r.refused.code, ECONNABORTED);
	assert_non_null(strstr(r.refused.reason, why));
	assert_int_equal(get(f, fd, &r, sizeof(r), NULL), 0);
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
	assert_ended(f, fd, "tail that lies");
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
	for (unsigned watched = 0; watched < 2; watched++) {
		struct fake *f = fake_open(&with_sockets);
		int fd, other, arena = -1, fds[WEIR_SESSION_FDS];
		struct weir_session_msg r, m = hello();
		struct broker_session *s;
		_Atomic uint8_t *base;
		size_t page;

		(void)state;
		if (watched && sigbus_watch()) {
			print_message("no userfaultfd\n");
			fake_close(f);
			break;
		}
		fd = dial(f, "session.sock");
		assert_int_equal(call(f, fd, m, fds).type, WEIR_MSG_WELCOME);
		arena = fds[0];
		other = attach(f);
		s = f->b->session[0];
		page = s->arena.memory.page;
		base = (_Atomic uint8_t *)arena_base(&s->arena);
		if (watched) {
			/* the kernel would fill it again */
			assert_int_equal(fallocate(arena,
						   FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
						   (off_t)page, (off_t)page),
					 0);
		} else {
			/* as if the file ended there: a hole that can't be filled */
			int empty = memfd_create("empty", MFD_CLOEXEC);

			assert_ptr_not_equal(mmap((void *)(base + page), page,
						  PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
						  empty, 0),
					     MAP_FAILED);
			close(empty);
		}
		base[page + 5] = 1;
		assert_ended(f, fd, "punched holes");
		assert_int_equal(get(f, other, &r, sizeof(r), NULL), -EAGAIN);
		assert_int_equal(f->b->counters.holes, 1);
		close(arena);
		close(fd);
		close(other);
		fake_close(f);
	}
}

/* Engines may look at its memory for a while yet: it has no part in that any more. */
static void
test_hole_of_one_that_ends(void **state)
{
	struct fake *f = fake_open(&with_sockets);
	struct weir_session_msg m = hello();
	int fd, fds[WEIR_SESSION_FDS];
	_Atomic uint8_t *ours, *theirs;
	struct broker_session *s;

	(void)state;
	fd = dial(f, "session.sock");
	assert_int_equal(call(f, fd, m, fds).type, WEIR_MSG_WELCOME);
	s = f->b->session[0];
	ours = (_Atomic uint8_t *)arena_base(&s->arena);
	theirs = mmap(NULL, s->arena.memory.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	assert_ptr_not_equal(theirs, MAP_FAILED);
	f->hold = true; /* no engine has let go of it */
	close(fd);
	fake_run(f);
	assert_int_equal(s->state, SESSION_CLOSING);
	assert_int_equal(fallocate(fds[0], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
				   (off_t)s->arena.memory.page),
			 0);
	ours[0] = 0;
	fake_run(f);
	theirs[s->arena.memory.bytes - 1] = 77;
	assert_int_equal(ours[s->arena.memory.bytes - 1], 0);
	assert_int_equal(f->b->counters.sessions_spoilt, 0);
	munmap((void *)theirs, s->arena.memory.bytes);
	f->hold = false;
	fake_release(f);
	close(fds[0]);
	fake_close(f);
}

/* ---- vandals ---- */

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
	int good = attach(f), fd[6] = {-1, -1, -1, -1, -1, -1},
	    fds[WEIR_SESSION_FDS] = {-1, -1, -1};
	struct weir_session_msg m = {.type = WEIR_MSG_ADD_CHANNEL}, in;
	uint8_t bytes[sizeof(struct weir_session_msg) + 8];

	(void)state;
	for (m.add_channel.engine = 0; m.add_channel.engine < 2; m.add_channel.engine++) {
		call(f, good, m, fds);
		close(fds[0]);
		close(fds[1]);
	}
	m = (struct weir_session_msg){.type = WEIR_MSG_LISTEN, .listen.channel = {0, 1}};
	m.listen.backlog = 1000;
	snprintf(m.listen.service, sizeof(m.listen.service), "s");
	assert_int_equal(call(f, good, m, NULL).type, WEIR_MSG_LISTENING);
	seed = 4711;
	for (unsigned i = 0; i < 6000; i++) {
		int *at = &fd[below(6)];
		size_t length;

		fds[0] = fds[1] = fds[2] = -1;
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
		for (unsigned k = 0; k < WEIR_SESSION_FDS; k++)
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
	close(fds[1]);
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

/* How many such requests are answered until one waits, of `most`. */
static unsigned
ask_until_held(struct fake *f, int fd, unsigned most)
{
	struct weir_session_msg m = session_msg(WEIR_MSG_UNLISTEN), r;
	unsigned n = 0;

	for (; n < most; n++) {
		assert_int_equal(send(fd, &m, m.length, MSG_NOSIGNAL), m.length);
		if (get(f, fd, &r, sizeof(r), NULL) == -EAGAIN)
			break;
	}
	return n;
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
	config.burst_ns = 40000000; /* half of it of a program, at 20 us a request and more */
	f = fake_open(&config);
	fd = attach(f);
	other = attach(f);
	assert_in_range(ask_until_held(f, fd, 2000), 1, 1000);
	assert_int_equal(call(f, other, m, NULL).type, WEIR_MSG_REFUSED);
	f->now += 4 * BROKER_SECOND_NS;
	assert_true(get(f, fd, &r, sizeof(r), NULL) > 0);
	/* its end is seen all the same */
	ask_until_held(f, fd, 2000);
	close(fd);
	fake_run(f);
	assert_int_equal(f->b->session_count, 1);
	close(other);
	fake_close(f);
}

/* However many programs a user has: together they cost what one user may. */
static void
test_paced_user(void **state)
{
	struct fake_config config = with_sockets;
	unsigned answered = 0;
	struct fake *f;
	int fd[8];

	(void)state;
	config.burst_ns = 20000000;
	f = fake_open(&config);
	for (unsigned i = 0; i < 8; i++)
		fd[i] = attach(f);
	for (unsigned i = 0; i < 8; i++)
		answered += ask_until_held(f, fd[i], 1000);
	assert_in_range(answered, 1, 1000 + 8);
	for (unsigned i = 0; i < 8; i++)
		close(fd[i]);
	fake_close(f);
}

/* Programs of one user that all come at once, and stay, don't wait for each other. */
static void
test_mass_start(void **state)
{
	struct fake_config config = with_sockets;
	struct weir_session_msg m = hello(), r;
	struct fake *f;
	int fd[8], fds[WEIR_SESSION_FDS];

	(void)state;
	config.burst_ns = 10000; /* less than all of their memory costs */
	f = fake_open(&config);
	for (unsigned i = 0; i < 8; i++)
		fd[i] = dial(f, "session.sock");
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(send(fd[i], &m, m.length, MSG_NOSIGNAL), m.length);
	for (unsigned i = 0; i < 8; i++) {
		assert_true(get(f, fd[i], &r, sizeof(r), fds) > 0);
		assert_int_equal(r.type, WEIR_MSG_WELCOME);
		close(fds[0]);
	}
	for (unsigned i = 0; i < 8; i++)
		close(fd[i]);
	fake_close(f);
}

#define BOB 1001
#define EVE 1002
#define CAL 1003

/* -1: the listener's queue is full. */
static int
dial_as(struct fake *f, uid_t uid)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), rc;
	struct weir_session_msg m = hello();

	snprintf(a.sun_path, sizeof(a.sun_path), "%s/session.sock", f->dir);
	assert_int_equal(seteuid(uid), 0);
	rc = connect(fd, (struct sockaddr *)&a, sizeof(a));
	assert_int_equal(seteuid(0), 0);
	if (!rc)
		assert_int_equal(send(fd, &m, m.length, MSG_NOSIGNAL), m.length);
	else
		close(fd);
	fake_run(f);
	return rc ? -1 : fd;
}

static int
answer(struct fake *f, int fd)
{
	struct weir_session_msg r = {0};
	int fds[WEIR_SESSION_FDS] = {-1, -1};
	ssize_t n = get(f, fd, &r, sizeof(r), fds);

	if (fds[0] >= 0)
		close(fds[0]);
	return n > 0 ? (int)r.type : (int)n;
}

static struct fake *
open_to_users(struct fake_config *config, struct users *users)
{
	char reason[128];
	struct fake *f;

	assert_int_equal(users_allow(users, "user:1001", reason, sizeof(reason)), 0);
	assert_int_equal(users_allow(users, "user:1002", reason, sizeof(reason)), 0);
	config->users = users;
	f = fake_open(config);
	assert_int_equal(chmod(f->dir, 0755), 0);
	return f;
}

/* A user that comes again and again without a session keeps none out who comes now and then. */
static void
test_paced_strangers(void **state)
{
	struct fake_config config = with_sockets;
	struct users users = {0};
	struct fake *f;
	int fd, other;

	(void)state;
	if (geteuid())
		skip();
	config.burst_ns = 2;
	f = open_to_users(&config, &users);
	fd = dial_as(f, BOB);
	assert_int_equal(answer(f, fd), WEIR_MSG_WELCOME);
	close(fd);
	fake_run(f);
	fd = dial_as(f, BOB);
	assert_int_equal(answer(f, fd), -EAGAIN);
	other = dial_as(f, EVE);
	assert_int_equal(answer(f, other), WEIR_MSG_WELCOME);
	assert_int_equal(answer(f, fd), -EAGAIN);
	f->now += 4 * BROKER_SECOND_NS;
	assert_int_equal(answer(f, fd), WEIR_MSG_WELCOME);
	close(fd);
	close(other);
	fake_close(f);
}

/* Being refused costs, too: those who only knock are let in no faster than the door may cost. */
static void
test_paced_door(void **state)
{
	struct fake_config config = with_sockets;
	unsigned refused = 0, tries = 0;
	struct users users = {0};
	struct fake *f;
	int fd, late;

	(void)state;
	if (geteuid())
		skip();
	config.burst_ns = 500000000;
	f = open_to_users(&config, &users);
	for (late = 0; !late && tries < 20000; tries++) {
		fd = dial_as(f, CAL);
		late = answer(f, fd) == -EAGAIN;
		refused += !late;
		close(fd);
	}
	assert_true(late);
	assert_true(refused > 10);
	/* it opens again, for others as well */
	fd = dial_as(f, EVE);
	assert_int_equal(answer(f, fd), -EAGAIN);
	f->now += 4 * BROKER_SECOND_NS;
	assert_int_equal(answer(f, fd), WEIR_MSG_WELCOME);
	close(fd);
	fake_close(f);
}

static void
test_paced_attach(void **state)
{
	struct fake_config config = with_sockets;
	struct weir_session_msg m = hello(), r;
	int fd, fds[WEIR_SESSION_FDS] = {-1, -1, -1};
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

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_attach),	 cmocka_unit_test(test_name),
	    cmocka_unit_test(test_permissions),	 cmocka_unit_test(test_named_when_ready),
	    cmocka_unit_test(test_version),	 cmocka_unit_test(test_too_many),
	    cmocka_unit_test(test_silent),	 cmocka_unit_test(test_silent_crowd),
	    cmocka_unit_test(test_doorbell),	 cmocka_unit_test(test_death),
	    cmocka_unit_test(test_violation),	 cmocka_unit_test(test_hole),
	    cmocka_unit_test(test_vandals),	 cmocka_unit_test(test_asks_without_waiting),
	    cmocka_unit_test(test_never_reads),	 cmocka_unit_test(test_paced_requests),
	    cmocka_unit_test(test_paced_attach), cmocka_unit_test(test_paced_user),
	    cmocka_unit_test(test_mass_start),	 cmocka_unit_test(test_paced_strangers),
	    cmocka_unit_test(test_paced_door),	 cmocka_unit_test(test_hole_of_one_that_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

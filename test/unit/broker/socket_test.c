/* SPDX-License-Identifier: BSD-3-Clause */
/* session.sock as programs see it. */
#define _GNU_SOURCE
#include "worlds/broker_sockets.h"

#include "broker/unix_socket.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>

TEST_FAKE(test_attach, with_sockets)
{
	int fd = dial(f, "session.sock"), fds[WEIR_SESSION_FDS] = {-1, -1, -1};
	struct weir_session_msg r = call(f, fd, hello(), fds), bye = {.type = WEIR_MSG_BYE};
	struct weir_arena_head *head;
	struct stat st;

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
}

/* A program's name goes to logs and terminals. */
TEST_FAKE(test_name, with_sockets)
{
	int fd = dial(f, "session.sock"), fds[WEIR_SESSION_FDS] = {-1, -1, -1};
	struct weir_session_msg m = hello();

	snprintf(m.hello.name, sizeof(m.hello.name), "a\x1b[31m\nb: \xff\x9b");
	assert_int_equal(call(f, fd, m, fds).type, WEIR_MSG_WELCOME);
	assert_string_equal(f->b->session[0]->name, "a?[31m?b: ??");
	close(fds[0]);
	close(fd);
}

TEST_FAKE(test_permissions, with_sockets)
{
	char path[128];
	struct stat st;

	snprintf(path, sizeof(path), "%s/session.sock", f->dir);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0660);
	snprintf(path, sizeof(path), "%s/control.sock", f->dir);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	/* nobody takes the place of a living one; what a dead one left is replaced */
	assert_null(broker_create(&f->config));
	assert_int_equal(errno, EADDRINUSE);
}

static void
not_accepted(struct broker_watch *w, uint32_t events)
{
}

/* A socket has its name when programs may connect, never before. */
TEST_FAKE(test_named_when_ready, with_sockets)
{
	_Alignas(struct inotify_event) char room[4096];
	int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	struct unix_listener other = {.watch.ready = not_accepted, .b = f->b, .name = "other.sock"};
	struct stat st;
	bool named = false;
	ssize_t n;

	assert_true(watch >= 0);
	assert_true(inotify_add_watch(watch, f->dir, IN_CREATE | IN_ATTRIB | IN_MOVED_TO) >= 0);
	assert_int_equal(unix_listen(&other, 0660, NULL, NULL), 0);
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
}

TEST_FAKE(test_version, with_sockets)
{
	const uint32_t v = WEIR_SESSION_VERSION;
	const struct {
		struct weir_versions theirs;
		const char *upgrade; /* NULL: welcome */
	} cases[] = {
	    {{v - 1, v - 1}, "upgrade libweir"},
	    {{v + 1, v + 3}, "upgrade weir-dataplane"},
	    {{v - 1, v + 1}, NULL},
	    {{v, v + 1}, NULL},
	    {{v - 1, v}, NULL},
	};
	struct weir_session_msg m = hello(), r;
	uint32_t refused = 0;
	int fd;

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int fds[WEIR_SESSION_FDS] = {-1, -1, -1};

		fd = dial(f, "session.sock");
		m.hello.versions = cases[i].theirs;
		r = call(f, fd, m, fds);
		if (!cases[i].upgrade) {
			assert_int_equal(r.type, WEIR_MSG_WELCOME);
			assert_int_equal(r.welcome.version, v);
			close(fds[0]);
		} else {
			refused++;
			assert_int_equal(r.type, WEIR_MSG_REFUSED);
			assert_int_equal(r.refused.code, EPROTO);
			assert_non_null(strstr(r.refused.reason, cases[i].upgrade));
			assert_int_equal(get(f, fd, &r, sizeof(r), NULL), 0);
		}
		close(fd);
		fake_run(f);
	}
	/* a later library's greeting may well be longer */
	fd = dial(f, "session.sock");
	m.hello.versions = (struct weir_versions){v + 3, v + 5};
	assert_int_equal(send(fd, &m, sizeof(m), MSG_NOSIGNAL), sizeof(m));
	assert_true(get(f, fd, &r, sizeof(r), NULL) > 0);
	assert_non_null(strstr(r.refused.reason, "upgrade weir-dataplane"));
	close(fd);
	fd = dial(f, "session.sock");
	m.hello.magic = 1;
	assert_int_equal(call(f, fd, m, NULL).type, WEIR_MSG_REFUSED);
	close(fd);
	assert_int_equal(f->b->counters.sessions_refused, refused + 2);
}

TEST_FAKE(test_too_many, WITH_SOCKETS(.sessions = 2))
{
	int fd[3];
	struct weir_session_msg r;

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
}

TEST_FAKE(test_silent, with_sockets)
{
	int fd = dial(f, "session.sock"), program = attach(f), control = dial(f, "control.sock");
	struct weir_session_msg r;

	f->now += 4 * BROKER_SECOND_NS;
	assert_int_equal(get(f, fd, &r, sizeof(r), NULL), -EAGAIN);
	f->now += 2 * BROKER_SECOND_NS;
	assert_int_equal(get(f, fd, &r, sizeof(r), NULL), 0);
	assert_int_equal(get(f, control, &r, sizeof(r), NULL), 0);
	assert_int_equal(get(f, program, &r, sizeof(r), NULL), -EAGAIN); /* may be silent */
	close(fd);
	close(program);
	close(control);
}

/* They keep nobody out: whoever has been silent for longest goes. */
TEST_FAKE(test_silent_crowd, WITH_SOCKETS(.sessions = 2))
{
	struct weir_session_msg r;
	int fd[70], program, other;

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
}

static void
close_fds(int fds[WEIR_SESSION_FDS])
{
	for (unsigned i = 0; i < WEIR_SESSION_FDS; i++)
		assert_int_equal(close(fds[i]), 0);
}

TEST_FAKE(test_doorbell, with_sockets)
{
	int fd = attach(f), fds[WEIR_SESSION_FDS] = {-1, -1, -1};
	struct weir_session_msg m = {.type = WEIR_MSG_ADD_CHANNEL}, r;
	struct sock_fprog filter = {1, (struct sock_filter[]){{BPF_RET | BPF_K, 0, 0, 0}}};
	int off = 0;

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
}

/* Two programs connect, one is killed: the other is told, and all of the dead one's is given back.
 */
TEST(test_death)
{
	unsigned fds_before = fake_open_fds();
	struct fake *f = fake_open(&with_sockets);
	struct weir_session_msg m = {.type = WEIR_MSG_SEGMENT}, r;
	int l = attach(f), c = attach(f), fds[WEIR_SESSION_FDS] = {-1, -1, -1};

	add_channels(f, l);
	add_channels(f, c);
	listen_to(f, l);
	r = connect_to(f, c);
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

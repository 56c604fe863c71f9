/* SPDX-License-Identifier: BSD-3-Clause */
/* Programs that break the rules, punch holes, send rubbish or do not read. */
#define _GNU_SOURCE
#include "worlds/broker_sockets.h"

#include "broker/sigbus.h"

#include <fcntl.h>
#include <sys/mman.h>

/* A session that broke the rules is told why, and closed. */
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

TEST_FAKE(test_violation, with_sockets)
{
	int fd = attach(f), other = attach(f);
	struct engine_event e = {.type = ENGINE_EVENT_VIOLATION, .reason = "tail that lies"};
	struct weir_session_msg r;

	fake_emit(f, 1, &e);
	e.conn.session = 4000000;
	fake_emit(f, 1, &e);
	assert_ended(f, fd, "tail that lies");
	assert_int_equal(get(f, other, &r, sizeof(r), NULL), -EAGAIN);
	assert_int_equal(f->b->session_count, 1);
	assert_int_equal(f->b->counters.sessions_spoilt, 1);
	close(fd);
	close(other);
}

/* A hole into which we fall closes that session, and no other. */
TEST(test_hole)
{
	for (unsigned watched = 0; watched < 2; watched++) {
		struct fake *f = fake_open(&with_sockets);
		int fd, other, arena = -1, fds[WEIR_SESSION_FDS];
		struct weir_session_msg r, m = hello();
		struct broker_session *s;
		_Atomic uint8_t *base;
		size_t page;

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
TEST_FAKE(test_hole_of_one_that_ends, with_sockets)
{
	struct weir_session_msg m = hello();
	int fd, fds[WEIR_SESSION_FDS];
	_Atomic uint8_t *ours, *theirs;
	struct broker_session *s;

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
	fake_let_go(f);
	close(fds[0]);
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
TEST(test_vandals)
{
	unsigned fds_before = fake_open_fds();
	struct fake *f = fake_open(&with_sockets);
	int good = attach(f), fd[6] = {-1, -1, -1, -1, -1, -1},
	    fds[WEIR_SESSION_FDS] = {-1, -1, -1};
	struct weir_session_msg m = {.type = WEIR_MSG_ADD_CHANNEL}, in;
	uint8_t bytes[sizeof(struct weir_session_msg) + 8];

	add_channels(f, good);
	listen_to(f, good);
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
TEST_FAKE(test_asks_without_waiting, with_sockets)
{
	int fd = attach(f);
	struct weir_session_msg m = session_msg(WEIR_MSG_ADD_CHANNEL), r;

	f->hold = true;
	m.add_channel.engine = 0;
	send(fd, &m, m.length, MSG_NOSIGNAL);
	send(fd, &m, m.length, MSG_NOSIGNAL);
	fake_run(f);
	assert_int_equal(get(f, fd, &r, sizeof(r), NULL), 0);
	fake_let_go(f);
	assert_int_equal(f->b->session_count, 0);
	close(fd);
}

/* Asks for ever and reads nothing: closed as soon as an answer finds no room. */
TEST_FAKE(test_never_reads, with_sockets)
{
	int fd = attach(f);
	struct weir_session_msg m = session_msg(WEIR_MSG_UNLISTEN);

	for (unsigned i = 0; i < 100000 && f->b->session_count; i++) {
		send(fd, &m, m.length, MSG_NOSIGNAL);
		fake_run(f);
	}
	assert_int_equal(f->b->session_count, 0);
	close(fd);
}

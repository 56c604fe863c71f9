/* SPDX-License-Identifier: BSD-3-Clause */
/* Programs wait when they, their user or all users have used up main's CPU time. */
#define _GNU_SOURCE
#include "worlds/broker_sockets.h"

#include <sys/stat.h>

/* Sends up to `most` requests, until one waits. Returns the number of answers. */
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

/* A program that costs too much waits, but not for ever; others do not wait. */
TEST_FAKE(test_paced_requests, WITH_SOCKETS(.burst_ns = 40000000))
{
	/* half of it of a program, at 20 us a request and more */
	struct weir_session_msg m = session_msg(WEIR_MSG_UNLISTEN), r;
	int fd, other;

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
}

/* All programs of a user together cost what one user may. */
TEST_FAKE(test_paced_user, WITH_SOCKETS(.burst_ns = 20000000))
{
	unsigned answered = 0;
	int fd[8];

	for (unsigned i = 0; i < 8; i++)
		fd[i] = attach(f);
	for (unsigned i = 0; i < 8; i++)
		answered += ask_until_held(f, fd[i], 1000);
	assert_in_range(answered, 1, 1000 + 8);
	for (unsigned i = 0; i < 8; i++)
		close(fd[i]);
}

/* Programs of one user that attach at once, and stay, do not wait for each other. */
TEST_FAKE(test_mass_start, WITH_SOCKETS(.burst_ns = 10000))
{
	/* less than all of their memory costs */
	struct weir_session_msg m = hello(), r;
	int fd[8], fds[WEIR_SESSION_FDS];

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

/* A user without a session that attaches in a loop keeps out no user that attaches now and then. */
TEST(test_paced_strangers)
{
	struct fake_config config = with_sockets;
	struct users users = {0};
	struct fake *f;
	int fd, other;

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

/* Refusing costs, too: connections of refused users are accepted no faster than admission may cost.
 */
TEST(test_paced_door)
{
	struct fake_config config = with_sockets;
	unsigned refused = 0, tries = 0;
	struct users users = {0};
	struct fake *f;
	int fd, late;

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
	/* admission goes on, for others as well */
	fd = dial_as(f, EVE);
	assert_int_equal(answer(f, fd), -EAGAIN);
	f->now += 4 * BROKER_SECOND_NS;
	assert_int_equal(answer(f, fd), WEIR_MSG_WELCOME);
	close(fd);
	fake_close(f);
}

TEST_FAKE(test_paced_attach, WITH_SOCKETS(.burst_ns = 2))
{
	struct weir_session_msg m = hello(), r;
	int fd, fds[WEIR_SESSION_FDS] = {-1, -1, -1};

	/* a program that stays costs nothing, one that leaves soon does */
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
}

static uint64_t
ticking(void *user)
{
	return ((struct fake *)user)->now++;
}

/* Users that have used up their time wait, also while the clock runs on during one look. */
TEST(test_paced_users)
{
	static const uid_t uid[] = {BOB, EVE};
	struct fake_config config = with_sockets;
	struct users users = {0};
	struct fake *f;
	int stays[2], fd[2];

	if (geteuid())
		skip();
	config.burst_ns = 2;
	f = open_to_users(&config, &users);
	for (unsigned i = 0; i < 2; i++) {
		stays[i] = dial_as(f, uid[i]);
		assert_int_equal(answer(f, stays[i]), WEIR_MSG_WELCOME);
		f->now += 20 * BROKER_SECOND_NS;
	}
	for (unsigned i = 0; i < 2; i++) { /* a program that leaves soon uses the time up */
		fd[i] = dial_as(f, uid[i]);
		assert_int_equal(answer(f, fd[i]), WEIR_MSG_WELCOME);
		close(fd[i]);
		fake_run(f);
	}
	f->b->config.now = ticking;
	for (unsigned i = 0; i < 2; i++)
		fd[i] = dial_as(f, uid[i]);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(answer(f, fd[i % 2]), -EAGAIN);
	f->now += 4 * BROKER_SECOND_NS;
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(answer(f, fd[i]), WEIR_MSG_WELCOME);
		close(fd[i]);
		close(stays[i]);
	}
	fake_close(f);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* control.sock when many come at once, or bring what nobody asked for. */
#define _GNU_SOURCE
#include "worlds/broker_sockets.h"

#define QUERIES 32 /* that are served at a time */

/* However many weirctl there are, and others that say nothing: control gets in. */
TEST_FAKE(test_many, with_sockets)
{
	int query[QUERIES], silent[4], fd;
	unsigned before = fake_open_fds();
	union ctl in;

	for (int i = 0; i < QUERIES; i++) {
		query[i] = ctl_open(f, WEIR_ROLE_QUERY, &in);
		assert_int_equal(in.m.type, WEIR_CTL_HELLO);
	}
	fd = ctl_open(f, WEIR_ROLE_QUERY, &in);
	assert_int_equal(in.m.type, WEIR_CTL_ERROR);
	assert_int_equal(in.m.error.code, EBUSY);
	assert_non_null(strstr(in.m.error.reason, "32 weirctl are connected already; end some"));
	assert_int_equal(get(f, fd, &in, sizeof(in), NULL), 0);
	close(fd);
	for (int i = 0; i < 4; i++)
		silent[i] = dial(f, "control.sock");
	fd = ctl_open(f, WEIR_ROLE_CONTROL, &in);
	assert_int_equal(in.m.type, WEIR_CTL_HELLO);
	/* whoever goes makes room */
	close(query[0]);
	fake_run(f);
	query[0] = ctl_open(f, WEIR_ROLE_QUERY, &in);
	assert_int_equal(in.m.type, WEIR_CTL_HELLO);
	for (int i = 0; i < QUERIES; i++)
		close(query[i]);
	for (int i = 0; i < 4; i++)
		close(silent[i]);
	close(fd);
	fake_run(f);
	assert_int_equal(fake_open_fds(), before);
}

/* They say nothing, and are told so: nobody waits for an answer that doesn't come. */
TEST_FAKE(test_silent, with_sockets)
{
	unsigned before = fake_open_fds(), refused = 0;
	union ctl in;
	int fds[60];

	for (int i = 0; i < 60; i++)
		fds[i] = dial(f, "control.sock");
	for (int i = 0; i < 60; i++) {
		if (get(f, fds[i], &in, sizeof(in), NULL) <= 0)
			continue;
		assert_int_equal(in.m.type, WEIR_CTL_ERROR);
		assert_non_null(strstr(in.m.error.reason, "too many connect at once; try again"));
		refused++;
	}
	assert_int_equal(refused, 60 - 40);
	f->now += 6000000000ull;
	fake_run(f);
	for (int i = 0; i < 60; i++) {
		assert_int_equal(get(f, fds[i], &in, sizeof(in), NULL), 0);
		close(fds[i]);
	}
	fake_run(f);
	assert_int_equal(fake_open_fds(), before);
}

/* Descriptors that belong to nothing are closed, one or many. */
TEST_FAKE(test_descriptors, with_sockets)
{
	struct weir_ctl_msg m = {.type = WEIR_CTL_QUERY, .query.rows = WEIR_ROWS_NODES};
	union {
		char room[CMSG_SPACE(8 * sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct iovec iov = {.iov_base = &m, .iov_len = weir_ctl_length(WEIR_CTL_QUERY)};
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.room};
	unsigned before;
	union ctl in;
	int fd = ctl_open(f, WEIR_ROLE_QUERY, &in);

	m.length = (uint32_t)iov.iov_len;
	before = fake_open_fds();
	for (unsigned count = 1; count <= 8; count++) {
		control.align = (struct cmsghdr){.cmsg_len = CMSG_LEN(count * sizeof(int)),
						 .cmsg_level = SOL_SOCKET,
						 .cmsg_type = SCM_RIGHTS};
		for (unsigned i = 0; i < count; i++)
			memcpy(CMSG_DATA(&control.align) + i * sizeof(int), &fd, sizeof(int));
		h.msg_controllen = CMSG_SPACE(count * sizeof(int));
		assert_int_equal(sendmsg(fd, &h, MSG_NOSIGNAL), (ssize_t)iov.iov_len);
		assert_true(get(f, fd, &in, sizeof(in), NULL) > 0);
		assert_int_equal(in.m.type, WEIR_CTL_ROWS);
		assert_int_equal(fake_open_fds(), before);
	}
	close(fd);
}

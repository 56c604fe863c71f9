/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The target of tests of remote memory: a program of its own, so that nothing but the data plane
 * works for the driver while it sleeps or is stopped.
 */
#include "remote.h"

#include "weir/remote.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ANSWER_MS 20 /* without a notice, until it looks whether the server asks */

/* From the target: the key, then the counts. */
struct answer {
	int rc;
	uint8_t key[PERF_KEY_BYTES];
	uint64_t count, errors;
};

/* Answers until the server asks for the counts, or no answer can be sent. */
static void
answer_all(struct weir *w, int fd, const struct perf_message *request, const uint8_t *base,
	   struct weir_export *x)
{
	struct remote_layout l = remote_layout(remote_extent(request), request->threads);
	struct weir_transfer t = {.notify = WEIR_WITH_SIGNAL_SET};
	uint64_t next = 1; /* signal */
	struct pollfd asked = {.fd = fd, .events = POLLIN};
	struct weir_remote *r = NULL;
	struct weir_notice n;
	struct weir_key key;
	int rc;

	do {
		if (request->test == PERF_SIGNAL && r) {
			rc = weir_signal_wait(x, remote_signal_at(&l), WEIR_GE, next, ANSWER_MS,
					      &t.operand);
			if (!rc)
				rc = weir_remote_put_with(r, &t);
			if (!rc)
				next = t.operand + 1;
		} else {
			rc = weir_notice_next(w, &n, ANSWER_MS);
		}
		if (rc == -EAGAIN || rc == -EINTR) { /* the driver has ended, or has not begun */
			rc = poll(&asked, 1, 0) > 0 ? rc : 0;
		} else if (!rc && !r && n.tag == REMOTE_HELLO) {
			memcpy(key.bytes, base + remote_key_at(&l), sizeof(key.bytes));
			rc = weir_remote_open(w, &key, WEIR_MAY_NOTIFY | WEIR_MAY_WRITE, 0, -1, &r);
		} else if (!rc && r && request->test == PERF_NOTIFY) {
			rc = weir_remote_notify(r, n.tag, 0, 0);
		}
	} while (!rc);
	weir_remote_close(r);
}

/* Answers through a window, until the server asks for the counts. 0 or -errno. */
static int
answer_members(int fd, const struct perf_message *request, struct weir_window *win,
	       const uint8_t *base)
{
	struct weir_transfer t = {.notify = WEIR_WITH_SIGNAL_SET, .signal = REMOTE_WORD_AT};
	uint32_t driver = request->rank - 1;
	struct pollfd asked = {.fd = fd, .events = POLLIN};
	struct weir_watch watch;
	bool ends = false;
	uint64_t next = 1; /* signal or flag */
	int rc = weir_window_lock_all(win, 0, -1);

	weir_watch_init(&watch, win, driver, WEIR_TAG_ANY, 1);
	while (!rc && !ends) {
		if (request->test == PERF_SIGNAL) {
			rc = weir_window_signal_wait(win, REMOTE_WORD_AT, WEIR_GE, next, ANSWER_MS,
						     &t.operand);
			if (!rc)
				rc = weir_window_put_with(win, driver, &t);
			if (!rc)
				next = t.operand + 1;
		} else if (request->test == PERF_FLAG) {
			rc = part_await(base, next, ANSWER_MS, &t.operand);
			if (!rc)
				rc = weir_window_put(win, driver, REMOTE_WORD_AT, &t.operand,
						     sizeof(t.operand), 0);
			if (!rc)
				next = t.operand + 1;
		} else {
			weir_watch_start(&watch);
			rc = weir_watch_wait(&watch, ANSWER_MS);
			if (!rc)
				rc = weir_window_notify(win, driver, watch.last_tag, 0);
		}
		if (rc == -EAGAIN || rc == -EINTR) { /* the driver has ended, or has not begun */
			ends = poll(&asked, 1, 0) > 0;
			rc = 0;
		}
	}
	return rc ? rc : weir_window_unlock_all(win, -1);
}

/* A member of a window, until it has said the counts once. 0 or -errno. */
static int
member(int fd, struct weir *w, const struct perf_message *request)
{
	struct remote_part part = {0};
	struct remote_window window = {0};
	struct remote_rounds rounds;
	struct answer a = {0};
	char ask;

	a.rc = part_open(&part, w, request, 1);
	if (!a.rc && request->test == PERF_GET)
		remote_fill(request, part_of(&part, request));
	if (send(fd, &a, sizeof(a), MSG_NOSIGNAL) < 0 || a.rc)
		return a.rc;
	a.rc = remote_window_open(&window, w, request, request->rank, &part, -1);
	if (!a.rc && request->flags & PERF_STOP)
		raise(SIGSTOP);
	if (!a.rc && perf_is_answered(request->test))
		a.rc = answer_members(fd, request, window.win, part.base);
	if (!a.rc && perf_is_round(request->test))
		a.rc = rounds_begin(&rounds, window.win, part.base, request, -1);
	if (!a.rc && perf_is_round(request->test))
		a.rc = rounds_end(&rounds, 0, NULL, 0);
	if (a.rc)
		return a.rc;
	if (read(fd, &ask, 1) != 1)
		return 0;
	remote_check(request, part_of(&part, request), &a.count, &a.errors);
	if (send(fd, &a, sizeof(a), MSG_NOSIGNAL) < 0)
		return 0;
	a.rc = remote_window_close(&window, -1);
	part_close(&part);
	return a.rc;
}

/* The program. Each byte that it reads asks for the counts. */
static int
target(int fd, const char *instance, const struct perf_message *request)
{
	struct weir_options options = {
	    .size = sizeof(options), .instance = instance, .name = "weir-perf-target"};
	struct remote_layout l = remote_layout(remote_extent(request), request->threads);
	struct answer a = {0};
	struct weir_region_info info;
	struct weir_region *region;
	struct weir_export *x = NULL;
	uint8_t *base = NULL;
	struct weir_key key;
	struct weir *w;
	char ask;

	static_assert(sizeof(a.key) == sizeof(key.bytes), "the same bytes");
	a.rc = weir_attach(&options, &w);
	if (!a.rc && request->group) {
		a.rc = member(fd, w, request);
		if (a.rc)
			fprintf(stderr, "weir-perf: a member of the window: %s\n", weir_reason());
		weir_detach(w);
		return a.rc != 0;
	}
	if (!a.rc)
		a.rc = weir_region_alloc(w, remote_signal_at(&l) + sizeof(uint64_t), NULL, &region);
	if (!a.rc) {
		weir_region_info(region, &info);
		base = info.base;
		if (request->test == PERF_GET)
			remote_fill(request, base);
		a.rc = weir_export(region, 0, info.bytes,
				   WEIR_MAY_READ | WEIR_MAY_WRITE | WEIR_MAY_UPDATE |
				       WEIR_MAY_NOTIFY | WEIR_MAY_LOCK | WEIR_MAY_MAP,
				   &x, &key);
	}
	if (a.rc)
		fprintf(stderr, "weir-perf: the program that exports: %s\n", weir_reason());
	else
		memcpy(a.key, key.bytes, sizeof(a.key));
	if (send(fd, &a, sizeof(a), MSG_NOSIGNAL) < 0 || a.rc)
		return 1;
	if (perf_is_answered(request->test))
		answer_all(w, fd, request, base, x);
	while (read(fd, &ask, 1) == 1) {
		remote_check(request, base, &a.count, &a.errors);
		if (send(fd, &a, sizeof(a), MSG_NOSIGNAL) < 0)
			return 1;
	}
	weir_detach(w);
	return 0;
}

int
target_start(struct perf_target *t, const char *instance, const struct perf_message *request)
{
	pid_t parent = getpid();
	int fd[2];

	target_end(t);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd))
		return -errno;
	*t = (struct perf_target){.pid = fork(), .fd = fd[0], .request = *request};
	if (t->pid == 0) {
		/* it ends with the server */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		signal(SIGINT, SIG_IGN); /* of the terminal: the server ends it */
		signal(SIGTERM, SIG_DFL);
		close(fd[0]);
		_exit(getppid() == parent ? target(fd[1], instance, request) : 1);
	}
	close(fd[1]);
	if (t->pid < 0) {
		close(fd[0]);
		*t = (struct perf_target){0};
		return -EAGAIN;
	}
	return 0;
}

/* The next answer, or -EAGAIN: not yet, or -ECHILD: the program has ended. */
static int
hear(const struct perf_target *t, struct answer *a)
{
	ssize_t n = recv(t->fd, a, sizeof(*a), MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return -EAGAIN;
	return n == sizeof(*a) ? a->rc : -ECHILD;
}

int
target_ready(struct perf_target *t, uint8_t key[PERF_KEY_BYTES])
{
	struct answer a;
	int rc = hear(t, &a), status;

	if (rc)
		return rc;
	memcpy(key, a.key, sizeof(a.key));
	/* a member of a window stops itself once that is made */
	if (!(t->request.flags & PERF_STOP) || t->request.group)
		return 0;
	if (kill(t->pid, SIGSTOP) || waitpid(t->pid, &status, WUNTRACED) != t->pid)
		return -ECHILD;
	return WIFSTOPPED(status) ? 0 : -ECHILD;
}

void
target_ask(struct perf_target *t)
{
	/* one that has ended says so to target_result() */
	(void)!send(t->fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

int
target_result(struct perf_target *t, struct perf_message *result)
{
	struct answer a;
	int rc;

	/* again with each look: it may stop itself only now */
	if (t->request.flags & PERF_STOP)
		kill(t->pid, SIGCONT);
	rc = hear(t, &a);
	if (rc)
		return rc;
	result->received = a.count;
	result->bytes = a.count * t->request.size;
	result->errors = a.errors;
	return 0;
}

void
target_end(struct perf_target *t)
{
	if (!t->pid)
		return;
	kill(t->pid, SIGKILL);
	waitpid(t->pid, NULL, 0);
	close(t->fd);
	*t = (struct perf_target){0};
}

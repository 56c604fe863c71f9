/* SPDX-License-Identifier: BSD-3-Clause */
/* weirctl capture: hands a file to the data plane, which writes a port's frames into it. */
#define _GNU_SOURCE
#include "weirctl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

// Until a signal, the end of the time, or news from the data plane. 0 or an exit code.
static int
await_end(struct query *q, int signals, double seconds)
{
	struct pollfd fds[2] = {{.fd = q->c.fd, .events = POLLIN},
				{.fd = signals, .events = POLLIN}};
	double end = weirctl_now() + seconds;

	for (;;) {
		double left = seconds > 0 ? end - weirctl_now() : 3600;
		struct signalfd_siginfo info;
		int n;

		if (left <= 0)
			return 0;
		n = poll(fds, 2, left < 3600 ? (int)(left * 1000) + 1 : 3600000);
		if (n < 0 && errno != EINTR) {
			snprintf(q->reason, sizeof(q->reason), "cannot wait: %s; try again",
				 strerror(errno));
			return WEIRCTL_FAILED;
		}
		if (n > 0 && fds[1].revents)
			return read(signals, &info, sizeof(info)) == sizeof(info) ? 0
										  : WEIRCTL_FAILED;
		if (n > 0 && fds[0].revents)
			return 0;
	}
}

int
capture(const struct weirctl_options *o, int argc, char **argv)
{
	struct weir_ctl_msg begin = {.type = WEIR_CTL_CAPTURE, .capture.frames = o->packets};
	struct weir_ctl_msg stop = {.type = WEIR_CTL_CAPTURE_STOP};
	const char *port = argv[0], *name = argv[1];
	static struct query q;
	const struct weir_ctl_msg *m = &q.c.in.m;
	sigset_t before;
	int signals, file, status;

	if (o->json && !strcmp(name, "-"))
		return weirctl_fail(WEIRCTL_USAGE,
				    "--json and frames cannot both go to stdout; name a file");
	if (strlen(port) >= sizeof(begin.capture.port))
		return weirctl_fail(WEIRCTL_USAGE, "unknown port '%s'; see show ports", port);
	status = query_open(&q, o->instance, WEIRCTL_ANSWER_SECONDS);
	if (status)
		return weirctl_fail(status, "%s", q.reason);
	// With the caller's rights; other users may not read frames. The data plane truncates the
	// file when the capture begins, so not for a port that does not exist.
	if (!strcmp(name, "-"))
		file = dup(STDOUT_FILENO);
	else
		file = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (file < 0) {
		status = weirctl_fail(WEIRCTL_RESOURCE,
				      "cannot open %s: %s; name a file that you may write", name,
				      strerror(errno));
		weir_ctl_close(&q.c);
		return status;
	}
	signals = signals_open(&before);
	snprintf(begin.capture.port, sizeof(begin.capture.port), "%s", port);
	status = query_send(&q, &begin, file);
	if (!status)
		status = query_receive(&q, WEIR_CTL_CAPTURED);
	close(file);
	if (!status) {
		fprintf(stderr, "capturing %s; Ctrl-C ends it\n", port);
		status = await_end(&q, signals, o->seconds);
	}
	if (!status)
		status = query_send(&q, &stop, -1);
	// the last message is here already if the data plane ended the capture by itself
	if (!status)
		status = query_receive(&q, WEIR_CTL_CAPTURED);
	if (!status && !m->captured.over) {
		snprintf(q.reason, sizeof(q.reason),
			 "data plane sent an unexpected answer; install weirctl and "
			 "weir-dataplane from one release");
		status = WEIRCTL_FAILED;
	}
	signals_close(signals, &before);
	weir_ctl_close(&q.c);
	if (status)
		return weirctl_fail(status, "%s", q.reason);
	if (o->json) {
		json_t *object = json_pack(
		    "{s:I, s:I, s:I, s:s?}", "frames", (json_int_t)m->captured.frames, "bytes",
		    (json_int_t)m->captured.bytes, "dropped", (json_int_t)m->captured.dropped,
		    "error", m->captured.code ? strerror(m->captured.code) : NULL);

		if (object)
			json_dumpf(object, stdout, JSON_INDENT(2));
		putchar('\n');
		json_decref(object);
	} else {
		fprintf(stderr, "%llu frames written, %llu dropped\n",
			(unsigned long long)m->captured.frames,
			(unsigned long long)m->captured.dropped);
	}
	if (!m->captured.code)
		return WEIRCTL_OK;
	return weirctl_fail(
	    m->captured.code == ENOSPC || m->captured.code == EDQUOT ? WEIRCTL_RESOURCE
								     : WEIRCTL_FAILED,
	    "cannot write further to the file: %s; the frames written so far are complete",
	    strerror(m->captured.code));
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Output of the processes, whole lines into two descriptors of weir-run, and input for process 0.
 * Nothing here waits: a reader that is slow stops the processes by their pipes, and no signal.
 */
#include "starter.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <event2/buffer.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define READ_BYTES 16384u
#define PENDING_MOST (1u << 20)			  /* bytes of output; then processes wait */
static const struct timeval again_after = {1, 0}; /* looks at a terminal from its background */

/* ---- output ---- */

/* Calls f for the sources of an output that are open. */
static void
each_source(struct output *o, int (*f)(struct event *readable))
{
	struct starter *s = o->starter;

	for (uint32_t i = 0; i < s->options->processes; i++) {
		struct source *src = &s->process[i].source[o - s->output];

		if (src->readable)
			f(src->readable);
	}
}

static int
resume(struct event *readable)
{
	return event_add(readable, NULL);
}

static void
fail_output(struct output *o, const char *why)
{
	struct starter *s = o->starter;

	o->failed = true;
	evbuffer_drain(o->pending, evbuffer_get_length(o->pending));
	event_del(o->writable);
	if (o->paused) /* processes that write while they end must not wait */
		each_source(o, resume);
	o->paused = false;
	if (!s->code)
		s->code = EXIT_FAILED;
	streams_say(s, "cannot write standard %s: %s; the processes are ended",
		    o == &s->output[0] ? "output" : "error", why);
	starter_end_all(s);
}

static void
put_line(void *user, const char *line, size_t length)
{
	struct output *o = user;

	if (o->failed)
		return;
	if (evbuffer_add(o->pending, line, length) || event_add(o->writable, NULL))
		fail_output(o, strerror(ENOMEM));
}

static void
on_writable(evutil_socket_t fd, short what, void *user)
{
	struct output *o = user;

	/* a pipe that is writable has room for that: the descriptor may block, and is not ours
	 * alone */
	if (evbuffer_write_atmost(o->pending, fd, PIPE_BUF) < 0 && errno != EAGAIN &&
	    errno != EINTR)
		fail_output(o, strerror(errno));
	if (evbuffer_get_length(o->pending))
		return;
	event_del(o->writable);
	if (o->paused)
		each_source(o, resume);
	o->paused = false;
	starter_settle(o->starter);
}

static void
take(struct source *src, const char *bytes, size_t n)
{
	lines_add(&src->lines, bytes, n, put_line, src->output);
}

static void
close_event(struct event **e)
{
	int fd = *e ? event_get_fd(*e) : -1;

	if (*e)
		event_free(*e);
	if (fd >= 0)
		close(fd);
	*e = NULL;
}

static void
end_source(struct source *src)
{
	close_event(&src->readable);
	lines_end(&src->lines, put_line, src->output);
}

static void
on_readable(evutil_socket_t fd, short what, void *user)
{
	struct source *src = user;
	struct output *o = src->output;
	char bytes[READ_BYTES];
	ssize_t n = read(fd, bytes, sizeof(bytes));

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		end_source(src);
		return;
	}
	take(src, bytes, (size_t)n);
	if (evbuffer_get_length(o->pending) < PENDING_MOST || o->paused)
		return;
	o->paused = true;
	each_source(o, event_del);
}

/* ---- input ---- */

static void
close_input(struct input *in)
{
	if (in->fd < 0)
		return;
	event_del(in->readable);
	event_del(in->again);
	close_event(&in->writable);
	in->fd = -1;
}

static void
push_input(struct input *in)
{
	if (evbuffer_get_length(in->pending) && evbuffer_write(in->pending, in->fd) < 0 &&
	    errno != EAGAIN && errno != EINTR) {
		close_input(in); /* process 0 reads no more */
	} else if (evbuffer_get_length(in->pending)) {
		event_del(in->readable);
		event_add(in->writable, NULL);
	} else if (in->ended) {
		close_input(in);
	} else {
		event_del(in->writable);
		event_add(in->readable, NULL);
	}
}

static void
on_pipe_writable(evutil_socket_t fd, short what, void *user)
{
	push_input(user);
}

static void
on_again(evutil_socket_t fd, short what, void *user)
{
	struct input *in = user;

	event_add(in->readable, NULL);
}

static void
on_input(evutil_socket_t fd, short what, void *user)
{
	struct input *in = user;
	char bytes[READ_BYTES];
	ssize_t n = read(fd, bytes, sizeof(bytes));

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < 0 && errno == EIO) { /* SIGTTIN is ignored */
		event_del(in->readable);
		event_add(in->again, &again_after);
		return;
	}
	in->ended = n <= 0 || evbuffer_add(in->pending, bytes, (size_t)n);
	push_input(in);
}

/* ---- all ---- */

int
streams_open(struct starter *s)
{
	s->input.fd = -1;
	s->input.pending = evbuffer_new();
	s->input.readable =
	    event_new(s->base, STDIN_FILENO, EV_READ | EV_PERSIST, on_input, &s->input);
	s->input.again = evtimer_new(s->base, on_again, &s->input);
	if (!s->input.pending || !s->input.readable || !s->input.again)
		return -ENOMEM;
	for (int i = 0; i < 2; i++) {
		struct output *o = &s->output[i];

		o->starter = s;
		o->fd = STDOUT_FILENO + i;
		o->pending = evbuffer_new();
		o->writable = event_new(s->base, o->fd, EV_WRITE | EV_PERSIST, on_writable, o);
		if (!o->pending || !o->writable)
			return -ENOMEM;
	}
	return 0;
}

int
streams_add(struct starter *s, uint32_t rank, int in, int out, int err)
{
	const int fds[2] = {out, err};
	int rc = 0;

	for (int i = 0; i < 2; i++) {
		struct source *src = &s->process[rank].source[i];

		src->output = &s->output[i];
		lines_init(&src->lines, rank);
		evutil_make_socket_nonblocking(fds[i]);
		src->readable = event_new(s->base, fds[i], EV_READ | EV_PERSIST, on_readable, src);
		if (!src->readable || event_add(src->readable, NULL))
			rc = -ENOMEM;
	}
	if (in < 0)
		return rc;
	evutil_make_socket_nonblocking(in);
	s->input.fd = in;
	s->input.writable =
	    event_new(s->base, in, EV_WRITE | EV_PERSIST, on_pipe_writable, &s->input);
	if (!s->input.writable || event_add(s->input.readable, NULL))
		rc = -ENOMEM;
	return rc;
}

void
streams_drain(struct starter *s)
{
	for (uint32_t i = 0; i < 2 * s->options->processes; i++) {
		struct source *src = &s->process[i / 2].source[i % 2];
		int left = 0, fd;
		char bytes[READ_BYTES];
		ssize_t n;

		if (!src->readable)
			continue;
		/* a child of the process may go on to write */
		fd = event_get_fd(src->readable);
		ioctl(fd, FIONREAD, &left);
		while (left > 0 && (n = read(fd, bytes, sizeof(bytes))) > 0) {
			take(src, bytes, (size_t)n);
			left -= (int)n;
		}
		end_source(src);
	}
	close_input(&s->input);
}

bool
streams_done(const struct starter *s)
{
	return !evbuffer_get_length(s->output[0].pending) &&
	       !evbuffer_get_length(s->output[1].pending);
}

void
streams_say(struct starter *s, const char *format, ...)
{
	char line[512];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	if (s->output[1].failed ||
	    evbuffer_add_printf(s->output[1].pending, "weir-run: %s\n", line) < 0)
		return;
	event_add(s->output[1].writable, NULL);
}

void
streams_close(struct starter *s)
{
	close_input(&s->input);
	for (uint32_t i = 0; i < 2 * s->options->processes; i++)
		close_event(&s->process[i / 2].source[i % 2].readable);
	for (int i = 0; i < 2; i++) {
		if (s->output[i].writable)
			event_free(s->output[i].writable);
		if (s->output[i].pending)
			evbuffer_free(s->output[i].pending);
	}
	if (s->input.readable)
		event_free(s->input.readable);
	if (s->input.again)
		event_free(s->input.again);
	if (s->input.pending)
		evbuffer_free(s->input.pending);
}

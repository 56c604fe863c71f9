/* SPDX-License-Identifier: BSD-3-Clause */
/* Captures that clients of control.sock asked for: from CAPTURE until the file is complete. */
#include "capture_job.h"
#include "session.h"
#include "state.h"
#include "watch.h"

#include "capture/capture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>

struct capture_job {
	struct broker_watch watch; /* first; hangs up when the capture has ended */
	struct broker *b;
	struct capture *capture;
	capture_told_fn *told; /* NULL: the client has gone */
	void *user;
	LIST_ENTRY(capture_job) entry;
};

static void
job_free(struct capture_job *j)
{
	broker_watch_remove(j->b, &j->watch);
	capture_destroy(j->capture);
	LIST_REMOVE(j, entry);
	free(j);
}

static void
job_over(struct broker_watch *w, uint32_t events)
{
	struct capture_job *j = (struct capture_job *)w;
	struct weir_ctl_msg m = {.type = WEIR_CTL_CAPTURED,
				 .length = weir_ctl_length(WEIR_CTL_CAPTURED)};
	struct capture_result result;

	capture_result(j->capture, &result);
	j->b->counters.captured_frames += result.frames;
	j->b->counters.captured_dropped += result.dropped;
	m.captured.over = 1;
	m.captured.code = -result.status;
	m.captured.frames = result.frames;
	m.captured.bytes = result.bytes;
	m.captured.dropped = result.dropped;
	if (j->told)
		j->told(j->user, &m);
	job_free(j);
}

int
capture_open(struct broker *b, const struct weir_ctl_msg *m, int fd, capture_told_fn *told,
	     void *user, struct capture_job **out, char *reason, size_t size)
{
	struct weir_ctl_msg begun = {.type = WEIR_CTL_CAPTURED,
				     .length = weir_ctl_length(WEIR_CTL_CAPTURED)};
	struct capture_job *j;
	struct capture *capture;
	int rc;

	if (fd < 0) {
		snprintf(reason, size, "no file came with the message; send its descriptor");
		return -EBADF;
	}
	if (!b->config.capture) {
		snprintf(reason, size, "no port here can be captured; add one with --nic roce:...");
		return -EOPNOTSUPP;
	}
	j = broker_alloc(sizeof(*j));
	if (!j) {
		snprintf(reason, size, "%s", SESSION_NO_MEMORY);
		return -ENOMEM;
	}
	rc = b->config.capture(b->config.user, m->capture.port, fd, m->capture.frames, &capture,
			       reason, size);
	if (rc) {
		free(j);
		return rc;
	}
	*j = (struct capture_job){
	    .watch = {.fd = capture_fd(capture), .ready = job_over},
	    .b = b,
	    .capture = capture,
	    .told = told,
	    .user = user,
	};
	LIST_INSERT_HEAD(&b->captures, j, entry);
	rc = broker_watch_add(b, &j->watch, EPOLLIN);
	if (rc) {
		snprintf(reason, size, "the end of the capture cannot be watched: %s; try again",
			 strerror(-rc));
		job_free(j);
		return rc;
	}
	*out = j;
	told(user, &begun);
	return 0;
}

void
capture_end(struct capture_job *j)
{
	capture_stop(j->capture);
}

void
capture_orphan(struct capture_job *j)
{
	j->told = NULL;
	capture_stop(j->capture);
}

void
capture_close_all(struct broker *b)
{
	for (struct capture_job *j = LIST_FIRST(&b->captures); j; j = LIST_NEXT(j, entry))
		capture_stop(j->capture);
	while (!LIST_EMPTY(&b->captures))
		job_free(LIST_FIRST(&b->captures));
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Asks our data plane for its records, kind by kind, as weirctl does. */
#include "metrics.h"

#include "base/vec.h"
#include "ipc/ctl_client.h"
#include "ipc/invariant.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE_S 4
#define RECORDS_MAX (16u << 20) /* bytes of one kind; more is no data plane of ours */

struct metrics_ask {
	struct weir_ctl_client c;
	struct event *readable, *over;
	void (*done)(void *user, const struct metrics_rows *rows);
	void *user;
	bool greeted;
	uint32_t at; /* in metrics_kind */
	struct metrics_rows rows[METRICS_KINDS];
	size_t room; /* bytes of rows[at].records */
};

void
metrics_ask_stop(struct metrics_ask *a)
{
	if (!a)
		return;
	if (a->readable)
		event_free(a->readable);
	if (a->over)
		event_free(a->over);
	weir_ctl_close(&a->c);
	for (uint32_t i = 0; i < METRICS_KINDS; i++)
		free(a->rows[i].records);
	free(a);
}

static void
finish(struct metrics_ask *a, bool well)
{
	a->done(a->user, well ? a->rows : NULL);
	metrics_ask_stop(a);
}

static int
ask(struct metrics_ask *a)
{
	/* one small message at a time: there is always room for it */
	return weir_ctl_ask(&a->c, metrics_kind[a->at]) ? -EIO : 0;
}

/* Takes one message. 0, or an error: none is there yet (-EAGAIN), or it is not as expected. */
static int
take(struct metrics_ask *a)
{
	struct metrics_rows *to = &a->rows[a->at];
	size_t bytes, have, more;
	int rc;

	weir_assert(a->at < METRICS_KINDS);
	if (!a->greeted) {
		rc = weir_ctl_expect(&a->c, WEIR_CTL_HELLO);
		a->greeted = !rc;
		return rc ? rc : ask(a);
	}
	rc = weir_ctl_page(&a->c);
	if (rc < 0)
		return rc;
	bytes = a->c.in.m.rows.record_bytes;
	have = to->count * bytes;
	more = a->c.in.m.rows.count * bytes;
	if (have + more > RECORDS_MAX || VEC_RESERVE(to->records, a->room, have + more))
		return -ENOMEM;
	memcpy(to->records + have, a->c.in.m.rows.records, more);
	to->count += a->c.in.m.rows.count;
	if (rc > 0)
		return 0;
	a->room = 0;
	return ++a->at < METRICS_KINDS ? ask(a) : 0;
}

static void
on_readable(evutil_socket_t fd, short what, void *user)
{
	struct metrics_ask *a = user;
	int rc = take(a);

	if (rc == -EAGAIN)
		return;
	if (rc || a->at == METRICS_KINDS)
		finish(a, !rc);
}

static void
on_time(evutil_socket_t fd, short what, void *user)
{
	finish(user, false);
}

struct metrics_ask *
metrics_ask(struct event_base *base, const char *socket_path,
	    void (*done)(void *user, const struct metrics_rows *rows), void *user)
{
	static const struct timeval patience = {.tv_sec = PATIENCE_S};
	struct metrics_ask *a = calloc(1, sizeof(*a));

	if (!a) {
		done(user, NULL);
		return NULL;
	}
	a->done = done;
	a->user = user;
	if (!weir_ctl_connect(&a->c, socket_path, 0) && !weir_ctl_hello(&a->c)) {
		a->readable = event_new(base, a->c.fd, EV_READ | EV_PERSIST, on_readable, a);
		a->over = evtimer_new(base, on_time, a);
	}
	if (!a->readable || !a->over || event_add(a->readable, NULL) ||
	    evtimer_add(a->over, &patience)) {
		finish(a, false);
		return NULL;
	}
	return a;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Records stay in their process: a record for thread t of any process is one for the own thread t.
 */
#include "raw.h"

#include <errno.h>
#include <stdlib.h>

static int
none_send(struct raw_thread *th, struct weir_to to, const struct weir_record *r)
{
	return raw_local_send(th, to.thread, r);
}

static int
none_push(struct raw_thread *th, struct weir_to to, struct chunk *c, bool always)
{
	return raw_local_push(th, to.thread, c, always);
}

static int
none_wait(struct raw_thread *th, int timeout_ms)
{
	if (timeout_ms)
		inbox_sleep(&th->inbox, timeout_ms);
	return 0;
}

static int
none_drain(struct raw_thread *th)
{
	return 0;
}

static void
none_close(struct transport *t)
{
	raw_close((struct raw *)t);
	free(t);
}

static const struct raw_ops ops = {none_send, none_push, none_wait, none_drain, none_close};

int
transport_none_open(struct crew *crew, const struct transport_options *o, struct transport **t)
{
	struct raw *raw = calloc(1, sizeof(*raw));
	int rc;

	if (!raw)
		return weir_fail(-ENOMEM, "no memory for a transport; free some");
	rc = raw_open(raw, crew, o, &ops, 1);
	if (rc) {
		free(raw);
		return rc;
	}
	raw->senders = o->threads;
	*t = &raw->t;
	return 0;
}

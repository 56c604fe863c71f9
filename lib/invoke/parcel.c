/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Large payloads on their way to another process: messages without a head on the lane, behind that
 * of the call. Until all have left, the batch with the call stays first in the line's queue, so all
 * that makes calls wait holds for payloads, too. A payload that calls may overtake waits beside the
 * queue; each of its pieces is one that is in order.
 */
#include "batch.h"
#include "line.h"

#include <errno.h>
#include <stdlib.h>

void
parcel_end(struct invoke_thread *t, struct parcel *p, int status)
{
	if (p->ask)
		ask_end(t, p->ask, status);
	if (p->id)
		future_return(t, p->id);
	free(p);
}

bool
parcel_is_cut(const struct line *l, const struct parcel *p)
{
	return p->connection && l->thread->v->m &&
	       p->connection == message_lane_connection(l->lane);
}

unsigned
parcels_lose(struct line *l, int status, bool *cut)
{
	struct parcel *p;
	unsigned n = 0;

	for (; (p = l->behind); n++) {
		*cut |= parcel_is_cut(l, p);
		l->behind = p->next;
		parcel_end(l->thread, p, status);
	}
	l->behind_last = &l->behind;
	return n;
}

static int
send_pieces(const struct line *l, struct parcel *p)
{
	uint32_t length;
	int rc;

	while (p->sent < p->length) {
		length = payload_piece(p->length - p->sent);
		rc = message_lane_send_bare(l->lane, p->connection, p->data + p->sent, length);
		if (rc)
			return rc == -EAGAIN ? rc : line_failed(l, rc);
		p->sent += length;
	}
	return 0;
}

int
parcel_send(struct line *l, struct batch *b)
{
	struct parcel *p = b->parcel;
	int rc;

	if (l->receiver) /* the parcel goes and comes back with it */
		return line_send_batch(l, b);
	if (!p->connection) {
		rc = line_send_batch(l, b);
		if (rc)
			return rc;
		/* if that has closed already, the number of none: it is lost with the next piece */
		p->connection = message_lane_connection(l->lane);
		b->length = 0;
		b->calls = 1; /* that is lost with its payload */
		b->data = b->bytes;
	}
	if (p->number) {
		*l->behind_last = p;
		l->behind_last = &p->next;
	} else {
		rc = send_pieces(l, p);
		if (rc)
			return rc;
		parcel_end(l->thread, p, 0);
	}
	b->parcel = NULL;
	batch_free(b);
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Responses: sent on the lane that the request came on, without waiting. */
#include "lane.h"

#include "client/reason.h"
#include "client/thread.h"
#include "stream/model.h"

#include <errno.h>
#include <stdlib.h>

static int
keep(struct lane *lane, const struct iovec *parts, unsigned n, size_t length)
{
	struct waiting *w = malloc(sizeof(*w) + length);
	uint8_t *to;

	if (!w)
		return weir_fail(-ENOMEM, "no memory for a response of %zu bytes; free some",
				 length);
	w->next = NULL;
	w->length = (uint32_t)length;
	to = w->bytes;
	for (unsigned i = 0; i < n; i++) {
		if (parts[i].iov_len)
			memcpy(to, parts[i].iov_base, parts[i].iov_len);
		to += parts[i].iov_len;
	}
	*lane->last = w;
	lane->last = &w->next;
	return 0;
}

int
lane_say(struct lane *lane, const struct iovec *parts, unsigned n, size_t length)
{
	int rc = lane->first ? -EAGAIN : weir_send_now(lane->conn, parts, n, length);

	if (rc == -EAGAIN)
		rc = keep(lane, parts, n, length);
	return rc;
}

int
lane_put(struct lane *lane, const struct message_header *h)
{
	struct iovec part = {(void *)h, HEADER_LONG};

	return weir_send_now(lane->conn, &part, 1, HEADER_LONG);
}

void
lane_flush(struct lane *lane)
{
	struct waiting *w;

	while ((w = lane->first)) {
		struct iovec part = {w->bytes, w->length};

		if (weir_send_now(lane->conn, &part, 1, w->length) == -EAGAIN)
			return;
		lane->first = w->next;
		free(w);
	}
	lane->last = &lane->first;
	lane_resume(lane);
}

/* In pieces, one after another: whoever else responds on this lane comes before or after. */
static int
respond_pieces(struct lane *lane, struct message_header *h, const uint8_t *buf, size_t length)
{
	struct message_piece piece = {.total = length};
	int rc = 0;

	h->flags = h->kind;
	h->kind = KIND_PIECE;
	while (!rc && piece.offset < length) {
		size_t bytes = length - piece.offset;
		struct iovec parts[3] = {{h, HEADER_LONG}, {&piece, sizeof(piece)}, {0}};

		if (bytes > WEIR_MESSAGE_WHOLE)
			bytes = WEIR_MESSAGE_WHOLE;
		parts[2] = (struct iovec){(void *)(uintptr_t)(buf + piece.offset), bytes};
		rc = lane_say(lane, parts, 3, HEADER_LONG + sizeof(piece) + bytes);
		piece.offset += bytes;
	}
	return rc;
}

static int
respond(struct lane *lane, struct message_header *h, const void *buf, size_t length)
{
	struct iovec parts[2] = {{h, HEADER_LONG}, {(void *)(uintptr_t)buf, length}};

	if (weir_likely(!lane->first && length <= WEIR_INLINE_SMALL - HEADER_LONG) &&
	    !weir_send_headed(lane->conn, h, buf, (uint32_t)length))
		return 0;
	if (length > WEIR_MESSAGE_WHOLE)
		return respond_pieces(lane, h, buf, length);
	return lane_say(lane, parts, 2, HEADER_LONG + length);
}

static int
respond_locked(const struct weir_reply *reply, struct message_header *h, const void *buf,
	       size_t length)
{
	struct lane *lane = (struct lane *)(uintptr_t)reply->internal[0];
	int rc;

	weir_lock(lane->worker);
	if (lane->life != reply->internal[1] || !lane->conn || lane->doomed)
		rc = weir_fail(-EHOSTUNREACH, "who asked has gone; nothing is to be done");
	else
		rc = respond(lane, h, buf, length);
	weir_unlock(lane->worker);
	return rc;
}

int
weir_message_respond(struct weir_messenger *m, const struct weir_reply *reply, const void *buf,
		     size_t length)
{
	struct message_header h = {.kind = KIND_RESPONSE, .id = reply->internal[2]};
	int rc;

	if (!reply->internal[0])
		return weir_fail(-EINVAL, "not a request, or no reply of a handler; look at the "
					  "message's flags");
	if (length > m->o.message_max)
		return weir_fail(-EMSGSIZE,
				 "a response of %zu bytes is longer than message_max, %llu; "
				 "send less or raise that",
				 length, (unsigned long long)m->o.message_max);
	rc = respond_locked(reply, &h, buf, length);
	return rc ? message_error(m, rc) : 0;
}

int
weir_message_refuse(struct weir_messenger *m, const struct weir_reply *reply, int error)
{
	struct message_header h = {
	    .kind = KIND_RESPONSE, .status = (uint32_t)error, .id = reply->internal[2]};
	int rc;

	if (!reply->internal[0] || error < 1 || error > 4095)
		return weir_fail(-EINVAL, "not a request, or no error of 1 to 4095; look at the "
					  "message's flags");
	rc = respond_locked(reply, &h, NULL, 0);
	return rc ? message_error(m, rc) : 0;
}

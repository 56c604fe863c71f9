/* SPDX-License-Identifier: BSD-3-Clause */
/* Responses: sent on the lane that the request came on, without waiting. */
#include "lane.h"

#include "client/reason.h"
#include "client/thread.h"
#include "stream/model.h"

#include <errno.h>
#include <stdlib.h>

int
lane_say(struct lane *lane, const struct iovec *parts, unsigned n, size_t length)
{
	int rc = lane->first ? -EAGAIN : weir_send_now(lane->conn, parts, n, length);
	struct waiting *w;
	uint8_t *to;

	if (rc != -EAGAIN)
		return rc;
	/* keep a copy until there is room */
	w = malloc(sizeof(*w) + length);
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

static int
respond_locked(const struct weir_reply *reply, struct message_header *h, const void *buf,
	       size_t length)
{
	struct lane *lane = (struct lane *)(uintptr_t)reply->internal[0];
	struct iovec parts[3] = {{h, HEADER_LONG}, {(void *)(uintptr_t)buf, length}};
	struct message_fragment fragment = {.total = length};
	int rc = 0;

	weir_lock(lane->worker);
	if (lane->life != reply->internal[1] || !lane->conn || lane->closing) {
		rc = weir_fail(-EHOSTUNREACH, "the requester is gone; nothing is to be done");
	} else if (weir_likely(!lane->first && length <= WEIR_INLINE_SMALL - HEADER_LONG) &&
		   !weir_send_headed(lane->conn, h, buf, (uint32_t)length)) {
		rc = 0;
	} else if (length <= WEIR_MESSAGE_WHOLE) {
		rc = lane_say(lane, parts, 2, HEADER_LONG + length);
	} else {
		/* fragments under one lock: no other response on this lane comes between them */
		h->flags = h->kind;
		h->kind = KIND_FRAGMENT;
		parts[1] = (struct iovec){&fragment, sizeof(fragment)};
		while (!rc && fragment.offset < length) {
			size_t bytes = length - fragment.offset;

			if (bytes > WEIR_MESSAGE_WHOLE)
				bytes = WEIR_MESSAGE_WHOLE;
			parts[2] =
			    (struct iovec){(uint8_t *)(uintptr_t)buf + fragment.offset, bytes};
			rc = lane_say(lane, parts, 3, HEADER_LONG + sizeof(fragment) + bytes);
			fragment.offset += bytes;
		}
	}
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

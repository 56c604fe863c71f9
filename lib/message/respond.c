/* SPDX-License-Identifier: BSD-3-Clause */
/* Responses: sent on the lane that the request came on, without waiting. */
#include "lane.h"
#include "sender.h"

#include "client/reason.h"
#include "client/thread.h"
#include "stream/model.h"

#include <errno.h>

int
lane_say(struct lane *lane, const struct iovec *parts, unsigned n, size_t length)
{
	int rc = lane->first ? -EAGAIN : weir_send_now(lane->conn, parts, n, length, NULL);
	struct waiting *w;
	uint8_t *to;

	if (rc != -EAGAIN)
		return rc;
	/* keep a copy until there is room */
	w = weir_buffer_take(lane->worker->w, sizeof(*w) + length);
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
lane_unsay(struct lane *lane)
{
	struct waiting *w = lane->first;

	lane->first = w->next;
	if (!lane->first)
		lane->last = &lane->first;
	weir_buffer_give(lane->worker->w, w);
}

void
lane_flush(struct lane *lane)
{
	const struct waiting *w;

	while ((w = lane->first)) {
		struct iovec part = {(void *)(uintptr_t)w->bytes, w->length};

		if (weir_send_now(lane->conn, &part, 1, w->length, NULL) == -EAGAIN)
			return;
		lane_unsay(lane);
	}
	lane_resume(lane);
}

/* The same for a response that does not go the short way. Worker locked. */
static __attribute__((noinline)) int
respond_slow(struct lane *lane, struct message_header *h, const struct iovec *iov, unsigned n,
	     size_t length)
{
	struct message_fragment fragment = {.total = length};
	struct iovec parts[2 + WEIR_MESSAGE_PARTS];
	struct cut cut = {.iov = iov, .n = n};
	int rc = 0;

	parts[0] = (struct iovec){h, HEADER_LONG};
	if (length <= WEIR_MESSAGE_WHOLE) {
		if (n)
			memcpy(parts + 1, iov, n * sizeof(*iov));
		return lane_say(lane, parts, 1 + n, HEADER_LONG + length);
	}
	/* fragments under one lock: no other response on this lane comes between them */
	h->flags = h->kind;
	h->kind = KIND_FRAGMENT;
	parts[1] = (struct iovec){&fragment, sizeof(fragment)};
	while (!rc && fragment.offset < length) {
		size_t bytes;
		unsigned count = fragments_cut(&cut, parts + 2, &bytes);

		rc = lane_say(lane, parts, 2 + count, HEADER_LONG + sizeof(fragment) + bytes);
		fragment.offset += bytes;
	}
	return rc;
}

static int
respond(const struct weir_reply *reply, struct message_header *h, const struct iovec *iov,
	unsigned n, size_t length)
{
	struct lane *lane = (struct lane *)(uintptr_t)reply->internal[0];
	int rc = 0;

	weir_lock(lane->worker);
	if (lane->life != reply->internal[1] || !lane->conn || lane->closing)
		rc = weir_fail(-EHOSTUNREACH, "the requester is gone; nothing is to be done");
	else if (weir_unlikely(lane->first || length > WEIR_INLINE_SMALL - HEADER_LONG || n != 1 ||
			       weir_send_headed(lane->conn, h, iov->iov_base, (uint32_t)length)))
		rc = respond_slow(lane, h, iov, n, length);
	weir_unlock(lane->worker);
	return rc;
}

int
weir_message_respondv(struct weir_messenger *m, const struct weir_reply *reply,
		      const struct iovec *iov, unsigned n)
{
	struct message_header h = {.kind = KIND_RESPONSE, .id = reply->internal[2]};
	uint64_t length;
	int rc;

	if (!reply->internal[0])
		return weir_fail(-EINVAL, "not a request, or no reply of a handler; look at the "
					  "message's flags");
	rc = message_length(m, iov, n, &length);
	if (!rc)
		rc = respond(reply, &h, iov, n, length);
	return rc ? message_error(m, rc) : 0;
}

int
weir_message_respond(struct weir_messenger *m, const struct weir_reply *reply, const void *buf,
		     size_t length)
{
	struct iovec part = {(void *)(uintptr_t)buf, length};

	return weir_message_respondv(m, reply, &part, 1);
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
	rc = respond(reply, &h, NULL, 0, 0);
	return rc ? message_error(m, rc) : 0;
}

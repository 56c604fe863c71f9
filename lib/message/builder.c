/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages, requests and responses written in place: in the memory they are sent from, or in memory
 * kept for resending.
 */
#include "lane.h"
#include "model.h"
#include "request.h"
#include "sender.h"

#include "client/reason.h"
#include "client/wait.h"
#include "stream/send.h"

#include <errno.h>

/* Content of weir_draft.internal. */
struct inside {
	struct lane *lane; /* pinned; NULL: kept */
	uint8_t *memory;   /* head and message */
	uint16_t node, type;
	uint8_t kind;	   /* enum message_kind; KIND_MODEL: of a model */
	uint8_t committed; /* kept: it may be sent again */
	uint32_t room;	   /* bytes of the payload */
	union {
		uint64_t id;	/* of the request that is answered */
		struct weir *w; /* kept: owns the memory */
	};
};
static_assert(sizeof(struct inside) <= sizeof(((struct weir_draft *)0)->internal), "its place");

static inline struct inside *
inside(struct weir_draft *d)
{
	return (struct inside *)d->internal;
}

static inline uint32_t
head_bytes(const struct inside *in)
{
	return in->kind == KIND_MESSAGE || in->kind == KIND_MODEL ? HEADER_SHORT : HEADER_LONG;
}

static int
not_a_draft(void)
{
	return weir_fail(-EINVAL, "not a draft of this kind, or longer than it; reserve again");
}

/* ---- reserving ---- */

static int
too_long(size_t room)
{
	return weir_fail(-EMSGSIZE,
			 "%zu bytes in place; at most %u, a message gathered from parts may be "
			 "longer",
			 room, WEIR_MESSAGE_WHOLE);
}

/* Reserves on the lane, which is pinned: unpinned on failure. */
static int
reserve(struct weir_messenger *m, struct inside *in, size_t room, int timeout_ms,
	struct weir_draft *draft)
{
	uint32_t head = head_bytes(in);
	void *memory;
	int rc = weir_send_reserve(in->lane->conn, head + room, timeout_ms, &memory);

	if (rc) {
		lane_unpin(in->lane);
		return rc == -EAGAIN ? rc : message_error(m, rc);
	}
	in->memory = memory;
	in->room = (uint32_t)room;
	*draft = (struct weir_draft){.data = in->memory + head, .room = room};
	memcpy(draft->internal, in, sizeof(*in));
	return 0;
}

static int
reserve_to(struct weir_messenger *m, struct inside *in, size_t room, uint32_t flags, int timeout_ms,
	   struct weir_draft *draft)
{
	struct sender *s;
	int rc = 0;

	if (room > WEIR_MESSAGE_WHOLE)
		return too_long(room);
	s = sender_get(m, &rc);
	if (!s)
		return rc;
	if (flags & WEIR_DRAFT_KEEP) {
		in->w = s->worker->w;
		in->room = (uint32_t)room;
		in->memory = weir_buffer_take(in->w, HEADER_SHORT + room);
		if (!in->memory)
			return weir_fail(-ENOMEM, "no memory for a message of %zu bytes; free some",
					 room);
		*draft = (struct weir_draft){.data = in->memory + HEADER_SHORT, .room = room};
		memcpy(draft->internal, in, sizeof(*in));
		return 0;
	}
	rc = lane_pin(s, in->node, timeout_ms, &in->lane);
	return rc ? rc : reserve(m, in, room, timeout_ms, draft);
}

int
weir_message_reserve(struct weir_messenger *m, uint16_t node, uint16_t type, size_t room,
		     uint32_t flags, int timeout_ms, struct weir_draft *draft)
{
	struct inside in = {.node = node, .type = type, .kind = KIND_MESSAGE};

	if (flags & ~WEIR_DRAFT_KEEP)
		return weir_fail(-EINVAL, "unknown flag; only WEIR_DRAFT_KEEP is known");
	return reserve_to(m, &in, room, flags, timeout_ms, draft);
}

int
weir_request_reserve(struct weir_messenger *m, uint16_t node, uint16_t type, size_t room,
		     int timeout_ms, struct weir_draft *draft)
{
	struct inside in = {.node = node, .type = type, .kind = KIND_REQUEST};

	return reserve_to(m, &in, room, 0, timeout_ms, draft);
}

int
weir_response_reserve(struct weir_messenger *m, const struct weir_reply *reply, size_t room,
		      int timeout_ms, struct weir_draft *draft)
{
	struct inside in = {.lane = (struct lane *)(uintptr_t)reply->internal[0],
			    .kind = KIND_RESPONSE,
			    .id = reply->internal[2]};
	int rc;

	if (!in.lane)
		return weir_fail(-EINVAL, "not a request, or no reply of a handler; look at the "
					  "message's flags");
	if (room > WEIR_MESSAGE_WHOLE)
		return too_long(room);
	rc = lane_pin_reply(in.lane, reply->internal[1]);
	return rc ? rc : reserve(m, &in, room, timeout_ms, draft);
}

/* ---- committing ---- */

/* Sends behind a head that is written; waits for room. On success the lane is unpinned. */
static inline __attribute__((always_inline)) int
commit_headed(struct weir_draft *draft, uint32_t head, size_t length, int timeout_ms)
{
	struct inside *in = inside(draft);
	struct weir_conn *c = in->lane->conn;
	struct weir_wait wait;
	int rc;

	weir_wait_init(&wait, in->lane->worker, timeout_ms);
	while ((rc = weir_send_commit(c, in->memory, head + length, 0, 0)) == -EAGAIN) {
		rc = weir_wait_next(&wait);
		if (rc)
			break;
		weir_send_progress(c);
	}
	weir_wait_end(&wait);
	if (rc)
		return rc;
	lane_unpin(in->lane);
	*draft = (struct weir_draft){0};
	return 0;
}

/* The same, and writes the head. */
static int
commit(struct weir_draft *draft, size_t length, uint64_t id, int timeout_ms)
{
	struct inside *in = inside(draft);
	struct message_header h = {.kind = in->kind, .type = in->type, .id = id};
	uint32_t head = head_bytes(in);

	memcpy(in->memory, &h, head);
	return commit_headed(draft, head, length, timeout_ms);
}

/* ---- of models ---- */

int
draft_reserve(struct lane *lane, size_t room, int timeout_ms, struct weir_draft *draft)
{
	struct inside in = {.lane = lane, .kind = KIND_MODEL};

	return reserve(lane->m, &in, room, timeout_ms, draft);
}

int
draft_commit(struct weir_messenger *m, struct weir_draft *draft, size_t length,
	     const struct message_tag *tag, int timeout_ms)
{
	struct inside *in = inside(draft);
	int rc;

	if (!in->memory || in->kind != KIND_MODEL || length > in->room)
		return not_a_draft();
	memcpy(in->memory, tag, sizeof(*tag));
	rc = commit_headed(draft, HEADER_SHORT, length, timeout_ms);
	return rc && rc != -EAGAIN ? message_error(m, rc) : rc;
}

/* ---- of programs ---- */

int
weir_message_commit(struct weir_messenger *m, struct weir_draft *draft, size_t length,
		    int timeout_ms)
{
	struct inside *in = inside(draft);
	struct lane *lane = in->lane;
	struct message_header h = {.kind = KIND_RESPONSE, .id = in->id};
	struct iovec part = {in->memory, HEADER_LONG + length};
	bool first;
	int rc;

	if (!in->memory || in->kind == KIND_REQUEST || in->kind == KIND_MODEL || length > in->room)
		return not_a_draft();
	if (!lane) {
		draft->length = length;
		in->committed = 1;
		return weir_message_resend(m, draft, in->node, timeout_ms);
	}
	if (in->kind == KIND_RESPONSE) {
		/* it doesn't wait: without room, or behind others that wait, it is copied */
		weir_lock(lane->worker);
		first = !lane->first;
		weir_unlock(lane->worker);
		rc = first ? commit(draft, length, in->id, 0) : -EAGAIN;
		if (rc == -EAGAIN) {
			memcpy(in->memory, &h, HEADER_LONG);
			weir_lock(lane->worker);
			rc = lane_say(lane, &part, 1, HEADER_LONG + length);
			weir_unlock(lane->worker);
			if (!rc) {
				weir_send_abandon(lane->conn, in->memory);
				lane_unpin(lane);
				*draft = (struct weir_draft){0};
			}
		}
	} else {
		rc = commit(draft, length, 0, timeout_ms);
	}
	return rc && rc != -EAGAIN ? message_error(m, rc) : rc;
}

int
weir_request_commit(struct weir_messenger *m, struct weir_draft *draft, size_t length,
		    struct weir_request *r, const struct weir_request_options *options,
		    int send_timeout_ms)
{
	struct weir_request_options o = WEIR_REQUEST_OPTIONS_INIT;
	struct inside *in = inside(draft);
	struct lane *lane = in->lane;
	uint64_t id;
	int rc;

	r->internal[0] = 0;
	if (!in->memory || in->kind != KIND_REQUEST || length > in->room)
		return not_a_draft();
	rc = request_options(&o, options);
	if (rc)
		return rc;
	weir_lock(lane->worker);
	rc = request_begin(lane, r, &o, &id);
	weir_unlock(lane->worker);
	if (rc) {
		r->internal[0] = 0;
		return rc;
	}
	rc = commit(draft, length, id, send_timeout_ms);
	if (rc) {
		rc = request_undo(lane, r, id, rc);
		if (!rc) /* `done` reports how it ended */
			weir_message_abandon(m, draft);
	}
	return rc && rc != -EAGAIN ? message_error(m, rc) : rc;
}

int
weir_message_resend(struct weir_messenger *m, struct weir_draft *draft, uint16_t node,
		    int timeout_ms)
{
	struct inside *in = inside(draft);

	if (!in->memory || in->lane || !in->committed || draft->length > in->room)
		return weir_fail(-EINVAL, "not a kept draft that was committed; reserve it with "
					  "WEIR_DRAFT_KEEP");
	return weir_message_send(m, node, in->type, draft->data, draft->length, timeout_ms);
}

void
weir_message_abandon(struct weir_messenger *m, struct weir_draft *draft)
{
	struct inside *in = inside(draft);

	if (!in->memory || weir_state(m->w) == WEIR_FORKED)
		return;
	if (in->lane) {
		weir_send_abandon(in->lane->conn, in->memory);
		lane_unpin(in->lane);
	} else {
		weir_buffer_give(in->w, in->memory);
	}
	*draft = (struct weir_draft){0};
}

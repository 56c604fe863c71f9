/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages written in place: in the memory they are sent from, or in memory kept for resending. */
#include "lane.h"
#include "sender.h"

#include "client/reason.h"
#include "client/wait.h"
#include "stream/send.h"

#include <errno.h>
#include <stdlib.h>

/* Content of weir_draft.internal. */
struct inside {
	struct lane *lane; /* pinned; NULL: kept */
	uint8_t *memory;   /* head and message */
	uint16_t node, type;
	uint32_t committed; /* kept: it may be sent again */
	uint64_t unused;
};
static_assert(sizeof(struct inside) == sizeof(((struct weir_draft *)0)->internal), "its place");

static inline struct inside *
inside(struct weir_draft *d)
{
	return (struct inside *)d->internal;
}

int
weir_message_reserve(struct weir_messenger *m, uint16_t node, uint16_t type, size_t room,
		     uint32_t flags, int timeout_ms, struct weir_draft *draft)
{
	struct inside in = {.node = node, .type = type};
	struct sender *s;
	void *memory;
	int rc = 0;

	if (flags & ~WEIR_DRAFT_KEEP)
		return weir_fail(-EINVAL, "unknown flag; only WEIR_DRAFT_KEEP is known");
	if (room > WEIR_MESSAGE_WHOLE)
		return weir_fail(-EMSGSIZE,
				 "%zu bytes in place; at most %u, weir_message_sendv() sends more",
				 room, WEIR_MESSAGE_WHOLE);
	s = sender_get(m, &rc);
	if (!s)
		return rc;
	if (flags & WEIR_DRAFT_KEEP) {
		memory = malloc(HEADER_SHORT + room);
		if (!memory)
			rc = weir_fail(-ENOMEM, "no memory for a message of %zu bytes; free some",
				       room);
	} else {
		rc = lane_pin(s, node, timeout_ms, &in.lane);
		if (!rc) {
			rc = weir_send_reserve(in.lane->conn, HEADER_SHORT + room, timeout_ms,
					       &memory);
			if (rc)
				lane_unpin(in.lane);
		}
	}
	if (rc)
		return rc == -EAGAIN ? rc : message_error(m, rc);
	in.memory = memory;
	*draft = (struct weir_draft){.data = in.memory + HEADER_SHORT, .room = room};
	memcpy(draft->internal, &in, sizeof(in));
	return 0;
}

int
weir_message_commit(struct weir_messenger *m, struct weir_draft *draft, size_t length,
		    int timeout_ms)
{
	struct inside *in = inside(draft);
	struct message_header h = {.kind = KIND_MESSAGE, .type = in->type};
	struct weir_conn *c;
	struct weir_wait wait;
	int rc;

	if (!in->memory || length > draft->room)
		return weir_fail(-EINVAL,
				 "not what weir_message_reserve() gave, or longer than that; "
				 "reserve again");
	if (!in->lane) {
		draft->length = length;
		in->committed = 1;
		return weir_message_resend(m, draft, in->node, timeout_ms);
	}
	c = in->lane->conn;
	memcpy(in->memory, &h, HEADER_SHORT);
	weir_wait_init(&wait, in->lane->worker, timeout_ms);
	while ((rc = weir_send_commit(c, in->memory, HEADER_SHORT + length, 0, 0)) == -EAGAIN) {
		rc = weir_wait_next(&wait);
		if (rc)
			break;
		weir_send_progress(c);
	}
	weir_wait_end(&wait);
	if (rc)
		return rc == -EAGAIN ? rc : message_error(m, rc);
	lane_unpin(in->lane);
	*draft = (struct weir_draft){0};
	return 0;
}

int
weir_message_resend(struct weir_messenger *m, struct weir_draft *draft, uint16_t node,
		    int timeout_ms)
{
	struct inside *in = inside(draft);

	if (!in->memory || in->lane || !in->committed)
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
		free(in->memory);
	}
	*draft = (struct weir_draft){0};
}

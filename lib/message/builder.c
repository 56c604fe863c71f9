/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages written in place: where they leave from, or in memory that is kept to be sent again. */
#include "lane.h"
#include "sender.h"

#include "client/reason.h"
#include "client/wait.h"
#include "stream/progress.h"

#include <errno.h>
#include <stdlib.h>

/* What weir_draft.internal holds. */
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

static int
not_a_draft(void)
{
	return weir_fail(-EINVAL, "not what weir_message_reserve() gave, or longer than that; "
				  "reserve again");
}

static int
reserve_kept(struct inside *in, size_t room)
{
	in->memory = malloc(HEADER_SHORT + room);
	return in->memory
		   ? 0
		   : weir_fail(-ENOMEM, "no memory for a message of %zu bytes; free some", room);
}

static int
reserve_in_place(struct sender *s, struct inside *in, size_t room, int timeout_ms)
{
	void *memory;
	int rc = lane_pin(s, in->node, timeout_ms, &in->lane);

	if (rc)
		return rc;
	rc = weir_send_reserve(in->lane->conn, HEADER_SHORT + room, timeout_ms, &memory);
	if (rc) {
		lane_unpin(in->lane);
		return rc;
	}
	in->memory = memory;
	return 0;
}

int
weir_message_reserve(struct weir_messenger *m, uint16_t node, uint16_t type, size_t room,
		     uint32_t flags, int timeout_ms, struct weir_draft *draft)
{
	struct inside in = {.node = node, .type = type};
	struct sender *s;
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
	rc = flags & WEIR_DRAFT_KEEP ? reserve_kept(&in, room)
				     : reserve_in_place(s, &in, room, timeout_ms);
	if (rc)
		return rc == -EAGAIN ? rc : message_error(m, rc);
	*draft = (struct weir_draft){.data = in.memory + HEADER_SHORT, .room = room};
	memcpy(draft->internal, &in, sizeof(in));
	return 0;
}

static int
commit_in_place(struct inside *in, size_t length, int timeout_ms)
{
	struct message_header h = {.kind = KIND_MESSAGE, .type = in->type};
	struct weir_conn *c = in->lane->conn;
	struct weir_wait wait;
	int rc;

	memcpy(in->memory, &h, HEADER_SHORT);
	weir_wait_init(&wait, in->lane->worker, timeout_ms);
	while ((rc = weir_send_commit(c, in->memory, HEADER_SHORT + length, 0, 0)) == -EAGAIN) {
		rc = weir_wait_next(&wait);
		if (rc)
			break;
		weir_lock(in->lane->worker);
		weir_drive(in->lane->worker, NULL);
		weir_unlock(in->lane->worker);
	}
	weir_wait_end(&wait);
	return rc;
}

int
weir_message_commit(struct weir_messenger *m, struct weir_draft *draft, size_t length,
		    int timeout_ms)
{
	struct inside *in = inside(draft);
	int rc;

	if (!in->memory || length > draft->room)
		return not_a_draft();
	if (!in->lane) {
		draft->length = length;
		in->committed = 1;
		return weir_message_resend(m, draft, in->node, timeout_ms);
	}
	rc = commit_in_place(in, length, timeout_ms);
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

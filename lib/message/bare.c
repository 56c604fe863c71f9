/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bare messages: large data of a model behind a message that announces it. It has no head, so that
 * it may be received in memory of the program, and is what the receiver expects, or nothing.
 */
#include "handle.h"
#include "lane.h"
#include "model.h"
#include "peer.h"
#include "pool.h"
#include "sender.h"

#include "client/progress.h"
#include "client/reason.h"
#include "stream/model.h"
#include "stream/rx_queue.h"

#include <errno.h>

static_assert(MESSAGE_BARE_MIN > WEIR_INLINE_MAX, "it is lent when it is taken");

/* ---- sending ---- */

uint64_t
message_lane_connection(struct message_lane *to)
{
	struct weir_thread *t = to->sender->worker;
	const struct lane *lane;
	uint64_t number = 0;

	weir_lock(t);
	lane = to->now;
	if (lane && lane->conn && !lane->closing && lane->conn->state == CONN_OPEN)
		number = lane->made;
	weir_unlock(t);
	return number;
}

int
message_lane_send_bare(struct message_lane *to, uint64_t connection, const void *data,
		       uint32_t length)
{
	struct iovec part = {(void *)(uintptr_t)data, length};
	struct weir_thread *t = to->sender->worker;
	struct lane *lane;
	int rc = -ECONNRESET;

	weir_assert(length >= MESSAGE_BARE_MIN && length <= WEIR_MESSAGE_WHOLE);
	weir_lock(t);
	lane = to->now;
	if (lane && lane->conn && !lane->closing && lane->made == connection) {
		lane_used(lane);
		rc = weir_send_now(lane->conn, &part, 1, length, NULL);
		if (rc == -EAGAIN) {
			weir_progress(t, NULL);
			rc = weir_send_now(lane->conn, &part, 1, length, NULL);
		}
	}
	weir_unlock(t);
	return rc && rc != -EAGAIN ? message_error(to->m, rc) : rc;
}

/* ---- receiving ---- */

static struct lane *
lane_in_hand(const struct weir_reply *from)
{
	struct lane *lane = (struct lane *)(uintptr_t)from->internal[0];

	weir_assert(lane && !lane->sender && lane->running && lane->running->lane == lane);
	return lane;
}

bool
model_take_bare(struct handler_thread *k)
{
	const struct message_model *model = k->m->model;
	struct lane *lane = k->lane;
	struct message_taken taken = {.tag = {.kind = MESSAGE_BARE},
				      .data = k->taken.data,
				      .length = k->taken.length,
				      .receiver = lane->receiver,
				      .process = lane->peer->node,
				      .reply = {{(uint64_t)(uintptr_t)lane, k->life}}};

	if (!model->take(k->m, &taken, model->user))
		return false;
	count(&k->handled);
	return true;
}

void **
message_state(const struct weir_reply *from)
{
	return &lane_in_hand(from)->state;
}

void
message_expect(const struct weir_reply *from, uint32_t length)
{
	struct lane *lane = lane_in_hand(from);

	weir_assert(!lane->bare && length >= MESSAGE_BARE_MIN && length <= WEIR_MESSAGE_WHOLE);
	lane->bare = length;
}

int
message_post(const struct weir_reply *from, void *data, uint32_t length)
{
	return weir_recv_into(lane_in_hand(from)->conn, data, length, 0);
}

void
message_keep(const struct weir_reply *from, struct weir_loan *loan)
{
	struct lane *lane = lane_in_hand(from);
	struct weir_taken *taken = &lane->running->taken;
	struct weir_rx_message *p = taken->loan;

	weir_assert(p);
	*loan = (struct weir_loan){.data = p->data, .length = p->length};
	loan->internal[0] = (uintptr_t)p;
	taken->loan = NULL;
	weir_lock(lane->worker);
	weir_loan_begin(p, lane->conn);
	weir_unlock(lane->worker);
}

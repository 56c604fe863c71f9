/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages gathered from several places, and messages consumed later than they are received. */
#include "model.h"
#include "rx_queue.h"
#include "send.h"

#define HEAD_BYTES 16u /* of weir_send_headed() */

static struct weir_message_out
message_of(const struct iovec *parts, unsigned n, size_t length, const uint64_t *cookie)
{
	weir_assert(n && length <= WEIR_STREAM_MESSAGE_MAX);
	return (struct weir_message_out){.parts = parts,
					 .length = (uint32_t)length,
					 .block = WEIR_BLOCK_NONE,
					 .flags = cookie ? WEIR_NOTIFY : 0,
					 .cookie = cookie ? *cookie : 0};
}

int
weir_send_now(struct weir_conn *c, const struct iovec *parts, unsigned n, size_t length,
	      const uint64_t *cookie)
{
	struct weir_message_out m = message_of(parts, n, length, cookie);

	return weir_send_whole(c, &m);
}

int
weir_send_parts(struct weir_conn *c, const struct iovec *parts, unsigned n, size_t length,
		const uint64_t *cookie, int timeout_ms)
{
	struct weir_message_out m = message_of(parts, n, length, cookie);

	return weir_send_large(c, &m, timeout_ms);
}

/* ---- small messages with a head ---- */

#define RUNG_MAX 4u /* doorbells that the other end may leave unanswered */

bool
weir_pipe_wake(struct weir_pipe *p)
{
	weir_pipe_ring(p);
	if (++p->rung < RUNG_MAX)
		return false;
	p->rung = 0;
	return true;
}

int
weir_send_headed(struct weir_conn *c, const void *head, const void *buf, uint32_t length)
{
	bool asleep;

	if (weir_unlikely(!weir_put_ready(c)))
		return -EAGAIN;
	if (length <= WEIR_SLOT_HEAD_BYTES - HEAD_BYTES)
		asleep = weir_small_put(c, head, HEAD_BYTES, buf, length, 1, TO_EITHER);
	else
		asleep = weir_small_put(c, head, HEAD_BYTES, buf, length, 2, TO_EITHER);
	if (asleep)
		weir_pipe_wake(c->pipe);
	return 0;
}

/* ---- received messages ---- */

void
weir_taken_done(struct weir_conn *c, struct weir_taken *taken)
{
	uint32_t cost = taken->cost;

	taken->cost = 0;
	if (taken->loan)
		weir_loan_end(taken->loan, c);
	else if (cost && c && c->state != CONN_CLOSING)
		weir_conn_consumed(c, cost);
	taken->loan = NULL;
}

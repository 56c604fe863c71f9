/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages gathered from several places, and messages consumed later than they are received. */
#include "model.h"
#include "send.h"

#include "client/reason.h"

#include <stdlib.h>

#define HEAD_BYTES 16u /* of weir_send_headed() */

/* Copies the message into memory that the caller frees. NULL: no memory. */
static uint8_t *
gather(struct weir_message_out *m)
{
	uint8_t *whole = malloc(m->length);

	if (!whole) {
		weir_fail(-ENOMEM, "no memory for a message of %u bytes; free some", m->length);
		return NULL;
	}
	weir_message_fill(whole, m);
	m->data = whole;
	m->parts = NULL;
	return whole;
}

/* Copies an inline message to `small`. 0 or -EMSGSIZE. */
static int
prepare(struct weir_message_out *m, uint8_t *small, size_t length)
{
	if (length > WEIR_STREAM_MESSAGE_MAX)
		return weir_fail(-EMSGSIZE, "a message has at most %u bytes; send it in parts",
				 WEIR_STREAM_MESSAGE_MAX);
	m->length = (uint32_t)length;
	m->block = WEIR_BLOCK_NONE;
	if (length > WEIR_INLINE_MAX)
		return 0;
	weir_message_fill(small, m);
	m->data = small;
	m->parts = NULL;
	return 0;
}

int
weir_send_now(struct weir_conn *c, const struct iovec *parts, unsigned n, size_t length)
{
	uint8_t small[WEIR_INLINE_MAX], *whole;
	struct weir_message_out m = {.parts = parts, .part_count = n};
	int rc = prepare(&m, small, length);

	if (!rc)
		rc = weir_send_locked(c, &m);
	if (rc != -ENOBUFS)
		return rc;
	/* in fragments as far as there is room; the connection owns the rest from then on */
	whole = m.copy = gather(&m);
	rc = whole ? weir_send_locked(c, &m) : -ENOMEM;
	if (!rc && c->partial_queued && c->partial_borrowed)
		weir_partial_keep(c, whole, false);
	else
		free(whole);
	return rc;
}

int
weir_send_parts(struct weir_conn *c, const struct iovec *parts, unsigned n, size_t length,
		int timeout_ms)
{
	uint8_t small[WEIR_INLINE_MAX], *whole;
	struct weir_message_out m = {.parts = parts, .part_count = n};
	int rc = prepare(&m, small, length);

	if (!rc)
		rc = weir_send_message(c, &m, timeout_ms);
	if (rc != -ENOBUFS)
		return rc;
	/* a local message that goes in fragments is cut from one place */
	whole = gather(&m);
	rc = whole ? weir_send_large(c, &m, timeout_ms) : -ENOMEM;
	free(whole);
	return rc;
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

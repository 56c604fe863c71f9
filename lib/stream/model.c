/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages from several places, and messages that are consumed later than they are received. */
#include "model.h"
#include "send.h"

#include "client/reason.h"

#include <stdlib.h>

#define HEADED 16u /* bytes of a head with an id */

/* The whole message in one place, which the caller frees. NULL: no memory. */
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

static int
send_gathered(struct weir_conn *c, struct weir_message_out *m, int timeout_ms)
{
	uint8_t *whole = gather(m);
	int rc = whole ? weir_send_large(c, m, timeout_ms) : -ENOMEM;

	free(whole);
	return rc;
}

/* In pieces, as far as there is room; the rest is the connection's from then on. Worker locked. */
static int
send_gathered_now(struct weir_conn *c, struct weir_message_out *m)
{
	uint8_t *whole = m->copy = gather(m);
	int rc = whole ? weir_send_locked(c, m) : -ENOMEM;

	if (!rc && c->tail_kept && c->tail_lent)
		weir_tail_keep(c, whole, false);
	else
		free(whole);
	return rc;
}

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
	uint8_t small[WEIR_INLINE_MAX];
	struct weir_message_out m = {.parts = parts, .part_count = n};
	int rc = prepare(&m, small, length);

	if (!rc)
		rc = weir_send_locked(c, &m);
	return rc == -ENOBUFS ? send_gathered_now(c, &m) : rc;
}

int
weir_send_parts(struct weir_conn *c, const struct iovec *parts, unsigned n, size_t length,
		int timeout_ms)
{
	uint8_t small[WEIR_INLINE_MAX];
	struct weir_message_out m = {.parts = parts, .part_count = n};
	int rc = prepare(&m, small, length);

	if (!rc)
		rc = weir_send_message(c, &m, timeout_ms);
	/* a local message that must go in pieces is cut from one place */
	return rc == -ENOBUFS ? send_gathered(c, &m, timeout_ms) : rc;
}

/* ---- small ones with a head ---- */

#define RUNG_MAX 4u

bool
weir_put_ring(struct weir_pipe *p)
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
	if (length <= WEIR_SLOT_HEAD_BYTES - HEADED)
		asleep = weir_put_headed(c, head, HEADED, buf, length, 1);
	else
		asleep = weir_put_headed(c, head, HEADED, buf, length, 2);
	if (asleep)
		weir_put_ring(c->pipe);
	return 0;
}

/* ---- what came ---- */

void
weir_taken_done(struct weir_conn *c, struct weir_taken *taken)
{
	struct weir_parked *p = taken->loan;
	uint32_t cost = taken->cost;

	if (p) {
		cost = p->cost;
		taken->loan = NULL;
		LIST_REMOVE(p, in_loans);
		weir_parked_free(p);
	}
	taken->cost = 0;
	if (cost && c && c->state != CONN_CLOSING)
		weir_conn_consumed(c, cost);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Sending messages: small ones under their home's lock alone, which is free for its owner. */
#include "message/internal.h"

#include <sched.h>

#define RUNG_MAX 4u

static int
too_long(const struct weir_messenger *m, uint64_t length)
{
	return weir_fail(-EMSGSIZE,
			 "a message of %llu bytes is longer than message_max, %llu; send less or "
			 "raise that",
			 (unsigned long long)length, (unsigned long long)m->o.message_max);
}

static int
send_on(struct sender *s, uint16_t node, uint16_t type, const struct iovec *iov, unsigned n,
	uint64_t length, int timeout_ms)
{
	struct message_header h = {.kind = KIND_MESSAGE, .type = type};
	struct iovec parts[WEIR_MESSAGE_PARTS + 1] = {{&h, HEADER_SHORT}};
	struct lane *lane;
	int rc = lane_pin(s, node, timeout_ms, &lane);

	if (rc)
		return rc;
	memcpy(parts + 1, iov, n * sizeof(*iov));
	rc = length > WEIR_MESSAGE_WHOLE
		 ? pieces_send(lane, &h, iov, n, length, timeout_ms)
		 : lane_send(lane, parts, n + 1, HEADER_SHORT + length, timeout_ms);
	lane_unpin(lane);
	return rc ? message_error(rc) : 0;
}

int
weir_message_sendv(struct weir_messenger *m, uint16_t node, uint16_t type, const struct iovec *iov,
		   unsigned n, int timeout_ms)
{
	struct sender *s;
	uint64_t length = 0;
	int rc = 0;

	if (n > WEIR_MESSAGE_PARTS)
		return weir_fail(-EINVAL, "%u places; give at most %u", n, WEIR_MESSAGE_PARTS);
	for (unsigned i = 0; i < n; i++)
		length += iov[i].iov_len;
	if (length > m->o.message_max)
		return too_long(m, length);
	s = sender_get(m, &rc);
	return s ? send_on(s, node, type, iov, n, length, timeout_ms) : rc;
}

static __attribute__((noinline)) int
send_slow(struct weir_messenger *m, struct sender *s, uint16_t node, uint16_t type, const void *buf,
	  size_t length, int timeout_ms)
{
	struct iovec part = {(void *)(uintptr_t)buf, length};

	if (length > m->o.message_max)
		return too_long(m, length);
	return send_on(s, node, type, &part, 1, length, timeout_ms);
}

/*
 * Rung and not heard: it waits for this very CPU, and each message rings again. Home locked;
 * leaves.
 */
static __attribute__((noinline, cold)) void
let_engine_run(struct sender *s, struct weir_pipe *p)
{
	p->rung = 0;
	weir_bias_leave(&s->home->lock);
	sched_yield();
}

int
weir_message_send(struct weir_messenger *m, uint16_t node, uint16_t type, const void *buf,
		  size_t length, int timeout_ms)
{
	uint64_t head = KIND_MESSAGE | (uint64_t)type << 16;
	struct lane *lane;
	struct sender *s;
	int rc = 0;

	s = sender_get(m, &rc);
	if (weir_unlikely(!s))
		return rc;
	if (weir_unlikely(length > WEIR_INLINE_SMALL - HEADER_SHORT ||
			  !weir_bias_enter(&s->home->lock)))
		return send_slow(m, s, node, type, buf, length, timeout_ms);
	lane = sender_lane(s, node);
	rc = -EAGAIN;
	if (weir_likely(lane && !lane->greet)) {
		atomic_store_explicit(&lane->used,
				      atomic_load_explicit(&m->epoch, memory_order_relaxed),
				      memory_order_relaxed);
		rc = weir_send_headed(lane->conn, &head, HEADER_SHORT, buf, (uint32_t)length);
		if (weir_unlikely(lane->conn->pipe && lane->conn->pipe->rung >= RUNG_MAX)) {
			let_engine_run(s, lane->conn->pipe);
			return rc ? send_slow(m, s, node, type, buf, length, timeout_ms) : 0;
		}
	}
	weir_bias_leave(&s->home->lock);
	return weir_likely(!rc) ? 0 : send_slow(m, s, node, type, buf, length, timeout_ms);
}

int
weir_message_send_many(struct weir_messenger *m, const uint16_t *nodes, unsigned n, uint16_t type,
		       const void *buf, size_t length, int timeout_ms, int *results)
{
	int accepted = 0;

	for (unsigned i = 0; i < n; i++) {
		int rc = weir_message_send(m, nodes[i], type, buf, length, timeout_ms);

		accepted += !rc;
		if (results)
			results[i] = rc;
	}
	return accepted;
}

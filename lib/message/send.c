/* SPDX-License-Identifier: BSD-3-Clause */
/* Sending messages: small ones under their worker's lock alone, which is free for its owner. */
#include "lane.h"
#include "model.h"
#include "sender.h"

#include "client/reason.h"
#include "client/thread.h"
#include "stream/model.h"

#include <errno.h>
#include <sched.h>

int
message_length(const struct weir_messenger *m, const struct iovec *iov, unsigned n,
	       uint64_t *length)
{
	bool over = false;

	*length = 0;
	if (n > WEIR_MESSAGE_PARTS)
		return weir_fail(-EINVAL, "%u places; give at most %u", n, WEIR_MESSAGE_PARTS);
	for (unsigned i = 0; i < n; i++)
		over |= __builtin_add_overflow(*length, iov[i].iov_len, length);
	if (over || *length > m->o.message_max)
		return weir_fail(-EMSGSIZE,
				 "%llu bytes or more are longer than message_max, %llu; send less "
				 "or raise that",
				 over ? (unsigned long long)UINT64_MAX
				      : (unsigned long long)*length,
				 (unsigned long long)m->o.message_max);
	return 0;
}

int
lane_send_message(struct lane *lane, uint16_t type, const struct iovec *iov, unsigned n,
		  uint64_t length, const uint64_t *cookie, int timeout_ms)
{
	struct message_header h = {.kind = KIND_MESSAGE, .type = type};
	struct iovec parts[WEIR_MESSAGE_PARTS + 1];

	if (length > WEIR_MESSAGE_WHOLE)
		return fragments_send(lane, &h, iov, n, length, cookie, timeout_ms);
	parts[0] = (struct iovec){&h, HEADER_SHORT};
	if (n)
		memcpy(parts + 1, iov, n * sizeof(*iov));
	return lane_send(lane, parts, n + 1, HEADER_SHORT + length, cookie, timeout_ms);
}

int
weir_message_sendv(struct weir_messenger *m, uint16_t node, uint16_t type, const struct iovec *iov,
		   unsigned n, int timeout_ms)
{
	struct sender *s;
	struct lane *lane;
	uint64_t length;
	int rc;

	rc = message_length(m, iov, n, &length);
	s = rc ? NULL : sender_get(m, &rc);
	if (!s)
		return rc;
	rc = lane_pin(s, node, timeout_ms, &lane);
	if (rc)
		return rc;
	rc = lane_send_message(lane, type, iov, n, length, NULL, timeout_ms);
	lane_unpin(lane);
	return rc ? message_error(m, rc) : 0;
}

static __attribute__((noinline)) int
send_slow(struct weir_messenger *m, uint16_t node, uint16_t type, const void *buf, size_t length,
	  int timeout_ms)
{
	struct iovec part = {(void *)(uintptr_t)buf, length};

	return weir_message_sendv(m, node, type, &part, 1, timeout_ms);
}

/* Wakes the other end and leaves. A doorbell without effect: the other end waits for this very CPU,
 * and each message would ring again. */
static __attribute__((noinline, cold)) int
wake(struct weir_bias_seat *seat, struct weir_pipe *p)
{
	bool unheard = weir_pipe_wake(p);

	weir_bias_leave(seat);
	if (unheard)
		sched_yield();
	return 0;
}

/* Leaves. `slots` is a constant at compile time. */
static inline __attribute__((always_inline)) int
put(struct weir_bias_seat *seat, struct weir_conn *c, uint16_t type, const void *buf,
    uint32_t length, uint32_t slots)
{
	uint64_t head = KIND_MESSAGE | (uint64_t)type << 16;

	if (weir_unlikely(weir_small_put(c, &head, HEADER_SHORT, buf, length, slots, TO_EITHER)))
		return wake(seat, c->pipe);
	weir_bias_leave(seat);
	return 0;
}

static __attribute__((noinline)) int
put_one_slot(struct weir_bias_seat *seat, struct weir_conn *c, uint16_t type, const void *buf,
	     uint32_t length)
{
	return put(seat, c, type, buf, length, 1);
}

static __attribute__((noinline)) int
put_two_slots(struct weir_bias_seat *seat, struct weir_conn *c, uint16_t type, const void *buf,
	      uint32_t length)
{
	return put(seat, c, type, buf, length, 2);
}

/* The same where threads share a sender: each waits for the lock, per message. */
static __attribute__((noinline)) int
put_shared(struct sender *s, uint16_t node, uint16_t type, const void *buf, uint32_t length)
{
	uint64_t head = KIND_MESSAGE | (uint64_t)type << 16;
	struct weir_conn *c;
	struct lane *lane;
	int rc = -EAGAIN;
	bool asleep;

	weir_lock(s->worker);
	lane = sender_lane(s, node);
	if (lane && !lane->hello_due && weir_put_ready(lane->conn)) {
		c = lane->conn;
		lane_used(lane);
		if (length <= WEIR_SLOT_HEAD_BYTES - HEADER_SHORT)
			asleep = weir_small_put(c, &head, HEADER_SHORT, buf, length, 1, TO_EITHER);
		else
			asleep = weir_small_put(c, &head, HEADER_SHORT, buf, length, 2, TO_EITHER);
		if (asleep)
			weir_pipe_wake(c->pipe);
		rc = 0;
	}
	weir_unlock(s->worker);
	return rc;
}

/* As weir_send(): a small message takes the short way. */
int
weir_message_send(struct weir_messenger *m, uint16_t node, uint16_t type, const void *buf,
		  size_t length, int timeout_ms)
{
	struct sender *s = sender_latest(m);
	struct weir_bias_seat *seat;
	struct lane *lane;

	if (weir_unlikely(!s || length > WEIR_INLINE_SMALL - HEADER_SHORT))
		return send_slow(m, node, type, buf, length, timeout_ms);
	seat = weir_bias_enter(&s->worker->lock);
	if (weir_unlikely(!seat))
		return put_shared(s, node, type, buf, (uint32_t)length)
			   ? send_slow(m, node, type, buf, length, timeout_ms)
			   : 0;
	lane = sender_lane(s, node);
	if (weir_unlikely(!lane || lane->hello_due || !weir_put_ready(lane->conn))) {
		weir_bias_leave(seat);
		return send_slow(m, node, type, buf, length, timeout_ms);
	}
	lane_used(lane);
	return length <= WEIR_SLOT_HEAD_BYTES - HEADER_SHORT
		   ? put_one_slot(seat, lane->conn, type, buf, (uint32_t)length)
		   : put_two_slots(seat, lane->conn, type, buf, (uint32_t)length);
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

/* ---- of models ---- */

static_assert(MESSAGE_PUT_MAX == WEIR_INLINE_SMALL - HEADER_LONG, "two slots");

/* Leaves. `slots` is a constant at compile time. */
static inline __attribute__((always_inline)) int
put_headed(struct weir_bias_seat *seat, struct weir_conn *c, const uint64_t head[2],
	   const void *buf, uint32_t length, uint32_t slots)
{
	if (weir_unlikely(weir_small_put(c, head, HEADER_LONG, buf, length, slots, TO_EITHER)))
		return wake(seat, c->pipe);
	weir_bias_leave(seat);
	return 0;
}

int
message_lane_put(struct message_lane *to, uint64_t tag, uint64_t first, const void *buf,
		 uint32_t length)
{
	struct sender *s = sender_latest(to->m);
	uint64_t head[2] = {tag, first};
	struct weir_bias_seat *seat;
	struct lane *lane;

	weir_assert((uint8_t)tag >= KIND_MODEL && length <= MESSAGE_PUT_MAX);
	if (weir_unlikely(s != to->sender || !(seat = weir_bias_enter(&s->worker->lock))))
		return -EAGAIN;
	lane = to->now;
	if (weir_unlikely(!lane || lane->hello_due || !weir_put_ready(lane->conn))) {
		weir_bias_leave(seat);
		return -EAGAIN;
	}
	lane_used(lane);
	return length <= WEIR_SLOT_HEAD_BYTES - HEADER_LONG
		   ? put_headed(seat, lane->conn, head, buf, length, 1)
		   : put_headed(seat, lane->conn, head, buf, length, 2);
}

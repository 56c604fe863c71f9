/* SPDX-License-Identifier: BSD-3-Clause */
#include "parts.h"
#include "send.h"

#include "client/reason.h"

/* A place in a list. */
struct cursor {
	const struct iovec *part;
	size_t at;
};

/* The next memory of a list that has more: at most `most` bytes, more than 0. */
static uint8_t *
next(struct cursor *c, size_t most, size_t *bytes)
{
	uint8_t *memory;

	while (c->at == c->part->iov_len) {
		c->part++;
		c->at = 0;
	}
	*bytes = c->part->iov_len - c->at < most ? c->part->iov_len - c->at : most;
	memory = (uint8_t *)c->part->iov_base + c->at;
	c->at += *bytes;
	return memory;
}

static void
gather(struct cursor *c, uint8_t *to, size_t bytes)
{
	for (size_t n; bytes; bytes -= n, to += n) {
		const uint8_t *from = next(c, bytes, &n);

		memcpy(to, from, n);
	}
}

int
weir_parts_check(const struct iovec *parts, unsigned n, size_t most, size_t *length)
{
	size_t sum = 0;

	if (n > WEIR_PARTS_MAX || (n && !parts))
		return weir_fail(-EINVAL, "%u parts at %p; give at most %u, in a list", n,
				 (const void *)parts, WEIR_PARTS_MAX);
	for (unsigned i = 0; i < n; i++) {
		if (parts[i].iov_len && !parts[i].iov_base)
			return weir_fail(-EINVAL, "part %u has %zu bytes and no address; fix it", i,
					 parts[i].iov_len);
		if (parts[i].iov_len > most - sum)
			return weir_fail(-EMSGSIZE,
					 "the parts up to number %u have more than %zu bytes; give "
					 "less",
					 i, most);
		sum += parts[i].iov_len;
	}
	*length = sum;
	return 0;
}

void
weir_parts_copy(uint8_t *to, const struct iovec *parts, size_t from, size_t bytes)
{
	struct cursor c = {.part = parts};

	for (size_t n; from; from -= n)
		next(&c, from, &n);
	gather(&c, to, bytes);
}

void
weir_parts_scatter(const struct iovec *parts, const uint8_t *from, size_t bytes)
{
	struct cursor c = {.part = parts};

	for (size_t n; bytes; bytes -= n, from += n) {
		uint8_t *to = next(&c, bytes, &n);

		memmove(to, from, n); /* a message in posted memory may lie in a part */
	}
}

void
weir_parts_put(const struct weir_ring *r, const struct iovec *parts, uint32_t length)
{
	uint32_t n = length < WEIR_SLOT_HEAD_BYTES ? length : WEIR_SLOT_HEAD_BYTES;
	struct cursor c = {.part = parts};

	gather(&c, weir_ring_at(r, r->pos)->data, n);
	for (uint64_t pos = r->pos + 1; (length -= n); pos++) {
		struct weir_slot_more *m = (struct weir_slot_more *)weir_ring_at(r, pos);

		n = length < WEIR_SLOT_MORE_BYTES ? length : WEIR_SLOT_MORE_BYTES;
		gather(&c, m->data, n);
		atomic_store_explicit(&m->seq, (uint32_t)(pos + 1), memory_order_relaxed);
	}
}

int
weir_sendv(struct weir_conn *c, const struct iovec *parts, unsigned n, unsigned flags,
	   uint64_t cookie, int timeout_ms)
{
	struct weir_message_out m = {
	    .parts = parts, .flags = flags, .cookie = cookie, .block = WEIR_BLOCK_NONE};
	size_t length;
	int rc = weir_parts_check(parts, n, WEIR_STREAM_MESSAGE_MAX, &length);

	if (rc)
		return rc;
	if (n <= 1)
		return weir_send_notify(c, n ? parts->iov_base : NULL, length, flags, cookie,
					timeout_ms);
	m.length = (uint32_t)length;
	rc = weir_message_transfer(c, &m);
	return rc ? rc : weir_send_large(c, &m, timeout_ms);
}

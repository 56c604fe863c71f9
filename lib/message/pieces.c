/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages too long for one: cut at the sender, put together at the receiver. */
#include "message/internal.h"

#include <stdlib.h>

#define PARTS_MAX 16u

/* ---- sending ---- */

/* Where the next byte of the whole lies. */
struct place {
	const struct iovec *iov;
	unsigned left;
	size_t at;
};

/* The next `bytes` or less, in up to `room` parts; how many bytes. */
static size_t
next_parts(struct place *p, struct iovec *parts, unsigned room, size_t bytes, unsigned *n)
{
	size_t got = 0;

	for (*n = 0; p->left && *n < room && got < bytes;) {
		size_t here = p->iov->iov_len - p->at;

		if (here > bytes - got)
			here = bytes - got;
		if (here)
			parts[(*n)++] = (struct iovec){(uint8_t *)p->iov->iov_base + p->at, here};
		p->at += here;
		got += here;
		if (p->at == p->iov->iov_len) {
			p->iov++;
			p->left--;
			p->at = 0;
		}
	}
	return got;
}

static int
send_pieces(struct lane *lane, const struct message_header *whole, const struct iovec *iov,
	    unsigned n, uint64_t total, int timeout_ms)
{
	struct message_header h = *whole;
	struct message_piece piece = {.total = total};
	struct place place = {iov, n, 0};
	struct iovec parts[2 + PARTS_MAX] = {{&h, HEADER_LONG}, {&piece, sizeof(piece)}};
	int rc = 0;

	h.kind = KIND_PIECE;
	h.flags = whole->kind;
	while (!rc && piece.offset < total) {
		unsigned count;
		size_t bytes = next_parts(&place, parts + 2, PARTS_MAX, WEIR_MESSAGE_WHOLE, &count);

		rc = lane_send(lane, parts, 2 + count, HEADER_LONG + sizeof(piece) + bytes,
			       timeout_ms);
		piece.offset += bytes;
	}
	return rc;
}

/* Threads that share a lane send such messages one after another. */
static int
cutting_begin(struct lane *lane, int timeout_ms)
{
	struct weir_wait wait;
	bool mine;
	int rc = 0;

	weir_wait_init(&wait, lane->home, timeout_ms);
	wait.nap_always = true;
	do {
		weir_lock(lane->home);
		mine = !lane->cutting;
		if (mine)
			lane->cutting = true;
		weir_unlock(lane->home);
		if (!mine)
			rc = weir_wait_next(&wait);
	} while (!mine && !rc);
	weir_wait_end(&wait);
	return rc;
}

int
pieces_send(struct lane *lane, const struct message_header *h, const struct iovec *iov, unsigned n,
	    uint64_t total, int timeout_ms)
{
	int rc = cutting_begin(lane, timeout_ms);

	if (rc)
		return rc;
	rc = send_pieces(lane, h, iov, n, total, timeout_ms);
	weir_lock(lane->home);
	lane->cutting = false;
	weir_unlock(lane->home);
	return rc;
}

/* ---- receiving: who has `running` of the lane, or m->lock and the home's when nobody has ---- */

static const struct weir_handler *
handler_of(struct worker *k)
{
	struct handler *h =
	    atomic_load_explicit(&k->m->handlers[k->header.type], memory_order_acquire);

	return h ? &h->h : NULL;
}

/* The first piece: where will the message lie? Nowhere: what comes is thrown away. */
static void
begin(struct worker *k, const struct message_piece *piece)
{
	struct assembly *a = &k->lane->in;
	const struct weir_handler *h = handler_of(k);

	*a = (struct assembly){.header = k->header, .total = piece->total};
	a->header.kind = k->header.flags;
	k->message.length = piece->total;
	k->message.data = NULL;
	if (!h) {
		count(&k->unknown);
	} else if (piece->total > k->m->o.message_max) {
		count(&k->oversized);
	} else if (h->place) {
		a->data = h->place(k->m, &k->message, h->user);
	} else {
		a->data = malloc(piece->total);
		a->ours = true;
	}
	if (!a->data) {
		a->ours = false;
		if (h && piece->total <= k->m->o.message_max)
			count(&k->oversized);
		if (a->header.kind == KIND_REQUEST)
			weir_message_refuse(k->m, &k->message.reply, h ? EMSGSIZE : ENOMSG);
	}
}

static void
tell_broken(struct lane *lane)
{
	struct event e = {.node = lane->peer->node, .broken = lane->in};

	if (lane->in.total && lane->in.data && !lane->in.ours)
		event_add(lane->m, &e);
	else if (lane->in.ours)
		free(lane->in.data);
	lane->in = (struct assembly){0};
}

int
piece_take(struct worker *k, const uint8_t *data, uint32_t length)
{
	struct lane *lane = k->lane;
	struct assembly *a = &lane->in;
	struct message_piece piece;

	if (!message_piece_read(&piece, data, length) || k->header.flags == KIND_RESPONSE)
		return -EPROTO;
	k->header.kind = KIND_PIECE;
	if (k->header.flags == KIND_REQUEST) {
		k->message.flags = WEIR_MESSAGE_REQUEST;
		k->message.reply =
		    (struct weir_reply){{(uint64_t)(uintptr_t)lane, k->life, k->header.id}};
	}
	if (!piece.offset) {
		if (a->total) { /* the last one's sender gave up */
			pthread_mutex_lock(&lane->m->lock);
			tell_broken(lane);
			pthread_mutex_unlock(&lane->m->lock);
		}
		begin(k, &piece);
	}
	if (!a->total || piece.total != a->total || piece.offset != a->got)
		return -EPROTO;
	length -= (uint32_t)sizeof(piece);
	if (a->data)
		memcpy(a->data + a->got, data + sizeof(piece), length);
	a->got += length;
	if (a->got < a->total)
		return 0;
	k->message.data = a->data;
	k->message.length = a->total;
	if (a->data)
		return 1;
	lane->in = (struct assembly){0};
	return 0;
}

void
assembly_done(struct lane *lane)
{
	if (lane->in.ours)
		free(lane->in.data);
	lane->in = (struct assembly){0};
}

void
assembly_drop(struct lane *lane)
{
	if (lane->sender)
		lane->in = (struct assembly){0};
	else
		tell_broken(lane);
}

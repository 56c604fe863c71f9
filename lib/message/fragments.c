/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages too long for one: cut at the sender, put together at the receiver. */
#include "fragments.h"
#include "handle.h"
#include "lane.h"
#include "peer.h"
#include "pool.h"
#include "room.h"

#include "client/wait.h"

#include <errno.h>
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

	weir_wait_init(&wait, lane->worker, timeout_ms);
	wait.nap_always = true;
	do {
		weir_lock(lane->worker);
		mine = !lane->cutting;
		if (mine)
			lane->cutting = true;
		weir_unlock(lane->worker);
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
	weir_lock(lane->worker);
	lane->cutting = false;
	weir_unlock(lane->worker);
	return rc;
}

/* ---- receiving: who has `running`, or m->lock and the worker's lock when nobody has ---- */

#define ALLOCATE_AHEAD                                                                             \
	8u /* times what has arrived: memory that is not touched costs address space */
#define WHOLE_NS                                                                                   \
	10000000000ull /* in which a message becomes whole while others wait for memory ... */
#define BYTE_NS 64u    /* ... and for each byte of it: 16 MB/s */

static void
forget(struct lane *lane)
{
	if (lane->in.allocated)
		free(lane->in.data);
	room_give(lane);
	lane->in = (struct assembly){0};
}

/* What else comes of the message is dropped. */
static void
drop(struct handler_thread *k, _Atomic uint64_t *counter, int error)
{
	struct assembly *a = &k->lane->in;

	if (a->allocated)
		free(a->data);
	a->data = NULL;
	a->allocated = 0;
	room_give(k->lane);
	count(counter);
	if (a->pieces.header.flags == KIND_REQUEST)
		weir_message_refuse(k->m, &k->message.reply, error);
}

/* The library's memory grows with what arrives: what is only announced costs nothing. */
static bool
allocate(struct assembly *a, uint64_t bytes)
{
	uint64_t total = a->pieces.total;
	uint8_t *data;

	if (bytes <= a->allocated)
		return true;
	bytes = bytes > total / ALLOCATE_AHEAD ? total : bytes * ALLOCATE_AHEAD;
	data = realloc(a->data, bytes);
	if (!data)
		return false;
	a->data = data;
	a->allocated = bytes;
	return true;
}

/* The first piece: where will the message lie? 0, or -EAGAIN: the library's memory is used up. */
static int
begin(struct handler_thread *k, const struct weir_handler *h, const struct message_piece *piece)
{
	struct assembly *a = &k->lane->in;
	bool ours = h && !h->place && piece->total <= k->m->o.message_max;
	int rc = 0;

	k->message.length = piece->total;
	k->message.data = NULL;
	if (!ours)
		room_give(k->lane);
	else if (!a->reserved)
		rc = room_take(k, piece->total);
	if (rc == -EAGAIN)
		return rc;
	message_pieces_begin(&a->pieces, &k->header, piece);
	a->handler = h;
	a->deadline = weir_clock() + WHOLE_NS + piece->total * BYTE_NS;
	if (!h)
		drop(k, &k->unknown, ENOMSG);
	else if (rc || piece->total > k->m->o.message_max)
		drop(k, &k->oversized, EMSGSIZE);
	else if (h->place && !(a->data = h->place(k->m, &k->message, h->user)))
		drop(k, &k->oversized, EMSGSIZE);
	return 0;
}

/* The next piece of what is under way, to where it lies. */
static void
append(struct handler_thread *k, const struct weir_handler *h, const uint8_t *data, uint32_t length)
{
	struct assembly *a = &k->lane->in;

	if (a->handler && h != a->handler) {
		/* what place() gave is the program's again, see weir_message_unregister() */
		a->handler = NULL;
		drop(k, &k->unknown, ENOMSG);
	}
	if (a->reserved && !allocate(a, a->pieces.got + length))
		drop(k, &k->oversized, EMSGSIZE);
	if (a->data)
		memcpy(a->data + a->pieces.got, data, length);
	a->pieces.got += length;
}

/* The message under way breaks off. Its handler gets back what its place() gave. */
static void
break_off(struct handler_thread *k)
{
	struct lane *lane = k->lane;
	struct assembly broken = lane->in;

	if (broken.data && !broken.allocated) {
		lane->in = (struct assembly){0};
		message_broken(k, lane->peer->node, &broken);
	} else {
		forget(lane);
	}
}

/* The piece's handler is held. */
static int
put_together(struct handler_thread *k, const struct weir_handler *h, const uint8_t *data,
	     uint32_t length)
{
	struct assembly *a = &k->lane->in;
	struct message_piece piece;

	message_piece_read(&piece, data, length);
	if (!piece.offset && begin(k, h, &piece))
		return -EAGAIN;
	if (!message_pieces_next(&a->pieces, &k->header, &piece))
		return -EPROTO;
	append(k, h, data + sizeof(piece), length - (uint32_t)sizeof(piece));
	if (a->pieces.got < a->pieces.total)
		return 0;
	if (!a->data) {
		forget(k->lane);
		return 0;
	}
	k->message.data = a->data;
	k->message.length = a->pieces.total;
	return 1;
}

int
piece_take(struct handler_thread *k, const uint8_t *data, uint32_t length)
{
	struct assembly *a = &k->lane->in;
	struct message_piece piece;
	int rc;

	if (!message_piece_read(&piece, data, length) || k->header.flags == KIND_RESPONSE)
		return -EPROTO;
	if (piece.offset && a->revoked)
		return -ETIMEDOUT;
	if (k->header.flags == KIND_REQUEST) {
		k->message.flags = WEIR_MESSAGE_REQUEST;
		k->message.reply =
		    (struct weir_reply){{(uint64_t)(uintptr_t)k->lane, k->life, k->header.id}};
	}
	if (!piece.offset && a->pieces.total) /* the last one's sender gave up */
		break_off(k);
	rc = put_together(k, handler_hold(k, k->header.type), data, length);
	handler_release(k);
	return rc;
}

void
assembly_done(struct lane *lane)
{
	forget(lane);
}

void
assembly_drop(struct lane *lane)
{
	struct event e = {.node = lane->peer->node, .broken = lane->in};

	if (!lane->sender && lane->in.data && !lane->in.allocated) {
		lane->in = (struct assembly){0};
		event_add(lane->m, &e);
	} else {
		forget(lane);
	}
}

/* ---- memory that others wait for ---- */

/* m->lock. */
static void
press(struct lane *lane, uint64_t now)
{
	struct assembly *a = &lane->in;

	weir_lock(lane->worker);
	if (!lane->running && a->reserved && now >= a->deadline &&
	    room_wanted(lane->m, lane->peer)) {
		lane->m->stalled++;
		free(a->data);
		a->data = NULL;
		a->allocated = 0;
		a->revoked = true;
		room_give(lane);
	}
	weir_unlock(lane->worker);
}

void
assemblies_press(struct weir_messenger *m)
{
	uint64_t now = weir_clock();
	struct peer *p;
	struct lane *lane;

	TAILQ_FOREACH(p, &m->open, in_open)
	{
		if (!room_wanted(m, p))
			continue;
		TAILQ_FOREACH(lane, &p->lanes, in_peer)
		if (!lane->sender)
			press(lane, now);
	}
}

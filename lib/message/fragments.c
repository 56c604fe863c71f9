/* SPDX-License-Identifier: BSD-3-Clause */
/* Long messages in fragments: cut at the sender, reassembled at the receiver. */
#include "fragments.h"
#include "handle.h"
#include "lane.h"
#include "peer.h"
#include "pool.h"
#include "room.h"

#include "client/wait.h"

#include <errno.h>

/* ---- sending ---- */

unsigned
fragments_cut(struct cut *cut, struct iovec *parts, size_t *bytes)
{
	unsigned count = 0;

	*bytes = 0;
	while (cut->n && count < WEIR_MESSAGE_PARTS && *bytes < WEIR_MESSAGE_WHOLE) {
		size_t here = cut->iov->iov_len - cut->at;

		if (here > WEIR_MESSAGE_WHOLE - *bytes)
			here = WEIR_MESSAGE_WHOLE - *bytes;
		if (here)
			parts[count++] =
			    (struct iovec){(uint8_t *)cut->iov->iov_base + cut->at, here};
		cut->at += here;
		*bytes += here;
		if (cut->at == cut->iov->iov_len) {
			cut->iov++;
			cut->n--;
			cut->at = 0;
		}
	}
	return count;
}

int
fragments_send(struct lane *lane, const struct message_header *whole, const struct iovec *iov,
	       unsigned n, uint64_t total, const uint64_t *cookie, int timeout_ms)
{
	struct message_header h = *whole;
	struct message_fragment fragment = {.total = total};
	struct iovec parts[2 + WEIR_MESSAGE_PARTS] = {{&h, HEADER_LONG},
						      {&fragment, sizeof(fragment)}};
	struct cut cut = {.iov = iov, .n = n};
	struct weir_wait wait;
	bool mine;
	int rc = 0;

	/* threads that share a lane send such messages one after another */
	weir_wait_init(&wait, lane->worker, timeout_ms);
	wait.nap_always = true;
	do {
		weir_lock(lane->worker);
		mine = !lane->sending_fragments;
		lane->sending_fragments = true;
		weir_unlock(lane->worker);
		if (!mine)
			rc = weir_wait_next(&wait);
	} while (!mine && !rc);
	weir_wait_end(&wait);
	if (rc)
		return rc;
	h.kind = KIND_FRAGMENT;
	h.flags = whole->kind;
	while (!rc && fragment.offset < total) {
		size_t bytes;
		unsigned count = 2 + fragments_cut(&cut, parts + 2, &bytes);

		/* the end of the last one is that of the message */
		rc = lane_send(lane, parts, count, HEADER_LONG + sizeof(fragment) + bytes,
			       fragment.offset + bytes == total ? cookie : NULL, timeout_ms);
		fragment.offset += bytes;
	}
	weir_lock(lane->worker);
	lane->sending_fragments = false;
	weir_unlock(lane->worker);
	return rc;
}

/* ---- receiving: in the thread of lane->running; if NULL, under m->lock and worker ---- */

#define ALLOCATE_AHEAD 8u /* times the bytes that have arrived: allocated address space */
/* A message that takes longer releases its memory when others wait for it: ns, ns per byte. */
#define WHOLE_NS 10000000000ull
#define BYTE_NS 64u /* 16 MB/s */

uint64_t
fragments_memory(uint64_t got, uint64_t total)
{
	return got > total / ALLOCATE_AHEAD ? total : got * ALLOCATE_AHEAD;
}

static void
forget(struct lane *lane)
{
	if (lane->in.allocated)
		weir_buffer_give(lane->worker->w, lane->in.data);
	room_give(lane);
	lane->in = (struct assembly){0};
}

/* The rest of the message is dropped when it arrives. */
static void
drop(struct handler_thread *k, _Atomic uint64_t *counter, int error)
{
	struct assembly *a = &k->lane->in;

	if (a->allocated)
		weir_buffer_give(k->lane->worker->w, a->data);
	a->data = NULL;
	a->allocated = 0;
	room_give(k->lane);
	count(counter);
	if (a->fragments.header.flags == KIND_REQUEST)
		weir_message_refuse(k->m, &k->message.reply, error);
}

/* The first fragment: finds memory for the message. 0, or -EAGAIN: the library's is used up. */
static int
begin(struct handler_thread *k, const struct weir_handler *h,
      const struct message_fragment *fragment)
{
	struct assembly *a = &k->lane->in;
	bool places = h && h->place && fragment->total >= h->place_from;
	bool ours = h && !places && fragment->total <= k->m->o.message_max;
	int rc = 0;

	k->message.length = fragment->total;
	k->message.data = NULL;
	if (!ours)
		room_give(k->lane);
	else if (!a->reserved)
		rc = room_take(k, fragment->total);
	if (rc == -EAGAIN)
		return rc;
	message_fragments_begin(&a->fragments, &k->header, fragment);
	a->handler = h;
	a->deadline = weir_clock() + WHOLE_NS + fragment->total * BYTE_NS;
	if (!h)
		drop(k, &k->unknown, ENOMSG);
	else if (rc || fragment->total > k->m->o.message_max)
		drop(k, &k->oversized, EMSGSIZE);
	else if (places && !(a->data = h->place(k->m, &k->message, h->user)))
		drop(k, &k->oversized, EMSGSIZE);
	return 0;
}

/* As fragment_take() once the header is checked; h is held. */
static int
put_together(struct handler_thread *k, const struct weir_handler *h, const uint8_t *data,
	     uint32_t length)
{
	struct assembly *a = &k->lane->in;
	struct message_fragment fragment;
	uint64_t got, bytes;
	uint8_t *grown;

	message_fragment_read(&fragment, data, length);
	if (!fragment.offset && begin(k, h, &fragment))
		return -EAGAIN;
	if (!message_fragments_next(&a->fragments, &k->header, &fragment))
		return -EPROTO;
	data += sizeof(fragment);
	length -= (uint32_t)sizeof(fragment);
	got = a->fragments.got + length;
	weir_assert(got <= a->fragments.total);
	if (a->handler && h != a->handler) {
		/* memory of place() is the program's again, see weir_message_unregister() */
		a->handler = NULL;
		drop(k, &k->unknown, ENOMSG);
	}
	/* the library's memory grows with arriving bytes */
	if (a->reserved && got > a->allocated) {
		bytes = fragments_memory(got, a->fragments.total);
		grown = weir_buffer_grow(k->lane->worker->w, a->data, a->fragments.got, bytes);
		if (grown) {
			a->data = grown;
			a->allocated = bytes;
		} else {
			drop(k, &k->oversized, EMSGSIZE);
		}
	}
	if (a->data)
		memcpy(a->data + a->fragments.got, data, length);
	a->fragments.got = got;
	if (got < a->fragments.total)
		return 0;
	if (!a->data) {
		forget(k->lane);
		return 0;
	}
	k->message.data = a->data;
	k->message.length = a->fragments.total;
	return 1;
}

int
fragment_take(struct handler_thread *k, const uint8_t *data, uint32_t length)
{
	struct lane *lane = k->lane;
	struct assembly broken = {0};
	struct message_fragment fragment;
	int rc;

	if (!message_fragment_read(&fragment, data, length) || k->header.flags == KIND_RESPONSE)
		return -EPROTO;
	if (fragment.offset && lane->in.revoked)
		return -ETIMEDOUT;
	if (k->header.flags == KIND_REQUEST) {
		k->message.flags = WEIR_MESSAGE_REQUEST;
		k->message.reply =
		    (struct weir_reply){{(uint64_t)(uintptr_t)lane, k->life, k->header.id}};
	}
	if (!fragment.offset && lane->in.fragments.total) {
		/* the sender gave up the last message: its handler gets memory of place() back */
		if (lane->in.data && !lane->in.allocated) {
			broken = lane->in;
			lane->in = (struct assembly){0};
			message_broken(k, lane->peer->node, &broken);
		} else {
			forget(lane);
		}
	}
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

void
assemblies_reclaim(struct weir_messenger *m)
{
	uint64_t now = weir_clock();
	struct peer *p;
	struct lane *lane;

	TAILQ_FOREACH(p, &m->open, in_open)
	{
		if (!room_wanted(m, p))
			continue;
		TAILQ_FOREACH(lane, &p->lanes, in_peer)
		{
			struct assembly *a = &lane->in;

			if (lane->sender)
				continue;
			weir_lock(lane->worker);
			if (!lane->running && a->reserved && now >= a->deadline &&
			    room_wanted(m, p)) {
				m->stalled++;
				weir_buffer_give(lane->worker->w, a->data);
				a->data = NULL;
				a->allocated = 0;
				a->revoked = true;
				room_give(lane);
			}
			weir_unlock(lane->worker);
		}
	}
}

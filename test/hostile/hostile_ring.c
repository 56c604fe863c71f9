/* SPDX-License-Identifier: BSD-3-Clause */
/* Rings, credit, doorbells and payloads that a program may write, written as it may not. */
#define _GNU_SOURCE
#include "hostile.h"

#include "ipc/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* A slot of random contents in all fields, valid sequence: every check of the intake is met. */
static void
put_garbage(struct victim *v, unsigned which)
{
	struct weir_ring *r = rng() % 4 ? &v->tx : &v->returns;
	struct weir_slot *s = weir_ring_at(r, r->pos);
	static const uint8_t ops[] = {WEIR_OP_INLINE,
				      WEIR_OP_PLACE,
				      WEIR_OP_CLOSE,
				      WEIR_OP_CONSUMED,
				      WEIR_OP_RELEASE,
				      WEIR_OP_WANT,
				      WEIR_OP_POST,
				      WEIR_OP_DONE,
				      0,
				      20,
				      64,
				      76,
				      255};

	for (unsigned i = 0; i < WEIR_SLOT_HEAD_BYTES; i += 8) {
		uint64_t x = rng() >> (rng() % 64);

		memcpy(s->data + i, &x, 8);
	}
	s->op = ops[rng() % sizeof(ops)];
	s->flags = (uint8_t)rng();
	s->order = which < 8 ? (uint16_t)which : (uint16_t)rng();
	s->vqpn = rng() % 2 ? v->vqpn : (uint32_t)rng();
	s->length = (uint32_t)(rng() >> (32 + rng() % 32));
	weir_ring_publish(r, 1);
	ring(v);
}

void
do_garbage(struct victim *v)
{
	open_conn(v);
	start_tx(v);
	for (unsigned i = 0; i < 64; i++)
		put_garbage(v, i);
	usleep(2000);
}

/* Cursors that run backwards, ahead, wrap. */
void
do_cursors(struct victim *v)
{
	static const uint64_t lies[] = {1, UINT64_MAX, 1ull << 63, 1ull << 32, 4097, 12345678};
	struct weir_channel_head *h = channel(v);

	open_conn(v);
	for (unsigned i = 0; i < 200; i++) {
		atomic_store(&h->rx_tail, lies[rng() % 6]);
		atomic_store(&h->tx_tail, lies[rng() % 6]);
		ring(v);
		usleep(20);
	}
}

/* Every shared word of the arena, over and over, while messages are under way. */
void
do_scribble(struct victim *v)
{
	uint64_t words = weir_arena_recv(&v->geometry) / 8;

	open_conn(v);
	for (unsigned i = 0; i < 20000; i++)
		((_Atomic uint64_t *)v->arena)[rng() % words] = rng();
	ring(v);
	usleep(500);
}

/* Payloads rewritten while the engine and the NIC carry them. */
void
do_payload(struct victim *v)
{
	uint64_t send_at = weir_arena_send(&v->geometry);
	uint64_t bytes = (uint64_t)v->geometry.send_blocks * WEIR_BLOCK_SIZE;
	uint16_t order = 0;

	open_conn(v);
	start_tx(v);
	usleep(2000);
	for (unsigned i = 0; i < 1000; i++) {
		struct weir_slot *s;

		if (!tx_room(v)) {
			usleep(50);
			continue;
		}
		s = next_slot(&v->tx, WEIR_OP_PLACE, order++, v->vqpn,
			      949 + (uint32_t)(rng() % 60000));
		if (rng() % 4 == 0 || s->length > WEIR_BLOCK_SIZE)
			s->flags = WEIR_SLOT_BULK;
		s->place[0] = WEIR_PLACE(0, send_at + rng() % 8 * WEIR_BLOCK_SIZE);
		weir_ring_publish(&v->tx, 1);
		ring(v);
		for (unsigned k = 0; k < 64; k++)
			((_Atomic uint64_t *)(v->arena + send_at))[rng() % (bytes / 64)] = rng();
		usleep(300); /* leaves others a fair share of the engine */
	}
}

/* Pages of the memory taken away under the data plane. */
void
do_punch(struct victim *v)
{
	open_conn(v);
	start_tx(v);
	for (unsigned i = 0; i < 50; i++) {
		uint64_t at = rng() % (v->geometry.bytes >> 21) << 21;

		punch(v->arena_fd, i ? at : 0, 2 << 20);
		put_garbage(v, i);
		usleep(100);
	}
	punch(v->arena_fd, 0, v->geometry.bytes);
	usleep(1000);
	if (ftruncate(v->arena_fd, 4096) == 0)
		violated("the arena could be shrunk; seal it");
}

/* Whether the data plane has ended the session, and said why. */
static bool
is_thrown_out(struct victim *v)
{
	struct weir_session_msg m;
	ssize_t n = recv(v->sock, &m, sizeof(m), MSG_DONTWAIT);

	if (n > 0 && (m.type != WEIR_MSG_REFUSED || m.refused.code != ECONNABORTED))
		violated("a session that was ended got another message than REFUSED");
	return n >= 0 || (errno != EAGAIN && errno != EINTR);
}

/*
 * Holes in what the engine reads in every turn, in a loop: filled by us before it looks, which may
 * take a while to be noticed, then left to it, which may not.
 */
void
do_refault(struct victim *v)
{
	double filled = seconds() + 0.3, end = filled + 10;
	uint64_t at = weir_arena_channel(&v->geometry, v->channel), last = at + 4096, page;
	struct stat st;

	if (fstat(v->arena_fd, &st) < 0)
		return;
	page = (uint64_t)st.st_blksize; /* a hole takes whole huge pages */
	at = at / page * page;
	while (!is_thrown_out(v)) {
		if (seconds() > end)
			violated("holes are not noticed");
		punch(v->arena_fd, at, last / page * page + page - at);
		if (seconds() < filled)
			((_Atomic uint8_t *)v->arena)[at] = ((_Atomic uint8_t *)v->arena)[last] = 0;
		ring(v);
	}
}

/* Enough waiters on the doorbell that ringing it takes milliseconds. */
void
do_waiters(struct victim *v)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLET};
	double end = seconds() + 20;
	int bell[200], set[200];

	for (unsigned i = 0; i < 200; i++)
		bell[i] = dup(v->doorbell);
	for (unsigned k = 0; k < 200; k++) {
		set[k] = epoll_create1(EPOLL_CLOEXEC);
		for (unsigned i = 0; i < 200; i++)
			epoll_ctl(set[k], EPOLL_CTL_ADD, bell[i], &event);
	}
	while (!is_thrown_out(v)) {
		if (seconds() > end)
			violated("doorbells that take long to ring are not noticed");
		atomic_store(&channel(v)->rx_sleeping, 1);
		if (open_conn(v) < 0) /* and the engine tells of it, with a ring */
			break;
		usleep(1000);
	}
	for (unsigned k = 0; k < 200; k++) {
		close(bell[k]);
		close(set[k]);
	}
}

static void
fill(struct weir_ring *r, const struct weir_slot *s)
{
	weir_ring_refresh(r);
	while (weir_ring_room(r)) {
		memcpy((char *)weir_ring_at(r, r->pos) + 4, (const char *)s + 4, 60);
		weir_ring_publish(r, 1);
	}
}

/* All the channels that there are, always full of slots that are allowed and do nothing. */
void
do_junk(struct victim *v)
{
	struct weir_session_msg m = {.type = WEIR_MSG_ADD_CHANNEL}, r;
	struct weir_ring tx[32], returns[32];
	uint32_t gone;
	unsigned n = 0;
	double end = seconds() + 0.5;
	int fds[WEIR_SESSION_FDS];

	if (open_conn(v) < 0)
		return;
	gone = v->vqpn ^ WEIR_VQPN(0, 0x800);
	m.length = weir_session_length(m.type);
	m.add_channel.engine = v->engine;
	for (v->channel = 0; v->channel < v->geometry.channels && v->channel < 32; v->channel++) {
		if (v->channel &&
		    (ask(v->sock, &m, m.length, &r, fds) < 0 || r.type != WEIR_MSG_CHANNEL))
			break;
		start_tx(v);
		tx[n] = v->tx;
		returns[n++] = v->returns;
		if (v->channel) {
			close(fds[0]);
			close(fds[1]);
		}
	}
	while (seconds() < end) {
		struct weir_slot s = {.op = WEIR_OP_INLINE, .vqpn = gone, .length = 8};

		for (unsigned i = 0; i < n; i++) {
			s.op = i % 2 ? WEIR_OP_INLINE : WEIR_OP_WANT;
			fill(&tx[i], &s);
			s.op = WEIR_OP_CONSUMED;
			fill(&returns[i], &s);
		}
		ring(v);
		usleep(100); /* takes the engine's time, not the CPU's */
	}
}

/* A doorbell that blocks, is full, is shut down; sleep flags that stay up. */
void
do_doorbell(struct victim *v)
{
	struct weir_channel_head *h = channel(v);

	atomic_store(&h->rx_sleeping, 1);
	fcntl(v->doorbell, F_SETFL, fcntl(v->doorbell, F_GETFL) & ~O_NONBLOCK);
	open_conn(v);
	for (unsigned i = 0; i < 2000; i++) {
		atomic_store(&h->rx_sleeping, 1);
		send(v->doorbell, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
		ring(v);
		if (i == 1500)
			shutdown(v->doorbell, rng() % 3);
		if (i % 100 == 0)
			usleep(1000);
	}
}

/* Takes all answers, and adds their cost to *consumed. */
static void
take_answers(struct weir_ring *rx, uint64_t *consumed)
{
	struct weir_slot *s;

	while ((s = weir_ring_peek(rx))) {
		uint32_t n = s->op == WEIR_OP_INLINE ? weir_slots_inline(s->length) : 1;

		if (s->op == WEIR_OP_INLINE)
			*consumed += weir_cost(s->length);
		weir_ring_pop(rx, n);
	}
	weir_ring_publish_tail(rx);
}

/* A well-formed 8-byte message, or with CONSUMED what we took. */
static void
put_plain(struct victim *v, uint8_t op, uint16_t order, uint64_t value)
{
	struct weir_ring *r = op == WEIR_OP_CONSUMED ? &v->returns : &v->tx;
	struct weir_slot *s = next_slot(r, op, order, v->vqpn, op == WEIR_OP_INLINE ? 8 : 0);

	s->value = value;
	s->status = s->extra = 0;
	weir_ring_publish(r, 1);
}

/* Awake, and says that it sleeps, while an echo answers: a doorbell for everything that comes. */
void
do_flags(struct victim *v)
{
	struct weir_channel_head *h = channel(v);
	uint64_t consumed = 0, told = 0;
	double end = seconds() + 0.3;
	struct weir_ring rx;
	uint16_t order = 0;

	open_conn(v);
	start_tx(v);
	weir_ring_init(&rx, (struct weir_slot *)(h + 1) + v->geometry.ring_slots,
		       v->geometry.ring_slots, &h->rx_tail, false);
	usleep(2000);
	while (seconds() < end) {
		atomic_store(&h->rx_sleeping, 1);
		if (weir_ring_room(&v->tx) > 2 || weir_ring_refresh(&v->tx)) {
			if (weir_ring_room(&v->tx) > 2 && order < 60000)
				put_plain(v, WEIR_OP_INLINE, order++, 0);
			weir_ring_refresh(&v->returns);
			if (weir_ring_room(&v->returns) && consumed != told)
				put_plain(v, WEIR_OP_CONSUMED, 0, told = consumed);
		}
		ring(v);
		take_answers(&rx, &consumed);
		usleep(50);
	}
}

struct flipper {
	struct victim *v;
	_Atomic uint64_t pos; /* do_descriptors() writes, flip() reads */
	_Atomic bool stop;
};

/* Rewrites the fields of the last slots while the engine may read them. */
static void *
flip(void *arg)
{
	struct flipper *f = arg;
	uint64_t x = 88172645463325252ull;
	uint64_t bytes = f->v->geometry.bytes;

	for (unsigned i = 1; !atomic_load(&f->stop); i++) {
		uint64_t pos = atomic_load(&f->pos);
		_Atomic uint64_t *line;

		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		line = (_Atomic uint64_t *)weir_ring_at(&f->v->tx, pos - x % 8);
		switch (x >> 60) {
		case 0: /* vqpn and length */
			atomic_store(&line[1], f->v->vqpn | (x & 0x3ffffff) << 32);
			break;
		case 1: /* place */
			atomic_store(&line[2], x >> 8 & (2 * bytes - 1));
			break;
		case 2: /* the flags beside sequence and op */
			atomic_fetch_xor((_Atomic uint8_t *)line + 5, (uint8_t)(x >> 8 & 3));
			break;
		default:
			__asm__ __volatile__("pause");
		}
		if (i % 1024 == 0) /* leaves others the CPU */
			usleep(100);
	}
	return NULL;
}

/* Descriptors rewritten while the engine reads them: what it checks must be what it uses. */
void
do_descriptors(struct victim *v)
{
	uint64_t send_at = weir_arena_send(&v->geometry);
	struct flipper f = {.v = v};
	double end = seconds() + 0.1;
	uint16_t order = 0;
	pthread_t thread;

	open_conn(v);
	start_tx(v);
	usleep(2000);
	if (pthread_create(&thread, NULL, flip, &f))
		return;
	while (seconds() < end) {
		struct weir_slot *s;

		if (!tx_room(v)) {
			usleep(20);
			continue;
		}
		s = next_slot(&v->tx, WEIR_OP_PLACE, order++, v->vqpn,
			      949 + (uint32_t)(rng() % 7000));
		s->place[0] = WEIR_PLACE(0, send_at + rng() % 8 * WEIR_BLOCK_SIZE);
		atomic_store(&f.pos, v->tx.pos);
		weir_ring_publish(&v->tx, 1);
		ring(v);
		usleep(5);
	}
	atomic_store(&f.stop, true);
	pthread_join(thread, NULL);
}

/* Rewrites the payload of the last slots, but not their heads. */
static void *
spoil(void *arg)
{
	struct flipper *f = arg;
	uint64_t x = 88172645463325252ull;

	for (unsigned i = 1; !atomic_load(&f->stop); i++) {
		struct weir_slot *s;

		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		s = weir_ring_at(&f->v->tx, atomic_load(&f->pos) - 1 - x % 64);
		if (s->op == WEIR_OP_INLINE)
			atomic_store((_Atomic uint32_t *)(void *)(s->data + (x >> 8) % 12 * 4),
				     (uint32_t)(x >> 32));
		if (i % 65536 == 0)
			usleep(200);
	}
	return NULL;
}

/* Small messages, all of them sound, whose payload changes on the way. */
void
do_rewrite(struct victim *v)
{
	struct flipper f = {.v = v};
	double end = seconds() + 1;
	uint16_t order = 0;
	pthread_t thread;

	if (open_conn(v) < 0 || v->segment) { /* a local peer's ring: do_segment() */
		usleep(10000);
		return;
	}
	start_tx(v);
	usleep(2000);
	if (pthread_create(&thread, NULL, spoil, &f))
		return;
	while (seconds() < end) {
		if (weir_ring_room(&v->tx) < 8 && !weir_ring_refresh(&v->tx)) {
			usleep(20);
			continue;
		}
		for (unsigned i = 0; i < 8 && weir_ring_room(&v->tx); i++) {
			next_slot(&v->tx, WEIR_OP_INLINE, order++, v->vqpn,
				  8 + (uint32_t)(rng() % 41));
			weir_ring_publish(&v->tx, 1);
		}
		atomic_store(&f.pos, v->tx.pos);
		ring(v);
		usleep(20);
	}
	atomic_store(&f.stop, true);
	pthread_join(thread, NULL);
}

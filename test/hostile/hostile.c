/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that attaches and then breaks every rule it can: what the data plane and local peers
 * must survive. It speaks the session protocol itself, so that nothing of the library protects the
 * victim.
 *
 *   hostile INSTANCE MODE SECONDS [SEED] [ADDRESS]
 *
 * Each mode repeats until the time is over, attaching again whenever the data plane has thrown it
 * out. It takes little CPU itself, so that what others lose they lose to what it does. Exit 0: the
 * time is over and the data plane still answers a fresh attach. 1: it doesn't. 2: usage.
 */
#define _GNU_SOURCE
#include "common/session_msg.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

struct victim {
	int sock, arena_fd, doorbell, segment_fd, segment_doorbell;
	uint8_t *arena, *segment;
	struct weir_geometry geometry;
	struct weir_segment_geometry segment_geometry;
	uint32_t channel, vqpn, peer_vqpn, side;
	struct weir_ring tx, returns;
};

static const char *instance, *target;
static uint64_t rng_state;

static uint64_t
rng(void)
{
	rng_state ^= rng_state << 13;
	rng_state ^= rng_state >> 7;
	rng_state ^= rng_state << 17;
	return rng_state;
}

static double
seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static int
dial(void)
{
	const char *dir = getenv("WEIR_RUN_DIR");
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	snprintf(sun.sun_path, sizeof(sun.sun_path), "%s/%s/session.sock", dir ? dir : "/run/weir",
		 instance);
	if (connect(fd, (struct sockaddr *)&sun, sizeof(sun)) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

/* One packet out, one in (5 s at most), with up to two descriptors. Returns its length or -1. */
static ssize_t
ask(int sock, const void *request, size_t length, struct weir_session_msg *reply, int fds[2])
{
	union {
		char buf[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {.iov_base = reply, .iov_len = sizeof(*reply)};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.buf,
			     .msg_controllen = sizeof(control.buf)};
	struct pollfd pfd = {.fd = sock, .events = POLLIN};
	struct cmsghdr *c;
	ssize_t n;

	fds[0] = fds[1] = -1;
	if (send(sock, request, length, MSG_NOSIGNAL) < 0 || poll(&pfd, 1, 5000) != 1)
		return -1;
	n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	if (n <= 0)
		return -1;
	c = CMSG_FIRSTHDR(&msg);
	if (c && c->cmsg_type == SCM_RIGHTS)
		memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
	return n;
}

static void
drop(struct victim *v)
{
	int fds[] = {v->sock, v->arena_fd, v->doorbell, v->segment_fd, v->segment_doorbell};

	if (v->arena)
		munmap(v->arena, v->geometry.bytes);
	if (v->segment)
		munmap(v->segment, v->segment_geometry.bytes);
	for (unsigned i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	*v = (struct victim){-1, -1, -1, -1, -1};
}

static int
attach(struct victim *v)
{
	struct weir_session_msg m = {.type = WEIR_MSG_HELLO}, r;
	int fds[2];

	*v = (struct victim){-1, -1, -1, -1, -1};
	v->sock = dial();
	if (v->sock < 0)
		return -1;
	m.length = weir_session_length(m.type);
	m.hello.magic = WEIR_SESSION_MAGIC;
	m.hello.version_min = WEIR_SESSION_VERSION_MIN;
	m.hello.version_max = WEIR_SESSION_VERSION_MAX;
	memcpy(m.hello.name, "hostile", sizeof("hostile"));
	if (ask(v->sock, &m, m.length, &r, fds) < 0 || r.type != WEIR_MSG_WELCOME)
		goto err;
	v->arena_fd = fds[0];
	v->geometry = r.welcome.geometry;
	v->arena = mmap(NULL, v->geometry.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	if (v->arena == MAP_FAILED) {
		v->arena = NULL;
		goto err;
	}
	memset(&m, 0, sizeof(m));
	m.type = WEIR_MSG_ADD_CHANNEL;
	m.length = weir_session_length(m.type);
	m.add_channel.engine = UINT32_MAX;
	if (ask(v->sock, &m, m.length, &r, fds) < 0 || r.type != WEIR_MSG_CHANNEL)
		goto err;
	v->channel = r.channel.channel;
	v->doorbell = fds[0];
	return 0;
err:
	drop(v);
	return -1;
}

static struct weir_channel_head *
channel(struct victim *v)
{
	return (struct weir_channel_head *)(v->arena +
					    weir_arena_channel(&v->geometry, v->channel));
}

static int
open_conn(struct victim *v)
{
	struct weir_session_msg m = {.type = WEIR_MSG_CONNECT}, r;
	uint32_t segment;
	int fds[2];

	m.length = weir_session_length(m.type);
	m.connect.channel = v->channel;
	if (!target || weir_address_parse(target, &m.connect.address) < 0)
		return -1;
	if (ask(v->sock, &m, m.length, &r, fds) < 0 || r.type != WEIR_MSG_CONNECTING)
		return -1;
	v->vqpn = r.connecting.vqpn;
	v->peer_vqpn = r.connecting.peer_vqpn;
	segment = r.connecting.segment;
	if (!segment)
		return 0;
	memset(&m, 0, sizeof(m));
	m.type = WEIR_MSG_SEGMENT;
	m.length = weir_session_length(m.type);
	m.segment.segment = segment;
	if (ask(v->sock, &m, m.length, &r, fds) < 0 || r.type != WEIR_MSG_SEGMENT_MAP)
		return -1;
	v->segment_fd = fds[0];
	v->segment_doorbell = fds[1];
	v->segment_geometry = r.segment_map.geometry;
	v->side = r.segment_map.side;
	v->segment =
	    mmap(NULL, v->segment_geometry.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	if (v->segment == MAP_FAILED)
		v->segment = NULL;
	return v->segment ? 0 : -1;
}

static void
start_tx(struct victim *v)
{
	struct weir_channel_head *h = channel(v);

	weir_ring_init(&v->tx, h + 1, v->geometry.ring_slots, &h->tx_tail, true);
	weir_ring_init(&v->returns, (struct weir_slot *)(h + 1) + 2 * v->geometry.ring_slots,
		       WEIR_RETURN_SLOTS, &h->return_tail, true);
}

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
				      WEIR_OP_BIND,
				      WEIR_OP_POST,
				      0,
				      WEIR_OP_DONE,
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
	send(v->doorbell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void
do_garbage(struct victim *v)
{
	open_conn(v);
	start_tx(v);
	for (unsigned i = 0; i < 64; i++)
		put_garbage(v, i);
	usleep(2000);
}

/* Cursors that run backwards, ahead, wrap. */
static void
do_cursors(struct victim *v)
{
	static const uint64_t lies[] = {1, UINT64_MAX, 1ull << 63, 1ull << 32, 4097, 12345678};
	struct weir_channel_head *h = channel(v);

	open_conn(v);
	for (unsigned i = 0; i < 200; i++) {
		atomic_store(&h->rx_tail, lies[rng() % 6]);
		atomic_store(&h->tx_tail, lies[rng() % 6]);
		send(v->doorbell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
		usleep(20);
	}
}

/* Every shared word of the arena, over and over, while messages are under way. */
static void
do_scribble(struct victim *v)
{
	uint64_t words = weir_arena_recv(&v->geometry) / 8;

	open_conn(v);
	for (unsigned i = 0; i < 20000; i++)
		((_Atomic uint64_t *)v->arena)[rng() % words] = rng();
	send(v->doorbell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	usleep(500);
}

/* Payloads rewritten while the engine and the NIC carry them. */
static void
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

		if (!weir_ring_room(&v->tx) &&
		    (!weir_ring_refresh(&v->tx) || !weir_ring_room(&v->tx))) {
			usleep(50);
			continue;
		}
		s = weir_ring_at(&v->tx, v->tx.pos);
		s->op = WEIR_OP_PLACE;
		s->flags = rng() % 4 ? 0 : WEIR_SLOT_BULK;
		s->order = order++;
		s->vqpn = v->vqpn;
		s->length = 949 + (uint32_t)(rng() % 60000);
		s->flags |= s->length > WEIR_BLOCK_SIZE ? WEIR_SLOT_BULK : 0;
		s->place[0] = WEIR_PLACE(0, send_at + rng() % 8 * WEIR_BLOCK_SIZE);
		weir_ring_publish(&v->tx, 1);
		send(v->doorbell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
		for (unsigned k = 0; k < 64; k++)
			((_Atomic uint64_t *)(v->arena + send_at))[rng() % (bytes / 64)] = rng();
		usleep(300); /* a share of the engine that is fair is not what this is about */
	}
}

/* Pages of the memory taken away under the data plane. */
static void
do_punch(struct victim *v)
{
	open_conn(v);
	start_tx(v);
	for (unsigned i = 0; i < 50; i++) {
		uint64_t at = rng() % (v->geometry.bytes >> 21) << 21;

		fallocate(v->arena_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			  (off_t)(i ? at : 0), 2 << 20);
		put_garbage(v, i);
		usleep(100);
	}
	fallocate(v->arena_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
		  (off_t)v->geometry.bytes);
	usleep(1000);
	if (ftruncate(v->arena_fd, 4096) == 0)
		fprintf(stderr, "hostile: the arena could be shrunk; seal it\n"), exit(1);
}

/* A doorbell that blocks, is full, is shut down; sleep flags that stay up. */
static void
do_doorbell(struct victim *v)
{
	struct weir_channel_head *h = channel(v);

	atomic_store(&h->rx_sleeping, 1);
	fcntl(v->doorbell, F_SETFL, fcntl(v->doorbell, F_GETFL) & ~O_NONBLOCK);
	open_conn(v);
	for (unsigned i = 0; i < 2000; i++) {
		atomic_store(&h->rx_sleeping, 1);
		send(v->doorbell, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (i == 1500)
			shutdown(v->doorbell, rng() % 3);
		if (i % 100 == 0)
			usleep(1000);
	}
}

/* Answers that arrived: taken, and their cost in *consumed. */
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
	struct weir_slot *s = weir_ring_at(r, r->pos);

	s->op = op;
	s->flags = 0;
	s->order = order;
	s->vqpn = v->vqpn;
	s->length = 8;
	s->value = value;
	s->status = s->extra = 0;
	weir_ring_publish(r, 1);
}

/* Awake, and says that it sleeps, while an echo answers: a doorbell for everything that comes. */
static void
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
		send(v->doorbell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
		take_answers(&rx, &consumed);
		usleep(50);
	}
}

struct flipper {
	struct victim *v;
	_Atomic uint64_t pos; /* do_descriptors() writes, flip() reads */
	_Atomic bool stop;
};

/* Rewrites the fields of what was published last, for as long as it may be looked at. */
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
		if (i % 1024 == 0) /* not the CPU is to be taken from others */
			usleep(100);
	}
	return NULL;
}

/* Descriptors rewritten while the engine reads them: what it checks must be what it uses. */
static void
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
		struct weir_slot *s = weir_ring_at(&v->tx, v->tx.pos);

		if (!weir_ring_room(&v->tx) &&
		    (!weir_ring_refresh(&v->tx) || !weir_ring_room(&v->tx))) {
			usleep(20);
			continue;
		}
		s->op = WEIR_OP_PLACE;
		s->flags = 0;
		s->order = order++;
		s->vqpn = v->vqpn;
		s->length = 949 + (uint32_t)(rng() % 7000);
		s->place[0] = WEIR_PLACE(0, send_at + rng() % 8 * WEIR_BLOCK_SIZE);
		atomic_store(&f.pos, v->tx.pos);
		weir_ring_publish(&v->tx, 1);
		send(v->doorbell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
		usleep(5);
	}
	atomic_store(&f.stop, true);
	pthread_join(thread, NULL);
}

/* The payload in the slots of what was published last, and not a bit of the heads. */
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
static void
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
			struct weir_slot *s = weir_ring_at(&v->tx, v->tx.pos);

			s->op = WEIR_OP_INLINE;
			s->flags = 0;
			s->order = order++;
			s->vqpn = v->vqpn;
			s->length = 8 + (uint32_t)(rng() % 41);
			weir_ring_publish(&v->tx, 1);
		}
		atomic_store(&f.pos, v->tx.pos);
		send(v->doorbell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
		usleep(20);
	}
	atomic_store(&f.stop, true);
	pthread_join(thread, NULL);
}

/* Well-formed requests that come to nothing, as fast as they are answered. */
static void
do_requests(struct victim *v)
{
	struct weir_session_msg m, r;
	double end = seconds() + 0.5;
	int fds[2];

	for (unsigned i = 0; seconds() < end; i++) {
		memset(&m, 0, sizeof(m));
		switch (i % 4) {
		case 0:
			m.type = WEIR_MSG_CONNECT;
			m.connect.channel = v->channel;
			m.connect.address = (struct weir_address){
			    .kind = WEIR_ADDRESS_NODE, .id = (uint32_t)(rng() % 4), .service = "x"};
			break;
		case 1:
			m.type = WEIR_MSG_LISTEN;
			m.listen.flags = (uint32_t)(rng() % 2);
			snprintf(m.listen.service, sizeof(m.listen.service), "h-%llx",
				 (unsigned long long)rng());
			break;
		case 2:
			m.type = WEIR_MSG_FIND;
			m.find.from = (uint32_t)rng();
			m.find.flags = (uint32_t)(rng() % 3);
			snprintf(m.find.service, sizeof(m.find.service), "x");
			break;
		default:
			m.type = WEIR_MSG_SEGMENT;
			m.segment.segment = (uint32_t)rng();
		}
		m.length = weir_session_length(m.type);
		if (ask(v->sock, &m, m.length, &r, fds) < 0)
			return;
		if (r.type == WEIR_MSG_LISTENING) {
			m = r;
			m.type = WEIR_MSG_UNLISTEN;
			m.length = weir_session_length(m.type);
			if (ask(v->sock, &m, m.length, &r, fds) < 0)
				return;
		}
	}
}

/* Session messages of every type with random contents and lengths. */
static void
do_messages(struct victim *v)
{
	struct weir_session_msg m, r;
	int fds[2];

	for (unsigned i = 0; i < 50; i++) {
		size_t length;

		for (size_t k = 0; k < sizeof(m); k += 8) {
			uint64_t x = rng() >> (rng() % 64);

			memcpy((char *)&m + k, &x, sizeof(m) - k < 8 ? sizeof(m) - k : 8);
		}
		m.type = (uint32_t)(rng() % 12);
		length = weir_session_length(m.type);
		if (!length || rng() % 4 == 0)
			length = 1 + rng() % sizeof(m);
		m.length = (uint32_t)length;
		if (ask(v->sock, &m, length, &r, fds) < 0)
			return;
		for (unsigned k = 0; k < 2; k++)
			if (fds[k] >= 0)
				close(fds[k]);
	}
}

/* The segment shared with a local peer, all of it. Needs ADDRESS of a local listener. */
static void
do_segment(struct victim *v)
{
	uint64_t words;

	if (open_conn(v) < 0 || !v->segment) {
		usleep(1000);
		return;
	}
	words = v->segment_geometry.bytes / 8;
	for (unsigned i = 0; i < 30000; i++) {
		uint64_t ring = weir_segment_ring_at(&v->segment_geometry, 0) / 8;

		((_Atomic uint64_t *)v->segment)[rng() % 4 ? ring + rng() % 64 : rng() % words] =
		    rng() % 2 ? rng() : rng() % 4;
	}
	fallocate(v->segment_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
		  (off_t)v->segment_geometry.bytes);
	shutdown(v->segment_doorbell, SHUT_RDWR);
	usleep(500);
}

static int
adopt(struct victim *v, uint64_t bytes, uint32_t flags, struct weir_session_msg *r)
{
	struct weir_session_msg m = {.type = WEIR_MSG_ADOPT};
	int fds[2];

	m.length = weir_session_length(m.type);
	m.adopt.bytes = bytes;
	m.adopt.flags = flags;
	if (ask(v->sock, &m, m.length, r, fds) < 0 || r->type != WEIR_MSG_REGION)
		return -1;
	return fds[0];
}

static void
disown(struct victim *v, uint32_t region)
{
	struct weir_session_msg m = {.type = WEIR_MSG_DISOWN}, r;
	int fds[2];

	m.length = weir_session_length(m.type);
	m.region.region = region;
	ask(v->sock, &m, m.length, &r, fds);
}

/* Large messages out of region 1, posts of region 2 for messages to come, some of them wrong. */
static void
put_places(struct victim *v, uint64_t bytes, bool wrong)
{
	for (unsigned i = 0; i < 24; i++) {
		bool post = i % 3 == 2;
		struct weir_ring *ring = post ? &v->returns : &v->tx;
		struct weir_slot *s = weir_ring_at(ring, ring->pos);

		s->op = post ? WEIR_OP_POST : WEIR_OP_PLACE;
		s->flags = post ? 0 : WEIR_SLOT_BULK;
		s->order = post ? 0 : (uint16_t)(i - i / 3);
		s->vqpn = v->vqpn;
		s->length = 9000 + (uint32_t)(rng() % (bytes / 2));
		s->place[0] = WEIR_PLACE(post ? 2 : 1, rng() % (bytes / 2 - 9000));
		s->place[1] = i;
		if (wrong && rng() % 8 == 0)
			s->place[rng() % 2] = rng() >> rng() % 64;
		weir_ring_publish(ring, 1);
	}
	send(v->doorbell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Memory adopted, misnamed, taken back under messages and posts, and full of holes. */
static void
do_adopt(struct victim *v)
{
	uint64_t bytes = 1 << 20;
	struct weir_session_msg r;
	unsigned how = (unsigned)(rng() % 4);
	int fd[2];

	open_conn(v);
	start_tx(v);
	fd[0] = adopt(v, bytes, how == 1 ? 2 : 3, &r);
	fd[1] = adopt(v, bytes, 3, &r);
	for (unsigned i = 0; how == 2 && i < 300; i++) /* beyond the limits */
		close(adopt(v, rng() >> rng() % 64, (uint32_t)rng() % 8, &r));
	usleep(2000);
	put_places(v, bytes, how == 0);
	usleep((useconds_t)(rng() % 300));
	if (how == 3)
		for (unsigned i = 0; i < 2; i++)
			fallocate(fd[i], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
				  (off_t)bytes);
	for (uint32_t i = 0; i < 4; i++)
		disown(v, (uint32_t)(rng() % 3));
	for (unsigned i = 0; i < 2; i++) {
		if (fd[i] >= 0 && ftruncate(fd[i], 4096) == 0)
			fprintf(stderr, "hostile: a region could be shrunk; seal it\n"), exit(1);
		close(fd[i]);
	}
}

static const struct {
	const char *name;
	void (*run)(struct victim *v);
} modes[] = {
    {"garbage", do_garbage},   {"cursors", do_cursors},
    {"scribble", do_scribble}, {"payload", do_payload},
    {"punch", do_punch},       {"doorbell", do_doorbell},
    {"messages", do_messages}, {"segment", do_segment},
    {"flags", do_flags},       {"descriptors", do_descriptors},
    {"requests", do_requests}, {"rewrite", do_rewrite},
    {"adopt", do_adopt},
};

static int
usage(void)
{
	fprintf(stderr, "usage: hostile INSTANCE MODE|all SECONDS [SEED] [ADDRESS]; modes:");
	for (unsigned i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		fprintf(stderr, " %s", modes[i].name);
	fprintf(stderr, "\n");
	return 2;
}

int
main(int argc, char **argv)
{
	unsigned count = sizeof(modes) / sizeof(modes[0]), rounds = 0, failures = 0, i;
	struct victim v;
	double end;

	if (argc < 4)
		return usage();
	instance = argv[1];
	end = seconds() + strtod(argv[3], NULL);
	rng_state = argc > 4 ? strtoull(argv[4], NULL, 0) : 1;
	rng_state = rng_state * 0x9e3779b97f4a7c15ull + 1;
	target = argc > 5 ? argv[5] : NULL;
	for (i = 0; i < count && strcmp(argv[2], modes[i].name); i++)
		;
	if (i == count && strcmp(argv[2], "all"))
		return usage();
	while ((seconds() < end || !rounds) && failures < 200) {
		if (attach(&v) < 0) {
			failures++;
			usleep(20000);
			continue;
		}
		failures = 0;
		modes[i < count ? i : rounds % count].run(&v);
		rounds++;
		drop(&v);
	}
	for (unsigned k = 0; k < 100 && attach(&v) < 0; k++)
		usleep(20000);
	if (v.sock < 0) {
		fprintf(stderr, "hostile: %s: the data plane no longer lets anybody attach\n",
			argv[2]);
		return 1;
	}
	drop(&v);
	printf("hostile: %s: %u rounds, seed %s\n", argv[2], rounds, argc > 4 ? argv[4] : "1");
	return rounds ? 0 : 1;
}

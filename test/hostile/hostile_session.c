/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests to the data plane, segments and memory of its own. */
#define _GNU_SOURCE
#include "hostile.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* Well-formed requests that fail, as fast as they are answered. */
void
do_requests(struct victim *v)
{
	struct weir_session_msg m, r;
	double end = seconds() + 0.5;
	int fds[FDS];

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
void
do_messages(struct victim *v)
{
	struct weir_session_msg m, r;
	int fds[FDS];

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
	}
}

/* The segment shared with a local peer, all of it. Needs ADDRESS of a local listener. */
void
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
	punch(v->segment_fd, 0, v->segment_geometry.bytes);
	shutdown(v->segment_doorbell, SHUT_RDWR);
	usleep(500);
}

int
adopt(struct victim *v, uint64_t bytes, uint32_t flags, struct weir_session_msg *r)
{
	struct weir_session_msg m = {.type = WEIR_MSG_ADOPT};
	int fds[FDS];

	m.length = weir_session_length(m.type);
	m.adopt.bytes = bytes;
	m.adopt.flags = flags;
	m.adopt.numa_node = flags & WEIR_ADOPT_NEW ? (int32_t)(rng() % 8) - 1 : -1;
	if (ask(v->sock, &m, m.length, r, fds) < 0 || r->type != WEIR_MSG_REGION)
		return -1;
	return fds[0];
}

void
disown(struct victim *v, uint32_t region)
{
	struct weir_session_msg m = {.type = WEIR_MSG_DISOWN}, r;
	int fds[FDS];

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
		struct weir_ring *to = post ? &v->returns : &v->tx;
		struct weir_slot *s = next_slot(to, post ? WEIR_OP_POST : WEIR_OP_PLACE,
						post ? 0 : (uint16_t)(i - i / 3), v->vqpn,
						9000 + (uint32_t)(rng() % (bytes / 2)));

		s->flags = post ? 0 : WEIR_SLOT_BULK;
		s->place[0] = WEIR_PLACE(post ? 2 : 1, rng() % (bytes / 2 - 9000));
		s->place[1] = i;
		if (wrong && rng() % 8 == 0)
			s->place[rng() % 2] = rng() >> rng() % 64;
		weir_ring_publish(to, 1);
	}
	ring(v);
}

/* Memory adopted, misnamed, taken back under messages and posts, and full of holes. */
void
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
		adopt(v, rng() >> rng() % 64, (uint32_t)rng() % 0x1000, &r);
	usleep(2000);
	put_places(v, bytes, how == 0);
	usleep((useconds_t)(rng() % 300));
	if (how == 3)
		for (unsigned i = 0; i < 2; i++)
			punch(fd[i], 0, bytes);
	for (uint32_t i = 0; i < 4; i++)
		disown(v, (uint32_t)(rng() % 3));
	for (unsigned i = 0; i < 2; i++) {
		if (fd[i] >= 0 && ftruncate(fd[i], 4096) == 0)
			violated("a region could be shrunk; seal it");
	}
}

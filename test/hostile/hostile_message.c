/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams to a messenger's service that speak as messengers do, lib/message/header.h, and lie. */
#define _GNU_SOURCE
#include "hostile.h"

#include "message/header.h"
#include "weir/stream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE (1u << 20) /* a whole message at most: WEIR_MESSAGE_WHOLE */
#define LANES 6u
#define WAIT_MS 3000

static uint8_t room[HEADER_LONG + sizeof(struct message_fragment) + PIECE];

/* Types that courier handles. */
#define TYPE(n) ((uint16_t)(1u << 8 | (n)))

struct weir *
join(void)
{
	struct weir_options o = {
	    .size = sizeof(o), .instance = instance_name(), .arena = 16u << 20};
	struct weir *w = NULL;
	int rc = weir_attach(&o, &w);

	if (rc) {
		tally(1, "not attached (%s)", strerrorname_np(-rc));
		usleep(20000);
	}
	return rc ? NULL : w;
}

static struct weir_conn *
lane(struct weir *w)
{
	struct weir_address a;
	struct weir_conn *c;
	int rc;

	if (!target_address(&a))
		return NULL;
	rc = weir_connect(w, &a, WAIT_MS, &c);
	if (!rc)
		return c;
	tally(1, "not connected (%s)", strerrorname_np(-rc));
	usleep(20000);
	return NULL;
}

static int
say(struct weir_conn *c, const struct message_header *h, const void *more, size_t length)
{
	uint8_t buf[HEADER_LONG + 64];

	memcpy(buf, h, HEADER_LONG);
	memcpy(buf + HEADER_LONG, more, length);
	return weir_send(c, buf, HEADER_LONG + length, WAIT_MS);
}

/* Receivers: 0 for a client, which speaks for no node. */
static int
greet(struct weir_conn *c, uint64_t incarnation, uint32_t receivers)
{
	struct message_header h = {
	    .kind = KIND_HELLO, .type = MESSAGE_VERSION, .status = receivers, .id = incarnation};
	struct message_hello more = {.key = rng()};

	return say(c, &h, &more, sizeof(more));
}

/* A piece whose bytes a wrong receiver recognizes. */
static int
piece(struct weir_conn *c, uint8_t kind, uint16_t type, uint64_t id, uint64_t total,
      uint64_t offset, uint32_t bytes)
{
	struct message_header h = {.kind = KIND_FRAGMENT, .flags = kind, .type = type, .id = id};
	struct message_fragment p = {.total = total, .offset = offset};

	memcpy(room, &h, HEADER_LONG);
	memcpy(room + HEADER_LONG, &p, sizeof(p));
	memset(room + HEADER_LONG + sizeof(p), (int)type, bytes);
	return weir_send(c, room, HEADER_LONG + sizeof(p) + bytes, WAIT_MS);
}

/* How the other end takes it: closes the lane, answers, or says nothing. */
static void
outcome(struct weir_conn *c, const char *what)
{
	static uint8_t answer[2 * PIECE];
	size_t length;
	int rc;

	/* its HELLO, answers, then the end or silence */
	do
		rc = weir_recv(c, answer, sizeof(answer), &length, 200);
	while (!rc);
	if (rc == -EAGAIN)
		tally(1, "%s: lane stays", what);
	else
		tally(1, "%s: lane ended (%s)", what, strerrorname_np(-rc));
}

/* A message whose pieces disagree about what it is, in each way, on a lane of its own; before them
 * one whose pieces agree. */
void
do_pieces(struct victim *v)
{
	static const struct {
		const char *what;
		uint8_t kind[2];
		uint16_t type[2];
		uint64_t id[2], total[2];
		uint32_t bytes[2];
	} lies[] = {
	    /* TYPE(6) has a place(), TYPE(2) answers and has none */
	    {"agreed", {1, 1}, {TYPE(6), TYPE(6)}, {0, 0}, {PIECE + 64, PIECE + 64}, {PIECE, 64}},
	    {"type", {1, 1}, {TYPE(6), TYPE(1)}, {0, 0}, {PIECE + 64, PIECE + 64}, {PIECE, 64}},
	    {"type", {1, 1}, {TYPE(1), TYPE(6)}, {0, 0}, {PIECE + 64, PIECE + 64}, {PIECE, 64}},
	    {"type", {2, 2}, {TYPE(2), TYPE(6)}, {7, 7}, {PIECE + 64, PIECE + 64}, {PIECE, 64}},
	    {"kind", {1, 2}, {TYPE(6), TYPE(6)}, {0, 5}, {PIECE + 64, PIECE + 64}, {PIECE, 64}},
	    {"kind", {2, 1}, {TYPE(2), TYPE(2)}, {9, 0}, {PIECE + 64, PIECE + 64}, {PIECE, 64}},
	    {"id", {2, 2}, {TYPE(2), TYPE(2)}, {3, 4}, {PIECE + 64, PIECE + 64}, {PIECE, 64}},
	    {"total", {1, 1}, {TYPE(6), TYPE(6)}, {0, 0}, {PIECE + 64, PIECE + 32}, {PIECE, 32}},
	    {"short", {1, 1}, {TYPE(6), TYPE(6)}, {0, 0}, {1000, 1000}, {500, 500}},
	    {"whole", {1, 1}, {TYPE(6), TYPE(6)}, {0, 0}, {PIECE, PIECE}, {PIECE / 2, PIECE / 2}},
	    {"unknown", {1, 1}, {TYPE(6), TYPE(99)}, {0, 0}, {PIECE + 64, PIECE + 64}, {PIECE, 64}},
	};
	struct weir *w = join();
	struct weir_conn *c;

	for (unsigned i = 0; w && i < sizeof(lies) / sizeof(lies[0]); i++) {
		c = lane(w);
		if (!c)
			break;
		greet(c, 4711, i % 2); /* one and the same program all the time */
		if (!piece(c, lies[i].kind[0], lies[i].type[0], lies[i].id[0], lies[i].total[0], 0,
			   lies[i].bytes[0]))
			piece(c, lies[i].kind[1], lies[i].type[1], lies[i].id[1], lies[i].total[1],
			      lies[i].bytes[0], lies[i].bytes[1]);
		outcome(c, lies[i].what);
		weir_close(c);
	}
	weir_detach(w);
}

/* Speaks for the program of our node that has the service's name, again and again as a new one. */
void
do_impostor(struct victim *v)
{
	struct weir *w = join();
	double end = seconds() + (left() < 1 ? left() : 1);
	struct weir_conn *c;

	while (w && seconds() < end) {
		c = lane(w);
		if (!c)
			break;
		tally(greet(c, rng() | 1, (uint32_t)(rng() % 3)) == 0, "greetings");
		/* said in the name of others, too: good-bye */
		if (rng() % 2) {
			struct message_header bye = {.kind = KIND_BYE, .id = rng()};

			say(c, &bye, "", 0);
			tally(1, "good-byes");
		}
		usleep(2000);
		weir_close(c);
	}
	weir_detach(w);
}

/* Messages of 1 GiB that go on for 48 MiB and no further, on each lane. */
void
do_begun(struct victim *v)
{
	struct weir_conn *c[LANES] = {0};
	struct weir *w = join();
	uint64_t got[LANES] = {0};

	for (unsigned i = 0; w && i < LANES; i++) {
		c[i] = lane(w);
		if (c[i])
			greet(c[i], 4711, i % 2);
	}
	for (unsigned k = 0; k < 48; k++) {
		for (unsigned i = 0; i < LANES; i++) {
			int rc;

			if (!c[i] || got[i] < k * (uint64_t)PIECE)
				continue;
			rc = piece(c[i], KIND_MESSAGE, TYPE(1), 0, 1u << 30, got[i], PIECE);
			if (!rc)
				got[i] += PIECE;
			else
				tally(1, "lanes ended (%s)", strerrorname_np(-rc));
		}
	}
	for (unsigned i = 0; i < LANES; i++) {
		tally(got[i] >> 20, "MiB of messages begun");
		if (c[i])
			outcome(c[i], "begun");
	}
	if (w)
		hold();
	for (unsigned i = 0; i < LANES; i++)
		if (c[i])
			weir_close(c[i]);
	weir_detach(w);
}

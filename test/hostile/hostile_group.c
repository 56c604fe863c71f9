/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups of others: requests to the program that gathers the group at ADDRESS, of which this one
 * does not know the secret; lies as a member of the group "lure", which has none; lies as the one
 * that gathers the group "trap".
 */
#define _GNU_SOURCE
#include "hostile.h"

#include "group/exchange.h"
#include "group/join.h"
#include "weir/stream.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define WAIT_MS 500
#define SILENT 100u /* connections that say nothing, at the same time */
#define LARGEST 100000u

static uint8_t room[LARGEST];

static uint32_t
lie(void)
{
	static const uint32_t borders[] = {0, 1, 2, 3, 63, 64, 1u << 10, 1u << 31, ~0u - 1, ~0u};

	return rng() % 2 ? borders[rng() % (sizeof(borders) / sizeof(borders[0]))]
			 : (uint32_t)rng();
}

/* A message of others, one 32-bit field of which is wrong, or its length. Returns its bytes. */
static size_t
spoil(const void *message, size_t length)
{
	memset(room, (int)rng(), sizeof(room));
	memcpy(room, message, length);
	switch (rng() % 4) {
	case 0:
		return rng() % length;
	case 1:
		return length + 1 + rng() % (rng() % 2 ? 64 : LARGEST - length);
	default:
		memcpy(room + rng() % (length / 4) * 4, &(uint32_t){lie()}, 4);
		return length;
	}
}

static struct weir_conn *
dial_service(struct weir *w, const struct weir_address *a)
{
	struct weir_conn *c;
	int rc = weir_connect(w, a, WAIT_MS, &c);

	if (!rc)
		return c;
	tally(1, "not connected (%s)", strerrorname_np(-rc));
	usleep(2000);
	return NULL;
}

/* ---- at a group whose secret is not known ---- */

static void
ask_to_join(struct weir *w, const struct weir_address *a)
{
	const struct join_request right = {.magic = GROUP_MAGIC,
					   .version = GROUP_VERSION,
					   .size = (uint32_t)(2 + rng() % 2),
					   .rank = WEIR_RANK_ANY,
					   .self = {.id = rng()}};
	struct weir_conn *c = dial_service(w, a);
	struct join_answer answer;
	size_t length, n;
	int rc;

	if (!c)
		return;
	n = rng() % 4 ? spoil(&right, sizeof(right)) : sizeof(right);
	if (n == sizeof(right) && rng() % 2)
		memcpy(room, &right, n);
	rc = weir_send(c, room, n, WAIT_MS);
	if (!rc && rng() % 4 == 0)
		weir_send(c, room, n, 0);
	if (!rc && rng() % 4) {
		rc = weir_recv(c, &answer, sizeof(answer), &length, WAIT_MS);
		if (!rc && !answer.status)
			violated("a program without the secret has joined");
		tally(1, "joins refused (%s)", strerrorname_np(rc ? -rc : -answer.status));
	} else {
		tally(1, "joins that vanish");
	}
	weir_close(c);
}

static void
besiege(struct weir *w)
{
	struct weir_conn *silent[SILENT];
	struct weir_address a;
	unsigned n = 0;

	if (!target_address(&a))
		return;
	for (unsigned i = 0; i < 2 * SILENT && left() > 0; i++) {
		if (i % 2) {
			ask_to_join(w, &a);
		} else {
			silent[n] = dial_service(w, &a);
			n += silent[n] != NULL;
		}
	}
	tally(n, "joins that say nothing");
	while (n)
		weir_close(silent[--n]);
}

/* ---- as a member ---- */

/* Messages of a neighbour: the first ones as they should be, since both neighbours say the same. */
static void
talk(struct weir_conn *c)
{
	struct exchange_head h = {.op = EXCHANGE_DATA, .number = 1};
	unsigned right = (unsigned)(rng() % 4);
	size_t length;

	for (unsigned i = 0; i < 40; i++) {
		int rc = weir_recv(c, room, sizeof(room), &length, i <= right ? WAIT_MS : 0);

		if (rc && rc != -EAGAIN)
			break;
		if (!rc && length >= sizeof(h))
			memcpy(&h, room, sizeof(h));
		if (rc || i >= right) {
			h.op = (uint8_t)(rng() % 8 ? 1 + rng() % 3 : rng());
			h.number += (uint32_t)(rng() % 3);
			length = spoil(&h, sizeof(h));
		}
		if (weir_send(c, room, length, 0))
			break;
		tally(1, "messages of a member");
	}
}

/* Hellos of which one is right, and then messages. */
static void
greet_neighbour(struct weir *w, const struct join_answer *a)
{
	const struct member *peer = &a->neighbour[0].member;
	const struct group_hello right = {
	    .magic = GROUP_MAGIC, .version = GROUP_VERSION, .context = a->context, .from = a->rank};
	struct weir_address to = {.kind = WEIR_ADDRESS_NODE, .id = peer->node};
	struct weir_conn *c[8];

	snprintf(to.service, sizeof(to.service), "gm.%016llx", (unsigned long long)peer->id);
	for (unsigned i = 0; i < 8; i++) {
		size_t n = i == 7 ? sizeof(right) : spoil(&right, sizeof(right));

		c[i] = dial_service(w, &to);
		if (!c[i] || i == 6) /* one says nothing */
			continue;
		if (i == 7)
			memcpy(room, &right, n);
		tally(weir_send(c[i], room, n, 0) == 0, "hellos");
	}
	if (c[7])
		talk(c[7]);
	for (unsigned i = 0; i < 8; i++)
		weir_close(c[i]);
}

static void
be_greeted(struct weir_listener *l)
{
	struct weir_conn *c;

	if (weir_accept(l, WAIT_MS, &c))
		return;
	weir_recv(c, room, sizeof(room), &(size_t){0}, WAIT_MS);
	talk(c);
	weir_close(c);
}

static void
take_part(struct weir *w)
{
	struct join_request r = {.magic = GROUP_MAGIC,
				 .version = GROUP_VERSION,
				 .size = 2,
				 .rank = (uint32_t)(rng() % 2),
				 .self = {.id = rng()}};
	struct weir_listener *l = NULL;
	char service[WEIR_SERVICE_MAX];
	struct join_answer answer;
	struct weir_conn *c;
	struct weir_address a;
	size_t length;

	snprintf(service, sizeof(service), "gm.%016llx", (unsigned long long)r.self.id);
	if (weir_address_parse("service:group.lure", &a) || weir_listen(w, service, 0, &l))
		return;
	c = dial_service(w, &a);
	if (c && !weir_send(c, &r, sizeof(r), WAIT_MS) &&
	    !weir_recv(c, &answer, sizeof(answer), &length, WAIT_MS) && !answer.status) {
		tally(1, "groups joined");
		if (answer.rank)
			be_greeted(l);
		else
			greet_neighbour(w, &answer);
	}
	weir_close(c);
	weir_listener_close(l);
}

/* ---- as the one that gathers ---- */

static void
gather_others(struct weir *w)
{
	const struct weir_listen_options o = {.size = sizeof(o), .flags = WEIR_LISTEN_PUBLIC};
	struct weir_listener *l;
	struct weir_conn *c;
	double end = seconds() + 1;

	if (weir_listen_with(w, "group.trap", &o, &l))
		return;
	while (seconds() < end && left() > 0) {
		struct join_answer right = {.magic = GROUP_MAGIC,
					    .rank = (uint32_t)(rng() % 2),
					    .count = 1,
					    .context = rng()};
		size_t n = JOIN_ANSWER_BYTES(1);

		if (weir_accept(l, 100, &c))
			continue;
		right.neighbour[0].rank = !right.rank;
		right.neighbour[0].member = (struct member){.id = rng(), .node = (uint16_t)lie()};
		if (rng() % 8 == 0)
			right.status = (int32_t)lie();
		if (rng() % 4)
			n = spoil(&right, n);
		else
			memcpy(room, &right, n);
		weir_recv(c, &right, sizeof(right), &(size_t){0}, WAIT_MS);
		if (rng() % 4)
			tally(weir_send(c, room, n, WAIT_MS) == 0, "false answers");
		weir_close(c);
	}
	weir_listener_close(l);
}

void
do_group(struct victim *v)
{
	struct weir *w = join();

	if (!w)
		return;
	besiege(w);
	take_part(w);
	take_part(w);
	gather_others(w);
	weir_detach(w);
}

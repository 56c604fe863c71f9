/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Datagram connections between real data planes: each datagram arrives whole, at most once, and on
 * its own connection. Prints one line per connection that has ended.
 *
 *   datagrams INSTANCE sink SERVICE              until killed
 *   datagrams INSTANCE send ADDRESS COUNT PACE   COUNT messages, a pause of 1 ms after each PACE
 *   datagrams INSTANCE stay ADDRESS              connects and waits for the end
 */
#include "program.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST 65536u

struct from {
	uint64_t sender, got, longest;
	bool named;
	uint64_t seen[MOST / 64];
};

static struct weir *w;

/* A message: its sender, its number, bytes that follow from both and the length. */
static void
fill(uint64_t *m, uint64_t sender, uint64_t number, size_t length)
{
	uint64_t x = sender * 0x9e3779b97f4a7c15ull ^ number * 0xbf58476d1ce4e5b9ull ^ length;

	m[0] = sender;
	m[1] = number;
	for (size_t i = 2; i * 8 < length; i++)
		m[i] = x = x * 6364136223846793005ull + 1442695040888963407ull;
}

/* The fault of a message, or NULL. */
static const char *
check(struct from *f, const uint64_t *m, size_t length)
{
	uint64_t want[8192 / 8];

	if (length < 16 || length > sizeof(want) || m[1] >= MOST)
		return "torn: length or number";
	if (f->named && f->sender != m[0])
		return "another connection's";
	f->sender = m[0];
	f->named = true;
	fill(want, m[0], m[1], length);
	if (memcmp(want, m, length))
		return "torn";
	if (f->seen[m[1] / 64] >> m[1] % 64 & 1)
		return "doubled";
	f->seen[m[1] / 64] |= 1ull << m[1] % 64;
	f->got++;
	f->longest = length > f->longest ? length : f->longest;
	return NULL;
}

static void
take_all(struct weir_conn *c)
{
	uint64_t m[8192 / 8];
	size_t length;

	while (weir_recv(c, m, sizeof(m), &length, 0) == 0) {
		const char *wrong = check(weir_conn_user(c), m, length);

		if (wrong)
			say("WRONG: %s (%zu bytes)", wrong, length);
	}
}

static int
sink(const char *service)
{
	struct weir_event ev[32];
	struct weir_listener *l;
	int r = serve_at(w, service, 64, &l);

	if (r)
		return 1;
	while ((r = weir_wait(w, ev, 32, -1)) >= 0) {
		for (int i = 0, n = r; i < n; i++) {
			struct from *f;

			if (ev[i].type == WEIR_EVENT_ACCEPT)
				accept_all(l, sizeof(*f));
			if (ev[i].type == WEIR_EVENT_READABLE)
				take_all(ev[i].conn);
			if (ev[i].type != WEIR_EVENT_CLOSED)
				continue;
			take_all(ev[i].conn);
			f = weir_conn_user(ev[i].conn);
			say("closed %d mtu %d got %llu longest %llu", ev[i].status,
			    weir_conn_mtu(ev[i].conn), (unsigned long long)f->got,
			    (unsigned long long)f->longest);
			free(f);
			weir_close(ev[i].conn);
		}
	}
	return failed("wait", r);
}

static int
dial_ud(const char *text, struct weir_conn **c)
{
	struct weir_connect_options o = {.size = sizeof(o), .flags = WEIR_UD};
	struct weir_address a;
	int r = weir_address_parse(text, &a);

	return r ? r : weir_connect_with(w, &a, &o, PATIENCE_MS, c);
}

static int
send_all(const char *address, uint64_t count, uint64_t pace)
{
	uint64_t m[8192 / 8], sender = (uint64_t)getpid();
	struct weir_conn *c;
	size_t mtu;
	int r = dial_ud(address, &c);

	if (r)
		return failed("connect", r);
	mtu = (size_t)weir_conn_mtu(c);
	if (weir_send(c, m, mtu + 1, 0) != -EMSGSIZE || !strstr(weir_reason(), "datagram"))
		return failed("a message that is too long", -EBADMSG);
	for (uint64_t i = 0; i < count && !r; i++) {
		size_t length = i % 8 == 7 ? mtu : 16 + i * 37 % (mtu - 16);

		fill(m, sender, i, length);
		r = weir_send(c, m, length, PATIENCE_MS);
		if (pace && i % pace == pace - 1)
			usleep(1000);
	}
	if (!r)
		r = weir_flush(c, PATIENCE_MS);
	usleep(100000); /* the end may overtake the last ones */
	say("end %d sent %llu mtu %zu", r, (unsigned long long)count, mtu);
	weir_close(c);
	return r ? 1 : 0;
}

static int
stay(const char *address)
{
	struct weir_conn *c;
	char buf[64];
	size_t length;
	int r = dial_ud(address, &c);

	if (r)
		return failed("connect", r);
	say("connected");
	do {
		r = weir_recv(c, buf, sizeof(buf), &length, -1);
	} while (!r);
	say("end %d", r);
	return 0;
}

int
main(int argc, char **argv)
{
	int r;

	if (argc < 4)
		return 2;
	if (attach_to(argv[1], "datagrams", 0, &w))
		return 1;
	if (!strcmp(argv[2], "sink"))
		r = sink(argv[3]);
	else if (!strcmp(argv[2], "stay"))
		r = stay(argv[3]);
	else
		r = argc < 6
			? 2
			: send_all(argv[3], strtoull(argv[4], NULL, 0), strtoull(argv[5], NULL, 0));
	weir_detach(w);
	return r;
}

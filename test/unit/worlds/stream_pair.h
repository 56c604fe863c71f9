/* SPDX-License-Identifier: BSD-3-Clause */
/* Two programs with a connection between them over a data plane, and messages whose bytes say
 * what they are. */
#ifndef WEIR_TEST_STREAM_PAIR_H
#define WEIR_TEST_STREAM_PAIR_H

#include "plane.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct pair {
	struct plane *f;
	struct weir *a, *b; /* b may be a */
	struct weir_listener *l;
	struct weir_conn *c, *d; /* c connected, d accepted */
};

static inline uint8_t
pattern(uint32_t seed, size_t at)
{
	uint32_t x = seed * 2654435761u + (uint32_t)at * 40503u;

	return (uint8_t)(x >> 13);
}

static inline uint8_t *
make_message(uint32_t seed, size_t length)
{
	uint8_t *m = malloc(length + 1);

	assert_non_null(m);
	for (size_t i = 0; i < length; i++)
		m[i] = pattern(seed, i);
	return m;
}

static inline void
check_message(const uint8_t *m, uint32_t seed, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (m[i] != pattern(seed, i))
			fail_msg("message %u of %zu bytes differs at %zu", seed, length, i);
}

static inline struct weir_conn *
pair_connect_with(struct pair *p, const char *text, const struct weir_connect_options *o)
{
	struct weir_address address;
	struct weir_conn *c;
	struct weir_event e;

	assert_int_equal(weir_address_parse(text, &address), 0);
	assert_int_equal(weir_connect_with(p->a, &address, o, 0, &c), 0);
	plane_settle(p->f);
	for (;;) {
		assert_int_equal(weir_poll(p->a, &e, 1), 1);
		if (e.type == WEIR_EVENT_OPENED && e.conn == c)
			return c;
	}
}

static inline struct weir_conn *
pair_connect(struct pair *p, const char *text)
{
	return pair_connect_with(p, text, NULL);
}

static inline struct weir_conn *
pair_accept(struct pair *p)
{
	struct weir_conn *d;

	assert_int_equal(weir_accept(p->l, 0, &d), 0);
	return d;
}

/* `address`: PLANE_LOCAL or PLANE_REMOTE; `self`: both ends in one program. */
static inline struct pair
pair_open(const char *address, const struct plane_options *o, bool self)
{
	struct pair p = {.f = plane_create(o)};

	p.a = plane_attach(p.f);
	p.b = self ? p.a : plane_attach_at(p.f, !strcmp(address, PLANE_REMOTE));
	assert_int_equal(weir_listen(p.b, "svc", 0, &p.l), 0);
	p.c = pair_connect(&p, address);
	p.d = pair_accept(&p);
	return p;
}

/* Lets closing ends finish; the programs are gone after it. */
static inline void
pair_close(struct pair *p)
{
	struct weir_event e;

	if (p->c)
		weir_close(p->c);
	if (p->d)
		weir_close(p->d);
	weir_listener_close(p->l);
	for (int i = 0; i < 3; i++) {
		plane_settle(p->f);
		while (weir_poll(p->a, &e, 1) > 0)
			;
		while (weir_poll(p->b, &e, 1) > 0)
			;
	}
	plane_settle(p->f);
	assert_int_equal(plane_open_ends(p->f), 0);
	weir_detach(p->a);
	if (p->b != p->a)
		weir_detach(p->b);
	plane_destroy(p->f);
}

/* recv that lets the plane and the sender get on until something comes. */
static inline int
pair_recv(struct pair *p, struct weir_conn *c, void *buf, size_t size, size_t *length)
{
	int rc = -EAGAIN;

	for (int i = 0; i < 10000 && rc == -EAGAIN; i++) {
		weir_flush(c == p->c ? p->d : p->c, 0);
		plane_settle(p->f);
		rc = weir_recv(c, buf, size, length, 0);
	}
	return rc;
}

/* c sends messages 0, 1 and so on of this length until there is no room. How many. */
static inline uint32_t
pair_fill(struct pair *p, size_t length)
{
	uint32_t sent = 0;
	int rc;

	for (;; sent++) {
		uint8_t *m = make_message(sent, length);

		rc = weir_send(p->c, m, length, 0);
		free(m);
		if (rc)
			break;
		assert_true(sent < 100000);
	}
	assert_int_equal(rc, -EAGAIN);
	return sent;
}

/* d receives them: nothing is lost, doubled or reordered. */
static inline void
pair_drain(struct pair *p, uint32_t count, size_t length)
{
	uint8_t *in = malloc(length + 1);
	size_t n;

	for (uint32_t i = 0; i < count; i++) {
		assert_int_equal(pair_recv(p, p->d, in, length, &n), 0);
		assert_int_equal(n, length);
		check_message(in, i, length);
	}
	free(in);
}

static inline void
pair_pass(struct pair *p, struct weir_conn *from, struct weir_conn *to, uint32_t seed,
	  size_t length)
{
	uint8_t *m = make_message(seed, length), *in = malloc(length + 1);
	size_t n = 12345;

	assert_int_equal(weir_send(from, m, length, 0), 0);
	memset(m, 0, length); /* it is the library's business no more */
	assert_int_equal(pair_recv(p, to, in, length, &n), 0);
	assert_int_equal(n, length);
	check_message(in, seed, length);
	assert_int_equal(weir_recv(to, in, length, &n, 0), -EAGAIN);
	free(m);
	free(in);
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Priorities of connections: who may ask for which, and what they mean beside others. */
#include "worlds/stream_pair.h"
#include "worlds/test.h"

static int
connect_as(struct pair *p, const char *text, uint32_t priority, struct weir_conn **c)
{
	struct weir_connect_options o = WEIR_CONNECT_OPTIONS_INIT;
	struct weir_address address;
	int rc;

	o.priority = priority;
	assert_int_equal(weir_address_parse(text, &address), 0);
	rc = weir_connect_with(p->a, &address, &o, 0, c);
	plane_settle(p->f);
	return rc;
}

static uint32_t
priority_of(struct weir_conn *c)
{
	struct weir_conn_info i = WEIR_CONN_INFO_INIT;

	assert_int_equal(weir_conn_info(c, &i), 0);
	return i.priority;
}

static void
take_events(struct weir *w)
{
	struct weir_event e;

	while (weir_poll(w, &e, 1) > 0)
		;
}

TEST(test_rights)
{
	static const char *const places[] = {PLANE_LOCAL, PLANE_REMOTE};

	for (unsigned i = 0; i < 2; i++) {
		struct pair p = pair_open(places[i], NULL, false);
		struct weir_conn *c;

		assert_int_equal(priority_of(p.c), WEIR_PRIORITY_NORMAL);
		assert_int_equal(connect_as(&p, places[i], 3, &c), -EINVAL);
		assert_int_equal(connect_as(&p, places[i], WEIR_PRIORITY_HIGH, &c), -EACCES);
		assert_non_null(strstr(weir_reason(), "--user-limit"));
		assert_int_equal(connect_as(&p, places[i], WEIR_PRIORITY_LOW, &c), 0);
		take_events(p.a);
		assert_int_equal(priority_of(c), WEIR_PRIORITY_LOW);
		weir_close(c);
		weir_close(pair_accept(&p));
		plane_set(p.f, "user.*.priority", "high");
		assert_int_equal(connect_as(&p, places[i], WEIR_PRIORITY_HIGH, &c), 0);
		take_events(p.a);
		assert_int_equal(priority_of(c), WEIR_PRIORITY_HIGH);
		weir_close(p.d);
		weir_close(p.c);
		p.c = c;
		p.d = pair_accept(&p);
		assert_int_equal(priority_of(p.d), WEIR_PRIORITY_HIGH);
		pair_pass(&p, p.c, p.d, 1, 100);
		pair_pass(&p, p.d, p.c, 2, 100000);
		pair_close(&p);
	}
}

/* Bytes that arrive of two connections that always have messages, of `length` bytes each. */
static void
race(uint32_t a, uint32_t b, size_t length, uint64_t got[2])
{
	struct pair p = pair_open(PLANE_REMOTE, &(struct plane_options){.window = 1 << 20}, false);
	struct weir_conn *c[2], *d[2];
	uint8_t *m = calloc(1, length);
	/* large messages share the send memory of their program */
	unsigned most = length > 8192 ? 3 : 1000, waiting[2] = {0};
	size_t n;

	plane_set(p.f, "user.*.priority", "high");
	for (unsigned k = 0; k < 2; k++) {
		assert_int_equal(connect_as(&p, PLANE_REMOTE, k ? b : a, &c[k]), 0);
		take_events(p.a);
		d[k] = pair_accept(&p);
		got[k] = 0;
	}
	for (unsigned turn = 0; turn < 6000; turn++) {
		for (unsigned k = 0; k < 2; k++)
			while (waiting[k] < most && !weir_send(c[k], m, length, 0))
				waiting[k]++;
		plane_turn(p.f);
		for (unsigned k = 0; k < 2; k++)
			while (!weir_recv(d[k], m, length, &n, 0)) {
				got[k] += turn < 1000 ? 0 : n;
				waiting[k]--;
			}
	}
	for (unsigned k = 0; k < 2; k++) {
		plane_settle(p.f);
		while (!weir_recv(d[k], m, length, &n, 0))
			plane_settle(p.f);
		weir_close(c[k]);
		weir_close(d[k]);
	}
	free(m);
	pair_close(&p);
}

/* Alike they share; a lower one has less, but is not starved. */
TEST(test_turns)
{
	static const size_t lengths[] = {8192, 60000};

	for (unsigned i = 0; i < 2; i++) {
		uint64_t same[2], one[2], two[2];

		race(WEIR_PRIORITY_LOW, WEIR_PRIORITY_LOW, lengths[i], same);
		race(WEIR_PRIORITY_LOW, WEIR_PRIORITY_NORMAL, lengths[i], one);
		race(WEIR_PRIORITY_LOW, WEIR_PRIORITY_HIGH, lengths[i], two);
		assert_in_range(same[0] * 100 / same[1], 80, 125);
		/* a few large messages at a time do not fill the link */
		assert_true(one[0] && one[1] * 10 > one[0] * (i ? 12 : 30));
		assert_true(two[0] && two[1] * 10 > two[0] * (i ? 30 : 100));
	}
}

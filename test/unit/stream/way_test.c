/* SPDX-License-Identifier: BSD-3-Clause */
/* Flags that say how messages are to go: what is taken, what is refused, what the engine is told.
 */
#include "worlds/stream_pair.h"

#include "weir/stream.h"

#include <string.h>

#define SIZES 5

static const struct {
	unsigned flag;
	uint8_t way;
	uint32_t most;
} operations[] = {
    {WEIR_RING, WEIR_SLOT_RING, WEIR_RING_MAX},
    {WEIR_SEND, WEIR_SLOT_SEND, WEIR_SEND_MAX},
    {WEIR_READ, WEIR_SLOT_READ | WEIR_SLOT_BULK, 20000},
    {WEIR_WRITE, WEIR_SLOT_WRITE | WEIR_SLOT_BULK, 20000},
};
#define OPERATIONS (sizeof(operations) / sizeof(operations[0]))

static void
pass(struct pair *p, struct weir_conn *from, unsigned flags, uint32_t length, bool in_place)
{
	struct weir_conn *to = from == p->c ? p->d : p->c;
	uint8_t *m = make_message(length, length), *in = malloc(length + 1);
	size_t n = 0;
	void *buf;

	if (in_place) {
		assert_int_equal(weir_send_reserve(from, length, 0, &buf), 0);
		memcpy(buf, m, length);
		assert_int_equal(weir_send_commit(from, buf, length, flags, 0), 0);
	} else {
		assert_int_equal(weir_send_notify(from, m, length, flags, 0, 0), 0);
	}
	assert_int_equal(pair_recv(p, to, in, length, &n), 0);
	assert_int_equal(n, length);
	check_message(in, length, length);
	free(m);
	free(in);
}

static void
test_messages(void **state)
{
	static const struct plane_options o = {.first = 32768};
	static const uint32_t sizes[SIZES] = {1, 48, 900, 8192, 20000};
	struct pair p = pair_open(PLANE_REMOTE, &o, false);

	for (unsigned k = 0; k < OPERATIONS; k++)
		for (unsigned i = 0; i < SIZES; i++)
			for (unsigned place = 0; place < 2; place++) {
				if (sizes[i] > operations[k].most)
					continue;
				pass(&p, p.c, operations[k].flag | WEIR_RC, sizes[i], place);
				assert_int_equal(plane_way(p.f), operations[k].way);
				pass(&p, p.c, 0, sizes[i], place);
				assert_int_equal(plane_way(p.f),
						 sizes[i] > 8192 ? WEIR_SLOT_BULK : 0);
			}
	pair_close(&p);
}

/* A connection's own operation holds for messages that ask for none. */
static void
test_connections(void **state)
{
	struct weir_address address;
	struct weir_event e;

	for (unsigned k = 0; k < OPERATIONS; k++) {
		struct weir_connect_options o = {.size = sizeof(o), .flags = operations[k].flag};
		struct pair p = pair_open(PLANE_REMOTE, NULL, false);
		struct weir_conn *c = p.c, *d = p.d;

		assert_int_equal(weir_address_parse(PLANE_REMOTE, &address), 0);
		assert_int_equal(weir_connect_with(p.a, &address, &o, 0, &p.c), 0);
		plane_settle(p.f);
		while (weir_poll(p.a, &e, 1) > 0)
			;
		p.d = pair_accept(&p);
		for (uint32_t length = 10; length < 1000; length += 90) {
			pair_pass(&p, p.c, p.d, length, length);
			assert_int_equal(plane_way(p.f), operations[k].way);
			pair_pass(&p, p.d, p.c, length, length); /* the other end's choice */
			assert_int_equal(plane_way(p.f), 0);
			pass(&p, p.c, WEIR_WRITE, length, false);
			assert_int_equal(plane_way(p.f), WEIR_SLOT_WRITE | WEIR_SLOT_BULK);
		}
		weir_close(c);
		weir_close(d);
		pair_close(&p);
	}
}

static void
test_contradictions(void **state)
{
	static const unsigned wrong[] = {WEIR_RING | WEIR_READ,
					 WEIR_RING | WEIR_SEND,
					 WEIR_SEND | WEIR_WRITE,
					 WEIR_READ | WEIR_WRITE,
					 WEIR_RC | WEIR_RING | WEIR_WRITE,
					 WEIR_RING | WEIR_READ | WEIR_WRITE,
					 0x40000000,
					 0x8,
					 UINT32_MAX};
	struct pair p = pair_open(PLANE_REMOTE, NULL, false);
	struct weir_address address;
	struct weir_conn *c;
	size_t n;
	void *buf;

	assert_int_equal(weir_address_parse(PLANE_REMOTE, &address), 0);
	assert_int_equal(weir_send_reserve(p.c, 10, 0, &buf), 0);
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct weir_connect_options o = {.size = sizeof(o), .flags = wrong[i]};

		assert_int_equal(weir_connect_with(p.a, &address, &o, 0, &c), -EINVAL);
		assert_true(strlen(weir_reason()) > 10);
		assert_int_equal(weir_send_notify(p.c, "x", 1, wrong[i], 0, 0), -EINVAL);
		assert_int_equal(weir_send_commit(p.c, buf, 10, wrong[i], 0), -EINVAL);
	}
	/* nothing was taken */
	weir_send_abandon(p.c, buf);
	plane_settle(p.f);
	assert_int_equal(weir_recv(p.d, &c, 1, &n, 0), -EAGAIN);
	pair_close(&p);
}

/* One that can't carry the message is refused at the call, within a host too. */
static void
test_limits(void **state)
{
	static const struct plane_options o = {.first = 32768};
	static const char *const addresses[] = {PLANE_REMOTE, PLANE_LOCAL};

	for (unsigned k = 0; k < 2; k++) {
		struct pair p = pair_open(addresses[k], &o, false);
		uint8_t *m = make_message(1, WEIR_RING_MAX + 1);

		assert_int_equal(weir_send_notify(p.c, m, WEIR_RING_MAX + 1, WEIR_RING, 0, 0),
				 -EMSGSIZE);
		assert_non_null(strstr(weir_reason(), "WEIR_RING"));
		assert_int_equal(weir_send_notify(p.c, m, WEIR_SEND_MAX + 1, WEIR_SEND, 0, 0),
				 -EMSGSIZE);
		assert_non_null(strstr(weir_reason(), "WEIR_SEND"));
		pass(&p, p.c, WEIR_SEND, WEIR_SEND_MAX, false);
		pass(&p, p.c, WEIR_READ, 5000, false);
		pass(&p, p.c, WEIR_RING, 500, false);
		free(m);
		pair_close(&p);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_messages),
	    cmocka_unit_test(test_connections),
	    cmocka_unit_test(test_contradictions),
	    cmocka_unit_test(test_limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

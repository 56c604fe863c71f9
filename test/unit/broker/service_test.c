/* SPDX-License-Identifier: BSD-3-Clause */
/* Public services: what control is told of ours, what is found of those of others. */
#include "worlds/broker_fake.h"

#include "broker/public_services.h"
#include "broker/set.h"

enum { OWN = 7, INTERVAL_MS = 100 };

static const struct fake_config one_engine = {.engines = 1, .node = OWN};

static void
pass(struct fake *f, uint32_t ms)
{
	f->now += ms * UINT64_C(1000000);
	fake_run(f);
}

static void
unlisten(struct fake *f, struct fake_session *s, int listener)
{
	struct weir_session_msg m = {.type = WEIR_MSG_UNLISTEN};

	m.listening.listener = (uint32_t)listener;
	assert_int_equal(fake_request(f, s, &m), 0);
}

/* Messages of services to control, and the last one's names in a row. */
static uint32_t
told(const struct fake *f, char *names, size_t size)
{
	uint32_t n = 0;

	*names = 0;
	for (uint32_t i = 0; i < f->output_count; i++) {
		const struct weir_ctl_msg *m = &f->output[i];

		if (m->type != WEIR_CTL_SERVICES)
			continue;
		assert_int_equal(weir_ctl_check(m, m->length), 0);
		assert_int_equal(m->services.node, OWN);
		*names = 0;
		for (uint32_t k = 0; k < m->services.names.count; k++)
			snprintf(names + strlen(names), size - strlen(names), "%s ",
				 m->services.names.name[k]);
		n++;
	}
	return n;
}

/* Control says that a node offers these. */
static void
offers(struct fake *f, uint32_t node, uint64_t incarnation, const char *a, const char *b)
{
	struct weir_ctl_msg m = {
	    .type = WEIR_CTL_SERVICES, .services.node = node, .services.incarnation = incarnation};

	if (a)
		assert_int_equal(weir_services_add(&m.services.names, a), 0);
	if (b)
		assert_int_equal(weir_services_add(&m.services.names, b), 0);
	m.length = weir_ctl_size(&m);
	fake_told(f, &m);
}

static uint32_t
find(struct fake *f, struct fake_session *s, const char *service, uint32_t flags)
{
	struct weir_session_msg m = {.type = WEIR_MSG_FIND, .find.flags = flags};

	snprintf(m.find.service, sizeof(m.find.service), "%s", service);
	assert_int_equal(fake_ask(f, s, &m), WEIR_MSG_FOUND);
	return s->reply.found.count;
}

TEST_FAKE(test_told, one_engine)
{
	struct weir_ctl_msg hello = {
	    .type = WEIR_CTL_HELLO, .length = weir_ctl_length(WEIR_CTL_HELLO), .hello.node = OWN};
	struct fake_session s;
	char names[256];
	int b;

	fake_program(f, &s);
	pass(f, INTERVAL_MS);
	f->output_count = 0;
	assert_true(fake_listen_as(f, &s, "private", 0) >= 0);
	assert_int_equal(told(f, names, sizeof(names)), 0);
	b = fake_listen_as(f, &s, "b", WEIR_LISTENS_PUBLIC);
	assert_int_equal(told(f, names, sizeof(names)), 1);
	assert_string_equal(names, "b ");
	/* what follows at once is told together, a little later */
	assert_true(fake_listen_as(f, &s, "c", WEIR_LISTENS_PUBLIC) >= 0);
	assert_true(fake_listen_as(f, &s, "a", WEIR_LISTENS_PUBLIC) >= 0);
	unlisten(f, &s, b);
	assert_int_equal(told(f, names, sizeof(names)), 1);
	pass(f, INTERVAL_MS);
	assert_int_equal(told(f, names, sizeof(names)), 2);
	assert_string_equal(names, "a c ");
	/* a control that comes is told all of it, and its digest with the greeting */
	f->output_count = 0;
	broker_control_input(f->b, &hello);
	assert_int_equal(f->output[0].type, WEIR_CTL_HELLO);
	assert_true(f->output[0].hello.services ==
		    weir_services_digest(&f->output[1].services.names));
	assert_int_equal(told(f, names, sizeof(names)), 1);
	assert_string_equal(names, "a c ");
	/* the program ends */
	pass(f, INTERVAL_MS);
	fake_leave(f, &s);
	assert_int_equal(told(f, names, sizeof(names)), 2);
	assert_string_equal(names, "");
}

TEST_FAKE(test_refused, one_engine)
{
	struct weir_session_msg m = {.type = WEIR_MSG_FIND};
	struct fake_session s;
	char name[16];
	int last = 0;

	fake_program(f, &s);
	assert_int_equal(fake_listen_as(f, &s, "x", 4), -EINVAL);
	for (uint32_t i = 0; i < WEIR_SERVICES_MAX; i++) {
		snprintf(name, sizeof(name), "s%u", i);
		last = fake_listen_as(f, &s, name, WEIR_LISTENS_PUBLIC);
		assert_true(last >= 0);
	}
	assert_int_equal(fake_listen_as(f, &s, "more", WEIR_LISTENS_PUBLIC), -ENOSPC);
	assert_non_null(strstr(s.reply.refused.reason, "64"));
	assert_true(fake_listen_as(f, &s, "more", 0) >= 0);
	assert_int_equal(fake_listen_as(f, &s, "s3", 0), -EADDRINUSE);
	unlisten(f, &s, last);
	assert_true(fake_listen_as(f, &s, "another", WEIR_LISTENS_PUBLIC) >= 0);
	snprintf(m.find.service, sizeof(m.find.service), "a/b");
	assert_int_equal(fake_request(f, &s, &m), 0);
	assert_int_equal(s.reply.refused.code, EINVAL);
	m.find.service[1] = 'x';
	m.find.flags = 2;
	assert_int_equal(fake_request(f, &s, &m), 0);
	assert_int_equal(s.reply.refused.code, EINVAL);
	/* any place to go on from */
	m.find.flags = 0;
	m.find.from = UINT32_MAX;
	assert_int_equal(fake_request(f, &s, &m), 0);
	assert_int_equal(s.reply.found.count, 0);
	/* of a node that nobody has told of, and of ourselves */
	offers(f, 9, 1, "kv", NULL);
	offers(f, OWN, 1, "kv", NULL);
	assert_int_equal(f->b->counters.control_bad, 2);
	assert_int_equal(find(f, &s, "kv", 0), 0);
}

TEST_FAKE(test_found, one_engine)
{
	struct fake_session s;
	const struct weir_found *found = s.reply.found.node;
	char reason[160];

	fake_program(f, &s);
	fake_node(f, 2, WEIR_NODE_UP, 5, 1);
	fake_node(f, 3, WEIR_NODE_UP, 5, 1);
	offers(f, 2, 5, "kv", "log");
	offers(f, 3, 5, "kv", NULL);
	assert_int_equal(find(f, &s, "kv", 0), 2);
	assert_int_equal(found[0].node, 2);
	assert_int_equal(found[0].flags, 0);
	assert_int_equal(found[0].kind, WEIR_ADDRESS_IPV4);
	assert_memory_equal(found[0].ip, ((uint8_t[4]){10, 0, 0, 2}), 4);
	assert_int_equal(found[1].node, 3);
	assert_int_equal(find(f, &s, "log", 0), 1);
	assert_int_equal(find(f, &s, "none", 0), 0);
	/* suspect: traffic goes on; down: gone at once; up again: what was known holds */
	fake_node(f, 2, WEIR_NODE_SUSPECT, 5, 1);
	assert_int_equal(find(f, &s, "log", 0), 1);
	fake_node(f, 2, WEIR_NODE_DOWN, 5, 1);
	assert_int_equal(find(f, &s, "log", 0), 0);
	assert_int_equal(find(f, &s, "kv", 0), 1);
	fake_node(f, 2, WEIR_NODE_UP, 5, 1);
	assert_int_equal(find(f, &s, "log", 0), 1);
	/* another life of its data plane: none of the old one's */
	fake_node(f, 2, WEIR_NODE_UP, 6, 1);
	assert_int_equal(find(f, &s, "log", 0), 0);
	offers(f, 2, 6, "log", NULL);
	assert_int_equal(find(f, &s, "log", 0), 1);
	offers(f, 2, 6, NULL, NULL);
	assert_int_equal(find(f, &s, "log", 0), 0);
	/* ours, without a control's word */
	assert_true(fake_listen_as(f, &s, "kv", WEIR_LISTENS_PUBLIC) >= 0);
	assert_int_equal(find(f, &s, "kv", 0), 2);
	assert_int_equal(found[0].node, OWN);
	assert_int_equal(found[0].flags, WEIR_FOUND_LOCAL);
	/* nobody is sent to who is being drained */
	assert_int_equal(setting_set(f->b, "drain.3", "on", reason, sizeof(reason)), 1);
	assert_int_equal(find(f, &s, "kv", 0), 1);
	pass(f, INTERVAL_MS); /* ours is told */
	pass(f, INTERVAL_MS);
	f->output_count = 0;
	assert_int_equal(setting_set(f->b, "drain.self", "on", reason, sizeof(reason)), 1);
	assert_int_equal(find(f, &s, "kv", 0), 0);
	assert_int_equal(told(f, reason, sizeof(reason)), 1);
	assert_string_equal(reason, "");
	assert_int_equal(setting_set(f->b, "drain.self", "off", reason, sizeof(reason)), 1);
	assert_int_equal(find(f, &s, "kv", 0), 1);
}

/* To connect to: ours first, of the others each first as often. */
TEST_FAKE(test_turns, one_engine)
{
	uint32_t first[40] = {0};
	struct fake_session s;
	int ours;

	fake_program(f, &s);
	for (uint32_t node = 10; node < 40; node++) {
		fake_node(f, node, WEIR_NODE_UP, 1, 1);
		if (node % 2)
			offers(f, node, 1, "kv", NULL);
	}
	for (uint32_t i = 0; i < 3 * 15; i++) {
		assert_int_equal(find(f, &s, "kv", WEIR_FIND_BEST), 15);
		first[s.reply.found.node[0].node]++;
	}
	for (uint32_t node = 10; node < 40; node++)
		assert_int_equal(first[node], node % 2 ? 3 : 0);
	/* page by page */
	for (uint32_t node = 10; node < 40; node++)
		offers(f, node, 1, "kv", NULL);
	assert_int_equal(find(f, &s, "kv", 0), WEIR_FOUND_MAX);
	assert_int_not_equal(s.reply.found.next, 0);
	assert_int_equal(s.reply.found.node[15].node, 25);
	assert_int_equal(find(f, &s, "kv", WEIR_FIND_BEST), WEIR_FOUND_MAX);
	assert_int_equal(s.reply.found.next, 0);
	ours = fake_listen_as(f, &s, "kv", WEIR_LISTENS_PUBLIC);
	for (uint32_t i = 0; i < 4; i++) {
		find(f, &s, "kv", WEIR_FIND_BEST);
		assert_int_equal(s.reply.found.node[0].node, OWN);
		assert_int_not_equal(s.reply.found.node[1].node, OWN);
	}
	unlisten(f, &s, ours);
}

/* No control has ever told who we are: programs of this host find each other. */
TEST_FAKE(test_without_control, ((const struct fake_config){.engines = 1, .node = UINT32_MAX}))
{
	struct fake_session s;

	fake_program(f, &s);
	assert_true(fake_listen_as(f, &s, "kv", WEIR_LISTENS_PUBLIC) >= 0);
	assert_int_equal(find(f, &s, "kv", WEIR_FIND_BEST), 1);
	assert_int_equal(s.reply.found.node[0].node, UINT32_MAX);
	assert_int_equal(s.reply.found.node[0].flags, WEIR_FOUND_LOCAL);
	assert_int_equal(fake_connect(f, &s, s.reply.found.node[0].node, "kv", 0),
			 WEIR_MSG_CONNECTING);
}

/* Every name is listed once for each node, however few have any. */
TEST_FAKE(test_rows, one_engine)
{
	struct weir_row_service row;
	struct fake_session s;
	uint32_t rows = 0, kv = 0;

	fake_attach_as(f, &s, "server");
	fake_channels(f, &s);
	for (uint32_t node = 10; node < 14; node++)
		fake_node(f, node, WEIR_NODE_UP, 1, 1);
	offers(f, 11, 1, "kv", "log");
	pass(f, 250);
	offers(f, 11, 1, "kv", "new");
	pass(f, 250);
	assert_true(fake_listen_as(f, &s, "kv", WEIR_LISTENS_PUBLIC) >= 0);
	assert_true(fake_listen_as(f, &s, "private", 0) >= 0);
	for (uint32_t i = 0; memset(&row, 0, sizeof(row)), service_row(f->b, i, &row); i++) {
		if (!*row.name)
			continue;
		rows++;
		kv += !strcmp(row.name, "kv");
		if (row.self)
			assert_string_equal(row.program, "server");
		else
			assert_string_equal(row.port, "10.0.0.11");
		/* since when a name is known doesn't begin anew with another list */
		assert_int_equal(row.age_ms, row.self ? 0 : strcmp(row.name, "kv") ? 250 : 500);
	}
	assert_int_equal(rows, 3);
	assert_int_equal(kv, 2);
}

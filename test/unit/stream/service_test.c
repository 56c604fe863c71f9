/* SPDX-License-Identifier: BSD-3-Clause */
/* Public services as the library sees them: listened for, found, connected to by name. */
#include "worlds/plane_fake.h"
#include "worlds/stream_pair.h"

#include <stdio.h>

#define SERVER PLANE_NODE(1) /* the second that is attached */

static struct weir_address
by_name(const char *service)
{
	struct weir_address a = {.kind = WEIR_ADDRESS_SERVICE};

	snprintf(a.service, sizeof(a.service), "%s", service);
	return a;
}

static void
test_listen(void **state)
{
	struct weir_listen_options public = {
	    .size = sizeof(public), .flags = WEIR_LISTEN_PUBLIC, .backlog = 3};
	struct plane *f = plane_create(NULL);
	struct weir *w = plane_attach(f);
	struct weir_listener *l, *m, *n;

	assert_int_equal(weir_listen(w, "a", 0, &l), 0);
	assert_int_equal(plane_listen_flags(f), 0);
	assert_int_equal(weir_listen_with(w, "b", &public, &m), 0);
	assert_int_equal(plane_listen_flags(f), WEIR_LISTEN_PUBLIC);
	assert_int_equal(weir_listen_with(w, "c", NULL, &n), 0);
	assert_int_equal(plane_listen_flags(f), 0);
	weir_listener_close(l);
	weir_listener_close(m);
	weir_listener_close(n);
	public.flags = 4;
	assert_int_equal(weir_listen_with(w, "d", &public, &l), -EINVAL);
	weir_detach(w);
	plane_destroy(f);
}

static void
test_find(void **state)
{
	static struct weir_found found[2 * WEIR_FOUND_MAX + 3];
	struct weir_service_entry list[2 * WEIR_FOUND_MAX + 3];
	struct plane *f = plane_create(NULL);
	struct weir *w = plane_attach(f);
	uint32_t all = sizeof(found) / sizeof(found[0]), flags;
	char text[WEIR_ADDRESS_TEXT_MAX];

	assert_int_equal(weir_service_find(w, "kv", NULL, 0), 0);
	for (uint32_t i = 0; i < all; i++)
		found[i] = (struct weir_found){
		    .node = i, .kind = WEIR_ADDRESS_IPV4, .ip = {10, 0, 0, (uint8_t)i}};
	found[0].flags = WEIR_FOUND_LOCAL;
	found[1].kind = WEIR_ADDRESS_LID;
	found[1].lid = 12;
	found[2].kind = WEIR_ADDRESS_NONE;
	fake_found(f, found, all);
	assert_int_equal(weir_service_find(w, "kv", list, all), all);
	assert_int_equal(plane_found_asked(f, &flags), 3); /* page by page */
	assert_int_equal(flags, 0);
	for (uint32_t i = 0; i < all; i++) {
		assert_int_equal(list[i].node, i);
		assert_int_equal(list[i].flags, i ? 0 : WEIR_SERVICE_LOCAL);
	}
	assert_int_equal(weir_address_format(&list[all - 1].port, text, sizeof(text)), 0);
	assert_string_equal(text, "10.0.0.34:kv");
	assert_int_equal(weir_address_format(&list[1].port, text, sizeof(text)), 0);
	assert_string_equal(text, "lid:12:kv");
	assert_int_equal(list[2].port.kind, WEIR_ADDRESS_NONE);
	/* how many there are, though few fit */
	memset(list, 0, sizeof(list));
	assert_int_equal(weir_service_find(w, "kv", list, 2), all);
	assert_int_equal(list[1].node, 1);
	assert_int_equal(list[2].port.service[0], 0);
	assert_int_equal(weir_service_find(w, "k v", list, 2), -EINVAL);
	assert_int_equal(weir_service_find(w, "", list, 2), -EINVAL);
	assert_int_equal(weir_service_find(w, NULL, list, 2), -EINVAL);
	weir_detach(w);
	plane_destroy(f);
}

/* The first that takes us, in the order of the data plane. */
static void
test_connect(void **state)
{
	static const struct weir_found found[] = {{.node = PLANE_NODE(7)}, {.node = SERVER}};
	const struct plane_options nodes = {.nodes = true};
	struct weir_address a = by_name("svc");
	struct plane *f = plane_create(&nodes);
	struct weir *w = plane_attach(f), *server = plane_attach(f);
	struct weir_listener *l;
	struct weir_conn *c;
	uint32_t flags;

	assert_int_equal(weir_connect(w, &a, 1000, &c), -ECONNREFUSED);
	assert_non_null(strstr(weir_reason(), "no node that is up offers the service svc"));
	assert_int_equal(weir_listen(server, "svc", 0, &l), 0);
	fake_found(f, found, 2);
	plane_run(f);
	assert_int_equal(weir_connect(w, &a, 5000, &c), 0);
	weir_close(c);
	assert_int_equal(plane_found_asked(f, &flags), 1);
	assert_int_equal(flags, WEIR_FIND_BEST);
	/* nobody takes us: the last one's reason */
	fake_found(f, found, 1);
	assert_int_equal(weir_connect(w, &a, 5000, &c), -ECONNREFUSED);
	assert_non_null(strstr(weir_reason(), "refused"));
	memset(a.service, 'x', sizeof(a.service)); /* without an end */
	assert_int_equal(weir_connect(w, &a, 5000, &c), -EINVAL);
	plane_stop(f);
	weir_listener_close(l);
	weir_detach(w);
	weir_detach(server);
	plane_destroy(f);
}

/* Without waiting a refusal comes later, and by the connection. */
static void
test_connect_later(void **state)
{
	static const struct weir_found found[] = {{.node = PLANE_NODE(7)}};
	const struct plane_options nodes = {.nodes = true};
	struct weir_address a = by_name("svc");
	struct plane *f = plane_create(&nodes);
	struct weir *w = plane_attach(f);
	struct weir_event e;
	struct weir_conn *c;

	fake_found(f, found, 1);
	assert_int_equal(weir_connect(w, &a, 0, &c), 0);
	plane_settle(f);
	assert_int_equal(weir_poll(w, &e, 1), 1);
	assert_int_equal(e.type, WEIR_EVENT_CLOSED);
	assert_int_equal(e.status, -ECONNREFUSED);
	weir_close(c);
	weir_detach(w);
	plane_destroy(f);
}

/* No link is free: the reason names the option, whichever call is told; another node may have one.
 */
static void
test_no_link(void **state)
{
	static const struct weir_found found[] = {{.node = PLANE_NODE(7)}, {.node = SERVER}};
	const struct plane_options nodes = {.nodes = true};
	struct weir_address full = {.kind = WEIR_ADDRESS_NODE, .id = PLANE_NODE(7)};
	struct weir_address a = by_name("svc");
	struct plane *f = plane_create(&nodes);
	struct weir *w = plane_attach(f), *server = plane_attach(f);
	struct weir_listener *l;
	struct weir_event e;
	struct weir_conn *c;
	char buf[8];
	size_t n;

	assert_int_equal(weir_listen(server, "svc", 0, &l), 0);
	snprintf(full.service, sizeof(full.service), "svc");
	fake_fail(f, PLANE_NODE(7), ENOSPC, NULL);
	assert_int_equal(weir_connect(w, &full, 0, &c), 0);
	plane_settle(f);
	assert_int_equal(weir_poll(w, &e, 1), 1);
	assert_int_equal(e.type, WEIR_EVENT_CLOSED);
	assert_int_equal(e.status, -ENOSPC);
	weir_fail(0, "of an earlier call");
	assert_int_equal(weir_send(c, "x", 1, 0), -ENOSPC);
	assert_non_null(strstr(weir_reason(), "raise its --links"));
	weir_fail(0, "of an earlier call");
	assert_int_equal(weir_recv(c, buf, sizeof(buf), &n, 0), -ENOSPC);
	assert_non_null(strstr(weir_reason(), "raise its --links"));
	weir_close(c);
	plane_run(f);
	assert_int_equal(weir_connect(w, &full, PATIENT, &c), -ENOSPC);
	assert_non_null(strstr(weir_reason(), "raise its --links"));
	fake_found(f, found, 1);
	assert_int_equal(weir_connect(w, &a, PATIENT, &c), -ENOSPC);
	assert_non_null(strstr(weir_reason(), "raise its --links"));
	fake_found(f, found, 2);
	assert_int_equal(weir_connect(w, &a, PATIENT, &c), 0);
	weir_close(c);
	plane_stop(f);
	weir_listener_close(l);
	weir_detach(w);
	weir_detach(server);
	plane_destroy(f);
}

/* The handle finds and listens as before after its data plane came back. */
static void
test_reattached(void **state)
{
	static const struct weir_found found[] = {{.node = 4}};
	const struct weir_listen_options public = {.size = sizeof(public),
						   .flags = WEIR_LISTEN_PUBLIC};
	const struct plane_options watched = {.watched = true};
	struct plane *f = plane_create(&watched);
	struct weir *w = plane_attach(f);
	struct weir_listener *l;

	assert_int_equal(weir_listen_with(w, "kv", &public, &l), 0);
	plane_kill(f);
	while (weir_service_find(w, "kv", NULL, 0) >= 0)
		;
	assert_int_equal(weir_service_find(w, "kv", NULL, 0), -ENODEV);
	plane_come_back(f);
	assert_int_equal(weir_reattach(w, 1000), 0);
	assert_int_equal(plane_listen_flags(f), WEIR_LISTEN_PUBLIC);
	fake_found(f, found, 1);
	assert_int_equal(weir_service_find(w, "kv", NULL, 0), 1);
	weir_listener_close(l);
	weir_detach(w);
	plane_destroy(f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_listen),  cmocka_unit_test(test_find),
	    cmocka_unit_test(test_connect), cmocka_unit_test(test_connect_later),
	    cmocka_unit_test(test_no_link), cmocka_unit_test(test_reattached),
	};

	return cmocka_run_group_tests_name("stream_service", tests, NULL, NULL);
}

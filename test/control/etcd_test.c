/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The list of nodes in etcd, and the ids that it gives out, while Debian's etcd is started, killed,
 * stopped, emptied and started again.
 */
#include "etcd_nodes.h"
#include "port.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static void
test_known(void **state)
{
	start(1, 1);
	start(2, 2);
	run_for(500); /* nobody there: they go on asking */
	etcd_run(NULL);
	until(nodes[1].last[2].address_count && nodes[2].last[1].address_count);
	assert_string_equal(nodes[1].last[2].control, "127.0.0.1:7002");
	assert_int_equal(nodes[1].last[2].address_count, 1);
	assert_int_equal(nodes[1].last[2].address[0][15], 2);
	publish(&nodes[2], 77);
	until(nodes[1].last[2].address[0][15] == 77);
	stop(2, false); /* its control stops: it is still a member */
	start(3, 3);
	until(nodes[1].known[3] && nodes[3].known[2]);
	assert_int_equal(nodes[1].gone[2], 0);
	stop(3, true);
	until(nodes[1].gone[3] == 1);
}

static void
test_etcd_dies(void **state)
{
	etcd_run(NULL);
	start(1, 1);
	start(2, 2);
	until(nodes[1].known[2] && nodes[2].known[1]);
	etcd_end(SIGKILL);
	run_for(LEASE * 1500); /* the leases run out meanwhile */
	etcd_run(NULL);
	start(3, 3);
	until(nodes[1].known[3] && nodes[2].known[3] && nodes[3].known[1] && nodes[3].known[2]);
	kill(etcd, SIGSTOP);
	run_for(LEASE * 2500);
	kill(etcd, SIGCONT);
	start(4, 4);
	until(nodes[1].known[4] && nodes[2].known[4] && nodes[3].known[4]);
	for (int i = 1; i <= 4; i++)
		for (int j = 1; j <= 4; j++)
			assert_int_equal(nodes[i].gone[j], 0);
}

/* Another etcd at the same place, which knows nothing: all tell it again, and nobody goes. */
static void
test_etcd_forgets(void **state)
{
	etcd_run(NULL);
	start(1, 1);
	start(2, 2);
	for (int i = 0; i < 30; i++)
		publish(&nodes[2], (uint8_t)(10 + i)), run_for(20); /* revisions far ahead */
	until(nodes[1].last[2].address_count && nodes[2].known[1]);
	etcd_end(SIGKILL);
	empty_directory();
	etcd_run(NULL);
	start(3, 3);
	until(nodes[1].known[3] && nodes[2].known[3] && nodes[3].known[1] && nodes[3].known[2]);
	assert_int_equal(nodes[1].gone[2] + nodes[2].gone[1], 0);
}

/* As if nobody had been heard for a lease. */
static void
revoke_leases(void)
{
	json_t *leases, *l;
	size_t i;

	assert_string_equal(post("/v3/lease/leases", json_object()), "done");
	leases = json_incref(json_object_get(last_said, "leases"));
	assert_true(json_array_size(leases) > 0);
	json_array_foreach(leases, i, l) post("/v3/lease/revoke", json_incref(l));
	json_decref(leases);
}

/* The same, and one whose control is stopped can't tell: no list without it says that it has left,
 * not even to one who thought for a while that it was the old etcd. */
static void
test_etcd_forgets_who_is_stopped(void **state)
{
	char also[48], both[160], one[96];
	struct etcd_options o = {.urls = also};
	unsigned known;

	snprintf(also, sizeof(also), "http://127.0.0.1:%u", port_take());
	snprintf(both, sizeof(both), "--listen-client-urls=%s,%s", url, also);
	snprintf(one, sizeof(one), "--listen-client-urls=%s", url);
	etcd_run(both);
	start(1, 1);
	start_at(&nodes[2], 2, 7002, o);
	until(nodes[1].last[2].address_count && nodes[2].last[1].address_count);
	stop(1, false);
	etcd_end(SIGKILL);
	publish(&nodes[2], 77); /* the first thing that it says to the new one */
	empty_directory();
	etcd_run(one);
	for (int i = 0; i < 20; i++) /* whose revisions are no lower by then */
		until(!strcmp(put_foo("Zm9v"), "done"));
	etcd_end(SIGTERM);
	etcd_run(both);
	start(3, 3);
	until(nodes[2].known[3] && nodes[3].last[2].address[0][15] == 77);
	run_for(LEASE * 1000);
	assert_int_equal(nodes[2].gone[1], 0);
	known = nodes[2].known[3];
	revoke_leases();
	until(nodes[2].known[3] > known); /* all is listed again */
	assert_int_equal(nodes[2].gone[1], 0);
	known = nodes[2].known[3];
	etcd_end(SIGTERM);
	etcd_run(both);
	until(nodes[2].known[3] > known); /* and again, with all leases in order */
	assert_int_equal(nodes[2].gone[1], 0);
	start(1, 1);
	until(nodes[3].known[1]);
	stop(1, true);
	until(nodes[2].gone[1] == 1);
}

static void
test_ids_given(void **state)
{
	uint32_t ids[NODES];

	etcd_run(NULL);
	for (int i = 0; i < NODES; i++)
		start(i, ETCD_NODE_AUTO);
	for (int i = 0; i < NODES; i++) {
		until(nodes[i].given);
		ids[i] = nodes[i].given;
		publish(&nodes[i], (uint8_t)ids[i]);
		for (int j = 0; j < i; j++)
			assert_int_not_equal(ids[i], ids[j]);
	}
	for (int i = 0; i < NODES; i++)
		until(nodes[i].known[ids[(i + 1) % NODES]]);
	/* who comes back has the same */
	for (int i = 0; i < NODES; i++)
		stop(i, false);
	for (int i = 0; i < NODES; i++)
		start(i, ETCD_NODE_AUTO);
	for (int i = 0; i < NODES; i++) {
		until(nodes[i].given);
		assert_int_equal(nodes[i].given, ids[i]);
	}
	until(nodes[1].known[ids[0]]);
	stop(0, true);
	until(nodes[1].gone[ids[0]]);
}

/* An id stays with a node that is heard within `lease` s. False: this process, or etcd, did not run
 * for that time. */
static bool
keep_id(unsigned lease)
{
	struct etcd_options o = {.lease = lease};
	unsigned known;

	start_at(&nodes[1], 7, 7001, o);
	start_at(&nodes[2], 8, 7002, o);
	until(nodes[1].known[8] && nodes[2].known[7]);
	until(nodes[2].last[7].address_count);
	known = nodes[2].known[7];
	start_at(&nodes[3], 7, 7003, o); /* at another address */
	run_for(lease * 1500);
	if (nodes[2].known[7] != known || nodes[3].known[8])
		return false;
	assert_string_equal(nodes[2].last[7].control, "127.0.0.1:7001");
	stop(1, false); /* it has moved */
	until(nodes[2].known[7] > known && nodes[3].known[8]);
	assert_string_equal(nodes[2].last[7].control, "127.0.0.1:7003");
	return true;
}

static void
test_id_taken(void **state)
{
	unsigned lease = LEASE;

	etcd_run(NULL);
	while (!keep_id(lease)) {
		assert_in_range(lease *= 2, 1, 16);
		for (int i = 1; i <= 3; i++)
			stop(i, true);
		etcd_end(SIGKILL);
		empty_directory();
		etcd_run(NULL);
	}
}

static json_t *
node_key(const char *id)
{
	char text[40];

	snprintf(text, sizeof(text), "/weir/test/node/%s", id);
	return json_pack("{s:o}", "key", etcd_bytes(text));
}

/* While a node can't reach etcd another one leaves, and etcd forgets how: its list says who is
 * missing. */
static void
test_compacted(void **state)
{
	char also[48], both[160], one[96];
	struct etcd_options o = {.urls = also, .lease = 60}; /* that outlives this */

	snprintf(also, sizeof(also), "http://127.0.0.1:%u", port_take());
	snprintf(both, sizeof(both), "--listen-client-urls=%s,%s", url, also);
	snprintf(one, sizeof(one), "--listen-client-urls=%s", url);
	etcd_run(both);
	start_at(&nodes[1], 1, 7001, o);
	start(2, 2);
	start(3, 3);
	until(nodes[1].known[2] && nodes[1].known[3] && nodes[2].known[3]);
	etcd_end(SIGTERM);
	etcd_run(one);
	until(!strcmp(post("/v3/kv/deleterange", node_key("9")), "done"));
	stop(3, true);
	until(nodes[2].gone[3]);
	assert_int_equal(nodes[1].gone[3], 0);
	for (int i = 0; i < 10; i++)
		put_foo("Zm9v");
	for (int i = 2; i < 40; i++) /* up to as far as it has come */
		post("/v3/kv/compaction", json_pack("{s:i}", "revision", i));
	etcd_end(SIGTERM);
	etcd_run(both);
	until(nodes[1].gone[3]);
	start(4, 4);
	until(nodes[1].known[4]); /* and it is told what comes */
	assert_int_equal(nodes[1].gone[2] + nodes[2].gone[1] + nodes[1].gone[1], 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_known, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_etcd_dies, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_etcd_forgets, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_etcd_forgets_who_is_stopped, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_compacted, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_ids_given, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_id_taken, setup, teardown),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

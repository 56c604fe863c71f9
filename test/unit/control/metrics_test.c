/* SPDX-License-Identifier: BSD-3-Clause */
/* Text for Prometheus: names of programs can't break a line; a dead data plane is one. */
#include "metrics/metrics.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void
has(const char *text, const char *line)
{
	char whole[256];

	snprintf(whole, sizeof(whole), "\n%s\n", line);
	if (!strstr(text, whole))
		fail_msg("no line '%s' in\n%s", line, text);
}

/* In the order of metrics_kind: engines, ports, sessions, nodes, counters. */
static void
test_all(void **state)
{
	struct weir_row_engine engine[2] = {{.engine = 0,
					     .tsc_hz = 2000000000,
					     .busy_cycles = 3000000000,
					     .tx_messages = 7,
					     .lock_waiters = 5},
					    {.engine = 1}};
	struct weir_row_port port = {
	    .name = "net\"0\\", .link_up = 1, .drop_count = 1, .drops = {{"bad_icrc", 5}}};
	struct weir_row_session session = {.session = 3, .name = "a\"b\\c\nd\xff=1", .tx_bytes = 9};
	struct weir_row_node node = {.is = {.id = 2, .self = 1, .state = WEIR_NODE_SUSPECT}};
	const struct metrics_certificate certificates[2] = {{"node", 12.5}, {"ca", -1}};
	struct weir_row_counter counter[2] = {{"engine.tx_messages", "told above", 7},
					      {"broker.links-up", "links \\ up", 4}};
	struct metrics_rows rows[METRICS_KINDS] = {{2, (uint8_t *)engine},
						   {1, (uint8_t *)&port},
						   {1, (uint8_t *)&session},
						   {1, (uint8_t *)&node},
						   {2, (uint8_t *)counter}};
	char *text = metrics_text(rows, "here", certificates, 2);

	assert_non_null(text);
	has(text, "weir_up 1");
	has(text, "weir_engine_busy_seconds_total{engine=\"0\"} 1.500000");
	has(text, "weir_engine_busy_seconds_total{engine=\"1\"} 0.000000");
	has(text, "weir_engine_tx_messages_total{engine=\"0\"} 7");
	has(text, "# TYPE weir_engine_lock_waiters gauge");
	has(text, "weir_engine_lock_waiters{engine=\"0\"} 5");
	has(text, "weir_port_up{port=\"net\\\"0\\\\\",engine=\"0\"} 1");
	has(text, "weir_port_dropped_frames_total{port=\"net\\\"0\\\\\",engine=\"0\",reason=\"bad_"
		  "icrc\"} 5");
	has(text, "weir_session_tx_bytes_total{session=\"3\",name=\"a\\\"b\\\\c?d?=1\"} 9");
	has(text, "weir_node_state{node=\"2\",state=\"suspect\"} 1");
	has(text, "weir_node_state{node=\"2\",state=\"up\"} 0");
	assert_non_null(strstr(text, "weir_info{cluster=\"here\",node=\"2\",version="));
	has(text, "weir_certificate_days_left{certificate=\"node\"} 12.50");
	has(text, "weir_certificate_days_left{certificate=\"ca\"} -1.00");
	has(text, "weir_broker_links_up_total 4");
	has(text, "# HELP weir_broker_links_up_total links \\\\ up");
	assert_null(strstr(text, "told above"));
	assert_int_equal(text[strlen(text) - 1], '\n');
	free(text);
}

static void
test_dead(void **state)
{
	char *text = metrics_text(NULL, "here", NULL, 0);

	has(text, "weir_up 0");
	assert_null(strstr(text, "engine"));
	free(text);
}

/* More than the first piece of memory. */
static void
test_many(void **state)
{
	struct metrics_rows rows[METRICS_KINDS] = {0};
	struct weir_row_session *session = calloc(4096, sizeof(*session));
	char *text, last[96];

	for (uint32_t i = 0; i < 4096; i++) {
		session[i].session = i;
		snprintf(session[i].name, sizeof(session[i].name), "program-of-many-%u", i);
	}
	rows[2] = (struct metrics_rows){4096, (uint8_t *)session};
	text = metrics_text(rows, "here", NULL, 0);
	snprintf(last, sizeof(last),
		 "weir_session_weight{session=\"%u\",name=\"program-of-many-%u\"} 0", 4095, 4095);
	has(text, last);
	free(text);
	free(session);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_all),
	    cmocka_unit_test(test_dead),
	    cmocka_unit_test(test_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

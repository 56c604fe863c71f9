/* SPDX-License-Identifier: BSD-3-Clause */
/* Tables for people: which fields, under which title, in which unit. */
#include "weirctl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum format { PLAIN, COUNT, BYTES, RATE, PERCENT, HEX, NESTED };

struct column {
	const char *key, *title;
	enum format format;
};

#define COLUMNS_MAX 16
#define CELL_MAX 256

static const struct column columns[][COLUMNS_MAX + 1] = {
    [WEIR_ROWS_NODES] = {{"id", "NODE", PLAIN},
			 {"self", "SELF", PLAIN},
			 {"state", "STATE", PLAIN},
			 {"address", "ADDRESS", PLAIN},
			 {"engines", "ENGINES", PLAIN},
			 {"control", "CONTROL", PLAIN},
			 {"incarnation", "INCARNATION", PLAIN}},
    [WEIR_ROWS_ENGINES] = {{"engine", "ENGINE", PLAIN},
			   {"lcore", "LCORE", PLAIN},
			   {"cpu", "CPU", PLAIN},
			   {"busy_percent", "BUSY", PERCENT},
			   {"sessions", "SESSIONS", PLAIN},
			   {"tx_messages_per_s", "TX msg/s", COUNT},
			   {"rx_messages_per_s", "RX msg/s", COUNT},
			   {"tx_messages", "TX msgs", COUNT},
			   {"rx_messages", "RX msgs", COUNT},
			   {"tx_bytes", "TX", BYTES},
			   {"rx_bytes", "RX", BYTES},
			   {"turns", "TURNS", COUNT},
			   {"yields", "YIELDS", COUNT},
			   {"sleeps", "SLEEPS", COUNT}},
    [WEIR_ROWS_SESSIONS] = {{"session", "SESSION", PLAIN},
			    {"name", "NAME", PLAIN},
			    {"pid", "PID", PLAIN},
			    {"user", "USER", PLAIN},
			    {"channels", "CHANNELS", PLAIN},
			    {"connections", "CONNECTIONS", PLAIN},
			    {"listeners", "LISTENERS", PLAIN},
			    {"handling_ms", "IN HANDLER ms", PLAIN},
			    {"arena_bytes", "ARENA", BYTES},
			    {"weight", "WEIGHT", PLAIN},
			    {"rate", "RATE B/s", RATE},
			    {"tx_messages", "TX msgs", COUNT},
			    {"tx_bytes", "TX", BYTES},
			    {"limited", "LIMITED", COUNT}},
    [WEIR_ROWS_CONNECTIONS] = {{"vqpn", "VQPN", HEX},
			       {"peer", "PEER", PLAIN},
			       {"peer_vqpn", "PEER VQPN", HEX},
			       {"state", "STATE", PLAIN},
			       {"transport", "BY", PLAIN},
			       {"session", "SESSION", PLAIN},
			       {"engine", "ENGINE", PLAIN},
			       {"window", "WINDOW", BYTES},
			       {"outstanding", "OUTSTANDING", BYTES},
			       {"returned", "RETURNED", BYTES},
			       {"dropped", "DROPPED", COUNT},
			       {"by_primitive", "MESSAGES", NESTED}},
    [WEIR_ROWS_QPS] = {{"qpn", "QPN", HEX},
		       {"peer_qpn", "PEER QPN", HEX},
		       {"peer_node", "PEER NODE", PLAIN},
		       {"engine", "ENGINE", PLAIN},
		       {"peer_engine", "PEER ENGINE", PLAIN},
		       {"purpose", "PURPOSE", PLAIN},
		       {"state", "STATE", PLAIN},
		       {"frames_sent", "SENT frames", COUNT},
		       {"frames_received", "RECEIVED frames", COUNT},
		       {"ring_used", "RING used", PLAIN},
		       {"ring_lines", "RING lines", PLAIN}},
    [WEIR_ROWS_PORTS] = {{"name", "PORT", PLAIN},
			 {"driver", "DRIVER", PLAIN},
			 {"address", "ADDRESS", PLAIN},
			 {"link", "LINK", PLAIN},
			 {"mtu", "MTU", PLAIN},
			 {"engine", "ENGINE", PLAIN},
			 {"rx_frames", "RX frames", COUNT},
			 {"tx_frames", "TX frames", COUNT},
			 {"rx_bytes", "RX", BYTES},
			 {"tx_bytes", "TX", BYTES},
			 {"drops", "DROPS", NESTED}},
    [WEIR_ROWS_COUNTERS] = {{"name", "COUNTER", PLAIN},
			    {"value", "VALUE", PLAIN},
			    {"help", "MEANING", PLAIN}},
    [WEIR_ROWS_SETTINGS] = {{"key", "KEY", PLAIN},
			    {"value", "VALUE", PLAIN},
			    {"help", "MEANING", PLAIN}},
    [WEIR_ROWS_SERVICES] = {{"name", "SERVICE", PLAIN},
			    {"node", "NODE", PLAIN},
			    {"port", "PORT", PLAIN},
			    {"program", "PROGRAM", PLAIN},
			    {"session", "SESSION", PLAIN},
			    {"since", "SINCE", PLAIN}},
    [TABLE_TOP_ENGINES] = {{"engine", "ENGINE", PLAIN},
			   {"lcore", "LCORE", PLAIN},
			   {"cpu", "CPU", PLAIN},
			   {"busy_percent", "BUSY", PERCENT},
			   {"tx_messages_per_s", "TX msg/s", COUNT},
			   {"rx_messages_per_s", "RX msg/s", COUNT},
			   {"tx_bytes_per_s", "TX B/s", COUNT},
			   {"rx_bytes_per_s", "RX B/s", COUNT},
			   {"sleeps_per_s", "SLEEPS/s", COUNT}},
    [TABLE_TOP_PROGRAMS] = {{"session", "SESSION", PLAIN},
			    {"name", "PROGRAM", PLAIN},
			    {"pid", "PID", PLAIN},
			    {"connections", "CONNECTIONS", PLAIN},
			    {"messages_per_s", "msg/s", COUNT},
			    {"tx_messages_per_s", "TO PEERS msg/s", COUNT},
			    {"tx_bytes_per_s", "TO PEERS B/s", COUNT},
			    {"limited_per_s", "LIMITED/s", COUNT}},
    [TABLE_TOP_CONNECTIONS] = {{"vqpn", "VQPN", HEX},
			       {"peer", "PEER", PLAIN},
			       {"transport", "BY", PLAIN},
			       {"session", "SESSION", PLAIN},
			       {"name", "PROGRAM", PLAIN},
			       {"messages_per_s", "msg/s", COUNT},
			       {"sent_bytes_per_s", "SENT B/s", COUNT},
			       {"outstanding", "OUTSTANDING", BYTES}},
};

// A number in the largest unit that leaves three digits and more.
static void
scaled(char *cell, double value, double step, const char *const unit[5])
{
	int i = 0;

	while (value >= step * 10 && i < 4) {
		value /= step;
		i++;
	}
	snprintf(cell, CELL_MAX, i ? "%.1f%s" : "%.0f%s", value, unit[i]);
}

static void
nested(char *cell, const json_t *object)
{
	const char *key;
	json_t *value;
	size_t n = 0;

	// Zeros are left out: a row of zeros hides the one number that is not.
	snprintf(cell, CELL_MAX, "-");
	json_object_foreach((json_t *)object, key, value)
	{
		if (json_integer_value(value) == 0 || n >= CELL_MAX)
			continue;
		n += snprintf(cell + n, CELL_MAX - n, "%s%s=%" JSON_INTEGER_FORMAT, n ? " " : "",
			      key, json_integer_value(value));
	}
}

// Names come from programs: nothing of them may steer the terminal.
static void
printable(char *cell, const char *text)
{
	size_t n = 0;

	for (; text[n] && n < CELL_MAX - 1; n++)
		cell[n] = text[n] >= ' ' && text[n] <= '~' ? text[n] : '?';
	cell[n] = 0;
	if (n == 0)
		snprintf(cell, CELL_MAX, "-");
}

static void
format_cell(char *cell, enum format format, const json_t *value)
{
	static const char *const count[5] = {"", " k", " M", " G", " T"};
	static const char *const bytes[5] = {" B", " KiB", " MiB", " GiB", " TiB"};
	uint64_t number = json_integer_value(value);

	if (json_is_null(value))
		snprintf(cell, CELL_MAX, "-");
	else if (format == NESTED)
		nested(cell, value);
	else if (json_is_string(value))
		printable(cell, json_string_value(value));
	else if (json_is_boolean(value))
		snprintf(cell, CELL_MAX, "%s", json_is_true(value) ? "yes" : "-");
	else if (format == PERCENT)
		snprintf(cell, CELL_MAX, "%.1f %%", json_number_value(value));
	else if (format == COUNT)
		scaled(cell, number, 1000, count);
	else if (format == RATE && number == 0)
		snprintf(cell, CELL_MAX, "-");
	else if (format == RATE)
		scaled(cell, number, 1000, count);
	else if (format == BYTES)
		scaled(cell, number, 1024, bytes);
	else if (format == HEX)
		snprintf(cell, CELL_MAX, "0x%" PRIx64, number);
	else
		snprintf(cell, CELL_MAX, "%" PRIu64, number);
}

static bool
is_text(const struct column *c, const json_t *array)
{
	const json_t *value = json_object_get(json_array_get(array, 0), c->key);

	return !json_is_number(value);
}

static void
print_row(const struct column *c, const json_t *array, const int width[], const json_t *row)
{
	for (int i = 0; c[i].key; i++) {
		char cell[CELL_MAX];
		bool text = is_text(&c[i], array);

		if (row)
			format_cell(cell, c[i].format, json_object_get(row, c[i].key));
		else
			snprintf(cell, sizeof(cell), "%s", c[i].title);
		// No blanks at the end of a line: the last text column isn't padded.
		printf("%s%*s", i ? "  " : "", text ? (c[i + 1].key ? -width[i] : 0) : width[i],
		       cell);
	}
	putchar('\n');
}

void
table_print(uint32_t kind, const json_t *array)
{
	const struct column *c = columns[kind];
	int width[COLUMNS_MAX] = {0};
	size_t index;
	json_t *row;

	for (int i = 0; c[i].key; i++)
		width[i] = strlen(c[i].title);
	json_array_foreach((json_t *)array, index, row)
	{
		for (int i = 0; c[i].key; i++) {
			char cell[CELL_MAX];
			int n;

			format_cell(cell, c[i].format, json_object_get(row, c[i].key));
			n = strlen(cell);
			width[i] = n > width[i] ? n : width[i];
		}
	}
	print_row(c, array, width, NULL);
	json_array_foreach((json_t *)array, index, row) print_row(c, array, width, row);
}

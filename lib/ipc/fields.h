/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fields of the rows of control.sock: a table per kind of row. weirctl's tables and JSON,
 * telemetry, metrics and the decoder are loops over it. A new field is a member of its row in
 * dpctl.h and a line in fields.c; a new counter of engines, NICs or the broker is a line in
 * ENGINE_COUNTERS, NIC_COUNTERS or BROKER_COUNTERS.
 */
#ifndef WEIR_IPC_FIELDS_H
#define WEIR_IPC_FIELDS_H

#include "dpctl.h"

#include <stdbool.h>
#include <stddef.h>

#define WEIR_VALUE_TEXT 512

enum weir_value_type {
	VALUE_NUMBER,
	VALUE_REAL,
	VALUE_BOOL,
	VALUE_TEXT, /* may hold any bytes: names come from programs */
	VALUE_NONE, /* not known */
};

struct weir_value {
	enum weir_value_type type;
	uint64_t number; /* and VALUE_BOOL */
	double real;
	char text[WEIR_VALUE_TEXT];
};

/* How weirctl's tables print a number; RATE and KNOWN: 0 is "-". */
enum weir_unit {
	UNIT_PLAIN,
	UNIT_KNOWN,
	UNIT_COUNT,
	UNIT_BYTES,
	UNIT_RATE,
	UNIT_PERCENT,
	UNIT_HEX
};

enum weir_field_hidden { HIDE_JSON = 1, HIDE_TELEMETRY = 2 };

struct weir_field {
	const char *name;      /* in JSON and telemetry */
	const char *title;     /* column of weirctl's table; NULL: none */
	const char *label;     /* label of the row's metrics that has this value; NULL: none */
	const char *metric;    /* behind weir_KIND_; "..._total" is a counter; NULL: none */
	const char *help;      /* of the metric */
	uint16_t offset, size; /* of the member; size 0: none */
	bool text;	       /* the member is a string; else a number of 4 or 8 bytes */
	bool boolean;	       /* the number is 0 or 1: false or true in JSON */
	enum weir_unit unit;
	unsigned hidden; /* enum weir_field_hidden */
	/* Computes the value; NULL: it is the member's. */
	void (*make)(const void *row, struct weir_value *v);
	/*
	 * The field is a set of named numbers: gives number `i`, false if there are fewer. It is an
	 * object in JSON, `part_prefix` and name in telemetry, a label `part_label` in metrics.
	 */
	bool (*part)(const void *row, uint32_t i, const char **name, uint64_t *value);
	const char *part_prefix, *part_label;
};

struct weir_kind {
	const char *name;   /* "nodes" */
	const char *metric; /* prefix of its metrics, "weir_node_" */
	uint32_t bytes;	    /* of a row */
	const struct weir_field *fields;
	uint32_t count;
};

/* NULL: there is no such kind. */
const struct weir_kind *weir_kind(uint32_t rows);
/* enum weir_ctl_rows of a name, 0 if there is none. */
uint32_t weir_kind_named(const char *name);
/* The field with this name and length of name; NULL: none. */
const struct weir_field *weir_field_named(const struct weir_kind *k, const char *name,
					  size_t length);
/* The value of a field that has no parts. */
void weir_field_value(const struct weir_field *f, const void *row, struct weir_value *v);
/* The member, a number. */
uint64_t weir_field_number(const struct weir_field *f, const void *row);

#endif

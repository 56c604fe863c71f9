/* SPDX-License-Identifier: BSD-3-Clause */
/* Records of the data plane in the text format of Prometheus, 0.0.4: family by family. */
#include "metrics.h"

#include "base/vec.h"
#include "ipc/fields.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ENGINES, PORTS, SESSIONS, NODES, COUNTERS };
const uint32_t metrics_kind[METRICS_KINDS] = {
    [ENGINES] = WEIR_ROWS_ENGINES, [PORTS] = WEIR_ROWS_PORTS,	    [SESSIONS] = WEIR_ROWS_SESSIONS,
    [NODES] = WEIR_ROWS_NODES,	   [COUNTERS] = WEIR_ROWS_COUNTERS,
};

struct text {
	char *at;
	size_t length, room;
	bool failed; /* out of memory */
};

static void __attribute__((format(printf, 2, 3))) put(struct text *t, const char *format, ...)
{
	va_list args;

	while (!t->failed) {
		size_t left = t->room - t->length;
		int n;

		va_start(args, format);
		n = vsnprintf(t->at + t->length, left, format, args);
		va_end(args);
		if (n < 0 || (size_t)n < left) {
			t->length += n < 0 ? 0 : (size_t)n;
			return;
		}
		t->failed = VEC_RESERVE(t->at, t->room, t->length + (size_t)n + 1) != 0;
	}
}

static void
family(struct text *t, const char *name, const char *help)
{
	size_t n = strlen(name);
	const char *type = n > 6 && !strcmp(name + n - 6, "_total") ? "counter" : "gauge";

	put(t, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* A label's value: names come from programs. */
static const char *
label(const char *from, char *to, size_t size)
{
	size_t n = 0;

	for (; *from && n + 2 < size; from++) {
		if (*from == '"' || *from == '\\')
			to[n++] = '\\';
		to[n++] = *from >= ' ' && *from <= '~' ? *from : '?';
	}
	to[n] = 0;
	return to;
}

/* Labels of a row: the fields that have a label, in order. */
static void
put_labels(char *text, size_t size, const struct weir_kind *k, const void *row)
{
	struct weir_value v;
	char name[130];
	size_t n = 0;

	for (uint32_t i = 0; i < k->count; i++) {
		const struct weir_field *f = &k->fields[i];

		if (!f->label)
			continue;
		weir_field_value(f, row, &v);
		if (v.type == VALUE_TEXT)
			label(v.text, name, sizeof(name));
		else
			snprintf(name, sizeof(name), "%" PRIu64, v.number);
		n += (size_t)snprintf(text + n, size - n, "%s%s=\"%s\"", n ? "," : "", f->label,
				      name);
	}
}

/* A family per field that is a metric, a line per row and part. */
static void
put_rows(struct text *t, const struct weir_kind *k, const struct metrics_rows *rows)
{
	for (uint32_t c = 0; c < k->count; c++) {
		const struct weir_field *f = &k->fields[c];
		char name[96], labels[512], part[130];
		const char *of;

		if (!f->metric)
			continue;
		snprintf(name, sizeof(name), "%s%s", k->metric, f->metric);
		family(t, name, f->help);
		for (uint32_t i = 0; i < rows->count; i++) {
			const void *row = rows->records + (size_t)i * k->bytes;
			struct weir_value v;

			put_labels(labels, sizeof(labels), k, row);
			for (uint32_t p = 0; f->part && f->part(row, p, &of, &v.number); p++)
				put(t, "%s{%s,%s=\"%s\"} %" PRIu64 "\n", name, labels,
				    f->part_label, label(of, part, sizeof(part)), v.number);
			if (f->part)
				continue;
			weir_field_value(f, row, &v);
			if (v.type == VALUE_REAL)
				put(t, "%s{%s} %.6f\n", name, labels, v.real);
			else
				put(t, "%s{%s} %" PRIu64 "\n", name, labels, v.number);
		}
	}
}

/* Counters but those that are metrics per engine. */
static void
put_counters(struct text *t, const struct metrics_rows *rows)
{
	const struct weir_row_counter *c = (const void *)rows->records;
	const struct weir_kind *k = weir_kind(WEIR_ROWS_ENGINES);
	char name[80], help[200];

	for (uint32_t i = 0; i < rows->count; i++) {
		const char *of = c[i].name + sizeof("engine.") - 1;
		const struct weir_field *f = NULL;

		if (!strncmp(c[i].name, "engine.", sizeof("engine.") - 1))
			f = weir_field_named(k, of, strlen(of));
		if (f && f->metric)
			continue;
		snprintf(name, sizeof(name), "weir_%s_total", c[i].name);
		for (char *at = name; *at; at++)
			if (!strchr("abcdefghijklmnopqrstuvwxyz0123456789_", *at))
				*at = '_';
		family(t, name, label(c[i].help, help, sizeof(help)));
		put(t, "%s %" PRIu64 "\n", name, c[i].value);
	}
}

char *
metrics_text(const struct metrics_rows *rows, const char *cluster,
	     const struct metrics_certificate *certificates, uint32_t count)
{
	struct text t = {.at = malloc(65536), .room = 65536};
	const struct weir_row_node *n = rows ? (const void *)rows[NODES].records : NULL;
	char own[16] = ""; /* while it isn't known */

	if (!t.at)
		return NULL;
	for (uint32_t i = 0; n && i < rows[NODES].count; i++)
		if (n[i].is.self)
			snprintf(own, sizeof(own), "%u", n[i].is.id);
	family(&t, "weir_up", "1: the data plane answers");
	put(&t, "weir_up %d\n", rows != NULL);
	family(&t, "weir_info", "Which node of which cluster this is");
	put(&t, "weir_info{cluster=\"%s\",node=\"%s\",version=\"" WEIR_VERSION "\"} 1\n", cluster,
	    own);
	if (count)
		family(&t, "weir_certificate_days_left",
		       "Days until a certificate of weir-control expires");
	for (uint32_t i = 0; i < count; i++)
		put(&t, "weir_certificate_days_left{certificate=\"%s\"} %.2f\n",
		    certificates[i].name, certificates[i].days);
	if (rows) {
		family(&t, "weir_sessions", "Attached programs");
		put(&t, "weir_sessions %u\n", rows[SESSIONS].count);
		for (uint32_t i = 0; i < COUNTERS; i++)
			put_rows(&t, weir_kind(metrics_kind[i]), &rows[i]);
		put_counters(&t, &rows[COUNTERS]);
	}
	if (t.failed) {
		free(t.at);
		return NULL;
	}
	return t.at;
}

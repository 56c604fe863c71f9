/* SPDX-License-Identifier: BSD-3-Clause */
/* Rows as JSON, and JSON as tables for people: loops over the fields of ipc/fields.h. */
#include "weirctl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define CELL_MAX 256

// Names come from programs: what isn't UTF-8 loses the bytes that aren't ASCII.
json_t *
rows_text(const char *text)
{
	json_t *value = json_string(text);
	char ascii[128];
	size_t n = 0;

	if (!value) {
		for (; text[n] && n < sizeof(ascii) - 1; n++)
			ascii[n] = text[n] & 0x80 ? '?' : text[n];
		ascii[n] = 0;
		value = json_string(ascii);
	}
	return value;
}

json_t *
rows_value(const struct weir_field *f, const void *row)
{
	struct weir_value v;

	if (f->part) {
		json_t *parts = json_object();
		const char *name;

		for (uint32_t i = 0; f->part(row, i, &name, &v.number); i++)
			json_object_set_new(parts, name, json_integer((json_int_t)v.number));
		return parts;
	}
	weir_field_value(f, row, &v);
	switch (v.type) {
	case VALUE_NUMBER:
		return json_integer((json_int_t)v.number);
	case VALUE_REAL:
		return json_real(v.real);
	case VALUE_BOOL:
		return json_boolean(v.number);
	case VALUE_TEXT:
		return rows_text(v.text);
	case VALUE_NONE:
		break;
	}
	return json_null();
}

json_t *
rows_json(const struct rows *rows)
{
	const struct weir_kind *k = weir_kind(rows->kind);
	json_t *array = json_array();

	for (uint32_t i = 0; array && i < rows->count; i++) {
		json_t *o = json_object();

		for (uint32_t c = 0; c < k->count; c++)
			if (!(k->fields[c].hidden & HIDE_JSON))
				json_object_set_new(o, k->fields[c].name,
						    rows_value(&k->fields[c], rows_at(rows, i)));
		if (json_array_append_new(array, o)) {
			json_decref(array);
			array = NULL;
		}
	}
	return array;
}

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

// A cell of the column, or (row NULL) its title.
static void
format_cell(const struct weir_field *f, const json_t *row, char *cell)
{
	static const char *const count[5] = {"", " k", " M", " G", " T"};
	static const char *const bytes[5] = {" B", " KiB", " MiB", " GiB", " TiB"};
	const json_t *value = row ? json_object_get(row, f->name) : NULL;
	uint64_t number = json_integer_value(value);
	size_t n = 0;

	snprintf(cell, CELL_MAX, "%s", row ? "-" : f->title);
	if (json_is_object(value)) {
		const char *key;
		json_t *part;

		// Zeros are left out: a row of zeros hides the one number that is not.
		json_object_foreach((json_t *)value, key, part)
		{
			if (json_integer_value(part) != 0 && n < CELL_MAX)
				n += snprintf(cell + n, CELL_MAX - n, "%s%s=%" JSON_INTEGER_FORMAT,
					      n ? " " : "", key, json_integer_value(part));
		}
	} else if (json_is_string(value)) {
		const char *text = json_string_value(value);

		// Names come from programs: nothing of them may steer the terminal.
		for (; text[n] && n < CELL_MAX - 1; n++)
			cell[n] = text[n] >= ' ' && text[n] <= '~' ? text[n] : '?';
		if (n)
			cell[n] = 0;
	} else if (json_is_true(value)) {
		snprintf(cell, CELL_MAX, "yes");
	} else if (json_is_number(value)) {
		switch (f->unit) {
		case UNIT_PERCENT:
			snprintf(cell, CELL_MAX, "%.1f %%", json_number_value(value));
			break;
		case UNIT_RATE:
			if (number)
				scaled(cell, number, 1000, count);
			break;
		case UNIT_COUNT:
			scaled(cell, number, 1000, count);
			break;
		case UNIT_BYTES:
			scaled(cell, number, 1024, bytes);
			break;
		case UNIT_HEX:
			snprintf(cell, CELL_MAX, "0x%" PRIx64, number);
			break;
		case UNIT_KNOWN:
			if (number)
				snprintf(cell, CELL_MAX, "%" PRIu64, number);
			break;
		case UNIT_PLAIN:
			snprintf(cell, CELL_MAX, "%" PRIu64, number);
			break;
		}
	}
}

void
table_print(const struct weir_field *f, uint32_t count, const json_t *array)
{
	const json_t *first = json_array_get(array, 0);
	int width[ROWS_FIELDS] = {0}, last = 0;
	size_t rows = json_array_size(array);
	char cell[CELL_MAX];

	for (uint32_t c = 0; c < count && c < ROWS_FIELDS; c++) {
		if (!f[c].title)
			continue;
		last = (int)c;
		for (size_t i = 0; i <= rows; i++) {
			int n;

			format_cell(&f[c], i ? json_array_get(array, i - 1) : NULL, cell);
			n = (int)strlen(cell);
			width[c] = n > width[c] ? n : width[c];
		}
	}
	for (size_t i = 0; i <= rows; i++) {
		const char *gap = "";

		for (int c = 0; c <= last; c++) {
			bool text;

			if (!f[c].title)
				continue;
			text = !json_is_number(json_object_get(first, f[c].name));
			format_cell(&f[c], i ? json_array_get(array, i - 1) : NULL, cell);
			// No blanks at the end of a line: the last text column isn't padded.
			printf("%s%*s", gap, !text ? width[c] : c == last ? 0 : -width[c], cell);
			gap = "  ";
		}
		putchar('\n');
	}
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads all that an Arrow array claims to have, as a consumer that trusts it would. */
#ifndef TEST_WORLDS_ARROW_TOUCH_H
#define TEST_WORLDS_ARROW_TOUCH_H

#include "weir/arrow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline uint64_t
arrow_touch_bytes(const void *p, uint64_t n)
{
	const uint8_t *bytes = p;
	uint64_t sum = 0;

	for (uint64_t i = 0; i < n; i++)
		sum += bytes[i];
	return sum;
}

/* Bytes of an element of fixed width; 0: it has none. */
static inline uint64_t
arrow_touch_width(const char *format)
{
	static const struct {
		const char *formats; /* each with a space before and after it */
		uint64_t width;
	} widths[] = {
	    {" c C ", 1},
	    {" s S e ", 2},
	    {" i I f tdD tts ttm tiM ", 4},
	    {" l L g tdm ttu ttn tDs tDm tDu tDn tiD ", 8},
	    {" tin ", 16},
	};
	char word[8];
	const char *bits;

	if (format[0] == 'w')
		return strtoull(format + 2, NULL, 10);
	if (format[0] == 'd') {
		bits = strchr(strchr(format, ',') + 1, ',');
		return bits ? strtoull(bits + 1, NULL, 10) / 8 : 16;
	}
	if (format[0] == 't' && format[1] == 's')
		return 8;
	snprintf(word, sizeof(word), " %s ", format);
	for (uint64_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
		if (strstr(widths[i].formats, word))
			return widths[i].width;
	}
	return 0;
}

/* Returns the sum of all bytes. */
static inline uint64_t
arrow_touch(const struct ArrowSchema *s, const struct ArrowArray *a)
{
	uint64_t n = (uint64_t)(a->offset + a->length), sum = 0,
		 width = arrow_touch_width(s->format);
	char kind = s->format[0] == '+' ? s->format[1] : s->format[0];

	if (a->n_buffers && a->buffers[0])
		sum += arrow_touch_bytes(a->buffers[0], (n + 7) / 8);
	if (s->format[0] != '+' && kind == 'b')
		sum += arrow_touch_bytes(a->buffers[1], (n + 7) / 8);
	if (s->format[0] != '+' && width)
		sum += arrow_touch_bytes(a->buffers[1], n * width);
	if (!width && strchr("uzlm", kind)) {
		sum += arrow_touch_bytes(a->buffers[1], (n + 1) * 4);
		if (s->format[0] != '+')
			sum += arrow_touch_bytes(a->buffers[2],
						 (uint64_t)((const int32_t *)a->buffers[1])[n]);
	}
	if (!width && strchr("UZL", kind)) {
		sum += arrow_touch_bytes(a->buffers[1], (n + 1) * 8);
		if (s->format[0] != '+')
			sum += arrow_touch_bytes(a->buffers[2],
						 (uint64_t)((const int64_t *)a->buffers[1])[n]);
	}
	for (int64_t i = 0; i < a->n_children; i++)
		sum += arrow_touch(s->children[i], a->children[i]);
	return sum + (a->dictionary ? arrow_touch(s->dictionary, a->dictionary) : 0);
}

#endif

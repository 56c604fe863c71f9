/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Schemas of record batches: a tree of types, in order of depth. A type is followed by its
 * dictionary's type, if it has one, or by its children.
 *
 * The image of a schema is the same tree as bytes, equal for equal schemas: per type the length of
 * its format, that of its name, flags, 1 if it has a dictionary (a byte each), the number of
 * children (2 bytes), format and name, each ended by a zero.
 */
#ifndef WEIR_SHUFFLE_ARROW_TYPE_H
#define WEIR_SHUFFLE_ARROW_TYPE_H

#include "shuffle/format/public.h"

#include <stdint.h>

#define ARROW_DEPTH_MAX 16u	/* levels below the record batch */
#define ARROW_COLUMNS_MAX 4096u /* types without the record batch's own */
#define ARROW_TEXT_MAX 255u	/* bytes of a format or a name */
#define ARROW_IMAGE_HEAD 6u	/* bytes of a type ahead of its format */
#define ARROW_IMAGE_MAX ((ARROW_COLUMNS_MAX + 1) * (ARROW_IMAGE_HEAD + 2 * (ARROW_TEXT_MAX + 1)))

enum arrow_layout {
	ARROW_NULL,
	ARROW_BOOL,
	ARROW_FIXED,
	ARROW_BYTES,
	ARROW_LARGE_BYTES,
	ARROW_LIST, /* maps, too */
	ARROW_LARGE_LIST,
	ARROW_FIXED_LIST,
	ARROW_STRUCT,
};

enum arrow_number {
	ARROW_OTHER,
	ARROW_SIGNED,
	ARROW_UNSIGNED,
	ARROW_FLOAT,
};

struct arrow_type {
	const char *format, *name; /* in the image */
	uint32_t width;		   /* ARROW_FIXED: bytes; ARROW_FIXED_LIST: elements */
	uint32_t nodes;		   /* types from this one to the last below it */
	uint16_t children;
	uint8_t layout; /* enum arrow_layout; of a dictionary's indices, not its values */
	uint8_t number; /* enum arrow_number */
	uint8_t flags;	/* ARROW_FLAG_* */
	uint8_t dictionary;
};

struct arrow_schema {
	uint8_t *image;
	uint32_t bytes; /* of the image */
	uint32_t nodes;
	struct arrow_type type[]; /* [0] is the record batch */
};

/* Both return 0, -EINVAL, -ENOTSUP or -ENOMEM. A program's schema; an image, maybe a liar's. */
int arrow_schema_of(const struct ArrowSchema *from, struct arrow_schema **schema);
int arrow_schema_read(const uint8_t *image, uint32_t bytes, uint32_t nodes,
		      struct arrow_schema **schema);
void arrow_schema_free(struct arrow_schema *s);
/* Makes a copy that lives on its own. Returns 0 or -ENOMEM. */
int arrow_schema_export(const struct arrow_schema *s, struct ArrowSchema *out);

/* Bytes of an offset. */
static inline uint32_t
arrow_offset_width(const struct arrow_type *t)
{
	return t->layout == ARROW_LARGE_BYTES || t->layout == ARROW_LARGE_LIST ? 8 : 4;
}

#endif

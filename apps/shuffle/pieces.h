/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pieces of a file, as words or lines: runs of bytes of a set. A range of the file has the pieces
 * that begin in it, so that each one belongs to one of adjacent ranges.
 */
#ifndef SHUFFLE_PIECES_H
#define SHUFFLE_PIECES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PIECE_MAX (1u << 20) /* bytes; a longer one is an error */

struct piece_set {
	bool has[256];
};
extern const struct piece_set piece_lines; /* all but newline; empty lines are none */
extern const struct piece_set piece_words; /* ASCII letters */

struct pieces {
	int fd;
	const struct piece_set *set;
	uint64_t end;  /* of the range */
	uint64_t base; /* offset of the buffer in the file */
	uint8_t *buffer;
	size_t at, have; /* in it */
	bool over;	 /* the file */
};

/* 0, or -errno and weir_reason(); closed in any case. */
int pieces_open(struct pieces *p, int fd, uint64_t from, uint64_t end, const struct piece_set *set);
void pieces_close(struct pieces *p);
/* The next piece, which may be changed, valid until the next call. 0; -ENODATA: none; or -errno and
 * weir_reason(). */
int pieces_next(struct pieces *p, uint8_t **piece, uint32_t *length);

/* A file in ranges. */
struct input {
	const char *path;
	int fd;
	uint64_t size;
	uint32_t maps; /* ranges, at least 1 */
};
/* 0, or -errno and weir_reason(). Close fd. */
int input_open(struct input *in, const char *path, uint64_t split);
/* Pieces of range `map`. As pieces_open(). */
int input_pieces(const struct input *in, uint32_t map, const struct piece_set *set,
		 struct pieces *p);

#endif

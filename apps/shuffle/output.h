/* SPDX-License-Identifier: BSD-3-Clause */
/* A file that is written in large pieces. */
#ifndef SHUFFLE_OUTPUT_H
#define SHUFFLE_OUTPUT_H

#include <stddef.h>
#include <stdint.h>

struct output {
	int fd;
	const char *path; /* the caller's, until it is closed */
	uint8_t *buffer;
	size_t used;
};

/* 0, or -errno and weir_reason(); then it is closed all the same. */
int output_open(struct output *o, const char *path);
int output_write(struct output *o, const void *bytes, size_t length);
/* rc: of all before; 0 writes the rest. Returns rc, or the error of that. */
int output_close(struct output *o, int rc);

/* Makes a directory, unless it exists. 0, or -errno and weir_reason(). */
int output_directory(const char *path);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Secrets, and files that only their owner may read: private keys, passwords. */
#ifndef WEIR_SECRET_H
#define WEIR_SECRET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Opens a file that belongs to us or root and that nobody else may read or write. A descriptor, or
 * -errno and a line in `error`, which ends with `remedy` if there is no such file.
 */
int secret_open(const char *path, const char *remedy, char *error, size_t size);

/* Takes the same time whichever of the bytes differ. */
static inline bool
secret_equal(const void *a, const void *b, size_t bytes)
{
	const uint8_t *one = a, *other = b;
	uint8_t differ = 0;

	for (size_t i = 0; i < bytes; i++)
		differ |= one[i] ^ other[i];
	return !differ;
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Files that only their owner may read: private keys, passwords. */
#ifndef WEIR_SECRET_H
#define WEIR_SECRET_H

#include <stddef.h>

/*
 * Opens a file that belongs to us or root and that nobody else may read or write. A descriptor, or
 * -errno and a line in `error`, which ends with `remedy` if there is no such file.
 */
int secret_open(const char *path, const char *remedy, char *error, size_t size);

#endif

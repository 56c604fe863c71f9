/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks that no other user can replace the file at a path. */
#ifndef WEIR_COMMON_PATH_CHECK_H
#define WEIR_COMMON_PATH_CHECK_H

#include <stddef.h>

enum path_check { /* Daemons: every component belongs to root or to us, and no other user may write
		   * there, except in directories with the sticky bit before the last. The end is a
		   * directory. */
		  PATH_OURS,
		  /* Programs: in directories where others may write, root or we own the next
		     component. */
		  PATH_AS_GIVEN,
};

/*
 * Components that do not exist pass. 0, -EACCES or another -errno, with "cause; remedy" in error.
 * After 0 only root and we can change the result.
 */
int path_check(const char *path, enum path_check how, char *error, size_t size);

#endif

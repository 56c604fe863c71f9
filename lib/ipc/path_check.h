/* SPDX-License-Identifier: BSD-3-Clause */
/* Who could put something else at the end of a path. */
#ifndef WEIR_COMMON_PATH_CHECK_H
#define WEIR_COMMON_PATH_CHECK_H

#include <stddef.h>

enum path_check {
	/* Daemons: all of it belongs to root or to us, and nobody else may write there, but for
	 * directories with the sticky bit on the way. The end is a directory. */
	PATH_OURS,
	/* Programs: where others may write, only root or we have put what lies on the way. */
	PATH_AS_GIVEN,
};

/*
 * What doesn't exist yet is nobody's. 0, -EACCES or another -errno, with "cause; remedy" in error.
 * Once it is 0 only root and we can change the answer.
 */
int path_check(const char *path, enum path_check how, char *error, size_t size);

#endif

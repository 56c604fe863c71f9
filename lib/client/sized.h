/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Structures of programs that begin with their size. Program and library may be of different
 * releases, and then one of them knows more fields; docs/abi.md has the rules.
 */
#ifndef WEIR_CLIENT_SIZED_H
#define WEIR_CLIENT_SIZED_H

#include "reason.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The size of a program's structure, 0: -EINVAL. `init` names the macro that sets it. */
static inline size_t
weir_sized_check(const void *given, const char *init)
{
	size_t size;

	memcpy(&size, given, sizeof(size));
	if (size >= sizeof(size) && size <= WEIR_SIZE_MAX)
		return size;
	weir_fail(-EINVAL, "the structure's size is %zu; initialize it with %s", size, init);
	return 0;
}

/*
 * Reads *given, NULL: nothing, over the defaults in *own, which has `known` bytes. Returns 0,
 * -EINVAL, or -E2BIG if a field that this library does not know is not 0.
 */
static inline int
weir_sized_read(void *own, size_t known, const void *given, const char *init)
{
	size_t size = given ? weir_sized_check(given, init) : known;

	if (!size)
		return -EINVAL;
	for (size_t i = known; i < size; i++)
		if (((const uint8_t *)given)[i])
			return weir_fail(
			    -E2BIG,
			    "byte %zu of the structure that %s initializes is set, and "
			    "this libweir knows %zu; install the release that the "
			    "program was built for",
			    i, init, known);
	if (given)
		memcpy(own, given, size < known ? size : known);
	memcpy(own, &known, sizeof(known));
	return 0;
}

/* Fills *given, as far as it goes, from *own; fields that *own does not have become 0. 0 or
 * -EINVAL. */
static inline int
weir_sized_write(void *given, const void *own, size_t known, const char *init)
{
	size_t size = weir_sized_check(given, init), both = size < known ? size : known;

	if (!size)
		return -EINVAL;
	memset(given, 0, size);
	memcpy(given, own, both);
	memcpy(given, &size, sizeof(size));
	return 0;
}

#endif

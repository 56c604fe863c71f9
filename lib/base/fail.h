/* SPDX-License-Identifier: BSD-3-Clause */
/* Says why something failed, in one line "cause; remedy" for whoever asked. */
#ifndef WEIR_FAIL_H
#define WEIR_FAIL_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

/* Returns rc. */
static inline int __attribute__((format(printf, 4, 5)))
fail(char *error, size_t size, int rc, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(error, size, format, args);
	va_end(args);
	return rc;
}

#endif

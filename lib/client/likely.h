/* SPDX-License-Identifier: BSD-3-Clause */
/* Hints about branches, for the compiler. */
#ifndef WEIR_CLIENT_LIKELY_H
#define WEIR_CLIENT_LIKELY_H

#define weir_likely(x) __builtin_expect(!!(x), 1)
#define weir_unlikely(x) __builtin_expect(!!(x), 0)

#endif

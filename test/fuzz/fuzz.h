/* SPDX-License-Identifier: BSD-3-Clause */
/* The head of each fuzz target. */
#ifndef TEST_FUZZ_H
#define TEST_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void
require(bool good)
{
	if (!good)
		abort();
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Versions of the protocols between processes. The first message of each side carries the lowest
 * and the highest version that it speaks; both use the highest common one. docs/abi.md has the
 * rules.
 */
#ifndef WEIR_COMMON_VERSION_H
#define WEIR_COMMON_VERSION_H

#include <stddef.h>
#include <stdint.h>

struct weir_versions {
	uint32_t lowest, highest; /* highest below lowest: as lowest (a side that names one only) */
};

#define WEIR_VERSION_WHY 160 /* bytes: longest refusal, NUL included */

/*
 * Returns the highest version that both sides speak, or 0: there is none. `why`, NULL or of
 * WEIR_VERSION_WHY bytes, then receives one line with both ranges and the remedy; `protocol`, `us`
 * and `them` name what is spoken and the sides.
 */
uint32_t weir_version_choose(struct weir_versions ours, struct weir_versions theirs,
			     const char *protocol, const char *us, const char *them, char *why);

#endif

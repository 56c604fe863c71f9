/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that weir-lend on another node lends: one message each way over a connection to its
 * service. The end of the connection is the end of the memory.
 */
#ifndef WEIR_COMMON_LEND_H
#define WEIR_COMMON_LEND_H

#include "slot.h"

#include "weir/remote.h"

#define WEIR_LEND_SERVICE "weir.lend"
#define WEIR_LEND_MAGIC 0x444e454cu /* "LEND" */
#define WEIR_LEND_VERSION 1u
#define WEIR_LEND_RIGHTS (WEIR_MAY_READ | WEIR_MAY_WRITE | WEIR_MAY_UPDATE | WEIR_MAY_LOCK)

struct weir_lend_request {
	uint32_t magic, version;
	uint64_t bytes; /* at least 1 */
	int32_t numa_node;
	uint32_t reserved; /* 0 */
};
static_assert(sizeof(struct weir_lend_request) == 24, "without holes");

struct weir_lend_answer {
	uint32_t magic;
	int32_t status; /* 0 or -errno */
	struct weir_key key;
	char reason[WEIR_REFUSAL_MAX]; /* of a status that is not 0; NUL-terminated */
};
static_assert(sizeof(struct weir_lend_answer) == 72 + WEIR_REFUSAL_MAX, "without holes");

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The messages of joining, and the first one between neighbours. Little-endian; docs/group.md
 * describes them.
 */
#ifndef WEIR_GROUP_JOIN_H
#define WEIR_GROUP_JOIN_H

#include "public.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GROUP_MAGIC 0x70726757u /* "Wgrp" */
#define GROUP_VERSION 1u
#define GROUP_NEIGHBOURS 64u
#define GROUP_SECRET_BYTES (WEIR_GROUP_SECRET_MAX + 1u)

/* 16 bytes per member and program, and what members send of themselves. */
struct member {
	uint64_t id; /* of its endpoint: random, unique */
	uint16_t node;
	int16_t numa;	  /* node; -1: not known */
	uint32_t on_host; /* rank among the members of its host */
};

/* From a member to the one that gathers. */
struct join_request {
	uint32_t magic, version;
	uint32_t size, rank, flags;
	uint32_t reserved;
	struct member self; /* node: not used */
	char secret[GROUP_SECRET_BYTES];
};

/* And back. */
struct join_neighbour {
	uint32_t rank, reserved;
	struct member member;
};
struct join_answer {
	uint32_t magic;
	int32_t status; /* 0 or -errno */
	uint32_t rank, count;
	uint64_t context;
	struct join_neighbour neighbour[GROUP_NEIGHBOURS];
};
#define JOIN_ANSWER_BYTES(count)                                                                   \
	(offsetof(struct join_answer, neighbour) + (count) * sizeof(struct join_neighbour))

/* First message on a connection between neighbours; the lower rank connects. */
struct group_hello {
	uint32_t magic, version;
	uint64_t context; /* of the group */
	uint32_t from;	  /* rank */
	uint32_t reserved;
};

/* 0, or why the program that sends r may not join the group of `own`; but for its rank's owner. */
int join_request_check(const struct join_request *own, const struct join_request *r, size_t length);
/* Whether `length` bytes of *a answer the request: a refusal, or a place in its group. */
bool join_answer_valid(const struct join_request *own, const struct join_answer *a, size_t length);
bool group_hello_valid(const struct group_hello *h, size_t length);

#endif

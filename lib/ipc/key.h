/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Keys of exports: what a program passes on as bytes (struct weir_key). Made by the data plane of
 * the exporting program, and read by that of the program that opens it.
 */
#ifndef WEIR_COMMON_KEY_H
#define WEIR_COMMON_KEY_H

#include "remote.h"

#define WEIR_KEY_BYTES 64u
#define WEIR_KEY_VERSION 1u
#define WEIR_KEY_SECRET 16u

/* Of an export, in its data plane: its session, and which one of that it is, from 0 on. */
#define WEIR_KEY_INDEX(session, export) ((session) << 16 | (export))
#define WEIR_KEY_SESSION(index) ((index) >> 16)
#define WEIR_KEY_EXPORT(index) ((index)&0xffffu)

struct weir_key_fields {
	uint32_t version;
	uint32_t node;	      /* of the export; UINT32_MAX: not known yet, incarnation tells it */
	uint64_t incarnation; /* of its data plane */
	uint32_t index, generation;
	uint8_t secret[WEIR_KEY_SECRET];
	uint8_t reserved[20]; /* 0 */
	uint32_t sum;	      /* weir_key_sum() */
};
static_assert(sizeof(struct weir_key_fields) == WEIR_KEY_BYTES, "a key, without holes");

/*
 * Of all bytes before it (FNV-1a): each single byte that is altered alters it. It finds damaged
 * keys early; the secret keeps forged ones out.
 */
static inline uint32_t
weir_key_sum(const struct weir_key_fields *k)
{
	uint8_t bytes[offsetof(struct weir_key_fields, sum)];
	uint32_t h = 2166136261u;

	memcpy(bytes, k, sizeof(bytes));
	for (size_t i = 0; i < sizeof(bytes); i++)
		h = (h ^ bytes[i]) * 16777619u;
	return h;
}

/* Whether all bytes are as a data plane of this release wrote them. */
static inline bool
weir_key_ok(const struct weir_key_fields *k)
{
	static const uint8_t zero[sizeof(k->reserved)];

	return k->version == WEIR_KEY_VERSION && k->sum == weir_key_sum(k) &&
	       !memcmp(k->reserved, zero, sizeof(zero));
}

/* The export that a key names, with the rights that are asked for. */
static inline struct weir_wire_export
weir_key_wanted(const struct weir_key_fields *k, uint32_t rights)
{
	struct weir_wire_export wanted = {
	    .index = k->index, .generation = k->generation, .rights = rights};

	memcpy(wanted.secret, k->secret, sizeof(wanted.secret));
	return wanted;
}

#endif

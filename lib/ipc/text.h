/* SPDX-License-Identifier: BSD-3-Clause */
/* Texts of other processes. */
#ifndef WEIR_COMMON_TEXT_H
#define WEIR_COMMON_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Copies a text of another process into `size` bytes, and fills these up with 0. Well-formed UTF-8
 * passes; a byte of anything else, and of a character that could steer a terminal or turn the
 * direction of a line, becomes '?'. A text that does not fit is cut, by whole characters.
 */
void weir_text_copy(char *to, const char *from, size_t size);

/*
 * The reason of a refusal travels in slots: as many of WEIR_SLOT_HEAD_BYTES bytes each as this
 * returns, then the last one, which has the rest with its NUL.
 */
uint32_t weir_reason_slots(const char *reason);
/*
 * Appends `n` bytes, which end at a NUL if one is among them, to `reason`, a text in
 * WEIR_REFUSAL_MAX bytes. False: it has no room.
 */
bool weir_reason_append(char *reason, const char *part, size_t n);

/* FNV-1a of 64 bits, by its authors' constants; begin with WEIR_HASH. For names: whoever chooses
 * them can make two that collide. */
#define WEIR_HASH UINT64_C(14695981039346656037)
static inline uint64_t
weir_hash(uint64_t h, const void *data, size_t bytes)
{
	const uint8_t *b = (const uint8_t *)data;

	for (size_t i = 0; i < bytes; i++)
		h = (h ^ b[i]) * UINT64_C(1099511628211);
	return h;
}

#endif

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

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages in several pieces of the program's memory: lists checked, gathered, scattered. */
#ifndef WEIR_STREAM_PARTS_H
#define WEIR_STREAM_PARTS_H

#include "ipc/slot.h"

#include <sys/uio.h>

/* Checks a list of the program's; *length: of all parts. 0, -EINVAL; -EMSGSIZE: more than `most`.
 */
int weir_parts_check(const struct iovec *parts, unsigned n, size_t most, size_t *length);
/* Copies `bytes` of the parts, from this offset on, to one place. */
void weir_parts_copy(uint8_t *to, const struct iovec *parts, size_t from, size_t bytes);
/* Copies `bytes` from one place to the parts. */
void weir_parts_scatter(const struct iovec *parts, const uint8_t *from, size_t bytes);
/* As weir_ring_put_inline(). */
void weir_parts_put(const struct weir_ring *r, const struct iovec *parts, uint32_t length);

#endif

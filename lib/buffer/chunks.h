/* SPDX-License-Identifier: BSD-3-Clause */
/* Chunks, as the other allocators use them. */
#ifndef WEIR_BUFFER_CHUNKS_H
#define WEIR_BUFFER_CHUNKS_H

#include "public.h"

#include <stdbool.h>

/* A forked child: there is no memory. Sets errno. */
bool weir_chunks_forked(const struct weir_chunks *c);
uint64_t weir_chunk_bytes(const struct weir_chunks *c);
/* A chunk that is free, or NULL: allocates no region. Lock-free. */
void *weir_chunk_pop(struct weir_chunks *c);
/* `count` adjacent chunks, which are given back one by one: a region of their own. NULL and errno
 * as weir_chunk_get(). */
void *weir_chunk_run(struct weir_chunks *c, uint64_t count);
/* A number for the holder of the chunk in which `at` lies, which alone writes and reads it. */
uint32_t *weir_chunk_tag(struct weir_chunks *c, const void *at);

#endif

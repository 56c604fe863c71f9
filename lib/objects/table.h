/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Objects by name. From its highest bit a name consists of
 *
 *   generation   raised when the object is freed
 *   index        number of the chunk, then number of the object there
 *   OBJECT_LIVE  1 bit
 *
 * A chunk begins with a word per object: its name, or while it is free its next generation, the
 * index of the next free object (the last one: its own) and no OBJECT_LIVE.
 */
#ifndef WEIR_OBJECTS_TABLE_H
#define WEIR_OBJECTS_TABLE_H

#include "public.h"

#include <pthread.h>
#include <stdatomic.h>

#define OBJECTS_CHUNK (2ul << 20) /* bytes */
#define OBJECT_LIVE 1u

/* Constant after weir_objects_open(), unless noted. All is 0 in a forked child. */
struct weir_objects {
	pthread_t owner;
	size_t mapped;	      /* bytes of this structure with chunk[] */
	uint64_t max;	      /* objects */
	uint64_t used;	      /* objects that ever had a name. Owner only */
	uint64_t free;	      /* index of the object that was freed last, or NONE. Owner only */
	uint64_t chunks;      /* entries of chunk[] */
	uint32_t per_chunk;   /* objects */
	uint32_t first;	      /* bytes from a chunk's start to its first object */
	uint32_t stride;      /* bytes from one object to the next */
	uint32_t object_bits; /* of an index: number of the object in its chunk */
	uint32_t name_bits;   /* of a name: index and OBJECT_LIVE */
	/* Chunks by number, as arrays of words; NULL: not allocated. Owner writes, all read. */
	_Atomic(_Atomic uint64_t *) chunk[];
};

/* Memory for a directory, zeroed at first and in a forked child. NULL: none is left. */
void *objects_map_directory(size_t bytes);
/* OBJECTS_CHUNK bytes, aligned so and zeroed, near the calling thread; absent from a forked child.
 * NULL: none are left. */
void *objects_map_chunk(void);

#endif

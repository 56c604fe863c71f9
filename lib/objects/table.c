/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Names of objects: given, looked up, taken back. Loads and stores are relaxed: the kernel zeroes a
 * chunk before it has an address, and the message that carries a name orders the rest.
 */
#include "table.h"

#include "client/reason.h"
#include "ipc/shm.h"

#include <sys/mman.h>

#define NONE UINT64_MAX /* no index */

/* Bits that hold the numbers 0 to count - 1. */
static uint32_t
bits_of(uint64_t count)
{
	return count > 1 ? 64 - (uint32_t)__builtin_clzll(count - 1) : 0;
}

/* All bits of a name below its generation. */
static uint64_t
below_generation(const struct weir_objects *o)
{
	return (1ull << o->name_bits) - 1;
}

/* The word of an index, or NULL: there is no such object, or its chunk is not allocated. */
static _Atomic uint64_t *
word_at(const struct weir_objects *o, uint64_t index)
{
	uint64_t number = index >> o->object_bits, object = index & ((1ull << o->object_bits) - 1);
	_Atomic uint64_t *words;

	if (number >= o->chunks || object >= o->per_chunk)
		return NULL;
	words = atomic_load_explicit(&o->chunk[number], memory_order_relaxed);
	return words ? &words[object] : NULL;
}

int
weir_objects_open(size_t bytes, uint64_t max, struct weir_objects **objects)
{
	uint64_t stride = WEIR_ALIGN_UP((uint64_t)bytes, 16), per_chunk, chunks;
	struct weir_objects *o;
	size_t mapped;

	if (!bytes || bytes > WEIR_OBJECT_BYTES_MAX || !max || max > WEIR_OBJECTS_MAX)
		return weir_fail(-EINVAL,
				 "invalid maximum or size, %llu objects of %zu bytes (expected 1 "
				 "to %llu of 1 to %u bytes)",
				 (unsigned long long)max, bytes, WEIR_OBJECTS_MAX,
				 WEIR_OBJECT_BYTES_MAX);
	per_chunk = (OBJECTS_CHUNK - 64) / (stride + sizeof(uint64_t)); /* 64: `first` is rounded */
	if (per_chunk > max)
		per_chunk = max;
	chunks = (max + per_chunk - 1) / per_chunk;
	mapped = sizeof(*o) + chunks * sizeof(o->chunk[0]);
	o = objects_map_directory(mapped);
	if (!o)
		return weir_fail(-ENOMEM,
				 "no memory for the directory of %llu objects; free some, or give "
				 "a smaller maximum",
				 (unsigned long long)max);
	o->owner = pthread_self();
	o->mapped = mapped;
	o->max = max;
	o->free = NONE;
	o->chunks = chunks;
	o->per_chunk = (uint32_t)per_chunk;
	o->first = (uint32_t)WEIR_ALIGN_UP(per_chunk * sizeof(uint64_t), 64);
	o->stride = (uint32_t)stride;
	o->object_bits = bits_of(per_chunk);
	o->name_bits = bits_of(chunks) + o->object_bits + 1;
	*objects = o;
	return 0;
}

void
weir_objects_close(struct weir_objects *o)
{
	void *chunk;

	if (!o || !o->max) /* a forked child has no chunks */
		return;
	for (uint64_t i = 0; i < o->chunks; i++) {
		chunk = atomic_load_explicit(&o->chunk[i], memory_order_relaxed);
		if (!chunk) /* chunks are allocated in order */
			break;
		munmap(chunk, OBJECTS_CHUNK);
	}
	munmap(o, o->mapped);
}

/* Whether the calling thread may allocate and free: 0 or -errno. */
static int
check_owner(const struct weir_objects *o)
{
	if (weir_unlikely(!o->max))
		return weir_fail(-ENOTCONN, "a forked child has none of its parent's objects; open "
					    "some in the child");
	if (weir_unlikely(!pthread_equal(o->owner, pthread_self())))
		return weir_fail(-EPERM, "these objects belong to another thread; allocate and "
					 "free in the thread that opened them");
	return 0;
}

/* An object that had no name yet. 0 with its index, or -errno. */
static int
extend(struct weir_objects *o, uint64_t *index)
{
	uint64_t number = o->used / o->per_chunk, object = o->used % o->per_chunk;
	void *chunk;

	if (o->used == o->max)
		return weir_fail(
		    -ENOSPC, "%llu objects are in use; free some, or open with a larger maximum",
		    (unsigned long long)o->max);
	if (!object) {
		chunk = objects_map_chunk();
		if (!chunk)
			return weir_fail(-ENOMEM, "no memory for a chunk of objects; free some");
		atomic_store_explicit(&o->chunk[number], chunk, memory_order_relaxed);
	}
	o->used++;
	*index = number << o->object_bits | object;
	return 0;
}

int
weir_object_new(struct weir_objects *o, uint64_t *name, void **object)
{
	uint64_t index = o->free, word = 0, next;
	int rc = check_owner(o);

	if (!rc && index == NONE)
		rc = extend(o, &index);
	if (weir_unlikely(rc))
		return rc;
	if (o->free != NONE) {
		word = atomic_load_explicit(word_at(o, index), memory_order_relaxed);
		next = (word & below_generation(o)) >> 1;
		o->free = next == index ? NONE : next;
	}
	*name = (word & ~below_generation(o)) | index << 1 | OBJECT_LIVE;
	atomic_store_explicit(word_at(o, index), *name, memory_order_relaxed);
	*object = weir_object_at(o, *name);
	return 0;
}

void *
weir_object_at(const struct weir_objects *o, uint64_t name)
{
	uint64_t index = (name & below_generation(o)) >> 1;
	_Atomic uint64_t *word = name & OBJECT_LIVE ? word_at(o, index) : NULL;

	if (!word || atomic_load_explicit(word, memory_order_relaxed) != name)
		return NULL;
	index &= (1ull << o->object_bits) - 1;
	return (uint8_t *)(word - index) + o->first + index * o->stride;
}

int
weir_object_free(struct weir_objects *o, uint64_t name)
{
	uint64_t below = below_generation(o), index = (name & below) >> 1, word;
	int rc = check_owner(o);

	if (weir_unlikely(rc))
		return rc;
	if (!weir_object_at(o, name))
		return weir_fail(-ENOENT,
				 "no object has the name 0x%llx; give that of an object that is "
				 "not freed",
				 (unsigned long long)name);
	word = (name | below) + 1;
	if (word) { /* otherwise all generations have been used, and the object stays free */
		word |= (o->free == NONE ? index : o->free) << 1;
		o->free = index;
	}
	atomic_store_explicit(word_at(o, index), word, memory_order_relaxed);
	return 0;
}

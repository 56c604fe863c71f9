/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Objects of one size, with names that may travel in messages and calls. They replace addresses of
 * objects there (SE-5): a stale or forged address is undefined behaviour, a stale or forged name
 * gives NULL. Guide: docs/objects.md.
 *
 * Memory: chunks of 2 MiB of the program's own memory, on the NUMA node where the owner runs when
 * it allocates a chunk, and on hugepages if some are free. The memory is not registered, and counts
 * towards no limit of the session. Records lie outside the objects.
 *
 * Threads: objects belong to the thread that opened them, the owner. It alone allocates and frees;
 * any thread of the process looks up. A look-up synchronizes nothing: the message or call that
 * carries a name does. An object stays until the owner frees it, so another thread may use it as
 * long as the program keeps the owner from that.
 *
 * A name is valid in the process, for the weir_objects that it comes from; in another weir_objects
 * the same number may name another object. Names are no secrets and carry no rights, since a peer
 * can guess them: a function checks whether its caller may use the object.
 *
 * A forked child has none of the objects: names give NULL, calls return -ENOTCONN, and addresses of
 * objects are invalid. The functions need no session.
 */
#ifndef WEIR_OBJECTS_H
#define WEIR_OBJECTS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_OBJECT_BYTES_MAX 65536u  /* of an object */
#define WEIR_OBJECTS_MAX (1ull << 32) /* of one weir_objects */

struct weir_objects; /* valid until weir_objects_close() */

/*
 * Prepares for objects of the calling thread. No chunk is allocated yet.
 *
 * @bytes    of an object, 1 to WEIR_OBJECT_BYTES_MAX; objects are aligned to 16 bytes, and to 64 if
 *           `bytes` is a multiple of 64
 * @max      objects at a time, 1 to WEIR_OBJECTS_MAX; 8 bytes of address space per chunk of these
 * @objects  receives the handle, freed by weir_objects_close()
 *
 * Returns 0, or
 *   -EINVAL  bytes or max is out of range
 *   -ENOMEM  no memory
 * and sets weir_reason(). Does not block. Any thread.
 */
int weir_objects_open(size_t bytes, uint64_t max, struct weir_objects **objects);

/*
 * Frees all objects and their memory. No thread uses them or the handle any more. NULL is allowed.
 * Does not block. Any thread, so that objects may outlive their owner.
 */
void weir_objects_close(struct weir_objects *o);

/*
 * Allocates an object. Its memory is zeroed the first time; memory of a freed object is handed out
 * again, the last one first, with its former contents.
 *
 * @name    receives its name, never 0 and never one that was given before: memory that has no new
 *          name left is not handed out again. It has 2^30 with the largest `max`, twice as many
 *          with half of that.
 * @object  receives its address, which stays the same until the object is freed
 *
 * Returns 0, or
 *   -ENOSPC    `max` objects are in use or have no name left
 *   -ENOMEM    no memory for a chunk; the next call tries again
 *   -EPERM     the calling thread is not the owner
 *   -ENOTCONN  in a forked child
 * and sets weir_reason(). Constant time without system calls, unless it allocates a chunk. Does not
 * block. Owner only.
 */
int weir_object_new(struct weir_objects *o, uint64_t *name, void **object);

/*
 * Returns the address of an object, or NULL: the object is freed, or no object had this name. Any
 * value of `name` is allowed, so it may come from a peer. Reads two words; takes no lock, does not
 * block and leaves weir_reason() as it is. Any thread.
 */
void *weir_object_at(const struct weir_objects *o, uint64_t name);

/*
 * Frees an object. Its name gives NULL from now on, in this thread at once and in another thread
 * after synchronization with this one. Chunks stay until weir_objects_close().
 *
 * Returns 0, or
 *   -ENOENT    the object is freed already, or no object had this name; any value is allowed
 *   -EPERM     the calling thread is not the owner
 *   -ENOTCONN  in a forked child
 * and sets weir_reason(). Constant time; does not block. Owner only.
 */
int weir_object_free(struct weir_objects *o, uint64_t name);

#ifdef __cplusplus
}
#endif
#endif

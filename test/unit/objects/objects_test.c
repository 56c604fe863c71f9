/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Objects with names: sizes and limits, many chunks, freed and forged names, the last generation,
 * random use beside a model, no memory, hugepages, NUMA nodes, other threads, forked children.
 * System calls are the test's own where they have to fail, or their arguments matter.
 */
#define _GNU_SOURCE
#include "worlds/test.h"

#include "weir/weir.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static void *map(void *at, size_t bytes, int rights, int flags, int fd, off_t offset);
static int unmap(void *at, size_t bytes);
static int advise(void *at, size_t bytes, int advice);
static int cpu_and_node(unsigned *cpu, unsigned *node);
static long bind_memory(long number, void *at, size_t bytes, int mode, const unsigned long *mask,
			size_t bits, unsigned flags);

#define mmap map
#define munmap unmap
#define madvise advise
#define getcpu cpu_and_node
#define syscall bind_memory
#include "objects/memory.c"
#include "objects/table.c"
#undef mmap
#undef munmap
#undef madvise
#undef getcpu
#undef syscall

static struct {
	int fail;	   /* this advice; 0: none */
	bool no_map;	   /* mmap() fails */
	bool huge, really; /* hugepages are available, as ordinary memory; those of the machine */
	size_t mapped;	   /* bytes that are mapped */
	unsigned huge_maps, populated, bound;
	unsigned node; /* of the CPU */
} kernel;

static void *
map(void *at, size_t bytes, int rights, int flags, int fd, off_t offset)
{
	bool huge = flags & MAP_HUGETLB;
	size_t before = 0;
	uint8_t *got;

	assert_null(at);
	if (kernel.no_map || (huge && !kernel.huge && !kernel.really))
		return MAP_FAILED;
	if (huge && kernel.huge) { /* more, of which the unaligned parts stay mapped */
		got = mmap(NULL, 2 * bytes, rights, flags & ~HUGE, fd, offset);
		before = -(uintptr_t)got % OBJECTS_CHUNK;
		kernel.huge_maps++;
	} else {
		got = mmap(NULL, bytes, rights, flags, fd, offset);
	}
	if (got == MAP_FAILED) /* hugepages of the machine */
		return MAP_FAILED;
	kernel.mapped += bytes;
	return got + before;
}

static int
unmap(void *at, size_t bytes)
{
	kernel.mapped -= bytes;
	return munmap(at, bytes);
}

static int
advise(void *at, size_t bytes, int advice)
{
	if (advice == kernel.fail)
		return -1;
	kernel.populated += advice == MADV_POPULATE_WRITE;
	return madvise(at, bytes, advice);
}

static int
cpu_and_node(unsigned *cpu, unsigned *node)
{
	assert_null(cpu);
	*node = kernel.node;
	return 0;
}

static long
bind_memory(long number, void *at, size_t bytes, int mode, const unsigned long *mask, size_t bits,
	    unsigned flags)
{
	unsigned word = kernel.node / 64;

	assert_int_equal(number, SYS_mbind);
	assert_int_equal((uintptr_t)at % OBJECTS_CHUNK, 0);
	assert_int_equal(bytes, OBJECTS_CHUNK);
	assert_int_equal(mode, MPOL_PREFERRED);
	assert_int_equal(flags, 0);
	assert_true(kernel.node < bits);
	for (unsigned i = 0; i < bits / 64; i++)
		assert_int_equal(mask[i], i == word ? 1ull << kernel.node % 64 : 0);
	kernel.bound++;
	return -1; /* no NUMA: nothing depends on it */
}

static int
setup(void **state)
{
	(void)state;
	memset(&kernel, 0, sizeof(kernel));
	return 0;
}

/* All memory is unmapped. */
static int
teardown(void **state)
{
	(void)state;
	return kernel.mapped ? -1 : 0;
}

#define CASE(name) TEST_IN(setup, teardown, name)

static struct weir_objects *
open_objects(size_t bytes, uint64_t max)
{
	struct weir_objects *o = NULL;

	assert_int_equal(weir_objects_open(bytes, max, &o), 0);
	return o;
}

static uint64_t
new_object(struct weir_objects *o, void **object)
{
	uint64_t name;
	void *at;

	assert_int_equal(weir_object_new(o, &name, &at), 0);
	assert_int_not_equal(name, 0);
	assert_ptr_equal(weir_object_at(o, name), at);
	if (object)
		*object = at;
	return name;
}

static void
expect_error(int rc, int wanted)
{
	assert_int_equal(rc, wanted);
	assert_true(strlen(weir_reason()) > 0);
}

/* ---- sizes ---- */

CASE(test_invalid)
{
	struct weir_objects *o;

	expect_error(weir_objects_open(0, 1, &o), -EINVAL);
	expect_error(weir_objects_open(WEIR_OBJECT_BYTES_MAX + 1, 1, &o), -EINVAL);
	expect_error(weir_objects_open(SIZE_MAX, 1, &o), -EINVAL);
	expect_error(weir_objects_open(1, 0, &o), -EINVAL);
	expect_error(weir_objects_open(1, WEIR_OBJECTS_MAX + 1, &o), -EINVAL);
	weir_objects_close(NULL);
	o = open_objects(WEIR_OBJECT_BYTES_MAX, 1);
	new_object(o, NULL);
	weir_objects_close(o);
	o = open_objects(1, WEIR_OBJECTS_MAX);
	new_object(o, NULL);
	weir_objects_close(o);
}

/* Objects of a size fill three chunks and a bit. Each is whole, and no other one's. */
static void
fill(size_t bytes)
{
	uint64_t max = 3 * (OBJECTS_CHUNK - 64) / ((bytes + 15) / 16 * 16 + 8) + 5, name;
	struct weir_objects *o = open_objects(bytes, max);
	uint64_t *names = calloc(max, sizeof(*names));
	uint8_t **at = calloc(max, sizeof(*at));
	void *none;

	assert_true(names && at);
	for (uint64_t i = 0; i < max; i++) {
		names[i] = new_object(o, (void **)&at[i]);
		assert_int_equal((uintptr_t)at[i] % (bytes % 64 ? 16 : 64), 0);
		for (size_t b = 0; b < bytes; b++)
			assert_int_equal(at[i][b], 0);
		memset(at[i], (uint8_t)(i * 7 + 1), bytes);
	}
	expect_error(weir_object_new(o, &name, &none), -ENOSPC);
	assert_true(kernel.mapped > 4 * OBJECTS_CHUNK && kernel.mapped < 5 * OBJECTS_CHUNK);
	for (uint64_t i = 0; i < max; i++) {
		assert_ptr_equal(weir_object_at(o, names[i]), at[i]);
		for (size_t b = 0; b < bytes; b++)
			assert_int_equal(at[i][b], (uint8_t)(i * 7 + 1));
	}
	/* all are handed out again, with other names */
	for (uint64_t i = 0; i < max; i++)
		assert_int_equal(weir_object_free(o, names[i]), 0);
	for (uint64_t i = max; i-- > 0;) {
		name = new_object(o, &none);
		assert_ptr_equal(none, at[i]);
		assert_int_not_equal(name, names[i]);
		assert_null(weir_object_at(o, names[i]));
	}
	expect_error(weir_object_new(o, &name, &none), -ENOSPC);
	weir_objects_close(o);
	assert_int_equal(kernel.mapped, 0);
	free(names);
	free(at);
}

CASE(test_sizes_and_chunks)
{
	static const size_t sizes[] = {1, 16, 24, 64, 100, 4096, WEIR_OBJECT_BYTES_MAX};

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		fill(sizes[i]);
}

/* ---- names ---- */

CASE(test_freed)
{
	struct weir_objects *o = open_objects(64, 2);
	uint64_t first, second, again;
	char *at, *same;

	first = new_object(o, (void **)&at);
	second = new_object(o, NULL);
	at[0] = 'x';
	assert_int_equal(weir_object_free(o, first), 0);
	assert_null(weir_object_at(o, first));
	expect_error(weir_object_free(o, first), -ENOENT);
	again = new_object(o, (void **)&same);
	assert_ptr_equal(same, at);
	assert_int_equal(same[0], 'x'); /* former contents */
	assert_int_not_equal(again, first);
	assert_null(weir_object_at(o, first));
	expect_error(weir_object_free(o, first), -ENOENT);
	assert_ptr_equal(weir_object_at(o, again), at);
	assert_non_null(weir_object_at(o, second));
	weir_objects_close(o);
}

/* All values with a generation of 0 or 1: exactly the names of live objects are found. */
CASE(test_forged)
{
	const uint32_t per_chunk = (OBJECTS_CHUNK - 64) / (4096 + 8), max = 3 * per_chunk;
	struct weir_objects *o = open_objects(4096, max);
	uint64_t *names = calloc(max, sizeof(*names)), limit = 1ull << (o->name_bits + 1);
	uint32_t found = 0, live = per_chunk + 3; /* of the second chunk a part, no third */

	assert_non_null(names);
	for (uint32_t i = 0; i < live; i++)
		names[i] = new_object(o, NULL);
	for (uint32_t i = 0; i < live; i += 2) /* half of them in the second generation */
		assert_int_equal(weir_object_free(o, names[i]), 0);
	for (uint32_t i = 0; i < live; i += 2)
		new_object(o, NULL);
	for (uint64_t name = 0; name < limit; name++)
		found += weir_object_at(o, name) != NULL;
	assert_int_equal(found, live);
	for (unsigned bit = o->name_bits + 1; bit < 64; bit++)
		assert_null(weir_object_at(o, names[1] | 1ull << bit));
	expect_error(weir_object_free(o, 0), -ENOENT);
	expect_error(weir_object_free(o, UINT64_MAX), -ENOENT);
	expect_error(weir_object_free(o, names[1] & ~1ull), -ENOENT);
	weir_objects_close(o);
	free(names);
}

/* An index beyond a chunk's objects, where its word would lie in their memory. */
CASE(test_beyond_the_words)
{
	const uint32_t per_chunk = (OBJECTS_CHUNK - 64) / (64 + 8);
	struct weir_objects *o = open_objects(64, 2ull * per_chunk);
	uint64_t index, name, *first, *word;
	uint32_t inside = 0;

	new_object(o, (void **)&first);
	for (uint32_t i = 1; i < per_chunk; i++)
		new_object(o, NULL);
	for (index = per_chunk; index < 1ull << o->object_bits; index++) {
		name = index << 1 | OBJECT_LIVE;
		word = (uint64_t *)(void *)o->chunk[0] + index;
		*word = name;
		inside += word >= first;
		assert_null(weir_object_at(o, name));
		expect_error(weir_object_free(o, name), -ENOENT);
	}
	assert_true(inside > 1000);
	weir_objects_close(o);
}

/* Memory whose generations have all been used is not handed out again. */
CASE(test_last_generation)
{
	struct weir_objects *o = open_objects(64, 2);
	uint64_t name = new_object(o, NULL), other = new_object(o, NULL), last, next;
	_Atomic uint64_t *word;
	void *at;

	assert_int_equal(weir_object_free(o, name), 0);
	word = word_at(o, name >> 1); /* two generations are left */
	*word = (*word & below_generation(o)) | (~below_generation(o) - below_generation(o) - 1);
	next = new_object(o, NULL);
	assert_int_equal(weir_object_free(o, next), 0);
	last = new_object(o, &at);
	assert_int_equal(last, ~below_generation(o) | name);
	assert_null(weir_object_at(o, next));
	assert_int_equal(weir_object_free(o, last), 0);
	assert_null(weir_object_at(o, last));
	expect_error(weir_object_new(o, &next, &at), -ENOSPC);
	expect_error(weir_object_free(o, name), -ENOENT);
	assert_null(weir_object_at(o, name)); /* not the first generation again */
	assert_non_null(weir_object_at(o, other));
	assert_int_equal(weir_object_free(o, other), 0);
	new_object(o, NULL);
	weir_objects_close(o);
}

CASE(test_random)
{
	enum { MAX = 200, STEPS = 200000 };
	struct weir_objects *o = open_objects(WEIR_OBJECT_BYTES_MAX, MAX);
	struct {
		uint64_t name, former, *at;
	} model[MAX] = {0};
	uint32_t seed = 1, used = 0;
	uint64_t name;
	void *at;

	for (unsigned step = 0; step < STEPS; step++) {
		unsigned i = (seed = seed * 1664525u + 1013904223u) >> 8;

		i %= MAX;
		if (model[i].name) {
			assert_ptr_equal(weir_object_at(o, model[i].name), model[i].at);
			assert_int_equal(*model[i].at, model[i].name);
			assert_int_equal(weir_object_free(o, model[i].name), 0);
			model[i].former = model[i].name;
			model[i].name = 0;
			used--;
		} else {
			name = new_object(o, &at);
			model[i].name = *(uint64_t *)at = name;
			model[i].at = at;
			used++;
		}
		assert_true(!model[i].former || !weir_object_at(o, model[i].former));
	}
	for (; used < MAX; used++)
		new_object(o, NULL);
	expect_error(weir_object_new(o, &name, &at), -ENOSPC);
	weir_objects_close(o);
}

/* ---- memory ---- */

CASE(test_no_memory)
{
	struct weir_objects *o;
	uint64_t name, first;
	void *at;

	kernel.no_map = true;
	expect_error(weir_objects_open(64, 1000, &o), -ENOMEM);
	kernel.no_map = false;
	kernel.fail = MADV_WIPEONFORK;
	expect_error(weir_objects_open(64, 1000, &o), -ENOMEM);
	assert_int_equal(kernel.mapped, 0);
	kernel.fail = 0;
	o = open_objects(WEIR_OBJECT_BYTES_MAX, 32); /* 31 in the first chunk */
	for (unsigned i = 0; i < 2; i++) {
		kernel.no_map = true;
		expect_error(weir_object_new(o, &name, &at), -ENOMEM);
		kernel.no_map = false;
		kernel.fail = MADV_DONTFORK;
		expect_error(weir_object_new(o, &name, &at), -ENOMEM);
		kernel.fail = 0;
		assert_true(kernel.mapped < (i + 1) * OBJECTS_CHUNK);
		first = new_object(o, NULL);
		for (unsigned n = 1; !i && n < 31; n++)
			new_object(o, NULL);
	}
	expect_error(weir_object_new(o, &name, &at), -ENOSPC);
	assert_int_equal(weir_object_free(o, first), 0);
	kernel.no_map = true; /* a freed object needs no memory */
	new_object(o, NULL);
	weir_objects_close(o);
}

CASE(test_hugepages)
{
	struct weir_objects *o = open_objects(64, 1);

	kernel.huge = true;
	new_object(o, NULL);
	assert_int_equal(kernel.huge_maps, 1);
	assert_int_equal(kernel.populated, 1);
	weir_objects_close(o);
	/* there are some, but not for this process */
	kernel.fail = MADV_POPULATE_WRITE;
	o = open_objects(64, 1);
	new_object(o, NULL);
	assert_int_equal(kernel.huge_maps, 2);
	assert_int_equal(kernel.populated, 1);
	assert_true(kernel.mapped < 2 * OBJECTS_CHUNK); /* ordinary pages alone */
	weir_objects_close(o);
	/* those of the machine, if there are any */
	kernel.huge = false;
	kernel.really = true;
	kernel.fail = 0;
	o = open_objects(64, 1);
	new_object(o, NULL);
	weir_objects_close(o);
}

CASE(test_node)
{
	struct weir_objects *o = open_objects(WEIR_OBJECT_BYTES_MAX, 100);

	kernel.node = 70;
	new_object(o, NULL);
	assert_int_equal(kernel.bound, 1);
	kernel.node = 3; /* the thread has moved */
	for (unsigned i = 0; i < 31; i++)
		new_object(o, NULL);
	assert_int_equal(kernel.bound, 2);
	kernel.node = 1024; /* more than a mask has: the kernel chooses */
	for (unsigned i = 0; i < 31; i++)
		new_object(o, NULL);
	assert_int_equal(kernel.bound, 2);
	weir_objects_close(o);
}

/* ---- threads and processes ---- */

#define PASSED 20000u

/* Names on their way to readers, which count those that they are done with. */
static struct {
	struct weir_objects *o;
	_Atomic uint64_t name[PASSED]; /* 0: not yet */
	_Atomic uint32_t done[2];
} passed;

static void *
other_thread(void *arg)
{
	_Atomic uint32_t *done = arg;
	uint64_t name, *object;
	void *at;

	assert_int_equal(weir_object_new(passed.o, &name, &at), -EPERM);
	assert_true(strlen(weir_reason()) > 0);
	for (uint32_t i = 0; i < PASSED; i++) {
		while (!(name = atomic_load_explicit(&passed.name[i], memory_order_acquire)))
			sched_yield();
		assert_int_equal(weir_object_free(passed.o, name), -EPERM);
		object = weir_object_at(passed.o, name);
		assert_non_null(object);
		assert_int_equal(object[0], name);
		assert_int_equal(object[511], i);
		name = atomic_load_explicit(&passed.name[i / 2], memory_order_relaxed);
		weir_object_at(passed.o, name); /* freed in the meantime, or not */
		atomic_store_explicit(done, i + 1, memory_order_release);
	}
	return NULL;
}

/* Owner and readers meet in chunks, names and objects; an object is freed when all have read it. */
CASE(test_threads)
{
	struct weir_objects *o = open_objects(4096, 1500); /* three chunks */
	pthread_t thread[2];
	uint32_t freed = 0;
	uint64_t *object;
	void *at;
	int rc;

	memset(&passed, 0, sizeof(passed));
	passed.o = o;
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, other_thread, &passed.done[i]),
				 0);
	for (uint32_t i = 0; i < PASSED; i++) {
		uint64_t name;

		while ((rc = weir_object_new(o, &name, &at)) == -ENOSPC) {
			uint32_t one = atomic_load_explicit(&passed.done[0], memory_order_acquire);
			uint32_t two = atomic_load_explicit(&passed.done[1], memory_order_acquire);

			for (; freed < one && freed < two; freed++) {
				uint64_t old = passed.name[freed];

				assert_int_equal(weir_object_free(o, old), 0);
				assert_null(weir_object_at(o, old));
			}
			sched_yield();
		}
		assert_int_equal(rc, 0);
		object = at;
		object[0] = name;
		object[511] = i;
		atomic_store_explicit(&passed.name[i], name, memory_order_release);
	}
	for (unsigned i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	weir_objects_close(o);
}

static void *
open_and_leave(void *arg)
{
	struct weir_objects **o = arg;

	*o = open_objects(64, 10);
	return (void *)(uintptr_t)new_object(*o, NULL);
}

/* The owner has ended: look-ups still work, and another thread closes. */
CASE(test_owner_ends)
{
	struct weir_objects *o;
	pthread_t thread;
	void *name;

	assert_int_equal(pthread_create(&thread, NULL, open_and_leave, &o), 0);
	pthread_join(thread, &name);
	assert_non_null(weir_object_at(o, (uintptr_t)name));
	expect_error(weir_object_free(o, (uintptr_t)name), -EPERM);
	weir_objects_close(o);
}

/* The number of the first thing that is wrong in the child, or 0. */
static int
in_child(struct weir_objects *o, uint64_t name, void *at)
{
	unsigned char resident;
	uint64_t other;
	void *object;

	if (weir_object_at(o, name) || weir_object_at(o, 0))
		return 1;
	if (weir_object_new(o, &other, &object) != -ENOTCONN)
		return 2;
	if (weir_object_free(o, name) != -ENOTCONN || !strlen(weir_reason()))
		return 3;
	if (!mincore((void *)((uintptr_t)at / 4096 * 4096), 4096, &resident) || errno != ENOMEM)
		return 4; /* mapped */
	weir_objects_close(o);
	if (weir_objects_open(64, 1, &o) || weir_object_new(o, &name, &at))
		return 5;
	weir_objects_close(o);
	return 0;
}

CASE(test_fork)
{
	struct weir_objects *o = open_objects(64, 10);
	uint64_t name;
	int status;
	void *at;
	pid_t pid;

	name = new_object(o, &at);
	assert_int_equal(weir_object_free(o, new_object(o, NULL)), 0);
	pid = fork();
	if (!pid)
		_exit(in_child(o, name, at));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_ptr_equal(weir_object_at(o, name), at);
	new_object(o, NULL);
	weir_objects_close(o);
}

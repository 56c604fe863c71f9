/* SPDX-License-Identifier: BSD-3-Clause */
/* Geometry of arenas: whatever the limits and wishes, everything lies inside and nothing overlaps.
 */
#define _GNU_SOURCE
#include "worlds/test.h"

#include "broker/arena.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>

static void
check_geometry(const struct weir_geometry *g)
{
	uint64_t end = weir_arena_recv(g), offset, bytes;

	assert_true(weir_arena_descs(g) >= sizeof(struct weir_arena_head));
	assert_true(weir_arena_channel(g, g->channels) <= weir_arena_recv(g));
	assert_int_equal(g->recv_blocks % g->engines, 0);
	for (uint32_t i = 0; i < g->engines; i++) {
		arena_recv_part(g, i, &offset, &bytes);
		assert_int_equal(offset, end);
		assert_true(bytes >= 16 * WEIR_BLOCK_SIZE);
		end = offset + bytes;
	}
	assert_int_equal(end, weir_arena_send(g));
	assert_true(g->send_blocks >= 16);
	assert_true(weir_arena_end(g) <= g->bytes);
	assert_true(g->bytes - weir_arena_end(g) < WEIR_BLOCK_SIZE);
	assert_int_equal(g->bytes % MEMFD_HUGE_PAGE, 0);
}

TEST(test_default)
{
	struct arena_limits limits = {10240, 64, 1024, 2, 64ull << 20};
	struct weir_geometry g;

	assert_int_equal(arena_geometry(&limits, 0, &g), 0);
	check_geometry(&g);
	assert_int_equal(g.bytes, 64 << 20);
	assert_int_equal(g.recv_blocks, (32 << 20) / WEIR_BLOCK_SIZE);
}

TEST(test_wishes)
{
	static const uint32_t engines[] = {1, 2, 3, 7, 32}, slots[] = {16, 64, 1024, 8192};
	static const uint64_t wishes[] = {0,	   1,	     4096,	 1 << 20,
					  5000000, 16 << 20, 1ull << 30, ~0ull};
	struct weir_geometry g;
	unsigned made = 0;

	for (unsigned e = 0; e < 5; e++)
		for (unsigned s = 0; s < 4; s++)
			for (unsigned w = 0; w < 8; w++)
				for (uint32_t c = 1; c <= 65536; c *= 16) {
					struct arena_limits limits = {c, 8, slots[s], engines[e],
								      64ull << 20};

					if (arena_geometry(&limits, wishes[w], &g))
						continue;
					check_geometry(&g);
					assert_true(g.bytes <= 64 << 20);
					made++;
				}
	assert_true(made > 600);
}

TEST(test_too_small)
{
	struct arena_limits limits = {1024, 64, 4096, 1, 16ull << 20}; /* channels alone: 32 MiB */
	struct weir_geometry g;

	assert_int_equal(arena_geometry(&limits, 0, &g), -EINVAL);
}

TEST(test_open)
{
	struct arena_limits limits = {64, 2, 64, 2, 8ull << 20};
	int numa[2] = {0, -1};
	struct weir_geometry g;
	unsigned pieces = 0;
	struct memfd memory;
	struct arena a;
	size_t piece;
	int rc;

	assert_int_equal(arena_geometry(&limits, 0, &g), 0);
	assert_int_equal(arena_begin(&g, numa, -1, &a), 0);
	assert_int_equal(arena_head(&a)->geometry.magic, WEIR_ARENA_MAGIC);
	assert_int_equal(fcntl(a.memory.fd, F_GET_SEALS), 0);
	while ((rc = arena_go_on(&a)) > 0)
		pieces++;
	assert_int_equal(rc, 0);
	piece = a.memory.page > MEMFD_PIECE ? a.memory.page : MEMFD_PIECE;
	assert_int_equal(pieces, g.bytes / piece - 2); /* the head came first */
	assert_int_equal(fcntl(a.memory.fd, F_GET_SEALS),
			 F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	arena_base(&a)[g.bytes - 1] = 1;
	arena_head(&a)->geometry.bytes = 1; /* a program may: ours is another copy */
	assert_int_equal(a.geometry.bytes, g.bytes);
	assert_false(arena_cut(&a));
	memory = memfd_move(&a.memory);
	memfd_close(&memory);
}

static unsigned
release(struct memfd *m, int *rc)
{
	unsigned pieces = 0;

	while ((*rc = memfd_release(m, MEMFD_PIECE)) > 0)
		pieces++;
	return pieces;
}

static int
again(int fd, int flags)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, flags | O_CLOEXEC);
}

static uint64_t
blocks(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return (uint64_t)st.st_blocks;
}

/* Released in pieces, and only when no program can write to it any more. */
TEST(test_release)
{
	size_t bytes = 16 * MEMFD_PIECE;
	struct memfd m;
	int fd, path, rc;
	void *map;

	signal(SIGIO, SIG_IGN); /* as the broker does */
	assert_int_equal(memfd_open("weir-test", bytes, 0, NULL, 0, &m), 0);
	fd = dup(m.fd); /* as one that was sent */
	path = again(fd, O_PATH);
	map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	assert_int_equal(release(&m, &rc), 16); /* is no longer mapped here */
	assert_int_equal(rc, -EBUSY);
	assert_true(blocks(fd) * 512 >= bytes);
	close(fd);
	assert_int_equal(release(&m, &rc), 0);
	assert_int_equal(rc, -EBUSY);
	munmap(map, 4096);
	/* while it is being freed nobody opens it: an open() would wait */
	assert_int_equal(memfd_release(&m, MEMFD_PIECE), 1);
	assert_int_equal(memfd_release(&m, MEMFD_PIECE), 1);
	assert_int_equal(again(path, O_RDWR | O_NONBLOCK), -1);
	assert_int_equal(errno, EWOULDBLOCK);
	assert_int_equal(release(&m, &rc), 15);
	assert_int_equal(rc, 0);
	assert_int_equal(m.fd, -1);
	/* who kept its name has nothing of it */
	fd = again(path, O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(blocks(fd), 0);
	close(fd);
	close(path);
}

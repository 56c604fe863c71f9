/* SPDX-License-Identifier: BSD-3-Clause */
/* Adopted memory as main sees it: requests, limits, keys, holes, sessions that end meanwhile. */
#define _GNU_SOURCE
#include "worlds/broker_fake.h"
#include "broker/region.h"
#include "weir/memory.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>

#define REGIONS 4u	 /* as broker_fake.c has it */
#define BYTES (1u << 20) /* all of them together */

static struct weir_session_msg
adopt(struct fake *f, struct fake_session *s, uint64_t bytes, uint32_t flags)
{
	struct weir_session_msg m = {
	    .type = WEIR_MSG_ADOPT, .adopt.bytes = bytes, .adopt.flags = flags};

	assert_int_equal(fake_request(f, s, &m), 0);
	return s->reply;
}

static struct weir_session_msg
disown(struct fake *f, struct fake_session *s, uint32_t region)
{
	struct weir_session_msg m = {.type = WEIR_MSG_DISOWN, .region.region = region};

	assert_int_equal(fake_request(f, s, &m), 0);
	return s->reply;
}

static void
expect_refused(struct weir_session_msg r, int code)
{
	assert_int_equal(r.type, WEIR_MSG_REFUSED);
	assert_int_equal(r.refused.code, code);
	assert_non_null(strstr(r.refused.reason, "; "));
}

TEST_FAKE(test_adopt, two_engines)
{
	struct fake_session s;
	struct weir_session_msg r;
	uint32_t mrs;

	fake_attach(f, &s);
	mrs = f->live_mrs;
	r = adopt(f, &s, 65536, WEIR_ADOPT_SEND);
	assert_int_equal(r.type, WEIR_MSG_REGION);
	assert_int_equal(r.region.region, 1);
	assert_int_equal(r.region.bytes, 65536);
	assert_int_equal(s.fd_count, 1);
	assert_int_equal(f->count[ENGINE_REGION_ADD], 2);
	assert_int_equal(f->live_mrs, mrs + 1); /* one device */
	assert_int_equal(f->last[ENGINE_REGION_ADD].region.mr.length, 65536);
	/* as much as it was adopted for */
	assert_int_equal(f->mr[f->next_key - 1].access, NIC_REMOTE_READ);
	adopt(f, &s, 8192, WEIR_ADOPT_RECV);
	assert_int_equal(f->mr[f->next_key - 1].access, NIC_LOCAL_WRITE | NIC_REMOTE_WRITE);
	assert_int_equal(disown(f, &s, 1).type, WEIR_MSG_OK);
	assert_int_equal(f->count[ENGINE_REGION_REMOVE], 2);
	assert_int_equal(f->live_mrs, mrs + 1);
	expect_refused(disown(f, &s, 1), ENOENT);
	fake_leave(f, &s); /* with region 2 */
	assert_int_equal(f->live_mrs, 0);
	assert_int_equal(fake_mappings("weir-region"), 0);
}

TEST_FAKE(test_limits, two_engines)
{
	struct fake_session s;

	fake_attach(f, &s);
	expect_refused(adopt(f, &s, 65536, 0), EINVAL);
	expect_refused(adopt(f, &s, 65536, 0x8 | WEIR_ADOPT_SEND), EINVAL);
	expect_refused(adopt(f, &s, 0, WEIR_ADOPT_SEND), EINVAL);
	expect_refused(adopt(f, &s, 5000, WEIR_ADOPT_SEND), EINVAL);
	expect_refused(adopt(f, &s, WEIR_REGION_BYTES_MAX + 4096, WEIR_ADOPT_SEND), EINVAL);
	expect_refused(adopt(f, &s, UINT64_MAX - 4095, WEIR_ADOPT_SEND), EINVAL);
	expect_refused(adopt(f, &s, BYTES + 4096, WEIR_ADOPT_SEND), ENOSPC);
	assert_int_equal(adopt(f, &s, BYTES, WEIR_ADOPT_SEND).type, WEIR_MSG_REGION);
	expect_refused(adopt(f, &s, 4096, WEIR_ADOPT_SEND), ENOSPC);
	disown(f, &s, 1);
	for (uint32_t i = 0; i < REGIONS; i++)
		assert_int_equal(adopt(f, &s, 4096, WEIR_ADOPT_SEND).type, WEIR_MSG_REGION);
	expect_refused(adopt(f, &s, 4096, WEIR_ADOPT_SEND), EMFILE);
	expect_refused(disown(f, &s, 0), ENOENT);
	expect_refused(disown(f, &s, REGIONS + 1), ENOENT);
	expect_refused(disown(f, &s, UINT32_MAX), ENOENT);
}

static struct weir_session_msg
allocate(struct fake *f, struct fake_session *s, uint64_t bytes, uint32_t more, int32_t node)
{
	struct weir_session_msg m = {.type = WEIR_MSG_ADOPT, .adopt.bytes = bytes};

	m.adopt.flags = WEIR_ADOPT_SEND | WEIR_ADOPT_RECV | WEIR_ADOPT_EXPOSE | WEIR_ADOPT_NEW;
	m.adopt.flags |= more;
	m.adopt.numa_node = node;
	assert_int_equal(fake_request(f, s, &m), 0);
	return s->reply;
}

#define MEMORY (8u << 20) /* of all regions of a session; BYTES of them adopted */

/* Allocated regions count against the session's memory alone, adopted ones against both limits. */
TEST_FAKE(test_allocate, two_engines)
{
	struct fake_session s;
	struct weir_session_msg r;

	f->b->config.region_bytes = MEMORY;
	fake_attach(f, &s);
	r = allocate(f, &s, MEMORY - 65536, 0, 0);
	assert_int_equal(r.type, WEIR_MSG_REGION);
	assert_int_equal(r.region.bytes, MEMORY - 65536);
	assert_int_equal(r.region.page, 4096);
	assert_int_equal(f->mr[f->next_key - 1].access,
			 NIC_REMOTE_READ | NIC_LOCAL_WRITE | NIC_REMOTE_WRITE);
	expect_refused(allocate(f, &s, 65536 + 4096, 0, -1), ENOSPC);
	assert_non_null(strstr(s.reply.refused.reason, "raise --memory"));
	expect_refused(adopt(f, &s, 65536 + 4096, WEIR_ADOPT_SEND), ENOSPC);
	assert_int_equal(adopt(f, &s, 65536, WEIR_ADOPT_EXPOSE).type, WEIR_MSG_REGION);
	assert_int_equal(f->mr[f->next_key - 1].access, 0); /* exports have keys of their own */
	expect_refused(allocate(f, &s, 4096, 0, -1), ENOSPC);
	assert_int_equal(disown(f, &s, 1).type, WEIR_MSG_OK);
	expect_refused(adopt(f, &s, BYTES - 65536 + 4096, WEIR_ADOPT_SEND), ENOSPC);
	assert_non_null(strstr(s.reply.refused.reason, "raise --adopt"));
	assert_int_equal(allocate(f, &s, MEMORY - 65536, WEIR_ADOPT_HUGE, -1).type,
			 WEIR_MSG_REGION);
	disown(f, &s, 1);
	/* pages that the size is no multiple of, or of which there are none, are left alone */
	for (unsigned i = 0; i < 2; i++) {
		r = allocate(f, &s, i ? MEMORY / 2 : MEMORY / 2 + 4096,
			     WEIR_ADOPT_HUGE | WEIR_ADOPT_GIGANTIC, -1);
		assert_int_equal(r.type, WEIR_MSG_REGION);
		assert_true(r.region.page == 4096 || (i && r.region.page == MEMFD_HUGE_PAGE));
		disown(f, &s, r.region.region);
	}
	expect_refused(allocate(f, &s, 4096, 0, -2), EINVAL);
	expect_refused(allocate(f, &s, 4096, 0, 1024), EINVAL);
	expect_refused(allocate(f, &s, 4096, 0, INT32_MIN), EINVAL);
	expect_refused(allocate(f, &s, 4096, 0x800, -1), EINVAL);
	expect_refused(allocate(f, &s, WEIR_REGION_BYTES_MAX, 0, -1), ENOSPC);
	expect_refused(allocate(f, &s, WEIR_REGION_BYTES_MAX + 4096, 0, -1), EINVAL);
	expect_refused(allocate(f, &s, UINT64_MAX - 4095, WEIR_ADOPT_HUGE, -1), EINVAL);
	expect_refused(allocate(f, &s, 0, 0, -1), EINVAL);
	expect_refused(allocate(f, &s, 4097, 0, -1), EINVAL);
	assert_int_equal(allocate(f, &s, 4096, 0, 1023).type, WEIR_MSG_REGION); /* a preference */
	fake_leave(f, &s);
	assert_int_equal(f->b->used[USER_MEMORY], 0);
	assert_int_equal(fake_mappings("weir-region"), 0);
}

/* Main's time for a region is the program's debt if it gives the region back soon, or leaves. */
TEST_FAKE(test_pays_for_short_regions, two_engines)
{
	struct fake_session s;
	uint64_t cost, attached, made;

	fake_attach(f, &s);
	attached = s.s->cost_ns;
	for (unsigned late = 0; late < 2; late++) {
		s.s->request_ns = 0;
		assert_int_equal(adopt(f, &s, BYTES, WEIR_ADOPT_SEND).type, WEIR_MSG_REGION);
		assert_int_equal(s.s->request_ns, 0);
		made = s.s->cost_ns - attached;
		cost = s.s->region[0].cost_ns;
		assert_true(cost > 0);
		assert_int_equal(made, cost);
		f->now += late ? 11 * BROKER_SECOND_NS : BROKER_SECOND_NS;
		assert_int_equal(disown(f, &s, 1).type, WEIR_MSG_OK);
		assert_int_equal(s.s->request_ns, cost / 3 + (late ? 0 : cost));
		assert_int_equal(s.s->cost_ns, attached);
	}
}

/* ADOPT, which waits for another region to leave. */
static void
ask_for(struct fake *f, struct fake_session *s, uint64_t bytes)
{
	struct weir_session_msg m = {
	    .type = WEIR_MSG_ADOPT, .adopt.bytes = bytes, .adopt.flags = WEIR_ADOPT_SEND};

	s->replies = 0;
	assert_int_equal(fake_request(f, s, &m), 0);
	fake_run(f);
	assert_int_equal(s->replies, 0);
}

/* With all regions in use one is disowned: its number is for the next as soon as it is free. */
TEST_FAKE(test_adopt_after_disown, two_engines)
{
	struct fake_session s, other;

	fake_attach(f, &s);
	fake_attach(f, &other);
	for (uint32_t i = 0; i < REGIONS; i++) {
		assert_int_equal(adopt(f, &s, 4096, WEIR_ADOPT_SEND).type, WEIR_MSG_REGION);
		assert_int_equal(adopt(f, &other, 4096, WEIR_ADOPT_SEND).type, WEIR_MSG_REGION);
	}
	f->hold = true;
	disown(f, &s, 2);
	disown(f, &other, 3);
	ask_for(f, &s, 8192);
	f->now += 500000000;
	ask_for(f, &other, 8192);
	f->now += 500000000;
	fake_run(f);
	assert_int_equal(s.replies, 1);
	expect_refused(s.reply, EMFILE);
	assert_int_equal(other.replies, 0);
	fake_let_go(f);
	assert_int_equal(other.replies, 1);
	assert_int_equal(other.reply.type, WEIR_MSG_REGION);
	assert_int_equal(other.reply.region.region, 3);
	assert_int_equal(other.reply.region.bytes, 8192);
	assert_int_equal(adopt(f, &s, 4096, WEIR_ADOPT_SEND).region.region, 2);
	expect_refused(adopt(f, &other, 4096, WEIR_ADOPT_SEND), EMFILE);
}

/* Disowned with messages under way: the answer comes at once, the number and the memory later. */
TEST_FAKE(test_disown_later, two_engines)
{
	struct fake_session s;
	uint32_t mrs;

	fake_attach(f, &s);
	adopt(f, &s, BYTES, WEIR_ADOPT_SEND);
	mrs = f->live_mrs;
	f->hold = true;
	assert_int_equal(disown(f, &s, 1).type, WEIR_MSG_OK);
	assert_int_equal(f->live_mrs, mrs);
	assert_int_equal(fake_mappings("weir-region"), 1);
	expect_refused(disown(f, &s, 1), ENOENT);
	ask_for(f, &s, 4096); /* it counts still */
	f->now += 1000000000;
	fake_run(f);
	assert_int_equal(s.replies, 1);
	expect_refused(s.reply, ENOSPC);
	ask_for(f, &s, 4096);
	broker_session_close(s.s); /* while it waits */
	assert_int_equal(s.replies, 0);
	assert_int_equal(fake_mappings("weir-region"), 1);
	fake_release(f);
	assert_int_equal(fake_mappings("weir-region"), 0);
	assert_int_equal(f->live_mrs, 0);
	f->hold = false;
}

/* A peer's WRITE is being copied while its key goes: the memory stays until that turn has ended. */
TEST_FAKE(test_written_until_the_turn_ends, two_engines)
{
	struct fake_session s;

	fake_attach(f, &s);
	adopt(f, &s, BYTES, WEIR_ADOPT_RECV);
	f->in_turn = true;
	assert_int_equal(disown(f, &s, 1).type, WEIR_MSG_OK);
	fake_run(f);
	f->now += 10 * BROKER_SECOND_NS;
	fake_run(f);
	assert_int_equal(fake_mappings("weir-region"), 1);
	broker_session_close(s.s);
	fake_run(f);
	assert_int_equal(f->live_mrs, 0);
	assert_int_equal(fake_mappings("weir-arena"), 1);
	f->in_turn = false;
	f->now += 10 * BROKER_SECOND_NS;
	fake_run(f);
	assert_int_equal(fake_mappings("weir-region"), 0);
	assert_int_equal(fake_mappings("weir-arena"), 0);
}

/* The program dies, or the engine refuses, before the answer. */
TEST_FAKE(test_not_added, two_engines)
{
	unsigned fds = fake_open_fds();
	struct weir_session_msg m = {.type = WEIR_MSG_ADOPT};
	struct fake_session s;

	fake_attach(f, &s);
	f->fail_type = ENGINE_REGION_ADD;
	f->fail_rc = -ENOENT;
	expect_refused(adopt(f, &s, 4096, WEIR_ADOPT_SEND), ENOENT);
	assert_int_equal(fake_mappings("weir-region"), 0);
	f->fail_type = -1;
	f->hold = true;
	m.adopt.bytes = 4096;
	m.adopt.flags = WEIR_ADOPT_RECV;
	assert_int_equal(fake_request(f, &s, &m), 0);
	broker_session_close(s.s);
	fake_release(f);
	assert_int_equal(fake_mappings("weir-region"), 0);
	assert_int_equal(fake_open_fds(), fds);
	f->hold = false;
}

/* A hole in it: whoever falls into it goes on, the session ends. */
TEST_FAKE(test_hole, two_engines)
{
	struct fake_session s;
	_Atomic uint8_t *base;
	int fd;

	fake_attach(f, &s);
	f->hold = true;
	s.replies = 0;
	{
		struct weir_session_msg m = {.type = WEIR_MSG_ADOPT};

		m.adopt.bytes = 65536;
		m.adopt.flags = WEIR_ADOPT_SEND;
		assert_int_equal(fake_request(f, &s, &m), 0);
	}
	base = (_Atomic uint8_t *)f->held[0].c->region.base;
	fake_let_go(f);
	assert_int_equal(s.reply.type, WEIR_MSG_REGION);
	assert_int_equal(fake_mappings("weir-region"), 1);
	fd = memfd_create("other", 0);
	/* as a fault would: the pages are there no more */
	assert_ptr_not_equal(
	    mmap((void *)base, 65536, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0),
	    MAP_FAILED);
	assert_int_equal(base[5000], 0);
	base[9000] = 1;
	fake_run(f);
	assert_true(s.ended);
	assert_int_equal(f->b->counters.holes, 1);
	close(fd);
}

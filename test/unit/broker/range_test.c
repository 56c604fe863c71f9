/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranges of dynamic exports as main sees them: requests, limits, lists that engines take. */
#include "worlds/broker_fake.h"

#include "broker/export.h"
#include "broker/region.h"
#include "broker/user.h"
#include "ipc/remote.h"
#include "weir/memory.h"

#define BYTES 65536u
#define AT UINT64_C(0x7f0000010000) /* where the program has region 1 */

static void
expect_refused(const struct fake_session *s, int code)
{
	assert_int_equal(s->reply.type, WEIR_MSG_REFUSED);
	assert_int_equal(s->reply.refused.code, code);
	assert_non_null(strstr(s->reply.refused.reason, "; "));
}

/* A dynamic export of a program with region 1. */
static void
exporter(struct fake *f, struct fake_session *s)
{
	struct weir_session_msg m = {.type = WEIR_MSG_EXPORT};

	fake_program(f, s);
	assert_int_equal(fake_adopt(f, s, BYTES, WEIR_ADOPT_EXPOSE), 0);
	m.export.rights = WEIR_RIGHT_WRITE;
	snprintf(m.export.name, sizeof(m.export.name), "the window");
	assert_int_equal(fake_ask(f, s, &m), WEIR_MSG_EXPORTED);
}

static struct weir_session_msg
request(const struct fake_session *s, uint32_t type)
{
	struct weir_session_msg m = {.type = type};

	m.range.number = 1;
	m.range.generation = s->s->export[0].generation;
	m.range.region = 1;
	return m;
}

/* Attaches memory of region 1 at its address. Returns the type of the reply. */
static uint32_t
attach(struct fake *f, struct fake_session *s, uint64_t offset, uint64_t length)
{
	struct weir_session_msg m = request(s, WEIR_MSG_ATTACH);

	m.range.address = AT + offset;
	m.range.offset = offset;
	m.range.length = length;
	return fake_ask(f, s, &m);
}

static uint32_t
detach(struct fake *f, struct fake_session *s, uint64_t offset)
{
	struct weir_session_msg m = request(s, WEIR_MSG_DETACH);

	m.range.address = AT + offset;
	return fake_ask(f, s, &m);
}

/* The list that engines were told last. */
static const struct engine_ranges *
told(const struct fake *f)
{
	return f->last[ENGINE_EXPORT_RANGES].export.ranges;
}

TEST_FAKE(test_attach, two_engines)
{
	const struct engine_export *x = &f->last[ENGINE_EXPORT_ADD].export;
	struct fake_session s;
	uint8_t *base;

	exporter(f, &s);
	assert_true(!x->region && !x->offset && x->length == WEIR_DYNAMIC_BYTES);
	assert_true(x->ranges && !x->ranges->count);
	base = s.s->region[0].memory.base;
	assert_int_equal(attach(f, &s, 4096, 4096), WEIR_MSG_OK);
	assert_int_equal(f->count[ENGINE_EXPORT_RANGES], 2);
	assert_int_equal(f->last[ENGINE_EXPORT_RANGES].export.generation, x->generation);
	assert_int_equal(told(f)->count, 1);
	/* in the order of addresses, whatever the order of requests */
	assert_int_equal(attach(f, &s, 32768, 1), WEIR_MSG_OK);
	assert_int_equal(attach(f, &s, 0, 4096), WEIR_MSG_OK);
	assert_int_equal(told(f)->count, 3);
	for (uint32_t i = 0; i < 3; i++) {
		static const uint64_t offset[] = {0, 4096, 32768}, bytes[] = {4096, 4096, 1};
		const struct engine_range *r = &told(f)->of[i];

		assert_int_equal(r->address, AT + offset[i]);
		assert_int_equal(r->bytes, bytes[i]);
		assert_ptr_equal(r->base, base + offset[i]);
		assert_int_equal(r->region, 1);
		assert_ptr_equal(r->updating, &s.s->region[0].updating);
	}
	assert_int_equal(detach(f, &s, 4096), WEIR_MSG_OK);
	assert_int_equal(told(f)->count, 2);
	assert_int_equal(told(f)->of[1].address, AT + 32768);
	assert_int_equal(attach(f, &s, 4096, 1), WEIR_MSG_OK);
	assert_int_equal(detach(f, &s, 0), WEIR_MSG_OK);
	assert_int_equal(detach(f, &s, 32768), WEIR_MSG_OK);
	assert_int_equal(told(f)->count, 1);
	assert_int_equal(told(f)->of[0].address, AT + 4096);
	assert_int_equal(s.s->ranges, 1);
	fake_leave(f, &s);
}

TEST_FAKE(test_refused, two_engines)
{
	struct weir_session_msg m;
	struct fake_session s;

	exporter(f, &s);
	assert_int_equal(fake_adopt(f, &s, BYTES, WEIR_ADOPT_SEND), 0);
	assert_int_equal(attach(f, &s, 4096, 4096), WEIR_MSG_OK);
	/* a byte at either end, within, around */
	attach(f, &s, 0, 4097);
	expect_refused(&s, EEXIST);
	attach(f, &s, 8191, 1);
	expect_refused(&s, EEXIST);
	attach(f, &s, 5000, 8);
	expect_refused(&s, EEXIST);
	attach(f, &s, 0, BYTES);
	expect_refused(&s, EEXIST);
	attach(f, &s, 4096, 1);
	expect_refused(&s, EEXIST);
	attach(f, &s, BYTES, 1);
	expect_refused(&s, EINVAL);
	attach(f, &s, 0, 0);
	expect_refused(&s, EINVAL);
	attach(f, &s, 16, UINT64_MAX);
	expect_refused(&s, EINVAL);
	detach(f, &s, 4097);
	expect_refused(&s, ENOENT);
	detach(f, &s, 0);
	expect_refused(&s, ENOENT);
	for (unsigned i = 0; i < 6; i++) {
		static const uint64_t bad[] = {0,
					       WEIR_DYNAMIC_END,
					       WEIR_DYNAMIC_BYTES,
					       UINT64_MAX - 15,
					       AT + 8, /* not aligned as the memory is */
					       WEIR_DYNAMIC_REFUSALS};

		m = request(&s, WEIR_MSG_ATTACH);
		m.range.address = bad[i];
		m.range.length = 8;
		fake_ask(f, &s, &m);
		expect_refused(&s, EINVAL);
	}
	for (unsigned i = 0; i < 3; i++) {
		static const uint32_t region[] = {0, 2, 3}, code[] = {ENOENT, EACCES, ENOENT};

		m = request(&s, WEIR_MSG_ATTACH);
		m.range.region = region[i];
		m.range.address = AT;
		m.range.length = 8;
		fake_ask(f, &s, &m);
		expect_refused(&s, (int)code[i]);
	}
	for (unsigned i = 0; i < 4; i++) {
		static const uint32_t number[] = {0, 2, 5, UINT32_MAX};

		m = request(&s, i % 2 ? WEIR_MSG_ATTACH : WEIR_MSG_DETACH);
		m.range.number = number[i];
		m.range.address = AT + 4096;
		m.range.length = 8;
		fake_ask(f, &s, &m);
		expect_refused(&s, ESTALE);
	}
	m = request(&s, WEIR_MSG_DETACH);
	m.range.generation++;
	fake_ask(f, &s, &m);
	expect_refused(&s, ESTALE);
	/* an export with memory of its own has no ranges */
	m = (struct weir_session_msg){.type = WEIR_MSG_EXPORT};
	m.export.region = 1;
	m.export.length = 8;
	m.export.rights = WEIR_RIGHT_WRITE;
	assert_int_equal(fake_ask(f, &s, &m), WEIR_MSG_EXPORTED);
	m = request(&s, WEIR_MSG_ATTACH);
	m.range.number = 2;
	m.range.generation = s.reply.exported.generation;
	m.range.address = AT;
	m.range.length = 8;
	fake_ask(f, &s, &m);
	expect_refused(&s, ESTALE);
	/* a dynamic one is neither mapped nor has it a place */
	for (unsigned i = 0; i < 3; i++) {
		m = (struct weir_session_msg){.type = WEIR_MSG_EXPORT};
		m.export.rights = WEIR_RIGHT_READ | (i == 0 ? WEIR_RIGHT_MAP : 0);
		m.export.offset = i == 1 ? 16 : 0;
		m.export.length = i == 2 ? 16 : 0;
		fake_ask(f, &s, &m);
		expect_refused(&s, EINVAL);
	}
	assert_int_equal(f->count[ENGINE_EXPORT_RANGES], 2);
	fake_leave(f, &s);
}

TEST_FAKE(test_limits, two_engines)
{
	struct weir_session_msg m = {.type = WEIR_MSG_EXPORT};
	struct fake_session s;

	exporter(f, &s);
	for (uint64_t i = 0; i < WEIR_RANGES_MAX; i++)
		assert_int_equal(attach(f, &s, i * 16, 8), WEIR_MSG_OK);
	attach(f, &s, 8, 8);
	expect_refused(&s, EMFILE);
	assert_int_equal(detach(f, &s, 1600), WEIR_MSG_OK);
	assert_int_equal(attach(f, &s, 1600, 16), WEIR_MSG_OK);
	s.s->ranges = WEIR_SESSION_RANGES_MAX;
	m.export.rights = WEIR_RIGHT_WRITE;
	assert_int_equal(fake_ask(f, &s, &m), WEIR_MSG_EXPORTED);
	m = request(&s, WEIR_MSG_ATTACH);
	m.range.number = 2;
	m.range.generation = s.s->export[1].generation;
	m.range.address = AT;
	m.range.length = 8;
	fake_ask(f, &s, &m);
	expect_refused(&s, EMFILE);
	s.s->ranges = WEIR_RANGES_MAX;
	fake_leave(f, &s);
}

/* Engines use the former list until each has taken the new one; then comes the answer. */
TEST_FAKE(test_former_list, two_engines)
{
	struct weir_session_msg m;
	struct fake_session s;

	exporter(f, &s);
	assert_int_equal(attach(f, &s, 0, 4096), WEIR_MSG_OK);
	f->hold = true;
	m = request(&s, WEIR_MSG_DETACH);
	m.range.address = AT;
	s.reply.type = 0;
	assert_int_equal(fake_request(f, &s, &m), 0);
	assert_int_equal(f->held_count, 2);
	assert_non_null(s.s->ranges_former);
	assert_int_equal(s.s->ranges_former->count, 1);
	assert_int_equal(s.reply.type, 0);
	fake_let_go(f);
	assert_null(s.s->ranges_former);
	assert_int_equal(s.reply.type, WEIR_MSG_OK);
	/* the session ends while engines have the command */
	f->hold = true;
	m = request(&s, WEIR_MSG_ATTACH);
	m.range.address = AT;
	m.range.length = 8;
	assert_int_equal(fake_request(f, &s, &m), 0);
	fake_leave(f, &s);
	fake_let_go(f);
	assert_int_equal(f->b->used[USER_EXPORTS], 0);
}

/* A region that goes ends the export that it is attached to, and no other one. */
TEST_FAKE(test_region_goes, two_engines)
{
	struct weir_session_msg m = {.type = WEIR_MSG_DISOWN, .region.region = 1};
	struct fake_session s;

	exporter(f, &s);
	assert_int_equal(fake_adopt(f, &s, BYTES, WEIR_ADOPT_EXPOSE), 0);
	assert_int_equal(attach(f, &s, 0, 16), WEIR_MSG_OK);
	m.region.region = 2;
	assert_int_equal(fake_ask(f, &s, &m), WEIR_MSG_OK);
	assert_int_equal(f->count[ENGINE_EXPORT_STOP], 0);
	f->hold = true;
	m.region.region = 1;
	assert_int_equal(fake_ask(f, &s, &m), WEIR_MSG_OK);
	fake_stops_exports_first(f);
	/* engines may still execute operations there */
	attach(f, &s, 16, 16);
	expect_refused(&s, EAGAIN);
	detach(f, &s, 0);
	expect_refused(&s, EAGAIN);
	fake_let_go(f);
	detach(f, &s, 0);
	expect_refused(&s, ESTALE);
	assert_int_equal(s.s->ranges, 0);
	fake_leave(f, &s);
}

TEST_FAKE(test_name, two_engines)
{
	struct weir_row_export row = {0};
	struct fake_session s;

	exporter(f, &s);
	assert_int_equal(attach(f, &s, 0, 100), WEIR_MSG_OK);
	assert_int_equal(attach(f, &s, 4096, 11), WEIR_MSG_OK);
	assert_true(export_row(f->b, export_id(f->b, s.s->id, 1), &row));
	assert_string_equal(row.name, "the window");
	assert_int_equal(row.region, 0);
	assert_int_equal(row.bytes, 111);
	fake_leave(f, &s);
}

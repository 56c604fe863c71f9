/* SPDX-License-Identifier: BSD-3-Clause */
/* Exports as main sees them: requests, keys, limits, the order of commands, sessions that end. */
#include "worlds/broker_net.h"

#include "broker/conn.h"
#include "broker/export.h"
#include "broker/link.h"
#include "broker/region.h"
#include "broker/rows.h"
#include "broker/set.h"
#include "broker/user.h"
#include "ipc/dpctl.h"
#include "ipc/key.h"
#include "ipc/lock_words.h"
#include "weir/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPORTS 4u /* as broker_fake.c has it */
#define BYTES 65536u

static void
expect_refused(const struct fake_session *s, int code)
{
	assert_int_equal(s->reply.type, WEIR_MSG_REFUSED);
	assert_int_equal(s->reply.refused.code, code);
	assert_non_null(strstr(s->reply.refused.reason, "; "));
}

/* Exports a part of a region. Returns the type of the reply. */
static uint32_t export(struct fake *f, struct fake_session *s, uint32_t region, uint64_t offset,
		       uint64_t length, uint32_t rights)
{
	struct weir_session_msg m = {.type = WEIR_MSG_EXPORT};

	m.export.region = region;
	m.export.offset = offset;
	m.export.length = length;
	m.export.rights = rights;
	return fake_ask(f, s, &m);
}

static uint32_t
revoke_export(struct fake *f, struct fake_session *s, uint32_t number, uint32_t generation)
{
	struct weir_session_msg m = {.type = WEIR_MSG_REVOKE};

	m.exported.number = number;
	m.exported.generation = generation;
	return fake_ask(f, s, &m);
}

static struct weir_key_fields
key_of(const struct fake_session *s)
{
	struct weir_key_fields k;

	assert_int_equal(s->reply.type, WEIR_MSG_EXPORTED);
	memcpy(&k, s->reply.exported.key, sizeof(k));
	return k;
}

/* The export as operators name it. */
static uint32_t
row_of(const struct fake *f, const struct weir_key_fields *k)
{
	return WEIR_KEY_SESSION(k->index) * f->b->config.exports + WEIR_KEY_EXPORT(k->index);
}

static uint32_t
open_key(struct fake *f, struct fake_session *s, const struct weir_key_fields *k, uint32_t rights)
{
	struct weir_session_msg m = {.type = WEIR_MSG_OPEN, .open.rights = rights};

	memcpy(m.open.key, k, sizeof(m.open.key));
	return fake_ask(f, s, &m);
}

/* A program with region 1. */
static void
exporter(struct fake *f, struct fake_session *s)
{
	fake_program(f, s);
	assert_int_equal(fake_adopt(f, s, BYTES, WEIR_ADOPT_EXPOSE), 0);
}

TEST_FAKE(test_export, two_engines)
{
	struct fake_session s;
	struct weir_key_fields a, b;

	exporter(f, &s);
	assert_int_equal(export(f, &s, 1, 100, 1000, WEIR_RIGHT_WRITE), WEIR_MSG_EXPORTED);
	assert_int_equal(f->count[ENGINE_EXPORT_ADD], 2);
	assert_int_equal(f->last[ENGINE_EXPORT_ADD].export.offset, 100);
	assert_int_equal(f->last[ENGINE_EXPORT_ADD].export.length, 1000);
	assert_int_equal(f->last[ENGINE_EXPORT_ADD].export.rights, WEIR_RIGHT_WRITE);
	a = key_of(&s);
	assert_true(weir_key_ok(&a));
	assert_int_equal(a.node, 7);
	assert_int_equal(a.incarnation, f->config.incarnation);
	/* the same range once more is another export: nothing of its key can be guessed */
	assert_int_equal(export(f, &s, 1, 100, 1000, WEIR_RIGHT_WRITE), WEIR_MSG_EXPORTED);
	b = key_of(&s);
	assert_int_not_equal(a.index, b.index);
	assert_memory_not_equal(a.secret, b.secret, sizeof(a.secret));
	/* a number that is free has generation 0 */
	assert_int_equal(revoke_export(f, &s, 3, 0), WEIR_MSG_REFUSED);
	assert_int_equal(revoke_export(f, &s, 1, a.generation), WEIR_MSG_OK);
	assert_int_equal(f->count[ENGINE_EXPORT_REMOVE], 2);
	assert_int_equal(f->last[ENGINE_EXPORT_REMOVE].export.generation, a.generation);
	assert_int_equal(revoke_export(f, &s, 1, a.generation), WEIR_MSG_REFUSED);
	/* its number has another life, which its old name does not end */
	assert_int_equal(export(f, &s, 1, 0, 1, WEIR_RIGHT_READ), WEIR_MSG_EXPORTED);
	assert_int_equal(s.reply.exported.number, 1);
	assert_int_not_equal(s.reply.exported.generation, a.generation);
	assert_int_equal(revoke_export(f, &s, 1, a.generation), WEIR_MSG_REFUSED);
	assert_int_equal(f->count[ENGINE_EXPORT_REMOVE], 2);
}

TEST_FAKE(test_limits, two_engines)
{
	struct fake_session s;

	exporter(f, &s);
	assert_int_equal(fake_adopt(f, &s, BYTES, WEIR_ADOPT_SEND), 0);
	for (unsigned i = 0; i < 3; i++) {
		static const uint32_t none[] = {3, 4, UINT32_MAX};

		export(f, &s, none[i], 0, 1, WEIR_RIGHT_WRITE);
		expect_refused(&s, ENOENT);
	}
	export(f, &s, 2, 0, 1, WEIR_RIGHT_WRITE);
	expect_refused(&s, EACCES);
	export(f, &s, 1, 0, 1, 0);
	expect_refused(&s, EINVAL);
	export(f, &s, 1, 0, 1, WEIR_RIGHTS_KNOWN + 1);
	expect_refused(&s, EINVAL);
	export(f, &s, 1, 0, 0, WEIR_RIGHT_WRITE);
	expect_refused(&s, EINVAL);
	export(f, &s, 1, BYTES, 1, WEIR_RIGHT_WRITE);
	expect_refused(&s, EINVAL);
	export(f, &s, 1, BYTES - 1, 2, WEIR_RIGHT_WRITE);
	expect_refused(&s, EINVAL);
	export(f, &s, 1, 2, UINT64_MAX, WEIR_RIGHT_WRITE);
	expect_refused(&s, EINVAL);
	export(f, &s, 1, UINT64_MAX, 2, WEIR_RIGHT_WRITE);
	expect_refused(&s, EINVAL);
	assert_int_equal(f->count[ENGINE_EXPORT_ADD], 0);
	for (unsigned i = 0; i < EXPORTS; i++)
		assert_int_equal(export(f, &s, 1, 0, BYTES, WEIR_RIGHT_WRITE), WEIR_MSG_EXPORTED);
	export(f, &s, 1, 0, BYTES, WEIR_RIGHT_WRITE);
	expect_refused(&s, EMFILE);
	assert_int_equal(revoke_export(f, &s, 0, 1), WEIR_MSG_REFUSED);
	assert_int_equal(revoke_export(f, &s, EXPORTS + 1, 1), WEIR_MSG_REFUSED);
	assert_int_equal(revoke_export(f, &s, UINT32_MAX, 1), WEIR_MSG_REFUSED);
	fake_leave(f, &s);
}

/* An engine takes it and another does not: neither has it afterwards. */
TEST_FAKE(test_refused_by_engine, two_engines)
{
	struct fake_session s;

	exporter(f, &s);
	f->fail_type = ENGINE_EXPORT_ADD;
	f->fail_rc = -ENOSPC;
	export(f, &s, 1, 0, 1, WEIR_RIGHT_WRITE);
	expect_refused(&s, ENOSPC);
	assert_int_equal(f->count[ENGINE_EXPORT_REMOVE], 2);
	f->fail_type = -1;
	assert_int_equal(export(f, &s, 1, 0, 1, WEIR_RIGHT_WRITE), WEIR_MSG_EXPORTED);
	assert_int_equal(s.reply.exported.number, 1);
}

/* Words of a lock: memory of the session, whose end is that of the export. */
TEST_FAKE(test_lock_words, two_engines)
{
	static const struct {
		uint64_t offset;
		uint32_t region, members, rights;
		int code;
	} bad[] = {
	    {0, 2, 0, WEIR_RIGHT_LOCK, EINVAL},
	    {0, 2, WEIR_LOCK_MEMBERS_MAX + 1, WEIR_RIGHT_LOCK, EINVAL},
	    {32, 2, 1, WEIR_RIGHT_LOCK, EINVAL},
	    {0, 2, 1, WEIR_RIGHT_READ, EINVAL},
	    {0, 0, 1, WEIR_RIGHT_LOCK, EINVAL},
	    {64, 0, 0, WEIR_RIGHT_LOCK, EINVAL},
	    {0, 2, BYTES / 64, WEIR_RIGHT_LOCK, EINVAL},
	    {BYTES - 64, 2, 1, WEIR_RIGHT_LOCK, EINVAL},
	    {UINT64_MAX - 63, 2, 1, WEIR_RIGHT_LOCK, EINVAL},
	    {0, 3, 1, WEIR_RIGHT_LOCK, ENOENT},
	    {0, UINT32_MAX, 1, WEIR_RIGHT_LOCK, ENOENT},
	};
	struct weir_session_msg m = {.type = WEIR_MSG_EXPORT};
	struct weir_session_msg disown = {.type = WEIR_MSG_DISOWN, .region.region = 2};
	const struct engine_export *added = &f->last[ENGINE_EXPORT_ADD].export;
	struct fake_session s;
	struct weir_key_fields k;

	exporter(f, &s);
	assert_int_equal(fake_adopt(f, &s, BYTES, WEIR_ADOPT_EXPOSE), 0);
	m.export.region = 1;
	m.export.length = 64;
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		m.export.rights = bad[i].rights;
		m.export.lock_region = bad[i].region;
		m.export.lock_members = bad[i].members;
		m.export.lock_offset = bad[i].offset;
		assert_int_equal(fake_ask(f, &s, &m), WEIR_MSG_REFUSED);
		expect_refused(&s, bad[i].code);
	}
	assert_int_equal(f->count[ENGINE_EXPORT_ADD], 0);
	assert_int_equal(exports_of(s.s), 0);
	m.export.rights = WEIR_RIGHT_LOCK;
	m.export.lock_region = 2;
	m.export.lock_members = 2;
	m.export.lock_offset = BYTES - weir_lock_bytes(2);
	assert_int_equal(fake_ask(f, &s, &m), WEIR_MSG_EXPORTED);
	k = key_of(&s);
	assert_int_equal(f->count[ENGINE_EXPORT_ADD], 2);
	assert_true(added->lock_region == 2 && added->lock_members == 2 &&
		    added->lock_offset == m.export.lock_offset);
	assert_int_equal(fake_ask(f, &s, &disown), WEIR_MSG_OK);
	assert_int_equal(f->count[ENGINE_EXPORT_STOP], 2);
	assert_int_equal(revoke_export(f, &s, 1, k.generation), WEIR_MSG_REFUSED);
}

/* The session ends before the engines have answered. */
TEST_FAKE(test_ends_meanwhile, two_engines)
{
	struct fake_session s, other;
	struct weir_session_msg m = {.type = WEIR_MSG_EXPORT};

	exporter(f, &s);
	fake_program(f, &other);
	f->hold = true;
	m.export.region = 1;
	m.export.length = 1;
	m.export.rights = WEIR_RIGHT_WRITE;
	assert_int_equal(fake_request(f, &s, &m), 0);
	assert_int_equal(f->held_count, 2);
	fake_leave(f, &s);
	fake_let_go(f);
	assert_int_equal(f->count[ENGINE_EXPORT_REMOVE], 0);
	assert_int_equal(f->b->used[USER_EXPORTS], 0);
	/* its number goes to another program, whose exports are its own */
	assert_int_equal(fake_adopt(f, &other, BYTES, WEIR_ADOPT_EXPOSE), 0);
	assert_int_equal(export(f, &other, 1, 0, 1, WEIR_RIGHT_WRITE), WEIR_MSG_EXPORTED);
	assert_int_equal(f->last[ENGINE_EXPORT_ADD].export.session, other.s->id);
}

/* Exports end before their region does, in every engine. */
TEST_FAKE(test_disown, two_engines)
{
	struct fake_session s, other;
	struct weir_session_msg m = {.type = WEIR_MSG_DISOWN, .region.region = 1};
	struct weir_key_fields k;

	exporter(f, &s);
	fake_program(f, &other);
	export(f, &s, 1, 0, 1, WEIR_RIGHT_WRITE);
	k = key_of(&s);
	f->hold = true;
	assert_int_equal(fake_ask(f, &s, &m), WEIR_MSG_OK);
	fake_stops_exports_first(f);
	/* from the request on nobody opens it */
	assert_int_equal(open_key(f, &other, &k, WEIR_RIGHT_WRITE), WEIR_MSG_REFUSED);
	assert_int_equal(other.reply.refused.code, EKEYREJECTED);
	/* the session ends while engines have the commands */
	fake_leave(f, &s);
	fake_let_go(f);
}

static uint32_t
map_key(struct fake *f, struct fake_session *s, const struct weir_key_fields *k, uint32_t rights)
{
	struct weir_session_msg m = {.type = WEIR_MSG_MAP, .map.rights = rights};

	memcpy(m.map.key, k, sizeof(m.map.key));
	return fake_ask(f, s, &m);
}

/* Whether another user, who has the descriptor, can open the file for writing. */
static bool
stranger_writes(int fd)
{
	char path[32];
	pid_t child;
	int status;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	child = fork();
	if (!child) {
		/* dumpable: else its /proc/self/fd would be root's */
		if (setgid(65534) || setuid(65534) || prctl(PR_SET_DUMPABLE, 1) ||
		    access(path, F_OK))
			_exit(2);
		_exit(open(path, O_RDWR) >= 0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 2);
	return WEXITSTATUS(status);
}

/* No other mapping of a read-only descriptor is writable, nor becomes so; it makes no holes. */
static void
stays_read_only(int fd)
{
	uint8_t *mapped = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);

	assert_ptr_not_equal(mapped, MAP_FAILED);
	assert_ptr_equal(mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	assert_int_equal(errno, EACCES);
	assert_int_equal(mprotect(mapped, BYTES, PROT_READ | PROT_WRITE), -1);
	assert_int_equal(errno, EACCES);
	assert_int_equal(madvise(mapped, 4096, MADV_REMOVE), -1);
	assert_int_equal(errno, EACCES);
	munmap(mapped, BYTES);
}

/* MAP hands out the region's memory, read-only unless the rights have WRITE. */
TEST_FAKE(test_map, two_engines)
{
	const uint32_t all = WEIR_RIGHT_READ | WEIR_RIGHT_WRITE | WEIR_RIGHT_MAP;
	struct fake_session s, other;
	struct weir_key_fields k, bad;

	exporter(f, &s);
	fake_program(f, &other);
	export(f, &s, 1, 0, BYTES - 1, all);
	expect_refused(&s, EINVAL);
	export(f, &s, 1, 1, BYTES - 1, all);
	expect_refused(&s, EINVAL);
	export(f, &s, 1, 0, BYTES, all);
	k = key_of(&s);
	assert_int_equal(f->last[ENGINE_EXPORT_ADD].export.rights, all & ~WEIR_RIGHT_MAP);
	assert_int_equal(map_key(f, &other, &k, WEIR_RIGHT_WRITE), WEIR_MSG_MAPPED);
	assert_int_equal(other.reply.mapped.bytes, BYTES);
	assert_int_equal(other.fd_count, 1);
	assert_int_equal(fcntl(other.fds[0], F_GETFL) & O_ACCMODE, O_RDWR);
	close(other.fds[0]);
	assert_int_equal(map_key(f, &other, &k, WEIR_RIGHT_READ), WEIR_MSG_MAPPED);
	assert_int_equal(fcntl(other.fds[0], F_GETFL) & O_ACCMODE, O_RDONLY);
	stays_read_only(other.fds[0]);
	if (!getuid())
		assert_false(stranger_writes(other.fds[0]));
	close(other.fds[0]);
	/* rights of connections alone, at least one; the key of an export that is there */
	map_key(f, &other, &k, 0);
	expect_refused(&other, EINVAL);
	map_key(f, &other, &k, all);
	expect_refused(&other, EINVAL);
	bad = k;
	bad.secret[0] ^= 1;
	bad.sum = weir_key_sum(&bad);
	map_key(f, &other, &bad, WEIR_RIGHT_READ);
	expect_refused(&other, EKEYREJECTED);
	bad = k;
	bad.incarnation++;
	bad.sum = weir_key_sum(&bad);
	map_key(f, &other, &bad, WEIR_RIGHT_READ);
	expect_refused(&other, EKEYREJECTED);
	revoke_export(f, &s, 1, k.generation);
	map_key(f, &other, &k, WEIR_RIGHT_READ);
	expect_refused(&other, EKEYREJECTED);
	/* without MAP, and without WRITE */
	export(f, &s, 1, 0, BYTES, WEIR_RIGHT_WRITE);
	k = key_of(&s);
	map_key(f, &other, &k, WEIR_RIGHT_WRITE);
	expect_refused(&other, EACCES);
	export(f, &s, 1, 0, BYTES, WEIR_RIGHT_READ | WEIR_RIGHT_MAP);
	k = key_of(&s);
	map_key(f, &other, &k, WEIR_RIGHT_WRITE);
	expect_refused(&other, EACCES);
}

TEST_FAKE(test_apart, two_engines)
{
	struct fake_session s, other;
	struct weir_key_fields k, bad;
	uint32_t free_descs;

	exporter(f, &s);
	fake_program(f, &other);
	export(f, &s, 1, 0, 100, WEIR_RIGHT_WRITE);
	k = key_of(&s);
	free_descs = other.s->free_desc_count;
	assert_int_equal(open_key(f, &other, &k, WEIR_RIGHT_WRITE), WEIR_MSG_CONNECTING);
	assert_int_equal(other.reply.connecting.local, 1);
	assert_int_equal(other.reply.connecting.segment, 0);
	assert_int_not_equal(other.reply.connecting.vqpn, 0);
	assert_int_equal(f->last[ENGINE_CONN_APART].conn.export_session, s.s->id);
	assert_int_equal(f->last[ENGINE_CONN_APART].conn.export_number, 1);
	assert_int_equal(f->last[ENGINE_CONN_APART].conn.export_generation, k.generation);
	assert_int_equal(f->last[ENGINE_CONN_APART].conn.rights, WEIR_RIGHT_WRITE);
	assert_int_equal(other.s->free_desc_count, free_descs - 1);
	/* rights that the key does not grant, or none; a secret that differs in its last bit */
	open_key(f, &other, &k, WEIR_RIGHT_READ | WEIR_RIGHT_WRITE);
	expect_refused(&other, EACCES);
	open_key(f, &other, &k, 0);
	expect_refused(&other, EINVAL);
	bad = k;
	bad.secret[15] ^= 1;
	bad.sum = weir_key_sum(&bad);
	open_key(f, &other, &bad, WEIR_RIGHT_WRITE);
	expect_refused(&other, EKEYREJECTED);
	bad = k;
	bad.index = UINT32_MAX;
	bad.sum = weir_key_sum(&bad);
	open_key(f, &other, &bad, WEIR_RIGHT_WRITE);
	expect_refused(&other, EKEYREJECTED);
	/* the engine has ended it meanwhile */
	f->fail_type = ENGINE_CONN_APART;
	f->fail_rc = -ESTALE;
	open_key(f, &other, &k, WEIR_RIGHT_WRITE);
	expect_refused(&other, EKEYREJECTED);
	f->fail_type = -1;
	assert_int_equal(other.s->free_desc_count, free_descs - 1);
	assert_int_equal(f->count[ENGINE_CONN_APART], 2);
	fake_leave(f, &s);
	open_key(f, &other, &k, WEIR_RIGHT_WRITE);
	expect_refused(&other, EKEYREJECTED);
}

/* ---- operators ---- */

static struct weir_row_export rows[64];

static void
asked_again(struct rows_query *q)
{
}

/* All rows of exports; returns their number. */
static uint32_t
show(struct fake *f)
{
	struct rows_query *q = rows_open(f->b, WEIR_ROWS_EXPORTS, asked_again, NULL);
	uint32_t n = 0;
	bool more = true;

	while (more) {
		for (uint32_t i = 0; !rows_next(q); i++) {
			assert_true(i < f->config.engines);
			broker_flush(f->b);
			fake_run(f);
		}
		assert_int_equal(weir_ctl_check(q->page, q->page->length), 0);
		assert_true(n + q->page->rows.count <= 64);
		memcpy(rows + n, q->page->rows.records, q->page->rows.count * sizeof(rows[0]));
		n += q->page->rows.count;
		more = q->page->rows.more;
	}
	rows_close(q);
	return n;
}

TEST_FAKE(test_rows, two_engines)
{
	struct fake_session other, s;
	struct weir_key_fields k, bad;

	exporter(f, &other);
	assert_int_equal(show(f), 0);
	exporter(f, &s);
	export(f, &s, 1, 0, 10, WEIR_RIGHT_WRITE);
	export(f, &s, 1, 100, 1000, WEIR_RIGHT_WRITE);
	k = key_of(&s);
	assert_int_equal(revoke_export(f, &s, 1, k.generation - 1), WEIR_MSG_OK);
	assert_int_equal(show(f), 1);
	assert_int_equal(rows[0].export, row_of(f, &k));
	assert_int_equal(rows[0].session, s.s->id);
	assert_int_equal(rows[0].region, 1);
	assert_int_equal(rows[0].rights, WEIR_RIGHT_WRITE);
	assert_int_equal(rows[0].offset, 100);
	assert_int_equal(rows[0].bytes, 1000);
	assert_string_equal(rows[0].state, "open");
	assert_string_equal(rows[0].program, s.s->name);
	/* both engines add to what main has counted */
	assert_int_equal(rows[0].openers, 2 * FAKE_OPENERS);
	assert_int_equal(rows[0].counters.puts, 2 * FAKE_PUTS);
	assert_int_equal(rows[0].counters.refused, 0);
	bad = k;
	bad.secret[3] ^= 1;
	bad.sum = weir_key_sum(&bad);
	open_key(f, &other, &bad, WEIR_RIGHT_WRITE);
	expect_refused(&other, EKEYREJECTED);
	open_key(f, &other, &k, WEIR_RIGHT_READ);
	expect_refused(&other, EACCES);
	assert_int_equal(f->b->counters.keys_rejected, 1);
	assert_int_equal(f->b->counters.rights_refused, 1);
	assert_int_equal(show(f), 1);
	assert_int_equal(rows[0].counters.refused, 2);
}

/* Operators see the latest name, also of one that they have ended. */
TEST_FAKE(test_name, two_engines)
{
	struct weir_session_msg m = {.type = WEIR_MSG_NAME};
	char reason[160];
	struct fake_session s;
	struct weir_key_fields k;

	exporter(f, &s);
	export(f, &s, 1, 100, 1000, WEIR_RIGHT_WRITE);
	k = key_of(&s);
	m.name.number = 1;
	m.name.generation = k.generation;
	snprintf(m.name.name, sizeof(m.name.name), "matrix");
	assert_int_equal(fake_ask(f, &s, &m), WEIR_MSG_OK);
	assert_int_equal(show(f), 1);
	assert_string_equal(rows[0].name, "matrix");
	assert_int_equal(evict(f->b, WEIR_EVICT_EXPORT, k.index, "", reason, sizeof(reason)), 1);
	broker_flush(f->b);
	fake_run(f);
	m.name.name[0] = 0;
	assert_int_equal(fake_ask(f, &s, &m), WEIR_MSG_OK);
	assert_int_equal(show(f), 1);
	assert_string_equal(rows[0].name, "");
	m.name.generation++;
	fake_ask(f, &s, &m);
	expect_refused(&s, ENOENT);
	m.name.number = UINT32_MAX;
	fake_ask(f, &s, &m);
	expect_refused(&s, ENOENT);
}

/* For how long the lock has been held is not always known. */
TEST_FAKE(test_held, two_engines)
{
	struct engine_export_record e = {.lock_held_ns = UINT64_MAX};
	struct weir_row_export r = {0};

	export_lock_row(f->b, &e, &r);
	assert_string_equal(r.lock, "");
	assert_int_equal(r.held_ms, 0);
	e.lock_holders = 1;
	export_lock_row(f->b, &e, &r);
	assert_string_equal(r.lock, "shared");
	assert_int_equal(r.held_ms, UINT64_MAX);
	e.lock_held_ns = 7900000;
	export_lock_row(f->b, &e, &r);
	assert_int_equal(r.held_ms, 7);
}

static int
evicts(struct fake *f, uint32_t id, const char *why, char reason[160])
{
	int rc = evict(f->b, WEIR_EVICT_EXPORT, id, why, reason, 160);

	broker_flush(f->b);
	fake_run(f);
	return rc;
}

/* Engines end it; its number stays taken until its program revokes it, and is told why. */
TEST_FAKE(test_evict, two_engines)
{
	struct fake_session s;
	struct weir_key_fields a, b;
	uint32_t replies;
	char reason[160];

	exporter(f, &s);
	assert_int_equal(evicts(f, 0, "", reason), -ESRCH);
	assert_int_equal(evicts(f, UINT32_MAX, "", reason), -ESRCH);
	export(f, &s, 1, 0, 10, WEIR_RIGHT_WRITE);
	a = key_of(&s);
	export(f, &s, 1, 0, 10, WEIR_RIGHT_WRITE);
	b = key_of(&s);
	assert_int_equal(evicts(f, a.index, "too loud", reason), 1);
	assert_int_equal(f->count[ENGINE_EXPORT_REMOVE], 2);
	assert_int_equal(f->last[ENGINE_EXPORT_REMOVE].export.generation, a.generation);
	assert_int_equal(f->b->counters.evicted, 1);
	assert_int_equal(evicts(f, a.index, "", reason), -ESRCH);
	assert_non_null(strstr(reason, "; see weirctl show exports"));
	assert_int_equal(show(f), 2);
	assert_string_equal(rows[0].state, "evicted");
	assert_string_equal(rows[1].state, "open");
	assert_int_equal(revoke_export(f, &s, 1, b.generation), WEIR_MSG_REFUSED);
	expect_refused(&s, ENOENT);
	revoke_export(f, &s, 1, a.generation);
	expect_refused(&s, ECONNABORTED);
	assert_non_null(strstr(s.reply.refused.reason, "evicted by an operator: too loud; "));
	revoke_export(f, &s, 1, a.generation);
	expect_refused(&s, ENOENT);
	assert_int_equal(show(f), 1);
	/* its program asks while engines still end it */
	f->hold = true;
	assert_int_equal(evicts(f, b.index, "", reason), 1);
	replies = s.replies;
	revoke_export(f, &s, 2, b.generation);
	assert_int_equal(s.replies, replies);
	fake_let_go(f);
	assert_int_equal(s.replies, replies + 1);
	expect_refused(&s, ECONNABORTED);
	assert_non_null(strstr(s.reply.refused.reason, "evicted by an operator; "));
	assert_int_equal(show(f), 0);
	assert_int_equal(f->b->used[USER_EXPORTS], 0);
	/* and one that never asks, and leaves */
	export(f, &s, 1, 0, 10, WEIR_RIGHT_WRITE);
	a = key_of(&s);
	assert_int_equal(evicts(f, row_of(f, &a), "for good", reason), 1);
	assert_int_equal(f->b->used[USER_EXPORTS], 1);
	fake_leave(f, &s);
	assert_int_equal(f->b->used[USER_EXPORTS], 0);
}

TEST_FAKE(test_user_limit,
	  ((const struct fake_config){.engines = 2, .node = 7, .limits = "*:exports=2"}))
{
	struct fake_session s, t;

	exporter(f, &s);
	exporter(f, &t);
	assert_int_equal(export(f, &s, 1, 0, 1, WEIR_RIGHT_WRITE), WEIR_MSG_EXPORTED);
	assert_int_equal(export(f, &t, 1, 0, 1, WEIR_RIGHT_WRITE), WEIR_MSG_EXPORTED);
	export(f, &t, 1, 0, 1, WEIR_RIGHT_WRITE);
	expect_refused(&t, EDQUOT);
	assert_non_null(strstr(t.reply.refused.reason, "--user-limit exports="));
	assert_int_equal(revoke_export(f, &s, 1, s.reply.exported.generation), WEIR_MSG_OK);
	assert_int_equal(export(f, &t, 1, 0, 1, WEIR_RIGHT_WRITE), WEIR_MSG_EXPORTED);
}

/* The limit of all users together, which an operator sets. */
TEST_FAKE(test_limit_of_all, two_engines)
{
	char reason[160];
	struct fake_session s, t;

	exporter(f, &s);
	exporter(f, &t);
	assert_int_equal(export(f, &s, 1, 0, 1, WEIR_RIGHT_WRITE), WEIR_MSG_EXPORTED);
	assert_int_equal(setting_set(f->b, "limit.exports", "1", reason, sizeof(reason)), 1);
	export(f, &t, 1, 0, 1, WEIR_RIGHT_WRITE);
	expect_refused(&t, ENOSPC);
	assert_non_null(strstr(t.reply.refused.reason, "weirctl set limit.exports"));
	assert_int_equal(setting_set(f->b, "limit.exports", "2", reason, sizeof(reason)), 1);
	assert_int_equal(export(f, &t, 1, 0, 1, WEIR_RIGHT_WRITE), WEIR_MSG_EXPORTED);
}

/* A program ends before its engine has opened a key for it, or that of the export does. */
TEST_FAKE(test_open_ends_meanwhile, two_engines)
{
	struct fake_session s, other[2];
	struct weir_session_msg m = {.type = WEIR_MSG_OPEN, .open.rights = WEIR_RIGHT_WRITE};
	struct weir_key_fields k;

	exporter(f, &s);
	export(f, &s, 1, 0, 100, WEIR_RIGHT_WRITE);
	k = key_of(&s);
	memcpy(m.open.key, &k, sizeof(m.open.key));
	for (unsigned i = 0; i < 2; i++) {
		fake_program(f, &other[i]);
		f->hold = true;
		assert_int_equal(fake_request(f, &other[i], &m), 0);
		assert_int_equal(f->count[ENGINE_CONN_APART], i + 1);
		fake_leave(f, i ? &s : &other[0]);
		fake_let_go(f);
	}
	/* of what the engine made, the CLOSED of its export tells the program */
	assert_int_equal(other[1].reply.type, WEIR_MSG_CONNECTING);
	assert_int_equal(other[1].s->conn_count, 1);
	fake_leave(f, &other[1]);
	assert_int_equal(f->b->conn_count, 0);
}

/* ---- over a link ---- */

/* A peer asks for it. */
static struct engine_event
question(struct net *n, const struct weir_key_fields *k, uint32_t rights)
{
	struct weir_wire_export wanted = {
	    .index = k->index, .generation = k->generation, .rights = rights};
	struct engine_event e = {.type = ENGINE_EVENT_CONNECT,
				 .conn = {.link = the_link(n, 1)->id,
					  .peer_node = 1,
					  .peer_vqpn = 0x100001,
					  .kind = CONN_MEMORY}};

	memcpy(wanted.secret, k->secret, sizeof(wanted.secret));
	memcpy(e.conn.service, &wanted, sizeof(wanted));
	return e;
}

static void
asked(struct net *n, const struct weir_key_fields *k, uint32_t rights)
{
	struct engine_event e = question(n, k, rights);

	fake_event(n->f[1], 0, &e);
}

/* The accepting end is of the exporting session, but takes no descriptor and no channel of it. */
TEST_NET(test_accept, bring_up)
{
	struct fake *f = n->f[1];
	struct fake_session s;
	struct engine_event closed = {.type = ENGINE_EVENT_CONN_CLOSED};
	struct weir_key_fields k, bad;
	struct engine_conn_command *c = &f->last[ENGINE_CONN_ACCEPT].conn;
	uint32_t descs, conns;

	exporter(f, &s);
	descs = s.s->free_desc_count;
	conns = s.s->conn_count;
	export(f, &s, 1, 0, 100, WEIR_RIGHT_WRITE);
	k = key_of(&s);
	asked(n, &k, WEIR_RIGHT_WRITE);
	assert_int_equal(f->count[ENGINE_CONN_ACCEPT], 1);
	assert_int_equal(c->kind, CONN_MEMORY);
	assert_int_equal(c->desc, ENGINE_DESC_NONE);
	assert_int_equal(c->channel, ENGINE_CHANNEL_NONE);
	assert_int_equal(c->export_session, s.s->id);
	assert_int_equal(c->export_number, 1);
	assert_int_equal(c->export_generation, k.generation);
	assert_int_equal(c->rights, WEIR_RIGHT_WRITE);
	assert_int_equal(s.s->free_desc_count, descs);
	assert_int_equal(s.s->conn_count, conns + 1);
	closed.conn.vqpn = LIST_FIRST(&s.s->conns)->vqpn;
	fake_event(f, 0, &closed);
	assert_int_equal(s.s->free_desc_count, descs); /* none comes back that was not taken */
	assert_int_equal(s.s->conn_count, conns);

	asked(n, &k, WEIR_RIGHT_READ);
	assert_int_equal(f->last[ENGINE_CONN_REJECT].conn.status, EACCES);
	asked(n, &k, 0);
	assert_int_equal(f->last[ENGINE_CONN_REJECT].conn.status, EACCES);
	for (unsigned i = 0; i < sizeof(bad.secret); i++) {
		bad = k;
		bad.secret[i] ^= 0x80;
		asked(n, &bad, WEIR_RIGHT_WRITE);
		assert_int_equal(f->last[ENGINE_CONN_REJECT].conn.status, EKEYREJECTED);
	}
	bad = k;
	bad.generation++;
	asked(n, &bad, WEIR_RIGHT_WRITE);
	assert_int_equal(f->last[ENGINE_CONN_REJECT].conn.status, EKEYREJECTED);
	assert_int_equal(f->count[ENGINE_CONN_ACCEPT], 1);
	assert_true(f->b->counters.keys_rejected >= 17);
	/* the engine has ended it meanwhile */
	f->fail_type = ENGINE_CONN_ACCEPT;
	f->fail_rc = -ESTALE;
	asked(n, &k, WEIR_RIGHT_WRITE);
	assert_int_equal(f->last[ENGINE_CONN_REJECT].conn.status, EKEYREJECTED);
	f->fail_type = -1;
	/* no room for connections at the exporting program */
	s.s->quota.conn_limit = s.s->conn_count;
	asked(n, &k, WEIR_RIGHT_WRITE);
	assert_int_equal(f->last[ENGINE_CONN_REJECT].conn.status, EMFILE);
	fake_leave(f, &s);
	asked(n, &k, WEIR_RIGHT_WRITE);
	assert_int_equal(f->last[ENGINE_CONN_REJECT].conn.status, EKEYREJECTED);
}

#define GUESSES 500u

/*
 * The data plane of a peer asks with guessed secrets, also while the engine answers nothing. Each
 * guess is refused and leaves nothing; requests among and beside them are served as ever.
 */
TEST_NET(test_guesses, bring_up)
{
	struct fake *f = n->f[1];
	struct fake_session s, local;
	struct weir_key_fields k, guess;
	struct engine_event e;
	uint32_t conns, accepts;
	size_t memory;

	exporter(f, &s);
	fake_program(f, &local);
	export(f, &s, 1, 0, 100, WEIR_RIGHT_WRITE);
	k = key_of(&s);
	memory = f->live_memory;
	for (uint32_t round = 0; round < 2; round++) {
		f->hold = round;
		conns = f->b->conn_count;
		accepts = f->count[ENGINE_CONN_ACCEPT];
		for (uint32_t i = 0; i < GUESSES; i++) {
			guess = k;
			guess.secret[i % sizeof(guess.secret)] ^= (uint8_t)(1 + i % 255);
			e = question(n, i == GUESSES / 2 ? &k : &guess, WEIR_RIGHT_WRITE);
			fake_emit(f, 0, &e);
		}
		open_key(f, &local, &k, WEIR_RIGHT_WRITE);
		/* of the flood only the request with the key is a connection */
		assert_int_equal(f->b->conn_count, conns + 2);
		fake_let_go(f);
		assert_int_equal(local.reply.type, WEIR_MSG_CONNECTING);
		assert_int_equal(f->count[ENGINE_CONN_REJECT], (round + 1) * (GUESSES - 1));
		assert_int_equal(f->last[ENGINE_CONN_REJECT].conn.status, EKEYREJECTED);
		assert_int_equal(f->count[ENGINE_CONN_ACCEPT], accepts + 1);
		assert_int_equal(f->b->counters.keys_rejected, (round + 1) * (GUESSES - 1));
		assert_int_equal(the_link(n, 1)->state, LINK_UP);
		/* and the link serves others */
		assert_int_equal(fake_connect(f, &local, 1, "echo", 0), WEIR_MSG_CONNECTING);
	}
	assert_int_equal(f->live_memory, memory);
	fake_leave(f, &local);
	fake_leave(f, &s);
}

/* Peers get keys of the export's bytes, with their rights and no others, one for all of them. The
 * NIC forgets them when no engine has a connection any more. */
TEST_NET(test_nic_keys, bring_up)
{
	static const struct {
		uint32_t rights;
		unsigned access;
	} row[] = {
	    {WEIR_RIGHT_READ, NIC_REMOTE_READ},
	    {WEIR_RIGHT_WRITE | WEIR_RIGHT_UPDATE, NIC_LOCAL_WRITE | NIC_REMOTE_WRITE},
	    {WEIR_RIGHT_READ | WEIR_RIGHT_WRITE | WEIR_RIGHT_UPDATE,
	     NIC_LOCAL_WRITE | NIC_REMOTE_WRITE | NIC_REMOTE_READ},
	};
	struct fake *f = n->f[1];
	struct fake_session s;
	struct weir_key_fields k;
	struct engine_export_key first, *key = &f->last[ENGINE_CONN_ACCEPT].key;
	uint32_t mrs;

	exporter(f, &s);
	export(f, &s, 1, 48, 100, WEIR_RIGHTS_KNOWN & ~WEIR_RIGHT_NOTIFY);
	k = key_of(&s);
	mrs = f->live_mrs;
	asked(n, &k, WEIR_RIGHT_UPDATE);
	assert_int_equal(key->rkey, 0);
	assert_int_equal(f->live_mrs, mrs);
	for (unsigned i = 0; i < 3; i++) {
		asked(n, &k, row[i].rights);
		first = *key;
		assert_int_equal(f->live_mrs, mrs + 1 + i);
		assert_true(first.rkey && first.rkey <= FAKE_MRS);
		assert_int_equal(f->mr[first.rkey - 1].access, row[i].access);
		assert_int_equal(f->mr[first.rkey - 1].is.length, 100);
		assert_int_equal(f->mr[first.rkey - 1].is.address, first.address);
		assert_int_equal(first.address % 4096, 48);
		asked(n, &k, row[i].rights);
		assert_true(key->rkey == first.rkey && f->live_mrs == mrs + 1 + i);
	}
	/* there are 8 of them: operations of others are cells */
	for (unsigned i = 0; i < 3; i++) {
		export(f, &s, 1, 0, 8, WEIR_RIGHT_READ | WEIR_RIGHT_WRITE);
		struct weir_key_fields other = key_of(&s);

		for (uint32_t r = WEIR_RIGHT_READ; r <= (WEIR_RIGHT_READ | WEIR_RIGHT_WRITE); r++)
			asked(n, &other, r);
	}
	assert_int_equal(f->live_mrs, mrs + 8);
	assert_int_equal(key->rkey, 0);
	/* they stay until the engine says that no peer uses them */
	f->hold = true;
	revoke_export(f, &s, 1, k.generation);
	assert_int_equal(f->live_mrs, mrs + 8);
	fake_let_go(f);
	assert_int_equal(f->count[ENGINE_EXPORT_REMOVE], 1);
	assert_int_equal(f->live_mrs, mrs + 5);
	asked(n, &k, WEIR_RIGHT_READ);
	assert_int_equal(f->last[ENGINE_CONN_REJECT].conn.status, EKEYREJECTED);
	fake_leave(f, &s);
}

/* REVOKE is refused while peers are not done, then says that the export is gone. */
TEST_NET(test_slow_peers, bring_up)
{
	struct fake *f = n->f[1];
	struct fake_session s;
	struct weir_key_fields k;
	uint32_t mrs;

	exporter(f, &s);
	export(f, &s, 1, 0, 100, WEIR_RIGHT_READ);
	k = key_of(&s);
	mrs = f->live_mrs;
	asked(n, &k, WEIR_RIGHT_READ);
	f->keyed = 1;
	f->hold_type = ENGINE_EXPORT_REMOVE;
	for (unsigned i = 0; i < 3; i++) {
		revoke_export(f, &s, 1, k.generation);
		expect_refused(&s, EAGAIN);
		asked(n, &k, WEIR_RIGHT_READ);
		assert_int_equal(f->last[ENGINE_CONN_REJECT].conn.status, EKEYREJECTED);
	}
	assert_int_equal(f->live_mrs, mrs + 1);
	f->hold_type = 0;
	fake_let_go(f);
	assert_int_equal(f->live_mrs, mrs);
	revoke_export(f, &s, 1, k.generation);
	expect_refused(&s, ENOENT);
	fake_leave(f, &s);
}

/* CONNECT carries the names of the key; a key of an earlier run of that node's data plane fails at
 * once. */
TEST_NET(test_connect, bring_up)
{
	struct fake *f = n->f[0];
	struct weir_wire_export wanted;
	struct fake_session s;
	struct weir_key_fields k;

	exporter(n->f[1], &s);
	export(n->f[1], &s, 1, 0, 100, WEIR_RIGHT_WRITE);
	k = key_of(&s);
	assert_int_equal(open_key(f, &n->s[0], &k, WEIR_RIGHT_WRITE), WEIR_MSG_CONNECTING);
	assert_int_equal(n->s[0].reply.connecting.local, 0);
	assert_int_equal(f->last[ENGINE_CONN_OPEN].conn.kind, CONN_MEMORY);
	memcpy(&wanted, f->last[ENGINE_CONN_OPEN].conn.service, sizeof(wanted));
	assert_int_equal(wanted.index, k.index);
	assert_int_equal(wanted.generation, k.generation);
	assert_int_equal(wanted.rights, WEIR_RIGHT_WRITE);
	assert_memory_equal(wanted.secret, k.secret, sizeof(k.secret));
	/* made before its node had an id */
	k.node = UINT32_MAX;
	k.sum = weir_key_sum(&k);
	memset(&f->last[ENGINE_CONN_OPEN], 0, sizeof(f->last[ENGINE_CONN_OPEN]));
	assert_int_equal(open_key(f, &n->s[0], &k, WEIR_RIGHT_WRITE), WEIR_MSG_CONNECTING);
	assert_int_equal(n->s[0].reply.connecting.local, 0);
	memcpy(&wanted, f->last[ENGINE_CONN_OPEN].conn.service, sizeof(wanted));
	assert_int_equal(wanted.index, k.index);
	assert_int_equal(f->last[ENGINE_CONN_OPEN].conn.link, the_link(n, 0)->id);
	k.incarnation--;
	k.sum = weir_key_sum(&k);
	open_key(f, &n->s[0], &k, WEIR_RIGHT_WRITE);
	expect_refused(&n->s[0], EKEYREJECTED);
	k.incarnation = 0;
	k.sum = weir_key_sum(&k);
	open_key(f, &n->s[0], &k, WEIR_RIGHT_WRITE);
	expect_refused(&n->s[0], EKEYREJECTED);
	k = key_of(&s);
	k.incarnation--;
	k.sum = weir_key_sum(&k);
	open_key(f, &n->s[0], &k, WEIR_RIGHT_WRITE);
	expect_refused(&n->s[0], EKEYREJECTED);
	k.node = 77;
	k.sum = weir_key_sum(&k);
	open_key(f, &n->s[0], &k, WEIR_RIGHT_WRITE);
	expect_refused(&n->s[0], EKEYREJECTED);
	fake_leave(n->f[1], &s);
}

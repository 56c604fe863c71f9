/* SPDX-License-Identifier: BSD-3-Clause */
/* Structures that begin with their size, of programs that are older or newer than the library. */
#include "worlds/test.h"

#include "worlds/message_world.h"

#include "client/sized.h"

/* As this library knows it; of a program of a later release. */
struct known {
	size_t size;
	uint64_t first, second;
};
struct later {
	struct known is;
	uint64_t more[4];
};

#define INIT "WEIR_KNOWN_INIT"

static int
read_known(struct known *own, const void *given)
{
	*own = (struct known){sizeof(*own), 11, 22};
	return weir_sized_read(own, sizeof(*own), given, INIT);
}

static void
refuses(int rc, int want, const char *reason)
{
	assert_int_equal(rc, want);
	if (!strstr(weir_reason(), reason))
		fail_msg("'%s' does not say '%s'", weir_reason(), reason);
}

TEST(test_earlier_programs)
{
	struct known own, given = {.first = 1, .second = 2};

	assert_int_equal(read_known(&own, NULL), 0);
	assert_true(own.first == 11 && own.second == 22);
	given.size = sizeof(size_t); /* nothing but its size: defaults */
	assert_int_equal(read_known(&own, &given), 0);
	assert_true(own.size == sizeof(own) && own.first == 11 && own.second == 22);
	given.size = offsetof(struct known, second);
	assert_int_equal(read_known(&own, &given), 0);
	assert_true(own.size == sizeof(own) && own.first == 1 && own.second == 22);
	given.size = sizeof(given);
	assert_int_equal(read_known(&own, &given), 0);
	assert_true(own.size == sizeof(own) && own.first == 1 && own.second == 2);
}

TEST(test_not_initialized)
{
	struct known own, given = {.first = 1};

	for (given.size = 0; given.size < sizeof(size_t); given.size++)
		refuses(read_known(&own, &given), -EINVAL, INIT);
	/* larger than any: nothing beyond the program's structure is read */
	given.size = WEIR_SIZE_MAX + 1;
	refuses(read_known(&own, &given), -EINVAL, INIT);
	given.size = SIZE_MAX;
	refuses(read_known(&own, &given), -EINVAL, INIT);
	assert_true(own.first == 11 && own.second == 22);
}

TEST(test_later_programs)
{
	static union {
		struct known is;
		uint8_t bytes[WEIR_SIZE_MAX];
	} given;
	struct known own;

	given.is.first = 1;
	for (given.is.size = sizeof(own); given.is.size <= WEIR_SIZE_MAX; given.is.size += 509) {
		assert_int_equal(read_known(&own, &given), 0);
		assert_true(own.size == sizeof(own) && own.first == 1);
		for (size_t i = sizeof(own); i < given.is.size; i += i < 64 ? 1 : 97) {
			given.bytes[i] = 0x80;
			refuses(read_known(&own, &given), -E2BIG, INIT);
			assert_int_equal(own.first, 11);
			given.bytes[i] = 0;
		}
		given.bytes[given.is.size - 1] = given.is.size > sizeof(own);
		assert_int_equal(read_known(&own, &given),
				 given.is.size > sizeof(own) ? -E2BIG : 0);
		given.bytes[given.is.size - 1] = 0;
	}
	/* what lies behind the structure is not of it */
	given.is.size = sizeof(own);
	given.bytes[sizeof(own)] = 1;
	assert_int_equal(read_known(&own, &given), 0);
}

TEST(test_filled)
{
	const struct known own = {sizeof(own), 1, 2};
	struct later given;
	size_t sizes[] = {sizeof(size_t), offsetof(struct known, second), sizeof(own),
			  sizeof(given)};

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		memset(&given, 0xff, sizeof(given));
		given.is.size = sizes[i];
		assert_int_equal(weir_sized_write(&given, &own, sizeof(own), INIT), 0);
		assert_int_equal(given.is.size, sizes[i]);
		assert_true(given.is.first == (i > 0 ? 1 : UINT64_MAX));
		assert_true(given.is.second == (i > 1 ? 2 : UINT64_MAX));
		for (unsigned k = 0; k < 4; k++)
			assert_true(given.more[k] == (i > 2 ? 0 : UINT64_MAX));
	}
	given.is.size = 0;
	refuses(weir_sized_write(&given, &own, sizeof(own), INIT), -EINVAL, INIT);
}

/*
 * Each call reads its structure so: `call` with size 0, of a later program with a field that is not
 * known and with one that is 0, and with nothing but a size.
 */
#define SIZED(type, init, set, call, want)                                                         \
	do {                                                                                       \
		static const struct type start = init;                                             \
		struct {                                                                           \
			struct type is;                                                            \
			uint64_t more;                                                             \
		} later = {start, 0};                                                              \
		struct type *o = &later.is;                                                        \
                                                                                                   \
		set;                                                                               \
		assert_int_equal(o->size, sizeof(*o));                                             \
		o->size = 0;                                                                       \
		refuses(call, -EINVAL, #init);                                                     \
		o->size = sizeof(later);                                                           \
		later.more = 1;                                                                    \
		refuses(call, -E2BIG, #init);                                                      \
		later.more = 0;                                                                    \
		assert_int_equal(call, want);                                                      \
	} while (0)

TEST(test_attach)
{
	struct weir_options only = {.size = sizeof(only.size), .flags = UINT32_MAX};
	struct weir *w;

	setenv("WEIR_RUN_DIR", "/nonexistent", 1);
	SIZED(weir_options, WEIR_OPTIONS_INIT, (void)0, weir_attach(o, &w), -ENOENT);
	assert_int_equal(weir_attach(&only, &w), -ENOENT); /* the flags are beyond its end */
	only.size = sizeof(only);
	assert_int_equal(weir_attach(&only, &w), -EINVAL);
	only.flags = 0;
	only.reserved = 1;
	assert_int_equal(weir_attach(&only, &w), -EINVAL);
}

TEST(test_streams)
{
	struct weir_connect_options reserved = WEIR_CONNECT_OPTIONS_INIT;
	struct weir_address to = {.kind = WEIR_ADDRESS_NODE, .id = A, .service = "sized"};
	struct weir_listener *l;
	struct weir_conn *c, *d;
	struct both p;

	open_both(&p, NULL, NULL);
	SIZED(weir_listen_options, WEIR_LISTEN_OPTIONS_INIT, (void)0,
	      weir_listen_with(p.a.w, "sized", o, &l), 0);
	SIZED(weir_connect_options, WEIR_CONNECT_OPTIONS_INIT, (void)0,
	      weir_connect_with(p.a.w, &to, o, PATIENT, &c), 0);
	must(weir_accept(l, PATIENT, &d));
	for (unsigned i = 0; i < 4; i++) {
		struct weir_conn *none;

		reserved.reconnect.reserved[i] = 1;
		refuses(weir_connect_with(p.a.w, &to, &reserved, 0, &none), -EINVAL, "reserved");
		reserved.reconnect.reserved[i] = 0;
	}
	weir_close(c);
	weir_close(d);
	weir_listener_close(l);
	close_both(&p);
}

TEST(test_messages)
{
	struct weir_messenger *m;
	struct weir_handler h = WEIR_HANDLER_INIT;
	struct both p;

	open_both(&p, NULL, NULL);
	SIZED(weir_messenger_options, WEIR_MESSENGER_OPTIONS_INIT, o->service = "sized",
	      weir_messenger_open(p.a.w, o, &m), 0);
	SIZED(weir_handler, WEIR_HANDLER_INIT, o->handle = mute,
	      weir_message_register(m, TYPE_KEEP, o), 0);
	h.handle = mute;
	h.flags = 1u << 31;
	refuses(weir_message_register(m, TYPE_BLOCK, &h), -EINVAL, "flag");
	weir_messenger_close(m);
	close_both(&p);
}

TEST(test_counters)
{
	struct {
		struct weir_messenger_stats is;
		uint64_t more;
	} stats = {WEIR_MESSENGER_STATS_INIT, 1};
	uint32_t buf[2] = {0, 0};
	struct both p;

	open_both(&p, NULL, NULL);
	must(weir_message_send(p.a.m, B, TYPE_NOTE, buf, sizeof(buf), PATIENT));
	await(p.b.notes == 1);
	await(stats_of(&p.b).handled == 1);
	/* a program of a release with fewer counters: the others stay as they are */
	memset(&stats, 0xff, sizeof(stats));
	stats.is.size = offsetof(struct weir_messenger_stats, unknown);
	assert_int_equal(weir_messenger_stats(p.b.m, &stats.is), 0);
	assert_int_equal(stats.is.handled, 1);
	assert_true(stats.is.unknown == UINT64_MAX);
	/* and with more */
	stats.is.size = sizeof(stats);
	assert_int_equal(weir_messenger_stats(p.b.m, &stats.is), 0);
	assert_true(stats.is.size == sizeof(stats) && !stats.more && !stats.is.unknown);
	stats.is.size = 0;
	refuses(weir_messenger_stats(p.b.m, &stats.is), -EINVAL, "WEIR_MESSENGER_STATS_INIT");
	close_both(&p);
}

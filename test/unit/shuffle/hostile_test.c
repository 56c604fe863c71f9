/* SPDX-License-Identifier: BSD-3-Clause */
/* Options that cannot be, processes that go away, and peers that lie: an error, and all others go
 * on. */
#include "invoke/crew.h"

#include "shuffle/format/block.h"
#include "shuffle/shuffle.h"

enum { RECORDS, BLOCK, SAY };

static const struct weir_function table[] = {WEIR_SHUFFLE_FUNCTIONS};
static struct weir_shuffle_options options;

static void
options_init(uint32_t kind)
{
	options = (struct weir_shuffle_options)WEIR_SHUFFLE_OPTIONS_INIT;
	options.kind = kind;
	options.maps = kind == WEIR_SHUFFLE_STAGE ? 4 : 0;
	crew_init();
}

/* ---- options ---- */

static int
refused(struct hand *h, const struct weir_shuffle_options *o, const char *what)
{
	struct weir_shuffle *s = (void *)1;

	CHECK(weir_shuffle_open(h->c.v, o, &s) == -EINVAL && !s);
	CHECK(strstr(weir_reason(), what));
	return 0;
}

static int
bad_options(struct hand *h)
{
	struct weir_shuffle_options mine;
	struct weir_record record;
	struct weir_shuffle *s;
	struct weir_reduce *r;
	struct weir_map *m;
	int line;

#define REFUSED(change, what)                                                                      \
	do {                                                                                       \
		mine = options;                                                                    \
		change;                                                                            \
		line = refused(h, &mine, what);                                                    \
		if (line)                                                                          \
			return line;                                                               \
	} while (0)
	REFUSED(mine.size = 8, "options of 8 bytes");
	REFUSED(mine.kind = 7, "kind 7");
	REFUSED(mine.flags = WEIR_SHUFFLE_SORTED, "flags");
	REFUSED(mine.partitions = WEIR_PARTITIONS_MAX + 1, "65537 partitions");
	REFUSED(mine.maps = WEIR_SHUFFLE_MAPS_MAX + 1, "maps");
	REFUSED(mine.block = 100, "blocks of 100 bytes");
	REFUSED(mine.codec = 9, "codec");
	REFUSED(mine.kind = WEIR_SHUFFLE_STAGE; mine.maps = 0, "maps");
#undef REFUSED
	/* one thread differs from the others */
	mine = options;
	mine.partitions = h->number == 1 ? 8 : 9;
	CHECK(weir_shuffle_open(h->c.v, &mine, &s) == -EINVAL);
	CHECK(strstr(weir_reason(), "partitions"));
	/* one gives options that cannot be: none opens */
	mine = options;
	mine.codec = h->number == 1 ? 9 : 0;
	CHECK(weir_shuffle_open(h->c.v, &mine, &s) == -EINVAL);
	/* too little memory in one process */
	mine = options;
	mine.memory = h->c.process == 1 ? 20000 : mine.memory;
	CHECK(weir_shuffle_open(h->c.v, &mine, &s) == -ENOMEM);
	/* and what is right still opens */
	CHECK(!weir_shuffle_open(h->c.v, &options, &s));
	CHECK(!weir_reduce_begin_own(s, &r));
	CHECK(!weir_map_begin(s, 0, 0, &m));
	CHECK(!weir_map_end(m, true));
	CHECK(weir_reduce_next(r, &record, -1) == -ENODATA);
	weir_reduce_end(r, true);
	weir_shuffle_close(s);
	return weir_invoker_barrier(h->c.v, -1) ? __LINE__ : 0; /* no word comes behind that */
}

static void
test_options(void **state)
{
	(void)state;
	options_init(WEIR_SHUFFLE_STREAM);
	crew_of(2, table, sizeof(table) / sizeof(table[0]), bad_options);
}

static int
without_functions(struct hand *h)
{
	struct weir_shuffle *s;

	CHECK(weir_shuffle_open(h->c.v, &options, &s) == -ENOSYS);
	CHECK(strstr(weir_reason(), "WEIR_SHUFFLE_FUNCTIONS"));
	return 0;
}

static void
test_without_functions(void **state)
{
	(void)state;
	options_init(WEIR_SHUFFLE_STREAM);
	crew_of(2, table, 1, without_functions);
}

/* ---- calls that cannot be ---- */

static int
misuse(struct hand *h)
{
	struct weir_record big = {"k", "v", WEIR_RECORD_MAX, 1}, good = {"key", "v", 3, 1};
	struct weir_map *m, *other;
	struct weir_shuffle *s;
	struct weir_reduce *r;
	void *key, *value;

	CHECK(!weir_shuffle_open(h->c.v, &options, &s));
	CHECK(weir_map_begin(s, 1, 0, &m) == -EINVAL);
	CHECK(!weir_map_begin(s, 0, 0, &m));
	CHECK(weir_map_begin(s, 0, 0, &other) == -EBUSY);
	CHECK(weir_map_put(m, &big, 0) == -EMSGSIZE);
	CHECK(weir_map_put_to(m, (struct weir_to){9, 0}, &good, 0) == -ENOENT);
	CHECK(weir_map_put_to(m, (struct weir_to){0, 99}, &good, 0) == -ENOENT);
	CHECK(weir_map_put_block(m, weir_shuffle_partitions(s), "x", 1, 1, 0) == -EINVAL);
	CHECK(weir_map_put_block(m, 0, "x", 1, 2, 0) == -EINVAL);
	CHECK(weir_map_reserve(m, UINT32_MAX, 1, 1, 0, &key, &value) == -EINVAL);
	CHECK(weir_map_commit_record(m, 1, 1) == -EINVAL);
	CHECK(!weir_map_reserve(m, 0, 8, 8, -1, &key, &value));
	CHECK(weir_map_put(m, &good, 0) == -EINVAL);
	CHECK(weir_map_flush(m, 0) == -EINVAL);
	CHECK(weir_map_end(m, true) == -EINVAL);
	CHECK(weir_map_commit_record(m, 9, 1) == -EINVAL);
	CHECK(!weir_map_commit_record(m, 0, 0));
	CHECK(weir_reduce_begin(s, 0, 0, 1, &r) == -EINVAL);
	CHECK(weir_shuffle_missing(s, NULL, 0) == -EINVAL);
	CHECK(weir_shuffle_move(s, 0, (struct weir_to){0, 1}) == -EINVAL);
	CHECK(!weir_reduce_begin_own(s, &r));
	CHECK(weir_reduce_begin_own(s, &r) == -EBUSY);
	CHECK(!weir_map_end(m, true));
	CHECK(weir_reduce_next(r, &good, -1) == -ENODATA);
	CHECK(weir_reduce_key(r, (const void **)&key, &good.key_length, 0) == -EINVAL);
	weir_reduce_end(r, true);
	CHECK(weir_reduce_begin_own(s, &r) == -EBUSY);
	weir_shuffle_close(s);
	return weir_invoker_barrier(h->c.v, -1) ? __LINE__ : 0; /* no word comes behind that */
}

static void
test_misuse(void **state)
{
	(void)state;
	options_init(WEIR_SHUFFLE_STREAM);
	crew_of(2, table, sizeof(table) / sizeof(table[0]), misuse);
}

static int
misuse_stage(struct hand *h)
{
	struct weir_map *m;
	struct weir_shuffle *s;
	struct weir_reduce *r;
	struct weir_record record = {"k", "v", 1, 1};

	CHECK(!weir_shuffle_open(h->c.v, &options, &s));
	CHECK(weir_map_begin(s, options.maps, 0, &m) == -EINVAL);
	CHECK(weir_map_begin(s, 0, WEIR_SHUFFLE_ATTEMPTS_MAX, &m) == -EINVAL);
	CHECK(weir_reduce_begin(s, weir_shuffle_partitions(s), 0, 1, &r) == -EINVAL);
	CHECK(weir_reduce_begin(s, 0, 1, 1, &r) == -EINVAL);
	CHECK(weir_reduce_begin(s, 0, 0, 0, &r) == -EINVAL);
	if (!h->c.thread) {
		CHECK(!weir_map_begin(s, 1, h->c.process, &m));
		CHECK(weir_map_put_to(m, (struct weir_to){0, 0}, &record, 0) == -EINVAL);
		CHECK(!weir_map_end(m, false));
		CHECK(weir_map_begin(s, 1, h->c.process, &m) == -EEXIST);
		CHECK(weir_shuffle_missing(s, NULL, 0) == (int)options.maps);
	}
	CHECK(!weir_invoker_barrier(h->c.v, -1));
	weir_shuffle_close(s);
	return weir_invoker_barrier(h->c.v, -1) ? __LINE__ : 0; /* no word comes behind that */
}

static void
test_misuse_stage(void **state)
{
	(void)state;
	options_init(WEIR_SHUFFLE_STAGE);
	crew_of(2, table, sizeof(table) / sizeof(table[0]), misuse_stage);
}

/* ---- a process that goes ---- */

static int
leave_early(struct hand *h)
{
	struct weir_record record = {"key", "value", 3, 5}, got;
	struct weir_shuffle *s;
	struct weir_reduce *r;
	struct weir_map *m;
	int rc;

	CHECK(!weir_shuffle_open(h->c.v, &options, &s));
	if (h->c.process == 1) {
		CHECK(!weir_invoker_barrier(h->c.v, -1));
		weir_shuffle_close(s);
		return weir_invoker_barrier(h->c.v, -1) ? __LINE__ : 0;
	}
	CHECK(!weir_reduce_begin_own(s, &r));
	CHECK(!weir_map_begin(s, 0, 0, &m));
	CHECK(!weir_invoker_barrier(h->c.v, -1)); /* of all: none is too late */
	while (!(rc = weir_map_put(m, &record, 10)) || rc == -EAGAIN || rc == -ENOBUFS)
		while (!(rc = weir_reduce_next(r, &got, 0)))
			CHECK(got.key_length == 3 && !memcmp(got.key, "key", 3));
	CHECK(rc == -ECANCELED || rc == -EHOSTDOWN);
	while (!(rc = weir_reduce_next(r, &got, -1)))
		;
	CHECK(rc == -ECANCELED || rc == -EHOSTDOWN);
	CHECK(strstr(weir_reason(), "process 1"));
	rc = weir_map_end(m, true);
	CHECK(rc == -ECANCELED || rc == -EHOSTDOWN);
	weir_reduce_end(r, false);
	weir_shuffle_close(s);
	return weir_invoker_barrier(h->c.v, -1) ? __LINE__ : 0; /* no word comes behind that */
}

static void
test_leave_early(void **state)
{
	(void)state;
	options_init(WEIR_SHUFFLE_STREAM);
	crew_of(3, table, sizeof(table) / sizeof(table[0]), leave_early);
}

/* ---- lies ---- */

static uint8_t block[sizeof(struct block_head) + 64];

/* A block of one record for partition 0, as process 1's thread 0 makes it. */
static struct block_head *
make_block(const struct weir_shuffle *s, uint32_t map, uint32_t attempt, uint32_t number)
{
	struct block_head *h = (struct block_head *)(void *)block;
	struct fragment_head f = {.partition = 0, .records = 1, .bytes = 6};
	struct weir_record r = {"abc", "d", 3, 1};
	uint8_t *at = block + sizeof(*h);

	memset(block, 0, sizeof(block));
	memcpy(at, &f, sizeof(f));
	record_write(at + sizeof(f), &r);
	*h = (struct block_head){.shuffle = s->word,
				 .map = map,
				 .attempt = attempt,
				 .number = number,
				 .fragments = 1,
				 .records = 1,
				 .stored = 24,
				 .raw = 24,
				 .producer = UINT64_C(1) << 32};
	h->checksum = block_checksum(h, at);
	return h;
}

/* Sends it, and waits until it has been looked at. The status of the call. */
static int
send_block_to(struct hand *h, struct weir_shuffle *s, uint32_t process, size_t length)
{
	struct block_args args = {.shuffle = s->number};
	struct weir_call_options o = {.timeout_ms = -1, .payload = block, .payload_length = length};
	struct weir_future f = {0};

	if (weir_call_return(h->c.v, (struct weir_to){process, 0}, BLOCK, &args, sizeof(args), &f,
			     NULL, 0, &o))
		return -1;
	return weir_future_wait(h->c.v, &f, -1);
}

static int
send_block(struct hand *h, struct weir_shuffle *s, size_t length)
{
	return send_block_to(h, s, 0, length);
}

static int
send_say(struct hand *h, struct weir_shuffle *s, struct say_args a)
{
	struct weir_future f = {0};

	a.shuffle = s->number;
	if (weir_call_return(h->c.v, (struct weir_to){0, 0}, SAY, &a, sizeof(a), &f, NULL, 0, NULL))
		return -1;
	return weir_future_wait(h->c.v, &f, -1);
}

static int
lie(struct hand *h, struct weir_shuffle *s)
{
	const uint64_t self = UINT64_C(1) << 32;
	struct block_head *b;

	make_block(s, 0, 0, 0);
	CHECK(send_block(h, s, sizeof(struct block_head)) == -EBADMSG); /* nothing behind it */
	CHECK(send_block(h, s, sizeof(struct block_head) + 16) == -EBADMSG);
	for (uint32_t i = 0; i < 24; i++) { /* each byte that is stored */
		make_block(s, 0, 0, 0);
		block[sizeof(struct block_head) + i] ^= 1;
		CHECK(send_block(h, s, sizeof(struct block_head) + 24) == -EBADMSG);
	}
#define BAD(change)                                                                                \
	do {                                                                                       \
		b = make_block(s, 0, 0, 0);                                                        \
		change;                                                                            \
		b->checksum = block_checksum(b, b + 1);                                            \
		CHECK(send_block(h, s, sizeof(struct block_head) + 24) == -EBADMSG);               \
	} while (0)
	BAD(b->shuffle++);
	BAD(b->map = options.maps);
	BAD(b->attempt = WEIR_SHUFFLE_ATTEMPTS_MAX);
	BAD(b->number = 1); /* far ahead */
	BAD(b->number = UINT32_MAX);
	BAD(b->map = 3; b->producer = 0); /* another thread's, of an attempt that nobody knows */
	BAD(b->map = 3; b->producer = self | 1);
	BAD(b->raw = UINT32_MAX);
	BAD(b->codec = WEIR_CODEC_LZ4); /* no such bytes */
	BAD(b->codec = 7);
	BAD(b->flags = 0x80);
	BAD(b->zero = 1);
	BAD(b->epoch = 1); /* process 0 has begun none */
	BAD(b->fragments = UINT32_MAX);
	BAD(b->records = UINT32_MAX);
#undef BAD
	/* words that cannot be */
	CHECK(send_say(h, s, (struct say_args){.kind = 0}) == -EBADMSG);
	CHECK(send_say(h, s, (struct say_args){.kind = 99}) == -EBADMSG);
	CHECK(send_say(h, s, (struct say_args){.kind = SAY_END}) == -EBADMSG);
	CHECK(send_say(h, s, (struct say_args){.kind = SAY_ASK, .map = 1}) == -EBADMSG);
	CHECK(send_say(h, s,
		       (struct say_args){.kind = SAY_ASK, .map = options.maps, .producer = self}) ==
	      -EBADMSG);
	CHECK(send_say(h, s, (struct say_args){.kind = SAY_ASK, .attempt = 64, .producer = self}) ==
	      -EBADMSG);
	CHECK(send_say(h, s, (struct say_args){.kind = SAY_COUNTS, .producer = 0}) == -EBADMSG);
	CHECK(send_say(h, s, (struct say_args){.kind = SAY_DROP, .producer = 0}) == -EBADMSG);
	CHECK(send_say(h, s, (struct say_args){.kind = SAY_WON, .producer = self}) == -EBADMSG);
	/* another process than 0 moves no partition, and knows of no epoch before it */
	for (uint32_t kind = SAY_MOVE; kind <= SAY_AGAIN; kind++)
		CHECK(
		    send_say(h, s, (struct say_args){.kind = kind, .producer = self, .epoch = 1}) ==
		    -EBADMSG);
	CHECK(send_say(h, s, (struct say_args){.kind = SAY_ASK, .producer = self, .epoch = 1}) ==
	      -EBADMSG);
	/* no lie: the word that drops an attempt overtakes its blocks, but not what counts them */
	CHECK(!send_say(
	    h, s, (struct say_args){.kind = SAY_DROP, .map = 3, .attempt = 7, .producer = self}));
	make_block(s, 3, 7, 1);
	CHECK(!send_block(h, s, sizeof(struct block_head) + 24));
	/* the second of the same number */
	make_block(s, 0, 0, 0);
	CHECK(!send_block(h, s, sizeof(struct block_head) + 24));
	make_block(s, 0, 0, 0);
	CHECK(send_block(h, s, sizeof(struct block_head) + 24) == -EBADMSG);
	return 0;
}

/* Thread 0 of process 1 lies to thread 0 of process 0, and the others shuffle. */
static int
lies(struct hand *h)
{
	struct weir_shuffle_stats n = WEIR_SHUFFLE_STATS_INIT;
	struct weir_record record = {"key", "value", 3, 5};
	uint64_t records = 0;
	struct weir_shuffle *s;
	struct weir_reduce *r;
	struct weir_map *m;
	int line, rc;

	CHECK(!weir_shuffle_open(h->c.v, &options, &s));
	if (h->c.process == 1 && !h->c.thread) {
		line = lie(h, s);
		if (line)
			return line;
	}
	CHECK(!weir_invoker_barrier(h->c.v, -1));
	if (h->number < options.maps) {
		CHECK(!weir_map_begin(s, h->number, 1, &m));
		for (uint32_t i = 0; i < 100; i++)
			CHECK(!weir_map_put(m, &record, -1));
		CHECK(!weir_map_end(m, true));
	}
	for (uint32_t p = 0; p < weir_shuffle_partitions(s); p++) {
		struct weir_to owner = weir_shuffle_owner(s, p);

		if (owner.process != h->c.process || owner.thread != h->c.thread)
			continue;
		CHECK(!weir_reduce_begin(s, p, 0, 1, &r));
		while (!(rc = weir_reduce_next(r, &record, -1)))
			records++;
		CHECK(rc == -ENODATA);
		weir_reduce_end(r, true);
	}
	CHECK(!weir_invoker_reduce(h->c.v, &records, &records, 1, WEIR_T_UINT64, WEIR_ACC_SUM, -1));
	CHECK(records == options.maps * 100);
	CHECK(!weir_shuffle_stats(s, &n));
	CHECK(h->c.process ? !n.malformed : n.malformed >= 40);
	CHECK(!weir_invoker_barrier(h->c.v, -1));
	weir_shuffle_close(s);
	return weir_invoker_barrier(h->c.v, -1) ? __LINE__ : 0; /* no word comes behind that */
}

static void
test_lies(void **state)
{
	(void)state;
	options_init(WEIR_SHUFFLE_STAGE);
	crew_of(2, table, sizeof(table) / sizeof(table[0]), lies);
}

/* Counts that differ from what came: the task's data are bad, and named. */
static int
wrong_counts(struct hand *h)
{
	const uint64_t self = UINT64_C(1) << 32;
	struct weir_record record;
	struct weir_shuffle *s;
	struct weir_reduce *r;

	CHECK(!weir_shuffle_open(h->c.v, &options, &s));
	CHECK(!weir_invoker_barrier(h->c.v, -1));
	if (h->c.process == 1 && !h->c.thread) {
		struct block_head *b = make_block(s, 2, 5, 0);
		uint64_t sum = b->checksum;

		CHECK(!send_block(h, s, sizeof(struct block_head) + 24));
		CHECK(!send_say(h, s,
				(struct say_args){.kind = SAY_COUNTS,
						  .map = 2,
						  .attempt = 5,
						  .producer = self,
						  .blocks = 2,
						  .records = 1,
						  .sum = sum}));
		CHECK(!send_say(
		    h, s,
		    (struct say_args){.kind = SAY_ASK, .map = 2, .attempt = 5, .producer = self}));
	}
	CHECK(!weir_invoker_barrier(h->c.v, -1));
	if (!h->number) {
		CHECK(!weir_reduce_begin(s, 0, 0, 1, &r));
		CHECK(weir_reduce_next(r, &record, -1) == -EBADMSG);
		CHECK(strstr(weir_reason(), "map 2 attempt 5 of process 1"));
		weir_reduce_end(r, false);
	}
	CHECK(!weir_invoker_barrier(h->c.v, -1));
	weir_shuffle_close(s);
	return weir_invoker_barrier(h->c.v, -1) ? __LINE__ : 0; /* no word comes behind that */
}

static void
test_wrong_counts(void **state)
{
	(void)state;
	options_init(WEIR_SHUFFLE_STAGE);
	crew_of(2, table, sizeof(table) / sizeof(table[0]), wrong_counts);
}

/* The first block of an attempt, from process 0 to 1. The status of the call. */
static int
send_ahead(struct hand *h, struct weir_shuffle *s, uint32_t map, uint32_t epoch)
{
	struct block_head *b = make_block(s, map, 9, 0);

	b->producer = 0;
	b->epoch = epoch;
	return send_block_to(h, s, 1, sizeof(*b) + 24);
}

/* Blocks of a later epoch than this process has heard of are kept: their task may be missing again.
 */
static int
ahead(struct hand *h)
{
	struct weir_shuffle *s;
	struct weir_map *m;

	CHECK(!weir_shuffle_open(h->c.v, &options, &s));
	/* before the word of a winner that is older */
	if (!h->number)
		CHECK(!send_ahead(h, s, 1, 5));
	CHECK(!weir_invoker_barrier(h->c.v, -1));
	if (h->number < options.maps) {
		CHECK(!weir_map_begin(s, h->number, 0, &m));
		CHECK(!weir_map_end(m, true));
	}
	CHECK(!weir_invoker_barrier(h->c.v, -1));
	/* of the thread that has told process 1 of the winners */
	if (!h->number) {
		CHECK(send_ahead(h, s, 1, 5) == -EBADMSG); /* it is there */
		CHECK(!send_ahead(h, s, 0, 0));		   /* late */
		CHECK(!send_ahead(h, s, 0, 0));
		CHECK(!send_ahead(h, s, 0, 5)); /* kept */
		CHECK(send_ahead(h, s, 0, 5) == -EBADMSG);
	}
	CHECK(!weir_invoker_barrier(h->c.v, -1));
	weir_shuffle_close(s);
	return weir_invoker_barrier(h->c.v, -1) ? __LINE__ : 0; /* no word comes behind that */
}

static void
test_ahead(void **state)
{
	(void)state;
	options_init(WEIR_SHUFFLE_STAGE);
	crew_of(2, table, sizeof(table) / sizeof(table[0]), ahead);
}

/* STREAM: records for partitions of others, and an end that counts them wrong. */
static int
stream_lies(struct hand *h)
{
	struct weir_shuffle_stats n = WEIR_SHUFFLE_STATS_INIT;
	struct weir_record record;
	struct weir_shuffle *s;
	struct weir_reduce *r;
	int rc;

	CHECK(!weir_shuffle_open(h->c.v, &options, &s));
	CHECK(!weir_reduce_begin_own(s, &r));
	if (h->c.process == 1 && !h->c.thread) {
		struct {
			struct record_args a;
			char bytes[8];
		} args = {{s->number, 1, 3}, "keyvalue"};

		/* not thread 0's of process 0; beyond the number; a key longer than all */
		CHECK(
		    !weir_call(h->c.v, (struct weir_to){0, 0}, RECORDS, &args, sizeof(args), NULL));
		args.a.partition = 1000000;
		CHECK(
		    !weir_call(h->c.v, (struct weir_to){0, 0}, RECORDS, &args, sizeof(args), NULL));
		args.a = (struct record_args){s->number, 0, 9};
		CHECK(
		    !weir_call(h->c.v, (struct weir_to){0, 0}, RECORDS, &args, sizeof(args), NULL));
		/* of a shuffle that is not there */
		args.a = (struct record_args){s->number + 1, 0, 3};
		CHECK(
		    !weir_call(h->c.v, (struct weir_to){0, 0}, RECORDS, &args, sizeof(args), NULL));
		args.a = (struct record_args){s->number, 0, 3};
		CHECK(
		    !weir_call(h->c.v, (struct weir_to){0, 0}, RECORDS, &args, sizeof(args), NULL));
		CHECK(!send_say(h, s, (struct say_args){.kind = SAY_END, .records = 1}));
		/* which would make up for another's */
		CHECK(send_say(h, s, (struct say_args){.kind = SAY_END}) == -EBADMSG);
	}
	if (!h->number) {
		CHECK(!weir_reduce_next(r, &record, -1));
		CHECK(record.key_length == 3 && record.value_length == 5 &&
		      weir_record_partition(r) == 0);
		rc = weir_reduce_next(r, &record, -1);
		CHECK(rc == -EBADMSG && strstr(weir_reason(), "process 1"));
		CHECK(!weir_shuffle_stats(s, &n));
		CHECK(n.malformed == 3 || n.malformed == 4);
	}
	weir_reduce_end(r, false);
	CHECK(!weir_invoker_barrier(h->c.v, -1));
	weir_shuffle_close(s);
	return weir_invoker_barrier(h->c.v, -1) ? __LINE__ : 0; /* no word comes behind that */
}

static void
test_stream_lies(void **state)
{
	(void)state;
	options_init(WEIR_SHUFFLE_STREAM);
	crew_of(2, table, sizeof(table) / sizeof(table[0]), stream_lies);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_options),	 cmocka_unit_test(test_without_functions),
	    cmocka_unit_test(test_misuse),	 cmocka_unit_test(test_misuse_stage),
	    cmocka_unit_test(test_leave_early),	 cmocka_unit_test(test_lies),
	    cmocka_unit_test(test_wrong_counts), cmocka_unit_test(test_ahead),
	    cmocka_unit_test(test_stream_lies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

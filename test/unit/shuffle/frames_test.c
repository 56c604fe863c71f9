/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Blocks and queues of the transports TCP and none of apps/shuffle: records come out as they went
 * in; a block of which a byte is wrong is refused, also when its checksum is right.
 */
#include "worlds/test.h"

#include "shuffle/envelope.h"
#include "shuffle/format/record.h"

#include <pthread.h>
#include <time.h>
#include <xxhash.h>

#define WORD UINT64_C(0x123456789abcdef)
#define RECORDS 300u
#define HEAD (sizeof(struct frame_head) + sizeof(struct block_head))

static uint64_t seed;

static uint32_t
draw(uint32_t below)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(seed >> 33) % below;
}

static void
new_seed(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	seed = (uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec << 30;
	printf("seed %llu\n", (unsigned long long)seed);
}

static struct chunk *
close_block(struct envelope *e)
{
	return envelope_close(e, WORD, 7, (struct frame_head){.from = 1, .to = 2});
}

/* Reads a chunk of one frame, and frees it. Number of its records, which are those from `i` on. */
static uint32_t
read_block(struct chunk *c, const struct weir_record *records, const uint32_t *partitions,
	   uint32_t i)
{
	struct block_reader b;
	struct frame_head head;
	struct weir_record r;
	uint32_t n = 0;
	int rc;

	memcpy(&head, c->data, sizeof(head));
	assert_int_equal(head.bytes, c->used - sizeof(head));
	assert_true(c->used <= c->room);
	assert_int_equal(block_open(&b, c->data + sizeof(head), head.bytes, WORD), 0);
	while (!(rc = block_next(&b, &r))) {
		const struct weir_record *want = &records[i + n++];

		assert_int_equal(r.key_length, want->key_length);
		assert_int_equal(r.value_length, want->value_length);
		assert_memory_equal(r.key, want->key, r.key_length);
		assert_memory_equal(r.value, want->value, r.value_length);
		assert_int_equal(b.partition, partitions[i + n - 1]);
	}
	assert_int_equal(rc, -ENODATA);
	free(c);
	return n;
}

TEST(records_come_out_as_they_went_in)
{
	static uint8_t bytes[20000];
	struct weir_record records[RECORDS];
	uint32_t partitions[RECORDS], block = 4096 + draw(8000), read = 0;
	struct envelope e = {0};

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)draw(256);
	for (uint32_t i = 0; i < RECORDS; i++) {
		records[i] = (struct weir_record){bytes + draw(100), bytes + draw(100), draw(40),
						  draw(i % 20 ? 300 : 19000)};
		partitions[i] = draw(10) ? i / 8 : UINT32_MAX;
	}
	for (uint32_t i = 0; i < RECORDS;) {
		int rc = envelope_add(&e, partitions[i], &records[i], block);

		if (rc == -ENOSPC)
			read += read_block(close_block(&e), records, partitions, read);
		else
			i++;
		if (!rc && !draw(5)) {
			struct envelope before = e; /* the block can not leave */

			assert_ptr_equal(close_block(&e), before.chunk);
			e = before;
		}
		assert_true(!rc || rc == -ENOSPC);
	}
	read += read_block(close_block(&e), records, partitions, read);
	assert_int_equal(read, RECORDS);
	assert_null(close_block(&e));
}

static struct chunk *
some_block(void)
{
	struct envelope e = {0};

	for (uint32_t i = 0; i < 40; i++) {
		uint8_t bytes[64];
		struct weir_record r = {bytes, bytes + 8, 8, draw(56)};

		memset(bytes, (int)i, sizeof(bytes));
		assert_int_equal(envelope_add(&e, i / 10, &r, 4096), 0);
	}
	return close_block(&e);
}

/* As a peer would that lies. */
static void
sign(uint8_t *block, size_t length)
{
	uint64_t sum = XXH3_64bits_withSeed(block + sizeof(struct block_head),
					    length - sizeof(struct block_head), WORD);

	memcpy(block + offsetof(struct block_head, checksum), &sum, sizeof(sum));
}

TEST(wrong_bytes_are_refused)
{
	for (int i = 0; i < 2000; i++) {
		struct chunk *c = some_block();
		size_t length = c->used - sizeof(struct frame_head);
		uint8_t *block = malloc(length); /* of the exact size, for sanitizers */
		struct block_reader b;
		struct weir_record r;
		uint32_t at = draw((uint32_t)length), n = 0;
		int rc;

		assert_non_null(block);
		memcpy(block, c->data + sizeof(struct frame_head), length);
		block[at] ^= (uint8_t)(1u << draw(8));
		rc = block_open(&b, block, length, WORD);
		/* not all fields of the head are looked at */
		if (at >= sizeof(struct block_head)) {
			assert_int_equal(rc, -EBADMSG);
			sign(block, length);
			rc = block_open(&b, block, length, WORD);
			assert_int_equal(rc, 0);
		}
		while (!rc && !(rc = block_next(&b, &r))) {
			n++;
			assert_true((const uint8_t *)r.key >= block + sizeof(struct block_head));
			assert_true((const uint8_t *)r.value + r.value_length <= block + length);
		}
		assert_true(rc == -EBADMSG || rc == -ENODATA);
		assert_true(n <= 40);
		free(block);
		free(c);
	}
}

/* The only record ends with its fragment, both behind the block. */
TEST(fragments_end_with_their_block)
{
	struct envelope e = {0};
	uint8_t bytes[30] = {0};
	struct weir_record r = {bytes, bytes + 8, 8, 22};
	struct fragment_head head;
	struct block_reader b;
	struct chunk *c;
	uint8_t *block;

	assert_int_equal(envelope_add(&e, 0, &r, 4096), 0);
	c = close_block(&e);
	block = c->data + sizeof(struct frame_head);
	memcpy(&head, block + sizeof(struct block_head), sizeof(head));
	assert_int_equal(head.bytes, 32); /* nothing is left for padding */
	head.bytes += 8;
	memcpy(block + sizeof(struct block_head), &head, sizeof(head));
	block[sizeof(struct block_head) + sizeof(head) + 1] += 8; /* length of the value */
	sign(block, c->used - sizeof(struct frame_head));
	assert_int_equal(block_open(&b, block, c->used - sizeof(struct frame_head), WORD), 0);
	assert_int_equal(block_next(&b, &r), -EBADMSG);
	free(c);
}

TEST(blocks_are_cut_nowhere)
{
	struct chunk *c = some_block();
	struct block_reader b;

	for (size_t length = 0; length < c->used - sizeof(struct frame_head); length++) {
		uint8_t *block = malloc(length + 1);

		assert_non_null(block);
		memcpy(block, c->data + sizeof(struct frame_head), length);
		assert_int_equal(block_open(&b, block, length, WORD), -EBADMSG);
		free(block);
	}
	free(c);
}

static void *
wake_later(void *arg)
{
	inbox_wake(arg);
	return NULL;
}

TEST(queues_tell_when_there_is_room)
{
	struct inbox in;
	struct chunks taken = {0};
	pthread_t thread;

	assert_int_equal(inbox_init(&in, -1), 0);
	for (uint32_t bytes = 0; bytes < INBOX_MAX; bytes += 1000) {
		assert_false(inbox_is_full(&in, 3));
		assert_non_null(chunks_room(&in.list, 1000));
	}
	assert_true(inbox_is_full(&in, 3));
	assert_true(inbox_is_full(&in, 5));
	inbox_sleep(&in, -1); /* there is something */
	assert_int_equal(inbox_take(&in, &taken), 1u << 3 | 1u << 5);
	assert_true(taken.bytes >= INBOX_MAX);
	assert_int_equal(inbox_take(&in, &taken), 0);
	assert_int_equal(pthread_create(&thread, NULL, wake_later, &in), 0);
	inbox_sleep(&in, -1);
	pthread_join(thread, NULL);
	chunks_free(&taken);
	inbox_destroy(&in);
}

int
main(void)
{
	new_seed();
	return test_run();
}

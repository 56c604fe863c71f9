/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A block of record batches from a peer: arrays that are taken have all that they claim, and the
 * block returns once, with the last of them. The first byte is the number of rows, the second one
 * tells which columns are moved out of the batch.
 */
#include "fuzz.h"

#include "worlds/arrow_touch.h"

#include "shuffle/arrow/block.h"
#include "shuffle/arrow/read.h"

#define COLUMNS 8 /* that may be moved out */

static unsigned released;

void
weir_block_release(struct weir_shuffle *s, struct weir_block *block)
{
	released++;
	free((void *)(uintptr_t)block->data);
}

/* Moves some columns out, releases the rest, then the columns. */
static void
release(const struct ArrowSchema *s, struct ArrowArray *a, unsigned moved)
{
	struct ArrowArray column[COLUMNS] = {0};

	for (int i = 0; i < COLUMNS && i < a->n_children; i++) {
		if (!(moved >> i & 1))
			continue;
		column[i] = *a->children[i];
		a->children[i]->release = NULL;
	}
	a->release(a);
	for (int i = 0; i < COLUMNS; i++) {
		if (!column[i].release)
			continue;
		require(!released);
		arrow_touch(s->children[i], &column[i]);
		column[i].release(&column[i]);
	}
}

static void
read_block(struct weir_block *b, unsigned moved)
{
	struct arrow_schema *own = NULL;
	struct ArrowSchema s;
	struct ArrowArray a;

	released = 0;
	if (arrow_read_schema(b, NULL, &own)) {
		free((void *)(uintptr_t)b->data);
		return;
	}
	require(!arrow_read_schema(b, own, &own));
	require(!arrow_schema_export(own, &s));
	if (!arrow_read(own, NULL, b, &a)) {
		arrow_touch(&s, &a);
		release(&s, &a, moved);
		require(released == 1);
	} else {
		free((void *)(uintptr_t)b->data);
	}
	arrow_schema_free(own);
	s.release(&s);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct weir_block b;
	uint8_t *block;

	if (size < 2)
		return 0;
	b = (struct weir_block){.records = data[0], .length = size - 2};
	/* exactly as long as the block, so that a read beyond it is seen */
	b.data = block = malloc(b.length ? b.length : 1);
	if (!block)
		return 0;
	memcpy(block, data + 2, b.length);
	if (b.length >= sizeof(struct arrow_head)) { /* a length that is always right */
		uint32_t bytes = (uint32_t)b.length;

		memcpy(block + offsetof(struct arrow_head, bytes), &bytes, sizeof(bytes));
	}
	read_block(&b, data[1]);
	return 0;
}

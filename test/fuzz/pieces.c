/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The payload of a cell with a layout, from another program: pieces that fit an export are within
 * it, and as many bytes as there are. The first bytes tell the offset, how long the export is and
 * how many bytes the cell is about.
 */
#include "fuzz.h"

#include "ipc/pieces.h"

#include <stdlib.h>
#include <string.h>

/* Memory exactly as long as the export, so that an access beyond it is seen. */
static void
execute(const struct weir_pieces *p, uint64_t bytes, uint64_t offset, uint64_t whole)
{
	uint8_t *memory = calloc(1, whole + 1), *answer = malloc(bytes);
	struct weir_layout_walk w;
	int64_t at;
	uint64_t sum = 0, n;

	memory = memory && answer ? realloc(memory, whole) : memory;
	if (memory && answer) {
		memset(answer, 1, bytes);
		weir_pieces_start(p, &w);
		weir_layout_store(&w, memory, offset, answer, bytes);
		weir_pieces_start(p, &w);
		weir_layout_load(&w, memory, offset, answer, bytes);
		for (uint64_t i = 0; i < bytes; i++)
			require(answer[i] == 1);
		weir_pieces_start(p, &w);
		while (sum < bytes && (n = weir_layout_next(&w, bytes - sum, &at))) {
			require(offset + (uint64_t)at <= whole &&
				n <= whole - (offset + (uint64_t)at));
			sum += n;
		}
		require(sum == bytes);
	}
	free(memory);
	free(answer);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct {
		uint64_t offset;
		uint16_t whole, bytes;
	} head;
	struct weir_pieces p;
	uint8_t *payload;
	uint32_t described;

	if (size < 12)
		return 0;
	memcpy(&head, data, 12);
	size -= 12;
	if (size > WEIR_PUT_MAX || !head.whole || head.bytes > WEIR_ANSWER_MAX)
		return 0;
	payload = malloc(size ? size : 1);
	if (!payload)
		return 0;
	memcpy(payload, data + 12, size);
	described = weir_pieces_get(&p, payload, (uint32_t)size);
	require(described <= size);
	if (described) {
		weir_pieces_aligned(&p.l, 8, 8);
		if (weir_pieces_fit(&p, head.bytes, head.offset, head.whole))
			execute(&p, head.bytes, head.offset, head.whole);
	}
	free(payload);
	return 0;
}

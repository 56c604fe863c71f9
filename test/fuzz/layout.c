/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Layouts from another program: valid ones stay within their bounds when they are walked. The first
 * byte tells whether a list of pieces follows or a block with strides; the second, the largest
 * piece at a time.
 */
#include "fuzz.h"

#include "ipc/layout.h"

#include <stdlib.h>
#include <string.h>

#define WALK 100000 /* pieces after which a walk is cut short */

static void
walk(const struct weir_layout *l, uint64_t most)
{
	int64_t first, end, offset;
	uint64_t bytes = weir_layout_bounds(l, &first, &end), sum = 0, n;
	struct weir_layout_walk w;

	require(bytes == weir_layout_bytes(l));
	if (bytes == UINT64_MAX) {
		require(!weir_layout_fits(l, 0, UINT64_MAX));
		return;
	}
	require(first <= end && bytes <= 1ull << 63);
	weir_layout_start(&w, l);
	for (unsigned i = 0; i < WALK; i++) {
		n = weir_layout_next(&w, most, &offset);
		if (!n) {
			require(sum == bytes);
			return;
		}
		require(n <= most && n <= bytes - sum);
		require(offset >= first && offset < end && n <= (uint64_t)end - (uint64_t)offset);
		sum += n;
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct weir_layout l = {0};
	struct weir_piece *list;
	uint64_t most;

	if (size < 2)
		return 0;
	most = data[1] ? data[1] : UINT64_MAX;
	size -= 2;
	if (data[0] % 2) {
		/* exactly as long as the list, so that a read beyond it is seen */
		list = malloc(size ? size : 1);
		if (!list)
			return 0;
		memcpy(list, data + 2, size);
		l.list = list;
		l.count = size / sizeof(*list);
		walk(&l, most);
		free(list);
	} else {
		memcpy(&l, data + 2, size < sizeof(l) ? size : sizeof(l));
		l.list = NULL;
		walk(&l, most);
	}
	return 0;
}

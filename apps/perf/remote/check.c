/* SPDX-License-Identifier: BSD-3-Clause */
#include "remote.h"

#include <stdlib.h>
#include <string.h>

/* Copies the pieces of a slot to where they are one, or back. */
static void
copy_pieces(const struct perf_message *request, uint8_t *slot, uint8_t *bytes, bool to_slot)
{
	uint32_t block = request->block ? request->block : request->size;

	for (uint32_t at = 0; at < request->size; at += block, slot += request->stride)
		memcpy(to_slot ? slot : bytes + at, to_slot ? bytes + at : slot, block);
}

void
remote_fill(const struct perf_message *request, uint8_t *memory)
{
	struct remote_layout l = remote_layout(remote_extent(request), request->threads);
	uint8_t *bytes = malloc(request->size + 1);

	for (uint32_t t = 0; bytes && t < request->threads; t++) {
		struct perf_schedule schedule = remote_schedule(request, t);

		for (uint64_t i = 0; i < l.slots; i++) {
			perf_schedule_fill(&schedule, i, bytes, request->size);
			if (!(request->flags & PERF_VERIFY))
				perf_schedule_stamp(i, bytes, request->size);
			copy_pieces(request, memory + remote_slot_at(&l, t, i), bytes, true);
		}
	}
	free(bytes);
}

/* Whether each element of slot i has been updated once by each of n operations that were on it. */
static bool
updated(const struct perf_message *request, const struct remote_layout *l, const uint8_t *slot,
	uint64_t i, uint64_t n)
{
	uint64_t times = n > i ? (n - i + l->slots - 1) / l->slots : 0, is;
	uint32_t size = perf_element_size(request->type);

	is = perf_element_after(request->type, request->op, times);
	for (uint32_t at = 0; at < request->size; at += size)
		if (!perf_element_is(request->type, is, slot + at))
			return false;
	return true;
}

/* Whether the contents of the slot are those of operation i. */
static bool
has_contents(const struct perf_message *request, uint32_t thread, const uint8_t *slot, uint64_t i)
{
	struct perf_schedule schedule = remote_schedule(request, thread);

	return request->flags & PERF_VERIFY ? perf_schedule_check(&schedule, i, slot, request->size)
					    : perf_schedule_stamped(i, slot, request->size);
}

void
remote_check(const struct perf_message *request, const uint8_t *memory, uint64_t *count,
	     uint64_t *errors)
{
	struct remote_layout l = remote_layout(remote_extent(request), request->threads);
	uint8_t *bytes = malloc(request->size + 1);

	*count = 0;
	*errors = !bytes;
	for (uint32_t t = 0; bytes && t < request->threads; t++) {
		uint64_t n;

		memcpy(&n, memory + remote_count_at(&l, t), sizeof(n));
		*count += n;
		for (uint64_t k = 0; k < l.slots; k++) {
			bool right = true;

			copy_pieces(request,
				    (uint8_t *)(uintptr_t)memory + remote_slot_at(&l, t, k), bytes,
				    false);
			if (perf_is_update(request->test))
				right = updated(request, &l, bytes, k, n);
			else if (request->test == PERF_GET)
				right = has_contents(request, t, bytes, k);
			else if (n > k) /* the last put there */
				right = has_contents(request, t, bytes,
						     k + (n - k - 1) / l.slots * l.slots);
			*errors += !right;
		}
	}
	free(bytes);
}

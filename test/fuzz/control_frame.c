/* SPDX-License-Identifier: BSD-3-Clause */
/* The stream of another control, cut into messages; an accepted message survives a round trip. */
#include "fuzz.h"

#include "transport/message.h"

#include <stdlib.h>
#include <string.h>

static void
check(const uint8_t *data, size_t size)
{
	struct control_msg m, again;
	uint8_t buf[CONTROL_ENCODED_MAX];
	size_t n;

	if (control_msg_decode(data, size, &m))
		return;
	// Of another version only the version counts.
	if (m.type == CONTROL_HELLO &&
	    !weir_version_choose(CONTROL_VERSIONS, m.hello.versions, "", "", "", NULL))
		return;
	n = control_msg_encode(&m, buf, sizeof(buf));
	if (n == 0 || control_msg_decode(buf + CONTROL_PREFIX, n - CONTROL_PREFIX, &again) ||
	    memcmp(&m, &again, sizeof(m)))
		abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t at = 0, n;

	while (control_frame_next(data + at, size - at, CONTROL_FRAME_MAX, &n) == 1) {
		check(data + at + CONTROL_PREFIX, n);
		at += CONTROL_PREFIX + n;
	}
	check(data, size);
	return 0;
}

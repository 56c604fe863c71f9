/* SPDX-License-Identifier: BSD-3-Clause */
#include "message.h"

#include "weir/stream.h"

#include <errno.h>
#include <string.h>

int
perf_message_read(struct perf_message *to, const void *buf, size_t length, enum perf_kind kind)
{
	struct perf_message m;

	if (length != sizeof(m) && length != PERF_MESSAGE_MAX)
		return -EBADMSG;
	memcpy(&m, buf, sizeof(m));
	if (m.magic != PERF_MAGIC || m.version != PERF_VERSION || m.kind != (uint32_t)kind)
		return -EBADMSG;
	if (kind == PERF_REQUEST && (m.test >= PERF_TESTS || m.size > WEIR_STREAM_MESSAGE_MAX ||
				     m.large > m.count || (m.test == PERF_MIX && !m.count)))
		return -EBADMSG;
	if (kind == PERF_REQUEST && m.test == PERF_READ &&
	    (m.region < m.size || m.region > 1ull << 40 || m.size <= PERF_READ_REQUEST))
		return -EBADMSG;
	if (kind == PERF_REQUEST && m.test >= PERF_CAST && (!m.threads || m.threads > 256))
		return -EBADMSG;
	*to = m;
	return 0;
}

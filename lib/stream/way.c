/* SPDX-License-Identifier: BSD-3-Clause */
/* Transport and operation that a program asks for. */
#include "stream/send.h"

#define TRANSPORTS WEIR_RC
#define OPERATIONS (WEIR_RING | WEIR_READ | WEIR_WRITE)

int
weir_flags_check(unsigned flags, unsigned others)
{
	unsigned operation = flags & OPERATIONS;

	if (flags & ~(others | TRANSPORTS | OPERATIONS))
		return weir_fail(-EINVAL, "unknown flag 0x%x; see weir/stream.h",
				 flags & ~(others | TRANSPORTS | OPERATIONS));
	if (operation & (operation - 1))
		return weir_fail(-EINVAL, "more than one operation in the flags; give one, or none "
					  "and Weir chooses");
	return 0;
}

uint8_t
weir_way(unsigned flags)
{
	if (flags & WEIR_READ)
		return WEIR_SLOT_READ | WEIR_SLOT_BULK;
	if (flags & WEIR_WRITE)
		return WEIR_SLOT_WRITE | WEIR_SLOT_BULK;
	return flags & WEIR_RING ? WEIR_SLOT_RING : 0;
}

int
weir_message_way(const struct weir_conn *c, struct weir_message_out *m)
{
	int rc = weir_flags_check(m->flags, WEIR_NOTIFY | WEIR_ZERO_COPY | WEIR_CACHED);

	if (rc)
		return rc;
	m->way = m->flags & OPERATIONS ? weir_way(m->flags) : c->way;
	if (m->way & WEIR_SLOT_RING && m->length > WEIR_RING_MAX)
		return weir_fail(-EMSGSIZE,
				 "WEIR_RING carries %u bytes at most; leave the operation out, or "
				 "ask for WEIR_READ or WEIR_WRITE",
				 WEIR_RING_MAX);
	return 0;
}

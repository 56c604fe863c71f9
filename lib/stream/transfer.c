/* SPDX-License-Identifier: BSD-3-Clause */
/* Transport and operation that a program asks for. */
#include "send.h"

#include "client/reason.h"

#define TRANSPORTS (WEIR_RC | WEIR_UD)
#define OPERATIONS (WEIR_RING | WEIR_SEND | WEIR_READ | WEIR_WRITE)

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
	if ((flags & TRANSPORTS) == TRANSPORTS)
		return weir_fail(-EINVAL, "a connection is either WEIR_RC or WEIR_UD; give one, or "
					  "none for WEIR_RC");
	if (flags & WEIR_UD && operation & ~WEIR_SEND)
		return weir_fail(-EINVAL, "datagrams go by no operation but WEIR_SEND; leave it "
					  "out, or WEIR_UD");
	return 0;
}

uint8_t
weir_transfer_flags(unsigned flags)
{
	if (flags & WEIR_UD)
		return 0;
	if (flags & WEIR_READ)
		return WEIR_SLOT_READ | WEIR_SLOT_BULK;
	if (flags & WEIR_WRITE)
		return WEIR_SLOT_WRITE | WEIR_SLOT_BULK;
	if (flags & WEIR_SEND)
		return WEIR_SLOT_SEND;
	return flags & WEIR_RING ? WEIR_SLOT_RING : 0;
}

int
weir_message_transfer(const struct weir_conn *c, struct weir_message_out *m)
{
	int rc = weir_flags_check(m->flags, WEIR_NOTIFY | WEIR_ZERO_COPY | WEIR_CACHED);
	uint32_t most = WEIR_STREAM_MESSAGE_MAX;

	if (rc)
		return rc;
	/* whether a connection is for datagrams is known once it is open */
	if (c->state != CONN_OPENING &&
	    (c->mtu ? m->flags & (WEIR_RC | (OPERATIONS & ~WEIR_SEND)) : m->flags & WEIR_UD))
		return weir_fail(-EINVAL,
				 "the connection is for %s; give a message no transport or "
				 "operation of the other kind",
				 c->mtu ? "datagrams" : "a stream");
	if (c->mtu)
		return 0; /* datagrams have one operation only */
	m->transfer = m->flags & OPERATIONS ? weir_transfer_flags(m->flags) : c->transfer;
	if (m->transfer & WEIR_SLOT_RING)
		most = WEIR_RING_MAX;
	if (m->transfer & WEIR_SLOT_SEND)
		most = WEIR_SEND_MAX;
	if (m->length > most)
		return weir_fail(-EMSGSIZE,
				 "%s carries %u bytes at most; leave the operation out, or ask for "
				 "WEIR_READ or WEIR_WRITE",
				 m->transfer & WEIR_SLOT_SEND	? "WEIR_SEND"
				 : m->transfer & WEIR_SLOT_RING ? "WEIR_RING"
								: "a message",
				 most);
	return 0;
}

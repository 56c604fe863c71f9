/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A lane of the message model as a peer may fill it: messages of two bytes of length and that many
 * bytes. Pieces that are taken make up the message that the first one announced, one after another.
 */
#include "fuzz.h"

#include "message/header.h"

#include <stdlib.h>

static void
piece(struct message_fragments *a, const struct message_header *h, const uint8_t *data,
      uint32_t length)
{
	struct message_fragments before = *a;
	struct message_fragment p;

	if (!message_fragment_read(&p, data, length)) {
		*a = (struct message_fragments){0};
		return;
	}
	length -= (uint32_t)sizeof(p);
	if (!p.offset)
		message_fragments_begin(a, h, &p);
	if (!message_fragments_next(a, h, &p)) {
		require(p.offset);
		*a = (struct message_fragments){0};
		return;
	}
	require(a->total > WEIR_MESSAGE_WHOLE && length && a->got == p.offset &&
		length <= a->total - a->got);
	require(!p.offset || (before.total == a->total && before.header.type == h->type &&
			      before.header.flags == h->flags && before.header.id == h->id));
	require(h->flags >= KIND_MESSAGE && h->flags <= KIND_RESPONSE && !h->status);
	a->got += length;
	if (a->got == a->total)
		*a = (struct message_fragments){0};
}

static void
message(struct message_fragments *a, const uint8_t *bytes, uint32_t length)
{
	/* exactly as long as the message, so that a read beyond it is seen */
	uint8_t *data = malloc(length ? length : 1);
	struct message_header h;
	uint16_t type = 0;
	uint32_t head;
	bool plain;

	if (!data)
		return;
	if (length)
		memcpy(data, bytes, length);
	head = message_header_read(&h, data, length);
	plain = message_header_plain(data, length, &type);
	require(head <= length && plain == (head && h.kind == KIND_MESSAGE));
	require(!plain || (type == h.type && head == HEADER_SHORT));
	require(!head || (h.kind >= KIND_MESSAGE && h.kind <= KIND_BYE));
	if (head && h.kind == KIND_FRAGMENT)
		piece(a, &h, data + head, length - head);
	free(data);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct message_fragments a = {0};

	while (size >= 2) {
		size_t length = data[0] | (size_t)data[1] << 8;

		data += 2;
		size -= 2;
		length = length < size ? length : size;
		message(&a, data, (uint32_t)length);
		data += length;
		size -= length;
	}
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* The head of each message on a lane: 8 bytes, 16 where an id is needed. Little-endian. */
#ifndef WEIR_MESSAGE_HEADER_H
#define WEIR_MESSAGE_HEADER_H

#include "public.h"

#include "ipc/version.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum message_kind {
	KIND_MESSAGE = 1,  /* head of 8 bytes */
	KIND_REQUEST = 2,  /* id: the sender's, comes back with the response */
	KIND_RESPONSE = 3, /* id; status: 0, or why there is no response */
	/* part of a message too long for one; id: of the request, else 0; struct message_fragment
	 * follows; flags: kind of the whole */
	KIND_FRAGMENT = 4,
	/* first message each way; type: lowest version; status: receivers, and the highest version
	 * << 16; id: incarnation; out: struct message_hello follows */
	KIND_HELLO = 5,
	/* the sender wants to close the connection: close your lanes; out: id is the key of one of
	 * these */
	KIND_BYE = 6,
	/* of models, and all above: a head of 8 bytes, all but the kind is the model's */
	KIND_MODEL = 16,
};

struct message_header {
	uint8_t kind;  /* enum message_kind */
	uint8_t flags; /* 0; FRAGMENT: enum message_kind of the whole */
	uint16_t type;
	uint32_t status;
	uint64_t id; /* not in KIND_MESSAGE */
};
static_assert(sizeof(struct message_header) == 16, "as it travels");
#define HEADER_SHORT 8u
#define HEADER_LONG 16u

#define MESSAGE_VERSION 3u
/* what is spoken besides: until 1.0 nothing */
#define MESSAGE_VERSIONS ((struct weir_versions){MESSAGE_VERSION, MESSAGE_VERSION})

/* A messenger before there were ranges named one version in `type`: its `status` is below 2^16. */
static inline struct weir_versions
message_hello_versions(const struct message_header *h)
{
	return (struct weir_versions){h->type, h->status >> 16};
}
#define MESSAGE_HELLO_STATUS(receivers, highest) ((receivers) | (highest) << 16)
#define MESSAGE_HELLO_RECEIVERS(status) ((status)&0xffffu)

/* Follows the head of a HELLO on the lane of the program that connected. */
struct message_hello {
	uint64_t key; /* random; only the program that the lane leads to can say BYE with it */
};

/* The last part of the head of a HELLO between processes of a model; bytes of the model follow. */
struct message_hello_process {
	uint32_t process;  /* that says it */
	uint32_t receiver; /* of the end that was connected to; UINT32_MAX: its handler threads */
};

struct message_fragment {
	uint64_t total;	 /* bytes of the whole message */
	uint64_t offset; /* of this fragment in it; the fragments come in order */
};

/* Reads the head of a message of `length` bytes: how long the head is, or 0: it is not one. */
static inline uint32_t
message_header_read(struct message_header *h, const uint8_t *data, uint32_t length)
{
	*h = (struct message_header){0};
	if (length < HEADER_SHORT)
		return 0;
	memcpy(h, data, HEADER_SHORT);
	if (h->kind == KIND_MESSAGE)
		return h->flags || h->status ? 0 : HEADER_SHORT;
	if (h->kind < KIND_MESSAGE || h->kind > KIND_BYE || length < HEADER_LONG)
		return 0;
	memcpy(&h->id, data + HEADER_SHORT, sizeof(h->id));
	if (h->kind == KIND_FRAGMENT)
		return h->flags >= KIND_MESSAGE && h->flags <= KIND_RESPONSE && !h->status
			   ? HEADER_LONG
			   : 0;
	return h->flags ? 0 : HEADER_LONG;
}

/* Whether it is a message of this kind that is whole; as message_header_read(). */
static inline bool
message_header_plain(const uint8_t *data, uint32_t length, uint16_t *type)
{
	uint64_t head;

	if (length < HEADER_SHORT)
		return false;
	memcpy(&head, data, sizeof(head));
	*type = (uint16_t)(head >> 16);
	return (head & ~0xffff0000ull) == KIND_MESSAGE;
}

/* Reads what follows the head of a fragment of `length` bytes. False: that can't be. */
static inline bool
message_fragment_read(struct message_fragment *p, const uint8_t *data, uint32_t length)
{
	if (length <= sizeof(*p))
		return false;
	memcpy(p, data, sizeof(*p));
	return p->total > WEIR_MESSAGE_WHOLE && p->offset < p->total &&
	       length - sizeof(*p) <= p->total - p->offset;
}

/* A message that arrives in fragments. */
struct message_fragments {
	struct message_header header; /* of the first fragment; the others have the same */
	uint64_t total, got;	      /* bytes; total 0: no message is under way */
};

/* The first fragment, whose offset is 0, begins a message of h->flags. */
static inline void
message_fragments_begin(struct message_fragments *a, const struct message_header *h,
			const struct message_fragment *p)
{
	*a = (struct message_fragments){.header = *h, .total = p->total};
}

/* Whether a fragment is the next one of the message under way. */
static inline bool
message_fragments_next(const struct message_fragments *a, const struct message_header *h,
		       const struct message_fragment *p)
{
	return a->total && p->total == a->total && p->offset == a->got &&
	       !memcmp(h, &a->header, sizeof(*h));
}

#endif

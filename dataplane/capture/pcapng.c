/* SPDX-License-Identifier: BSD-3-Clause */
#include "pcapng.h"

#include "ipc/invariant.h"

#include <string.h>

#define BLOCK_SECTION 0x0a0d0d0au
#define BLOCK_INTERFACE 1u
#define BLOCK_STATISTICS 5u
#define BLOCK_FRAME 6u

#define BYTE_ORDER_MAGIC 0x1a2b3c4du
#define LINK_ETHERNET 1u
#define NANOSECONDS 9u
#define FLAG_IN 1u
#define FLAG_OUT 2u

enum option {
	OPTION_END = 0,
	SECTION_APPLICATION = 4,
	INTERFACE_NAME = 2,
	INTERFACE_DESCRIPTION = 3,
	INTERFACE_MAC = 6,
	INTERFACE_RESOLUTION = 9,
	STATISTICS_START = 2,
	STATISTICS_END = 3,
	STATISTICS_RECEIVED = 4,
	STATISTICS_DROPPED = 5,
	FRAME_FLAGS = 2,
	FRAME_QUEUE = 6,
};

static uint8_t *
put(uint8_t *at, const void *bytes, size_t n)
{
	memcpy(at, bytes, n);
	return at + n;
}

static uint8_t *
put32(uint8_t *at, uint32_t value)
{
	return put(at, &value, sizeof(value));
}

static uint8_t *
put16(uint8_t *at, uint16_t value)
{
	return put(at, &value, sizeof(value));
}

/* Times, unlike other numbers of 64 bits, have their high half first. */
static uint8_t *
put_time(uint8_t *at, uint64_t time)
{
	return put32(put32(at, (uint32_t)(time >> 32)), (uint32_t)time);
}

/* Up to a multiple of four, as everything is. */
static uint8_t *
pad(uint8_t *at, size_t n)
{
	size_t more = -n & 3;

	memset(at, 0, more);
	return at + more;
}

static uint8_t *
option(uint8_t *at, enum option code, const void *value, size_t n)
{
	at = put16(put16(at, (uint16_t)code), (uint16_t)n);
	return pad(put(at, value, n), n);
}

static uint8_t *
text(uint8_t *at, enum option code, const char *value)
{
	return option(at, code, value, strnlen(value, PCAPNG_TEXT_MAX));
}

static uint8_t *
number(uint8_t *at, enum option code, uint64_t value)
{
	return option(at, code, &value, sizeof(value));
}

static uint8_t *
moment(uint8_t *at, enum option code, uint64_t time)
{
	uint8_t value[sizeof(time)];

	put_time(value, time);
	return option(at, code, value, sizeof(value));
}

static uint8_t *
begin(uint8_t *to, uint32_t type)
{
	return put32(put32(to, type), 0); /* the length follows in end() */
}

/* After the options: their end, and the length before and after the block. */
static size_t
end(uint8_t *to, uint8_t *at)
{
	uint32_t length;

	at = put16(put16(at, OPTION_END), 0);
	length = (uint32_t)(at - to) + sizeof(length);
	weir_assert(length % 4 == 0);
	put32(at, length);
	put32(to + 4, length);
	return length;
}

size_t
pcapng_section(uint8_t *to, const char *application)
{
	uint8_t *at = put32(begin(to, BLOCK_SECTION), BYTE_ORDER_MAGIC);

	at = put16(put16(at, 1), 0);   /* version */
	at = put_time(at, UINT64_MAX); /* length of the section: not known */
	return end(to, text(at, SECTION_APPLICATION, application));
}

size_t
pcapng_interface(uint8_t *to, const struct pcapng_interface *interface)
{
	uint8_t *at = put16(put16(begin(to, BLOCK_INTERFACE), LINK_ETHERNET), 0);
	uint8_t resolution = NANOSECONDS;

	at = put32(at, interface->snap);
	at = text(at, INTERFACE_NAME, interface->name);
	at = text(at, INTERFACE_DESCRIPTION, interface->description);
	at = option(at, INTERFACE_MAC, interface->mac, sizeof(interface->mac));
	return end(to, option(at, INTERFACE_RESOLUTION, &resolution, sizeof(resolution)));
}

size_t
pcapng_frame(uint8_t *to, const struct pcapng_frame *frame, const void *first, size_t first_bytes,
	     const void *rest)
{
	uint8_t *at = put32(begin(to, BLOCK_FRAME), 0); /* the one interface */
	uint32_t flags = frame->out ? FLAG_OUT : FLAG_IN;

	weir_assert(first_bytes <= frame->captured);
	at = put_time(at, frame->time);
	at = put32(put32(at, frame->captured), frame->original);
	at = put(at, first, first_bytes);
	at = pad(put(at, rest, frame->captured - first_bytes), frame->captured);
	at = option(at, FRAME_FLAGS, &flags, sizeof(flags));
	return end(to, option(at, FRAME_QUEUE, &frame->queue, sizeof(frame->queue)));
}

size_t
pcapng_statistics(uint8_t *to, const struct pcapng_statistics *statistics)
{
	uint8_t *at = put_time(put32(begin(to, BLOCK_STATISTICS), 0), statistics->time);

	at = moment(at, STATISTICS_START, statistics->start);
	at = moment(at, STATISTICS_END, statistics->end);
	at = number(at, STATISTICS_RECEIVED, statistics->received);
	return end(to, number(at, STATISTICS_DROPPED, statistics->dropped));
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "text.h"
#include "slot.h"

#include <string.h>

/* Bytes of a character that begins with this byte; 0: none does. */
static size_t
character_bytes(unsigned char first)
{
	if (first < 0x80)
		return 1;
	if (first < 0xc2 || first > 0xf4)
		return 0;
	return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/* Whether the n bytes are a character (RFC 3629) that shows as text, and as nothing else. */
static bool
shows(const unsigned char *s, size_t n)
{
	static const struct {
		uint32_t first, last;
	} unfit[] = {
	    {0, 0x1f},	      {0x7f, 0x9f},	/* controls */
	    {0x61c, 0x61c},   {0x200b, 0x200f}, /* marks of direction, characters without width */
	    {0x2028, 0x202e}, {0x2060, 0x206f}, /* ends of lines, embedded directions */
	    {0xd800, 0xdfff}, {0xfeff, 0xfeff}, /* surrogates, byte order */
	};
	static const uint32_t lowest[] = {0, 0, 0x80, 0x800, 0x10000};
	uint32_t c = n == 1 ? s[0] : s[0] & (0xffu >> (n + 1));

	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return false;
		c = c << 6 | (s[i] & 0x3f);
	}
	for (size_t i = 0; i < sizeof(unfit) / sizeof(unfit[0]); i++)
		if (c >= unfit[i].first && c <= unfit[i].last)
			return false;
	return c >= lowest[n] && c <= 0x10ffff;
}

void
weir_text_copy(char *to, const char *from, size_t size)
{
	const unsigned char *s = (const unsigned char *)from;
	size_t i = 0;

	while (i < size - 1 && s[i]) {
		size_t n = character_bytes(s[i]);

		if (n > size - 1 - i)
			break;
		if (n && shows(s + i, n)) {
			memcpy(to + i, from + i, n);
			i += n;
		} else {
			to[i++] = '?';
		}
	}
	memset(to + i, 0, size - i);
}

uint32_t
weir_reason_slots(const char *reason)
{
	size_t n = strnlen(reason, WEIR_REFUSAL_MAX - 1);

	return n < WEIR_REFUSAL_LAST
		   ? 0
		   : (uint32_t)((n - WEIR_REFUSAL_LAST) / WEIR_SLOT_HEAD_BYTES) + 1;
}

bool
weir_reason_append(char *reason, const char *part, size_t n)
{
	size_t at = strnlen(reason, WEIR_REFUSAL_MAX - 1), length = strnlen(part, n);

	if (length > WEIR_REFUSAL_MAX - 1 - at)
		return false;
	memcpy(reason + at, part, length);
	reason[at + length] = 0;
	return true;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Blocks of a pcapng file (draft-ietf-opsawg-pcapng), as little of it as a capture of one Ethernet
 * port needs: section, interface, frames, statistics. Byte order is the host's, times are ns since
 * 1970. Each function puts one block to `to` and returns its length.
 */
#ifndef WEIR_PCAPNG_H
#define WEIR_PCAPNG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PCAPNG_TEXT_MAX 255u   /* longer texts are cut */
#define PCAPNG_BLOCK_MAX 640u  /* of any block but that of a frame */
#define PCAPNG_FRAME_EXTRA 64u /* bytes: a frame's block exceeds the frame by at most this */

struct pcapng_interface {
	const char *name, *description;
	uint8_t mac[6];
	uint32_t snap; /* bytes of a frame that are kept */
};

struct pcapng_frame {
	uint64_t time;
	uint32_t captured, original; /* bytes */
	uint32_t queue;
	bool out; /* sent, else received */
};

struct pcapng_statistics {
	uint64_t time, start, end;
	uint64_t received, dropped; /* seen at the port; of those not in the file */
};

size_t pcapng_section(uint8_t *to, const char *application);
size_t pcapng_interface(uint8_t *to, const struct pcapng_interface *interface);
/* `data` is in two parts, as it lies in a ring. */
size_t pcapng_frame(uint8_t *to, const struct pcapng_frame *frame, const void *first,
		    size_t first_bytes, const void *rest);
size_t pcapng_statistics(uint8_t *to, const struct pcapng_statistics *statistics);

#endif

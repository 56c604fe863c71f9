/* SPDX-License-Identifier: BSD-3-Clause */
#include "icrc.h"
#include "packet.h"

#include <isa-l/crc.h>

/* CRC-32 state after eight bytes of ones, which stand for the local route header that Ethernet
 * lacks. */
#define ICRC_SEED 0x2144df1cu

uint32_t
roce_icrc(const uint8_t *ip, size_t length)
{
	uint8_t head[IP_BYTES + UDP_BYTES + BTH_BYTES];

	memcpy(head, ip, sizeof(head));
	head[1] = 0xff;	 /* type of service */
	head[8] = 0xff;	 /* time to live */
	head[10] = 0xff; /* header checksum */
	head[11] = 0xff;
	head[26] = 0xff; /* UDP checksum */
	head[27] = 0xff;
	head[32] = 0xff; /* resv8a with FECN and BECN */
	return crc32_gzip_refl(crc32_gzip_refl(ICRC_SEED, head, sizeof(head)), ip + sizeof(head),
			       length - sizeof(head));
}

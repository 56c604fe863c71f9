/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Selects the way to compute ICRCs once, by the CPU's instructions. On a CPU that has none of them:
 * ISA-L in a pass of its own, after a masked copy of the headers.
 */
#include "icrc.h"
#include "icrc_kernel.h"
#include "roce.h"

#include <errno.h>
#include <isa-l/crc.h>

/* CRC-32 state after eight bytes of ones, which stand for the local route header that Ethernet
 * lacks. */
#define ICRC_SEED 0x2144df1cu

static uint32_t
icrc_plain(const uint8_t *ip, size_t length)
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

static uint32_t
icrc6_plain(const uint8_t *ip, size_t length)
{
	uint8_t head[IP6_BYTES + UDP_BYTES + BTH_BYTES];

	memcpy(head, ip, sizeof(head));
	head[0] |= 0x0f; /* traffic class, flow label */
	head[1] = 0xff;
	head[2] = 0xff;
	head[3] = 0xff;
	head[7] = 0xff;	 /* hop limit */
	head[46] = 0xff; /* UDP checksum */
	head[47] = 0xff;
	head[52] = 0xff; /* resv8a with FECN and BECN */
	return crc32_gzip_refl(crc32_gzip_refl(ICRC_SEED, head, sizeof(head)), ip + sizeof(head),
			       length - sizeof(head));
}

/* Copies and pads the payload; returns the length with headers. */
static size_t
copy_plain(uint8_t *ip, size_t headers, const void *payload, size_t length)
{
	size_t pad = -length & 3;

	if (length != 0)
		memcpy(ip + headers, payload, length);
	memset(ip + headers + length, 0, pad);
	return headers + length + pad;
}

static uint32_t
icrc_copy_plain(uint8_t *ip, size_t headers, const void *payload, size_t length)
{
	return icrc_plain(ip, copy_plain(ip, headers, payload, length));
}

static uint32_t
icrc6_copy_plain(uint8_t *ip, size_t headers, const void *payload, size_t length)
{
	return icrc6_plain(ip, copy_plain(ip, headers, payload, length));
}

static uint32_t
icrc_place_plain(const uint8_t *ip, size_t headers, size_t length, uint8_t *to)
{
	memcpy(to, ip + headers, length);
	return icrc_plain(ip, headers + length);
}

static uint32_t
icrc6_place_plain(const uint8_t *ip, size_t headers, size_t length, uint8_t *to)
{
	memcpy(to, ip + headers, length);
	return icrc6_plain(ip, headers + length);
}

static uint32_t
icrc_frame_plain(uint8_t *ip, const uint8_t *begin, uint64_t numbers, uint64_t e0, uint64_t e1,
		 uint64_t e2, uint32_t bth, size_t headers, const void *payload, size_t length)
{
	const uint64_t behind[] = {numbers, e0, e1, e2};

	memcpy(ip, begin, IP_BYTES + UDP_BYTES);
	memcpy(ip + IP_BYTES + UDP_BYTES, &bth, sizeof(bth));
	memcpy(ip + IP_BYTES + UDP_BYTES + sizeof(bth), behind, sizeof(behind));
	return icrc_copy_plain(ip, headers, payload, length);
}

static bool
icrc_isal_supported(void)
{
	return true;
}

const struct icrc_kernel icrc_isal = {
    .name = "isal",
    .supported = icrc_isal_supported,
    .check = icrc_plain,
    .copy = icrc_copy_plain,
    .check6 = icrc6_plain,
    .copy6 = icrc6_copy_plain,
    .place = icrc_place_plain,
    .place6 = icrc6_place_plain,
    .frame = icrc_frame_plain,
};

const uint64_t icrc_over[24][2] = {
    {0x163cd6124, 0x100000000}, {0x0ccaa009e, 0x1db710640}, {0x140d44a2e, 0x163cd6124},
    {0x1751997d0, 0x0ccaa009e}, {0x065673b46, 0x140d44a2e}, {0x15a546366, 0x1751997d0},
    {0x1dac4fb5c, 0x065673b46}, {0x0f1da05aa, 0x15a546366}, {0x14e01d2d4, 0x1dac4fb5c},
    {0x174359406, 0x0f1da05aa}, {0x02a283862, 0x14e01d2d4}, {0x03db1ecdc, 0x174359406},
    {0x1b2bdfa4c, 0x02a283862}, {0x1c6e41596, 0x03db1ecdc}, {0x111a288ce, 0x1b2bdfa4c},
    {0x154442bd4, 0x1c6e41596}, {0x0653d9822, 0x111a288ce}, {0x0ae0b5394, 0x154442bd4},
    {0x08e42b13e, 0x0653d9822}, {0x1c7569e54, 0x0ae0b5394}, {0x18172a68e, 0x08e42b13e},
    {0x18cb44e58, 0x1c7569e54}, {0x1cb6b2570, 0x18172a68e}, {0x0df068dc2, 0x18cb44e58},
};

const uint8_t icrc_ones[ONES_IP + 60] = {
    [ONES_IP - 4] = 0xff,  [ONES_IP - 3] = 0xff,  [ONES_IP - 2] = 0xff,	 [ONES_IP - 1] = 0xff,
    [ONES_IP + 1] = 0xff,  [ONES_IP + 8] = 0xff,  [ONES_IP + 10] = 0xff, [ONES_IP + 11] = 0xff,
    [ONES_IP + 26] = 0xff, [ONES_IP + 27] = 0xff, [ONES_IP + 32] = 0xff,
};

const uint8_t icrc_ones6[ONES_IP + 88] = {
    [ONES_IP - 4] = 0xff, [ONES_IP - 3] = 0xff,	 [ONES_IP - 2] = 0xff,	[ONES_IP - 1] = 0xff,
    [ONES_IP + 0] = 0x0f, [ONES_IP + 1] = 0xff,	 [ONES_IP + 2] = 0xff,	[ONES_IP + 3] = 0xff,
    [ONES_IP + 7] = 0xff, [ONES_IP + 46] = 0xff, [ONES_IP + 47] = 0xff, [ONES_IP + 52] = 0xff,
};

const struct icrc_kernel *const icrc_kernels[] = {
#ifdef __x86_64__
    &icrc_avx512, &icrc_vpclmul, &icrc_pclmul,
#endif
    &icrc_isal,	  NULL,
};

static struct icrc_kernel kernel; /* written before contexts exist */

int
roce_icrc_choose(const char *name)
{
	for (const struct icrc_kernel *const *k = icrc_kernels; *k; k++) {
		if (strcmp((*k)->name, name) != 0)
			continue;
		if (!(*k)->supported())
			return -ENOTSUP;
		kernel = **k;
		return 0;
	}
	return -EINVAL;
}

const char *
roce_icrc_name(void)
{
	return kernel.name;
}

__attribute__((constructor)) static void
choose_fastest(void)
{
	const struct icrc_kernel *const *k = icrc_kernels;

#ifdef __x86_64__
	__builtin_cpu_init();
#endif
	while (!(*k)->supported())
		k++;
	kernel = **k;
}

uint32_t
roce_icrc(const uint8_t *ip, size_t length)
{
	return (length & 3) == 0 ? kernel.check(ip, length) : icrc_plain(ip, length);
}

uint32_t
roce_icrc_copy(uint8_t *ip, size_t headers, const void *payload, size_t length)
{
	return kernel.copy(ip, headers, payload, length);
}

uint32_t
roce_icrc_frame(uint8_t *ip, const uint8_t *begin, uint64_t numbers, uint64_t e0, uint64_t e1,
		uint64_t e2, uint32_t bth, size_t headers, const void *payload, size_t length)
{
	return kernel.frame(ip, begin, numbers, e0, e1, e2, bth, headers, payload, length);
}

uint32_t
roce_icrc6(const uint8_t *ip, size_t length)
{
	return (length & 3) == 0 ? kernel.check6(ip, length) : icrc6_plain(ip, length);
}

uint32_t
roce_icrc6_copy(uint8_t *ip, size_t headers, const void *payload, size_t length)
{
	return kernel.copy6(ip, headers, payload, length);
}

uint32_t
roce_icrc_place(const uint8_t *ip, size_t headers, size_t length, uint8_t *to)
{
	return kernel.place(ip, headers, length, to);
}

uint32_t
roce_icrc6_place(const uint8_t *ip, size_t headers, size_t length, uint8_t *to)
{
	return kernel.place6(ip, headers, length, to);
}

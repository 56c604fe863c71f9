/* SPDX-License-Identifier: BSD-3-Clause */
/* The decoder and the ICRC, on frames of our own and on those of another implementation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "nic/roce/icrc.h"
#include "nic/roce/device.h"
#include "nic/roce/packet.h"
#include "nic/roce/template.h"

struct real_frame {
	uint8_t *data; /* of exactly `length` bytes */
	uint32_t length;
};

/* Frames to one address have its traffic class, and its priority instead of the device's. */
static void
test_template_marks(void **state)
{
	for (unsigned six = 0; six < 2; six++)
		for (unsigned vlan = 0; vlan < 2; vlan++)
			for (uint8_t priority = 0; priority <= 8; priority++) {
				struct roce_config c = {.vlan = vlan ? 77 : 0, .pcp = 3};
				uint8_t t[ROCE_TEMPLATE] = {0}, *f = t + ROCE_TEMPLATE_AT;
				struct roce_device *dev;
				unsigned front, tos;

				c.gid = nic_gid_ipv4(0x0a000001);
				if (six)
					c.gid.raw[0] = 0xfd;
				dev = roce_device_create(&c);
				assert_non_null(dev);
				front = roce_front(&c);
				roce_template_make(dev, (struct address){0, 0x0a000002}, 0x68,
						   priority, t);
				tos = six ? (get32(f + IP6_AT) >> 20) & 0xff : f[IP_AT + 1];
				assert_int_equal(tos, 0x68 | 2);
				if (vlan) {
					assert_int_equal(get16(f - front + 12), ETH_TYPE_VLAN);
					assert_int_equal(get16(f - front + 14),
							 (priority ? priority - 1 : 3) << 13 | 77);
				} else {
					assert_int_equal(get16(f - front + 12),
							 six ? ETH_TYPE_IP6 : ETH_TYPE_IP);
				}
				roce_device_destroy(dev);
			}
}

static struct real_frame frames[1000];
static unsigned frame_count;
static const struct headers untagged;

/* pcap: a header of 24 bytes, then 16 bytes before each frame, all in host order here. */
static int
read_frames(void **state)
{
	char path[512];
	uint32_t head[6];
	FILE *f;

	snprintf(path, sizeof(path), "%s/rxe-frames.pcap", getenv("WEIR_TEST_DATA"));
	f = fopen(path, "rb");
	assert_non_null(f);
	assert_int_equal(fread(head, sizeof(head), 1, f), 1);
	assert_int_equal(head[0], 0xa1b2c3d4);
	while (fread(head, 16, 1, f) == 1) {
		struct real_frame *r = &frames[frame_count++];

		r->length = head[2];
		r->data = malloc(r->length);
		assert_int_equal(fread(r->data, r->length, 1, f), 1);
	}
	fclose(f);
	return 0;
}

static int
free_frames(void **state)
{
	while (frame_count > 0)
		free(frames[--frame_count].data);
	return 0;
}

static bool
crc_matches(const uint8_t *frame, uint32_t end)
{
	uint32_t stored;

	memcpy(&stored, frame + end, 4);
	return le32toh(stored) == roce_icrc(frame + IP_AT, end - IP_AT);
}

static void
real_frames(void **state)
{
	unsigned kinds[PACKET_CNP + 1] = {0}, unknown = 0;

	assert_int_equal(frame_count, 980);
	for (unsigned i = 0; i < frame_count; i++) {
		const struct real_frame *r = &frames[i];
		struct packet p = {0};
		enum drop drop = roce_packet_decode(r->data, r->length, &untagged, &p);
		uint32_t end = IP_AT + get16(r->data + IP_AT + 2) - ICRC_BYTES;

		assert_true(crc_matches(r->data, end));
		if (drop == DROP_bad_bth) { /* UC, which we have no use for */
			assert_int_equal(r->data[BTH_AT] & 0xe0, 0x20);
			unknown++;
			continue;
		}
		assert_int_equal(drop, DROP_NONE);
		assert_int_equal(p.icrc_at, end);
		kinds[p.kind]++;
	}
	/* as the note beside the file says */
	assert_int_equal(unknown, 60);
	assert_int_equal(kinds[PACKET_SEND], 53 + 106 + 53 + 135);
	assert_int_equal(kinds[PACKET_WRITE], 51 * 3);
	assert_int_equal(kinds[PACKET_READ], 10);
	assert_int_equal(kinds[PACKET_RESPONSE], 10 + 30 + 10 + 20);
	assert_int_equal(kinds[PACKET_ATOMIC], 20);
	assert_int_equal(kinds[PACKET_ACK], 300);
	assert_int_equal(kinds[PACKET_DATAGRAM], 20);
}

/* A flipped bit anywhere is noticed, but where routers may change things. */
static void
flipped_bits(void **state)
{
	for (unsigned i = 0; i < frame_count; i += 7) {
		struct real_frame *r = &frames[i];
		uint32_t end = IP_AT + get16(r->data + IP_AT + 2) - ICRC_BYTES;

		for (uint32_t at = IP_AT; at < end + ICRC_BYTES; at++) {
			uint32_t in_ip = at - IP_AT;
			bool masked = in_ip == 1 || in_ip == 8 || in_ip == 10 || in_ip == 11 ||
				      in_ip == 26 || in_ip == 27 || in_ip == 32;

			r->data[at] ^= (uint8_t)(1u << (at + i) % 8);
			assert_int_equal(crc_matches(r->data, end), masked);
			r->data[at] ^= (uint8_t)(1u << (at + i) % 8);
		}
	}
}

/* Cut at every byte: refused, and nothing is read behind the end (the sanitizer looks). */
static void
truncated(void **state)
{
	for (unsigned i = 0; i < frame_count; i += 3) {
		const struct real_frame *r = &frames[i];
		uint32_t whole = IP_AT + get16(r->data + IP_AT + 2);

		for (uint32_t n = 0; n < whole; n++) {
			uint8_t *cut = malloc(n ? n : 1);
			struct packet p;

			memcpy(cut, r->data, n);
			assert_int_not_equal(roce_packet_decode(cut, n, &untagged, &p), DROP_NONE);
			free(cut);
		}
	}
}

static void
fix_ip(uint8_t *f)
{
	put16(f + IP_AT + 10, 0);
	put16(f + IP_AT + 10, (uint16_t)~ip_fold(ip_sum(f + IP_AT)));
}

/* Cut with a length in the headers to match: the transport headers must still fit. */
static void
truncated_with_lengths(void **state)
{
	for (unsigned i = 0; i < frame_count; i++) {
		const struct real_frame *r = &frames[i];
		uint32_t whole = IP_AT + get16(r->data + IP_AT + 2);

		for (uint32_t n = BTH_AT; n < whole && n < EXT_AT + 40; n++) {
			uint8_t *cut = malloc(n);
			struct packet p = {0};
			enum drop drop;

			memcpy(cut, r->data, n);
			put16(cut + IP_AT + 2, (uint16_t)(n - IP_AT));
			put16(cut + UDP_AT + 4, (uint16_t)(n - UDP_AT));
			fix_ip(cut);
			drop = roce_packet_decode(cut, n, &untagged, &p);
			if (n < EXT_AT + ICRC_BYTES)
				assert_int_equal(drop, DROP_too_short);
			if (drop == DROP_NONE) {
				assert_true(p.payload >= cut && p.payload <= cut + n);
				assert_true(p.payload + p.payload_length + ICRC_BYTES <= cut + n);
			}
			free(cut);
		}
	}
}

static const struct real_frame *
find_opcode(uint8_t opcode)
{
	for (unsigned i = 0; i < frame_count; i++) {
		if (frames[i].data[BTH_AT] == opcode)
			return &frames[i];
	}
	fail();
	return NULL;
}

static void
corrupted_fields(void **state)
{
	static const struct {
		uint8_t at, mask;
		enum drop drop;
		bool fix; /* the IP checksum is made right again */
	} cases[] = {
	    {12, 0x80, DROP_not_ours, false},	     /* Ethernet type */
	    {IP_AT, 0x10, DROP_bad_ip, true},	     /* version */
	    {IP_AT, 0x01, DROP_bad_ip, true},	     /* header length */
	    {IP_AT + 2, 0x80, DROP_bad_ip, true},    /* total length, beyond the frame */
	    {IP_AT + 3, 0x04, DROP_bad_ip, true},    /* not what UDP says */
	    {IP_AT + 4, 0x01, DROP_bad_ip, false},   /* checksum */
	    {IP_AT + 6, 0x20, DROP_bad_ip, true},    /* more fragments */
	    {IP_AT + 7, 0x01, DROP_bad_ip, true},    /* fragment offset */
	    {IP_AT + 9, 0x01, DROP_not_ours, true},  /* protocol */
	    {UDP_AT + 3, 0x01, DROP_not_ours, true}, /* port */
	    {UDP_AT + 5, 0x01, DROP_bad_ip, true},   /* length */
	    {BTH_AT, 0x80, DROP_bad_bth, true},	     /* opcode */
	    {BTH_AT + 1, 0x01, DROP_bad_bth, true},  /* transport version */
	    {BTH_AT + 2, 0x01, DROP_bad_bth, true},  /* P_Key */
	    {BTH_AT + 3, 0x80, DROP_bad_bth, true},
	    {BTH_AT + 2, 0x80, DROP_NONE, true}, /* limited member */
	    {BTH_AT + 4, 0xc0, DROP_NONE, true}, /* FECN, BECN */
	};
	const struct real_frame *r = find_opcode(RC_WRITE_FIRST);

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint8_t *f = malloc(r->length);
		struct packet p;

		memcpy(f, r->data, r->length);
		f[cases[i].at] ^= cases[i].mask;
		if (cases[i].fix)
			fix_ip(f);
		assert_int_equal(roce_packet_decode(f, r->length, &untagged, &p), cases[i].drop);
		free(f);
	}
}

static void
pad_and_payload(void **state)
{
	const struct real_frame *ack = find_opcode(RC_ACK), *w = find_opcode(RC_WRITE_LAST);
	uint8_t f[ETH_BYTES + 1100];
	struct packet p;

	memcpy(f, ack->data, ack->length);
	f[BTH_AT + 1] |= 0x10; /* pad where there is no payload */
	assert_int_equal(roce_packet_decode(f, ack->length, &untagged, &p), DROP_bad_bth);
	memcpy(f, w->data, w->length);
	assert_int_equal(roce_packet_decode(f, w->length, &untagged, &p), DROP_NONE);
	assert_int_equal(p.flags, PACKET_LAST | PACKET_PAYLOAD);
	uint32_t n = p.payload_length + (f[BTH_AT + 1] >> 4 & 3);
	for (unsigned pad = 0; pad < 4; pad++) {
		f[BTH_AT + 1] = (uint8_t)(pad << 4);
		assert_int_equal(roce_packet_decode(f, w->length, &untagged, &p), DROP_NONE);
		assert_int_equal(p.payload_length, n - pad);
	}
}

static void
fields_read(void **state)
{
	const struct real_frame *r = find_opcode(RC_WRITE_FIRST);
	struct packet p;

	assert_int_equal(roce_packet_decode(r->data, r->length, &untagged, &p), DROP_NONE);
	assert_int_equal(p.kind, PACKET_WRITE);
	assert_int_equal(p.flags, PACKET_FIRST | PACKET_RETH | PACKET_PAYLOAD);
	assert_int_equal(p.payload_length, 1024);
	assert_int_equal(p.payload - r->data, EXT_AT + RETH_BYTES);
	assert_true(p.dma_length > 1024);
	assert_int_equal(p.psn, get32(r->data + BTH_AT + 8) & 0xffffff);
	assert_int_equal(p.qpn, get32(r->data + BTH_AT + 4));
}

static void
noise(void **state)
{
	uint64_t x = 88172645463325252u;

	for (unsigned i = 0; i < 200000; i++) {
		const struct real_frame *r = &frames[i % frame_count];
		uint8_t *f = malloc(r->length);
		struct packet p = {0};

		memcpy(f, r->data, r->length);
		for (unsigned k = 0; k < 3; k++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			f[12 + x % 64 % (r->length - 12)] = (uint8_t)(x >> 32);
		}
		fix_ip(f);
		if (roce_packet_decode(f, r->length, &untagged, &p) == DROP_NONE &&
		    p.kind != PACKET_ARP)
			assert_true(p.payload + p.payload_length + ICRC_BYTES <= f + r->length);
		free(f);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_template_marks),
	    cmocka_unit_test(real_frames),
	    cmocka_unit_test(flipped_bits),
	    cmocka_unit_test(truncated),
	    cmocka_unit_test(truncated_with_lengths),
	    cmocka_unit_test(corrupted_fields),
	    cmocka_unit_test(pad_and_payload),
	    cmocka_unit_test(fields_read),
	    cmocka_unit_test(noise),
	};

	return cmocka_run_group_tests(tests, read_frames, free_frames);
}

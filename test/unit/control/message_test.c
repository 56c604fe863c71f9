/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages between controls: cut out of a stream, decoded, checked. */
#include "transport/message.h"

#include "weir_control.pb-c.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct node_info
info(void)
{
	struct node_info i = {.dp = {.state = DP_UP,
				     .incarnation = UINT64_MAX,
				     .engines = 4,
				     .address_count = WEIR_CTL_ADDRESSES,
				     .services = UINT64_MAX}};

	for (int k = 0; k < WEIR_CTL_ADDRESSES; k++)
		memset(i.dp.address[k], k + 1, 16);
	memset(i.control, '9', sizeof(i.control) - 1);
	return i;
}

static struct control_msg
hello(void)
{
	struct control_msg m = {.type = CONTROL_HELLO};

	m.hello.versions = CONTROL_VERSIONS;
	snprintf(m.hello.cluster, sizeof(m.hello.cluster), "spring");
	m.hello.record = (struct swim_record){
	    .id = 65534, .status = SWIM_ALIVE, .run = UINT64_MAX, .version = SWIM_VERSION_MAX};
	m.hello.info = info();
	return m;
}

// As long as it can get.
static struct control_msg
swim(void)
{
	struct control_msg m = {.type = CONTROL_SWIM};

	m.swim.msg = (struct swim_msg){.type = SWIM_SYNC,
				       .want = true,
				       .rooted = true,
				       .target = 65534,
				       .seq = UINT32_MAX,
				       .digest = UINT64_MAX,
				       .count = SWIM_RECORDS};
	for (uint32_t i = 0; i < SWIM_RECORDS; i++) {
		m.swim.msg.record[i] = (struct swim_record){.id = 65534 - i,
							    .status = SWIM_ALIVE + i % 4,
							    .run = UINT64_MAX - i,
							    .version = SWIM_VERSION_MAX};
		m.swim.info[i] = info();
	}
	return m;
}

static struct control_msg
offer(void)
{
	struct control_msg m = {.type = CONTROL_LINK_OFFER};

	m.link = (struct weir_link_offer){
	    .node = 1,
	    .peer_node = 65534,
	    .engine = 3,
	    .peer_engine = 255,
	    .layout = 0x101,
	    .incarnation = 0x1122334455667788,
	    .peer_incarnation = 0x99aabbccddeeff00,
	    .attempt = 7,
	    .answered = 6,
	    .gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1},
	    .lid = 0xffff,
	    .mtu = 4096,
	    .qpn = {0xffffff, 2},
	    .psn = {0, 0xfffffe},
	    .ring_address = 0xffffffffffff0000,
	    .credit_address = 0x7fff00001000,
	    .ring_rkey = 0xffffffff,
	    .credit_rkey = 1,
	    .ring_lines = 4096,
	    .recv_wrs = 128,
	    .answers = 0xfffffffe,
	    .joined = 5,
	    .resumes = WEIR_RESUME_BOTH,
	    .born = 3,
	    .peer_born = 0xffffffff,
	    .consumed = 0xfedcba9876543210,
	    .received = 0x0123456789abcdef,
	    .highest = 0xfffffffe,
	    .refused = 28,
	};
	return m;
}

// As long as names can get.
static struct control_msg
services(uint32_t count)
{
	struct control_msg m = {.type = CONTROL_SERVICES, .services.node = 65534};

	m.services.names.count = count;
	for (uint32_t i = 0; i < count; i++) {
		memset(m.services.names.name[i], 'n', WEIR_SERVICE_MAX - 1);
		m.services.names.name[i][0] = '0' + i / 10;
		m.services.names.name[i][1] = '0' + i % 10;
	}
	return m;
}

// Encodes into memory of exactly the right size, so that a sanitizer sees any step beyond it.
static uint8_t *
encode(const struct control_msg *m, size_t *length)
{
	uint8_t room[CONTROL_ENCODED_MAX], *exact;

	*length = control_msg_encode(m, room, sizeof(room));
	assert_true(*length > CONTROL_PREFIX);
	exact = malloc(*length);
	memcpy(exact, room, *length);
	return exact;
}

static void
round_trip(const struct control_msg *m)
{
	struct control_msg back;
	size_t length, n = 0;
	uint8_t *data = encode(m, &length);

	assert_int_equal(control_frame_next(data, length, CONTROL_FRAME_MAX, &n), 1);
	assert_int_equal(n + CONTROL_PREFIX, length);
	assert_int_equal(control_msg_decode(data + CONTROL_PREFIX, n, &back), 0);
	assert_int_equal(back.type, m->type);
	assert_memory_equal(&back, m, sizeof(back));
	// No shorter room takes it.
	for (size_t room = 0; room < length; room++)
		assert_int_equal(control_msg_encode(m, data, room), 0);
	free(data);
}

static void
test_round_trips(void **state)
{
	struct control_msg m;

	m = hello();
	round_trip(&m);
	m.hello.info.dp = (struct dp_view){.state = DP_UNKNOWN};
	m.hello.record.id = 0;
	round_trip(&m);
	m = offer();
	round_trip(&m);
	m = swim();
	round_trip(&m);
	m = (struct control_msg){.type = CONTROL_SWIM, .swim.msg.type = SWIM_PING};
	round_trip(&m);
	m = (struct control_msg){.type = CONTROL_RESYNC, .resync = {1, 2, 3, 4, EIO}};
	round_trip(&m);
	m = services(WEIR_SERVICES_MAX);
	round_trip(&m);
	m = services(0);
	round_trip(&m);
	m = (struct control_msg){.type = CONTROL_SERVICE_ASK};
	round_trip(&m);
	m.service_ask.count = REGISTRY_ASKS;
	for (uint32_t i = 0; i < REGISTRY_ASKS; i++) {
		m.service_ask.of[i].node = 65534 - i;
		m.service_ask.of[i].digest = UINT64_MAX - i;
	}
	round_trip(&m);
	m = (struct control_msg){.type = CONTROL_BYE};
	round_trip(&m);
	m.bye.idle = true;
	round_trip(&m);
	m = (struct control_msg){.type = CONTROL_ERROR};
	memset(m.error.reason, 'r', sizeof(m.error.reason) - 1);
	m.error.taken = true;
	round_trip(&m);
}

// Every way to cut a stream of three messages in two gives the same three messages.
static void
test_partial_reads(void **state)
{
	struct control_msg in[3] = {hello(), offer(), {.type = CONTROL_BYE}}, out;
	uint8_t stream[3 * CONTROL_ENCODED_MAX];
	size_t total = 0;

	for (int i = 0; i < 3; i++)
		total += control_msg_encode(&in[i], stream + total, sizeof(stream) - total);
	for (size_t cut = 0; cut <= total; cut++) {
		size_t have[2] = {cut, total}, at = 0, n;
		int seen = 0;

		for (int part = 0; part < 2; part++) {
			// Memory of just what has been read: nothing may look further.
			uint8_t *read = malloc(have[part] - at + 1);
			size_t base = at;

			memcpy(read, stream + base, have[part] - base);
			while (control_frame_next(read + (at - base), have[part] - at,
						  CONTROL_FRAME_MAX, &n) == 1) {
				uint8_t *data = read + (at - base) + CONTROL_PREFIX;

				assert_int_equal(control_msg_decode(data, n, &out), 0);
				assert_int_equal(out.type, in[seen++].type);
				at += CONTROL_PREFIX + n;
			}
			free(read);
		}
		assert_int_equal(seen, 3);
		assert_int_equal(at, total);
	}
}

static void
test_frame_limits(void **state)
{
	uint8_t data[4] = {0, 1, 0, 0}; // 65536
	size_t n;

	assert_int_equal(control_frame_next(data, 3, CONTROL_FRAME_MAX, &n), 0);
	assert_int_equal(control_frame_next(data, 4, CONTROL_FRAME_MAX, &n), 0);
	assert_int_equal(control_frame_next(data, 4, CONTROL_FRAME_MAX - 1, &n), -EMSGSIZE);
	data[3] = 1;
	assert_int_equal(control_frame_next(data, 4, CONTROL_FRAME_MAX, &n), -EMSGSIZE);
	memset(data, 0, sizeof(data));
	assert_int_equal(control_frame_next(data, 4, CONTROL_FRAME_MAX, &n), -EMSGSIZE);
	assert_int_equal(control_frame_next((const uint8_t *)"GET /", 5, CONTROL_FRAME_MAX, &n),
			 -EMSGSIZE);
	memset(data, 0xff, sizeof(data));
	assert_int_equal(control_frame_next(data, 4, CONTROL_FRAME_MAX, &n), -EMSGSIZE);
}

// Every truncation is refused or says less: it never reads beyond its end.
static void
test_truncated(void **state)
{
	struct control_msg all[] = {hello(), offer()}, out;

	for (int i = 0; i < 2; i++) {
		size_t length;
		uint8_t *data = encode(&all[i], &length);

		for (size_t n = 0; n + CONTROL_PREFIX < length; n++) {
			uint8_t *part = malloc(n ? n : 1);

			memcpy(part, data + CONTROL_PREFIX, n);
			assert_int_equal(control_msg_decode(part, n, &out), -EBADMSG);
			free(part);
		}
		free(data);
	}
}

// Encodes and decodes it: what control_msg_decode() returns.
static int
recode(const struct control_msg *m, struct control_msg *out)
{
	size_t length;
	uint8_t *data = encode(m, &length);
	int status = control_msg_decode(data + CONTROL_PREFIX, length - CONTROL_PREFIX, out);

	free(data);
	return status;
}

static void
refused(const struct control_msg *m)
{
	struct control_msg out;

	assert_int_equal(recode(m, &out), -EBADMSG);
}

// Decodes an envelope of a foreign encoder.
static void
expect_status(const Weir__Control__Envelope *pb, int status)
{
	static uint8_t data[8192];
	struct control_msg out;

	assert_true(weir__control__envelope__get_packed_size(pb) <= sizeof(data));
	assert_int_equal(control_msg_decode(data, weir__control__envelope__pack(pb, data), &out),
			 status);
}

static void
test_offer_ranges(void **state)
{
	struct control_msg m;

#define BAD(field, value)                                                                          \
	m = offer();                                                                               \
	m.link.field = value;                                                                      \
	refused(&m)
	BAD(node, 65535);
	BAD(peer_node, 65535);
	BAD(peer_node, 1); // to itself
	BAD(mtu, 255);
	BAD(mtu, 4097);
	BAD(qpn[1], 0x1000000);
	BAD(psn[0], 0x1000000);
	BAD(attempt, 0);
	BAD(incarnation, 0);
	BAD(ring_lines, 0);
#undef BAD
}

static void
test_view_ranges(void **state)
{
	struct control_msg m = hello();

	m.hello.record.id = 65535;
	refused(&m);
	m = hello();
	m.hello.info.dp.state = 3;
	refused(&m);
	m = hello();
	m.hello.info.dp.engines = 257;
	refused(&m);
	m = hello();
	m.hello.info.dp.incarnation = 0; // up, but which?
	refused(&m);
	m = hello();
	m.hello.record.status = SWIM_DEAD; // says the dead one
	refused(&m);
}

static void
test_record_ranges(void **state)
{
	struct control_msg m;

#define BAD(field, value)                                                                          \
	m = swim();                                                                                \
	m.swim.field = value;                                                                      \
	refused(&m)
	BAD(msg.type, 6);
	BAD(msg.type, 0);
	BAD(msg.record[31].id, 65535);
	BAD(msg.record[31].status, SWIM_UNKNOWN);
	BAD(msg.record[31].status, SWIM_LEFT + 1);
	BAD(msg.record[0].run, 0);
	BAD(msg.record[0].version, 0);
	BAD(msg.record[0].version, SWIM_VERSION_MAX + 1); // nobody could refute it
	BAD(info[0].dp.engines, 257);
#undef BAD
}

// Fields of a width or a number that our own encoder can't produce.
static void
test_foreign_encodings(void **state)
{
	Weir__Control__Envelope e = WEIR__CONTROL__ENVELOPE__INIT;
	Weir__Control__Resync resync = WEIR__CONTROL__RESYNC__INIT;
	Weir__Control__DataPlane dp = WEIR__CONTROL__DATA_PLANE__INIT;
	Weir__Control__Record record = WEIR__CONTROL__RECORD__INIT, *records[SWIM_RECORDS + 1];
	Weir__Control__Swim ping = WEIR__CONTROL__SWIM__INIT;
	char text[WEIR_CTL_PEER_TEXT + 1] = {0};
	ProtobufCBinaryData address[WEIR_CTL_ADDRESSES + 1];
	struct control_msg out;
	uint8_t data[1] = {0}, ip[16] = {0};

	// an envelope with nothing in it
	assert_int_equal(control_msg_decode(data, 0, &out), -EBADMSG);
	// unknown field 15, varint
	assert_int_equal(control_msg_decode((const uint8_t *)"\x78\x01", 2, &out), -EBADMSG);

	e.body_case = WEIR__CONTROL__ENVELOPE__BODY_RESYNC;
	e.resync = &resync;
	resync.peer_node = 2;
	resync.engine = 256;
	expect_status(&e, -EBADMSG);
	resync.engine = 255;
	resync.peer_node = 0x10002; // 2 in 16 bits
	expect_status(&e, -EBADMSG);

	e.body_case = WEIR__CONTROL__ENVELOPE__BODY_SWIM;
	e.swim = &ping;
	ping.type = WEIR__CONTROL__SWIM__TYPE__PING;
	ping.record = records;
	ping.n_record = 1;
	for (uint32_t i = 0; i <= SWIM_RECORDS; i++)
		records[i] = &record;
	record.status = WEIR__CONTROL__RECORD__STATUS__ALIVE;
	record.run = record.version = 1;
	// no data plane in it
	expect_status(&e, -EBADMSG);
	record.data_plane = &dp;
	ping.n_record = SWIM_RECORDS + 1;
	expect_status(&e, -EBADMSG);
	ping.n_record = 1;
	memset(text, '1', sizeof(text) - 1);
	record.control = text;
	expect_status(&e, -EBADMSG);
	record.control = (char *)"";
	dp.address = address;
	for (int i = 0; i <= WEIR_CTL_ADDRESSES; i++)
		address[i] = (ProtobufCBinaryData){.len = 16, .data = ip};
	dp.n_address = WEIR_CTL_ADDRESSES + 1;
	expect_status(&e, -EBADMSG);
	dp.n_address = 1;
	expect_status(&e, 0);
	address[0].len = 15;
	expect_status(&e, -EBADMSG);
}

static void
test_other_version(void **state)
{
	struct control_msg m = hello(), out;

	// It may be anything behind its versions, but these are readable.
	m.hello.versions = (struct weir_versions){CONTROL_VERSION + 1, CONTROL_VERSION + 3};
	m.hello.record.status = SWIM_UNKNOWN;
	assert_int_equal(recode(&m, &out), 0);
	assert_int_equal(out.hello.versions.lowest, CONTROL_VERSION + 1);
	assert_int_equal(out.hello.versions.highest, CONTROL_VERSION + 3);
	// With a common one it is of that.
	m.hello.versions.lowest = CONTROL_VERSION - 1;
	assert_int_equal(recode(&m, &out), -EBADMSG);
}

static void
test_text_is_printable(void **state)
{
	struct control_msg m = {.type = CONTROL_ERROR}, out;

	snprintf(m.error.reason, sizeof(m.error.reason), "a\nb\x1b[2J\x80");
	assert_int_equal(recode(&m, &out), 0);
	assert_string_equal(out.error.reason, "a?b?[2J?");
}

static void
test_service_ranges(void **state)
{
	struct control_msg m = services(2);

	memcpy(m.services.names.name[1], m.services.names.name[0], WEIR_SERVICE_MAX); // twice
	refused(&m);
	m = services(2);
	m.services.names.name[0][0] = '9'; // not in order
	refused(&m);
	m = services(1);
	m.services.names.name[0][5] = '\n';
	refused(&m);
	m = services(1);
	m.services.names.name[0][0] = 0;
	refused(&m);
	m = services(1);
	m.services.node = UINT16_MAX;
	refused(&m);
	m = (struct control_msg){.type = CONTROL_SERVICE_ASK, .service_ask.count = 1};
	m.service_ask.of[0].node = UINT16_MAX;
	refused(&m);
}

// More than there is room for, names that are too long, counts that differ.
static void
test_service_counts(void **state)
{
	Weir__Control__Envelope pb = WEIR__CONTROL__ENVELOPE__INIT;
	Weir__Control__Services s = WEIR__CONTROL__SERVICES__INIT;
	Weir__Control__ServiceAsk ask = WEIR__CONTROL__SERVICE_ASK__INIT;
	char text[WEIR_SERVICES_MAX + 1][40], *name[WEIR_SERVICES_MAX + 1];
	uint32_t node[REGISTRY_ASKS + 1] = {0};
	uint64_t digest[REGISTRY_ASKS + 1] = {0};

	for (uint32_t i = 0; i <= WEIR_SERVICES_MAX; i++) {
		snprintf(text[i], sizeof(text[i]), "%03u", i);
		name[i] = text[i];
	}
	pb.body_case = WEIR__CONTROL__ENVELOPE__BODY_SERVICES;
	pb.services = &s;
	s.name = name;
	for (s.n_name = WEIR_SERVICES_MAX; s.n_name <= WEIR_SERVICES_MAX + 1; s.n_name++)
		expect_status(&pb, s.n_name > WEIR_SERVICES_MAX ? -EBADMSG : 0);
	s.n_name = 1;
	memset(text[0], 'x', WEIR_SERVICE_MAX);
	text[0][WEIR_SERVICE_MAX] = 0;
	expect_status(&pb, -EBADMSG);
	pb.body_case = WEIR__CONTROL__ENVELOPE__BODY_SERVICE_ASK;
	pb.service_ask = &ask;
	ask.node = node;
	ask.digest = digest;
	ask.n_node = ask.n_digest = REGISTRY_ASKS + 1;
	expect_status(&pb, -EBADMSG);
	ask.n_node = 2;
	ask.n_digest = 1;
	expect_status(&pb, -EBADMSG);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_service_ranges),    cmocka_unit_test(test_service_counts),
	    cmocka_unit_test(test_round_trips),	      cmocka_unit_test(test_partial_reads),
	    cmocka_unit_test(test_frame_limits),      cmocka_unit_test(test_truncated),
	    cmocka_unit_test(test_offer_ranges),      cmocka_unit_test(test_view_ranges),
	    cmocka_unit_test(test_other_version),     cmocka_unit_test(test_foreign_encodings),
	    cmocka_unit_test(test_text_is_printable), cmocka_unit_test(test_record_ranges),
	};

	return cmocka_run_group_tests_name("control_message", tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages of weir-roce-peer over TCP; those of the other programs were recorded from them. */
#include "worlds/roce_peer_world.h"

#include <endian.h>
#include <sys/socket.h>

#define GID "00000000000000000000ffff0a000001"
#define COLONS "00:00:00:00:00:00:00:00:00:00:ff:ff:0a:00:00:01"
#define THEIR_LINE "0000:000012:6b2c5a:" GID
#define THEIR_ADDRESS "0000:0080:00001a:57b251:00000b21:000056193a2f8000:" COLONS ":00000000:"
#define OUR_LINE "0003:abcdef:fffff8:" GID
#define OUR_ADDRESS "0003:0010:abcdef:fffff8:00c0ffee:1122334455667788:" COLONS ":00000000:"

/* A conversation: the other program's words, all at once, and our answers. */
static char script[65536], said[65536];
static size_t script_bytes, said_bytes;

static void
begin(const char *role, const char *run)
{
	peer_world_begin(role, run);
	script_bytes = said_bytes = 0;
}

static void
they_say(const void *data, size_t n)
{
	memcpy(script + script_bytes, data, n);
	script_bytes += n;
}

/* A text, filled up to `n` bytes. */
static void
they_write(const char *text, size_t n)
{
	char padded[128] = "";

	snprintf(padded, sizeof(padded), "%s", text);
	they_say(padded, n);
}

static int
talk(int (*run)(struct peer *))
{
	int pair[2], rc;
	ssize_t n;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	assert_int_equal(write(pair[1], script, script_bytes), script_bytes);
	shutdown(pair[1], SHUT_WR);
	p.socket = pair[0];
	rc = run(&p);
	peer_part(&p);
	while ((n = read(pair[1], said + said_bytes, sizeof(said) - said_bytes)) > 0)
		said_bytes += (size_t)n;
	close(pair[1]);
	return rc;
}

/* Takes off our next n bytes, which begin with the text and a 0. */
static void
we_wrote(const char *text, size_t n)
{
	assert_true(said_bytes >= n && n > strlen(text));
	assert_memory_equal(said, text, strlen(text) + 1);
	said_bytes -= n;
	memmove(said, said + n, said_bytes);
}

static void
we_said(uint64_t value, size_t n)
{
	uint64_t big = htobe64(value);

	assert_true(said_bytes >= n);
	assert_memory_equal(said, (uint8_t *)&big + 8 - n, n);
	said_bytes -= n;
	memmove(said, said + n, said_bytes);
}

TEST(test_line)
{
	begin("--listen", "rc_pingpong");
	p.count = 0;
	they_write(THEIR_LINE, 52);
	they_write("done", 5);
	assert_int_equal(talk(peer_pingpong), 0);
	we_wrote(OUR_LINE, 52);
	assert_int_equal(said_bytes, 0);
	assert_int_equal(p.qp[0].remote.qpn, 0x12);
	assert_int_equal(p.qp[0].remote.psn, 0x6b2c5a);
	assert_memory_equal(p.qp[0].remote.gid.raw, p.attr.gid.raw, 16);
	assert_int_equal(connected, 1);
	assert_int_equal(lingered, 1);
	assert_int_equal(p.mtu, 1024);

	begin("--connect h", "ud_pingpong");
	p.count = 0;
	they_write(THEIR_LINE, 52);
	assert_int_equal(talk(peer_pingpong), 0);
	we_wrote(OUR_LINE, 52);
	we_wrote("done", 5);
	assert_int_equal(said_bytes, 0);
}

/* A line for each of 256 queue pairs, however many there are. */
TEST(test_many_lines)
{
	begin("--listen", "srq_pingpong");
	p.count = 0;
	for (unsigned i = 0; i < 256; i++)
		they_write(THEIR_LINE, 52);
	they_write("done", 5);
	assert_int_equal(talk(peer_pingpong), 0);
	assert_int_equal(said_bytes, 256 * 52);
	assert_int_equal(connected, 3);
}

TEST(test_bad_lines)
{
	static const char *const bad[] = {"",
					  "done",
					  "0000:000012:6b2c5a:" /* no GID */,
					  "0000:000012:6b2c5a:00000000000000000000ffff0a00000",
					  "0000:000012:6b2c5a:00000000000000000000ffff0a00000x",
					  "zzzz:000012:6b2c5a:" GID};

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		begin("--listen", "rc_pingpong");
		they_write(bad[i], 52);
		assert_int_equal(talk(peer_pingpong), -EPROTO);
		assert_non_null(strstr(p.error, "; "));
	}
	begin("--listen", "rc_pingpong");
	they_write(THEIR_LINE, 51); /* and no more */
	assert_int_equal(talk(peer_pingpong), -EPIPE);
}

/* The start of perftest, before any data. */
static void
they_begin(const char *version, uint32_t cycle, uint32_t line, const char *mtu)
{
	uint32_t sizes[2] = {htobe32(cycle), htobe32(line)};

	they_write(version, 16);
	they_say(sizes, sizeof(sizes));
	they_write(mtu, 2);
}

static void
they_greet(unsigned n)
{
	while (n--)
		they_write(THEIR_ADDRESS, 108);
}

static void
they_report(uint64_t size, uint64_t count)
{
	uint64_t results[5] = {htobe64(size), htobe64(count)};

	they_say(results, sizeof(results));
}

static void
we_began(void)
{
	we_wrote("6.06", 16);
	we_said(4096, 4);
	we_said(64, 4);
	we_wrote("5", 2);
}

static void
we_greeted(unsigned n)
{
	while (n--)
		we_wrote(OUR_ADDRESS, 108);
}

TEST(test_write_bw)
{
	begin("--listen", "write_bw:1000");
	they_begin("6.06", 8192, 128, "3");
	they_greet(4);
	they_report(1000, 5);
	they_greet(1);
	they_write("done", 5);
	assert_int_equal(talk(peer_perftest), 0);
	assert_int_equal(p.mtu, 1024);
	assert_int_equal(p.cycle, 8192);
	assert_int_equal(p.line, 128);
	assert_int_equal(p.qp[0].remote.vaddr, 0x000056193a2f8000);
	assert_int_equal(p.qp[0].remote.rkey, 0xb21);
	assert_int_equal(p.qp[0].remote.out_reads, 0x80);
	assert_memory_equal(p.qp[0].remote.gid.raw, p.attr.gid.raw, 16);
	assert_int_equal(connected, 1);
	assert_int_equal(moved, 1);
	we_began();
	we_greeted(4);
	we_said(1000, 8);
	we_said(5, 8);
	for (unsigned i = 0; i < 3; i++)
		we_said(0, 8);
	we_greeted(1);
	we_wrote("done", 5);
	assert_int_equal(said_bytes, 0);
}

/* The server of a read_bw and the like has no results: those that it sends are ignored. */
TEST(test_read_bw_client)
{
	begin("--connect h", "read_bw:1000");
	they_begin("6.06", 4096, 64, "5");
	they_greet(4);
	they_report(77, 88);
	they_greet(1);
	they_write("done", 5);
	assert_int_equal(talk(peer_perftest), 0);
	assert_int_equal(p.mtu, 4096);
	we_began();
	we_greeted(4);
	said_bytes -= 40;
	memmove(said, said + 40, said_bytes);
	we_greeted(1);
	we_wrote("done", 5);
	assert_int_equal(said_bytes, 0);
}

TEST(test_latency)
{
	begin("--listen", "read_lat");
	they_begin("6.06", 4096, 64, "5");
	they_greet(5);
	they_write("done", 5);
	assert_int_equal(talk(peer_perftest), 0);
	we_began();
	we_greeted(5);
	we_wrote("done", 5);
	assert_int_equal(said_bytes, 0);

	begin("--listen", "write_lat"); /* goes without a word */
	they_begin("6.06", 4096, 64, "5");
	they_greet(4);
	assert_int_equal(talk(peer_perftest), 0);
	we_began();
	we_greeted(4);
	assert_int_equal(said_bytes, 0);
}

/* Messages in this order, the same from both ends: addresses by queue pair, results, farewell. */
struct order {
	const char *run, *begin, *each, *end; /* `each` for every size */
	unsigned sizes;
};

static void
they_follow(const char *order, unsigned size)
{
	for (; *order; order++) {
		char text[108];

		if (*order == 'R') {
			they_report(size, p.count * p.run.qps);
		} else if (*order == 'd') {
			they_write("done", 5);
		} else {
			snprintf(text, sizeof(text), "%s", THEIR_ADDRESS);
			text[15] = (char)('a' + *order - '0'); /* of 00001a */
			they_write(text, sizeof(text));
		}
	}
}

static void
we_followed(const char *order, unsigned size)
{
	char address[sizeof(OUR_ADDRESS)];

	for (; *order; order++) {
		if (*order == 'R') {
			we_said(size, 8);
			we_said(p.count * p.run.qps, 8);
			for (unsigned i = 2; i < 5; i++)
				we_said(0, 8);
		} else if (*order == 'd') {
			we_wrote("done", 5);
		} else {
			snprintf(address, sizeof(address), "0003:0010:%06x%s",
				 0xabcdef + (unsigned)(*order - '0'), OUR_ADDRESS + 16);
			we_wrote(address, 108);
		}
	}
}

/* Taken from perftest's programs with these options, at both ends. */
static const struct order orders[] = {
    {"send_bw:1000", "0000", "", "0d", 1},
    {"send_bw:1000+b", "0000", "R", "0d", 1},
    {"send_bw+a", "000", "00", "0d", 23},
    {"send_bw+a+b", "000", "0R0", "0d", 23},
    {"ud_send_bw+a", "000", "00", "0d", 10}, /* as far as the MTU goes */
    {"send_bw:1000+q4", "0123001230", "", "0d", 1},
    {"send_bw:1000+reversed", "0000", "", "0d", 1},
    {"send_bw:1000+D3", "0000", "", "0d", 1},
    {"send_bw:1000+D3+b", "0000", "", "0d", 1},
    {"send_lat+a", "000", "0", "0d", 23},
    {"send_lat:1000+D3", "0000", "", "0d", 1},
    {"write_bw:1000+b", "0000", "R", "0d", 1},
    {"write_bw+a", "0000", "", "R0d", 23},
    {"write_bw+a+b", "000", "00R", "0d", 23},
    {"write_bw:1000+q4", "0123012300", "R", "0d", 1},
    {"write_bw:1000+reversed", "0000", "R", "0d", 1},
    {"write_bw:1000+D3+b", "0000", "R", "0d", 1},
    {"write_lat+a", "0000", "", "", 23},
    {"read_bw+a", "0000", "", "R0d", 23},
    {"read_lat+a", "0000", "", "0d", 23},
    {"read_lat:1000+D3", "0000", "", "0d", 1},
    {"atomic_bw+q4", "0123012300", "R", "0d", 1},
};

TEST(test_orders)
{
	for (unsigned i = 0; i < 2 * sizeof(orders) / sizeof(orders[0]); i++) {
		const struct order *order = &orders[i / 2];
		unsigned first, size;
		int rc;

		begin(i % 2 ? "--connect h" : "--listen", order->run);
		if (p.run.test->ud)
			p.attr.mtu = 1024;
		first = size = p.run.all ? 2 : p.run.size;
		they_begin("6.06", 4096, 64, "5");
		they_follow(order->begin, 0);
		for (unsigned k = 0; k < order->sizes; k++, size *= 2)
			they_follow(order->each, size);
		they_follow(order->end, size / 2);
		rc = talk(peer_perftest);
		/* nothing was written, and that is seen */
		if (rc != 0 && !(rc == -EBADMSG && strstr(p.error, "not")))
			fail_msg("%s: %s", order->run, p.error);
		assert_int_equal(moved, order->sizes);
		assert_int_equal(connected, p.run.qps);
		we_wrote("6.06", 16);
		we_said(4096, 4);
		we_said(64, 4);
		we_wrote(p.run.test->ud ? "3" : "5", 2);
		we_followed(order->begin, 0);
		for (unsigned k = 0; k < order->sizes; k++, first *= 2)
			we_followed(order->each, first);
		we_followed(order->end, first / 2);
		assert_int_equal(said_bytes, 0);
	}
}

/* Other options of the other program are found at once, and named. */
TEST(test_mismatches)
{
	static const struct {
		const char *run, *says, *address, *named;
	} rows[] = {
	    {"write_bw:1000", "01", NULL, "+qN"},
	    {"send_bw:1000", "01", NULL, "+qN"},
	    {"write_bw:1000+q4", "00", NULL, "+qN"},
	    {"send_bw:1000+q2", "0102", NULL, "+qN"},
	    {"send_bw", "",
	     "0000:0001:00001a:57b251:00000b21:000056193a2f8000:" COLONS ":00000007:", "-c XRC"},
	    {"send_bw", "",
	     "0000:0001:00001a:57b251:00000b21:000056193a2f8000:fe:80:00:00:00:00:00:00:00:00:00:"
	     "00:0a:00:00:01:00000000:",
	     "IPv6"},
	};

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		begin("--listen", rows[i].run);
		they_begin("6.06", 4096, 64, "5");
		if (rows[i].address)
			they_write(rows[i].address, 108);
		they_follow(rows[i].says, 0);
		assert_int_equal(talk(peer_perftest), -EPROTO);
		assert_non_null(strstr(p.error, rows[i].named));
		assert_non_null(strstr(p.error, "; "));
	}
}

static int
try_begin(const char *run, const char *version, uint32_t cycle, uint32_t line, const char *mtu,
	  const char *address)
{
	begin("--listen", run);
	they_begin(version, cycle, line, mtu);
	they_write(address, 108);
	return talk(peer_perftest);
}

TEST(test_bad_perftest)
{
	assert_int_equal(try_begin("send_bw", "5.33", 4096, 64, "3", THEIR_ADDRESS), -EPROTO);
	assert_int_equal(try_begin("send_bw", "", 4096, 64, "3", THEIR_ADDRESS), -EPROTO);
	assert_int_equal(try_begin("send_bw", "6.06", 1u << 30, 64, "3", THEIR_ADDRESS), -EPROTO);
	assert_int_equal(try_begin("send_bw", "6.06", 4097, 64, "3", THEIR_ADDRESS), -EPROTO);
	assert_int_equal(try_begin("send_bw", "6.06", 4096, 65, "3", THEIR_ADDRESS), -EPROTO);
	assert_int_equal(try_begin("send_bw", "6.06", 4096, 64, "0", THEIR_ADDRESS), -EPROTO);
	assert_int_equal(try_begin("send_bw", "6.06", 4096, 64, "6", THEIR_ADDRESS), -EPROTO);
	assert_int_equal(try_begin("send_bw", "6.06", 4096, 64, "3", "done"), -EPROTO);
	assert_int_equal(try_begin("send_bw", "6.06", 4096, 64, "3",
				   "0000:0080:00001a:57b251:00000b21:000056193a2f8000:00:00"),
			 -EPROTO);
	assert_int_equal(try_begin("ud_send_bw:1025", "6.06", 4096, 64, "3", THEIR_ADDRESS),
			 -EMSGSIZE);
	/* and no more after the first address */
	assert_int_equal(try_begin("send_bw", "6.06", 4096, 64, "3", THEIR_ADDRESS), -EPIPE);
	begin("--listen", "write_bw:1000");
	they_begin("6.06", 4096, 64, "3");
	they_greet(4);
	they_report(1000, 6); /* one more than we know of */
	assert_int_equal(talk(peer_perftest), -EBADMSG);
	assert_non_null(strstr(p.error, "; "));
}

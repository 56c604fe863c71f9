/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weir-roce-peer without a NIC: its options, what it says and understands over TCP, and what it
 * finds out about memory. What the other programs say was taken from them.
 */
#include "tools/roce_peer/roce_peer.h"

#include "tools/tool.h"
#include "worlds/words.h"

#include <endian.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define GID "00000000000000000000ffff0a000001"
#define COLONS "00:00:00:00:00:00:00:00:00:00:ff:ff:0a:00:00:01"
#define THEIR_LINE "0000:000012:6b2c5a:" GID
#define THEIR_ADDRESS "0000:0080:00001a:57b251:00000b21:000056193a2f8000:" COLONS ":00000000:"
#define OUR_LINE "0003:abcdef:fffff8:" GID
#define OUR_ADDRESS "0003:0010:abcdef:fffff8:00c0ffee:1122334455667788:" COLONS ":00000000:"

static struct peer p;
static struct peer_options o;
static uint8_t memory[PEER_SIZE_MAX + 4 * PEER_CYCLE_MAX];
static char said[65536]; /* by us */
static size_t said_bytes;
static uint32_t connected, moved, lingered;

/* In the place of the NIC. */
int
peer_fail(struct peer *q, int rc, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(q->error, sizeof(q->error), format, args);
	va_end(args);
	return rc;
}

uint64_t
peer_now(void)
{
	return 1;
}

int
peer_turn(struct peer *q, struct nic_wc *wc)
{
	(void)q;
	(void)wc;
	fail_msg("there is nothing to wait for");
	return -EIO;
}

int
peer_turn_aside(struct peer *q)
{
	(void)q;
	return 0;
}

int
peer_turn_before(struct peer *q, bool first)
{
	(void)q;
	(void)first;
	return 0;
}

int
peer_reuse(struct peer *q, const struct nic_wc *wc)
{
	(void)q;
	(void)wc;
	return 0;
}

int
peer_send(struct peer *q, struct peer_qp *qp)
{
	(void)q;
	(void)qp;
	return 0;
}

int
peer_linger(struct peer *q)
{
	(void)q;
	lingered++;
	return 0;
}

int
peer_prepare(struct peer *q, unsigned access)
{
	(void)access;
	q->qps = q->run.qps;
	q->region_bytes = q->cycle > peer_step(q) ? q->cycle : peer_step(q);
	peer_prime(q);
	return 0;
}

void
peer_release(struct peer *q)
{
	(void)q;
}

void
peer_own_address(const struct peer *q, uint32_t i, struct peer_address *a)
{
	*a = (struct peer_address){.lid = 3,
				   .out_reads = 16,
				   .qpn = 0xabcdef + i,
				   .psn = 0xfffff8,
				   .rkey = 0xc0ffee,
				   .vaddr = 0x1122334455667788,
				   .gid = q->attr.gid};
}

int
peer_connect(struct peer *q, uint32_t i)
{
	(void)q;
	(void)i;
	connected++;
	return 0;
}

int
peer_move(struct peer *q)
{
	(void)q;
	moved++;
	return 0;
}

/* Options. */
static char reason[256];

static int
parse(const char *words)
{
	char *argv[WORDS_MAX];
	int argc = words_split("weir-roce-peer", words, argv), rc;

	reason[0] = '\0';
	rc = peer_options_parse(&o, argc, argv, reason, sizeof(reason));
	assert_true(!rc || strstr(reason, "; ") || strstr(reason, " (expected "));
	return rc;
}

#define NIC "--nic roce:net_ring0,ip=10.0.0.1/24 "

static void
test_options(void **state)
{
	(void)state;
	assert_int_equal(parse(NIC "--listen -t rc_pingpong,send_bw:1k,atomic_lat"), 0);
	assert_int_equal(o.runs, 3);
	assert_string_equal(o.run[1].test->name, "send_bw");
	assert_int_equal(o.run[0].size, 4096);
	assert_int_equal(o.run[1].size, 1024);
	assert_int_equal(o.run[2].size, 8);
	assert_int_equal(o.count, 0);
	assert_int_equal(o.mtu, 1024);
	assert_int_equal(o.qps, 16);
	assert_int_equal(o.port, 18515);
	assert_int_equal(parse(NIC "--connect ::1 -t cas_bw -n 7 -m 4096 -q 256 --port 9 "
				   "--patience 3"),
			 0);
	assert_int_equal(o.count, 7);
	assert_int_equal(o.mtu, 4096);
	assert_int_equal(o.qps, 256);
	assert_int_equal(o.port, 9);
	assert_int_equal(o.patience, 3);
}

static void
test_run_options(void **state)
{
	(void)state;
	assert_int_equal(parse(NIC "--listen -t send_bw:1k+b+q4,write_bw+a,read_bw+D3+reversed"),
			 0);
	assert_int_equal(o.run[0].size, 1024);
	assert_int_equal(o.run[0].qps, 4);
	assert_true(o.run[0].both && !o.run[0].all && !o.run[0].reversed && !o.run[0].seconds);
	assert_true(o.run[1].all && !o.run[1].both);
	assert_int_equal(o.run[1].size, 8 << 20);
	assert_int_equal(o.run[1].qps, 1);
	assert_true(o.run[2].reversed);
	assert_int_equal(o.run[2].seconds, 3);
	assert_int_equal(parse(NIC "--listen -q 5 -t rc_pingpong,srq_pingpong"), 0);
	assert_int_equal(o.run[0].qps, 1);
	assert_int_equal(o.run[1].qps, 5);
}

/* What is not offered is refused by its name, and what to do is said. */
static void
test_refused_options(void **state)
{
	static const struct {
		const char *run, *named;
	} rows[] = {
	    {"send_bw+cUC", "UC is not offered; leave -c UC out"},
	    {"write_bw+cXRC", "XRC is not offered; leave -c XRC out"},
	    {"send_bw+cUD", "give ud_send_bw"},
	    {"read_bw+R", "rdma_cm is not offered; leave -R out"},
	    {"read_bw:1k+q2+z", "rdma_cm is not offered; leave -z out"},
	    {"write_lat+odp", "ODP"},
	    {"rc_pingpong+t", "timestamps"},
	    {"send_bw+e", "leave it out here"},
	    {"read_bw+o1", "leave it out here"},
	    {"send_bw+ipv6", "ip=ADDR/LEN"},
	    {"uc_pingpong", "UC is not offered; give rc_pingpong"},
	    {"send_bw+x", "expected a, b, qN"},
	    {"send_bw+", "expected a, b, qN"},
	    {"send_bw+q0", "q256"},
	    {"send_bw+D", "D3600"},
	    {"send_lat+b", "latency"},
	    {"write_lat+q2", "latency"},
	    {"read_lat+reversed", "latency"},
	    {"atomic_bw+a", "atomics"},
	    {"send_bw+a+D3", "-D"},
	    {"send_bw:1k+a", "all sizes"},
	    {"send_bw+b+reversed", "exclude"},
	    {"rc_pingpong+a", "ping-pongs"},
	    {"srq_pingpong+b", "ping-pongs"},
	    {"ud_pingpong+q2", "ping-pongs"},
	};
	char words[128];

	(void)state;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		snprintf(words, sizeof(words), NIC "--listen -t send_bw,%s", rows[i].run);
		assert_int_equal(parse(words), -EINVAL);
		if (!strstr(reason, rows[i].named))
			fail_msg("%s: %s", rows[i].run, reason);
	}
}

static void
test_bad_options(void **state)
{
	static const char *const bad[] = {
	    "--listen -t rc_pingpong",
	    NIC "-t rc_pingpong",
	    NIC "--listen --connect h -t rc_pingpong",
	    NIC "--listen",
	    NIC "--listen -t",
	    NIC "--listen -t pingpong",
	    NIC "--listen -t rc_pingpong,",
	    NIC "--listen -t rc_pingpong:",
	    NIC "--listen -t rc_pingpong:0",
	    NIC "--listen -t rc_pingpong:9m",
	    NIC "--listen -t rc_pingpong:1111111111111111111111111",
	    NIC "--listen -t atomic_bw:16",
	    NIC "--listen -t send_bw -n 4",
	    NIC "--listen -t send_bw -m 1000",
	    NIC "--listen -t send_bw -q 257",
	    NIC "--listen -t send_bw --port 65280",
	    NIC "--listen -t send_bw --patience 0",
	    NIC "--listen -t send_bw --fast",
	    NIC "--listen -t send_bw more",
	};
	uint64_t n;

	(void)state;
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (parse(bad[i]) != -EINVAL)
			fail_msg("accepted: %s", bad[i]);
	/* 2^44 m are 2^64 */
	assert_int_equal(option_number("17592186044416m", true, 0, 1u << 30, &n), -EINVAL);
}

/* A conversation: what the other program says, all at once, and what it hears of us. */
static char script[65536];
static size_t script_bytes;

static void
begin(const char *role, const char *run)
{
	char words[128];

	snprintf(words, sizeof(words), NIC "%s -n 5 -q 3 -t %s", role, run);
	assert_int_equal(parse(words), 0);
	memset(&p, 0, sizeof(p));
	p.options = &o;
	p.run = o.run[0];
	p.count = 5;
	p.attr.mtu = 4096;
	p.attr.gid.raw[10] = p.attr.gid.raw[11] = 0xff;
	p.attr.gid.raw[12] = 10;
	p.attr.gid.raw[15] = 1;
	p.cycle = p.line = 64;
	p.out = memory;
	p.region = memory + PEER_CYCLE_MAX + PEER_MARGIN;
	script_bytes = said_bytes = connected = moved = lingered = 0;
}

static void
they_say(const void *data, size_t n)
{
	memcpy(script + script_bytes, data, n);
	script_bytes += n;
}

/* With what fills it up to `n` bytes. */
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

/* Takes what we said next off: n bytes that begin with the text and a 0. */
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

static void
test_line(void **state)
{
	(void)state;
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
static void
test_many_lines(void **state)
{
	(void)state;
	begin("--listen", "srq_pingpong");
	p.count = 0;
	for (unsigned i = 0; i < 256; i++)
		they_write(THEIR_LINE, 52);
	they_write("done", 5);
	assert_int_equal(talk(peer_pingpong), 0);
	assert_int_equal(said_bytes, 256 * 52);
	assert_int_equal(connected, 3);
}

static void
test_bad_lines(void **state)
{
	static const char *const bad[] = {"",
					  "done",
					  "0000:000012:6b2c5a:" /* no GID */,
					  "0000:000012:6b2c5a:00000000000000000000ffff0a00000",
					  "0000:000012:6b2c5a:00000000000000000000ffff0a00000x",
					  "zzzz:000012:6b2c5a:" GID};

	(void)state;
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

/* What perftest says before anything moves. */
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

static void
test_write_bw(void **state)
{
	(void)state;
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

/* The server of a read_bw and the like has no results: what it says of them is no matter. */
static void
test_read_bw_client(void **state)
{
	(void)state;
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

static void
test_latency(void **state)
{
	(void)state;
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

/* Who says what, in this order, both the same: addresses by queue pair, results, the farewell. */
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

static void
test_orders(void **state)
{
	(void)state;
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

/* What the other program was started with is seen at once, and named. */
static void
test_mismatches(void **state)
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

	(void)state;
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

static void
test_bad_perftest(void **state)
{
	(void)state;
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

/* Contents. */
static void
prime(const char *role, const char *run)
{
	begin(role, run);
	p.cycle = 4096;
	peer_prepare(&p, 0);
}

static void
test_pattern(void **state)
{
	static uint8_t data[9000];

	(void)state;
	peer_fill(data, sizeof(data), 3);
	assert_true(peer_filled(data, sizeof(data), 3));
	assert_false(peer_filled(data, sizeof(data), 4));
	assert_int_equal(data[0] | data[4096] | data[8192], 0);
	data[8999] ^= 1;
	assert_false(peer_filled(data, sizeof(data), 3));
}

/* 1000 bytes at 0, 1024, 2048, 3072, and no other. */
static void
test_written(void **state)
{
	(void)state;
	prime("--listen", "write_bw:1000");
	assert_int_equal(p.region_bytes, 4096);
	assert_int_equal(peer_places(&p), 4);
	assert_int_equal(peer_step(&p), 1024);
	assert_int_equal(peer_inspect(&p), -EBADMSG); /* nothing was written */
	for (unsigned i = 0; i < 4; i++)
		memset(p.region + i * 1024, 7, 1000);
	assert_int_equal(peer_inspect(&p), 0);
	assert_int_equal(p.verified, 4096 - 4 * 24 + 4096 - 4 * 24);
	p.region[1000] = 7;
	assert_int_equal(peer_inspect(&p), -EBADMSG);

	prime("--connect h", "write_bw:1000"); /* who asks is not written to */
	assert_int_equal(peer_inspect(&p), 0);
	p.region[0] = 7;
	assert_int_equal(peer_inspect(&p), -EBADMSG);
}

static void
add(unsigned at, uint64_t n)
{
	uint64_t word;

	memcpy(&word, p.region + at, sizeof(word));
	word += n;
	memcpy(p.region + at, &word, sizeof(word));
}

/* Each queue pair has a region of its own, and what is beside any of them counts. */
static void
test_regions(void **state)
{
	(void)state;
	prime("--listen", "write_bw:5000+q3");
	assert_int_equal(p.region_bytes, 5056);
	assert_int_equal(peer_region(&p, &p.qp[2]), 2 * 5056);
	for (unsigned i = 0; i < 3; i++)
		memset(p.region + i * 5056, 7, 5000);
	assert_int_equal(peer_inspect(&p), 0);
	assert_int_equal(p.verified, 3 * 5000);
	p.region[2 * 5056 + 5000] = 7;
	assert_int_equal(peer_inspect(&p), -EBADMSG);

	prime("--connect h", "write_bw:5000+b"); /* both are written to */
	assert_int_equal(peer_inspect(&p), -EBADMSG);
	memset(p.region, 7, 5000);
	assert_int_equal(peer_inspect(&p), 0);

	prime("--listen", "write_bw:5000+reversed"); /* the server is not */
	assert_int_equal(peer_inspect(&p), 0);
	p.region[0] = 7;
	assert_int_equal(peer_inspect(&p), -EBADMSG);

	prime("--listen", "atomic_bw+q2");
	for (unsigned i = 0; i < 2; i++)
		add(i * 4096, 5);
	assert_int_equal(peer_inspect(&p), 0);
	add(4096, 1);
	assert_int_equal(peer_inspect(&p), -EBADMSG);
	prime("--listen", "atomic_bw+D1"); /* nobody says how many */
	assert_int_equal(peer_inspect(&p), -EBADMSG);
	add(0, 77);
	assert_int_equal(peer_inspect(&p), 0);
}

static void
test_margins(void **state)
{
	static const int at[] = {-1, -4096, 5056, 5056 + 4095};

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		prime("--listen", "write_bw:5000");
		assert_int_equal(p.region_bytes, 5056);
		assert_int_equal(peer_places(&p), 1);
		memset(p.region, 7, 5000);
		assert_int_equal(peer_inspect(&p), 0);
		p.region[at[i]] = 7;
		assert_int_equal(peer_inspect(&p), -EBADMSG);
	}
	prime("--listen", "read_bw:5000");
	assert_int_equal(peer_inspect(&p), 0);
	p.region[4999]++;
	assert_int_equal(peer_inspect(&p), -EBADMSG);
}

static void
test_atomics(void **state)
{
	(void)state;
	prime("--listen", "atomic_bw");
	add(0, 3);
	add(64, 1);
	assert_int_equal(peer_inspect(&p), -EBADMSG); /* 4 of 5 */
	add(128, 1);
	assert_int_equal(peer_inspect(&p), 0);
	add(64, 1);
	assert_int_equal(peer_inspect(&p), -EBADMSG); /* 6 of 5 */
	prime("--listen", "atomic_bw");
	add(8, 5); /* where none is done */
	assert_int_equal(peer_inspect(&p), -EBADMSG);
	prime("--listen", "cas_bw");
	assert_int_equal(peer_inspect(&p), 0);
	add(0, 1);
	assert_int_equal(peer_inspect(&p), -EBADMSG);
	prime("--connect h", "atomic_bw");
	assert_int_equal(peer_inspect(&p), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_options),	   cmocka_unit_test(test_bad_options),
	    cmocka_unit_test(test_run_options),	   cmocka_unit_test(test_refused_options),
	    cmocka_unit_test(test_orders),	   cmocka_unit_test(test_mismatches),
	    cmocka_unit_test(test_line),	   cmocka_unit_test(test_many_lines),
	    cmocka_unit_test(test_bad_lines),	   cmocka_unit_test(test_write_bw),
	    cmocka_unit_test(test_read_bw_client), cmocka_unit_test(test_latency),
	    cmocka_unit_test(test_bad_perftest),   cmocka_unit_test(test_pattern),
	    cmocka_unit_test(test_written),	   cmocka_unit_test(test_margins),
	    cmocka_unit_test(test_regions),	   cmocka_unit_test(test_atomics),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that attaches and then breaks every rule it can: what the data plane and local peers
 * must survive. It speaks the session protocol itself, so that nothing of the library protects the
 * victim.
 *
 *   hostile INSTANCE MODE SECONDS [SEED] [ADDRESS]
 *
 * Each mode repeats until the time is over, attaching again whenever the data plane has thrown it
 * out. It takes little CPU itself, so that what others lose they lose to what it does. Exit 0: the
 * time is over and the data plane still answers a fresh attach. 1: it doesn't. 2: usage.
 */
#define _GNU_SOURCE
#include "hostile.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static const char *instance, *target;
static uint64_t rng_state;

uint64_t
rng(void)
{
	rng_state ^= rng_state << 13;
	rng_state ^= rng_state >> 7;
	rng_state ^= rng_state << 17;
	return rng_state;
}

double
seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static int
dial(void)
{
	const char *dir = getenv("WEIR_RUN_DIR");
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	snprintf(sun.sun_path, sizeof(sun.sun_path), "%s/%s/session.sock", dir ? dir : "/run/weir",
		 instance);
	if (connect(fd, (struct sockaddr *)&sun, sizeof(sun)) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

ssize_t
ask(int sock, const void *request, size_t length, struct weir_session_msg *reply,
    int fds[WEIR_SESSION_FDS])
{
	union {
		char buf[CMSG_SPACE(WEIR_SESSION_FDS * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {.iov_base = reply, .iov_len = sizeof(*reply)};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.buf,
			     .msg_controllen = sizeof(control.buf)};
	struct pollfd pfd = {.fd = sock, .events = POLLIN};
	struct cmsghdr *c;
	ssize_t n;

	fds[0] = fds[1] = fds[2] = -1;
	if (send(sock, request, length, MSG_NOSIGNAL) < 0 || poll(&pfd, 1, 5000) != 1)
		return -1;
	n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	if (n <= 0)
		return -1;
	c = CMSG_FIRSTHDR(&msg);
	if (c && c->cmsg_type == SCM_RIGHTS)
		memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
	return n;
}

static void
drop(struct victim *v)
{
	int fds[] = {v->sock,	    v->arena_fd,	 v->doorbell,	 v->ring,
		     v->segment_fd, v->segment_doorbell, v->segment_ring};

	if (v->arena)
		munmap(v->arena, v->geometry.bytes);
	if (v->segment)
		munmap(v->segment, v->segment_geometry.bytes);
	for (unsigned i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	*v = (struct victim){-1, -1, -1, -1, -1, -1, -1};
}

static int
attach(struct victim *v)
{
	struct weir_session_msg m = {.type = WEIR_MSG_HELLO}, r;
	int fds[WEIR_SESSION_FDS];

	*v = (struct victim){-1, -1, -1, -1, -1, -1, -1};
	v->sock = dial();
	if (v->sock < 0)
		return -1;
	m.length = weir_session_length(m.type);
	m.hello.magic = WEIR_SESSION_MAGIC;
	m.hello.version_min = WEIR_SESSION_VERSION_MIN;
	m.hello.version_max = WEIR_SESSION_VERSION_MAX;
	memcpy(m.hello.name, "hostile", sizeof("hostile"));
	if (ask(v->sock, &m, m.length, &r, fds) < 0 || r.type != WEIR_MSG_WELCOME)
		goto err;
	v->arena_fd = fds[0];
	v->geometry = r.welcome.geometry;
	v->arena = mmap(NULL, v->geometry.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	if (v->arena == MAP_FAILED) {
		v->arena = NULL;
		goto err;
	}
	memset(&m, 0, sizeof(m));
	m.type = WEIR_MSG_ADD_CHANNEL;
	m.length = weir_session_length(m.type);
	m.add_channel.engine = UINT32_MAX;
	if (ask(v->sock, &m, m.length, &r, fds) < 0 || r.type != WEIR_MSG_CHANNEL)
		goto err;
	v->channel = r.channel.channel;
	v->engine = r.channel.engine;
	v->doorbell = fds[0];
	v->ring = fds[1];
	return 0;
err:
	drop(v);
	return -1;
}

struct weir_channel_head *
channel(struct victim *v)
{
	return (struct weir_channel_head *)(v->arena +
					    weir_arena_channel(&v->geometry, v->channel));
}

int
open_conn(struct victim *v)
{
	struct weir_session_msg m = {.type = WEIR_MSG_CONNECT}, r;
	uint32_t segment;
	int fds[WEIR_SESSION_FDS];

	m.length = weir_session_length(m.type);
	m.connect.channel = v->channel;
	if (!target || weir_address_parse(target, &m.connect.address) < 0)
		return -1;
	if (ask(v->sock, &m, m.length, &r, fds) < 0 || r.type != WEIR_MSG_CONNECTING)
		return -1;
	v->vqpn = r.connecting.vqpn;
	v->peer_vqpn = r.connecting.peer_vqpn;
	segment = r.connecting.segment;
	if (!segment)
		return 0;
	memset(&m, 0, sizeof(m));
	m.type = WEIR_MSG_SEGMENT;
	m.length = weir_session_length(m.type);
	m.segment.segment = segment;
	if (ask(v->sock, &m, m.length, &r, fds) < 0 || r.type != WEIR_MSG_SEGMENT_MAP)
		return -1;
	v->segment_fd = fds[0];
	v->segment_doorbell = fds[1];
	v->segment_ring = fds[2];
	v->segment_geometry = r.segment_map.geometry;
	v->side = r.segment_map.side;
	v->segment =
	    mmap(NULL, v->segment_geometry.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	if (v->segment == MAP_FAILED)
		v->segment = NULL;
	return v->segment ? 0 : -1;
}

void
start_tx(struct victim *v)
{
	struct weir_channel_head *h = channel(v);

	weir_ring_init(&v->tx, h + 1, v->geometry.ring_slots, &h->tx_tail, true);
	weir_ring_init(&v->returns, (struct weir_slot *)(h + 1) + 2 * v->geometry.ring_slots,
		       WEIR_RETURN_SLOTS, &h->return_tail, true);
}

static const struct {
	const char *name;
	void (*run)(struct victim *v);
} modes[] = {
    {"garbage", do_garbage},   {"cursors", do_cursors},
    {"scribble", do_scribble}, {"payload", do_payload},
    {"punch", do_punch},       {"doorbell", do_doorbell},
    {"messages", do_messages}, {"segment", do_segment},
    {"flags", do_flags},       {"descriptors", do_descriptors},
    {"requests", do_requests}, {"rewrite", do_rewrite},
    {"adopt", do_adopt},       {"holes", do_holes},
    {"junk", do_junk},
};

static int
usage(void)
{
	fprintf(stderr, "usage: hostile INSTANCE MODE|all SECONDS [SEED] [ADDRESS]; modes:");
	for (unsigned i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		fprintf(stderr, " %s", modes[i].name);
	fprintf(stderr, "\n");
	return 2;
}

int
main(int argc, char **argv)
{
	unsigned count = sizeof(modes) / sizeof(modes[0]), rounds = 0, failures = 0, i;
	struct victim v;
	double end;

	if (argc < 4)
		return usage();
	instance = argv[1];
	end = seconds() + strtod(argv[3], NULL);
	rng_state = argc > 4 ? strtoull(argv[4], NULL, 0) : 1;
	rng_state = rng_state * 0x9e3779b97f4a7c15ull + 1;
	target = argc > 5 ? argv[5] : NULL;
	for (i = 0; i < count && strcmp(argv[2], modes[i].name); i++)
		;
	if (i == count && strcmp(argv[2], "all"))
		return usage();
	while ((seconds() < end || !rounds) && failures < 200) {
		if (attach(&v) < 0) {
			failures++;
			usleep(20000);
			continue;
		}
		failures = 0;
		modes[i < count ? i : rounds % count].run(&v);
		rounds++;
		drop(&v);
	}
	for (unsigned k = 0; k < 100 && attach(&v) < 0; k++)
		usleep(20000);
	if (v.sock < 0) {
		fprintf(stderr, "hostile: %s: the data plane no longer lets anybody attach\n",
			argv[2]);
		return 1;
	}
	drop(&v);
	printf("hostile: %s: %u rounds, seed %s\n", argv[2], rounds, argc > 4 ? argv[4] : "1");
	return rounds ? 0 : 1;
}

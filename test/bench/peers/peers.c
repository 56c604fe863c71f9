/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * peer-LAYER lat|bw SIZE SECONDS host|nodes: the same work over each message layer.
 *
 * lat: rank 0 sends a message and waits for the answer; the mean round trip in µs.
 * bw: rank 0 sends messages out of a few buffers in turn, as many under way as buffers; rank 1
 * receives each into one of as many buffers. Rounds end with an answer, and the last one counts.
 * Prints {"us": …} or {"msgs_per_s": …, "bytes_per_s": …}.
 */
#define _GNU_SOURCE
#include "peer.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BUFFERS_BYTES (4u << 20) /* of all buffers of a rank together, if messages are smaller */
#define ROUND_MESSAGES 65536u	 /* per round of bw, at most */
#define ROUND_BYTES (256u << 20) /* per round of bw, at most, but at least 8 messages */
#define LAT_BATCH 512u		 /* round trips per look at the clock */

/* First word of a round's header: whether a round follows, and how many messages it has. */
#define END 0u

void
peer_die(const char *what, const char *reason)
{
	fprintf(stderr, "peer: %s%s%s\n", what, reason ? ": " : "", reason ? reason : "");
	exit(1);
}

void
peer_exchange(int pipe, const void *own, void *other, size_t size)
{
	size_t got = 0;

	if (send(pipe, own, size, 0) != (ssize_t)size)
		peer_die("send", strerror(errno));
	while (got < size) {
		ssize_t n = recv(pipe, (char *)other + got, size - got, 0);

		if (n <= 0)
			peer_die("recv", n ? strerror(errno) : "the other rank has ended");
		got += (size_t)n;
	}
}

static double
seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void
put(const void *buf, size_t size)
{
	peer.send(0, buf, size);
	peer.sent(0);
}

static void
get(void *buf, size_t size)
{
	peer.recv(0, buf, size);
	peer.received(0);
}

/* A page-aligned buffer whose pages are there. */
static void *
buffer(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (p == MAP_FAILED)
		peer_die("mmap", strerror(errno));
	memset(p, 1, size);
	return p;
}

/* A batch of round trips, rank 1 answering; the first word of each message says how many follow. */
static void
lat_batch(int rank, uint8_t *buf, size_t size)
{
	for (unsigned i = 0; i < LAT_BATCH; i++) {
		if (rank == 0)
			put(buf, size);
		get(buf, size);
		if (rank == 1)
			put(buf, size);
	}
}

static void
lat(int rank, size_t size, double limit)
{
	uint8_t *buf = buffer(size < 8 ? 8 : size);
	uint64_t go = 1, trips = 0;
	double start = 0, took = 0;

	for (unsigned batch = 0; go; batch++) {
		lat_batch(rank, buf, size);
		if (batch == 0) /* warms up */
			start = seconds();
		else
			trips += LAT_BATCH;
		took = seconds() - start;
		if (rank == 0) {
			go = took < limit || !trips;
			put(&go, sizeof(go));
		} else {
			get(&go, sizeof(go));
		}
		if (batch == 0)
			start = seconds();
	}
	if (rank == 0)
		printf("{\"us\": %.4f}\n", 1e6 * took / (double)trips);
}

/* One round: n messages of rank 0 through the slots in turn, then an answer of rank 1. */
static void
bw_round(int rank, uint8_t *const *buf, unsigned slots, size_t size, uint64_t n)
{
	uint64_t word = n;

	if (rank == 0) {
		for (uint64_t i = 0; i < n; i++) {
			if (i >= slots)
				peer.sent((unsigned)(i % slots));
			peer.send((unsigned)(i % slots), buf[i % slots], size);
		}
		for (unsigned s = 0; s < slots && s < n; s++)
			peer.sent(s);
		get(&word, sizeof(word));
		return;
	}
	for (unsigned s = 0; s < slots && s < n; s++)
		peer.recv(s, buf[s], size);
	for (uint64_t i = 0; i < n; i++) {
		peer.received((unsigned)(i % slots));
		if (i + slots < n)
			peer.recv((unsigned)(i % slots), buf[i % slots], size);
	}
	put(&word, sizeof(word));
}

static void
bw(int rank, size_t size, double limit)
{
	uint64_t n = ROUND_BYTES / size < ROUND_MESSAGES ? ROUND_BYTES / size : ROUND_MESSAGES;
	unsigned slots =
	    size * PEER_SLOTS > BUFFERS_BYTES ? (unsigned)(BUFFERS_BYTES / size) : PEER_SLOTS;
	uint8_t *buf[PEER_SLOTS];
	uint64_t messages = 0, header = n < 8 ? 8 : n;
	double start = 0, took = 0;

	slots = slots < 2 ? 2 : slots;
	for (unsigned s = 0; s < slots; s++)
		buf[s] = buffer(size);
	n = header;
	for (unsigned round = 0;; round++) {
		if (rank == 0) {
			header = round < 2 || took < limit ? n : END;
			put(&header, sizeof(header));
		} else {
			get(&header, sizeof(header));
		}
		if (header == END)
			break;
		if (round == 1) /* the first one warms up */
			start = seconds();
		bw_round(rank, buf, slots, size, header);
		if (round > 0) {
			messages += header;
			took = seconds() - start;
		}
	}
	if (rank == 0)
		printf("{\"msgs_per_s\": %.0f, \"bytes_per_s\": %.0f}\n", (double)messages / took,
		       (double)messages * (double)size / took);
}

/* One CPU per rank where there are two. */
static void
pin(int rank)
{
	cpu_set_t allowed, one;
	int cpu = -1;

	sched_getaffinity(0, sizeof(allowed), &allowed);
	for (int k = rank % CPU_COUNT(&allowed); k >= 0; k--)
		do
			cpu++;
		while (!CPU_ISSET(cpu, &allowed));
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	sched_setaffinity(0, sizeof(one), &one);
}

int
main(int argc, char **argv)
{
	static const char usage[] = "usage: peer-LAYER lat|bw SIZE SECONDS host|nodes";
	char *size_end = "", *limit_end = "";
	size_t size = argc == 5 ? strtoul(argv[2], &size_end, 10) : 0;
	double limit = argc == 5 ? strtod(argv[3], &limit_end) : 0;
	int rank = 0, pipe[2] = {-1, -1}, status = 0;
	pid_t child = 0;

	if (*size_end || *limit_end || size < 1 || size > 16 << 20 || !(limit > 0))
		peer_die(usage, NULL);
	if (!peer.launched) {
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pipe))
			peer_die("socketpair", strerror(errno));
		child = fork();
		if (child < 0)
			peer_die("fork", strerror(errno));
		rank = child == 0;
		if (rank == 1 && prctl(PR_SET_PDEATHSIG, SIGKILL))
			peer_die("prctl", strerror(errno));
		pin(rank);
	}
	rank = peer.open(rank, pipe[rank], !strcmp(argv[4], "nodes"));
	if (rank < 0)
		return 1;
	if (peer.launched)
		pin(rank);
	if (!strcmp(argv[1], "lat"))
		lat(rank, size, limit);
	else
		bw(rank, size, limit);
	fflush(stdout);
	peer.close();
	if (child > 0 && (waitpid(child, &status, 0) != child || status))
		peer_die("rank 1 failed", NULL);
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Floods: attaching, holes, keys, segments, memory, slots, lines of the log. */
#define _GNU_SOURCE
#include "hostile.h"

#include "weir/memory.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHANNELS 32u
#define REGIONS 64u
#define SMALL (2u << 20)

/* The time in `more` seconds, or the end of the program if that is earlier. */
static double
until(double more)
{
	double now = seconds(), rest = left();

	return now + (rest < more ? rest : more);
}

void
do_compute(struct victim *v)
{
	while (left() > 0)
		for (unsigned i = 0; i < 100000; i++)
			rng();
}

/* Attaches and detaches. */
void
do_attach(struct victim *v)
{
	double end = until(0.5);

	do {
		if (attach(v, SMALL) == 0)
			tally(1, "attached");
		drop(v);
	} while (seconds() < end);
}

/* Connects and closes without a message. */
void
do_knock(struct victim *v)
{
	double end = until(0.5);
	unsigned n = 0;

	do {
		int fd = dial();

		if (fd >= 0) {
			close(fd);
			n++;
			usleep(100);
		} else if (errno != EAGAIN) {
			tally(1, "not let in (%s)", strerrorname_np(errno));
			usleep(1000);
		}
	} while (seconds() < end);
	tally(n, "connected and left");
}

/* A page of shared memory goes, and comes again when the engine looks. */
static void
punch_page(int fd, uint64_t at)
{
	struct stat st;
	uint64_t page = fstat(fd, &st) ? 4096 : (uint64_t)st.st_blksize;

	if (page < 4096)
		page = 4096;
	if (punch(fd, at / page * page, page))
		tally(1, "holes refused (%s)", strerrorname_np(errno));
	else
		tally(1, "holes");
}

/* Nothing but holes, under rings that the engine polls and memory that it sends from. */
void
do_holes(struct victim *v)
{
	struct weir_session_msg r;
	double end = until(1);
	int region, i;

	open_conn(v);
	start_tx(v);
	region = adopt(v, 1 << 20, 3, &r);
	for (i = 0; seconds() < end && (i % 64 || !ended(v)); i++) {
		punch_page(v->arena_fd, weir_arena_channel(&v->geometry, v->channel));
		if (region >= 0 && i % 8 == 0)
			punch_page(region, rng() % (1 << 20));
		if (i % 8 == 0)
			ring(v);
	}
	if (ended(v))
		tally(1, "sessions ended");
}

/* All keys that a program gets, each for one page. */
void
do_keys(struct victim *v)
{
	struct weir_session_msg r;
	unsigned n = 0;

	while (n < REGIONS && adopt(v, 4096, 3, &r) >= 0)
		n++;
	tally(n, "regions of a page");
	if (n < REGIONS)
		tally(1, "programs refused more");
	hold_session(v);
}

/* Regions as large as a program gets, given back at once, without end; main makes and frees them.
 */
void
do_regions(struct victim *v)
{
	const uint32_t uses = WEIR_ADOPT_SEND | WEIR_ADOPT_RECV | WEIR_ADOPT_EXPOSE;
	struct weir_session_msg r;

	while (left() > 0 && !ended(v)) {
		uint64_t bytes = (64ull << 20) << rng() % 3;
		int fd = adopt(v, bytes, uses | WEIR_ADOPT_NEW | WEIR_ADOPT_HUGE, &r);

		if (fd >= 0) {
			tally(bytes >> 20, "MiB of regions");
			close(fd);
			disown(v, r.region.region);
		} else {
			adopt(v, WEIR_REGION_BYTES_MAX, uses | WEIR_ADOPT_NEW, &r);
			tally(1, "regions refused");
		}
	}
}

static unsigned
add_channels(struct victim *v, uint32_t channels[CHANNELS])
{
	unsigned n = 0;
	int channel;

	channels[n++] = v->channel;
	while (n < CHANNELS && (channel = add_channel(v, UINT32_MAX)) >= 0)
		channels[n++] = (uint32_t)channel;
	return n;
}

/* A segment from each of our channels to ADDRESS. */
void
do_segments(struct victim *v)
{
	uint32_t channels[CHANNELS];
	unsigned n = add_channels(v, channels);
	struct weir_session_msg r;

	for (unsigned i = 0; i < n && !ended(v); i++)
		if (connect_from(v, channels[i], &r) == 0 && r.connecting.segment)
			tally(1, "segments");
	while (left() > 0 && !ended(v))
		usleep(20000);
}

/* ---- memory ---- */

static void
adopt_all(struct victim *v)
{
	uint64_t bytes = WEIR_REGION_BYTES_MAX;
	struct weir_session_msg r;

	while (bytes >= 4096) {
		if (adopt(v, bytes, 3, &r) >= 0)
			tally(bytes >> 10, "KiB adopted");
		else if (ended(v))
			return;
		else
			bytes /= 2;
	}
}

/* Two sessions of ours, a segment from each thread of the one to each of the other. */
static void
segments_between(struct victim *v, struct victim *w)
{
	uint32_t from[CHANNELS], to[CHANNELS];
	unsigned n = add_channels(v, from), k = add_channels(w, to);
	struct weir_session_msg m, r;
	int fds[FDS];

	for (unsigned i = 0; i < k; i++) {
		struct weir_session_msg c = {.type = WEIR_MSG_CONNECT};
		char service[WEIR_SERVICE_MAX];

		snprintf(service, sizeof(service), "hostile-%d-%u", (int)getpid(), i);
		m = (struct weir_session_msg){.type = WEIR_MSG_LISTEN};
		memcpy(m.listen.service, service, sizeof(service));
		for (unsigned e = 0; e < WEIR_ENGINES_MAX; e++)
			m.listen.channel[e] = to[i];
		if (request(w, &m, &r, fds, WEIR_MSG_LISTENING))
			continue;
		for (unsigned j = 0; j < n; j++) {
			c.connect.channel = from[j];
			c.connect.address = (struct weir_address){.kind = WEIR_ADDRESS_NODE};
			target_address(&c.connect.address);
			memcpy(c.connect.address.service, service, sizeof(service));
			if (request(v, &c, &r, fds, WEIR_MSG_CONNECTING) || !r.connecting.segment)
				return;
			m = (struct weir_session_msg){.type = WEIR_MSG_SEGMENT};
			m.segment.segment = r.connecting.segment;
			if (request(v, &m, &r, fds, WEIR_MSG_SEGMENT_MAP) == 0)
				tally(r.segment_map.geometry.bytes >> 10, "KiB of segments");
		}
	}
}

/* All memory that a user gets: arenas, adopted memory, segments; kept until the end. ADDRESS is on
 * this node. */
void
do_memory(struct victim *v)
{
	struct victim w;

	if (attach(v, 16 << 20) || attach(&w, 16 << 20)) {
		usleep(20000);
		return;
	}
	tally((v->geometry.bytes + w.geometry.bytes) >> 10, "KiB of arenas");
	segments_between(v, &w);
	adopt_all(v);
	adopt_all(&w);
	tally(1, "users who have all they get");
	hold();
	munmap(w.arena, w.geometry.bytes);
	close(w.sock);
}

/* ---- slots that do nothing ---- */

struct lines {
	struct weir_ring tx, returns;
};

static void
fill(struct weir_ring *r, uint8_t op, uint32_t vqpn)
{
	if (!weir_ring_refresh(r))
		return;
	while (weir_ring_room(r)) {
		struct weir_slot *s = next_slot(r, op, 0, vqpn, op == WEIR_OP_INLINE ? 8 : 0);

		s->value = 0;
		s->status = s->extra = 0;
		weir_ring_publish(r, 1);
	}
}

/* Full rings on all channels: messages of a connection that is over, CONSUMED without news. */
void
do_stale(struct victim *v)
{
	uint32_t channels[CHANNELS], n = add_channels(v, channels), over;
	struct lines lines[CHANNELS];
	struct weir_session_msg r;
	double end = until(5);

	if (connect_from(v, v->channel, &r) || !r.connecting.vqpn) {
		usleep(20000);
		return;
	}
	over = r.connecting.vqpn;
	start_tx(v);
	close_unused(v, over);
	usleep(50000);
	for (uint32_t i = 0; i < n; i++) {
		struct victim here = *v;

		here.channel = channels[i];
		start_tx(&here);
		lines[i] = (struct lines){here.tx, here.returns};
	}
	lines[0].tx = v->tx;
	open_conn(v);
	for (unsigned turns = 0; seconds() < end && left() > 0 && !ended(v); turns++) {
		for (uint32_t i = 0; i < n; i++) {
			fill(&lines[i].tx, WEIR_OP_INLINE, over);
			fill(&lines[i].returns, WEIR_OP_CONSUMED, turns % 2 ? v->vqpn : over);
		}
		ring(v);
		sched_yield();
	}
	for (uint32_t i = 0; i < n; i++)
		tally(lines[i].tx.pos + lines[i].returns.pos, "slots");
	if (ended(v))
		tally(1, "sessions ended");
}

/* ---- lines of the log ---- */

/* Each ends the session, with a line. */
void
do_log(struct victim *v)
{
	struct weir_slot *s;
	double end = until(1);

	start_tx(v);
	s = weir_ring_at(&v->tx, 0);
	s->op = 255;
	s->vqpn = (uint32_t)rng();
	s->length = 8;
	weir_ring_publish(&v->tx, 1);
	ring(v);
	tally(1, "violations");
	while (seconds() < end && !ended(v))
		usleep(200);
}

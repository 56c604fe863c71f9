/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "plane_real.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#define START_NS 1000000000ull
#define TURN_NS 10000u
#define PASS_NS 1000000u /* at most, behind one turn */
#define QUIET 24u	 /* turns without work after which nothing moves any more */

/* ---- turns ---- */

unsigned
plane_turn_locked(struct plane *p)
{
	unsigned count;

	if (p->down)
		return 0;
	count = (unsigned)p->net->frames.under_way;
	p->net->now += TURN_NS;
	count += plane_mail(p);
	for (uint32_t i = 0; i < p->nodes; i++)
		count += plane_node_turn(&p->node[i]);
	return count;
}

unsigned
plane_turn(struct plane *p)
{
	unsigned count;

	pthread_mutex_lock(&p->lock);
	count = plane_turn_locked(p);
	pthread_mutex_unlock(&p->lock);
	return count;
}

void
plane_impair(struct plane *p, unsigned loss, unsigned dup, unsigned reorder)
{
	pthread_mutex_lock(&p->lock);
	p->net->loss = loss;
	p->net->dup = dup;
	p->net->reorder = reorder;
	pthread_mutex_unlock(&p->lock);
}

void
plane_settle(struct plane *p)
{
	for (uint32_t quiet = 0; quiet < QUIET; quiet++)
		if (plane_turn(p))
			quiet = 0;
}

/* Beside other load turns are rare: while nothing moves, the clock is not slower than the real one,
 * so a test that waits for a timer does not wait for its number of turns. */
static void
pass(struct plane *p, uint64_t ns)
{
	pthread_mutex_lock(&p->lock);
	if (!p->down)
		p->net->now += ns < PASS_NS ? ns : PASS_NS;
	pthread_mutex_unlock(&p->lock);
}

static void *
run(void *arg)
{
	uint64_t last = weir_clock(), now;
	struct plane *p = arg;
	unsigned moved;

	while (!atomic_load(&p->stop)) {
		moved = plane_turn(p);
		sched_yield();
		now = weir_clock();
		if (!moved)
			pass(p, now - last);
		last = now;
	}
	return NULL;
}

void
plane_run(struct plane *p)
{
	atomic_store(&p->stop, false);
	p->running = !pthread_create(&p->thread, NULL, run, p);
}

void
plane_stop(struct plane *p)
{
	if (p->running) {
		atomic_store(&p->stop, true);
		pthread_join(p->thread, NULL);
	}
	p->running = false;
}

void
plane_hold(struct plane *p, bool held)
{
	pthread_mutex_lock(&p->lock); /* no turn goes on that began before */
	atomic_store(&p->held, held);
	pthread_mutex_unlock(&p->lock);
}

/* ---- create and destroy ---- */

static uint32_t or (uint32_t wish, uint32_t otherwise)
{
	return wish ? wish : otherwise;
}

/* The data planes of all nodes begin. */
static void
start(struct plane *p)
{
	const struct roce_config config = {.numa_socket = -1, .mtu = 1024};

	p->lives++;
	p->net = net_create(p->nodes, p->o.engines, &config, p->lives);
	p->net->now = START_NS * p->lives;
	for (uint32_t i = 0; i < p->nodes; i++)
		plane_node_create(p, i);
	if (!p->o.alone)
		plane_join(p);
}

/* They end, whatever they were doing. */
static void
end(struct plane *p)
{
	for (uint32_t i = 0; i < p->nodes; i++)
		plane_node_end(&p->node[i]);
	net_destroy(p->net);
	for (uint32_t i = 0; i < p->nodes; i++)
		plane_node_free(&p->node[i]);
	p->mail = (struct ring){0};
}

struct plane *
plane_create(const struct plane_options *o)
{
	struct plane *p = calloc(1, sizeof(*p));

	assert_non_null(p);
	p->process = getpid();
	if (o)
		p->o = *o;
	p->o.ring_slots = or (p->o.ring_slots, 256);
	p->o.recv_blocks = or (p->o.recv_blocks, 64);
	p->o.send_blocks = or (p->o.send_blocks, 64);
	p->o.channels = or (p->o.channels, 8);
	p->o.window = or (p->o.window, 65536);
	p->o.first = or (p->o.first, 512);
	p->o.engines = or (p->o.engines, 1);
	p->o.answers = or (p->o.answers, 128 << 10);
	p->o.links = or (p->o.links, 16);
	pthread_mutex_init(&p->lock, NULL);
	p->nodes = p->o.nodes ? NET_NODES : 2;
	start(p);
	return p;
}

void
plane_destroy(struct plane *p)
{
	plane_stop(p);
	if (!p->down)
		end(p);
	if (p->segment)
		munmap(p->segment, p->segment_geometry.bytes);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

void
plane_kill(struct plane *p)
{
	pthread_mutex_lock(&p->lock);
	for (uint32_t i = 0; i < p->clients; i++) {
		p->client[i].session = NULL;
		plane_hang_up(&p->client[i]);
	}
	end(p);
	p->down = true;
	pthread_mutex_unlock(&p->lock);
}

void
plane_come_back(struct plane *p)
{
	pthread_mutex_lock(&p->lock);
	start(p);
	p->down = false;
	pthread_mutex_unlock(&p->lock);
}

/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "plane.h"

#include "broker/arena.h"
#include "base/log.h"
#include "base/fail.h"
#include "memory.h"
#include "munmap_guard.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <rte_errno.h>
#include <rte_launch.h>
#include <rte_lcore.h>

#define SESSION_PENDING 4096u
#define REPAIR_TIMEOUT_NS 10000000000ull
#define BURST_NS 500000000ull /* ns of main's CPU: 50 attaches with 64 MiB of hugepages each */

/* ---- calls of the broker ---- */

static struct loop *
loop_of(void *user, uint32_t engine)
{
	struct plane *p = user;

	weir_assert(engine < p->engines);
	return p->engine[engine].loop;
}

static int
broker_command(void *user, uint32_t engine, struct engine_command *command)
{
	return loop_command(loop_of(user, engine), command);
}

static int
broker_doorbell_add(void *user, uint32_t engine, uint32_t doorbell, struct weir_bell bell)
{
	return loop_doorbell_add(loop_of(user, engine), doorbell, bell);
}

static void
broker_doorbell_remove(void *user, uint32_t engine, uint32_t doorbell)
{
	loop_doorbell_remove(loop_of(user, engine), doorbell);
}

static void
broker_wake(void *user, uint32_t engine)
{
	loop_wake(loop_of(user, engine));
}

static uint64_t
broker_now(void *user)
{
	struct plane *p = user;

	return clock_now(&p->clock);
}

static uint64_t
get(const _Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

static void
broker_engine_row(void *user, uint32_t engine, struct weir_row_engine *row)
{
	const struct plane *p = user;
	const struct plane_engine *e = &p->engine[engine];
	const struct loop_stats *s = &e->loop->stats;

	weir_assert(engine < p->engines);
	row->lcore = e->lcore;
	row->cpu = e->cpu;
	row->tsc_hz = p->clock.hz;
#define X(name) row->name = get(&s->name);
	LOOP_COUNTERS(X)
	X(turns)
#undef X
	row->tx_messages_per_s = get(&e->rates.tx_messages);
	row->rx_messages_per_s = get(&e->rates.rx_messages);
	row->busy_cycles_per_s = get(&e->rates.busy_cycles);
	row->idle_cycles_per_s = get(&e->rates.idle_cycles);
}

/* ---- building ---- */

/* Number of the CPU if the lcore is bound to a single one, else -1. */
static int
only_cpu(unsigned lcore)
{
	rte_cpuset_t set = rte_lcore_cpuset(lcore);
	int cpu = -1;

	if (CPU_COUNT(&set) != 1)
		return -1;
	while (!CPU_ISSET(++cpu, &set))
		;
	return cpu;
}

static int
find_engines(struct plane *p, char *error, size_t size)
{
	unsigned lcore;

	RTE_LCORE_FOREACH_WORKER(lcore)
	{
		struct plane_engine *e = &p->engine[p->engines];

		if (p->engines == PLANE_ENGINES_MAX)
			return fail(error, size, -EINVAL,
				    "%u worker lcores are more than %u engines; give fewer with -l",
				    rte_lcore_count() - 1, PLANE_ENGINES_MAX);
		e->lcore = lcore;
		e->cpu = only_cpu(lcore) < 0 ? (unsigned)rte_lcore_to_cpu_id((int)lcore)
					     : (unsigned)only_cpu(lcore);
		e->numa_socket = (int)rte_lcore_to_socket_id(lcore);
		e->port = -1;
		p->engines++;
	}
	if (p->engines == 0)
		return fail(
		    error, size, -EINVAL,
		    "lcore %u alone leaves no lcore for an engine; give two with -l 0,1, or "
		    "--lcores '0@0,1@0' on one CPU",
		    rte_get_main_lcore());
	if (p->options->nics > p->engines)
		return fail(error, size, -EINVAL,
			    "%u --nic for %u engines; give each an lcore with -l or --lcores",
			    p->options->nics, p->engines);
	return 0;
}

int
plane_arena(const struct plane *p, struct weir_geometry *g)
{
	const struct options *o = p->options;
	struct arena_limits limits = {
	    .connections = (uint32_t)o->session_connections,
	    .channels = (uint32_t)o->channels,
	    .ring_slots = (uint32_t)o->ring_slots,
	    .engines = p->engines,
	    .bytes = o->arena,
	};

	return arena_geometry(&limits, 0, g);
}

static int
make_loops(struct plane *p, char *error, size_t size)
{
	const struct options *o = p->options;

	p->bell.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->bell.fd < 0)
		return fail(error, size, -errno, "no eventfd: %s; raise the limit of open files",
			    strerror(errno));
	p->quiet = quiet_create(p->engines);
	for (unsigned i = 0; i < p->engines && p->quiet; i++) {
		int cpu = only_cpu(p->engine[i].lcore);
		struct loop_config config = {
		    .id = i,
		    .lcore = p->engine[i].lcore,
		    .clock = &p->clock,
		    .bell = &p->bell,
		    .quiet = p->quiet,
		    .idle = o->idle,
		    .spin_ns = o->idle_spin_us * 1000,
		    .sleep_max_ns = o->idle_sleep_us * 1000,
		    .doorbells = (uint32_t)(o->max_sessions * o->channels),
		};

		for (unsigned k = 0; k < p->engines; k++)
			config.cpu_shared |=
			    k != i && cpu >= 0 && only_cpu(p->engine[k].lcore) == cpu;
		p->engine[i].loop = loop_create(&config);
		if (!p->engine[i].loop)
			break;
	}
	if (!p->quiet || !p->engine[p->engines - 1].loop)
		return fail(error, size, -errno,
			    "no loop for an engine: %s; give more memory (-m MB)", strerror(errno));
	return 0;
}

uint32_t
plane_srq_depth(const struct plane *p)
{
	return broker_recv_depth((uint32_t)p->options->links, (uint32_t)p->options->recv_wrs);
}

static int
make_engine(struct plane *p, unsigned id)
{
	const struct options *o = p->options;
	struct plane_engine *e = &p->engine[id];
	struct nic_context *nic =
	    e->port < 0 ? NULL : plane_port_context(&p->port[e->port], e->context);
	size_t recv_bytes = engine_recv_bytes(plane_srq_depth(p));
	struct nic_attr attr;
	int rc;

	weir_assert(e->loop && !e->engine);
	e->config.nic = nic; /* for plane_close(), even after an error here */
	if (nic) {
		struct nic_device *dev = plane_port_device(&p->port[e->port]);

		rc = NIC_OPS(nic)->srq_create(nic, plane_srq_depth(p), &e->srq);
		if (rc)
			return rc;
		e->recv = memory_get(NULL, recv_bytes, (int)e->numa_socket);
		if (!e->recv)
			return -ENOMEM;
		rc = NIC_OPS(dev)->mr_reg(dev, e->recv, recv_bytes, NIC_LOCAL_WRITE, &e->recv_mr);
		if (!rc)
			rc = NIC_OPS(dev)->query(dev, &attr);
		if (!rc && !attr.ack_visible)
			rc = NIC_OPS(dev)->mr_reg(dev, &e->fence, sizeof(e->fence), NIC_REMOTE_READ,
						  &e->fence_mr);
		if (rc)
			return rc;
	}
	e->config = (struct engine_config){
	    .id = id,
	    .count = p->engines,
	    .connections = (uint32_t)((o->max_connections + p->engines - 1) / p->engines),
	    .sessions = (uint32_t)o->max_sessions,
	    .links = (uint32_t)o->links,
	    .session_pending = SESSION_PENDING,
	    .regions = (uint32_t)o->regions,
	    .exports = (uint32_t)o->exports,
	    .initial_grant = 8 * WEIR_SLOT_SIZE,
	    .window = (uint32_t)o->window,
	    .silence_ns = o->node_timeout_ms * 1000000,
	    .ring_idle_ns = o->ring_idle_s * UINT64_C(1000000000),
	    .threshold = o->threshold,
	    .nic = nic,
	    .srq = e->srq,
	    .srq_depth = nic ? plane_srq_depth(p) : 0,
	    .recv = e->recv,
	    .recv_mr = e->recv_mr,
	    .fence_mr = e->fence_mr,
	    .ring_doorbell = loop_ring_doorbell,
	    .emit = loop_emit,
	    .user = e->loop,
	};
	e->engine = engine_create(&e->config);
	if (!e->engine)
		return -errno;
	e->loop->engine = e->engine;
	e->loop->nic = nic;
	return 0;
}

static uint64_t
incarnation(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t
broker_quiet_begin(void *user)
{
	struct plane *p = user;

	return rte_rcu_qsbr_start(p->quiet);
}

/* Engines that sleep are offline: they count as quiet. */
static bool
broker_quiet_passed(void *user, uint64_t moment)
{
	struct plane *p = user;

	return rte_rcu_qsbr_check(p->quiet, moment, false) == 1;
}

static int
make_broker(struct plane *p, char *error, size_t size)
{
	const struct options *o = p->options;
	struct broker_config config = {
	    .run_dir = p->run_dir,
	    .engines = p->engines,
	    .incarnation = incarnation(),
	    .sessions = (uint32_t)o->max_sessions,
	    .connections = (uint32_t)o->max_connections,
	    .channels = (uint32_t)o->channels,
	    .session_connections = (uint32_t)o->session_connections,
	    .ring_slots = (uint32_t)o->ring_slots,
	    .arena_bytes = o->arena,
	    .regions = (uint32_t)o->regions,
	    .exports = (uint32_t)o->exports,
	    .export_keys = PLANE_EXPORT_KEYS,
	    .region_bytes = o->memory,
	    .adopt_bytes = o->adopt,
	    .peer_ring_lines = (uint32_t)(o->peer_ring / WEIR_SLOT_SIZE),
	    .answers = (uint32_t)o->answers,
	    .recv_wrs = (uint32_t)o->recv_wrs,
	    .recv_depth = plane_srq_depth(p),
	    .links = (uint32_t)o->links,
	    .link_idle_ns = o->link_idle_s * UINT64_C(1000000000),
	    .program_weight = (uint32_t)o->program_weight,
	    .program_rate = o->program_rate,
	    .users = &o->users,
	    .repair_timeout_ns = REPAIR_TIMEOUT_NS,
	    .burst_ns = BURST_NS,
	    .command = broker_command,
	    .doorbell_add = broker_doorbell_add,
	    .doorbell_remove = broker_doorbell_remove,
	    .memory_get = memory_get,
	    .memory_put = memory_put,
	    .wake = broker_wake,
	    .engine_row = broker_engine_row,
	    .now = broker_now,
	    .capture = plane_capture,
	    .port_row = plane_port_row,
	    .port_set = plane_port_set,
	    .port_setting = plane_port_setting,
	    .plane_row = plane_row,
	    .quiet_begin = broker_quiet_begin,
	    .quiet_passed = broker_quiet_passed,
	    .instance = o->instance,
	    .user = p,
	};

	memcpy(config.most, o->most, sizeof(config.most));
	for (unsigned i = 0; i < p->engines; i++) {
		struct plane_engine *e = &p->engine[i];

		weir_assert(e->engine && !e->config.nic == (e->port < 0));
		config.engine[i] = (struct broker_engine){
		    .dev = e->port < 0 ? NULL : plane_port_device(&p->port[e->port]),
		    .nic = e->config.nic,
		    .srq = e->srq,
		    .engine = e->engine,
		    .engine_config = &e->config,
		    .lcore = e->lcore,
		    .cpu = e->cpu,
		    .numa_socket = e->numa_socket,
		};
		for (unsigned k = 0; e->port >= 0 && k < WEIR_CLASSES; k++) {
			const struct nic_spec *spec = &o->nic[p->port[e->port].index];

			config.engine[i].mark[k].traffic_class = nic_spec_traffic_class(spec, k);
			config.engine[i].mark[k].priority = nic_spec_priority(spec, k);
		}
	}
	p->broker = broker_create(&config);
	if (!p->broker)
		return fail(error, size, -errno, "no broker: %s; see the line above",
			    strerror(errno));
	return 0;
}

int
plane_open(struct plane *p, const struct options *options, const char *run_dir, char *error,
	   size_t size)
{
	struct weir_geometry g;
	int rc;

	memset(p, 0, sizeof(*p));
	p->options = options;
	memcpy(p->nic, options->nic, sizeof(p->nic));
	p->run_dir = run_dir;
	p->bell.fd = -1;
	p->ports = options->nics;
	clock_start(&p->clock);
	rc = find_engines(p, error, size);
	if (!rc && plane_arena(p, &g)) /* better now than when the first program attaches */
		rc = fail(error, size, -EINVAL,
			  "an arena of %llu bytes holds no session; give a larger --arena, or a "
			  "smaller --session-connections, --channels or --ring-slots",
			  (unsigned long long)options->arena);
	if (!rc)
		rc = make_loops(p, error, size);
	for (unsigned i = 0; i < options->nics && !rc; i++)
		rc = plane_port_open(p, i, error, size);
	for (unsigned i = 0; i < p->engines && !rc; i++) {
		rc = make_engine(p, i);
		if (rc)
			fail(error, size, rc, "no memory for engine %u: %s; give more (-m MB)", i,
			     strerror(-rc));
	}
	if (!rc)
		rc = make_broker(p, error, size);
	if (rc)
		return rc;
	for (unsigned i = 0; i < p->engines && !rc; i++) {
		const struct plane_engine *e = &p->engine[i];
		struct plane_port_info info;

		if (e->port < 0)
			continue;
		plane_port_describe(&p->port[e->port], &info);
		if (info.numa_socket >= 0 && info.numa_socket != e->numa_socket)
			log_warning(
			    "engine %u on NUMA socket %d uses port %s on socket %d; choose an "
			    "lcore near the port with -l",
			    i, e->numa_socket, info.name, info.numa_socket);
	}
	for (unsigned i = 0; i < p->engines && !rc; i++) {
		rc = rte_eal_remote_launch(loop_run, p->engine[i].loop, p->engine[i].lcore);
		p->engine[i].launched = !rc;
		if (rc)
			fail(error, size, rc, "lcore %u does not start: %s; try again",
			     p->engine[i].lcore, strerror(-rc));
	}
	return rc;
}

void
plane_close(struct plane *p)
{
	for (unsigned i = 0; i < p->engines; i++)
		if (p->engine[i].launched)
			loop_stop(p->engine[i].loop);
	for (unsigned i = 0; i < p->engines; i++)
		if (p->engine[i].launched)
			rte_eal_wait_lcore(p->engine[i].lcore);
	if (p->broker)
		broker_destroy(p->broker);
	for (unsigned i = 0; i < p->engines; i++) {
		struct plane_engine *e = &p->engine[i];
		struct nic_device *dev;

		if (e->engine)
			engine_destroy(e->engine);
		if (e->srq)
			NIC_OPS(e->config.nic)->srq_destroy(e->srq);
		dev = e->port < 0 ? NULL : plane_port_device(&p->port[e->port]);
		weir_assert(dev || (!e->srq && !e->recv_mr.length && !e->fence_mr.length));
		if (e->recv_mr.length)
			NIC_OPS(dev)->mr_dereg(dev, &e->recv_mr);
		if (e->fence_mr.length)
			NIC_OPS(dev)->mr_dereg(dev, &e->fence_mr);
		memory_put(NULL, e->recv, engine_recv_bytes(plane_srq_depth(p)));
	}
	quiet_hold_interrupts();
	for (unsigned i = 0; i < p->ports; i++)
		plane_port_close(&p->port[i]);
	quiet_release_interrupts();
	for (unsigned i = 0; i < p->engines; i++)
		loop_destroy(p->engine[i].loop);
	quiet_destroy(p->quiet);
	if (p->bell.fd >= 0)
		close(p->bell.fd);
}

/* ---- running ---- */

static void
collect_events(struct plane *p, unsigned engine)
{
	struct engine_event event;

	while (mailbox_next_event(&p->engine[engine].loop->mailbox, &event))
		broker_event(p->broker, engine, &event);
}

void
plane_collect(struct plane *p)
{
	struct engine_command *command;

	main_bell_clear(&p->bell);
	for (unsigned i = 0; i < p->engines; i++) {
		while ((command = loop_collect(p->engine[i].loop))) {
			/* events that the engine raised before this answer come first */
			collect_events(p, i);
			broker_completed(p->broker, i, command);
		}
		collect_events(p, i);
	}
}

bool
plane_turning(struct plane *p)
{
	bool all = true;

	for (unsigned i = 0; i < p->engines; i++) {
		struct plane_engine *e = &p->engine[i];
		const struct loop_stats *s = &e->loop->stats;
		/* every turn adds cycles, and no sleep lasts longer than 1 s */
		uint64_t cycles = get(&s->busy_cycles) + get(&s->idle_cycles);

		all &= cycles != e->cycles;
		e->cycles = cycles;
	}
	return all;
}

static void
rate_one(_Atomic uint64_t *rate, _Atomic uint64_t *total, uint64_t value, uint64_t ns)
{
	atomic_store_explicit(
	    rate, (uint64_t)((unsigned __int128)(value - get(total)) * 1000000000u / ns),
	    memory_order_relaxed);
	atomic_store_explicit(total, value, memory_order_relaxed);
}

void
plane_rate(struct plane *p)
{
	uint64_t now = clock_now(&p->clock), ns = now - p->rated;

	if (p->rated && ns < 1000000000u)
		return;
	weir_assert(ns);
	for (unsigned i = 0; i < p->engines; i++) {
		struct plane_engine *e = &p->engine[i];
		const struct loop_stats *s = &e->loop->stats;
		const struct engine_counters *c = engine_counters(e->engine);

#define X(name) rate_one(&e->rates.name, &e->totals.name, get(&s->name), ns);
		LOOP_COUNTERS(X)
		X(turns)
#undef X
#define X(name) rate_one(&e->rates.name, &e->totals.name, get(&c->name), ns);
		ENGINE_TRAFFIC(X)
#undef X
	}
	p->rated = now;
}

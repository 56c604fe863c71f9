/* SPDX-License-Identifier: BSD-3-Clause */
/* A node: its main lcore as an actor, what it gives its engines and its broker. */
#include "conserve.h"
#include "fault.h"
#include "node.h"
#include "program.h"

#include "broker/command.h"
#include "broker/quota.h"
#include "broker/state.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SIM_SRQ 256u

/* ---- what engines and the broker ask of their shell ---- */

static uint64_t
ring_doorbell(void *user, uint32_t id, bool cpu_time)
{
	struct sim_engine *e = user;
	struct sim_node *n = e->n;
	bool rang = n->s->rang;

	sim_trace(n->s, "node %u engine %u rings doorbell %u", n->id, e->id, id);
	shell_doorbell_ring(&n->doorbells, e->id, id);
	sim_programs_wake(n->s, n->id);
	n->s->rang = rang;
	return 0;
}

static bool
emit_event(void *user, const struct engine_event *ev)
{
	struct sim_engine *e = user;

	if (e->event_head - e->event_tail == SIM_EVENTS || rng_chance(&e->n->s->rng, 20))
		return false;
	e->events[e->event_head++ % SIM_EVENTS] = *ev;
	sim_node_kick(e->n);
	return true;
}

static int
put_command(void *user, uint32_t engine, struct engine_command *c)
{
	struct sim_node *n = user;
	struct sim_engine *e = &n->engine[engine];

	if (e->mail_out == SIM_MAILBOX || rng_chance(&n->s->rng, 20))
		return -EAGAIN;
	e->mail_out++;
	e->mailbox[e->mail_head++ % SIM_MAILBOX] = c;
	return 0;
}

static void
wake_engine(void *user, uint32_t engine)
{
	struct sim_node *n = user;

	sim_engine_wake(n->s, n->id, engine);
}

static int
doorbell_add(void *user, uint32_t engine, uint32_t doorbell, struct weir_bell bell)
{
	return shell_doorbell_add(&((struct sim_node *)user)->doorbells, engine, doorbell, bell);
}

static void
doorbell_remove(void *user, uint32_t engine, uint32_t doorbell)
{
	shell_doorbell_remove(&((struct sim_node *)user)->doorbells, engine, doorbell);
}

static void
engine_row(void *user, uint32_t engine, struct weir_row_engine *row)
{
	struct sim_node *n = user;

	row->turns = n->engine[engine].turns;
}

static uint64_t
virtual_now(void *user)
{
	struct sim_node *n = user;

	return n->s->now;
}

/* Finds the engine or program whose doorbell rang. */
static void
look_at_bells(struct sim_node *n)
{
	struct pollfd fds[SHELL_DOORBELLS];
	uint32_t which[SHELL_DOORBELLS], count = 0;

	for (uint32_t i = 0; i < n->doorbells.top; i++) {
		struct shell_doorbell *d = &n->doorbells.at[i];

		if (!d->used || n->engine[d->engine].state == SIM_AWAKE ||
		    n->engine[d->engine].rung)
			continue;
		which[count] = d->engine;
		fds[count++] = (struct pollfd){.fd = d->bell.wait, .events = POLLIN};
	}
	if (count && poll(fds, count, 0) > 0)
		for (uint32_t i = 0; i < count; i++)
			if (fds[i].revents & POLLIN) {
				n->s->counts.engine_rung++;
				sim_engine_wake(n->s, n->id, which[i]);
			}
	sim_programs_wake(n->s, n->id);
}

void
sim_node_listen(struct sim_node *n)
{
	for (uint32_t i = 0; i < n->engines; i++)
		if (n->engine[i].state == SIM_AWAKE)
			sim_engine_wake(n->s, n->id, i);
	if (n->s->rang)
		look_at_bells(n);
	n->s->rang = false;
	for (uint32_t i = 0; i < n->engines; i++) {
		struct sim_engine *e = &n->engine[i];

		if (e->state == SIM_ASLEEP && !e->rung && e->mail_tail == e->mail_head &&
		    engine_sleep_check(e->engine))
			sim_fail(n->s,
				 "node %u engine %u sleeps over work: nobody rang its doorbell",
				 n->id, i);
	}
}

/* ---- the main lcore ---- */

void
sim_node_kick(struct sim_node *n)
{
	sim_schedule(n->s, &n->actor, n->s->now + rng_log(&n->s->rng, 100, 20 * SIM_US));
}

static void
collect_events(struct sim_engine *e)
{
	while (e->event_tail != e->event_head)
		broker_event(e->n->broker, e->id, &e->events[e->event_tail++ % SIM_EVENTS]);
}

static void
run_main(struct sim *s, void *arg)
{
	struct sim_node *n = arg;
	uint64_t next;

	for (uint32_t i = 0; i < n->engines; i++) {
		struct sim_engine *e = &n->engine[i];

		while (e->reply_tail != e->reply_head) {
			struct engine_command *c = e->replies[e->reply_tail++ % SIM_MAILBOX];

			collect_events(e);
			e->mail_out--;
			broker_completed(n->broker, i, c);
		}
		collect_events(e);
	}
	next = broker_run(n->broker);
	if (next < SIM_NEVER - s->now)
		sim_schedule(s, &n->actor, s->now + (next < SIM_US ? SIM_US : next));
}

/* ---- create and destroy ---- */

static struct roce_device *
create_device(struct sim_node *n)
{
	const struct sim_scenario *sc = &n->s->sc;
	struct roce_config rc = {
	    .gid = nic_gid_ipv4(sim_node_ip(n->id)),
	    .prefix = 24,
	    .mtu = (uint16_t)sc->mtu,
	    .contexts = n->engines,
	    .numa_socket = -1,
	    .max_qp = 4 * SIM_LINKS + 2,
	    .max_mr = 256,
	    .cq_depth = 4 * SIM_LINKS * ENGINE_SEND_WRS + SIM_SRQ + 3 * ENGINE_DATAGRAMS,
	    .max_wr = 512,
	    .tx_frames = 1024,
	    .window_bytes = 128 * 1024,
	    .window_frames = 128,
	    .neighbours = 4 * SIM_LINKS,
	    .timeout_ns = sc->timeout_ns,
	};

	frame_mac(n->id, rc.mac);
	return roce_device_create(&rc);
}

static int
create_engine(struct sim_node *n, struct sim_engine *e)
{
	const struct sim_scenario *sc = &n->s->sc;
	struct engine_config *ec = &e->config;
	struct roce_context *ctx;
	int rc;

	*ec = (struct engine_config){
	    .id = e->id,
	    .count = n->engines,
	    .connections = sc->connections,
	    .sessions = SIM_NODE_PROGRAMS,
	    .links = sc->links,
	    .session_pending = sc->session_pending,
	    .regions = sc->regions,
	    .exports = sc->exports,
	    .initial_grant = sc->initial_grant,
	    .window = sc->window,
	    .silence_ns = sc->silence_ns,
	    .ring_idle_ns = sc->ring_idle,
	    .threshold = 0.6,
	    .srq_depth = SIM_SRQ,
	    .ring_doorbell = ring_doorbell,
	    .emit = emit_event,
	    .user = e,
	};

	sim_port_init(&e->port, n->s, n->id, e->id, sc->event_fd[n->id]);
	ctx = roce_context_create(n->dev, e->id, &sim_wire, &e->port);
	if (!ctx)
		return -errno;
	e->port.ctx = ctx;
	e->nic = roce_nic_context(ctx);
	rc = NIC_OPS(e->nic)->srq_create(e->nic, ec->srq_depth, &e->srq);
	if (rc)
		return rc;
	e->recv = malloc(engine_recv_bytes(ec->srq_depth));
	if (!e->recv)
		abort();
	rc = NIC_OPS(e->nic)->mr_reg(roce_nic_device(n->dev), e->recv,
				     engine_recv_bytes(ec->srq_depth), NIC_LOCAL_WRITE,
				     &ec->recv_mr);
	if (!rc && sim_hash(n->s->sc.seed, 84, n->id) % 2)
		rc = NIC_OPS(e->nic)->mr_reg(roce_nic_device(n->dev), &e->fence, sizeof(e->fence),
					     NIC_REMOTE_READ, &ec->fence_mr);
	if (rc)
		return rc;
	ec->recv = e->recv;
	ec->nic = e->nic;
	ec->srq = e->srq;
	e->engine = engine_create(ec);
	if (!e->engine)
		return -errno;
	e->actor = (struct sim_actor){sim_engine_run, e, SIM_NEVER};
	e->nap = 10 * SIM_US;
	sim_schedule(n->s, &e->actor, n->s->now + rng_below(&n->s->rng, 10000));
	return 0;
}

static void
fault_qps(struct sim_node *n)
{
	struct nic_context *ctx[SIM_ENGINES_MAX];

	for (uint32_t i = 0; i < n->engines; i++)
		ctx[i] = n->engine[i].nic;
	n->fault = sim_fault_create(n, roce_nic_device(n->dev), ctx);
}

static struct broker *
create_broker(struct sim_node *n)
{
	static const struct users users = {.others = {.class = WEIR_CLASS_HIGH}};
	const struct sim_scenario *sc = &n->s->sc;
	struct broker_config bc = {
	    .users = &users,
	    .run_dir = NULL,
	    .engines = n->engines,
	    .incarnation = 1000 + n->id,
	    .sessions = SIM_NODE_PROGRAMS,
	    .connections = sc->connections * n->engines,
	    .channels = sc->channels,
	    .session_connections = sc->connections,
	    .ring_slots = sc->ring_slots,
	    .arena_bytes = sc->arena_bytes,
	    .regions = sc->regions,
	    .region_bytes = sc->region_bytes,
	    .exports = sc->exports,
	    .export_keys = sc->export_keys,
	    .peer_ring_lines = sc->ring_lines[n->id],
	    .recv_wrs = sc->recv_wrs,
	    .answers = sc->answers,
	    .links = sc->links,
	    .link_idle_ns = sc->link_idle,
	    .repair_timeout_ns = 10 * SIM_S,
	    .command = put_command,
	    .doorbell_add = doorbell_add,
	    .doorbell_remove = doorbell_remove,
	    .memory_get = shell_memory_get,
	    .memory_put = shell_memory_put,
	    .wake = wake_engine,
	    .engine_row = engine_row,
	    .now = virtual_now,
	    .user = n,
	};

	for (uint32_t i = 0; i < n->engines; i++)
		bc.engine[i] = (struct broker_engine){
		    .dev = roce_nic_device(n->dev),
		    .nic = n->engine[i].nic,
		    .srq = n->engine[i].srq,
		    .engine = n->engine[i].engine,
		    .engine_config = &n->engine[i].config,
		    .numa_socket = -1,
		};
	return broker_create(&bc);
}

/* ---- shares of programs ---- */

static void
set_share(struct sim_node *n, uint32_t program, const char *what, const char *value)
{
	char key[64], reason[160];

	snprintf(key, sizeof(key), "program.sim.%u.%s", program, what);
	if (quota_set(n->broker, key, value, reason, sizeof(reason)) < 0)
		sim_fail(n->s, "set %s %s: %s", key, value, reason);
}

static void
set_rate(struct sim_node *n, uint32_t program, uint64_t rate, uint64_t burst)
{
	char value[64] = "none";

	if (rate)
		snprintf(value, sizeof(value), "%lu,%lu", rate, burst);
	set_share(n, program, "rate", value);
}

static void
change_rate(struct sim *s, void *arg)
{
	const struct sim_program_plan *p = arg;
	struct sim_node *n = s->node[p->node];

	set_rate(n, (uint32_t)(p - s->sc.program), p->rate_then, p->burst);
	broker_flush(n->broker);
	sim_node_kick(n);
}

static void
set_shares(struct sim_node *n)
{
	for (uint32_t i = 0; i < n->s->sc.programs; i++) {
		struct sim_program_plan *p = &n->s->sc.program[i];
		char value[16];

		if (p->node != n->id)
			continue;
		snprintf(value, sizeof(value), "%u", p->weight);
		set_share(n, i, "weight", value);
		set_rate(n, i, p->rate, p->burst);
		if (p->changed_at != SIM_NEVER)
			sim_call(n->s, p->changed_at, change_rate, p);
	}
}

struct sim_node *
sim_node_create(struct sim *s, uint32_t id)
{
	struct sim_node *n = calloc(1, sizeof(*n));
	int rc;

	if (!n)
		abort();
	n->s = s;
	n->id = id;
	n->engines = s->sc.engines[id];
	n->rss = rng_below(&s->rng, 2);
	n->actor = (struct sim_actor){run_main, n, SIM_NEVER};
	n->dev = create_device(n);
	if (!n->dev)
		sim_fail(s, "no device: %s", strerror(errno));
	for (uint32_t i = 0; i < n->engines; i++) {
		n->engine[i].n = n;
		n->engine[i].id = i;
		rc = create_engine(n, &n->engine[i]);
		if (rc)
			sim_fail(s, "no engine: %s", strerror(-rc));
	}
	if (n->s->sc.faults)
		fault_qps(n);
	n->broker = create_broker(n);
	if (!n->broker)
		sim_fail(s, "no broker: %s", strerror(errno));
	broker_set_control_output(n->broker, sim_control_output, n);
	set_shares(n);
	sim_node_kick(n);
	return n;
}

void
sim_node_destroy(struct sim_node *n)
{
	if (!n)
		return;
	broker_destroy(n->broker);
	for (uint32_t i = 0; i < n->engines; i++) {
		sim_port_fini(&n->engine[i].port);
		engine_destroy(n->engine[i].engine);
	}
	roce_device_destroy(n->dev);
	for (uint32_t i = 0; i < n->engines; i++)
		free(n->engine[i].recv);
	free(n->fault);
	free(n);
}

bool
sim_node_idle(struct sim_node *n)
{
	for (uint32_t i = 0; i < n->engines; i++) {
		struct engine_conn_record record;
		struct engine_snapshot shot = {.conns = &record, .conn_room = 1};
		struct engine_command c = {.type = ENGINE_SNAPSHOT, .snapshot = &shot};

		if (!engine_execute(n->engine[i].engine, &c) || c.result)
			sim_fail(n->s, "node %u: no snapshot", n->id);
		if (shot.conn_count)
			return false;
	}
	return true;
}

void
sim_node_check(struct sim_node *n)
{
	struct sim *s = n->s;
	uint64_t bad = 0;

	s->counts.broken += n->broker->counters.links_broken;
	s->counts.repaired += n->broker->counters.links_repaired;
	s->counts.links_closed += n->broker->counters.links_closed;
	s->counts.links_evicted += n->broker->counters.links_evicted;
	s->counts.links_full += n->broker->counters.links_full;
	for (uint32_t i = 0; i < n->engines; i++) {
		const struct engine_counters *ec = engine_counters(n->engine[i].engine);
		struct nic_counters nc = {0};

		NIC_OPS(n->engine[i].nic)->counters(n->engine[i].nic, &nc);
		sim_count_engine(s, n->engine[i].engine);
		if (atomic_load(&ec->violations))
			sim_fail(s, "node %u: %lu sessions broke the rules", n->id,
				 atomic_load(&ec->violations));
		if (atomic_load(&ec->bad_frames))
			sim_fail(s, "node %u: %lu frames of peers refused", n->id,
				 atomic_load(&ec->bad_frames));
		if (nc.rnr_sent)
			sim_fail(s, "node %u: %lu times no receive WR was there", n->id,
				 nc.rnr_sent);
		bad += nc.drop_bad_icrc + nc.drop_bad_ip + nc.drop_bad_bth + nc.drop_too_short;
		if (!s->counts.revoked) /* peers may use a key that is no longer valid */
			bad += nc.drop_bad_request;
	}
	if (bad > s->damaged)
		sim_fail(s, "node %u: %lu bad frames, %lu were damaged on their way", n->id, bad,
			 s->damaged);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* A node's engines as actors: their turns, how they fall asleep and wake. */
#include "conserve.h"
#include "lock.h"
#include "node.h"

#include <stdlib.h>
#include <sys/eventfd.h>

#define SIM_NAP_MAX SIM_MS

struct sim_port *
sim_port(struct sim *s, uint32_t node, uint32_t engine)
{
	return &s->node[node]->engine[engine].port;
}

struct sim_port *
sim_rx_port(struct sim *s, uint32_t node)
{
	struct sim_node *n = s->node[node];

	return &n->engine[n->rss ? rng_below(&s->rng, n->engines) : 0].port;
}

void
sim_engine_wake(struct sim *s, uint32_t node, uint32_t engine)
{
	struct sim_engine *e = &s->node[node]->engine[engine];

	if (e->state == SIM_AWAKE) {
		/* it polls: finds out with its next turn, which the clock may have put far off */
		if (e->idle)
			sim_schedule(s, &e->actor, s->now + rng_below(&s->rng, 2000));
		return;
	}
	e->rung = true;
	/* a wake takes a while */
	if (e->state == SIM_ASLEEP)
		sim_schedule(s, &e->actor, s->now + rng_log(&s->rng, 100, 50 * SIM_US));
}

static void
watch_lock(struct sim_engine *e)
{
	const char *wrong = sim_lock_watch(e->n->s, e->engine, e->n->id);

	if (wrong)
		sim_fail(e->n->s, "node %u engine %u: %s", e->n->id, e->id, wrong);
}

static void
run_mailbox(struct sim_engine *e)
{
	struct engine_command *c;

	while (e->mail_tail != e->mail_head) {
		c = e->mailbox[e->mail_tail++ % SIM_MAILBOX];
		if (engine_execute(e->engine, c))
			e->replies[e->reply_head++ % SIM_MAILBOX] = c;
		watch_lock(e);
	}
	while ((c = engine_done(e->engine)))
		e->replies[e->reply_head++ % SIM_MAILBOX] = c;
	if (e->reply_head != e->reply_tail)
		sim_node_kick(e->n);
}

static void
check_engine(struct sim_engine *e)
{
	struct sim *s = e->n->s;
	const char *wrong;

	if (!s->options.check_every || e->turns % s->options.check_every)
		return;
	wrong = engine_check(e->engine);
	if (!wrong)
		wrong = sim_conserved(s, e->engine);
	if (wrong)
		sim_fail(s, "node %u engine %u at %lu us: %s", e->n->id, e->id,
			 (s->now - SIM_START) / 1000, wrong);
}

static bool
engine_has_work(struct sim_engine *e)
{
	return e->mail_tail != e->mail_head || sim_port_readable(&e->port) ||
	       engine_sleep_check(e->engine);
}

static void
sleep_now(struct sim_engine *e)
{
	struct sim *s = e->n->s;
	uint64_t until, nic;
	int fd = -1;

	nic = NIC_OPS(e->nic)->arm(e->nic, s->now, &fd);
	until = nic < e->timer ? nic : e->timer;
	if (fd < 0) {
		if (until > s->now + e->nap)
			until = s->now + e->nap;
		e->nap = e->nap * 2 > SIM_NAP_MAX ? SIM_NAP_MAX : e->nap * 2;
	}
	e->state = SIM_ASLEEP;
	sim_count_sleep(s, e->engine);
	if (until != SIM_NEVER) /* a turn takes a while */
		sim_schedule(s, &e->actor, until > s->now + 100 ? until : s->now + 100);
}

static void
awake(struct sim_engine *e)
{
	engine_sleep_cancel(e->engine);
	e->state = SIM_AWAKE;
	e->idle = 0;
}

/* The flags are up and others have had time to publish: looks once more, then sleeps. */
static void
fall_asleep(struct sim_engine *e)
{
	struct sim *s = e->n->s;

	if (!e->rung && !engine_has_work(e)) {
		sleep_now(e);
		return;
	}
	s->counts.engine_flinches++;
	awake(e);
	sim_schedule(s, &e->actor, s->now + 100);
}

/* As in the data plane the flags stay up until there is work, a command, or the timer is due. */
static void
wake_up(struct sim_engine *e)
{
	eventfd_t rings;

	for (uint32_t i = 0; e->rung && i < e->n->doorbells.top; i++) {
		struct shell_doorbell *d = &e->n->doorbells.at[i];

		if (d->used && d->engine == e->id && eventfd_read(d->bell.wait, &rings))
			continue; /* another one rang */
	}
	if (e->mail_tail != e->mail_head || e->n->s->now >= e->timer)
		awake(e);
	else
		e->state = SIM_DOZING;
}

/* True if it goes to sleep, or is about to. */
static bool
is_tired(struct sim_engine *e)
{
	struct sim *s = e->n->s;

	if (e->state == SIM_DOZING) {
		if (engine_has_work(e))
			sim_fail(s, "node %u engine %u dozes over work", e->n->id, e->id);
		s->counts.engine_dozed++;
		sleep_now(e);
		return true;
	}
	if (!s->sc.sleeps[e->n->id] || e->idle <= 2)
		return false;
	e->state = SIM_DROWSY;
	sim_schedule(s, &e->actor, s->now + rng_below(&s->rng, 1000));
	return true;
}

/* True if there was work. */
static bool
turn(struct sim_engine *e)
{
	bool work;

	e->rung = false;
	if (rng_chance(&e->n->s->rng, 2)) {
		uint32_t load = rng_below(&e->n->s->rng, 1001);

		engine_set_load(e->engine, load);
		engine_set_away(e->engine, load % 4 ? 0 : 200 * load);
	}
	run_mailbox(e);
	e->turns++;
	work = engine_turn(e->engine, e->n->s->now);
	watch_lock(e);
	run_mailbox(e);
	check_engine(e);
	return work;
}

void
sim_engine_run(struct sim *s, void *arg)
{
	struct sim_engine *e = arg;
	uint64_t pause;

	if (e->state == SIM_DROWSY) {
		e->timer = engine_sleep_prepare(e->engine, s->now);
		e->state = SIM_PREPARED;
		sim_schedule(s, &e->actor, s->now + rng_below(&s->rng, 1000));
		return;
	}
	if (e->state == SIM_PREPARED) {
		fall_asleep(e);
		return;
	}
	if (e->state == SIM_ASLEEP)
		wake_up(e);
	if (turn(e)) {
		awake(e);
		e->nap = 10 * SIM_US;
	} else if (++e->idle && is_tired(e)) {
		return;
	}
	/* empty turns are taken further and further apart: nothing is lost by it but steps */
	pause = e->idle ? SIM_US << (e->idle < 10 ? e->idle : 10) : rng_log(&s->rng, 100, 2000);
	if (rng_chance(&s->rng, 5))
		pause += rng_log(&s->rng, SIM_US, 100 * SIM_US);
	sim_schedule(s, &e->actor, s->now + pause);
}

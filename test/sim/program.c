/* SPDX-License-Identifier: BSD-3-Clause */
/* A simulated program: its life, its events, its sleep. */
#include "batch.h"
#include "client.h"
#include "common.h"
#include "end.h"
#include "held.h"
#include "lock.h"
#include "memory.h"
#include "node.h"

#include "client/session.h"
#include "client/thread.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sim_end *
find_end(struct sim_program *p, uint32_t conn, uint32_t side)
{
	for (uint32_t i = 0; i < p->ends; i++)
		if (p->end[i].conn == conn && p->end[i].side == side)
			return &p->end[i];
	return NULL;
}

bool
sim_program_gone(const struct sim *s, uint32_t id)
{
	return s->program[id]->dead || s->program[id]->ended;
}

bool
sim_program_ended(const struct sim_program *p)
{
	return p->dead || p->ended;
}

/* ---- events ---- */

static void
opened(struct sim_program *p, struct sim_end *e, struct weir_conn *c)
{
	e->c = c;
	e->undecided = NULL;
	e->state = END_OPEN;
	e->readable = e->was_open = true;
	weir_conn_set_user(c, e);
	p->s->counts.connections += e->side;
	p->s->counts.classes += e->side && p->s->sc.conn[e->conn].priority;
	if (e->side == 0)
		sim_held_opened(p, e);
	sim_trace(p->s, "program %u: connection %u end %u is open", p->id, e->conn, e->side);
	sim_progress(p->s);
}

static void
accept_all(struct sim_program *p, struct weir_listener *l)
{
	struct weir_conn *c;
	int rc;

	struct weir_accept_options options = WEIR_ACCEPT_OPTIONS_INIT;
	struct sim_end *e = NULL;

	for (uint32_t i = 0; i < p->ends; i++)
		if (p->end[i].listener == l && p->end[i].side == 1)
			e = &p->end[i];
	if (e && p->s->sc.conn[e->conn].held)
		options.flags = WEIR_ACCEPT_HOLD;
	while ((rc = weir_accept_with(l, &options, 0, &c)) == 0) {
		if (options.flags && e->state == END_IDLE) {
			sim_held_accepted(p, e, c);
		} else if (!e) {
			if (p->unnamed_count == SIM_CONNS_MAX)
				sim_fail(p->s, "program %u: more connections than were made",
					 p->id);
			weir_conn_set_user(c, NULL);
			p->unnamed[p->unnamed_count++] = c;
		} else if (e->state != END_IDLE) {
			sim_fail(p->s, "connection %u was accepted twice", e->conn);
		} else {
			opened(p, e, c);
		}
	}
	if (rc != -EAGAIN)
		sim_fail(p->s, "program %u: accept gives %d", p->id, rc);
}

/* The first message on a shared service says which connection it is. */
static bool
name_connections(struct sim_program *p)
{
	bool any = false;

	for (uint32_t i = 0; i < p->unnamed_count;) {
		struct weir_conn *c = p->unnamed[i];
		size_t length = 0;
		int rc = weir_recv(c, p->buffer, SIM_MESSAGE_MAX, &length, 0);
		uint32_t conn = rc == 0 ? sim_message_conn(p->buffer, length) : SIM_CONNS_MAX;
		struct sim_end *e = conn < SIM_CONNS_MAX ? find_end(p, conn, 1) : NULL;

		if (rc == -EAGAIN) {
			i++;
			continue;
		}
		any = true;
		p->unnamed[i] = p->unnamed[--p->unnamed_count];
		if (rc) { /* who connected has died */
			sim_trace(p->s, "program %u: a connection ended unnamed with %d", p->id,
				  rc);
			weir_close(c);
			continue;
		}
		if (!e || e->state != END_IDLE)
			sim_fail(p->s,
				 "program %u: first message of no connection or of one twice (%zu "
				 "bytes)",
				 p->id, length);
		opened(p, e, c);
		sim_received(p->s, conn, 0, p->buffer, length);
	}
	return any;
}

static void
handle(struct sim_program *p, const struct weir_event *ev)
{
	struct sim_end *e = ev->conn ? ev->user : NULL;

	sim_trace(p->s, "program %u: event %u of connection %d, status %d", p->id, ev->type,
		  e ? (int)e->conn : -1, ev->status);
	switch (ev->type) {
	case WEIR_EVENT_ACCEPT:
		accept_all(p, ev->listener);
		break;
	case WEIR_EVENT_OPENED:
		if (!e || e->state != END_CONNECTING)
			sim_fail(p->s, "program %u: OPENED for no connection", p->id);
		opened(p, e, ev->conn);
		break;
	case WEIR_EVENT_CLOSED:
		if (e && e->state == END_CONNECTING)
			sim_end_failed(p, e, ev->status);
		else if (e)
			e->readable = true; /* what is queued comes first */
		break;
	case WEIR_EVENT_READABLE:
	case WEIR_EVENT_END:
		if (e)
			e->readable = true;
		break;
	case WEIR_EVENT_WRITABLE:
		if (e)
			e->blocked = false;
		break;
	case WEIR_EVENT_SENT:
		if (!e)
			sim_fail(p->s, "program %u: SENT for no connection", p->id);
		sim_completed(p->s, e->conn, e->side, (uint32_t)ev->cookie, ev->status);
		break;
	}
}

static bool
take_events(struct sim_program *p)
{
	struct weir_event ev[8];
	int n = weir_poll(p->w, ev, 1 + rng_below(&p->rng, 8));

	if (n < 0)
		sim_fail(p->s, "program %u: poll gives %d", p->id, n);
	for (int i = 0; i < n; i++)
		handle(p, &ev[i]);
	return n > 0;
}

/* ---- a step ---- */

static bool
end_is_over(const struct sim_program *p, const struct sim_end *e)
{
	const struct sim_conn_plan *c = &p->s->sc.conn[e->conn];
	const struct sim_end *other;

	if (e->state == END_CLOSED)
		return true;
	if (e->side == 0 || e->state != END_IDLE)
		return false;
	other = find_end(p->s->program[c->program[0]], e->conn, 0);
	/* it waits to be accepted, unless what would have named it was lost */
	if (other->was_open && !(c->shared && sim_conn_excused(p->s, e->conn)))
		return false;
	/* nobody will connect any more */
	return other->state == END_CLOSED || p->s->program[c->program[0]]->dead;
}

void
sim_program_poke(struct sim *s, uint32_t id)
{
	struct sim_program *p = s->program[id];

	for (uint32_t i = 0; i < p->threads && !sim_program_ended(p); i++) {
		if (i && !p->thread[i].object) /* the first one is still to attach */
			continue;
		p->thread[i].drowsy = false;
		sim_schedule(s, &p->thread[i].actor, s->now + 1);
	}
}

/* A program has ended: who waits for it to connect need not wait any more. */
static void
look_around(struct sim *s)
{
	for (uint32_t i = 0; i < s->sc.programs; i++)
		sim_program_poke(s, i);
}

static void
finish(struct sim_program *p)
{
	struct sim *s = p->s;

	sim_program_release(p, true);
	for (uint32_t i = 0; i < p->ends; i++)
		if (p->end[i].state == END_IDLE && p->end[i].side == 1)
			sim_flow(s, p->end[i].conn, 0)->receiver_gone = true;
	for (uint32_t i = 0; i < p->ends && rng_chance(&p->rng, 500); i++) {
		weir_listener_close(p->end[i].listener);
		p->end[i].listener = NULL;
	}
	sim_memory_left(p);
	sim_lock_left(p, false);
	sim_common_left(p, false);
	sim_client_detach(p->client, p->w);
	p->w = NULL;
	p->ended = true;
	sim_trace(s, "program %u: ended", p->id);
	sim_progress(s);
	look_around(s);
}

static void
die(struct sim *s, void *arg)
{
	struct sim_program *p = arg;

	if (p->ended)
		return;
	if (p->inside || !p->w) { /* in the middle of a call: right after it */
		sim_schedule(s, &p->killer, s->now + 10 * SIM_US);
		return;
	}
	sim_trace(s, "program %u: dies", p->id);
	s->counts.deaths++;
	sim_memory_left(p);
	sim_lock_left(p, true);
	sim_common_left(p, true);
	sim_client_die(p->client, p->w);
	p->w = NULL;
	p->dead = true;
	for (uint32_t i = 0; i < p->ends; i++) {
		struct sim_end *e = &p->end[i];

		sim_flow(s, e->conn, e->side)->sender_gone = true;
		sim_flow(s, e->conn, !e->side)->receiver_gone = true;
	}
	look_around(s);
}

/* To the calling thread. */
static void
rebind(struct sim_program *p, struct sim_end *e, uint32_t permille)
{
	if (p->threads < 2 || e->state != END_OPEN || !rng_chance(&p->rng, permille))
		return;
	p->s->counts.rebound++;
	if (weir_conn_bind(e->c))
		sim_fail(p->s, "connection %u: bind: %s", e->conn, weir_reason());
}

/* Goes on with operations on memory of others, which never wait. */
static bool
operate(struct sim_thread *t)
{
	struct sim_program *p = t->p;
	uint32_t self = (uint32_t)(t - p->thread);
	bool any = sim_memory_step(p, self);

	any |= sim_lock_step(p, self);
	any |= sim_common_step(p, self);
	return any;
}

static bool
work(struct sim_thread *t)
{
	struct sim_program *p = t->p;
	uint32_t first = p->ends ? rng_below(&p->rng, p->ends) : 0,
		 self = (uint32_t)(t - p->thread);
	bool any;

	weir_thread_use(t->object);
	any = take_events(p);
	if (self == 0)
		any |= name_connections(p);
	for (uint32_t i = 0; i < p->ends; i++) {
		struct sim_end *e = &p->end[(first + i) % p->ends];
		uint32_t burst = 1 + rng_below(&p->rng, 8);
		bool open;

		if (e->thread == self)
			any |= sim_end_connect(p, e);
		rebind(p, e, 10);
		if (sim_held_decide(p, e, &open))
			any = true;
		if (open)
			opened(p, e, e->undecided);
		any |= sim_end_receive(p, e);
		while (burst-- && sim_end_send(p, e))
			any = true;
		any |= sim_end_shut(p, e);
		any |= sim_end_close(p, e);
	}
	any |= operate(t);
	any |= sim_program_release(p, false);
	return any;
}

static uint64_t
next_timer(const struct sim_thread *thread)
{
	const struct sim_program *p = thread->p;
	uint64_t at = sim_memory_timer(p), lock = sim_lock_timer(p), common = sim_common_timer(p);

	at = lock < at ? lock : at;
	at = common < at ? common : at;
	for (uint32_t i = 0; i < p->ends; i++) {
		const struct sim_end *e = &p->end[i];
		uint64_t t = sim_end_timer(p, e);
		bool ours = e->state != END_IDLE || e->undecided ||
			    e->thread == (uint32_t)(thread - p->thread);

		if (ours && t < at)
			at = t;
	}
	for (uint32_t i = 0; i < p->held_count; i++)
		if (p->held[i].until < at)
			at = p->held[i].until;
	return at;
}

static void
count_sleep(struct sim_program *p)
{
	bool blocked = false;

	for (uint32_t i = 0; i < p->ends; i++)
		blocked |= p->end[i].state == END_OPEN && p->end[i].blocked;
	p->s->counts.program_sleeps++;
	p->s->counts.blocked_sleeps += blocked;
}

static void
back_off(struct sim_thread *t)
{
	t->backoff = t->backoff < 200 * SIM_US ? t->backoff * 2 : t->backoff;
	sim_schedule(t->p->s, &t->actor, t->p->s->now + t->backoff);
}

static void
go_on(struct sim_thread *t)
{
	struct sim *s = t->p->s;

	t->backoff = 200;
	sim_schedule(s, &t->actor, s->now + rng_log(&t->p->rng, 100, 5 * SIM_US));
}

/* It has found nothing to do, and others have had time to publish since. */
static void
fall_asleep(struct sim_thread *t)
{
	struct sim_program *p = t->p;
	struct sim *s = p->s;
	int rc;

	weir_thread_use(t->object);
	rc = weir_arm(p->w);
	/* operations are no events: another thread may have taken in their end before this one
	 * armed */
	if (rc == 0 && operate(t)) {
		go_on(t);
		return;
	}
	if (rc == 0) {
		t->asleep = true;
		count_sleep(p);
		sim_trace(s, "program %u: sleeps", p->id);
		rebind(p, &p->end[rng_below(&p->rng, p->ends)], 20);
		if (t->alarm != SIM_NEVER)
			sim_schedule(s, &t->actor, t->alarm);
		return;
	}
	s->counts.program_flinches++;
	if (rc != -EAGAIN)
		sim_fail(s, "program %u: arm gives %d", p->id, rc);
	back_off(t);
}

static void
rest(struct sim_thread *t, bool busy)
{
	struct sim_program *p = t->p;
	struct sim *s = p->s;

	if (busy) {
		go_on(t);
	} else if (p->plan->sleeps) {
		t->drowsy = true;
		t->alarm = next_timer(t);
		sim_schedule(s, &t->actor, s->now + rng_below(&p->rng, 2000));
	} else {
		back_off(t);
	}
}

/* Listens on what others will connect to. */
static void
attached(struct sim_program *p)
{
	struct weir_listen_options options = WEIR_LISTEN_OPTIONS_INIT;
	char name[WEIR_SERVICE_MAX];
	int rc;

	snprintf(name, sizeof(name), "program%u", p->id);
	rc = weir_listen(p->w, name, 1 + rng_below(&p->rng, 8), &p->listener);
	for (uint32_t i = 0; i < p->ends && rc == 0; i++) {
		const struct sim_conn_plan *c = &p->s->sc.conn[p->end[i].conn];

		if (p->end[i].side == 0 || c->shared || c->unknown)
			continue;
		snprintf(name, sizeof(name), "conn%u", p->end[i].conn);
		options.flags = c->held ? WEIR_LISTEN_HOLD : 0;
		rc = weir_listen_with(p->w, name, &options, &p->end[i].listener);
	}
	if (rc)
		sim_fail(p->s, "program %u: listen gives %d: %s", p->id, rc, weir_reason());
	sim_memory_attached(p);
	sim_lock_attached(p);
	sim_common_attached(p);
	for (uint32_t i = 0; i < p->threads; i++) {
		struct sim_thread *t = &p->thread[i];

		/* the first has an object since it listened */
		t->object = i ? weir_thread_new(p->w) : weir_thread_get(p->w);
		if (!t->object)
			sim_fail(p->s, "program %u: no thread", p->id);
		weir_thread_use(t->object);
		t->fd = weir_fd(p->w);
		sim_schedule(p->s, &t->actor, p->s->now + rng_below(&p->rng, 5000));
	}
}

static void
step(struct sim_thread *t)
{
	struct sim_program *p = t->p;
	bool busy, drowsy = t->drowsy, over = true;

	if (!t->object) {
		p->client = sim_client_attach(p->s, p->node, p->id, &p->w);
		attached(p);
		return;
	}
	t->asleep = t->drowsy = false;
	if (drowsy && t->alarm > p->s->now) {
		fall_asleep(t);
		return;
	}
	busy = work(t);
	for (uint32_t i = 0; i < p->ends; i++)
		over &= end_is_over(p, &p->end[i]);
	if (over && sim_memory_over(p) && sim_lock_over(p) && sim_common_over(p))
		finish(p);
	else
		rest(t, busy);
}

static void
run_thread(struct sim *s, void *arg)
{
	struct sim_thread *t = arg;
	struct sim_program *p = t->p;

	if (p->dead || p->ended)
		return;
	if (p->inside) { /* it waits for an answer, its locks held: again later */
		sim_schedule(s, &t->actor, s->now + 10 * SIM_US);
		return;
	}
	p->inside = true;
	step(t);
	p->inside = false;
	sim_node_listen(s->node[p->node]);
}

void
sim_programs_wake(struct sim *s, uint32_t node)
{
	struct pollfd fds[SIM_PROGRAMS_MAX * SIM_THREADS_MAX];
	struct sim_thread *who[SIM_PROGRAMS_MAX * SIM_THREADS_MAX];
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->sc.programs * SIM_THREADS_MAX; i++) {
		struct sim_program *p = s->program[i / SIM_THREADS_MAX];
		struct sim_thread *t = p ? &p->thread[i % SIM_THREADS_MAX] : NULL;

		if (!p || p->node != node || !t->asleep || p->dead || p->ended)
			continue;
		who[n] = t;
		fds[n++] = (struct pollfd){.fd = t->fd, .events = POLLIN};
	}
	if (!n || poll(fds, n, 0) <= 0)
		return;
	for (uint32_t i = 0; i < n; i++)
		if (fds[i].revents & POLLIN) {
			who[i]->asleep = false;
			s->counts.program_rung++;
			sim_schedule(s, &who[i]->actor,
				     s->now + rng_log(&s->rng, 100, 50 * SIM_US));
		}
}

/* ---- start and end ---- */

static void
add_end(struct sim_program *p, uint32_t conn, uint32_t side)
{
	const struct sim_conn_plan *c = &p->s->sc.conn[conn];
	struct sim_end *e = &p->end[p->ends++];

	e->conn = conn;
	e->side = side;
	e->start = c->start;
	e->thread = rng_below(&p->rng, p->threads);
	e->drains = rng_chance(&p->rng, 500);
	/* not of p->rng: seeds keep their meaning */
	e->shuts = sim_hash(p->s->sc.seed, c->program[side], side + 2 * conn) % 5 == 0;
	e->lingers = side == 1 && rng_chance(&p->rng, 400) && !c->hasty;
	e->receive_max = UINT32_MAX;
	if (c->hasty && side == 1)
		e->receive_max = rng_below(&p->rng, c->messages[0] + 1);
	sim_batch_init(p, e);
}

struct sim_program *
sim_program_create(struct sim *s, uint32_t id)
{
	struct sim_program *p = calloc(1, sizeof(*p));

	if (!p || !(p->buffer = malloc(SIM_MESSAGE_MAX + 64)))
		abort();
	p->s = s;
	p->id = id;
	p->plan = &s->sc.program[id];
	p->node = p->plan->node;
	p->rng.state = sim_hash(s->sc.seed, 77, id);
	p->threads = p->plan->threads;
	for (uint32_t i = 0; i < p->threads; i++) {
		p->thread[i].p = p;
		p->thread[i].backoff = 200;
		p->thread[i].actor = (struct sim_actor){run_thread, &p->thread[i], SIM_NEVER};
	}
	for (uint32_t i = 0; i < s->sc.conns; i++)
		for (uint32_t side = 0; side < 2; side++)
			if (s->sc.conn[i].program[side] == id &&
			    !(side == 1 && s->sc.conn[i].unknown))
				add_end(p, i, side);
	p->killer = (struct sim_actor){die, p, SIM_NEVER};
	sim_schedule(s, &p->thread[0].actor, s->now + rng_log(&p->rng, 1, 100 * SIM_US));
	if (p->plan->killed_at != SIM_NEVER)
		sim_schedule(s, &p->killer, p->plan->killed_at);
	return p;
}

void
sim_program_destroy(struct sim_program *p)
{
	if (!p)
		return;
	free(p->buffer);
	free(p);
}

void
sim_program_waits_for(const struct sim_program *p, char *text, size_t size)
{
	size_t at = strlen(text);
	uint32_t asleep = 0;

	for (uint32_t i = 0; i < p->threads; i++)
		asleep += p->thread[i].asleep;
	for (uint32_t i = 0; i < p->ends && !sim_program_ended(p) && at < size; i++) {
		const struct sim_end *e = &p->end[i];
		const struct sim_flow *in = sim_flow(p->s, e->conn, !e->side);
		const struct sim_flow *out = sim_flow(p->s, e->conn, e->side);

		if (e->state == END_CLOSED)
			continue;
		at += (size_t)snprintf(text + at, size - at,
				       "[p%u%s c%u.%u %s sent %u/%u%s got %u/%u]", p->id,
				       asleep == p->threads ? " asleep" : "", e->conn, e->side,
				       e->state == END_IDLE	    ? "idle"
				       : e->state == END_CONNECTING ? "connecting"
								    : "open",
				       out->accepted, out->planned, e->blocked ? " blocked" : "",
				       in->received, in->planned);
	}
}

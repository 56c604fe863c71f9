/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Any number of threads in virtual time. The one that is behind runs next, for one piece of work.
 * Pieces take the time that their costs add up to, messages take random times from the seed: equal
 * seeds make equal games. Contention for shared memory costs nothing here.
 */
#include "search.h"

#include "base/vec.h"

#include <string.h>

struct envelope {
	uint64_t at, number; /* arrival; number of all that were sent */
	uint32_t from;
	size_t bytes;
	struct mcts_message m; /* and its state */
};

struct worker {
	struct mcts_thread *t;
	uint64_t clock;
	bool idle; /* until a message comes */
	/* a heap: the first to arrive is the first */
	struct envelope **inbox;
	uint32_t count, room;
	/* what it had done before this piece */
	struct mcts_counts before;
};

struct process {
	struct mcts_port port;
	struct virtual *v;
	struct mcts m;
};

struct virtual
{
	struct search search;
	struct virtual_costs costs;
	struct dice dice;
	struct process *processes;
	struct mcts **pointers;
	struct worker *workers, *running;
	uint32_t threads;
	uint64_t *last; /* arrival from each thread at each */
	uint64_t sent;
	int error;
};

/* ---- messages under way ---- */

static bool
is_earlier(const struct envelope *a, const struct envelope *b)
{
	return a->at != b->at ? a->at < b->at : a->number < b->number;
}

static int
put(struct worker *w, struct envelope *e)
{
	uint32_t at = w->count;

	if (VEC_RESERVE(w->inbox, w->room, w->count + 1))
		return -ENOMEM;
	w->count++;
	for (; at && is_earlier(e, w->inbox[(at - 1) / 2]); at = (at - 1) / 2)
		w->inbox[at] = w->inbox[(at - 1) / 2];
	w->inbox[at] = e;
	return 0;
}

static struct envelope *
take(struct worker *w)
{
	struct envelope *first = w->inbox[0], *e = w->inbox[--w->count];
	uint32_t at = 0, next;

	while ((next = 2 * at + 1) < w->count) {
		if (next + 1 < w->count && is_earlier(w->inbox[next + 1], w->inbox[next]))
			next++;
		if (is_earlier(e, w->inbox[next]))
			break;
		w->inbox[at] = w->inbox[next];
		at = next;
	}
	w->inbox[at] = e;
	return first;
}

/* ---- the port ---- */

/* Time of the running thread, within its piece of work. */
static uint64_t
time_of(const struct virtual *v, const struct worker *w)
{
	const struct mcts_counts *a = &w->t->counts, *b = &w->before;

	return w->clock + (a->playouts - b->playouts) * v->costs.simulation +
	       (a->selections - b->selections) * v->costs.selection +
	       (a->sent - b->sent + a->received - b->received) * v->costs.message;
}

static uint64_t
port_now(struct mcts_port *p)
{
	struct virtual *v = ((struct process *)p)->v;

	return time_of(v, v->running);
}

static uint64_t
port_random(struct mcts_port *p)
{
	return dice_next(&((struct process *)p)->v->dice);
}

static void
call(struct mcts_port *p, uint32_t to, const struct mcts_message *m, size_t bytes)
{
	struct virtual *v = ((struct process *)p)->v;
	uint32_t from = (uint32_t)(v->running - v->workers), each = v->threads / v->search.count;
	const uint64_t *way = from / each == to / each ? v->costs.within : v->costs.between;
	uint64_t *last = &v->last[(size_t)from * v->threads + to];
	struct envelope *e = malloc(offsetof(struct envelope, m) + bytes);

	if (!e) {
		v->error = -ENOMEM;
		return;
	}
	e->at = time_of(v, v->running) + way[0];
	if (way[1] > way[0])
		e->at += dice_next(&v->dice) % (way[1] - way[0] + 1);
	if (e->at < *last)
		e->at = *last;
	*last = e->at;
	e->number = v->sent++;
	e->from = from;
	e->bytes = bytes;
	memcpy(&e->m, m, bytes);
	if (put(&v->workers[to], e)) {
		free(e);
		v->error = -ENOMEM;
	}
}

/* ---- the threads ---- */

/* When the thread can go on; UINT64_MAX: not before another one does. */
static uint64_t
next_time(const struct worker *w)
{
	if (!w->idle)
		return w->clock;
	if (!w->count)
		return UINT64_MAX;
	return w->inbox[0]->at > w->clock ? w->inbox[0]->at : w->clock;
}

/* Others of the process that wait for rollouts to return see what this one has counted. */
static void
wake(struct virtual *v, const struct worker *w)
{
	const struct mcts *m = w->t->m;

	for (uint32_t i = 0; i < m->o.threads; i++) {
		struct worker *other = &v->workers[m->o.process * m->o.threads + i];

		if (!other->idle || !other->t->launching)
			continue;
		other->idle = false;
		if (other->clock < w->clock)
			other->clock = w->clock;
	}
}

static void
run_piece(struct virtual *v, struct worker *w, uint64_t now)
{
	v->running = w;
	w->clock = now;
	w->before = w->t->counts;
	if (w->count && w->inbox[0]->at <= now) {
		struct envelope *e = take(w);

		w->idle = false;
		mcts_receive(w->t, e->from, &e->m, e->bytes);
		free(e);
	} else {
		w->idle = !mcts_step(w->t);
	}
	w->clock = time_of(v, w);
	if (!w->idle)
		wake(v, w);
}

/* The program calls the front, as thread 0, which may have something to do then. */
static void
leave(struct virtual *v)
{
	v->running = v->workers;
	v->running->before = v->running->t->counts;
	v->running->idle = false;
}

static int
run(struct search *s, const bool *until, unsigned pieces)
{
	struct virtual *v = (struct virtual *)s;
	int rc = 0;

	while (!*until && !v->error && !rc && pieces-- > 0) {
		struct worker *first = NULL;
		uint64_t least = UINT64_MAX;

		for (uint32_t i = 0; i < v->threads; i++) {
			uint64_t time = next_time(&v->workers[i]);

			if (time < least) {
				least = time;
				first = &v->workers[i];
			}
		}
		if (first)
			run_piece(v, first, least);
		else
			rc = -EDEADLK;
	}
	leave(v);
	return v->error ? v->error : rc;
}

static uint64_t
now(struct search *s)
{
	return ((struct virtual *)s)->workers[0].clock;
}

static void
close_virtual(struct search *s)
{
	struct virtual *v = (struct virtual *)s;

	for (uint32_t i = 0; v->workers && i < v->threads; i++) {
		while (v->workers[i].count)
			free(take(&v->workers[i]));
		free(v->workers[i].inbox);
	}
	for (uint32_t i = 0; v->processes && i < s->count; i++)
		mcts_close(&v->processes[i].m);
	free(v->workers);
	free(v->processes);
	free(v->pointers);
	free(v->last);
	free(v);
}

int
port_virtual_open(const struct mcts_options *o, const struct virtual_costs *costs,
		  struct search **s)
{
	uint64_t threads = (uint64_t)o->processes * o->threads;
	struct virtual *v = calloc(1, sizeof(*v));
	int rc = v ? 0 : -ENOMEM;

	if (!threads || threads > MCTS_THREADS_MAX)
		rc = -EINVAL;
	if (rc) {
		free(v);
		return rc;
	}
	v->costs = *costs;
	v->dice = dice_of(o->seed);
	v->threads = (uint32_t)threads;
	v->processes = calloc(o->processes, sizeof(*v->processes));
	v->pointers = calloc(o->processes, sizeof(*v->pointers));
	v->workers = calloc(threads, sizeof(*v->workers));
	v->last = calloc(threads * threads, sizeof(*v->last));
	v->search = (struct search){v->pointers, 0, run, now, close_virtual};
	if (!v->processes || !v->pointers || !v->workers || !v->last)
		rc = -ENOMEM;
	for (uint32_t i = 0; !rc && i < o->processes; i++) {
		struct process *p = &v->processes[i];
		struct mcts_options own = *o;

		own.process = i;
		p->port = (struct mcts_port){call, port_now, port_random};
		p->v = v;
		rc = mcts_open(&p->m, &own, &p->port);
		v->pointers[i] = &p->m;
		v->search.count += !rc;
		for (uint32_t k = 0; !rc && k < o->threads; k++)
			v->workers[i * o->threads + k] =
			    (struct worker){&p->m.threads[k], .idle = true};
	}
	if (rc) {
		close_virtual(&v->search);
		return rc;
	}
	leave(v);
	*s = &v->search;
	return 0;
}

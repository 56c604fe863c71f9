/* SPDX-License-Identifier: BSD-3-Clause */
/* Records by weir/shuffle.h. */
#include "transport.h"

#include <errno.h>
#include <stdlib.h>

#define FLUSH_MS 1 /* then the thread reads */

struct weir_thread {
	struct transport_thread base;
	struct weir_shuffle *s;
	struct weir_map *m;
	struct weir_reduce *r;
};

struct weir_transport {
	struct transport t;
	struct weir_thread *threads;
};

static struct weir_thread *
own(struct transport_thread *th)
{
	return (struct weir_thread *)th;
}

static int
enter(struct transport *t, uint32_t index, struct transport_thread **out)
{
	struct weir_thread *th = &((struct weir_transport *)t)->threads[index];
	int rc = weir_invoker_enter(t->v, index);

	if (rc)
		return rc;
	th->base = (struct transport_thread){t, index};
	rc = weir_shuffle_open(t->v, &t->o.shuffle, &th->s);
	if (!rc && !t->o.stage)
		rc = weir_reduce_begin_own(th->s, &th->r);
	if (rc) {
		weir_shuffle_close(th->s);
		weir_invoker_leave(t->v);
		return rc;
	}
	*out = &th->base;
	return 0;
}

static void
leave(struct transport_thread *t)
{
	struct weir_thread *th = own(t);

	if (th->m)
		weir_map_end(th->m, false);
	if (th->r)
		weir_reduce_end(th->r, true);
	weir_shuffle_close(th->s);
	weir_invoker_leave(t->t->v);
}

static int
barrier(struct transport_thread *t)
{
	return weir_invoker_barrier(t->t->v, -1);
}

static void
totals(struct transport_thread *t, struct transport_totals *totals)
{
	struct weir_shuffle_stats s = WEIR_SHUFFLE_STATS_INIT;

	weir_shuffle_stats(own(t)->s, &s);
	*totals = (struct transport_totals){.blocks = s.received,
					    .placed = s.placed,
					    .sent_bytes = s.sent_bytes,
					    .memory_peak = s.memory_peak,
					    .spilled = s.spilled_bytes};
}

static int
begin(struct transport_thread *t, uint32_t map, uint32_t attempt)
{
	return weir_map_begin(own(t)->s, map, attempt, &own(t)->m);
}

static int
put(struct transport_thread *t, const struct weir_record *r)
{
	return weir_map_put(own(t)->m, r, -1);
}

static int
put_to(struct transport_thread *t, struct weir_to to, const struct weir_record *r)
{
	return weir_map_put_to(own(t)->m, to, r, -1);
}

static int
flush(struct transport_thread *t)
{
	int rc = weir_map_flush(own(t)->m, FLUSH_MS);

	return rc == -EAGAIN ? -ENOBUFS : rc;
}

static int
end(struct transport_thread *t, bool ok)
{
	int rc = weir_map_end(own(t)->m, ok);

	if (rc != -ENOBUFS && rc != -EINTR)
		own(t)->m = NULL;
	return rc;
}

static int
next(struct transport_thread *t, struct weir_record *r, int timeout_ms)
{
	return weir_reduce_next(own(t)->r, r, timeout_ms);
}

static bool
owns(struct transport_thread *t, uint32_t partition, uint32_t part)
{
	struct weir_to to = weir_shuffle_owner(own(t)->s, partition);

	return to.process == t->t->crew->rank && (to.thread + part) % t->t->o.threads == t->index;
}

static int
start_read(struct transport_thread *t, uint32_t partition, uint32_t part, uint32_t parts)
{
	return weir_reduce_begin(own(t)->s, partition, part, parts, &own(t)->r);
}

static int
key(struct transport_thread *t, const void **key, uint32_t *length)
{
	return weir_reduce_key(own(t)->r, key, length, -1);
}

static void
end_read(struct transport_thread *t, bool ok)
{
	weir_reduce_end(own(t)->r, ok);
	own(t)->r = NULL;
}

static void
close_weir(struct transport *t)
{
	weir_invoker_close(t->v);
	free(((struct weir_transport *)t)->threads);
	free(t);
}

static const struct transport_ops ops = {.close = close_weir,
					 .enter = enter,
					 .leave = leave,
					 .barrier = barrier,
					 .totals = totals,
					 .begin = begin,
					 .put = put,
					 .put_to = put_to,
					 .flush = flush,
					 .end = end,
					 .next = next,
					 .owns = owns,
					 .read = start_read,
					 .key = key,
					 .read_end = end_read};

static int
open_invoker(struct weir_transport *w, const struct transport_options *o)
{
	static const struct weir_function of_shuffles[] = {WEIR_SHUFFLE_FUNCTIONS};
	uint32_t more = sizeof(of_shuffles) / sizeof(of_shuffles[0]);
	struct weir_function *all = calloc(o->function_count + more, sizeof(*all));
	struct weir_invoker_options i = WEIR_INVOKER_OPTIONS_INIT;
	int rc;

	if (!all)
		return weir_fail(-ENOMEM, "no memory for a transport; free some");
	for (uint32_t k = 0; k < o->function_count; k++)
		all[k] = o->functions[k];
	for (uint32_t k = 0; k < more; k++)
		all[o->function_count + k] = of_shuffles[k];
	i.functions = all;
	i.function_count = o->function_count + more;
	i.threads = o->threads;
	i.pool_threads = o->function_count ? 1 : 0; /* so that a busy thread answers */
	i.lost = o->lost;
	i.user = o->user;
	rc = weir_invoker_open(w->t.crew->w, w->t.crew->g, &i, &w->t.v);
	free(all);
	return rc;
}

int
transport_weir_open(struct crew *crew, const struct transport_options *o, struct transport **t)
{
	struct weir_transport *w = calloc(1, sizeof(*w));
	int rc = -ENOMEM;

	if (w && (w->threads = calloc(o->threads, sizeof(*w->threads)))) {
		w->t = (struct transport){.ops = &ops, .crew = crew, .o = *o};
		rc = open_invoker(w, o);
	} else {
		weir_fail(rc, "no memory for a transport; free some");
	}
	if (!rc) {
		*t = &w->t;
		return 0;
	}
	if (w)
		free(w->threads);
	free(w);
	return rc;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls with exported memory. A put and a call take different ways, so the call waits in its line's
 * queue until the put has ended. A get of a function is begun in parts that need no room but the
 * channel's, since a function does not wait; the thread goes on with it in its turns.
 */
#include "invoker.h"

#include "client/likely.h"
#include "client/reason.h"

#include <errno.h>
#include <stdlib.h>

int
weir_call_put(struct weir_invoker *v, struct weir_to to, uint32_t function, const void *args,
	      size_t length, struct weir_remote *r, uint64_t offset, const void *from, size_t bytes,
	      const struct weir_call_options *options)
{
	const struct weir_transfer put = {
	    .offset = offset, .buf = (void *)(uintptr_t)from, .length = bytes};
	struct invoke_thread *t = thread_own(v);
	struct weir_sync *sent = NULL;
	struct line *l;
	struct call c;
	int rc;

	if (!t)
		return thread_foreign(v);
	rc = call_prepare(&c, function, args, length, options, CALL_FLAGS);
	if (!rc && c.payload_length)
		rc = weir_fail(-EINVAL, "a call with a put and a payload; put the payload, too");
	if (rc)
		return rc;
	if (c.flags & WEIR_CALL_SYNC_SENT) {
		sent = c.sync;
		c.sync = NULL;
	}
	if (c.sync && t->index == WEIR_THREAD_ANY)
		return thread_of_pool();
	l = line_get(t, to, &rc);
	if (l)
		rc = put_call(l, &c, r, &put);
	if (!rc && sent) /* all is copied */
		sync_count(t, sent, 1, 0);
	return rc;
}

/* ---- in a function ---- */

typedef void (*get_then)(struct weir_invoker *v, const struct weir_answer *a, void *to,
			 size_t bytes, int status);

struct get {
	struct get *next;
	struct weir_remote *r;
	uint64_t offset;
	uint8_t *to;
	size_t bytes, begun;
	struct weir_op op; /* of the part that was begun last */
	int status;	   /* why no more parts begin; they end first, as `to` is theirs */
	struct weir_answer answer;
	get_then then;
};

/* Begins what there is room for. 0: all is; -EAGAIN, or why not. */
static int
get_begin(struct get *g)
{
	struct weir_op op;
	size_t left;
	int rc;

	do {
		struct weir_transfer part = {.offset = g->offset + g->begun,
					     .buf = g->to + g->begun,
					     .op = &op,
					     .flags = WEIR_NOWAIT};

		/* in order, so that the end of the last one is that of all */
		left = g->bytes - g->begun;
		part.length = left < WEIR_PUT_ORDERED ? left : WEIR_PUT_ORDERED;
		rc = weir_remote_get_with(g->r, &part);
		if (rc)
			break;
		g->op = op;
		g->begun += part.length;
	} while (g->begun < g->bytes);
	if (rc != -EAGAIN)
		g->status = rc;
	if (rc != -EAGAIN && g->op.state)
		weir_op_wait(&g->op, 0); /* the end wakes a thread that sleeps */
	return rc;
}

static bool
get_has_ended(struct get *g, int *status)
{
	if (!g->status && (!g->op.state || g->begun < g->bytes) && get_begin(g) == -EAGAIN)
		return false;
	if (g->op.state && !weir_op_test(&g->op))
		return false;
	*status = g->status ? g->status : g->op.status;
	return true;
}

static void
get_end(struct invoke_thread *t, struct get *g, int status)
{
	t->inside++;
	g->then(t->v, &g->answer, g->to, g->bytes, status);
	t->inside--;
	free(g);
}

unsigned
gets_continue(struct invoke_thread *t)
{
	struct get **at = &t->gets, *g;
	unsigned n = 0;
	int status;

	/* functions add none meanwhile: none runs */
	while ((g = *at)) {
		if (!get_has_ended(g, &status)) {
			at = &g->next;
			continue;
		}
		*at = g->next;
		if (!*at)
			t->gets_last = at;
		get_end(t, g, status);
		n++;
	}
	return n;
}

void
gets_drop(struct invoke_thread *t)
{
	struct get *g;

	while ((g = t->gets)) {
		t->gets = g->next;
		get_end(t, g, -ECANCELED);
	}
	t->gets_last = &t->gets;
}

void
gets_init(struct invoke_thread *t)
{
	t->gets_last = &t->gets;
}

int
weir_incoming_get(struct weir_incoming *c, struct weir_remote *r, uint64_t offset, void *to,
		  size_t bytes, get_then then)
{
	struct get *g = calloc(1, sizeof(*g));
	int rc;

	if (!g)
		return weir_fail(-ENOMEM, "no memory for a get; free some");
	*g = (struct get){.r = r, .offset = offset, .to = to, .bytes = bytes, .then = then};
	rc = weir_incoming_later(c, &g->answer);
	if (rc) {
		free(g);
		return rc;
	}
	rc = get_begin(g);
	if (rc && rc != -EAGAIN && !g->begun) {
		c->answered = false;
		free(g);
		return rc;
	}
	*c->thread->gets_last = g;
	c->thread->gets_last = &g->next;
	return 0;
}

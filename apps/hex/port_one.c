/* SPDX-License-Identifier: BSD-3-Clause */
/* The sequential player: one thread, which gets its own messages from a queue. */
#include "search.h"

#include "base/monotonic.h"
#include "base/vec.h"

#include <string.h>

struct one {
	struct search search;
	struct mcts_port port;
	struct mcts m, *pointer;
	struct dice dice;
	/* messages, each behind its length, from `head` to `tail` */
	uint64_t *queue;
	size_t head, tail, room; /* words */
	int error;
};

static void
call(struct mcts_port *p, uint32_t to, const struct mcts_message *m, size_t bytes)
{
	struct one *o = (struct one *)((char *)p - offsetof(struct one, port));
	size_t words = 1 + (bytes + 7) / 8;

	(void)to;
	if (o->head && o->tail + words > o->room) {
		memmove(o->queue, o->queue + o->head, (o->tail - o->head) * sizeof(*o->queue));
		o->tail -= o->head;
		o->head = 0;
	}
	if (VEC_RESERVE(o->queue, o->room, o->tail + words)) {
		o->error = -ENOMEM;
		return;
	}
	o->queue[o->tail] = bytes;
	memcpy(o->queue + o->tail + 1, m, bytes);
	o->tail += words;
}

static uint64_t
port_now(struct mcts_port *p)
{
	(void)p;
	return monotonic_ns();
}

static uint64_t
port_random(struct mcts_port *p)
{
	return dice_next(&((struct one *)((char *)p - offsetof(struct one, port)))->dice);
}

static int
run(struct search *s, const bool *until, unsigned pieces)
{
	struct one *o = (struct one *)s;
	uint64_t message[(MCTS_MESSAGE_MAX + 7) / 8];

	while (!*until && !o->error && pieces-- > 0)
		if (o->head < o->tail) {
			size_t bytes = o->queue[o->head];

			/* handlers call: the queue may move */
			memcpy(message, o->queue + o->head + 1, bytes);
			o->head += 1 + (bytes + 7) / 8;
			mcts_receive(o->m.threads, 0, (struct mcts_message *)message, bytes);
		} else if (!mcts_step(o->m.threads)) {
			return -EDEADLK;
		}
	return o->error;
}

static uint64_t
now(struct search *s)
{
	(void)s;
	return monotonic_ns();
}

static void
close_one(struct search *s)
{
	struct one *o = (struct one *)s;

	mcts_close(&o->m);
	free(o->queue);
	free(o);
}

int
port_one_open(const struct mcts_options *options, struct search **s)
{
	struct one *o = calloc(1, sizeof(*o));
	int rc;

	if (!o)
		return -ENOMEM;
	o->search = (struct search){&o->pointer, 1, run, now, close_one};
	o->pointer = &o->m;
	o->port = (struct mcts_port){call, port_now, port_random};
	o->dice = dice_of(options->seed);
	rc = mcts_open(&o->m, options, &o->port);
	if (rc)
		free(o);
	else
		*s = &o->search;
	return rc;
}

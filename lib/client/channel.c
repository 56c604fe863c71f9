/* SPDX-License-Identifier: BSD-3-Clause */
/* Channels: made on first use, one for each engine that a thread talks to. Doorbells. */
#define _GNU_SOURCE
#include "client/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

void
weir_bell_ring(struct weir_pipe *p)
{
	/* a full socket is as good as a rung bell */
	while (send(p->bell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno == EINTR)
		;
}

/* Takes a bounded number: a peer that rings without end gets no more of our time than that. */
void
weir_bell_drain(int fd)
{
	char byte;

	for (unsigned i = 0; i < 32; i++)
		if (recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno != EINTR)
			return;
}

static int
reason_for(int rc)
{
	return weir_fail(rc, "no channel: %s; close some threads or raise the limit of open files",
			 strerror(-rc));
}

static int
open_channel(struct weir_thread *t, const struct weir_session_msg *r, int bell,
	     struct weir_channel **out)
{
	struct weir *w = t->w;
	struct weir_channel *ch = calloc(1, sizeof(*ch));
	struct weir_channel_head *head;
	struct weir_slot *slots;
	int rc;

	if (ch)
		ch->release = calloc(w->geometry.recv_blocks + 1, sizeof(*ch->release));
	if (!ch || !ch->release) {
		free(ch);
		return -ENOMEM;
	}
	head = (struct weir_channel_head *)(w->arena +
					    weir_arena_channel(&w->geometry, r->channel.channel));
	slots = (struct weir_slot *)(head + 1);
	ch->index = r->channel.channel;
	ch->engine = r->channel.engine;
	TAILQ_INIT(&ch->control);
	TAILQ_INIT(&ch->dues);
	TAILQ_INIT(&ch->cramped);
	weir_ring_init(&ch->pipe.tx, slots, w->geometry.ring_slots, &head->tx_tail, true);
	weir_ring_init(&ch->pipe.rx, slots + w->geometry.ring_slots, w->geometry.ring_slots,
		       &head->rx_tail, false);
	weir_ring_init(&ch->returns, slots + 2ull * w->geometry.ring_slots, WEIR_RETURN_SLOTS,
		       &head->return_tail, true);
	ch->pipe.tx_sleeping = &head->tx_sleeping;
	ch->pipe.rx_sleeping = &head->rx_sleeping;
	ch->pipe.bell = bell;
	ch->pipe.fence = w->fence;
	ch->pipe.home = t;
	rc = weir_thread_add_bell(t, &ch->pipe);
	if (rc) {
		free(ch->release);
		free(ch);
		return rc;
	}
	SLIST_INSERT_HEAD(&t->channels, ch, next);
	t->channel_to[ch->engine] = ch;
	*out = ch;
	return 0;
}

/* A thread that listens has a channel to each engine: threads and programs connect over different
 * ones. */
static struct weir_channel *
any_channel(const struct weir_thread *t)
{
	return t->channel_to[t->engine] ? t->channel_to[t->engine] : SLIST_FIRST(&t->channels);
}

int
weir_channel_get(struct weir_thread *t, uint32_t engine, struct weir_channel **out)
{
	struct weir_session_msg m = weir_message(WEIR_MSG_ADD_CHANNEL), r;
	struct weir_channel *ch = engine == UINT32_MAX ? any_channel(t) : t->channel_to[engine];
	int fds[2], rc;

	if (ch) {
		*out = ch;
		return 0;
	}
	m.add_channel.engine = engine;
	rc = weir_request(t->w, &m, WEIR_MSG_CHANNEL, &r, fds);
	if (rc)
		return rc;
	if (r.channel.channel >= t->w->geometry.channels || r.channel.engine >= WEIR_ENGINES_MAX ||
	    t->channel_to[r.channel.engine] || fds[0] < 0)
		rc = -EPROTO;
	else
		rc = open_channel(t, &r, fds[0], out);
	if (rc && fds[0] >= 0)
		close(fds[0]);
	if (fds[1] >= 0)
		close(fds[1]);
	return rc ? reason_for(rc) : 0;
}

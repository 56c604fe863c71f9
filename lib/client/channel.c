/* SPDX-License-Identifier: BSD-3-Clause */
/* Channels: opened on first use, one per thread and engine. */
#define _GNU_SOURCE
#include "channel.h"
#include "reason.h"
#include "session.h"
#include "thread.h"
#include "wait.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static int
open_channel(struct weir_thread *t, const struct weir_session_msg *r, struct weir_bell bell,
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
	TAILQ_INIT(&ch->to_report);
	TAILQ_INIT(&ch->needs_room);
	weir_ring_init(&ch->pipe.tx, slots, w->geometry.ring_slots, &head->tx_tail, true);
	weir_ring_init(&ch->pipe.rx, slots + w->geometry.ring_slots, w->geometry.ring_slots,
		       &head->rx_tail, false);
	weir_ring_init(&ch->returns, slots + 2ull * w->geometry.ring_slots, WEIR_RETURN_SLOTS,
		       &head->return_tail, true);
	ch->pipe.tx_sleeping = &head->tx_sleeping;
	ch->pipe.rx_sleeping = &head->rx_sleeping;
	ch->pipe.bell = bell;
	ch->pipe.fence = w->fence;
	ch->pipe.worker = t;
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

int
weir_channel_get(struct weir_thread *t, uint32_t engine, struct weir_channel **out)
{
	struct weir_session_msg m = weir_message(WEIR_MSG_ADD_CHANNEL), r;
	int fds[WEIR_SESSION_FDS], rc;
	struct weir_channel *ch;
	struct weir_bell bell;

	weir_assert(engine == UINT32_MAX || engine < WEIR_ENGINES_MAX);
	/* a listening thread has a channel to each engine: its peers use different ones */
	ch = t->channel_to[engine == UINT32_MAX ? t->engine : engine];
	if (!ch && engine == UINT32_MAX)
		ch = SLIST_FIRST(&t->channels);
	if (ch) {
		*out = ch;
		return 0;
	}
	m.add_channel.engine = engine;
	rc = weir_request(t->w, &m, WEIR_MSG_CHANNEL, &r, fds);
	if (rc)
		return rc;
	bell = (struct weir_bell){.wait = fds[0], .ring = fds[1]};
	if (r.channel.channel >= t->w->geometry.channels || r.channel.engine >= WEIR_ENGINES_MAX ||
	    t->channel_to[r.channel.engine] || bell.wait < 0 || bell.ring < 0)
		rc = -EPROTO;
	else
		rc = open_channel(t, &r, bell, out);
	if (rc)
		weir_bell_close(&bell);
	return rc ? weir_fail(rc,
			      "no channel: %s; close some threads or raise the limit of open files",
			      strerror(-rc))
		  : 0;
}

int
weir_channel_get_all(struct weir_thread *t, uint32_t index[WEIR_ENGINES_MAX])
{
	struct weir_channel *ch;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < t->w->geometry.engines; i++) {
		rc = weir_channel_get(t, i, &ch);
		if (!rc)
			index[i] = ch->index;
	}
	return rc;
}

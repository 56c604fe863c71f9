/* SPDX-License-Identifier: BSD-3-Clause */
/* Members as a peers file lists them: all at once, and nobody else. */
#include "control.h"

#include <stdlib.h>

struct file_source {
	struct membership_source source;
	const struct peers *peers;
	uint16_t own;
};

static int
start(struct membership_source *source, struct event_base *base,
      const struct membership_events *events, void *user)
{
	struct file_source *f = (struct file_source *)source;

	for (uint32_t i = 0; i < f->peers->count; i++)
		if (f->peers->list[i].id != f->own)
			events->known(user, &f->peers->list[i]);
	return 0;
}

static void
publish(struct membership_source *source, const struct peer_entry *self)
{
}

static void
stop(struct membership_source *source, bool leave)
{
	free(source);
}

struct membership_source *
source_file(const struct peers *peers, uint16_t own)
{
	struct file_source *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->source = (struct membership_source){
	    .name = "file",
	    .closed = true,
	    .start = start,
	    .publish = publish,
	    .stop = stop,
	};
	f->peers = peers;
	f->own = own;
	return &f->source;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* No list but a few addresses to ask at; the list spreads between the nodes. */
#include "control.h"

#include <stdlib.h>
#include <string.h>

struct join_source {
	struct membership_source source;
	const char *seeds;
};

static int
start(struct membership_source *source, struct event_base *base,
      const struct membership_events *events, void *user)
{
	struct join_source *j = (struct join_source *)source;

	for (const char *at = j->seeds; *at;) {
		char text[WEIR_CTL_PEER_TEXT];
		size_t n = strcspn(at, ",");

		// Their lengths were checked with the options.
		memcpy(text, at, n);
		text[n] = 0;
		events->seed(user, text);
		at += n + (at[n] == ',');
	}
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
source_join(const char *seeds)
{
	struct join_source *j = calloc(1, sizeof(*j));

	if (!j)
		return NULL;
	j->source = (struct membership_source){
	    .name = "join",
	    .start = start,
	    .publish = publish,
	    .stop = stop,
	};
	j->seeds = seeds;
	return &j->source;
}

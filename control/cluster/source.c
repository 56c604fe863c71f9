/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The sources of members that the command line itself names: a peers file, all nodes at once and
 * nobody else; or a few addresses to ask at, from where the list spreads between the nodes.
 */
#include "control.h"

#include "ipc/invariant.h"

#include <stdlib.h>
#include <string.h>

struct static_source {
	struct membership_source source; /* first */
	const struct peers *peers;	 /* NULL: seeds */
	const char *seeds;
	uint16_t own;
};

static int
start(struct membership_source *source, struct event_base *base,
      const struct membership_events *events, void *user)
{
	struct static_source *s = (struct static_source *)source;

	for (uint32_t i = 0; s->peers && i < s->peers->count; i++)
		if (s->peers->list[i].id != s->own)
			events->known(user, &s->peers->list[i]);
	for (const char *at = s->peers ? "" : s->seeds; *at;) {
		char text[WEIR_CTL_PEER_TEXT];
		size_t n = strcspn(at, ",");

		// Their lengths were checked with the options.
		weir_assert(n < sizeof(text));
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

static struct membership_source *
create(const struct static_source *is)
{
	struct static_source *s = malloc(sizeof(*s));

	if (!s)
		return NULL;
	*s = *is;
	s->source.start = start;
	s->source.publish = publish;
	s->source.stop = stop;
	return &s->source;
}

struct membership_source *
source_file(const struct peers *peers, uint16_t own)
{
	return create(&(struct static_source){.source.closed = true, .peers = peers, .own = own});
}

struct membership_source *
source_join(const char *seeds)
{
	return create(&(struct static_source){.seeds = seeds});
}

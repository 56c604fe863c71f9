/* SPDX-License-Identifier: BSD-3-Clause */
#include "version.h"

#include <stdio.h>

#define RANGE_MAX 28

static const char *
range(struct weir_versions v, char text[RANGE_MAX])
{
	if (v.lowest == v.highest)
		snprintf(text, RANGE_MAX, "%u", v.lowest);
	else
		snprintf(text, RANGE_MAX, "%u to %u", v.lowest, v.highest);
	return text;
}

uint32_t
weir_version_choose(struct weir_versions ours, struct weir_versions theirs, const char *protocol,
		    const char *us, const char *them, char *why)
{
	char our_range[RANGE_MAX], their_range[RANGE_MAX];

	if (theirs.highest < theirs.lowest)
		theirs.highest = theirs.lowest;
	if (ours.lowest <= theirs.highest && theirs.lowest <= ours.highest)
		return ours.highest < theirs.highest ? ours.highest : theirs.highest;
	if (why)
		snprintf(why, WEIR_VERSION_WHY,
			 "%s speaks version %s of %s, %s version %s; upgrade %s, which is older",
			 us, range(ours, our_range), protocol, them, range(theirs, their_range),
			 ours.highest < theirs.lowest ? us : them);
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "counts.h"

#include <stdio.h>

static const struct {
	const char *name, *help;
	size_t at;
	uint64_t least, share;
} lines[] = {
#define X(name, least, share, help) {#name, help, offsetof(struct sim_counts, name), least, share},
    SIM_COUNTS(X)
#undef X
};
#define LINES (sizeof(lines) / sizeof(lines[0]))

static uint64_t
value(const struct sim_counts *c, size_t i)
{
	return *(const uint64_t *)(const void *)((const char *)c + lines[i].at);
}

const char *
sim_counts_lack(const struct sim_counts *c, uint64_t *have, uint64_t *least)
{
	for (size_t i = 0; i < LINES; i++) {
		*have = value(c, i);
		*least = lines[i].least;
		if (*have < *least)
			return lines[i].help;
	}
	return NULL;
}

void
sim_tally_add(struct sim_tally *t, const struct sim_counts *c)
{
	t->seeds++;
#define X(name, least, share, help)                                                                \
	t->sum.name += c->name;                                                                    \
	t->having.name += c->name > 0;
	SIM_COUNTS(X)
#undef X
}

void
sim_tally_print(const struct sim_tally *t)
{
	printf("%22s %14s %10s\n", "", "in all", "in seeds");
	for (size_t i = 0; i < LINES; i++)
		printf("%22s %14lu %10lu  %s\n", lines[i].name, value(&t->sum, i),
		       value(&t->having, i), lines[i].help);
}

/*
 * A range of seeds is a sample: the number of those that have an event scatters by its square root.
 * Three times that is left to chance, so that a range fails for the simulator's reasons only.
 */
static bool
by_chance(uint64_t have, uint64_t want)
{
	return have && (want - have) * (want - have) <= 9 * want;
}

bool
sim_tally_check(const struct sim_tally *t)
{
	bool ok = true;

	for (size_t i = 0; i < LINES; i++) {
		uint64_t have = value(&t->having, i), want = t->seeds * lines[i].share / 1000;

		if (t->seeds < SIM_LONG_RANGE || have >= want)
			continue;
		if (lines[i].share < 1000 && by_chance(have, want))
			continue;
		printf("%s: in %lu of %lu seeds, expected in some %lu\n", lines[i].help, have,
		       t->seeds, want);
		ok = false;
	}
	return ok;
}

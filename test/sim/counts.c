/* SPDX-License-Identifier: BSD-3-Clause */
#include "counts.h"

#include "ipc/remote.h"
#include "weir/type.h"

#include <assert.h>
#include <stdio.h>

/*
 * On both sides of: the head and the first continuation of a PUT; the head and the first line of an
 * answer; a line of results; a cell; what the NICs do; a segment of a WRITE or READ.
 */
const uint32_t sim_borders[SIM_BORDERS] = {32, 33, 92,	93,  48,   49,	 112,	113,
					   64, 65, 932, 933, 8192, 8193, 65536, 65537};
static_assert(WEIR_SLOT_HEAD_BYTES - WEIR_PUT_FIELDS == 32 && WEIR_SLOT_MORE_BYTES == 60 &&
		  WEIR_SLOT_HEAD_BYTES == 48 && WEIR_SLOT_SIZE == 64 && WEIR_PUT_MAX == 932 &&
		  WEIR_ANSWER_MAX == 8192,
	      "the borders");
/* Of operands: of the head, an answer's head, the first continuation, a cell. */
const uint32_t sim_update_borders[SIM_UPDATE_BORDERS] = {24, 25, 48, 49, 84, 85, 924, 925};
static_assert(WEIR_SLOT_HEAD_BYTES - WEIR_ACCESS_FIELDS == 24 && WEIR_ACCESS_MAX == 924,
	      "the borders of updates");

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
	t->sum.put_borders |= c->put_borders;
	t->sum.get_borders |= c->get_borders;
	t->sum.update_borders |= c->update_borders;
	t->sum.types |= c->types;
	t->sum.accs |= c->accs;
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

static bool
check_borders(const char *what, const uint32_t *borders, uint32_t n, uint64_t had)
{
	bool ok = true;

	for (uint32_t i = 0; i < n; i++)
		if (!(had >> i & 1)) {
			printf("no seed had %s of %u bytes\n", what, borders[i]);
			ok = false;
		}
	return ok;
}

static bool
check_words(const char *what, uint32_t last, uint64_t had)
{
	bool ok = true;

	for (uint32_t i = 1; i <= last; i++)
		if (!(had >> i & 1)) {
			printf("no seed had an update of %s %u\n", what, i);
			ok = false;
		}
	return ok;
}

/* Lengths, types and operations that some seed must have had. */
static bool
check_union(const struct sim_counts *c)
{
	bool ok = check_borders("a put", sim_borders, SIM_BORDERS, c->put_borders);

	ok &= check_borders("a get", sim_borders, SIM_BORDERS, c->get_borders);
	ok &= check_borders("an update", sim_update_borders, SIM_UPDATE_BORDERS, c->update_borders);
	ok &= check_words("type", WEIR_T_LONG_DOUBLE_AT, c->types);
	return check_words("operation", WEIR_ACC_NO_OP, c->accs) && ok;
}

bool
sim_tally_check(const struct sim_tally *t)
{
	bool ok = t->seeds < SIM_LONG_RANGE || check_union(&t->sum);

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

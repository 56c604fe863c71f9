/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that exports memory, and another one that opens it: from another node, apart, mapped. A
 * test may define BYTES, START and ALL before it includes this.
 */
#ifndef TEST_REMOTE_PLACES_H
#define TEST_REMOTE_PLACES_H

#include "worlds/stream_pair.h"

#include "weir/remote.h"

#ifndef BYTES
#define BYTES 65536u /* of the region */
#endif
#ifndef START
#define START 0u /* of the export in the region, which ends as far from its end */
#endif
#ifndef ALL
#define ALL (WEIR_MAY_READ | WEIR_MAY_WRITE | WEIR_MAY_UPDATE | WEIR_MAY_NOTIFY)
#endif
#define LENGTH (BYTES - 2 * START)

enum place { REMOTE, APART, MAPPED, PLACES };

/* a opens what b exports, and so may c. */
struct memory {
	struct plane *f;
	struct weir *a, *b, *c; /* c: NULL unless the test attaches it */
	struct weir_region *region;
	uint8_t *base; /* of the export */
	struct weir_export *x;
	struct weir_key key;
	uint32_t number;	    /* of x in b's session, if no earlier one has ended */
	struct weir_remote *r, *rc; /* of a and c; NULL: those of the test are elsewhere */
};

/* b exports memory of its own with these rights. */
static inline void
memory_export(struct memory *m, unsigned rights)
{
	struct weir_region_info info;

	assert_int_equal(weir_region_alloc(m->b, BYTES, NULL, &m->region), 0);
	weir_region_info(m->region, &info);
	m->base = (uint8_t *)info.base + START;
	assert_int_equal(weir_export(m->region, START, LENGTH, rights, &m->x, &m->key), 0);
	m->number++;
}

/* The programs and the export, which nobody has opened. */
static inline struct memory
memory_make(enum place place, const struct plane_options *o, unsigned rights)
{
	struct memory m = {.f = plane_create(o)};

	m.a = plane_attach(m.f);
	m.b = plane_attach_at(m.f, place == REMOTE);
	memory_export(&m, rights);
	plane_run(m.f);
	return m;
}

static inline struct weir_remote *
open_key(struct memory *m, uint32_t rights)
{
	struct weir_remote *r = NULL;

	assert_int_equal(weir_remote_open(m->a, &m->key, rights, 0, PATIENT, &r), 0);
	return r;
}

static inline struct memory
memory_open_with(enum place place, const struct plane_options *o)
{
	struct memory m = memory_make(place, o, ALL | (place == MAPPED ? WEIR_MAY_MAP : 0));

	m.r = open_key(&m, ALL);
	return m;
}

static inline struct memory
memory_open(enum place place)
{
	return memory_open_with(place, NULL);
}

static inline void
memory_close(struct memory *m)
{
	weir_remote_close(m->r);
	weir_remote_close(m->rc);
	plane_stop(m->f);
	plane_settle(m->f);
	weir_detach(m->a);
	if (m->c)
		weir_detach(m->c);
	weir_detach(m->b);
	plane_destroy(m->f);
}

/* Nothing that was under way before is any more. */
static inline void
memory_flush(struct memory *m)
{
	assert_int_equal(weir_remote_flush(m->r, PATIENT), 0);
}

/* Puts until the handle says how it ended. */
static inline int
put_until_end(struct weir_remote *r)
{
	uint64_t word = 77;
	int rc;

	do {
		rc = weir_remote_put(r, 0, &word, sizeof(word), 0);
		if (!rc)
			rc = weir_remote_flush(r, PATIENT);
	} while (!rc);
	return rc;
}

static inline void
expect(int rc, int want)
{
	assert_int_equal(rc, want);
	assert_true(strlen(weir_reason()) > 20);
}

#endif

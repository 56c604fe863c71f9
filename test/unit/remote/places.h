/* SPDX-License-Identifier: BSD-3-Clause */
/* A program that exports memory, and another one that opens it: from another node, apart, mapped.
 */
#ifndef TEST_REMOTE_PLACES_H
#define TEST_REMOTE_PLACES_H

#include "worlds/stream_pair.h"

#include "weir/remote.h"

#define BYTES 65536u /* of the export */
#define ALL (WEIR_MAY_READ | WEIR_MAY_WRITE | WEIR_MAY_UPDATE | WEIR_MAY_NOTIFY)

enum place { REMOTE, APART, MAPPED, PLACES };

/* a opens what b exports. */
struct memory {
	struct plane *f;
	struct weir *a, *b;
	struct weir_region *region;
	uint8_t *base;
	struct weir_export *x;
	struct weir_key key;
	struct weir_remote *r;
};

static inline struct memory
memory_open(enum place place)
{
	struct memory m = {.f = plane_create(NULL)};
	struct weir_region_info info;

	m.a = plane_attach(m.f);
	m.b = plane_attach_at(m.f, place == REMOTE);
	assert_int_equal(weir_region_alloc(m.b, BYTES, NULL, &m.region), 0);
	weir_region_info(m.region, &info);
	m.base = info.base;
	assert_int_equal(weir_export(m.region, 0, BYTES, ALL | (place == MAPPED ? WEIR_MAY_MAP : 0),
				     &m.x, &m.key),
			 0);
	plane_run(m.f);
	assert_int_equal(weir_remote_open(m.a, &m.key, ALL, 0, PATIENT, &m.r), 0);
	return m;
}

static inline void
memory_close(struct memory *m)
{
	weir_remote_close(m->r);
	plane_stop(m->f);
	plane_settle(m->f);
	weir_detach(m->a);
	weir_detach(m->b);
	plane_destroy(m->f);
}

/* Nothing that was under way before is any more. */
static inline void
memory_flush(struct memory *m)
{
	assert_int_equal(weir_remote_flush(m->r, PATIENT), 0);
}

static inline void
expect(int rc, int want)
{
	assert_int_equal(rc, want);
	assert_true(strlen(weir_reason()) > 20);
}

#endif

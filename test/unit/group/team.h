/* SPDX-License-Identifier: BSD-3-Clause */
/* Members of a group on one node or two, each a program with a thread of its own. */
#ifndef TEST_GROUP_TEAM_H
#define TEST_GROUP_TEAM_H

#include "worlds/stream_pair.h"

#include "weir/group.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#define MOST 8u

/* Repeats a call until it is complete. */
#define GO_ON(rc, call)                                                                            \
	do                                                                                         \
		(rc) = (call);                                                                     \
	while ((rc) == -EAGAIN)

/* Members, each a program with a thread of its own. The even ones are on node 0. */
struct team {
	struct plane *f;
	uint32_t size;
	struct weir *w[MOST];
	struct weir *stranger; /* a program beside the members, or NULL */
	struct weir_group *g[MOST];
	pthread_t thread[MOST];
	int result[MOST];
	struct team_member {
		struct team *t;
		uint32_t index;
	} at[MOST];
	int (*run)(struct team *t, uint32_t index);
	bool succeeds; /* a member that returns an error ends the test: others would wait for it */
};

static inline void *
member_thread(void *arg)
{
	struct team_member *m = arg;
	int rc = m->t->run(m->t, m->index);

	m->t->result[m->index] = rc;
	if (rc && m->t->succeeds) {
		fprintf(stderr, "member %u: line %d: %s\n", m->index, rc, weir_reason());
		_exit(1);
	}
	return NULL;
}

static inline void
team_start(struct team *t, uint32_t index)
{
	t->at[index] = (struct team_member){t, index};
	assert_int_equal(pthread_create(&t->thread[index], NULL, member_thread, &t->at[index]), 0);
}

static inline void
team_run(struct team *t, int (*run)(struct team *t, uint32_t index))
{
	t->run = run;
	for (uint32_t i = 0; i < t->size; i++)
		team_start(t, i);
	for (uint32_t i = 0; i < t->size; i++)
		pthread_join(t->thread[i], NULL);
}

static inline void
team_open(struct team *t, uint32_t size, bool one_node)
{
	*t = (struct team){.f = plane_create(NULL), .size = size};
	for (uint32_t i = 0; i < size; i++)
		t->w[i] = plane_attach_at(t->f, one_node ? 0 : i % 2);
	plane_run(t->f);
}

static inline void
team_close(struct team *t)
{
	struct weir_event e;

	for (uint32_t i = 0; i < t->size; i++)
		weir_group_leave(t->g[i]);
	plane_stop(t->f);
	/* some ends wait for an engine's timer */
	for (uint32_t i = 0; i < 60000 && plane_open_ends(t->f); i++) {
		plane_settle(t->f);
		/* a connection may have come behind the last call of a thread that has ended */
		for (uint32_t k = 0; k < t->size; k++)
			weir_poll(t->w[k], &e, 1);
		usleep(1000);
	}
	assert_int_equal(plane_open_ends(t->f), 0);
	for (uint32_t i = 0; i < t->size; i++)
		weir_detach(t->w[i]);
	weir_detach(t->stranger);
	plane_destroy(t->f);
}

static inline int
join(struct team *t, uint32_t i)
{
	struct weir_group_options o = WEIR_GROUP_OPTIONS_INIT;

	o.size = t->size;
	o.secret = "open sesame";
	return weir_group_join(t->w[i], "team", &o, PATIENT, &t->g[i]);
}

static inline void
team_join(struct team *t)
{
	bool seen[MOST] = {false};

	team_run(t, join);
	for (uint32_t i = 0; i < t->size; i++) {
		assert_int_equal(t->result[i], 0);
		assert_int_equal(weir_group_size(t->g[i]), t->size);
		assert_false(seen[weir_group_rank(t->g[i])]);
		seen[weir_group_rank(t->g[i])] = true;
	}
}

static inline void
team_join_and_run(uint32_t size, bool one_node, int (*run)(struct team *t, uint32_t index))
{
	struct team t;

	team_open(&t, size, one_node);
	team_join(&t);
	t.succeeds = true;
	team_run(&t, run);
	for (uint32_t i = 0; i < size; i++)
		assert_int_equal(t.result[i], 0);
	team_close(&t);
}

/* Members on two nodes that join and run: each is to return 0, not the line that fails. */
static inline void
team_of(uint32_t size, int (*run)(struct team *t, uint32_t index))
{
	team_join_and_run(size, false, run);
}

/* The same on one node. */
static inline void
team_of_one_node(uint32_t size, int (*run)(struct team *t, uint32_t index))
{
	team_join_and_run(size, true, run);
}

/* All collective calls; 0, or the line that fails. */
static inline int
all_calls(struct weir_group *g)
{
	uint32_t rank = weir_group_rank(g), size = weir_group_size(g);
	uint64_t mine[MOST], all[MOST];
	size_t large = 200000;
	uint8_t *buf = malloc(large * size);
	double sum, part = 1.0 / (rank + 1);

	if (weir_group_barrier(g, PATIENT))
		return __LINE__;
	for (uint32_t root = 0; root < size; root++) {
		uint64_t v = rank == root ? 77 + root : 0;

		if (weir_group_broadcast(g, root, &v, sizeof(v), PATIENT) || v != 77 + root)
			return __LINE__;
	}
	mine[0] = rank * 3 + 1;
	if (weir_group_allgather(g, mine, sizeof(*mine), all, PATIENT))
		return __LINE__;
	for (uint32_t i = 0; i < size; i++)
		if (all[i] != i * 3 + 1)
			return __LINE__;
	if (weir_group_allreduce(g, mine, mine, 1, WEIR_T_UINT64, WEIR_ACC_SUM, PATIENT) ||
	    mine[0] != 3 * size * (size - 1) / 2 + size)
		return __LINE__;
	if (weir_group_allreduce(g, &part, &sum, 1, WEIR_T_DOUBLE, WEIR_ACC_SUM, PATIENT) ||
	    sum < 1 || (size > 1 && sum >= size))
		return __LINE__;
	for (uint32_t i = 0; i < size; i++)
		mine[i] = rank * 100 + i;
	if (weir_group_alltoall(g, mine, sizeof(*mine), all, PATIENT))
		return __LINE__;
	for (uint32_t i = 0; i < size; i++)
		if (all[i] != i * 100 + rank)
			return __LINE__;
	for (size_t i = 0; i < large; i++)
		buf[rank * large + i] = pattern(rank, i);
	if (weir_group_broadcast(g, size - 1, buf + (size - 1) * large, large, PATIENT))
		return __LINE__;
	check_message(buf + (size - 1) * large, size - 1, large);
	free(buf);
	return 0;
}

static inline int
use(struct team *t, uint32_t i)
{
	return all_calls(t->g[i]);
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups from the public calls down to the engines: joining on one node and on two, misuse, groups
 * made from groups, collective calls, members that end.
 */
#include "worlds/stream_pair.h"

#include "group/exchange.h"
#include "group/join.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#define MOST 8u

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
};

static void *
member_thread(void *arg)
{
	struct team_member *m = arg;

	m->t->result[m->index] = m->t->run(m->t, m->index);
	return NULL;
}

static void
team_start(struct team *t, uint32_t index)
{
	t->at[index] = (struct team_member){t, index};
	assert_int_equal(pthread_create(&t->thread[index], NULL, member_thread, &t->at[index]), 0);
}

static void
team_run(struct team *t, int (*run)(struct team *t, uint32_t index))
{
	t->run = run;
	for (uint32_t i = 0; i < t->size; i++)
		team_start(t, i);
	for (uint32_t i = 0; i < t->size; i++)
		pthread_join(t->thread[i], NULL);
}

static void
team_open(struct team *t, uint32_t size, bool one_node)
{
	*t = (struct team){.f = plane_create(NULL), .size = size};
	for (uint32_t i = 0; i < size; i++)
		t->w[i] = plane_attach_at(t->f, one_node ? 0 : i % 2);
	plane_run(t->f);
}

static void
team_close(struct team *t)
{
	for (uint32_t i = 0; i < t->size; i++)
		weir_group_leave(t->g[i]);
	plane_stop(t->f);
	plane_settle(t->f);
	plane_settle(t->f);
	assert_int_equal(plane_open_ends(t->f), 0);
	for (uint32_t i = 0; i < t->size; i++)
		weir_detach(t->w[i]);
	weir_detach(t->stranger);
	plane_destroy(t->f);
}

static int
join(struct team *t, uint32_t i)
{
	struct weir_group_options o = WEIR_GROUP_OPTIONS_INIT;

	o.size = t->size;
	o.secret = "open sesame";
	return weir_group_join(t->w[i], "team", &o, PATIENT, &t->g[i]);
}

static void
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

/* All collective calls; 0, or the line that fails. */
static int
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

static int
use(struct team *t, uint32_t i)
{
	return all_calls(t->g[i]);
}

static void
test_calls(void **state)
{
	for (uint32_t size = 1; size <= 6; size++) {
		struct weir_member m;
		struct team t;

		team_open(&t, size, false);
		team_join(&t);
		team_run(&t, use);
		for (uint32_t i = 0; i < size; i++)
			assert_int_equal(t.result[i], 0);
		/* by node */
		for (uint32_t rank = 0; rank < size; rank++) {
			uint32_t here = (size + 1) / 2;

			assert_int_equal(weir_group_member(t.g[0], rank, &m), 0);
			assert_int_equal(m.node, rank >= here);
			assert_int_equal(m.local, rank < here);
			assert_int_equal(m.on_host, rank < here ? rank : rank - here);
		}
		assert_int_equal(weir_group_member(t.g[0], size, &m), -EINVAL);
		team_close(&t);
	}
}

/* ---- joining ---- */

static const struct {
	uint32_t size, rank;
	const char *secret;
	int result; /* of the member that the other refuses */
} second[] = {
    {2, WEIR_RANK_ANY, NULL, -EACCES},
    {2, WEIR_RANK_ANY, "b", -EACCES},
    {2, WEIR_RANK_ANY, "aa", -EACCES},
    {3, WEIR_RANK_ANY, "a", -EINVAL},
    {2, 1, "a", -EEXIST},
    {2, 0, "a", 0},
};
static unsigned which;
static _Atomic int first_done; /* of those that run: its index, or -1 */

static int
join_second(struct team *t, uint32_t i)
{
	struct weir_group_options o = WEIR_GROUP_OPTIONS_INIT;
	int none = -1, rc;

	o.size = 2;
	o.rank = 1;
	o.secret = "a";
	if (i) {
		o.size = second[which].size;
		o.rank = second[which].rank;
		o.secret = second[which].secret;
	}
	rc = weir_group_join(t->w[i], "pair", &o, PATIENT, &t->g[i]);
	atomic_compare_exchange_strong(&first_done, &none, (int)i);
	return rc;
}

/* No member has the name, or a connection, though all sessions are still there. */
static void
nothing_left(struct team *t, const char *service)
{
	struct weir_listener *l;

	for (uint32_t i = 0; i < t->size; i++)
		assert_null(t->g[i]);
	plane_stop(t->f);
	plane_settle(t->f);
	plane_settle(t->f);
	assert_int_equal(plane_open_ends(t->f), 0);
	plane_run(t->f);
	for (uint32_t i = 0; i < t->size; i++) {
		assert_int_equal(weir_listen(t->w[i], service, 0, &l), 0);
		weir_listener_close(l);
	}
}

/* The one that gathers, as a rule the first, refuses the other, and goes on until it is woken. */
static void
test_disagree(void **state)
{
	for (which = 0; which < sizeof(second) / sizeof(second[0]); which++) {
		int refused = second[which].result, done;
		struct team t;

		team_open(&t, 2, which % 2);
		t.run = join_second;
		atomic_store(&first_done, -1);
		team_start(&t, 0);
		usleep(200000); /* the first one gathers */
		team_start(&t, 1);
		while ((done = atomic_load(&first_done)) < 0)
			usleep(1000);
		if (refused)
			weir_wake(t.w[!done]);
		pthread_join(t.thread[0], NULL);
		pthread_join(t.thread[1], NULL);
		assert_int_equal(t.result[done], refused);
		assert_int_equal(t.result[!done], refused ? -EINTR : 0);
		if (refused)
			nothing_left(&t, "group.pair");
		team_close(&t);
	}
}

/* ---- programs that join without the library ---- */

/* A team, and one more program at its only node. */
static struct weir *
team_open_beside(struct team *t, uint32_t size)
{
	team_open(t, size, true);
	plane_stop(t->f);
	t->stranger = plane_attach_at(t->f, 0);
	plane_run(t->f);
	return t->stranger;
}

/* Connects as soon as somebody gathers. */
static struct weir_conn *
knock(struct weir *w)
{
	struct weir_address a;
	struct weir_conn *c;
	int rc;

	assert_int_equal(weir_address_parse("node:0:group.team", &a), 0);
	while ((rc = weir_connect(w, &a, PATIENT, &c)) == -ECONNREFUSED)
		usleep(1000);
	assert_int_equal(rc, 0);
	return c;
}

static struct join_request
request_of(uint32_t size)
{
	struct join_request r = {.magic = GROUP_MAGIC,
				 .version = GROUP_VERSION,
				 .size = size,
				 .rank = WEIR_RANK_ANY,
				 .self = {.id = 4711}};

	memcpy(r.secret, "open sesame", sizeof("open sesame"));
	return r;
}

/* Programs that have connected and say nothing keep no group from being formed. */
static void
test_silent(void **state)
{
	struct weir_conn *c[3];
	struct team t;
	struct weir *w = team_open_beside(&t, 2);

	t.run = join;
	team_start(&t, 0);
	for (uint32_t i = 0; i < 3; i++)
		c[i] = knock(w);
	team_start(&t, 1);
	for (uint32_t i = 0; i < 2; i++) {
		pthread_join(t.thread[i], NULL);
		assert_int_equal(t.result[i], 0);
	}
	team_run(&t, use);
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(t.result[i], 0);
	for (uint32_t i = 0; i < 3; i++)
		weir_close(c[i]);
	team_close(&t);
}

/* Nor take the room of others: the first of too many are closed. */
static void
test_many_silent(void **state)
{
	enum { MANY = 70 };
	struct weir_conn *c[MANY];
	uint8_t byte;
	size_t length;
	struct team t;
	struct weir *w = team_open_beside(&t, 2);

	t.run = join;
	team_start(&t, 0);
	for (uint32_t i = 0; i < MANY; i++)
		c[i] = knock(w);
	/* 66 stay */
	for (uint32_t i = 0; i < MANY - 66; i++)
		assert_int_equal(weir_recv(c[i], &byte, 1, &length, PATIENT), -ESHUTDOWN);
	for (uint32_t i = MANY - 66; i < MANY; i++)
		assert_int_equal(weir_recv(c[i], &byte, 1, &length, 0), -EAGAIN);
	team_start(&t, 1);
	for (uint32_t i = 0; i < 2; i++) {
		pthread_join(t.thread[i], NULL);
		assert_int_equal(t.result[i], 0);
	}
	for (uint32_t i = 0; i < MANY; i++)
		weir_close(c[i]);
	team_close(&t);
}

/* Requests that are wrong in a field are refused, and a right one behind them does not help. */
static void
test_malformed(void **state)
{
	static const struct {
		uint32_t length, field, value; /* field: its offset */
		int status;
	} lies[] = {
	    {0, 0, GROUP_MAGIC, -EPROTO},
	    {1, 0, GROUP_MAGIC, -EPROTO},
	    {sizeof(struct join_request) - 1, 0, GROUP_MAGIC, -EPROTO},
	    {sizeof(struct join_request) + 1, 0, GROUP_MAGIC, -EPROTO},
	    {60000, 0, GROUP_MAGIC, -EPROTO},
	    {sizeof(struct join_request), offsetof(struct join_request, magic), 0, -EPROTO},
	    {sizeof(struct join_request), offsetof(struct join_request, version), 2, -EPROTO},
	    {sizeof(struct join_request), offsetof(struct join_request, size), 4, -EINVAL},
	    {sizeof(struct join_request), offsetof(struct join_request, size), 0, -EINVAL},
	    {sizeof(struct join_request), offsetof(struct join_request, rank), 3, -EINVAL},
	    {sizeof(struct join_request), offsetof(struct join_request, rank), 1u << 31, -EINVAL},
	    {sizeof(struct join_request), offsetof(struct join_request, flags), 1, -EINVAL},
	    {sizeof(struct join_request), offsetof(struct join_request, secret), 0, -EACCES},
	    {sizeof(struct join_request), offsetof(struct join_request, secret) + 60, ~0u, -EACCES},
	};
	uint8_t *bytes = calloc(1, 60000);
	struct join_request r;
	struct join_answer a;
	struct weir_conn *c;
	size_t length;
	uint32_t left;
	struct team t;
	struct weir *w = team_open_beside(&t, 3);

	t.run = join;
	team_start(&t, 0);
	for (uint32_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		r = request_of(3);
		memcpy(bytes, &r, sizeof(r));
		memcpy(bytes + lies[i].field, &lies[i].value, sizeof(lies[i].value));
		c = knock(w);
		assert_int_equal(weir_send(c, bytes, lies[i].length, PATIENT), 0);
		weir_send(c, &r, sizeof(r), 0);
		assert_int_equal(weir_recv(c, &a, sizeof(a), &length, PATIENT), 0);
		assert_int_equal(length, JOIN_ANSWER_BYTES(0));
		assert_int_equal(a.status, lies[i].status);
		assert_int_equal(weir_recv(c, &a, sizeof(a), &length, PATIENT), -ESHUTDOWN);
		weir_close(c);
	}
	/* one that vanishes has not joined */
	c = knock(w);
	assert_int_equal(weir_send(c, &r, sizeof(r), PATIENT), 0);
	weir_close(c);
	do {
		usleep(1000);
		plane_stop(t.f);
		left = plane_open_ends(t.f);
		plane_run(t.f);
	} while (left);
	free(bytes);
	team_start(&t, 1);
	team_start(&t, 2);
	for (uint32_t i = 0; i < 3; i++) {
		pthread_join(t.thread[i], NULL);
		assert_int_equal(t.result[i], 0);
	}
	team_close(&t);
}

/* Of more programs than there are places that ask at once, as many as there are get one. */
static void
test_crowd(void **state)
{
	enum { CROWD = 60 };
	struct join_request r = request_of(2);
	struct weir_conn *c[CROWD];
	uint32_t places = 0, sent = 0;
	struct join_answer a;
	size_t length;
	struct team t;
	struct weir *w = team_open_beside(&t, 1);
	int rc;

	t.size = 2; /* members that the only one of the team awaits */
	t.run = join;
	team_start(&t, 0);
	for (uint32_t i = 0; i < CROWD; i++)
		c[i] = knock(w);
	plane_hold(t.f, true);
	for (uint32_t i = 0; i < CROWD; i++)
		sent += !weir_send(c[i], &r, sizeof(r), 0);
	assert_int_equal(sent, CROWD);
	plane_hold(t.f, false);
	for (uint32_t i = 0; i < CROWD; i++) {
		rc = weir_recv(c[i], &a, sizeof(a), &length, PATIENT);
		if (!rc) {
			assert_int_equal(a.status, 0);
			assert_int_equal(a.rank, 1);
			places++;
		} else {
			assert_int_equal(rc, -ESHUTDOWN);
		}
		weir_close(c[i]);
	}
	assert_int_equal(places, 1);
	pthread_join(t.thread[0], NULL);
	assert_int_equal(t.result[0], -ECONNRESET); /* which its place's owner has left */
	t.size = 1;
	team_close(&t);
}

static void
test_misuse(void **state)
{
	struct weir_group_options o = WEIR_GROUP_OPTIONS_INIT;
	uint32_t ranks[2] = {0, 0}, out;
	struct weir_group *g, *h;
	struct team t;
	char secret[65];
	int64_t v = 5;

	team_open(&t, 1, true);
	memset(secret, 'x', sizeof(secret));
	secret[64] = 0;
	assert_int_equal(weir_group_join(t.w[0], "g", NULL, 0, &g), -EINVAL);
	assert_int_equal(weir_group_join(t.w[0], "g", &o, 0, &g), -EINVAL); /* no size */
	o.size = 1;
	assert_int_equal(weir_group_join(t.w[0], "", &o, 0, &g), -EINVAL);
	assert_int_equal(weir_group_join(t.w[0], "a b", &o, 0, &g), -EINVAL);
	assert_int_equal(weir_group_join(t.w[0], "abcdefghijklmnopqrstuvwxyz", &o, 0, &g), -EINVAL);
	o.rank = 1;
	assert_int_equal(weir_group_join(t.w[0], "g", &o, 0, &g), -EINVAL);
	o.rank = 0;
	o.secret = secret;
	assert_int_equal(weir_group_join(t.w[0], "g", &o, 0, &g), -EINVAL);
	o.secret = secret + 1;
	o.flags = 2;
	assert_int_equal(weir_group_join(t.w[0], "g", &o, 0, &g), -EINVAL);
	o.flags = WEIR_GROUP_NODE;
	o.more[3] = 1;
	assert_int_equal(weir_group_join(t.w[0], "g", &o, 0, &g), -EINVAL);
	o.more[3] = 0;
	assert_int_equal(weir_group_join(t.w[0], "g", &o, PATIENT, &g), 0);
	weir_group_leave(g);
	weir_group_leave(NULL);
	o.size = 2;
	assert_int_equal(weir_group_join(t.w[0], "g", &o, 50, &g), -EAGAIN);
	assert_non_null(strstr(weir_reason(), "not all 2 members"));

	assert_int_equal(weir_group_self(t.w[0], &g), 0);
	assert_int_equal(all_calls(g), 0);
	assert_int_equal(weir_group_broadcast(g, 1, &v, 8, 0), -EINVAL);
	assert_int_equal(weir_group_allreduce(g, &v, &v, 1, WEIR_T_DOUBLE, WEIR_ACC_BAND, 0),
			 -EINVAL);
	assert_int_equal(
	    weir_group_allreduce(g, &v, (char *)&v + 1, 0, WEIR_T_INT64, WEIR_ACC_SUM, 0), -EINVAL);
	assert_int_equal(weir_group_allgather(g, &v, SIZE_MAX / 2, &v, 0), -EINVAL);
	assert_int_equal(weir_group_subset(g, ranks, 2, 0, &h), -EINVAL); /* more than there are */
	ranks[0] = 1;
	assert_int_equal(weir_group_subset(g, ranks, 1, 0, &h), -EINVAL);
	assert_int_equal(weir_group_translate(g, 1, ranks, g, &out), -EINVAL);
	ranks[0] = 0;
	assert_int_equal(weir_group_subset(g, ranks, 1, PATIENT, &h), 0);
	assert_int_equal(weir_group_translate(g, 1, ranks, h, &out), 0);
	assert_int_equal(out, 0);
	weir_group_leave(g);
	assert_int_equal(all_calls(h), 0); /* outlives the one that it was made from */
	weir_group_leave(h);
	team_close(&t);
}

/* ---- groups of groups ---- */

static int
make_parts(struct team *t, uint32_t i)
{
	struct weir_group *g = t->g[i], *half, *host, *rest, *none;
	uint32_t rank = weir_group_rank(g), size = weir_group_size(g), n = 0;
	uint32_t ranks[MOST], out[MOST];

	/* by parity, in reverse order */
	if (weir_group_split(g, rank % 2, (int)(size - rank), PATIENT, &half))
		return __LINE__;
	if (weir_group_size(half) != (size + 1 - rank % 2) / 2)
		return __LINE__;
	for (uint32_t k = 0; k < size; k++)
		ranks[k] = k;
	if (weir_group_translate(g, size, ranks, half, out))
		return __LINE__;
	for (uint32_t k = 0; k < size; k++)
		if (out[k] !=
		    (k % 2 != rank % 2 ? WEIR_RANK_ANY : weir_group_size(half) - 1 - k / 2))
			return __LINE__;
	if (all_calls(half))
		return __LINE__;
	if (weir_group_split_host(g, PATIENT, &host) || all_calls(host))
		return __LINE__;
	/* all but rank 1, backwards; twice the same */
	for (uint32_t k = size; k-- > 0;)
		if (k != 1)
			ranks[n++] = k;
	for (int again = 0; again < 2 && rank != 1; again++) {
		if (weir_group_subset(g, ranks, n, PATIENT, &rest))
			return __LINE__;
		if (ranks[weir_group_rank(rest)] != rank || all_calls(rest))
			return __LINE__;
		weir_group_leave(rest);
	}
	if (weir_group_split(g, rank ? -1 : 3, 0, PATIENT, &none) || !none != !!rank)
		return __LINE__;
	weir_group_leave(none);
	weir_group_leave(half);
	weir_group_leave(host);
	return all_calls(g);
}

static void
test_parts(void **state)
{
	struct team t;

	team_open(&t, 5, false);
	team_join(&t);
	team_run(&t, make_parts);
	for (uint32_t i = 0; i < t.size; i++)
		assert_int_equal(t.result[i], 0);
	team_close(&t);
}

/* ---- timeouts and differences ---- */

static int
come_late(struct team *t, uint32_t i)
{
	uint64_t mine = i, all[MOST];
	int rc, waits = 0;

	if (i == 1)
		usleep(300000);
	while ((rc = weir_group_allgather(t->g[i], &mine, 8, all, i ? PATIENT : 10)) == -EAGAIN) {
		waits++;
		if (weir_group_barrier(t->g[i], 0) != -EBUSY)
			return __LINE__;
	}
	if (rc || all[weir_group_rank(t->g[i])] != i)
		return __LINE__;
	return i || waits ? 0 : __LINE__;
}

static void
test_continue(void **state)
{
	struct team t;

	team_open(&t, 3, false);
	team_join(&t);
	team_run(&t, come_late);
	for (uint32_t i = 0; i < t.size; i++)
		assert_int_equal(t.result[i], 0);
	team_close(&t);
}

static int
differ(struct team *t, uint32_t i)
{
	uint32_t rank = weir_group_rank(t->g[i]);
	uint64_t mine[2] = {0}, all[2 * MOST];
	int rc = weir_group_allgather(t->g[i], mine, rank == 1 ? 16 : 8, all, PATIENT);

	return rc ? rc : weir_group_barrier(t->g[i], PATIENT);
}

static void
test_differ(void **state)
{
	uint32_t dead;
	struct team t;

	team_open(&t, 4, false);
	team_join(&t);
	team_run(&t, differ);
	for (uint32_t i = 0; i < t.size; i++) {
		assert_int_equal(t.result[i], -EINVAL);
		assert_int_equal(weir_group_barrier(t.g[i], PATIENT), -EINVAL);
		assert_int_equal(weir_group_failed(t.g[i], &dead, 1), 0);
	}
	team_close(&t);
}

/* ---- the one that gathers ends ---- */

#define GATHERED 6u /* members; ranks 0 and 3 are no neighbours */

/* A program on node 0 that gathers, as far as it comes; without a thread. */
struct gatherer {
	struct team *t;
	struct weir *w;
	struct weir_listener *l;
	uint32_t joiners;
	struct weir_conn *conn[GATHERED];
	struct join_request request[GATHERED];
};

static void
gatherer_open(struct gatherer *lead, struct team *t)
{
	const struct weir_listen_options o = {.size = sizeof(o), .flags = WEIR_LISTEN_PUBLIC};

	*lead = (struct gatherer){.t = t, .w = t->w[0]};
	assert_int_equal(weir_listen_with(lead->w, "group.team", &o, &lead->l), 0);
}

/* Until n members have asked it. */
static void
gatherer_hear(struct gatherer *lead, uint32_t n)
{
	for (uint32_t i = 0, heard = 0; heard < n; i++, usleep(1000)) {
		size_t length;

		assert_true(i < 60000);
		while (lead->joiners < GATHERED &&
		       !weir_accept(lead->l, 0, &lead->conn[lead->joiners]))
			lead->joiners++;
		heard = 0;
		for (uint32_t k = 0; k < lead->joiners; k++) {
			struct join_request *r = &lead->request[k];

			if (!r->magic && !weir_recv(lead->conn[k], r, sizeof(*r), &length, 0))
				assert_int_equal(length, sizeof(*r));
			heard += r->magic == GROUP_MAGIC;
		}
	}
}

/* Tells the member that asked first its neighbours, of which the rest is never told. */
static void
gatherer_answer_one(struct gatherer *lead)
{
	static const uint32_t rank_of[] = {0, 1, 2, 4, 5}; /* its own is 3 */
	struct join_answer a = {.magic = GROUP_MAGIC, .context = 7};
	uint32_t ranks[GROUP_NEIGHBOURS];
	int local;

	a.count = exchange_neighbours(0, GATHERED, ranks);
	for (uint32_t i = 0; i < a.count; i++) {
		struct join_neighbour *n = &a.neighbour[i];
		uint32_t k = 0;

		while (rank_of[k] != ranks[i])
			k++;
		n->rank = ranks[i];
		n->member = lead->request[k].self;
		assert_int_equal(weir_conn_peer(lead->conn[k], &n->member.node, &local), 0);
	}
	assert_int_equal(weir_send(lead->conn[0], &a, JOIN_ANSWER_BYTES(a.count), PATIENT), 0);
	assert_int_equal(weir_flush(lead->conn[0], PATIENT), 0);
}

static _Atomic int joined_anew;

/* Programs 1 to 6 are the members. */
static int
join_patiently(struct team *t, uint32_t i)
{
	struct weir_group_options o = WEIR_GROUP_OPTIONS_INIT;
	int rc;

	o.size = GATHERED;
	do
		rc = weir_group_join(t->w[i], "team", &o, 60000, &t->g[i]);
	while (rc == -ECONNRESET && atomic_fetch_add(&joined_anew, 1) < 10);
	return rc ? rc : all_calls(t->g[i]);
}

/*
 * It dies, `answering`: when one member has got its answer, else when two have asked. The others
 * form the group nevertheless. The one with an answer learns that its group never comes, though
 * the dead one is no neighbour of its: it joins again.
 */
static void
gatherer_dies(bool answering)
{
	uint32_t first = answering ? GATHERED - 1 : 2;
	struct gatherer lead;
	struct team t;

	team_open(&t, GATHERED + 1, false);
	gatherer_open(&lead, &t);
	atomic_store(&joined_anew, 0);
	t.run = join_patiently;
	for (uint32_t i = 1; i <= first; i++)
		team_start(&t, i);
	gatherer_hear(&lead, first);
	if (answering)
		gatherer_answer_one(&lead);
	plane_die(t.f, lead.w);
	for (uint32_t i = first + 1; i <= GATHERED; i++)
		team_start(&t, i);
	for (uint32_t i = 1; i <= GATHERED; i++)
		pthread_join(t.thread[i], NULL);
	for (uint32_t i = 1; i <= GATHERED; i++)
		assert_int_equal(t.result[i], 0);
	assert_int_equal(atomic_load(&joined_anew), answering);
	team_close(&t);
}

static void
test_gatherer_dies(void **state)
{
	gatherer_dies(false);
}

static void
test_gatherer_dies_answering(void **state)
{
	gatherer_dies(true);
}

/* ---- members that end ---- */

static int
go_on(struct team *t, uint32_t i)
{
	uint32_t dead[MOST], rank = weir_group_rank(t->g[i]);
	struct weir_group *h;
	int rc;

	if (rank == 2) {
		plane_die(t->f, t->w[i]);
		return 0;
	}
	do
		rc = weir_group_barrier(t->g[i], PATIENT);
	while (!rc);
	if (rc != -ECONNRESET || weir_group_failed(t->g[i], dead, MOST) != 1 || dead[0] != 2)
		return __LINE__;
	if (weir_group_survivors(t->g[i], PATIENT, &h))
		return __LINE__;
	if (weir_group_size(h) != t->size - 1 || weir_group_rank(h) != rank - (rank > 2))
		return __LINE__;
	rc = all_calls(h);
	weir_group_leave(h);
	return rc;
}

static void
test_death(void **state)
{
	struct team t;

	team_open(&t, 6, false);
	team_join(&t);
	team_run(&t, go_on);
	for (uint32_t i = 0; i < t.size; i++)
		assert_int_equal(t.result[i], 0);
	team_close(&t);
}

/* The lowest rank connects to all others: none connects to it, and so finds that it has ended. */
static int
miss(struct team *t, uint32_t i)
{
	static const uint32_t ranks[] = {0, 1, 2, 3};
	struct weir_group *h;

	if (!weir_group_rank(t->g[i])) {
		plane_die(t->f, t->w[i]);
		return 0;
	}
	if (weir_group_subset(t->g[i], ranks, 4, PATIENT, &h) != -ECONNRESET || h)
		return __LINE__;
	return strstr(weir_reason(), "member 0 has ended") ? 0 : __LINE__;
}

static void
test_absent(void **state)
{
	struct team t;

	team_open(&t, 4, false);
	team_join(&t);
	team_run(&t, miss);
	for (uint32_t i = 0; i < t.size; i++)
		assert_int_equal(t.result[i], 0);
	team_close(&t);
}

/* A member that leaves is missed when it is needed, by all. */
static int
need(struct team *t, uint32_t i)
{
	struct weir_event e;
	uint32_t dead = 9, word = 0;
	int rc = join(t, i);

	if (rc)
		return rc;
	if (weir_group_rank(t->g[i]) == 1) {
		weir_group_leave(t->g[i]);
		t->g[i] = NULL;
		return 0;
	}
	/* the thread that joined is told nothing of its connections */
	for (int k = 0; k < 200; k++) {
		if (weir_poll(t->w[i], &e, 1) > 0 && e.type != WEIR_EVENT_NODE)
			return __LINE__;
		usleep(1000);
	}
	/* members that only receive learn it, too */
	if (weir_group_broadcast(t->g[i], 1, &word, sizeof(word), 20000) != -ECONNRESET)
		return __LINE__;
	if (weir_group_barrier(t->g[i], PATIENT) != -ECONNRESET)
		return __LINE__;
	return weir_group_failed(t->g[i], &dead, 1) == 1 && dead == 1 ? 0 : __LINE__;
}

static void
test_leave(void **state)
{
	struct team t;

	team_open(&t, 5, false);
	team_run(&t, need);
	for (uint32_t i = 0; i < t.size; i++)
		assert_int_equal(t.result[i], 0);
	team_close(&t);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_calls),
	    cmocka_unit_test(test_disagree),
	    cmocka_unit_test(test_misuse),
	    cmocka_unit_test(test_parts),
	    cmocka_unit_test(test_continue),
	    cmocka_unit_test(test_differ),
	    cmocka_unit_test(test_death),
	    cmocka_unit_test(test_leave),
	    cmocka_unit_test(test_absent),
	    cmocka_unit_test(test_silent),
	    cmocka_unit_test(test_many_silent),
	    cmocka_unit_test(test_malformed),
	    cmocka_unit_test(test_crowd),
	    cmocka_unit_test(test_gatherer_dies),
	    cmocka_unit_test(test_gatherer_dies_answering),
	};

	return cmocka_run_group_tests_name("group_join", tests, NULL, NULL);
}

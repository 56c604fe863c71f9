/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Joining a group, from the public calls down to the engines: members that disagree, programs that
 * join without the library, the end of the one that gathers.
 */
#include "team.h"

#include "group/handle.h"

#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

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

/* ---- programs of a launcher ---- */

static const struct {
	const char *name, *size, *rank, *secret;
	int result;
	const char *reason; /* in it */
} launches[] = {
    {NULL, "1", "0", NULL, -ENOENT, "weir-run"},
    {"", "1", "0", NULL, -EINVAL, "not a group name"},
    {"a/b", "1", "0", NULL, -EINVAL, ""},
    {"job", NULL, "0", NULL, -EINVAL,
     "'' for $WEIR_GROUP_SIZE (expected a number from 1 to 65536)"},
    {"job", "", "0", NULL, -EINVAL, "'' for $WEIR_GROUP_SIZE"},
    {"job", "0", "0", NULL, -EINVAL, "'0' for $WEIR_GROUP_SIZE"},
    {"job", "65537", "0", NULL, -EINVAL, "'65537' for"},
    {"job", "1x", "0", NULL, -EINVAL, "'1x' for"},
    {"job", " 1", "0", NULL, -EINVAL, "' 1' for"},
    {"job", "-1", "0", NULL, -EINVAL, "'-1' for"},
    {"job", "4294967297", "0", NULL, -EINVAL, "'4294967297' for"},
    {"job", "18446744073709551617", "0", NULL, -EINVAL, "for $WEIR_GROUP_SIZE"},
    {"job", "1", "1", NULL, -EINVAL, "'1' for $WEIR_GROUP_RANK (expected a number from 0 to 0)"},
    {"job", "1", "", NULL, -EINVAL, "'' for $WEIR_GROUP_RANK"},
    {"job", "1", "0", "1234567890123456789012345678901234567890123456789012345678901234", -EINVAL,
     "secret"},
    {"job", "1", "0", "open sesame", 0, NULL},
    {"job", "1", NULL, NULL, 0, NULL},
};

static void
set_variable(const char *name, const char *value)
{
	assert_int_equal(value ? setenv(name, value, 1) : unsetenv(name), 0);
}

static void
set_launch(const char *name, const char *size, const char *rank, const char *secret)
{
	set_variable("WEIR_GROUP", name);
	set_variable("WEIR_GROUP_SIZE", size);
	set_variable("WEIR_GROUP_RANK", rank);
	set_variable("WEIR_GROUP_SECRET", secret);
}

static int
join_launched(struct team *t, uint32_t i)
{
	return weir_group_join(t->w[i], NULL, NULL, PATIENT, &t->g[i]);
}

static int
join_half_launched(struct team *t, uint32_t i)
{
	struct weir_group_options o = WEIR_GROUP_OPTIONS_INIT;

	o.size = 2;
	o.rank = 1;
	o.secret = "open sesame";
	return i ? join_launched(t, i) : weir_group_join(t->w[i], "job", &o, PATIENT, &t->g[i]);
}

static void
test_launched(void **state)
{
	struct weir_group_options o = WEIR_GROUP_OPTIONS_INIT;
	struct weir_group *g;
	struct team t;

	team_open(&t, 1, true);
	for (size_t i = 0; i < sizeof(launches) / sizeof(launches[0]); i++) {
		set_launch(launches[i].name, launches[i].size, launches[i].rank,
			   launches[i].secret);
		if (weir_group_join(t.w[0], NULL, NULL, PATIENT, &g) != launches[i].result)
			fail_msg("launch %zu: %s", i, weir_reason());
		if (!launches[i].result)
			weir_group_leave(g);
		else if (!strstr(weir_reason(), launches[i].reason))
			fail_msg("launch %zu: %s", i, weir_reason());
	}
	/* the environment replaces both or nothing */
	assert_int_equal(weir_group_join(t.w[0], "job", NULL, PATIENT, &g), -EINVAL);
	o.size = 1;
	assert_int_equal(weir_group_join(t.w[0], NULL, &o, PATIENT, &g), -EINVAL);
	team_close(&t);

	/* one environment for all: without ranks */
	set_launch("job", "3", NULL, "open sesame");
	team_open(&t, 3, false);
	team_run(&t, join_launched);
	for (uint32_t i = 0; i < t.size; i++) {
		assert_int_equal(t.result[i], 0);
		assert_int_equal(weir_group_size(t.g[i]), 3);
	}
	team_run(&t, use);
	for (uint32_t i = 0; i < t.size; i++)
		assert_int_equal(t.result[i], 0);
	team_close(&t);
	/* beside a member that gives the same options itself */
	set_launch("job", "2", "0", "open sesame");
	team_open(&t, 2, true);
	team_run(&t, join_half_launched);
	assert_int_equal(t.result[0] | t.result[1], 0);
	assert_int_equal(weir_group_rank(t.g[1]), 0);
	team_close(&t);
	set_launch(NULL, NULL, NULL, NULL);
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

static struct weir_conn *
knock_at(struct weir *w, const struct weir_group *g)
{
	struct weir_address a;
	struct weir_conn *c;
	char text[64];

	snprintf(text, sizeof(text), "node:0:gm.%016llx", (unsigned long long)g->endpoint->id);
	assert_int_equal(weir_address_parse(text, &a), 0);
	assert_int_equal(weir_connect(w, &a, PATIENT, &c), 0);
	return c;
}

/* Makes a group of the group, and leaves it. */
static int
make_another(struct team *t, uint32_t i)
{
	static const uint32_t ranks[] = {1, 0};
	struct weir_group *g;
	int rc = weir_group_subset(t->g[i], ranks, 2, PATIENT, &g);

	if (!rc)
		rc = all_calls(g);
	weir_group_leave(g);
	return rc;
}

/* The members make groups until the other end of c is closed: then they look who has connected. */
static void
make_until_closed(struct team *t, struct weir_conn *c)
{
	size_t length;
	uint8_t byte;
	int rc;

	do {
		team_run(t, make_another);
		for (uint32_t i = 0; i < t->size; i++)
			assert_int_equal(t->result[i], 0);
		rc = weir_recv(c, &byte, 1, &length, 0);
	} while (rc == -EAGAIN);
	assert_int_equal(rc, -ESHUTDOWN);
}

/*
 * Connections where neighbours are awaited, that say nothing, or what no group waits for: 64 of
 * each stay per group, of which there are two, the newest ones. Groups are made beside them. A few
 * more go: hellos and probes of the members count with them.
 */
static void
unclaimed(bool said)
{
	enum { MANY = 134, STAY = 2 * 64, MEMBERS = 4 };
	struct group_hello hello = {.magic = GROUP_MAGIC, .version = GROUP_VERSION, .context = 7};
	struct weir_conn *c[MANY], *late;
	uint32_t gone = MANY - STAY;
	uint8_t byte;
	size_t length;
	struct team t;
	struct weir *w;

	team_open(&t, 2, true);
	plane_stop(t.f);
	t.stranger = w = plane_attach_at(t.f, 1);
	plane_run(t.f);
	team_join(&t);
	late = knock_at(w, t.g[0]);
	for (uint32_t i = 0; i < MANY; i++) {
		c[i] = knock_at(w, t.g[0]);
		hello.from = i;
		if (said)
			assert_int_equal(weir_send(c[i], &hello, sizeof(hello), PATIENT), 0);
	}
	for (uint32_t i = 0; i < gone; i++)
		make_until_closed(&t, c[i]);
	if (said) { /* one that says something only now is the newest of those that do */
		assert_int_equal(weir_send(late, &hello, sizeof(hello), PATIENT), 0);
		make_until_closed(&t, c[gone]);
	}
	assert_int_equal(weir_recv(late, &byte, 1, &length, 0), said ? -EAGAIN : -ESHUTDOWN);
	for (uint32_t i = gone + MEMBERS; i < MANY; i++)
		assert_int_equal(weir_recv(c[i], &byte, 1, &length, 0), -EAGAIN);
	for (uint32_t i = 0; i < MANY; i++)
		weir_close(c[i]);
	weir_close(late);
	team_close(&t);
}

static void
test_silent_neighbours(void **state)
{
	unclaimed(false);
}

static void
test_unclaimed(void **state)
{
	unclaimed(true);
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
		if (lies[i].length >= sizeof(r)) /* a second one is refused in any case */
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

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_disagree),
	    cmocka_unit_test(test_launched),
	    cmocka_unit_test(test_silent),
	    cmocka_unit_test(test_many_silent),
	    cmocka_unit_test(test_silent_neighbours),
	    cmocka_unit_test(test_unclaimed),
	    cmocka_unit_test(test_malformed),
	    cmocka_unit_test(test_crowd),
	    cmocka_unit_test(test_gatherer_dies),
	    cmocka_unit_test(test_gatherer_dies_answering),
	};

	return cmocka_run_group_tests_name("group_join", tests, NULL, NULL);
}

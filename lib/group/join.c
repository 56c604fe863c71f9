/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Joining by name. The first program of each host listens on "group.NAME"; the others connect to
 * the node with the lowest id that does. A leader that learns of a lower node sends its members
 * there and follows. The last one left gathers `size` members, gives ranks, and tells each member
 * its neighbours. The rest of the table is an allgather among them.
 */
#include "handle.h"

#include "base/secret.h"
#include "base/vec.h"
#include "client/progress.h"
#include "ipc/invariant.h"
#include "stream/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RETRY_NS 20000000u     /* between two looks at who gathers */
#define SILENT_MOST 64u	       /* connections without a request, beyond the group's size */
#define ANSWER_NS 10000000000u /* for all members to have room for their answers */

/* A member at the one that gathers; the first one is itself, without a connection. */
struct joiner {
	struct weir_conn *conn; /* NULL: answered, or has ended */
	bool asked;
	uint32_t rank; /* WEIR_RANK_ANY: to be given */
	struct member member;
};

struct gathering {
	struct endpoint *endpoint;
	char service[WEIR_SERVICE_MAX];
	struct join_request request; /* own */
	uint16_t node;
	uint64_t retry_at; /* ns */
	/* as a member */
	struct weir_conn *conn; /* to the one that gathers; NULL: none */
	bool sent;
	/* as a leader */
	struct weir_listener *lead; /* NULL: another program leads */
	struct joiner *joiner;
	uint32_t joiners, room;
	uint32_t asked; /* joiners that have; never more than the size */
	/* once all have: number of the joiner by rank; NULL before */
	uint32_t *at;
	uint64_t context, answer_until; /* ns: those without room go */
	struct join_answer answer;	/* for this member */
};

/* ---- the one that gathers ---- */

static void
stop_leading(struct gathering *j)
{
	for (uint32_t i = 0; i < j->joiners; i++)
		weir_close(j->joiner[i].conn);
	j->joiners = j->asked = 0;
	weir_listener_close(j->lead);
	j->lead = NULL;
}

static struct joiner *
add_joiner(struct gathering *j)
{
	if (VEC_RESERVE(j->joiner, j->room, j->joiners + 1))
		return NULL;
	j->joiner[j->joiners] = (struct joiner){0};
	return &j->joiner[j->joiners++];
}

int
join_request_check(const struct join_request *own, const struct join_request *r, size_t length)
{
	if (length != sizeof(*r) || r->magic != GROUP_MAGIC || r->version != GROUP_VERSION)
		return -EPROTO;
	if (!secret_equal(r->secret, own->secret, sizeof(own->secret)))
		return -EACCES;
	if (r->size != own->size || r->flags != own->flags)
		return -EINVAL;
	return r->rank == WEIR_RANK_ANY || r->rank < r->size ? 0 : -EINVAL;
}

static void
drop_joiner(struct gathering *j, struct joiner *m)
{
	weir_assert(m != j->joiner && j->asked > m->asked); /* the first is this member */
	weir_close(m->conn);
	m->conn = NULL;
	j->asked -= m->asked;
	m->asked = false;
}

/* Reads the request of a joiner. */
static void
hear(struct gathering *j, struct joiner *m)
{
	struct join_request r;
	size_t length = 0;
	int rc, local;

	if (!m->asked && j->asked == j->request.size) /* it looks again when this group is made */
		return;
	rc = weir_recv(m->conn, &r, sizeof(r), &length, 0);
	if (rc == -EAGAIN)
		return;
	if (rc == -EMSGSIZE || (!rc && m->asked))
		rc = -EPROTO;
	if (!rc)
		rc = join_request_check(&j->request, &r, length);
	for (uint32_t i = 0; !rc && r.rank != WEIR_RANK_ANY && i < j->joiners; i++)
		if (j->joiner[i].asked && j->joiner[i].rank == r.rank)
			rc = -EEXIST;
	if (!rc)
		rc = weir_conn_peer(m->conn, &m->member.node, &local);
	if (rc) {
		struct join_answer a = {.magic = GROUP_MAGIC, .status = rc};

		weir_send(m->conn, &a, JOIN_ANSWER_BYTES(0), 0);
		drop_joiner(j, m);
		return;
	}
	m->asked = true;
	j->asked++;
	weir_assert(j->asked <= j->request.size);
	m->rank = r.rank;
	m->member.id = r.self.id;
	m->member.numa = r.self.numa;
}

static int
by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static int
give_ranks(struct gathering *j)
{
	uint32_t size = j->request.size, n = 0, rank = 0;
	uint64_t *order = calloc(size, sizeof(*order)); /* node 16, number of the joiner 32 */

	weir_assert(!j->at && j->asked == size);
	j->at = malloc(size * sizeof(*j->at));
	if (!order || !j->at) {
		free(order);
		return group_no_memory();
	}
	memset(j->at, 0xff, size * sizeof(*j->at));
	for (uint32_t i = 0; i < j->joiners; i++) {
		if (!j->joiner[i].asked)
			continue;
		if (j->joiner[i].rank == WEIR_RANK_ANY)
			order[n++] = (uint64_t)j->joiner[i].member.node << 32 | i;
		else
			j->at[j->joiner[i].rank] = i;
	}
	qsort(order, n, sizeof(*order), by_value);
	for (uint32_t i = 0; i < n; i++) {
		while (j->at[rank] != NOBODY) {
			rank++;
			weir_assert(rank < size);
		}
		j->at[rank] = (uint32_t)order[i];
	}
	free(order);
	return 0;
}

static struct join_answer
answer_of(const struct gathering *j, uint32_t rank)
{
	struct join_answer a = {.magic = GROUP_MAGIC, .rank = rank, .context = j->context};
	uint32_t ranks[GROUP_NEIGHBOURS];

	a.count = exchange_neighbours(rank, j->request.size, ranks);
	for (uint32_t i = 0; i < a.count; i++) {
		a.neighbour[i].rank = ranks[i];
		a.neighbour[i].member = j->joiner[j->at[ranks[i]]].member;
	}
	return a;
}

/*
 * Answers those that have room for it, which a connection may not have at first. -EAGAIN: some have
 * none yet. A member that has gone is found when its neighbours connect.
 */
static int
answer_step(struct gathering *j)
{
	bool late = weir_clock() >= j->answer_until, waits = false;

	for (uint32_t rank = 0; rank < j->request.size; rank++) {
		struct joiner *m = &j->joiner[j->at[rank]];
		struct join_answer a;

		if (!m->conn)
			continue;
		a = answer_of(j, rank);
		if (weir_send(m->conn, &a, JOIN_ANSWER_BYTES(a.count), 0) == -EAGAIN && !late) {
			waits = true;
			continue;
		}
		weir_close(m->conn);
		m->conn = NULL;
	}
	return waits ? -EAGAIN : 0;
}

/* 0: complete; -EAGAIN: members are missing. */
static int
lead_step(struct gathering *j)
{
	uint32_t silent = 0, kept = 1, rank = 0;
	struct weir_conn *c;
	struct joiner *m;
	int rc;

	if (j->at)
		return answer_step(j);
	while (!weir_accept(j->lead, 0, &c)) {
		m = add_joiner(j);
		if (!m) {
			weir_close(c);
			return group_no_memory();
		}
		m->conn = c;
	}
	for (uint32_t i = 1; i < j->joiners; i++)
		hear(j, &j->joiner[i]);
	/* of those that have connected and say nothing, the first go, so that others have room */
	for (uint32_t i = j->joiners; i-- > 1;)
		if (j->joiner[i].conn && !j->joiner[i].asked &&
		    ++silent > j->request.size + SILENT_MOST)
			drop_joiner(j, &j->joiner[i]);
	for (uint32_t i = 1; i < j->joiners; i++)
		if (j->joiner[i].conn)
			j->joiner[kept++] = j->joiner[i];
	j->joiners = kept;
	if (j->asked < j->request.size)
		return -EAGAIN;
	if (getrandom(&j->context, sizeof(j->context), 0) != sizeof(j->context))
		return weir_fail(-EAGAIN, "the system has no random numbers yet; try again");
	rc = give_ranks(j);
	if (rc)
		return rc;
	while (j->at[rank]) /* its own */
		rank++;
	j->answer = answer_of(j, rank);
	j->answer_until = weir_clock() + ANSWER_NS;
	return answer_step(j);
}

/* ---- who gathers ---- */

/* Listens, if no program of this host does: 0, -EADDRINUSE, or another error. */
static int
try_to_lead(struct gathering *j)
{
	const struct weir_listen_options o = {
	    .size = sizeof(o),
	    .backlog = 1024,
	    .flags = j->request.flags & WEIR_GROUP_NODE ? 0 : WEIR_LISTEN_PUBLIC};
	struct joiner *m;
	int rc = weir_listen_silent(j->endpoint->w, j->service, &o, &j->lead);

	if (rc)
		return rc;
	j->joiners = 0;
	m = add_joiner(j);
	if (!m) {
		stop_leading(j);
		return group_no_memory();
	}
	m->asked = true;
	j->asked = 1;
	m->rank = j->request.rank;
	m->member = j->request.self;
	return 0;
}

/* Leads, or connects to who does. 0 or -errno. */
static int
find_leader(struct gathering *j)
{
	uint16_t node = j->node; /* or a lower one that offers the service */
	int rc;

	if (weir_clock() < j->retry_at)
		return 0;
	j->retry_at = weir_clock() + RETRY_NS;
	if (!(j->request.flags & WEIR_GROUP_NODE)) {
		struct weir_service_entry list[64];
		int n = weir_service_find(j->endpoint->w, j->service, list, 64);

		if (n < 0)
			return n;
		for (int i = 0; i < n && i < 64; i++)
			if (list[i].node < node)
				node = (uint16_t)list[i].node;
	}
	if (j->lead) {
		if (node < j->node)
			stop_leading(j);
		return 0;
	}
	if (node == j->node) {
		rc = try_to_lead(j);
		if (rc != -EADDRINUSE)
			return rc;
	}
	j->sent = false;
	rc = endpoint_connect(j->endpoint, node, j->service, &j->conn);
	if (rc)
		j->conn = NULL;
	return group_lacks(rc) || weir_is_loss(rc) ? rc : 0; /* else it may do later */
}

/* ---- a member that is gathered ---- */

static int
refused(int status)
{
	switch (status) {
	case -EACCES:
		return weir_fail(status, "the group has another secret");
	case -EINVAL:
		return weir_fail(status, "the group has another size, or is one of a host only; "
					 "all members give the same options");
	case -EEXIST:
		return weir_fail(status, "another member has the rank; give WEIR_RANK_ANY or one "
					 "that is free");
	default:
		return weir_fail(-EPROTO, "the group's first member is of another release; "
					  "install one release on all nodes");
	}
}

bool
join_answer_valid(const struct join_request *own, const struct join_answer *a, size_t length)
{
	uint32_t ranks[GROUP_NEIGHBOURS], n;

	if (length < JOIN_ANSWER_BYTES(0) || a->magic != GROUP_MAGIC)
		return false;
	if (a->status)
		return true;
	if (a->rank >= own->size || (own->rank != WEIR_RANK_ANY && a->rank != own->rank))
		return false;
	n = exchange_neighbours(a->rank, own->size, ranks);
	if (a->count != n || length != JOIN_ANSWER_BYTES(n))
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (a->neighbour[i].rank != ranks[i])
			return false;
	return true;
}

/*
 * The one that gathered has gone, or follows another: this member looks again. Others may have got
 * their answer, and would wait for a neighbour that forms another group: a new endpoint tells them
 * that the one they know has ended. -EAGAIN, or another error.
 */
static int
no_answer(struct gathering *j)
{
	struct endpoint *e;
	int rc = j->sent ? endpoint_create(j->endpoint->w, &e) : -EAGAIN;

	if (rc)
		return rc;
	endpoint_drop(j->endpoint);
	j->endpoint = e;
	j->request.self.id = e->id;
	return -EAGAIN;
}

/* 0: the answer is here; -EAGAIN: not yet; or why this program may not join. */
static int
member_step(struct gathering *j)
{
	size_t length = 0;
	int rc = weir_conn_opened(j->conn);

	if (!rc && !j->sent) {
		rc = weir_send(j->conn, &j->request, sizeof(j->request), 0);
		j->sent = !rc;
	}
	if (!rc)
		rc = weir_recv(j->conn, &j->answer, sizeof(j->answer), &length, 0);
	if (rc == -EAGAIN)
		return rc;
	if (!rc && !join_answer_valid(&j->request, &j->answer, length))
		rc = -EPROTO;
	else if (!rc && j->answer.status)
		rc = refused(j->answer.status);
	else if (rc)
		rc = weir_state(j->endpoint->w) == WEIR_UP ? no_answer(j)
							   : weir_gone(j->endpoint->w);
	weir_close(j->conn);
	j->conn = NULL;
	return rc == -EPROTO ? refused(rc) : rc;
}

static int
gather_step(struct gathering *j)
{
	struct weir_thread *t = j->endpoint->worker;
	int rc = 0;

	if (weir_state(t->w) != WEIR_UP)
		return weir_gone(t->w);
	weir_lock(t);
	weir_progress(t, NULL);
	weir_unlock(t);
	if (!j->conn && !j->at) /* one that answers stays who gathers */
		rc = find_leader(j);
	if (rc)
		return rc;
	if (j->lead)
		return lead_step(j);
	return j->conn ? member_step(j) : -EAGAIN;
}

static int
gather(struct gathering *j, uint64_t deadline)
{
	struct weir_wait wait;
	int rc;

	weir_wait_init(&wait, j->endpoint->worker, weir_time_left(deadline));
	wait.nap_always = true;
	while ((rc = gather_step(j)) == -EAGAIN) {
		rc = weir_wait_next(&wait);
		if (rc)
			break;
	}
	weir_wait_end(&wait);
	if (j->lead)
		stop_leading(j);
	weir_close(j->conn);
	free(j->at);
	free(j->joiner);
	if (rc == -EAGAIN)
		weir_fail(rc, "not all %u members have joined in time", j->request.size);
	return rc;
}

/* ---- the group ---- */

/* Exchanges the table of members with the neighbours known. */
static int
make_group(struct gathering *j, uint64_t deadline, struct weir_group **out)
{
	struct collective_call c = {.kind = COLLECTIVE_ALLGATHER, .length = sizeof(struct member)};
	const struct join_answer *a = &j->answer;
	struct weir_group *g;
	int rc = group_new(j->endpoint, a->rank, j->request.size, a->context, &g);

	if (rc)
		return rc;
	for (uint32_t i = 0; i < g->x.neighbours; i++)
		g->edge[i].peer = a->neighbour[i].member;
	c.mine = &j->request.self;
	c.all = g->member;
	if (exchange_begin(&g->x, &c))
		rc = group_no_memory();
	if (!rc)
		rc = group_await(g, deadline);
	if (rc && rc == exchange_error(&g->x)) {
		group_spread(g);
		rc =
		    weir_fail(rc, "member %u has ended while the group was formed (%s); join again",
			      g->x.failures ? g->x.failure[0].rank : NOBODY,
			      g->why ? strerror(-g->why) : "another member says so");
	}
	if (!rc)
		rc = group_number(g);
	if (rc)
		group_free(g);
	else
		*out = g;
	return rc;
}

static int
check_join(const char *name, const struct weir_group_options *o)
{
	static const uint64_t none[4];
	size_t n = name ? strlen(name) : 0;

	if (!n || n > WEIR_GROUP_NAME_MAX)
		return weir_fail(-EINVAL,
				 "not a group name; give 1 to %d letters, digits, '_', '-', '.'",
				 WEIR_GROUP_NAME_MAX);
	if (!o->size || o->size > WEIR_GROUP_MAX)
		return weir_fail(-EINVAL, "a group of %u members; give 1 to %u", o->size,
				 WEIR_GROUP_MAX);
	if (o->rank != WEIR_RANK_ANY && o->rank >= o->size)
		return weir_fail(-EINVAL,
				 "rank %u of %u members; give a lower one, or "
				 "WEIR_RANK_ANY",
				 o->rank, o->size);
	if (o->flags & ~WEIR_GROUP_NODE || o->reserved || memcmp(o->more, none, sizeof(none)) != 0)
		return weir_fail(-EINVAL, "unknown flag, or a reserved field that is not 0; see "
					  "weir/group.h");
	if (o->secret && strlen(o->secret) > WEIR_GROUP_SECRET_MAX)
		return weir_fail(-EINVAL, "the secret is longer than %d bytes",
				 WEIR_GROUP_SECRET_MAX);
	return 0;
}

static int
begin(struct gathering *j, struct weir *w, const char *name, const struct weir_group_options *o)
{
	int rc = weir_node(w);
	unsigned cpu, numa;

	if (rc < 0)
		return rc;
	j->node = (uint16_t)rc;
	snprintf(j->service, sizeof(j->service), "group.%s", name);
	rc = endpoint_create(w, &j->endpoint);
	if (rc)
		return rc;
	j->request = (struct join_request){
	    .magic = GROUP_MAGIC,
	    .version = GROUP_VERSION,
	    .size = o->size,
	    .rank = o->rank,
	    .flags = o->flags,
	    .self = {.id = j->endpoint->id,
		     .node = j->node,
		     .numa = (int16_t)(syscall(SYS_getcpu, &cpu, &numa, NULL) ? -1 : (int)numa)}};
	if (o->secret)
		snprintf(j->request.secret, sizeof(j->request.secret), "%s", o->secret);
	return 0;
}

int
weir_group_join(struct weir *w, const char *name, const struct weir_group_options *o,
		int timeout_ms, struct weir_group **group)
{
	uint64_t deadline = weir_time_end(timeout_ms);
	struct weir_group_options launched;
	struct gathering *j;
	int rc = 0;

	if (!w || (name && !o) || !group)
		return weir_fail(-EINVAL, "no session, no options, or no place for the group; see "
					  "weir/group.h");
	if (!o) {
		rc = group_launched(&name, &launched);
		o = &launched;
	}
	if (!rc)
		rc = check_join(name, o);
	if (rc)
		return rc;
	j = calloc(1, sizeof(*j));
	if (!j)
		return group_no_memory();
	rc = begin(j, w, name, o);
	if (!rc) {
		rc = gather(j, deadline);
		if (!rc)
			rc = make_group(j, deadline, group);
		endpoint_drop(j->endpoint);
	}
	free(j);
	return rc;
}

int
weir_group_self(struct weir *w, struct weir_group **group)
{
	const struct weir_group_options o = {.rank = 0, .size = 1};
	struct gathering *j;
	int rc;

	if (!w || !group)
		return weir_fail(-EINVAL, "no session, or no place for the group");
	j = calloc(1, sizeof(*j));
	if (!j)
		return group_no_memory();
	rc = begin(j, w, "", &o);
	if (!rc) {
		rc = make_group(j, 0, group);
		endpoint_drop(j->endpoint);
	}
	free(j);
	return rc;
}

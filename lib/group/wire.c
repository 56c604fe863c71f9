/* SPDX-License-Identifier: BSD-3-Clause */
/* The connections of a group with its neighbours, and waiting for them. */
#include "board.h"
#include "handle.h"

#include "client/progress.h"
#include "ipc/invariant.h"
#include "stream/model.h"

#include <stdlib.h>

#define PROBE_NS 100000000u	/* ns until a neighbour that has not connected is probed */
#define ANNOUNCE_NS 1000000000u /* ns in a call until neighbours are told which one it is */
#define SPREAD_NS 200000000u	/* ns to tell neighbours of a failure */

uint64_t
group_mix(uint64_t a, uint64_t b)
{
	uint64_t x = (a ^ b * 0x9e3779b97f4a7c15u) + 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

/* ---- time ---- */

/* ---- life ---- */

static int send_message(void *user, uint32_t neighbour, const struct iovec *parts, unsigned n,
			size_t length);

int
group_new(struct endpoint *e, uint32_t rank, uint32_t size, uint64_t context,
	  struct weir_group **out)
{
	struct weir_group *g = calloc(1, sizeof(*g));

	if (!g || exchange_init(&g->x, rank, size)) {
		free(g);
		return group_no_memory();
	}
	g->member = calloc(size, sizeof(*g->member));
	g->edge = calloc(g->x.neighbours + 1, sizeof(*g->edge));
	if (!g->member || !g->edge || weir_bias_init(&g->lock)) {
		free(g->member);
		free(g->edge);
		exchange_free(&g->x);
		free(g);
		return weir_fail(-ENOMEM, "no memory for a group of %u; free some", size);
	}
	g->x.send = send_message;
	g->x.user = g;
	g->context = context;
	g->unready = g->x.neighbours;
	g->made = weir_clock();
	g->endpoint = e;
	g->idler = g;
	endpoint_keep(e);
	*out = g;
	return 0;
}

void
group_free(struct weir_group *g)
{
	for (uint32_t i = 0; i < g->x.neighbours; i++) {
		weir_close(g->edge[i].conn);
		weir_close(g->edge[i].probe);
	}
	if (g->sub)
		group_free(g->sub);
	endpoint_drop(g->endpoint);
	exchange_free(&g->x);
	weir_bias_fini(&g->lock);
	free(g->choices);
	free(g->member);
	free(g->edge);
	free(g);
}

int
group_number(struct weir_group *g)
{
	uint32_t *count = calloc(UINT16_MAX + 1u, sizeof(*count));

	if (!count)
		return group_no_memory();
	for (uint32_t i = 0; i < g->x.size; i++)
		g->member[i].on_host = count[g->member[i].node]++;
	free(count);
	return 0;
}

/* ---- connections ---- */

static void
edge_close(struct weir_conn **c)
{
	weir_close(*c);
	*c = NULL;
}

static void
edge_ended(struct weir_group *g, uint32_t i, int rc)
{
	struct edge *e = &g->edge[i];

	weir_assert(e->ready || g->unready);
	if (!e->ready)
		g->unready--;
	e->ready = true;
	edge_close(&e->conn);
	edge_close(&e->probe);
	if (!g->why)
		g->why = rc;
	exchange_ended(&g->x, i, rc == -ESHUTDOWN ? 0 : rc);
}

static int
send_message(void *user, uint32_t neighbour, const struct iovec *parts, unsigned n, size_t length)
{
	struct weir_group *g = user;
	struct edge *e = &g->edge[neighbour];
	int rc;

	if (!e->ready || !e->conn)
		return -EAGAIN;
	rc = weir_sendv(e->conn, parts, n, 0, 0, 0);
	g->nap |= rc == -ENOMEM; /* no doorbell tells when there is some */
	return rc == -ENOMEM || (rc && weir_state(g->endpoint->w) != WEIR_UP) ? -EAGAIN : rc;
}

bool
group_lacks(int rc)
{
	return rc == -ENOMEM || rc == -EMFILE || rc == -EDQUOT || rc == -EACCES;
}

static void
edge_made(struct weir_group *g, struct edge *e)
{
	weir_assert(!e->ready && e->conn && g->unready);
	e->ready = true;
	g->unready--;
	edge_close(&e->probe);
}

/* To a neighbour of a higher rank. 0 or -errno: for want of something here. */
static int
connect_edge(struct weir_group *g, uint32_t i, struct weir_conn **c)
{
	char service[WEIR_SERVICE_MAX];
	int rc;

	if (*c)
		return 0;
	endpoint_service(g->edge[i].peer.id, service);
	rc = endpoint_connect(g->endpoint, g->edge[i].peer.node, service, c);
	if (!rc || group_lacks(rc))
		return rc;
	edge_ended(g, i, rc);
	return 0;
}

/* An attempt that has no answer in time is made anew: a slow data plane is no death. */
static int
reach(struct weir_group *g, uint32_t i)
{
	const struct group_hello hello = {.magic = GROUP_MAGIC,
					  .version = GROUP_VERSION,
					  .context = g->context,
					  .from = g->x.rank};
	struct edge *e = &g->edge[i];
	int rc = connect_edge(g, i, &e->conn);

	if (rc || !e->conn)
		return rc;
	rc = weir_conn_opened(e->conn);
	if (!rc)
		rc = weir_send(e->conn, &hello, sizeof(hello), 0);
	if (!rc)
		edge_made(g, e);
	else if (rc == -ETIMEDOUT)
		edge_close(&e->conn);
	else if (rc != -EAGAIN)
		edge_ended(g, i, rc);
	return 0;
}

/* From a neighbour of a lower rank. */
static int
await_edge(struct weir_group *g, uint32_t i)
{
	struct edge *e = &g->edge[i];
	size_t length;
	int rc = 0;

	e->conn = endpoint_claim(g->endpoint, g->context, g->x.neighbour[i].rank);
	if (e->conn) {
		edge_made(g, e);
		return 0;
	}
	/* a neighbour that has ended never connects: nobody but its listener tells */
	if (weir_clock() - g->made < PROBE_NS)
		return 0;
	rc = connect_edge(g, i, &e->probe);
	if (rc || !e->probe)
		return rc;
	rc = weir_conn_opened(e->probe);
	if (!rc)
		rc = weir_recv(e->probe, NULL, 0, &length, 0);
	if (rc == -ETIMEDOUT)
		edge_close(&e->probe);
	else if (rc != -EAGAIN)
		edge_ended(g, i, rc == -ESHUTDOWN || !rc ? -ECONNRESET : rc);
	return 0;
}

static void
receive(struct weir_group *g, uint32_t i)
{
	struct edge *e = &g->edge[i];
	struct weir_loan loan;
	int rc = -EAGAIN;

	while (exchange_wants(&g->x, i)) {
		rc = weir_recv_loan(e->conn, &loan, 0);
		if (rc)
			break;
		exchange_input(&g->x, i, loan.data, loan.length);
		weir_release(g->endpoint->w, &loan);
		rc = -EAGAIN;
	}
	g->nap |= rc == -ENOMEM;
	if (rc != -EAGAIN && rc != -ENOMEM && weir_state(g->endpoint->w) == WEIR_UP)
		edge_ended(g, i, rc);
}

/* ---- waiting ---- */

static void
progress(struct weir_thread *t)
{
	weir_lock(t);
	weir_progress(t, NULL);
	weir_unlock(t);
}

/* Takes messages that have come, and what came for the calling thread, if that is another one. 0,
 * or an error that is not about the other members. */
static int
take_all(struct weir_group *g)
{
	struct weir_thread *t = g->endpoint->worker, *own;
	int rc = 0;

	if (weir_state(t->w) != WEIR_UP)
		return weir_gone(t->w);
	own = weir_thread_get(t->w);
	g->nap = false;
	g->elsewhere = own != t;
	progress(t);
	if (own && own != t)
		progress(own);
	if (g->unready) {
		endpoint_accept(g->endpoint);
		for (uint32_t i = 0; !rc && i < g->x.neighbours; i++)
			if (!g->edge[i].ready)
				rc = g->x.neighbour[i].rank > g->x.rank ? reach(g, i)
									: await_edge(g, i);
	}
	for (uint32_t i = 0; !rc && i < g->x.neighbours; i++)
		if (g->edge[i].conn && g->edge[i].ready)
			receive(g, i);
	return weir_state(t->w) == WEIR_UP ? rc : weir_gone(t->w);
}

int
group_progress(struct weir_group *g)
{
	int rc = take_all(g);

	return rc ? rc : exchange_step(&g->x);
}

/*
 * Runs the function of `idler` for g, which waits. Meanwhile nobody is inside a call of theirs: the
 * function's own waits look whether a member has ended.
 */
static int
run_idle(struct weir_group *g, struct weir_group *idler)
{
	bool inside = g->inside, idler_inside = idler->inside;
	int items;

	weir_assert(!idler->idling); /* group_enter() */
	idler->idling = true;
	if (inside)
		group_set_inside(g, false);
	if (idler != g && idler_inside)
		group_set_inside(idler, false);
	items = idler->idle(idler->idle_arg);
	if (inside)
		group_set_inside(g, true);
	if (idler != g && idler_inside)
		group_set_inside(idler, true);
	idler->idling = false;
	return items;
}

int
group_wait_next(struct weir_group *g, struct weir_wait *wait)
{
	uint32_t arms = wait->armed ? wait->self->arms : 0;

	/* a wait inside the function may have taken the wake-up of this one, and what it told of */
	if (g->idler->idle &&
	    (run_idle(g, g->idler) > 0 || (wait->armed && wait->self->arms != arms)))
		weir_wait_again(wait);
	return weir_wait_next(wait);
}

static int
await(struct weir_group *g, uint64_t deadline)
{
	struct weir_waiter own;
	struct weir_wait wait;
	int rc;

	weir_wait_init(&wait, g->endpoint->worker, weir_time_left(deadline));
	wait.own = &own;
	while ((rc = group_progress(g)) == -EAGAIN) {
		/* another thread may have accepted what this one awaits, and no doorbell tells */
		wait.nap_always = g->unready || g->nap;
		rc = group_wait_next(g, &wait);
		if (rc)
			break;
	}
	weir_wait_end(&wait);
	return rc;
}

/* When neighbours are told which call it is. */
static uint64_t
soon(uint64_t deadline)
{
	uint64_t at = weir_clock() + ANNOUNCE_NS;

	return at < deadline ? at : deadline;
}

int
group_await(struct weir_group *g, uint64_t deadline)
{
	uint64_t until = soon(deadline);
	int rc;

	/* neighbours without room are told later */
	while ((rc = await(g, until)) == -EAGAIN && until < deadline)
		until = exchange_announce(&g->x) ? soon(deadline) : deadline;
	return rc;
}

void
group_spread(struct weir_group *g)
{
	uint64_t end = weir_clock() + SPREAD_NS;
	struct weir_wait wait;

	weir_wait_init(&wait, g->endpoint->worker, weir_time_left(end));
	wait.nap_always = true;
	while (!take_all(g) && exchange_tell(&g->x) == -EAGAIN && !weir_wait_next(&wait))
		;
	weir_wait_end(&wait);
}

int
group_watch(struct weir_group *g)
{
	int rc = take_all(g);
	uint64_t now;

	weir_assert(g->call.op == CALL_MEET);
	if (rc && !group_lacks(rc))
		return rc;
	/* as group_await() */
	now = weir_clock();
	if (!g->announce_at || (now >= g->announce_at && exchange_announce(&g->x)))
		g->announce_at = now + ANNOUNCE_NS;
	else if (now >= g->announce_at)
		g->announce_at = UINT64_MAX;
	rc = exchange_step(&g->x);
	return rc == -EAGAIN ? 0 : rc;
}

void
group_missing(struct weir_group *g, uint32_t rank)
{
	exchange_failed(&g->x, rank, -ECONNRESET);
}

void
group_differ(struct weir_group *g)
{
	group_set_inside(g, true);
	exchange_differ(&g->x);
	group_spread(g);
	group_set_inside(g, false);
}

bool
group_has_left(const struct weir_group *g, uint32_t rank)
{
	for (uint32_t i = 0; i < g->x.neighbours; i++)
		if (g->x.neighbour[i].rank == rank)
			return g->x.neighbour[i].ended;
	return false;
}

/* Sets weir_reason() for the end of a member. Returns status. */
static int
say_ended(uint32_t rank, int status)
{
	if (status == -EHOSTDOWN)
		return weir_fail(status,
				 "the node of member %u is down; weir_group_survivors() makes "
				 "a group of the others",
				 rank);
	return weir_fail(status,
			 "member %u has ended, or left the group; "
			 "weir_group_survivors() makes a group of the others",
			 rank);
}

int
group_error(const struct weir_group *g, int rc)
{
	uint32_t rank = g->x.failures ? g->x.failure[0].rank : NOBODY;

	if (!rc || rc != exchange_error(&g->x))
		return rc;
	if (rc == -ECONNRESET || rc == -EHOSTDOWN)
		return say_ended(rank, rc);
	if (rc == -EINVAL)
		return weir_fail(rc, "the members' collective calls differ in kind, order, length "
				     "or root; all members make the same ones");
	return weir_fail(rc, "no memory for messages of the group; free some");
}

int
group_look(struct weir_group *g, uint32_t *rank, bool *naps)
{
	uint32_t i = 0;
	int rc = 0;

	if (weir_state(g->endpoint->w) != WEIR_UP) /* the wait ends by itself */
		return 0;
	weir_bias_lock(&g->lock);
	if (!g->inside)
		group_progress(g);
	*naps |= g->inside || g->unready || g->nap || g->elsewhere;
	while (!g->inside && i < g->x.failures && g->x.failure[i].rank == NOBODY)
		i++;
	if (!g->inside && i < g->x.failures) {
		*rank = g->x.failure[i].rank;
		rc = say_ended(*rank, g->x.failure[i].status);
	}
	weir_bias_unlock(&g->lock);
	return rc;
}

bool
group_has_failed(struct weir_group *g, uint32_t rank)
{
	bool failed = false;

	if (weir_state(g->endpoint->w) != WEIR_UP)
		return false;
	weir_bias_lock(&g->lock);
	if (!g->inside)
		group_progress(g);
	for (uint32_t i = 0; !g->inside && !failed && i < g->x.failures; i++)
		failed = g->x.failure[i].rank == rank;
	weir_bias_unlock(&g->lock);
	return failed;
}

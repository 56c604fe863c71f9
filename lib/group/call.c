/* SPDX-License-Identifier: BSD-3-Clause */
/* Collective calls: arguments, and going on after a timeout. */
#include "board.h"
#include "handle.h"

#include "ipc/invariant.h"

#include <string.h>

int
group_enter(struct weir_group *g, const struct group_call *call)
{
	int rc = g->call.op != CALL_NONE;

	if (weir_state(g->endpoint->w) != WEIR_UP)
		return weir_gone(g->endpoint->w);
	if (g->idling)
		return group_in_idle();
	if (rc && memcmp(&g->call, call, sizeof(*call)))
		return weir_fail(-EBUSY, "another collective call has begun; repeat it with the "
					 "same arguments until it is complete");
	g->call = *call;
	group_set_inside(g, true);
	return rc;
}

int
group_leave_call(struct weir_group *g, int rc)
{
	bool waits = rc == -EAGAIN || rc == -EINTR;

	weir_assert(g->call.op != CALL_NONE);
	/* the call can go on when there is room */
	waits |= rc && rc != exchange_error(&g->x) && group_lacks(rc);
	if (!waits) { /* the call is over */
		g->call = (struct group_call){0};
		exchange_cancel(&g->x);
		if (rc && rc == exchange_error(&g->x)) {
			group_spread(g);
			rc = group_error(g, rc);
		}
	}
	group_set_inside(g, false);
	return rc;
}

int
group_take_back(struct weir_group *g, int rc)
{
	g->call = (struct group_call){0};
	group_set_inside(g, false);
	return rc;
}

int
group_meet(struct weir_group *g)
{
	const struct group_call call = {.op = CALL_MEET};
	const struct collective_call meeting = {.kind = COLLECTIVE_MEETING};
	int rc = group_enter(g, &call);

	if (!rc) {
		rc = exchange_begin(&g->x, &meeting);
		weir_assert(!rc); /* a meeting takes no memory */
	}
	g->announce_at = 0;
	return rc;
}

int
group_met(struct weir_group *g, int rc)
{
	return group_leave_call(g, rc);
}

static int
collective(struct weir_group *g, const struct collective_call *c, int timeout_ms)
{
	const struct group_call call = {.op = CALL_COLLECTIVE, .collective = *c};
	int rc = group_enter(g, &call);

	if (rc < 0)
		return rc;
	if (!rc && exchange_begin(&g->x, c))
		return group_take_back(
		    g, weir_fail(-ENOMEM, "no memory for a collective call; free some"));
	return group_leave_call(g, group_await(g, weir_time_end(timeout_ms)));
}

/* Whether p has `count` blocks of `length` bytes, which an address can count. */
static bool
holds(const void *p, size_t count, size_t length)
{
	size_t bytes;

	return !__builtin_mul_overflow(count, length, &bytes) && bytes <= SIZE_MAX / 4 &&
	       (p || !bytes);
}

int
weir_group_barrier(struct weir_group *g, int timeout_ms)
{
	const struct collective_call c = {.kind = COLLECTIVE_BARRIER};

	return g ? collective(g, &c, timeout_ms) : group_misused();
}

int
weir_group_broadcast(struct weir_group *g, uint32_t root, void *buf, size_t length, int timeout_ms)
{
	const struct collective_call c = {
	    .kind = COLLECTIVE_BROADCAST, .root = root, .all = buf, .length = length};

	if (!g || root >= g->x.size || !holds(buf, 1, length))
		return group_misused();
	return collective(g, &c, timeout_ms);
}

int
weir_group_allgather(struct weir_group *g, const void *mine, size_t length, void *all,
		     int timeout_ms)
{
	const struct collective_call c = {
	    .kind = COLLECTIVE_ALLGATHER, .mine = mine, .all = all, .length = length};

	if (!g || !holds(mine, 1, length) || !holds(all, g->x.size, length))
		return group_misused();
	return collective(g, &c, timeout_ms);
}

int
weir_group_allreduce(struct weir_group *g, const void *mine, void *result, size_t count,
		     enum weir_type type, enum weir_acc op, int timeout_ms)
{
	struct collective_call c = {
	    .kind = COLLECTIVE_ALLREDUCE, .mine = mine, .all = result, .type = type, .op = op};

	if (!g || !weir_acc_valid(type, op) || !holds(mine, count, weir_type_size(type)) ||
	    !holds(result, count, weir_type_size(type)) ||
	    (uintptr_t)result % weir_type_align(type))
		return group_misused();
	c.length = count * weir_type_size(type);
	return collective(g, &c, timeout_ms);
}

int
weir_group_alltoall(struct weir_group *g, const void *mine, size_t length, void *all,
		    int timeout_ms)
{
	const struct collective_call c = {
	    .kind = COLLECTIVE_ALLTOALL, .mine = mine, .all = all, .length = length};

	if (!g || !holds(mine, g->x.size, length) || !holds(all, g->x.size, length))
		return group_misused();
	return collective(g, &c, timeout_ms);
}

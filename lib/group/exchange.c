/* SPDX-License-Identifier: BSD-3-Clause */
#include "exchange.h"

#include "base/vec.h"
#include "ipc/invariant.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "heads are sent as they are");
static_assert(sizeof(struct exchange_head) == 24, "format");

/* ---- neighbours ---- */

static int
by_rank(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

uint32_t
exchange_neighbours(uint32_t rank, uint32_t size, uint32_t *ranks)
{
	uint32_t rounds = collective_rounds(size), n = 0, kept = 0;

	weir_assert(rank < size);
	for (uint32_t k = 0; k < rounds; k++) {
		ranks[n++] = (uint32_t)(((uint64_t)rank + (1u << k)) % size);
		ranks[n++] = (uint32_t)(((uint64_t)rank + size - (1u << k)) % size);
	}
	qsort(ranks, n, sizeof(*ranks), by_rank);
	for (uint32_t i = 0; i < n; i++)
		if (!kept || ranks[kept - 1] != ranks[i])
			ranks[kept++] = ranks[i];
	return kept;
}

static uint32_t
find(const struct exchange *x, uint32_t rank)
{
	for (uint32_t i = 0; i < x->neighbours; i++)
		if (x->neighbour[i].rank == rank)
			return i;
	return NOBODY;
}

int
exchange_init(struct exchange *x, uint32_t rank, uint32_t size)
{
	uint32_t ranks[64];

	*x = (struct exchange){.rank = rank, .size = size};
	x->neighbours = exchange_neighbours(rank, size, ranks);
	x->neighbour = calloc(x->neighbours + 1, sizeof(*x->neighbour));
	/* the first failures need no memory */
	if (!x->neighbour || VEC_RESERVE(x->failure, x->room, VEC_LEAST)) {
		free(x->neighbour);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < x->neighbours; i++) {
		x->neighbour[i].rank = ranks[i];
		STAILQ_INIT(&x->neighbour[i].messages);
	}
	return 0;
}

static void
drop_first(struct neighbour *n)
{
	struct exchange_early *e = STAILQ_FIRST(&n->messages);

	weir_assert(e && n->early >= e->length);
	STAILQ_REMOVE_HEAD(&n->messages, next);
	n->early -= e->length;
	free(e);
}

void
exchange_free(struct exchange *x)
{
	exchange_cancel(x);
	for (uint32_t i = 0; x->neighbour && i < x->neighbours; i++)
		while (!STAILQ_EMPTY(&x->neighbour[i].messages))
			drop_first(&x->neighbour[i]);
	free(x->neighbour);
	free(x->failure);
	*x = (struct exchange){0};
}

/* ---- failures ---- */

uint32_t
exchange_deaths(const struct exchange *x)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < x->failures; i++)
		n += x->failure[i].rank < x->size;
	return n;
}

/* Adds one that is not known yet. */
static void
fail_add(struct exchange *x, uint32_t rank, int status)
{
	weir_assert(status < 0 && (rank < x->size || rank == NOBODY));
	for (uint32_t i = 0; i < x->failures; i++)
		if (x->failure[i].rank == rank)
			return;
	if (VEC_RESERVE(x->failure, x->room, x->failures + 1)) {
		x->no_memory = true;
		return;
	}
	x->failure[x->failures++] = (struct failure){rank, status};
}

void
exchange_failed(struct exchange *x, uint32_t rank, int status)
{
	if (rank < x->size)
		fail_add(x, rank, status == -EHOSTDOWN ? status : -ECONNRESET);
}

void
exchange_differ(struct exchange *x)
{
	fail_add(x, NOBODY, -EINVAL);
}

void
exchange_ended(struct exchange *x, uint32_t neighbour, int status)
{
	struct neighbour *n = &x->neighbour[neighbour];

	weir_assert(neighbour < x->neighbours && status <= 0);
	n->ended = true;
	if (status)
		exchange_failed(x, n->rank, status);
}

int
exchange_error(const struct exchange *x)
{
	if (x->no_memory)
		return -ENOMEM;
	return x->failures ? x->failure[0].status : 0;
}

bool
exchange_is_dead(const struct exchange *x, uint32_t rank)
{
	for (uint32_t i = 0; i < x->failures; i++)
		if (x->failure[i].rank == rank)
			return true;
	return false;
}

int
exchange_tell(struct exchange *x)
{
	int waits = 0;

	for (uint32_t i = 0; i < x->neighbours; i++) {
		struct neighbour *n = &x->neighbour[i];

		weir_assert(n->told <= x->failures);
		while (!n->ended && n->told < x->failures) {
			const struct failure *f = &x->failure[n->told];
			struct exchange_head h = {
			    .op = EXCHANGE_FAIL, .check = f->rank, .number = (uint32_t)-f->status};
			struct iovec part = {&h, sizeof(h)};
			int rc = x->send(x->user, i, &part, 1, sizeof(h));

			if (rc == -EAGAIN) {
				waits = rc;
				break;
			}
			if (!rc)
				n->told++;
			else
				exchange_ended(x, i, rc);
		}
	}
	return waits;
}

/* ---- steps ---- */

/* Of the arguments that have no field of their own. */
static uint32_t
check_of(const struct collective_call *c)
{
	return c->root ^ c->type << 8 ^ c->op << 20;
}

static struct exchange_head
head_of(const struct exchange *x, size_t bytes)
{
	return (struct exchange_head){.op = EXCHANGE_DATA,
				      .kind = (uint8_t)x->collective.call.kind,
				      .label = x->step.label,
				      .check = check_of(&x->collective.call),
				      .number = x->number,
				      .bytes = bytes};
}

/* Whether a neighbour's message shows that it makes other calls than this member. */
static bool
contradicts(const struct exchange *x, const struct exchange_head *h)
{
	const struct collective_call *call = &x->collective.call;

	/* what belonged to an earlier call has been taken */
	if ((int32_t)(h->number - x->number) < 0 || (h->number == x->number && !x->begun))
		return h->op == EXCHANGE_DATA;
	return h->number == x->number && (h->kind != call->kind || h->check != check_of(call) ||
					  (h->op == EXCHANGE_CALL && h->bytes != call->length));
}

int
exchange_announce(struct exchange *x)
{
	struct exchange_head h = head_of(x, x->collective.call.length);
	struct iovec part = {&h, sizeof(h)};

	h.op = EXCHANGE_CALL;
	for (; x->begun && x->announced < x->neighbours; x->announced++) {
		struct neighbour *n = &x->neighbour[x->announced];
		int rc = n->ended ? 0 : x->send(x->user, x->announced, &part, 1, sizeof(h));

		if (rc == -EAGAIN)
			return rc;
		if (rc)
			exchange_ended(x, x->announced, rc);
	}
	return 0;
}

static bool
to_send(const struct exchange *x)
{
	return x->stepping && x->step.to != NOBODY && (!x->sent_any || x->sent < x->step.send);
}

static bool
to_receive(const struct exchange *x)
{
	return x->stepping && x->step.from != NOBODY &&
	       (!x->received_any || x->received < x->step.receive);
}

uint32_t
exchange_awaits(const struct exchange *x)
{
	return to_receive(x) ? x->neighbour[x->from].rank : NOBODY;
}

/* Takes the data of a message that is due. */
static void
take(struct exchange *x, const uint8_t *message, size_t length)
{
	struct exchange_head h, due = head_of(x, x->step.receive);
	size_t left = x->step.receive - x->received, n = length - sizeof(h);

	weir_assert(length >= sizeof(h) && x->received <= x->step.receive);
	memcpy(&h, message, sizeof(h));
	/* each message has data, but for a step without any */
	if (memcmp(&h, &due, sizeof(h)) != 0 || n > left || (!n && left)) {
		fail_add(x, NOBODY, -EINVAL);
		return;
	}
	if (n)
		memcpy(x->step.place + x->received, message + sizeof(h), n);
	x->received += n;
	x->received_any = true;
}

bool
exchange_wants(const struct exchange *x, uint32_t neighbour)
{
	const struct neighbour *n = &x->neighbour[neighbour];

	return !n->ended && n->early < EXCHANGE_EARLY;
}

void
exchange_input(struct exchange *x, uint32_t neighbour, const uint8_t *message, size_t length)
{
	struct neighbour *n = &x->neighbour[neighbour];
	struct exchange_early *e;
	struct exchange_head h;

	weir_assert(neighbour < x->neighbours && exchange_wants(x, neighbour));
	memset(&h, 0, sizeof(h));
	if (length >= sizeof(h))
		memcpy(&h, message, sizeof(h));
	if (h.op == EXCHANGE_FAIL && length == sizeof(h)) {
		if (h.check == NOBODY)
			fail_add(x, NOBODY, -EINVAL);
		else
			exchange_failed(x, h.check, -(int)(h.number & 0xfff));
		return;
	}
	if (exchange_error(x)) /* messages of calls that end here match nothing any more */
		return;
	if (h.op == EXCHANGE_CALL && length == sizeof(h)) {
		/* one that comes before the own call begins is answered by the own announcement */
		if (contradicts(x, &h))
			fail_add(x, NOBODY, -EINVAL);
		return;
	}
	if (h.op != EXCHANGE_DATA || length > sizeof(h) + EXCHANGE_FRAGMENT || contradicts(x, &h)) {
		fail_add(x, NOBODY, -EINVAL);
		return;
	}
	if (to_receive(x) && x->from == neighbour) {
		weir_assert(STAILQ_EMPTY(&n->messages)); /* exchange_step() has taken them */
		take(x, message, length);
		return;
	}
	e = malloc(sizeof(*e) + length);
	if (!e) { /* a message is lost: for the others this member has ended */
		fail_add(x, x->rank, -ECONNRESET);
		x->no_memory = true;
		return;
	}
	e->length = length;
	memcpy(e->bytes, message, length);
	n->early += length;
	STAILQ_INSERT_TAIL(&n->messages, e, next);
}

static void
take_early(struct exchange *x)
{
	struct neighbour *n;

	while (to_receive(x) && !exchange_error(x)) {
		n = &x->neighbour[x->from];
		if (STAILQ_EMPTY(&n->messages)) {
			if (n->ended) /* in order, but too early */
				exchange_failed(x, n->rank, -ECONNRESET);
			return;
		}
		take(x, STAILQ_FIRST(&n->messages)->bytes, STAILQ_FIRST(&n->messages)->length);
		drop_first(n);
	}
}

static void
send_data(struct exchange *x)
{
	while (to_send(x)) {
		size_t left = x->step.send - x->sent;
		size_t n = left < EXCHANGE_FRAGMENT ? left : EXCHANGE_FRAGMENT;
		struct exchange_head h = head_of(x, x->step.send);
		struct iovec parts[] = {{&h, sizeof(h)},
					{n ? (void *)(uintptr_t)(x->step.data + x->sent) : &h, n}};
		int rc = x->neighbour[x->to].ended
			     ? -ECONNRESET
			     : x->send(x->user, x->to, parts, n ? 2 : 1, sizeof(h) + n);

		if (rc == -EAGAIN)
			return;
		if (rc) {
			exchange_ended(x, x->to, rc);
			return;
		}
		x->sent += n;
		x->sent_any = true;
	}
}

int
exchange_begin(struct exchange *x, const struct collective_call *call)
{
	int rc = collective_begin(&x->collective, call, x->rank, x->size);

	weir_assert(!x->begun);
	if (rc)
		return rc;
	x->number++;
	x->begun = true;
	x->announced = 0;
	return 0;
}

void
exchange_cancel(struct exchange *x)
{
	collective_end(&x->collective);
	x->begun = x->stepping = false;
}

int
exchange_step(struct exchange *x)
{
	/* announcements tell whether others are in the same call */
	if (x->begun && x->collective.call.kind == COLLECTIVE_MEETING)
		return exchange_error(x) ? exchange_error(x) : -EAGAIN;
	while (x->begun && !exchange_error(x)) {
		if (!x->stepping) {
			x->stepping = collective_next(&x->collective, &x->step);
			if (!x->stepping) {
				exchange_cancel(x);
				break;
			}
			x->to = x->step.to == NOBODY ? NOBODY : find(x, x->step.to);
			x->from = x->step.from == NOBODY ? NOBODY : find(x, x->step.from);
			/* partners are neighbours */
			weir_assert((x->to == NOBODY) == (x->step.to == NOBODY) &&
				    (x->from == NOBODY) == (x->step.from == NOBODY));
			x->sent = x->received = 0;
			x->sent_any = x->received_any = false;
		}
		send_data(x);
		take_early(x);
		if (to_send(x) || to_receive(x))
			break;
		weir_assert(x->sent == x->step.send && x->received == x->step.receive);
		x->stepping = false;
	}
	if (!exchange_error(x))
		return x->begun ? -EAGAIN : 0;
	exchange_tell(x);
	exchange_cancel(x);
	return exchange_error(x);
}

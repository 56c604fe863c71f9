/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport.h"

#include <errno.h>

int
transport_open(struct crew *crew, const struct transport_options *o, struct transport **t)
{
	switch (o->kind) {
	case TRANSPORT_WEIR:
		return transport_weir_open(crew, o, t);
	case TRANSPORT_TCP:
		return transport_tcp_open(crew, o, t);
	default:
		return transport_none_open(crew, o, t);
	}
}

void
transport_close(struct transport *t)
{
	t->ops->close(t);
}

int
transport_enter(struct transport *t, uint32_t index, struct transport_thread **th)
{
	return t->ops->enter(t, index, th);
}

int
transport_barrier(struct transport_thread *th)
{
	return th->t->ops->barrier(th);
}

void
transport_leave(struct transport_thread *th)
{
	th->t->ops->leave(th);
}

void
transport_totals(struct transport_thread *th, struct transport_totals *totals)
{
	th->t->ops->totals(th, totals);
}

int
transport_begin(struct transport_thread *th, uint32_t map, uint32_t attempt)
{
	return th->t->ops->begin(th, map, attempt);
}

int
transport_put(struct transport_thread *th, const struct weir_record *r)
{
	return th->t->ops->put(th, r);
}

int
transport_put_to(struct transport_thread *th, struct weir_to to, const struct weir_record *r)
{
	return th->t->ops->put_to(th, to, r);
}

int
transport_flush(struct transport_thread *th)
{
	return th->t->ops->flush(th);
}

int
transport_end(struct transport_thread *th, bool ok)
{
	return th->t->ops->end(th, ok);
}

int
transport_next(struct transport_thread *th, struct weir_record *r, int timeout_ms)
{
	return th->t->ops->next(th, r, timeout_ms);
}

bool
transport_owns(struct transport_thread *th, uint32_t partition, uint32_t part)
{
	return th->t->ops->owns(th, partition, part);
}

int
transport_read(struct transport_thread *th, uint32_t partition, uint32_t part, uint32_t parts)
{
	return th->t->ops->read(th, partition, part, parts);
}

int
transport_key(struct transport_thread *th, const void **key, uint32_t *length)
{
	return th->t->ops->key(th, key, length);
}

void
transport_read_end(struct transport_thread *th, bool ok)
{
	th->t->ops->read_end(th, ok);
}

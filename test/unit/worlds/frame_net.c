/* SPDX-License-Identifier: BSD-3-Clause */
#include "frame_net.h"

#include <stdlib.h>
#include <string.h>

#define HANDED_BURST 32u

/* ---- buffers ---- */

struct frame *
frame_new(struct frame_net *n)
{
	struct frame *f = calloc(1, sizeof(*f));

	if (!f)
		abort();
	f->net = n;
	f->refs = 1;
	n->live++;
	return f;
}

void
frame_put(struct frame *f)
{
	struct frame_net *n = f->net;

	if (!f->refs)
		n->ops->broken(n, "a frame was given back more often than it was taken");
	if (--f->refs)
		return;
	n->live--;
	free(f);
}

unsigned
frame_port_alloc(void *user, void **frames, unsigned n)
{
	struct frame_net *net = ((struct frame_port *)user)->net;
	unsigned i;

	for (i = 0; i < n && net->live < net->limit; i++)
		frames[i] = frame_new(net);
	return i;
}

void
frame_port_drop(void *user, void *const *frames, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		frame_put(frames[i]);
}

/* FNV-1a: Fowler, Noll, Vo. */
static uint64_t
hash_of(const struct frame *f)
{
	uint64_t h = 0xcbf29ce484222325u;

	for (uint32_t i = 0; i < f->length; i++)
		h = (h ^ f->data[i]) * 0x100000001b3u;
	return h;
}

static void
check_unchanged(const struct frame *f)
{
	if (f->net->strict && f->hash != hash_of(f))
		f->net->ops->broken(f->net, "a frame has changed since it was sent");
}

void
frame_sent(struct frame *f, uint32_t length)
{
	if (!f->length) {
		f->length = length;
		f->hash = f->net->strict ? hash_of(f) : 0;
		return;
	}
	if (f->length != length)
		f->net->ops->broken(f->net, "a frame was sent again with another length");
	check_unchanged(f);
}

/* ---- the way ---- */

void
frame_mac(uint32_t node, uint8_t mac[6])
{
	memcpy(mac, (const uint8_t[6]){2, 0, 0, 0, (uint8_t)((node + 1) >> 8), (uint8_t)(node + 1)},
	       6);
}

bool
frame_is_to(const struct frame *f, uint32_t node)
{
	uint8_t mac[6];

	frame_mac(node, mac);
	return f->data[0] & 1 || memcmp(f->data, mac, 6) == 0;
}

struct frame_delivery *
frame_launch(struct frame *f, uint32_t from, uint32_t to)
{
	struct frame_delivery *d = calloc(1, sizeof(*d));

	if (!d)
		abort();
	d->frame = f;
	d->from = from;
	d->to = to;
	f->refs++;
	f->net->under_way++;
	return d;
}

void
frame_end(struct frame_delivery *d)
{
	d->frame->net->under_way--;
	frame_put(d->frame);
	free(d);
}

/* ---- ports ---- */

static bool
list_put(struct frame_list *l, struct frame_delivery *d)
{
	if (l->count == d->frame->net->port_room)
		return false;
	STAILQ_INSERT_TAIL(&l->first, d, next);
	l->count++;
	return true;
}

static struct frame_delivery *
list_take(struct frame_list *l)
{
	struct frame_delivery *d = STAILQ_FIRST(&l->first);

	if (!d)
		return NULL;
	STAILQ_REMOVE_HEAD(&l->first, next);
	l->count--;
	return d;
}

void
frame_port_init(struct frame_port *p, struct frame_net *n, uint32_t node, uint32_t context)
{
	*p = (struct frame_port){.net = n, .node = node, .context = context};
	STAILQ_INIT(&p->rx.first);
	STAILQ_INIT(&p->handed.first);
}

void
frame_port_fini(struct frame_port *p)
{
	struct frame_delivery *d;

	while ((d = list_take(&p->rx)) || (d = list_take(&p->handed)))
		frame_end(d);
}

bool
frame_arrive(struct frame_delivery *d, struct frame_port *p)
{
	if (list_put(&p->rx, d))
		return true;
	frame_end(d);
	return false;
}

int
frame_input(struct roce_context *ctx, const struct frame *f, bool handed, uint64_t now)
{
	int (*input)(struct roce_context *, const void *, size_t, uint64_t) =
	    handed ? roce_input_handed : roce_input;
	uint8_t *copy;
	int owner;

	if (!f->net->strict)
		return input(ctx, f->data, f->length, now);
	copy = malloc(f->length);
	if (!copy)
		abort();
	check_unchanged(f);
	memcpy(copy, f->data, f->length);
	owner = input(ctx, copy, f->length, now);
	if (memcmp(copy, f->data, f->length) != 0)
		f->net->ops->broken(f->net, "a receiver has changed a frame");
	free(copy);
	return owner;
}

/* A frame of another context's QP goes to the port of that context. */
static void
hand_over(struct roce_context *ctx, struct frame_delivery *d, struct frame_port *to)
{
	struct frame_net *n = to->net;

	if (!list_put(&to->handed, d)) {
		roce_count(&roce_counters(ctx)->drop_handover_full, 1);
		frame_end(d);
		return;
	}
	if (n->ops->handed)
		n->ops->handed(to);
}

unsigned
frame_port_receive(void *user, struct roce_context *ctx, uint64_t now)
{
	struct frame_port *p = user;
	struct frame_net *n = p->net;
	struct frame_delivery *d;
	unsigned done = 0;

	for (; done < HANDED_BURST && (d = list_take(&p->handed)); done++) {
		if (frame_input(ctx, d->frame, true, now) != ROCE_DONE)
			n->ops->broken(n,
				       "a frame was handed to a context that doesn't own its QP");
		frame_end(d);
	}
	for (; done < n->burst && (d = list_take(&p->rx)); done++) {
		int owner = frame_input(ctx, d->frame, false, now);

		if (owner == ROCE_DONE)
			frame_end(d);
		else
			hand_over(ctx, d, n->ops->port(n, p->node, (uint32_t)owner));
	}
	return done;
}

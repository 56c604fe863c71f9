/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receiving into memory that was posted beforehand. Posts are numbered as the messages of the
 * connection. The engine is told of them and puts large messages there; all others are copied when
 * they are received.
 */
#include "conn.h"
#include "ctrl_slots.h"
#include "rx_place.h"

#include "client/reason.h"
#include "client/region.h"
#include "client/thread.h"

#include <stdlib.h>

static struct weir_post *
post_at(struct weir_posts *p, uint64_t number)
{
	return &p->post[number % WEIR_POSTS_MAX];
}

/* Releases posts of messages that were received. */
static void
forget(struct weir_conn *c)
{
	struct weir_posts *p = c->posts;

	weir_assert(p->next - p->first <= WEIR_POSTS_MAX);
	for (; p->first < c->received && p->first < p->next; p->first++)
		weir_region_drop(post_at(p, p->first)->region);
	if (p->first < c->received)
		p->first = p->next = c->received;
	if (p->announced < p->first)
		p->announced = p->first;
}

void
weir_posts_free(struct weir_conn *c)
{
	struct weir_posts *p = c->posts;

	if (!p)
		return;
	for (; p->first < p->next; p->first++)
		weir_region_drop(post_at(p, p->first)->region);
	free(p);
	c->posts = NULL;
}

bool
weir_posts_next(struct weir_conn *c, struct weir_slot *s)
{
	struct weir_posts *p = c->posts;
	const struct weir_post *post;

	if (!p)
		return false;
	forget(c);
	if (p->announced == p->next)
		return false;
	post = post_at(p, p->announced);
	*s =
	    (struct weir_slot){.op = WEIR_OP_POST, .vqpn = c->vqpn, .length = (uint32_t)post->size};
	s->place[0] = WEIR_PLACE(post->region->index, post->data - post->region->addr);
	s->place[1] = p->announced;
	return true;
}

uint8_t *
weir_posted(struct weir_conn *c, uint64_t number, weir_place place, uint32_t length)
{
	struct weir_posts *p = c->posts;
	const struct weir_post *post;

	if (!p || number < p->first || number >= p->announced)
		return NULL;
	post = post_at(p, number);
	if (place != WEIR_PLACE(post->region->index, post->data - post->region->addr) ||
	    length > post->size)
		return NULL;
	return post->data;
}

/* Worker locked. */
static int
post(struct weir_conn *c, uint8_t *buf, size_t size, uint64_t cookie, struct weir_region *r)
{
	struct weir_posts *p = c->posts;

	weir_assert(c->state != CONN_CLOSING);
	/* messages that came before the end are received like any other */
	if (c->end && !c->queue)
		return weir_conn_failed(c, c->end);
	if (!p)
		p = c->posts = calloc(1, sizeof(*p));
	if (!p)
		return weir_fail(-ENOMEM, "no memory to note what is posted; free some");
	forget(c);
	if (p->next - p->first == WEIR_POSTS_MAX)
		return weir_fail(-EAGAIN, "%u pieces of memory are posted; receive first",
				 WEIR_POSTS_MAX);
	*post_at(p, p->next++) = (struct weir_post){buf, size, cookie, r};
	if (!c->local && c->state == CONN_OPEN)
		weir_ctrl_add(c, CTRL_POST);
	return 0;
}

int
weir_recv_into(struct weir_conn *c, void *buf, size_t size, uint64_t cookie)
{
	struct weir *w = c->worker->w;
	struct weir_region *r;
	int rc;

	if (weir_state(w) != WEIR_UP)
		return weir_gone(w);
	/* no message is longer */
	if (size > WEIR_STREAM_MESSAGE_MAX)
		size = WEIR_STREAM_MESSAGE_MAX;
	r = weir_region_use(w, buf, size, WEIR_ADOPT_RECV);
	if (!r)
		return weir_fail(-EINVAL, "not inside one region that was adopted with "
					  "WEIR_ADOPT_RECV; adopt it");
	weir_lock(c->worker);
	rc = post(c, buf, size, cookie, r);
	weir_unlock(c->worker);
	if (rc)
		weir_region_drop(r);
	return rc;
}

int
weir_recv_placed(struct weir_conn *c, struct weir_placed *placed, int timeout_ms)
{
	struct weir_post post = {0};
	int rc;

	*placed = (struct weir_placed){0};
	if (weir_conn_life(c) == WEIR_FORKED)
		return weir_gone(c->worker->w);
	weir_lock(c->worker);
	if (c->posts) {
		forget(c);
		if (c->posts->first != c->posts->next)
			post = *post_at(c->posts, c->posts->first);
	}
	weir_unlock(c->worker);
	if (!post.region)
		return weir_fail(-EINVAL, "no memory is posted for the next message; call "
					  "weir_recv_into(), or weir_recv()");
	rc = weir_recv(c, post.data, post.size, &placed->length, timeout_ms);
	if (rc)
		return rc;
	placed->data = post.data;
	placed->cookie = post.cookie;
	weir_lock(c->worker);
	if (c->posts)
		forget(c);
	weir_unlock(c->worker);
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Adopted memory: ranges of a program's own memory in which its messages may lie. A disowned region
 * takes no new messages, and is main's again when those under way have ended. Posts name the places
 * of messages to come. They are hints: a message without one goes to the arena.
 */
#include "conn.h"
#include "base/list.h"
#include "region.h"
#include "rndv.h"
#include "send_queue.h"
#include "session.h"
#include "state.h"

#include <assert.h>
#include <errno.h>

/* The region of this number, or NULL. */
static struct region *
find_region(const struct session *s, uint32_t number)
{
	return number - 1 < s->region_count ? &s->regions[number - 1] : NULL;
}

int
region_add(struct engine *e, const struct engine_region *k)
{
	struct session *s = session_find(e, k->session);
	struct region *r = s ? find_region(s, k->region) : NULL;

	if (!r || s->remove || s->violated)
		return -ENOENT;
	if (r->base)
		return -EBUSY;
	*r = (struct region){.base = k->base,
			     .bytes = k->bytes,
			     .flags = k->flags,
			     .mr = k->mr,
			     .updating = k->updating};
	return 0;
}

static void
unlink_post(struct conn *c, struct pend **at, struct pend *before)
{
	struct pend *p = *at;

	*at = p->next;
	if (c->cold->post_last == p)
		c->cold->post_last = before;
	c->session->posted--;
	pend_give(c->session, p);
}

void
posts_forget(struct conn *c, uint64_t number)
{
	while (c->cold->post_first && c->cold->post_first->number < number)
		unlink_post(c, &c->cold->post_first, NULL);
}

int
region_remove(struct engine *e, const struct engine_region *k)
{
	struct session *s = session_find(e, k->session);
	struct region *r = s ? find_region(s, k->region) : NULL;
	struct list_node *node, *following;

	if (!r || !r->base) /* the session has ended meanwhile, and with it all messages */
		return 0;
	if (!r->leaving) /* forget the posts of all connections that name the region */
		LIST_EACH (node, following, &s->conns) {
			struct conn *c = LIST_OWNER(node, struct conn, of_session);
			struct pend **at = &c->cold->post_first, *before = NULL;

			while (*at) {
				if (WEIR_PLACE_REGION((*at)->slot.place[0]) == k->region) {
					unlink_post(c, at, before);
					continue;
				}
				before = *at;
				at = &before->next;
			}
		}
	r->leaving = true;
	if (r->users || s->conns_memory_lent)
		return -EAGAIN;
	*r = (struct region){0};
	return 0;
}

uint8_t *
region_at(const struct session *s, weir_place place, uint64_t length, uint32_t use)
{
	const struct region *r = find_region(s, WEIR_PLACE_REGION(place));
	uint64_t offset = WEIR_PLACE_OFFSET(place);

	if (!r || !r->base || r->leaving || !(r->flags & use) || offset > r->bytes ||
	    length > r->bytes - offset)
		return NULL;
	return r->base + offset;
}

void
region_keep(struct session *s, uint16_t region)
{
	weir_assert(region && region <= s->region_count && s->regions[region - 1].base);
	s->regions[region - 1].users++;
}

void
region_drop(struct session *s, uint16_t region)
{
	assert(s->regions[region - 1].users);
	s->regions[region - 1].users--;
}

void
region_lend(struct conn *c)
{
	if (c->kind == CONN_MEMORY) /* peers READ nothing of it */
		return;
	for (uint32_t i = 0; i < c->asked_count && !c->memory_lent; i++)
		if (c->cold->asked[i]->region && bulk_ways(c->cold->asked[i]) & WEIR_RTS_READ) {
			c->memory_lent = true;
			c->session->conns_memory_lent++;
		}
}

void
region_lent_back(struct conn *c)
{
	c->session->conns_memory_lent -= c->memory_lent;
	c->memory_lent = false;
}

const char *
post_take(struct engine *e, struct conn *c, const struct weir_slot *slot)
{
	uint64_t number = slot->place[1];
	struct session *s = c->session;
	struct pend *p;

	if (!region_at(s, slot->place[0], slot->length, WEIR_ADOPT_RECV))
		return "posted memory that it has not adopted for receiving";
	if (number < c->cold->post_next || number == UINT64_MAX)
		return "posted memory for one message twice";
	c->cold->post_next = number + 1;
	posts_forget(c, c->rx_messages);
	/* posts take a quarter of the pool: the rest is for messages that are sent */
	if (!c->accepts || c->user_closed || number < c->rx_messages ||
	    s->posted >= s->pool_size / 4 || s->pool_used >= s->pool_size)
		return NULL; /* its message comes, or came, to the arena */
	p = pend_take(s);
	p->number = number;
	p->slot.place[0] = slot->place[0];
	p->slot.length = slot->length;
	if (c->cold->post_first)
		c->cold->post_last->next = p;
	else
		c->cold->post_first = p;
	c->cold->post_last = p;
	s->posted++;
	if (list_linked(&c->cold->awaits_place)) /* the message may have waited for this place */
		session_memory_freed(e, s);
	return NULL;
}

weir_place
post_find(const struct conn *c, uint64_t number, uint32_t length)
{
	for (const struct pend *p = c->cold->post_first; p && p->number <= number; p = p->next)
		if (p->number == number && p->slot.length >= length)
			return p->slot.place[0];
	return 0;
}

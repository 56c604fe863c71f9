/* SPDX-License-Identifier: BSD-3-Clause */
/* Doubly linked lists through nodes inside their members; a node outside all lists has next NULL.
 */
#ifndef WEIR_LIST_H
#define WEIR_LIST_H

#include "ipc/invariant.h"

#include <stdbool.h>
#include <stddef.h>

struct list_node {
	struct list_node *next, *prev;
};

#define LIST_OWNER(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

/* For each member of list `l`; the loop may remove the current member. */
#define LIST_EACH(node, following, l)                                                              \
	for (node = (l)->next, following = node->next; node != (l);                                \
	     node = following, following = node->next)

static inline void
list_init(struct list_node *l)
{
	l->next = l->prev = l;
}

static inline bool
list_empty(const struct list_node *l)
{
	return l->next == l;
}

static inline bool
list_linked(const struct list_node *node)
{
	return node->next != NULL;
}

static inline void
list_append(struct list_node *l, struct list_node *node)
{
	weir_assert(!list_linked(node));
	node->prev = l->prev;
	node->next = l;
	l->prev->next = node;
	l->prev = node;
}

static inline void
list_remove(struct list_node *node)
{
	if (!list_linked(node))
		return;
	weir_assert(node->prev->next == node && node->next->prev == node);
	node->prev->next = node->next;
	node->next->prev = node->prev;
	node->next = node->prev = NULL;
}

/* Member `node` is the first one from now on, behind it those of before, and then the others. */
static inline void
list_begin_at(struct list_node *l, struct list_node *node)
{
	weir_assert(node != l);
	list_remove(l);
	list_append(node, l); /* in front of it */
}

/* Appends all members of `from`, in their order. */
static inline void
list_move(struct list_node *l, struct list_node *from)
{
	while (!list_empty(from)) {
		struct list_node *node = from->next;

		list_remove(node);
		list_append(l, node);
	}
}

static inline void
list_append_once(struct list_node *l, struct list_node *node)
{
	if (!list_linked(node))
		list_append(l, node);
}

#endif

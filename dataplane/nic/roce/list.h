/* SPDX-License-Identifier: BSD-3-Clause */
/* A ring of links inside the objects it lists; a link that is in no list points to itself. */
#ifndef WEIR_ROCE_LIST_H
#define WEIR_ROCE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct link {
	struct link *prev, *next;
};

#define LIST_OF(link, type, member) ((type *)(void *)((char *)(link)-offsetof(type, member)))

static inline void
link_init(struct link *l)
{
	l->prev = l->next = l;
}

/* For a list: it has no members. For a member: it is in no list. */
static inline bool
link_alone(const struct link *l)
{
	return l->next == l;
}

static inline void
link_remove(struct link *l)
{
	l->prev->next = l->next;
	l->next->prev = l->prev;
	link_init(l);
}

/* Appends a link that is in no list. */
static inline void
list_append(struct link *list, struct link *l)
{
	l->prev = list->prev;
	l->next = list;
	list->prev->next = l;
	list->prev = l;
}

/* Appends all members of `from`. */
static inline void
list_move(struct link *list, struct link *from)
{
	while (!link_alone(from)) {
		struct link *l = from->next;

		link_remove(l);
		list_append(list, l);
	}
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of windows that belongs to a group. */
#ifndef WEIR_GROUP_BOARD_H
#define WEIR_GROUP_BOARD_H

#include <stdbool.h>

struct weir;
struct weir_group;

/* The session of a group. */
struct weir *group_session(const struct weir_group *g);
/* Their place for it; NULL at first. Leaving the group passes it to free_board(). */
void **group_board(struct weir_group *g, void (*free_board)(void *board));
/* Whether a collective call has begun and can go on: by the same call, while the session lives. */
bool group_is_calling(const struct weir_group *g);

#endif

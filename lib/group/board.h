/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of windows that belongs to a group. */
#ifndef WEIR_GROUP_BOARD_H
#define WEIR_GROUP_BOARD_H

#include <stdbool.h>
#include <stdint.h>

struct weir;
struct weir_group;
struct weir_wait;

/* The session of a group. */
struct weir *group_session(const struct weir_group *g);
/* Their place for it; NULL at first. Leaving the group passes it to free_board(). */
void **group_board(struct weir_group *g, void (*free_board)(void *board));
/* Whether a collective call has begun and can go on: by the same call, while the session lives. */
bool group_is_calling(const struct weir_group *g);

/*
 * A collective call of windows, in which members meet without messages of the group, between
 * these two: no other call of the group begins meanwhile. group_meet(): 0: it begins; 1: it goes on
 * after -EAGAIN or -EINTR; or an error. group_met() returns rc, or how the group has ended.
 */
int group_meet(struct weir_group *g);
int group_met(struct weir_group *g, int rc);
/* Takes messages that have come, between them. 0, or how a member or the session has ended. */
int group_watch(struct weir_group *g);
/* As weir_wait_next(), after a look for what g awaits; runs the function of weir_group_idle(). */
int group_wait_next(struct weir_group *g, struct weir_wait *wait);
/* `part` works for g: while it waits, the function of g runs. */
void group_work_for(struct weir_group *part, struct weir_group *g);
/* The caller waits for a member, which has left: it counts as ended, and all will hear of it. */
void group_missing(struct weir_group *g, uint32_t rank);
/* The members make different calls: no call succeeds any more, and all hear of it. */
void group_differ(struct weir_group *g);
/* Whether no call can succeed any more, as far as is known now: a member has failed, or the session
 * has ended. Takes messages that have come. */
bool group_is_over(struct weir_group *g);
/*
 * How a member has ended, as far as is known now: -errno with its rank; 0: none has. Takes messages
 * that have come. Any thread: while another one is inside a call, that one takes them. *naps is set
 * if no doorbell of the window's thread tells of news.
 */
int group_look(struct weir_group *g, uint32_t *rank, bool *naps);
/* Whether that member has ended, as far as is known now. As group_look(). */
bool group_has_failed(struct weir_group *g, uint32_t rank);
/* The function of weir_group_idle(). */
struct group_idle {
	int (*f)(void *arg);
	void *arg;
};
/* Sets another one. Returns the one before. */
struct group_idle group_set_idle(struct weir_group *g, struct group_idle idle);
/* Whether the calling thread is the one that has joined: news of g wake it. */
bool group_is_home(const struct weir_group *g);
/* The member that the call which has begun waits for; WEIR_RANK_ANY: none. */
uint32_t group_awaits(const struct weir_group *g);
/* Whether a neighbour has left. */
bool group_has_left(const struct weir_group *g, uint32_t rank);

#endif

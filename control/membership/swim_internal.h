/* SPDX-License-Identifier: BSD-3-Clause */
/* The table under swim.c: swim_table.c. */
#ifndef WEIR_CONTROL_SWIM_INTERNAL_H
#define WEIR_CONTROL_SWIM_INTERNAL_H

#include "swim.h"

/* A random number below `limit`. */
uint32_t swim_below(struct swim *s, uint32_t limit);
uint32_t swim_log2(uint32_t n); /* rounded up */

bool swim_lives(const struct swim_node *n);
/* A node of status UNKNOWN with this id, which the table doesn't have; NULL: out of memory. */
struct swim_node *swim_insert(struct swim *s, uint16_t id);
/* It counts as one that `introducer` has brought, until it is proven. */
void swim_set_unproven(struct swim *s, struct swim_node *n, struct swim_node *introducer);
void swim_set_proven(struct swim *s, struct swim_node *n);
/* Forgets it. */
void swim_erase(struct swim *s, struct swim_node *n);

/* The one place where a record in the table changes. `by` has told it. `news`: it is spread. */
void swim_put(struct swim *s, struct swim_node *n, const struct swim_record *r, uint16_t by,
	      bool news);
void swim_set_status(struct swim *s, struct swim_node *n, enum swim_status status);
void swim_set_accused(struct swim *s, struct swim_node *n, bool accused);
/* Until when the status holds by itself; 0: for ever. */
uint64_t swim_expiry(const struct swim *s, const struct swim_node *n);
void swim_set_expiry(struct swim *s, struct swim_node *n, uint64_t when);

/* Its record is to be told, before all others. */
void swim_push_news(struct swim *s, struct swim_node *n);
/* The news that was told longest ago, marked as told once more. There must be one. */
struct swim_node *swim_next_news(struct swim *s);

#endif

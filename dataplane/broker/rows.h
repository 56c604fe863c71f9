/* SPDX-License-Identifier: BSD-3-Clause */
/* Answers to QUERY: rows of records, made page by page. */
#ifndef WEIR_BROKER_ROWS_H
#define WEIR_BROKER_ROWS_H

#include "broker.h"

struct rows_query {
	struct broker *b;
	uint32_t rows;	 /* enum weir_ctl_rows */
	uint32_t engine; /* asked next; connections: of the snapshot */
	uint32_t from;	 /* next record; connections: next index in the engine's table */
	bool busy;	 /* an engine fills the snapshot */
	bool filled;	 /* the snapshot holds records that are not on a page yet; exports: the page
			  * lacks what engines count */
	bool orphaned;	 /* closed while busy: freed when the engine has answered */
	struct engine_snapshot snapshot;
	struct engine_link_record *links; /* of all engines, config.links each */
	uint32_t link_count[BROKER_ENGINES_MAX];
	struct weir_ctl_msg *page;	     /* WEIR_CTL_MAX bytes */
	void (*ready)(struct rows_query *q); /* called after rows_next() returned false */
	void *user;
	uint32_t reserved; /* number of commands */
};

/* NULL: out of memory. */
struct rows_query *rows_open(struct broker *b, uint32_t rows, void (*ready)(struct rows_query *q),
			     void *user);
/* Makes the next page. True: q->page is complete. False: call again after ready(). */
bool rows_next(struct rows_query *q);
/* q may be NULL. */
void rows_close(struct rows_query *q);
/* Closes a query whose engine has stopped and does not answer. */
void rows_abandon(struct rows_query *q);

#endif

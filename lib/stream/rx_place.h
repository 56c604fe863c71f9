/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that the program posts for messages to come. Worker locked. */
#ifndef WEIR_STREAM_RX_PLACE_H
#define WEIR_STREAM_RX_PLACE_H

#include "conn.h"

#define WEIR_POSTS_MAX 64u /* per connection */

/* Posted memory for a message to come. */
struct weir_post {
	uint8_t *data;
	size_t size;
	uint64_t cookie;
	struct weir_region *region; /* kept */
};
struct weir_posts {
	uint64_t first, next; /* messages with these numbers [first, next) have memory */
	uint64_t announced;   /* the engine knows the posts of messages before this number */
	struct weir_post post[WEIR_POSTS_MAX];
};

/* The next POST that the engine doesn't know of; false: none. */
bool weir_posts_next(struct weir_conn *c, struct weir_slot *s);
/* Data of message `number` at `place`: NULL unless that memory was posted for it. */
uint8_t *weir_posted(struct weir_conn *c, uint64_t number, weir_place place, uint32_t length);
void weir_posts_free(struct weir_conn *c);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that the program composes messages in. */
#ifndef WEIR_STREAM_RESERVE_H
#define WEIR_STREAM_RESERVE_H

#include "conn.h"

/* Memory that the program composes a message in. */
struct weir_reservation {
	LIST_ENTRY(weir_reservation) next;
	pthread_t thread; /* that reserved it */
	uint8_t *buf;
	uint32_t length;
	uint32_t block; /* first one of the send heap; WEIR_BLOCK_NONE: in the byte area */
};

/* Frees the memory of all reservations: the program must not use it any more. Worker locked. */
void weir_reservations_clear(struct weir_conn *c);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* A line's batches, between the calls that fill them (call.c) and the lane or inbox that takes
 * them (line.c). All for the thread that has the line. */
#ifndef WEIR_INVOKE_LINE_H
#define WEIR_INVOKE_LINE_H

#include "invoker.h"

/* -ENOMEM */
int invoke_no_memory(void) __attribute__((cold));
/* Opens a batch, in memory of the message if the lane has some. 0 or -ENOMEM. */
int line_open_batch(struct line *l, uint32_t room);
/* The run that is open gets its head. */
void line_close_run(struct line *l);
/* The next inline call comes to the library. */
void line_end_fast_path(struct line *l);
void line_free_batch(struct line *l, struct batch *b);
/* Sends b: on success it is the library's or another thread's, unless it has a parcel, else it
 * stays the line's. */
int line_send_batch(struct line *l, struct batch *b);
/* The open batch leaves, behind those that wait. As line_flush(). */
int line_send_open(struct line *l);
/* Takes the batch of that place, which was not accepted, out of the queue; functions may have made
 * calls behind it. False: it has left, or was lost. */
bool line_take_out(struct line *l, uint64_t place);
/* The line has failed: what was accepted on it does not run, or nobody knows whether it does.
 * Returns rc. */
int line_lose(struct line *l, int rc);
/* Turns an error of the message model into one of a call. */
int line_failed(const struct line *l, int rc) __attribute__((cold));
/* -ECONNREFUSED */
int line_not_entered(const struct line *l) __attribute__((cold));

#endif

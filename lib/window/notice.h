/* SPDX-License-Identifier: BSD-3-Clause */
/* Notices of a window: those of programs, and those that post and complete send. */
#ifndef WEIR_WINDOW_NOTICE_H
#define WEIR_WINDOW_NOTICE_H

#include "handle.h"

/* Has the notices of the own export come to the window. */
void window_notices_begin(struct weir_window *win);
/* Ends that; drops those that were not taken. */
void window_notices_end(struct weir_window *win);
/* Sends a notice to a member, behind what this thread has begun there. As weir_remote_notify(). */
int window_notice_send(struct weir_window *win, struct window_member *m, enum match_kind kind,
		       uint32_t tag, uint64_t length, unsigned flags);
/* The same, behind bytes that it stores in the member's part, which is mapped, as its ring is. */
int window_notice_put(struct weir_window *win, struct window_member *m, uint32_t tag, uint8_t *at,
		      const void *bytes, uint64_t length);
/* One goes to the member by the engine, beside its ring; or was not sent after all. */
void window_notice_by_engine(struct window_member *m, bool sent);
/* The same as window_notice_send() within a time: -EAGAIN, -EINTR: it was not sent. */
int window_notice_send_by(struct weir_window *win, struct window_member *m, enum match_kind kind,
			  uint32_t tag, uint64_t end);
/*
 * Takes the oldest notice, as match_find() finds it. 1: *n is it; 0: there is none; or how the
 * session has ended.
 */
int window_notice_take(struct weir_window *win, enum match_kind kind, uint32_t source, uint32_t tag,
		       struct weir_remote_notice *n);

#endif

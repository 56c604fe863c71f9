/* SPDX-License-Identifier: BSD-3-Clause */
/* Notices and signals at the origin: cells behind the thread's operations, some within a window. */
#ifndef WEIR_REMOTE_NOTICE_H
#define WEIR_REMOTE_NOTICE_H

#include "public.h"

#include "ipc/remote.h"

#include <stdbool.h>

struct weir_conn;

/* Begins a NOTICE, with WEIR_NOTICE_*, as weir_remote_notify(). -EINVAL also: a signal's offset is
 * no multiple of 8; -ERANGE. */
int weir_notice_begin(struct weir_remote *r, const struct weir_cell_notice *n, unsigned flags);
/* Takes the window that a NOTICE uses. 0, or -EAGAIN: there is none. Worker locked. */
int weir_notice_pay(struct weir_conn *c, const struct weir_cell_notice *n);
/* Whether there is a window for a notice. Worker locked. */
bool weir_notice_has_window(struct weir_conn *c);
/* Whether a notice of c waits for its window: WRITABLE then comes with it. Worker locked. */
bool weir_notice_awaits_window(struct weir_conn *c);

#endif

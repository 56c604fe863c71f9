/* SPDX-License-Identifier: BSD-3-Clause */
/* weir_remote_lock() in steps that do not wait, for whoever must not (the simulator). */
#ifndef WEIR_REMOTE_LOCK_H
#define WEIR_REMOTE_LOCK_H

#include "public.h"

#include <stdbool.h>

/*
 * *asked: false at first, then whether the request has left. 0 or -EOWNERDEAD: granted; -EAGAIN:
 * later; an error of opening, -ENOMEM, or how the connection ended.
 */
int weir_lock_step(struct weir_remote *r, int kind, bool *asked);
/* Takes a request that has left back, and returns `why`; 0 or -EOWNERDEAD: it was granted. */
int weir_lock_give_up(struct weir_remote *r, int kind, int why);

#endif

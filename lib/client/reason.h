/* SPDX-License-Identifier: BSD-3-Clause */
/* Why a call failed: the text of weir_reason(), and how a session ended. */
#ifndef WEIR_CLIENT_REASON_H
#define WEIR_CLIENT_REASON_H

#include "likely.h"
#include "public.h"

#include <errno.h>
#include <stdbool.h>

struct weir_session_msg;

/* Why a session is over: -ECONNABORTED, an operator has ended it; -ENODEV, the data plane is gone.
 */
int weir_loss(const struct weir *w) __attribute__((cold));
/* The same, and sets weir_reason(); -ENOTCONN in a forked child. */
int weir_gone(const struct weir *w) __attribute__((cold));
/* Records the reason for which an operator ends the session. request_lock held. */
void weir_evicted(struct weir *w, const struct weir_session_msg *said) __attribute__((cold));
/* Whether weir_wait_next() found that the session of its worker is over. */
static inline bool
weir_is_loss(int rc)
{
	return weir_unlikely(rc == -ENODEV || rc == -ECONNABORTED);
}

#endif

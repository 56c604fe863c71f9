/* SPDX-License-Identifier: BSD-3-Clause */
/* The reason of a thread's last failure, and requests to the data plane. */
#include "reason.h"
#include "session.h"
#include "wake.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

static __thread char reason[WEIR_REASON_MAX + 64];

const char *
weir_reason(void)
{
	return reason;
}

int
weir_fail(int rc, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(reason, sizeof(reason), format, args);
	va_end(args);
	return rc;
}

void
weir_evicted(struct weir *w, const struct weir_session_msg *said)
{
	weir_assert(said->type == WEIR_MSG_REFUSED);
	if (atomic_load_explicit(&w->evicted, memory_order_relaxed))
		return;
	memcpy(w->end_reason, said->refused.reason, sizeof(w->end_reason));
	/* pairs with the acquire in weir_loss() */
	atomic_store_explicit(&w->evicted, true, memory_order_release);
}

int
weir_loss(const struct weir *w)
{
	/* pairs with the release in weir_evicted() */
	return atomic_load_explicit(&w->evicted, memory_order_acquire) ? -ECONNABORTED : -ENODEV;
}

int
weir_gone(const struct weir *w)
{
	if (weir_state(w) == WEIR_FORKED)
		return weir_fail(-ENOTCONN, "this process was forked from the one that attached; "
					    "attach again");
	if (weir_loss(w) == -ECONNABORTED)
		return weir_fail(-ECONNABORTED, "%s", w->end_reason);
	return weir_fail(-ENODEV, "the data plane is gone; weir_reattach() when it is back");
}

struct weir_session_msg
weir_message(uint32_t type)
{
	struct weir_session_msg m;

	memset(&m, 0, sizeof(m));
	m.type = type;
	m.length = weir_session_length(type);
	return m;
}

int
weir_request(struct weir *w, struct weir_session_msg *m, uint32_t want,
	     struct weir_session_msg *reply, int fds[WEIR_SESSION_FDS])
{
	int rc;

	weir_assert(m->length && m->length == weir_session_length(m->type));
	for (unsigned i = 0; i < WEIR_SESSION_FDS; i++)
		fds[i] = -1;
	pthread_mutex_lock(&w->request_lock);
	rc = weir_state(w) == WEIR_UP ? w->transport.request(w->transport.user, m, reply, fds)
				      : -ENODEV;
	if (!rc && reply->type == WEIR_MSG_REFUSED && reply->refused.code == ECONNABORTED)
		weir_evicted(w, reply);
	pthread_mutex_unlock(&w->request_lock);
	if (rc == -ENODEV) {
		atomic_store(&w->hung_up, true);
		return weir_gone(w);
	}
	if (rc == -EINTR)
		return weir_interrupted();
	if (rc)
		return weir_fail(
		    rc,
		    "no answer to %s from the data plane: %s; see whether it is stopped or "
		    "overloaded",
		    weir_session_type_name(m->type), strerror(-rc));
	if (reply->type == want)
		return 0;
	if (reply->type == WEIR_MSG_REFUSED && reply->refused.code > 0)
		return weir_fail(-reply->refused.code, "%s", reply->refused.reason);
	return weir_fail(-EPROTO, "the data plane answered %s to %s; install one release of both",
			 weir_session_type_name(reply->type), weir_session_type_name(m->type));
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting until everything sent so far is complete. */
#include "stream/send.h"

static int
flushed(struct weir_conn *c, uint64_t upto)
{
	int rc = -EAGAIN;

	weir_lock(c->home);
	weir_drive(c->home, NULL);
	if (c->state == CONN_OPEN && c->local)
		weir_conn_delivered(c);
	else if (c->state == CONN_OPEN)
		weir_conn_completed(
		    c, atomic_load_explicit(&c->desc->completed, memory_order_acquire));
	if (c->completed >= upto)
		rc = 0;
	else if (c->state == CONN_ENDED)
		rc = weir_send_error(c);
	weir_unlock(c->home);
	return rc;
}

int
weir_flush(struct weir_conn *c, int timeout_ms)
{
	struct weir_wait wait;
	uint64_t upto;
	int rc;

	if (weir_state(c->home->w) != WEIR_UP)
		return weir_gone(c->home->w);
	weir_lock(c->home);
	upto = c->sent;
	weir_unlock(c->home);
	weir_wait_init(&wait, c->home, timeout_ms);
	wait.nap_always = true; /* not every message rings when it is complete */
	while ((rc = flushed(c, upto)) == -EAGAIN) {
		rc = weir_wait_next(&wait);
		if (rc)
			break;
	}
	weir_wait_end(&wait);
	return rc;
}

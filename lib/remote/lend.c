/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of other nodes. A connection to weir-lend there stands for it; no program polls that. The
 * memory itself is an export of weir-lend, opened like any other.
 */
#include "handle.h"

#include "client/progress.h"
#include "client/reason.h"
#include "client/wait.h"
#include "ipc/lend.h"
#include "ipc/text.h"

#include <limits.h>
#include <string.h>

/* Milliseconds until `end`; timeout_ms below 0 has none. */
static int
time_left(uint64_t end, int timeout_ms)
{
	uint64_t now = weir_clock();

	if (timeout_ms < 0)
		return timeout_ms;
	return now < end ? (int)((end - now) / 1000000) : 0;
}

/* The answer of weir-lend, after a check of its form. */
static int
ask(struct weir_conn *c, const struct weir_where *where, uint64_t bytes, uint64_t end,
    int timeout_ms, struct weir_lend_answer *answer)
{
	const struct weir_lend_request request = {.magic = WEIR_LEND_MAGIC,
						  .version = WEIR_LEND_VERSION,
						  .bytes = bytes,
						  .numa_node = where->numa_node};
	char reason[WEIR_REFUSAL_MAX];
	size_t length = 0;
	int rc = weir_send(c, &request, sizeof(request), time_left(end, timeout_ms));

	if (!rc)
		rc = weir_recv(c, answer, sizeof(*answer), &length, time_left(end, timeout_ms));
	if (rc == -EAGAIN)
		return weir_fail(-ETIMEDOUT,
				 "node %u has not lent memory within %d ms; wait longer, or see "
				 "weirctl show sessions there",
				 where->node, timeout_ms);
	if (rc)
		return rc;
	answer->reason[sizeof(answer->reason) - 1] = '\0';
	if (length != sizeof(*answer) || answer->magic != WEIR_LEND_MAGIC || answer->status > 0 ||
	    answer->status < -4095)
		return weir_fail(-EPROTO,
				 "weir-lend of node %u speaks another version; install one "
				 "release on both nodes",
				 where->node);
	if (!answer->status)
		return 0;
	weir_text_copy(reason, answer->reason, sizeof(reason));
	return weir_fail(answer->status, "node %u lends no %llu bytes: %s", where->node,
			 (unsigned long long)bytes, reason);
}

int
weir_remote_alloc(struct weir *w, const struct weir_where *where, uint64_t bytes, int timeout_ms,
		  struct weir_remote **remote, struct weir_key *key)
{
	uint64_t end = weir_clock() + (uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * 1000000;
	struct weir_address a = {.kind = WEIR_ADDRESS_NODE};
	struct weir_lend_answer answer;
	struct weir_remote_info info;
	struct weir_conn *c;
	int rc;

	if (!w || !where || !remote)
		return weir_fail(-EINVAL, "no session, no node, or no place for the handle; see "
					  "weir/remote.h");
	if (!bytes || !timeout_ms || where->reserved)
		return weir_fail(-EINVAL, "no bytes, no time, or `reserved` is not 0; see "
					  "weir/remote.h");
	a.id = where->node;
	memcpy(a.service, WEIR_LEND_SERVICE, sizeof(WEIR_LEND_SERVICE));
	rc = weir_connect(w, &a, timeout_ms, &c);
	if (rc == -ECONNREFUSED)
		return weir_fail(rc, "node %u lends no memory; start weir-lend there", where->node);
	if (rc)
		return rc;
	weir_lock(c->worker);
	c->silent = true;
	weir_unlock(c->worker);
	rc = ask(c, where, bytes, end, timeout_ms, &answer);
	if (!rc)
		rc = weir_remote_open(w, &answer.key, WEIR_LEND_RIGHTS, 0,
				      timeout_ms < 0 ? -1 : time_left(end, timeout_ms) + 1, remote);
	if (rc) {
		weir_close(c);
		return rc;
	}
	weir_remote_info(*remote, &info);
	if (info.length < bytes) {
		weir_remote_close(*remote);
		weir_close(c);
		return weir_fail(-EPROTO, "node %u has lent %llu bytes, not %llu; see its log",
				 where->node, (unsigned long long)info.length,
				 (unsigned long long)bytes);
	}
	(*remote)->lender = c;
	if (key)
		*key = answer.key;
	return 0;
}

int
weir_remote_free(struct weir_remote *r)
{
	struct weir_conn *lender = r ? r->lender : NULL;

	if (r && !lender)
		return weir_fail(-EINVAL, "its memory was not allocated by weir_remote_alloc(); "
					  "close the handle by weir_remote_close()");
	weir_remote_close(r);
	if (lender)
		weir_close(lender);
	return 0;
}

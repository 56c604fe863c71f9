/* SPDX-License-Identifier: BSD-3-Clause */
/* Connecting, closing, and calls on a connection as a whole. */
#include "channel_progress.h"
#include "ctrl_slots.h"
#include "model.h"
#include "partial_send.h"
#include "reconnect.h"
#include "send.h"
#include "service.h"

#include "client/progress.h"
#include "client/reason.h"
#include "client/resolve.h"
#include "client/sized.h"
#include "client/wait.h"

#include "ipc/address.h"

#include <stdio.h>

/*
 * Asks the data plane for a connection, by a request whose channel is *channel. Worker locked:
 * nobody else may see events of the connection before it is in the table.
 */
static int
start(struct weir_thread *t, struct weir_session_msg *m, uint32_t *channel,
      struct weir_session_msg *r, struct weir_conn **conn)
{
	uint32_t engine = UINT32_MAX;
	int fds[WEIR_SESSION_FDS], rc;
	struct weir_channel *ch;
	struct weir_conn *c;

	weir_assert(weir_worker_locked(t));
	r->connecting.vqpn = 0;
	/* by any channel first, then by one to the engine whose port reaches the peer */
	for (int asked = 0; !r->connecting.vqpn; asked++) {
		if (asked == 2 || (asked && engine >= t->w->geometry.engines))
			return weir_fail(-EPROTO, "the data plane names no engine for this "
						  "connection; install one release of both");
		rc = weir_channel_get(t, engine, &ch);
		if (rc)
			return rc;
		if (weir_ctrl_may_refuse(ch))
			return weir_fail(-ENOMEM, "no memory for a connection; free some");
		*channel = ch->index;
		rc = weir_request(t->w, m, WEIR_MSG_CONNECTING, r, fds);
		if (rc)
			return rc;
		engine = r->connecting.engine;
	}
	weir_channel_end_life(ch, r->connecting.vqpn);
	c = weir_conn_new(t, ch, r->connecting.vqpn, r->connecting.desc);
	if (!c) {
		weir_ctrl_refuse(ch, r->connecting.vqpn);
		return weir_fail(-ENOMEM, "no memory for a connection; free some");
	}
	c->state = CONN_OPENING;
	*conn = c;
	return 0;
}

int
weir_conn_start_memory(struct weir_thread *t, struct weir_remote_lane *remote, const uint8_t *key,
		       uint32_t rights, struct weir_memory_answer *answer)
{
	struct weir_session_msg m = weir_message(WEIR_MSG_OPEN), r = {0};
	int rc;

	*answer = (struct weir_memory_answer){0};

	m.open.rights = rights;
	m.open.class = WEIR_CLASS_NORMAL;
	memcpy(m.open.key, key, sizeof(m.open.key));
	rc = start(t, &m, &m.open.channel, &r, &answer->conn);
	answer->refused = rc && r.type == WEIR_MSG_REFUSED;
	if (rc)
		return rc;
	answer->conn->remote = remote;
	answer->conn->silent = true;
	answer->local = r.connecting.local;
	return 0;
}

int
weir_conn_start(struct weir_thread *t, const struct weir_address *address,
		const struct weir_connect_options *o, struct weir_conn **conn)
{
	struct weir_session_msg m = weir_message(WEIR_MSG_CONNECT), r;
	struct weir_conn *c;
	int rc;

	static_assert(WEIR_CONNECT_LOOP == WEIR_LOOP && WEIR_CONNECT_DATAGRAM == WEIR_UD,
		      "the same bits");
	static_assert(WEIR_CONNECT_WINDOW_MIN == WEIR_WINDOW_MIN, "the same limit");
	static_assert(WEIR_CLASS_NORMAL == (int)WEIR_PRIORITY_NORMAL &&
			  WEIR_CLASS_LOW == (int)WEIR_PRIORITY_LOW &&
			  WEIR_CLASS_HIGH == (int)WEIR_PRIORITY_HIGH,
		      "the same numbers");
	m.connect.flags = o ? o->flags & WEIR_CONNECT_KNOWN : 0;
	m.connect.window = o ? o->window : 0;
	m.connect.class = o ? o->priority : WEIR_PRIORITY_NORMAL;
	m.connect.address = *address;
	rc = start(t, &m, &m.connect.channel, &r, &c);
	if (rc)
		return rc;
	c->transfer = o ? weir_transfer_flags(o->flags) : 0;
	c->local = r.connecting.segment;
	c->segment_id = r.connecting.segment;
	c->conn_index = r.connecting.conn_index;
	c->peer_vqpn = r.connecting.peer_vqpn;
	if (c->local) {
		c->pipe = NULL;
		c->window = weir_segment_window(m.connect.window);
		rc = weir_conn_map(c);
	}
	if (rc) {
		weir_conn_close(c);
		return rc;
	}
	*conn = c;
	return 0;
}

int
weir_conn_opened(struct weir_conn *c)
{
	int rc = -EAGAIN;

	weir_lock(c->worker);
	weir_progress(c->worker, NULL);
	if (weir_conn_is_open(c))
		rc = 0;
	else if (c->state == CONN_ENDED)
		rc = c->never_opened ? c->end : 0;
	/* reported by the return value */
	if (rc != -EAGAIN) {
		c->pending &= (uint8_t)~PENDING_OPENED;
		if (!c->pending)
			weir_conn_unready(c);
	}
	weir_unlock(c->worker);
	return rc;
}

/* `named`: the address that the program gave, for reconnecting. */
static int
connect_to(struct weir_thread *t, const struct weir_address *address,
	   const struct weir_address *named, const struct weir_connect_options *o, int timeout_ms,
	   struct weir_conn **conn)
{
	struct weir_wait wait;
	struct weir_conn *c;
	int rc;

	weir_lock(t);
	rc = weir_conn_start(t, address, o, &c);
	if (!rc && o && o->reconnect.on) {
		rc = weir_reconnect_enable(c, named, o);
		if (rc)
			weir_conn_close(c);
	}
	weir_unlock(t);
	if (rc)
		return rc;
	if (!timeout_ms) {
		*conn = c;
		return 0;
	}
	weir_wait_init(&wait, t, timeout_ms);
	while ((rc = weir_conn_opened(c)) == -EAGAIN) {
		rc = weir_wait_next(&wait);
		if (rc)
			break;
	}
	weir_wait_end(&wait);
	if (rc == -EAGAIN)
		rc = weir_fail(-ETIMEDOUT,
			       "the peer has not answered within %d ms; see weirctl show nodes, or "
			       "wait longer",
			       timeout_ms);
	else if (weir_is_loss(rc) || c->refusal || rc == -ENOSPC)
		weir_conn_failed(c, rc);
	else if (rc && rc != -EINTR)
		weir_fail(rc, "the connection was refused: %s; %s", strerror(-rc),
			  rc == -ECONNREFUSED
			      ? "see that a program listens on that service over there"
			      : "see that the node is up and reached (weirctl show nodes, qps)");
	if (rc) {
		weir_lock(t);
		weir_conn_close(c);
		weir_unlock(t);
		return rc;
	}
	*conn = c;
	return 0;
}

/* Whether another node, or another address, may accept. */
static bool
another_may(int rc)
{
	return rc == -EHOSTUNREACH || rc == -ECONNREFUSED || rc == -EHOSTDOWN || rc == -ENOSPC;
}

int
weir_connect_with(struct weir *w, const struct weir_address *address,
		  const struct weir_connect_options *options, int timeout_ms,
		  struct weir_conn **conn)
{
	static const uint32_t none[4];
	struct weir_connect_options o = WEIR_CONNECT_OPTIONS_INIT;
	struct weir_address one = {.kind = WEIR_ADDRESS_NODE};
	struct weir_found found[WEIR_FOUND_MAX];
	struct weir_thread *t;
	int count, left = timeout_ms, rc;
	uint64_t end;

	if (!address || !conn)
		return weir_fail(-EINVAL,
				 "no address, or no place for the connection; see weir/stream.h");
	rc = weir_sized_read(&o, sizeof(o), options, "WEIR_CONNECT_OPTIONS_INIT");
	if (rc)
		return rc;
	if (weir_flags_check(o.flags, WEIR_LOOP))
		return -EINVAL;
	if (o.window && o.window < WEIR_WINDOW_MIN)
		return weir_fail(-EINVAL,
				 "a window of %u bytes doesn't hold a message; give %u or more, or "
				 "0 for the default",
				 o.window, WEIR_WINDOW_MIN);
	if (o.priority > WEIR_PRIORITY_HIGH)
		return weir_fail(-EINVAL, "no priority %u; see enum weir_priority in weir/stream.h",
				 o.priority);
	if (o.reconnect.on & ~(WEIR_AGAIN_RESTART | WEIR_AGAIN_LOSS) || o.reserved ||
	    memcmp(o.reconnect.reserved, none, sizeof(none)) != 0)
		return weir_fail(-EINVAL, "unknown flag in reconnect.on, or a reserved field that "
					  "is not 0; see weir/stream.h");
	w = weir_now(w);
	if (weir_state(w) != WEIR_UP)
		return weir_gone(w);
	t = weir_thread_own(w, &rc);
	if (!t)
		return rc;
	if (address->kind != WEIR_ADDRESS_SERVICE)
		return connect_to(t, address, address, &o, timeout_ms, conn);
	/* the nodes that offer the service, one after the other, until one accepts */
	end = weir_clock() + (uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * 1000000;
	count = weir_service_best(t->w, address->service, found);
	if (count < 0)
		return count;
	rc = weir_fail(-ECONNREFUSED,
		       "no node that is up offers the service %s; see weirctl show services",
		       address->service);
	memcpy(one.service, address->service, strlen(address->service));
	for (int i = 0; i < count; i++) {
		one.id = found[i].node;
		rc = connect_to(t, &one, address, &o, left, conn);
		if (!another_may(rc))
			break;
		if (timeout_ms > 0)
			left = (int)((int64_t)(end - weir_clock()) / 1000000);
		if (timeout_ms > 0 && left <= 0)
			break;
	}
	return rc;
}

int
weir_connect(struct weir *w, const struct weir_address *address, int timeout_ms,
	     struct weir_conn **conn)
{
	return weir_connect_with(w, address, NULL, timeout_ms, conn);
}

int
weir_connect_to(struct weir *w, const char *to, const struct weir_connect_options *o,
		int timeout_ms, struct weir_conn **conn)
{
	char host[WEIR_HOST_MAX], service[WEIR_SERVICE_MAX];
	char last[WEIR_ADDRESS_TEXT_MAX], why[160];
	struct weir_address address, found[WEIR_RESOLVED_MAX];
	int rc, count, left = timeout_ms;
	uint64_t end;

	if (!to || !weir_address_host(to, host, service)) {
		rc = weir_address_parse(to, &address);
		return rc ? rc : weir_connect_with(w, &address, o, timeout_ms, conn);
	}
	if (weir_state(weir_now(w)) != WEIR_UP)
		return weir_gone(weir_now(w));
	if (!timeout_ms)
		return weir_fail(-EINVAL,
				 "'%s' is the name of a host, and finding its address takes time; "
				 "give a timeout, or an address",
				 host);
	/* the addresses of the host one after the other; each has its share of the time */
	end = weir_clock() + (uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * 1000000;
	rc = count = weir_resolve(w, host, service, timeout_ms, found);
	for (int i = 0; i < count; i++) {
		if (timeout_ms > 0) {
			left = (int)((int64_t)(end - weir_clock()) / 1000000) / (count - i);
			left = left > 1 ? left : 1;
		}
		rc = weir_connect_with(w, &found[i], o, left, conn);
		if (!another_may(rc) && rc != -ETIMEDOUT)
			return rc;
	}
	if (count > 0) {
		snprintf(why, sizeof(why), "%s", weir_reason());
		weir_address_format(&found[count - 1], last, sizeof(last));
		weir_fail(rc, "host '%s' (the last of %d addresses, %s): %s", host, count, last,
			  why);
	}
	return rc;
}

int
weir_conn_mtu(const struct weir_conn *c)
{
	if (weir_state(c->worker->w) == WEIR_FORKED)
		return weir_gone(c->worker->w);
	if (c->state == CONN_OPENING)
		return -EAGAIN;
	return c->mtu ? c->mtu : (int)WEIR_STREAM_MESSAGE_MAX;
}

int
weir_shutdown(struct weir_conn *c)
{
	struct weir_thread *t = c->worker;
	int rc = 0;

	if (weir_state(t->w) != WEIR_UP)
		return weir_gone(t->w);
	weir_lock(t);
	if (!c->shut && c->send_error) {
		rc = weir_send_error(c);
	} else if (!c->shut) {
		c->shut = true;
		weir_conn_set_send_error(c, -EPIPE);
		/* other threads may wait for room */
		if (c->blocked)
			weir_conn_report(c, PENDING_WRITABLE);
		c->blocked = false;
		weir_ctrl_room_unneeded(c);
		if (c->local)
			weir_partial_end(c);
		else
			weir_ctrl_add(c, CTRL_END);
		if (!LIST_EMPTY(&t->waiters))
			weir_thread_wake(t);
	}
	weir_progress_leave(t);
	weir_unlock(t);
	return rc;
}

void
weir_close(struct weir_conn *c)
{
	struct weir_thread *t;

	if (!c || weir_state(c->worker->w) == WEIR_FORKED)
		return;
	t = c->worker;
	weir_lock(t);
	weir_conn_close(c);
	weir_progress_leave(t);
	weir_unlock(t);
	if (weir_unlikely(weir_state(t->w) != WEIR_UP))
		weir_threads_release(t->w);
}

int
weir_conn_bind(struct weir_conn *c)
{
	struct weir_foreign *f = NULL;
	struct weir_thread *t;

	if (weir_state(c->worker->w) != WEIR_UP)
		return weir_gone(c->worker->w);
	t = weir_thread_get(c->worker->w);
	if (t)
		weir_thread_rouse(t); /* c's worker may not be armed with the others */
	if (t && t != c->worker)
		f = weir_thread_add_foreign(t, c->worker);
	if (!t || (t != c->worker && !f))
		return weir_fail(
		    -errno, "the connection cannot be bound: %s; raise the limit of open files",
		    strerror(errno));
	weir_lock(c->worker);
	weir_conn_bind_to(c, t, f);
	weir_unlock(c->worker);
	return 0;
}

void
weir_conn_set_user(struct weir_conn *c, void *user)
{
	c->user = user;
}

void *
weir_conn_user(const struct weir_conn *c)
{
	return c->user;
}

int
weir_conn_peer(const struct weir_conn *c, uint16_t *node, int *local)
{
	if (weir_state(c->worker->w) == WEIR_FORKED)
		return weir_gone(c->worker->w);
	if (c->state == CONN_OPENING && !c->undecided)
		return -EAGAIN;
	if (local)
		*local = c->local;
	if (node)
		*node = c->peer_node;
	return 0;
}

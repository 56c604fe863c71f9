/* SPDX-License-Identifier: BSD-3-Clause */
#include "flow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void
perf_flow_init(struct perf_flow *f, struct weir *weir, struct weir_conn *conn)
{
	*f = (struct perf_flow){.weir = weir, .conn = conn};
	weir_conn_set_user(conn, f);
}

void
perf_flow_fini(struct perf_flow *f)
{
	free(f->out_buf);
	free(f->in_buf);
	f->out_buf = f->in_buf = NULL;
}

/* The directions differ, so that an echo of our own message is not taken for the peer's. */
static struct perf_plan
plan_of(const struct perf_message *request, bool from_driver)
{
	return (struct perf_plan){
	    .test = request->test,
	    .size = request->size,
	    .count = request->count,
	    .large = request->large,
	    .seed = perf_mix(2 * request->seed + (from_driver ? 0 : 1)),
	};
}

int
perf_flow_start(struct perf_flow *f, const struct perf_message *request, bool driver)
{
	size_t room = PERF_MESSAGE_MAX > FLOW_COPY_MAX ? PERF_MESSAGE_MAX : FLOW_COPY_MAX;
	uint32_t largest;

	perf_flow_fini(f);
	f->out = plan_of(request, driver);
	f->in = plan_of(request, !driver);
	f->verify = request->flags & PERF_VERIFY;
	f->copy = request->flags & PERF_COPY;
	f->window = request->window;
	f->way = request->flags & PERF_WAYS;
	f->sent = f->received = f->completed = f->bytes = f->errors = f->prepared = 0;
	f->failed = 0;
	f->blocked = false;
	/* what takes longer would outlast the time that a waiting call stays awake */
	f->wait_ms = f->out.test == PERF_LAT && !(request->flags & (PERF_SLEEP | PERF_HERE)) &&
			     f->out.size <= FLOW_COPY_MAX
			 ? FLOW_WAIT_MS
			 : 0;
	largest = perf_plan_largest(&f->out);
	f->in_size = f->copy && largest > room ? largest : room;
	f->in_buf = malloc(f->in_size);
	f->out_buf = malloc(largest ? largest : 1);
	if (!f->in_buf || !f->out_buf) {
		perf_flow_fini(f);
		return -ENOMEM;
	}
	memset(f->in_buf, 0, f->in_size);
	memset(f->out_buf, 0x5a, largest ? largest : 1);
	return 0;
}

/* Writes the next message's contents; `from`: what they are apart from the stamps. */
static inline void
write_contents(const struct perf_flow *f, void *buf, const void *from, uint32_t length)
{
	if (f->verify) {
		perf_plan_fill(&f->out, f->sent, buf, length);
		return;
	}
	if (buf != from)
		memcpy(buf, from, length);
	perf_plan_stamp(f->sent, buf, length);
}

static inline void
prepare(struct perf_flow *f, uint32_t length)
{
	if (f->prepared == f->sent + 1)
		return;
	write_contents(f, f->out_buf, f->out_buf, length);
	f->prepared = f->sent + 1;
}

static int
send_copy(struct perf_flow *f, uint32_t length, unsigned flags)
{
	prepare(f, length);
	if (!flags)
		return weir_send(f->conn, f->out_buf, length, 0);
	return weir_send_notify(f->conn, f->out_buf, length, flags, f->sent + 1, 0);
}

static int
send_in_place(struct perf_flow *f, uint32_t length, unsigned flags)
{
	void *buf;
	int rc = weir_send_reserve(f->conn, length, 0, &buf);

	if (rc)
		return rc;
	write_contents(f, buf, f->out_buf, length);
	rc = weir_send_commit(f->conn, buf, length, flags, f->sent + 1);
	if (rc)
		weir_send_abandon(f->conn, buf);
	return rc;
}

static __attribute__((noinline)) int
send_any(struct perf_flow *f)
{
	uint32_t length = perf_plan_size(&f->out, f->sent);
	unsigned flags = f->way;
	int rc;

	if (f->window) {
		if (f->failed)
			return f->failed;
		f->blocked = f->sent - f->completed >= f->window;
		if (f->blocked)
			return -EAGAIN;
		/* twice in a window is often enough, the last of a window always */
		if ((f->sent + 1) % (f->window > 1 ? f->window / 2 : 1) == 0)
			flags |= WEIR_NOTIFY;
	}
	if (length <= FLOW_COPY_MAX || f->copy)
		rc = send_copy(f, length, flags);
	else
		rc = send_in_place(f, length, flags);
	f->blocked = rc == -EAGAIN;
	if (rc == 0)
		f->sent++;
	return rc;
}

/* Small messages of one size are sent at the least cost: it counts to what is measured. */
int
perf_flow_send(struct perf_flow *f)
{
	int rc;

	if (f->window || f->way || f->verify || f->out.test == PERF_MIX ||
	    f->out.size > FLOW_COPY_MAX)
		return send_any(f);
	prepare(f, f->out.size);
	rc = weir_send(f->conn, f->out_buf, f->out.size, 0);
	if (rc == 0)
		f->sent++;
	if (f->blocked != (rc == -EAGAIN))
		f->blocked = !f->blocked;
	return rc;
}

void
perf_flow_completed(struct perf_flow *f, const struct weir_event *event)
{
	if (event->status && !f->failed)
		f->failed = event->status;
	if (event->cookie > f->completed)
		f->completed = event->cookie;
}

/* Takes up a message of the plan, or remembers a control message. */
static int
arrived(struct perf_flow *f, const void *data, size_t length, uint32_t expected)
{
	if (length == expected) {
		if (f->verify ? !perf_plan_check(&f->in, f->received, data, length)
			      : !perf_plan_stamped(f->received, data, length))
			f->errors++;
		f->received++;
		f->bytes += length;
		return 0;
	}
	if (length != perf_message_length(expected))
		return -EPROTO;
	memcpy(&f->control, data, sizeof(f->control));
	f->control_length = length;
	return FLOW_CONTROL;
}

int
perf_flow_recv(struct perf_flow *f)
{
	uint32_t expected = perf_plan_size(&f->in, f->received);
	struct weir_loan loan;
	size_t length;
	int rc;

	if (expected <= FLOW_COPY_MAX || f->copy) {
		rc = weir_recv(f->conn, f->in_buf, f->in_size, &length, f->wait_ms);
		if (rc == -EMSGSIZE)
			return -EPROTO;
		return rc ? rc : arrived(f, f->in_buf, length, expected);
	}
	rc = weir_recv_loan(f->conn, &loan, 0);
	if (rc)
		return rc;
	rc = arrived(f, loan.data, loan.length, expected);
	weir_release(f->weir, &loan);
	return rc;
}

int
perf_flow_send_control(struct perf_flow *f, struct perf_message *m, enum perf_kind kind)
{
	uint8_t buf[PERF_MESSAGE_MAX] = {0};
	bool running = kind == PERF_END || kind == PERF_RESULT;
	uint32_t length =
	    running ? perf_message_length(perf_plan_size(&f->out, f->sent)) : sizeof(*m);

	m->magic = PERF_MAGIC;
	m->version = PERF_VERSION;
	m->kind = kind;
	memcpy(buf, m, sizeof(*m));
	return weir_send(f->conn, buf, length, 0);
}

int
perf_flow_recv_control(struct perf_flow *f)
{
	uint8_t buf[PERF_MESSAGE_MAX];
	int rc = weir_recv(f->conn, buf, sizeof(buf), &f->control_length, 0);

	if (rc)
		return rc == -EMSGSIZE ? -EPROTO : rc;
	if (f->control_length < sizeof(f->control))
		return -EPROTO;
	memcpy(&f->control, buf, sizeof(f->control));
	return 0;
}

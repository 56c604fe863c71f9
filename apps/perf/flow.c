/* SPDX-License-Identifier: BSD-3-Clause */
#include "flow.h"

#include "clock.h"

#include "ipc/invariant.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_STRIDE 1024u /* bytes per message; control messages fit, too */
static_assert(PERF_SMALL_MAX <= BATCH_STRIDE && PERF_MESSAGE_MAX <= BATCH_STRIDE, "fits");

void
perf_flow_init(struct perf_flow *f, struct perf_buffers *buffers)
{
	*f = (struct perf_flow){.buffers = buffers, .socket.fd = -1};
}

void
perf_flow_conn(struct perf_flow *f, struct weir *weir, struct weir_conn *conn)
{
	f->weir = weir;
	f->conn = f->data = conn;
	weir_conn_set_user(conn, f);
}

void
perf_flow_data(struct perf_flow *f, struct weir_conn *data)
{
	if (f->data && f->data != f->conn)
		weir_close(f->data);
	f->data = data;
	if (data)
		weir_conn_set_user(data, f);
}

void
perf_flow_socket(struct perf_flow *f, int fd)
{
	perf_socket_init(&f->socket, fd);
}

void
perf_flow_close(struct perf_flow *f)
{
	if (f->queue)
		perf_queue_remove(f->queue, f);
	if (f->conn) {
		perf_slots_close(&f->slots, f->conn);
		perf_flow_data(f, NULL);
		weir_close(f->conn);
	}
	perf_socket_fini(&f->socket);
	f->conn = NULL;
}

void
perf_buffers_free(struct perf_buffers *b)
{
	free(b->out);
	free(b->in);
	*b = (struct perf_buffers){0};
}

/* Grows a buffer to at least `wanted` bytes; new bytes are `fill`. 0 or -ENOMEM. */
static int
grow(uint8_t **buf, size_t *size, size_t wanted, int fill)
{
	uint8_t *larger;

	if (wanted <= *size)
		return 0;
	larger = realloc(*buf, wanted);
	if (!larger)
		return -ENOMEM;
	memset(larger + *size, fill, wanted - *size);
	*buf = larger;
	*size = wanted;
	return 0;
}

/* The seeds of the directions differ, so that an echo fails the check. */
static struct perf_schedule
schedule_of(const struct perf_message *request, bool from_driver)
{
	return (struct perf_schedule){
	    .test = request->test,
	    .size = request->test == PERF_READ && from_driver ? PERF_READ_REQUEST : request->size,
	    .region = request->region,
	    .count = request->count,
	    .large = request->large,
	    .seed = perf_mix(2 * request->seed + (from_driver ? 0 : 1)),
	};
}

int
perf_flow_start(struct perf_flow *f, const struct perf_message *request, bool driver)
{
	size_t room = PERF_MESSAGE_MAX > PERF_SMALL_MAX ? PERF_MESSAGE_MAX : PERF_SMALL_MAX;
	uint32_t largest;
	int rc;

	f->out = schedule_of(request, driver);
	f->in = schedule_of(request, !driver);
	f->verify = request->flags & PERF_VERIFY;
	f->datagrams = request->flags & PERF_UD;
	f->answers = !driver && request->test == PERF_LAT;
	f->copy = request->flags & (PERF_COPY | PERF_UD);
	if (f->conn)
		perf_flow_data(f, f->datagrams ? NULL : f->conn);
	f->window = request->window;
	if (f->conn)
		perf_slots_close(&f->slots, f->conn);
	if (driver && request->flags & PERF_ADOPT && request->size > PERF_SMALL_MAX) {
		rc = perf_slots_open(&f->slots, f->weir, request->size, f->window);
		if (rc)
			return rc;
		/* a buffer is written again only when its message is complete */
		if (!f->window || f->window > f->slots.count)
			f->window = f->slots.count;
	}
	f->transfer = driver && request->test == PERF_READ ? 0 : request->flags & PERF_TRANSFERS;
	f->due = f->sent = f->received = f->completed = f->bytes = f->errors = f->prepared = 0;
	f->failed = 0;
	f->reads = driver && request->test == PERF_READ;
	f->blocked = f->partial = false;
	/* small messages of one size take the shortest path: its cost is part of the result */
	f->plain = f->conn && !f->window && !f->verify && !f->transfer && !f->region &&
		   f->out.test != PERF_MIX && f->out.size <= PERF_SMALL_MAX;
	/* larger round trips take longer than a waiting call spins */
	f->batch = f->plain && request->batch <= PERF_BATCH_MAX ? request->batch : 1;
	f->wait_ms = f->out.test == PERF_LAT && f->out.size <= PERF_SMALL_MAX &&
			     !(request->flags & (PERF_SLEEP | PERF_HERE | PERF_MANY | PERF_UD))
			 ? FLOW_WAIT_MS
			 : 0;
	if (f->batch > 1)
		room = f->batch * BATCH_STRIDE;
	largest = perf_schedule_largest(&f->in);
	rc = grow(&f->buffers->in, &f->buffers->in_size, f->copy && largest > room ? largest : room,
		  0);
	if (rc)
		return rc;
	largest = f->batch > 1 ? f->batch * BATCH_STRIDE : perf_schedule_largest(&f->out);
	return grow(&f->buffers->out, &f->buffers->out_size, largest ? largest : 1, 0x5a);
}

/* Writes the next message; `from` has its contents apart from the stamps. */
static inline void
write_contents(const struct perf_flow *f, void *buf, const void *from, uint32_t length)
{
	if (f->verify) {
		perf_schedule_fill(&f->out, f->sent, buf, length);
		return;
	}
	if (buf != from)
		memcpy(buf, from, length);
	perf_schedule_stamp(f->sent, buf, length);
}

/* Writes the next message into buffers->out, unless a refused call has left it there. */
static inline void
prepare(struct perf_flow *f, uint32_t length)
{
	struct perf_buffers *b = f->buffers;

	if (f->prepared == f->sent + 1 && b->prepared_by == f)
		return;
	write_contents(f, b->out, b->out, length);
	f->prepared = f->sent + 1;
	b->prepared_by = f;
}

static __attribute__((noinline)) int
send_any(struct perf_flow *f)
{
	uint32_t length = perf_schedule_size(&f->out, f->sent);
	unsigned flags = f->transfer;
	const void *adopted;
	void *buf;
	int rc;

	if (f->window && f->conn) {
		if (f->failed)
			return f->failed;
		f->blocked = f->sent - f->completed >= f->window;
		if (f->blocked)
			return -EAGAIN;
		/* ask for a completion twice per window, and for a window's last message */
		if ((f->sent + 1) % (f->window > 1 ? f->window / 2 : 1) == 0)
			flags |= WEIR_NOTIFY;
	}
	if (!f->conn) {
		/* the kernel copies, so the buffer is free after the call */
		prepare(f, length);
		rc = perf_socket_send(&f->socket, f->buffers->out, length);
		f->partial = rc == -EAGAIN && perf_socket_halfway(&f->socket);
	} else if (f->slots.memory || f->region) {
		if (f->slots.memory) {
			/* the window ensures that the buffer's last message is complete */
			buf = perf_slots_at(&f->slots, f->sent);
			write_contents(f, buf, buf, length);
			adopted = buf;
		} else {
			adopted = f->region + perf_schedule_offset(&f->out, f->sent);
		}
		rc = weir_send_notify(f->data, adopted, length, flags | WEIR_ZERO_COPY, f->sent + 1,
				      0);
	} else if (length <= PERF_SMALL_MAX || f->copy) {
		prepare(f, length);
		rc = flags
			 ? weir_send_notify(f->data, f->buffers->out, length, flags, f->sent + 1, 0)
			 : weir_send(f->data, f->buffers->out, length, 0);
	} else {
		rc = weir_send_reserve(f->conn, length, 0, &buf);
		if (!rc) {
			write_contents(f, buf, f->buffers->out, length);
			rc = weir_send_commit(f->conn, buf, length, flags, f->sent + 1);
			if (rc)
				weir_send_abandon(f->conn, buf);
		}
	}
	f->blocked = rc == -EAGAIN;
	if (rc == 0)
		f->sent++;
	return rc;
}

int
perf_flow_send(struct perf_flow *f)
{
	int rc;

	if (!f->plain)
		return send_any(f);
	prepare(f, f->out.size);
	rc = weir_send(f->data, f->buffers->out, f->out.size, 0);
	if (rc == 0)
		f->sent++;
	if (f->blocked != (rc == -EAGAIN))
		f->blocked = !f->blocked;
	return rc;
}

int
perf_flow_send_burst(struct perf_flow *f, uint64_t until, int most)
{
	struct iovec v[PERF_BATCH_MAX];
	int n, rc = 0;

	if (f->batch <= 1) {
		for (n = 0; n < most && f->sent < until; n++) {
			rc = perf_flow_send(f);
			if (rc)
				break;
		}
		return rc && rc != -EAGAIN ? rc : n;
	}
	/* in one call */
	if (f->sent >= until)
		return 0;
	n = most < (int)f->batch ? most : (int)f->batch;
	if (until - f->sent < (unsigned)n)
		n = (int)(until - f->sent);
	for (int i = 0; i < n; i++) {
		v[i].iov_base = f->buffers->out + (size_t)i * BATCH_STRIDE;
		v[i].iov_len = f->out.size;
		perf_schedule_stamp(f->sent + (unsigned)i, v[i].iov_base, v[i].iov_len);
	}
	f->buffers->prepared_by = NULL;
	rc = weir_send_many(f->conn, v, (unsigned)n, 0);
	f->blocked = rc == -EAGAIN || (rc >= 0 && rc < n);
	if (rc == -EAGAIN)
		return 0;
	if (rc > 0)
		f->sent += (unsigned)rc;
	return rc;
}

void
perf_flow_event(struct perf_flow *f, const struct weir_event *event)
{
	if (event->type == WEIR_EVENT_SENT) {
		if (event->status && !f->failed)
			f->failed = event->status;
		if (event->cookie > f->completed)
			f->completed = event->cookie;
	}
	if (f->queue)
		perf_queue_push(f->queue, f);
}

/* Counts a message of the schedule, or copies a control message to f->control. */
static int
arrived(struct perf_flow *f, const void *data, size_t length, uint32_t expected)
{
	bool right;

	if (length != expected) {
		if (length != perf_message_length(expected))
			return -EPROTO;
		memcpy(&f->control, data, sizeof(f->control));
		f->control_length = length;
		return FLOW_CONTROL;
	}
	if (f->reads)
		right = perf_schedule_read(&f->in, f->received, data, length, f->verify);
	else if (f->verify)
		right = perf_schedule_check(&f->in, f->received, data, length);
	else
		right = perf_schedule_stamped(f->received, data, length);
	f->errors += !right;
	f->received++;
	f->bytes += length;
	return 0;
}

/*
 * A datagram has any number: those before it may be lost, or follow. A round trip's answer has the
 * number of what it answers.
 */
static int
recv_datagram(struct perf_flow *f)
{
	const uint8_t *in = f->buffers->in;
	uint64_t number;
	size_t length;
	int rc =
	    f->data ? weir_recv(f->data, f->buffers->in, f->buffers->in_size, &length, 0) : -EAGAIN;

	/* the end of this connection tells nothing that the other one does not */
	if (rc == -EAGAIN || rc == -EINTR || rc == -ESHUTDOWN || rc == -ECONNRESET) {
		rc = perf_flow_recv_control(f);
		return rc ? rc : FLOW_CONTROL;
	}
	if (rc)
		return rc == -EMSGSIZE ? -EPROTO : rc;
	if (length != f->in.size)
		return -EPROTO;
	memcpy(&number, in, sizeof(number));
	if (f->in.test == PERF_LAT && !f->answers && number + 1 != f->sent)
		return -EAGAIN; /* after its time: counted as lost */
	if (f->answers) {
		f->sent = number;
		f->due = number + 1;
	}
	f->errors += !perf_schedule_stamped(number, in, length);
	f->received++;
	f->bytes += length;
	return 0;
}

int
perf_flow_recv(struct perf_flow *f)
{
	uint32_t expected = perf_schedule_size(&f->in, f->received);
	struct weir_loan loan;
	const void *data;
	size_t length;
	int rc;

	if (f->datagrams)
		return recv_datagram(f);
	if (!f->conn) {
		rc = perf_socket_recv(&f->socket, &data, &length);
		return rc ? rc : arrived(f, data, length, expected);
	}
	if (expected <= PERF_SMALL_MAX || f->copy) {
		rc = weir_recv(f->conn, f->buffers->in, f->buffers->in_size, &length, f->wait_ms);
		if (rc == -EMSGSIZE)
			return -EPROTO;
		if (rc == -EINTR) /* the caller looks whether it is to stop */
			return -EAGAIN;
		return rc ? rc : arrived(f, f->buffers->in, length, expected);
	}
	rc = weir_recv_loan(f->conn, &loan, 0);
	if (rc)
		return rc;
	rc = arrived(f, loan.data, loan.length, expected);
	weir_release(f->weir, &loan);
	return rc;
}

int
perf_flow_recv_burst(struct perf_flow *f, int most, uint64_t warmup, uint64_t *warm_ns,
		     bool *control)
{
	struct iovec v[PERF_BATCH_MAX];
	bool batch = f->batch > 1;
	int n, got = most, rc = 0;

	if (batch) { /* from one call */
		got = most < (int)f->batch ? most : (int)f->batch;
		for (n = 0; n < got; n++)
			v[n] =
			    (struct iovec){f->buffers->in + (size_t)n * BATCH_STRIDE, BATCH_STRIDE};
		got = weir_recv_many(f->conn, v, (unsigned)got, 0);
		if (got < 0)
			rc = got;
	}
	for (n = 0; n < got; n++) {
		rc =
		    batch ? arrived(f, v[n].iov_base, v[n].iov_len, f->in.size) : perf_flow_recv(f);
		if (rc)
			break;
		if (f->received == warmup)
			*warm_ns = now_ns();
	}
	if (control)
		*control = rc == FLOW_CONTROL;
	else if (rc == FLOW_CONTROL)
		return -EPROTO;
	return rc < 0 && rc != -EAGAIN ? rc : n;
}

int
perf_flow_send_control(struct perf_flow *f, struct perf_message *m, enum perf_kind kind)
{
	uint8_t buf[PERF_MESSAGE_MAX] = {0};
	bool running = kind == PERF_END || kind == PERF_RESULT;
	uint32_t length;
	int rc;

	/* a message that has begun is ended first */
	if (f->partial) {
		rc = perf_flow_send(f);
		if (rc)
			return rc;
	}
	length = running ? perf_message_length(perf_schedule_size(&f->out, f->sent)) : sizeof(*m);
	m->magic = PERF_MAGIC;
	m->versions = PERF_VERSIONS;
	m->kind = kind;
	m->sent = f->sent;
	memcpy(buf, m, sizeof(*m));
	if (f->conn)
		return weir_send(f->conn, buf, length, 0);
	return perf_socket_send(&f->socket, buf, length);
}

int
perf_flow_recv_control(struct perf_flow *f)
{
	uint8_t buf[1024]; /* other versions may have longer messages */
	const void *data = buf;
	int rc;

	if (f->conn)
		rc = weir_recv(f->conn, buf, sizeof(buf), &f->control_length, 0);
	else
		rc = perf_socket_recv(&f->socket, &data, &f->control_length);
	if (rc)
		return rc == -EMSGSIZE ? -EPROTO : rc;
	memcpy(&f->control, data,
	       f->control_length < sizeof(f->control) ? f->control_length : sizeof(f->control));
	return 0;
}

int
perf_queue_reserve(struct perf_queue *q, uint32_t n)
{
	uint32_t room = 64, count = perf_queue_count(q);
	struct perf_flow **ring;

	if (q->ring && n <= q->mask + 1)
		return 0;
	while (room < n)
		room *= 2;
	ring = calloc(room, sizeof(struct perf_flow *));
	if (!ring)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++)
		ring[i] = q->ring[(q->tail + i) & q->mask];
	free(q->ring);
	*q = (struct perf_queue){.ring = ring, .mask = room - 1, .head = count};
	return 0;
}

void
perf_queue_free(struct perf_queue *q)
{
	free(q->ring);
	*q = (struct perf_queue){0};
}

void
perf_queue_push(struct perf_queue *q, struct perf_flow *f)
{
	if (f->queued)
		return;
	weir_assert(q->ring && perf_queue_count(q) <= q->mask);
	f->queued = true;
	q->ring[q->head++ & q->mask] = f;
}

struct perf_flow *
perf_queue_pop(struct perf_queue *q, uint64_t random)
{
	uint32_t count = perf_queue_count(q), at;
	struct perf_flow *f;

	if (!count)
		return NULL;
	at = (q->tail + (uint32_t)(random % count)) & q->mask;
	f = q->ring[at];
	weir_assert(f->queued);
	q->ring[at] = q->ring[q->tail & q->mask];
	q->tail++;
	f->queued = false;
	return f;
}

void
perf_queue_remove(struct perf_queue *q, struct perf_flow *f)
{
	for (uint32_t i = q->tail; f->queued && i != q->head; i++) {
		if (q->ring[i & q->mask] != f)
			continue;
		q->ring[i & q->mask] = q->ring[q->tail & q->mask];
		q->tail++;
		f->queued = false;
	}
}

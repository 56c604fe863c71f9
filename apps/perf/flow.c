/* SPDX-License-Identifier: BSD-3-Clause */
#include "flow.h"

#include "idle.h"
#include "region.h"
#include "schedule.h"
#include "slots.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>

void
perf_flow_init(struct perf_flow *f, struct perf_buffers *buffers)
{
	*f = (struct perf_flow){.buffers = buffers, .socket.fd = -1};
}

void
perf_flow_conn(struct perf_flow *f, struct weir *weir, struct weir_conn *conn)
{
	f->weir = weir;
	f->conn = conn;
	weir_conn_set_user(conn, f);
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

/* One of the two buffers is made at least so large. 0 or -ENOMEM. */
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

/* The directions differ, so that an echo of our own message is not taken for the peer's. */
static struct perf_plan
plan_of(const struct perf_message *request, bool from_driver)
{
	return (struct perf_plan){
	    .test = request->test,
	    .size = request->test == PERF_READ && from_driver ? PERF_READ_REQUEST : request->size,
	    .region = request->region,
	    .count = request->count,
	    .large = request->large,
	    .seed = perf_mix(2 * request->seed + (from_driver ? 0 : 1)),
	};
}

/* For messages of `size` bytes, 0: none. A slot is written when its message is complete. */
static int
adopt_slots(struct perf_flow *f, uint32_t size)
{
	int rc;

	if (f->conn)
		perf_slots_close(&f->slots, f->conn);
	if (size <= FLOW_COPY_MAX)
		return 0;
	rc = perf_slots_open(&f->slots, f->weir, size, f->window);
	if (!rc && (!f->window || f->window > f->slots.count))
		f->window = f->slots.count;
	return rc;
}

int
perf_flow_start(struct perf_flow *f, const struct perf_message *request, bool driver)
{
	size_t room = PERF_MESSAGE_MAX > FLOW_COPY_MAX ? PERF_MESSAGE_MAX : FLOW_COPY_MAX;
	uint32_t largest;
	int rc;

	f->out = plan_of(request, driver);
	f->in = plan_of(request, !driver);
	f->verify = request->flags & PERF_VERIFY;
	f->copy = request->flags & PERF_COPY;
	f->window = request->window;
	rc = adopt_slots(f, driver && request->flags & PERF_ADOPT ? request->size : 0);
	if (rc)
		return rc;
	f->way = driver && request->test == PERF_READ ? 0 : request->flags & PERF_WAYS;
	f->sent = f->received = f->completed = f->bytes = f->errors = f->prepared = 0;
	f->failed = 0;
	f->reads = driver && request->test == PERF_READ;
	f->blocked = f->cut = false;
	/* small messages of one size are sent at the least cost: it counts to what is measured */
	f->plain = f->conn && !f->window && !f->verify && !f->way && !f->region &&
		   f->out.test != PERF_MIX && f->out.size <= FLOW_COPY_MAX;
	/* what takes longer would outlast the time that a waiting call stays awake */
	f->wait_ms = f->out.test == PERF_LAT && f->out.size <= FLOW_COPY_MAX &&
			     !(request->flags & (PERF_SLEEP | PERF_HERE | PERF_MANY))
			 ? FLOW_WAIT_MS
			 : 0;
	largest = perf_plan_largest(&f->in);
	rc = grow(&f->buffers->in, &f->buffers->in_size, f->copy && largest > room ? largest : room,
		  0);
	if (rc)
		return rc;
	largest = perf_plan_largest(&f->out);
	return grow(&f->buffers->out, &f->buffers->out_size, largest ? largest : 1, 0x5a);
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
	struct perf_buffers *b = f->buffers;

	if (f->prepared == f->sent + 1 && b->prepared_by == f)
		return;
	write_contents(f, b->out, b->out, length);
	f->prepared = f->sent + 1;
	b->prepared_by = f;
}

static int
send_copy(struct perf_flow *f, uint32_t length, unsigned flags)
{
	prepare(f, length);
	if (!flags)
		return weir_send(f->conn, f->buffers->out, length, 0);
	return weir_send_notify(f->conn, f->buffers->out, length, flags, f->sent + 1, 0);
}

static int
send_in_place(struct perf_flow *f, uint32_t length, unsigned flags)
{
	void *buf;
	int rc = weir_send_reserve(f->conn, length, 0, &buf);

	if (rc)
		return rc;
	write_contents(f, buf, f->buffers->out, length);
	rc = weir_send_commit(f->conn, buf, length, flags, f->sent + 1);
	if (rc)
		weir_send_abandon(f->conn, buf);
	return rc;
}

/* Out of the memory that is read, at the place of this message: nobody writes there. */
static int
send_region(struct perf_flow *f, uint32_t length, unsigned flags)
{
	return weir_send_notify(f->conn, f->region + perf_plan_offset(&f->out, f->sent), length,
				flags | WEIR_ZERO_COPY, f->sent + 1, 0);
}

/* Out of a buffer that was adopted: its last message is complete, as the window has seen to. */
static int
send_slot(struct perf_flow *f, uint32_t length, unsigned flags)
{
	uint8_t *buf = perf_slots_at(&f->slots, f->sent);

	write_contents(f, buf, buf, length);
	return weir_send_notify(f->conn, buf, length, flags | WEIR_ZERO_COPY, f->sent + 1, 0);
}

/* The kernel copies what it takes: the buffer is free at once. */
static int
send_socket(struct perf_flow *f, uint32_t length)
{
	int rc;

	prepare(f, length);
	rc = perf_socket_send(&f->socket, f->buffers->out, length);
	f->cut = rc == -EAGAIN && perf_socket_halfway(&f->socket);
	return rc;
}

static __attribute__((noinline)) int
send_any(struct perf_flow *f)
{
	uint32_t length = perf_plan_size(&f->out, f->sent);
	unsigned flags = f->way;
	int rc;

	if (f->window && f->conn) {
		if (f->failed)
			return f->failed;
		f->blocked = f->sent - f->completed >= f->window;
		if (f->blocked)
			return -EAGAIN;
		/* twice in a window is often enough, the last of a window always */
		if ((f->sent + 1) % (f->window > 1 ? f->window / 2 : 1) == 0)
			flags |= WEIR_NOTIFY;
	}
	if (!f->conn)
		rc = send_socket(f, length);
	else if (f->slots.memory)
		rc = send_slot(f, length, flags);
	else if (f->region)
		rc = send_region(f, length, flags);
	else if (length <= FLOW_COPY_MAX || f->copy)
		rc = send_copy(f, length, flags);
	else
		rc = send_in_place(f, length, flags);
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
	rc = weir_send(f->conn, f->buffers->out, f->out.size, 0);
	if (rc == 0)
		f->sent++;
	if (f->blocked != (rc == -EAGAIN))
		f->blocked = !f->blocked;
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

static inline bool
is_right(const struct perf_flow *f, const void *data, size_t length)
{
	if (f->reads)
		return perf_plan_read(&f->in, f->received, data, length, f->verify);
	return f->verify ? perf_plan_check(&f->in, f->received, data, length)
			 : perf_plan_stamped(f->received, data, length);
}

/* Takes up a message of the plan, or remembers a control message. */
static int
arrived(struct perf_flow *f, const void *data, size_t length, uint32_t expected)
{
	if (length == expected) {
		if (!is_right(f, data, length))
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

static int
recv_socket(struct perf_flow *f, uint32_t expected)
{
	const void *data;
	size_t length;
	int rc = perf_socket_recv(&f->socket, &data, &length);

	return rc ? rc : arrived(f, data, length, expected);
}

int
perf_flow_recv(struct perf_flow *f)
{
	uint32_t expected = perf_plan_size(&f->in, f->received);
	struct weir_loan loan;
	size_t length;
	int rc;

	if (!f->conn)
		return recv_socket(f, expected);
	if (expected <= FLOW_COPY_MAX || f->copy) {
		rc = weir_recv(f->conn, f->buffers->in, f->buffers->in_size, &length, f->wait_ms);
		if (rc == -EMSGSIZE)
			return -EPROTO;
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
perf_flow_send_control(struct perf_flow *f, struct perf_message *m, enum perf_kind kind)
{
	uint8_t buf[PERF_MESSAGE_MAX] = {0};
	bool running = kind == PERF_END || kind == PERF_RESULT;
	uint32_t length;
	int rc;

	/* a message that has begun is ended first */
	if (f->cut) {
		rc = perf_flow_send(f);
		if (rc)
			return rc;
	}
	length = running ? perf_message_length(perf_plan_size(&f->out, f->sent)) : sizeof(*m);
	m->magic = PERF_MAGIC;
	m->version = PERF_VERSION;
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
	uint8_t buf[PERF_MESSAGE_MAX];
	const void *data = buf;
	int rc;

	if (f->conn)
		rc = weir_recv(f->conn, buf, sizeof(buf), &f->control_length, 0);
	else
		rc = perf_socket_recv(&f->socket, &data, &f->control_length);
	if (rc)
		return rc == -EMSGSIZE ? -EPROTO : rc;
	if (f->control_length < sizeof(f->control))
		return -EPROTO;
	memcpy(&f->control, data, sizeof(f->control));
	return 0;
}

#define PAGE 4096u

/* Whole pages, and a word more than the size: a last message may end within a word. */
static uint64_t
bytes_of(const struct perf_region *r)
{
	return (r->size + 8 + PAGE - 1) / PAGE * PAGE;
}

/* Memory beyond what the session may adopt is copied when it is sent. */
static void
adopt(struct perf_region *r, struct weir *weir)
{
	uint64_t all = bytes_of(r);

	for (uint32_t i = 0; i < REGION_PIECES && r->adopted < all; i++) {
		uint64_t left = all - r->adopted,
			 length = left < REGION_PIECE ? left : REGION_PIECE;

		if (weir_adopt(weir, r->memory + r->adopted, length, WEIR_ADOPT_SEND, &r->piece[i]))
			break;
		r->adopted += length;
	}
	if (r->adopted < all)
		fprintf(stderr,
			"weir-perf: %llu of %llu MiB to read are adopted, the others copied; start "
			"weir-dataplane with a larger --adopt\n",
			(unsigned long long)r->adopted >> 20, (unsigned long long)all >> 20);
}

int
perf_region_open(struct perf_region *r, struct weir *weir)
{
	uint64_t *word;

	if (r->memory)
		return 0;
	word = mmap(NULL, bytes_of(r), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (word == MAP_FAILED)
		return -ENOMEM;
	for (uint64_t k = 0; k < bytes_of(r) / 8; k++)
		word[k] = perf_region_word(k);
	r->memory = (uint8_t *)word;
	adopt(r, weir);
	return 0;
}

void
perf_region_close(struct perf_region *r)
{
	int busy = 0;

	for (uint32_t i = 0; i < REGION_PIECES && r->piece[i]; i++)
		busy |= weir_disown(r->piece[i]);
	/* what is still under way keeps its memory until the program detaches */
	if (r->memory && !busy)
		munmap(r->memory, bytes_of(r));
	*r = (struct perf_region){.size = r->size};
}

#define FLUSH_MS 1000

int
perf_slots_open(struct perf_slots *s, struct weir *weir, uint32_t size, uint32_t most)
{
	uint64_t stride = (size + PAGE - 1) / PAGE * PAGE, count = SLOTS_BYTES / stride;
	uint8_t *memory;
	int rc;

	most = most && most < SLOTS_MAX ? most : SLOTS_MAX;
	count = count < most ? count : most;
	count += !count;
	memory =
	    mmap(NULL, count * stride, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return -ENOMEM;
	memset(memory, 0x5a, count * stride);
	*s = (struct perf_slots){.memory = memory, .count = (uint32_t)count, .stride = stride};
	rc = weir_adopt(weir, memory, count * stride, WEIR_ADOPT_SEND, &s->region);
	if (rc) {
		munmap(memory, count * stride);
		*s = (struct perf_slots){0};
	}
	return rc;
}

void
perf_slots_close(struct perf_slots *s, struct weir_conn *conn)
{
	if (!s->memory)
		return;
	weir_flush(conn, FLUSH_MS);
	/* what is under way even now keeps its memory until the program detaches */
	if (weir_disown(s->region) == 0)
		munmap(s->memory, s->count * s->stride);
	*s = (struct perf_slots){0};
}

static void
weir_events(struct idle *idle, int timeout_ms)
{
	struct weir_event events[IDLE_EVENTS];
	int n = timeout_ms ? weir_wait(idle->weir, events, IDLE_EVENTS, timeout_ms)
			   : weir_poll(idle->weir, events, IDLE_EVENTS);

	/* how a connection ends, its next send or receive tells; and why there is nothing, accept
	 */
	if (n < 0)
		idle->accepts = true;
	for (int i = 0; i < n; i++) {
		if (events[i].type == WEIR_EVENT_ACCEPT)
			idle->accepts = true;
		else if (events[i].user)
			perf_flow_event(events[i].user, &events[i]);
	}
}

static void
socket_events(struct idle *idle, int timeout_ms)
{
	static const struct weir_event either = {.type = WEIR_EVENT_READABLE};
	struct epoll_event events[IDLE_EVENTS];
	int n = epoll_wait(idle->epoll, events, IDLE_EVENTS, timeout_ms);

	for (int i = 0; i < n; i++) {
		if (events[i].data.ptr)
			perf_flow_event(events[i].data.ptr, &either);
		else
			idle->accepts = true;
	}
}

void
perf_idle_events(struct idle *idle, int timeout_ms)
{
	if (idle->epoll >= 0)
		socket_events(idle, timeout_ms);
	else
		weir_events(idle, timeout_ms);
}

int
perf_idle_watch(struct idle *idle, int fd, struct perf_flow *flow)
{
	struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = flow};

	if (idle->epoll < 0)
		idle->epoll = epoll_create1(EPOLL_CLOEXEC);
	return idle->epoll < 0 || epoll_ctl(idle->epoll, EPOLL_CTL_ADD, fd, &e) ? -errno : 0;
}

void
perf_idle_yield(struct idle *idle)
{
	uint64_t before = now_ns();

	sched_yield();
	idle->empty = 0;
	if (now_ns() - before > IDLE_OTHERS_NS) {
		idle->shared = true;
		idle->quick = 0;
	} else if (idle->shared && ++idle->quick >= IDLE_ALONE) {
		idle->shared = false;
		idle->quick = 0;
	}
}

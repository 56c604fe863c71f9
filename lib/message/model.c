/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messengers between processes. A process is a node and a name. The data plane vouches for the
 * node, and for the name of a process that is connected to; the number of a process that connects
 * is a claim until the model has checked its hello.
 */
#include "model.h"
#include "lane.h"
#include "peer.h"
#include "pool.h"
#include "sender.h"

#include "client/reason.h"
#include "stream/model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static_assert(KIND_MODEL == MESSAGE_KIND_FIRST, "the same kinds");
static_assert(sizeof(struct message_tag) == HEADER_SHORT, "as it travels");

#define HELLO_MAX (64u << 10)

/* ---- opening ---- */

int
model_adopt(struct weir_messenger *m, const struct message_model *model)
{
	size_t bytes = model->process_count * sizeof(*model->processes);
	struct message_process *processes = malloc(bytes);
	void *hello = malloc(model->hello_length + 1);

	m->model = malloc(sizeof(*m->model));
	m->strangers = calloc(1, sizeof(*m->strangers));
	if (!processes || !hello || !m->model || !m->strangers) {
		free(processes);
		free(hello);
		free(m->model);
		m->model = NULL;
		return -ENOMEM;
	}
	memcpy(processes, model->processes, bytes);
	if (model->hello_length)
		memcpy(hello, model->hello, model->hello_length);
	*m->model = *model;
	m->model->processes = processes;
	m->model->hello = hello;
	TAILQ_INIT(&m->strangers->lanes);
	return 0;
}

void
model_free(struct weir_messenger *m)
{
	struct message_lane *lane;

	while ((lane = LIST_FIRST(&m->lanes))) {
		LIST_REMOVE(lane, in_messenger);
		free(lane);
	}
	if (m->model) {
		free((void *)(uintptr_t)m->model->processes);
		free((void *)(uintptr_t)m->model->hello);
	}
	free(m->model);
	free(m->strangers);
}

int
message_open(struct weir *w, const struct weir_messenger_options *options,
	     const struct message_model *model, struct weir_messenger **messenger)
{
	struct weir_messenger_options o = *options;

	if (!model->process_count || model->process_count > NODES ||
	    model->self >= model->process_count)
		return weir_fail(-EINVAL, "process %u of %u; give a number below that, of 1 to %u",
				 model->self, model->process_count, NODES);
	if (model->guests > MESSAGE_GUESTS_MAX)
		return weir_fail(-EINVAL, "%u threads of the program receive; give at most %u",
				 model->guests, MESSAGE_GUESTS_MAX);
	if (model->hello_length > HELLO_MAX)
		return weir_fail(-EINVAL, "a hello of %u bytes; give at most %u",
				 model->hello_length, HELLO_MAX);
	for (uint32_t i = 0; i < model->process_count; i++)
		if (strnlen(model->processes[i].service, WEIR_SERVICE_MAX) > WEIR_SERVICE_MAX - 5)
			return weir_fail(-EINVAL, "the name of process %u; give at most %u bytes",
					 i, WEIR_SERVICE_MAX - 5);
	o.service = model->processes[model->self].service;
	return messenger_open(w, &o, model, messenger);
}

/* ---- names ---- */

uint16_t
messenger_node(const struct weir_messenger *m, uint16_t peer)
{
	return m->model ? m->model->processes[peer].node : peer;
}

void
messenger_name(const struct weir_messenger *m, uint16_t peer, uint32_t receiver, uint32_t k,
	       char name[WEIR_SERVICE_MAX])
{
	const char *service = m->model ? m->model->processes[peer].service : m->service;

	if (receiver != MESSAGE_HANDLERS)
		snprintf(name, WEIR_SERVICE_MAX, "%.27s.t%u", service,
			 receiver % MESSAGE_GUESTS_MAX);
	else
		snprintf(name, WEIR_SERVICE_MAX, k ? "%.27s.%u" : "%.27s", service, k);
}

/* ---- HELLO ---- */

struct peer *
model_stranger(const struct weir_messenger *m, uint16_t node)
{
	for (uint32_t i = 0; i < m->model->process_count; i++)
		if (m->model->processes[i].node == node)
			return m->strangers;
	return NULL;
}

size_t
model_hello(const struct lane *lane, struct message_hello_process *own, struct iovec parts[2])
{
	const struct message_model *model = lane->m->model;

	if (!model)
		return 0;
	*own = (struct message_hello_process){.process = model->self, .receiver = lane->receiver};
	parts[0] = (struct iovec){own, sizeof(*own)};
	parts[1] = (struct iovec){(void *)(uintptr_t)model->hello, model->hello_length};
	return sizeof(*own) + model->hello_length;
}

bool
model_greets(struct lane *lane, const uint8_t *data, uint32_t length)
{
	const struct message_model *model = lane->m->model;
	struct message_hello_process its;

	if (!model)
		return !length;
	if (length < sizeof(its) || length > sizeof(its) + HELLO_MAX)
		return false;
	memcpy(&its, data, sizeof(its));
	if (its.process >= model->process_count || its.receiver != lane->receiver)
		return false;
	/* the model hears of no process that the data plane or the lane contradicts */
	if (lane->sender ? its.process != lane->peer->node
			 : model->processes[its.process].node != lane->conn->peer_node)
		return false;
	if (!model->greeted((uint16_t)its.process, its.receiver, data + sizeof(its),
			    length - sizeof(its), model->user))
		return false;
	return lane->sender || !peer_adopt(lane, (uint16_t)its.process);
}

/* ---- messages ---- */

static int
too_long(uint64_t length)
{
	return weir_fail(-EMSGSIZE, "%llu bytes; a message of a model has at most %u",
			 (unsigned long long)length, WEIR_MESSAGE_WHOLE);
}

/* Reads the head of the model's message on a lane. False: it is malformed. */
static bool
read_tag(const struct lane *lane, const struct weir_taken *from, struct message_taken *taken)
{
	if (!lane->m->model || from->length < HEADER_SHORT ||
	    from->length > HEADER_SHORT + WEIR_MESSAGE_WHOLE || from->data[0] < KIND_MODEL)
		return false;
	memcpy(&taken->tag, from->data, sizeof(taken->tag));
	taken->data = from->data + HEADER_SHORT;
	taken->length = from->length - HEADER_SHORT;
	taken->receiver = lane->receiver;
	taken->process = lane->peer->node;
	return true;
}

bool
model_take(struct handler_thread *k)
{
	const struct message_model *model = k->m->model;
	struct lane *lane = k->lane;
	struct message_taken taken = {.reply = {{(uint64_t)(uintptr_t)lane, k->life}}};

	/* a lane is a stranger's until its HELLO has come */
	if (lane->peer == k->m->strangers || !read_tag(lane, &k->taken, &taken))
		return false;
	if (!model->take(k->m, &taken, model->user))
		return false;
	count(&k->handled);
	return true;
}

bool
model_reply(struct lane *lane, const struct weir_taken *from)
{
	const struct message_model *model = lane->m->model;
	struct message_taken taken = {0};

	if (!read_tag(lane, from, &taken) ||
	    !atomic_load_explicit(&lane->incarnation, memory_order_relaxed))
		return false;
	/* its owner has closed it: nothing is reported any more */
	return !lane->handle || model->replied(lane->handle, &taken, model->user);
}

/* The parts of a message behind its tag, and the length of all. 0, or an error of the caller. */
static int
with_tag(const struct weir_messenger *m, const struct message_tag *tag, const struct iovec *iov,
	 unsigned n, struct iovec parts[WEIR_MESSAGE_PARTS + 1], uint64_t *length)
{
	int rc = message_length(m, iov, n, length);

	weir_assert(tag->kind >= KIND_MODEL);
	if (rc)
		return rc;
	if (*length > WEIR_MESSAGE_WHOLE)
		return too_long(*length);
	parts[0] = (struct iovec){(void *)(uintptr_t)tag, HEADER_SHORT};
	if (n)
		memcpy(parts + 1, iov, n * sizeof(*iov));
	*length += HEADER_SHORT;
	return 0;
}

int
message_reply(struct weir_messenger *m, const struct weir_reply *reply,
	      const struct message_tag *tag, const struct iovec *iov, unsigned n)
{
	struct lane *lane = (struct lane *)(uintptr_t)reply->internal[0];
	struct iovec parts[WEIR_MESSAGE_PARTS + 1];
	uint64_t length;
	int rc;

	if (!lane)
		return weir_fail(-EINVAL,
				 "no reply of a message that was taken; replies to replies "
				 "go on a lane");
	weir_assert(lane->m == m);
	rc = with_tag(m, tag, iov, n, parts, &length);
	if (rc)
		return rc;
	weir_lock(lane->worker);
	if (lane->life != reply->internal[1] || !lane->conn || lane->closing)
		rc = weir_fail(-EHOSTUNREACH, "the sender is gone; nothing is to be done");
	else
		rc = lane_say(lane, parts, n + 1, length);
	weir_unlock(lane->worker);
	return rc ? message_error(m, rc) : 0;
}

/* ---- lanes ---- */

int
message_lane_open(struct weir_messenger *m, uint16_t process, uint32_t receiver,
		  struct message_lane **out)
{
	struct message_lane *lane;
	struct sender *s;
	int rc = 0;

	if (process >= m->model->process_count ||
	    (receiver >= MESSAGE_GUESTS_MAX && receiver != MESSAGE_HANDLERS))
		return weir_fail(-EINVAL, "receiver %u of process %u; there is none", receiver,
				 process);
	s = sender_get(m, &rc);
	if (!s)
		return rc;
	lane = calloc(1, sizeof(*lane));
	if (!lane)
		return weir_fail(-ENOMEM, "no memory for a lane; free some");
	lane->m = m;
	lane->process = process;
	lane->receiver = receiver;
	lane->thread = pthread_self();
	lane->sender = s;
	pthread_mutex_lock(&m->lock);
	LIST_INSERT_HEAD(&m->lanes, lane, in_messenger);
	pthread_mutex_unlock(&m->lock);
	*out = lane;
	return 0;
}

void
message_lane_set_user(struct message_lane *lane, void *user)
{
	lane->user = user;
}

void *
message_lane_user(const struct message_lane *lane)
{
	return lane->user;
}

/* Connections of the lane are nobody's from now on, and end once all is taken. m->lock. */
static void
let_go(struct message_lane *to, bool quietly)
{
	struct peer *p = peer_get(to->m, to->process);
	struct lane *lane, *next;

	for (lane = p ? TAILQ_FIRST(&p->lanes) : NULL; lane; lane = next) {
		next = TAILQ_NEXT(lane, in_peer);
		if (lane->handle != to)
			continue;
		if (quietly) {
			weir_lock(lane->worker);
			lane->handle = NULL;
			weir_unlock(lane->worker);
		}
		lane_finish(lane);
	}
}

void
message_lane_close(struct message_lane *lane)
{
	struct weir_messenger *m = lane->m;

	if (weir_state(m->w) == WEIR_FORKED)
		return;
	pthread_mutex_lock(&m->lock);
	let_go(lane, true);
	LIST_REMOVE(lane, in_messenger);
	pthread_mutex_unlock(&m->lock);
	free(lane);
}

void
message_lane_renew(struct message_lane *lane)
{
	struct weir_messenger *m = lane->m;

	pthread_mutex_lock(&m->lock);
	let_go(lane, false);
	lane->renewed = true;
	pthread_mutex_unlock(&m->lock);
}

void
model_thread_ends(struct weir_messenger *m)
{
	struct message_lane *lane;

	LIST_FOREACH(lane, &m->lanes, in_messenger)
	if (pthread_equal(lane->thread, pthread_self()))
		let_go(lane, false);
}

/* Pins the connection that the calling thread sends on now. */
static int
pin(struct message_lane *to, int timeout_ms, struct lane **lane)
{
	struct weir_messenger *m = to->m;
	struct sender *s;
	int rc = 0;

	s = sender_get(m, &rc);
	if (!s)
		return rc;
	if (weir_unlikely(s != to->sender)) {
		/* another session: connections of the former one have ended, or do */
		pthread_mutex_lock(&m->lock);
		if (to->now)
			lane_withdraw(to->now);
		to->sender = s;
		pthread_mutex_unlock(&m->lock);
	}
	return lane_pin_for(to, timeout_ms, lane);
}

int
message_lane_connect(struct message_lane *to, int timeout_ms)
{
	struct lane *lane;
	int rc = pin(to, timeout_ms, &lane);

	if (!rc)
		lane_unpin(lane);
	return rc;
}

bool
message_lane_is_free(struct message_lane *to)
{
	struct weir_thread *t = to->sender->worker;
	struct weir_ring *r;
	bool is_free = true;

	weir_lock(t);
	if (to->now && to->now->conn && to->now->conn->state == CONN_OPEN) {
		r = &to->now->conn->pipe->tx;
		is_free = r->pos - r->seen <= r->mask / 8 + 1;
		/* reads the other side's memory once per step, unless that is behind */
		if (!is_free && weir_ring_refresh(r))
			is_free = r->pos - r->seen <= r->mask / 8 + 1;
	}
	weir_unlock(t);
	return is_free;
}

int
message_lane_send(struct message_lane *to, const struct message_tag *tag, const struct iovec *iov,
		  unsigned n, int timeout_ms)
{
	struct iovec parts[WEIR_MESSAGE_PARTS + 1];
	struct lane *lane;
	uint64_t length;
	int rc = with_tag(to->m, tag, iov, n, parts, &length);

	if (!rc)
		rc = pin(to, timeout_ms, &lane);
	if (rc)
		return rc;
	rc = lane_send(lane, parts, n + 1, length, NULL, timeout_ms);
	lane_unpin(lane);
	return rc ? message_error(to->m, rc) : 0;
}

int
message_lane_reserve(struct message_lane *to, size_t room, int timeout_ms, struct weir_draft *draft)
{
	struct lane *lane;
	int rc;

	if (room > WEIR_MESSAGE_WHOLE)
		return too_long(room);
	rc = pin(to, timeout_ms, &lane);
	return rc ? rc : draft_reserve(lane, room, timeout_ms, draft);
}

int
message_lane_commit(struct message_lane *to, struct weir_draft *draft, size_t length,
		    const struct message_tag *tag, int timeout_ms)
{
	weir_assert(tag->kind >= KIND_MODEL);
	return draft_commit(to->m, draft, length, tag, timeout_ms);
}

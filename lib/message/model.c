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
	if (length < sizeof(its))
		return false;
	memcpy(&its, data, sizeof(its));
	if (its.process >= model->process_count || its.receiver != lane->receiver ||
	    !model->greeted((uint16_t)its.process, its.receiver, data + sizeof(its),
			    length - sizeof(its), model->user))
		return false;
	if (lane->sender)
		return its.process == lane->peer->node;
	return model->processes[its.process].node == lane->conn->peer_node &&
	       !peer_adopt(lane, (uint16_t)its.process);
}

/* ---- messages ---- */

bool
model_take(struct handler_thread *k)
{
	const struct message_model *model = k->m->model;
	struct lane *lane = k->lane;
	struct message_taken taken = {.reply = {{(uint64_t)(uintptr_t)lane, k->life}}};

	/* a lane is a stranger's until its HELLO has come */
	if (!model || lane->peer == k->m->strangers || k->taken.length < HEADER_SHORT ||
	    k->taken.data[0] < KIND_MODEL)
		return false;
	memcpy(&taken.tag, k->taken.data, sizeof(taken.tag));
	taken.data = k->taken.data + HEADER_SHORT;
	taken.length = k->taken.length - HEADER_SHORT;
	taken.receiver = lane->receiver;
	taken.process = lane->peer->node;
	if (!model->take(k->m, &taken, model->user))
		return false;
	count(&k->handled);
	return true;
}

int
message_reply(struct weir_messenger *m, const struct weir_reply *reply,
	      const struct message_tag *tag, const struct iovec *iov, unsigned n)
{
	struct lane *lane = (struct lane *)(uintptr_t)reply->internal[0];
	struct iovec parts[WEIR_MESSAGE_PARTS + 1] = {{(void *)(uintptr_t)tag, HEADER_SHORT}};
	uint64_t length;
	int rc = message_length(m, iov, n, &length);

	weir_assert(tag->kind >= KIND_MODEL);
	if (rc)
		return rc;
	if (length > WEIR_MESSAGE_WHOLE)
		return weir_fail(-EMSGSIZE, "a reply of %llu bytes; give at most %u",
				 (unsigned long long)length, WEIR_MESSAGE_WHOLE);
	if (n)
		memcpy(parts + 1, iov, n * sizeof(*iov));
	weir_lock(lane->worker);
	if (lane->life != reply->internal[1] || !lane->conn || lane->closing)
		rc = weir_fail(-EHOSTUNREACH, "the sender is gone; nothing is to be done");
	else
		rc = lane_say(lane, parts, n + 1, HEADER_SHORT + length);
	weir_unlock(lane->worker);
	return rc ? message_error(m, rc) : 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Two processes of a model with messengers, and what they took. */
#ifndef WEIR_TEST_PROCESS_PAIR_H
#define WEIR_TEST_PROCESS_PAIR_H

#include "message_world.h"
#include "test.h"

#include "message/message.h"

#define GUESTS 4u
#define KIND_COUNT                                                                                 \
	MESSAGE_KIND_FIRST /* {number} is the next one of its sender to this receiver              \
			    */
#define KIND_ASK (MESSAGE_KIND_FIRST + 1)
#define KIND_REFUSE 255u /* take() or replied() refuses it */
#define SECRET "the same group"

struct process {
	struct weir *w;
	struct weir_messenger *m;
	/* by receiver, of handler threads the last: messages, and the thread that took the last */
	_Atomic uint32_t taken[GUESTS + 1];
	_Atomic pthread_t by[GUESTS + 1];
	_Atomic uint32_t wrong, replies, ends, holds, held;
	/* HELLOs that the model was asked about, and the longest one */
	_Atomic uint32_t greetings, longest;
	_Atomic int status, nested, enters;
	_Atomic uint32_t go;
	_Atomic bool deserted; /* replies may find their lane closed */
};

struct process_pair {
	struct plane *f;
	struct process a, b;
	struct message_process at[3];
	struct message_model model;
};

static inline uint32_t
receiver_index(uint32_t receiver)
{
	return receiver == MESSAGE_HANDLERS ? GUESTS : receiver;
}

static inline bool
greeted(uint16_t process, uint32_t receiver, const void *hello, size_t length, void *user)
{
	struct process *own = user;

	atomic_fetch_add(&own->greetings, 1);
	if (length > atomic_load(&own->longest))
		atomic_store(&own->longest, (uint32_t)length);
	return length == sizeof(SECRET) && !memcmp(hello, SECRET, length);
}

static inline bool
take(struct weir_messenger *m, const struct message_taken *taken, void *user)
{
	struct process *own = user;
	uint32_t i = receiver_index(taken->receiver);
	struct iovec part = {(void *)(uintptr_t)taken->data, taken->length};

	if (taken->tag.kind == KIND_REFUSE)
		return false;
	if (taken->tag.kind == KIND_COUNT && taken->tag.value != atomic_load(&own->taken[i]))
		atomic_fetch_add(&own->wrong, 1);
	for (uint32_t at = 0; at < taken->length; at++)
		if (((const uint8_t *)taken->data)[at] != (uint8_t)(taken->tag.value + at))
			atomic_fetch_add(&own->wrong, 1);
	if (taken->tag.kind == KIND_ASK) {
		int rc = message_reply(m, &taken->reply, &taken->tag, &part, 1);

		if (rc != -EHOSTUNREACH || !atomic_load(&own->deserted))
			must(rc);
	}
	atomic_store(&own->by[i], pthread_self());
	atomic_store(&own->nested, message_leave(m));
	atomic_store(&own->enters, message_enter(m, 1));
	atomic_fetch_add(&own->taken[i], 1);
	if (i == GUESTS && atomic_load(&own->holds)) {
		atomic_fetch_add(&own->held, 1);
		while (!atomic_load(&own->go))
			nap(1);
	}
	return true;
}

static inline bool
replied(struct message_lane *lane, const struct message_taken *taken, void *user)
{
	struct process *own = user;

	if (taken->tag.kind == KIND_REFUSE)
		return false;
	for (uint32_t at = 0; at < taken->length; at++)
		if (((const uint8_t *)taken->data)[at] != (uint8_t)(taken->tag.value + at))
			atomic_fetch_add(&own->wrong, 1);
	if (message_lane_user(lane) != own)
		atomic_fetch_add(&own->wrong, 1);
	atomic_fetch_add(&own->replies, 1);
	return true;
}

static inline void
ended(struct message_lane *lane, int status, void *user)
{
	struct process *own = user;

	atomic_store(&own->status, status);
	atomic_fetch_add(&own->ends, 1);
}

static inline void
open_process(struct process_pair *p, struct process *s, uint16_t self, uint32_t handler_threads)
{
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS_INIT;
	struct message_model model = p->model;

	o.handler_threads = handler_threads;
	model.self = self;
	model.user = s;
	must(message_open(s->w, &o, &model, &s->m));
}

/* Process 0 on the first node, process 1 on the second one, process 2 beside that; or all on node
 * 0, if the plane has no nodes. */
static inline void
open_processes_with(struct process_pair *p, const struct plane_options *plane,
		    uint32_t handler_threads,
		    bool (*takes)(struct weir_messenger *m, const struct message_taken *taken,
				  void *user),
		    void (*dropped)(void *state, void *user))
{
	*p = (struct process_pair){.f = plane_create(plane)};
	p->a.w = plane_attach(p->f);
	p->b.w = plane_attach(p->f);
	for (unsigned i = 0; i < 3; i++) {
		p->at[i].node = plane->nodes ? PLANE_NODE(i > 0) : 0;
		snprintf(p->at[i].service, sizeof(p->at[i].service), "calls.%u", i);
	}
	p->model = (struct message_model){.processes = p->at,
					  .process_count = 3,
					  .guests = GUESTS,
					  .hello = SECRET,
					  .hello_length = sizeof(SECRET),
					  .greeted = greeted,
					  .take = takes,
					  .replied = replied,
					  .ended = ended,
					  .dropped = dropped};
	plane_run(p->f);
	open_process(p, &p->a, 0, handler_threads);
	open_process(p, &p->b, 1, handler_threads);
}

static inline void
open_processes(struct process_pair *p, const struct plane_options *plane, uint32_t handler_threads)
{
	open_processes_with(p, plane, handler_threads, take, NULL);
}

static inline void
close_processes(struct process_pair *p)
{
	close_world(p->f, p->a.w, p->a.m, p->b.w, p->b.m);
}

static inline struct message_lane *
open_lane(struct process *s, uint16_t process, uint32_t receiver)
{
	struct message_lane *lane;

	must(message_lane_open(s->m, process, receiver, &lane));
	message_lane_set_user(lane, s);
	return lane;
}

static inline int
post(struct message_lane *lane, uint8_t kind, uint32_t value, uint32_t length)
{
	struct message_tag tag = {.kind = kind, .value = value};
	uint8_t *bytes = malloc(length + 1);
	struct iovec part = {bytes, length};
	int rc;

	for (uint32_t i = 0; i < length; i++)
		bytes[i] = (uint8_t)(value + i);
	rc = message_lane_send(lane, &tag, &part, 1, PATIENT);
	free(bytes);
	return rc;
}

/* The calling thread has turns at s until it is so. */
#define drive(s, condition)                                                                        \
	do {                                                                                       \
		for (unsigned drive_n = 0; !(condition); drive_n++) {                              \
			if (drive_n == PATIENT)                                                    \
				fail_msg("never: %s", #condition);                                 \
			if (!weir_messenger_progress((s)->m, 0, 0))                                \
				nap(1);                                                            \
		}                                                                                  \
	} while (0)

#endif

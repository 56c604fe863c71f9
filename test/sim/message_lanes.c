/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lanes of models between the programs of test-messages: each thread that sends is a guest of its
 * program, and sends to guests and handler threads of all. Each accepted message is taken once, in
 * the order of its lane, by the thread that it was for.
 */
#include "messages.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define KIND MESSAGE_KIND_FIRST
#define SECRET 0x5eedu
#define LONGEST 9000u

static void __attribute__((noreturn))
fail(const struct sender *t, uint32_t to, uint32_t receiver, const char *what, int rc)
{
	sim_fail(t->p->world->s, "program %u thread %u to receiver %u of %u: %s: %d: %s", t->p->id,
		 t->id, receiver, to, what, rc, rc < 0 ? weir_reason() : "");
}

static struct sender *
guest_of(struct program *p, uint32_t receiver)
{
	return &p->sender[receiver];
}

static uint32_t
length_of(const struct sender *t, uint32_t to, uint32_t receiver, uint32_t number)
{
	uint64_t h =
	    sim_hash(t->p->world->s->sc.seed, 200 + (t->p->id * SENDERS + t->id) * PROGRAMS + to,
		     (uint64_t)receiver << 32 | number);

	return h % 8 ? (uint32_t)(h >> 32) % 100 : (uint32_t)(h >> 32) % LONGEST;
}

/* ---- what the model is asked and told ---- */

static bool
greeted(uint16_t process, uint32_t receiver, const void *hello, size_t length, void *user)
{
	const struct program *p = user;
	uint64_t secret = SECRET + p->world->s->sc.seed;

	return length == sizeof(secret) && !memcmp(hello, &secret, length);
}

static bool
take(struct weir_messenger *m, const struct message_taken *taken, void *user)
{
	struct program *p = user, *from = &p->world->program[taken->process];
	struct world *w = p->world;
	uint32_t i = taken->receiver == MESSAGE_HANDLERS ? SENDERS : taken->receiver;
	struct sender *t = &from->sender[taken->tag.flags];
	struct flow *f = &t->lane_flow[p->id][i];
	uint32_t number = f->handled++, length = length_of(t, p->id, i, number);
	const uint8_t *bytes = taken->data;
	bool right = taken->tag.value == number && taken->length == length;
	int rc;

	for (uint32_t at = 0; at < length && right; at++)
		right = bytes[at] == (uint8_t)(number + at);
	if (!right || number >= f->accepted + f->open)
		sim_fail(w->s,
			 "program %u: receiver %u: program %u thread %u: message %u instead of %u, "
			 "%u bytes; %u were accepted",
			 p->id, i, from->id, t->id, taken->tag.value, number, taken->length,
			 f->accepted);
	if (i < SENDERS && !pthread_equal(pthread_self(), guest_of(p, i)->self))
		sim_fail(w->s, "program %u: receiver %u: taken by another thread", p->id, i);
	w->counts.lane_messages++;
	sim_progress(w->s);
	/* the sender may have closed its lane */
	rc = message_reply(m, &taken->reply, &taken->tag, NULL, 0);
	if (rc && rc != -EHOSTUNREACH && !p->dead)
		sim_fail(w->s, "program %u: reply: %d: %s", p->id, rc, weir_reason());
	return true;
}

static bool
replied(struct message_lane *lane, const struct message_taken *taken, void *user)
{
	struct sender *t = message_lane_user(lane);
	struct flow *f =
	    &t->lane_flow[taken->process]
			 [taken->receiver == MESSAGE_HANDLERS ? SENDERS : taken->receiver];

	if (taken->tag.value != f->replied++)
		sim_fail(t->p->world->s, "program %u thread %u: reply %u instead of %u", t->p->id,
			 t->id, taken->tag.value, f->replied - 1);
	sim_progress(t->p->world->s);
	return true;
}

static void
ended(struct message_lane *lane, int status, void *user)
{
	const struct sender *t = message_lane_user(lane);
	struct world *w = t->p->world;
	bool died = t->p->dead;

	for (uint32_t i = 0; i < w->programs; i++)
		died |= is_dying(&w->program[i]);
	/* guests leave when nobody sends any more */
	if (!status || died || !w->sending)
		return;
	for (uint32_t i = 0; i < PROGRAMS * (SENDERS + 1); i++)
		if (t->lane[i / (SENDERS + 1)][i % (SENDERS + 1)] == lane)
			fail(t, i / (SENDERS + 1), i % (SENDERS + 1), "a lane has ended", status);
}

/* ---- lives ---- */

void
lanes_open(struct program *p)
{
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS_INIT;
	struct message_process at[PROGRAMS];
	struct world *w = p->world;
	uint64_t secret = SECRET + w->s->sc.seed;
	struct message_model model = {.processes = at,
				      .process_count = w->programs,
				      .self = (uint16_t)p->id,
				      .guests = SENDERS,
				      .hello = &secret,
				      .hello_length = sizeof(secret),
				      .greeted = greeted,
				      .take = take,
				      .replied = replied,
				      .ended = ended,
				      .user = p};
	int rc;

	for (uint32_t i = 0; i < w->programs; i++) {
		at[i].node = (uint16_t)w->program[i].node;
		snprintf(at[i].service, sizeof(at[i].service), "lanes.%u", i);
	}
	o.handler_threads = p->options.handler_threads;
	o.window = p->options.window;
	rc = message_open(p->w, &o, &model, &p->lanes);
	if (rc)
		sim_fail(w->s, "program %u: lanes: %d: %s", p->id, rc, weir_reason());
}

void
lanes_enter(struct sender *t)
{
	int rc = message_enter(t->p->lanes, t->id);

	t->self = pthread_self();
	if (rc)
		fail(t, t->p->id, t->id, "enter", rc);
	t->p->world->entered++;
}

/* Messages to the thread have not been taken. */
static bool
is_owed(const struct sender *t)
{
	struct world *w = t->p->world;

	for (uint32_t i = 0; i < w->programs * SENDERS; i++) {
		const struct sender *from = &w->program[i / SENDERS].sender[i % SENDERS];
		const struct flow *f = &from->lane_flow[t->p->id][t->id];

		if (from->p && !from->p->dead && f->handled < f->accepted)
			return true;
	}
	return false;
}

void
lanes_leave(struct sender *t)
{
	struct program *p = t->p;
	int rc;

	t->does = "takes";
	while ((p->world->sending || is_owed(t)) && !p->dead && !is_dying(p))
		rest(t);
	t->does = "leaves";
	/* those of the others end with their threads */
	if (p->dead || is_dying(p) || t->id % 2)
		return;
	for (uint32_t i = 0; i < p->world->programs * (SENDERS + 1); i++) {
		struct message_lane **lane = &t->lane[i / (SENDERS + 1)][i % (SENDERS + 1)];

		if (*lane)
			message_lane_close(*lane);
		*lane = NULL;
	}
	rc = message_leave(p->lanes);
	if (rc)
		fail(t, p->id, t->id, "leave", rc);
}

/* ---- sending ---- */

void
lanes_send(struct sender *t)
{
	struct program *p = t->p;
	uint32_t to = rng_below(&t->rng, p->world->programs);
	uint32_t i = rng_below(&t->rng, p->world->program[to].senders + 1), length;
	struct program *target = &p->world->program[to];
	struct message_tag tag = {.kind = KIND, .flags = (uint8_t)t->id};
	struct message_lane **lane;
	struct weir_draft draft;
	struct iovec part = {t->buffer, 0};
	struct flow *f;
	int rc = 0;

	i = i == target->senders ? SENDERS : i;
	/* the extra program has no name of a node, but is a process as others are */
	lane = &t->lane[to][i];
	f = &t->lane_flow[to][i];
	if (!*lane) {
		rc = message_lane_open(p->lanes, (uint16_t)to, i == SENDERS ? MESSAGE_HANDLERS : i,
				       lane);
		if (!rc)
			message_lane_set_user(*lane, t);
	}
	length = length_of(t, to, i, f->accepted);
	tag.value = f->accepted;
	part.iov_len = length;
	for (uint32_t at = 0; at < length; at++)
		t->buffer[at] = (uint8_t)(f->accepted + at);
	f->open = true;
	if (!rc && rng_chance(&t->rng, 500)) {
		rc = message_lane_send(*lane, &tag, &part, 1, (int)rng_below(&t->rng, 2));
	} else if (!rc) {
		rc = message_lane_reserve(*lane, length, (int)rng_below(&t->rng, 2), &draft);
		if (!rc) {
			memcpy(draft.data, t->buffer, length);
			rc = message_lane_commit(*lane, &draft, length, &tag,
						 (int)rng_below(&t->rng, 2));
			if (rc)
				weir_message_abandon(p->lanes, &draft);
		}
	}
	if (rc && (p->dead || is_dying(target)))
		return; /* it may have been sent */
	f->open = false;
	if (rc == -EAGAIN)
		rest(t);
	else if (rc)
		fail(t, to, i, "send", rc);
	f->accepted += !rc;
	sim_progress(p->world->s);
}

void
lanes_check(struct sim *s, struct world *w)
{
	for (uint32_t n = 0; n < w->programs * SENDERS * w->programs * (SENDERS + 1); n++) {
		uint32_t i = n % (SENDERS + 1), to = n / (SENDERS + 1) % w->programs;
		uint32_t from = n / (SENDERS + 1) / w->programs;
		const struct sender *t = &w->program[from / SENDERS].sender[from % SENDERS];
		const struct flow *f = &t->lane_flow[to][i];

		if (f->handled != f->accepted && !t->p->dead && !w->program[to].dead)
			sim_fail(s,
				 "program %u thread %u: %u messages to receiver %u of %u, %u were "
				 "taken",
				 t->p->id, t->id, f->accepted, i, to, f->handled);
	}
}

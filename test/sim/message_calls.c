/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls of programs of test-messages, and checks of what comes back. */
#include "messages.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define ERRORS 100u /* with which handlers refuse: 1 to that */

static void __attribute__((noreturn))
fail(const struct sender *t, uint32_t node, const char *what, int rc)
{
	sim_fail(t->p->world->s, "program %u thread %u to node %u: %s: %d: %s", t->p->id, t->id,
		 node, what, rc, rc < 0 ? weir_reason() : "");
}

void
nap(uint64_t ns)
{
	const struct timespec ts = {.tv_nsec = (long)ns};

	nanosleep(&ts, NULL);
}

/* ---- what is sent: all follows from the thread, the node and the number ---- */

static uint32_t
key_of(const struct sender *t, uint32_t node, uint32_t number)
{
	return (uint32_t)sim_hash(t->p->world->s->sc.seed,
				  (t->p->id * SENDERS + t->id) * NODES + node, number);
}

/* Of a message, or, with another salt, of a response. */
static uint32_t
length_of(uint32_t key, uint32_t salt)
{
	uint64_t h = sim_hash(key, 5, salt);
	uint32_t more = (uint32_t)(h >> 32);

	switch (h % 64) {
	case 0:
		return 0;
	case 1: /* in one slot, two, several; in a block, above it */
		return 40 + more % 40;
	case 2:
		return 8192 - 32 + more % 64;
	case 3 ... 5:
		return more % 70000;
	case 6:
		return more % 8 ? more % 1000 : WEIR_MESSAGE_WHOLE - 50 + more % 70000;
	case 7 ... 20:
		return more % 4096;
	default:
		return more % 120;
	}
}

static void
put_bytes(uint8_t *to, uint32_t key, uint32_t length)
{
	for (uint32_t i = 0; i < length; i++)
		to[i] = (uint8_t)(key + i + (i >> 8));
}

static bool
are_bytes(const uint8_t *at, uint32_t key, uint32_t length)
{
	for (uint32_t i = 0; i < length; i++)
		if (at[i] != (uint8_t)(key + i + (i >> 8)))
			return false;
	return true;
}

static uint16_t
type_of(const struct sender *t, bool request)
{
	return WEIR_TYPE(1 + request, t->p->id * SENDERS + t->id);
}

static bool
is_refused(uint32_t key)
{
	return sim_hash(key, 6, 0) % 16 == 0;
}

static int
error_of(uint32_t key)
{
	return 1 + (int)(sim_hash(key, 6, 1) % ERRORS);
}

/* ---- receiving ---- */

static struct program *
listener_of(struct world *w, uint32_t node)
{
	return &w->program[node];
}

bool
is_dying(const struct program *p)
{
	return p->dies_at <= p->world->s->now;
}

static void
respond(struct program *p, const struct weir_reply *reply, uint32_t key, uint32_t length)
{
	uint8_t *buffer = malloc(length + 1); /* several threads of the program may respond */
	struct iovec parts[2];
	struct weir_draft draft;
	int rc = -EAGAIN;

	put_bytes(buffer, key, length);
	if (length <= WEIR_MESSAGE_WHOLE && key % 4 == 0) {
		rc = weir_response_reserve(p->m, reply, length, 0, &draft);
		if (!rc) {
			put_bytes(draft.data, key, length);
			rc = weir_message_commit(p->m, &draft, length, 0);
			if (rc)
				weir_message_abandon(p->m, &draft);
		}
	} else if (key % 4 == 1) {
		parts[0] = (struct iovec){buffer, length / 3};
		parts[1] = (struct iovec){buffer + length / 3, length - length / 3};
		rc = weir_message_respondv(p->m, reply, parts, 2);
	}
	if (rc == -EAGAIN)
		rc = weir_message_respond(p->m, reply, buffer, length);
	if (rc && rc != -EHOSTUNREACH && !p->dead)
		sim_fail(p->world->s, "program %u: respond: %d: %s", p->id, rc, weir_reason());
	free(buffer);
	sim_progress(p->world->s);
}

void
handle(struct weir_messenger *m, const struct weir_message *message, void *user)
{
	struct program *p = user, *from;
	struct world *w = p->world;
	uint32_t who = message->type & 0xff, number, key, length;
	bool request = message->flags & WEIR_MESSAGE_REQUEST;
	struct sender *t;
	struct flow *f;

	from = &w->program[who / SENDERS];
	t = &from->sender[who % SENDERS];
	f = &t->flow[p->node];
	number = f->handled++;
	key = key_of(t, p->node, number);
	length = length_of(key, 0);
	if (message->node != from->node || request != (message->type >> 8 == 2))
		sim_fail(w->s, "node %u: from node %u, flags %x", p->node, message->node,
			 message->flags);
	if (number >= f->accepted + f->open)
		sim_fail(w->s, "node %u: program %u thread %u: message %u of %u", p->node, from->id,
			 t->id, number, f->accepted);
	if (message->length != length || !are_bytes(message->data, key, length))
		sim_fail(w->s, "node %u: program %u thread %u: message %u has %zu bytes, not %u",
			 p->node, from->id, t->id, number, message->length, length);
	sim_trace(w->s, "program %u: handles %u of program %u thread %u, %u bytes", p->id, number,
		  from->id, t->id, length);
	w->counts.messages += !request;
	w->counts.fragmented += length > WEIR_MESSAGE_WHOLE;
	sim_progress(w->s);
	if (!request)
		return;
	if (is_refused(key)) {
		weir_message_refuse(m, &message->reply, error_of(key));
	} else if (sim_hash(key, 7, 0) % 4 == 0 && p->later_count < LATER) {
		p->later[p->later_count++] = (struct later){
		    message->reply, w->s->now + rng_log(&w->s->rng, SIM_US, 3 * SIM_MS), key,
		    length_of(key, 1)};
		w->counts.later++;
	} else {
		respond(p, &message->reply, key, length_of(key, 1));
	}
}

void
told_link(uint16_t node, enum weir_link_event event, int status, void *user)
{
	struct program *p = user;
	struct sim *s = p->world->s;
	bool died = false;

	sim_trace(s, "program %u: link to node %u: event %u, status %d", p->id, node, event,
		  status);
	if (p->linked[node] == (event == WEIR_LINK_CREATED))
		sim_fail(s, "program %u: link to node %u: event %u twice", p->id, node, event);
	p->linked[node] = event == WEIR_LINK_CREATED;
	for (uint32_t i = 0; i < p->world->programs; i++) /* one that only sends, too */
		died |= p->world->program[i].node == node && is_dying(&p->world->program[i]);
	if (status && !p->dead && !died)
		sim_fail(s, "program %u: link to node %u: lost: %d", p->id, node, status);
}

void
told_sent(struct weir_messenger *m, uint16_t node, uint64_t cookie, int status, void *user)
{
	struct program *p = user;
	struct sender *t = &p->sender[cookie >> 32];

	if ((uint32_t)cookie != t->reported[node]++)
		fail(t, node, "ends of messages are reported in another order", (int)cookie);
	if (status && !p->dead && !is_dying(listener_of(p->world, node)))
		fail(t, node, "a message was lost", status);
	p->world->counts.notified++;
	sim_progress(p->world->s);
}

/* ---- sending ---- */

/* The thread that opened the messenger answers what is to be answered later: it does not wait. */
static void
answer_later(struct program *p)
{
	for (uint32_t i = 0; i < p->later_count;) {
		struct later l = p->later[i];

		if (l.at > p->world->s->now) {
			i++;
			continue;
		}
		p->later[i] = p->later[--p->later_count];
		respond(p, &l.reply, l.key, l.length);
	}
}

void
rest(struct sender *t)
{
	int rc;

	if (!t->id)
		answer_later(t->p);
	rc = weir_messenger_progress(t->p->m, 0, (int)rng_below(&t->rng, 2));
	if (rc < 0 && !t->p->dead)
		fail(t, 0, "progress", rc);
	if (t->p->lanes) {
		rc = weir_messenger_progress(t->p->lanes, 0, 0);
		if (rc < 0 && !t->p->dead)
			fail(t, 0, "progress of lanes", rc);
	}
	nap(rng_log(&t->rng, 100, 20 * SIM_US));
}

/*
 * Whether it may wait without limit. Responses on loan that it has not released keep the window of
 * their lane closed, perhaps for the response that it would wait for.
 */
static bool
may_wait(const struct sender *t)
{
	for (uint32_t i = 0; i < REQUESTS; i++)
		if (t->request[i].used && t->request[i].flags & WEIR_REQUEST_LOAN)
			return false;
	return t->id;
}

/* ms that a call of the thread may wait. */
static int
patience(struct sender *t)
{
	return may_wait(t) && rng_chance(&t->rng, 600) ? -1 : (int)rng_below(&t->rng, 2);
}

/* A call has returned: whether it was accepted. */
static bool
settle(struct sender *t, uint32_t node, int rc)
{
	struct flow *f = &t->flow[node];
	struct program *to = listener_of(t->p->world, node);

	/* it may have been sent */
	if (rc && (t->p->dead || (is_dying(to) && rc == -EHOSTUNREACH)))
		return false;
	f->open = false;
	if (!rc) {
		f->accepted++;
		sim_progress(t->p->world->s);
		return true;
	}
	if (f->handled > f->accepted && !is_dying(to))
		fail(t, node, "a message that was not accepted was handled", rc);
	if (rc == -EAGAIN) {
		t->p->world->counts.full++;
		rest(t);
	} else if (is_dying(to) && rc == -ECONNREFUSED) {
		t->p->world->counts.unreached++;
	} else {
		fail(t, node, "send", rc);
	}
	return false;
}

static int
send_draft(struct sender *t, uint32_t node, uint32_t key, uint32_t length)
{
	struct weir_draft draft;
	int rc = weir_message_reserve(t->p->m, (uint16_t)node, type_of(t, false), length, 0,
				      patience(t), &draft);

	if (rc)
		return rc;
	put_bytes(draft.data, key, length);
	rc = weir_message_commit(t->p->m, &draft, length, patience(t));
	if (rc)
		weir_message_abandon(t->p->m, &draft);
	return rc;
}

static void
send_message(struct sender *t, uint32_t node)
{
	struct weir_messenger *m = t->p->m;
	struct flow *f = &t->flow[node];
	uint32_t key = key_of(t, node, f->accepted), length = length_of(key, 0);
	struct iovec parts[2] = {{t->buffer, length / 2},
				 {t->buffer + length / 2, length - length / 2}};
	uint16_t type = type_of(t, false), to = (uint16_t)node;
	uint32_t way = rng_below(&t->rng, 4);
	int rc;

	put_bytes(t->buffer, key, length);
	f->open = true;
	if (way == 1) {
		rc = weir_message_sendv(m, to, type, parts, 2, patience(t));
	} else if (way == 2) {
		rc = weir_message_send_notify(m, to, type, parts, 2,
					      (uint64_t)t->id << 32 | t->asked[node], patience(t));
		t->asked[node] += !rc;
	} else if (way == 3 && length <= WEIR_MESSAGE_WHOLE) {
		rc = send_draft(t, node, key, length);
	} else {
		rc = weir_message_send(m, to, type, t->buffer, length, patience(t));
	}
	settle(t, node, rc);
}

/* ---- requests ---- */

/* A request has ended: with what was to come? */
static void
check_end(struct sender *t, struct outstanding *o)
{
	struct world *w = t->p->world;
	uint32_t key = key_of(t, o->node, o->number), length = length_of(key, 1);
	bool small = !o->flags && o->size < length;
	int rc = o->r.status;

	o->used = false;
	sim_progress(w->s);
	if (rc == -EHOSTUNREACH && is_dying(listener_of(w, o->node))) {
		w->counts.unreached++;
	} else if (t->p->dead) {
		;
	} else if (rc == -ECANCELED && o->cancelled) {
		w->counts.cancelled++;
	} else if (is_refused(key)) {
		if (rc != -error_of(key))
			fail(t, o->node, "a request that was refused ends otherwise", rc);
		w->counts.refused++;
	} else if (rc != (small ? -EMSGSIZE : 0) || o->r.length != length ||
		   !are_bytes(o->r.data, key, small ? (uint32_t)o->size : length)) {
		fail(t, o->node, "a request ends with another response", rc);
	} else {
		w->counts.responses++;
		w->counts.fragmented += length > WEIR_MESSAGE_WHOLE;
	}
	if (o->flags & WEIR_REQUEST_GROW)
		o->buffer = (uint8_t *)(uintptr_t)o->r.data;
	if (o->flags & WEIR_REQUEST_LOAN && !rc)
		weir_request_release(&o->r);
	free(o->buffer);
	o->buffer = NULL;
}

static void
told_done(struct weir_request *r, void *user)
{
	((struct outstanding *)user)->ended = true;
}

static void
start_request(struct sender *t, uint32_t node, struct outstanding *o)
{
	struct weir_request_options options = WEIR_REQUEST_OPTIONS_INIT;
	struct flow *f = &t->flow[node];
	uint32_t key = key_of(t, node, f->accepted), length = length_of(key, 0);
	struct iovec part = {t->buffer, length};
	struct weir_draft draft;
	bool small = rng_chance(&t->rng, 150), draws = length <= WEIR_MESSAGE_WHOLE;
	int rc;

	*o = (struct outstanding){.node = node, .number = f->accepted, .used = true};
	o->reports = rng_chance(&t->rng, 300);
	o->flags = rng_chance(&t->rng, 400) ? 1u << rng_below(&t->rng, 2) : 0;
	o->size = o->flags & WEIR_REQUEST_LOAN ? 0 : small ? 64 : LARGEST;
	o->buffer = o->size ? malloc(o->size) : NULL;
	put_bytes(t->buffer, key, length);
	options.iov = &part;
	options.parts = 1;
	options.flags = o->flags;
	options.response = o->buffer;
	options.response_size = o->size;
	options.done = o->reports ? told_done : NULL;
	options.user = o;
	f->open = true;
	if (draws && rng_chance(&t->rng, 200)) {
		rc = weir_request_reserve(t->p->m, (uint16_t)node, type_of(t, true), length,
					  patience(t), &draft);
		if (!rc) {
			put_bytes(draft.data, key, length);
			rc = weir_request_commit(t->p->m, &draft, length, &o->r, &options,
						 patience(t));
			if (rc)
				weir_message_abandon(t->p->m, &draft);
		}
	} else if (!o->flags && !o->reports && rng_chance(&t->rng, 500)) {
		rc = weir_request_start(t->p->m, &o->r, (uint16_t)node, type_of(t, true), t->buffer,
					length, o->buffer, o->size, patience(t));
	} else {
		rc = weir_request_start_with(t->p->m, &o->r, (uint16_t)node, type_of(t, true),
					     &options, patience(t));
	}
	if (settle(t, node, rc))
		return;
	o->used = false;
	free(o->buffer);
}

bool
collect(struct sender *t)
{
	struct weir_request *list[REQUESTS] = {NULL};
	struct outstanding *o;
	bool any = false;
	int rc;

	for (uint32_t i = 0; i < REQUESTS; i++) {
		o = &t->request[i];
		if (o->used && o->ended) {
			check_end(t, o);
			return true;
		}
		if (o->used && !o->reports)
			list[i] = &o->r, any = true;
	}
	if (!any)
		return false;
	rc = weir_request_wait_any(list, REQUESTS, t->id ? (int)rng_below(&t->rng, 2) : 0);
	if (rc >= 0)
		check_end(t, &t->request[rc]);
	else if (rc != -EAGAIN && !t->p->dead)
		fail(t, 0, "wait for any request", rc);
	return rc >= 0;
}

bool
is_waiting(const struct sender *t)
{
	for (uint32_t i = 0; i < REQUESTS; i++)
		if (t->request[i].used)
			return true;
	for (uint32_t i = 0; i < NODES; i++)
		if (t->reported[i] != t->asked[i])
			return true;
	return false;
}

static void
ask(struct sender *t, uint32_t node)
{
	struct outstanding *o = t->request;

	while (o < t->request + REQUESTS && o->used)
		o++;
	if (o < t->request + REQUESTS)
		start_request(t, node, o);
	else if (!collect(t))
		rest(t);
}

/* Only a thread that need not answer others may wait for them. */
static void
ask_and_wait(struct sender *t, uint32_t node)
{
	struct world *w = t->p->world;
	struct flow *f = &t->flow[node];
	struct outstanding o = {.node = node, .number = f->accepted, .size = LARGEST};
	uint32_t key = key_of(t, node, f->accepted), length = length_of(key, 0);
	uint16_t to = (uint16_t)node, type = type_of(t, true);
	bool hasty = rng_chance(&t->rng, 200);
	int rc;

	o.buffer = malloc(LARGEST);
	put_bytes(t->buffer, key, length);
	f->open = true;
	if (hasty)
		rc = weir_request_start(t->p->m, &o.r, to, type, t->buffer, length, o.buffer,
					LARGEST, -1);
	else
		rc = weir_message_request(t->p->m, to, type, t->buffer, length, o.buffer, LARGEST,
					  &o.r.length, WEIR_NO_TIMEOUT);
	if (rc == -ECONNREFUSED || rc == -EHOSTUNREACH || t->p->dead) {
		settle(t, node, rc ? rc : -ENODEV);
		free(o.buffer);
		return;
	}
	f->open = false;
	f->accepted++;
	if (hasty)
		rc = weir_request_wait(&o.r, (int)rng_below(&t->rng, 2) + 1);
	if (rc == -ETIMEDOUT && hasty) {
		w->counts.late++;
		free(o.buffer);
		return;
	}
	o.r.status = rc;
	o.r.data = o.buffer;
	check_end(t, &o);
}

/* ---- the rest of the calls ---- */

static void
flush(struct sender *t, uint32_t node)
{
	bool whole = rng_chance(&t->rng, 300);
	int rc = weir_messenger_flush(t->p->m, whole ? WEIR_ALL_NODES : (int)node, patience(t));
	bool lost = false;

	for (uint32_t i = 0; i < t->p->world->nodes; i++)
		lost |= (whole || i == node) && is_dying(listener_of(t->p->world, i));
	t->p->world->counts.flushed += !rc;
	if (rc && rc != -EAGAIN && !t->p->dead && !(lost && rc == -EHOSTUNREACH))
		fail(t, node, "flush", rc);
}

static void
disconnect(struct sender *t, uint32_t node)
{
	int rc = weir_message_disconnect(t->p->m, (uint16_t)node);

	t->p->world->counts.disconnected += !rc;
	if (rc && rc != -ENOTCONN && !t->p->dead && !is_dying(listener_of(t->p->world, node)))
		fail(t, node, "disconnect", rc);
}

static void
cancel(struct sender *t)
{
	struct outstanding *o = &t->request[rng_below(&t->rng, REQUESTS)];

	if (!o->used)
		return;
	o->cancelled = true;
	weir_request_cancel(&o->r);
}

void
operate(struct sender *t)
{
	uint32_t node = rng_below(&t->rng, t->p->world->nodes), what = rng_below(&t->rng, 100);

	if (t->p->lanes && rng_chance(&t->rng, 500)) {
		t->does = "sends on a lane";
		lanes_send(t);
		return;
	}
	if (is_dying(listener_of(t->p->world, node)) && rng_chance(&t->rng, 900))
		return;
	t->does = what < 50 ? "sends" : what < 75 ? "asks" : what < 85 ? "asks and waits" : "else";
	if (what < 50)
		send_message(t, node);
	else if (what < 75 || (what < 85 && !may_wait(t)))
		ask(t, node);
	else if (what < 85)
		ask_and_wait(t, node);
	else if (what < 88)
		cancel(t);
	else if (what < 92)
		flush(t, node);
	else if (what < 93 && may_wait(t))
		disconnect(t, node);
	else if (!collect(t))
		rest(t);
}

void
drop_requests(struct sender *t)
{
	for (uint32_t i = 0; i < REQUESTS; i++) {
		struct outstanding *o = &t->request[i];

		if (!o->used)
			continue;
		if (o->flags & WEIR_REQUEST_LOAN && !o->r.status)
			weir_request_release(&o->r);
		free(o->flags & WEIR_REQUEST_GROW ? (void *)(uintptr_t)o->r.data : o->buffer);
	}
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A small program on the message model for smoke tests.
 *
 *   courier INSTANCE serve [SERVICE]                   until killed; prints what it sees
 *   courier INSTANCE note NODE THREADS COUNT SIZE      each sends COUNT; all are accounted for
 *   courier INSTANCE ask NODE THREADS COUNT SIZE       each thread makes COUNT requests
 *   courier INSTANCE large NODE BYTES                  a request and a response of BYTES
 *   courier INSTANCE block NODE                        a request whose handler waits for `wake`
 *   courier INSTANCE wake NODE                         ends the handler of `block`
 *   courier INSTANCE leave NODE                        connects, closes in order
 *   courier INSTANCE keep NODE                         asks four times a second until killed
 */
#include "program.h"

#include "weir/message.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOTE WEIR_TYPE(1, 1)
#define ECHO WEIR_TYPE(1, 2)
#define REPORT WEIR_TYPE(1, 3)
#define SLEEP WEIR_TYPE(1, 4)
#define WAKE WEIR_TYPE(1, 5)
#define PLACED WEIR_TYPE(1, 6)
#define SENDERS 64
#define PLACES 16

struct report {
	uint64_t notes, wrong;
};

static struct weir *w;
static struct weir_messenger *m;
static _Atomic uint64_t notes[SENDERS], wrong;

/* ---- serving ---- */

static void
on_note(struct weir_messenger *messenger, const struct weir_message *message, void *user)
{
	const uint32_t *v = message->data;
	uint64_t n;

	if (message->length < 8 || v[0] >= SENDERS) {
		atomic_fetch_add(&wrong, 1);
		return;
	}
	/* the messages of one thread keep their order */
	n = atomic_load_explicit(&notes[v[0]], memory_order_relaxed);
	if ((uint32_t)n != v[1])
		atomic_fetch_add(&wrong, 1);
	atomic_store_explicit(&notes[v[0]], n + 1, memory_order_relaxed);
}

static void
on_echo(struct weir_messenger *messenger, const struct weir_message *message, void *user)
{
	int rc = weir_message_respond(messenger, &message->reply, message->data, message->length);

	if (rc)
		failed("respond", rc);
}

static void
on_report(struct weir_messenger *messenger, const struct weir_message *message, void *user)
{
	struct report r = {.wrong = atomic_load(&wrong)};

	for (unsigned i = 0; i < SENDERS; i++)
		r.notes += atomic_load(&notes[i]);
	if (message->length) /* starts again at 0 */
		for (unsigned i = 0; i < SENDERS; i++)
			atomic_store(&notes[i], 0);
	weir_message_respond(messenger, &message->reply, &r, sizeof(r));
}

static atomic_bool woken; /* on_wake() sets it, on_sleep() takes it */

static void
on_sleep(struct weir_messenger *messenger, const struct weir_message *message, void *user)
{
	while (!atomic_exchange(&woken, false))
		usleep(1000);
	weir_message_respond(messenger, &message->reply, "", 1);
}

static void
on_wake(struct weir_messenger *messenger, const struct weir_message *message, void *user)
{
	atomic_store(&woken, true);
	weir_message_respond(messenger, &message->reply, "", 1);
}

/* Memory for messages of type PLACED, each lent until its message comes back in it. */
static struct {
	pthread_mutex_t lock;
	void *lent[PLACES];
} places = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *
place(struct weir_messenger *messenger, const struct weir_message *message, void *user)
{
	void *data = NULL;

	if (message->length <= WEIR_MESSAGE_WHOLE)
		say("wrong: asked for a place for %zu bytes", message->length);
	pthread_mutex_lock(&places.lock);
	for (unsigned i = 0; i < PLACES && !data; i++)
		if (!places.lent[i])
			data = places.lent[i] = malloc(message->length);
	pthread_mutex_unlock(&places.lock);
	if (!data)
		say("wrong: all places are lent");
	return data;
}

/* Whole or broken: each place comes back once. */
static void
on_placed(struct weir_messenger *messenger, const struct weir_message *message, void *user)
{
	bool known = message->length <= WEIR_MESSAGE_WHOLE && !message->flags;

	pthread_mutex_lock(&places.lock);
	for (unsigned i = 0; i < PLACES && !known; i++) {
		known = places.lent[i] && places.lent[i] == message->data;
		if (known) {
			free(places.lent[i]);
			places.lent[i] = NULL;
		}
	}
	pthread_mutex_unlock(&places.lock);
	if (!known)
		say("wrong: a message of %zu bytes where no place was", message->length);
}

static void
on_link(uint16_t node, enum weir_link_event event, int status, void *user)
{
	say("%s %u %d", event == WEIR_LINK_CREATED ? "created" : "lost", node, status);
}

static int
serve(void)
{
	static const struct {
		uint16_t type;
		void (*f)(struct weir_messenger *, const struct weir_message *, void *);
		void *(*place)(struct weir_messenger *, const struct weir_message *, void *);
	} handlers[] = {{NOTE, on_note},   {ECHO, on_echo}, {REPORT, on_report},
			{SLEEP, on_sleep}, {WAKE, on_wake}, {PLACED, on_placed, place}};

	for (unsigned i = 0; i < sizeof(handlers) / sizeof(handlers[0]); i++) {
		struct weir_handler h = {
		    .size = sizeof(h), .handle = handlers[i].f, .place = handlers[i].place};
		int rc = weir_message_register(m, handlers[i].type, &h);

		if (rc)
			return failed("register", rc);
	}
	say("ready");
	for (;;)
		pause();
}

/* ---- sending ---- */

struct job {
	pthread_t thread;
	uint16_t node;
	uint32_t index;
	uint64_t count;
	size_t size;
	double seconds;
	int rc;
};

static void *
note(void *arg)
{
	struct job *j = arg;
	uint32_t *buf = calloc(1, j->size + 8);
	double start = now_s();

	buf[0] = j->index;
	for (uint64_t i = 0; i < j->count && !j->rc; i++) {
		buf[1] = (uint32_t)i;
		j->rc = weir_message_send(m, j->node, NOTE, buf, j->size, PATIENCE_MS);
	}
	if (j->rc)
		failed("send", j->rc);
	j->seconds = now_s() - start;
	free(buf);
	return NULL;
}

static void *
ask(void *arg)
{
	struct job *j = arg;
	uint8_t *out = calloc(1, j->size + 8), *in = malloc(j->size + 8);
	double start = now_s();
	size_t n = 0;

	for (uint64_t i = 0; i < j->count && !j->rc; i++) {
		memcpy(out, &i, sizeof(i));
		j->rc = weir_message_request(m, j->node, ECHO, out, j->size, in, j->size, &n,
					     PATIENCE_MS);
		if (!j->rc && (n != j->size || memcmp(in, out, n)))
			j->rc = -EBADMSG;
	}
	if (j->rc)
		failed("request", j->rc);
	j->seconds = now_s() - start;
	free(in);
	free(out);
	return NULL;
}

static int
run_threads(void *(*f)(void *), uint16_t node, unsigned threads, uint64_t count, size_t size)
{
	struct job *jobs = calloc(threads, sizeof(*jobs));
	double slowest = 0, fastest = 1e9, start = now_s();
	struct report r = {0};
	size_t n;
	int rc = 0;

	if (threads > SENDERS || size < 8)
		return failed("arguments", -EINVAL);
	if (f == note)
		rc = weir_message_request(m, node, REPORT, "x", 1, &r, sizeof(r), &n, PATIENCE_MS);
	for (unsigned i = 0; i < threads; i++) {
		jobs[i] = (struct job){.node = node, .index = i, .count = count, .size = size};
		pthread_create(&jobs[i].thread, NULL, f, &jobs[i]);
	}
	for (unsigned i = 0; i < threads; i++) {
		pthread_join(jobs[i].thread, NULL);
		rc = rc ? rc : jobs[i].rc;
		slowest = jobs[i].seconds > slowest ? jobs[i].seconds : slowest;
		fastest = jobs[i].seconds < fastest ? jobs[i].seconds : fastest;
	}
	if (f == note)
		for (r.notes = 0;
		     !rc && r.notes < threads * count && now_s() - start < PATIENCE_MS / 1000;)
			rc = weir_message_request(m, node, REPORT, NULL, 0, &r, sizeof(r), &n,
						  PATIENCE_MS);
	free(jobs);
	if (rc)
		return failed("threads", rc);
	if (f == note && (r.notes != threads * count || r.wrong)) {
		say("%llu notes, %llu wrong", (unsigned long long)r.notes,
		    (unsigned long long)r.wrong);
		return 1;
	}
	say("end 0, %.0f/s, fastest thread %.3f s, slowest %.3f s",
	    (double)threads * (double)count / (now_s() - start), fastest, slowest);
	return 0;
}

static int
large(uint16_t node, size_t bytes)
{
	uint8_t *out = malloc(bytes), *in = malloc(bytes);
	double start = now_s();
	size_t n = 0;
	int rc;

	for (size_t i = 0; i < bytes; i++)
		out[i] = (uint8_t)(i * 31 + i / 4096);
	rc = weir_message_request(m, node, ECHO, out, bytes, in, bytes, &n, PATIENCE_MS);
	if (rc)
		return failed("request", rc);
	if (n != bytes || memcmp(in, out, n))
		return failed("contents", -EBADMSG);
	say("end 0, %.0f MB/s", (double)bytes * 2e-6 / (now_s() - start));
	free(in);
	free(out);
	return 0;
}

static int
keep(uint16_t node)
{
	char in[8];
	size_t n;

	for (;;) {
		int rc = weir_message_request(m, node, ECHO, "ping", 4, in, 8, &n, PATIENCE_MS);

		say("asked %d", rc);
		if (rc == -ENODEV)
			return 1;
		usleep(250000);
	}
}

static int
run(int argc, char **argv)
{
	const char *what = argv[2];
	uint16_t node = (uint16_t)number_at(argc, argv, 3);
	unsigned long v[3];
	char answer[4];
	size_t n;
	int rc;

	for (int i = 0; i < 3; i++)
		v[i] = number_at(argc, argv, 4 + i);
	if (!strcmp(what, "serve"))
		return serve();
	if (!strcmp(what, "note"))
		return run_threads(note, node, (unsigned)v[0], v[1], v[2]);
	if (!strcmp(what, "ask"))
		return run_threads(ask, node, (unsigned)v[0], v[1], v[2]);
	if (!strcmp(what, "large"))
		return large(node, v[0]);
	if (!strcmp(what, "keep"))
		return keep(node);
	if (!strcmp(what, "block")) {
		rc = weir_message_request(m, node, SLEEP, "x", 1, answer, 4, &n, WEIR_NO_TIMEOUT);
	} else if (!strcmp(what, "wake")) {
		rc = weir_message_request(m, node, WAKE, "x", 1, answer, 4, &n, PATIENCE_MS);
	} else {
		rc = weir_message_connect(m, node, PATIENCE_MS);
		if (!rc)
			rc = weir_message_disconnect(m, node);
	}
	if (rc)
		return failed(what, rc);
	say("end 0");
	return 0;
}

int
main(int argc, char **argv)
{
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS_INIT;
	int rc;

	if (argc < 3)
		return 2;
	if (attach_to(argv[1], "courier", 0, &w))
		return 1;
	o.link = on_link;
	o.service = "courier";
	if (strcmp(argv[2], "serve"))
		o.flags = WEIR_MESSENGER_CLIENT;
	else if (argc > 3)
		o.service = argv[3];
	rc = weir_messenger_open(w, &o, &m);
	if (rc)
		return failed("messenger", rc);
	rc = run(argc, argv);
	weir_messenger_close(m);
	weir_detach(w);
	return rc;
}

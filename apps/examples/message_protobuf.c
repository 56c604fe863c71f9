/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Structured messages: protobuf-c packs directly into the message to be sent, and unpacks the
 * message where it arrived, into memory of the handler. Nothing is allocated.
 *
 *   message_protobuf             prints the readings that arrive
 *   message_protobuf NODE COUNT  sends COUNT readings and prints the rate
 */
#include "reading.pb-c.h"
#include "stop.h"

#include <weir/message.h>
#include <weir/stream.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define READING WEIR_TYPE(2, 1)
#define REPORT WEIR_TYPE(2, 2)
#define VALUES 8

/* ---- memory for one message at a time ---- */

struct stack {
	size_t used;
	_Alignas(16) uint8_t memory[4096];
};

static void *
stack_alloc(void *data, size_t size)
{
	struct stack *s = data;
	size_t at = (s->used + 15) / 16 * 16;

	if (size > sizeof(s->memory) || at > sizeof(s->memory) - size)
		return NULL;
	s->used = at + size;
	return s->memory + at;
}

static void
stack_free(void *data, void *pointer)
{
	(void)data, (void)pointer; /* all at once, when the handler returns */
}

/* ---- receiving ---- */

static uint64_t readings, refused;
static double sum;

static void
on_reading(struct weir_messenger *m, const struct weir_message *message, void *user)
{
	struct stack stack = {0};
	ProtobufCAllocator allocator = {stack_alloc, stack_free, &stack};
	Example__Reading *r = example__reading__unpack(&allocator, message->length, message->data);

	(void)m, (void)user;
	if (!r) {
		refused++;
		return;
	}
	readings++;
	for (size_t i = 0; i < r->n_value; i++)
		sum += r->value[i];
}

/* Exclusive, as on_reading: the counters belong to whichever of them runs. */
static void
on_report(struct weir_messenger *m, const struct weir_message *message, void *user)
{
	printf("%llu readings, %llu refused, sum %g\n", (unsigned long long)readings,
	       (unsigned long long)refused, sum);
	fflush(stdout);
	weir_message_respond(m, &message->reply, &readings, sizeof(readings));
}

static int
serve(struct weir *w, struct weir_messenger *m)
{
	struct weir_handler reading = WEIR_HANDLER_INIT, report = WEIR_HANDLER_INIT;
	struct weir_event e;
	int rc;

	reading.handle = on_reading;
	report.handle = on_report;
	reading.flags = report.flags = WEIR_HANDLER_EXCLUSIVE;
	rc = weir_message_register(m, READING, &reading);
	if (!rc)
		rc = weir_message_register(m, REPORT, &report);
	stop_on_signals(w);
	/* handlers run in threads of their own */
	while (!rc && !stop)
		rc = weir_wait(w, &e, 1, -1) < 0;
	return stop ? 0 : rc;
}

/* ---- sending ---- */

static double
now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static int
send_all(struct weir_messenger *m, uint16_t node, uint64_t count)
{
	double value[VALUES] = {1, 2, 3, 4, 5, 6, 7, 8}, start = now();
	Example__Reading r = EXAMPLE__READING__INIT;
	struct weir_draft draft;
	uint64_t arrived = 0;
	size_t length, n;
	int rc = 0;

	r.sensor = (char[]){"boiler"};
	r.value = value;
	r.n_value = VALUES;
	for (uint64_t i = 0; i < count && !rc; i++) {
		r.time_ns = i;
		length = example__reading__get_packed_size(&r);
		rc = weir_message_reserve(m, node, READING, length, 0, 1000, &draft);
		if (rc)
			break;
		example__reading__pack(&r, draft.data);
		rc = weir_message_commit(m, &draft, length, 1000);
		if (rc)
			weir_message_abandon(m, &draft);
	}
	/* handled after all of them: one sender's messages come in order */
	if (!rc)
		rc = weir_message_request(m, node, REPORT, NULL, 0, &arrived, sizeof(arrived), &n,
					  5000);
	if (!rc)
		printf("%llu readings arrived, %.0f/s\n", (unsigned long long)arrived,
		       (double)count / (now() - start));
	return rc;
}

int
main(int argc, char **argv)
{
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS_INIT;
	struct weir_messenger *m = NULL;
	struct weir *w = NULL;
	int rc;

	o.service = "readings";
	if (argc > 2)
		o.flags = WEIR_MESSENGER_CLIENT;
	rc = weir_attach(NULL, &w);
	if (!rc)
		rc = weir_messenger_open(w, &o, &m);
	if (!rc && argc > 2)
		rc = send_all(m, (uint16_t)strtoul(argv[1], NULL, 0), strtoull(argv[2], NULL, 0));
	else if (!rc)
		rc = serve(w, m);
	if (rc)
		fprintf(stderr, "message_protobuf: %s\n", weir_reason());
	weir_messenger_close(m);
	weir_detach(w);
	return rc ? 1 : 0;
}

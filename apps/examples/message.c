/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages and requests: message (answers), message NODE [TEXT] (asks). */
#include "stop.h"

#include <weir/message.h>
#include <weir/stream.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOTE WEIR_TYPE(1, 1)
#define UPPER WEIR_TYPE(1, 2)

static void
on_note(struct weir_messenger *m, const struct weir_message *message, void *user)
{
	(void)m, (void)user;
	printf("node %u notes: %.*s\n", message->node, (int)message->length,
	       (const char *)message->data);
}

static void
on_upper(struct weir_messenger *m, const struct weir_message *message, void *user)
{
	const char *in = message->data;
	char out[256];
	size_t n = message->length < sizeof(out) ? message->length : sizeof(out);

	for (size_t i = 0; i < n; i++)
		out[i] = in[i] >= 'a' && in[i] <= 'z' ? (char)(in[i] - 'a' + 'A') : in[i];
	if (weir_message_respond(m, &message->reply, out, n))
		fprintf(stderr, "message: %s\n", weir_reason());
}

static int
serve(struct weir *w, struct weir_messenger *m)
{
	struct weir_handler note = WEIR_HANDLER_INIT, upper = WEIR_HANDLER_INIT;
	struct weir_event e;
	int rc;

	note.handle = on_note;
	upper.handle = on_upper;
	rc = weir_message_register(m, NOTE, &note);
	if (!rc)
		rc = weir_message_register(m, UPPER, &upper);
	stop_on_signals(w);
	/* handlers run in threads of their own */
	while (!rc && !stop)
		rc = weir_wait(w, &e, 1, -1) < 0;
	return stop ? 0 : rc;
}

static int
ask(struct weir_messenger *m, uint16_t node, const char *text)
{
	char answer[256];
	size_t n = 0;
	/* the connection is made by the first message */
	int rc = weir_message_send(m, node, NOTE, text, strlen(text), 1000);

	if (!rc)
		rc = weir_message_request(m, node, UPPER, text, strlen(text), answer,
					  sizeof(answer), &n, 1000);
	if (!rc)
		printf("%.*s\n", (int)n, answer);
	return rc;
}

int
main(int argc, char **argv)
{
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS_INIT;
	struct weir_messenger *m = NULL;
	struct weir *w = NULL;
	int rc;

	o.service = "example";
	if (argc > 1)
		o.flags = WEIR_MESSENGER_CLIENT;
	rc = weir_attach(NULL, &w);
	if (!rc)
		rc = weir_messenger_open(w, &o, &m);
	if (!rc && argc > 1)
		rc = ask(m, (uint16_t)strtoul(argv[1], NULL, 0), argc > 2 ? argv[2] : "hello");
	else if (!rc)
		rc = serve(w, m);
	if (rc)
		fprintf(stderr, "message: %s\n", weir_reason());
	weir_messenger_close(m);
	weir_detach(w);
	return rc ? 1 : 0;
}

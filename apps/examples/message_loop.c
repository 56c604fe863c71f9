/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A messenger without handler threads, driven by this program's own loop: message_loop (answers),
 * message_loop NODE TEXT... (asks for all texts at once, and prints answers as they come).
 */
#include <weir/message.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define REVERSE WEIR_TYPE(1, 3)
#define TEXTS 16

/* The answer is composed where it leaves from. */
static void
on_reverse(struct weir_messenger *m, const struct weir_message *message, void *user)
{
	const char *in = message->data;
	struct weir_draft d;
	int rc;

	(void)user;
	rc = weir_response_reserve(m, &message->reply, message->length, 0, &d);
	if (rc) {
		weir_message_refuse(m, &message->reply, -rc);
		return;
	}
	for (size_t i = 0; i < message->length; i++)
		((char *)d.data)[i] = in[message->length - 1 - i];
	if (weir_message_commit(m, &d, message->length, 0)) {
		fprintf(stderr, "message_loop: %s\n", weir_reason());
		weir_message_abandon(m, &d);
	}
}

static void
on_answer(struct weir_request *r, void *user)
{
	int *left = user;

	if (r->status)
		fprintf(stderr, "message_loop: %s\n", strerror(-r->status));
	else
		printf("%.*s\n", (int)r->length, (const char *)r->data);
	if (!r->status)
		weir_request_release(r);
	--*left;
}

static int
ask(struct weir_messenger *m, uint16_t node, char **texts, int n)
{
	struct weir_request_options o = WEIR_REQUEST_OPTIONS_INIT;
	static struct weir_request r[TEXTS];
	int left = 0, rc = 0;

	o.flags = WEIR_REQUEST_LOAN; /* an answer has any length */
	o.done = on_answer;
	o.user = &left;
	for (int i = 0; i < n && i < TEXTS && !rc; i++) {
		struct iovec part = {texts[i], strlen(texts[i])};

		o.iov = &part;
		o.parts = 1;
		rc = weir_request_start_with(m, &r[i], node, REVERSE, &o, 1000);
		left += !rc;
	}
	while (!rc && left) {
		rc = weir_messenger_progress(m, 0, 1000);
		rc = rc > 0 ? 0 : rc;
	}
	return rc;
}

/* Sleeps on one descriptor; others would be in the same set. */
static int
serve(struct weir_messenger *m)
{
	struct weir_handler reverse = WEIR_HANDLER_INIT;
	struct epoll_event e = {.events = EPOLLIN};
	int set = epoll_create1(EPOLL_CLOEXEC), rc;

	reverse.handle = on_reverse;
	rc = weir_message_register(m, REVERSE, &reverse);
	if (!rc && (set < 0 || epoll_ctl(set, EPOLL_CTL_ADD, weir_messenger_fd(m), &e)))
		rc = -1;
	while (rc >= 0) {
		if (!weir_messenger_arm(m))
			epoll_wait(set, &e, 1, -1);
		rc = weir_messenger_progress(m, 0, 0);
	}
	close(set);
	return rc;
}

int
main(int argc, char **argv)
{
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS_INIT;
	struct weir_messenger *m = NULL;
	struct weir *w = NULL;
	int rc;

	o.service = "example-loop";
	o.handler_threads = 0;
	if (argc > 1)
		o.flags = WEIR_MESSENGER_CLIENT;
	rc = weir_attach(NULL, &w);
	if (!rc)
		rc = weir_messenger_open(w, &o, &m);
	if (!rc)
		rc = argc > 1 ? ask(m, (uint16_t)strtoul(argv[1], NULL, 0), argv + 2, argc - 2)
			      : serve(m);
	if (rc)
		fprintf(stderr, "message_loop: %s\n", weir_reason());
	weir_messenger_close(m);
	weir_detach(w);
	return rc ? 1 : 0;
}

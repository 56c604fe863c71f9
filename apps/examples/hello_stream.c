/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Both ends of a connection in one program: hello_stream [ADDRESS]. Needs a data plane on this host
 * and nothing else. docs/stream.md goes through it.
 */
#include <weir/stream.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define SERVICE "hello"

/* Handles events until the asking end has its answer. -ETIMEDOUT: nothing happened for 5 s. */
static int
converse(struct weir *w, struct weir_listener *listener, struct weir_conn *asking)
{
	struct weir_conn *serving = NULL;
	struct weir_loan message;
	struct weir_event e;
	bool answered = false;
	char answer[64];
	size_t length;
	int rc = 0;

	while (!rc && !answered && weir_wait(w, &e, 1, 5000) == 1) {
		if (e.type == WEIR_EVENT_ACCEPT) {
			rc = weir_accept(listener, 0, &serving);
		} else if (e.type == WEIR_EVENT_OPENED) {
			rc = weir_send(asking, "hello", 5, 1000);
		} else if (e.type == WEIR_EVENT_READABLE && e.conn == serving) {
			/* takes what is there and sends it back */
			while ((rc = weir_recv_loan(serving, &message, 0)) == 0) {
				printf("server: %zu bytes: %.*s\n", message.length,
				       (int)message.length, (const char *)message.data);
				rc = weir_send(serving, message.data, message.length, 1000);
				weir_release(w, &message);
				if (rc)
					break;
			}
			if (rc == -EAGAIN) /* nothing more for now */
				rc = 0;
		} else if (e.type == WEIR_EVENT_READABLE) {
			rc = weir_recv(asking, answer, sizeof(answer), &length, 0);
			answered = !rc;
			if (answered)
				printf("client: %zu bytes back: %.*s\n", length, (int)length,
				       answer);
		} else if (e.type == WEIR_EVENT_CLOSED) {
			rc = e.status ? e.status : -ESHUTDOWN;
		}
	}
	weir_close(serving);
	return rc || answered ? rc : -ETIMEDOUT;
}

int
main(int argc, char **argv)
{
	char text[WEIR_ADDRESS_TEXT_MAX];
	struct weir_listener *listener;
	struct weir_address address;
	struct weir_conn *asking;
	struct weir *w;
	int rc;

	snprintf(text, sizeof(text), "%s:%s", argc > 1 ? argv[1] : "127.0.0.1", SERVICE);
	if (weir_address_parse(text, &address)) {
		fprintf(stderr, "hello_stream: invalid address '%s'; try node:1 or 10.0.0.1\n",
			text);
		return 2;
	}
	if (weir_attach(NULL, &w)) {
		fprintf(stderr, "hello_stream: %s\n", weir_reason());
		return 1;
	}
	rc = weir_listen(w, SERVICE, 0, &listener);
	if (!rc) {
		rc = weir_connect(w, &address, 0, &asking);
		if (!rc) {
			rc = converse(w, listener, asking);
			weir_close(asking);
		}
		weir_listener_close(listener);
	}
	if (rc)
		fprintf(stderr, "hello_stream: %s: %s\n", strerror(-rc), weir_reason());
	weir_detach(w);
	return rc ? 1 : 0;
}

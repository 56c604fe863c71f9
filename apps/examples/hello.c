/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends a message and prints the answer: hello ADDRESS [TEXT]. The other end: echo. */
#include <weir/stream.h>

#include <stdio.h>
#include <string.h>

int
main(int argc, char **argv)
{
	const char *text = argc > 2 ? argv[2] : "hello";
	struct weir_conn *c;
	struct weir *w;
	char answer[1024];
	size_t length;
	int rc;

	if (argc < 2) {
		fprintf(stderr, "hello: no address; try hello node:2:echo\n");
		return 2;
	}
	rc = weir_attach(NULL, &w);
	if (rc) {
		fprintf(stderr, "hello: %s\n", weir_reason());
		return 1;
	}
	rc = weir_connect_to(w, argv[1], NULL, 1000, &c);
	if (!rc) {
		rc = weir_send(c, text, strlen(text), 1000);
		if (!rc)
			rc = weir_recv(c, answer, sizeof(answer), &length, 1000);
		if (!rc)
			printf("%.*s\n", (int)length, answer);
		weir_close(c);
	}
	if (rc)
		fprintf(stderr, "hello: %s\n", weir_reason());
	weir_detach(w);
	return rc ? 1 : 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A user of memory that another node lends.
 *
 *   borrower INSTANCE NODE BYTES KEYFILE   allocates, writes and reads it, its key in KEYFILE; says
 *                                          "has BYTES"; then reads until that fails, which it says
 *   borrower INSTANCE NODE BYTES -         the same, gives it back and ends
 *   borrower INSTANCE NODE BYTES flood     asks again and again and reads no answer; says "ended"
 *                                          when weir-lend ends the connection
 */
#include "program.h"

#include "weir/remote.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int
use(struct weir_remote *r, uint64_t bytes)
{
	const uint64_t word = 0x5a5a5a5a5a5a5a5a;
	uint64_t is[3] = {1, 1, 1};
	int rc = weir_remote_get(r, 0, &is[0], sizeof(word), 0);

	if (!rc)
		rc = weir_remote_put(r, bytes - sizeof(word), &word, sizeof(word), 0);
	if (!rc)
		rc = weir_remote_get(r, bytes - sizeof(word), &is[1], sizeof(word), 0);
	if (!rc)
		rc = weir_remote_fetch_op(r, 0, &word, &is[2], WEIR_T_UINT64, WEIR_ACC_SUM, 0);
	if (!rc)
		rc = weir_remote_flush(r, PATIENCE_MS);
	if (rc)
		return failed("use", rc);
	if (is[0] || is[1] != word || is[2]) {
		say("wrong: memory that is lent is not zeroed, or loses words");
		return 1;
	}
	return 0;
}

static int
flood(struct weir *w, uint16_t node)
{
	static const uint8_t request[24];
	struct weir_conn *c;
	char to[64];
	int rc;

	snprintf(to, sizeof(to), "node:%u:weir.lend", node);
	rc = dial(w, to, &c);
	while (!rc || rc == -EAGAIN)
		rc = weir_send(c, request, sizeof(request), 100);
	say("ended");
	return rc == -ECONNRESET || rc == -ESHUTDOWN ? 0 : failed("flood", rc);
}

int
main(int argc, char **argv)
{
	struct weir_where where = {.numa_node = -1};
	struct weir_remote *r;
	struct weir_key key;
	struct weir *w;
	uint64_t bytes, word;
	int rc;

	if (argc != 5)
		return 2;
	where.node = (uint16_t)number_at(argc, argv, 2);
	bytes = number_at(argc, argv, 3);
	if (attach_to(argv[1], "borrower", 0, &w))
		return 1;
	if (!strcmp(argv[4], "flood"))
		return flood(w, where.node);
	rc = weir_remote_alloc(w, &where, bytes, PATIENCE_MS, &r, &key);
	if (rc)
		return failed("alloc", rc);
	if (use(r, bytes))
		return 1;
	if (!strcmp(argv[4], "-")) {
		rc = weir_remote_free(r);
		weir_detach(w);
		return rc ? failed("free", rc) : 0;
	}
	if (write_key(argv[4], &key))
		return 1;
	say("has %llu", (unsigned long long)bytes);
	do {
		usleep(20000);
		rc = weir_remote_get(r, 8, &word, sizeof(word), 0);
		if (!rc)
			rc = weir_remote_flush(r, PATIENCE_MS);
	} while (!rc);
	return failed("use", rc);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weir-lend: memory of this node for programs of other nodes. Each connection of its service asks
 * once, and gets a region, exported. Its end, whatever the reason, takes the region back.
 */
#include "lend.h"

#include "ipc/lend.h"
#include "weir/stream.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 4096u
#define LARGE_PAGE (2u << 20) /* the largest that a region gets without being asked for */
#define EVENTS 16u

/* Memory of a connection. */
struct loan {
	bool asked;
	struct weir_region *region; /* NULL: nothing */
	struct weir_export *x;
	uint64_t bytes; /* of the region, which are pinned */
};

struct lender {
	struct weir *w;
	struct weir_listener *listener;
	uint64_t most, lent; /* bytes */
};

static atomic_bool stopped;
static struct weir *session; /* that a signal wakes */

static void
on_stop(int signal)
{
	(void)signal;
	stopped = true;
	if (session)
		weir_wake(session);
}

static int
failed(const char *what)
{
	fprintf(stderr, "weir-lend: %s: %s\n", what, weir_reason());
	return 1;
}

/* 0, or -errno with the reason. */
static int
lend(struct lender *l, const struct weir_lend_request *r, struct loan *loan,
     struct weir_lend_answer *answer)
{
	struct weir_alloc_options o = {.numa_node = r->numa_node};
	uint64_t left = l->most - l->lent;
	struct weir_region_info info;
	struct weir_region *region;
	int rc;

	if (r->magic != WEIR_LEND_MAGIC || r->version != WEIR_LEND_VERSION || r->reserved ||
	    !r->bytes) {
		snprintf(answer->reason, sizeof(answer->reason),
			 "not a request of this release; install one release on both nodes");
		return -EPROTO;
	}
	if (r->bytes > left || (r->bytes + PAGE - 1) / PAGE > left / PAGE) {
		snprintf(answer->reason, sizeof(answer->reason),
			 "%llu of %llu bytes are lent; ask for less, or raise --bytes of weir-lend",
			 (unsigned long long)l->lent, (unsigned long long)l->most);
		return -EDQUOT;
	}
	/* the quota bounds what is pinned, which large pages round up */
	if (r->bytes > left / LARGE_PAGE * LARGE_PAGE)
		o.flags = WEIR_ALLOC_ORDINARY;
	rc = weir_region_alloc(l->w, r->bytes, &o, &region);
	if (!rc) {
		weir_region_info(region, &info);
		rc = weir_export(region, 0, info.bytes, WEIR_LEND_RIGHTS, &loan->x, &answer->key);
		if (rc)
			weir_region_free(region);
	}
	if (rc) {
		snprintf(answer->reason, sizeof(answer->reason), "%s", weir_reason());
		return rc;
	}
	loan->region = region;
	loan->bytes = info.bytes;
	l->lent += info.bytes;
	return 0;
}

/*
 * Answers the one request of a connection. False: the connection ends, as it asks again, or takes
 * no answer: nobody waits for it.
 */
static bool
serve(struct lender *l, struct weir_conn *c, struct loan *loan)
{
	struct weir_lend_answer answer = {.magic = WEIR_LEND_MAGIC};
	struct weir_lend_request request = {0};
	size_t length;
	int rc = weir_recv(c, &request, sizeof(request), &length, 0);

	if (rc && rc != -EMSGSIZE) /* nothing yet, or CLOSED follows */
		return true;
	if (loan->asked)
		return false;
	loan->asked = true;
	if (rc || length != sizeof(request)) /* no request: it is refused */
		request.magic = 0;
	answer.status = lend(l, &request, loan, &answer);
	if (weir_send(c, &answer, sizeof(answer), 0))
		return false;
	/* READABLE comes again only behind -EAGAIN */
	return weir_recv(c, &request, sizeof(request), &length, 0) == -EAGAIN;
}

/* The connection of event i ends, and so do the later ones of these n events that are about it. */
static void
end_loan(struct lender *l, struct weir_event *events, int i, int n)
{
	struct weir_conn *c = events[i].conn;
	struct loan *loan = events[i].user;

	if (loan && loan->region) {
		weir_region_free(loan->region); /* revokes the export, whatever peers are doing */
		weir_revoke(loan->x);
		l->lent -= loan->bytes;
	}
	free(loan);
	weir_close(c);
	for (int k = i + 1; k < n; k++)
		if (events[k].conn == c)
			events[k].type = 0;
}

/* Until a signal, 0, or the session ends, 1. */
static int
run(struct lender *l)
{
	struct weir_event events[EVENTS];
	struct weir_conn *c;
	struct loan *loan;

	while (!stopped) {
		int n = weir_wait(l->w, events, EVENTS, -1);

		if (n < 0 && n != -EINTR)
			return failed("the session has ended");
		for (int i = 0; i < n; i++) {
			struct weir_event *e = &events[i];

			while (e->type == WEIR_EVENT_ACCEPT && !weir_accept(l->listener, 0, &c)) {
				loan = calloc(1, sizeof(*loan));
				if (loan)
					weir_conn_set_user(c, loan);
				else
					weir_close(c);
			}
			if (e->type == WEIR_EVENT_CLOSED ||
			    (e->type == WEIR_EVENT_READABLE && !serve(l, e->conn, e->user)))
				end_loan(l, events, i, n);
		}
	}
	return 0;
}

int
main(int argc, char **argv)
{
	struct weir_listen_options listen = WEIR_LISTEN_OPTIONS_INIT;
	struct sigaction stop = {.sa_handler = on_stop};
	struct weir_options attach = WEIR_OPTIONS_INIT;
	struct lend_options o;
	struct lender l = {0};
	int words = argc - 1, rc;

	rc = option_main(&lend_option_table, &o, "weir-lend", WEIR_VERSION, &words, argv + 1);
	if (rc >= 0)
		return rc;
	if (!o.bytes) {
		fprintf(stderr, "weir-lend: no --bytes; see --help\n");
		return 2;
	}
	l.most = o.bytes;
	attach.instance = o.instance;
	attach.name = "weir-lend";
	listen.flags = WEIR_LISTEN_PUBLIC;
	sigaction(SIGINT, &stop, NULL);
	sigaction(SIGTERM, &stop, NULL);
	if (weir_attach(&attach, &l.w))
		return failed("no session");
	session = l.w;
	if (weir_listen_with(l.w, WEIR_LEND_SERVICE, &listen, &l.listener)) {
		rc = failed("cannot offer " WEIR_LEND_SERVICE);
	} else {
		printf("ready: up to %llu bytes\n", (unsigned long long)l.most);
		fflush(stdout);
		rc = run(&l);
	}
	session = NULL;
	weir_detach(l.w);
	return rc;
}

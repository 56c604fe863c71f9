/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that forks and whose threads start and end, against an echo service; a counting service
 * accounts for the messages that threads leave unsent.
 *
 *   family INSTANCE count SERVICE    counts messages in order, and answers with their number
 *   family INSTANCE fork ADDRESS N     N children, in the middle of a conversation
 *   family INSTANCE orphan ADDRESS     forks a child that lives on, and dies
 *   family INSTANCE churn ADDRESS N    N threads, some at a time; some leave with messages unsent,
 *                                      to the service "count" of that node
 */
#include "program.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define AT_A_TIME 8u
#define UNSENT 400u /* messages that a thread leaves behind: more than a first window holds */

extern char **environ;

static struct weir *w;
static struct weir_options options = {.size = sizeof(options), .name = "family"};
static struct weir_address address, counts; /* counts: the same node's service "count" */

/* Echoes on a connection of its own; sizes for ring slots, for blocks, and beyond. */
static int
talk(struct weir *on, unsigned rounds, uint64_t seed)
{
	static const size_t sizes[] = {8, 64, 900, 3000, 20000};
	uint64_t out[2500], in[2500];
	struct weir_conn *c;
	size_t length;
	int r = weir_connect(on, &address, PATIENCE_MS, &c);

	for (unsigned i = 0; !r && i < rounds; i++) {
		size_t size = sizes[i % 5];

		for (size_t k = 0; k < size / 8 + 1 && k < 2500; k++)
			out[k] = seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		r = weir_send(c, out, size, PATIENCE_MS);
		if (!r)
			r = weir_recv(c, in, sizeof(in), &length, PATIENCE_MS);
		if (!r && (length != size || memcmp(in, out, size)))
			r = -EBADMSG;
	}
	if (r)
		return r;
	weir_close(c);
	return 0;
}

/* ---- fork ---- */

static atomic_bool over;
static atomic_ulong rounds_done;

static void *
converse(void *arg)
{
	int r = 0;

	while (!r && !atomic_load(&over)) {
		r = talk(w, 100, (uintptr_t)arg + atomic_load(&rounds_done));
		atomic_fetch_add(&rounds_done, 100);
	}
	return (void *)(intptr_t)r;
}

/* The child can use nothing of the parent's. */
static bool
has_nothing(struct weir_conn *c)
{
	struct weir_conn *other;
	struct weir_event e;
	char buf[8];
	size_t n;

	return weir_send(c, "x", 1, 0) == -ENOTCONN &&
	       weir_recv(c, buf, sizeof(buf), &n, -1) == -ENOTCONN &&
	       weir_poll(w, &e, 1) == -ENOTCONN && weir_conn_mtu(c) == -ENOTCONN &&
	       weir_connect(w, &address, 1000, &other) == -ENOTCONN;
}

static int
child(struct weir_conn *c, unsigned kind)
{
	struct weir *own;
	pid_t grandchild;
	int status;

	if (!has_nothing(c))
		return 3;
	if (kind == 0)
		return 0;
	if (kind == 1) {
		weir_close(c);
		weir_detach(w); /* it may: nothing happens to the parent */
	}
	if (weir_attach(&options, &own) || talk(own, 20, kind))
		return failed("child", -errno);
	if (kind == 2) {
		grandchild = fork();
		if (!grandchild)
			_exit(weir_poll(own, NULL, 0) == -ENOTCONN ? 0 : 5);
		if (waitpid(grandchild, &status, 0) != grandchild || status || talk(own, 5, 9))
			return 6;
	}
	weir_detach(own);
	return 0;
}

/* A child that executes another program at once. */
static pid_t
spawn(bool by_vfork)
{
	char *const argv[] = {(char *)"true", NULL};
	pid_t pid;

	if (!by_vfork)
		return posix_spawnp(&pid, "true", NULL, NULL, argv, environ) ? -1 : pid;
	pid = vfork();
	if (!pid) {
		execvp("true", argv);
		_exit(127);
	}
	return pid;
}

static int
fork_children(unsigned n)
{
	unsigned long before;
	pthread_t thread[2];
	struct weir_conn *c;
	int status, r = weir_connect(w, &address, PATIENCE_MS, &c);
	void *result;

	if (r)
		return failed("connect", r);
	for (uintptr_t i = 0; i < 2; i++)
		if (pthread_create(&thread[i], NULL, converse, (void *)(i * 1000000)))
			return failed("thread", -errno);
	for (unsigned i = 0; i < n && !r; i++) {
		pid_t pid = i % 6 < 4 ? fork() : spawn(i % 6 == 5);

		if (!pid) {
			alarm(120); /* ends a child that waits for a lock of a dead thread */
			r = child(c, i % 6);
			if (i % 2)
				exit(r);
			fflush(stdout);
			_exit(r);
		}
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
			r = failed("a child failed", -ECHILD);
	}
	before = atomic_load(&rounds_done); /* the parent gets on after all of them */
	for (unsigned i = 0; !r && atomic_load(&rounds_done) < before + 400; i++) {
		usleep(1000);
		if (i == PATIENCE_MS)
			r = failed("the parent stands still", -ETIMEDOUT);
	}
	atomic_store(&over, true);
	for (unsigned i = 0; i < 2; i++) {
		pthread_join(thread[i], &result);
		if (result)
			r = failed("the parent", (int)(intptr_t)result);
	}
	r = r ? r : talk(w, 100, 77) ? failed("afterwards", -EIO) : 0;
	weir_close(c);
	return r;
}

/* Its child has copies of all its files, which must not count as life of the parent. */
static int
orphan(void)
{
	struct weir_conn *c;
	int r = weir_connect(w, &address, PATIENCE_MS, &c);
	pid_t pid;

	if (r)
		return failed("connect", r);
	pid = fork();
	if (!pid) {
		for (int fd = 0; fd < 3; fd++)
			close(fd);
		for (;;)
			pause();
	}
	say("child %d", (int)pid);
	kill(getpid(), SIGKILL);
	return 1;
}

/* ---- threads ---- */

struct comer {
	unsigned number;
	struct weir_conn *c; /* left behind */
	int r;
};

static void *
come_and_go(void *arg)
{
	struct comer *t = arg;
	uint64_t m[40];

	if (t->number % 4) {
		t->r = talk(w, 10, t->number);
		return NULL;
	}
	t->r = weir_connect(w, &counts, PATIENCE_MS, &t->c);
	for (uint64_t i = 0; !t->r && i < UNSENT; i++) {
		for (unsigned k = 0; k < 40; k++)
			m[k] = i * 40 + k;
		t->r = weir_send(t->c, m, sizeof(m), PATIENCE_MS);
	}
	return NULL;
}

/* Asks the other end whether the messages that the thread left behind have arrived. */
static int
collect(struct comer *t)
{
	uint64_t count = 0;
	size_t length;

	t->r = weir_send(t->c, &count, sizeof(count), PATIENCE_MS);
	if (!t->r)
		t->r = weir_recv(t->c, &count, sizeof(count), &length, PATIENCE_MS);
	if (!t->r && count != UNSENT)
		t->r = -EBADMSG;
	if (!t->r)
		weir_close(t->c);
	return t->r;
}

static int
count_messages(const char *service)
{
	uint64_t m[40], *count;
	struct weir_event e;
	struct weir_listener *l;
	size_t length;
	int r = serve_at(w, service, 64, &l);

	if (r)
		return 1;
	while ((r = weir_wait(w, &e, 1, -1)) >= 0) {
		if (!r)
			continue;
		if (e.type == WEIR_EVENT_ACCEPT)
			accept_all(l, sizeof(*count));
		count = e.user;
		while (e.type == WEIR_EVENT_READABLE &&
		       weir_recv(e.conn, m, sizeof(m), &length, 0) == 0) {
			if (length == sizeof(*count))
				weir_send(e.conn, count, sizeof(*count), PATIENCE_MS);
			else if (m[0] == *count * 40 && m[39] == *count * 40 + 39)
				++*count;
		}
		if (e.type == WEIR_EVENT_CLOSED) {
			free(count);
			weir_close(e.conn);
		}
	}
	return failed("wait", r);
}

static int
churn(unsigned n)
{
	int r = 0;

	for (unsigned done = 0; done < n && !r; done += AT_A_TIME) {
		struct comer t[AT_A_TIME] = {0};
		pthread_t id[AT_A_TIME];

		for (unsigned i = 0; i < AT_A_TIME; i++) {
			t[i].number = i;
			if (pthread_create(&id[i], NULL, come_and_go, &t[i]))
				return failed("thread", -errno);
		}
		for (unsigned i = 0; i < AT_A_TIME; i++)
			pthread_join(id[i], NULL);
		for (unsigned i = 0; i < AT_A_TIME && !r; i++) {
			if (t[i].c && !t[i].r)
				collect(&t[i]);
			r = t[i].r ? failed("a thread", t[i].r) : 0;
		}
	}
	return r;
}

int
main(int argc, char **argv)
{
	const char *mode = argc > 2 ? argv[2] : "";
	unsigned n = (unsigned)number_at(argc, argv, 4);
	int r;

	options.instance = argc > 1 ? argv[1] : NULL;
	if (argc < 4 || (strcmp(mode, "count") && weir_address_parse(argv[3], &address))) {
		fprintf(stderr, "family: see the head of family.c\n");
		return 2;
	}
	counts = address;
	snprintf(counts.service, sizeof(counts.service), "count");
	if ((r = weir_attach(&options, &w)))
		return failed("attach", r);
	if (!strcmp(mode, "count"))
		r = count_messages(argv[3]);
	else if (!strcmp(mode, "fork"))
		r = fork_children(n);
	else if (!strcmp(mode, "orphan"))
		r = orphan();
	else if (!strcmp(mode, "churn"))
		r = churn(n);
	else
		r = 2;
	say("end %d", r);
	if (!strcmp(mode, "churn"))
		pause(); /* weirctl shows what it has now */
	weir_detach(w);
	return r;
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "etcd_nodes.h"

#include "now.h"
#include "port.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct event_base *base;
struct node nodes[NODES];
char directory[64], url[64];
uint16_t port;
json_t *last_said;
pid_t etcd;

// ---- etcd ----

/* More options of it, NULL-terminated: OPTION=VALUE. */
void
etcd_run_with(char **more)
{
	char peer[64], data[80], initial[80], *words[32] = {"etcd", "--unsafe-no-fsync"};
	unsigned n = 2;
	int log;

	snprintf(peer, sizeof(peer), "http://127.0.0.1:%u", port_take());
	snprintf(data, sizeof(data), "%s/data", directory);
	snprintf(initial, sizeof(initial), "t=%s", peer);
	etcd = fork();
	assert_true(etcd >= 0);
	if (etcd)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(data, sizeof(data), "%s/log", directory);
	log = open(data, O_WRONLY | O_CREAT | O_APPEND, 0600);
	dup2(log, 1);
	dup2(log, 2);
	snprintf(data, sizeof(data), "%s/data", directory);
	char *own[] = {"--name",
		       "t",
		       "--data-dir",
		       data,
		       "--listen-client-urls",
		       url,
		       "--advertise-client-urls",
		       url,
		       "--listen-peer-urls",
		       peer,
		       "--initial-advertise-peer-urls",
		       peer,
		       "--initial-cluster",
		       initial};

	for (unsigned i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		words[n++] = own[i];
	while (more && *more)
		words[n++] = *more++;
	execvp("etcd", words);
	_exit(127);
}

void
etcd_run(char *option)
{
	etcd_run_with((char *[]){option, NULL});
}

void
etcd_end(int signal)
{
	if (etcd > 0) {
		kill(etcd, signal);
		waitpid(etcd, NULL, 0);
	}
	etcd = 0;
}

// ---- the loop ----

void
run_for(unsigned ms)
{
	const struct timeval wait = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	event_base_loopexit(base, &wait);
	event_base_dispatch(base);
}

// ---- nodes ----

static void
on_known(void *user, const struct peer_entry *entry)
{
	struct node *n = user;

	assert_true(entry->id < 64);
	n->known[entry->id]++;
	n->last[entry->id] = *entry;
}

static void
on_gone(void *user, uint16_t id)
{
	struct node *n = user;

	n->gone[id]++;
}

static void
on_seed(void *user, const char *address)
{
	fail();
}

static void
on_given(void *user, uint16_t id)
{
	struct node *n = user;

	n->given = id;
}

static const struct membership_events events = {on_known, on_gone, on_seed, on_given};

void
publish(struct node *n, uint8_t host)
{
	struct peer_entry self = {.address_count = 1};

	self.address[0][10] = self.address[0][11] = 0xff;
	self.address[0][12] = 10;
	self.address[0][15] = host;
	n->source->publish(n->source, &self);
}

/* Node n at port `at`; what `o` says goes for it. */
void
start_at(struct node *n, uint32_t id, uint16_t at, struct etcd_options o)
{
	memset(n, 0, sizeof(*n));
	snprintf(n->control, sizeof(n->control), "127.0.0.1:%u", at);
	n->options = o;
	n->options.urls = o.urls ? o.urls : url;
	n->options.cluster = "test";
	n->options.control = n->control;
	n->options.node = id;
	n->options.lease = o.lease ? o.lease : LEASE;
	n->source = etcd_source_create(&n->options);
	assert_non_null(n->source);
	assert_int_equal(n->source->start(n->source, base, &events, n), 0);
	if (id != ETCD_NODE_AUTO)
		publish(n, (uint8_t)id);
}

void
start(int i, uint32_t id)
{
	start_at(&nodes[i], id, (uint16_t)(7000 + i), (struct etcd_options){0});
}

void
stop(int i, bool leave)
{
	struct node *n = &nodes[i];

	if (!n->source)
		return;
	n->source->stop(n->source, leave);
	n->source = NULL;
}

int
setup(void **state)
{
	snprintf(directory, sizeof(directory), "/tmp/weir-etcd-XXXXXX");
	assert_non_null(mkdtemp(directory));
	port = port_take();
	snprintf(url, sizeof(url), "http://127.0.0.1:%u", port);
	base = event_base_new();
	return 0;
}

void
empty_directory(void)
{
	char all[80];
	pid_t rm;
	int status;

	snprintf(all, sizeof(all), "%s/", directory);
	rm = fork();
	if (rm == 0) {
		execlp("find", "find", all, "-mindepth", "1", "-delete", NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(rm, &status, 0), rm);
	assert_int_equal(status, 0);
}

int
teardown(void **state)
{
	for (int i = 0; i < NODES; i++)
		stop(i, false);
	event_base_free(base);
	etcd_end(SIGKILL);
	port_drop_all();
	empty_directory();
	return rmdir(directory);
}

// ---- requests of our own ----

static void
said(void *user, const json_t *answer)
{
	json_decref(last_said);
	last_said = json_deep_copy(answer);
}

static void
post_over(void *user, const char *error)
{
	*(const char **)user = error ? "failed" : "done";
}

const char *
post(const char *path, json_t *body)
{
	static const struct etcd_access access;
	const char *result = NULL;
	const struct etcd_reply reply = {said, post_over, &result};
	struct etcd_http *h = etcd_http_create(base, &access);

	assert_non_null(etcd_post(h, url, path, body, NULL, PATIENCE / 2, &reply));
	until(result);
	etcd_http_destroy(h);
	return result;
}

const char *
put_foo(const char *value)
{
	return post("/v3/kv/put", json_pack("{s:s, s:s}", "key", "Zm9v", "value", value));
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The source of members in etcd, against Debian's etcd, which is started, killed, stopped and
 * started again; and against one that answers rubbish. Nodes are sources in this process.
 */
#include "etcd.h"
#include "pki.h"
#include "port.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NODES 10
#define LEASE 2
#define PATIENCE 60 /* s */

struct node {
	struct membership_source *source;
	struct etcd_options options;
	char control[32];
	uint32_t given; /* 0: no id yet */
	unsigned known[64], gone[64];
	struct peer_entry last[64];
};

static struct event_base *base;
static struct node nodes[NODES];
static char directory[64], url[64];
static uint16_t port;
static pid_t etcd;

// ---- etcd ----

/* More options of it, NULL-terminated: OPTION=VALUE. */
static void
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

static void
etcd_run(char *option)
{
	etcd_run_with((char *[]){option, NULL});
}

static void
etcd_end(int signal)
{
	if (etcd > 0) {
		kill(etcd, signal);
		waitpid(etcd, NULL, 0);
	}
	etcd = 0;
}

// ---- the loop ----

static uint64_t
now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void
run_for(unsigned ms)
{
	const struct timeval wait = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	event_base_loopexit(base, &wait);
	event_base_dispatch(base);
}

#define until(condition)                                                                           \
	do {                                                                                       \
		uint64_t end = now_ms() + PATIENCE * 1000;                                         \
		bool met;                                                                          \
		while (!(met = (condition)) && now_ms() < end)                                     \
			run_for(20);                                                               \
		if (!met)                                                                          \
			fail_msg("not within %d s: %s", PATIENCE, #condition);                     \
	} while (0)

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

static void
publish(struct node *n, uint8_t host)
{
	struct peer_entry self = {.address_count = 1};

	self.address[0][10] = self.address[0][11] = 0xff;
	self.address[0][12] = 10;
	self.address[0][15] = host;
	n->source->publish(n->source, &self);
}

/* Node n at port `at`; what `o` says goes for it. */
static void
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

static void
start_as(int i, const char *password)
{
	struct etcd_options o = {.user = password ? "root" : NULL, .password = password};

	start_at(&nodes[i], (uint32_t)i, (uint16_t)(7000 + i), o);
}

static void
start(int i, uint32_t id)
{
	start_at(&nodes[i], id, (uint16_t)(7000 + i), (struct etcd_options){0});
}

static void
stop(int i, bool leave)
{
	struct node *n = &nodes[i];

	if (!n->source)
		return;
	n->source->stop(n->source, leave);
	n->source = NULL;
}

static int
setup(void **state)
{
	snprintf(directory, sizeof(directory), "/tmp/weir-etcd-XXXXXX");
	assert_non_null(mkdtemp(directory));
	port = port_take();
	snprintf(url, sizeof(url), "http://127.0.0.1:%u", port);
	base = event_base_new();
	return 0;
}

static void
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

static int
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

// ---- tests ----

static void
test_known(void **state)
{
	start(1, 1);
	start(2, 2);
	run_for(500); /* nobody there: they go on asking */
	etcd_run(NULL);
	until(nodes[1].last[2].address_count && nodes[2].last[1].address_count);
	assert_string_equal(nodes[1].last[2].control, "127.0.0.1:7002");
	assert_int_equal(nodes[1].last[2].address_count, 1);
	assert_int_equal(nodes[1].last[2].address[0][15], 2);
	publish(&nodes[2], 77);
	until(nodes[1].last[2].address[0][15] == 77);
	stop(2, false); /* its control stops: it is still a member */
	start(3, 3);
	until(nodes[1].known[3] && nodes[3].known[2]);
	assert_int_equal(nodes[1].gone[2], 0);
	stop(3, true);
	until(nodes[1].gone[3] == 1);
}

static void
test_etcd_dies(void **state)
{
	etcd_run(NULL);
	start(1, 1);
	start(2, 2);
	until(nodes[1].known[2] && nodes[2].known[1]);
	etcd_end(SIGKILL);
	run_for(LEASE * 1500); /* the leases run out meanwhile */
	etcd_run(NULL);
	start(3, 3);
	until(nodes[1].known[3] && nodes[2].known[3] && nodes[3].known[1] && nodes[3].known[2]);
	kill(etcd, SIGSTOP);
	run_for(LEASE * 2500);
	kill(etcd, SIGCONT);
	start(4, 4);
	until(nodes[1].known[4] && nodes[2].known[4] && nodes[3].known[4]);
	for (int i = 1; i <= 4; i++)
		for (int j = 1; j <= 4; j++)
			assert_int_equal(nodes[i].gone[j], 0);
}

/* Another etcd at the same place, which knows nothing: all tell it again, and nobody goes. */
static void
test_etcd_forgets(void **state)
{
	etcd_run(NULL);
	start(1, 1);
	start(2, 2);
	for (int i = 0; i < 30; i++)
		publish(&nodes[2], (uint8_t)(10 + i)), run_for(20); /* revisions far ahead */
	until(nodes[1].last[2].address_count && nodes[2].known[1]);
	etcd_end(SIGKILL);
	empty_directory();
	etcd_run(NULL);
	start(3, 3);
	until(nodes[1].known[3] && nodes[2].known[3] && nodes[3].known[1] && nodes[3].known[2]);
	assert_int_equal(nodes[1].gone[2] + nodes[2].gone[1], 0);
}

static json_t *last_said; /* the last answer to post() */

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

static const char *
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

static const char *
put_foo(const char *value)
{
	return post("/v3/kv/put", json_pack("{s:s, s:s}", "key", "Zm9v", "value", value));
}

/* As if nobody had been heard for a lease. */
static void
revoke_leases(void)
{
	json_t *leases, *l;
	size_t i;

	assert_string_equal(post("/v3/lease/leases", json_object()), "done");
	leases = json_incref(json_object_get(last_said, "leases"));
	assert_true(json_array_size(leases) > 0);
	json_array_foreach(leases, i, l) post("/v3/lease/revoke", json_incref(l));
	json_decref(leases);
}

/* The same, and one whose control is stopped can't tell: no list without it says that it has left,
 * not even to one who thought for a while that it was the old etcd. */
static void
test_etcd_forgets_who_is_stopped(void **state)
{
	char also[48], both[160], one[96];
	struct etcd_options o = {.urls = also};
	unsigned known;

	snprintf(also, sizeof(also), "http://127.0.0.1:%u", port_take());
	snprintf(both, sizeof(both), "--listen-client-urls=%s,%s", url, also);
	snprintf(one, sizeof(one), "--listen-client-urls=%s", url);
	etcd_run(both);
	start(1, 1);
	start_at(&nodes[2], 2, 7002, o);
	until(nodes[1].last[2].address_count && nodes[2].last[1].address_count);
	stop(1, false);
	etcd_end(SIGKILL);
	publish(&nodes[2], 77); /* the first thing that it says to the new one */
	empty_directory();
	etcd_run(one);
	for (int i = 0; i < 20; i++) /* whose revisions are no lower by then */
		until(!strcmp(put_foo("Zm9v"), "done"));
	etcd_end(SIGTERM);
	etcd_run(both);
	start(3, 3);
	until(nodes[2].known[3] && nodes[3].last[2].address[0][15] == 77);
	run_for(LEASE * 1000);
	assert_int_equal(nodes[2].gone[1], 0);
	known = nodes[2].known[3];
	revoke_leases();
	until(nodes[2].known[3] > known); /* all is listed again */
	assert_int_equal(nodes[2].gone[1], 0);
	known = nodes[2].known[3];
	etcd_end(SIGTERM);
	etcd_run(both);
	until(nodes[2].known[3] > known); /* and again, with all leases in order */
	assert_int_equal(nodes[2].gone[1], 0);
	start(1, 1);
	until(nodes[3].known[1]);
	stop(1, true);
	until(nodes[2].gone[1] == 1);
}

static void
test_ids_given(void **state)
{
	uint32_t ids[NODES];

	etcd_run(NULL);
	for (int i = 0; i < NODES; i++)
		start(i, ETCD_NODE_AUTO);
	for (int i = 0; i < NODES; i++) {
		until(nodes[i].given);
		ids[i] = nodes[i].given;
		publish(&nodes[i], (uint8_t)ids[i]);
		for (int j = 0; j < i; j++)
			assert_int_not_equal(ids[i], ids[j]);
	}
	for (int i = 0; i < NODES; i++)
		until(nodes[i].known[ids[(i + 1) % NODES]]);
	/* who comes back has the same */
	for (int i = 0; i < NODES; i++)
		stop(i, false);
	for (int i = 0; i < NODES; i++)
		start(i, ETCD_NODE_AUTO);
	for (int i = 0; i < NODES; i++) {
		until(nodes[i].given);
		assert_int_equal(nodes[i].given, ids[i]);
	}
	until(nodes[1].known[ids[0]]);
	stop(0, true);
	until(nodes[1].gone[ids[0]]);
}

/* Whose id it is: who is heard within `lease` s. False: this process, or etcd, didn't run for so
 * long. */
static bool
keep_id(unsigned lease)
{
	struct etcd_options o = {.lease = lease};
	unsigned known;

	start_at(&nodes[1], 7, 7001, o);
	start_at(&nodes[2], 8, 7002, o);
	until(nodes[1].known[8] && nodes[2].known[7]);
	until(nodes[2].last[7].address_count);
	known = nodes[2].known[7];
	start_at(&nodes[3], 7, 7003, o); /* at another address */
	run_for(lease * 1500);
	if (nodes[2].known[7] != known || nodes[3].known[8])
		return false;
	assert_string_equal(nodes[2].last[7].control, "127.0.0.1:7001");
	stop(1, false); /* it has moved */
	until(nodes[2].known[7] > known && nodes[3].known[8]);
	assert_string_equal(nodes[2].last[7].control, "127.0.0.1:7003");
	return true;
}

static void
test_id_taken(void **state)
{
	unsigned lease = LEASE;

	etcd_run(NULL);
	while (!keep_id(lease)) {
		assert_in_range(lease *= 2, 1, 16);
		for (int i = 1; i <= 3; i++)
			stop(i, true);
		etcd_end(SIGKILL);
		empty_directory();
		etcd_run(NULL);
	}
}

static json_t *
node_key(const char *id)
{
	char text[40];

	snprintf(text, sizeof(text), "/weir/test/node/%s", id);
	return json_pack("{s:o}", "key", etcd_bytes(text));
}

/* While a node can't reach etcd another one leaves, and etcd forgets how: its list says who is
 * missing. */
static void
test_compacted(void **state)
{
	char also[48], both[160], one[96];
	struct etcd_options o = {.urls = also, .lease = 60}; /* that outlives this */

	snprintf(also, sizeof(also), "http://127.0.0.1:%u", port_take());
	snprintf(both, sizeof(both), "--listen-client-urls=%s,%s", url, also);
	snprintf(one, sizeof(one), "--listen-client-urls=%s", url);
	etcd_run(both);
	start_at(&nodes[1], 1, 7001, o);
	start(2, 2);
	start(3, 3);
	until(nodes[1].known[2] && nodes[1].known[3] && nodes[2].known[3]);
	etcd_end(SIGTERM);
	etcd_run(one);
	until(!strcmp(post("/v3/kv/deleterange", node_key("9")), "done"));
	stop(3, true);
	until(nodes[2].gone[3]);
	assert_int_equal(nodes[1].gone[3], 0);
	for (int i = 0; i < 10; i++)
		put_foo("Zm9v");
	for (int i = 2; i < 40; i++) /* up to as far as it has come */
		post("/v3/kv/compaction", json_pack("{s:i}", "revision", i));
	etcd_end(SIGTERM);
	etcd_run(both);
	until(nodes[1].gone[3]);
	start(4, 4);
	until(nodes[1].known[4]); /* and it is told what comes */
	assert_int_equal(nodes[1].gone[2] + nodes[2].gone[1] + nodes[1].gone[1], 0);
}

static void
test_password(void **state)
{
	etcd_run(NULL);
	until(!strcmp(post("/v3/auth/user/add",
			   json_pack("{s:s, s:s}", "name", "root", "password", "secret")),
		      "done"));
	post("/v3/auth/role/add", json_pack("{s:s}", "name", "root"));
	post("/v3/auth/user/grant", json_pack("{s:s, s:s}", "user", "root", "role", "root"));
	assert_string_equal(post("/v3/auth/enable", json_object()), "done");
	start_as(1, "secret");
	start_as(2, NULL);
	start_as(3, "secret");
	start_as(4, "guessed");
	until(nodes[1].known[3] && nodes[3].known[1]);
	assert_int_equal(nodes[2].known[1] + nodes[4].known[1], 0);
	assert_int_equal(nodes[1].known[2] + nodes[1].known[4], 0);
	etcd_end(SIGTERM); /* its tokens die with it */
	etcd_run(NULL);
	publish(&nodes[3], 99);
	until(nodes[1].last[3].address[0][15] == 99);
}

static void
start_with(int i, const char *ca, const char *certificate, const char *k)
{
	struct etcd_options o = {.access = {ca, certificate, k}};

	start_at(&nodes[i], (uint32_t)i, (uint16_t)(7000 + i), o);
}

static void
test_tls(void **state)
{
	struct pki_order order = {.cluster = "test",
				  .node = PKI_ANY_NODE,
				  .addresses = "127.0.0.1",
				  .from = time(NULL) - 60,
				  .until = time(NULL) + 3600};
	static char ca[96], certificate[96], k[96], foreign[96]; /* until teardown() */
	char pki[80], other[80], error[160];
	char options[4][128], *words[] = {options[0], options[1], options[2], options[3], NULL};

	snprintf(pki, sizeof(pki), "%s/pki", directory);
	snprintf(other, sizeof(other), "%s/other", directory);
	snprintf(ca, sizeof(ca), "%s/node/ca.pem", directory);
	snprintf(certificate, sizeof(certificate), "%s/node/node.pem", directory);
	snprintf(k, sizeof(k), "%s/node/node.key", directory);
	snprintf(foreign, sizeof(foreign), "%s/ca.pem", other);
	assert_int_equal(pki_make_ca(pki, &order, error, sizeof(error)), 0);
	assert_int_equal(pki_make_ca(other, &order, error, sizeof(error)), 0);
	snprintf(error, sizeof(error), "%s/node", directory);
	assert_int_equal(pki_issue(pki, error, &order, options[0], sizeof(options[0])), 0);
	snprintf(options[0], sizeof(options[0]), "--cert-file=%s", certificate);
	snprintf(options[1], sizeof(options[1]), "--key-file=%s", k);
	snprintf(options[2], sizeof(options[2]), "--trusted-ca-file=%s", ca);
	snprintf(options[3], sizeof(options[3]), "--client-cert-auth");
	snprintf(url, sizeof(url), "https://127.0.0.1:%u", port);
	etcd_run_with(words);
	start_with(1, ca, certificate, k);
	start_with(2, ca, certificate, k);
	start_with(3, ca, NULL, NULL);		/* etcd wants to know who asks */
	start_with(4, foreign, certificate, k); /* and we, whom we ask */
	until(nodes[1].known[2] && nodes[2].known[1]);
	run_for(1000);
	assert_int_equal(nodes[3].known[1] + nodes[4].known[1], 0);
	assert_int_equal(nodes[1].known[3] + nodes[1].known[4], 0);
}

static const char *rubbish_body;

static void
rubbish(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address, int length,
	void *user)
{
	static const char answer[] = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";

	/* who asks may have given up */
	if (write(fd, answer, sizeof(answer) - 1) > 0)
		(void)!write(fd, rubbish_body, strlen(rubbish_body));
	shutdown(fd, SHUT_WR);
	(*(unsigned *)user)++;
	close(fd);
}

static void
test_rubbish(void **state)
{
	static const char *const bodies[] = {
	    "\x7f\x01{\"kvs\":[[[[\"lease\n{\"ID\":\"12\"}\n",
	    "{}",
	    "{\"header\":{}}",
	    "{\"header\":{},\"ID\":\"-\"}",
	    "{\"result\":7}\n",
	};
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct evconnlistener *listener;
	static char urls[160];
	unsigned asked = 0;
	uint64_t begin;

	a.sin_port = htons(port_take());
	listener = evconnlistener_new_bind(base, rubbish, &asked,
					   LEV_OPT_CLOSE_ON_FREE | LEV_OPT_REUSEABLE, 16,
					   (struct sockaddr *)&a, sizeof(a));
	assert_non_null(listener);
	snprintf(urls, sizeof(urls), "http://127.0.0.1:%u", ntohs(a.sin_port));
	for (unsigned i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
		rubbish_body = bodies[i];
		asked = 0;
		start_at(&nodes[2], ETCD_NODE_AUTO, 7002, (struct etcd_options){.urls = urls});
		until(asked);
		begin = now_ms();
		run_for(1000);
		assert_in_range(asked, 1, 20 * (1 + (now_ms() - begin) / 1000)); /* it pauses */
		stop(2, false);
	}
	/* the next URL is tried */
	snprintf(urls, sizeof(urls), "http://127.0.0.1:%u,%s/", ntohs(a.sin_port), url);
	etcd_run(NULL);
	start(1, 1);
	asked = 0;
	start_at(&nodes[2], 2, 7002, (struct etcd_options){.urls = urls});
	until(asked && nodes[1].known[2] && nodes[2].known[1]);
	evconnlistener_free(listener);
}

/* Many small values: each costs far more memory than its bytes. */
static void
test_bloated(void **state)
{
	static const char head[] = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"header\":[";
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t length = sizeof(a);
	struct rusage before, after;
	pid_t server;

	assert_int_equal(bind(listener, (struct sockaddr *)&a, length), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&a, &length), 0);
	assert_int_equal(listen(listener, 4), 0);
	snprintf(url, sizeof(url), "http://127.0.0.1:%u", ntohs(a.sin_port));
	server = fork();
	if (!server) {
		int fd = accept(listener, NULL, NULL);
		char some[3 * 4096];
		size_t got = 0;
		ssize_t n;

		/* its request is read, or the end would be a reset */
		while ((n = read(fd, some + got, sizeof(some) - 1 - got)) > 0) {
			got += (size_t)n;
			some[got] = 0;
			if (strstr(some, "{}"))
				break;
		}
		for (size_t i = 0; i < sizeof(some); i++)
			some[i] = "[],"[i % 3];
		if (write(fd, head, sizeof(head) - 1) > 0)
			for (int i = 0; i < 1000 && write(fd, some, sizeof(some)) > 0; i++)
				;
		_exit(0);
	}
	getrusage(RUSAGE_SELF, &before);
	assert_string_equal(post("/v3/kv/range", json_object()), "failed");
	getrusage(RUSAGE_SELF, &after);
	assert_in_range(after.ru_maxrss - before.ru_maxrss, 0, 150000); /* KiB; it was 600 MiB */
	close(listener);
	assert_int_equal(waitpid(server, NULL, 0), server);
}

static void
test_full(void **state)
{
	char *much = malloc(400001);

	memset(much, 'A', 400000);
	much[400000] = 0;
	etcd_run("--quota-backend-bytes=2000000");
	start(1, 1);
	start(2, 2);
	until(nodes[1].known[2] && nodes[2].known[1]);
	while (!strcmp(put_foo(much), "done"))
		;
	free(much);
	publish(&nodes[2], 55);
	start(3, 3);
	run_for(LEASE * 1500);
	assert_int_equal(nodes[1].gone[2] + nodes[2].gone[1], 0);
	assert_int_equal(nodes[1].known[3], 0);
}

static void
test_wrong_input(void **state)
{
	struct etcd_options o = {.urls = ",,", .cluster = "c", .control = "h:1", .lease = LEASE};
	json_t *b = etcd_bytes("node:7");
	char text[7];

	assert_null(etcd_source_create(&o));
	assert_int_equal(etcd_text(b, text, sizeof(text)), 0);
	assert_string_equal(text, "node:7");
	assert_int_equal(etcd_text(b, text, 6), -1);
	json_decref(b);
	b = json_string("AAAA"); /* zeroes */
	assert_int_equal(etcd_text(b, text, sizeof(text)), -1);
	json_decref(b);
	b = json_string("!!!!");
	assert_int_equal(etcd_text(b, text, sizeof(text)), -1);
	json_decref(b);
	assert_int_equal(etcd_text(NULL, text, sizeof(text)), -1);
	/* entries that nobody of us has written */
	etcd_run(NULL);
	start(1, 1);
	until(!strcmp(
	    post("/v3/kv/put", json_pack("{s:o, s:o}", "key", etcd_bytes("/weir/test/node/9"),
					 "value", etcd_bytes("nonsense 1.2.3"))),
	    "done"));
	post("/v3/kv/put",
	     json_pack("{s:o, s:s}", "key", etcd_bytes("/weir/test/node/10"), "value", "AAECAw=="));
	post("/v3/kv/put", json_pack("{s:o, s:o}", "key", etcd_bytes("/weir/test/node/70000"),
				     "value", etcd_bytes("10.0.0.1:1 10.0.0.1")));
	post("/v3/kv/put", json_pack("{s:o, s:o}", "key", etcd_bytes("/weir/test/node/12"), "value",
				     etcd_bytes("localhost:1 10.0.0.12")));
	post("/v3/kv/put", json_pack("{s:o, s:o}", "key", etcd_bytes("/weir/test/node/11"), "value",
				     etcd_bytes("10.0.0.1:1 10.0.0.1")));
	until(nodes[1].known[11]);
	assert_int_equal(nodes[1].known[9] + nodes[1].known[10] + nodes[1].known[12], 0);
	/* an id whose entry is unreadable is not ours, nor is it given out */
	start(3, 10);
	start(4, ETCD_NODE_AUTO);
	until(nodes[4].given);
	assert_int_not_equal(nodes[4].given, 10);
	/* ours, changed by somebody: it is put right */
	post("/v3/kv/put", json_pack("{s:o, s:o}", "key", etcd_bytes("/weir/test/node/1"), "value",
				     etcd_bytes("127.0.0.1:7001 10.9.9.9")));
	start(2, 20); /* 4 may have 2 */
	until(nodes[2].known[1] && nodes[2].last[1].address[0][15] == 1);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_known, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_etcd_dies, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_etcd_forgets, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_etcd_forgets_who_is_stopped, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_compacted, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_ids_given, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_id_taken, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_password, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_tls, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_rubbish, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_bloated, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_full, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_wrong_input, setup, teardown),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

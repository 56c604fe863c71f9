/* SPDX-License-Identifier: BSD-3-Clause */
/* Answers of etcd, or of a server in its place: refusals, rubbish, too much, none any more. */
#include "etcd_nodes.h"
#include "pki/pki.h"
#include "port.h"

#include <arpa/inet.h>
#include <event2/listener.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void
start_as(int i, const char *password)
{
	struct etcd_options o = {.user = password ? "root" : NULL, .password = password};

	start_at(&nodes[i], (uint32_t)i, (uint16_t)(7000 + i), o);
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

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * More nodes than a control keeps connections: a hundred weir-control processes, each beside a data
 * plane that is none. All come up, offers between any two pass, and connections that nobody needs
 * go.
 */
#include "ipc/dpctl.h"
#include "now.h"
#include "port.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#ifdef __SANITIZE_ADDRESS__
#define NODES 70 /* each takes much memory */
#else
#define NODES 100
#endif
#define STREAMS 64u /* CONTROL_STREAMS */
#define PAIRS 200
#define LONG 90000 /* ms within which what must happen has happened, on a busy machine too */
#define REST 5000  /* ms that are measured */

static const char *binary;
static char dir[64];
static uint16_t port;

static struct node {
	pid_t pid;
	int listener, conn;
	bool up[NODES];
	uint32_t others_up;
	uint32_t offered_by[NODES]; /* attempt */
	bool lost[NODES];	    /* told that it is down: what was offered to it is void */
	uint32_t state_changes;
} node[NODES];

// ---- data planes ----

static void
send_to(struct node *n, struct weir_ctl_msg *m)
{
	m->length = weir_ctl_length(m->type);
	assert_int_equal(send(n->conn, m, m->length, MSG_NOSIGNAL), m->length);
}

static void
take(struct node *n, const struct weir_ctl_msg *m)
{
	struct weir_ctl_msg hello = {.type = WEIR_CTL_HELLO};
	bool up;

	switch (m->type) {
	case WEIR_CTL_HELLO:
		hello.hello.version = WEIR_CTL_VERSION;
		hello.hello.role = WEIR_ROLE_DATAPLANE;
		hello.hello.node = UINT32_MAX;
		hello.hello.engines = 1;
		hello.hello.incarnation = 1000 + (uint64_t)(n - node);
		hello.hello.pid = (uint32_t)getpid();
		send_to(n, &hello);
		break;
	case WEIR_CTL_NODE:
		assert_true(m->node.id < NODES);
		up = m->node.state == WEIR_NODE_UP && !m->node.self;
		n->state_changes += n->up[m->node.id] != up;
		n->others_up += up;
		n->others_up -= n->up[m->node.id];
		n->up[m->node.id] = up;
		n->lost[m->node.id] |= m->node.state == WEIR_NODE_DOWN;
		break;
	case WEIR_CTL_LINK:
		n->offered_by[m->link.node] = m->link.attempt;
		break;
	default:
		break;
	}
}

static void
serve(struct node *n)
{
	union {
		struct weir_ctl_msg m;
		uint8_t bytes[WEIR_CTL_MAX];
	} in;
	ssize_t got;

	while ((got = recv(n->conn, in.bytes, sizeof(in), MSG_DONTWAIT)) > 0) {
		assert_int_equal(weir_ctl_check(&in.m, (size_t)got), 0);
		take(n, &in.m);
	}
	if (got < 0 && errno == EAGAIN)
		return;
	close(n->conn);
	n->conn = -1;
}

static void
pump(int ms)
{
	uint64_t end = now_ms() + (uint64_t)ms, now;
	struct pollfd fds[2 * NODES];

	while ((now = now_ms()) < end) {
		for (int i = 0; i < NODES; i++) {
			fds[2 * i] = (struct pollfd){node[i].listener, POLLIN, 0};
			fds[2 * i + 1] = (struct pollfd){node[i].conn, POLLIN, 0};
		}
		if (poll(fds, 2 * NODES, (int)(end - now)) <= 0)
			continue;
		for (int i = 0; i < NODES; i++) {
			if (fds[2 * i + 1].revents)
				serve(&node[i]);
			if (fds[2 * i].revents && node[i].conn < 0) {
				node[i].conn = accept(node[i].listener, NULL, NULL);
				fcntl(node[i].conn, F_SETFD, FD_CLOEXEC);
			}
		}
	}
}

static void
listen_at(int i)
{
	struct sockaddr_un path = {.sun_family = AF_UNIX};

	snprintf(path.sun_path, sizeof(path.sun_path), "%s/n%d", dir, i);
	assert_int_equal(mkdir(path.sun_path, 0755), 0);
	snprintf(path.sun_path, sizeof(path.sun_path), "%s/n%d/control.sock", dir, i);
	node[i].conn = -1;
	node[i].listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(node[i].listener, (struct sockaddr *)&path, sizeof(path)), 0);
	assert_int_equal(listen(node[i].listener, 8), 0);
}

// ---- controls ----

static void
start(int i)
{
	char instance[16], id[16], address[32], peers[80], log[80];
	char *argv[] = {(char *)binary, "--instance", instance, "--node",	  id,	"--listen",
			address,	"--peers",    peers,	"--node-timeout", "3s", NULL};

	snprintf(instance, sizeof(instance), "n%d", i);
	snprintf(id, sizeof(id), "%d", i);
	snprintf(address, sizeof(address), "127.9.%d.1:%u", i, port);
	snprintf(peers, sizeof(peers), "%s/peers", dir);
	snprintf(log, sizeof(log), "%s/log", dir);
	node[i].pid = fork();
	assert_true(node[i].pid >= 0);
	if (node[i].pid == 0) {
		int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0644);

		dup2(fd, STDERR_FILENO);
		close(fd);
		execv(argv[0], argv);
		_exit(127);
	}
}

static int
setup(void **state)
{
	char path[80];
	FILE *f;

	snprintf(dir, sizeof(dir), "/tmp/weir-control-test-XXXXXX");
	assert_non_null(mkdtemp(dir));
	setenv("WEIR_RUN_DIR", dir, 1);
	unsetenv("WEIR_INSTANCE");
	port = port_take();
	snprintf(path, sizeof(path), "%s/peers", dir);
	f = fopen(path, "w");
	for (int i = 0; i < NODES; i++)
		fprintf(f, "%d 127.9.%d.1:%u 10.0.%d.1\n", i, i, port, i);
	fclose(f);
	for (int i = 0; i < NODES; i++)
		listen_at(i);
	return 0;
}

static int
teardown(void **state)
{
	char path[96];
	int status, bad = 0;

	for (int i = 0; i < NODES; i++)
		if (node[i].pid > 0)
			kill(node[i].pid, SIGTERM);
	for (int i = 0; i < NODES; i++) {
		if (node[i].pid > 0) {
			waitpid(node[i].pid, &status, 0);
			bad += !WIFEXITED(status) || WEXITSTATUS(status);
		}
		if (node[i].conn >= 0)
			close(node[i].conn);
		close(node[i].listener);
		snprintf(path, sizeof(path), "%s/n%d/control.sock", dir, i);
		unlink(path);
		snprintf(path, sizeof(path), "%s/n%d", dir, i);
		assert_int_equal(rmdir(path), 0);
	}
	snprintf(path, sizeof(path), "%s/peers", dir);
	unlink(path);
	snprintf(path, sizeof(path), "%s/log", dir);
	unlink(path);
	port_drop_all();
	assert_int_equal(rmdir(dir), 0);
	assert_int_equal(bad, 0);
	return 0;
}

// ---- the test ----

static bool
all_up(void)
{
	for (int i = 0; i < NODES; i++)
		if (node[i].others_up != NODES - 1)
			return false;
	return true;
}

static void
offer(int from, int to, uint32_t attempt)
{
	struct weir_ctl_msg m = {.type = WEIR_CTL_LINK};

	m.link = (struct weir_link_offer){
	    .node = (uint16_t)from,
	    .peer_node = (uint16_t)to,
	    .layout = 0x102,
	    .incarnation = 1000 + (uint64_t)from,
	    .attempt = attempt,
	    .gid = {10, 0, 0, 1},
	    .lid = 3,
	    .mtu = 1024,
	    .qpn = {16, 17},
	    .psn = {1, 5},
	    .ring_address = 0x100000000,
	    .credit_address = 0x200000000,
	    .ring_lines = 4096,
	    .recv_wrs = 64,
	};
	send_to(&node[from], &m);
}

// Of all processes, ms of CPU, and the most descriptors that one of them has.
static void
look(uint64_t *cpu, uint32_t *descriptors)
{
	*cpu = *descriptors = 0;
	for (int i = 0; i < NODES; i++) {
		unsigned long user, system;
		uint32_t n = 0;
		char path[64];
		struct dirent *e;
		FILE *f;
		DIR *d;

		snprintf(path, sizeof(path), "/proc/%d/stat", node[i].pid);
		f = fopen(path, "r");
		assert_non_null(f);
		assert_int_equal(fscanf(f,
					"%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu "
					"%lu",
					&user, &system),
				 2);
		fclose(f);
		*cpu += (user + system) * 1000 / (uint64_t)sysconf(_SC_CLK_TCK);
		snprintf(path, sizeof(path), "/proc/%d/fd", node[i].pid);
		d = opendir(path);
		assert_non_null(d);
		while ((e = readdir(d)))
			n += e->d_name[0] != '.';
		closedir(d);
		if (n > *descriptors)
			*descriptors = n;
	}
}

static void
come_up(void)
{
	uint64_t begin = now_ms();

	for (int i = 0; i < NODES; i++) {
		start(i);
		pump(1);
	}
	while (!all_up() && now_ms() < begin + LONG)
		pump(100);
	assert_true(all_up());
	printf("%d nodes: up after %.1f s\n", NODES, (double)(now_ms() - begin) / 1e3);
}

/*
 * What came with the start goes again, and then nothing changes: for as long as is measured, once.
 * (Who gets no CPU meanwhile is given up and comes back.)
 */
static void
rest(void)
{
	uint64_t end = now_ms() + LONG, begin, cpu, before;
	uint32_t descriptors, most, changes;

	do {
		assert_true(now_ms() < end);
		changes = 0;
		for (int i = 0; i < NODES; i++)
			changes -= node[i].state_changes;
		look(&before, &descriptors);
		begin = now_ms();
		pump(descriptors > STREAMS + 20 ? 500 : REST);
		look(&cpu, &most);
		for (int i = 0; i < NODES; i++)
			changes += node[i].state_changes;
	} while (descriptors > STREAMS + 20 || most > STREAMS + 20 || changes || !all_up());
	printf("then %.1f ms of CPU a node and second, %u descriptors\n",
	       (double)(cpu - before) * 1e3 / (double)(now_ms() - begin) / NODES, most);
}

static int
other_of(int pair)
{
	return (pair % NODES + 1 + pair * 37 % (NODES - 1)) % NODES;
}

// Pairs far and near, connected or not, in both directions.
static void
offer_all(void)
{
	uint64_t begin = now_ms();
	uint32_t missing = PAIRS;

	for (int i = 0; i < NODES; i++)
		memset(node[i].lost, 0, sizeof(node[i].lost));
	for (int i = 0; i < PAIRS; i++)
		offer(i % NODES, other_of(i), 1 + (uint32_t)i);
	while (missing && now_ms() < begin + LONG) {
		pump(50);
		missing = 0;
		for (int i = 0; i < PAIRS; i++) {
			int from = i % NODES, to = other_of(i);

			if (node[to].offered_by[from])
				continue;
			missing++;
			if (node[from].lost[to]) {
				node[from].lost[to] = false;
				offer(from, to, 1 + (uint32_t)i);
			}
		}
	}
	assert_int_equal(missing, 0);
	printf("%d offers: after %llu ms\n", PAIRS, (unsigned long long)(now_ms() - begin));
}

static void
test_a_hundred(void **state)
{
	come_up();
	rest();
	offer_all();
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_a_hundred, setup, teardown),
	};

	if (argc < 2) {
		fprintf(stderr, "usage: %s PATH-OF-WEIR-CONTROL\n", argv[0]);
		return 2;
	}
	binary = argv[1];
	return cmocka_run_group_tests_name("control_many", tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "fake.h"

#include "port.h"
#include "rounds.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

char fake_dir[64], fake_peers[96];
int fake_patience = 40000, fake_count = 2;
struct fake_dp fake_dp[FAKE_MAX];
struct fake_control fake_control[FAKE_MAX];
const char *fake_binary;
void (*fake_told)(int i, const struct weir_ctl_msg *m);

#define LISTENS " listens on "

// RUN/INSTANCE, or another file of it there. Static.
static const char *
path_of(const char *prefix, int i, const char *suffix)
{
	static char path[128];

	if (i < 2)
		snprintf(path, sizeof(path), "%s/%s%c%s", fake_dir, prefix, 'a' + i, suffix);
	else
		snprintf(path, sizeof(path), "%s/%sn%d%s", fake_dir, prefix, i, suffix);
	return path;
}

// ---- data planes ----

static void
hang_up(struct fake_dp *dp)
{
	if (dp->conn >= 0)
		close(dp->conn);
	dp->conn = -1;
}

// Whoever has asked may have been killed since, or have waited long enough.
static void
answer(struct fake_dp *dp, struct weir_ctl_msg *m)
{
	if (dp->conn < 0 || send(dp->conn, m, m->length, MSG_NOSIGNAL) == m->length)
		return;
	assert_true(errno == EPIPE || errno == ECONNRESET);
	hang_up(dp);
}

void
fake_dp_send(int i, struct weir_ctl_msg *m)
{
	m->length = weir_ctl_size(m);
	answer(&fake_dp[i], m);
}

void
fake_dp_services(int i)
{
	struct weir_ctl_msg m = {.type = WEIR_CTL_SERVICES};

	m.services.node = i + 1;
	m.services.incarnation = fake_dp[i].incarnation;
	m.services.names = fake_dp[i].own;
	fake_dp_send(i, &m);
}

struct weir_ctl_msg
fake_offer(int from, int to, uint32_t attempt, uint32_t answered)
{
	struct weir_ctl_msg m = {.type = WEIR_CTL_LINK};

	m.link = (struct weir_link_offer){
	    .node = from + 1,
	    .peer_node = to + 1,
	    .engine = from,
	    .peer_engine = to,
	    .layout = 0x101,
	    .incarnation = fake_dp[from].incarnation,
	    .attempt = attempt,
	    .answered = answered,
	    .gid = {10, 0, 0, from + 1},
	    .lid = 3,
	    .mtu = 1024,
	    .qpn = {16, 17},
	    .psn = {0xffffff, 5},
	    .ring_address = 0x100000000,
	    .credit_address = 0x200000000,
	    .ring_rkey = 7,
	    .credit_rkey = 8,
	    .ring_lines = 4096,
	    .recv_wrs = 64,
	    .answers = 16 << 10,
	};
	return m;
}

static void
greet(struct fake_dp *dp, const struct weir_ctl_msg *m)
{
	int i = dp - fake_dp;
	struct weir_ctl_msg out = {.type = WEIR_CTL_HELLO};

	dp->hellos++;
	dp->hello_node = m->hello.node;
	dp->nodes = dp->synced = 0;
	dp->far_count = 0;
	out.hello.versions = dp->versions;
	out.hello.role = WEIR_ROLE_DATAPLANE;
	out.hello.node = dp->keeps_id ? dp->self : UINT32_MAX;
	out.hello.engines = 2;
	out.hello.incarnation = dp->incarnation;
	out.hello.pid = getpid();
	out.hello.services = weir_services_digest(&dp->own);
	fake_dp_send(i, &out);
	if (dp->own.count)
		fake_dp_services(i);
	for (unsigned t = 0; t < dp->tell_count; t++) {
		struct weir_ctl_msg link = {.type = WEIR_CTL_LINK};

		link.link = dp->tell[t];
		fake_dp_send(i, &link);
	}
}

// Rows in pages of dp->page records.
static void
tell_rows(struct fake_dp *dp, uint32_t kind)
{
	static union {
		struct weir_ctl_msg m;
		uint8_t bytes[WEIR_CTL_MAX];
	} out;
	uint32_t bytes = weir_ctl_record_bytes(kind), at = 0;

	do {
		uint32_t n = dp->record_count - at < dp->page ? dp->record_count - at : dp->page;

		memset(&out, 0, weir_ctl_length(WEIR_CTL_ROWS));
		out.m.type = WEIR_CTL_ROWS;
		out.m.length = weir_ctl_length(WEIR_CTL_ROWS) + n * bytes;
		out.m.rows.rows = kind;
		out.m.rows.record_bytes = bytes;
		out.m.rows.count = n;
		if (n)
			memcpy(out.m.rows.records,
			       (const uint8_t *)dp->records + (size_t)at * bytes,
			       (size_t)n * bytes);
		at += n;
		out.m.rows.more = at < dp->record_count;
		answer(dp, &out.m);
	} while (at < dp->record_count);
}

static void
take_services(struct fake_dp *dp, const struct weir_ctl_msg *m)
{
	struct weir_services *s = &dp->offers[m->services.node];

	memset(s, 0, sizeof(*s));
	s->count = m->services.names.count;
	memcpy(s->name, m->services.names.name, s->count * sizeof(s->name[0]));
	dp->offered_by[m->services.node] = m->services.incarnation;
	dp->offers_told++;
}

static void
take(struct fake_dp *dp, const struct weir_ctl_msg *m)
{
	if (fake_told)
		fake_told((int)(dp - fake_dp), m);
	switch (m->type) {
	case WEIR_CTL_HELLO:
		greet(dp, m);
		break;
	case WEIR_CTL_NODE:
		dp->nodes++;
		if (m->node.self)
			dp->self = m->node.id;
		if (m->node.id >= FAKE_NODES) {
			dp->far[dp->far_count++ % FAKE_FAR] = m->node;
			break;
		}
		dp->node[m->node.id] = m->node;
		dp->told[m->node.id][m->node.state]++;
		break;
	case WEIR_CTL_SYNCED:
		dp->nodes_before_synced = dp->nodes;
		dp->synced++;
		break;
	case WEIR_CTL_LINK:
		dp->links++;
		dp->link = m->link;
		break;
	case WEIR_CTL_SERVICES:
		if (m->services.node < FAKE_NODES)
			take_services(dp, m);
		break;
	case WEIR_CTL_RESYNC:
		dp->resyncs++;
		dp->resync_node = m->link_down.node;
		dp->resync_status = m->link_down.status;
		break;
	case WEIR_CTL_FACT:
		break;
	case WEIR_CTL_QUERY:
		tell_rows(dp, m->query.rows);
		break;
	case WEIR_CTL_SET: {
		struct weir_ctl_msg done = {.type = WEIR_CTL_DONE,
					    .length = weir_ctl_length(WEIR_CTL_DONE)};

		done.done.count = !strcmp(m->set.key, "program.here.weight");
		answer(dp, &done);
		break;
	}
	default:
		fail_msg("control sent type %u", m->type);
	}
}

static void
serve(struct fake_dp *dp)
{
	union {
		struct weir_ctl_msg m;
		uint8_t bytes[WEIR_CTL_MAX];
	} in;
	ssize_t n;

	while (dp->conn >= 0) {
		n = recv(dp->conn, in.bytes, sizeof(in), MSG_DONTWAIT);
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			hang_up(dp);
			return;
		}
		assert_int_equal(weir_ctl_check(&in.m, n), 0);
		take(dp, &in.m);
	}
}

void
fake_pump(int ms)
{
	uint64_t end = now_ms() + ms;

	do {
		struct pollfd fds[2 * FAKE_MAX];
		int left = end - now_ms();

		for (int i = 0; i < fake_count; i++) {
			fds[2 * i] = (struct pollfd){fake_dp[i].listener, POLLIN, 0};
			fds[2 * i + 1] = (struct pollfd){fake_dp[i].conn, POLLIN, 0};
		}
		if (poll(fds, 2 * fake_count, left > 0 ? left : 0) <= 0)
			continue;
		for (int i = 0; i < fake_count; i++) {
			struct fake_dp *dp = &fake_dp[i];

			if (fds[2 * i + 1].revents)
				serve(dp);
			if (fds[2 * i].revents && dp->listener >= 0) {
				hang_up(dp);
				dp->conn = accept4(dp->listener, NULL, NULL, SOCK_CLOEXEC);
			}
		}
	} while (now_ms() < end);
}

void
fake_dp_start(int i, uint64_t incarnation)
{
	struct fake_dp *dp = &fake_dp[i];
	struct sockaddr_un path = {.sun_family = AF_UNIX};
	struct weir_services own = dp->own;

	mkdir(path_of("", i, ""), 0755);
	memset(dp, 0, sizeof(*dp));
	dp->own = own;
	snprintf(dp->path, sizeof(dp->path), "%s", path_of("", i, "/control.sock"));
	memcpy(path.sun_path, dp->path, sizeof(path.sun_path));
	unlink(dp->path);
	dp->conn = -1;
	dp->versions = WEIR_CTL_VERSIONS;
	dp->incarnation = incarnation;
	dp->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(dp->listener, (struct sockaddr *)&path, sizeof(path)), 0);
	assert_int_equal(listen(dp->listener, 8), 0);
}

void
fake_dp_hang_up(int i)
{
	hang_up(&fake_dp[i]);
}

void
fake_dp_die(int i)
{
	hang_up(&fake_dp[i]);
	if (fake_dp[i].listener >= 0)
		close(fake_dp[i].listener);
	fake_dp[i].listener = -1;
	fake_dp[i].incarnation = 0;
}

bool
fake_sees(int i, unsigned id, enum weir_node_state what)
{
	const struct weir_ctl_node *n = &fake_dp[i].node[id];

	return fake_dp[i].nodes && n->id == id && n->state == (uint32_t)what;
}

// ---- controls ----

static pid_t
spawn(char *const argv[], const char *log)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0644);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(fd, STDERR_FILENO);
		dup2(fd, STDOUT_FILENO);
		close(fd);
		execv(argv[0], argv);
		_exit(127);
	}
	return pid;
}

void
fake_control_start(int i)
{
	char instance[16], node[16], listen[32], metrics[32];
	char *argv[] = {(char *)fake_binary,
			"--instance",
			instance,
			"--node",
			node,
			"--listen",
			listen,
			"--peers",
			fake_peers,
			"--node-timeout",
			(char *)(fake_control[i].timeout ? fake_control[i].timeout : "500ms"),
			NULL,
			NULL,
			NULL,
			NULL,
			NULL};
	int argc = 11;

	if (fake_control[i].join || fake_control[i].etcd) {
		argv[4] = (char *)fake_control[i].node;
		argv[7] = fake_control[i].join ? "--join" : "--etcd";
		argv[8] =
		    (char *)(fake_control[i].join ? fake_control[i].join : fake_control[i].etcd);
	}
	if (fake_control[i].tls) {
		argv[argc++] = "--tls";
		argv[argc++] = (char *)fake_control[i].tls;
	}
	if (fake_control[i].metrics) {
		argv[argc++] = "--metrics";
		argv[argc++] = metrics;
		snprintf(metrics, sizeof(metrics), "127.0.0.1:%u", fake_control[i].metrics);
	}
	snprintf(instance, sizeof(instance), "%s", strrchr(path_of("", i, ""), '/') + 1);
	snprintf(node, sizeof(node), "%d", i + 1);
	snprintf(listen, sizeof(listen), "%s:%u", fake_control[i].host, fake_control[i].port);
	fake_control[i].listened = fake_log_count(i, LISTENS);
	fake_control[i].pid = spawn(argv, path_of("log-", i, ""));
	rounds_watch(i, fake_control[i].pid);
}

void
fake_control_kill(int i, int signal)
{
	if (signal == SIGKILL || signal == SIGSTOP)
		rounds_watch(i, 0);
	kill(fake_control[i].pid, signal);
	if (signal == SIGCONT)
		rounds_watch(i, fake_control[i].pid);
	if (signal != SIGKILL)
		return;
	waitpid(fake_control[i].pid, NULL, 0);
	fake_control[i].pid = 0;
}

int
fake_await_exit(pid_t pid)
{
	uint64_t end = now_ms() + LONG;
	int status;

	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (now_ms() > end) {
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			fail_msg("process doesn't end");
		}
		fake_pump(5);
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int
fake_control_stop(int i)
{
	struct fake_control *c = &fake_control[i];
	uint64_t end = now_ms() + LONG;
	siginfo_t ended = {0};
	pid_t pid = c->pid;
	int status;

	// Before it looks at signals one just ends it.
	while (fake_log_count(i, LISTENS) == c->listened && now_ms() < end &&
	       !waitid(P_PID, pid, &ended, WEXITED | WNOHANG | WNOWAIT) && !ended.si_pid)
		fake_pump(10);
	c->pid = 0;
	rounds_watch(i, 0);
	kill(pid, SIGTERM);
	status = fake_await_exit(pid);
	if (status)
		rounds_broken();
	return status;
}

static const char *
read_text(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, size - 1);

	text[n > 0 ? n : 0] = 0;
	if (fd >= 0)
		close(fd);
	return text;
}

int
fake_run(char *const argv[], char *text, size_t size)
{
	char log[96];
	int status;

	snprintf(log, sizeof(log), "%s/log-run", fake_dir);
	unlink(log);
	status = fake_await_exit(spawn(argv, log));
	read_text(log, text, size);
	return status;
}

const char *
fake_log(int i)
{
	static char text[65536];

	return read_text(path_of("log-", i, ""), text, sizeof(text));
}

void
fake_log_clear(int i)
{
	unlink(path_of("log-", i, ""));
}

const char *
fake_both_logs(void)
{
	static char text[2 * 65536];
	int n = snprintf(text, sizeof(text), "--- a:\n%s", fake_log(0));

	snprintf(text + n, sizeof(text) - n, "--- b:\n%s", fake_log(1));
	return text;
}

unsigned
fake_log_count(int i, const char *text)
{
	unsigned n = 0;

	for (const char *at = fake_log(i); (at = strstr(at, text)); at++)
		n++;
	return n;
}

uint64_t
fake_cpu_ms(pid_t pid)
{
	struct timespec t;
	clockid_t clock;

	assert_int_equal(clock_getcpuclockid(pid, &clock), 0);
	assert_int_equal(clock_gettime(clock, &t), 0);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

// ---- all of it ----

void
fake_start_both(void)
{
	for (int i = 0; i < 2; i++) {
		fake_dp_start(i, 100 + i);
		fake_control_start(i);
	}
	AWAIT(fake_sees(A, 2, WEIR_NODE_UP) && fake_sees(B, 1, WEIR_NODE_UP), LONG);
}

int
fake_setup(void **state)
{
	uint16_t port = fake_count > 2 ? port_take() : 0; // for all
	FILE *f;

	snprintf(fake_dir, sizeof(fake_dir), "/tmp/weir-control-test-XXXXXX");
	assert_non_null(mkdtemp(fake_dir));
	setenv("WEIR_RUN_DIR", fake_dir, 1);
	unsetenv("WEIR_INSTANCE");
	snprintf(fake_peers, sizeof(fake_peers), "%s/peers", fake_dir);
	f = fopen(fake_peers, "w");
	for (int i = 0; i < fake_count; i++) {
		struct fake_control *c = &fake_control[i];

		fake_dp[i].conn = fake_dp[i].listener = -1;
		fake_dp[i].own.count = 0;
		c->pid = 0;
		c->port = port ? port : port_take();
		snprintf(c->host, sizeof(c->host), port ? "127.9.%d.1" : "127.0.0.1", i);
		fprintf(f, "%d %s:%u 10.0.0.%d\n", i + 1, c->host, c->port, i + 1);
	}
	fclose(f);
	return 0;
}

// A control that has crashed says so, whatever else went wrong.
static bool
has_crashed(int i)
{
	if (!fake_log_count(i, "Sanitizer") && !fake_log_count(i, "runtime error:") &&
	    !fake_log_count(i, ": crash: "))
		return false;
	rounds_broken();
	print_error("%s", fake_log(i));
	return true;
}

// Directories of instances, which daemons leave behind.
static void
remove_empty(void)
{
	DIR *dir = opendir(fake_dir);
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR);
	if (dir)
		closedir(dir);
}

int
fake_teardown(void **state)
{
	bool crashed = false;
	char path[128];
	int bad = 0;

	// Before any ends: a SIGCONT takes away the SIGSTOP by which the search for leaks stops a
	// process that exits, and both wait for ever.
	for (int i = 0; i < fake_count; i++)
		if (fake_control[i].pid)
			kill(fake_control[i].pid, SIGCONT);
	// Many end at once; of two each tells the other.
	for (int i = 0; fake_count > 2 && i < fake_count; i++)
		if (fake_control[i].pid && fake_log_count(i, LISTENS) > fake_control[i].listened)
			kill(fake_control[i].pid, SIGTERM);
	for (int i = 0; i < fake_count; i++) {
		int status = 0;

		fake_dp_die(i);
		unlink(fake_dp[i].path);
		if (fake_control[i].pid)
			status = fake_control_stop(i);
		crashed |= has_crashed(i);
		bad += status != 0;
		if (status)
			print_error("control %d ended with %d:\n%s", i, status, fake_log(i));
		fake_log_clear(i);
	}
	remove_empty();
	snprintf(path, sizeof(path), "%s/log-run", fake_dir);
	unlink(path);
	unlink(fake_peers);
	port_drop_all();
	assert_int_equal(rmdir(fake_dir), 0);
	assert_int_equal(bad, 0);
	assert_false(crashed);
	return 0;
}

int
fake_main(int argc, char **argv, const char *name, const struct CMUnitTest *tests, size_t count)
{
	if (argc < 2) {
		fprintf(stderr, "usage: %s PROGRAM-UNDER-TEST\n", argv[0]);
		return 2;
	}
	fake_binary = argv[1];
	return _cmocka_run_group_tests(name, tests, count, NULL, NULL);
}

void
fake_links_outlive_controls(void)
{
	fake_dp[A].tell[0] = fake_offer(A, B, 1, 4).link;
	fake_dp[A].tell_count = 1;
	fake_control_kill(A, SIGKILL);
	fake_control_start(A);
	AWAIT(fake_dp[A].hellos == 2 && fake_dp[A].synced && fake_sees(A, 2, WEIR_NODE_UP), LONG);
	fake_control_kill(B, SIGKILL);
	AWAIT(fake_sees(A, 2, WEIR_NODE_SUSPECT), LONG);
	fake_pump(2000);
	assert_int_equal(fake_dp[A].told[2][WEIR_NODE_DOWN], 0);
	fake_control_start(B);
	AWAIT(fake_sees(A, 2, WEIR_NODE_UP), LONG);
}

/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "stranger.h"

#include "rounds.h"

#include <arpa/inet.h>
#include <ftw.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#define DAY 86400

char certificates[64];

// ---- certificates ----

static char paths[32][160];

char *
certificate_path(const char *name)
{
	char path[160];

	snprintf(path, sizeof(path), "%s/%s", certificates, name);
	for (int i = 0; i < 32; i++) {
		if (!paths[i][0])
			memcpy(paths[i], path, sizeof(path));
		if (!strcmp(paths[i], path))
			return paths[i];
	}
	fail_msg("more than 32 paths of certificates");
	return NULL;
}

void
make_ca(const char *ca)
{
	struct pki_order order = {.cluster = "default"};
	char error[256];

	order.from = time(NULL) - 10 * DAY;
	order.until = time(NULL) + 10 * DAY;
	if (pki_make_ca(certificate_path(ca), &order, error, sizeof(error)))
		fail_msg("%s", error);
}

const char *
issue(const char *ca, const char *dir, uint32_t node, long from, long until)
{
	struct pki_order order = {.node = node, .force = true};
	char error[256], *path;

	path = certificate_path(dir);
	order.from = time(NULL) + from;
	order.until = time(NULL) + until;
	if (pki_issue(certificate_path(ca), path, &order, error, sizeof(error)))
		fail_msg("%s", error);
	return path;
}

void
make_certificates(void)
{
	signal(SIGPIPE, SIG_IGN); // OpenSSL writes without MSG_NOSIGNAL
	memset(paths, 0, sizeof(paths));
	snprintf(certificates, sizeof(certificates), "/tmp/weir-certificates-XXXXXX");
	assert_non_null(mkdtemp(certificates));
	make_ca("ca");
	issue("ca", "1", 1, -60, DAY);
	issue("ca", "2", 2, -60, DAY);
	issue("ca", "3", 3, -60, DAY);
	issue("ca", "any", PKI_ANY_NODE, -60, DAY);
}

static int
remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

void
remove_certificates(void)
{
	nftw(certificates, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

// ---- strangers ----

int
knock(int i)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct timeval limit = {.tv_sec = LONG / 1000};
	int one = 1;

	to.sin_port = htons(fake_control[i].port);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

// False: it was closed meanwhile, by a control for which we were too slow.
static bool
try_tls(int i, const char *dir, struct stranger *s)
{
	SSL_CTX *context = SSL_CTX_new(TLS_client_method());
	char path[256];

	snprintf(path, sizeof(path), "%s/node.pem", dir);
	assert_int_equal(SSL_CTX_use_certificate_chain_file(context, path), 1);
	snprintf(path, sizeof(path), "%s/node.key", dir);
	assert_int_equal(SSL_CTX_use_PrivateKey_file(context, path, SSL_FILETYPE_PEM), 1);
	SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF);
	s->fd = knock(i);
	s->ssl = SSL_new(context);
	SSL_CTX_free(context);
	SSL_set_fd(s->ssl, s->fd);
	if (SSL_connect(s->ssl) == 1)
		return true;
	leave(*s);
	return false;
}

struct stranger
knock_tls(int i, const char *dir)
{
	uint64_t end = now_ms() + LONG;
	struct stranger s;

	while (!try_tls(i, dir, &s))
		assert_true(now_ms() < end);
	return s;
}

struct stranger
knock_as(int i, const char *dir)
{
	return dir ? knock_tls(i, dir) : (struct stranger){.fd = knock(i)};
}

bool
try_say(struct stranger s, const void *data, size_t length)
{
	if (s.ssl)
		return SSL_write(s.ssl, data, (int)length) == (int)length;
	return send(s.fd, data, length, MSG_NOSIGNAL) == (ssize_t)length;
}

void
say(struct stranger s, const void *data, size_t length)
{
	assert_true(try_say(s, data, length));
}

void
say_msg(struct stranger s, const struct control_msg *m)
{
	uint8_t data[CONTROL_ENCODED_MAX];
	size_t n = control_msg_encode(m, data, sizeof(data));

	assert_int_not_equal(n, 0);
	say(s, data, n);
}

static ssize_t
hear(struct stranger s, void *data, size_t size)
{
	return s.ssl ? SSL_read(s.ssl, data, (int)size) : recv(s.fd, data, size, 0);
}

void
leave(struct stranger s)
{
	SSL_free(s.ssl);
	close(s.fd);
}

const char *
reason(struct stranger s)
{
	static struct control_msg m;
	uint8_t data[4096];
	size_t have = 0, n;
	uint64_t end = now_ms() + LONG;

	for (;;) {
		struct pollfd p = {s.fd, POLLIN, 0};
		ssize_t got;

		if (now_ms() > end)
			fake_patience = 4000;
		SURELY(now_ms() < end);
		fake_pump(10);
		if (!(s.ssl && SSL_pending(s.ssl)) && poll(&p, 1, 0) == 0)
			continue;
		got = hear(s, data + have, sizeof(data) - have);
		if (got <= 0)
			break;
		have += got;
	}
	leave(s);
	// Whoever was let in before is said hello first.
	for (size_t at = 0; control_frame_next(data + at, have - at, CONTROL_FRAME_MAX, &n) == 1;
	     at += CONTROL_PREFIX + n)
		if (!control_msg_decode(data + at + CONTROL_PREFIX, n, &m) &&
		    m.type == CONTROL_ERROR)
			return m.error.reason;
	return "";
}

const char *
answer_to(int i, const char *dir, const void *data, size_t length)
{
	uint64_t end = now_ms() + LONG;

	for (;;) {
		struct stranger s = knock_as(i, dir);
		bool said = try_say(s, data, length);
		const char *why = reason(s);

		if ((said && *why && !strstr(why, "handshake not done")) || now_ms() > end)
			return why;
	}
}

struct control_msg
hello(uint32_t node)
{
	static uint64_t calls;
	struct control_msg m = {.type = CONTROL_HELLO};

	m.hello.versions = CONTROL_VERSIONS;
	snprintf(m.hello.cluster, sizeof(m.hello.cluster), "default");
	// Newer than what the real one has said, each time.
	m.hello.record =
	    (struct swim_record){.id = node,
				 .status = SWIM_ALIVE,
				 .run = 77,
				 .version = SWIM_UP + (UINT64_C(1) << 42) + 1000 * ++calls};
	snprintf(m.hello.info.control, sizeof(m.hello.info.control), "127.0.0.1:1");
	m.hello.info.dp.state = DP_UP;
	m.hello.info.dp.incarnation = 100;
	return m;
}

unsigned long
resident(pid_t pid)
{
	char path[64], line[128];
	unsigned long kib = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "VmRSS: %lu", &kib) == 1)
			break;
	if (f)
		fclose(f);
	assert_int_not_equal(kib, 0);
	return kib;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Certificates between controls: which are taken, what is said of those that aren't, rotation; keys
 * and passwords that others may read. */
#include "rounds.h"
#include "stranger.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HOUR 3600
#define DAY (24 * HOUR)

// Node 1 (A) dials node 2 (B).
static void
start(int i, const char *dir)
{
	fake_control[i].tls = dir;
	fake_control_start(i);
}

static int
setup(void **state)
{
	fake_setup(state);
	make_certificates();
	for (int i = 0; i < 2; i++)
		fake_dp_start(i, 100 + i);
	return 0;
}

static int
teardown(void **state)
{
	fake_teardown(state);
	remove_certificates();
	return 0;
}

static void
await_up(void)
{
	AWAIT(fake_dp[A].told[2][WEIR_NODE_UP] && fake_dp[B].told[1][WEIR_NODE_UP], LONG);
}

struct fault {
	const char *dir; /* of the one that is at fault */
	long from, until;
	const char *own, *other; /* what it says at start, and what the good one says of it */
};

static const struct fault faults[] = {
    {"expired", -2 * DAY, -HOUR - 60, ", has expired; issue a new one", "expired on"},
    {"later", HOUR + 60, DAY, ", is not valid yet; set this host's", "is not valid before"},
};

static void
stop_both(void)
{
	for (int i = 0; i < 2; i++) {
		assert_int_equal(fake_control_stop(i), 0);
		fake_log_clear(i);
	}
}

// Both ends say what is wrong, whoever dials, and go on trying.
static void
bad_certificate(int bad)
{
	for (unsigned i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		const struct fault *f = &faults[i];

		start(!bad, certificate_path(bad == A ? "2" : "1"));
		start(bad, issue("ca", f->dir, bad + 1, f->from, f->until));
		AWAIT(fake_log_count(bad, f->own), LONG);
		AWAIT(fake_log_count(!bad, f->other), LONG);
		AWAIT(fake_log_count(bad, "it does not accept our certificate, valid from"), LONG);
		fake_pump(500);
		assert_int_equal(fake_dp[A].told[2][WEIR_NODE_UP], 0);
		assert_in_range(fake_log_count(A, "; trying again"), 1, 2);
		stop_both();
	}
}

static void
test_bad_certificate_of_dialler(void **state)
{
	bad_certificate(A);
}

static void
test_bad_certificate_of_dialled(void **state)
{
	bad_certificate(B);
}

// The dialler sees the other's certificate first.
static void
test_foreign_certificate(void **state)
{
	make_ca("foreign");
	start(A, certificate_path("1"));
	start(B, issue("foreign", "foreigner", 2, -60, DAY));
	AWAIT(fake_log_count(A, "its certificate (weir://default/node/2, issued by /CN=Weir CA of "
				"default) does not come from a CA in our ca.pem; use one CA"),
	      LONG);
	AWAIT(fake_log_count(B, "its ca.pem does not know /CN=Weir CA of default"), LONG);
	assert_int_equal(fake_dp[A].told[2][WEIR_NODE_UP], 0);
}

// An error that is not TLS's is not reported as one.
static void
test_nobody_there(void **state)
{
	start(A, certificate_path("1"));
	AWAIT(fake_log_count(A, "is not connected: Connection refused; trying again"), LONG);
	assert_int_equal(fake_log_count(A, "TLS failed"), 0);
}

static void
test_one_end_plain(void **state)
{
	start(A, certificate_path("1"));
	start(B, NULL);
	AWAIT(fake_log_count(A, "it does not speak TLS; give --tls to all nodes or to none"), LONG);
	AWAIT(fake_log_count(B, "it speaks TLS, which is not spoken here"), LONG);
	stop_both();
	start(A, NULL);
	start(B, certificate_path("2"));
	AWAIT(fake_log_count(B, "it does not speak TLS; give --tls to all nodes or to none"), LONG);
	AWAIT(fake_log_count(A, "; trying again"), LONG);
}

// A certificate is for one node: with it nobody can be another.
static void
test_somebody_else(void **state)
{
	struct control_msg m = hello(1);
	uint8_t data[CONTROL_ENCODED_MAX];
	size_t n = control_msg_encode(&m, data, sizeof(data));
	struct stranger s;

	start(B, certificate_path("2"));
	AWAIT(fake_dp[B].hellos, LONG);
	assert_string_equal(
	    answer_to(B, certificate_path("3"), data, n),
	    "node 1 of 'default' shows a certificate of weir://default/node/3; check its --tls");
	assert_int_equal(fake_dp[B].told[1][WEIR_NODE_UP], 0);
	s = knock_tls(B, certificate_path("1"));
	say(s, data, n);
	AWAIT(fake_dp[B].told[1][WEIR_NODE_UP], LONG);
	leave(s);
}

static void
refused_handshake(int version, const char *dir, const char *said)
{
	SSL_CTX *context = SSL_CTX_new(TLS_client_method());
	int fd = knock(B);
	char byte;
	SSL *ssl;

	SSL_CTX_set_max_proto_version(context, version);
	if (dir) {
		char path[200];

		snprintf(path, sizeof(path), "%s/node.pem", dir);
		SSL_CTX_use_certificate_chain_file(context, path);
		snprintf(path, sizeof(path), "%s/node.key", dir);
		SSL_CTX_use_PrivateKey_file(context, path, SSL_FILETYPE_PEM);
	}
	ssl = SSL_new(context);
	SSL_set_fd(ssl, fd);
	// In TLS 1.3 a client hears of its refusal when it reads.
	assert_true(SSL_connect(ssl) != 1 || SSL_read(ssl, &byte, 1) <= 0);
	AWAIT(fake_log_count(B, said), LONG);
	SSL_free(ssl);
	SSL_CTX_free(context);
	close(fd);
}

static void
test_refused_handshakes(void **state)
{
	start(B, certificate_path("2"));
	AWAIT(fake_dp[B].hellos, LONG);
	refused_handshake(TLS1_2_VERSION, certificate_path("1"), "it speaks no TLS 1.3");
	fake_pump(1100); // a line a second
	refused_handshake(TLS1_3_VERSION, NULL, "it shows no certificate");
}

// Within TLS's own handshake, byte by byte and at all: two seconds.
static void
test_slow_tls(void **state)
{
	static const uint8_t begin[] = {0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3};
	uint64_t from;
	struct stranger s, silent;

	start(B, certificate_path("2"));
	AWAIT(fake_dp[B].hellos, LONG);
	from = now_ms();
	s.fd = knock(B);
	silent.fd = knock(B);
	s.ssl = silent.ssl = NULL;
	for (size_t i = 0; i < sizeof(begin); i++) {
		say(s, begin + i, 1);
		fake_pump(50);
	}
	assert_string_equal(reason(s), "");
	assert_string_equal(reason(silent), "");
	assert_in_range(now_ms() - from, 1500, 6000);
	assert_true(fake_log_count(B, "handshake not done within 2 s") >= 1);
}

static long
serial_shown(void)
{
	struct stranger s = knock_tls(B, certificate_path("any"));
	X509 *x = SSL_get1_peer_certificate(s.ssl);
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned length;
	long first;

	assert_int_equal(X509_digest(x, EVP_sha256(), digest, &length), 1);
	memcpy(&first, digest, sizeof(first));
	X509_free(x);
	leave(s);
	return first;
}

static void
scribble(const char *path)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	fputs("-----BEGIN CERTIFICATE-----\nnone\n", f);
	fclose(f);
}

// New files and SIGHUP: who comes then is shown the new ones, who is there stays.
static void
test_rotation(void **state)
{
	char path[200];
	long before;

	start(A, certificate_path("1"));
	start(B, certificate_path("2"));
	await_up();
	before = serial_shown();
	issue("ca", "2", 2, -60, 2 * DAY);
	assert_int_equal(serial_shown(), before);
	fake_control_kill(B, SIGHUP);
	AWAIT(fake_log_count(B, "read again: certificate of weir://default/node/2") == 1, LONG);
	assert_int_not_equal(serial_shown(), before);
	before = serial_shown();
	// Broken ones change nothing.
	snprintf(path, sizeof(path), "%s/node.pem", certificate_path("2"));
	scribble(path);
	fake_control_kill(B, SIGHUP);
	AWAIT(fake_log_count(B, "certificates stay as they were: ") == 1, LONG);
	assert_int_equal(serial_shown(), before);
	assert_int_equal(fake_dp[A].told[2][WEIR_NODE_SUSPECT], 0);
	assert_int_equal(fake_dp[B].told[1][WEIR_NODE_SUSPECT], 0);
	assert_int_equal(fake_log_count(A, "ended"), 0);
}

static char told_certificate[512]; // by B to its data plane

static void
told(int i, const struct weir_ctl_msg *m)
{
	if (i == B && m->type == WEIR_CTL_FACT && !strcmp(m->fact.name, "certificate"))
		snprintf(told_certificate, sizeof(told_certificate), "%s", m->fact.value);
}

// A certificate near its end: warned of, shown, and quiet again after a new one and SIGHUP.
static void
test_expiry(void **state)
{
	fake_told = told;
	issue("ca", "2", 2, -60, 12 * DAY + HOUR);
	start(B, certificate_path("2"));
	AWAIT(fake_log_count(B, "certificate of weir://default/node/2 expires on ") == 1, LONG);
	assert_int_equal(fake_log_count(B, ", in 12 days; put a new one into "), 1);
	AWAIT(strstr(told_certificate, ", 12 days left"), LONG);
	assert_non_null(strstr(told_certificate, "weir://default/node/2, valid until 20"));
	issue("ca", "2", 2, -60, 200 * DAY + HOUR);
	fake_control_kill(B, SIGHUP);
	AWAIT(strstr(told_certificate, ", 200 days left"), LONG);
	assert_int_equal(fake_log_count(B, "certificate of weir://default/node/2 expires on "), 1);
	issue("ca", "2", 2, -2 * DAY, -HOUR);
	fake_control_kill(B, SIGHUP);
	AWAIT(fake_log_count(B, "certificate of weir://default/node/2 has expired on ") == 1, LONG);
	fake_told = NULL;
}

static void
fails(int code, const char *node, const char *cluster, const char *said)
{
	char text[2048], *dir = certificate_path("1");
	char *argv[] = {(char *)fake_binary, "--instance",     "x",	  "--node",   (char *)node,
			"--listen",	     "192.0.2.1:7471", "--peers", fake_peers, "--cluster",
			(char *)cluster,     "--tls",	       dir,	  NULL};
	int status = fake_run(argv, text, sizeof(text));

	if (status != code || !strstr(text, said))
		fail_msg("exit %d, not %d, or not '%s': %s", status, code, said, text);
}

static void
test_files(void **state)
{
	char key[200], other[200];

	snprintf(key, sizeof(key), "%s/node.key", certificate_path("1"));
	snprintf(other, sizeof(other), "%s/node.key", certificate_path("2"));
	fails(2, "2", "default", "node.pem is of weir://default/node/1, this is node 2");
	fails(2, "1", "other", "this is node 1 of cluster 'other'; check --node");
	// Any address will do, with TLS: this one isn't ours.
	fails(3, "1", "default", "cannot listen on 192.0.2.1:7471");
	chmod(key, 0640);
	fails(3, "1", "default", "is open to others (mode 0640); chmod 600 it");
	chmod(key, 0600);
	assert_int_equal(rename(other, key), 0);
	fails(2, "1", "default", "is not the key of node.pem");
	scribble(key);
	fails(2, "1", "default", "holds no key without passphrase");
	unlink(key);
	fails(2, "1", "default", "cannot read");
	issue("ca", "1", 1, -60, DAY);
	make_ca("foreign");
	snprintf(key, sizeof(key), "%s/ca.pem", certificate_path("1"));
	snprintf(other, sizeof(other), "%s/ca.pem", certificate_path("foreign"));
	assert_int_equal(rename(other, key), 0);
	fails(2, "1", "default", "does not come from ca.pem");
	scribble(key);
	fails(2, "1", "default", "holds no certificate");
}

static void
write_file(const char *path, const char *text, mode_t mode)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
	assert_int_equal(chmod(path, mode), 0);
}

// The first line of a file that only its owner may read, whether it has an end or not.
static void
test_etcd_password(void **state)
{
	static const struct {
		const char *text, *says;
		mode_t mode;
		int exits;
	} files[] = {{"secret", "is not HOST:PORT", 0600, 2}, // --listen is looked at afterwards
		     {"secret\n", "is not HOST:PORT", 0400, 2},
		     {"secret\r\nmore\n", "is not HOST:PORT", 0600, 2},
		     {"", "no password", 0600, 2},
		     {"\n", "no password", 0600, 2},
		     {"secret\n", "is open to others (mode 0640); chmod 600 it", 0640, 3},
		     {"secret\n", "is open to others (mode 0604); chmod 600 it", 0604, 3},
		     {"secret\n", "is open to others (mode 0620); chmod 600 it", 0620, 3}};
	char *argv[] = {
	    (char *)fake_binary,  "--node",	 "1", "--listen",	 "127.0.0.1", "--etcd",
	    "http://127.0.0.1:1", "--etcd-user", "u", "--etcd-password", fake_peers,  NULL};
	char text[512];

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		write_file(fake_peers, files[i].text, files[i].mode);
		assert_int_equal(fake_run(argv, text, sizeof(text)), files[i].exits);
		if (!strstr(text, files[i].says))
			fail_msg("case %zu: '%s'", i, text);
	}
	argv[10] = fake_dir;
	assert_int_equal(fake_run(argv, text, sizeof(text)), 2);
	assert_non_null(strstr(text, "is not a file; give a file with a password"));
	argv[10] = "/nonexistent";
	assert_int_equal(fake_run(argv, text, sizeof(text)), 2);
	assert_non_null(strstr(text, "--etcd-password: cannot read /nonexistent: No such file"));
}

// The same of the key that etcd may ask for.
static void
test_etcd_key(void **state)
{
	static const char *const name[] = {"ca.pem", "node.pem", "node.key"};
	char dir[96], path[3][128], text[512];
	char *argv[] = {(char *)fake_binary,   "--node",     "1", "--listen", "127.0.0.1", "--etcd",
			"https://localhost:1", "--etcd-tls", dir, NULL};

	snprintf(dir, sizeof(dir), "%s/tls", fake_dir);
	assert_int_equal(mkdir(dir, 0700), 0);
	for (int i = 0; i < 3; i++) {
		snprintf(path[i], sizeof(path[i]), "%s/%s", dir, name[i]);
		if (i < 2)
			write_file(path[i], "", 0644);
	}
	assert_int_equal(fake_run(argv, text, sizeof(text)), 2);
	assert_non_null(strstr(text, "node.key: No such file or directory; put the key of"));
	write_file(path[2], "", 0644);
	assert_int_equal(fake_run(argv, text, sizeof(text)), 3);
	assert_non_null(strstr(text, "node.key is open to others (mode 0644); chmod 600 it"));
	assert_int_equal(chmod(path[2], 0600), 0);
	assert_int_equal(fake_run(argv, text, sizeof(text)), 2);
	assert_non_null(strstr(text, "is not HOST:PORT"));
	for (int i = 0; i < 3; i++)
		unlink(path[i]);
	assert_int_equal(rmdir(dir), 0);
}

int
main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define TIMED(name) ROUNDS(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TIMED(test_bad_certificate_of_dialler),
	    TIMED(test_bad_certificate_of_dialled),
	    TEST(test_foreign_certificate),
	    TEST(test_nobody_there),
	    TEST(test_one_end_plain),
	    TIMED(test_somebody_else),
	    TIMED(test_refused_handshakes),
	    TIMED(test_slow_tls),
	    TIMED(test_rotation),
	    TEST(test_expiry),
	    TEST(test_files),
	    TEST(test_etcd_password),
	    TEST(test_etcd_key),
	};

	return FAKE_MAIN("control_tls", tests);
}

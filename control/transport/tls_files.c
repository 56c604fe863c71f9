/* SPDX-License-Identifier: BSD-3-Clause */
#include "tls_files.h"

#include "base/fail.h"
#include "base/secret.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHAIN_DEPTH 4	       /* certificates between a node's and a CA */
#define CHAIN_BYTES (16 << 10) /* of the other end's certificates */

struct load {
	const char *dir;
	SSL_CTX *context;
	char *error;
	size_t size;
};

static const char *
openssl_reason(void)
{
	const char *text = ERR_reason_error_string(ERR_peek_last_error());

	return text ? text : "out of memory";
}

// ---- what a certificate says ----

static void
copy_printable(const char *from, int length, char to[TLS_NAME_MAX])
{
	int n = length < TLS_NAME_MAX - 1 ? length : TLS_NAME_MAX - 1;

	for (int i = 0; i < n; i++)
		to[i] = from[i] > ' ' - 1 && from[i] < 127 ? from[i] : '?';
	to[n > 0 ? n : 0] = 0;
}

// Finds a URI among the certificate's alternative names that is `exact`, or begins with `prefix`
// (NULL: none does). Copies it to `name` if not NULL.
static bool
find_uri(const X509 *certificate, const char *exact, const char *prefix, char *name)
{
	GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
	bool found = false;

	for (int i = 0; i < sk_GENERAL_NAME_num(names) && !found; i++) {
		const GENERAL_NAME *n = sk_GENERAL_NAME_value(names, i);
		const char *uri;
		size_t length;

		if (n->type != GEN_URI)
			continue;
		uri = (const char *)ASN1_STRING_get0_data(n->d.ia5);
		length = (size_t)ASN1_STRING_length(n->d.ia5);
		found =
		    (length == strlen(exact) && !memcmp(uri, exact, length)) ||
		    (prefix && length >= strlen(prefix) && !memcmp(uri, prefix, strlen(prefix)));
		if (found && name)
			copy_printable(uri, (int)length, name);
	}
	GENERAL_NAMES_free(names);
	return found;
}

bool
tls_certificate_is(const X509 *certificate, const char *cluster, uint32_t node)
{
	char any[TLS_NAME_MAX], own[TLS_NAME_MAX], below[TLS_NAME_MAX];

	snprintf(any, sizeof(any), "weir://%s", cluster);
	snprintf(own, sizeof(own), "weir://%s/node/%u", cluster, node);
	snprintf(below, sizeof(below), "weir://%s/", cluster);
	return find_uri(certificate, any, node == TLS_NODE_UNKNOWN ? below : NULL, NULL) ||
	       (node != TLS_NODE_UNKNOWN && find_uri(certificate, own, NULL, NULL));
}

static void
copy_subject(const X509_NAME *subject, char name[TLS_NAME_MAX])
{
	char text[256];

	if (!X509_NAME_oneline(subject, text, sizeof(text)))
		text[0] = 0;
	copy_printable(text, (int)strlen(text), name);
}

void
tls_certificate_name(const X509 *certificate, char name[TLS_NAME_MAX])
{
	if (!find_uri(certificate, "weir://", "weir://", name))
		copy_subject(X509_get_subject_name(certificate), name);
}

void
tls_issuer_name(const X509 *certificate, char name[TLS_NAME_MAX])
{
	copy_subject(X509_get_issuer_name(certificate), name);
}

void
tls_time_text(const ASN1_TIME *time, char text[TLS_TIME_MAX])
{
	struct tm tm;

	if (!ASN1_TIME_to_tm(time, &tm) ||
	    !strftime(text, TLS_TIME_MAX, "%Y-%m-%d %H:%M:%S UTC", &tm))
		snprintf(text, TLS_TIME_MAX, "an unreadable date");
}

// ---- loading ----

// An encrypted key would have us ask for its passphrase.
static int
no_passphrase(char *buf, int size, int rwflag, void *user)
{
	return -1;
}

static int
load_key(const struct load *l)
{
	char path[512];
	EVP_PKEY *key;
	BIO *file;
	int status = 0, fd;

	snprintf(path, sizeof(path), "%s/node.key", l->dir);
	fd = secret_open(path, "see weirctl pki", l->error, l->size);
	if (fd < 0)
		return fd;
	file = BIO_new_fd(fd, BIO_CLOSE);
	if (!file) {
		close(fd);
		return fail(l->error, l->size, -ENOMEM, "out of memory for %s; free some", path);
	}
	key = PEM_read_bio_PrivateKey(file, NULL, no_passphrase, NULL);
	BIO_free(file);
	if (!key)
		return fail(l->error, l->size, -EINVAL,
			    "%s holds no key without passphrase: %s; see weirctl pki", path,
			    openssl_reason());
	if (SSL_CTX_use_PrivateKey(l->context, key) != 1)
		status = fail(l->error, l->size, -EINVAL,
			      "%s is not the key of node.pem: %s; put both of one node there", path,
			      openssl_reason());
	EVP_PKEY_free(key);
	return status;
}

// Would others believe us, if it weren't for the time?
static int
check_chain(const struct load *l, X509 *own)
{
	X509_STORE_CTX *check = X509_STORE_CTX_new();
	char issuer[TLS_NAME_MAX];
	STACK_OF(X509) *chain = NULL;
	int status = 0;

	SSL_CTX_get0_chain_certs(l->context, &chain);
	if (!check || !X509_STORE_CTX_init(check, SSL_CTX_get_cert_store(l->context), own, chain)) {
		status =
		    fail(l->error, l->size, -ENOMEM, "out of memory for certificates; free some");
	} else {
		X509_STORE_CTX_set_flags(check, X509_V_FLAG_NO_CHECK_TIME);
		X509_STORE_CTX_set_default(check, "ssl_server");
		tls_issuer_name(own, issuer);
		if (X509_verify_cert(check) != 1)
			status =
			    fail(l->error, l->size, -EINVAL,
				 "%s/node.pem, issued by %s, does not come from ca.pem: %s; "
				 "put files of one CA there",
				 l->dir, issuer,
				 X509_verify_cert_error_string(X509_STORE_CTX_get_error(check)));
	}
	X509_STORE_CTX_free(check);
	return status;
}

int
tls_files_load(const char *dir, const char *cluster, uint32_t node, SSL_CTX **context, char *error,
	       size_t size)
{
	static const char *const names[] = {"ca.pem", "node.pem"};
	struct load l = {.dir = dir, .error = error, .size = size};
	char path[512], name[TLS_NAME_MAX];
	int status = 0;
	X509 *own;

	ERR_clear_error();
	l.context = SSL_CTX_new(TLS_method());
	if (!l.context)
		return fail(l.error, l.size, -ENOMEM, "TLS cannot be set up: %s; free memory",
			    openssl_reason());
	// One version, no tickets: a connection is always made by certificates that are valid then.
	SSL_CTX_set_min_proto_version(l.context, TLS1_3_VERSION);
	SSL_CTX_set_session_cache_mode(l.context, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_num_tickets(l.context, 0);
	SSL_CTX_set_verify_depth(l.context, CHAIN_DEPTH);
	SSL_CTX_set_max_cert_list(l.context, CHAIN_BYTES);
	SSL_CTX_set_mode(l.context, SSL_MODE_RELEASE_BUFFERS);
	// Messages have lengths and an end of their own: whoever cuts the stream gains nothing.
	SSL_CTX_set_options(l.context, SSL_OP_IGNORE_UNEXPECTED_EOF);
	for (int i = 0; i < 2 && !status; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		if (access(path, R_OK))
			status = fail(l.error, l.size, -errno,
				      "cannot read %s: %s; see weirctl pki", path, strerror(errno));
		else if ((i ? SSL_CTX_use_certificate_chain_file(l.context, path)
			    : SSL_CTX_load_verify_file(l.context, path)) != 1)
			status = fail(l.error, l.size, -EINVAL,
				      "%s holds no certificate: %s; see weirctl pki", path,
				      openssl_reason());
	}
	if (!status)
		status = load_key(&l);
	own = SSL_CTX_get0_certificate(l.context);
	if (!status && tls_certificate_is(own, cluster, node)) {
		status = check_chain(&l, own);
	} else if (!status) {
		tls_certificate_name(own, name);
		status = node == TLS_NODE_UNKNOWN
			     ? fail(l.error, l.size, -EINVAL,
				    "%s/node.pem is of %s, this is cluster '%s'; check --cluster "
				    "and --tls",
				    dir, name, cluster)
			     : fail(l.error, l.size, -EINVAL,
				    "%s/node.pem is of %s, this is node %u of cluster '%s'; check "
				    "--node, --cluster and --tls",
				    dir, name, node, cluster);
	}
	if (status)
		SSL_CTX_free(l.context);
	else
		*context = l.context;
	ERR_clear_error();
	return status;
}

static double
days_left(const ASN1_TIME *until)
{
	int days = 0, seconds = 0;

	return ASN1_TIME_diff(&days, &seconds, NULL, until) == 1 ? days + seconds / 86400.0 : 0;
}

void
tls_files_expiry(SSL_CTX *context, struct tls_expiry *e)
{
	X509 *own = SSL_CTX_get0_certificate(context), *ca = own;
	X509_STORE_CTX *check = X509_STORE_CTX_new();
	STACK_OF(X509) *chain = NULL;

	// The chain as it was found when the files were read.
	SSL_CTX_get0_chain_certs(context, &chain);
	if (check && X509_STORE_CTX_init(check, SSL_CTX_get_cert_store(context), own, chain)) {
		X509_STORE_CTX_set_flags(check, X509_V_FLAG_NO_CHECK_TIME);
		X509_STORE_CTX_set_default(check, "ssl_server");
		if (X509_verify_cert(check) == 1) {
			chain = X509_STORE_CTX_get0_chain(check);
			ca = sk_X509_value(chain, sk_X509_num(chain) - 1);
		}
	}
	e->node_days = days_left(X509_get0_notAfter(own));
	e->ca_days = days_left(X509_get0_notAfter(ca));
	tls_certificate_name(own, e->name);
	tls_certificate_name(ca, e->ca);
	tls_time_text(X509_get0_notAfter(own), e->node_until);
	tls_time_text(X509_get0_notAfter(ca), e->ca_until);
	X509_STORE_CTX_free(check);
	ERR_clear_error();
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "pki.h"

#include "base/fail.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SERIAL_BYTES 16

struct job {
	const struct pki_order *order;
	char *error;
	size_t size;
	EVP_PKEY *key, *ca_key;
	X509 *certificate, *ca;
	char cluster[64];
};

static int
fail_openssl(const struct job *j, const char *what)
{
	const char *text = ERR_reason_error_string(ERR_peek_last_error());

	return fail(j->error, j->size, -EIO, "cannot make %s: %s; see openssl's installation", what,
		    text ? text : "out of memory");
}

static void
job_free(struct job *j)
{
	EVP_PKEY_free(j->key);
	EVP_PKEY_free(j->ca_key);
	X509_free(j->certificate);
	X509_free(j->ca);
}

// ---- certificates ----

static bool
add_extension(X509 *x, X509 *issuer, int nid, const char *value)
{
	X509_EXTENSION *extension;
	X509V3_CTX context;
	bool ok;

	X509V3_set_ctx(&context, issuer, x, NULL, NULL, 0);
	extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
	ok = extension && X509_add_ext(x, extension, -1) == 1;
	X509_EXTENSION_free(extension);
	return ok;
}

// A certificate without extensions; `issuer` NULL: of its own.
static X509 *
begin(const struct job *j, const char *name, X509 *issuer)
{
	X509 *x = X509_new();
	X509_NAME *subject = x ? X509_get_subject_name(x) : NULL;
	uint8_t serial[SERIAL_BYTES];
	BIGNUM *n = NULL;
	bool ok;

	if (RAND_bytes(serial, sizeof(serial)) == 1) {
		serial[0] = (serial[0] & 0x7f) | 0x40; // positive, and never short
		n = BN_bin2bn(serial, sizeof(serial), NULL);
	}
	ok = x && n && BN_to_ASN1_INTEGER(n, X509_get_serialNumber(x));
	BN_free(n);
	if (ok && X509_set_version(x, X509_VERSION_3) == 1 &&
	    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, (const unsigned char *)name,
				       -1, -1, 0) == 1 &&
	    X509_set_issuer_name(x, issuer ? X509_get_subject_name(issuer) : subject) == 1 &&
	    ASN1_TIME_set(X509_getm_notBefore(x), j->order->from) &&
	    ASN1_TIME_set(X509_getm_notAfter(x), j->order->until) &&
	    X509_set_pubkey(x, j->key) == 1)
		return x;
	X509_free(x);
	return NULL;
}

static int
make_node_certificate(struct job *j)
{
	const struct pki_order *o = j->order;
	const char *at = o->addresses;
	char name[96], names[2048]; // "URI:weir://c/node/1,IP:10.0.0.1,DNS:host"
	X509 *x;
	int n;

	if (o->node == PKI_ANY_NODE) {
		snprintf(name, sizeof(name), "node of %s", j->cluster);
		n = snprintf(names, sizeof(names), "URI:weir://%s", j->cluster);
	} else {
		snprintf(name, sizeof(name), "node %u of %s", o->node, j->cluster);
		n = snprintf(names, sizeof(names), "URI:weir://%s/node/%u", j->cluster, o->node);
	}
	while (at && *at) {
		char address[128];
		size_t length = strcspn(at, ",");
		uint8_t ip[16];
		bool is_ip;

		snprintf(address, sizeof(address), "%.*s", (int)length, at);
		is_ip =
		    inet_pton(AF_INET, address, ip) == 1 || inet_pton(AF_INET6, address, ip) == 1;
		// Text that is not an address must be a name, or it could smuggle in more names.
		if (!length || length >= sizeof(address) || n + length + 8 > sizeof(names) ||
		    (!is_ip &&
		     strspn(address, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				     "0123456789-._") != length))
			return fail(j->error, j->size, -EINVAL,
				    "invalid address '%s' (expected IP addresses or host names, "
				    "separated by commas)",
				    address);
		n += snprintf(names + n, sizeof(names) - (size_t)n, ",%s:%s", is_ip ? "IP" : "DNS",
			      address);
		at += length + (at[length] == ',');
	}
	j->key = EVP_EC_gen("P-256");
	j->certificate = x = j->key ? begin(j, name, j->ca) : NULL;
	if (x && add_extension(x, j->ca, NID_basic_constraints, "critical,CA:FALSE") &&
	    add_extension(x, j->ca, NID_key_usage, "critical,digitalSignature") &&
	    add_extension(x, j->ca, NID_ext_key_usage, "serverAuth,clientAuth") &&
	    add_extension(x, j->ca, NID_subject_key_identifier, "hash") &&
	    add_extension(x, j->ca, NID_authority_key_identifier, "keyid") &&
	    add_extension(x, j->ca, NID_subject_alt_name, names) &&
	    X509_sign(x, j->ca_key, EVP_sha256()) > 0)
		return 0;
	return fail_openssl(j, "a certificate");
}

// ---- files ----

static int
make_dir(const struct job *j, const char *dir)
{
	if (!mkdir(dir, 0700) || errno == EEXIST)
		return 0;
	return fail(j->error, j->size, -errno,
		    "cannot make %s: %s; give a directory that you may write to", dir,
		    strerror(errno));
}

// Beside its place, then moved there: what is there is always whole.
static int
write_file(const struct job *j, const char *dir, const char *name, EVP_PKEY *key, X509 *x)
{
	char path[512], temporary[520];
	int fd, status = 0;
	FILE *f;

	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
		return fail(j->error, j->size, -ENAMETOOLONG, "%s is too long; give a shorter path",
			    dir);
	snprintf(temporary, sizeof(temporary), "%s.new", path);
	unlink(temporary);
	fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	f = fd < 0 ? NULL : fdopen(fd, "w");
	if (!f)
		return fail(j->error, j->size, -errno,
			    "cannot write %s: %s; make room, or give another directory", temporary,
			    strerror(errno));
	errno = 0;
	if ((key ? PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL)
		 : PEM_write_X509(f, x)) != 1 ||
	    fflush(f) || fsync(fd))
		status = errno ? -errno : -EIO;
	if (fclose(f) && !status)
		status = -errno;
	if (!status && !j->order->force && !access(path, F_OK))
		status = -EEXIST;
	if (!status && rename(temporary, path))
		status = -errno;
	if (!status)
		return 0;
	unlink(temporary);
	return fail(j->error, j->size, status, "cannot write %s: %s; %s", path, strerror(-status),
		    status == -EEXIST ? "add --force to write over it" : "make room on that disk");
}

// Before anything is written.
static int
check_free(const struct job *j, const char *dir, const char *const *names, unsigned count)
{
	char path[512];

	for (unsigned i = 0; i < count && !j->order->force; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		if (!access(path, F_OK))
			return fail(j->error, j->size, -EEXIST,
				    "%s is there already; add --force to write over it", path);
	}
	return 0;
}

static FILE *
open_file(const struct job *j, const char *dir, const char *name, int *status)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "re");
	*status = f ? 0
		    : fail(j->error, j->size, -errno,
			   "cannot read %s: %s; make a CA first: weirctl pki %s ca", path,
			   strerror(errno), dir);
	return f;
}

static int
refuse_passphrase(char *buf, int size, int rwflag, void *user)
{
	(void)buf, (void)size, (void)rwflag, (void)user;
	return -1;
}

static int
read_ca(struct job *j, const char *dir)
{
	GENERAL_NAMES *names;
	bool found = false;
	int status;
	FILE *f = open_file(j, dir, "ca.pem", &status);

	if (!f)
		return status;
	j->ca = PEM_read_X509(f, NULL, refuse_passphrase, NULL);
	fclose(f);
	f = open_file(j, dir, "ca.key", &status);
	if (!f)
		return status;
	j->ca_key = PEM_read_PrivateKey(f, NULL, refuse_passphrase, NULL);
	fclose(f);
	if (!j->ca || !j->ca_key || X509_check_private_key(j->ca, j->ca_key) != 1)
		return fail(j->error, j->size, -EINVAL,
			    "%s/ca.pem and ca.key are no CA without passphrase; make one: weirctl "
			    "pki %s ca",
			    dir, dir);
	// the cluster that a CA of ours is of, from its URI
	names = X509_get_ext_d2i(j->ca, NID_subject_alt_name, NULL, NULL);
	for (int i = 0; i < sk_GENERAL_NAME_num(names) && !found; i++) {
		const GENERAL_NAME *n = sk_GENERAL_NAME_value(names, i);
		const char *uri;
		int length;

		if (n->type != GEN_URI)
			continue;
		uri = (const char *)ASN1_STRING_get0_data(n->d.ia5);
		length = ASN1_STRING_length(n->d.ia5);
		if (length <= 7 || memcmp(uri, "weir://", 7) ||
		    (size_t)length - 7 >= sizeof(j->cluster))
			continue;
		snprintf(j->cluster, sizeof(j->cluster), "%.*s", length - 7, uri + 7);
		found = true;
	}
	GENERAL_NAMES_free(names);
	if (!found)
		return fail(j->error, j->size, -EINVAL,
			    "%s/ca.pem names no cluster of Weir; use a CA that weirctl pki has "
			    "made, or issue certificates with the tools of yours",
			    dir);
	if (j->order->until > j->order->from &&
	    X509_cmp_time(X509_get0_notAfter(j->ca), (time_t[]){j->order->from}) < 0)
		return fail(j->error, j->size, -EINVAL,
			    "%s/ca.pem has expired; make a new CA in another directory", dir);
	return 0;
}

int
pki_make_ca(const char *dir, const struct pki_order *order, char *error, size_t size)
{
	static const char *const names[] = {"ca.pem", "ca.key"};
	struct job j = {.order = order, .error = error, .size = size};
	char name[96], uri[96];
	int status;
	X509 *x;

	snprintf(j.cluster, sizeof(j.cluster), "%s", order->cluster);
	snprintf(name, sizeof(name), "Weir CA of %s", j.cluster);
	snprintf(uri, sizeof(uri), "URI:weir://%s", j.cluster);
	status = check_free(&j, dir, names, 2);
	if (!status) {
		j.key = EVP_EC_gen("P-256");
		j.certificate = x = j.key ? begin(&j, name, NULL) : NULL;
		if (!x ||
		    !add_extension(x, x, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
		    !add_extension(x, x, NID_key_usage, "critical,keyCertSign,cRLSign") ||
		    !add_extension(x, x, NID_subject_key_identifier, "hash") ||
		    !add_extension(x, x, NID_subject_alt_name, uri) ||
		    X509_sign(x, j.key, EVP_sha256()) <= 0)
			status = fail_openssl(&j, "a CA");
	}
	if (!status)
		status = make_dir(&j, dir);
	if (!status)
		status = write_file(&j, dir, "ca.key", j.key, NULL);
	if (!status)
		status = write_file(&j, dir, "ca.pem", NULL, j.certificate);
	job_free(&j);
	return status;
}

int
pki_issue(const char *dir, const char *into, const struct pki_order *order, char *error,
	  size_t size)
{
	static const char *const names[] = {"ca.pem", "node.pem", "node.key"};
	struct job j = {.order = order, .error = error, .size = size};
	int status = read_ca(&j, dir);

	if (!status)
		status = check_free(&j, into, names, 3);
	if (!status)
		status = make_node_certificate(&j);
	if (!status)
		status = make_dir(&j, into);
	if (!status)
		status = write_file(&j, into, "ca.pem", NULL, j.ca);
	if (!status)
		status = write_file(&j, into, "node.key", j.key, NULL);
	if (!status)
		status = write_file(&j, into, "node.pem", NULL, j.certificate);
	job_free(&j);
	return status;
}

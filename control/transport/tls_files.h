/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The files behind --tls DIR, and what certificates of Weir say. ca.pem: whom to believe; node.pem:
 * this node's certificate (and what is between it and the CA); node.key: its key, nobody else's to
 * read. A certificate names its node by a URI among its alternative names: weir://CLUSTER/node/ID,
 * or weir://CLUSTER for any node of the cluster.
 */
#ifndef WEIR_CONTROL_TLS_FILES_H
#define WEIR_CONTROL_TLS_FILES_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TLS_NODE_UNKNOWN UINT32_MAX
#define TLS_NAME_MAX 64
#define TLS_TIME_MAX 32

/*
 * Reads the files and checks that they belong together and to this node. 0 and *context (free with
 * SSL_CTX_free), or -errno and "cause; remedy". A certificate that is expired or not valid yet is
 * taken: clocks can be set.
 */
int tls_files_load(const char *dir, const char *cluster, uint32_t node, SSL_CTX **context,
		   char *error, size_t size);

/* Until when our certificate is valid, and that of the CA at the end of its chain. */
struct tls_expiry {
	double node_days, ca_days; /* left; below 0: it has expired */
	char name[TLS_NAME_MAX], node_until[TLS_TIME_MAX], ca[TLS_NAME_MAX], ca_until[TLS_TIME_MAX];
};
void tls_files_expiry(SSL_CTX *context, struct tls_expiry *e);

/* Whether it is the certificate of this node; TLS_NODE_UNKNOWN: of any node of the cluster. */
bool tls_certificate_is(const X509 *certificate, const char *cluster, uint32_t node);
/* Its weir:// URI, else its subject: printable, cut if need be. */
void tls_certificate_name(const X509 *certificate, char name[TLS_NAME_MAX]);
void tls_issuer_name(const X509 *certificate, char name[TLS_NAME_MAX]);
void tls_time_text(const ASN1_TIME *time, char text[TLS_TIME_MAX]);

#endif

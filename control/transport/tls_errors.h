/* SPDX-License-Identifier: BSD-3-Clause */
/* Why TLS failed, for an operator: which certificate, which dates, whose clock, what to do. */
#ifndef WEIR_CONTROL_TLS_ERRORS_H
#define WEIR_CONTROL_TLS_ERRORS_H

#include <openssl/ssl.h>
#include <stddef.h>

#define TLS_ERROR_MAX 256

/* The other end's certificate is not taken. Dates are told without minutes: the text of one fault
 * stays the same from one attempt to the next. */
void tls_error_of_verify(X509_STORE_CTX *check, char words[TLS_ERROR_MAX]);
/* OpenSSL's `error` ended a handshake or a connection. */
void tls_error_text(const SSL *ssl, unsigned long error, char words[TLS_ERROR_MAX]);

#endif

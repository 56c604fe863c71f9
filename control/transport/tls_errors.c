/* SPDX-License-Identifier: BSD-3-Clause */
#include "tls_errors.h"

#include "tls_files.h"

#include <openssl/err.h>
#include <stdio.h>
#include <time.h>

#define HOUR 3600
#define DAY (24 * HOUR)

// "3 hours ago", "in less than an hour".
static void
distance(const ASN1_TIME *time, char *text, size_t size)
{
	int days = 0, seconds = 0;
	long long away;
	bool ago;

	if (!ASN1_TIME_diff(&days, &seconds, NULL, time)) {
		snprintf(text, size, "at an unknown time");
		return;
	}
	away = (long long)days * DAY + seconds;
	ago = away < 0;
	away = ago ? -away : away;
	if (away < HOUR)
		snprintf(text, size, "%sless than an hour%s", ago ? "" : "in ", ago ? " ago" : "");
	else if (away < 2 * DAY)
		snprintf(text, size, "%s%lld h%s", ago ? "" : "in ", away / HOUR,
			 ago ? " ago" : "");
	else
		snprintf(text, size, "%s%lld days%s", ago ? "" : "in ", away / DAY,
			 ago ? " ago" : "");
}

void
tls_error_of_verify(X509_STORE_CTX *check, char words[TLS_ERROR_MAX])
{
	X509 *certificate = X509_STORE_CTX_get_current_cert(check);
	int error = X509_STORE_CTX_get_error(check);
	char name[TLS_NAME_MAX] = "?", issuer[TLS_NAME_MAX] = "?", date[TLS_TIME_MAX], when[48];
	const ASN1_TIME *time = NULL;

	if (certificate) {
		tls_certificate_name(certificate, name);
		time = error == X509_V_ERR_CERT_HAS_EXPIRED ? X509_get0_notAfter(certificate)
							    : X509_get0_notBefore(certificate);
		tls_time_text(time, date);
		distance(time, when, sizeof(when));
	}
	if (time && error == X509_V_ERR_CERT_HAS_EXPIRED)
		snprintf(words, TLS_ERROR_MAX,
			 "its certificate (%s) expired on %s, %s by this host's clock; issue a new "
			 "one, or set the clock that is wrong",
			 name, date, when);
	else if (time && error == X509_V_ERR_CERT_NOT_YET_VALID)
		snprintf(words, TLS_ERROR_MAX,
			 "its certificate (%s) is not valid before %s, %s by this host's clock; "
			 "set the clock that is wrong",
			 name, date, when);
	else if (error == X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY ||
		 error == X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT ||
		 error == X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN ||
		 error == X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT ||
		 error == X509_V_ERR_CERT_SIGNATURE_FAILURE) {
		// Of the other end itself, not of the CA whose certificate failed.
		certificate = X509_STORE_CTX_get0_cert(check);
		if (certificate) {
			tls_certificate_name(certificate, name);
			tls_issuer_name(certificate, issuer);
		}
		snprintf(words, TLS_ERROR_MAX,
			 "its certificate (%s, issued by %s) does not come from a CA in our "
			 "ca.pem; use one CA for all nodes",
			 certificate ? name : "?", issuer);
	} else {
		snprintf(words, TLS_ERROR_MAX,
			 "its certificate (%s) is not accepted: %s; issue a new one", name,
			 X509_verify_cert_error_string(error));
	}
}

// The other end says what it doesn't like about us.
static void
of_alert(const SSL *ssl, int alert, char words[TLS_ERROR_MAX])
{
	const X509 *own = SSL_get_certificate(ssl);
	char issuer[TLS_NAME_MAX] = "?", from[TLS_TIME_MAX] = "?", until[TLS_TIME_MAX] = "?";

	if (own) {
		tls_issuer_name(own, issuer);
		tls_time_text(X509_get0_notBefore(own), from);
		tls_time_text(X509_get0_notAfter(own), until);
	}
	switch (alert) {
	case SSL_AD_CERTIFICATE_EXPIRED:
	case SSL_AD_BAD_CERTIFICATE:
		snprintf(words, TLS_ERROR_MAX,
			 "it does not accept our certificate, valid from %s to %s; issue a new "
			 "one, or set the clock that is wrong; its log says more",
			 from, until);
		break;
	case SSL_AD_UNKNOWN_CA:
		snprintf(words, TLS_ERROR_MAX,
			 "its ca.pem does not know %s, which issued our certificate; use one CA "
			 "for all nodes",
			 issuer);
		break;
	case SSL_AD_PROTOCOL_VERSION:
		snprintf(words, TLS_ERROR_MAX, "it speaks another version of TLS; 1.3 is needed");
		break;
	case SSL_AD_CERTIFICATE_REQUIRED:
		snprintf(words, TLS_ERROR_MAX,
			 "it wants a certificate and got none; issue one with weirctl pki");
		break;
	default:
		snprintf(words, TLS_ERROR_MAX, "it ended TLS: %s; its log says more",
			 SSL_alert_desc_string_long(alert));
	}
}

void
tls_error_text(const SSL *ssl, unsigned long error, char words[TLS_ERROR_MAX])
{
	int reason = ERR_GET_REASON(error);
	const char *text = ERR_reason_error_string(error);

	if (ERR_SYSTEM_ERROR(error))
		snprintf(words, TLS_ERROR_MAX, "%s", strerror(reason));
	else if (ERR_GET_LIB(error) != ERR_LIB_SSL)
		snprintf(words, TLS_ERROR_MAX, "TLS failed: %s", text ? text : "unknown error");
	else if (reason > SSL_AD_REASON_OFFSET)
		of_alert(ssl, reason - SSL_AD_REASON_OFFSET, words);
	else if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST ||
		 reason == SSL_R_PACKET_LENGTH_TOO_LONG || reason == SSL_R_BAD_RECORD_TYPE ||
		 reason == SSL_R_RECORD_LENGTH_MISMATCH)
		snprintf(words, TLS_ERROR_MAX,
			 "it does not speak TLS; give --tls to all nodes or to none");
	else if (reason == SSL_R_UNSUPPORTED_PROTOCOL)
		snprintf(words, TLS_ERROR_MAX, "it speaks no TLS 1.3, which is needed");
	else if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE)
		snprintf(words, TLS_ERROR_MAX,
			 "it shows no certificate; issue one with weirctl pki");
	else
		snprintf(words, TLS_ERROR_MAX, "TLS failed: %s", text ? text : "unknown error");
}

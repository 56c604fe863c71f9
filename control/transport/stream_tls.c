/* SPDX-License-Identifier: BSD-3-Clause */
#include "stream_tls.h"

#include "stream_bev.h"
#include "tls_errors.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <openssl/err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct stream_tls {
	struct control_transport transport; /* first */
	const char *dir, *cluster;
	uint32_t node;
	SSL_CTX *context;
};

struct tls_stream {
	struct bev_stream bev; /* first */
	SSL *ssl;	       /* the bufferevent's */
	bool dialled;
	char why[TLS_ERROR_MAX]; /* the other end's certificate is refused; else empty */
};

static int
on_verify(int ok, X509_STORE_CTX *check)
{
	SSL *ssl = X509_STORE_CTX_get_ex_data(check, SSL_get_ex_data_X509_STORE_CTX_idx());
	struct tls_stream *t = SSL_get_app_data(ssl);

	if (!ok && !t->why[0])
		tls_error_of_verify(check, t->why);
	return ok;
}

// Connected, or ended: then why. The other end's last word may still lie in the socket when writing
// failed.
static void
on_event(struct bufferevent *bev, short what, void *user)
{
	int error = EVUTIL_SOCKET_ERROR();
	struct tls_stream *t = user;
	const struct control_stream *s = &t->bev.stream;
	unsigned long tls_error;
	char unread;

	if (what & BEV_EVENT_CONNECTED) {
		if (t->dialled)
			s->handler->opened(s->user);
		return;
	}
	tls_error = bufferevent_get_openssl_error(bev);
	// An SSL_ERROR_*, which libevent tells where the socket failed, not TLS.
	if (!ERR_SYSTEM_ERROR(tls_error) && !ERR_GET_LIB(tls_error))
		tls_error = 0;
	if (!tls_error && !t->why[0] && (what & BEV_EVENT_ERROR)) {
		ERR_clear_error();
		if (SSL_peek(t->ssl, &unread, 1) <= 0)
			tls_error = ERR_get_error();
	}
	if (!t->why[0] && tls_error)
		tls_error_text(t->ssl, tls_error, t->why);
	else if (!t->why[0])
		snprintf(t->why, sizeof(t->why), "%s",
			 (what & BEV_EVENT_ERROR) && error ? strerror(error) : "connection closed");
	ERR_clear_error();
	s->handler->closed(s->user, t->why);
}

// Takes over the socket, also on failure.
static int
tls_make(const struct control_transport *self, struct event_base *base, int fd, bool dialled,
	 const struct control_stream_handler *handler, void *user, struct control_stream **stream)
{
	const struct stream_tls *tls = (const struct stream_tls *)self;
	struct tls_stream *t = calloc(1, sizeof(*t));
	SSL *ssl = t ? SSL_new(tls->context) : NULL;

	if (!ssl)
		goto fail;
	SSL_set_app_data(ssl, t);
	SSL_set_verify(ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, on_verify);
	// Deferred: handlers never run inside a call of ours.
	t->bev.bev = bufferevent_openssl_socket_new(
	    base, fd, ssl, dialled ? BUFFEREVENT_SSL_CONNECTING : BUFFEREVENT_SSL_ACCEPTING,
	    BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS);
	if (!t->bev.bev)
		goto fail;
	t->bev.stream = (struct control_stream){self, handler, user};
	t->ssl = ssl;
	t->dialled = dialled;
	bev_start(&t->bev, on_event);
	*stream = &t->bev.stream;
	return 0;
fail:
	SSL_free(ssl);
	free(t);
	close(fd);
	ERR_clear_error();
	return -ENOMEM;
}

static int
tls_dial(const struct control_transport *self, struct event_base *base,
	 const struct sockaddr *address, socklen_t length,
	 const struct control_stream_handler *handler, void *user, struct control_stream **stream)
{
	int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int status;

	if (fd < 0)
		return -errno;
	if (connect(fd, address, length) && errno != EINPROGRESS) {
		status = -errno;
		close(fd);
		return status;
	}
	return tls_make(self, base, fd, true, handler, user, stream);
}

static int
tls_adopt(const struct control_transport *self, struct event_base *base, int fd,
	  const struct control_stream_handler *handler, void *user, struct control_stream **stream)
{
	return tls_make(self, base, fd, false, handler, user, stream);
}

static void
tls_close(struct control_stream *stream)
{
	struct tls_stream *t = (struct tls_stream *)stream;

	if (!t)
		return;
	ERR_clear_error();
	if (SSL_is_init_finished(t->ssl) && !t->why[0]) {
		struct evbuffer *out = bufferevent_get_output(t->bev.bev);
		size_t length = evbuffer_get_length(out);

		// Begins with the bytes that the bufferevent has begun to write.
		if (length == 0 || SSL_write(t->ssl, evbuffer_pullup(out, -1), (int)length) > 0)
			SSL_shutdown(t->ssl);
	}
	ERR_clear_error();
	bev_hang_up(&t->bev);
	bufferevent_setcb(t->bev.bev, NULL, NULL, NULL, NULL);
	bufferevent_free(t->bev.bev);
	free(t);
}

static const char *
tls_vouch(struct control_stream *stream, const char *cluster, uint32_t node)
{
	static char why[TLS_ERROR_MAX];
	const struct tls_stream *t = (struct tls_stream *)stream;
	const X509 *certificate = SSL_get0_peer_certificate(t->ssl);
	char name[TLS_NAME_MAX] = "nobody";

	if (certificate && tls_certificate_is(certificate, cluster, node))
		return NULL;
	if (certificate)
		tls_certificate_name(certificate, name);
	snprintf(why, sizeof(why), "node %u of '%s' shows a certificate of %s; check its --tls",
		 node, cluster, name);
	return why;
}

int
stream_tls_open(const char *dir, const char *cluster, uint32_t node, struct stream_tls **tls,
		char *error, size_t size)
{
	struct stream_tls *t = calloc(1, sizeof(*t));
	int status;

	if (!t) {
		snprintf(error, size, "out of memory for TLS; free some");
		return -ENOMEM;
	}
	t->dir = dir;
	t->cluster = cluster;
	t->node = node;
	t->transport = (struct control_transport){
	    .dial = tls_dial,
	    .adopt = tls_adopt,
	    .vouch = tls_vouch,
	    .write = bev_write,
	    .close = tls_close,
	};
	status = stream_tls_reload(t, error, size);
	if (status)
		stream_tls_close(t);
	else
		*tls = t;
	return status;
}

int
stream_tls_reload(struct stream_tls *t, char *error, size_t size)
{
	SSL_CTX *fresh;
	int status = tls_files_load(t->dir, t->cluster, t->node, &fresh, error, size);

	if (status)
		return status;
	SSL_CTX_free(t->context);
	t->context = fresh;
	return 0;
}

const struct control_transport *
stream_tls_transport(const struct stream_tls *t)
{
	return &t->transport;
}

void
stream_tls_describe(const struct stream_tls *t, char *text, size_t size)
{
	const X509 *own = SSL_CTX_get0_certificate(t->context);
	char name[TLS_NAME_MAX], from[TLS_TIME_MAX], until[TLS_TIME_MAX];
	const char *now = "";

	tls_certificate_name(own, name);
	tls_time_text(X509_get0_notBefore(own), from);
	tls_time_text(X509_get0_notAfter(own), until);
	if (X509_cmp_current_time(X509_get0_notAfter(own)) < 0)
		now = ", has expired; issue a new one, or set this host's clock";
	else if (X509_cmp_current_time(X509_get0_notBefore(own)) > 0)
		now = ", is not valid yet; set this host's clock";
	snprintf(text, size, "certificate of %s, valid from %s to %s%s", name, from, until, now);
}

void
stream_tls_expiry(const struct stream_tls *t, struct tls_expiry *e)
{
	tls_files_expiry(t->context, e);
}

void
stream_tls_close(struct stream_tls *t)
{
	if (!t)
		return;
	SSL_CTX_free(t->context);
	free(t);
}

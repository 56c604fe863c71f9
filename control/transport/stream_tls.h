/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TLS 1.3 under a control stream. Both ends show a certificate, and what a peer says it is must be
 * what its certificate says.
 */
#ifndef WEIR_CONTROL_STREAM_TLS_H
#define WEIR_CONTROL_STREAM_TLS_H

#include "stream.h"
#include "tls_files.h"

struct stream_tls;

/*
 * A transport from the files of `dir` (kept, as is `cluster`). `node`: TLS_NODE_UNKNOWN if it isn't
 * known yet. 0, or -errno and "cause; remedy" in error.
 */
int stream_tls_open(const char *dir, const char *cluster, uint32_t node, struct stream_tls **tls,
		    char *error, size_t size);
/* Reads the files again. Connections that there are go on; on failure everything stays as it was.
 */
int stream_tls_reload(struct stream_tls *tls, char *error, size_t size);
const struct control_transport *stream_tls_transport(const struct stream_tls *tls);
/* "certificate of NAME, valid from A to B", and what is wrong with that now, if anything is. */
void stream_tls_describe(const struct stream_tls *tls, char *text, size_t size);
/* How long its certificates are valid. */
void stream_tls_expiry(const struct stream_tls *tls, struct tls_expiry *e);
/* Streams of it may live on. NULL is allowed. */
void stream_tls_close(struct stream_tls *tls);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests to etcd's HTTP/JSON gateway (/v3/...), by libcurl in the event loop. Whatever comes back
 * is a stranger's: bounded, parsed by jansson, and shown to people printable only.
 */
#ifndef WEIR_CONTROL_ETCD_HTTP_H
#define WEIR_CONTROL_ETCD_HTTP_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ETCD_ANSWER_MAX                                                                            \
	(24u << 20) /* bytes: 65,535 nodes of 256 bytes, in base64, and then some                  \
		     */
#define ETCD_ERROR_MAX 200

struct etcd_http;
struct etcd_request;
struct event_base;

struct etcd_access {
	const char *ca, *certificate, *key; /* PEM files, or NULL */
};

/* NULL: no memory. The caller keeps ownership of the strings in `access`; they must stay valid. */
struct etcd_http *etcd_http_create(struct event_base *base, const struct etcd_access *access);
/* Drops all requests without telling. NULL is allowed. */
void etcd_http_destroy(struct etcd_http *h);

struct etcd_reply {
	/* An answer, or a further one of a stream; borrowed. May drop requests, not make one. */
	void (*answer)(void *user, const json_t *answer);
	/* It is over, and the request freed: NULL, all is well; else why not, for people. */
	void (*over)(void *user, const char *error);
	void *user;
};

/*
 * POSTs `body`, whose reference it takes, to url + path. `token`: of etcd's authentication, or
 * NULL. `seconds`: until it must be over; 0: a stream without an end. NULL: no memory, or body is
 * NULL. Neither function of `reply` is called before this returns.
 */
struct etcd_request *etcd_post(struct etcd_http *h, const char *url, const char *path, json_t *body,
			       const char *token, unsigned seconds, const struct etcd_reply *reply);
/* The same, at the end of all: waits for the answer, `seconds` at most, and doesn't look at it. */
void etcd_post_and_wait(struct etcd_http *h, const char *url, const char *path, json_t *body,
			const char *token, unsigned seconds);
/* Nothing is told of it any more. NULL is allowed. */
void etcd_drop(struct etcd_request *r);

/* Bytes as the gateway writes them: base64. NULL: no memory. */
json_t *etcd_bytes(const char *text);
/* Text out of base64, NUL-terminated; -1 if it isn't such a string, holds a NUL, or is too long. */
int etcd_text(const json_t *bytes, char *text, size_t size);
/* A 64-bit number, which the gateway writes as a string; 0 if it is none. */
uint64_t etcd_number(const json_t *number);

#endif

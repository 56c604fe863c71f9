/* SPDX-License-Identifier: BSD-3-Clause */
/* Somebody at a control's port, by TCP or with TLS inside; and the certificates of tests. */
#ifndef WEIR_TEST_CONTROL_STRANGER_H
#define WEIR_TEST_CONTROL_STRANGER_H

#include "fake.h"

#include "transport/message.h"
#include "pki/pki.h"

#include <openssl/ssl.h>

struct stranger {
	int fd;
	SSL *ssl; /* NULL: plain */
};

extern char certificates[64]; /* CAs and what they issued: make_certificates() */

/* A directory with `ca` of cluster "default", node 1 to 3 and any of it. */
void make_certificates(void);
void remove_certificates(void);
/* CERTIFICATES/CA of cluster "default". */
void make_ca(const char *ca);
/* CERTIFICATES/CA/DIR, valid between `from` and `until` (s from now): its path, static. */
const char *issue(const char *ca, const char *dir, uint32_t node, long from, long until);
/* Path of CERTIFICATES/NAME, static. */
char *certificate_path(const char *name);

/* Connects to control i. */
int knock(int i);
/* The same with TLS 1.3 and the certificates of `dir`; fails if that is never accepted at first. */
struct stranger knock_tls(int i, const char *dir);
/* As the controls speak: `dir` NULL is plain. */
struct stranger knock_as(int i, const char *dir);
void say(struct stranger s, const void *data, size_t length);
void say_msg(struct stranger s, const struct control_msg *m);
/* The same, false if the other end takes nothing any more. */
bool try_say(struct stranger s, const void *data, size_t length);
/* All that comes until the other end closes; fails if it doesn't. Returns the Error's reason, or
 * "". The stranger is gone. */
const char *reason(struct stranger s);
/* The answer of control i to a stranger that says `data` and nothing else; asks again if the
 * stranger was too slow. */
const char *answer_to(int i, const char *dir, const void *data, size_t length);
void leave(struct stranger s);
struct control_msg hello(uint32_t node);
/* KiB that process `pid` has in memory. */
unsigned long resident(pid_t pid);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The client's end of control.sock: blocking with a limit of time, or for an event loop, where a
 * call that would wait returns -EAGAIN and is made again once the descriptor is readable.
 */
#ifndef WEIR_IPC_CTL_CLIENT_H
#define WEIR_IPC_CTL_CLIENT_H

#include "dpctl.h"

struct weir_ctl_client {
	int fd;		/* -1: closed */
	uint32_t asked; /* enum weir_ctl_rows of the last weir_ctl_ask() */
	size_t length;	/* of the last message received, which may be malformed */
	union {
		struct weir_ctl_msg m;
		uint8_t bytes[WEIR_CTL_MAX];
	} in; /* the last message received */
};

/* control.sock of an instance, below $WEIR_RUN_DIR or /run/weir. 0 or -ENAMETOOLONG. */
int weir_ctl_path(const char *instance, char *path, size_t size);
/* `seconds`: no later call waits longer; 0: no call waits. 0 or -errno, then c->fd is -1. */
int weir_ctl_connect(struct weir_ctl_client *c, const char *path, double seconds);
void weir_ctl_limit(struct weir_ctl_client *c, double seconds);
void weir_ctl_close(struct weir_ctl_client *c);

/* Sends a message, whose length it sets, with a descriptor or -1. 0, -EAGAIN or -errno. */
int weir_ctl_send(struct weir_ctl_client *c, struct weir_ctl_msg *m, int fd);
/* HELLO of a program that asks; the answer is a HELLO. */
int weir_ctl_hello(struct weir_ctl_client *c);
/* Asks for the rows of a kind; weir_ctl_page() has the answer. */
int weir_ctl_ask(struct weir_ctl_client *c, uint32_t rows);

/*
 * Receives a message into c->in and checks it. 0; -EAGAIN: none came in time; -ECONNRESET: the
 * data plane closed the connection; -EPROTO, -EBADMSG: see weir_ctl_check(); or -errno.
 */
int weir_ctl_receive(struct weir_ctl_client *c);
/* The same of one type. -EREMOTEIO: c->in is an ERROR; -ENOMSG: it has another type. */
int weir_ctl_expect(struct weir_ctl_client *c, uint32_t type);
/* A page of rows, as weir_ctl_expect(); 1: more follow, 0: it is the last; -ENODATA: of a kind
 * that was not asked for. */
int weir_ctl_page(struct weir_ctl_client *c);
/* HELLO and its answer, blocking. */
int weir_ctl_greet(struct weir_ctl_client *c);

static inline const void *
weir_ctl_row(const struct weir_ctl_client *c, uint32_t i)
{
	return (const uint8_t *)c->in.m.rows.records + (size_t)i * c->in.m.rows.record_bytes;
}

#endif

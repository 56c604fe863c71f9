/* SPDX-License-Identifier: BSD-3-Clause */
/* Shares of the NICs: weights, rates and limits of programs, by option and by weirctl. */
#ifndef WEIR_BROKER_QUOTA_H
#define WEIR_BROKER_QUOTA_H

#include "broker.h"

struct broker_session;

struct quota {
	uint32_t weight;     /* 0: not set */
	uint32_t conn_limit; /* 0: not set */
	bool rated;	     /* rate is set */
	bool classed;	     /* class is set */
	uint8_t class;	     /* enum weir_class of connections that ask for none */
	struct rate rate;
};

/* A setting of programs by name; what is not set comes from the options. */
struct quota_setting {
	struct quota_setting *next;
	char name[WEIR_NAME_MAX];
	struct quota quota;
};

/* Sets the quota of a new session, before engines know it. */
void quota_init(struct broker_session *s);
/* A setting by weirctl: number of sessions changed, or -errno and a reason. */
int quota_set(struct broker *b, const char *key, const char *value, char *reason, size_t size);
void quota_row(const struct broker_session *s, struct weir_row_session *r);
void quota_free_all(struct broker *b);
/* Tells every engine that s->share, or the share of its user, has changed. */
void quota_tell_engines(struct broker_session *s);

#endif

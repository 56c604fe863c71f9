/* SPDX-License-Identifier: BSD-3-Clause */
/* Shares of the NICs: weights, rates and limits of programs, by option and by weirctl. */
#ifndef WEIR_BROKER_QUOTA_H
#define WEIR_BROKER_QUOTA_H

#include "broker.h"

struct broker_session;

/* Settings of programs by name, in order; next is NULL in the last. */
struct share_setting {
	struct share_setting *next;
	char name[WEIR_NAME_MAX];
	uint32_t weight;     /* 0: by the options */
	uint32_t conn_limit; /* 0: by the options */
	bool rated;
	struct rate rate;
};

/* Sets the share of a new session, before engines know it. */
void share_init(struct broker_session *s);
/* A setting by weirctl: number of sessions changed, or -errno and a reason. */
int share_set(struct broker *b, const char *key, const char *value, char *reason, size_t size);
void share_row(const struct broker_session *s, struct weir_row_session *r);
void share_free_all(struct broker *b);
/* Tells every engine that s->share, or the share of its user, has changed. */
void share_tell(struct broker_session *s);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Changes by operators: settings, evictions, draining. */
#ifndef WEIR_BROKER_SET_H
#define WEIR_BROKER_SET_H

#include "broker.h"

struct broker_node;

/* weirctl set: number of objects changed, or -errno and a reason. */
int setting_set(struct broker *b, const char *key, const char *value, char *reason, size_t size);
/* Row `index` of the settings. False: no such row. */
bool setting_row(const struct broker *b, uint32_t index, struct weir_row_setting *r);
/* weirctl evict: 1, or -errno and a reason. */
int evict(struct broker *b, uint32_t what, uint32_t id, const char *why, char *reason, size_t size);
/* Sends weir-control, which has just connected, the log level that weirctl has set. */
void setting_tell_control(struct broker *b);
/* Whether connections to or from a node (NULL: of this host) are refused for now. */
bool draining(struct broker *b, const struct broker_node *n);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Names of services, and the list of those that a node offers to its cluster. Pure; any thread.
 */
#ifndef WEIR_COMMON_SERVICES_H
#define WEIR_COMMON_SERVICES_H

#include "weir/address.h"

#include <stdbool.h>

#define WEIR_SERVICES_MAX 64u /* public names of a node */

/* In ascending order, each once. */
struct weir_services {
	uint32_t count;
	char name[WEIR_SERVICES_MAX][WEIR_SERVICE_MAX];
};

/* Whether it is a name, ended within WEIR_SERVICE_MAX bytes: letters, digits, '_', '-', '.'. */
bool weir_service_ok(const char *name);
/* Whether it is such a list: what others say of their names comes through here. */
bool weir_services_ok(const struct weir_services *s);
/* Of the names alone: lists with the same ones have the same. 0: none. */
uint64_t weir_services_digest(const struct weir_services *s);
bool weir_services_has(const struct weir_services *s, const char *name);
/* -ENOSPC: it is full; -EINVAL: not a name. Adding twice is no error. */
int weir_services_add(struct weir_services *s, const char *name);
void weir_services_remove(struct weir_services *s, const char *name);

#endif

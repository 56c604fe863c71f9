/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Names of services, and the list of those that a node offers to its cluster. Pure; any thread.
 */
#ifndef WEIR_COMMON_SERVICES_H
#define WEIR_COMMON_SERVICES_H

#include "weir/address.h"

#include <stdbool.h>

#define WEIR_SERVICES_MAX 64u /* public names of a node */

/* Names in ascending order, without duplicates. */
struct weir_services {
	uint32_t count;
	char name[WEIR_SERVICES_MAX][WEIR_SERVICE_MAX];
};

/* Whether `name` ends within WEIR_SERVICE_MAX bytes and has letters, digits, '_', '-', '.' only. */
bool weir_service_ok(const char *name);
/* Checks a list received from another process. */
bool weir_services_ok(const struct weir_services *s);
/* Equal for lists with equal names. 0: no names. */
uint64_t weir_services_digest(const struct weir_services *s);
bool weir_services_has(const struct weir_services *s, const char *name);
/* 0 (also if it is there), -ENOSPC: the list is full, -EINVAL: not a name. */
int weir_services_add(struct weir_services *s, const char *name);
void weir_services_remove(struct weir_services *s, const char *name);

#endif

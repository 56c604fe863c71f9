/* SPDX-License-Identifier: BSD-3-Clause */
/* Text form of addresses. */
#ifndef WEIR_IPC_ADDRESS_H
#define WEIR_IPC_ADDRESS_H

#include "weir/address.h"

#include <stdbool.h>

#define WEIR_HOST_MAX 254 /* bytes: longest host name, NUL included */

/* weir_address_parse(), which also tells the mistake: cause and remedy; `why` may be NULL. */
int weir_address_read(const char *text, struct weir_address *address, const char **why);
/*
 * Whether the text is HOST:SERVICE, with the name of a host and not an address of it. Fills `host`
 * and `service`.
 */
bool weir_address_host(const char *text, char host[WEIR_HOST_MAX], char service[WEIR_SERVICE_MAX]);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses of hosts, by the resolver of libc. */
#ifndef WEIR_CLIENT_RESOLVE_H
#define WEIR_CLIENT_RESOLVE_H

#include "public.h"

#define WEIR_RESOLVED_MAX 16u /* addresses of a host that are tried */

/*
 * Looks up a host name, in the order in which the resolver prefers its addresses.
 *
 * @timeout_ms  below 0: as long as the resolver takes
 *
 * Returns the number of addresses, of kind IPV4 or IPV6 with `service`, or with the reason set:
 *   -EHOSTUNREACH  the name has no address, or the resolver failed
 *   -ETIMEDOUT     the resolver has not answered in time
 *   -EAGAIN        as many look-ups as allowed still wait for the resolver
 *   -EINTR, -ENOMEM, -EMFILE
 */
int weir_resolve(struct weir *w, const char *host, const char *service, int timeout_ms,
		 struct weir_address found[WEIR_RESOLVED_MAX]);

#endif

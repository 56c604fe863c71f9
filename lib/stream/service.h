/* SPDX-License-Identifier: BSD-3-Clause */
/* Public services, as connecting and listening need them. */
#ifndef WEIR_STREAM_SERVICE_H
#define WEIR_STREAM_SERVICE_H

#include "client/public.h"

#include "ipc/session_msg.h"

/* Nodes to connect to, the best first: how many, or -errno. */
int weir_service_best(struct weir *w, const char *service, struct weir_found found[WEIR_FOUND_MAX]);

#endif

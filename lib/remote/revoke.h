/* SPDX-License-Identifier: BSD-3-Clause */
/* Revocation with a time of the caller's: tests have none to wait for peers. */
#ifndef WEIR_REMOTE_REVOKE_H
#define WEIR_REMOTE_REVOKE_H

#include "public.h"

/* weir_revoke() with the milliseconds until -EAGAIN; below 0: no limit; 0: it does not wait. */
int weir_export_revoke(struct weir_export *x, int timeout_ms);

#endif

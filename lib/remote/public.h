/* SPDX-License-Identifier: BSD-3-Clause */
/* weir/remote.h, with its functions exported. */
#ifndef WEIR_REMOTE_PUBLIC_H
#define WEIR_REMOTE_PUBLIC_H

#include "client/public.h"

#pragma GCC visibility push(default)
#include "weir/remote.h"
#pragma GCC visibility pop

#endif

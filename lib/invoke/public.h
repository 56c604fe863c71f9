/* SPDX-License-Identifier: BSD-3-Clause */
/* weir/invoke.h, with its functions exported. */
#ifndef WEIR_INVOKE_PUBLIC_H
#define WEIR_INVOKE_PUBLIC_H

#include "client/public.h"

#pragma GCC visibility push(default)
#include "weir/invoke.h"
#pragma GCC visibility pop

#endif

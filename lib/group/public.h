/* SPDX-License-Identifier: BSD-3-Clause */
/* weir/group.h, with its functions exported. */
#ifndef WEIR_GROUP_PUBLIC_H
#define WEIR_GROUP_PUBLIC_H

#include "client/public.h"

#pragma GCC visibility push(default)
#include "weir/group.h"
#pragma GCC visibility pop

#endif

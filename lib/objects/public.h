/* SPDX-License-Identifier: BSD-3-Clause */
/* weir/objects.h, with its functions exported. */
#ifndef WEIR_OBJECTS_PUBLIC_H
#define WEIR_OBJECTS_PUBLIC_H

#pragma GCC visibility push(default)
#include "weir/objects.h"
#pragma GCC visibility pop

#endif

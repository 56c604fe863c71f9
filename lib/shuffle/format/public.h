/* SPDX-License-Identifier: BSD-3-Clause */
/* weir/shuffle.h and weir/arrow.h, with their functions exported. */
#ifndef WEIR_SHUFFLE_PUBLIC_H
#define WEIR_SHUFFLE_PUBLIC_H

#include "weir/invoke.h"

#pragma GCC visibility push(default)
#include "weir/arrow.h"
#pragma GCC visibility pop

#endif

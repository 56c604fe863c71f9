/* SPDX-License-Identifier: BSD-3-Clause */
/* weir/buffer.h, with its functions exported. */
#ifndef WEIR_BUFFER_PUBLIC_H
#define WEIR_BUFFER_PUBLIC_H

#include "remote/public.h"

#pragma GCC visibility push(default)
#include "weir/buffer.h"
#pragma GCC visibility pop

#endif

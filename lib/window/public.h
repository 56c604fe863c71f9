/* SPDX-License-Identifier: BSD-3-Clause */
/* weir/window.h, with its functions exported. */
#ifndef WEIR_WINDOW_PUBLIC_H
#define WEIR_WINDOW_PUBLIC_H

#include "group/public.h"
#include "remote/public.h"

#pragma GCC visibility push(default)
#include "weir/window.h"
#pragma GCC visibility pop

#endif

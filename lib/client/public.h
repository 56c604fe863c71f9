/* SPDX-License-Identifier: BSD-3-Clause */
/* The public headers. Only their functions are exported. */
#ifndef WEIR_CLIENT_PUBLIC_H
#define WEIR_CLIENT_PUBLIC_H

#pragma GCC visibility push(default)
#include "weir/memory.h"
#include "weir/node.h"
#include "weir/stream.h"
#include "weir/weir.h"
#pragma GCC visibility pop

#endif

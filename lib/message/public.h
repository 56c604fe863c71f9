/* SPDX-License-Identifier: BSD-3-Clause */
/* The public header of messages. Only its functions are visible outside the library. */
#ifndef WEIR_MESSAGE_PUBLIC_H
#define WEIR_MESSAGE_PUBLIC_H

#include "client/public.h"

#pragma GCC visibility push(default)
#include "weir/message.h"
#pragma GCC visibility pop

#endif

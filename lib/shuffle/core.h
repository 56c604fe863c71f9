/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that record batches need besides weir/shuffle.h. */
#ifndef WEIR_SHUFFLE_CORE_H
#define WEIR_SHUFFLE_CORE_H

#include "shuffle/format/public.h"

/* The shuffle of a handle. */
struct weir_shuffle *map_shuffle(const struct weir_map *m);
struct weir_shuffle *reduce_shuffle(const struct weir_reduce *r);

#endif

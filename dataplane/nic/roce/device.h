/* SPDX-License-Identifier: BSD-3-Clause */
/* A device: shared by its contexts. */
#ifndef WEIR_ROCE_DEVICE_H
#define WEIR_ROCE_DEVICE_H

#include "base/list.h"
#include "mr.h"
#include "neighbour.h"
#include "packet.h"
#include "roce.h"

struct roce_context;

#define ROCE_CONTEXTS_MAX 32u

struct roce_device {
	struct nic_device_head head;
	struct roce_config config; /* defaults filled in; constant */
	struct headers headers;	   /* constant, as the address */
	struct address address;
	uint32_t engine_bits, index_bits;
	struct mr_table mrs;
	struct neighbours neighbours;
	struct roce_context *contexts[ROCE_CONTEXTS_MAX];
	struct list_node all_ahs; /* main */
};

/*
 * Zeroed memory of the device's user, aligned to 64; main thread. `context`: the one whose engine
 * uses it, or ROCE_ALL.
 */
void *roce_memory_get(struct roce_device *dev, unsigned context, size_t bytes);
void roce_memory_put(struct roce_device *dev, void *memory, size_t bytes);

#endif

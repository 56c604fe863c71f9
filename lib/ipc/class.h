/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Priority of a connection, as in weir/stream.h. Connections of one class between two engines share
 * a link, whose queue pairs have the marks of the class in their packets.
 */
#ifndef WEIR_IPC_CLASS_H
#define WEIR_IPC_CLASS_H

#include <errno.h>
#include <stdint.h>
#include <string.h>

enum weir_class { WEIR_CLASS_NORMAL, WEIR_CLASS_LOW, WEIR_CLASS_HIGH, WEIR_CLASSES };

static inline const char *
weir_class_name(uint32_t class)
{
	static const char *const name[] = {
	    [WEIR_CLASS_NORMAL] = "normal", [WEIR_CLASS_LOW] = "low", [WEIR_CLASS_HIGH] = "high"};

	return class < WEIR_CLASSES ? name[class] : "unknown";
}

/* 0, or -EINVAL: no class has the name. */
static inline int
weir_class_named(const char *name, uint8_t *class)
{
	for (uint8_t i = 0; i < WEIR_CLASSES; i++)
		if (!strcmp(name, weir_class_name(i))) {
			*class = i;
			return 0;
		}
	return -EINVAL;
}

#endif

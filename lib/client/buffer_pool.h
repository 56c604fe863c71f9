/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory for messages that a path would otherwise allocate one by one: large messages that wait,
 * are assembled or composed. Buffers of powers of two are kept for reuse, up to a bound.
 */
#ifndef WEIR_CLIENT_BUFFER_POOL_H
#define WEIR_CLIENT_BUFFER_POOL_H

#include <pthread.h>
#include <stdint.h>

#define WEIR_BUFFER_CLASSES 16u	      /* sizes: 1 KiB to 32 MiB */
#define WEIR_BUFFERS_KEPT (64u << 20) /* bytes kept for reuse, all sizes together */

struct weir;
struct weir_buffer;

/* A leaf among the locks. */
struct weir_buffer_pool {
	pthread_mutex_t lock;
	struct weir_buffer *free[WEIR_BUFFER_CLASSES];
	uint64_t kept; /* bytes */
};

void weir_buffers_init(struct weir_buffer_pool *pool);
void weir_buffers_fini(struct weir_buffer_pool *pool);

/* At least `bytes` bytes, aligned to 16. NULL: no memory. Any thread. */
void *weir_buffer_take(struct weir *w, uint64_t bytes);
/* A buffer of `bytes` with the first `used` bytes of p, which is given back; NULL: p stays. */
void *weir_buffer_grow(struct weir *w, void *p, uint64_t used, uint64_t bytes);
/* NULL is allowed. */
void weir_buffer_give(struct weir *w, void *p);

#endif

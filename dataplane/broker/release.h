/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that programs have had. It is freed in pieces, when no program has it open any more; until
 * then its owner is charged for it.
 */
#ifndef WEIR_BROKER_RELEASE_H
#define WEIR_BROKER_RELEASE_H

#include "broker.h"
#include "memfd.h"

struct broker_release;
struct broker_user;

/* A record for release_memory(), made together with the memory; free() it if unused. NULL: out of
 * memory. */
struct broker_release *release_new(void);
/*
 * Takes over r, the memory and its guard (sigbus.h; -1: none): `bytes` of USER_MEMORY, and one of
 * `also` if that is another limit, stay charged until it is free; without memory, they are returned
 * at once. *memory is empty then. No command to an engine and no key at a NIC may reach the memory
 * any more; it stays mapped until the turns that are under way have ended.
 */
void release_memory(struct broker *b, struct broker_release *r, struct memfd *memory, int guard,
		    struct broker_user *owner, uint64_t bytes, enum user_limit also);
/* Returns the next deadline. */
uint64_t release_timers(struct broker *b, uint64_t now);
/* Frees all of it at once, even if programs have it open. */
void release_all(struct broker *b);

#endif

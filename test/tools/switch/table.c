/* SPDX-License-Identifier: BSD-3-Clause */
#include "table.h"

#include <stdbool.h>
#include <string.h>

uint64_t
switch_mac(const uint8_t bytes[6])
{
	uint64_t mac = 0;

	memcpy(&mac, bytes, 6);
	return mac;
}

/* The product's highest bits: only they depend on the last byte, in which neighbours differ. */
static uint32_t
bucket_of(uint64_t mac)
{
	return (uint32_t)((mac * 0x9e3779b97f4a7c15u) >> (64 - SWITCH_BUCKET_BITS));
}

static bool
is_fresh(const struct switch_table *t, const struct switch_entry *e, uint32_t now)
{
	return e->mac && now - e->seen <= t->age;
}

void
switch_table_init(struct switch_table *t, uint32_t age)
{
	memset(t, 0, sizeof(*t));
	t->age = age;
}

static enum switch_learnt
refresh(struct switch_table *t, struct switch_entry *e, uint32_t port, uint32_t now)
{
	bool moved = e->port != port;

	if (e->seen != now)
		e->seen = now;
	if (!moved)
		return SWITCH_KNOWN;
	e->port = port;
	t->moved++;
	return SWITCH_MOVED;
}

enum switch_learnt
switch_table_learn(struct switch_table *t, uint64_t mac, uint32_t port, uint32_t now)
{
	struct switch_entry *way = t->bucket[bucket_of(mac)], *room = NULL;

	for (uint32_t i = 0; i < SWITCH_WAYS; i++) {
		if (way[i].mac == mac)
			return refresh(t, &way[i], port, now);
		if (!room && !is_fresh(t, &way[i], now))
			room = &way[i];
	}
	if (!room) {
		t->crowded++;
		return SWITCH_CROWDED;
	}
	*room = (struct switch_entry){.mac = mac, .seen = now, .port = port};
	t->learnt++;
	return SWITCH_NEW;
}

uint32_t
switch_table_find(const struct switch_table *t, uint64_t mac, uint32_t now)
{
	const struct switch_entry *way = t->bucket[bucket_of(mac)];

	for (uint32_t i = 0; i < SWITCH_WAYS; i++)
		if (way[i].mac == mac)
			return is_fresh(t, &way[i], now) ? way[i].port : SWITCH_NOWHERE;
	return SWITCH_NOWHERE;
}

static bool
is_group(const uint8_t mac[6])
{
	return mac[0] & 1;
}

uint32_t
switch_decide(struct switch_table *t, const uint8_t destination[6], const uint8_t source[6],
	      uint32_t port, uint32_t now)
{
	uint64_t from = switch_mac(source);
	uint32_t to;

	if (is_group(source) || !from)
		return SWITCH_BAD;
	switch_table_learn(t, from, port, now);
	if (is_group(destination))
		return SWITCH_FLOOD;
	to = switch_table_find(t, switch_mac(destination), now);
	if (to == SWITCH_NOWHERE)
		return SWITCH_FLOOD;
	return to == port ? SWITCH_STAY : to;
}

void
switch_table_forget(struct switch_table *t, uint32_t port)
{
	struct switch_entry *e = t->bucket[0];

	for (uint32_t i = 0; i < SWITCH_BUCKETS * SWITCH_WAYS; i++)
		if (e[i].port == port)
			e[i].mac = 0;
}

uint32_t
switch_table_count(const struct switch_table *t, uint32_t now)
{
	const struct switch_entry *e = t->bucket[0];
	uint32_t n = 0;

	for (uint32_t i = 0; i < SWITCH_BUCKETS * SWITCH_WAYS; i++)
		n += is_fresh(t, &e[i], now);
	return n;
}

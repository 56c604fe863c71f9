/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Notifications of a daemon to systemd: datagrams on $NOTIFY_SOCKET (man sd_notify). Without such a
 * socket the calls do nothing. Main thread.
 */
#ifndef WEIR_COMMON_NOTIFY_H
#define WEIR_COMMON_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

/* Lines NAME=VALUE, as "READY=1\nSTATUS=serving". */
void notify(const char *state);
/* How often WATCHDOG=1 is due, ns: half of what systemd waits for; 0: it doesn't. */
uint64_t notify_watchdog(void);

/* Sends WATCHDOG=1 when it is due and all is well. */
struct watchdog {
	uint64_t every, due; /* ns; every 0: never */
};
void watchdog_open(struct watchdog *w, uint64_t now);
/* Returns when it wants to be called again, UINT64_MAX: never. */
uint64_t watchdog_feed(struct watchdog *w, uint64_t now, bool well);

#endif

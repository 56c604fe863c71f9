#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# How smoke tests wait: a look that took all the time there was is not the last one.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/../smoke/_init.sh"

looks=0
# False at first, but that is known only when time is over.
held_up() {
	[ $((looks++)) -gt 0 ] || { sleep 2.1 && false; }
}
patience=1
await held_up || fail "await believes a look that was held up"
[ "$looks" = 2 ] || fail "$looks looks"
patience=0
await false && fail "await never gives up"

sleep 60 &
pid=$!
gone $pid && fail "a process that runs is gone"
kill $pid
patience=60
gone $pid || fail "a process that was killed is not gone"

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
await 1 held_up || fail "await believes a look that was held up"
[ "$looks" = 2 ] || fail "$looks looks"
await 0 false && fail "await never gives up"

sleep 60 &
pid=$!
gone $pid 0 && fail "a process that runs is gone"
kill $pid
gone $pid 60 || fail "a process that was killed is not gone"

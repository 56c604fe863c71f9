#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A part of a window beyond 4 GiB, which the ranks of one host map: the case of test/rma that runs by its name alone.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

[ "$(awk '/^MemAvailable/ { print $2 }' /proc/meminfo)" -gt $((6 << 20)) ] || skip "6 GiB of memory are not available"
one_node --memory 5G
for rank in 0 1 2; do run "rank-$rank" rma-cases A large 3 map window/large; done
for rank in 0 1 2; do
	wait "${weir_pid[rank-$rank]}" || fail "rank $rank: $(last_line "rank-$rank")"
	unset "weir_pid[rank-$rank]"
done
grep -hq '^1 cases, 0 failed' "$weir_tmp"/rank-*.log || fail "no result"

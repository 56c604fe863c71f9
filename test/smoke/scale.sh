#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# 10,000 connections to one peer, and 64 programs on one data plane: over the same two queue pairs.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

two_nodes_memif
qps() { weirctl --instance A --json show qps | jq length; }
serve echo probe B echo e
probe A many node:2:e 10000 2 >"$weir_tmp/many.log" 2>&1 || die "10,000 connections: $(last_line many)"
grep -q 'end 0 after 20000' "$weir_tmp/many.log" || fail "many: $(last_line many)"
await sh -c "[ \$(grep -c 'closed 0' $weir_tmp/echo.log) = 10000 ]" || fail "the echo did not see 10,000 ends of stream"
[ "$(qps)" = 2 ] || fail "$(qps) queue pairs for one peer"

# small ones: of one huge page each
export PROBE_ARENA=$((2 << 20))
for ((i = 1; i < 64; i++)); do
	run "hold$i" probe A hold node:2:e 3
done
for ((i = 1; i < 64; i++)); do
	await grep -q holding "$weir_tmp/hold$i.log" || die "program $i: $(last_line hold$i)"
done
probe A many node:2:e 50 20 >"$weir_tmp/many.log" 2>&1 || fail "the 64th program: $(last_line many)"
shows A sessions 'length >= 63 and all(.arena_bytes == 2097152)' ||
	fail "sessions: $(weirctl --instance A --json show sessions | jq -c 'map(.arena_bytes) | unique'), $(weirctl --instance A --json show sessions | jq length) of them"
weirctl --instance A wait connections:189 --timeout "$patience" || fail "not all connections are there"
[ "$(qps)" = 2 ] || fail "$(qps) queue pairs for 64 programs"
for ((i = 1; i < 64; i++)); do
	kill -KILL "${weir_pid[hold$i]}"
done
weirctl --instance A wait connections:0 --timeout "$patience" || fail "connections remain"
await sh -c "weirctl --instance A --json show sessions | jq -e 'length == 0'" || fail "sessions remain"
for ((i = 1; i < 64; i++)); do
	wait "${weir_pid[hold$i]}" 2>/dev/null
	unset "weir_pid[hold$i]"
done
exit 0

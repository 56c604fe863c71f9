#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# 10,000 connections to one peer, and 64 programs on one data plane: over the same two queue pairs.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

two_nodes_memif
qps() { weirctl --instance A --json show qps | jq length; }
run echo probe B echo e
await grep -q ready "$weir_tmp/echo.log"
probe A many node:2:e 10000 2 >"$weir_tmp/many.log" 2>&1 || die "10,000 connections: $(tail -n 1 "$weir_tmp/many.log")"
grep -q 'end 0 after 20000' "$weir_tmp/many.log" || fail "many: $(tail -n 1 "$weir_tmp/many.log")"
await sh -c "[ \$(grep -c 'closed 0' $weir_tmp/echo.log) = 10000 ]" || fail "the echo did not see 10,000 ends of stream"
[ "$(qps)" = 2 ] || fail "$(qps) queue pairs for one peer"

# small ones: of one huge page each
export PROBE_ARENA=$((2 << 20))
for ((i = 1; i < 64; i++)); do
	run "hold$i" probe A hold node:2:e 3
done
for ((i = 1; i < 64; i++)); do
	await grep -q holding "$weir_tmp/hold$i.log" || die "program $i: $(tail -n 1 "$weir_tmp/hold$i.log")"
done
probe A many node:2:e 50 20 >"$weir_tmp/many.log" 2>&1 || fail "the 64th program: $(tail -n 1 "$weir_tmp/many.log")"
weirctl --instance A --json show sessions | jq -e 'length >= 63 and all(.arena_bytes == 2097152)' >/dev/null ||
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

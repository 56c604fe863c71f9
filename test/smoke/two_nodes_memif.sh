#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Two nodes over memif: every kind of test, contents verified, counters of both ports plausible.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

two_nodes_memif
server B
for test in lat rate bw; do
	for size in 0 8 64 948 949 8192 8193 65536 1048576; do
		[ "$test" = bw ] && [ "$size" = 0 ] && continue
		measured '.verified == true and .count >= 300 and (.pids | length) >= 2 and .ports.tx_bytes >= .size * 300
			and .ports.tx_frames > 0 and .ports.rx_frames > 0' --instance A node:2 -t "$test" -s "$size" -n 300 --verify
	done
done
# each way, told by flag
for flag in RING SEND READ WRITE; do
	measured '.verified == true and .count >= 300' --instance A node:2 -t lat,bw -s 1000,1900 -n 300 --verify --no-calibrate --flags "RC,$flag"
	jq -e '.results | length == 4' "$weir_tmp/result.json" >/dev/null || fail "--flags $flag: results are missing"
done
for name in fetched frames_by_send bulk_messages; do
	for instance in A B; do
		[ "$(counter $instance "engine.$name")" -ge 300 ] || fail "$instance: $name: $(counter $instance "engine.$name")"
	done
done
[ "$(counter B nic.read_bytes)" -ge $((600 * 2900)) ] || fail "B: bytes read: $(counter B nic.read_bytes)"
shows A nodes 'length == 2 and all(.state == "up") and all(has("id") and has("incarnation") and has("address"))' ||
	fail "show nodes: $(weirctl --instance A --json show nodes)"
shows A engines 'length == 1 and all(has("lcore") and .busy_cycles > 0 and has("idle_cycles"))' || fail "show engines"
shows A ports 'length == 1 and all(has("name") and .rx_frames > 0 and .tx_frames > 0 and .rx_bytes > 0 and .tx_bytes > 0 and has("drops"))' ||
	fail "show ports"
for what in nodes engines sessions connections qps ports counters; do
	weirctl --instance B show $what >/dev/null || fail "weirctl show $what"
done

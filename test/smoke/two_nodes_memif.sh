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
		weir-perf --instance A node:2 -t "$test" -s "$size" -n 300 --verify --json >"$weir_tmp/result.json" 2>"$weir_tmp/perf.log" ||
			fail "weir-perf -t $test -s $size failed: $(tail -n 1 "$weir_tmp/perf.log")"
		jq -e '.results[0] | .errors == 0 and .verified == true and .count >= 300 and (.pids | length) >= 2
			and .ports.tx_bytes >= .size * 300 and .ports.tx_frames > 0 and .ports.rx_frames > 0' \
			"$weir_tmp/result.json" >/dev/null ||
			fail "-t $test -s $size: $(jq -c '.results[0]' "$weir_tmp/result.json")"
	done
done
# each way, told by flag
for flag in RING SEND READ WRITE; do
	weir-perf --instance A node:2 -t lat,bw -s 1000,1900 -n 300 --verify --no-calibrate --flags "RC,$flag" --json >"$weir_tmp/result.json" 2>"$weir_tmp/perf.log" ||
		fail "weir-perf --flags $flag failed: $(tail -n 1 "$weir_tmp/perf.log")"
	jq -e '.results | length == 4 and all(.errors == 0 and .verified == true and .count >= 300)' "$weir_tmp/result.json" >/dev/null ||
		fail "--flags $flag: $(jq -c '.results' "$weir_tmp/result.json")"
done
for name in fetched frames_by_send bulk_messages; do
	for instance in A B; do
		weirctl --instance $instance --json show counters | jq -e --arg n "engine.$name" 'any(.name == $n and .value >= 300)' >/dev/null ||
			fail "$instance: $name: $(weirctl --instance $instance --json show counters | jq -c --arg n "engine.$name" '.[] | select(.name == $n)')"
	done
done
weirctl --instance B --json show counters | jq -e 'any(.name == "nic.read_bytes" and .value >= 600 * 2900)' >/dev/null ||
	fail "B: bytes read: $(weirctl --instance B --json show counters | jq -c '.[] | select(.name == "nic.read_bytes")')"
weirctl --instance A --json show nodes | jq -e 'length == 2 and all(.state == "up") and all(has("id") and has("incarnation") and has("address"))' >/dev/null ||
	fail "show nodes: $(weirctl --instance A --json show nodes)"
weirctl --instance A --json show engines | jq -e 'length == 1 and all(has("lcore") and .busy_cycles > 0 and has("idle_cycles"))' >/dev/null ||
	fail "show engines"
weirctl --instance A --json show ports | jq -e 'length == 1 and all(has("name") and .rx_frames > 0 and .tx_frames > 0 and .rx_bytes > 0 and .tx_bytes > 0 and has("drops"))' >/dev/null ||
	fail "show ports"
for what in nodes engines sessions connections qps ports counters; do
	weirctl --instance B show $what >/dev/null || fail "weirctl show $what"
done

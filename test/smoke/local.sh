#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Two programs of one node: the same calls, no byte through a port.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

one_node
server A
for test in lat rate bw; do
	for size in 8 64 949 65536 4194304 16777216; do
		weir-perf --instance A node:1 -t $test -s $size -n 50 --verify --json >"$weir_tmp/result.json" 2>"$weir_tmp/perf.log" ||
			fail "-t $test -s $size: $(tail -n 1 "$weir_tmp/perf.log")"
		jq -e '.results[0] | .errors == 0 and .verified == true' "$weir_tmp/result.json" >/dev/null || fail "-t $test -s $size"
	done
done
stop server-A
weir-perf --instance A --loop -t lat -s 8,64,948,949,8192,8193,1048576 -n 200 --verify --json >"$weir_tmp/result.json" 2>"$weir_tmp/perf.log" ||
	fail "--loop: $(tail -n 1 "$weir_tmp/perf.log")"
jq -e '.results | length == 7 and all(.errors == 0 and .ports.tx_bytes > .size * 200)' "$weir_tmp/result.json" >/dev/null ||
	fail "--loop: frames not counted: $(jq -c '.results[0].ports' "$weir_tmp/result.json")"
run sink probe A sink t
await grep -q ready "$weir_tmp/sink.log"
probe A threads node:1:t 4 20000 >"$weir_tmp/threads.log" 2>&1 || fail "threads: $(tail -n 1 "$weir_tmp/threads.log")"
await grep -q 'end -108 after 20000' "$weir_tmp/sink.log" || fail "threads' order: $(tail -n 1 "$weir_tmp/sink.log")"

#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Two programs of one node: the same calls, no byte through a port.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

one_node
server A
for test in lat rate bw; do
	for size in 8 64 949 65536 4194304 16777216; do
		measured '.verified == true' --instance A node:1 -t $test -s $size -n 50 --verify
	done
done
stop server-A
measured '.ports.tx_bytes > .size * 200' --instance A --loop -t lat -s 8,64,948,949,8192,8193,1048576 -n 200 --verify
jq -e '.results | length == 7' "$weir_tmp/result.json" >/dev/null || fail "--loop: sizes are missing"
serve sink probe A sink t
probe A threads node:1:t 4 20000 >"$weir_tmp/threads.log" 2>&1 || fail "threads: $(last_line threads)"
await grep -q 'end -108 after 20000' "$weir_tmp/sink.log" || fail "threads' order: $(last_line sink)"
